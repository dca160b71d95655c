"""Layers that differ: every pattern of windows comes back from the words of every family that can say it."""

import random
from dataclasses import replace
from typing import Any

import pytest

from transpect.base.errors import CheckpointError
from transpect.core import Causal, ModelConfig, OtherLayers, StackConfig, Window
from transpect.core.positions import NoPosition, Rope
from transpect.interop.families import FAMILIES
from transpect.interop.family import Family, canonical

LAYERS = 7
PATTERNS = [tuple(random.Random(seed).random() < 0.5 for _ in range(LAYERS)) for seed in range(12)] + [
    (False,) * LAYERS,
    (True,) * LAYERS,
    (False,) * 4 + (True,) * 3,
    tuple((layer + 1) % 2 != 0 for layer in range(LAYERS)),
    tuple((layer + 1) % 6 != 0 for layer in range(LAYERS)),
    tuple((layer + 1) % 3 != 0 for layer in range(LAYERS)),
]
TYPED = ("qwen2", "qwen3", "gemma2", "gemma3_text", "smollm3", "ministral")
UNIFORM = ("mistral", "mixtral", "qwen3_moe", "phi3")


def at(pattern: tuple[bool, ...], wanted: bool) -> tuple[int, ...]:
    return tuple(layer for layer, is_windowed in enumerate(pattern) if is_windowed == wanted)


def windowed(family: Family, pattern: tuple[bool, ...], width: int, *, turned: bool) -> ModelConfig:
    """A config of the family with windows in these layers; ``turned``: they are the stack's own kind."""
    config = family.read({"num_hidden_layers": LAYERS})
    stack = config.last
    # Gemma 3 has other positions under a window
    wide, near = Rope(theta=1e6), Rope()
    if family.model_type != "gemma3_text":
        wide = near = stack.positions
    kinds = ({"visibility": Causal(), "positions": wide}, {"visibility": Window(width), "positions": near})
    own, other = kinds[::-1] if turned else kinds
    others = at(pattern, wanted=not turned)
    changed = replace(stack, **own, others=(OtherLayers(at=others, **other),) if others else ())
    return replace(config, decoder=changed)


def rules(config: ModelConfig) -> list[str]:
    stack = config.last
    return [stack.kinds[kind].visibility.kind for kind in stack.kind_of]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: "".join("ws"[not w] for w in pattern))
@pytest.mark.parametrize("name", TYPED)
def test_every_pattern_comes_back(name: str, pattern: tuple[bool, ...], turned: bool) -> None:
    family = FAMILIES[name]
    if name == "smollm3":  # here windows say nothing of positions, which would be the stack's own
        plain = family.read({"num_hidden_layers": LAYERS, "no_rope_layers": [1] * LAYERS})
        family = replace(family, template=plain)
        config = replace(plain, decoder=replace(plain.last, **window_kinds(plain.last, pattern, turned)))
    else:
        config = windowed(family, pattern, 13, turned=turned)
    data = family.write(config)
    assert data is not None
    back = family.read(data)
    assert canonical(back) == canonical(config)
    assert rules(back) == ["window" if is_windowed else "causal" for is_windowed in pattern]


def window_kinds(stack: StackConfig, pattern: tuple[bool, ...], turned: bool) -> dict[str, Any]:
    own, other = (Window(13), Causal()) if turned else (Causal(), Window(13))
    others = at(pattern, wanted=not turned)
    return {"visibility": own, "others": (OtherLayers(at=others, visibility=other),) if others else ()}


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        *(("qwen2", (False,) * full + (True,) * (LAYERS - full)) for full in range(LAYERS + 1)),
        *(("qwen3", (False,) * full + (True,) * (LAYERS - full)) for full in range(LAYERS + 1)),
        ("gemma2", PATTERNS[-3]),
        *(("gemma3_text", tuple((layer + 1) % period != 0 for layer in range(LAYERS))) for period in range(1, 10)),
        ("ministral", (True,) * LAYERS),
    ],
)
def test_the_words_of_older_readers_say_the_same(name: str, pattern: tuple[bool, ...]) -> None:
    """Where a family's old options can say a pattern, they do, for tools that do not know ``layer_types``."""
    family = FAMILIES[name]
    config = windowed(family, pattern, 13, turned=False)
    data = family.write(config)
    assert data is not None
    del data["layer_types"]
    assert canonical(family.read(data)) == canonical(config)


STATED: dict[str, dict[str, Any]] = {
    "qwen2": {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 4},
    "qwen3": {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 4},
    "gemma3_text": {"sliding_window": 9, "sliding_window_pattern": 3},
    "modernbert": {"local_attention": 9, "global_attn_every_n_layers": 3},
}


