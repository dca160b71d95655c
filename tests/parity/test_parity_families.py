"""Every family against `transformers`, on tiny random models whose odd sizes and weights hide nothing.

A family gains its tests by a row in family_cases/: a model of theirs goes through a checkpoint directory into ours.
"""

import inspect
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from family_cases import CASES
from family_cases.base import IDS, LENGTHS, PAD, Case
from torch import Tensor, nn

from transpect.cache import DenseCache
from transpect.core import BlockSparse, CausalLM, Flash, Pooled, SequenceClass, Tags, TokenClass, Transformer
from transpect.interop import load_model, save_model
from transpect.interop.families import FAMILIES
from transpect.interop.family import canonical
from transpect.interop.tensors import link, pack_state
from transpect.verify.ways import with_kernel

TOLERANCE = 1e-5


@dataclass(frozen=True)
class Pair:
    """The same model there and here."""

    case: Case
    folder: Path
    theirs: nn.Module
    ours: Transformer

    @property
    def kind(self) -> str:
        return self.ours.config.kind


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    case = request.param
    folder = tmp_path_factory.mktemp(case.name)
    theirs = case.model(case.config(**{**IDS, **case.options}, attn_implementation="eager")).eval()
    case.prepare(theirs)
    randomize(theirs)
    theirs.save_pretrained(folder)
    return Pair(case, folder, theirs, load_model(folder, kernel="naive"))


@torch.no_grad()
def randomize(model: nn.Module) -> None:
    """Give every parameter numbers that matter: no bias is zero, no norm weight is one."""
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:  # a table of sinusoids
            continue
        norm = parameter.ndim == 1 and name.endswith("weight")
        start = float(parameter[0]) if norm else 0.0  # 1, or 0 where the weight is kept as its difference from 1
        parameter.normal_(start, 0.1, generator=generator)


class Record:
    """A tap that keeps what each layer was given."""

    def __init__(self) -> None:
        self.inputs: list[Tensor] = []

    def see(self, name: str, value: Tensor) -> None:
        if re.fullmatch(r"(\w+\.)?\d+\.input", name):
            self.inputs.append(value)


@dataclass(frozen=True)
class Inputs:
    """A batch for both. An encoder–decoder reads it as source and writes `target`."""

    ids: Tensor
    real: Tensor
    types: Tensor
    target: Tensor

    @property
    def positions(self) -> Tensor:
        return Tags.padded(self.real).position.clamp(min=0)

    @property
    def is_global(self) -> Tensor:
        """A few tokens of each row, for models that know such."""
        return self.real & (self.positions % 13 == 0)

    def row(self, index: int) -> "Inputs":
        """One row without its padding."""
        real, one = self.real[index], slice(index, index + 1)
        return Inputs(self.ids[one, real], self.real[one, real], self.types[one, real], self.target[one])


def inputs(side: str) -> Inputs:
    """Rows of LENGTHS padded on a side, or all of the same length for ``none``."""
    generator = torch.Generator().manual_seed(1)
    shape = (len(LENGTHS), max(LENGTHS))
    ids, types = (torch.randint(0, high, shape, generator=generator) for high in (PAD, 3))
    columns, lengths = torch.arange(max(LENGTHS)), torch.tensor(LENGTHS)[:, None]
    real = torch.ones(shape, dtype=torch.bool)
    if side != "none":
        real = columns >= max(LENGTHS) - lengths if side == "left" else columns < lengths
    target = torch.randint(0, PAD, (len(LENGTHS), 9), generator=generator)
    return Inputs(torch.where(real, ids, PAD), real, types, target)


@dataclass(frozen=True)
class Seen:
    """What one side computes: the head's output, the input of every layer, and what the head reads."""

    output: Tensor
    hidden: list[Tensor]
    last: Tensor

    def each(self) -> list[Tensor]:
        return [self.output, *self.hidden, self.last]


def run_theirs(pair: Pair, batch: Inputs) -> Seen:
    if not pair.case.row_by_row:
        return call_theirs(pair, batch)
    rows = [call_theirs(pair, batch.row(i)).each() for i in range(len(batch.ids))]
    output, *hidden, last = (joined(list(parts), batch.real) for parts in zip(*rows, strict=True))
    return Seen(output, hidden, last)


def joined(rows: list[Tensor], real: Tensor) -> Tensor:
    """Rows of a batch as one tensor; those of the source's lengths stand where its tokens do."""
    if [row.shape[1] for row in rows] != real.sum(-1).tolist():
        return torch.cat(rows)
    whole = rows[0].new_zeros(*real.shape, *rows[0].shape[2:])
    whole[real] = torch.cat([row[0] for row in rows])
    return whole


