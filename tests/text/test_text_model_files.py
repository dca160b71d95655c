"""Tokenizers of before tokenizer.json: SentencePiece models, and vocabulary files with the rules of their classes."""

import contextlib
import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from transformers import BertTokenizer, GPT2Tokenizer, LlamaTokenizer, Qwen2Tokenizer, RobertaTokenizer

from transpect.base.errors import TokenizerError
from transpect.text import Tokenizer, load_tokenizer, train_tokenizer

CHUNKS = (
    *(
        "a",
        "b",
        " ",
        "  ",
        "   ",
        "\t",
        "\n",
        "the ",
        "Cat",
        "fish",
        "é",
        "e\u0301",
        "小猫",
        "１２",
        "12",
        "345",
        "!",
        "?",
        "…",
    ),
    *(
        "🙂",
        "👩‍👩‍👧",
        "<s>",
        "</s>",
        "<sep>",
        "<unk>",
        "▁",
        "안녕",
        "Ａ",
        "ﬁ",
        "\u200b",
        "don't",
        "X",
        "Ж",
        "<0x41>",
        "<pad>",
    ),
    *("[CLS]", "[MASK]", "##s", "'LL", "ÀÉ", "कि"),
)


def strings(count: int = 500, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    some = ["".join(rng.choices(CHUNKS, k=rng.randint(1, 12))) for _ in range(count)]
    return ["", " ", "  a", " a ", *some]


def trained(kind: str, texts: list[str], **options: Any) -> bytes:
    model = io.BytesIO()
    lines = [line for text in texts for line in text.splitlines()]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type=kind,
        vocab_size=600,
        hard_vocab_limit=False,
        minloglevel=2,
        character_coverage=0.98,
        **options,
    )
    return model.getvalue()


@pytest.fixture(scope="module")
def learnt(everything: list[str]) -> list[str]:
    return everything + strings(200, seed=1)


