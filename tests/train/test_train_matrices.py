"""Processes that share out matrices have the loss, the norm, the gradient and the weights of one process."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from transpect.adapters import Lora, adapters_of, attach, train_only
from transpect.base.errors import ConfigError
from transpect.core import (
    AttentionConfig,
    CausalLM,
    EmbeddingConfig,
    Factor,
    Flash,
    Full,
    Glu,
    LayerNorm,
    Linformer,
    MaskedLM,
    Mlp,
    ModelConfig,
    Moe,
    Naive,
    OtherLayers,
    Post,
    QkNorm,
    RMSNorm,
    Sandwich,
    SequenceClass,
    StackConfig,
    Summaries,
    Tags,
    Transformer,
    override,
    preset,
)
from transpect.core.positions import Alibi, Kerple, Learned, NoPosition, Rope, T5Buckets, TransformerXL
from transpect.data.batch import IGNORE, Batch
from transpect.interop import save_model
from transpect.text import train_tokenizer
from transpect.train import Recipe, parse_recipe, read_metrics, train
from transpect.train.criteria import TokenCrossEntropy
from transpect.train.criteria.classification import Classify
from transpect.train.parallel import ALONE, ParallelSpec, World
from transpect.train.parallel.joining import joined
from transpect.train.parallel.matrices import check_matrices
from transpect.train.recompute import recompute_activations
from transpect.train.updates import update

together_module = import_module("transpect.train.parallel.together")  # once, before processes are forked

Make = Callable[..., Recipe]
Together = Callable[..., list[Any]]
Found = tuple[list[float], dict[str, list[float]]]
Change = Callable[[Transformer], Transformer]

CPU = torch.device("cpu")
VOCAB, LENGTH = 11, 9
TIED, MASKED, PLAIN = CausalLM(), MaskedLM(), EmbeddingConfig()
CROSSING = (("self",), ("cross",), ("ffn",))


def model(head: Any, embedding: Any = PLAIN, **stacks: StackConfig) -> ModelConfig:
    return ModelConfig(VOCAB, 16, LENGTH, head=head, embedding=embedding, **stacks)  # type: ignore[arg-type]


def stack(**changes: Any) -> StackConfig:
    return StackConfig(**{"n_layers": 2, "attention": attention(), "positions": Rope(), **changes})


def decoder(head: Any = TIED, embedding: Any = PLAIN, **changes: Any) -> ModelConfig:
    return model(head, embedding, decoder=stack(**changes))


def encoder(head: Any = MASKED, **changes: Any) -> ModelConfig:
    return model(head, encoder=stack(visibility=Full(), **changes))


def both(**changes: Any) -> ModelConfig:
    crossing = stack(steps=CROSSING, cross=AttentionConfig(n_heads=2), **changes)
    return model(TIED, encoder=stack(visibility=Full(), **changes), decoder=crossing)


def attention(**changes: Any) -> AttentionConfig:
    return AttentionConfig(**{"n_heads": 4, "n_kv_heads": 2, **changes})


GLU = Glu(d_ff=12, bias=True)
PARALLEL = {"steps": (("self", "ffn"),), "shared_norm": True}
TIED_BY_SOME = CausalLM(tied=False, bias=True, soft_cap=3.0)
SHAPES: dict[str, ModelConfig] = {
    "gqa": decoder(),
    "mqa": decoder(attention=attention(n_kv_heads=1, qk_norm=QkNorm(RMSNorm()))),
    "mqa, clipped": decoder(attention=attention(n_kv_heads=1, clip=0.2, qkv_bias=False), positions=Alibi(), ffn=GLU),
    "mqa, by buckets": decoder(attention=attention(n_kv_heads=1), positions=T5Buckets(buckets=8, max_distance=6)),
    "mqa, transformer-xl": decoder(attention=attention(n_kv_heads=1), positions=TransformerXL()),
    "mqa, global": encoder(
        attention=attention(n_kv_heads=1, global_projections=True, kernel=Naive()), first_is_global=True
    ),
    "mqa, both": both(attention=attention(n_kv_heads=1)),
    "gated, untied": decoder(TIED_BY_SOME, ffn=GLU, norm=RMSNorm()),
    "alibi": decoder(positions=Alibi(), placement=Post()),
    "kerple": decoder(positions=Kerple(), **PARALLEL),
    "t5": decoder(CausalLM(rescaled=True), positions=T5Buckets(buckets=8, max_distance=6)),
    "t5 by layer": decoder(positions=T5Buckets(buckets=8, max_distance=6, per_layer=True), placement=Sandwich()),
    "transformer-xl": decoder(positions=TransformerXL(), attention=AttentionConfig(n_heads=4)),
    "norm of a head": decoder(attention=attention(qk_norm=QkNorm(RMSNorm()))),
    "norm of all heads": decoder(attention=attention(qk_norm=QkNorm(RMSNorm(), over="all_heads"))),
    "norm of each head": decoder(attention=attention(qk_norm=QkNorm(LayerNorm(), over="each_head"))),
    "clipped, capped": decoder(attention=attention(clip=0.2, soft_cap=0.3, kernel=Flash(block=4, fused=False))),
    "experts": decoder(ffn=Moe(3, ffn=Glu(d_ff=8)), positions=NoPosition()),
    "learned, factored": decoder(embedding=EmbeddingConfig(factor=Factor(6)), positions=Learned()),
    "other layers": decoder(others=(OtherLayers(at=(1,), attention=AttentionConfig(n_heads=2), positions=Alibi()),)),
    "shared layers": decoder(n_layers=4, n_unique=2),
    "masked": encoder(attention=AttentionConfig(n_heads=4)),
    "global": encoder(attention=attention(global_projections=True, kernel=Naive()), first_is_global=True),
    "linformer": encoder(attention=attention(kernel=Linformer(rank=3, share="none"))),
    "linformer, one for all": encoder(attention=attention(kernel=Linformer(rank=3, share="key_value"))),
    "sums of blocks": encoder(summaries=Summaries(size=2), positions=T5Buckets(8, 6, of_blocks=True), ffn=Mlp(12)),
    "classes": encoder(SequenceClass(3, dropout=0.0), ffn=GLU),
    "both": both(positions=Learned(), placement=Post()),
    "both, by buckets": both(positions=T5Buckets(buckets=8, max_distance=6), norm=RMSNorm(), ffn=GLU),
}


def batches_for(config: ModelConfig) -> list[Batch]:
    """Two micro-batches with padding and unequally many labels."""
    generator = torch.Generator().manual_seed(3)
    made = []
    for rows in (4, 4):
        ids = torch.randint(VOCAB, (rows, LENGTH), generator=generator)
        lengths = torch.randint(3, LENGTH + 1, (rows,), generator=generator)
        tags = Tags.padded(torch.arange(LENGTH) < lengths[:, None])
        labels = torch.where((tags.position >= 0) & (torch.rand(ids.shape, generator=generator) < 0.6), ids, IGNORE)
        if isinstance(config.head, SequenceClass):
            labels = torch.randint(3, (rows,), generator=generator)
        source: dict[str, Any] = {}
        if len(config.towers) > 1:
            source = {"source_ids": ids.flip(0), "source_tags": tags.rows(torch.arange(rows - 1, -1, -1))}
        made.append(Batch(ids, tags, labels, **source))
    return made


def ten_updates(world: World, config: ModelConfig, change: Change) -> Found:
    """Loss and norm of each update, and all weights after the last; by SGD, so that what is wrong with a gradient is
    wrong with a weight in proportion."""
    parts = change(Transformer(config, seed=1)).train()
    criterion: Any = Classify() if isinstance(config.head, SequenceClass) else TokenCrossEntropy(0.1)
    criterion = world.spread(parts, criterion)
    optimizer, seen = torch.optim.SGD(parts.parameters(), lr=0.0), list[float]()
    for _ in range(10):
        made = update(parts, optimizer, batches_for(config), rate=0.05, clip=3.0, criterion=criterion, world=world)
        seen += [float(made.loss), float(made.grad_norm)]
    return seen, {name: value.flatten().tolist() for name, value in world.whole(parts).items()}


def adapted(model: Transformer) -> Transformer:
    """With LoRA beside its matrices, and nothing else to be trained."""
    options = Lora(rank=2, alpha=2.0)
    attach(model, options, seed=5)
    generator = torch.Generator().manual_seed(6)
    with torch.no_grad():
        for adapter in adapters_of(model).values():
            adapter.b.weight.copy_(0.1 * torch.randn(adapter.b.weight.shape, generator=generator))
    train_only(model, options)
    return model


def by_parts(layouts: list[dict[str, Any]], shapes: list[str], change: Change) -> list[Found]:
    """What the processes find for each layout and shape, all in one group."""
    found = []
    with joined(ParallelSpec(), CPU):
        for layout in layouts:
            world = together_module.Together(ParallelSpec(**layout), CPU)
            found += [ten_updates(world, SHAPES[shape], change) for shape in shapes]
    return found


def assert_equal(found: Found, expected: Found, begun: dict[str, Tensor], tolerance: float = 1e-5) -> None:
    assert found[0] == pytest.approx(expected[0], rel=tolerance)
    assert found[1].keys() == expected[1].keys()
    moved = {name: torch.tensor(value) - begun[name].flatten() for name, value in expected[1].items()}
    furthest = max(float(by.abs().max()) for by in moved.values() if len(by))
    for name, by in moved.items():
        if name.endswith("omega"):
            continue
        torch.testing.assert_close(
            torch.tensor(found[1][name]) - begun[name].flatten(), by, rtol=tolerance, atol=tolerance * furthest
        )


def check(
    size: int,
    layouts: list[dict[str, Any]],
    shapes: list[str],
    together: Together,
    change: Change = recompute_activations,
) -> None:
    by_rank = together(size, by_parts, layouts, shapes, change, seconds=600.0)
    cases = [(layout, shape) for layout in layouts for shape in shapes]
    for number, (_, shape) in enumerate(cases):
        expected = ten_updates(ALONE, SHAPES[shape], change)
        assert_equal(by_rank[0][number], expected, change(Transformer(SHAPES[shape], seed=1)).state_dict())
        assert all(found[number][0] == by_rank[0][number][0] for found in by_rank)


TWO = {"tensor": 2}


def test_two_processes_with_half_of_each_matrix_are_one(together: Together) -> None:
    check(2, [TWO], ["gated, untied"], together)


@pytest.mark.slow
def test_every_shape_by_two_processes_is_that_by_one(together: Together) -> None:
    check(2, [TWO], list(SHAPES), together)


@pytest.mark.slow
def test_rows_and_matrices_are_shared_out_together(together: Together) -> None:
    check(4, [TWO, {**TWO, "data": "fsdp"}], ["gated, untied", "t5", "experts", "masked", "both"], together)
    check(4, [{"tensor": 4}], ["masked", "gqa", "mqa"], together)


@pytest.mark.slow
def test_adapters_are_shared_out_as_what_they_stand_beside(together: Together) -> None:
    check(2, [TWO], ["gated, untied", "mqa", "transformer-xl", "both"], together, adapted)
    check(4, [{**TWO, "data": "fsdp"}, {"tensor": 4}], ["gqa", "masked"], together, adapted)


@pytest.mark.slow
def test_a_run_with_an_adapter_leaves_that_of_one_process(
    plain: Callable[..., dict[str, Any]], tmp_path: Path, together: Together
) -> None:
    sizes = {"d_model": 16, "n_layers": 2, "n_heads": 4, "d_ff": 24, "context_length": 24}
    data = plain("causal")
    tokenizer = train_tokenizer("char", [Path(data["data"]["train"]["path"]).read_text("utf-8")])
    config = override(preset("llama"), {**sizes, "n_kv_heads": 1, "vocab_size": len(tokenizer)}.items())
    save_model(Transformer(config, seed=3), tmp_path / "base")
    tokenizer.save(tmp_path / "base")
    recipe = {**data, "model": {"path": str(tmp_path / "base")}, "tokenizer": {}}
    changes = {**TEN, "train.adapter": {"rank": 2, "alpha": 4}}
    run_of(recipe, changes, tmp_path / "one")
    assert together(2, run_of, recipe, {**changes, "parallel.tensor": 2}, tmp_path / "two") == [10, 10]
    assert curves(tmp_path / "two") == pytest.approx(curves(tmp_path / "one"), rel=1e-5)
    one, two = (load_file(tmp_path / run / "last" / "adapter_model.safetensors") for run in ("one", "two"))
    assert one.keys() == two.keys()
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-5, atol=1e-6)


TEN = {"train.max_steps": 10, "train.batch_size": 4, "train.optimizer": {"kind": "sgd", "lr": 0.1, "momentum": 0.9}}
STILL = {f"model.{part}": 0.0 for part in ("dropout", "attention.dropout", "embedding.dropout")}


def run_of(plain: dict[str, Any], changes: dict[str, Any], out: Path) -> int:
    return train(parse_recipe(plain, changes.items()), out, resume="auto").step


def curves(run: Path) -> list[float]:
    names = ("loss", "grad_norm", "valid_loss")
    return [float(line[name] or 0.0) for line in read_metrics(run) for name in names if name in line]


def assert_same_weights(a: Path, b: Path) -> None:
    one, other = (load_file(run / "last" / "model.safetensors") for run in (a, b))
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_run_goes_on_by_other_parts(plain: Callable[..., dict[str, Any]], tmp_path: Path, together: Together) -> None:
    """By 1, 2, 1 and 4 processes: ten steps, their checkpoint and an optimizer's memory."""
    recipe, parts = plain("causal"), {**TEN, **STILL, "parallel.tensor": 2}
    stops = [{"train.max_steps": steps} for steps in (3, 5, 7, 10)]
    for stop in stops:  # the schedule of a shorter run is another one, so one process makes the same stops
        run_of(recipe, {**TEN, **STILL, **stop}, tmp_path / "one")
    run, whole = tmp_path / "run", {**TEN, **STILL}
    ways = [(1, whole), (2, parts), (1, whole), (4, {**parts, "parallel.data": "fsdp"})]
    for (size, changes), stop in zip(ways, stops, strict=True):
        given = (recipe, changes | stop, run)
        _ = run_of(*given) if size == 1 else together(size, run_of, *given)
    assert curves(run) == pytest.approx(curves(tmp_path / "one"), rel=1e-5)
    assert_same_weights(tmp_path / "one", run)