def call_theirs(pair: Pair, batch: Inputs) -> Seen:
    given: dict[str, Any] = {"attention_mask": batch.real.long(), "output_hidden_states": True}
    if pair.kind == "encoder-decoder":
        given["decoder_input_ids"] = batch.target
    elif pair.case.first_position is not None and takes(pair.theirs, "position_ids"):
        given["position_ids"] = batch.positions + pair.case.first_position
    if takes(pair.theirs, "global_attention_mask"):
        given["global_attention_mask"] = batch.is_global.long()
    if pair.ours.config.embedding.token_types:
        given["token_type_ids"] = batch.types
    out = pair.theirs(batch.ids, **given)
    head = pair.ours.config.head
    output = pooled(out, batch, head.pool) if isinstance(head, Pooled) else out.logits
    if isinstance(head, TokenClass) and output.ndim == 2:  # of a single class
        output = output[..., None]
    if pair.kind == "encoder-decoder":
        read = [layer[:, : batch.ids.shape[1]] for layer in out.encoder_hidden_states[:-1]]  # some fill up to blocks
        hidden = [*read, *out.decoder_hidden_states[:-1]]
        return Seen(output, hidden, out.encoder_last_hidden_state)
    *hidden, last = (state[:, : batch.ids.shape[1]] for state in out.hidden_states)  # some are filled up to a block
    return Seen(output, hidden, last)


def pooled(out: Any, batch: Inputs, pool: str) -> Tensor:
    """What their pooler says; a body without one is pooled as we do it."""
    if "pooler_output" in out:
        return out.pooler_output
    rows = [row[real] for row, real in zip(out.last_hidden_state, batch.real, strict=True)]
    return torch.stack([row.mean(0) if pool == "mean" else row[0 if pool == "first" else -1] for row in rows])


def takes(model: nn.Module, name: str) -> bool:
    return name in inspect.signature(model.forward).parameters


def tags_of(pair: Pair, batch: Inputs) -> Tags:
    lengths = batch.real.sum(-1)
    # dynamic NTK there depends on the longest row
    horizon = lengths if pair.case.row_by_row else lengths.amax().expand(len(lengths))
    marks = batch.is_global if takes(pair.theirs, "global_attention_mask") else None
    return Tags.padded(batch.real, horizon=horizon, is_global=marks)


def run_ours(pair: Pair, batch: Inputs) -> Seen:
    record, tags = Record(), tags_of(pair, batch)
    if pair.kind == "encoder-decoder":
        source = pair.ours.encode(batch.ids, tags=tags, tap=record)
        output = pair.ours(batch.target, source=source, tap=record)
        return Seen(output, record.inputs, source.hidden)
    types = batch.types if pair.ours.config.embedding.token_types else None
    output = pair.ours(batch.ids, tags=tags, token_types=types, tap=record)
    last = pair.ours.hidden(batch.ids, tags=tags, token_types=types)
    if pair.case.narrows:
        last = pair.ours.head.narrow(last)
    return Seen(output, record.inputs, last)


def pools_first(pair: Pair) -> bool:
    return getattr(pair.ours.config.head, "pool", None) == "first"


def at_tokens(value: Tensor, batch: Inputs) -> Tensor:
    """Only real tokens count: what stands at padding is nobody's business."""
    return value[batch.real] if value.shape[:2] == batch.real.shape else value


def assert_close(ours: Tensor, theirs: Tensor, tolerance: float = TOLERANCE) -> None:
    assert ours.shape == theirs.shape
    worst = float((ours - theirs).abs().max())
    assert worst <= tolerance, f"differs by {worst:.2e}"


@pytest.mark.parametrize("side", ["none", "left", "right"])
@torch.no_grad()
def test_logits_and_hidden_states(pair: Pair, side: str) -> None:
    if side == "left" and pools_first(pair) and not pair.case.row_by_row:
        pytest.skip("there, a head on the first token reads the padding")
    batch = inputs(side)
    theirs, ours = run_theirs(pair, batch), run_ours(pair, batch)
    assert theirs.output.abs().max() > 0.1, "this comparison would not see anything"
    assert len(ours.hidden) == len(theirs.hidden)
    for mine, other in zip(ours.each(), theirs.each(), strict=True):
        # relative where a residual stream has grown large: with norms at the ends of branches it does
        size = float(at_tokens(other, batch).square().mean().sqrt())
        assert_close(at_tokens(mine, batch), at_tokens(other, batch), TOLERANCE * max(1.0, size))


@torch.no_grad()
def test_kernels_that_skip_what_is_hidden(pair: Pair) -> None:
    """Tiles that divide no length; and the kernel that the family is opened with."""
    batch = inputs("right")
    theirs = run_theirs(pair, batch).output
    size = float(at_tokens(theirs, batch).square().mean().sqrt())
    default = load_model(pair.folder).config.last.attention.kernel
    for kernel in {default, BlockSparse(block=5, widest=12), Flash(block=7, fused=False)}:
        ours = run_ours(replace(pair, ours=with_kernel(pair.ours, kernel)), batch).output
        assert_close(at_tokens(ours, batch), at_tokens(theirs, batch), TOLERANCE * max(1.0, size))


