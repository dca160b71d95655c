"""The fields that say how text is written, and what they are called in decoding."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from transpect.decode.constraints.languages import escaped
from transpect.serve.http.errors import bad
from transpect.serve.http.fields import (
    Choice,
    Field,
    Flag,
    Integer,
    Items,
    Kind,
    Number,
    Object,
    Table,
    Text,
    Union,
    wrong_type,
)
from transpect.serve.http.limits import Limits
from transpect.serve.http.models import Served

__all__ = ["decoding", "grammars", "streaming", "writing"]

LARGEST: Final = 2**31 - 1

_ID: Final = re.compile(r"0|[1-9][0-9]{0,9}")

_NAMES: Final[Mapping[str, str]] = {
    **{
        name: name
        for name in ("temperature", "top_p", "top_k", "min_p", "typical_p", "repetition_penalty", "seed", "n")
    },
    **{name: name for name in ("presence_penalty", "frequency_penalty", "no_repeat_ngram_size", "stop", "ignore_eos")},
    **{name: name for name in ("best_of", "num_beams", "length_penalty", "regex", "grammar", "choices")},
    "min_tokens": "min_new_tokens",
}


class Biases(Kind):
    """Objects of token ids to biases from −100 to 100.

    Args:
        most: entries.
    """

    def __init__(self, most: int) -> None:
        self.most = most

    def read(self, value: Any, param: str) -> dict[int, float]:
        """See `Kind.read`."""
        if not isinstance(value, dict):
            raise wrong_type(param, "an object", value)
        if len(value) > self.most:
            raise bad(
                param, f"'{param}' may have at most {self.most} entries (got {len(value)}).", "object_above_max_size"
            )
        wrong = next((name for name in value if not _ID.fullmatch(name)), None)
        if wrong is not None:
            raise bad(param, f"The keys of '{param}' must be token ids (got {wrong[:40]!r}).")
        bias = Number(-100, 100)
        return {int(name): bias.read(own, f"{param}.{name}") for name, own in value.items()}

    def schema(self) -> dict[str, Any]:
        """See `Kind.schema`."""
        own = Number(-100, 100).schema()
        names = {"pattern": f"^({_ID.pattern})$"}
        return {"type": "object", "propertyNames": names, "additionalProperties": own, "maxProperties": self.most}


class JsonObject(Kind):
    """Any object; what it means is somebody else's matter."""

    def read(self, value: Any, param: str) -> dict[str, Any]:
        """See `Kind.read`."""
        if not isinstance(value, dict):
            raise wrong_type(param, "an object", value)
        return value

    def schema(self) -> dict[str, Any]:
        """See `Kind.schema`."""
        return {"type": "object"}


def streaming() -> Table:
    """Whether, and how, an answer comes in pieces."""
    usage = {"include_usage": Field(Flag()), "include_obfuscation": Field(Choice((False,)))}
    return {
        "stream": Field(Flag(), note="Send the answer in pieces, as server-sent events."),
        "stream_options": Field(Object(usage), note="Only with stream."),
    }


