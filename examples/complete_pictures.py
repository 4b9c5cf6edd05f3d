"""Draws digits, completes the upper half of one in nine ways, and writes both as PNG. Needs Pillow.

python3 examples/complete_pictures.py [ADDRESS]
"""

import sys

from runnel_client import Client, pictures

with Client(*sys.argv[1:]) as client:
    digits = client.images(16, model="mnist-small", seed=7)
    pictures.to_pil(pictures.sheet(digits), scale=4).save("digits.png")
    completed = client.images(9, given=digits[0][:14], model="mnist-small")
    pictures.to_pil(pictures.sheet(completed), scale=4).save("completed.png")
    bits = client.score(digits[0], model="mnist-small").bits_per_dim
    print(f"wrote digits.png and completed.png; the first digit has {bits:.2f} bits a pixel")
