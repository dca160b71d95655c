"""Activations that are computed again or sent away: the same gradients, bit for bit, and less that is kept."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from transpect.base.errors import ConfigError
from transpect.core import Moe, Tags, Transformer, override, preset
from transpect.core.feedforward import Glu
from transpect.train import Activations, Checkpoint, Keep, Offload, Recipe, train
from transpect.train import activations as module
from transpect.train.loss import accumulate_gradient
from transpect.train.recompute import recompute_activations
from transpect.train.state import read_state

V, B, T = 13, 3, 7
SMALL = [("vocab_size", V), ("d_model", 16), ("n_layers", 3), ("n_heads", 2), ("context_length", 16)]
NOISY = [("dropout", 0.2), ("attention.dropout", 0.2)]
WAYS: list[Activations] = [Checkpoint("layer"), Checkpoint("step"), Checkpoint("attention"), Checkpoint(every=2)]
NAMES = ["gpt2", "llama", "bert-base", "t5-small", "transformer-base"]

Make = Callable[..., Recipe]


def passed(model: Transformer) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss, and the gradient by every weight, in training mode with dropout."""
    ids = torch.randint(V, (B, T), generator=torch.Generator().manual_seed(1))
    options: dict[str, Any] = {"tags": Tags.padded(torch.arange(T) < torch.tensor([T, 3, 5])[:, None])}
    model.train().zero_grad()
    torch.manual_seed(2)
    if model.config.kind == "encoder-decoder":
        options["source"] = model.encode(ids.flip(1))
    loss = functional.cross_entropy(model(ids, **options).flatten(0, 1), ids.flatten())
    after = torch.rand(1)
    loss.backward()
    assert not torch.equal(torch.rand(1), after)
    return loss.detach(), {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def assert_same(config: Any, way: Activations) -> None:
    kept, again = recompute_activations(Transformer(config)), way.apply(Transformer(config))
    assert list(kept.state_dict()) == list(again.state_dict())
    (loss, wanted), (found, slopes) = passed(kept), passed(again)
    assert torch.equal(loss, found)
    assert slopes.keys() == wanted.keys()
    assert [name for name in wanted if not torch.equal(wanted[name], slopes[name])] == []


@pytest.mark.parametrize("way", WAYS, ids=repr)
@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_the_same_bits_with_dropout(name: str, way: Activations) -> None:
    assert_same(override(preset(name), [*SMALL, *NOISY]), way)


@pytest.mark.parametrize("positions", ["alibi", "transformer_xl", "kerple", "learned"])
def test_positions_that_reach_into_layers(positions: str) -> None:
    assert_same(override(preset("llama"), [*SMALL, *NOISY, ("positions", positions)]), Checkpoint())


@pytest.mark.parametrize("kernel", ["naive", "flash", {"kind": "sdpa", "largest_bias": 0}], ids=str)
@pytest.mark.parametrize("positions", ["t5", "kerple"])
def test_a_learned_bias_that_all_layers_share(positions: str, kernel: Any) -> None:
    changes = [*SMALL, ("positions", positions), ("attention.kernel", kernel)]
    assert_same(override(preset("llama"), changes), Checkpoint())


def test_experts() -> None:
    assert_same(override(preset("llama"), SMALL).map_stacks(ffn=Moe(3, ffn=Glu(20))), Checkpoint())


def test_what_is_sent_away_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between one memory and itself, since there is no other here; weights and small tensors stay."""
    monkeypatch.setattr(module, "SMALLEST", 4 * 16 * 8)
    sent: list[Tensor] = []
    real = module.OffloadedLayer._send

    def spy(self: Any, kept: Tensor) -> Any:
        packed = real(self, kept)
        sent.extend([kept] if isinstance(packed, tuple) else [])
        return packed

    monkeypatch.setattr(module.OffloadedLayer, "_send", spy)
    config = override(preset("gpt2"), [*SMALL, *NOISY])
    plain, away = Transformer(config), Offload(pin=False).apply(Transformer(config))
    (loss, wanted), (found, slopes) = passed(plain), passed(away)
    assert torch.equal(loss, found)
    assert all(torch.equal(wanted[name], slopes[name]) for name in wanted)
    assert len(sent) >= 3 * 5
    storages = {weight.untyped_storage().data_ptr() for weight in away.parameters()}
    assert not any(tensor.untyped_storage().data_ptr() in storages for tensor in sent)


@pytest.mark.parametrize(("way", "vectors"), [(Checkpoint("layer"), 1.0), (Checkpoint("step"), 2.0)], ids=repr)
def test_a_layer_keeps_its_inputs_alone(way: Activations, vectors: float) -> None:
    from torch.profiler import ProfilerActivity, profile

    held = []
    for n_layers in (3, 1):
        model = way.apply(Transformer(override(preset("gpt2"), [*SMALL, ("n_layers", n_layers)])).eval())
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
            hidden = model.hidden(torch.zeros(B, T, dtype=torch.int64))
        held.append(sum(event.self_cpu_memory_usage for event in record.key_averages()) / 4)
        del hidden
    # beside them the state of the generator, 5 KiB, which is nothing for a model of any size
    generators = 2 * (5056 / 4) * vectors
    assert (held[0] - held[1] - generators) / 2 / (B * T * 16) == pytest.approx(vectors, abs=0.75)


def test_a_run_is_the_same_bits_and_resumes(recipe_of: Make, tmp_path: Path, stop_at: Any) -> None:
    for kind in ("keep", "checkpoint"):
        recipe = recipe_of("seq2seq", {"train.activations": kind, "train.max_steps": 4})
        stop_at(recipe, tmp_path / kind, 2)
        train(recipe, tmp_path / kind, resume="auto")
    kept, again = (read_state(tmp_path / kind).tensors for kind in ("keep", "checkpoint"))
    assert kept.keys() == again.keys()
    assert [name for name in kept if not torch.equal(kept[name], again[name])] == []


@pytest.mark.parametrize(
    ("activations", "objective", "says"),
    [
        ({"kind": "offload"}, "causal", "from another device only"),
        ({"kind": "checkpoint"}, {"kind": "recurrent", "memory": 4}, "would take a batch up twice"),
        ({"kind": "checkpoint", "every": 0}, "causal", "every must be at least 1"),
        ({"kind": "checkpoint", "part": "head"}, "causal", "part"),
    ],
)
def test_what_can_not_be_is_refused(
    activations: Any, objective: Any, says: str, recipe_of: Make, tmp_path: Path
) -> None:
    changes = {"train.activations": activations, "data.objective": objective, "model.positions": "rope"}
    with pytest.raises(ConfigError, match=says):
        train(recipe_of("causal", changes), tmp_path)


class Largest(TorchDispatchMode):
    """Notes the size of the largest tensor that any operation gives."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(out):
            if isinstance(tensor, Tensor):
                self.numel = max(self.numel, tensor.numel())
        return out


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_no_logits_of_all_tokens_ever_exist(smoothing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward, with a vocabulary that is much larger than the model."""
    from transpect.data.batch import Batch
    from transpect.train import loss

    vocab, rows, length = 5000, 4, 16
    model = Keep().apply(Transformer(override(preset("gpt2"), [*SMALL, ("vocab_size", vocab)])))
    ids = torch.randint(vocab, (rows, length), generator=torch.Generator().manual_seed(0))
    batch = Batch(ids, Tags.dense(rows, length), ids.flip(1))
    weights = sum(weight.numel() for weight in model.token.parameters())
    for at_once in (4, rows * length):
        monkeypatch.setattr(loss, "IN_CACHE", at_once * vocab)
        with Largest() as seen:
            accumulate_gradient(model, batch, n_labels=batch.n_labels, smoothing=smoothing)
        assert seen.numel == max(at_once * vocab, weights)
    assert weights < rows * length * vocab / 3
