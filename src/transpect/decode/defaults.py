"""``generation_config.json``: how a checkpoint wants to be decoded, under what the caller asks for.

The file is Hugging Face's, and is read as ``transformers`` (5) reads it: without ``do_sample: true`` it means greedy
decoding; with it, ``top_k`` is 50 where the file does not say it, and ``top_k: 0`` means that there is no such filter.

A caller who samples from a checkpoint whose file does not (ours never do) gets the filters that the file names, and no
others: that 50 is a part of what ``do_sample: true`` means.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from transpect.base.errors import ContextLengthError, GenerationError
from transpect.decode.params import GenerationParams

TOP_K: Final = 50
"""What ``do_sample: true`` means where the file has no ``top_k``."""

SAMPLING = ("top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff", "seed")
"""Who asks for one of these wants to sample."""

_TAKEN: Mapping[str, str] = {
    **{
        name: name
        for name in (
            *("max_new_tokens", "min_new_tokens", "min_length", "top_p", "min_p", "typical_p", "epsilon_cutoff"),
            *("eta_cutoff", "repetition_penalty", "encoder_repetition_penalty", "no_repeat_ngram_size"),
            *("encoder_no_repeat_ngram_size", "begin_suppress_tokens", "forced_eos_token_id", "sequence_bias"),
            *("exponential_decay_length_penalty", "guidance_scale"),
        )
    },
    "bad_words_ids": "bad_words",
    "suppress_tokens": "banned",
}
"""Entries that are parameters here, and as which."""

_OF_BEAMS = ("num_beams", "length_penalty", "early_stopping", "renormalize_logits")
"""Options of beam search, which say nothing without it."""

ENTRIES = frozenset(
    {*_TAKEN, *_OF_BEAMS, "do_sample", "temperature", "top_k", "max_length", "penalty_alpha"}
    | {"num_beam_groups", "diversity_penalty"}
)
"""All that `Defaults.read` goes by, but for special ids."""

OF_SEARCHES = frozenset({*_OF_BEAMS, "num_beam_groups", "diversity_penalty"})
"""Options of beam search and of diverse beam search."""

_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "constraints": ([],),
    "dola_layers": (),
    "force_words_ids": ([],),
    "forced_bos_token_id": (),
    "max_time": (),
    "num_return_sequences": (1,),
    "stop_strings": ([],),
    "token_healing": (False,),
    "top_h": (1,),
    "watermarking_config": ({},),
}
"""What changes the output and is not done here, with the values (besides null) under which it does nothing."""


@dataclass(frozen=True)
class Defaults:
    """What a checkpoint asks for where the caller says nothing.

    Attributes:
        params: the defaults, greedy unless the file has ``do_sample: true``.
        temperature: of sampling, where the caller asks to sample without saying at which.
        max_length: how long prompt and output may become together, where neither the file nor the caller says how many
            tokens to write.
        of_beams: options of beam search, where the caller asks for it and the file itself does not.
    """

    params: GenerationParams = field(default_factory=GenerationParams)
    temperature: float = 1.0
    max_length: int | None = None
    of_beams: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, generation: Mapping[str, Any], *, eos_id: int | None = None, done: Collection[str] = ()) -> Defaults:
        """Take the defaults from a ``generation_config.json``.

        Args:
            generation: its entries.
            eos_id: what ends an output where the file does not say it.
            done: entries that somebody else sees to (`Prompts`).

        Raises:
            GenerationError: a value outside its range.

        Warns:
            UserWarning: an entry that would change the output and is not done here.
        """
        found = {key: value for key, value in generation.items() if value is not None}
        _check_kinds(found)
        eos = generation.get("eos_token_id", eos_id)
        asked = {name: found[key] for key, name in _TAKEN.items() if key in found}
        if "min_new_tokens" in asked:
            asked.pop("min_length", None)  # of which it takes the place
        top_k = found.get("top_k", TOP_K if found.get("do_sample", False) else 0)
        if top_k != 0:
            asked["top_k"] = top_k
        temperature = found.get("temperature", 1.0)
        if found.get("do_sample", False):
            asked["temperature"] = temperature
        elif temperature not in (0, 1):
            _warn(f"temperature={temperature} without do_sample=true, which means greedy decoding", "temperature")
        for key, neutral in _NEUTRAL.items():
            if key in found and key not in done and found[key] not in neutral:
                _warn(f"{key}={found[key]!r}, which is not done here and changes nothing", key)
        if "max_new_tokens" not in asked and asked.get("min_new_tokens", 0) > GenerationParams.max_new_tokens:
            asked["max_new_tokens"] = asked["min_new_tokens"]
        params = GenerationParams(eos_ids=() if eos is None else eos).override({**_strategy(found), **asked})
        max_length = None if "max_new_tokens" in asked else found.get("max_length")
        return cls(params, temperature, max_length, {name: found[name] for name in _OF_BEAMS[1:] if name in found})

    def params_for(self, changes: Mapping[str, Any], prompt_length: int) -> GenerationParams:
        """The parameters of one request.

        Args:
            changes: what the caller asks for. Asking for ``top_k``, ``top_p``, another cut of the distribution, or a
                ``seed`` means sampling, but for contrastive search: at the default temperature, if none is given.
            prompt_length: how many tokens the decoder begins with.

        Raises:
            GenerationError: an unknown name, or a value outside its range.
            ContextLengthError: the checkpoint's ``max_length`` leaves no room after the prompt.
        """
        searches = {"num_beams", "num_beam_groups"}
        begins = self.params.strategy.trigger not in searches and any(
            changes.get(name, 1) not in (None, 1) for name in searches
        )
        asked = {**(self.of_beams if begins else {}), **changes}
        cuts = set(SAMPLING)
        if self.params.strategy.trigger == "penalty_alpha":
            cuts.remove("top_k")  # of which contrastive search has need
        draws = asked.get("penalty_alpha") is None and any(asked.get(name) is not None for name in cuts)
        if "temperature" not in asked and self.params.greedy and draws:
            asked["temperature"] = self.temperature
        if asked.get("temperature") and self.params.strategy.trigger == "penalty_alpha":
            asked.setdefault("penalty_alpha", None)  # who wants to draw does without
        if "max_new_tokens" not in asked and self.max_length is not None:
            if prompt_length >= self.max_length:
                raise ContextLengthError(
                    f"the prompt must be shorter than the checkpoint's max_length of {self.max_length} tokens",
                    value=f"{prompt_length} tokens",
                    remedy="Shorten it, or pass max_new_tokens.",
                )
            asked["max_new_tokens"] = self.max_length - prompt_length
        if "max_new_tokens" not in changes:
            asked.setdefault("overflow", "stop")  # nobody asked for so many
        limit = asked.get("max_new_tokens")
        if "min_new_tokens" in changes:
            asked.setdefault("min_length", 0)  # of which it takes the place
        if "min_new_tokens" not in asked and isinstance(limit, int) and 0 <= limit < self.params.min_new_tokens:
            asked["min_new_tokens"] = limit  # who wants fewer tokens than the checkpoint's minimum gets them
        return self.params.override(asked)


def _check_kinds(found: Mapping[str, Any]) -> None:
    """What is reckoned with here, before `GenerationParams` sees it."""
    rules: dict[str, tuple[Callable[[Any], bool], str]] = {
        **dict.fromkeys(("max_length", "min_new_tokens", "max_new_tokens"), (_is_whole, "a whole number from 0")),
        "bad_words_ids": (
            lambda value: _is_list(value, lambda word: _is_list(word, _is_whole)),
            "a list of lists of ids",
        ),
        "suppress_tokens": (lambda value: _is_list(value, _is_whole), "a list of ids"),
        "do_sample": (lambda value: isinstance(value, bool), "true or false"),
    }
    for name, (holds, kind) in rules.items():
        if name in found and not holds(found[name]):
            raise GenerationError(
                f"{name} of generation_config.json must be {kind}",
                value=found[name],
                remedy="Correct it, or remove it.",
            )


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_list(value: Any, holds: Callable[[Any], bool]) -> bool:
    return isinstance(value, list | tuple) and all(map(holds, value))


def _strategy(found: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the strategy that the file asks for; those of others mean nothing."""
    if found.get("num_beam_groups", 1) != 1:
        names: tuple[str, ...] = ("num_beam_groups", "diversity_penalty", *_OF_BEAMS)
    elif found.get("num_beams", 1) != 1:
        names = _OF_BEAMS
    elif found.get("penalty_alpha", 0) != 0 and found.get("top_k", TOP_K) not in (0, 1) and not found.get("do_sample"):
        return {"penalty_alpha": found["penalty_alpha"], "top_k": found.get("top_k", TOP_K)}
    else:
        return {}
    return {name: found[name] for name in names if name in found}


def _warn(what: str, key: str) -> None:
    warnings.warn(f"generation_config.json has {what}. Take {key} out of it to be rid of this message.", stacklevel=3)
