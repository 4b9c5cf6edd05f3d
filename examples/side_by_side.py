"""Draws with asyncio: many calls at once share the server's batches.

python3 examples/side_by_side.py [ADDRESS]
"""

import asyncio
import sys
import time

from runnel_client import aio


async def main() -> None:
    async with aio.Client(*sys.argv[1:]) as client:
        start = time.monotonic()
        digits = await asyncio.gather(*(client.image(model="mnist-small", seed=seed) for seed in range(16)))
        seconds = time.monotonic() - start
        scores = await asyncio.gather(*(client.score(digit, model="mnist-small") for digit in digits))
        likely = min(range(16), key=lambda seed: scores[seed].bits_per_dim)
        print(f"16 digits in {seconds:.2f} s; the likeliest is that of seed {likely}")


asyncio.run(main())
