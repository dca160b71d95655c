"""Tokenizers of before ``tokenizer.json``: a vocabulary file, and what its model's class did around it.

``vocab.txt`` is BERT's WordPiece, ``vocab.json`` with ``merges.txt`` GPT-2's byte pairs, ``*.model`` SentencePiece's.
What such a file leaves open (case, special tokens, what stands around a text) is in ``tokenizer_config.json`` beside
it; a class that is not in the tables here is refused, since its rules are in its code and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from transpect.base.errors import TokenizerError
from transpect.base.files import read_json_file, read_text_file
from transpect.text.byte_level import BYTE_OF
from transpect.text.gguf.pre import PRE
from transpect.text.sentencepiece_file import load_sentencepiece
from transpect.text.spm import framed
from transpect.text.tokenizer import ROLES

__all__ = ["Legacy", "load_legacy"]

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Legacy:
    """A backend, and the special tokens that its class has where the configuration says nothing."""

    backend: tokenizers.Tokenizer
    roles: Mapping[str, str]


def load_legacy(file: Path, config: Config) -> Legacy:
    """Open a vocabulary file.

    Args:
        file: a ``.model``, a ``vocab.txt``, or one of ``vocab.json`` and ``merges.txt``.
        config: tokenizer_config.json, or nothing.

    Raises:
        TokenizerError: a damaged file, one whose partner is missing, or a class of tokenizers that is not known.
    """
    if file.suffix == ".model":
        found = _sentencepiece(file, config)
    elif file.suffix == ".txt" and not file.name.endswith("merges.txt"):
        found = _wordpiece(file, config)
    else:
        found = _byte_pairs(file, config)
    _add(found.backend, _added(file.parent, config), file)
    return found


def _class(config: Config, known: Mapping[str, Any], file: Path) -> str:
    """The class of tokenizers that a configuration names, without the suffix that says it is a fast one."""
    name = str(config.get("tokenizer_class") or "").removesuffix("Fast")
    if name not in known:
        raise TokenizerError(
            f"the rules around {file.name} are known for the classes {', '.join(each for each in known if each)}",
            value=name,
            file=file,
            remedy="Save a tokenizer.json: transformers.AutoTokenizer.from_pretrained(…).save_pretrained(…).",
        )
    return name


# WordPiece

_BERT: Final = {"": 1, "BertTokenizer": 1, "DistilBertTokenizer": 1, "ElectraTokenizer": 1, "MobileBertTokenizer": 1}
_BERT_ROLES: Final = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}


def _wordpiece(file: Path, config: Config) -> Legacy:
    _class(config, _BERT, file)
    words = _lines(file)
    vocab = {word: i for i, word in enumerate(words)}
    roles = {role: _content(config.get(f"{role}_token"), usual) for role, usual in _BERT_ROLES.items()}
    for role in ("unk", "cls", "sep"):
        if roles[role] not in vocab:
            raise TokenizerError(
                f"a .txt file is read as a WordPiece vocabulary, a token a line: it must have its {role} token",
                value=roles[role],
                file=file,
                remedy="Name it in tokenizer_config.json, or check that this is the right file.",
            )
    special = set(roles.values())
    cased = any(word != word.lower() for word in words if word not in special and not word.startswith("["))
    lowercase = bool(config.get("do_lower_case", not cased))
    backend = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token=roles["unk"], max_input_chars_per_word=100))
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(config.get("tokenize_chinese_chars", True)),
        strip_accents=config.get("strip_accents"),
        lowercase=lowercase,
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    held = {role: token for role, token in roles.items() if token in vocab}
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in held.values()])
    backend.post_processor = processors.TemplateProcessing(
        single=[roles["cls"], "$A", roles["sep"]],
        pair=[roles["cls"], "$A", roles["sep"], "$B:1", f"{roles['sep']}:1"],
        special_tokens=[(roles[role], vocab[roles[role]]) for role in ("cls", "sep")],
    )
    return Legacy(backend, held)


# byte pairs


@dataclass(frozen=True)
class _BytePairs:
    """A class whose vocabulary is ``vocab.json`` and ``merges.txt``."""

    roles: Mapping[str, str]
    pre: str = "gpt-2"
    single: str = ""
    pair: str = ""


_END: Final = "<|endoftext|>"
_GPT2: Final = _BytePairs({"bos": _END, "eos": _END, "unk": _END})
_ROBERTA: Final = _BytePairs(
    {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "sep": "</s>", "pad": "<pad>", "cls": "<s>", "mask": "<mask>"},
    single="<s> $A </s>",
    pair="<s> $A </s> </s> $B </s>",
)
_QWEN2: Final = _BytePairs({"eos": _END, "unk": _END, "pad": _END}, pre="qwen2")
_BYTE_PAIRS: Final = {
    "GPT2Tokenizer": _GPT2,
    "CodeGenTokenizer": _GPT2,
    "RobertaTokenizer": _ROBERTA,
    "BartTokenizer": _ROBERTA,
    "LongformerTokenizer": _ROBERTA,
    "LEDTokenizer": _ROBERTA,
    "Qwen2Tokenizer": _QWEN2,
}


def _byte_pairs(file: Path, config: Config) -> Legacy:
    stem = file.name.removesuffix("vocab.json").removesuffix("merges.txt")
    places = file.with_name(f"{stem}vocab.json"), file.with_name(f"{stem}merges.txt")
    for place in places:
        if not place.is_file():
            raise TokenizerError("vocab.json and merges.txt must stand side by side", file=place, remedy="Copy both.")
    vocab = _vocab(places[0])
    merges = [
        (left, right) for left, _, right in (line.partition(" ") for line in _lines(places[1])[_header(places[1]) :])
    ]
    if not set(BYTE_OF) <= vocab.keys():
        raise TokenizerError(
            "the vocabulary must spell bytes, with a token for each of the 256",
            file=places[0],
            remedy="Its class has rules of its own: save a tokenizer.json with transformers.",
        )
    lost = next((f"{a} {b}" for a, b in merges if not (a in vocab and b in vocab and a + b in vocab)), None)
    if lost is not None:
        raise TokenizerError("both parts of a merge and what they make must be tokens", value=lost, file=places[1])
    kind = _ROBERTA if not config.get("tokenizer_class") and {"<s>", "</s>", "<mask>"} <= vocab.keys() else _GPT2
    if config.get("tokenizer_class"):
        kind = _BYTE_PAIRS[_class(config, _BYTE_PAIRS, file)]
    pre = PRE[kind.pre]
    backend = tokenizers.Tokenizer(models.BPE(vocab, merges))
    normalizer = pre.normalizer()
    if normalizer is not None:
        backend.normalizer = normalizer
    prefix = bool(config.get("add_prefix_space", False))
    if prefix and pre.cuts != ("gpt2",):
        raise TokenizerError("add_prefix_space can't be true for this class", file=file)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True) if prefix else pre.pre_tokenizer()
    backend.decoder = decoders.ByteLevel()
    named = {role: _content(config.get(f"{role}_token"), kind.roles.get(role, "")) for role in ROLES}
    roles = {role: token for role, token in named.items() if token in vocab}
    around = [part for part in kind.single.split() if part != "$A"]
    around = around or [named["bos"]] * bool(config.get("add_bos_token"))
    absent = next((token for token in around if token not in vocab), None)
    if absent is not None:
        raise TokenizerError(
            "the tokens around a text must be in the vocabulary",
            value=absent,
            file=places[0],
            remedy="Name them in tokenizer_config.json, e.g. as bos_token.",
        )
    special = dict.fromkeys([*roles.values(), *around])
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    if kind.single:
        backend.post_processor = processors.TemplateProcessing(
            single=kind.single,
            pair=kind.pair or f"{kind.single} $B",
            special_tokens=[(token, vocab[token]) for token in special],
        )
    else:
        framed(backend, around, [])
    return Legacy(backend, roles)


def _vocab(file: Path) -> dict[str, int]:
    vocab = read_json_file(file, TokenizerError)
    ids = list(vocab.values()) if isinstance(vocab, dict) else []
    if not ids or not all(isinstance(i, int) and not isinstance(i, bool) and 0 <= i < 2**31 for i in ids):
        raise TokenizerError("a vocabulary must map tokens to ids", file=file, remedy="Copy it again.")
    if len(set(ids)) < len(ids):
        raise TokenizerError("two tokens may not have the same id", file=file, remedy="Copy it again.")
    return dict(vocab)


def _header(file: Path) -> int:
    return 1 if _lines(file)[:1] and _lines(file)[0].startswith("#version") else 0


# SentencePiece


@dataclass(frozen=True)
class _Frame:
    """What a class puts around a text, and how many ``<extra_id_…>`` it adds."""

    bos: bool = False
    eos: bool = False
    extra_ids: int = 0


_SENTENCEPIECE: Final = {
    "": _Frame(),
    "LlamaTokenizer": _Frame(bos=True),
    "CodeLlamaTokenizer": _Frame(bos=True),
    "GemmaTokenizer": _Frame(bos=True),
    "T5Tokenizer": _Frame(eos=True, extra_ids=100),
}


def _sentencepiece(file: Path, config: Config) -> Legacy:
    frame = _SENTENCEPIECE[_class(config, _SENTENCEPIECE, file)]
    backend, roles = load_sentencepiece(file)
    for i in reversed(range(config.get("extra_ids", frame.extra_ids))):
        backend.add_special_tokens([AddedToken(f"<extra_id_{i}>", special=True, normalized=False)])
    named = {role: _content(config.get(f"{role}_token"), roles.get(role, "")) for role in ("bos", "eos")}
    around = {
        role: [named[role]] if named[role] and config.get(f"add_{role}_token", getattr(frame, role)) else []
        for role in ("bos", "eos")
    }
    framed(backend, around["bos"], around["eos"])
    return Legacy(backend, roles)


# what all of them share


def _added(folder: Path, config: Config) -> dict[int, AddedToken]:
    """Tokens that were added to a vocabulary later, by id."""
    found: dict[int, AddedToken] = {}
    older = folder / "added_tokens.json"
    if older.is_file():
        found |= {i: AddedToken(token, special=False, normalized=False) for token, i in _vocab(older).items()}
    for key, entry in (config.get("added_tokens_decoder") or {}).items():
        match entry:
            case {"content": str(content)} if str(key).isdecimal():
                options = {name: entry.get(name, False) for name in ("special", "lstrip", "rstrip", "single_word")}
                found[int(key)] = AddedToken(content, normalized=bool(entry.get("normalized", False)), **options)
            case _:
                raise TokenizerError("added_tokens_decoder must map ids to tokens", value=entry, file=folder)
    return found


def _add(backend: tokenizers.Tokenizer, tokens: Mapping[int, AddedToken], file: Path) -> None:
    for i, token in sorted(tokens.items(), key=lambda item: item[0]):
        if token.special:
            backend.add_special_tokens([token])
        else:
            backend.add_tokens([token])
        if backend.token_to_id(token.content) != i:
            raise TokenizerError(
                f"the added token {token.content} must have the id that follows from the vocabulary, "
                f"{backend.token_to_id(token.content)}",
                value=i,
                file=file,
                remedy="Check that the vocabulary and the files beside it belong together.",
            )


def _content(token: Any, usual: str) -> str:
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) and content else usual


def _lines(file: Path) -> list[str]:
    lines = [line.rstrip("\r") for line in read_text_file(file, TokenizerError).split("\n")]
    return lines[:-1] if lines and not lines[-1] else lines
