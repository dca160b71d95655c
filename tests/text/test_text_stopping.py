"""A stop string cuts the text in one place, however the text arrives."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transpect.base.errors import TokenizerError
from transpect.text import StopMatcher


def cut(text: str, stops: list[str]) -> str:
    """What must come out: the definition, on the whole text."""
    return text[: min((at for stop in stops if (at := text.find(stop)) >= 0), default=len(text))]


def run(pieces: list[str], stops: list[str]) -> tuple[str, StopMatcher]:
    matcher = StopMatcher(stops)
    out = "".join(matcher.push(piece) for piece in pieces)
    return out + matcher.flush(), matcher


def every_cut(text: str) -> list[list[str]]:
    """All ways to cut a text into pieces."""
    return [
        [text[a:b] for a, b in itertools.pairwise([0, *borders, len(text)])]
        for n in range(len(text))
        for borders in itertools.combinations(range(1, len(text)), n)
    ]


@pytest.mark.parametrize(
    ("text", "stops"),
    [
        ("abcdabce", ["bce"]),
        ("aaaaab", ["aab"]),
        ("abcabcabd", ["abcabd"]),
        ("xabcdy", ["abcd", "bc"]),  # the inner one is complete first, the outer one begins first
        ("xabcey", ["abcd", "bc"]),  # the outer one does not come
        ("xabc", ["abcd", "bc"]),  # … and the text ends before that is known
        ("abab", ["b", "ab", "bab"]),
        ("小猫爱吃鱼", ["吃", "爱吃"]),
        ("a\n\nb", ["\n\n", "\n"]),
        ("nothing", ["x"]),
        ("nothing", []),
        ("ending", ["ingx"]),
        ("", ["x"]),
    ],
)
def test_every_chunking_gives_the_same(text: str, stops: list[str]) -> None:
    expected = cut(text, stops)
    for pieces in every_cut(text):
        for order in itertools.permutations(stops):
            out, matcher = run(pieces, list(order))
            assert out == expected
            assert matcher.done == (expected != text)
            assert (matcher.matched in stops) == matcher.done


@given(
    st.text("ab", max_size=30),
    st.lists(st.text("ab", min_size=1, max_size=6), max_size=4),
    st.lists(st.integers(0, 30), max_size=10),
)
@settings(max_examples=500, deadline=None)
def test_any_text_any_stops_any_chunking(text: str, stops: list[str], borders: list[int]) -> None:
    at = sorted({0, len(text), *(border for border in borders if border <= len(text))})
    out, matcher = run([text[a:b] for a, b in itertools.pairwise(at)], stops)
    assert out == cut(text, stops)
    assert matcher.matched == min((s for s in stops if text.startswith(s, len(out))), key=len, default=None)


def test_the_quick_brown_fox() -> None:
    stops = ["own fox"]
    assert run(list("The quick brown fox"), stops)[0] == "The quick br"
    assert run(["The quick brown f", "ox jumps"], stops)[0] == "The quick br"
    assert run(list("The quick brown f"), stops)[0] == "The quick brown f"


@given(st.text("abc", max_size=40), st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=3))
@settings(max_examples=300, deadline=None)
def test_only_the_beginning_of_a_stop_is_held(text: str, stops: list[str]) -> None:
    matcher, sent = StopMatcher(stops), ""
    for n, char in enumerate(text, 1):
        sent += matcher.push(char)
        if matcher.done:
            break
        held = text[len(sent) : n]
        assert held == "" or any(stop.startswith(held) for stop in stops)


def test_nothing_comes_after_a_stop() -> None:
    matcher = StopMatcher(["stop"])
    assert matcher.push("a stop b") == "a "
    assert (matcher.push("more"), matcher.flush(), matcher.done, matcher.matched) == ("", "", True, "stop")


@pytest.mark.parametrize("stops", ["abc", ["a", ""], [None], [3]])
def test_stops_are_checked(stops: object) -> None:
    with pytest.raises(TokenizerError):
        StopMatcher(stops)  # type: ignore[arg-type]
