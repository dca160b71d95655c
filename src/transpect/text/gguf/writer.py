"""A tokenizer as the metadata of a GGUF file, for llama.cpp to give the same ids.

What llama.cpp has no word for is refused, by name. The ``tokenizer.json`` goes into the file too, under the key that
the format has for it, so that those who read it get the very same tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from transpect.base.errors import TokenizerError
from transpect.text.framing import Frame
from transpect.text.gguf.described import GGML, HF_JSON, IDS
from transpect.text.gguf.pre import PRE, spec
from transpect.text.spm import Kind, Pieces, merges_by_score
from transpect.text.tokenizer import METASPACE, Tokenizer

__all__ = ["identify_pre", "tokenizer_metadata"]

Metadata = dict[str, Any]
_OTHERWISE: Final = "Save a Hugging Face directory instead."


def tokenizer_metadata(tokenizer: Tokenizer, rows: int) -> Metadata:
    """The metadata of a tokenizer: keys with strings, booleans, whole numbers, or lists of strings, numbers or floats.

    Args:
        tokenizer: what to say.
        rows: of the model's token table; ids beyond the vocabulary get tokens that nothing spells.

    Raises:
        TokenizerError: something that llama.cpp has no word for.
    """
    if tokenizer.vocab_size > rows:
        raise TokenizerError(
            f"the model must have a row for each of the tokenizer's {tokenizer.vocab_size} tokens", value=rows
        )
    data = json.loads(tokenizer.backend.to_str())
    texts = [tokenizer.id_to_token(i) for i in range(rows)]
    tokens = [f"[PAD{i}]" if text is None else text for i, text in enumerate(texts)]
    kinds = _kinds(tokenizer, data, texts)
    match data["model"]:
        case {"type": "BPE", "byte_fallback": False}:
            found = _byte_pairs(tokenizer, data)
        case {"type": "BPE"}:
            found = _merged_by_score(data, tokens, kinds)
        case {"type": "WordPiece"}:
            found, tokens = _word_pieces(data, tokens, kinds)
        case model:
            raise TokenizerError(
                f"a vocabulary of the type {model['type']} can't be written so that llama.cpp reads it the same way",
                remedy=_OTHERWISE,
            )
    if len(set(tokens)) < len(tokens):
        raise TokenizerError("two tokens would have the same name in the file", remedy=_OTHERWISE)
    return {
        **found,
        GGML + "tokens": tokens,
        GGML + "token_type": [int(kind) for kind in kinds],
        **_roles(tokenizer, data["model"]["type"] == "WordPiece"),
        **_templates(tokenizer),
        HF_JSON: tokenizer.backend.to_str(),
    }


def identify_pre(normalizer: Any, pre_tokenizer: Any, *, ignore_merges: bool) -> str:
    """The name that llama.cpp has for a byte-level pre-tokenizer.

    Raises:
        TokenizerError: it has none.
    """
    for name, pre in PRE.items():
        same = pre.byte_level and pre.ignore_merges == ignore_merges
        if same and (spec(pre.normalizer()), spec(pre.pre_tokenizer())) == (spec(normalizer), spec(pre_tokenizer)):
            return name
    raise TokenizerError(
        "llama.cpp must have a name for how the tokenizer cuts text into words, and has none for this",
        value=spec(normalizer) + spec(pre_tokenizer),
        remedy=_OTHERWISE,
    )


def _kinds(tokenizer: Tokenizer, data: Mapping[str, Any], texts: Sequence[str | None]) -> list[Kind]:
    byte = {f"<0x{byte:02X}>" for byte in range(256)} if data["model"].get("byte_fallback") else set()
    kinds = [Kind.UNUSED if text is None else Kind.BYTE if text in byte else Kind.NORMAL for text in texts]
    for token in data["added_tokens"]:
        odd = [name for name in ("lstrip", "rstrip", "single_word") if token[name]]
        if odd:
            raise TokenizerError(
                f"the added token {token['content']} has {' and '.join(odd)}, for which GGUF has no word",
                remedy=_OTHERWISE,
            )
        kinds[token["id"]] = Kind.CONTROL if token["special"] else Kind.USER_DEFINED
    unknown = data["model"].get("unk_token")
    if byte and unknown is not None:
        kinds[texts.index(unknown)] = Kind.UNKNOWN
    return kinds


def _byte_pairs(tokenizer: Tokenizer, data: Mapping[str, Any]) -> Metadata:
    model, backend = data["model"], tokenizer.backend
    _refuse(model, ("dropout", "continuing_subword_prefix", "end_of_word_suffix"))
    name = identify_pre(backend.normalizer, backend.pre_tokenizer, ignore_merges=bool(model.get("ignore_merges")))
    return {
        GGML + "model": "gpt2",
        GGML + "pre": name,
        GGML + "merges": [" ".join(pair) for pair in _pairs(model)],
        GGML + "add_space_prefix": False,
    }


def _merged_by_score(data: Mapping[str, Any], tokens: Sequence[str], kinds: Sequence[Kind]) -> Metadata:
    model, prefix = data["model"], _prefix(data)
    _refuse(model, ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges"))
    merges = _pairs(model)
    first = {left + right: rank for rank, (left, right) in reversed(list(enumerate(merges)))}
    scores = [-float(first.get(token, len(merges) + i)) for i, token in enumerate(tokens)]
    scores = [0.0 if kind in _SCORELESS else score for score, kind in zip(scores, kinds, strict=True)]
    again = merges_by_score(Pieces(tokens, scores, kinds))
    if _by_result(again) != _by_result(merges):
        raise TokenizerError(
            "llama.cpp merges whatever makes the piece with the best score, and this tokenizer's merges are others",
            remedy=_OTHERWISE,
        )
    return {
        GGML + "model": "llama",
        GGML + "pre": "default",
        GGML + "scores": scores,
        GGML + "add_space_prefix": prefix,
    }


_SCORELESS: Final = (Kind.CONTROL, Kind.UNKNOWN, Kind.BYTE)


def _prefix(data: Mapping[str, Any]) -> bool:
    """Whether text begins with a space, of a tokenizer that spells spaces ``▁`` and does not cut text.

    Raises:
        TokenizerError: a tokenizer that does something else.
    """
    normalizers, pre = _flat(data["normalizer"], "normalizers"), _flat(data["pre_tokenizer"], "pretokenizers")
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": METASPACE}
    whole: list[Any] = [
        [],
        [{"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}],
    ]
    if normalizers == [replace] and pre in whole:
        return False
    if normalizers in ([{"type": "Prepend", "prepend": each}, replace] for each in (" ", METASPACE)) and pre == []:
        return True
    match normalizers, pre:
        case [[], [{"type": "Metaspace", "replacement": "▁", "split": False, "prepend_scheme": scheme}]]:
            return bool(scheme != "never")
        case _:
            raise TokenizerError(
                "llama.cpp merges a whole text at once, and this tokenizer normalises it, or cuts it first",
                value=[*normalizers, *pre],
                remedy=_OTHERWISE,
            )


def _word_pieces(data: Mapping[str, Any], tokens: Sequence[str], kinds: Sequence[Kind]) -> tuple[Metadata, list[str]]:
    pre, prefix = data["pre_tokenizer"], data["model"]["continuing_subword_prefix"]
    match data["normalizer"]:
        case {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True} as normalizer if (
            pre == {"type": "BertPreTokenizer"} and prefix == "##"
        ):
            lowercase = bool(normalizer["lowercase"])
        case normalizer:
            raise TokenizerError(
                "llama.cpp normalises and cuts the text of a WordPiece vocabulary as BERT does, and this tokenizer "
                "does not",
                value=[normalizer, pre, prefix],
                remedy=_OTHERWISE,
            )
    strip = lowercase if normalizer["strip_accents"] is None else bool(normalizer["strip_accents"])
    found = {
        GGML + "model": "bert",
        GGML + "pre": "default",
        GGML + "normalizer.lowercase": lowercase,
        GGML + "normalizer.strip_accents": strip,
        GGML + "token_type_count": 2,
    }
    spelled = [
        token if kind != Kind.NORMAL else token.removeprefix("##") if token.startswith("##") else METASPACE + token
        for token, kind in zip(tokens, kinds, strict=True)
    ]
    return found, spelled


def _roles(tokenizer: Tokenizer, is_bert: bool) -> Metadata:
    ids = {IDS[role]: tokenizer.role_id(role) for role in IDS}
    if is_bert:
        ids["bos_token_id"] = ids["cls_token_id"]
        wanted = ("cls", "sep")
    else:
        wanted = ("bos", "eos")
    frame = Frame.own(tokenizer)
    first, last = (tokenizer.role_id(role) for role in wanted)
    if frame.before not in ((), (first,)) or frame.after not in ((), (last,)):
        raise TokenizerError(
            f"GGUF has words for {wanted[0]} before a text and {wanted[1]} after it, and this tokenizer adds others",
            value=[*frame.before, "text", *frame.after],
            remedy=_OTHERWISE,
        )
    flags = {GGML + "add_bos_token": bool(frame.before), GGML + "add_eos_token": bool(frame.after)}
    return {**{GGML + key: i for key, i in ids.items() if i is not None}, **flags}


def _templates(tokenizer: Tokenizer) -> Metadata:
    key = "tokenizer.chat_template"
    named = [name for name in tokenizer.chat_templates if name != "default"]
    found: Metadata = {
        key if name == "default" else f"{key}.{name}": template for name, template in tokenizer.chat_templates.items()
    }
    return found | ({"tokenizer.chat_templates": named} if named else {})


def _pairs(model: Mapping[str, Any]) -> list[tuple[str, str]]:
    pairs = [tuple(merge.split(" ", 1)) if isinstance(merge, str) else tuple(merge) for merge in model["merges"]]
    for left, right in pairs:
        if " " in left or " " in right:
            raise TokenizerError("a merge with a space in it can't be written", value=[left, right], remedy=_OTHERWISE)
    return [(left, right) for left, right in pairs]


def _by_result(merges: Sequence[tuple[str, str]]) -> list[tuple[str, set[tuple[str, str]]]]:
    """The pieces in the order in which they are made, each with all the pairs that make it."""
    return [(piece, set(pairs)) for piece, pairs in groupby(merges, key=lambda pair: pair[0] + pair[1])]


def _flat(data: Mapping[str, Any] | None, steps: str) -> list[Any]:
    if data is None:
        return []
    return [each for step in data[steps] for each in _flat(step, steps)] if data["type"] == "Sequence" else [data]


def _refuse(model: Mapping[str, Any], options: Sequence[str]) -> None:
    for option in options:
        if model.get(option):
            raise TokenizerError(f"llama.cpp has no word for {option}", value=model[option], remedy=_OTHERWISE)
