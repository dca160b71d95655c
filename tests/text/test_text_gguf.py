"""Tokenizers in GGUF files: the same ids as from where they came."""

import contextlib
import io
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import pytest
import sentencepiece
import tokenizers
from tokenizers import AddedToken, decoders, models, trainers
from transformers import GPT2Tokenizer, Qwen2Tokenizer

from transpect.base.errors import CheckpointError, TokenizerError, TranspectError
from transpect.text import Tokenizer, load_tokenizer, train_tokenizer
from transpect.text.byte_level import BYTE_OF
from transpect.text.gguf import tokenizer_metadata
from transpect.text.gguf.described import HF_JSON
from transpect.text.gguf.pre import PRE, Pre
from transpect.text.spm import framed

CHUNKS = (
    *(
        "a",
        "b",
        "Hello",
        "WORLD",
        "camelCase",
        " ",
        "  ",
        "   ",
        "\t",
        "\n",
        "\n\n",
        "\r\n",
        "the ",
        "fish",
        "é",
        "e\u0301",
    ),
    *(
        "春",
        "花山",
        "小猫",
        "１２",
        "1",
        "12",
        "345",
        "1234567",
        "!",
        "?",
        "...",
        "…",
        "$5",
        "🙂",
        "👩‍👩‍👧",
        "❤️‍🔥",
        "</s>",
    ),
    *(
        "<s>",
        "<unk>",
        "<pad>",
        "[CLS]",
        "[MASK]",
        "'s",
        "'LL",
        "don't",
        "we'VE",
        "안녕",
        "깰",
        "\u1100\u1161",
        "ﬁ",
        "x²",
        "Ж",
    ),
    *(
        "ÀÉ",
        "कि",
        "ก็",
        "_",
        "--",
        "(",
        " (",
        "\u3000",
        "a\u00a0b",
        "ß",
        "ǅ",
        "Ⅷ",
        "٣",
        "\u200d",
        "▁",
        "<0x41>",
        "##s",
        "।",
    ),
)


