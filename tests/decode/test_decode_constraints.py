"""Outputs held to a language: what may come next is exactly what a text of the language goes on with."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from transpect.base.errors import GenerationError
from transpect.decode.constraints import Matching, Regex, matching
from transpect.text import Tokenizer, train_tokenizer

ALPHABET = "ab c小é"
CORPUS = ["ab ca bc", "小é ab小 cé a", "a b c ab bc ca"] * 3
KINDS: dict[str, Callable[[], Tokenizer]] = {
    "char": lambda: train_tokenizer("char", CORPUS),
    "char-bytes": lambda: train_tokenizer("char", ["ab c"], byte_fallback=True),
    "bpe": lambda: train_tokenizer("bpe", CORPUS, 40, byte_fallback=False),
    "byte-bpe": lambda: train_tokenizer("byte-bpe", CORPUS, 300),
    "wordpiece": lambda: train_tokenizer("wordpiece", CORPUS, 40),
    "unigram": lambda: train_tokenizer("unigram", CORPUS, 30),
    "unigram-bytes": lambda: train_tokenizer("unigram", CORPUS, 300, byte_fallback=True),
    "t5": lambda: built(["a", "b", "ab", "▁a", "▁", "▁ab", "小", "c▁"], decoders.Metaspace()),
    "plain": lambda: built(["a", "b", "ab", "小"], None),
}


def built(pieces: list[str], decoder: decoders.Decoder | None) -> Tokenizer:
    """Pieces that are decoded in a given way, after a start and an end."""
    vocab = {piece: i for i, piece in enumerate(["<unk>", "<s>", "</s>", *pieces])}
    backend = Backend(models.WordLevel(vocab, unk_token="<unk>"))
    if decoder is not None:
        backend.decoder = decoder
    return Tokenizer(backend, {"bos": "<s>", "eos": "</s>", "unk": "<unk>"})


@cache
def tokenizer_of(kind: str) -> Tokenizer:
    return KINDS[kind]()


@dataclass(frozen=True)
class Finite:
    """A regular expression, and all texts that it matches."""

    pattern: str
    texts: frozenset[str]


def drawn(rng: random.Random, depth: int = 3) -> Finite:
    """A random one, with at most some hundred texts."""
    kind = rng.choice(["text", "class"] if depth == 0 else ["text", "class", "either", "then", "maybe", "times"])
    if kind == "text":
        text = "".join(rng.choices(ALPHABET, k=rng.randint(1, 3)))
        return Finite(text, frozenset([text]))
    if kind == "class":
        chars = sorted(set(rng.choices(ALPHABET, k=rng.randint(1, 3))))
        return Finite(f"[{''.join(chars)}]", frozenset(chars))
    one = drawn(rng, depth - 1)
    if kind == "maybe":
        return Finite(f"({one.pattern})?", one.texts | {""})
    if kind == "times":
        low, high = rng.choice([(0, 1), (1, 2), (2, 2), (0, 2)])
        powers = [frozenset([""])]
        for _ in range(high):
            powers.append(joined(powers[-1], one.texts))
        texts = frozenset().union(*powers[low:])
        return Finite(f"(?:{one.pattern}){{{low},{high}}}", texts) if len(texts) <= 200 else one
    other = drawn(rng, depth - 1)
    if kind == "either":
        return Finite(f"({one.pattern}|{other.pattern})", one.texts | other.texts)
    texts = joined(one.texts, other.texts)
    return Finite(f"{one.pattern}{other.pattern}", texts) if len(texts) <= 200 else one


def joined(left: frozenset[str], right: frozenset[str]) -> frozenset[str]:
    return frozenset(a + b for a in left for b in right)


class Reference:
    """The tokens that may follow, by the definition: some text begins with the bytes so far and the token's, and its
    rest can be spelled. The bytes of tokens are what the tokenizer decodes after a prompt."""

    def __init__(self, tokenizer: Tokenizer, texts: frozenset[str], prompt: list[int]) -> None:
        self._tokenizer, self._texts = tokenizer, [text.encode() for text in texts]
        self._begun = any(i not in tokenizer.special_ids for i in prompt)
        self._later = self._bytes(at_start=False)
        self._first = self._later if self._begun else self._bytes(at_start=True)
        self._spell = cache(self._can_spell)

    def _bytes(self, *, at_start: bool) -> dict[int, bytes]:
        """Each token's bytes: of byte tokens by their spelling, of others by decoding with a neighbour."""
        found = {}
        for i in set(range(self._tokenizer.vocab_size)) - self._tokenizer.special_ids:
            piece = self._tokenizer.id_to_token(i) or ""
            if piece.startswith("<0x"):
                found[i] = bytes([int(piece[3:5], 16)])
                if at_start and found[i] == b" " and self._tokenizer.decode([i]) == "":
                    found[i] = b""
                continue
            shown = self._tokenizer.tokens([i])[0]
            if "\\x" in shown:
                found[i] = eval("b" + repr(shown).replace("\\\\", "\\")) if shown.isascii() else b""
                continue
            anchor = next(j for j in range(self._tokenizer.vocab_size) if self._tokenizer.decode([j], True) == "a")
            whole = self._tokenizer.decode([i] if at_start else [anchor, i])
            found[i] = whole.removeprefix("" if at_start else "a").encode()
        return {i: added for i, added in found.items() if added}

    def _can_spell(self, rest: bytes) -> bool:
        return not rest or any(rest.startswith(b) and self._spell(rest[len(b) :]) for b in self._later.values())

    def state(self, written: list[int]) -> tuple[set[int], bool]:
        """The tokens that may follow, and whether the output may end."""
        table = [self._first if n == 0 else self._later for n in range(len(written) + 1)]
        so_far = b"".join(table[n][token] for n, token in enumerate(written))
        allowed = {
            token
            for token, added in table[-1].items()
            if any(t.startswith(so_far + added) and self._spell(t[len(so_far + added) :]) for t in self._texts)
        }
        return allowed, so_far in self._texts


def walks(held: Matching, reference: Reference, vocab_size: int, ends: list[int], rng: random.Random) -> Iterator[int]:
    """Follow allowed tokens at random to an end, comparing at each step."""
    written: list[int] = []
    while True:
        allowed, may_end = reference.state(written)
        mask = held.mask(tuple(written))
        assert mask is not None and mask.shape == (vocab_size,)
        assert set(mask.nonzero()[:, 0].tolist()) == allowed | (set(ends) if may_end else set())
        assert not held.complete(tuple(written))
        if not allowed or (may_end and rng.random() < 0.3):
            assert may_end
            yield len(written)
            return
        written.append(rng.choice(sorted(allowed)))


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_exactly_the_tokens_with_a_completion_are_allowed(kind: str, begun: bool) -> None:
    tokenizer, rng = tokenizer_of(kind), random.Random(f"{kind} {begun}")
    prompt = [tokenizer.token_to_id("a") or 0] if begun else [min(tokenizer.special_ids)]
    end = max(tokenizer.special_ids)
    vocab_size = tokenizer.vocab_size + 3  # models pad their vocabulary
    walked = 0
    for _ in range(60):
        language = drawn(rng)
        reference = Reference(tokenizer, language.texts, prompt)
        try:
            held = matching(tokenizer, Regex(language.pattern), prompt, vocab_size=vocab_size, ends=[end])
            held.mask(())
        except GenerationError:
            assert reference.state([]) == (set(), False)
            continue
        for _ in range(3):
            walked += sum(walks(held, reference, vocab_size, [end], rng))
    assert walked > 5
