"""Gated DeltaNet and RWKV-7 in PyTorch, for training. Their parameters have the names that runnel serves.

Gated DeltaNet has the form and the names of flash-linear-attention, RWKV-7 has those of BlinkDL's RWKV-LM. The configs
are those of runnel's bundles. docs/internals/numerics.md has the equations.
"""

import math

import torch
from torch import nn
from torch.nn import functional

from delta_rule import delta_rule
from runnel_client import cards


def linear(inputs, outputs, scale=1.0):
    """A product without a bias. Its first weights are uniform, up to scale / sqrt(inputs)."""
    made = nn.Linear(inputs, outputs, bias=False)
    bound = scale / math.sqrt(inputs)
    nn.init.uniform_(made.weight, -bound, bound)
    return made


def of_heads(x, heads):
    """[B, N, heads * size] as [B, heads, N, size]."""
    return x.unflatten(-1, (heads, -1)).transpose(-2, -3)


def joined(x):
    """The inverse of of_heads()."""
    return x.transpose(-2, -3).flatten(-2)


def delayed(x):
    """x [B, N, D] as it was one position before; zeros at the start."""
    return functional.pad(x, (0, 0, 1, -1))


class RecurrentNetwork(nn.Module):
    """Logits [B, N, values] after each of the values [B, N]."""

    distribution = {"kind": "categorical"}
    # On its card.
    how = "as a recurrent network"
    title: str
    recurrence: str
    activation: str

    def __init__(self, config):
        super().__init__()
        self.config = config

    def state_numbers(self):
        """Numbers in the state of a session."""
        raise NotImplementedError

    def parameter_count(self):
        return sum(parameter.numel() for parameter in self.parameters())

    def card_table(self, dtype):
        model = self.config["model"]
        value_size = model.get("value_size") or model["value_width"] // model["heads"]
        key_size = model.get("key_size") or model["width"] // model["heads"]
        rows = [
            ("layers", str(model["layers"])),
            ("width", f"{model['width']} (FFN {model['ffn']}, {self.activation})"),
            ("heads", f"{model['heads']}, keys of {key_size}, values of {value_size}"),
            ("recurrence", self.recurrence),
            ("values", f"{self.config['values']:,}"),
            ("positions", "none; no last position"),
            ("head", f"categorical over {self.config['values']} values"),
            ("begin", cards.begin_text(self.config)),
        ]
        return cards.table(rows, self.parameter_count(), dtype, f"{self.state_bytes():,} bytes (fp32), {cards.FIXED}")

    def state_bytes(self):
        return 4 * self.state_numbers()

    def summary(self, directory):
        model = self.config["model"]
        sizes = f"{model['layers']} layers, width {model['width']}, {model['heads']} heads"
        return cards.summary_of(directory, self.config["name"], sizes, self.parameter_count(), self.state_bytes())


# --- Gated DeltaNet ---


class RmsNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


class ShortConvolution(nn.Module):
    """A causal convolution of each channel over its latest inputs. The last tap is multiplied by the newest input."""

    def __init__(self, channels, taps):
        super().__init__()
        bound = 1 / math.sqrt(taps)
        self.weight = nn.Parameter(torch.empty(channels, 1, taps).uniform_(-bound, bound))

    def forward(self, x):
        before = functional.pad(x.mT, (self.weight.shape[-1] - 1, 0))
        y = functional.conv1d(before, self.weight.to(x.dtype), groups=len(self.weight)).mT
        return functional.silu(y)


class GatedDeltaNetMixer(nn.Module):
    def __init__(self, model):
        super().__init__()
        width, self.heads, taps = model["width"], model["heads"], model["taps"]
        keys, values = (self.heads * model[key] for key in ("key_size", "value_size"))
        self.q_proj, self.k_proj, self.v_proj = linear(width, keys), linear(width, keys), linear(width, values)
        self.q_conv1d, self.k_conv1d = ShortConvolution(keys, taps), ShortConvolution(keys, taps)
        self.v_conv1d = ShortConvolution(values, taps)
        self.a_proj, self.b_proj = linear(width, self.heads), linear(width, self.heads)
        self.g_proj = linear(width, values)
        self.o_norm = RmsNorm(model["value_size"], model["norm_eps"])
        self.o_proj = linear(values, width, 1 / math.sqrt(2 * model["layers"]))
        # The first decays keep 1 - 1/m of the state, for memories m of 8 to 512 values.
        rates = -torch.log1p(-1 / torch.logspace(3, 9, self.heads, base=2))
        self.A_log = nn.Parameter(torch.zeros(self.heads))
        self.dt_bias = nn.Parameter(torch.expm1(rates).log())

    def forward(self, x):
        q = self.unit(self.q_conv1d(self.q_proj(x)))
        k = self.unit(self.k_conv1d(self.k_proj(x)))
        v = of_heads(self.v_conv1d(self.v_proj(x)), self.heads)
        with torch.autocast(x.device.type, enabled=False):
            rate = functional.softplus(self.a_proj(x.to(self.A_log.dtype)) + self.dt_bias)
            log_w = of_heads(-self.A_log.exp() * rate, self.heads)
        beta = of_heads(self.b_proj(x).sigmoid(), self.heads)
        y = delta_rule(q * q.shape[-1] ** -0.5, v, log_w, -log_w.exp() * k, beta * k, None)
        y = joined(self.o_norm(y)) * functional.silu(self.g_proj(x))
        return self.o_proj(y)

    def unit(self, x):
        x = of_heads(x, self.heads)
        return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


