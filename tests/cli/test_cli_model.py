"""`transpect model`: numbers are counted and shapes are measured on the model itself."""

import pytest
import torch
import yaml

from transpect.base.codec import from_data
from transpect.base.errors import ConfigError, ContextLengthError
from transpect.cli.anatomy import on_meta, parts, shapes
from transpect.core import ModelConfig, Transformer, override, preset
from transpect.core.presets import PRESETS

SMALL = [("d_model", 48), ("n_heads", 4), ("head_dim", 12), ("n_layers", 2), ("d_ff", 96), ("vocab_size", 50)]
VARIANTS = {
    "gqa": [("n_kv_heads", 2)],
    "mqa": [("n_kv_heads", 1)],
    "alibi": [("positions", "alibi")],
    "transformer-xl": [("positions", "transformer_xl")],
    "rope": [("positions", "rope")],
    "qk-norm": [("attention.qk_norm.norm", "rmsnorm")],
    "sandwich": [("placement", "sandwich")],
    "untied": [("head.tied", False)],
    "shared-weights": [("n_unique", 1)],
    "other-layers": [("others", [{"at": [1], "visibility": "full", "positions": "t5"}])],
    "factor": [("embedding.factor", {"width": 48})],
    "factor-early": [("embedding.factor", {"width": 48, "early": True})],
}


def small(name: str, changes: list[tuple[str, object]]) -> ModelConfig:
    return override(preset(name), [*SMALL, *changes])


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("variant", ["plain", *VARIANTS])
def test_every_parameter_is_counted_once(name: str, variant: str) -> None:
    config = small(name, VARIANTS.get(variant, []))
    counted = parts(on_meta(config))
    assert sum(part.parameters for part in counted) == sum(p.numel() for p in Transformer(config).parameters())
    assert len({(part.owner, part.name) for part in counted}) == len(counted)


def count(config: ModelConfig) -> dict[tuple[str, str], int]:
    return {(part.owner, part.name): part.parameters for part in parts(on_meta(config))}


def test_parts_are_what_their_names_say() -> None:
    config = small("gpt2", [("context_length", 32)])
    d, f, n, v, t = 48, 96, 2, 50, 32
    assert count(config) == {
        ("embeddings", "token"): v * d,
        ("decoder", "positions"): t * d,
        ("decoder", "self-attention"): n * 4 * (d * d + d),
        ("decoder", "feed-forward"): n * (2 * d * f + f + d),
        ("decoder", "norms"): (2 * n + 1) * 2 * d,
        ("head", "head"): 0,
    }


def test_published_counts() -> None:
    base = count(preset("transformer-base"))
    assert sum(number for (owner, _), number in base.items() if owner in ("encoder", "decoder")) == 44_138_496
    assert sum(count(preset("gpt2")).values()) == 124_439_808
    assert sum(count(preset("llama")).values()) == 6_738_415_616


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("variant", ["plain", *VARIANTS])
def test_shapes_follow_from_the_axes(name: str, variant: str) -> None:
    config = small(name, VARIANTS.get(variant, []))
    batch, length, source = 3, 7, 5
    steps = {step.where: step for step in shapes(on_meta(config), batch, length, source)}
    heads, groups = 4, config.last.attention.kv_heads
    for tower in config.towers:
        both = len(config.towers) == 2
        own = source if tower == "encoder" and both else length
        expected = {
            f"{tower}.ids": (batch, own),
            f"{tower}.token": (batch, own, 48),
            f"{tower}.embeddings": (batch, own, 48),
            f"{tower}.layer.self.query_heads": (batch, heads, own, 12),
            f"{tower}.layer.self.key_heads": (batch, groups, own, 12),
            f"{tower}.layer.self.value_heads": (batch, groups, own, 12),
            f"{tower}.layer.self.attention_weights": (batch, heads, own, own),
            f"{tower}.layer.self": (batch, own, 48),
            f"{tower}.layer.ffn.up": (batch, own, 96),
            f"{tower}.layer.ffn": (batch, own, 48),
        }
        if tower == "decoder" and both:
            expected |= {
                "decoder.layer.cross.key_heads": (batch, groups, source, 12),
                "decoder.layer.cross.attention_weights": (batch, heads, own, source),
            }
        assert {where: steps[where].shape for where in expected} == expected
        assert {steps[where].times for where in expected if ".layer." in where} == {2}
    assert steps["head"].shape == (batch, length, 50)


def test_equal_shapes_of_two_towers_are_two_rows() -> None:
    where = [step.where for step in shapes(on_meta(small("t5-small", [])), 1, 4, 4)]
    assert {"encoder.ids", "decoder.ids", "encoder.token", "decoder.token"} <= set(where)
    assert len(where) == len(set(where))


@pytest.mark.parametrize("head", ["pooled", "token_class", "sequence_class"])
def test_other_heads_have_shapes_too(head: str) -> None:
    classes = {} if head == "pooled" else {"n_classes": 3}
    config = small("bert-base", [("head", {"kind": head, **classes})])
    expected = {"pooled": (2, 48), "token_class": (2, 6, 3), "sequence_class": (2, 3)}
    assert shapes(on_meta(config), 2, 6, 6)[-1].shape == expected[head]


def test_measuring_leaves_no_hooks_behind() -> None:
    model = on_meta(small("gpt2", []))
    first, second = shapes(model, 1, 4, 4), shapes(model, 1, 4, 4)
    assert first == second


@pytest.mark.parametrize(
    ("sizes", "error"),
    [((0, 4, 4), ConfigError), ((1, 0, 4), ConfigError), ((1, 513, 4), ContextLengthError), ((1, 4, 0), ConfigError)],
)
def test_sizes_that_can_t_be_are_refused(sizes: tuple[int, int, int], error: type[Exception]) -> None:
    with pytest.raises(error):
        shapes(on_meta(small("gpt1", [])), *sizes)


def test_the_largest_preset_takes_no_memory(cli) -> None:
    answer = cli("model", "show", "llama")
    assert answer.code == 0
    assert "6,738,415,616" in answer.out
    assert all(parameter.device == torch.device("meta") for parameter in on_meta(preset("llama")).parameters())


def test_list_has_a_line_a_preset_with_its_paper_and_count(cli) -> None:
    lines = cli("model", "list").out.splitlines()
    assert len(lines) == 1 + len(PRESETS)
    for name, line in zip(PRESETS, lines[1:], strict=True):
        assert line.split()[0] == name
        assert PRESETS[name].source in line
        assert f" {sum(count(preset(name)).values()):,} " in line


@pytest.mark.parametrize("name", PRESETS)
def test_the_printed_config_builds_the_same_model(cli, name: str) -> None:
    answer = cli("model", "show", name, "--config", "--n_layers", "3", "--model.d_model=64", "--head_dim", "8")
    built = from_data(ModelConfig, yaml.safe_load(answer.out))
    assert built == override(preset(name), [("n_layers", 3), ("d_model", 64), ("head_dim", 8)])


def test_a_directory_can_be_shown_whatever_its_context(cli, tmp_path) -> None:
    from transpect.interop import save_model

    config = small("gpt2", [("context_length", 8)])
    save_model(Transformer(config), tmp_path / "model")
    answer = cli("model", "show", tmp_path / "model")
    assert answer.code == 0, answer.err
    assert "[1, 8, 50]" in answer.out
