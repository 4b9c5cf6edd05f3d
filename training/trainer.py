"""One training: its steps, its checkpoints, and the figures of the trained network."""

import contextlib
import math
import os
import time

import torch
from torch import nn

from heads import log_probs
from network import Network
from progress import Progress
from recurrent_networks import FAMILIES
from runnel_client import bundle, checkpoint
from runnel_client.errors import check

CLIP = 1.0
WEIGHT_DECAY = 0.01
REPORT_STEPS = 20
CURVE_POINTS = 200
CALIBRATION_STEPS = 40
LAST_LR = 0.01  # of the peak, at the end of the cosine


class Training:
    """A network, its optimizer, and the progress of the training.

    `run` has everything that determines the weights: data set, sizes, batch, lr, warmup, seed and precision. A
    checkpoint keeps it, and a training with another `run` refuses the checkpoint. The number of steps also belongs to
    `run`, but may be chosen to fit a given time.
    """

    def __init__(self, config, data, run, device):
        torch.manual_seed(run["seed"])
        self.data, self.run, self.device = data, dict(run), device
        self.network = FAMILIES.get(config["model"].get("family"), Network)(config).to(device)
        named = list(self.network.named_parameters())
        decayed = [p for name, p in named if is_decayed(name, p)]
        plain = [p for name, p in named if not is_decayed(name, p)]
        self.optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": WEIGHT_DECAY}, {"params": plain, "weight_decay": 0.0}],
            lr=run["lr"],
            betas=(0.9, 0.98),
        )
        self.step, self.seconds = 0, 0.0
        self.curve = []  # [step, seconds, bits per item in training since the last point]

    def lr(self):
        """The learning rate of a step: a linear rise, then half a cosine down."""
        warmup, steps = self.run["warmup"], self.run["steps"]
        if self.step < warmup or steps is None:
            return self.run["lr"] * min(1.0, (self.step + 1) / warmup)
        done = (self.step - warmup) / max(1, steps - warmup)
        return self.run["lr"] * (LAST_LR + (1 - LAST_LR) * (1 + math.cos(math.pi * done)) / 2)

    def loss(self, sequences, precision):
        """The mean loss in nats over the counted values. It is always computed in fp32."""
        values = torch.from_numpy(sequences.values).to(self.device).long()
        counted = torch.from_numpy(sequences.counted).to(self.device)
        with autocast(self.device, precision):
            outputs = self.network(values[:, :-1])
        log_prob = log_probs(self.network.distribution, outputs.float(), values[:, 1:])
        return -(log_prob * counted).sum() / counted.sum()

    def advance(self):
        """One step; returns the loss, still on the device."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.data.batch(self.run["seed"], self.step, self.run["batch"]), self.run["precision"])
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), CLIP)
        self.optimizer.step()
        self.step += 1
        return loss.detach()

    def calibrate(self, seconds):
        """Takes some steps to find out how many fit into a given time."""
        if self.run["steps"] is not None:
            return
        for index in range(CALIBRATION_STEPS):
            if index == CALIBRATION_STEPS // 2:
                float(self.advance())
                start = time.monotonic()
            else:
                loss = self.advance()
        float(loss)
        per_step = (time.monotonic() - start) / (CALIBRATION_STEPS - CALIBRATION_STEPS // 2 - 1)
        self.run["steps"] = max(self.step + 1, int(seconds / per_step))

    def train(self, path, save_seconds, pause_seconds):
        """Trains up to the last step or a pause. Saves to `path` from time to time and at the end. Returns True if the
        last step is done."""
        start = saved = time.monotonic()
        base, total, count = self.seconds, 0.0, 0
        progress = Progress(self.network.config["name"], self.data.unit, self.run["steps"], self.step)
        every = max(1, self.run["steps"] // CURVE_POINTS)
        recent = []
        while self.step < self.run["steps"]:
            recent.append(self.advance())
            if self.step % every and self.step % REPORT_STEPS and self.step < self.run["steps"]:
                continue
            bits = float(torch.stack(recent).mean()) / math.log(2)
            check(
                math.isfinite(bits),
                f"the loss is no longer finite at step {self.step}: start anew with --fresh and a lower --lr "
                f"(it was {self.run['lr']})",
            )
            total, count, recent = total + bits * len(recent), count + len(recent), []
            now = time.monotonic()
            self.seconds = base + now - start
            if self.step % every == 0 or self.step == self.run["steps"]:
                self.curve.append([self.step, round(self.seconds, 1), round(total / count, 5)])
                total, count = 0.0, 0
            progress.show(self.step, bits, self.run["batch"] * self.data.length)
            is_paused = now - start > pause_seconds and self.step < self.run["steps"]
            if now - saved > save_seconds or is_paused:
                self.save(path)
                saved = now
            if is_paused:
                return False
        self.save(path)
        return True

    def save(self, path):
        """Saves a checkpoint, whole or not at all, with names that scripts/runnel-convert also reads."""
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        content = {
            "model_state": self.network.state_dict(),
            "optimizer_state": self.optimizer.state_dict(),
            "iteration": self.step,
            "seconds": self.seconds,
            "curve": self.curve,
            "run": self.run,
        }
        torch.save(content, path + ".tmp")
        os.replace(path + ".tmp", path)

    def resume(self, path):
        """Continues from a checkpoint of the same run."""
        saved = checkpoint.load(path)
        before = {"softmax": False, "family": None} | saved.get("run", {})  # older checkpoints lack these keys
        for key, value in self.run.items():
            found = before.get(key)
            check(
                found == value or (key == "steps" and value is None),
                f"{path}: a checkpoint of another run, with {key} {found}, not {value}; "
                "give another --work, or say --fresh",
            )
        self.run = before
        self.network.load_state_dict(saved["model_state"])
        self.optimizer.load_state_dict(saved["optimizer_state"])
        self.step, self.seconds, self.curve = saved["iteration"], saved["seconds"], saved["curve"]

    def tensors(self, dtype):
        """The bundle's tensors as fp32 arrays, rounded as they are stored; they become the network's own."""
        types = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
        state = self.network.state_dict()
        for name, tensor in state.items():
            tensor.copy_(tensor.to(types[bundle.stored_dtype(name, dtype)]))
        return {name: tensor.float().cpu().numpy() for name, tensor in state.items()}


def is_decayed(name, parameter):
    """Whether weight decay applies: to matrices, but not to biases, norms and the small parts of a recurrence."""
    return parameter.dim() > 1 and name.endswith(".weight")


def autocast(device, precision):
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(torch.device(device).type, dtype=torch.bfloat16)


@torch.no_grad()
def evaluate(network, sequences, device, batch):
    """Bits per counted item, in fp32, for each sequence; and how many of the items were the likeliest (categorical)."""
    head = network.distribution
    bits, items, hits = [], [], 0
    for start in range(0, len(sequences), batch):
        values = torch.from_numpy(sequences.values[start : start + batch]).to(device).long()
        counted = torch.from_numpy(sequences.counted[start : start + batch]).to(device)
        outputs = network(values[:, :-1]).float()
        log_prob = log_probs(head, outputs, values[:, 1:]) * counted
        bits += (-log_prob.double().sum(1) / math.log(2)).tolist()
        items += counted.sum(1).tolist()
        if head["kind"] == "categorical":
            hits += int(((outputs.argmax(-1) == values[:, 1:]) & counted).sum())
    return bits, items, hits
