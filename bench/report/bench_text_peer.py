#!/usr/bin/env python3
"""Writes files for BlinkDL's rwkv package, and measures it. bench_text.py runs it in an environment with torch, rwkv
and safetensors.

    bench_text_peer.py --write DIRECTORY MODEL.pth      from flash-linear-attention's names to BlinkDL's
    bench_text_peer.py MODEL.pth                        one JSON object: loading, decoding one sequence, a prompt

The package advances only one sequence at a time, so several sequences take their steps one after the other.
"""

import argparse
import contextlib
import json
import os
import random
import sys
import time

os.environ["RWKV_V7_ON"] = "1"
os.environ["RWKV_JIT_ON"] = "1"
os.environ["RWKV_CUDA_ON"] = "0"

import torch

NAMES = (
    ("model.embeddings.", "emb."),
    ("lm_head.", "head."),
    ("model.norm.", "ln_out."),
    ("model.layers.", "blocks."),
    (".pre_norm.", ".ln0."),
    (".attn_norm.", ".ln1."),
    (".ffn_norm.", ".ln2."),
    (".attn.g_norm.", ".att.ln_x."),
    (".attn.r_proj.", ".att.receptance."),
    (".attn.k_proj.", ".att.key."),
    (".attn.v_proj.", ".att.value."),
    (".attn.o_proj.", ".att.output."),
    (".attn.", ".att."),
    ("_lora.lora.0.weight", "1"),
    ("_lora.lora.2.weight", "2"),
    ("_lora.lora.2.bias", "0"),
)


def official(name, tensor):
    """A tensor as in BlinkDL's files, which store low-rank matrices transposed."""
    turned = "_lora." in name and tensor.dim() == 2
    for ours, theirs in NAMES:
        name = name.replace(ours, theirs)
    return name, tensor.t().contiguous() if turned else tensor


def write(directory, path):
    from safetensors.torch import load_file

    stored = load_file(os.path.join(directory, "model.safetensors"))
    torch.save(dict(official(name, tensor) for name, tensor in stored.items()), path)


def seconds_of(call):
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


@torch.no_grad()
def measure(path, strategy, values, prompt):
    from rwkv.model import RWKV

    began = time.perf_counter()
    model = RWKV(model=os.path.splitext(path)[0], strategy=strategy)
    loaded = time.perf_counter() - began
    given = [random.randrange(65536) for _ in range(prompt)]
    model.forward(given, None)  # to warm up
    prompt_seconds = seconds_of(lambda: model.forward(given, None))
    head, state = model.forward([0], None)

    def decode():
        nonlocal head, state
        for _ in range(values):
            value = int(torch.multinomial(torch.softmax(head.float(), dim=0), 1))
            head, state = model.forward([value], state)

    decode_seconds = seconds_of(decode)
    if not bool(torch.isfinite(head).all()):
        raise SystemExit("bench_text_peer.py: error: the logits are not finite")
    return {"load_s": loaded, "1": values / decode_seconds, "prompt": prompt / prompt_seconds}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a .pth file")
    parser.add_argument("--write", metavar="DIRECTORY", help="make the file, from the model in this directory")
    parser.add_argument("--strategy", default="cpu bf16", help="where, and in which numbers (default: %(default)s)")
    parser.add_argument("--values", type=int, default=32, help="to decode (default: %(default)s)")
    parser.add_argument("--prompt", type=int, default=512, help="values of a prompt (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.write:
        write(arguments.write, arguments.model)
    else:
        with contextlib.redirect_stdout(sys.stderr):  # the package prints its progress
            figures = measure(arguments.model, arguments.strategy, arguments.values, arguments.prompt)
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
