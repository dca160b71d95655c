"""How a model is decoded where nobody says otherwise: what a run writes to its ``generation_config.json``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from transpect.base.codec import did_you_mean
from transpect.base.errors import ConfigError, GenerationError
from transpect.decode import GenerationParams
from transpect.decode.defaults import ENTRIES, OF_SEARCHES, Defaults


@dataclass(frozen=True)
class GenerationSpec:
    """The section ``generation`` of a recipe.

    Attributes:
        entries: of the file, by the names that ``transformers`` has for them (``num_beams``, ``no_repeat_ngram_size``,
            ``do_sample``, ``top_p``, …); special ids are the objective's. They stand over those of a checkpoint that a
            run begins with.

    Raises:
        ConfigError: an entry that decoding does not go by, or a value that it can't have.
    """

    entries: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.entries:
            if name not in ENTRIES:
                near = did_you_mean(name, ENTRIES)
                remedy = f"{near} Known keys: {', '.join(sorted(ENTRIES))}.".strip()
                raise _fault(f"generation has no key {name!r}", remedy)
        try:
            Defaults.read(self.entries)
            self._check_each()
        except GenerationError as error:
            raise _fault(error.rule, error.remedy, error.value) from None

    def _check_each(self) -> None:
        """What means nothing by itself, but will when a caller asks for the rest: searches, sampling."""
        given = {name: self.entries[name] for name in OF_SEARCHES & self.entries.keys()}
        groups = {"num_beam_groups": 2} if "diversity_penalty" in given else {}
        GenerationParams().override({"num_beams": 2, **groups, **given})
        if "temperature" in self.entries:
            GenerationParams(temperature=self.entries["temperature"])


def _fault(rule: str, remedy: str, value: object = None) -> ConfigError:
    error = ConfigError(rule, value=value, remedy=remedy)
    error.path = ("generation",)
    return error
