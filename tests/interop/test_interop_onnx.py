"""Graphs in onnxruntime say what the model says: whole, cached step by step, batched with padding on the left."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transpect.base.errors import CheckpointError
from transpect.core import (
    AttentionConfig,
    Causal,
    CausalLM,
    EmbeddingConfig,
    Factor,
    Full,
    GlobalTokens,
    Glu,
    LayerNorm,
    MaskedLM,
    ModelConfig,
    OtherLayers,
    Pooled,
    PrefixLM,
    QkNorm,
    RMSNorm,
    SequenceClass,
    StackConfig,
    Summaries,
    TokenClass,
    Transform,
    Transformer,
    Window,
)
from transpect.core.positions import (
    Alibi,
    DynamicNTK,
    Learned,
    NoPosition,
    Rope,
    Sinusoidal,
    T5Buckets,
    TransformerXL,
    Yarn,
)
from transpect.interop.onnx import onnx_files, write_onnx
from transpect.interop.onnx import write as writing
from transpect.interop.onnx.graphs import graphs_of
from transpect.interop.peers import Reading, Sample, onnx_runtime
from transpect.verify import ways
from transpect.verify.samples import samples_for

CROSSING = (("self",), ("cross",), ("ffn",))
TOLERANCE = 1e-4  # absolute, on logits of size 1 to 10


def decoder(**stack: Any) -> ModelConfig:
    attention = stack.pop("attention", AttentionConfig(n_heads=3, head_dim=10))
    tower = StackConfig(n_layers=2, attention=attention, **stack)
    return ModelConfig(vocab_size=97, d_model=30, context_length=64, decoder=tower, head=CausalLM(tied=False))


def encoder(head: Any, embedding: EmbeddingConfig | None = None, **stack: Any) -> ModelConfig:
    tower = StackConfig(
        n_layers=2, attention=AttentionConfig(n_heads=3), visibility=stack.pop("visibility", Full()), **stack
    )
    return ModelConfig(
        vocab_size=97, d_model=30, context_length=64, embedding=embedding or EmbeddingConfig(), encoder=tower, head=head
    )


def both(**stack: Any) -> ModelConfig:
    one = decoder(**stack)
    assert one.decoder is not None
    return replace(one, encoder=replace(one.decoder, visibility=Full()), decoder=replace(one.decoder, steps=CROSSING))


GROUPED = AttentionConfig(n_heads=6, n_kv_heads=2, head_dim=10)
CONFIGS: dict[str, Callable[[], ModelConfig]] = {
    "rope, causal, grouped": lambda: decoder(positions=Rope(), attention=GROUPED),
    "alibi, window": lambda: decoder(positions=Alibi(), visibility=Window(5)),
    "learned, causal": lambda: decoder(positions=Learned()),
    "t5, window": lambda: decoder(positions=T5Buckets(8, 20), visibility=Window(5)),
    "sinusoidal, prefix": lambda: decoder(positions=Sinusoidal(), visibility=PrefixLM()),
    "rope in pairs, capped scores, one key-value head": lambda: decoder(
        positions=Rope(interleaved=True, fraction=0.6, scaling=Yarn(factor=2.0, original_length=16)),
        attention=replace(
            GROUPED,
            n_kv_heads=1,
            soft_cap=5.0,
            kernel=ModelConfig.with_kernel(decoder(), "naive").last.attention.kernel,
        ),
    ),
    "layers that differ": lambda: decoder(
        positions=Rope(),
        norm=RMSNorm(),
        ffn=Glu(d_ff=40),
        attention=replace(GROUPED, qk_norm=QkNorm(RMSNorm())),
        others=(OtherLayers(at=(1,), visibility=Window(4), positions=NoPosition()),),
    ),
    "masked, learned, token types": lambda: encoder(
        MaskedLM(), EmbeddingConfig(token_types=2, norm=LayerNorm()), positions=Learned()
    ),
    "pooled, rope, window both ways": lambda: encoder(
        Pooled(normalize=True), positions=Rope(), visibility=Window(5, both_ways=True)
    ),
    "classes, sinusoidal, shared layers": lambda: encoder(
        SequenceClass(3), EmbeddingConfig(factor=Factor(12)), positions=Sinusoidal(), n_unique=1
    ),
    "token classes, t5": lambda: encoder(TokenClass(5, transform=Transform()), positions=T5Buckets(8, 20)),
    "encoder-decoder, t5": lambda: both(positions=T5Buckets(8, 20)),
    "encoder-decoder, global tokens": lambda: replace(
        both(),
        encoder=replace(both().last, steps=StackConfig.steps, visibility=Window(3, both_ways=True) | GlobalTokens()),
    ),
    "encoder-decoder, learned": lambda: both(positions=Learned(offset=2)),
}
QUICK = ("alibi, window",)  # to record a graph takes many seconds
GRID = [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in CONFIGS]


def lively(config: ModelConfig) -> Transformer:
    model = Transformer(config).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


def distance(found: list[Reading], wanted: list[Reading]) -> float:
    return max(float((f[name] - w[name]).abs().max()) for f, w in zip(found, wanted, strict=True) for name in w)


@dataclass(frozen=True)
class Written:
    """A model and its graphs."""

    model: Transformer
    files: list[Path]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Written]:
    """Recording takes seconds, so each graph is written once."""
    # pytest listens to every logger, and to torch's most talkative one this costs more than the recording
    logging.getLogger("torch.__trace").propagate = False

    @cache
    def write(name: str) -> Written:
        model = lively(CONFIGS[name]())
        return Written(model, write_onnx(model, tmp_path_factory.mktemp("graphs") / "graphs"))

    return write


@pytest.mark.slow
@pytest.mark.parametrize("name", GRID)
def test_a_graph_says_what_the_model_says(name: str, written: Callable[[str], Written]) -> None:
    model, files = written(name).model, written(name).files
    samples = samples_for(model.config, None, {}, seed=0)  # one of a single token among them
    wanted = ways.alone(model, samples)
    assert wanted[0]["logits" if "logits" in wanted[0] else "hidden"].abs().max() > 0.1
    assert onnx_files(files[0].parent) == files
    for step in (None, 1, 4) if ways.writes(model.config) else (None,):
        found = onnx_runtime.read(files, samples, step=step)
        assert set(found[0]) == set(wanted[0])
        assert distance(found, wanted) <= TOLERANCE, f"{step} columns at a time"
    alone = [onnx_runtime.read(files, [sample])[0] for sample in samples]
    assert distance(alone, wanted) <= TOLERANCE


@pytest.mark.slow
def test_names_and_free_axes_are_those_of_the_field(written: Callable[[str], Written]) -> None:
    (file,) = written("rope, causal, grouped").files
    session = onnx_runtime.Session(file)
    assert list(session.inputs) == ["input_ids", "attention_mask", "position_ids"] + [
        f"past_key_values.{layer}.{what}" for layer in (0, 1) for what in ("key", "value")
    ]
    assert session.outputs == ["logits"] + [f"present.{layer}.{what}" for layer in (0, 1) for what in ("key", "value")]
    assert session.inputs["input_ids"].shape == ["batch", "sequence"]
    assert session.inputs["attention_mask"].shape == ["batch", "total_sequence"]
    assert session.inputs["past_key_values.1.key"].shape == ["batch", 2, "past_sequence", 10]
    assert b"site-packages" not in file.read_bytes()  # traces of the machine that recorded it
    assert [entry.name for entry in file.parent.iterdir()] == ["model.onnx"]


def test_what_padding_holds_does_not_matter(written: Callable[[str], Written]) -> None:
    model, (file,) = written("alibi, window").model, written("alibi, window").files
    session = onnx_runtime.Session(file)
    mask = np.array([[0, 0, 1, 1, 1]], np.int64)
    position = np.array([[1, 1, 0, 1, 2]], np.int64)  # the field's filler at padding is 1
    out = [
        session.run(
            {
                "input_ids": np.array([[pad, pad, 5, 6, 7]], np.int64),
                "attention_mask": mask,
                "position_ids": position,
                **session.empty(1),
            }
        )["logits"][0, 2:]
        for pad in (0, 50)
    ]
    assert np.array_equal(*out)
    assert distance([{"logits": torch.from_numpy(out[0])}], ways.alone(model, [Sample((5, 6, 7))])) <= TOLERANCE


@pytest.mark.slow
def test_half_precision_graphs_take_and_give_it(tmp_path: Path) -> None:
    model = lively(CONFIGS["pooled, rope, window both ways"]())
    samples = samples_for(model.config, None, {}, seed=0)
    (file,) = write_onnx(model, tmp_path, dtype="float16")
    found = onnx_runtime.read([file], samples)
    assert found[0]["hidden"].dtype == torch.float16
    assert distance(found, ways.alone(model, samples)) < 0.05


REFUSED: dict[str, tuple[Callable[[], ModelConfig], str]] = {
    "transformer-xl": (lambda: decoder(positions=TransformerXL()), "decoder.positions"),
    "dynamic": (lambda: decoder(positions=Rope(scaling=DynamicNTK(2.0, 16))), "decoder.positions.scaling"),
    "global tokens beside a cache": (lambda: decoder(visibility=Window(257) | GlobalTokens()), "decoder.visibility"),
    "sums of blocks": (
        lambda: encoder(MaskedLM(), visibility=Full() | GlobalTokens(), summaries=Summaries(4)),
        "encoder.summaries",
    ),
    "in one layer": (
        lambda: decoder(positions=Rope(), others=(OtherLayers(at=(1,), positions=TransformerXL()),)),
        "transformer_xl",
    ),
}


@pytest.mark.parametrize("width", [5, 257])
def test_an_encoder_is_told_which_tokens_are_global(width: int) -> None:
    one = encoder(MaskedLM(), visibility=Window(width, both_ways=True) | GlobalTokens())
    assert one.encoder is not None
    for config in (one, replace(both(positions=NoPosition()), encoder=one.encoder)):
        model = Transformer(config)
        writing.check(model)
        assert "global_attention_mask" in [port.name for port in graphs_of(model)[0].inputs]


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_onnx_form_is_refused_by_name_before_anything_is_written(name: str, tmp_path: Path) -> None:
    config, named = REFUSED[name]
    with pytest.raises(CheckpointError, match=named):
        write_onnx(Transformer(config()), tmp_path / "new" / "graphs")
    assert not list(tmp_path.iterdir())


def test_an_encoder_decoder_is_no_single_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="three graphs"):
        write_onnx(Transformer(both(positions=Learned())), tmp_path / "one.onnx")
    assert not list(tmp_path.iterdir())


def test_a_missing_package_is_named_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "find_spec", lambda name: None if name == "onnxscript" else object())
    with pytest.raises(CheckpointError, match=r"onnxscript.*pip install 'transpect\[onnx\]'"):
        write_onnx(Transformer(decoder(visibility=Causal())), tmp_path / "x.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("broken", [OSError(28, "No space left on device"), RuntimeError("can't record")])
def test_a_failure_leaves_what_stood_there(broken: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.onnx").write_bytes(b"old")
    (tmp_path / "config.json").write_bytes(b"{}")

    def export(*_: object, **__: object) -> None:
        raise broken

    monkeypatch.setattr(torch.onnx, "export", export)
    with pytest.raises(CheckpointError):
        write_onnx(Transformer(decoder()), tmp_path)
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == {
        "model.onnx": b"old",
        "config.json": b"{}",
    }


@pytest.mark.parametrize("explicit", [True, False])
def test_ctrl_c_while_recording_is_no_error_of_the_model(
    explicit: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def export(*_: object, **__: object) -> None:
        try:
            try:
                raise KeyboardInterrupt
            except KeyboardInterrupt as error:
                raise RuntimeError("step 1 failed") from (error if explicit else None)
        except RuntimeError as error:
            raise ValueError("\x1b[96mFailed to export the model\x1b[0m") from error

    monkeypatch.setattr(torch.onnx, "export", export)
    with pytest.raises(KeyboardInterrupt):
        write_onnx(Transformer(decoder()), tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_recorder_s_message_is_shown_without_its_colours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def export(*_: object, **__: object) -> None:
        raise ValueError("\x1b[1;96mFailed to export\x1b[0m the model\nand more")

    monkeypatch.setattr(torch.onnx, "export", export)
    with pytest.raises(CheckpointError, match=r"as a graph: Failed to export the model$"):
        write_onnx(Transformer(decoder()), tmp_path)


@pytest.mark.slow
def test_weights_that_one_file_can_not_hold_stand_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "LIMIT", 1000)
    model = lively(CONFIGS["learned, causal"]())
    files = write_onnx(model, tmp_path / "g" / "small.onnx")
    assert {entry.name for entry in (tmp_path / "g").iterdir()} == {"small.onnx", "small.onnx.data"}
    (tmp_path / "g").rename(tmp_path / "elsewhere")
    samples = samples_for(model.config, None, {}, seed=0)
    found = onnx_runtime.read([tmp_path / "elsewhere" / files[0].name], samples)
    assert distance(found, ways.alone(model, samples)) <= TOLERANCE


@pytest.mark.slow
def test_the_model_that_was_written_is_as_it_was(tmp_path: Path) -> None:
    model = lively(CONFIGS["rope, causal, grouped"]()).train()
    before = {name: (tensor.clone(), tensor.requires_grad) for name, tensor in model.named_parameters()}
    write_onnx(model, tmp_path)
    assert model.training
    for name, tensor in model.named_parameters():
        assert torch.equal(tensor, before[name][0]) and tensor.requires_grad == before[name][1]
    model(torch.tensor([[1, 2, 3]])).sum().backward()  # nothing of the recording has stayed in it
