"""Log-probabilities of values under a head's outputs, in the form that training and scoring share."""

import math

import torch
from torch.nn import functional

MIN_LOG_SCALE = -7.0


def log_probs(head, outputs, values):
    """Natural logarithms [...] of the probabilities of `values` [...] under `outputs` [..., outputs]."""
    if head["kind"] == "categorical":
        return functional.log_softmax(outputs, -1).gather(-1, values[..., None]).squeeze(-1)
    return mixture_log_probs(outputs, values)


def mixture_log_probs(outputs, values):
    """A discretized mixture of logistics over bytes, which represent [-1, 1] in steps of 2/255."""
    logits, means, log_scales = outputs.chunk(3, -1)
    log_scales = log_scales.clamp(min=MIN_LOG_SCALE)
    centred = (values[..., None] / 127.5 - 1) - means
    per_scale = (-log_scales).exp()
    plus, minus = (centred + 1 / 255) * per_scale, (centred - 1 / 255) * per_scale
    # If the mass of a bin is very small, its density at the middle times its width is used instead.
    middle = centred * per_scale
    tail = middle - log_scales - 2 * functional.softplus(middle) - math.log(127.5)
    mass = plus.sigmoid() - minus.sigmoid()
    inside = torch.where(mass > 1e-5, mass.clamp(min=1e-5).log(), tail)
    # The first and the last bin reach to infinity.
    first, last = functional.logsigmoid(plus), -functional.softplus(minus)
    value = values[..., None]
    terms = torch.where(value == 0, first, torch.where(value == 255, last, inside))
    return torch.logsumexp(terms + functional.log_softmax(logits, -1), -1)
