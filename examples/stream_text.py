"""Prints a text as it is written, and how likely the model found it.

python3 examples/stream_text.py [ADDRESS]
"""

import sys

from runnel_client import Client

with Client(*sys.argv[1:]) as client:
    stream = client.generate("The river was ", model="text-small", max_values=200, stop=["."], temperature=0.8)
    text = "The river was "
    print(text, end="")
    for piece in stream.text():
        print(piece, end="", flush=True)
        text += piece
    score = client.score(text, model="text-small")
    print(f"\n({stream.finished[0].reason}, {score.bits_per_dim:.2f} bits a byte, seed {stream.started.seed})")
