"""What a recipe reads: its documents, parted into those to train and to evaluate on, and its tokenizer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from transpect.base.errors import ConfigError
from transpect.core.config import ModelConfig
from transpect.core.heads import Head, SequenceClass, TokenClass
from transpect.data.documents import Documents, TextsAlone
from transpect.data.split import split
from transpect.interop import load_generation
from transpect.interop.heads import has_family, head_of_kind
from transpect.text import Tokenizer, train_tokenizer
from transpect.text.train import resolve_kind
from transpect.train.model.vocabulary import extended, open_tokenizer
from transpect.train.parallel.tokenizers import made_once
from transpect.train.parallel.world import ALONE, World
from transpect.train.recipe import Recipe, TokenizerSpec

ENDLESS_TEXTS = 5_000
"""How many texts of an endless source a tokenizer is trained on where the recipe says nothing."""


@dataclass(frozen=True, eq=False)
class Material:
    """What a run reads, before its model is built.

    Attributes:
        recipe: with nothing left open.
        train: the documents to train on.
        valid: those to evaluate on, if any.
        tokenizer: trained or opened, with what the objective brings along.
    """

    recipe: Recipe
    train: Documents
    valid: Documents | None
    tokenizer: Tokenizer


def gathered(recipe: Recipe, tokenizer: Tokenizer | None = None, world: World = ALONE) -> Material:
    """Read what a recipe names, and settle what depends on that: its classes and head, the size of its vocabulary.

    Args:
        recipe: resolved or not.
        tokenizer: of a run that goes on; None trains or opens the recipe's own.
        world: the processes of which one makes the tokenizer.

    Raises:
        ConfigError: parts that do not fit each other.
        DataError: data that can't be read.
        TokenizerError: a tokenizer that can't be trained or opened.
    """
    train, valid = documents(recipe)
    recipe = settled(recipe, train, valid)
    texts = train if recipe.objective.needs.reads_target else TextsAlone(train)
    made = made_once(lambda: make_tokenizer(recipe.tokenizer, texts), world) if tokenizer is None else tokenizer
    dressed = recipe.objective.dressed(made)
    return Material(recipe.resolve(dressed), train, valid, dressed)


def settled(recipe: Recipe, train: Documents, valid: Documents | None) -> Recipe:
    """A recipe with what its objective takes from the training documents, and with the head that the objective needs.

    Where a share of the source is held out, the classes are those of the whole source: whether a rare one is met in
    training is chance then.

    Raises:
        ConfigError: a head that does not fit.
        DataError: documents that lack what the objective needs.
    """
    whole = [train, valid] if valid is not None and isinstance(recipe.data.valid, float) else [train]
    objective, config = recipe.objective.settled(*whole), recipe.model.config
    if recipe.model.path is not None:
        objective = objective.begun(partial(load_generation, recipe.model.path))
    model = replace(recipe.model, config=replace(config, head=_of_family(objective.head(config), config)))
    return replace(recipe, model=model, data=replace(recipe.data, objective=objective))


def _of_family(head: Head, config: ModelConfig) -> Head:
    """A head that an objective brings along, as the family of the model has it, so that what is saved is of the family
    too: its projection may have no bias, or read another vector."""
    if head is config.head or has_family(replace(config, head=head)):
        return head
    usual = head_of_kind(config, head.kind)
    if isinstance(usual, SequenceClass | TokenClass) and isinstance(head, SequenceClass | TokenClass):
        return replace(usual, n_classes=head.n_classes)
    return head


def make_tokenizer(spec: TokenizerSpec, documents: Documents) -> Tokenizer:
    """Open the tokenizer of a spec, or train it on documents, never on those held out.

    Raises:
        TokenizerError: it can't be opened or trained.
    """
    if spec.path is not None:
        return extended(open_tokenizer(spec.path), spec)
    assert spec.kind is not None
    limit = ENDLESS_TEXTS if spec.texts is None and documents.size is None else spec.texts
    texts = (
        text for document in islice(documents, limit) for text in (document.text, document.target) if text is not None
    )
    return train_tokenizer(
        resolve_kind(spec.kind, spec.options),
        texts,
        spec.vocab_size,
        special_tokens=spec.special_tokens,
        extra_special_tokens=spec.extra_special_tokens,
    )


def documents(recipe: Recipe) -> tuple[Documents, Documents | None]:
    """What a recipe trains on, and what it evaluates on, if anything.

    Raises:
        ConfigError: documents without end to evaluate on.
        DataError: data that can't be read.
    """
    train, wanted = recipe.data.train.documents(), recipe.data.valid
    if wanted is None:
        return train, None
    if isinstance(wanted, float):
        return split(train, wanted, recipe.valid_seed)
    valid = wanted.documents()
    if valid.size is None:
        raise ConfigError(
            "documents to evaluate on must have an end",
            value=wanted.kind,
            remedy="Say how many, e.g. data.valid.stories: 500.",
        )
    return train, valid
