"""Training: tokens a second and peak memory of whole updates (forward, backward, clipping, AdamW) of a small GPT-2.

All begin with the same weights, read the same batches without dropout, and keep weights and moments in float32; in
bfloat16 a pass runs under autocast. First every program is as it comes, then all with glibc's setting of ours
(`transpect.base.allocator`), since that is the process's and not the program's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from transpect.base.errors import ConfigError
from transpect.bench.harness import Options, Sitting, Taken, Work
from transpect.bench.results import Bar
from transpect.bench.worker import OURS

__all__ = ["TASK", "Training", "flops", "known_dtypes", "measure"]

TASK: Final = "train"
DTYPES: Final = ("float32", "bfloat16")
BATCHES: Final = 4
RATE, CLIP, DECAY = 6e-4, 1.0, 0.1
GEMM: Final = 0.65
"""Share of the measured bf16 GEMM peak that an update should reach."""


@dataclass(frozen=True)
class Training:
    """What is trained: by default 13.9 million weights, 16 rows of 256 tokens.

    Attributes:
        formats: ``float32``, ``bfloat16``.
        steps: updates a round.
        rows, length: B and T of a batch.
        layers, width, heads, words: of the model; the head is the token table.
    """

    formats: tuple[str, ...] = DTYPES
    steps: int = 5
    rows: int = 16
    length: int = 256
    layers: int = 6
    width: int = 384
    heads: int = 6
    words: int = 8192


def measure(options: Options, what: Training) -> Sitting:
    """Measure every format, as shipped and with the same allocator.

    Raises:
        PeerError: ours can't train.
    """
    with TemporaryDirectory() as folder, Sitting(options) as sitting:
        common = prepare(Path(folder), what)
        for dtype in what.formats:
            for shared in (False, True):
                name = f"{dtype}, {'one allocator setting' if shared else 'as shipped'}"
                loads = loads_of(options, {**common, "dtype": dtype}, shared=shared)
                limits = bars(shared=shared)
                with sitting.field(TASK, name, loads, {peer for peer, _ in limits}) as field:
                    work = Work(
                        "", {"steps": what.steps}, {"updates": "tokens/s"}, {"peak memory": "MiB"}, limits, same
                    )
                    taken = sitting.race(field, work)
                if dtype == "bfloat16" and not shared:
                    _share(sitting, name, what, taken)
    return sitting


def known_dtypes(names: tuple[str, ...]) -> tuple[str, ...]:
    """The same names, checked.

    Raises:
        ConfigError: none, or one that passes aren't run in.
    """
    if not names or any(name not in DTYPES for name in names):
        raise ConfigError("updates are measured in known dtypes", value=names, remedy=f"Choose of {', '.join(DTYPES)}.")
    return names


def prepare(folder: Path, what: Training) -> dict[str, Any]:
    """Write the weights and the batches that all begin with; return what every ``load`` is given."""
    import torch
    from safetensors.torch import save_file

    from transpect.core.attention import AttentionConfig
    from transpect.core.config import ModelConfig
    from transpect.core.feedforward import Mlp
    from transpect.core.model import Transformer
    from transpect.core.positions import Learned
    from transpect.core.stack_config import StackConfig
    from transpect.interop import save_model

    config = ModelConfig(
        vocab_size=what.words,
        d_model=what.width,
        context_length=what.length,
        decoder=StackConfig(
            n_layers=what.layers,
            attention=AttentionConfig(n_heads=what.heads),
            ffn=Mlp(act="gelu_tanh"),
            positions=Learned(),
        ),
    )
    save_model(Transformer(config, seed=0), folder / "model")
    shape = (BATCHES, what.rows, what.length + 1)
    ids = torch.randint(what.words, shape, generator=torch.Generator().manual_seed(0))
    save_file({"ids": ids}, folder / "ids.safetensors")
    return {
        "directory": str(folder / "model"),
        "ids": str(folder / "ids.safetensors"),
        "lr": RATE,
        "clip": CLIP,
        "decay": DECAY,
    }


def loads_of(options: Options, common: Mapping[str, Any], *, shared: bool) -> dict[str, dict[str, Any]]:
    """What each program is told to open; nanogpt-style twice, eager and compiled."""
    loads: dict[str, dict[str, Any]] = {OURS: {**common, "keep": True}}
    for peer in options.against:
        loads[peer] = {**common, "keep": shared}
        if peer == "nanogpt-style":
            loads[peer]["compiled"] = False
            loads[f"{peer} compiled"] = {**loads[peer], "compiled": True}
    return loads


def bars(*, shared: bool) -> dict[tuple[str, str], Bar]:
    """(peer, measure) → what the ratio must be."""
    less = Bar(0.8, least=False)
    return {
        ("transformers", "updates"): Bar(1.05 if shared else 1.25),
        ("nanogpt-style", "updates"): Bar(1.0),
        ("transformers", "peak memory"): less,
        ("nanogpt-style", "peak memory"): less,
    }


def flops(what: Training) -> int:
    """Of a token in an update: 6 for each weight of a matrix (the tied table counts once, as the head), and
    6·layers·length·width for causal attention, half of what all pairs would cost.

    Source: Chowdhery et al. 2022 (PaLM), appendix B.
    """
    weights = 12 * what.layers * what.width**2 + what.words * what.width
    return 6 * weights + 6 * what.layers * what.length * what.width


def same(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """How far two programs do the same: the losses of the first updates."""
    pairs = zip(ours["losses"], theirs["losses"], strict=True)
    return f"losses of the first {len(ours['losses'])} updates within {max(abs(a - b) for a, b in pairs):.1g} nats"


def _share(sitting: Sitting, case: str, what: Training, taken: Taken) -> None:
    peak = sitting.machine.gemm.get("bfloat16")
    if peak is not None:
        rates = (answer["count"]["updates"] / answer["seconds"]["updates"] for answer in taken[OURS])
        values = tuple(rate * flops(what) / peak / 1e9 for rate in rates)
        sitting.judge(case, "bf16 GEMM", "updates", values, Bar(GEMM))
