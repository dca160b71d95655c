"""Tell which tokens were replaced (Clark et al. 2020, "ELECTRA", §2).

A batch is one of masked tokens. A small generator fills the masks with tokens of its own, and the model says of each
token whether it stands in the text; so it learns from all tokens, not from the hidden ones alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np

from transpect.core.config import ModelConfig
from transpect.core.heads import Head, TokenClass, Transform
from transpect.data.collating import Example
from transpect.data.documents import Document, Segmenter
from transpect.data.draws import draws
from transpect.data.objectives.base import Encoded, Key, Needs, Objective, Task
from transpect.data.objectives.masked import Masked
from transpect.data.packing import Piece, Plan
from transpect.data.segmenters import SegmenterName
from transpect.text.tokenizer import Tokenizer


@final
@dataclass(frozen=True)
class Electra(Objective, kind="electra"):
    """Replaced-token detection; masks are drawn as by `Masked`, and all that is hidden becomes mask.

    The model's head becomes a discriminator's, `TokenClass` of one score behind a layer, where the recipe names no such
    head. Options of the generator are those of the loss (``train.loss: {kind: electra}``).

    Attributes:
        rate: of words to be hidden.
        whole_word: as of `Masked`.
        segmenter: as of `Masked`.
        ngrams: as of `Masked`.
        pack: as of `Masked`.
    """

    rate: float = 0.15
    whole_word: bool = True
    segmenter: SegmenterName | None = None
    ngrams: tuple[float, ...] = (1.0,)
    pack: bool = False

    needs: ClassVar[Needs] = Needs(
        "encoder", Masked.needs.roles, looks_back=False, heads=(TokenClass,), spells=False, one_process=True
    )
    loss: ClassVar[str] = "electra"

    def __post_init__(self) -> None:
        self._masked()

    @property
    def separates(self) -> bool:
        return self.pack

    def head(self, config: ModelConfig) -> Head:
        if isinstance(config.head, TokenClass) and config.head.n_classes == 1:
            return config.head
        return TokenClass(1, transform=Transform(act="gelu"), dropout=0.0)

    def build(self, tokenizer: Tokenizer, seq_len: int) -> ElectraTask:
        self._check_tokenizer(tokenizer, seq_len, least=1)
        return ElectraTask(self._masked().build(tokenizer, seq_len), tokenizer)

    def generation(self, tokenizer: Tokenizer) -> dict[str, int]:
        return self._masked().generation(tokenizer)

    def _masked(self) -> Masked:
        options = (self.whole_word, self.segmenter, self.ngrams)
        return Masked(self.rate, 1.0, 0.0, *options, pack=self.pack)


@final
class ElectraTask(Task):
    """Rows of masked tokens, each with a seed for what the generator draws in it."""

    def __init__(self, masked: Task, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer, masked.width)
        self._masked = masked

    def encode_batch(self, documents: Sequence[Document], segmenter: Segmenter | None) -> Encoded:
        return self._masked.encode_batch(documents, segmenter)

    def plan(self, encoded: Encoded, generator: np.random.Generator | None) -> Plan:
        return self._masked.plan(encoded, generator)

    def example(self, encoded: Encoded, pieces: Sequence[Piece], key: Key) -> Example:
        seed = int(draws("electra", *key).random() * 2**53)
        return replace(self._masked.example(encoded, pieces, key), noise=seed)
