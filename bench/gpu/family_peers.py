#!/usr/bin/env python3
"""Measures how fast flash-linear-attention decodes on a GPU at the sizes of runnel's presets: JSON lines.

    family_peers.py PRESET[,PRESET...] [BATCH,BATCH,...] [SECONDS]     PRESET: see scripts/runnel-random-bundle --help

  eager   the model's own step with its cache, as generate() calls it for sequences without padding
  graph   the same step, captured once as a CUDA graph, with the states in fixed buffers

A step takes one value for each sequence, and feeds the likeliest value into the next step. Weights are random, in bf16.
Before each measurement of a graph, it is compared with eager steps from the same states and values; "equal" says
whether the logits agree. If a preset fails, its line has "error", and the program continues with the next one.

With several presets, one process for each preset compiles its kernels first. Measurements begin when all processes have
ended. Triton chooses among at most 12 variants of a kernel.

Needs flash-linear-attention with transformers and einops. Without mamba-ssm, Mamba takes its steps in plain PyTorch.
The library computes a rotary table in each step; here it is computed once, and a graph reads its row from the table.
"""

import inspect
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import time

import torch
from cuda_graph import captured, timed

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

from runnel_client import random_published

CLASSES = {
    "gla": "GLA",
    "retnet": "RetNet",
    "delta_net": "DeltaNet",
    "gated_deltanet": "GatedDeltaNet",
    "kda": "KDA",
    "hgrn2": "HGRN2",
    "rwkv6": "RWKV6",
    "rwkv7": "RWKV7",
    "mamba": "Mamba",
    "mamba2": "Mamba2",
}
RENAMED = {
    "layer_norm_epsilon": "norm_eps",
    "rms_norm": "rmsnorm",
    "time_step_rank": "dt_rank",
    "time_step_limit": "dt_limit",
}  # of Hugging Face's Mamba
POSITIONS = 8192  # of rotary tables
STEPS_COMPARED = 4
COMPILING_SECONDS = 60
VARIANTS = 12  # of a kernel, out of up to 45: each has to be compiled
ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
DTYPE = torch.bfloat16 if ON_GPU else torch.float32


def say(**figures):
    print(json.dumps(figures), flush=True)


def sizes_of(preset):
    """A preset's config with the names of flash-linear-attention, and its number of parameters."""
    sizes = random_published.PRESETS[preset]
    if not ON_GPU:
        sizes = random_published.Sizes(2, sizes.width, 1024)
    config, shapes = random_published.config_and_shapes(preset, sizes)
    if config["model_type"] == "rwkv6":
        heads = config["attention_hidden_size"] // config["head_size"]
        config |= {"num_heads": heads, "expand_k": 1.0, "expand_v": 1.0, "tie_word_embeddings": False}
    config = {RENAMED.get(name, name): value for name, value in config.items()}
    return {**config, "fuse_norm": True}, sum(math.prod(shape) for shape in shapes.values())


def build(config):
    """The model with random weights. Parameters that would all be zero also get random values."""
    import fla.models

    family = CLASSES.get(config["model_type"])
    if family is None:
        raise ValueError("flash-linear-attention has no such family")
    if family.startswith("Mamba"):
        find_convolution()
    config_class = getattr(fla.models, family + "Config")
    known = inspect.signature(config_class.__init__).parameters
    torch.manual_seed(1)
    with torch.device(DEVICE):
        model = getattr(fla.models, family + "ForCausalLM")(
            config_class(**{name: value for name, value in config.items() if name in known})
        )
    model = model.to(device=DEVICE, dtype=DTYPE).eval()
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1 and not name.endswith("A_log"):
            parameter.normal_(std=1.0 if "embeddings" in name else parameter.shape[-1] ** -0.5)
        elif not parameter.any():
            parameter.uniform_(0, 0.5)
    return model


def find_convolution():
    """Mamba of fla 0.6.0 imports a module by its old name."""
    try:
        import fla.modules.convolution  # noqa: F401
    except ImportError:
        import fla.modules.causal_conv1d

        sys.modules["fla.modules.convolution"] = fla.modules.causal_conv1d


