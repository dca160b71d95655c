"""How good a model is on a text: nats per token, perplexity, bits per character.

bits per character = total nats / ln 2 / characters of the text. The total counts every predicted token: each token of
a document, its first one from the start token, and its end token, so the end of a document is paid for although it
has no character. Without that, a model would be charged for less than it takes to transmit the documents.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from transpect.base.errors import ConfigError, DataError
from transpect.core.config import ModelConfig
from transpect.core.model import Transformer
from transpect.data.batch import Batch
from transpect.data.documents import Documents
from transpect.data.loader import Batches
from transpect.data.objectives import Causal, Masked, Objective, Recurrent, Seq2Seq
from transpect.interop.blank import blank
from transpect.text.tokenizer import Tokenizer
from transpect.train.criteria import CROSS_ENTROPY, Criterion
from transpect.train.criteria.base import LOSS, Tally, mean_loss, total_counts
from transpect.train.loss import check_head
from transpect.train.memories import Memories
from transpect.train.parallel.world import ALONE, World
from transpect.train.precision import Precision, arithmetic
from transpect.train.randomness import unchanged_randomness

OBJECTIVES: dict[str, type[Objective]] = {"decoder": Causal, "encoder": Masked, "encoder-decoder": Seq2Seq}
"""What a kind of model is trained and measured with where nothing else is said."""


@dataclass(frozen=True)
class Evaluation:
    """What a pass over some text gave.

    Attributes:
        total_nats: Σ −ln p over all predicted tokens.
        n_tokens: how many tokens were predicted, end tokens included.
        n_characters: how many characters of text they spell; None where the tokens do not spell the text once, as
            when only masked ones are predicted.
        measures: what else the criterion says, by name.
        unit: what ``n_tokens`` counts; where it is not tokens, ``total_nats`` is the summed loss, whatever it is.
    """

    total_nats: float
    n_tokens: int
    n_characters: int | None = None
    measures: Mapping[str, float] = field(default_factory=dict)
    unit: str = "tokens"

    @property
    def loss(self) -> float:
        """Nats per token, or what the criterion makes small."""
        return self.total_nats / self.n_tokens

    @property
    def perplexity(self) -> float:
        """exp(loss)."""
        return math.exp(self.loss) if self.loss < 700.0 else math.inf

    @property
    def bits_per_character(self) -> float | None:
        """total nats / ln 2 / characters, end tokens paid for."""
        return self.total_nats / math.log(2.0) / self.n_characters if self.n_characters else None

    def as_dict(self) -> dict[str, float | int]:
        """The measures by name, those that mean something."""
        return {
            **self.means(),
            f"n_{self.unit}": self.n_tokens,
            **({} if self.n_characters is None else {"n_characters": self.n_characters}),
        }

    def means(self) -> dict[str, float]:
        """`as_dict` without the counts."""
        bits = self.bits_per_character
        return {
            "loss": self.loss,
            **({"perplexity": self.perplexity} if self.unit == "tokens" else {}),
            **({} if bits is None else {"bits_per_character": bits}),
            **self.measures,
        }


@torch.no_grad()
def evaluate(
    model: Transformer,
    batches: Iterable[Batch],
    *,
    n_characters: int | None = None,
    criterion: Criterion = CROSS_ENTROPY,
    precision: Precision = "fp32",
    world: World = ALONE,
) -> Evaluation:
    """Measure a model on batches, without dropout and label smoothing.

    Afterwards each part of the model is in the mode in which it was, and no generator has moved.

    Args:
        batches: one pass, e.g. ``Batches.once()``.
        n_characters: the characters of the text that they predict.
        criterion: what is measured.
        precision: of the arithmetic; batches are summed in float64.
        world: the processes that share the batches out; each is given all of them.

    Raises:
        DataError: no labels at all.
    """
    device = model.device
    losses: list[torch.Tensor] = []  # [parts] each
    counts: list[tuple[int, ...]] = []
    tally, memories = Tally(), Memories()

    def measure(batch: Batch, weight: int) -> Tensor:
        sums = criterion.evaluation(model, batch.to(device), memories.of(batch)).times(weight)
        losses.append(torch.stack(sums.losses))
        tally.add(sums)
        return losses[-1]

    with evaluating(model), unchanged_randomness(device), arithmetic(precision, device), world.through() as through:
        for batch, weight in world.deal(batches, lambda batch: any(criterion.counts(batch))):
            through(partial(measure, weight=weight), batch)
            counts.append(tuple(weight * count for count in criterion.counts(batch)))
    totals = world.total_counts(total_counts(counts))
    if not any(totals[:1]):
        raise DataError("there must be at least one token to predict", remedy="Evaluate on another text.")
    own = {LOSS: torch.stack(losses).cpu().double().sum(0)} if losses else {}
    sums = world.totals({**own, **tally.measures})
    parts = sums.pop(LOSS)  # [parts]
    measures = {name: float(value) for name, value in criterion.summary(sums, totals).items()}
    total = float(parts[0] if len(parts) == 1 else mean_loss(parts.unbind(), totals) * totals[0])
    return Evaluation(total, totals[0], n_characters, measures, criterion.unit)


def evaluate_pass(
    model: Transformer,
    batches: Batches,
    objective: Objective,
    *,
    criterion: Criterion = CROSS_ENTROPY,
    precision: Precision = "fp32",
    world: World = ALONE,
) -> Evaluation:
    """`evaluate` one pass of a loader; its characters count where the objective predicts every token."""
    characters = batches.n_characters if objective.needs.spells else None
    return evaluate(
        model, batches.once(), n_characters=characters, criterion=criterion, precision=precision, world=world
    )


def evaluate_documents(
    model: Transformer,
    tokenizer: Tokenizer,
    documents: Documents,
    *,
    objective: Objective | None = None,
    batch_size: int | None = None,
    seq_len: int | None = None,
    memory: int | None = None,
    criterion: Criterion = CROSS_ENTROPY,
    generation: Mapping[str, Any] | None = None,
) -> Evaluation:
    """Measure a finished model on documents.

    Args:
        documents: of a source, ``source.documents()``.
        objective: None is next-token prediction for a decoder, masked tokens for an encoder, sequence to sequence for
            an encoder–decoder; each document has a row of its own where a model can't keep several apart in one.
        batch_size: rows at a time; None is 16, or 1 where rows go on from batch to batch.
        seq_len: the longest row; None is the model's context.
        memory: read a text in segments of ``seq_len``, with a memory of so many tokens before each (`Recurrent`); None
            is as the objective says.
        criterion: what is measured.
        generation: entries of its ``generation_config.json``, which tell what a decoder begins with.

    Raises:
        ConfigError: a model that does not fit the objective, the memory or the tokenizer, or documents without end.
        DataError: documents that the objective can't use.
    """
    if objective is None:
        check_head(model)
    length = model.config.context_length if seq_len is None else seq_len
    chosen = (_usual(model.config) if objective is None else objective).begun(lambda: generation or {})
    chosen = chosen if memory is None else remembering(chosen, memory)
    try:
        chosen.check(model.config, tokenizer, length)
    except ConfigError as error:  # whose remedies are for a recipe: of a finished model nothing can be set
        error.remedy = _remedy(model, tokenizer, length)
        raise
    rows = rows_at_once(chosen, 16) if batch_size is None else batch_size
    batches = Batches(documents, chosen, tokenizer, batch_size=rows, seq_len=length)
    return evaluate_pass(adapted(model, chosen), batches, chosen, criterion=criterion)


def rows_at_once(objective: Objective, usual: int) -> int:
    """How many rows an evaluation reads side by side where nobody says: as many as is usual; but one where rows go on
    from batch to batch, since each further lane would begin without memory."""
    return usual if objective.remembers is None else 1


def remembering(objective: Objective, memory: int) -> Recurrent:
    """An objective with a memory of so many tokens in evaluation; documents see each other as they did.

    Raises:
        ConfigError: it does not predict each next token.
    """
    if isinstance(objective, Recurrent):
        return replace(objective, eval_memory=memory)
    if isinstance(objective, Causal):
        return Recurrent(memory, separate=objective.separate)
    raise ConfigError(
        "a memory of earlier segments is for the prediction of each next token",
        value=f"objective {objective.kind}",
        remedy="Leave the memory out.",
    )


def _usual(config: ModelConfig) -> Objective:
    """Of `OBJECTIVES`; the rows of documents alone and of documents together give the same loss."""
    usual = OBJECTIVES[config.kind]()
    try:
        usual.check_sharing(config)
    except ConfigError:
        assert isinstance(usual, Causal)
        return replace(usual, pack=False)
    return usual


def _remedy(model: Transformer, tokenizer: Tokenizer, length: int) -> str:
    if model.config.vocab_size < tokenizer.vocab_size:
        return (
            "The tokenizer is another model's, or has tokens that were added to it alone: give the model its own, "
            f"of at most {model.config.vocab_size} ids."
        )
    if length > model.config.context_length:
        return f"Lower seq_len to {model.config.context_length}."
    return "Evaluate a model that fits the objective, or choose an objective that fits the model."


def adapted(model: Transformer, objective: Objective) -> Transformer:
    """A model with the same weights (the same storage) whose visibility suits the objective's rows."""
    config = objective.adapt(model.config)
    if config == model.config:
        return model
    twin = blank(config)
    twin.load_state_dict(model.state_dict(), assign=True)
    return twin.train(model.training)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Dropout off, and afterwards every module in its own former mode, also after an error."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
