"""Every parameter of generation is an option of every command that writes, and means what it means in Python."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from typer.main import get_command

from transpect.base.errors import ConfigError
from transpect.base.messages import TABLE
from transpect.cli import spelling
from transpect.cli.parameters import PARAMETERS, parameter
from transpect.core import Transformer
from transpect.decode import GenerationParams
from transpect.decode.constraints import LANGUAGES
from transpect.decode.strategies import STRATEGIES

WRITERS: dict[str, set[str]] = {
    "generate": set(),
    "chat": {"n", "logprobs"},
    "translate": {"logprobs"},
    "eval": {"n", "logprobs"},
}
"""The commands that write, with the parameters that would do nothing there."""
KINDS = (GenerationParams, *STRATEGIES)
BY_NAME = {*LANGUAGES, "negative_prompt"}
"""What is asked for by a name that no field has."""
CHOSEN = {"constraint", "strategy"}
"""Fields that options of their own choose."""
HINTS = {name: hint for kind in KINDS for name, hint in get_type_hints(kind).items() if name not in CHOSEN}
FIELDS = {field.name for kind in KINDS for field in fields(kind)} - CHOSEN  # type: ignore[arg-type]
READ: dict[str, tuple[str | list[str], Any]] = {
    "max_new_tokens": ("7", 7),
    "temperature": ("0.5", 0.5),
    "top_k": ("none", None),
    "top_p": ("1", 1.0),
    "stop": (["a", "b c"], ("a", "b c")),
    "eos_ids": (["3", "4"], (3, 4)),
    "ignore_eos": ("yes", True),
    "seed": ("-5", -5),
    "logit_bias": (["5=-1.5", "6=2"], ((5, -1.5), (6, 2.0))),
    "sequence_bias": (["5,6=-1"], (((5, 6), -1.0),)),
    "bad_words": (["5,6", "7"], ((5, 6), (7,))),
    "exponential_decay_length_penalty": ("8,1.5", (8, 1.5)),
    "early_stopping": ("never", "never"),
    "renormalize_logits": ("yes", True),
    "num_beams": ("4", 4),
}


def expected(hint: Any) -> tuple[str, bool, bool]:
    """By the type of a field: (what to type, whether it can be given several times, whether it can be none)"""
    kinds = [kind for kind in get_args(hint) if kind is not type(None)]
    optional = type(None) in get_args(hint)
    kind = kinds[0] if optional and len(kinds) == 1 else hint
    if get_origin(kind) is tuple and get_args(kind)[-1] is Ellipsis:
        each = {int: "ID", str: "TEXT", tuple[int, ...]: "ID,…", tuple[int, float]: "ID=X"}
        return (each | {tuple[tuple[int, ...], float]: "ID,…=X"})[get_args(kind)[0]], True, optional
    literals = [part for part in (kind, *get_args(kind)) if get_origin(part) is Literal]
    if literals:
        truth = ["yes", "no"] if bool in get_args(kind) else []
        return "|".join([*truth, *(word for part in literals for word in get_args(part))]), False, optional
    single = {Transformer: "MODEL", bool: "", int: "N", float: "X", str: "TEXT", tuple[int, float]: "N,X"}
    return single[kind], False, optional


def test_there_is_one_for_every_field() -> None:
    assert PARAMETERS.keys() == FIELDS | BY_NAME


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_it_is_spelled_as_the_type_of_the_field_wants(name: str) -> None:
    each = PARAMETERS[name]
    metavar, repeated, optional = expected(HINTS[name])
    assert (each.spelling.metavar, each.repeated) == (metavar, repeated)
    if not repeated:
        try:
            takes_none = each.spelling.read("none") is spelling.NOTHING
        except ValueError:
            takes_none = False
        assert takes_none == optional


def test_all_are_explained_and_nothing_else() -> None:
    assert {key for key in TABLE if key.startswith("cli.param.")} == {each.key for each in PARAMETERS.values()}


@pytest.mark.parametrize("command", WRITERS)
def test_every_writer_has_all_that_mean_something_to_it(command: str) -> None:
    options = {
        name for param in get_command(import_module(f"transpect.cli.{command}").app).params for name in param.opts
    }
    for name, each in PARAMETERS.items():
        assert (each.flag in options) == (name not in WRITERS[command])


@pytest.mark.parametrize("name", READ)
def test_what_is_typed_becomes_a_value_that_the_parameter_takes(name: str) -> None:
    text, value = READ[name]
    found = parameter(name.replace("_", "-")).value(text)
    assert found == value and type(found) is type(value)
    more = {"num_beams": 2} if name in ("early_stopping", "renormalize_logits") else {}
    GenerationParams().override({name: found, **more})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("top_k", "2.5"),
        ("top_k", "many"),
        ("temperature", "hot"),
        ("eos_ids", "1,2"),
        ("logit_bias", "5"),
        ("logit_bias", "5=much"),
        ("bad_words", "5,,6"),
        ("ignore_eos", "perhaps"),
        ("early_stopping", "soon"),
        ("exponential_decay_length_penalty", "8"),
    ],
)
def test_what_is_no_value_is_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is given as"):
        parameter(name).value(text)


def test_a_schema_may_stand_in_a_file(tmp_path) -> None:
    file = tmp_path / "schema.json"
    file.write_text('{"type": "integer"}', encoding="utf-8")
    assert parameter("json_schema").value(f"@{file}") == parameter("json_schema").value('{"type": "integer"}')
    with pytest.raises(ConfigError, match=r"nowhere.json: can't read"):
        parameter("json_schema").value("@nowhere.json")


def test_a_name_that_there_is_not() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'top_p'"):
        parameter("top-pp")
