"""Texts to ids, by several processes: in the order of the texts, however many there are. No torch."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import numpy as np

from transpect.data.ragged import Ints, Ragged
from transpect.data.tokens.layout import text_digest
from transpect.text import load_tokenizer
from transpect.text.tokenizer import Tokenizer

AT_ONCE: Final = 2
"""How many parts wait for each process, so that none is idle and no more is held in memory."""


@dataclass(frozen=True, eq=False)
class Part:
    """Some documents as ids.

    Attributes:
        rows: a row a document.
        characters: [documents] of the texts.
        digests: of the texts, 8 bytes each.
    """

    rows: Ragged
    characters: Ints
    digests: bytes


def encode_part(tokenizer: Tokenizer, texts: list[str]) -> Part:
    """Texts as ids, without special tokens."""
    rows = Ragged.of(tokenizer.encode_batch(texts, parse_special=False))
    return Part(rows, np.array([len(text) for text in texts], np.int64), b"".join(map(text_digest, texts)))


def encoded_parts(tokenizer: Path, parts: Iterable[list[str]], workers: int) -> Iterator[Part]:
    """Each part of some texts as ids, in order.

    Args:
        tokenizer: its directory.
        parts: taken up when their turn comes.
        workers: processes; 1 works in this one.
    """
    if workers == 1:
        own = load_tokenizer(tokenizer)
        yield from (encode_part(own, part) for part in parts)
        return
    context = get_context("spawn")  # a fork would copy locks that the tokenizers' threads hold
    waiting: deque[Future[Part]] = deque()
    with ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(str(tokenizer),)) as pool:
        for part in parts:
            waiting.append(pool.submit(_encode, part))
            if len(waiting) >= AT_ONCE * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


_tokenizer: Tokenizer | None = None


def _begin(path: str) -> None:
    global _tokenizer  # noqa: PLW0603 # a process has one
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    _tokenizer = load_tokenizer(path)


def _encode(texts: list[str]) -> Part:
    assert _tokenizer is not None
    return encode_part(_tokenizer, texts)
