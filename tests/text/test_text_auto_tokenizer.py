"""What we save, transformers opens: equal ids, special tokens, decoding; and the other way round."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from transpect.text import ROLES, Tokenizer, load_tokenizer, train_tokenizer

transformers = pytest.importorskip("transformers")


@pytest.fixture
def theirs(tokenizer: Tokenizer, tmp_path: Path) -> transformers.PreTrainedTokenizerFast:
    tokenizer.save(tmp_path)
    return transformers.AutoTokenizer.from_pretrained(tmp_path)


def test_ids_are_equal(
    tokenizer: Tokenizer, theirs: transformers.PreTrainedTokenizerFast, corpora: dict[str, str]
) -> None:
    assert len(theirs) == tokenizer.vocab_size
    for text in (*corpora.values(), "", "a</s> b[SEP]<pad>", "  lead"):
        for add in (False, True):
            ids = theirs(text, add_special_tokens=add)["input_ids"]
            assert ids == tokenizer.encode(text, add_special_tokens=add)
            for skip in (False, True):
                assert theirs.decode(ids, skip_special_tokens=skip) == tokenizer.decode(ids, skip_special_tokens=skip)


def test_pairs_are_equal(tokenizer: Tokenizer, theirs: transformers.PreTrainedTokenizerFast) -> None:
    pair = theirs("小猫", "fish", return_token_type_ids=True)
    assert (pair["input_ids"], pair["token_type_ids"]) == tokenizer.encode_pair("小猫", "fish")


def test_special_tokens_are_equal(tokenizer: Tokenizer, theirs: transformers.PreTrainedTokenizerFast) -> None:
    for role in ROLES:
        assert getattr(theirs, f"{role}_token") == tokenizer.special_tokens.get(role)
        assert getattr(theirs, f"{role}_token_id") == tokenizer.role_id(role)
    assert set(theirs.all_special_ids) == {tokenizer.role_id(role) for role in tokenizer.special_tokens}


def test_any_ids_decode_alike(tokenizer: Tokenizer, theirs: transformers.PreTrainedTokenizerFast) -> None:
    ids = [i * 37 % (tokenizer.vocab_size + 3) for i in range(400)]
    assert theirs.decode(ids) == tokenizer.decode(ids)


def test_what_they_save_we_open(
    tokenizer: Tokenizer, theirs: transformers.PreTrainedTokenizerFast, corpora: dict[str, str], tmp_path: Path
) -> None:
    theirs.chat_template = "{{ messages[0].content }}"
    theirs.save_pretrained(tmp_path / "theirs")
    opened = load_tokenizer(tmp_path / "theirs")
    assert opened.special_tokens == tokenizer.special_tokens
    assert opened.chat_templates == {"default": "{{ messages[0].content }}"}
    for text in corpora.values():
        assert opened.encode(text, add_special_tokens=True) == tokenizer.encode(text, add_special_tokens=True)


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "bert", "t5", "bart", "qwen3"])
def test_the_model_beside_it_does_not_change_the_ids(
    model_type: str, tokenizer: Tokenizer, corpora: dict[str, str], tmp_path: Path
) -> None:
    # Some classes of transformers rebuild a tokenizer by the rules of their model.
    tokenizer.save(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in corpora.values():
        ids = theirs(text)["input_ids"]
        assert ids == tokenizer.encode(text, add_special_tokens=True)
        assert theirs.decode(ids) == tokenizer.decode(ids)


def test_special_tokens_without_a_role_and_templates(tmp_path: Path) -> None:
    tokenizer = train_tokenizer("byte-bpe", ["hello"], 300, extra_special_tokens=["<|user|>"])
    templates = {"default": "{{ bos_token }}{{ messages[0].content }}", "other": "x"}
    Tokenizer(tokenizer.backend, tokenizer.special_tokens, chat_templates=templates).save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.chat_template == templates
    assert theirs("<|user|>hi", add_special_tokens=False)["input_ids"] == tokenizer.encode("<|user|>hi")
    assert theirs.decode(tokenizer.encode("<|user|>hi"), skip_special_tokens=True) == "hi"


@pytest.mark.parametrize("added", [{}, {"added_tokens_decoder": {}}])
def test_files_that_disagree_are_read_alike(added: dict[str, object], tmp_path: Path) -> None:
    train_tokenizer("byte-bpe", ["hello"], 300).save(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, **added, "pad_token": "</s>"}))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = load_tokenizer(tmp_path)
    assert ours.special_tokens["pad"] == theirs.pad_token == ("</s>" if added else "<pad>")


def test_a_vocabulary_without_the_role_s_token_grows_alike(tmp_path: Path) -> None:
    tokenizer = train_tokenizer("byte-bpe", ["hello"], 300)
    tokenizer.save(tmp_path)
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        (tmp_path / name).write_text((tmp_path / name).read_text().replace('"<pad>"', '"<fill>"'))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = load_tokenizer(tmp_path)
    assert ours.pad_id == theirs.pad_token_id == tokenizer.vocab_size
    assert ours.vocab_size == len(theirs)
