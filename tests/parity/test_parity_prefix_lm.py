"""Prefix language models: a prefix that sees itself both ways, of another length in each row.

PaliGemma is a Gemma and UniLM a BERT under such a mask, so both are theirs under an explicit mask [B, 1, T, S].
"""

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from family_cases.base import IDS, PAD, Options
from family_cases.decoders import GEMMA
from family_cases.encoders import BERT
from test_parity_families import randomize
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertLMHeadModel,
    DynamicCache,
    GemmaConfig,
    GemmaForCausalLM,
)

from transpect.cache import DenseCache
from transpect.core import PrefixLM, Tags, Transformer, override
from transpect.interop import load_model

TOLERANCE = 1e-5
LENGTHS, PREFIXES = (17, 12, 9, 14), (6, 12, 1, 4)


@dataclass(frozen=True)
class Pair:
    """One model there and here."""

    theirs: nn.Module
    ours: Transformer


MODELS: dict[str, tuple[Any, Any, Any, Options]] = {
    "gemma": (GemmaConfig, GemmaForCausalLM, GemmaForCausalLM, GEMMA),
    "bert": (BertConfig, BertForMaskedLM, BertForMaskedLM, BERT),
    # the same weights as the head of a decoder, which has a cache
    "bert-decoder": (BertConfig, BertForMaskedLM, BertLMHeadModel, BERT),
}
CACHED = ("gemma", "bert-decoder")


@pytest.fixture(scope="module", params=[(name, kernel) for name in MODELS for kernel in ("naive", "sdpa")], ids=str)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    name, kernel = request.param
    return build(name, kernel, tmp_path_factory.mktemp("prefix"))


def build(name: str, kernel: str, folder: Path) -> Pair:
    config, saved, run, options = MODELS[name]
    stored = saved(config(**options, **IDS, attn_implementation="eager"))
    randomize(stored)
    stored.save_pretrained(folder)
    theirs = stored
    if run is not saved:
        theirs = run(config(**options, **IDS, attn_implementation="eager", is_decoder=True))
        theirs.load_state_dict(stored.state_dict())
    whole = load_model(folder, kernel=kernel)
    ours = Transformer(override(whole.config, [("visibility", PrefixLM())]), seed=None)
    ours.load_state_dict(whole.state_dict())
    return Pair(theirs.eval(), ours.eval())


@dataclass(frozen=True)
class Rows:
    """Padded rows and their prefixes."""

    ids: Tensor
    real: Tensor
    prefix: Tensor

    @property
    def tags(self) -> Tags:
        return Tags.padded(self.real, prefix=self.prefix)

    @property
    def mask(self) -> Tensor:
        """[B, T, S]: written out, pair by pair of tokens."""
        rows, width = self.ids.shape
        seen = torch.zeros(rows, width, width, dtype=torch.bool)
        for row in range(rows):
            for i in range(width):
                for j in range(width):
                    both = bool(self.prefix[row, i] and self.prefix[row, j])
                    seen[row, i, j] = bool(self.real[row, i] and self.real[row, j]) and (j <= i or both)
        return seen


def rows(side: str, more: int = 0) -> Rows:
    """Rows of LENGTHS, padded on a side, and ``more`` tokens after them."""
    width = max(LENGTHS)
    ids = torch.randint(0, PAD, (len(LENGTHS), width + more), generator=torch.Generator().manual_seed(4))
    columns, lengths = torch.arange(width + more), torch.tensor(LENGTHS)[:, None]
    start = width - lengths if side == "left" else torch.zeros_like(lengths)
    real = (columns >= start) & (columns < start + lengths) | (columns >= width)
    prefix = real & (columns < start + torch.tensor(PREFIXES)[:, None])
    return Rows(torch.where(real, ids, PAD), real, prefix)


def call_theirs(model: nn.Module, batch: Rows, part: slice, cache: DynamicCache | None) -> Tensor:
    """Logits of some columns; keys are all columns up to their end."""
    hidden = ~batch.mask[:, None, part, : part.stop]
    bias = torch.zeros(hidden.shape).masked_fill(hidden, torch.finfo(torch.float32).min)
    positions = batch.tags.position.clamp(min=0)[:, part]
    word = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    given = {} if cache is None else {word: cache}
    logits: Tensor = model(batch.ids[:, part], attention_mask=bias, position_ids=positions, **given).logits
    return logits


def steps(width: int, first: int) -> list[slice]:
    """All prefixes at once, then a piece of two columns, then one by one."""
    ends = [first, first + 2, *range(first + 3, width + 1)]
    return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def worst(a: Tensor, b: Tensor, real: Tensor) -> float:
    assert b[real].abs().max() > 0.1, "this comparison would not see anything"
    return float((a - b)[real].abs().max())


@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_a_prefix_sees_itself_both_ways(pair: Pair, side: str) -> None:
    batch = rows(side)
    theirs = call_theirs(pair.theirs, batch, slice(0, batch.ids.shape[1]), None)
    assert worst(pair.ours(batch.ids, tags=batch.tags), theirs, batch.real) <= TOLERANCE
    # the mask matters: without prefixes the same model says something else
    plain = pair.ours(batch.ids, tags=Tags.padded(batch.real))
    assert worst(plain, theirs, batch.prefix) > 1e-2


@pytest.mark.parametrize("name", CACHED)
@torch.no_grad()
def test_a_prefix_goes_on_from_a_cache(name: str, tmp_path: Path) -> None:
    """The first pass holds all prefixes; what follows sees them as it does without a cache."""
    both, batch = build(name, "sdpa", tmp_path), rows("left", more=8)
    width, first = batch.ids.shape[1], max(LENGTHS)
    assert not batch.prefix[:, first:].any()
    ours_cache, theirs_cache = DenseCache(), DynamicCache()
    ours, theirs = [], []
    for part in steps(width, first):
        ours.append(both.ours(batch.ids[:, part], tags=batch.tags.columns(part), cache=ours_cache))
        theirs.append(call_theirs(both.theirs, batch, part, theirs_cache))
    uncached = call_theirs(both.theirs, batch, slice(0, width), None)
    assert worst(torch.cat(ours, 1), torch.cat(theirs, 1), batch.real) <= TOLERANCE
    assert worst(torch.cat(ours, 1), uncached, batch.real) <= TOLERANCE