EXACT: dict[str, Any] = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
OPTIONS: dict[str, dict[str, Any]] = {
    "usual": {},
    "bytes": {"byte_fallback": True},
    "exact": {**EXACT, "byte_fallback": True},
    "exact-no-prefix": {**EXACT, "add_dummy_prefix": False, "byte_fallback": True},
    "symbols": {**EXACT, "user_defined_symbols": ["<sep>", "  ", "小猫"], "byte_fallback": True},
    "symbols-usual": {"user_defined_symbols": ["<sep>"], "normalization_rule_name": "identity"},
    "pad": {
        "normalization_rule_name": "nfkc",
        "pad_id": 3,
        "add_dummy_prefix": False,
        "remove_extra_whitespaces": False,
    },
    "folded": {"normalization_rule_name": "nmt_nfkc_cf"},
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_the_ids_of_sentencepiece(kind: str, options: str, tmp_path: Path, learnt: list[str]) -> None:
    (tmp_path / "tokenizer.model").write_bytes(trained(kind, learnt, **OPTIONS[options]))
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    ours = load_tokenizer(tmp_path / "tokenizer.model")
    assert ours.vocab_size == theirs.vocab_size()
    # of Hangul's letters, SentencePiece joins three at once and the tokenizers package two
    texts = [text for text in strings() if "\u1100" not in text]
    ids = [theirs.encode(text) for text in texts]
    assert ours.encode_batch(texts, parse_special=False) == ids
    if OPTIONS[options].get("byte_fallback"):
        assert ours.decode_batch(ids) == theirs.decode(ids)


def test_its_special_tokens(tmp_path: Path, learnt: list[str]) -> None:
    (tmp_path / "spiece.model").write_bytes(trained("unigram", learnt, pad_id=3, bos_id=-1, eos_id=1))
    tokenizer = load_tokenizer(tmp_path)  # the directory has nothing else
    assert tokenizer.special_tokens == {"eos": "</s>", "pad": "<pad>", "unk": "<unk>"}
    assert tokenizer.encode("</s>") == [1]
    assert 1 not in tokenizer.encode("</s>", parse_special=False)
    tokenizer.save(tmp_path / "saved")
    again = load_tokenizer(tmp_path / "saved")
    assert again.encode_batch(strings(50)) == tokenizer.encode_batch(strings(50))


@pytest.mark.parametrize("cls", ["LlamaTokenizer", "T5Tokenizer"])
def test_a_class_adds_its_own(cls: str, tmp_path: Path, learnt: list[str]) -> None:
    (tmp_path / "tokenizer.model").write_bytes(trained("bpe" if cls == "LlamaTokenizer" else "unigram", learnt))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": cls}))
    tokenizer = load_tokenizer(tmp_path)
    plain = tokenizer.encode("the fish")
    framed = tokenizer.encode("the fish", add_special_tokens=True)
    assert framed == ([1, *plain] if cls == "LlamaTokenizer" else [*plain, 2])
    if cls == "T5Tokenizer":
        size = tokenizer.vocab_size
        assert [tokenizer.token_to_id(f"<extra_id_{i}>") for i in (0, 99)] == [size - 1, size - 100]


def broken(data: bytes) -> Iterator[bytes]:
    yield from (data[:size] for size in range(min(len(data), 400)))
    yield from (data[:at] + b"\xff" * 9 + data[at + 9 :] for at in range(0, min(len(data), 400), 3))
    yield from (data[:at] + b"\xff" * 9 + data[at + 9 :] for at in range(max(0, len(data) - 300), len(data), 3))


@pytest.mark.parametrize("options", [{}, {"normalization_rule_name": "nfkc"}])
def test_a_damaged_model_is_an_error_or_another_vocabulary(
    options: dict[str, Any], tmp_path: Path, learnt: list[str]
) -> None:
    file = tmp_path / "tokenizer.model"
    for data in broken(trained("bpe", learnt, **options)):
        file.write_bytes(data)
        with contextlib.suppress(TokenizerError):  # and nothing else
            load_tokenizer(file)


@pytest.mark.parametrize("kind", ["word", "char"])
def test_other_types_are_refused(kind: str, tmp_path: Path, learnt: list[str]) -> None:
    (tmp_path / "tokenizer.model").write_bytes(trained(kind, learnt))
    with pytest.raises(TokenizerError, match=f"unigram or bpe.*{kind}"):
        load_tokenizer(tmp_path)


def test_spaces_behind_words_are_refused(tmp_path: Path, learnt: list[str]) -> None:
    (tmp_path / "tokenizer.model").write_bytes(trained("unigram", learnt, treat_whitespace_as_suffix=True))
    with pytest.raises(TokenizerError, match="marked behind a word"):
        load_tokenizer(tmp_path)


# vocabulary files


def assert_as(theirs: Any, ours: Tokenizer) -> None:
    texts = strings(300)
    for framed in (False, True):
        wanted = [theirs(text, add_special_tokens=framed)["input_ids"] for text in texts]
        assert ours.encode_batch(texts, add_special_tokens=framed) == wanted
    for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"):
        assert ours.special_tokens.get(role) == getattr(theirs, f"{role}_token"), role


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("said", [True, False])
def test_vocab_txt(lowercase: bool, said: bool, tmp_path: Path, everything: list[str]) -> None:
    trained_one = train_tokenizer("wordpiece", everything, 700, lowercase=lowercase)  # type: ignore[arg-type]
    words = [trained_one.id_to_token(i) or "" for i in range(trained_one.vocab_size)]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    if said:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lowercase}))
    theirs = BertTokenizer(vocab={word: i for i, word in enumerate(words)}, do_lower_case=lowercase)
    assert_as(theirs, load_tokenizer(tmp_path))
    assert_as(theirs, load_tokenizer(tmp_path / "vocab.txt"))
    assert load_tokenizer(tmp_path).encode_pair("a", "b") == trained_one.encode_pair("a", "b")


ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
CLASSES: dict[str, tuple[Any, list[str]]] = {
    "GPT2Tokenizer": (GPT2Tokenizer, ["<|endoftext|>"]),
    "RobertaTokenizer": (RobertaTokenizer, ROBERTA),
    "Qwen2Tokenizer": (Qwen2Tokenizer, ["<|endoftext|>"]),
}


