"""Ways to find the tokens of an output, and which of them a caller's options ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from transpect.base.errors import GenerationError
from transpect.decode.strategies.base import Strategy
from transpect.decode.strategies.beam import BeamSearch, DiverseBeamSearch
from transpect.decode.strategies.best_of import BestOf
from transpect.decode.strategies.contrastive import ContrastiveSearch
from transpect.decode.strategies.draft_model import DraftModel
from transpect.decode.strategies.early_exit import EarlyExit
from transpect.decode.strategies.prompt_lookup import PromptLookup
from transpect.decode.strategies.sample import Sample

__all__ = [
    "OPTIONS",
    "STRATEGIES",
    "BeamSearch",
    "BestOf",
    "ContrastiveSearch",
    "DiverseBeamSearch",
    "DraftModel",
    "EarlyExit",
    "PromptLookup",
    "Sample",
    "Strategy",
    "asked_for",
]

STRATEGIES: tuple[type[Strategy], ...] = (
    Sample,
    BeamSearch,
    DiverseBeamSearch,
    ContrastiveSearch,
    BestOf,
    PromptLookup,
    DraftModel,
    EarlyExit,
)


def _options(kind: type[Strategy]) -> set[str]:
    return {f.name for f in fields(kind)}  # type: ignore[arg-type] # every strategy is a dataclass


OPTIONS = frozenset(name for kind in STRATEGIES for name in _options(kind))
"""The names of the options of all strategies."""


def asked_for(options: Mapping[str, Any], present: Strategy) -> Strategy:
    """The strategy that options by name ask for, where ``present`` was there before.

    The present one goes on where it has all that is asked for. Else the option that chooses a strategy
    (`Strategy.trigger`) chooses it. Options that are not named stay as the present one has them. None, or a trigger's
    value that means `off`, takes the present strategy away where it is one of its own. That nothing is looked up in the
    prompt leaves other strategies as they are, which don't look there.

    Args:
        options: names of `OPTIONS`.
        present: what there is.

    Raises:
        GenerationError: options that no strategy has together, or without the one that chooses theirs.
    """
    triggers = {kind.trigger: kind for kind in STRATEGIES if kind.trigger}
    off = {
        name
        for name, value in options.items()
        if value is None or (name in triggers and value in triggers[name].off and not isinstance(value, bool))
    }
    asked = {name: value for name, value in options.items() if name not in off}
    if _options(type(present)) & off & triggers.keys():
        present = Sample()
    if not asked:
        return present
    chosen = [triggers[name] for name in asked if name in triggers]
    if asked.get(PromptLookup.trigger) == 0 and ({*chosen, type(present)} - {PromptLookup, Sample}):
        return asked_for({name: value for name, value in options.items() if name != PromptLookup.trigger}, present)
    fitting = [kind for kind in (type(present), *chosen) if _options(kind) >= set(asked)]
    if not fitting:
        homes = [kind.trigger for kind in STRATEGIES if not chosen and set(asked) & _options(kind)]
        raise GenerationError(
            "options of decoding must belong to one strategy",
            value=", ".join(f"{name}={value!r}" for name, value in asked.items()),
            remedy=f"Pass {' or '.join(homes)} with it." if homes else "Leave some of them out.",
        )
    kept = {name: getattr(present, name) for name in _options(type(present)) & _options(fitting[0]) - off}
    return fitting[0](**{**kept, **asked})
