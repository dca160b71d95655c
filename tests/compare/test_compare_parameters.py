"""Totals are counted as torch counts them, and made equal by the nearest d_ff."""

import pytest

from transpect.base.errors import ConfigError
from transpect.compare.parameters import TOLERANCE, count_parameters, matched, near, with_width
from transpect.core import Transformer, override, preset

SIZES = [("d_model", 32), ("n_heads", 4), ("n_layers", 3), ("vocab_size", 50), ("context_length", 64)]


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert-base", "t5-small"])
def test_the_count_is_torch_s(name: str) -> None:
    config = override(preset(name), SIZES)
    assert count_parameters(config) == sum(weight.numel() for weight in Transformer(config).parameters())


@pytest.mark.parametrize("ffn", [{"kind": "mlp"}, {"kind": "mlp", "bias": False}, {"kind": "glu"}])
@pytest.mark.parametrize("positions", ["learned", "rope", "transformer_xl"])
@pytest.mark.parametrize("d_ff", [40, 130, 500])
def test_the_nearest_width_is_found(ffn, positions, d_ff) -> None:
    changes = [*SIZES, ("ffn", ffn), ("positions", positions)]
    target = count_parameters(override(preset("gpt2"), [*SIZES, ("d_ff", 128)]))
    config = override(preset("gpt2"), [*changes, ("d_ff", d_ff)])
    found = matched(config, target)
    assert near(count_parameters(found), target)
    if near(count_parameters(config), target):
        assert found == config, "what is equal already is left as it is"
        return
    width = found.last.ffn.width(32)
    for other in (width - 1, width + 1):
        farther = abs(count_parameters(with_width(found, other)) - target)
        assert farther >= abs(count_parameters(found) - target)
    assert with_width(config, width) == found, "nothing else is changed"


def test_of_a_mixture_every_expert_has_the_width() -> None:
    config = override(preset("llama"), [*SIZES, ("ffn", {"kind": "moe", "experts": 3, "ffn": {"kind": "glu"}})])
    target = count_parameters(with_width(config, 301))
    assert target - count_parameters(with_width(config, 300)) == 3 * 3 * 3 * 32, "layers, experts, matrices"
    assert matched(config, target) == with_width(config, 301)


def test_where_no_width_does_that_is_told() -> None:
    config = override(preset("gpt2"), SIZES)
    for target in (100, count_parameters(config) // 3):
        with pytest.raises(ConfigError, match=r"some d_ff must bring the total within 0\.5%"):
            matched(config, target)
    assert TOLERANCE == 0.005


def test_where_there_is_no_feed_forward_no_width_helps() -> None:
    config = override(preset("gpt2"), [*SIZES, ("steps", [["self"]])])
    with pytest.raises(ConfigError, match="some d_ff must bring the total"):
        matched(config, 2 * count_parameters(config))