def byte_pairs(texts: list[str], specials: list[str], folder: Path) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """``vocab.json`` and ``merges.txt`` as they were published in 2019."""
    model = json.loads(train_tokenizer("byte-bpe", texts, 500, special_tokens={}).backend.to_str())["model"]
    pieces = [*specials, *sorted(model["vocab"], key=model["vocab"].__getitem__)]
    vocab = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    merges = [(left, right) for left, right in model["merges"]]
    (folder / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    lines = ["#version: 0.2", *(f"{left} {right}" for left, right in merges)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return vocab, merges


@pytest.mark.parametrize("name", CLASSES)
def test_vocab_json_and_merges_txt(name: str, tmp_path: Path, everything: list[str]) -> None:
    cls, specials = CLASSES[name]
    vocab, merges = byte_pairs(everything, specials, tmp_path)
    theirs = cls(vocab=vocab, merges=merges)
    if name != "RobertaTokenizer":  # which is recognised by its special tokens
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
    for place in (tmp_path, tmp_path / "vocab.json", tmp_path / "merges.txt"):
        assert_as(theirs, load_tokenizer(place))


@pytest.mark.parametrize("as_text", [True, False])
def test_a_class_with_other_special_tokens_than_its_own(as_text: bool, tmp_path: Path, everything: list[str]) -> None:
    """OPT as it was published: GPT-2's class, a vocabulary like RoBERTa's, and a token before every text."""
    vocab, merges = byte_pairs(everything, ["<s>", "<pad>", "</s>", "<unk>"], tmp_path)
    roles = {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>"}
    said = {role: token if as_text else {"content": token, "normalized": True} for role, token in roles.items()}
    config = {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, **said}))
    tokenizer = load_tokenizer(tmp_path)
    assert_as(GPT2Tokenizer(vocab=vocab, merges=merges, add_bos_token=True, **roles), tokenizer)
    assert tokenizer.encode("a</s>", add_special_tokens=True) == [2, *tokenizer.encode("a"), 2]
    assert tokenizer.special_ids == {1, 2}
    for lacking in (config, {"tokenizer_class": "RobertaTokenizer"}):
        (tmp_path / "vocab.json").write_text(json.dumps({piece: i for piece, i in vocab.items() if piece != "<s>"}))
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(lacking))
        with pytest.raises(TokenizerError, match=r"must be in the vocabulary .got '<(s>|.endoftext)"):
            load_tokenizer(tmp_path)


def test_gpt_2_needs_no_config(tmp_path: Path, everything: list[str]) -> None:
    vocab, merges = byte_pairs(everything, ["<|endoftext|>"], tmp_path)
    assert_as(GPT2Tokenizer(vocab=vocab, merges=merges), load_tokenizer(tmp_path))


def test_tokens_that_were_added_later(tmp_path: Path, everything: list[str]) -> None:
    vocab, _ = byte_pairs(everything, ["<|endoftext|>"], tmp_path)
    size = len(vocab)
    added = {str(size): {"content": "<a>", "special": True}, str(size + 1): {"content": "<b>", "special": False}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode("<a>x<b>") == [size, *tokenizer.encode("x"), size + 1]
    assert tokenizer.special_ids >= {size} and size + 1 not in tokenizer.special_ids
    added[str(size + 5)] = {"content": "<c>", "special": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    with pytest.raises(TokenizerError, match="must have the id that follows"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"vocab.json": "{}"}, "must stand side by side"),
        ({"vocab.json": "{", "merges.txt": ""}, "not valid JSON"),
        ({"vocab.json": '{"a": "b"}', "merges.txt": ""}, "map tokens to ids"),
        ({"vocab.json": '{"a": 0, "b": 0}', "merges.txt": ""}, "same id"),
        ({"vocab.json": '{"a</w>": 0}', "merges.txt": ""}, "must spell bytes"),
        ({"vocab.txt": "a\nb\n"}, "must have its unk token"),
        (
            {"vocab.txt": "a\n", "tokenizer_config.json": '{"tokenizer_class": "MyTokenizer"}'},
            "known for the classes.*MyT",
        ),
        ({"tokenizer.model": "no protocol buffer"}, "not a SentencePiece model"),
    ],
)
def test_files_that_are_wrong(files: dict[str, str], says: str, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(TokenizerError, match=says):
        load_tokenizer(tmp_path)


def test_a_merge_of_what_is_no_token(tmp_path: Path, everything: list[str]) -> None:
    byte_pairs(everything, ["<|endoftext|>"], tmp_path)
    with (tmp_path / "merges.txt").open("a", encoding="utf-8") as file:
        file.write("qq qq\n")
    with pytest.raises(TokenizerError, match="both parts of a merge"):
        load_tokenizer(tmp_path)


def test_llama_of_transformers_where_text_begins_without_space(tmp_path: Path, learnt: list[str]) -> None:
    """Its class of today drops a space at the very beginning of a text, which SentencePiece keeps."""
    (tmp_path / "tokenizer.model").write_bytes(trained("bpe", learnt, **EXACT, byte_fallback=True))
    config = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    ours = load_tokenizer(tmp_path)
    theirs = LlamaTokenizer.from_pretrained(tmp_path)
    texts = [
        text for text in strings(300) if text and text[0] not in " ▁<" and "<s>" not in text and "</s>" not in text
    ]
    texts = [text for text in texts if "<unk>" not in text]
    assert ours.encode_batch(texts, add_special_tokens=True) == [theirs(text)["input_ids"] for text in texts]
