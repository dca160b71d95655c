"""What the kinds of vocabulary share: special tokens, alphabets, normalisers, templates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Protocol

import tokenizers
from tokenizers import AddedToken, normalizers, processors

from transpect.base.errors import TokenizerError

UnicodeForm = Literal["nfc", "nfkc"]

BYTE_TOKENS: Final = [f"<0x{byte:02X}>" for byte in range(256)]
"""The tokens of byte fallback: a character without a token of its own is spelled by its UTF-8 bytes."""

WORDS: Final = r"'(?:s|t|re|ve|m|ll|d)| ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"
r"""GPT-2's way to cut text into words, except that a combining mark (``\p{M}``) stays with its letter.

A word takes one space before it along; of a run of spaces the last goes to the word, so ``"a  b"`` is ``a, ␠, ␠b``.
No token crosses such a border.
"""


@dataclass(frozen=True)
class Specials:
    """The special tokens of a vocabulary to be trained.

    Args:
        roles: role to token.
        extra: more special tokens, without a role.
    """

    roles: Mapping[str, str]
    extra: Sequence[str] = ()

    @property
    def tokens(self) -> list[str]:
        """Each token once, in the order of their ids, which are 0, 1, 2, …"""
        return list(dict.fromkeys([*self.roles.values(), *self.extra]))

    def need(self, role: str, tag: str) -> str:
        """The token of a role that a kind can't do without."""
        if role not in self.roles:
            raise TokenizerError(
                f"{tag} needs a special token for the role {role!r}",
                remedy=f'Pass special_tokens={{"{role}": "<{role}>"}}.',
            )
        return self.roles[role]