def test_gradients(pair: Pair) -> None:
    """The gradient of every tensor, under the names and in the layout of the other side."""
    batch = inputs("right" if pools_first(pair) and not pair.case.row_by_row else "left")
    for model in (pair.theirs, pair.ours):
        model.zero_grad()
    expected = at_tokens(run_theirs(pair, batch).output, batch)
    direction = torch.randn(expected.shape, generator=torch.Generator().manual_seed(2)) / expected.numel() ** 0.5
    (expected * direction).sum().backward()
    (at_tokens(run_ours(pair, batch).output, batch) * direction).sum().backward()
    gradients = {name: parameter.grad for name, parameter in pair.ours.named_parameters()}
    silent = [name for name, gradient in gradients.items() if gradient is None]
    assert not silent
    family = FAMILIES[pair.theirs.config.model_type]
    bare = type(pair.theirs).__name__ in family.bare
    there = dict(pair.theirs.named_parameters(remove_duplicate=False))
    # as they hold it in memory, where experts that are stored one by one are one tensor
    table = family.table(pair.ours.config).stored_as(there)
    links = link(table.rows(bare=bare), {name: gradient.shape for name, gradient in gradients.items()})
    buffers = dict(pair.theirs.named_buffers())
    for stored, gradient in pack_state(gradients, links).items():
        name = pair.case.in_memory(stored)
        theirs = there[name].grad if name in there else None
        if theirs is None:
            assert name in buffers, f"{name} is a parameter of ours alone"
            continue
        assert_close(gradient, theirs, TOLERANCE * max(1.0, float(theirs.abs().max())))
    for model in (pair.theirs, pair.ours):
        model.zero_grad()


@pytest.mark.parametrize("side", ["none", "left"])
@torch.no_grad()
def test_greedy_generation(pair: Pair, side: str) -> None:
    if not isinstance(pair.ours.config.head, CausalLM) or not pair.case.generates:
        pytest.skip("it does not generate, or not by the same rule")
    batch, n = inputs(side), 20
    start: dict[str, Any] = {"decoder_start_token_id": 3} if pair.kind == "encoder-decoder" else {}
    rows = [batch.row(i) for i in range(len(batch.ids))] if pair.case.row_by_row else [batch]
    theirs = torch.cat(
        [
            pair.theirs.generate(
                row.ids, attention_mask=row.real.long(), max_new_tokens=n, min_new_tokens=n, do_sample=False, **start
            )[:, -n:]
            for row in rows
        ]
    )
    cache, more, ids, tags = DenseCache(), {}, batch.ids, tags_of(pair, batch)
    if start:
        more = {"source": pair.ours.encode(batch.ids, tags=tags)}
        ids, tags = torch.full((len(batch.ids), 1), 3), None
    written = []
    for _ in range(n):
        ids = pair.ours(ids, tags=tags, cache=cache, **more)[:, -1:].argmax(-1)
        tags = None
        written.append(ids)
    assert torch.equal(torch.cat(written, 1), theirs)


def class_there(pair: Pair, folder: Path) -> Any:
    """Their class for what we wrote: the one it came from, or that of a family that says the same in fewer words, as a
    Mistral without a window is a Llama."""
    data = json.loads((folder / "config.json").read_text())
    same = data["model_type"] == pair.theirs.config.model_type
    return type(pair.theirs) if same else getattr(transformers, data["architectures"][0])


@torch.no_grad()
def test_there_and_back(pair: Pair, tmp_path: Path) -> None:
    """ours -> theirs -> ours: the same family, the same bits, the same logits."""
    save_model(pair.ours, tmp_path / "ours", generation={"pad_token_id": PAD})
    theirs, report = class_there(pair, tmp_path / "ours").from_pretrained(
        tmp_path / "ours", attn_implementation="eager", output_loading_info=True
    )
    assert set(report["missing_keys"]) <= set(pair.case.unread)
    assert not any(report.get(key) for key in ("unexpected_keys", "mismatched_keys", "error_msgs"))
    batch = inputs("left")
    again = run_theirs(Pair(pair.case, tmp_path, theirs.eval(), pair.ours), batch)
    assert_close(at_tokens(again.output, batch), at_tokens(run_theirs(pair, batch).output, batch))
    read = theirs.state_dict()
    same = pair.theirs.state_dict() if type(theirs) is type(pair.theirs) else {}
    assert all(torch.equal(read[name], value) for name, value in same.items() if name not in pair.case.unread)
    theirs.save_pretrained(tmp_path / "theirs")
    for folder in ("ours", "theirs"):
        again = load_model(tmp_path / folder, kernel="naive")
        assert canonical(again.config) == canonical(pair.ours.config)
        state = again.state_dict()
        assert all(torch.equal(state[name], tensor) for name, tensor in pair.ours.state_dict().items())
    if isinstance(pair.ours.config.head, SequenceClass):
        assert theirs.config.num_labels == pair.ours.config.head.n_classes
