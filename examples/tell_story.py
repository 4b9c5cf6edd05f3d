"""Writes a text in turns with the model: each call continues where the last one ended, and pays for its own values.

python3 examples/tell_story.py [ADDRESS]
"""

import sys

from runnel_client import Client

with Client(*sys.argv[1:]) as client, client.session(model="text-small") as story:
    for opening in ("The river was ", " Then the ", " At last "):
        print(opening, end="")
        for piece in story.generate(opening, max_values=60, stop=["."]).text():
            print(piece, end="", flush=True)
    print(f"\n({story.info().position} values in one state of {story.info().state_bytes:,} bytes)")