@pytest.mark.parametrize("name", STATED)
def test_two_words_for_which_layers_see_a_window_must_agree(name: str) -> None:
    """`transformers` goes by ``layer_types`` and drops the other word; here neither is dropped in silence."""
    family, stated = FAMILIES[name], {"num_hidden_layers": LAYERS, **STATED[name]}
    (word,) = stated.keys() & {"max_window_layers", "sliding_window_pattern", "global_attn_every_n_layers"}
    windows = [rule == "window" for rule in rules(family.read(stated))]
    types = ["sliding_attention" if is_windowed else "full_attention" for is_windowed in windows]
    agreeing = {**stated, "layer_types": types}
    assert family.read(agreeing) == family.read(stated)
    for layer in range(LAYERS):
        other = [*types]
        other[layer] = "full_attention" if windows[layer] else "sliding_attention"
        with pytest.raises(CheckpointError, match=f"{word} and layer_types"):
            family.read({**agreeing, "layer_types": other})
        del agreeing[word]  # alone, either counts
        assert rules(family.read({**agreeing, "layer_types": other})) != rules(family.read(stated))
        agreeing[word] = stated[word]


@pytest.mark.parametrize("name", ["qwen2", "qwen3"])
def test_a_default_that_they_write_beside_layer_types_contradicts_nothing(name: str) -> None:
    stated = {**STATED[name], "num_hidden_layers": LAYERS, "max_window_layers": 28}
    types = ["sliding_attention", *["full_attention"] * (LAYERS - 1)]
    assert rules(FAMILIES[name].read({**stated, "layer_types": types})) == ["window", *["causal"] * (LAYERS - 1)]


@pytest.mark.parametrize("name", UNIFORM)
def test_a_family_of_one_window_says_all_or_none(name: str) -> None:
    family = FAMILIES[name]
    for pattern in PATTERNS:
        data = family.write(windowed(family, pattern, 13, turned=False))
        if len(set(pattern)) > 1:
            assert data is None
        else:
            assert data is not None
            assert rules(family.read(data)) == ["window" if pattern[0] else "causal"] * LAYERS


@pytest.mark.parametrize("name", TYPED)
def test_windows_of_two_widths_have_no_words(name: str) -> None:
    family = FAMILIES[name]
    config = windowed(family, (True,) * LAYERS, 13, turned=True)
    two = (OtherLayers(at=(2,), visibility=Window(5)),)
    assert family.write(replace(config, decoder=replace(config.last, others=two))) is None


@pytest.mark.parametrize("interval", [1, 2, 4, 9])
@pytest.mark.parametrize("dense", [(), (0, 3)])
def test_layers_that_differ_in_two_ways(interval: int, dense: tuple[int, ...]) -> None:
    """SmolLM3: windows and positions each have a pattern of their own."""
    family = FAMILIES["smollm3"]
    rotary = [int((layer + 1) % interval != 0) for layer in range(LAYERS)]
    types = ["full_attention" if layer in dense else "sliding_attention" for layer in range(LAYERS)]
    data = {"num_hidden_layers": LAYERS, "no_rope_layer_interval": interval, "layer_types": types, "sliding_window": 9}
    config = family.read(data)
    kinds = [config.last.kinds[kind] for kind in config.last.kind_of]
    assert [isinstance(kind.positions, NoPosition) for kind in kinds] == [not has for has in rotary]
    assert [kind.visibility for kind in kinds] == [Causal() if layer in dense else Window(9) for layer in range(LAYERS)]
    again = family.write(config)
    assert again is not None
    assert again["no_rope_layers"] == rotary
    assert canonical(family.read(again)) == canonical(config)


@pytest.mark.parametrize("step", [1, 2, 3, 8])
@pytest.mark.parametrize("dense", [[], [1], [0, 5]])
def test_layers_with_and_without_experts(step: int, dense: list[int]) -> None:
    family = FAMILIES["qwen3_moe"]
    data = {"num_hidden_layers": LAYERS, "decoder_sparse_step": step, "mlp_only_layers": dense, "num_experts": 9}
    config = family.read(data)
    kinds = [config.last.kinds[kind].ffn.kind for kind in config.last.kind_of]
    mixed = [layer not in dense and (layer + 1) % step == 0 for layer in range(LAYERS)]
    assert kinds == ["moe" if is_mixed else "glu" for is_mixed in mixed]
    again = family.write(config)
    if not any(mixed):
        assert again is None  # it is a Qwen 3
        return
    assert again is not None
    assert canonical(family.read(again)) == canonical(config)


@pytest.mark.parametrize("wrong", ["many", 0, -3, 1.5, True])
@pytest.mark.parametrize(
    ("name", "option"),
    [("mistral", "sliding_window"), ("gemma3_text", "sliding_window_pattern"), ("qwen2", "num_hidden_layers")],
)
def test_a_number_that_is_none_is_refused(name: str, option: str, wrong: Any) -> None:
    with pytest.raises(CheckpointError, match=option):
        FAMILIES[name].read({option: wrong})
