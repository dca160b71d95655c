"""Plans against what is: parameters of the built model, FLOPs as torch counts them, what is kept, optimizers' state.

What autograd keeps is found by watching every storage that an operation makes, and asking after the forward pass which
of them live.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from transpect.base.errors import ConfigError
from transpect.core import ModelConfig, Transformer, override, preset
from transpect.core.context import NO_SOURCE
from transpect.core.presets import PRESETS
from transpect.interop.blank import blank
from transpect.train import Recipe
from transpect.train.cross_entropy import Readout, features_of, summed_cross_entropy
from transpect.train.optimizers import Adafactor, AdamW, Lion, Muon, Optimizer, Sgd
from transpect.train.planning import (
    HARDWARE,
    Layout,
    Part,
    Work,
    bytes_named,
    choose,
    hardware_named,
    layouts,
    memory_of,
    parts_of,
    plan,
    rehearsal,
    report,
    state_bytes,
    time_of,
    training_flops,
)
from transpect.train.planning.choice import ROOM
from transpect.train.planning.peak import HEAP
from transpect.train.planning.rehearsal import DEPTH, alive, holes, shallow_of
from transpect.train.planning.scaling import shared_memory, talk
from transpect.train.precision import arithmetic
from transpect.train.recompute import recompute_activations

B, T, S = 3, 32, 20
CPU = torch.device("cpu")
SMALL = {"d_model": 32, "n_heads": 4, "vocab_size": 50, "context_length": 64, "d_ff": 96}
DRY = {"dropout": 0.0, "attention.dropout": 0.0, "embedding.dropout": 0.0, "ffn.dropout": 0.0}


def config_of(name: str, **changes: Any) -> ModelConfig:
    every = {**SMALL, **DRY, **changes}
    if "ffn" in changes:
        every = {key: value for key, value in every.items() if key not in ("d_ff", "ffn.dropout")}
    return override(preset(name), list(every.items()))


class Living(TorchDispatchMode):
    """Knows which storages live of those that operations made inside."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                self.made.setdefault(storage._cdata, (StorageWeakRef(storage), storage.nbytes()))
        self.now()
        return out

    def now(self) -> int:
        self.made = {key: own for key, own in self.made.items() if not own[0].expired()}
        return sum(size for _, size in self.made.values())


def kept_by(config: ModelConfig, precision: Any, *, again: bool = True) -> int:
    """Bytes that live between the forward and the backward pass, weights left out."""
    model = Transformer(config, seed=0).train()
    model = recompute_activations(model) if again else model
    own = {weight.untyped_storage()._cdata for weight in [*model.parameters(), *model.buffers()]}
    ids, labels = torch.zeros(B, T, dtype=torch.int64), torch.zeros(B * T, dtype=torch.int64)
    with Living() as living, arithmetic(precision, CPU):
        source = model.encode(torch.zeros(B, S, dtype=torch.int64)) if len(config.towers) > 1 else NO_SOURCE
        features = features_of(model, model.hidden(ids, source=source).flatten(0, 1))
        del source
        loss = summed_cross_entropy(features, labels, Readout.of(model), at_once=10**9)
        del features
        total = living.now() - sum(size for key, (_, size) in living.made.items() if key in own)
    assert loss.requires_grad
    return total


def work_for(config: ModelConfig, precision: Any, **options: Any) -> Work:
    return Work(B, T, S if len(config.towers) > 1 else 0, precision=precision, **options)


VARIANTS: dict[str, dict[str, Any]] = {
    "dry": {},
    "dropout": {"dropout": 0.1, "embedding.dropout": 0.1},
    "dropout in feed-forwards": {"ffn.dropout": 0.1},
    "dropout of attention": {"attention.dropout": 0.1},
}
OTHERS: list[tuple[str, str, dict[str, Any]]] = [
    ("t5 positions", "gpt2", {"positions": "t5"}),
    ("alibi", "gpt2", {"positions": "alibi"}),
    ("grouped queries", "llama", {"n_kv_heads": 2}),
    ("grouped queries, dropout", "llama", {"n_kv_heads": 2, "attention.dropout": 0.1}),
    ("parallel", "gpt2", {"steps": (("self", "ffn"),)}),
    ("parallel, one norm", "gpt2", {"steps": (("self", "ffn"),), "decoder.shared_norm": True}),
    ("sandwich", "llama", {"placement": "sandwich"}),
    ("norms at branches' ends", "llama", {"placement": "branch_end"}),
    ("norms on queries and keys", "llama", {"attention.qk_norm": {"norm": {"kind": "rmsnorm"}}}),
    ("flash", "gpt2", {"kernel": "flash"}),
    ("window", "gpt2", {"visibility": {"kind": "window", "width": 8}}),
    ("experts", "llama", {"ffn": {"kind": "moe", "experts": 4, "ffn": {"kind": "glu", "d_ff": 96}}}),
    ("gelu, wide", "gpt2", {"d_ff": 200, "n_heads": 2}),
]


