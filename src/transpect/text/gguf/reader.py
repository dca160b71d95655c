"""The tokenizer of a GGUF file, rebuilt from its metadata.

The kinds (``tokenizer.ggml.model``): ``gpt2``, byte pairs over bytes, cut as ``tokenizer.ggml.pre`` says; ``llama``,
SentencePiece merged by score; ``bert``, WordPiece; ``t5``, Unigram.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md and llama.cpp, ``src/llama-vocab.cpp``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from transpect.base.errors import TokenizerError
from transpect.base.gguf import read_gguf
from transpect.text.gguf.described import GGML, HF_JSON, Described, Frame, bracketed
from transpect.text.gguf.pre import PRE, Pre
from transpect.text.spm import Pieces, added, bpe, framed, unigram
from transpect.text.tokenizer import METASPACE, Tokenizer

__all__ = ["load_gguf_tokenizer", "tokenizer_from"]


def load_gguf_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a GGUF file.

    Raises:
        TokenizerError: a file without one, or with one of a kind, or a pre-tokenizer, that is not known.
        CheckpointError: a damaged file.
    """
    try:
        return tokenizer_from(read_gguf(path).metadata)
    except TokenizerError as error:
        error.file = error.file or path
        raise


def tokenizer_from(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that a file's metadata describe.

    Raises:
        TokenizerError: see `load_gguf_tokenizer`.
    """
    model = metadata.get(GGML + "model")
    if not isinstance(model, str) or model not in _KINDS:
        raise TokenizerError(
            f"{GGML}model must be one of {', '.join(_KINDS)}",
            value=model,
            remedy="Use the tokenizer of the model's Hugging Face directory.",
        )
    about = Described(metadata)
    roles = about.roles()
    if HF_JSON in metadata:
        backend = _as_published(metadata[HF_JSON], about)
    else:
        backend, frame = _KINDS[model](about)
        before, after = ([roles[role] for role in side if role in roles] for side in frame)
        framed(backend, before, after)
    length = metadata.get(f"{metadata.get('general.architecture')}.context_length")
    return Tokenizer(
        backend,
        roles,
        chat_templates=_chat_templates(metadata),
        extra_config={"model_max_length": length} if isinstance(length, int) else {},
    )


def _as_published(text: object, about: Described) -> tokenizers.Tokenizer:
    """The tokenizer.json in a file, which must have the file's vocabulary."""
    try:
        backend = tokenizers.Tokenizer.from_str(str(text))
    except Exception as error:  # what `tokenizers` raises is a plain Exception
        raise TokenizerError(f"{HF_JSON} is no tokenizer.json ({error})", remedy="Convert the model again.") from error
    spelled = about.words() if isinstance(backend.model, models.WordPiece) else about.tokens
    for token, i in backend.get_vocab(with_added_tokens=True).items():
        if i >= len(spelled) or spelled[i] != token:
            raise TokenizerError(
                f"{HF_JSON} must have the vocabulary of {GGML}tokens", value=token, remedy="Convert the model again."
            )
    return backend


def _gpt2(about: Described) -> tuple[tokenizers.Tokenizer, Frame]:
    name = "gemma4" if about.model == "gemma4" else about.get("pre", str)
    if name not in PRE:
        raise TokenizerError(
            f"{GGML}pre must name a pre-tokenizer that is known",
            value=name,
            remedy=f"Use the model's tokenizer.json. Known are {', '.join(PRE)}.",
        )
    pre: Pre = PRE[name]
    merges = about.get("merges", list)
    if merges is None or not all(isinstance(merge, str) and " " in merge[1:] for merge in merges):
        raise TokenizerError(f"{GGML}merges must be a list of pairs, each parted by a space")
    pairs = []
    for merge in merges:
        at = merge.index(" ", 1)
        pairs.append((merge[:at], merge[at + 1 :]))
    vocab = {token: i for i, token in enumerate(about.tokens)}
    lost = next((f"{a} {b}" for a, b in pairs if not (a in vocab and b in vocab and a + b in vocab)), None)
    if lost is not None:
        raise TokenizerError("both parts of a merge and what they make must be tokens", value=lost)
    spells_bytes = not pre.byte_level and {f"<0x{byte:02X}>" for byte in range(256)} <= vocab.keys()
    model = models.BPE(vocab, pairs, ignore_merges=pre.ignore_merges, byte_fallback=spells_bytes)
    backend = tokenizers.Tokenizer(model)
    normalizer = pre.normalizer()
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.pre_tokenizer = pre.pre_tokenizer()
    if pre.byte_level:
        backend.decoder = decoders.ByteLevel()
    else:
        steps = [decoders.Replace(METASPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
        backend.decoder = decoders.Sequence(steps)
    special, user_defined = about.special()
    if not pre.byte_level:  # runs of newlines are tokens, and no file has merges for them
        user_defined += [token for token in about.tokens if len(token) > 1 and not token.strip("\n")]
    added(backend, special, user_defined, about.strips())
    return backend, about.frame(pre.adds_bos, False)


def _llama(about: Described) -> tuple[tokenizers.Tokenizer, Frame]:
    # llama.cpp does not normalise these: no table, and every space stays
    pieces = Pieces(about.tokens, about.scores(), about.kinds, prefix=about.flag("add_space_prefix", True))
    backend = bpe(pieces)
    added(backend, *about.special(), about.strips())
    return backend, about.frame(True, False)


def _t5(about: Described) -> tuple[tokenizers.Tokenizer, Frame]:
    backend = unigram(about.pieces(prefix=True))
    added(backend, *about.special(), about.strips())
    return backend, about.frame(False, True)


def _bert(about: Described) -> tuple[tokenizers.Tokenizer, Frame]:
    special, user_defined = about.special()
    roles = about.roles()
    whole = {*special, *user_defined, *roles.values()}
    words = about.words()
    if len(set(words)) < len(words):
        raise TokenizerError("two tokens of the vocabulary are the same WordPiece", remedy="Convert the model again.")
    # An uncased vocabulary has no upper case in any word.
    cased = any(token != token.lower() for token in about.tokens if token not in whole and not bracketed(token))
    lowercase = about.flag("normalizer.lowercase", not cased)
    strip = about.flag("normalizer.strip_accents", lowercase)
    unk = roles.get("unk", "[UNK]")
    vocab = {word: i for i, word in enumerate(words)}
    if unk not in vocab:
        raise TokenizerError("a WordPiece vocabulary needs a token for what it can't spell", value=unk)
    backend = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token=unk, max_input_chars_per_word=100))
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=strip, lowercase=lowercase
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    added(backend, special, user_defined, about.strips())
    before = ("cls",) if about.flag("add_bos_token", True) else ()
    return backend, (before, ("sep",) if about.flag("add_eos_token", True) else ())


_KINDS: Final[dict[str, Callable[[Described], tuple[tokenizers.Tokenizer, Frame]]]] = {
    "gpt2": _gpt2,
    "gemma4": _gpt2,
    "llama": _llama,
    "bert": _bert,
    "t5": _t5,
}


def _chat_templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    key = "tokenizer.chat_template"
    found = {name[len(key) + 1 :]: text for name, text in metadata.items() if name.startswith(f"{key}.")}
    found |= {"default": metadata[key]} if key in metadata else {}
    for name, text in found.items():
        if not isinstance(text, str):
            raise TokenizerError(f"the chat template {name} must be a string", value=text)
    return found
