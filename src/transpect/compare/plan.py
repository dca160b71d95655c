"""Everything that a comparison will do, built and tried before the first step of training."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch

from transpect.base.codec import Data, KeyPath, load_yaml, to_data
from transpect.base.errors import ConfigError, TranspectError
from transpect.compare.parameters import count_parameters, matched
from transpect.compare.rows import Rows, cut_rows, only_trained
from transpect.compare.spec import EVALUATE, Spec, Variant, read_spec, variants_of
from transpect.core.config import ModelConfig, override
from transpect.core.model import Transformer
from transpect.data.batch import Batch
from transpect.text.tokenizer import Tokenizer
from transpect.train.material import documents, make_tokenizer
from transpect.train.reading import parse_recipe
from transpect.train.recipe import ModelSpec, Recipe, recipe_data

SECTION = "compare"
FREE = ("seed", "threads", "device", "eval_every", "log_every", "save_every")
"""Keys of ``train`` that do not make another training of it, or that a comparison sets itself."""


@dataclass(frozen=True)
class Training:
    """One recipe, to be trained with each seed; several variants may share it.

    Attributes:
        name: of the first variant that is trained so.
        recipe: resolved, with the first seed.
        key: a digest of the recipe.
    """

    name: str
    recipe: Recipe
    key: str

    @property
    def folder(self) -> str:
        """A directory name: legible, and another one for another recipe."""
        return f"{re.sub(r'[^A-Za-z0-9._-]+', '-', self.name).strip('-.')[:40] or 'variant'}-{self.key}"


@dataclass(frozen=True)
class Entry:
    """A variant, ready to run.

    Attributes:
        variant: what was asked for.
        training: how it is trained; None where it can't be built.
        config: the model that is evaluated.
        n_parameters: of it.
        d_ff: where equal parameters were asked for and its own were not: the width that made them so.
        refused: for each length where it can't be evaluated, why.
    """

    variant: Variant
    training: Training | None
    config: ModelConfig | None
    n_parameters: int = 0
    d_ff: int | None = None
    refused: Mapping[int, str] = field(default_factory=dict)

    @property
    def evaluation(self) -> str:
        """A digest of what is evaluated."""
        return digest(to_data(self.config))


@dataclass(frozen=True)
class Plan:
    """A comparison that can be run.

    Attributes:
        spec: what was asked for.
        entries: the variants, in their order.
        recipe: the one that they are changes of, resolved.
        part: L, the training length, in tokens.
    """

    spec: Spec
    entries: tuple[Entry, ...]
    recipe: Recipe
    part: int

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of each training."""
        first = self.recipe.train.seed
        return tuple(range(first, first + self.spec.seeds))

    @property
    def trainings(self) -> tuple[Training, ...]:
        """Each once, by the name of the first variant that is trained so."""
        found: dict[str, Training] = {}
        for entry in self.entries:
            if entry.training is not None:
                found.setdefault(entry.training.key, entry.training)
        return tuple(found.values())


def load_comparison(
    path: str | Path,
    overrides: Iterable[tuple[str, Any]] = (),
    data: str | Path | None = None,
    *,
    vary: Iterable[str] = (),
    **options: Any,
) -> Plan:
    """Read a recipe file with a ``compare`` section, or compare any recipe by ``vary``.

    Args:
        path: the YAML file.
        overrides: dotted keys of the recipe, as for `transpect.train.load_recipe`.
        data: train on this instead, and evaluate on a part of it that is held out.
        vary: ``KEY=VALUE,VALUE,…`` each; instead of the section's variants.
        options: ``lengths``, ``seeds``, ``equal``, ``tokens`` over those of the section; None leaves them.

    Raises:
        ConfigError: what can't be compared, with file and line or the option that says it.
        DataError: data that can't be read, or too little of it.
    """
    content, lines = load_yaml(path)
    return parse_comparison(content, overrides, data, vary=vary, file=path, lines=lines, **options)


