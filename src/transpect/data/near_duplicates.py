"""Documents that say nearly the same: candidates by MinHash and banding, each compared exactly.

MinHash (Broder 1997): the share of k random hash functions by which two sets have the same smallest element estimates
their Jaccard similarity. Banding (Leskovec, Rajaraman, Ullman, *Mining of Massive Datasets*, §3.4): the k values in
bands of r; two sets of similarity s agree in a band somewhere with chance 1 − (1 − sʳ)^(k/r). r is the largest for
which that is at least `RECALL` at the threshold, so nearly every pair above it is found; what is found below it is
told apart by the similarity itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from transpect.base.errors import ConfigError
from transpect.data.documents import Document

PERMUTATIONS: Final = 128
RECALL: Final = 0.999
SEED: Final = 1


def shingles(text: str, n: int) -> frozenset[str]:
    """The set of a text's character n-grams, in lower case and with one space for each run of them; of a shorter text,
    the text."""
    plain = " ".join(text.casefold().split())
    return frozenset(plain[i : i + n] for i in range(max(1, len(plain) - n + 1)))


def jaccard(a: frozenset[str], b: frozenset[str]) -> float:
    """|a ∩ b| / |a ∪ b|."""
    common = len(a & b)
    return common / (len(a) + len(b) - common)


def rows_of_a_band(threshold: float) -> int:
    """r: a power of two, at most `PERMUTATIONS`."""
    fitting = (2**i for i in range(PERMUTATIONS.bit_length()))
    return max((r for r in fitting if 1 - (1 - threshold**r) ** (PERMUTATIONS // r) >= RECALL), default=1)


def near_duplicates(stream: Callable[[], Iterator[Document]], threshold: float, n: int) -> frozenset[int]:
    """The numbers of the documents that are nearly equal to one before them that is not in this set.

    The documents are read twice: once for candidates, and once to compare these. In between, a document takes some
    1.5 kB of memory, however long it is.

    Args:
        stream: the documents from the beginning, the same at each call.
        threshold: the least Jaccard similarity.
        n: of the n-grams.

    Raises:
        ConfigError: the package ``rensa`` is not installed.
    """
    candidates = _candidates(stream(), threshold, n)
    wanted = candidates.keys() | {other for others in candidates.values() for other in others}
    sets: dict[int, frozenset[str]] = {}
    dropped: set[int] = set()
    for number, document in enumerate(stream()):
        if number not in wanted:
            continue
        here = shingles(_said(document), n)
        kept = (sets[other] for other in candidates.get(number, ()) if other in sets)
        if any(jaccard(here, other) >= threshold for other in kept):
            dropped.add(number)
        else:
            sets[number] = here
    return frozenset(dropped)


def _candidates(documents: Iterator[Document], threshold: float, n: int) -> dict[int, list[int]]:
    """For each document, those before it that agree with it in a band; only where there are any."""
    rensa = _rensa()
    index = rensa.RMinHashLSH(threshold, PERMUTATIONS, PERMUTATIONS // rows_of_a_band(threshold))
    found: dict[int, list[int]] = {}
    for number, document in enumerate(documents):
        sketch = rensa.RMinHash(PERMUTATIONS, SEED)
        sketch.update(list(shingles(_said(document), n)))
        if before := index.query(sketch):
            found[number] = sorted(before)
        index.insert(number, sketch)
    return found


def _said(document: Document) -> str:
    return document.text if document.target is None else f"{document.text}\0{document.target}"


def _rensa() -> Any:
    try:
        import rensa
    except ImportError as error:
        raise ConfigError(
            "near duplicates are found by the package rensa, which is not installed",
            remedy="pip install 'transpect[data]', or leave `near` out.",
        ) from error
    return rensa
