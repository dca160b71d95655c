"""What every objective is: options that say what they need, and a task built from them that makes examples.

Axes: B batch, T query, S source.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, final

import numpy as np

from transpect.base.codec import Variant
from transpect.base.errors import ConfigError, DataError
from transpect.cache import check_memory
from transpect.core.config import ModelConfig
from transpect.core.heads import CausalLM, Head, MaskedLM
from transpect.core.visibility import All, SameSegment, Visibility
from transpect.data.batch import Batch
from transpect.data.collating import TOKENS, Example, Layout
from transpect.data.documents import Document, Documents, Segmenter
from transpect.data.packing import Piece, Plan
from transpect.data.ragged import Ragged
from transpect.text.tokenizer import Tokenizer

Generation = Mapping[str, int | list[int]]
"""Special ids by their names in ``generation_config.json``; several where any of them will do."""

Key = tuple[int | str, ...]
"""What tells a row from all others: seed, epoch, number."""


@dataclass(frozen=True)
class Remembers:
    """For rows that go on from batch to batch: how many columns a model remembers of what came before.

    Attributes:
        training: in training.
        evaluation: in evaluation.
    """

    training: int
    evaluation: int


@dataclass(frozen=True)
class Needs:
    """What an objective can't do without.

    Attributes:
        model: the kind of the model; several where any of them will do.
        roles: special tokens; of each tuple the tokenizer must have one.
        looks_back: the last tower must not see what it is to predict.
        sees_prefix: the last tower must see a prefix from both sides.
        heads: kinds of heads, of which the model must have one.
        spells: what is predicted spells each document once, so that it can be counted in bits a character.
        one_process: what is trained can't be spread over processes.
        reads_target: the target of a pair is a text, for a tokenizer to learn from; otherwise it is a name.
    """

    model: str | tuple[str, ...]
    roles: tuple[tuple[str, ...], ...]
    looks_back: bool
    sees_prefix: bool = False
    heads: tuple[type[Head], ...] = (CausalLM, MaskedLM)
    spells: bool = True
    one_process: bool = False
    reads_target: bool = True


class Objective(Variant):
    """What of a document is read and what is predicted; a kind owns its options."""

    needs: ClassVar[Needs]
    loss: ClassVar[str] = "cross_entropy"
    """The kind of ``train.loss`` that it is trained with where nothing else is said."""
    shown: ClassVar[int] = 0
    """How many documents of a row are shown with their labels before training: a template can be wrong unseen."""

    @property
    @abstractmethod
    def separates(self) -> bool:
        """Whether several documents share a row and must not see each other."""

    @property
    def remembers(self) -> Remembers | None:
        """Whether rows go on from batch to batch, and with how much memory; None is rows that stand alone."""
        return None

    @property
    def classes(self) -> tuple[str, ...]:
        """What the classes that it predicts are called; none where it predicts no classes."""
        return ()

    def settled(self, *documents: Documents) -> Objective:
        """The same with what it takes from documents before training, such as the names of classes."""
        return self

    def begun(self, generation: Callable[[], Mapping[str, Any]]) -> Objective:
        """The same for a model that exists, with what it is written with, so that it is trained as it is used.

        Args:
            generation: gives the entries of its ``generation_config.json``; not asked where all is said.
        """
        return self

    def head(self, config: ModelConfig) -> Head:
        """The head that a model for it ends with: the model's own, where that is of a kind that it needs.

        Raises:
            ConfigError: a head of that kind, but not for these classes.
        """
        return config.head

    def special_tokens(self, seq_len: int) -> tuple[str, ...]:
        """Special tokens without a role that a tokenizer should have which is trained for it."""
        return ()

    @abstractmethod
    def build(self, tokenizer: Tokenizer, seq_len: int) -> Task:
        """The maker of examples of at most ``seq_len`` tokens.

        Raises:
            ConfigError: the tokenizer lacks a special token, or ``seq_len`` is too small.
        """

    def dressed(self, tokenizer: Tokenizer) -> Tokenizer:
        """The tokenizer with what the objective itself brings along, such as a chat template."""
        return tokenizer

    @abstractmethod
    def generation(self, tokenizer: Tokenizer) -> Generation:
        """The special ids that whoever writes with the trained model must use, by their names in
        ``generation_config.json``."""

    @final
    def adapt(self, config: ModelConfig) -> ModelConfig:
        """The config with which to train: where documents share a row, only tokens of the same document see each other.

        Visibility has no weights, so the trained weights are those of ``config`` itself; save them with that.
        """
        if not self.separates:
            return config
        name = list(config.towers)[-1]
        stack = config.last.map_visibility(_within_segments)
        return replace(config, encoder=stack) if name == "encoder" else replace(config, decoder=stack)

    @final
    def check(self, config: ModelConfig, tokenizer: Tokenizer, seq_len: int) -> None:
        """Refuse what does not go together.

        Raises:
            ConfigError: another kind of model, a head that predicts no tokens, a vocabulary smaller than the
                tokenizer's, a context shorter than ``seq_len``, packed documents that would feel each other,
                positions with which a memory can't go on, or what `build` refuses.
        """
        needs = self.needs
        models = (needs.model,) if isinstance(needs.model, str) else needs.model
        if config.kind not in models:
            raise ConfigError(
                f"the {self.kind} objective needs a model of kind {' or '.join(models)}",
                value=config.kind,
                remedy="Choose another preset or another objective.",
            )
        if not isinstance(config.head, needs.heads):
            kinds = " or ".join(head.kind for head in needs.heads)
            raise ConfigError(
                f"the {self.kind} objective needs the head {kinds}",
                value=config.head.kind,
                remedy=f"Set model.head to {kinds}.",
            )
        self.head(config)
        if needs.looks_back and config.last.looks_ahead(prefix=False):
            raise ConfigError(
                f"the {self.kind} objective needs a decoder that sees only the past, or it reads the answer",
                value=config.last.visibility.kind,
                remedy="Set model.decoder.visibility to causal.",
            )
        if needs.sees_prefix and not config.last.looks_ahead(prefix=True):
            raise ConfigError(
                f"the {self.kind} objective needs a decoder that sees a prefix from both sides",
                value=config.last.visibility.kind,
                remedy="Set model.decoder.visibility to prefix_lm, or take the objective causal.",
            )
        if config.vocab_size < tokenizer.vocab_size:
            raise ConfigError(
                f"the model must have a row for each of the tokenizer's {tokenizer.vocab_size} ids",
                value=config.vocab_size,
                remedy=f"Set model.vocab_size to {tokenizer.vocab_size}.",
            )
        if seq_len > config.context_length:
            raise ConfigError(
                f"seq_len must not be longer than the model's context of {config.context_length}",
                value=seq_len,
                remedy="Lower data.seq_len, or raise model.context_length.",
            )
        self.check_sharing(config)
        if self.remembers is not None:
            check_memory(config)
        self.build(tokenizer, seq_len)

    @final
    def check_sharing(self, config: ModelConfig) -> None:
        """Refuse a model for which documents that share a row can't be kept apart.

        Raises:
            ConfigError: positions or visibility that depend on the length of a row, or a kernel that can't hide one
                document from another.
        """
        if not self.separates:
            return
        if config.last.reads_length:
            raise ConfigError(
                "positions or visibility that depend on a sequence's length take a row for one sequence, so documents "
                "that share one would feel each other",
                value=f"positions {config.last.positions.kind}, visibility {config.last.visibility.kind}",
                remedy="Set data.objective.pack: false, or choose others, e.g. the RoPE scaling yarn.",
            )
        try:
            self.adapt(config)
        except ConfigError as error:
            alone = "pack" if self.remembers is None else "separate"
            raise ConfigError(
                f"documents that share a row must not see each other, which this model can't hide: {error.rule}",
                value=error.value,
                remedy=f"Set data.objective.{alone}: false, or choose another kernel.",
            ) from error

    @final
    def _check_tokenizer(self, tokenizer: Tokenizer, seq_len: int, least: int) -> None:
        for roles in self.needs.roles:
            if all(tokenizer.role_id(role) is None for role in roles):
                raise ConfigError(
                    f"the {self.kind} objective needs a tokenizer with the special token {' or '.join(roles)}",
                    value=dict(tokenizer.special_tokens),
                    remedy=f"Name one, e.g. tokenizer.special_tokens: {{{roles[0]}: <{roles[0]}>}}.",
                )
        if seq_len < least:
            raise ConfigError(f"seq_len must be at least {least} for the {self.kind} objective", value=seq_len)


@dataclass(frozen=True, eq=False)
class Encoded:
    """Documents as ids.

    Attributes:
        streams: a row a document in each; what they hold is the task's affair.
        characters: how many characters of text they predict.
    """

    streams: tuple[Ragged, ...]
    characters: int


class Task(ABC):
    """An objective built for a tokenizer and a length.

    Attributes:
        pad_id: what fills ids; padding is told by position −1, so it may be any id.
        width: T of every batch; None is the longest row.
        layout: how examples become a batch.
    """

    pad_id: Final[int]
    width: Final[int | None]
    layout: Final[Layout]

    def __init__(self, tokenizer: Tokenizer, width: int | None, layout: Layout = TOKENS) -> None:
        self.pad_id, self.width, self.layout = filler(tokenizer), width, layout

    @final
    def encode(self, documents: Iterable[Document], segmenter: Segmenter | None) -> Encoded:
        """Documents as ids, a few at a time, so that a long row of them is never held as Python numbers.

        Raises:
            DataError: a document that the objective can't use, with its file and line.
        """
        parts = [self.encode_batch(batch, segmenter) for batch in _in_batches(documents)]
        if not parts:
            raise DataError("there must be at least one document")
        streams = zip(*(part.streams for part in parts), strict=True)
        return Encoded(tuple(map(Ragged.join, streams)), sum(part.characters for part in parts))

    @abstractmethod
    def encode_batch(self, documents: Sequence[Document], segmenter: Segmenter | None) -> Encoded:
        """Some documents as ids."""

    @abstractmethod
    def plan(self, encoded: Encoded, generator: np.random.Generator | None) -> Plan:
        """The rows of one pass in the generator's random order, or in the order of the documents."""

    @abstractmethod
    def example(self, encoded: Encoded, pieces: Sequence[Piece], key: Key) -> Example:
        """One row of a plan; what is drawn for it is a function of ``key``."""

    @final
    def collate(self, examples: Sequence[Example]) -> Batch:
        """Rows padded on the right to one width."""
        return self.layout.batch(examples, self.width, self.pad_id)


def filler(tokenizer: Tokenizer) -> int:
    """The id that fills a batch: the tokenizer's pad, else its eos, else 0."""
    return next(found for found in (tokenizer.pad_id, tokenizer.eos_id, 0) if found is not None)


def _in_batches(documents: Iterable[Document], size: int = 1024) -> Iterator[list[Document]]:
    batch: list[Document] = []
    for document in documents:
        batch.append(document)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _within_segments(rule: Visibility) -> Visibility:
    rules = rule.rules if isinstance(rule, All) else (rule,)
    return rule if SameSegment() in rules else All((*rules, SameSegment()))