def strings(count: int = 1000, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return ["", " ", "a  b", *("".join(rng.choices(CHUNKS, k=rng.randint(1, 14))) for _ in range(count - 3))]


def write(metadata: Mapping[str, Any], path: Path) -> Path:
    """A file with a vocabulary and no model."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in metadata.items():
        if isinstance(value, list | bytes):
            writer.add_array(key, value)
        else:
            adds = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
            adds[type(value)](key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    return path


def through_file(tokenizer: Tokenizer, path: Path) -> Tokenizer:
    """Rebuilt from what llama.cpp reads, without the tokenizer.json that goes along."""
    metadata = tokenizer_metadata(tokenizer, tokenizer.vocab_size)
    del metadata[HF_JSON]
    return load_tokenizer(write(metadata, path))


def assert_same(one: Tokenizer, other: Tokenizer, texts: list[str]) -> None:
    for framed_too in (False, True):
        for parse in (False, True):
            options = {"add_special_tokens": framed_too, "parse_special": parse}
            assert one.encode_batch(texts, **options) == other.encode_batch(texts, **options)  # type: ignore[arg-type]
    assert one.special_tokens == other.special_tokens
    assert one.vocab_size == other.vocab_size
    ids = one.encode_batch(texts)
    assert one.decode_batch(ids) == other.decode_batch(ids)


def byte_pairs(pre: Pre, texts: list[str], *, bos: bool = False) -> Tokenizer:
    """A vocabulary that was trained with a pre-tokenizer."""
    backend = tokenizers.Tokenizer(models.BPE(ignore_merges=pre.ignore_merges))
    if (normalizer := pre.normalizer()) is not None:
        backend.normalizer = normalizer
    backend.pre_tokenizer = pre.pre_tokenizer()
    backend.decoder = decoders.ByteLevel()
    alphabet = sorted(BYTE_OF)
    trainer = trainers.BpeTrainer(
        vocab_size=700, show_progress=False, initial_alphabet=alphabet, special_tokens=["<end>"]
    )
    backend.train_from_iterator(texts, trainer)
    backend.add_tokens([AddedToken("<tool>", normalized=False)])
    framed(backend, ["<end>"] if bos else [], [])
    return Tokenizer(backend, {"bos": "<end>", "eos": "<end>"})


DISTINCT = {pre: name for name, pre in reversed(PRE.items()) if pre.byte_level}


@pytest.mark.parametrize(("pre", "name"), DISTINCT.items(), ids=DISTINCT.values())
def test_every_pre_tokenizer_is_named_and_found_again(
    pre: Pre, name: str, tmp_path: Path, everything: list[str]
) -> None:
    tokenizer = byte_pairs(pre, everything + strings(300, seed=1), bos=bool(len(name) % 2))
    metadata = tokenizer_metadata(tokenizer, tokenizer.vocab_size)
    same = metadata["tokenizer.ggml.pre"]
    assert (PRE[same].cuts, PRE[same].nfc, PRE[same].ignore_merges) == (pre.cuts, pre.nfc, pre.ignore_merges)
    assert_same(tokenizer, through_file(tokenizer, tmp_path / "t.gguf"), [*strings(), "a<tool>b<end>c"])


def test_ids_beyond_the_vocabulary_are_spelled_by_nothing(tmp_path: Path, everything: list[str]) -> None:
    tokenizer = train_tokenizer("byte-bpe", everything, 400)
    file = write(tokenizer_metadata(tokenizer, tokenizer.vocab_size + 7), tmp_path / "t.gguf")
    assert load_tokenizer(file).encode("[PAD400]") == tokenizer.encode("[PAD400]")
    with pytest.raises(TokenizerError, match="a row for each"):
        tokenizer_metadata(tokenizer, tokenizer.vocab_size - 1)


@pytest.mark.parametrize(("cls", "pre"), [(GPT2Tokenizer, "gpt-2"), (Qwen2Tokenizer, "qwen2")])
def test_a_pre_tokenizer_is_what_transformers_has_for_the_model(
    cls: Any, pre: str, tmp_path: Path, everything: list[str]
) -> None:
    model = json.loads(byte_pairs(PRE[pre], everything + strings(200, seed=2)).backend.to_str())["model"]
    vocab = {**model["vocab"], "<|endoftext|>": len(model["vocab"])}
    theirs = cls(vocab=vocab, merges=[tuple(merge) for merge in model["merges"]])
    file = write(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": pre,
            "tokenizer.ggml.tokens": sorted(vocab, key=vocab.__getitem__),
            "tokenizer.ggml.token_type": [1] * (len(vocab) - 1) + [3],
            "tokenizer.ggml.merges": [" ".join(merge) for merge in model["merges"]],
            "tokenizer.ggml.eos_token_id": len(vocab) - 1,
        },
        tmp_path / "t.gguf",
    )
    ours = load_tokenizer(file)
    texts = [*strings(), "a<|endoftext|>b"]
    assert ours.encode_batch(texts) == [theirs.encode(text, add_special_tokens=False) for text in texts]
    # and the same tokenizer.json gives the name back
    published = Tokenizer(tokenizers.Tokenizer.from_str(theirs.backend_tokenizer.to_str()), {"eos": "<|endoftext|>"})
    assert tokenizer_metadata(published, len(vocab))["tokenizer.ggml.pre"] == pre


def spm(kind: str, texts: list[str], **options: Any) -> tuple[sentencepiece.SentencePieceProcessor, dict[str, Any]]:
    """A vocabulary of SentencePiece, and what converters say of it in a file."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        model_type=kind,
        vocab_size=600,
        hard_vocab_limit=False,
        minloglevel=2,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        **options,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    ids = range(processor.vocab_size())
    kinds = [
        2 if processor.is_unknown(i) else 3 if processor.is_control(i) else 6 if processor.is_byte(i) else 1
        for i in ids
    ]
    return processor, {
        "tokenizer.ggml.model": "llama" if kind == "bpe" else "t5",
        "tokenizer.ggml.tokens": [processor.id_to_piece(i) for i in ids],
        "tokenizer.ggml.scores": [processor.get_score(i) for i in ids],
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("prefix", [True, False])
def test_sentencepiece_in_a_file(kind: str, prefix: bool, tmp_path: Path, everything: list[str]) -> None:
    lines = [line for text in everything + strings(200, seed=3) for line in text.splitlines()]
    processor, metadata = spm(kind, lines, add_dummy_prefix=prefix)
    metadata |= {"tokenizer.ggml.add_space_prefix": prefix}
    ours = load_tokenizer(write(metadata, tmp_path / "t.gguf"))
    texts = strings()
    assert ours.encode_batch(texts, parse_special=False) == [processor.encode(text) for text in texts]
    wanted = [1, *processor.encode("fish")] if kind == "bpe" else [*processor.encode("fish"), 2]
    assert ours.encode("fish", add_special_tokens=True) == wanted
    if kind == "bpe":
        assert_same(ours, through_file(ours, tmp_path / "again.gguf"), texts)


@pytest.mark.parametrize(
    "options", [{}, {"lowercase": False}, {"strip_accents": False}, {"lowercase": False, "strip_accents": True}]
)
def test_wordpiece_in_a_file(options: dict[str, bool], tmp_path: Path, everything: list[str]) -> None:
    tokenizer = train_tokenizer("wordpiece", everything, 700, **options)  # type: ignore[arg-type]
    texts = strings()
    again = through_file(tokenizer, tmp_path / "t.gguf")
    assert_same(tokenizer, again, texts)
    assert again.encode_pair("a cat", "fish") == tokenizer.encode_pair("a cat", "fish")


def test_a_cased_wordpiece_that_does_not_say_so(tmp_path: Path, everything: list[str]) -> None:
    tokenizer = train_tokenizer("wordpiece", everything, 700, lowercase=False)  # type: ignore[arg-type]
    metadata = tokenizer_metadata(tokenizer, tokenizer.vocab_size)
    for key in ("tokenizer.ggml.normalizer.lowercase", "tokenizer.ggml.normalizer.strip_accents", HF_JSON):
        del metadata[key]
    assert load_tokenizer(write(metadata, tmp_path / "t.gguf")).encode("The Cat") == tokenizer.encode("The Cat")


@pytest.mark.parametrize("kind", ["byte-bpe", "wordpiece"])
def test_the_tokenizer_json_goes_along(kind: str, tmp_path: Path, everything: list[str]) -> None:
    tokenizer = train_tokenizer(kind, everything, 500)
    file = write(tokenizer_metadata(tokenizer, tokenizer.vocab_size), tmp_path / "t.gguf")
    again = load_tokenizer(file)
    assert_same(tokenizer, again, strings(100))
    assert again.encode_pair("a", "b") == tokenizer.encode_pair("a", "b")


def test_chat_templates_go_along(tmp_path: Path, everything: list[str]) -> None:
    trained = train_tokenizer("byte-bpe", everything, 400)
    templates = {"default": "{{ messages }}", "tool": "{{ tools }}"}
    tokenizer = Tokenizer(trained.backend, trained.special_tokens, chat_templates=templates)
    assert through_file(tokenizer, tmp_path / "t.gguf").chat_templates == templates


@pytest.mark.parametrize("kind", ["char", "bpe", "bpe+bytes", "byte-bpe-no-regex", "unigram"])
def test_what_llama_cpp_has_no_word_for_is_refused(kind: str, trained: dict[str, Tokenizer]) -> None:
    with pytest.raises(TokenizerError, match=r"llama\.cpp.*Save a Hugging Face directory"):
        tokenizer_metadata(trained[kind], trained[kind].vocab_size)


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "model": ({"tokenizer.ggml.model": "rwkv"}, "model must be one of gpt2, gemma4, llama, bert, t5.*rwkv"),
    "pre": ({"tokenizer.ggml.pre": "nobody-knows"}, "pre must name.*nobody-knows"),
    "no-pre": ({"tokenizer.ggml.pre": None}, "pre must name"),
    "tokens": ({"tokenizer.ggml.tokens": None}, "tokens must be a list"),
    "twice": ({"tokenizer.ggml.tokens": ["a", "a"], "tokenizer.ggml.token_type": [1, 1]}, "only once"),
    "types": ({"tokenizer.ggml.token_type": [1, 1]}, "token_type must have a number for each"),
    "merges": ({"tokenizer.ggml.merges": ["xyz"]}, "merges must be a list of pairs"),
    "merge": ({"tokenizer.ggml.merges": ["q qqqq"]}, "both parts of a merge"),
    "kind": ({"tokenizer.ggml.add_bos_token": 1}, "add_bos_token must be of the type bool"),
    "scores": ({"tokenizer.ggml.model": "llama"}, "needs tokenizer.ggml.scores"),
    "json": ({HF_JSON: "{}"}, "is no tokenizer.json"),
    "template": ({"tokenizer.chat_template": 3}, "chat template default must be a string"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_that_is_wrong_says_how(fault: str, tmp_path: Path, everything: list[str]) -> None:
    tokenizer = train_tokenizer("byte-bpe", everything, 400)
    metadata = tokenizer_metadata(tokenizer, tokenizer.vocab_size)
    del metadata[HF_JSON]
    changes, says = FAULTS[fault]
    metadata = {key: value for key, value in {**metadata, **changes}.items() if value is not None}
    file = write(metadata, tmp_path / "t.gguf")
    with pytest.raises(TokenizerError, match=says) as caught:
        load_tokenizer(file)
    assert caught.value.file == file


def test_another_vocabulary_in_the_tokenizer_json_is_refused(tmp_path: Path, everything: list[str]) -> None:
    one, other = (train_tokenizer("byte-bpe", everything[:n], 400) for n in (3, 9))
    metadata = {**tokenizer_metadata(one, one.vocab_size), HF_JSON: other.backend.to_str()}
    with pytest.raises(TokenizerError, match="must have the vocabulary"):
        load_tokenizer(write(metadata, tmp_path / "t.gguf"))


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_any_bytes_of_a_vocabulary_may_be_any_others(kind: str, tmp_path: Path) -> None:
    file = write(spm(kind, ["the cat likes the fish", "the dog likes the cat"] * 9)[1], tmp_path / "t.gguf")
    whole, rng = file.read_bytes(), random.Random(0)
    for _ in range(150):
        mutated = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(mutated))
            mutated[at] = rng.choice((0, 1, 2, 3, 9, 255, rng.randrange(256)))
        file.write_bytes(mutated)
        with contextlib.suppress(TranspectError):  # and nothing else
            load_tokenizer(file).encode("the cat </s>")


def test_equal_scores_say_nothing(tmp_path: Path) -> None:
    _, metadata = spm("bpe", ["the cat likes the fish", "the dog likes the cat"] * 9)
    metadata["tokenizer.ggml.scores"] = [-1000.0] * len(metadata["tokenizer.ggml.scores"])
    with pytest.raises(TokenizerError, match="all are equal"):
        load_tokenizer(write(metadata, tmp_path / "t.gguf"))


def test_a_damaged_file(tmp_path: Path) -> None:
    (tmp_path / "t.gguf").write_bytes(b"GGUF" + bytes(3))
    with pytest.raises(CheckpointError, match="at least 24 bytes"):
        load_tokenizer(tmp_path / "t.gguf")
