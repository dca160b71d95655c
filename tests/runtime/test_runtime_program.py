"""A decode program is the model: over every position scheme and shape, rows, batches, and what becomes of sequences."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from numba import njit
from numba.core import caching
from torch import Tensor, nn

from transpect.base.errors import ConfigError
from transpect.cache import DenseCache
from transpect.core import (
    NO_SOURCE,
    AttentionConfig,
    Causal,
    CausalLM,
    FromGlobal,
    Full,
    Glu,
    LayerNorm,
    Mlp,
    ModelConfig,
    PrefixLM,
    RMSNorm,
    SameSegment,
    StackConfig,
    Tags,
    Transformer,
    Window,
)
from transpect.core.attention import QkNorm
from transpect.core.embeddings import EmbeddingConfig, Factor
from transpect.core.feedforward import ACTIVATIONS
from transpect.core.kernels import Naive
from transpect.core.norms import BranchEnd, Enter, PlainLayerNorm, Post, Sandwich
from transpect.core.positions import (
    Alibi,
    DynamicNTK,
    Kerple,
    Learned,
    LinearScaling,
    NoPosition,
    Position,
    Rope,
    Sinusoidal,
    T5Buckets,
    TransformerXL,
    Yarn,
)
from transpect.runtime import Program
from transpect.runtime.compiling import compiled
from transpect.runtime.program import MOST_ROWS

VOCAB = 37
Change = Callable[[StackConfig], StackConfig]

POSITIONS: dict[str, Position] = {
    "none": NoPosition(),
    "sinusoidal": Sinusoidal(),
    "learned": Learned(),
    "rope": Rope(),
    "rope interleaved": Rope(interleaved=True),
    "rope in part": Rope(fraction=0.5),
    "rope linear": Rope(scaling=LinearScaling(2.0)),
    "rope yarn": Rope(scaling=Yarn(4.0, 8)),
    "alibi": Alibi(),
    "kerple": Kerple(),
    "t5": T5Buckets(buckets=8, max_distance=6),
}


def attention(**options: object) -> Change:
    return lambda stack: replace(stack, attention=replace(stack.attention, **options))  # type: ignore[arg-type]


def stack(**options: object) -> Change:
    return lambda before: replace(before, **options)  # type: ignore[arg-type]


STACKS: dict[str, Change] = {
    "gqa": attention(n_kv_heads=2),
    "mqa": attention(n_kv_heads=1),
    "head_dim": attention(head_dim=6),
    "no biases": attention(qkv_bias=False, out_bias=False),
    "clip": attention(clip=0.3),
    "soft cap": attention(soft_cap=0.7, kernel=Naive()),
    "scale": attention(scale=0.9),
    "norm of heads": attention(qk_norm=QkNorm(RMSNorm())),
    "norm of all heads": attention(qk_norm=QkNorm(LayerNorm(), over="all_heads"), n_kv_heads=2),
    "window": stack(visibility=Window(3)),
    "window of one": stack(visibility=Window(1)),
    "packed": stack(visibility=Causal() & SameSegment()),
    "prefix": stack(visibility=PrefixLM()),
    "post": stack(placement=Post()),
    "enter": stack(placement=Enter()),
    "sandwich": stack(placement=Sandwich()),
    "branch end": stack(placement=BranchEnd()),
    "rms": stack(norm=RMSNorm()),
    "rms from 1": stack(norm=RMSNorm(unit_offset=True)),
    "plain norm": stack(norm=PlainLayerNorm()),
    "norm without bias": stack(norm=LayerNorm(bias=False)),
    "parallel": stack(steps=(("self", "ffn"),)),
    "parallel, one norm": stack(steps=(("self", "ffn"),), shared_norm=True),
    "parallel, sandwich": stack(steps=(("self", "ffn"),), placement=Sandwich()),
    "parallel, post": stack(steps=(("self", "ffn"),), placement=Post()),
    "no first norm": stack(first_norm=False),
    "shared layers": stack(n_layers=4, n_unique=2),
    **{f"mlp {act}": stack(ffn=Mlp(d_ff=20, act=act)) for act in ACTIVATIONS},  # type: ignore[arg-type]
    **{f"glu {act}": stack(ffn=Glu(d_ff=20, act=act)) for act in ACTIVATIONS},  # type: ignore[arg-type]
    "glu with bias": stack(ffn=Glu(d_ff=20, bias=True)),
}
HEADS = {
    "own": CausalLM(tied=False),
    "bias": CausalLM(bias=True),
    "rescaled": CausalLM(rescaled=True),
    "cap": CausalLM(soft_cap=1.5),
    "all": CausalLM(tied=False, bias=True, rescaled=True, soft_cap=1.5),
}


def config(positions: Position, change: Change = lambda same: same, **options: object) -> ModelConfig:
    tower = StackConfig(n_layers=2, attention=AttentionConfig(n_heads=4), positions=positions)
    return ModelConfig(VOCAB, 16, 64, decoder=change(tower), **options)  # type: ignore[arg-type]


def with_encoder(plain: ModelConfig) -> ModelConfig:
    assert plain.decoder is not None
    decoder = replace(plain.decoder, steps=(("self",), ("cross",), ("ffn",)))
    return replace(plain, encoder=replace(plain.decoder, visibility=Full()), decoder=decoder)


def built(plan: ModelConfig, dtype: torch.dtype = torch.float32) -> Transformer:
    model, generator = Transformer(plan).eval(), torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model.to(dtype)


class Slow:
    """The model itself, over everything that each sequence has read, one at a time and without a cache."""

    def __init__(self, model: Transformer, prompts: list[list[int]], sources: list[list[int]] | None) -> None:
        self.model, self.read, self.prefix = model, [list(prompt) for prompt in prompts], list(map(len, prompts))
        self.sources: list[list[int]] = [[] for _ in prompts] if sources is None else sources

    @torch.no_grad()
    def logits(self, which: int) -> Tensor:
        ids = torch.tensor([self.read[which]])
        position = torch.arange(ids.shape[1])[None]
        tags = Tags.of(position, prefix=position < self.prefix[which])
        source = self.model.encode(torch.tensor([self.sources[which]])) if self.model.config.encoder else NO_SOURCE
        out: Tensor = self.model(ids, tags=tags, source=source)
        return out[0, -1].float()

    def then(self, tokens: list[int], sequence: list[int]) -> Tensor:
        rows = []
        for token, which in zip(tokens, sequence, strict=True):
            self.read[which].append(token)
            rows.append(self.logits(which))
        return torch.stack(rows)

    def select(self, index: list[int]) -> None:
        self.read = [list(self.read[i]) for i in index]
        self.prefix, self.sources = [self.prefix[i] for i in index], [self.sources[i] for i in index]


PROMPTS = [[5, 1, 9, 9], [3], [7, 2, 36, 0, 11, 4, 8]]
SOURCES = [[4, 2], [6, 30, 1, 1, 2, 9], [8]]


def started(model: Transformer, capacity: int = 24) -> tuple[Program, Slow]:
    """Both after the prompts, which are padded on the left in the cache."""
    longest = max(map(len, PROMPTS))
    ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in PROMPTS])
    tags = Tags.padded(torch.arange(longest) >= longest - torch.tensor([[len(prompt)] for prompt in PROMPTS]))
    if model.config.last.looks_ahead(prefix=True):
        tags = replace(tags, prefix=tags.position >= 0)
    cache, source = DenseCache(), NO_SOURCE
    with torch.inference_mode():
        if model.config.encoder:
            width = max(map(len, SOURCES))
            padded = torch.tensor([own + [0] * (width - len(own)) for own in SOURCES])
            real = torch.arange(width) < torch.tensor([[len(own)] for own in SOURCES])
            source = model.encode(padded, tags=Tags.padded(real))
        model(ids, tags=tags, source=source, cache=cache)
    program = Program(model, len(PROMPTS), capacity, 6 if model.config.encoder else 0)
    program.fill(cache, source.tags if model.config.encoder else None)
    return program, Slow(model, PROMPTS, SOURCES if model.config.encoder else None)


def assert_equal(program: Program, slow: Slow, tokens: list[int], sequence: list[int], tolerance: float = 1e-5) -> None:
    found, _ = program.read(torch.tensor(tokens), sequence)
    assert torch.allclose(found, slow.then(tokens, sequence), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("kind", ["decoder", "encoder-decoder"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_positions(positions: str, kind: str) -> None:
    plan = config(POSITIONS[positions])
    program, slow = started(built(plan if kind == "decoder" else with_encoder(plan)))
    for step in range(3):
        assert_equal(program, slow, [step, 30 - step, 12], [0, 1, 2])


@pytest.mark.parametrize("change", STACKS)
def test_stacks(change: str) -> None:
    program, slow = started(built(config(Rope(), STACKS[change])))
    for step in range(2):
        assert_equal(program, slow, [step, 30 - step, 12], [0, 1, 2])


@pytest.mark.parametrize("head", HEADS)
def test_heads(head: str) -> None:
    program, slow = started(built(config(Alibi(), head=HEADS[head])))
    assert_equal(program, slow, [1, 30, 12], [0, 1, 2])


@pytest.mark.parametrize("factor", [Factor(6), Factor(6, early=True, bias=False)], ids=["late", "early"])
def test_token_vectors_of_their_own_width(factor: Factor) -> None:
    program, slow = started(built(config(Learned(), embedding=EmbeddingConfig(scaled=True, factor=factor))))
    assert_equal(program, slow, [1, 30, 12], [0, 1, 2])


@pytest.mark.parametrize("head", ["own", "bias"])
def test_bfloat16_weights_are_read_as_they_are(head: str) -> None:
    """As a float32 model with the same numbers: activations are not rounded."""
    model = built(config(Rope(), attention(n_kv_heads=2), head=HEADS[head]), torch.bfloat16)
    program, _ = started(model)
    wide, slow = started(built(model.config).to(torch.bfloat16).float())
    for which, other in ((program._built.keys, wide._built.keys), (program._built.values, wide._built.values)):
        for own, theirs in zip(which, other, strict=True):
            own[:] = theirs  # the prompt is read by the model, which does round
    assert_equal(program, slow, [1, 30, 12], [0, 1, 2])


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8, 9, 13, MOST_ROWS + 3])
def test_any_number_of_rows(rows: int) -> None:
    """Several tokens of one sequence, in one pass and in several, mixed with others: each sees those before it."""
    program, slow = started(built(config(Rope(), attention(n_kv_heads=2))), capacity=60)
    sequence = [0 if row % 3 else 2 for row in range(rows)] if rows > 2 else [1] * rows
    assert_equal(program, slow, [row * 7 % VOCAB for row in range(rows)], sequence)


@pytest.mark.parametrize("kind", ["decoder", "encoder-decoder"])
@pytest.mark.parametrize("index", [[2, 0, 1], [1], [0, 0, 0, 0, 0], [2, 2, 0, 1, 2], [1, 2, 1], [0, 1, 2]], ids=str)
def test_select_takes_everything_along(index: list[int], kind: str) -> None:
    plan = config(Rope())
    program, slow = started(built(plan if kind == "decoder" else with_encoder(plan)))
    assert_equal(program, slow, [1, 2, 3], [0, 1, 2])
    for _ in range(2):
        program.select(index)
        slow.select(index)
        rows = list(range(len(index)))
        assert_equal(program, slow, [20 + row for row in rows], rows)
        index = rows[::-1]


def test_forgotten_tokens_were_never_read() -> None:
    program, slow = started(built(config(T5Buckets(buckets=8, max_distance=6))))
    program.read(torch.tensor([1, 2, 3, 4, 5, 6]), [0, 0, 0, 1, 2, 2])
    program.forget([2, 1, 0])
    slow.then([1, 5, 6], [0, 2, 2])
    assert_equal(program, slow, [7, 8, 9], [0, 1, 2])


@pytest.mark.parametrize("n_layers", [1, 2, 3])
def test_first_layers_alone(n_layers: int) -> None:
    model = built(config(Rope(), stack(n_layers=3)))
    program, slow = started(model)
    early = Slow(model.leaving_early(n_layers).eval(), PROMPTS, None)
    found, _ = program.read(torch.tensor([1, 2]), [0, 2], n_layers)
    assert torch.allclose(found, early.then([1, 2], [0, 2]), atol=1e-5)
    program.forget([1, 0, 1])
    assert_equal(program, slow, [4, 5, 6], [0, 1, 2])


@pytest.mark.parametrize(
    ("plan", "what"),
    [
        (config(Rope(scaling=DynamicNTK(2.0, 8))), "dynamic"),
        (config(TransformerXL()), "distance"),
        (config(Rope(), stack(visibility=Causal() & (Window(4) | FromGlobal()))), "visibility"),
        (config(Rope(), stack(visibility=Window(4, dilation=2))), "visibility"),
        (config(Rope(), attention(qk_norm=QkNorm(RMSNorm(), over="each_head"))), "NormOfEachHead"),
    ],
    ids=["dynamic", "transformer-xl", "global tokens", "dilated window", "norm of each head"],
)
def test_what_a_program_cannot_do_is_refused_by_name(plan: ModelConfig, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        Program(built(plan), 1, 8)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16], ids=str)
def test_other_dtypes_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ConfigError, match=str(dtype)):
        Program(built(config(Rope()), dtype), 1, 8)


class Doubled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def put(name: str, module: nn.Module) -> Callable[[Transformer], object]:
    return lambda model: model.set_submodule(name, module)


def hooked(name: str, *, before: bool = False) -> Callable[[Transformer], object]:
    def hook(model: Transformer) -> object:
        module = model.get_submodule(name)
        return (module.register_forward_pre_hook if before else module.register_forward_hook)(lambda *_: None)

    return hook


ATTENTION = "towers.decoder.stack.layers.1.steps.self.branches.self"
FFN = "towers.decoder.stack.layers.1.steps.ffn.branches.ffn.body"
CHANGES: dict[str, tuple[Callable[[Transformer], object], str]] = {
    "child of a linear layer": (put(f"{ATTENTION}.body.out", Doubled(16, 16)), "Doubled"),
    "several for one": (put(f"{FFN}.down", nn.Sequential(nn.Linear(64, 16), nn.Tanh())), "Sequential"),
    "dropout": (put(f"{ATTENTION}.dropout", nn.Tanh()), "Tanh"),
    "norm": (put("towers.decoder.stack.final_norm", nn.Softmax(-1)), "Softmax"),
    "head": (put("head.cap", nn.Tanh()), "Tanh"),
    "activation": (lambda model: setattr(model.get_submodule(FFN), "act", torch.sin), "sin"),
    "kernel": (
        lambda model: setattr(model.get_submodule(f"{ATTENTION}.body"), "kernel", nn.Bilinear(1, 1, 1)),
        "Bilin",
    ),
    "hook": (hooked(f"{ATTENTION}.body.out"), "hook of the Linear"),
    "hook before": (hooked("towers.decoder.stack.layers.0", before=True), "hook of the Layer"),
    "hook of the head": (hooked("head"), "hook of the CausalLMHead"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_was_changed_by_hand_is_refused_by_name(change: str) -> None:
    """A program runs its own instructions, so the code of another module or hook would be passed over."""
    model = built(config(Rope()))
    edit, what = CHANGES[change]
    edit(model)
    with pytest.raises(ConfigError, match=what):
        Program(model, 1, 8)


def test_weights_that_lie_otherwise_in_memory_are_the_same_weights() -> None:
    model = built(config(Rope()))
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.weight = nn.Parameter(module.weight.detach().t().contiguous().t())
    program, slow = started(model)
    assert_equal(program, slow, [1, 30, 12], [0, 1, 2])


def test_several_python_threads() -> None:
    code = """
