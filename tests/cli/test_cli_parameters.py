"""Every parameter of generation is an option of every command that writes, and means what it means in Python."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import Any

import pytest
from typer.main import get_command

from transpect.base.errors import ConfigError
from transpect.base.messages import TABLE
from transpect.cli.parameters import UNASKED, parameter, parameters
from transpect.decode import GenerationParams
from transpect.decode.strategies import STRATEGIES

WRITERS = ("generate", "chat", "translate", "eval")
ALL = parameters()
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
    "num_beams": ("4", 4),
}


def test_there_is_one_for_every_field() -> None:
    own = {field.name for kind in (GenerationParams, *STRATEGIES) for field in fields(kind)}  # type: ignore[arg-type]
    assert ALL.keys() == (own - UNASKED) | {"negative_prompt"}


@pytest.mark.parametrize("name", ALL)
def test_each_is_explained(name: str) -> None:
    assert ALL[name].key in TABLE


def test_nothing_is_explained_that_there_is_not() -> None:
    assert {key for key in TABLE if key.startswith("cli.param.")} == {each.key for each in ALL.values()}


@pytest.mark.parametrize("command", WRITERS)
def test_every_writer_has_them_all(command: str) -> None:
    options = {
        name for param in get_command(import_module(f"transpect.cli.{command}").app).params for name in param.opts
    }
    assert {each.flag for each in ALL.values()} <= options


@pytest.mark.parametrize("name", READ)
def test_what_is_typed_becomes_a_value_that_the_parameter_takes(name: str) -> None:
    text, value = READ[name]
    found = parameter(name.replace("_", "-")).value(text)
    assert found == value and type(found) is type(value)
    (field,) = {field.name for kind in (GenerationParams, *STRATEGIES) for field in fields(kind)} & {name}  # type: ignore[arg-type]
    more = {"num_beams": 2} if name == "early_stopping" else {}
    GenerationParams().override({field: found, **more})


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


def test_a_name_that_there_is_not() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'top_p'"):
        parameter("top-pp")