def check_kept(config: ModelConfig, precision: Any, *, masked: bool = False, near: float = 0.03) -> None:
    parts = parts_of(config, work_for(config, precision, masked=masked))
    said = sum(part.kept + part.casts for part in parts)
    assert said == pytest.approx(kept_by(config, precision), rel=near)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ["gpt2", "llama", "bert-base", "bart-base"])
def test_what_is_kept_for_the_backward_pass(name: str, variant: str, precision: str) -> None:
    check_kept(config_of(name, n_layers=2, **VARIANTS[variant]), precision)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(("name", "base", "changes"), OTHERS, ids=[name for name, _, _ in OTHERS])
def test_what_other_architectures_keep(name: str, base: str, changes: dict[str, Any], precision: str) -> None:
    check_kept(config_of(base, n_layers=3, **changes), precision, masked=name == "window", near=0.08)


@pytest.mark.parametrize("name", PRESETS)
def test_parameters_are_those_of_the_built_model(name: str) -> None:
    """Exact, for every preset at its published size, and for layers that share weights."""
    config = preset(name)
    work = Work(1, 8, 8 if len(config.towers) > 1 else 0)
    total = sum(weight.numel() for weight in blank(config).parameters())
    parts = parts_of(config, work)
    assert sum(part.parameters for part in parts) == total
    assert all(part.parameters >= 0 for part in parts)


