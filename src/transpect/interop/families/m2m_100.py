"""M2M-100 (Fan et al. 2021) and NLLB: sinusoids of tensor2tensor, numbered from the id of padding on."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from transpect.base.codec import Data
from transpect.base.errors import CheckpointError
from transpect.core import ModelConfig
from transpect.core.positions import Sinusoidal
from transpect.core.positions.sinusoidal import encoding
from transpect.interop.computed import Computed
from transpect.interop.families.bart_like import Kind, both, family
from transpect.interop.options import Entry, Options, Override, at
from transpect.interop.tensors import Table


@dataclass(frozen=True)
class FirstPosition(Entry):
    """The first position has the number after ``pad_token_id``."""

    def defaults(self) -> Mapping[str, Any]:
        return {"pad_token_id": 1}

    def read(self, options: Options) -> Iterable[Override]:
        pad = options["pad_token_id"]
        if not isinstance(pad, int) or pad < 0:
            raise CheckpointError("pad_token_id says where positions begin, and must be an id", value=pad)
        return [(place, pad + 1) for place in both("positions.offset")]

    def write(self, ours: Data) -> Mapping[str, Any]:
        return {"pad_token_id": at(ours, "decoder.positions.offset") - 1}


def table(config: ModelConfig, shared: Table) -> Table:
    """Early checkpoints hold the table of positions: all numbers from 0 on, with nothing for padding."""
    computed = []
    for side, stack in config.towers.items():
        if not isinstance(stack.positions, Sinusoidal):  # asked of a model that may be of another family
            continue
        shape = (config.context_length + stack.positions.offset, config.d_model)
        make = partial(_rows, stack.positions)
        computed.append(Computed(f"model.{side}.embed_positions.weights", shape, make, written=False))
    return replace(shared, computed=tuple(computed))


def _rows(options: Sinusoidal, shape: tuple[int, ...]) -> Tensor:
    """The whole table, of a shape."""
    rows = encoding(torch.arange(shape[0]), shape[1], replace(options, offset=0))
    rows[options.offset - 1 : options.offset] = 0.0
    return rows


FAMILY = family(
    Kind(
        model_type="m2m_100",
        architectures=("M2M100ForConditionalGeneration", "M2M100Model"),
        positions=Sinusoidal(halves=True, spread=True, offset=2),
        pre=True,
        embedding_norm=False,
        bias=False,
        defaults={
            "vocab_size": 128112,
            "activation_function": "relu",
            "scale_embedding": True,
            "attention_dropout": 0.1,
        },
        entries=(FirstPosition(),),
        table=table,
    )
)