def tensors(state):
    """The tensors of a layer's state, in order."""
    if isinstance(state, torch.Tensor):
        yield state
    elif isinstance(state, dict | list | tuple):
        for part in state.values() if isinstance(state, dict) else state:
            yield from tensors(part)


def copied(cache):
    states = tuple(layer._map_state(torch.clone) for layer in cache.layers)
    return type(cache).from_legacy_cache(states, seen_tokens=cache.get_seq_length())


class Eager:
    """Steps of the unchanged model."""

    def __init__(self, model, cache, batch):
        self.model, self.cache = model, cache
        self.token = torch.zeros(batch, 1, dtype=torch.long, device=DEVICE)
        self.logits = None
        for rotary in rotaries(model):  # otherwise each layer recomputes the table in each step
            rotary._seq_len_cached = 0
            rotary._update_cos_sin_cache(POSITIONS, device=self.token.device, dtype=DTYPE)

    def step(self):
        output = self.model(self.token, past_key_values=self.cache, use_cache=True)
        self.logits = output.logits[:, -1]
        self.token.copy_(self.logits.argmax(-1, keepdim=True))


class Static(Eager):
    """The same, with the states and the row of the rotary table in fixed buffers."""

    def __init__(self, model, cache, batch):
        super().__init__(model, cache, batch)
        self.first_position = cache.get_seq_length()
        self.position = torch.full((1,), self.first_position, device=DEVICE)
        self.states = [dict(layer.state) for layer in cache.layers]
        self.row = None
        for rotary in rotaries(model):
            if self.row is None:
                self.table = (rotary._cos_cached, rotary._sin_cached)
                self.row = tuple(part[:1].clone() for part in self.table)
            rotary._cos_cached, rotary._sin_cached = self.row

    def step(self):
        if self.row is not None:
            for row, table in zip(self.row, self.table, strict=True):
                row.copy_(table.index_select(0, self.position))
            self.position.add_(1).remainder_(POSITIONS)
        for layer in self.cache.layers:
            layer._seen_tokens = 0  # the index of the row in the buffer that replaces the table
        super().step()
        for layer, state in zip(self.cache.layers, self.states, strict=True):
            for buffer, new in zip(tensors(state), tensors(layer.state), strict=True):
                if buffer.data_ptr() != new.data_ptr():  # some are updated in place
                    assert buffer.shape == new.shape and buffer.dtype == new.dtype, "a state changes its kind"
                    buffer.copy_(new)
            layer.state = dict(state)

    def load(self, cache):
        self.position.fill_(self.first_position)
        for state, layer in zip(self.states, cache.layers, strict=True):
            for buffer, value in zip(tensors(state), tensors(layer.state), strict=True):
                buffer.copy_(value)


def rotaries(model):
    return [module for module in model.modules() if type(module).__name__ == "RotaryEmbedding"]


def started(model, batch):
    """A cache after a few steps of `batch` sequences: kernels are compiled, and states have their final types."""
    first = torch.ones(1, 1, dtype=torch.long, device=DEVICE)
    cache = model(first, use_cache=True).past_key_values
    cache.batch_repeat_interleave(batch)
    eager = Eager(model, cache, batch)
    for i in range(18 if rotaries(model) else 3):  # Triton compiles positions 1 and 16 separately
        give(eager, i)
        eager.step()
    return cache


def give(decoder, i):
    """Sets the inputs of step i, which differ between sequences."""
    batch, values = decoder.token.shape[0], decoder.model.config.vocab_size
    decoder.token.copy_(((torch.arange(batch, device=DEVICE) * 37 + 101 * i + 7) % values).unsqueeze(1))


def outputs(decoder, step):
    found = []
    for i in range(STEPS_COMPARED):
        give(decoder, i)
        step()
        found.append((decoder.logits.float().clone(), decoder.token.clone()))
    return [torch.stack(part) for part in zip(*found, strict=True)]


def report(preset, way, batch, step, seconds):
    if ON_GPU:
        each = timed(step, seconds)
        figures = {"step_us": round(each * 1e6, 1), "values_per_s": round(batch / each, 1)}
        say(peer="fla", preset=preset, way=way, batch=batch, **figures)


