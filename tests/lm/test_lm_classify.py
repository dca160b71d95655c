"""What a classifier says: as transformers says it of the same files, by label, one text or many, saved and opened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import transpect
from transpect.base.errors import CheckpointError, ConfigError, ContextLengthError, GenerationError
from transpect.core import AttentionConfig, Full, ModelConfig, SequenceClass, StackConfig, TokenClass, Transformer
from transpect.core.positions import Rope
from transpect.interop.labels import Labels
from transpect.lm import LanguageModel
from transpect.text import Tokenizer, train_tokenizer

CORPUS = ["The quick brown fox jumps over the lazy dog.", "小猫爱吃鱼。小狗爱吃肉。"]
TEXTS = ["The fox", "小猫爱吃鱼", "lazy dog jumps over the quick brown fox.", "鱼"]
PAIRS = [("The fox", "The dog"), ("小猫", "小狗爱吃肉。"), ("a", "b")]
NAMES = ("angry", "calm", "tired")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer("wordpiece", CORPUS * 3, 120)


def sizes(kind: str, tokenizer: Tokenizer) -> dict[str, Any]:
    common = {"vocab_size": tokenizer.vocab_size, "num_labels": 3, "pad_token_id": tokenizer.pad_id}
    if kind == "Bart":
        towers = {
            f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in (("layers", 2), ("ffn_dim", 16))
        }
        heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
        ids = {"bos_token_id": tokenizer.cls_id, "eos_token_id": tokenizer.sep_id}
        start = {"decoder_start_token_id": tokenizer.sep_id, "forced_eos_token_id": None}
        return common | towers | heads | ids | start | {"d_model": 16, "max_position_embeddings": 40}
    if kind == "DistilBert":
        return common | {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 16, "max_position_embeddings": 40}
    return common | {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "max_position_embeddings": 40,
    }


def theirs(kind: str, task: str, tokenizer: Tokenizer, folder: Path) -> Any:
    """A tiny random model of transformers with our tokenizer beside it."""
    torch.manual_seed(3)
    config = getattr(transformers, f"{kind}Config")(**sizes(kind, tokenizer))
    config.id2label, config.label2id = dict(enumerate(NAMES)), {name: i for i, name in enumerate(NAMES)}
    model = getattr(transformers, f"{kind}For{task}Classification")(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.mul_(12.0)
    model.save_pretrained(folder)
    tokenizer.save(folder)
    return model


@pytest.mark.parametrize("kind", ["Bert", "DistilBert", "Bart"])
@torch.no_grad()
def test_the_class_of_a_text_is_that_of_transformers(kind: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    peer = theirs(kind, "Sequence", tokenizer, tmp_path / "m")
    lm = transpect.load(tmp_path / "m", device="cpu")
    asked = [*TEXTS, *PAIRS]
    found = lm.classify(asked, batch_size=3)
    for text, own in zip(asked, found, strict=True):
        ids, types = (
            (tokenizer.encode(text, add_special_tokens=True), None)
            if isinstance(text, str)
            else (tokenizer.encode_pair(*text))
        )
        told = {"token_type_ids": torch.tensor([types])} if types and kind == "Bert" else {}
        logits = peer(input_ids=torch.tensor([ids]), **told).logits[0]
        assert own.logits == pytest.approx(dict(zip(NAMES, logits.tolist(), strict=True)), abs=1e-4)
        assert own.label == NAMES[int(logits.argmax())]
        assert own.probability == pytest.approx(float(logits.softmax(-1).max()), abs=1e-5)
        assert list(own.probabilities.values()) == sorted(own.probabilities.values(), reverse=True)
        assert sum(own.probabilities.values()) == pytest.approx(1)
    assert len({round(own.probability, 3) for own in found}) > 1, "the example tells nothing"


@pytest.mark.parametrize("kind", ["Bert", "DistilBert"])
@torch.no_grad()
def test_the_classes_of_tokens_are_those_of_transformers(kind: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    peer = theirs(kind, "Token", tokenizer, tmp_path / "m")
    lm = transpect.load(tmp_path / "m", device="cpu")
    for text, own in zip(TEXTS, lm.classify_tokens(TEXTS, batch_size=2), strict=True):
        ids = tokenizer.encode(text, add_special_tokens=True)
        logits = peer(input_ids=torch.tensor([ids])).logits[0]
        assert [token.label for token in own] == [NAMES[i] for i in logits.argmax(-1).tolist()]
        assert torch.tensor([list(token.logits.values()) for token in own]) == pytest.approx(logits, abs=1e-4)
        assert [(own[0].start, own[0].end), (own[-1].start, own[-1].end)] == [(0, 0), (0, 0)]
        assert all(token.token.lower().strip("#") in text[token.start : token.end].lower() for token in own[1:-1])
    assert lm.classify_tokens(TEXTS[0])[0][0].logits == pytest.approx(lm.classify_tokens(TEXTS)[0][0].logits, abs=1e-5)


def classifier(head: SequenceClass | TokenClass, tokenizer: Tokenizer, labels: Labels | None = None) -> LanguageModel:
    stack = StackConfig(n_layers=1, attention=AttentionConfig(n_heads=2), positions=Rope(), visibility=Full())
    config = ModelConfig(tokenizer.vocab_size, d_model=16, context_length=12, encoder=stack, head=head)
    return LanguageModel(Transformer(config, seed=5), tokenizer, labels=labels)


@pytest.mark.parametrize("independent", [False, True])
@pytest.mark.parametrize("names", [NAMES, ("LABEL_0", "LABEL_1", "LABEL_2")])
def test_labels_are_saved_and_opened(
    names: tuple[str, ...], independent: bool, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    lm = classifier(SequenceClass(3), tokenizer, Labels(names, independent))
    lm.save(tmp_path / "m")
    again = transpect.load(tmp_path / "m", device="cpu")
    assert again.labels == lm.labels
    assert again.classify(TEXTS) == lm.classify(TEXTS)


def test_classes_that_do_not_exclude_each_other_have_a_sigmoid_each(tokenizer: Tokenizer) -> None:
    (one,) = classifier(SequenceClass(3), tokenizer, Labels(NAMES, independent=True)).classify(TEXTS[0])
    for name, logit in one.logits.items():
        assert one.probabilities[name] == pytest.approx(float(torch.tensor(logit).double().sigmoid()), abs=1e-6)
    (alone,) = classifier(SequenceClass(1), tokenizer).classify(TEXTS[0])
    assert alone.probability == pytest.approx(float(torch.tensor(alone.logits["LABEL_0"]).double().sigmoid()), abs=1e-6)


@pytest.mark.parametrize("names", [("a", "b"), ("a", "b", "b"), ("a", "b", "c", "d")])
def test_there_is_a_label_for_each_class(names: tuple[str, ...], tokenizer: Tokenizer) -> None:
    with pytest.raises(ConfigError, match="3 labels"):
        classifier(SequenceClass(3), tokenizer, Labels(names))


@pytest.mark.parametrize("given", [{"0": "a", "1": "a"}, {"0": 5}])
def test_names_that_tell_nothing_apart_are_refused(given: dict[str, Any], tokenizer: Tokenizer, tmp_path: Path) -> None:
    classifier(SequenceClass(3), tokenizer).save(tmp_path / "m")
    file = tmp_path / "m" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | {"id2label": given}), encoding="utf-8")
    with pytest.raises(CheckpointError, match="a name of its own"):
        transpect.load(tmp_path / "m", device="cpu")


def test_one_text_one_pair_and_lists(tokenizer: Tokenizer) -> None:
    lm = classifier(SequenceClass(3), tokenizer)
    assert lm.classify("The fox") == lm.classify(["The fox"])
    assert lm.classify(("The", "fox")) == lm.classify([("The", "fox")])
    assert len(lm.classify(["The", "fox"])) == 2
    assert lm.classify([]) == []
    for bad in [("a", "b", "c"), ("a",), [3], ["a", ("b", 1)]]:
        with pytest.raises(GenerationError, match="a pair of two texts"):
            lm.classify(bad)  # type: ignore[arg-type]


def test_long_texts_are_refused_or_cut(tokenizer: Tokenizer) -> None:
    lm = classifier(SequenceClass(3), tokenizer)
    long = "fox " * 30
    with pytest.raises(ContextLengthError):
        lm.classify(long)
    assert lm.classify(long, truncate=True)[0].logits == pytest.approx(lm.classify("fox " * 10)[0].logits, abs=1e-5)


def test_each_head_has_a_method_of_its_own(tokenizer: Tokenizer) -> None:
    whole, tokens = classifier(SequenceClass(3), tokenizer), classifier(TokenClass(3), tokenizer)
    with pytest.raises(GenerationError, match=r"classify_tokens\(\)"):
        tokens.classify("a")
    with pytest.raises(GenerationError, match=r"classify\(\)"):
        whole.classify_tokens("a")
    with pytest.raises(GenerationError, match="can't embed"):
        whole.embed("a")