class SwiGlu(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.gate_proj, self.up_proj = linear(model["width"], model["ffn"]), linear(model["width"], model["ffn"])
        self.down_proj = linear(model["ffn"], model["width"], 1 / math.sqrt(2 * model["layers"]))

    def forward(self, x):
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class GatedDeltaNetLayer(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.attn_norm = RmsNorm(model["width"], model["norm_eps"])
        self.attn = GatedDeltaNetMixer(model)
        self.mlp_norm = RmsNorm(model["width"], model["norm_eps"])
        self.mlp = SwiGlu(model)

    def forward(self, x):
        x = x + self.attn(self.attn_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class GatedDeltaNet(RecurrentNetwork):
    title = "A Gated DeltaNet"
    activation = "SwiGLU"

    def __init__(self, config):
        super().__init__(config)
        model = config["model"]
        self.recurrence = f"a delta rule; a decay of each head; convolutions of {model['taps']}"
        self.model = nn.Module()
        self.model.embeddings = nn.Embedding(model["table_rows"], model["width"])
        self.model.layers = nn.ModuleList(GatedDeltaNetLayer(model) for _ in range(model["layers"]))
        self.model.norm = RmsNorm(model["width"], model["norm_eps"])
        self.lm_head = linear(model["width"], model["table_rows"])
        nn.init.normal_(self.model.embeddings.weight, 0, 0.1)

    def forward(self, values):
        x = self.model.embeddings(values)
        for layer in self.model.layers:
            x = layer(x)
        return self.lm_head(self.model.norm(x))

    def state_numbers(self):
        model = self.config["model"]
        columns = model["heads"] * (2 * model["key_size"] + model["value_size"])
        numbers = model["heads"] * model["key_size"] * model["value_size"]
        return model["layers"] * (numbers + (model["taps"] - 1) * columns)


# --- RWKV-7. The first weights are those of RWKV-LM. ---


class Place:
    """Where a layer is, and the ramps over channels from which its first weights follow."""

    def __init__(self, layer, model):
        layers, width, self.size = model["layers"], model["width"], model["width"] // model["heads"]
        self.depth = layer / max(1, layers - 1)  # 0 to 1
        self.rest = 1 - layer / layers  # 1 to nearly 0
        channels = torch.arange(width)
        self.part = channels / width
        self.ramp = channels / (width - 1)
        within = (channels % self.size) * 2 / (self.size - 1) - 1
        self.zigzag = within * within.abs()

    def mix(self, power):
        return nn.Parameter(1 - self.part ** (power * self.rest))


def low_rank(width, rank):
    """Matrices [width, rank] and [rank, width], whose product is zero at first."""
    second = nn.init.orthogonal_(torch.empty(rank, width), 0.1 * math.sqrt(max(1.0, rank / width)))
    return nn.Parameter(torch.zeros(width, rank)), nn.Parameter(second)


class TimeMixing(nn.Module):
    def __init__(self, layer, model):
        super().__init__()
        width, ranks, self.heads = model["width"], model["ranks"], model["heads"]
        place = Place(layer, model)
        for letter, power in (("r", 0.2), ("w", 0.9), ("k", 0.7), ("v", 0.7), ("a", 0.9), ("g", 0.2)):
            setattr(self, "x_" + letter, place.mix(power))
        self.w0 = nn.Parameter(-5.5 + 6 * place.ramp ** (1 + place.depth**0.3) + 2.5 * place.zigzag)
        self.w1, self.w2 = low_rank(width, ranks["decay"])
        self.a0 = nn.Parameter(-0.19 + 0.3 * place.zigzag + 0.4 * (place.ramp - 0.5))
        self.a1, self.a2 = low_rank(width, ranks["rate"])
        self.is_first = layer == 0
        if not self.is_first:
            self.v0 = nn.Parameter(0.73 - 0.4 * (place.ramp - 0.5))
            self.v1, self.v2 = low_rank(width, ranks["value"])
        self.g1, self.g2 = low_rank(width, ranks["gate"])
        self.k_k = nn.Parameter(0.71 - 0.1 * (place.ramp - 0.5))
        self.k_a = nn.Parameter(torch.full((width,), 1.02))
        self.r_k = nn.Parameter(torch.full((self.heads, place.size), -0.04))
        self.receptance, self.key = linear(width, width, 0.5), linear(width, width, 0.05)
        self.value, self.output = linear(width, width, 0.5), linear(width, width, 0.0)
        self.ln_x = nn.GroupNorm(self.heads, width, model["head_norm_eps"])

    def forward(self, x, first):
        """The output, and v of the first layer, which is `first` in later ones."""
        d = delayed(x) - x
        r, k, v = self.receptance(x + d * self.x_r), self.key(x + d * self.x_k), self.value(x + d * self.x_v)
        if self.is_first:
            first = v
        else:
            v = v + (first - v) * torch.sigmoid(self.v0 + (x + d * self.x_v) @ self.v1 @ self.v2)
        with torch.autocast(x.device.type, enabled=False):
            mixed = (x + d * self.x_w).to(self.w0.dtype)
            log_w = -math.exp(-0.5) * torch.sigmoid(self.w0 + torch.tanh(mixed @ self.w1) @ self.w2)
        rate = torch.sigmoid(self.a0 + (x + d * self.x_a) @ self.a1 @ self.a2)
        gate = torch.sigmoid((x + d * self.x_g) @ self.g1) @ self.g2
        kappa = functional.normalize(of_heads(k * self.k_k, self.heads), dim=-1, eps=1e-12)
        k = k * (1 + (rate - 1) * self.k_a)
        r, k, v, log_w, rate = (of_heads(part, self.heads) for part in (r, k, v, log_w, rate))
        y = joined(delta_rule(r, v, log_w, -kappa, kappa * rate, k))
        y = self.ln_x(y.flatten(0, 1)).view_as(y)
        bonus = (r * k * self.r_k[:, None]).sum(-1, keepdim=True) * v
        return self.output((y + joined(bonus)) * gate), first


class ChannelMixing(nn.Module):
    def __init__(self, layer, model):
        super().__init__()
        place = Place(layer, model)
        self.x_k = nn.Parameter(1 - place.part ** (place.rest**4))
        self.key = linear(model["width"], model["ffn"], 0.5)
        self.value = linear(model["ffn"], model["width"], 0.0)

    def forward(self, x):
        x = x + (delayed(x) - x) * self.x_k
        return self.value(functional.relu(self.key(x)).square())


class Block(nn.Module):
    def __init__(self, layer, model):
        super().__init__()
        width, eps = model["width"], model["norm_eps"]
        if layer == 0:
            self.ln0 = nn.LayerNorm(width, eps)
        self.ln1, self.ln2 = nn.LayerNorm(width, eps), nn.LayerNorm(width, eps)
        self.att, self.ffn = TimeMixing(layer, model), ChannelMixing(layer, model)

    def forward(self, x, first):
        if hasattr(self, "ln0"):
            x = self.ln0(x)
        y, first = self.att(self.ln1(x), first)
        x = x + y
        return x + self.ffn(self.ln2(x)), first


class Rwkv7(RecurrentNetwork):
    title = "An RWKV-7 model"
    recurrence = "a delta rule; a decay of each channel; inputs are mixed with the one before"
    activation = "relu squared"

    def __init__(self, config):
        super().__init__(config)
        model = config["model"]
        self.emb = nn.Embedding(model["table_rows"], model["width"])
        self.blocks = nn.ModuleList(Block(layer, model) for layer in range(model["layers"]))
        self.ln_out = nn.LayerNorm(model["width"], model["norm_eps"])
        self.head = nn.Linear(model["width"], model["table_rows"], bias=False)
        nn.init.uniform_(self.emb.weight, -1e-4, 1e-4)
        nn.init.orthogonal_(self.head.weight, 0.5 * math.sqrt(max(1.0, model["table_rows"] / model["width"])))

    def forward(self, values):
        x, first = self.emb(values), None
        for block in self.blocks:
            x, first = block(x, first)
        return self.head(self.ln_out(x))

    def state_numbers(self):
        model = self.config["model"]
        return model["layers"] * (model["width"] * model["value_width"] // model["heads"] + 2 * model["width"])


FAMILIES = {"gated_linear": GatedDeltaNet, "rwkv7": Rwkv7}