def measure(preset, model, batch, seconds):
    start = started(model, batch)
    eager = Eager(model, copied(start), batch)
    logits, chosen = outputs(eager, eager.step)
    report(preset, "eager", batch, eager.step, seconds)
    del eager
    static = Static(model, copied(start), batch)
    replay = captured(static.step) if ON_GPU else static.step
    static.load(start)
    found, found_chosen = outputs(static, replay)
    difference, largest = (found - logits).abs().max().item(), logits.abs().max().item()
    is_equal = bool(torch.isfinite(logits).all()) and difference <= 0.02 * largest
    say(
        preset=preset,
        batch=batch,
        equal=is_equal,
        same_values=torch.equal(chosen, found_chosen),
        largest_difference=difference if math.isfinite(difference) else str(difference),
        largest_logit=largest if math.isfinite(largest) else str(largest),
    )
    report(preset, "graph", batch, replay, seconds)


def run(preset, batches, seconds):
    """Measures a preset, or only compiles its kernels if `seconds` is 0."""
    config, parameters = sizes_of(preset)
    model = build(config)
    of_model = sum(parameter.numel() for parameter in model.parameters())
    say(preset=preset, parameters=of_model, parameters_of_runnel=parameters)
    for batch in batches:
        if seconds > 0:
            measure(preset, model, batch, seconds)
        else:
            started(model, batch)
        if ON_GPU:
            torch.cuda.empty_cache()


def compile_all(presets, batches):
    """Compiles each preset in a process: Triton keeps the results on disk. Tuning runs later, one preset at a time."""
    begin = time.perf_counter()
    environment = {**os.environ, "FLA_CACHE_RESULTS": "0"}
    command = [sys.executable, os.path.abspath(__file__)]
    processes = [
        subprocess.Popen(
            [*command, preset, ",".join(map(str, batches)), "0"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for preset in presets
    ]
    for process in processes:
        try:
            process.wait(max(0.1, begin + COMPILING_SECONDS - time.perf_counter()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # including the compilers that it has started
            process.wait()
    failed = [preset for preset, process in zip(presets, processes, strict=True) if process.returncode != 0]
    say(compiled_s=round(time.perf_counter() - begin, 1), not_compiled=failed)


def tune_briefly():
    """Makes Triton's tuning try fewer variants of a kernel, spread evenly, for a tenth of the time each."""
    import triton.testing
    from triton.runtime.autotuner import Autotuner

    benchmark, init = triton.testing.do_bench, Autotuner.__init__

    def brief(kernel, **options):
        return benchmark(kernel, **{**options, "warmup": 2, "rep": 10})

    def few(self, kernel, names, variants, *rest, **options):
        count = min(len(variants), VARIANTS)
        init(self, kernel, names, [variants[i * len(variants) // count] for i in range(count)], *rest, **options)

    triton.testing.do_bench, Autotuner.__init__ = brief, few


def main():
    if not 2 <= len(sys.argv) <= 4:
        sys.exit("usage: family_peers.py PRESET[,PRESET...] [BATCH,BATCH,...] [SECONDS]")
    presets = sys.argv[1].split(",")
    batches = [int(text) for text in (sys.argv[2] if len(sys.argv) > 2 else "1,16,64").split(",")]
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 0.3
    unknown = set(presets) - set(random_published.PRESETS)
    if unknown:
        sys.exit(
            f"family_peers.py: no preset {', '.join(sorted(unknown))}; there are {', '.join(random_published.PRESETS)}"
        )
    os.environ.setdefault("TORCHDYNAMO_SUPPRESS_ERRORS", "1")  # RWKV compiles its activation if PyTorch can
    if ON_GPU and seconds > 0 and len(presets) > 1:
        compile_all(presets, batches)
    if ON_GPU:
        tune_briefly()
    has_failed = False
    for preset in presets:
        begin = time.perf_counter()
        try:
            with torch.no_grad():
                run(preset, batches, seconds)
        except Exception as error:  # any error: the other presets are still measured
            has_failed = True
            text = str(error).splitlines()
            say(preset=preset, error=f"{type(error).__name__}: {text[0][:300] if text else ''}")
        if ON_GPU:
            torch.cuda.empty_cache()
        say(preset=preset, took_s=round(time.perf_counter() - begin, 1))
    sys.exit(has_failed and seconds == 0)


if __name__ == "__main__":
    main()