def parse_comparison(
    content: Mapping[str, Any],
    overrides: Iterable[tuple[str, Any]] = (),
    data: str | Path | None = None,
    *,
    vary: Iterable[str] = (),
    file: str | Path | None = None,
    lines: Mapping[KeyPath, int] | None = None,
    **options: Any,
) -> Plan:
    """A comparison from plain data; see `load_comparison`."""
    places, axes, changes = lines or {}, list(vary), list(overrides)
    body = {name: value for name, value in content.items() if name != SECTION}
    try:
        spec = read_spec(content.get(SECTION)).over(**options)
        variants = variants_of(spec, axes)
    except ConfigError as error:
        raise _placed(error, file, places) from None
    base = parse_recipe(body, changes, data, file=file, lines=places)
    recipes: dict[str, Recipe] = {}
    failed: dict[str, TranspectError] = {}
    for variant in variants:
        try:
            recipes[variant.name] = parse_recipe(body, [*changes, *variant.changes], data)
        except TranspectError as error:
            failed[variant.name] = error
    for variant in variants:
        if variant.name in failed and _is_bad(variant, variants, failed, named=not axes):
            raise _of_variant(failed[variant.name], variant, file, places, named=not axes)
        if variant.name in recipes:
            _check_evaluation(variant, recipes[variant.name].model.config, file, places)
    return _Planner(spec, base, recipes, failed).plan(variants)


class _Planner:
    """Builds each variant once, and lets it read a row of each length."""

    def __init__(self, spec: Spec, base: Recipe, recipes: dict[str, Recipe], failed: dict[str, TranspectError]) -> None:
        self._spec, self._recipes, self._failed = spec, recipes, failed
        _check_base(base)
        self._tokenizer = make_tokenizer(base.tokenizer, documents(base)[0])
        self._base = settled(base, self._tokenizer)
        lengths = sorted({1, *spec.lengths})
        self._rows = cut_rows(self._base, self._tokenizer, lengths, spec.tokens)
        self._target: int | None = None

    def plan(self, variants: Iterable[Variant]) -> Plan:
        entries = tuple(map(self._entry, variants))
        if all(entry.training is None for entry in entries):
            raise next(iter(self._failed.values()))
        return Plan(self._spec, entries, self._base, self._base.seq_len)

    def _entry(self, variant: Variant) -> Entry:
        try:
            if variant.name in self._failed:
                raise self._failed[variant.name]
            recipe = settled(self._recipes[variant.name], self._tokenizer)
            self._check_equal_data(variant, recipe)
            own = recipe.model.config
            if self._spec.equal is not None and self._target is not None:
                recipe = replace(recipe, model=ModelSpec(matched(own, self._target), sized=True))
            config = recipe.model.config
            recipe.objective.check(config, self._tokenizer, recipe.seq_len)
            trained = Transformer(recipe.objective.adapt(config), seed=recipe.train.seed)
            read(trained, self._rows[1])
        except TranspectError as error:
            self._failed[variant.name] = error
            return Entry(variant, None, None, refused=dict.fromkeys(self._spec.lengths, reason(error)))
        n_parameters = count_parameters(config)
        if self._target is None:
            self._target = n_parameters
        changed = config.last.ffn.width(config.d_model) if config != own else None
        evaluated, refused = self._evaluated(variant, config, trained)
        return Entry(
            variant, Training(variant.name, recipe, training_key(recipe)), evaluated, n_parameters, changed, refused
        )

    def _evaluated(
        self, variant: Variant, config: ModelConfig, trained: Transformer
    ) -> tuple[ModelConfig | None, dict[int, str]]:
        """The config to evaluate, and where it can't be."""
        try:
            evaluated = later(variant, config)
            if only_trained(self._spec.lengths):  # then documents may share a row
                self._base.objective.check(evaluated, self._tokenizer, self._base.seq_len)
                evaluated = self._base.objective.adapt(evaluated)
            model = with_weights(evaluated, trained.state_dict())
        except TranspectError as error:
            return None, dict.fromkeys(self._spec.lengths, reason(error))
        refused = {}
        for n in self._spec.lengths:
            try:
                read(model, self._rows[n])
            except TranspectError as error:
                refused[n] = reason(error)
        return evaluated, refused

    def _check_equal_data(self, variant: Variant, recipe: Recipe) -> None:
        """What is varied below ``model`` may still change what is read: its context is the rows' default length."""
        for what in ("seq_len", "objective"):
            mine, theirs = getattr(recipe, what), getattr(self._base, what)
            if mine != theirs:
                raise ConfigError(
                    f"all variants must read the same tokens, so {what} must be {theirs}",
                    value=mine,
                    remedy=f"Set data.{what} in the recipe, or compare models of one kind.",
                )


