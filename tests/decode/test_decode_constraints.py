"""Outputs held to a language: what may come next is exactly what a text of the language goes on with."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from threading import Thread
from typing import Any

import pytest
import torch
from llguidance import LLMatcher, LLTokenizer
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from transpect.base.errors import GenerationError
from transpect.decode import GenerationParams
from transpect.decode.constraints import Grammar, JsonSchema, Language, Matching, OneOf, Regex, matching, vocabulary
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


@cache
def bytes_of(kind: str, at_start: bool) -> dict[int, bytes]:
    """What each token adds: byte tokens by their spelling, others by what a decode has more than its neighbour's."""
    tokenizer, found = tokenizer_of(kind), {}
    anchor = next(i for i in range(tokenizer.vocab_size) if tokenizer.decode([i], True) == "a")
    for i in set(range(tokenizer.vocab_size)) - tokenizer.special_ids:
        piece, shown = tokenizer.id_to_token(i) or "", tokenizer.tokens([i])[0]
        if piece.startswith("<0x"):
            byte = bytes([int(piece[3:5], 16)])
            found[i] = b"" if at_start and byte == b" " and not tokenizer.decode([i]) else byte
        elif "\\x" in shown:
            found[i] = re.sub(rb"\\x(..)", lambda hit: bytes([int(hit[1], 16)]), shown.encode())
        else:
            found[i] = tokenizer.decode([i] if at_start else [anchor, i]).removeprefix("" if at_start else "a").encode()
    return {i: added for i, added in found.items() if added}


class Reference:
    """The tokens that may follow, by the definition: some text begins with the bytes so far and the token's, and its
    rest can be spelled."""

    def __init__(self, kind: str, texts: frozenset[str], at_start: bool) -> None:
        self._texts = [text.encode() for text in texts]
        self._later, self._first = bytes_of(kind, False), bytes_of(kind, at_start)
        self._spell = cache(self._can_spell)

    def _can_spell(self, rest: bytes) -> bool:
        return not rest or any(rest.startswith(b) and self._spell(rest[len(b) :]) for b in self._later.values())

    def state(self, written: list[int]) -> tuple[set[int], bool]:
        """The tokens that may follow, and whether the output may end."""
        table = [self._first if n == 0 else self._later for n in range(len(written) + 1)]
        so_far = b"".join(table[n][token] for n, token in enumerate(written))
        rests = [text[len(so_far) :] for text in self._texts if text.startswith(so_far)]
        allowed = {
            token
            for token, added in table[-1].items()
            if any(rest.startswith(added) and self._spell(rest[len(added) :]) for rest in rests)
        }
        return allowed, b"" in rests


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
    for _ in range(40):
        language = drawn(rng)
        reference = Reference(kind, language.texts, not begun)
        try:
            held = matching(tokenizer, Regex(language.pattern), prompt, vocab_size=vocab_size, ends=[end])
            held.mask(())
        except GenerationError:
            assert reference.state([]) == (set(), False)
            continue
        for _ in range(3):
            walked += sum(walks(held, reference, vocab_size, [end], rng))
    assert walked > 5


def test_a_mask_depends_on_the_tokens_written_alone() -> None:
    """Asked in any order, of rows that are taken back, repeated or not of the language, and of more than are kept."""
    tokenizer, rng = tokenizer_of("byte-bpe"), random.Random(7)
    language = Regex("((ab|c)[ab é]{1,4} ?)+小")

    def anew() -> Matching:
        return matching(tokenizer, language, [5], vocab_size=tokenizer.vocab_size, ends=[2])

    held, pasts = anew(), [()]
    for _ in range(150):
        past = rng.choice(pasts)
        mask = held.mask(past)
        choices = range(tokenizer.vocab_size) if mask is None else mask.nonzero()[:, 0].tolist()
        pasts.append((*past, rng.choice([*choices, rng.randrange(tokenizer.vocab_size)])))
    rng.shuffle(pasts)
    dead = 0
    for past in pasts:
        one, other = held.mask(past), anew().mask(past)
        dead += one is None
        assert (one is None and other is None) or torch.equal(one, other)
    assert 10 < dead < 140


