"""Log probabilities of the same values after the same prompts, of llama-server and of runnel."""

import json
import math
import random
import urllib.request

LENGTHS = range(4, 65, 4)
LIKELY = 8  # how many of llama.cpp's most likely values are compared after each prompt


def prompts():
    """Prefixes of one random text."""
    rng = random.Random(1)
    text = [rng.randrange(1, 65536) for _ in range(max(LENGTHS))]
    return [text[:length] for length in LENGTHS]


def most_likely(address):
    """Each prompt with each of its most likely next values, and llama-server's log probabilities of these values."""
    asked, found = [], []
    for prompt in prompts():
        words = {"prompt": prompt, "n_predict": 1, "n_probs": LIKELY, "ignore_eos": False, "cache_prompt": False}
        request = urllib.request.Request(f"{address}/completion", json.dumps(words).encode())
        with urllib.request.urlopen(request, timeout=600) as answer:
            top = json.load(answer)["completion_probabilities"][0]["top_logprobs"]
        asked += [[*prompt, one["id"]] for one in top]
        found += [one["logprob"] for one in top]
    return asked, found


def log_probs(runnel, model, precision, asked, log):
    """The log probability of the last value of each sequence, by runnel in this precision."""
    from runnel_client import serving
    from runnel_client.batch import Batch
    from runnel_client.client import Client

    server = serving.running(runnel, model, log, ("--backend", "cpu", "--precision", precision))
    with server as (_, address), Client(address) as client, Batch(client, "") as batch:
        return [float(one[-1]) for one in batch.score(asked)]


def rms(left, right):
    return math.sqrt(sum((one - other) ** 2 for one, other in zip(left, right, strict=True)) / len(left))
