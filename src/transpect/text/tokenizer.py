"""Text to ids and back: one class over the ``tokenizers`` package, whatever the kind of vocabulary."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import tokenizers

from transpect.base.errors import TokenizerError
from transpect.text.byte_level import piece_bytes

ROLES: Final = ("bos", "eos", "pad", "unk", "mask", "cls", "sep")
"""What a special token can be for. Each role is held by at most one token."""

FILES: Final = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
"""What :meth:`Tokenizer.save` writes."""

METASPACE: Final = "▁"
"""U+2581, how SentencePiece-like vocabularies spell a space."""


class Tokenizer:
    """Text to ids and back.

    ``decode(encode(text)) == text`` for the kinds ``byte-bpe`` (any text), ``bpe``, ``char`` and ``unigram`` (text
    whose characters the vocabulary has, see :mod:`transpect.text.kinds`); ``wordpiece`` forgets case and spaces.

    A tokenizer does not change after it is built, and may be shared between threads.

    Args:
        backend: the ``tokenizers.Tokenizer`` to use; it belongs to this object from now on. Its truncation and
            padding are switched off: a text that is cut or filled in silence is never what was asked for.
        roles: role to token, e.g. ``{"bos": "<s>"}``; roles from :data:`ROLES`. As in ``transformers``, a token
            with a role is matched whole in text, and is appended to the vocabulary where that lacks it.
        chat_templates: name to Jinja template; the one used by default is named ``"default"``.
        extra_config: other keys for ``tokenizer_config.json``, kept from where the tokenizer was loaded.

    Raises:
        TokenizerError: an unknown role.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        roles: Mapping[str, str],
        *,
        chat_templates: Mapping[str, str] | None = None,
        extra_config: Mapping[str, Any] | None = None,
    ) -> None:
        for role in roles:
            if role not in ROLES:
                raise TokenizerError("unknown special-token role", value=role, remedy=f"Roles: {', '.join(ROLES)}.")
        backend.no_truncation()
        backend.no_padding()
        added = {token.content for token in backend.get_added_tokens_decoder().values()}
        backend.add_special_tokens([_special(token) for token in roles.values() if token not in added])
        self.backend: Final = backend
        self.special_tokens: Final[Mapping[str, str]] = {role: roles[role] for role in ROLES if role in roles}
        self.chat_templates: Final[Mapping[str, str]] = dict(chat_templates or {})
        self.extra_config: Final[Mapping[str, Any]] = dict(extra_config or {})

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """The same as :func:`transpect.text.load.load_tokenizer`."""
        from transpect.text.load import load_tokenizer

        return load_tokenizer(path)

    # text -> ids

    def encode(self, text: str, add_special_tokens: bool = False, *, parse_special: bool = True) -> list[int]:
        """The ids of a text.

        Args:
            text: any string without lone surrogates.
            add_special_tokens: put bos, eos, cls and sep where the tokenizer's own rule wants them. Off by
                default, so that ids can be joined and decoded again.
            parse_special: read a special token spelled in the text, such as ``</s>``, as that token. With False
                it is ordinary text, which is what text from strangers should be.

        Raises:
            TokenizerError: not a string, or a string that UTF-8 can't carry.
        """
        backend = self.backend if parse_special else self._literal_backend
        return list(backend.encode(_checked(text), add_special_tokens=add_special_tokens).ids)

    def encode_batch(
        self, texts: Iterable[str], add_special_tokens: bool = False, *, parse_special: bool = True
    ) -> list[list[int]]:
        """The ids of each text, as :meth:`encode` gives them; in parallel, unpadded."""
        backend = self.backend if parse_special else self._literal_backend
        checked = [_checked(text) for text in texts]
        encodings = backend.encode_batch_fast(checked, add_special_tokens=add_special_tokens)
        return [list(encoding.ids) for encoding in encodings]

    def encode_pair(self, first: str, second: str, add_special_tokens: bool = True) -> tuple[list[int], list[int]]:
        """The ids of two texts as one input (``[CLS] first [SEP] second [SEP]`` for BERT), and each id's segment."""
        encoding = self.backend.encode(_checked(first), _checked(second), add_special_tokens=add_special_tokens)
        return list(encoding.ids), list(encoding.type_ids)

    def encode_with_offsets(
        self, text: str, add_special_tokens: bool = False, *, parse_special: bool = True
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """The ids, and for each the half-open range of characters of ``text`` that it covers.

        Tokens that are parts of one character all cover it; tokens that a template adds cover ``(0, 0)``.
        """
        backend = self.backend if parse_special else self._literal_backend
        encoding = backend.encode(_checked(text), add_special_tokens=add_special_tokens)
        return list(encoding.ids), list(encoding.offsets)

    # ids -> text

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = False) -> str:
        """The text of some ids.

        Args:
            ids: ids; one that has no token is passed over, because models pad their vocabulary.
            skip_special_tokens: leave special tokens out. Off by default, as in ``transformers``: decoding
                undoes encoding.

        Raises:
            TokenizerError: an id that is not a whole number ≥ 0.
        """
        return self.backend.decode(checked_ids(ids), skip_special_tokens=skip_special_tokens)

    def decode_batch(self, batch: Iterable[Iterable[int]], skip_special_tokens: bool = False) -> list[str]:
        """:meth:`decode` of each row."""
        rows = [checked_ids(ids) for ids in batch]
        return list(self.backend.decode_batch(rows, skip_special_tokens=skip_special_tokens))

    def tokens(self, ids: Iterable[int]) -> list[str]:
        r"""How to show each id to a person: text where the piece is text, e.g. ``" the"`` for GPT-2's ``Ġthe``.

        Bytes that are no whole character show as ``\xe5``, an id without a token as ``<id 99>``. For the piece
        as the vocabulary spells it, see :meth:`id_to_token`.
        """
        return [self._shown(i) for i in checked_ids(ids)]

    # vocabulary

    @cached_property
    def vocab_size(self) -> int:
        """1 + the largest id, added tokens included: the rows that an embedding needs, also where ids have gaps."""
        return 1 + max(self.backend.get_vocab(with_added_tokens=True).values(), default=-1)

    def __len__(self) -> int:
        return self.vocab_size

    def token_to_id(self, token: str) -> int | None:
        """The id of a piece as the vocabulary spells it, or None."""
        return self.backend.token_to_id(token)

    def id_to_token(self, token_id: int) -> str | None:
        """The piece of an id as the vocabulary spells it, or None."""
        return self.backend.id_to_token(*checked_ids([token_id]))

    def role_id(self, role: str) -> int | None:
        """The id of the token that holds a role, or None where no token does."""
        token = self.special_tokens.get(role)
        return None if token is None else self.backend.token_to_id(token)

    @property
    def bos_id(self) -> int | None:
        """The token that begins a text."""
        return self.role_id("bos")

    @property
    def eos_id(self) -> int | None:
        """The token that ends a text."""
        return self.role_id("eos")

    @property
    def pad_id(self) -> int | None:
        """The token that fills a batch."""
        return self.role_id("pad")

    @property
    def unk_id(self) -> int | None:
        """The token for text that the vocabulary can't spell."""
        return self.role_id("unk")

    @property
    def mask_id(self) -> int | None:
        """The token that stands for a hidden one."""
        return self.role_id("mask")

    @property
    def cls_id(self) -> int | None:
        """The token whose output stands for the whole text."""
        return self.role_id("cls")

    @property
    def sep_id(self) -> int | None:
        """The token that parts two texts."""
        return self.role_id("sep")

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Every special id, with a role or without: what ``skip_special_tokens`` leaves out."""
        added = self.backend.get_added_tokens_decoder()
        return frozenset(i for i, token in added.items() if token.special)

    @cached_property
    def adds_bos(self) -> bool:
        """Whether ``add_special_tokens=True`` puts a bos before a text."""
        return self.bos_id is not None and self.encode("", add_special_tokens=True)[:1] == [self.bos_id]

    # files

    def save(self, directory: str | Path) -> None:
        """Write ``tokenizer.json``, ``tokenizer_config.json`` and ``special_tokens_map.json`` into a directory.

        ``transformers.AutoTokenizer.from_pretrained(directory)`` opens it with equal ids and special tokens. The
        directory is made where absent. All are written or none: whatever goes wrong, what stood there stands there
        still, and no half-written file is ever seen.

        transformers 5 takes no tokenizer as it is beside a ``config.json`` of some model types (qwen2, phi3,
        modernbert, …): whatever the files say, it rebuilds that model's own kind from the vocabulary.

        Raises:
            TokenizerError: the directory can't be written.
        """
        folder = Path(directory)
        by_name = {f"{role}_token": token for role, token in self.special_tokens.items()}
        config: dict[str, Any] = {
            **self.extra_config,
            # The class that takes tokenizer.json as it is; others rebuild parts of it from their own rules.
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            **by_name,
        }
        if self.chat_templates:
            config["chat_template"] = _templates_as_json(self.chat_templates)
        try:
            _replace_files(
                folder, dict(zip(FILES, (self.backend.to_str(pretty=True), _json(config), _json(by_name)), strict=True))
            )
        except OSError as error:
            raise TokenizerError(
                f"a tokenizer is saved into a directory that can be written ({error.strerror})",
                value=str(folder),
                remedy="Choose another directory, or make room there.",
            ) from error

    # how it decodes

    @cached_property
    def decoder_spec(self) -> Mapping[str, Any] | None:
        """The decoder as ``tokenizer.json`` spells it, or None: pieces joined with spaces."""
        if self.backend.decoder is None:
            return None
        spec: dict[str, Any] = json.loads(self.backend.decoder.__getstate__())
        return spec

    @cached_property
    def _literal_backend(self) -> tokenizers.Tokenizer:
        literal = tokenizers.Tokenizer.from_str(self.backend.to_str())
        literal.encode_special_tokens = True
        return literal

    @cached_property
    def _is_byte_level(self) -> bool:
        return '"ByteLevel"' in json.dumps(self.decoder_spec)

    @cached_property
    def _spells_spaces(self) -> bool:
        return METASPACE in json.dumps(self.decoder_spec, ensure_ascii=False)

    def _shown(self, token_id: int) -> str:
        piece = self.backend.id_to_token(token_id)
        if piece is None:
            return f"<id {token_id}>"
        if token_id in self.special_ids:
            return piece
        if self._is_byte_level:
            return piece_bytes(piece).decode("utf-8", errors="backslashreplace")
        return piece.replace(METASPACE, " ") if self._spells_spaces else piece


def _special(token: str) -> tokenizers.AddedToken:
    return tokenizers.AddedToken(token, special=True, normalized=False)


def _checked(text: str) -> str:
    if not isinstance(text, str):
        raise TokenizerError("a text to encode must be a string", value=text, remedy="Pass a str.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TokenizerError(
            f"a text must be valid Unicode; the character at {error.start} is half of a surrogate pair",
            value=text,
            remedy='Clean it first: text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").',
        ) from error
    return text


def checked_ids(ids: Iterable[int]) -> list[int]:
    """Ids as plain numbers.

    Raises:
        TokenizerError: one that is not a whole number from 0 to 2³² - 1.
    """
    checked = []
    for i in ids:
        try:
            number = int(i)
        except (TypeError, ValueError):
            number = -1
        if number != i or not 0 <= number < 2**32:
            raise TokenizerError("a token id is a whole number from 0", value=i, remedy="Pass a flat list of ids.")
        checked.append(number)
    return checked


def _templates_as_json(templates: Mapping[str, str]) -> str | list[dict[str, str]]:
    if set(templates) == {"default"}:
        return templates["default"]
    return [{"name": name, "template": template} for name, template in templates.items()]


def _json(value: Mapping[str, Any] | Sequence[Any]) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def _replace_files(folder: Path, texts: Mapping[str, str]) -> None:
    """Write all files of a directory or, whatever interrupts it, none; a reader sees each file whole, old or new."""
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".tokenizer.tmp-", dir=folder) as name:
            new, old = Path(name, "new"), Path(name, "old")
            new.mkdir()
            old.mkdir()
            for file, text in texts.items():  # what needs room on the disk, before anything is replaced
                _write(new / file, text)
                if (folder / file).exists():
                    shutil.copy2(folder / file, old / file)
            _take_places(folder, new, old, list(texts))
    except BaseException:  # Ctrl-C too
        for place in made:
            with suppress(OSError):  # not made yet, or somebody else's file is there by now
                place.rmdir()
        raise


def _take_places(folder: Path, new: Path, old: Path, files: Sequence[str]) -> None:
    try:
        for file in files:
            (new / file).replace(folder / file)
    except BaseException:
        for file in files:
            if (old / file).exists():
                (old / file).replace(folder / file)
            elif not (new / file).exists():
                (folder / file).unlink()
        raise


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