@pytest.mark.parametrize("kind", KINDS)
def test_a_list_of_choices_is_those_texts(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    prompt = [tokenizer.token_to_id("a") or 0]
    texts = [
        " a.b",
        "a+",
        "ab",
        "a",
        "ab c",
        "^$",
        "\\\\",
        "(a|b)",
        "[a]",
        "a{2}",
        "é小",
        "a\nb",
        "a-b&c~d#e/f",
        " a",
        "小",
    ]
    reference = Reference(kind, frozenset(texts), at_start=False)
    held = matching(tokenizer, OneOf(texts), prompt, vocab_size=tokenizer.vocab_size, ends=[1])
    for seed in range(10):
        sum(walks(held, reference, tokenizer.vocab_size, [1], random.Random(seed)))


def test_what_the_vocabulary_cannot_write_is_an_error_that_says_what() -> None:
    tokenizer = built(["a", "b", "é小"], decoders.Fuse())
    for language in (Regex("a{3}c"), OneOf(["小", "bé"]), Regex("[^ab]")):
        with pytest.raises(GenerationError, match="this vocabulary can't write"):
            matching(tokenizer, language, [3], vocab_size=9, ends=[2]).mask(())
    held = matching(tokenizer, Grammar('start: "a" "\\"b\\""'), [3], vocab_size=9, ends=[2])
    assert held.mask(()) is not None
    with pytest.raises(GenerationError, match=r"grammar must go on .* \(got .*\""):
        held.mask((3,))


def test_banned_tokens_are_not_in_the_vocabulary() -> None:
    tokenizer = tokenizer_of("byte-bpe")
    c = tokenizer.encode("c")
    held = matching(tokenizer, Regex("b|c"), [5], vocab_size=tokenizer.vocab_size, ends=[2], banned=c)
    mask = held.mask(())
    assert mask is not None and mask.nonzero()[:, 0].tolist() == tokenizer.encode("b")
    with pytest.raises(GenerationError, match="banned"):
        matching(tokenizer, Regex("c"), [5], vocab_size=tokenizer.vocab_size, banned=c).mask(())


def test_a_token_that_ends_the_output_is_no_text_of_it() -> None:
    """An end that is an ordinary token by its bytes, a line end say, ends whole texts and nothing else."""
    tokenizer = tokenizer_of("char")
    a, b = tokenizer.encode("ab")
    for pattern, ends in (("a", True), ("a|a[bc]", True), ("a[bc]c*", False)):
        held = matching(tokenizer, Regex(pattern), [5], vocab_size=tokenizer.vocab_size, ends=[b])
        mask = held.mask((a,))
        assert mask is not None and bool(mask[b]) == ends


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Regex("a("), "regex can't be used: unclosed group"),
        (lambda: Regex("a(?=b)"), "look-around"),
        (lambda: Regex(r"(a)\1"), "backreferences are not supported"),
        (lambda: Regex("a\\"), "after its last backslash"),
        (lambda: Regex(3), "regex must be a pattern"),
        (lambda: JsonSchema("{"), "json_schema must be JSON"),
        (lambda: JsonSchema({"type": "text"}), "Invalid type: text"),
        (lambda: JsonSchema({"not": {}}), "Unimplemented keys"),
        (lambda: JsonSchema({"minimum": 3, "maximum": 1, "type": "integer"}), "Unsatisfiable schema"),
        (lambda: JsonSchema(False), "json_schema must be an object that allows something"),
        (lambda: JsonSchema([1]), "json_schema must be an object"),
        (lambda: JsonSchema({"a": {1}}), "json_schema must be JSON"),
        (lambda: Grammar("start: x"), 'unknown name: "x"'),
        (lambda: Grammar("root ::= x"), "grammar can't be read"),
        (lambda: Grammar(" "), "grammar must be"),
        (lambda: Grammar(None), "grammar must be"),
        (lambda: OneOf([]), "choices must be texts"),
        (lambda: OneOf([1]), "choices must be texts"),
        (lambda: OneOf(3), "choices must be texts"),
    ],
)
def test_what_can_be_no_language_is_refused_with_the_reason(make: Callable[[], Language], said: str) -> None:
    with pytest.raises(GenerationError) as found:
        make()
    message = str(found.value)
    assert said in message and "\n" not in message and found.value.remedy