def writing(limits: Limits) -> Table:
    """The fields of all routes that write text."""
    stop = Text(limits.stop_chars, 1)
    return {
        "model": Field(Text(256), note="A name of /v1/models; it may be left out where there is one model."),
        "max_tokens": Field(Integer(0, LARGEST), note="Tokens of an output at most."),
        "min_tokens": Field(Integer(0, LARGEST)),
        "n": Field(Integer(1, limits.n), note="Outputs of a prompt."),
        "temperature": Field(Number(0, 2), note="0 is greedy; absent is as the model's checkpoint says."),
        "top_p": Field(Number(0, 1)),
        "top_k": Field(Integer(-1, LARGEST), note="-1 is off."),
        "min_p": Field(Number(0, 1)),
        "typical_p": Field(Number(0, 1)),
        "presence_penalty": Field(Number(-2, 2)),
        "frequency_penalty": Field(Number(-2, 2)),
        "repetition_penalty": Field(Number(0.01, 100)),
        "no_repeat_ngram_size": Field(Integer(0, 1000)),
        "seed": Field(Integer(-(2**63), 2**63 - 1), note="With it, the same request gives the same answer."),
        "stop": Field(Union((stop, Items(stop, limits.stops)), "a string or an array of strings")),
        "ignore_eos": Field(Flag()),
        "logit_bias": Field(Biases(limits.biases)),
        "num_beams": Field(Integer(1, limits.num_beams), note="Beam search of this width."),
        "length_penalty": Field(Number(-100, 100)),
        "regex": Field(Text(limits.schema_bytes, 1), note="Hold the output to a regular expression."),
        "grammar": Field(Text(limits.schema_bytes, 1), note="Hold the output to a grammar (Lark or GBNF)."),
        "choices": Field(Items(Text(limits.stop_chars, 1), 1000, 1), note="Hold the output to one of these texts."),
        "response_format": Field(_response_format(), note="Hold the output to JSON, or to a JSON schema."),
        "user": Field(Text(512), note="Accepted, and not used."),
        "metadata": Field(JsonObject(), note="Accepted, and not used."),
        "prompt_cache_key": Field(Text(512), note="Accepted, and not used: prompts are found by what they are."),
        "safety_identifier": Field(Text(512), note="Accepted, and not used."),
        "store": Field(Choice((False,)), note="Nothing is stored."),
        "service_tier": Field(Choice(("auto", "default")), note="Accepted, and not used."),
        **streaming(),
    }


def _response_format() -> Kind:
    described = {
        "name": Field(Text(64)),
        "description": Field(Text()),
        "schema": Field(JsonObject(), required=True),
        "strict": Field(Flag()),
    }
    kinds = Field(Choice(("text", "json_object", "json_schema")), required=True)
    return Object({"type": kinds, "json_schema": Field(Object(described))})


def decoding(given: Mapping[str, Any], model: Served) -> dict[str, Any]:
    """The parameters of decoding that checked fields ask for, all but the length.

    Raises:
        ApiError: 400, fields that contradict each other, ids outside the vocabulary.
    """
    asked: dict[str, Any] = {name: given[own] for own, name in _NAMES.items() if own in given}
    if asked.get("top_k") == -1:
        asked["top_k"] = None
    if asked.get("num_beams") == 1:
        del asked["num_beams"]
    if "logit_bias" in given:
        size = model.lm.model.config.vocab_size
        worst = max(given["logit_bias"], default=0)
        if worst >= size:
            raise bad("logit_bias", f"'logit_bias' has the id {worst}; the vocabulary has the ids 0 to {size - 1}.")
        asked["logit_bias"] = given["logit_bias"]
    if "stream_options" in given and not given.get("stream"):
        raise bad("stream_options", "'stream_options' is only allowed when 'stream' is true.")
    schema = _schema(given)
    if schema is not None:
        asked["json_schema"] = schema
    held = [name for name in ("regex", "grammar", "choices", "json_schema") if asked.get(name) is not None]
    if len(held) > 1:
        param = "response_format" if "json_schema" in held else held[-1]
        raise bad(param, f"An output can be held to one thing only, not to {' and '.join(held)}.")
    return asked


def grammars(asked: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What must be tried before it is read here: kind, text, and the field that it came from."""
    found = [(name, asked[name], name) for name in ("regex", "grammar") if name in asked]
    if "choices" in asked:
        found.append(("regex", "|".join(map(escaped, asked["choices"])), "choices"))
    if "json_schema" in asked:
        found.append(("json_schema", json.dumps(asked["json_schema"], ensure_ascii=False), "response_format"))
    return found


def _schema(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """The JSON schema that the output is held to."""
    wanted = given.get("response_format", {"type": "text"})
    if wanted["type"] == "json_object":
        return {"type": "object"}
    if wanted["type"] == "text":
        return None
    if "json_schema" not in wanted:
        param = "response_format.json_schema"
        raise bad(param, f"Missing required parameter: '{param}'.", "missing_required_parameter")
    found: dict[str, Any] = wanted["json_schema"]["schema"]
    return found