def settled(recipe: Recipe, tokenizer: Tokenizer) -> Recipe:
    """The recipe resolved, with one share of the documents held out whatever seed it is trained with: so that all seeds
    have one tokenizer and are measured on one text."""
    full = recipe.resolve(tokenizer)
    if not isinstance(full.data.valid, float):
        return full
    return replace(full, data=replace(full.data, valid_seed=full.valid_seed))


def later(variant: Variant, config: ModelConfig) -> ModelConfig:
    """A model that was trained, as the variant has it for evaluation.

    Raises:
        ConfigError: it can't be so.
    """
    return override(config, [(key.removeprefix("model."), value) for key, value in variant.evaluate])


def with_weights(config: ModelConfig, weights: Mapping[str, torch.Tensor]) -> Transformer:
    """The model of a config with the weights of another.

    Raises:
        ConfigError: it can't be built, or has other weights.
    """
    model = Transformer(config, seed=None)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise ConfigError(
            "what is changed for evaluation only may not change the weights",
            value=" ".join(str(error).split())[:120],
            remedy="Change it for training too: write it beside `evaluate`.",
        ) from error
    return model


@torch.no_grad()
def read(model: Transformer, rows: Rows) -> None:
    """Let a model read one row.

    Raises:
        TranspectError: it can't.
    """
    batch: Batch = next(rows.batches(1))
    model.eval().hidden(batch.ids, tags=batch.tags)


def reason(error: TranspectError) -> str:
    """An error as a footnote: the rule and the value, without place and remedy."""
    return error.rule if error.value is None else f"{error.rule} (got {error.value})"


def training_key(recipe: Recipe) -> str:
    """A digest of what makes a resolved recipe this training and no other."""
    return digest(essence(recipe))


def essence(recipe: Recipe) -> Data:
    """A recipe as data, without its seed, threads and logging."""
    data = recipe_data(recipe)
    train = {key: value for key, value in data["train"].items() if key not in FREE}
    return {**data, "train": train, "logging": None}


def digest(data: Any) -> str:
    """Eight hexadecimal digits of plain data."""
    return blake2b(json.dumps(data, sort_keys=True).encode(), digest_size=4).hexdigest()


def _check_base(recipe: Recipe) -> None:
    if recipe.model.config.kind == "encoder-decoder":
        raise ConfigError(
            "a comparison evaluates rows of one text, which an encoder–decoder has two of",
            value=recipe.model.config.kind,
            remedy="Compare decoders or encoders.",
        )
    if recipe.objective.remembers is not None:
        raise ConfigError(
            "a comparison evaluates rows that stand alone, and those of this objective go on from each other",
            value=recipe.objective.kind,
            remedy="Set data.objective.kind: causal.",
        )
    if recipe.train.patience is not None:
        raise ConfigError(
            "variants are trained for equally many steps, so none may stop early",
            value=f"train.patience={recipe.train.patience}",
            remedy="Set train.patience: null.",
        )


def _is_bad(
    variant: Variant, variants: Iterable[Variant], failed: Mapping[str, TranspectError], *, named: bool
) -> bool:
    """Whether what fails is a slip, not a combination: a variant by name, or a value that fails with all others."""
    return named or any(
        all(other.name in failed for other in variants if change in other.changes) for change in variant.changes
    )


def _of_variant(
    error: TranspectError, variant: Variant, file: str | Path | None, lines: Mapping[KeyPath, int], *, named: bool
) -> TranspectError:
    """The error, placed where the variant is written."""
    error.rule = f"variant {variant.name!r}: {error.rule}"
    option = str(error.file or "").removeprefix("option --")
    if not named:
        error.file = f"option --vary {option}" if option else None
        return error
    error.file, error.path = None, (SECTION, "variants", variant.name, option)
    return _placed(error, file, lines)


def _check_evaluation(
    variant: Variant, config: ModelConfig, file: str | Path | None, lines: Mapping[KeyPath, int]
) -> None:
    try:
        later(variant, config)
    except TranspectError as error:
        error.rule = f"variant {variant.name!r}: {error.rule}"
        error.file, error.path = None, (SECTION, "variants", variant.name, EVALUATE)
        raise _placed(error, file, lines) from None


def _placed(error: TranspectError, file: str | Path | None, lines: Mapping[KeyPath, int]) -> TranspectError:
    """The error with the file, and the line of the nearest key above its path."""
    if file is None or error.file is not None or error.path[:1] != (SECTION,):
        return error
    path = error.path
    while path and path not in lines:
        path = path[:-1]
    error.file, error.line = file, lines.get(path)
    return error