@pytest.mark.parametrize("keyword", ["minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "const", "enum"])
def test_a_number_of_a_schema_is_held_or_refused(keyword: str) -> None:
    """Those that a float keeps are, with their neighbours; others llguidance would round."""
    backend = LLTokenizer("byte")
    allowed = 0
    for number in (0, 7, -(10**15), 2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, 2**63, 10**19, 10**30):
        try:
            own = JsonSchema({"type": "integer", keyword: [number] if keyword == "enum" else number})
        except GenerationError:
            assert abs(number) >= 2**53
            continue
        allowed += 1
        for other in {number - 1, number, number + 1, -number, 2**63 - 1, number + 10**6}:
            matcher = LLMatcher(backend, own.grammar())
            written = (
                matcher.try_consume_tokens(list(str(other).encode())) == len(str(other)) and matcher.is_accepting()
            )
            means = {"minimum": other >= number, "maximum": other <= number, "exclusiveMinimum": other > number}
            means["exclusiveMaximum"] = other < number
            assert written <= means.get(keyword, other == number), (number, other)
            assert written or abs(other) > 2**53 or not means.get(keyword, other == number), (number, other)
    assert allowed == 4


def test_numbers_that_are_no_bounds_are_no_matter() -> None:
    within = {"properties": {"minimum": {"const": 2**60 + 1}}}
    with pytest.raises(GenerationError, match="const is held as a float"):
        JsonSchema(within)
    JsonSchema({"type": "integer", "default": 2**60 + 1, "examples": [{"minimum": 2**60 + 1}]})


def test_languages_are_compared_by_what_they_say() -> None:
    assert Regex("a") == Regex("a") != Regex("b")
    assert JsonSchema({"type": "null"}) == JsonSchema('{"type":  "null"}')
    assert OneOf(["a", "b"]) == OneOf(("a", "b")) and OneOf("ab") == OneOf(["ab"])
    assert len({JsonSchema(True), JsonSchema({}), Grammar('start: "a"'), OneOf("a")}) == 3


def test_a_grammar_is_compiled_once_for_a_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, made = tokenizer_of("char"), []
    compiled = vocabulary.LLMatcher
    monkeypatch.setattr(vocabulary, "LLMatcher", lambda *a, **b: made.append(a) or compiled(*a, **b))
    for _ in range(3):
        matching(tokenizer, Regex("[ab]{1,7}"), [5], vocab_size=tokenizer.vocab_size, ends=[2]).mask(())
    assert len(made) == 2  # for the first token and for the later ones


class Interrupted(Regex):
    """One that is looked up while others go on: at each look, another thread does something."""

    meanwhile: Callable[[], object] | None = None

    def __hash__(self) -> int:
        if self.meanwhile is not None:
            other = Thread(target=self.meanwhile, daemon=True)
            other.start()
            other.join(0.05)  # or waits until this one is done
        return hash(self.pattern)


def test_a_grammar_that_another_thread_gives_up_meanwhile_is_found_all_the_same(monkeypatch: Any) -> None:
    monkeypatch.setattr(vocabulary, "_GRAMMARS", 1)
    known, held = vocabulary.Vocabulary(tokenizer_of("char"), True), Interrupted("a")
    found = known.matchers(held)
    object.__setattr__(held, "meanwhile", lambda: known.matchers(Regex("b")))
    assert known.matchers(held) is found or known.matchers(held)


def test_parameters_by_name() -> None:
    params = GenerationParams()
    assert params.override({"regex": "a"}).constraint == Regex("a")
    assert params.override({"choices": ["a", "b"]}).constraint == OneOf(["a", "b"])
    assert params.override({"json_schema": {}}).constraint == JsonSchema({})
    held = params.override({"grammar": 'start: "a"', "regex": None})
    assert held.constraint == Grammar('start: "a"')
    assert held.override({"top_k": 3}).constraint == held.constraint
    assert held.override({"grammar": None}).constraint is None
    assert held.override({"regex": None}).constraint == held.constraint
    assert held.override({"regex": "b"}).constraint == Regex("b")
    assert held.override({"constraint": None}).constraint is None
    for changes in ({"regex": "a", "choices": ["b"]}, {"regex": "a", "constraint": Regex("a")}):
        with pytest.raises(GenerationError, match="at most one language"):
            params.override(changes)
    with pytest.raises(GenerationError, match="constraint must be a language"):
        GenerationParams(constraint="a")  # type: ignore[arg-type]
    with pytest.raises(GenerationError, match="regex"):
        params.override({"regexp": "a"})