class Kind(Protocol):
    """A kind of vocabulary: a frozen dataclass that owns its options and trains its ``tokenizers.Tokenizer``."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    tag: ClassVar[str]
    """How configurations and the command line spell the kind."""

    default_roles: ClassVar[Mapping[str, str]]
    """Role to special token where the caller says nothing else."""

    def train(self, texts: Sequence[str], vocab_size: int | None, specials: Specials) -> tokenizers.Tokenizer:
        """Train.

        Args:
            texts: at least one non-empty text; special tokens are cut out of them already.
            vocab_size: at most this many tokens, special ones included. None: as many as the kind finds.
            specials: the special tokens; they get the first ids.

        Raises:
            TokenizerError: ``vocab_size`` is too small for what the kind must hold.
        """
        ...


LM_ROLES: Final = {"pad": "<pad>", "unk": "<unk>", "bos": "<s>", "eos": "</s>"}
"""The roles of a language model. pad is not eos, so that no real eos is ever masked as padding."""


def normalizer(
    lowercase: bool, unicode_form: UnicodeForm | None, *more: normalizers.Normalizer
) -> normalizers.Normalizer | None:
    """Unicode form, then lower case, then ``more``; None where nothing is to be done."""
    forms: dict[str | None, list[normalizers.Normalizer]] = {
        None: [],
        "nfc": [normalizers.NFC()],
        "nfkc": [normalizers.NFKC()],
    }
    if unicode_form not in forms:
        raise TokenizerError("unicode_form must be nfc, nfkc or None", value=unicode_form, remedy="Take one of these.")
    steps = [*forms[unicode_form], *([normalizers.Lowercase()] if lowercase else []), *more]
    return normalizers.Sequence(steps) if steps else None


def normalized(texts: Iterable[str], by: normalizers.Normalizer | None) -> list[str]:
    """The texts as the vocabulary will see them."""
    return list(texts) if by is None else [by.normalize_str(text) for text in texts]


@dataclass(frozen=True)
class Room:
    """How much a vocabulary may hold, and of what; in an error it can say all of it.

    Args:
        tag: the kind.
        vocab_size: at most this many tokens; None: no limit.
        specials: how many special tokens.
        byte_fallback: whether the 256 byte tokens are in it.
    """

    tag: str
    vocab_size: int | None
    specials: int
    byte_fallback: bool = False

    def left(self, needed: int, what: str, remedy: str = "") -> int | None:
        """How many tokens are left for others beside ``needed`` of ``what``; None: no limit."""
        if self.vocab_size is None:
            return None
        must = self.specials + needed + (len(BYTE_TOKENS) if self.byte_fallback else 0)
        if self.vocab_size < must:
            parts = [f"{self.specials} special tokens", f"{needed} {what}"]
            if self.byte_fallback:
                parts.insert(1, "256 byte tokens")
            raise TokenizerError(
                f"a {self.tag} vocabulary must hold {', '.join(parts[:-1])} and {parts[-1]}: vocab_size ≥ {must}",
                value=self.vocab_size,
                remedy=f"Raise vocab_size to {must} or more{remedy}.",
            )
        return self.vocab_size - must


def needed_size(vocab_size: int | None, tag: str) -> int:
    """The size, for kinds that would otherwise grow without end."""
    if vocab_size is None:
        raise TokenizerError(f"{tag} needs a vocab_size", remedy="Take 4096 for a start.")
    return vocab_size


def choose_alphabet(
    texts: Iterable[str], room: Room, *, coverage: float = 1.0, min_frequency: int = 1, fallback_share: float = 0.75
) -> list[str]:
    """The characters that get a token of their own, by code point.

    The most frequent ones that together make up ``coverage`` of the text. With byte fallback, at most
    ``fallback_share`` of the room: the rarest are spelled in bytes, and the merges have the rest of it.
    Without it they are all needed: see :meth:`Room.left`.
    """
    if not 0.0 < coverage <= 1.0:
        raise TokenizerError("character_coverage must be in (0, 1]", value=coverage, remedy="Take 1, or 0.9995.")
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    if not counts:
        raise TokenizerError(
            f"a {room.tag} tokenizer needs characters to learn, and the texts have none once they are normalised",
            remedy="Pass texts with more than spaces and control characters.",
        )
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    wanted, covered, total = [], 0, sum(counts.values())
    for char, count in ranked:
        if count < min_frequency or covered >= coverage * total:
            break
        wanted.append(char)
        covered += count
    if room.byte_fallback:
        left = room.left(1, "character", ", or set byte_fallback=False")
        if left is not None:
            wanted = wanted[: 1 + int(left * fallback_share)]
    return sorted(wanted)


def cut_at_others(texts: Iterable[str], alphabet: Iterable[str]) -> list[str]:
    """The stretches of text inside an alphabet, so that no merge is learnt across a character that is missing."""
    known = set(alphabet)
    stretches: list[str] = []
    for text in texts:
        if known.issuperset(text):
            stretches.append(text)
        else:
            stretches += "".join(char if char in known else "\0" for char in text).split("\0")
    return [stretch for stretch in stretches if stretch]


def numbered(*groups: Iterable[str]) -> dict[str, int]:
    """Tokens to ids 0, 1, 2, … in the order given; a token that comes twice keeps its first id."""
    vocab: dict[str, int] = {}
    for group in groups:
        for token in group:
            vocab.setdefault(token, len(vocab))
    return vocab


def add_specials(backend: tokenizers.Tokenizer, specials: Specials) -> None:
    """Make the special tokens match whole in text, whatever the normaliser does."""
    backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in specials.tokens])


def template(
    backend: tokenizers.Tokenizer, specials: Specials, single: str, pair: str
) -> processors.TemplateProcessing:
    """What ``add_special_tokens=True`` adds. A role in braces stands for its token: ``"{bos} $A"``.

    Roles that no token holds are left out.
    """

    def fill(pattern: str) -> list[str]:
        pieces = []
        for word in pattern.split():
            role, _, suffix = word.partition("}")
            if not word.startswith("{"):
                pieces.append(word)
            elif role[1:] in specials.roles:
                pieces.append(specials.roles[role[1:]] + suffix)
        return pieces

    used = [(token, backend.token_to_id(token)) for token in dict.fromkeys(specials.roles.values())]
    return processors.TemplateProcessing(single=fill(single), pair=fill(pair), special_tokens=used)


LM_SINGLE, LM_PAIR = "{bos} $A", "{bos} $A $B:1"
"""A language model's text begins with bos. It ends with eos only where it really ends, so that is not added."""
