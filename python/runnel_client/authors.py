"""The model of a bundle on the recurrent classes of fast-transformers, where that is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from fast_transformers.feature_maps import (
    ActivationFunctionFeatureMap,
    Favor,
    GeneralizedRandomFeatures,
    RandomFourierFeatures,
    SmoothedRandomFourierFeatures,
    elu_feature_map,
)
from fast_transformers.recurrent.attention import (
    RecurrentAttentionLayer,
    RecurrentFullAttention,
    RecurrentLinearAttention,
)
from fast_transformers.recurrent.transformers import RecurrentTransformerEncoder, RecurrentTransformerEncoderLayer

from runnel_client import bundle
from runnel_client.bundle import Config
from runnel_client.reference import Array, Reference


def feature_map(model: Config) -> Any:
    """The factory of a fast-transformers feature map; omega comes from the bundle."""
    attention = model["attention"]
    kind = attention["feature_map"]
    if kind == "elu":
        return elu_feature_map
    if kind == "relu":
        return ActivationFunctionFeatureMap.factory(torch.relu)
    options = {"n_dims": attention["features"], "deterministic_eval": True}
    if "temperature" in attention:
        options["softmax_temp"] = attention["temperature"]
    if kind == "smoothed_fourier":
        options["smoothing"] = attention.get("smoothing", 1.0)
    if kind == "generalized":
        options["kernel_fn"] = {"relu": torch.relu, "gelu": torch.nn.functional.gelu}[attention["kernel"]]
    classes = {
        "favor": Favor,
        "fourier": RandomFourierFeatures,
        "smoothed_fourier": SmoothedRandomFourierFeatures,
        "generalized": GeneralizedRandomFeatures,
    }
    return classes[kind].factory(**options)


def attention_layer(model: Config) -> torch.nn.Module:
    if bundle.is_softmax(model):
        inner = RecurrentFullAttention(model["attention"].get("scale"), attention_dropout=0.0)
    else:
        inner = RecurrentLinearAttention(model["query_size"], feature_map(model), eps=model["attention"]["eps"])
    return RecurrentAttentionLayer(
        inner,
        model["width"],
        model["heads"],
        d_keys=model["query_size"],
        d_values=model["value_size"],
    )


class Recurrent(torch.nn.Module):
    """A bundle's model. `attention` makes the attention of a layer."""

    def __init__(
        self,
        config: Config,
        tensors: Mapping[str, torch.Tensor],
        attention: Callable[[Config], torch.nn.Module] = attention_layer,
    ):
        super().__init__()
        self.config, self.model = config, config["model"]
        self.values, self.weight, self.bias = (
            tensors[name] for name in ("value_embedding.weight", "predictor.weight", "predictor.bias")
        )
        self.table = tensors.get(bundle.POSITION_TABLE)
        # The same as RecurrentEncoderBuilder builds. In 0.4.0 it requires width = heads * value size.
        norm = torch.nn.LayerNorm(self.model["width"]) if self.model["norm"]["final"] else None
        layers = [self.layer(attention) for _ in range(self.model["layers"])]
        self.encoder = RecurrentTransformerEncoder(layers, norm).to(self.weight.dtype)
        for module in self.encoder.modules():
            if isinstance(module, torch.nn.LayerNorm):
                module.eps = self.model["norm"]["eps"]
        prefix = "transformer."
        self.encoder.load_state_dict(
            {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        )
        self.eval()

    def layer(self, attention: Callable[[Config], torch.nn.Module]) -> torch.nn.Module:
        model = self.model
        return RecurrentTransformerEncoderLayer(
            attention(model), model["width"], model["ffn"], dropout=0.0, activation=model["activation"]
        )

    def position_at(self, index: int) -> torch.Tensor:
        """A row of the table, or sines on even and cosines on odd columns."""
        if self.table is not None:
            return self.table[0, index]
        width = bundle.position_width(self.model)
        columns = torch.arange(width, dtype=torch.float64)
        angle = index * 10000.0 ** (-2.0 * torch.div(columns, 2, rounding_mode="floor") / width)
        return torch.where(columns % 2 == 0, torch.sin(angle), torch.cos(angle)).to(self.weight.dtype)

    def forward(self, values: torch.Tensor, index: int, state: Any) -> tuple[torch.Tensor, Any]:
        """values [N] int64 -> head [N, outputs] and the new state."""
        x = self.values[values]
        if self.model["position"]["kind"] != "none":
            position = self.position_at(index).expand(len(values), -1)
            is_sum = self.model["embedding"]["combine"] == "add"
            x = x + position if is_sum else torch.cat([x, position], dim=1)
        x, state = self.encoder(x, state)
        return torch.nn.functional.linear(x, self.weight, self.bias), state


class Sequence:
    """One sequence through a Recurrent: step(value) returns the head's outputs."""

    log_prob = Reference.log_prob

    def __init__(self, network: Recurrent):
        self.network, self.model = network, network.model
        self.state, self.position = None, 0

    def step(self, value: int) -> Array:
        with torch.no_grad():
            head, self.state = self.network(torch.tensor([value]), self.position, self.state)
        self.position += 1
        outputs: Array = head[0].double().numpy()
        return outputs