from threading import Thread
import torch
from transpect.core import AttentionConfig, ModelConfig, StackConfig, Transformer
from transpect.runtime import Program
model = Transformer(ModelConfig(9, 8, 64, decoder=StackConfig(n_layers=2, attention=AttentionConfig(n_heads=1))))
found = []
def read():
    program = Program(model, 1, 64)
    found.append(torch.cat([program.read(torch.tensor([step % 9]), [0])[0] for step in range(60)]))
threads = [Thread(target=read) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(found) == 4 and all(torch.equal(own, found[0]) for own in found)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_process_that_was_forked_after_a_pass() -> None:
    code = """
import os
import torch
from transpect.core import AttentionConfig, ModelConfig, StackConfig, Transformer
from transpect.runtime import Program
torch.set_num_threads(2)
model = Transformer(ModelConfig(9, 8, 64, decoder=StackConfig(n_layers=2, attention=AttentionConfig(n_heads=1))))
before = Program(model, 2, 64)
first, _ = before.read(torch.tensor([1]), [0])
child = os.fork()
again, _ = before.read(torch.tensor([1]), [1])
if not child:
    os._exit(0 if torch.equal(first, again) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_weights_are_shared_with_the_model() -> None:
    model = built(config(Rope()))
    program, _ = started(model)
    with torch.no_grad():
        model.token.weight.mul_(1.5)
    found, _ = program.read(torch.tensor([3]), [1])
    expected = model.head.project(torch.from_numpy(program._built.x[:1, :16]), model.token.weight)
    assert torch.allclose(found, expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_torch_keeps_its_threads(threads: int) -> None:
    """In a process of its own, since numba starts its threads once."""
    code = f"""
import torch
from transpect.core import AttentionConfig, ModelConfig, StackConfig, Transformer
from transpect.runtime import Program
torch.set_num_threads({threads})
model = Transformer(ModelConfig(9, 8, 8, decoder=StackConfig(n_layers=1, attention=AttentionConfig(n_heads=1))))
Program(model, 1, 8).read(torch.tensor([1]), [0])
assert torch.get_num_threads() == {threads}, torch.get_num_threads()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_a_folder_for_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose disk is read-only."""
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    with pytest.raises(RuntimeError, match="cannot cache"):
        njit(cache=True)(lambda x: x)
    assert compiled(lambda x: x + 1)(2) == 3


def test_nan_is_not_lost() -> None:
    model = built(config(Rope()))
    with torch.no_grad():
        model.token.weight[3] = torch.nan
    program, _ = started(model)
    assert program.read(torch.tensor([3]), [1])[0].isnan().any()


@pytest.mark.parametrize("ffn", [Glu(d_ff=52), Mlp(d_ff=40)], ids=["glu", "mlp"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_neighbours_change_no_bit(dtype: torch.dtype, ffn: Glu | Mlp) -> None:
    """Whatever the number of rows, and whichever of them it is; also where D is no multiple of the lanes."""
    model = built(replace(config(Rope(), stack(ffn=ffn)), d_model=40), dtype)
    alone, _ = started(model)
    expected = torch.cat([alone.read(torch.tensor([token]), [1])[0] for token in (4, 8, 15)])
    for others in (1, 2, 5, 8, 11):
        program, _ = started(model, capacity=40)
        sequence = [0, 2] * others
        for token, own in zip((4, 8, 15), expected, strict=True):
            place = token % (len(sequence) + 1)
            rows = [*sequence[:place], 1, *sequence[place:]]
            found, _ = program.read(torch.tensor([token if which == 1 else 9 for which in rows]), rows)
            assert torch.equal(found[place], own)
            program.forget([others, 0, others])


@pytest.mark.parametrize("position", ["rope", "alibi", "learned"])
def test_prompts_that_a_program_reads_itself(position: str) -> None:
    """Also more rows than a pass has, and windows."""
    model = built(config(POSITIONS[position], stack(visibility=Window(5))))
    prompts = {2: [3, 1, 4, 1, 5, 9, 2], 0: [6], 1: list(range(30)), 3: [5, 3, 5, 8, 9, 7, 9]}
    program = Program(model, 4, 40)
    logits, hidden = program.begin(prompts)
    assert program.lengths.tolist() == [1, 30, 7, 7]
    for row, prompt in enumerate(prompts.values()):
        ids = torch.tensor([prompt])
        assert torch.allclose(logits[row], model(ids)[0, -1], atol=1e-5)
        assert torch.allclose(hidden[row], model.hidden(ids)[0, -1], atol=1e-5)
    following, _ = program.read(torch.tensor([7, 7]), [1, 2])
    for row, own in enumerate((1, 2)):
        assert torch.allclose(following[row], model(torch.tensor([[*prompts[own], 7]]))[0, -1], atol=1e-5)