def masks_of(training: bool) -> tuple[list[bool], list[float], float]:
    """What is dropped between branches and within one, and what a generator gives afterwards."""
    with joined(ParallelSpec(**TWO), CPU) as world:
        torch.manual_seed(world.seed(5))
        parts = Transformer(decoder(dropout=0.5, ffn=Mlp(d_ff=64, dropout=0.5)), seed=1).train(training)
        world.spread(parts, TokenCrossEntropy())
        seen: dict[str, Tensor] = {}
        branch = parts.get_submodule("towers.decoder.stack.layers.0.steps.ffn.branches.ffn")
        branch.dropout.register_forward_hook(lambda _, __, out: seen.update(between=out))
        branch.body.get_submodule("dropout").register_forward_hook(lambda _, __, out: seen.update(within=out))
        parts.hidden(torch.arange(LENGTH)[None] % VOCAB)
        within = (seen["within"] == 0.0).flatten().tolist()
        return within, seen["between"].flatten().tolist(), float(torch.rand(()))


@pytest.mark.slow
def test_parts_drop_other_numbers_and_all_drop_the_same_between_them(together: Together) -> None:
    (within, between, after), (others_within, others_between, others_after) = together(2, masks_of, True)
    assert between == others_between and after == others_after
    assert within != others_within and 0.4 < sum(within) / len(within) < 0.6
    assert sum(value == 0.0 for value in between) > len(between) / 4
    assert together(2, masks_of, True)[0] == (within, between, after)  # the same again
    assert not any(together(2, masks_of, False)[0][0])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model.n_heads": 1}, r"must divide the heads of the decoder.*2, 1 of them"),
        (
            {"model.attention.n_kv_heads": 1, "model.attention.qk_norm": {"norm": "rmsnorm", "over": "all_heads"}},
            r"must divide the key-value heads of the decoder.*2, 1 of them",
        ),
        ({"model.d_ff": 65}, r"must divide the inner features of the decoder's feed-forward.*2, 65 of them"),
        ({"train.compile": True}, r"train.compile works on whole matrices"),
        ({"train.adapter": {"kind": "dora"}}, r"train.adapter: dora works on whole matrices"),
    ],
)
def test_a_model_that_does_not_go_into_equal_parts_is_refused(
    changes: dict[str, Any], said: str, recipe_of: Make
) -> None:
    check_matrices(recipe_of("causal"), 2)
    with pytest.raises(ConfigError, match=said):
        check_matrices(recipe_of("causal", changes), 2)


def test_one_process_has_no_one_to_share_matrices_with(recipe_of: Make, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"multiple of them.*parallel.tensor: 2, 1 process.*--nproc-per-node 2"):
        train(recipe_of("causal", {"parallel.tensor": 2}), tmp_path / "run")