@pytest.mark.parametrize("unique", [1, 2, 4])
def test_shared_layers_count_once_and_work_each_time(unique: int) -> None:
    config = config_of("bert-base", n_layers=4, n_unique=unique)
    parts = parts_of(config, Work(2, 8))
    assert sum(part.parameters for part in parts) == sum(weight.numel() for weight in blank(config).parameters())
    whole = parts_of(config_of("bert-base", n_layers=4), Work(2, 8))
    assert training_flops(parts) == training_flops(whole)


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert-base", "t5-small", "bart-base", "grouped"])
def test_flops_are_those_that_torch_counts(name: str) -> None:
    """Forward and backward, on the kernel whose products torch can see; within 2 %."""
    changes = {"n_layers": 2, "kernel": "naive", **({"n_kv_heads": 2} if name == "grouped" else {})}
    config = config_of("llama" if name == "grouped" else name, **changes)
    model = Transformer(config, seed=0)
    source = torch.zeros(B, S, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        given = {"source": model.encode(source)} if len(config.towers) > 1 else {}
        logits = model(torch.zeros(B, T, dtype=torch.int64), **given)
        logits.sum().backward()
    assert training_flops(parts_of(config, work_for(config, "fp32"))) == pytest.approx(
        counter.get_total_flops(), rel=0.02
    )


OPTIMIZERS: list[Optimizer] = [
    *(AdamW(), Lion(), Sgd(), Sgd(momentum=0.9), Adafactor(), Adafactor(beta1=0.9), Muon()),
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_the_state_of_an_optimizer_is_what_it_holds_after_a_step(optimizer: Optimizer) -> None:
    model = Transformer(config_of("gpt2", n_layers=2), seed=0)
    torched = optimizer.at(1e-3).build(model)
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    torched.step()
    held = sum(
        value.nbytes
        for state in torched.state.values()
        for value in state.values()
        if isinstance(value, Tensor) and value.ndim
    )
    assert state_bytes(optimizer, model) == held


def test_every_optimizer_is_known() -> None:
    assert {type(one).kind for one in OPTIMIZERS} == set(Optimizer.kinds())


def parts_for(work: Work, **changes: Any) -> list[Part]:
    return parts_of(config_of("gpt2", n_layers=4, **changes), work)


@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_peak_holds_what_must_be_held(accumulate: int, checkpointed: bool) -> None:
    """At least weights, optimizer and all that is kept; with micro-batches the gradients too; it grows with rows."""
    found = []
    for rows in (1, 8, 64):
        work = Work(rows, 32, checkpointed=checkpointed)
        parts = parts_for(work)
        weights = 4 * sum(part.parameters for part in parts)
        memory = memory_of(parts, work, 50, 2 * weights, accumulate=accumulate, base=1000)
        least = 1000 + 3 * weights + (weights if accumulate > 1 else 0)
        assert memory.peak >= least
        assert memory.peak >= least + (0 if checkpointed else sum(part.kept for part in parts[:-1]))
        found.append(memory.peak)
    assert found == sorted(found) and found[0] < found[2]


def test_rows_are_counted_by_pieces_where_a_run_reads_them_so() -> None:
    work = Work(16, 256, labels=4000, tokens=4090)
    piece, times = work.in_pieces()
    assert (piece.rows, times, piece.labels) == (8, 2, 2000)
    for whole in (replace(work, by_rows=False), replace(work, again=False), replace(work, rows=8)):
        assert whole.in_pieces() == (whole, 1)


def test_checkpointing_takes_less_memory_and_more_time() -> None:
    work = Work(64, 32)
    row = HARDWARE["A100"]
    less, more = (
        (memory_of(parts_for(w), w, 50, 0).peak, time_of(parts_for(w), w, row).update)
        for w in (Work(64, 32, checkpointed=True), work)
    )
    assert less[0] < more[0] and less[1] > more[1]


# many devices


def test_what_devices_tell_each_other_is_by_the_formulas() -> None:
    work = Work(2, 32)
    parts = parts_for(work)
    weights = 4 * sum(part.parameters for part in parts)
    crossing = 2 * 32 * 32 * 4
    assert talk(parts, work, Layout(), 1) == {}
    assert talk(parts, work, Layout(data=8), 3) == {"data": pytest.approx(2 * 7 / 8 * weights)}
    assert talk(parts, work, Layout(data=8, sharded=True), 3) == {"data": pytest.approx(3 * 3 * 7 / 8 * weights)}
    assert talk(parts, work, Layout(tensor=4), 1) == {"tensor": pytest.approx(4 * 2 * 3 / 4 * crossing * 4)}
    assert talk(parts, work, Layout(pipeline=2), 5) == {"pipeline": 2 * crossing * 5}


@pytest.mark.parametrize("devices", [1, 2, 8, 16, 1024])
def test_layouts_use_all_devices_and_fit_the_model(devices: int) -> None:
    config = config_of("gpt2", n_layers=4)
    found = list(layouts(config, devices, 8, 4096))
    assert found and len(set(found)) == len(found)
    for layout in found:
        assert layout.devices == devices
        assert layout.tensor <= 8 and config.last.attention.kv_heads % layout.tensor == 0
        assert config.last.n_layers % layout.pipeline == 0


def test_shards_hold_less() -> None:
    work = Work(2, 32)
    parts = parts_for(work)
    whole, shards = (
        shared_memory(parts, work, 50, 10**6, Layout(data=8, sharded=sharded), 1, 0) for sharded in (False, True)
    )
    assert (shards.weights, shards.optimizer) == (whole.weights // 8, whole.optimizer // 8)
    assert shards.kept == whole.kept


@pytest.mark.parametrize("devices", [1, 4, 64])
def test_every_way_fits_and_reads_the_same_rows(devices: int) -> None:
    config = override(preset("gpt2"), [("n_layers", 4)])
    row = HARDWARE["T4"]
    ways = choose(config, Work(64, 256, precision="bf16"), 64, 8 * 10**8, row, devices)
    assert [one.time.update for one in ways] == sorted(one.time.update for one in ways)
    for one in ways:
        assert one.memory.peak <= row.memory
        assert one.work.rows * one.accumulate * one.layout.data == 64


def test_what_fits_nowhere_is_refused_with_what_it_takes() -> None:
    with pytest.raises(ConfigError, match="must fit") as caught:
        choose(preset("llama"), Work(1, 2048), 1, 10**11, HARDWARE["T4"])
    assert "GB" in str(caught.value)
    with pytest.raises(ConfigError, match="the 2 rows of an update must be a multiple"):
        choose(preset("llama"), Work(2, 64), 2, 0, HARDWARE["A100"], 7)


@pytest.mark.parametrize(
    ("text", "count", "name"),
    [("8xA100", 8, "A100"), ("1024 x h100", 1024, "H100"), ("L4", 1, "L4"), ("2×A100-40GB", 2, "A100-40GB")],
)
def test_devices_by_name(text: str, count: int, name: str) -> None:
    number, row = hardware_named(text)
    assert (number, row.name) == (count, name)


@pytest.mark.parametrize("text", ["", "0xA100", "8xA10000", "eight", "-1xA100"])
def test_devices_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError):
        hardware_named(text)


def test_sizes_by_name() -> None:
    assert (bytes_named("24GB"), bytes_named("1GiB"), bytes_named("512 mb")) == (24 * 10**9, 2**30, 512 * 10**6)
    for text in ("24", "GB", "-1GB", "0GB"):
        with pytest.raises(ConfigError):
            bytes_named(text)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["causal", "masked", "seq2seq"])
def test_a_recipe_is_planned_on_this_machine(objective: str, recipe_of: Callable[..., Recipe]) -> None:
    found = plan(recipe_of(objective), hours=1.0)
    assert found.fits and found.seconds > 0.0
    assert found.steps_in_time is not None and found.steps_in_time > 0
    told = found.as_dict()
    assert told["parameters"] == sum(told["parts"].values())
    assert 0.0 < told["utilisation"] < 1.5


@pytest.mark.slow
def test_a_recipe_that_does_not_fit_is_given_smaller_batches(
    recipe_of: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "base_of", lambda recipe: 3 * 10**8)
    recipe = recipe_of("causal", {"model.d_model": 64, "train.batch_size": 256, "train.accumulate": 1})
    whole = plan(recipe).best.memory
    memory = round((whole.base + 0.4 * (whole.peak - whole.base)) / ROOM)
    found = plan(recipe, memory=memory)
    assert not found.fits
    assert found.best.work.rows * found.best.accumulate == 256 and found.best.accumulate > 1
    assert 3 * 10**8 == found.best.memory.base < found.best.memory.peak <= memory * ROOM


def test_a_shallow_model_has_the_recipes_rows_and_widths() -> None:
    deep = config_of("gpt2", n_layers=6)
    shallow = shallow_of(deep)
    assert shallow.decoder is not None and shallow.decoder.n_layers == DEPTH
    assert shallow == deep.map_stacks(n_layers=DEPTH)
    assert shallow_of(config_of("gpt2", n_layers=1)) == config_of("gpt2", n_layers=1)
    both = shallow_of(config_of("transformer-base", n_layers=5))
    assert [stack.n_layers for stack in both.towers.values()] == [DEPTH, DEPTH]


def test_what_the_allocator_holds_is_a_share_of_what_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    config, work = config_of("gpt2", n_layers=6), Work(4, 32)
    piece, times = work.in_pieces()
    lives = alive(shallow_of(config), piece, times, AdamW()).peak

    def tried(*_: Any, input: str, **__: Any) -> CompletedProcess[str]:
        assert json.loads(input)["work"]["rows"] == 4
        return CompletedProcess([], 0, json.dumps({"held": 3 * lives // 2}), "")

    monkeypatch.setattr(rehearsal.subprocess, "run", tried)
    monkeypatch.setattr(rehearsal, "_can_look", lambda: True)
    assert holes(config, work, AdamW(), 1, 10**12) == pytest.approx(0.5, abs=1e-3)
    assert holes(config, work, AdamW(), 1, 10**3) == HEAP, "there is no room to try it"
    whole = [memory_of(parts_of(config, piece), piece, 50, 0, heap=heap).peak for heap in (0.0, 0.5)]
    assert whole[1] == pytest.approx(1.5 * whole[0], rel=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(not rehearsal._can_look(), reason="this system does not tell a process's peak")
@pytest.mark.parametrize("name", ["gpt2", "transformer-base"])
def test_updates_of_a_shallow_model_are_tried(name: str) -> None:
    config = config_of(name, n_layers=3, d_model=128, vocab_size=2000)
    work = Work(16, 64, source=32 if name == "transformer-base" else 0, labels=700, masked=True)
    assert 0.0 <= holes(config, work, AdamW(), 1, 10**11) < 2.0
