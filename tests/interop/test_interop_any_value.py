"""Whatever stands in config.json: each option of each family, with values of each kind, is built or refused by name."""

import importlib
import json
import math
import pkgutil
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from transpect.base.errors import TranspectError
from transpect.interop import families
from transpect.interop.blank import blank
from transpect.interop.checkpoint import load_config
from transpect.interop.families import FAMILIES
from transpect.interop.family import Family
from transpect.interop.gguf.architectures import ARCHITECTURES
from transpect.interop.gguf.table import Source

OF_ANY_KIND: tuple[Any, ...] = ([], {}, [1], "x", 1.5, None, math.nan)
SIZES: tuple[Any, ...] = (10**9, 2**63, 10**30, -1, 0, True)
ENOUGH = 6 * 2**30  # bytes: an honest refusal takes none, a list of 10⁹ layers more
NEEDS_TEXT = "gemma3"


def known(family: Family) -> list[str]:
    of_entries = [name for entry in family.entries for name in entry.defaults()]
    return list(dict.fromkeys((*of_entries, *family.allowed.values, *family.synonyms)))


def configs(family: Family, values: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    """By itself, and with all switches on, since some options count only then; one class of heads counts labels."""
    switches = {name: True for entry in family.entries for name, usual in entry.defaults().items() if usual is False}
    classes = [name for name in family.heads if name.endswith("ForSequenceClassification")]
    for name in known(family):
        for value in values:
            yield {name: value}
            yield {**switches, name: value}
            if classes and name in ("num_labels", "id2label", "label2id"):
                yield {"architectures": classes[:1], name: value}


def whole(model_type: str, options: dict[str, Any]) -> dict[str, Any]:
    inner = {"text_config": options} if model_type == NEEDS_TEXT else options
    return {"model_type": model_type, **inner}


@pytest.mark.parametrize("model_type", FAMILIES)
def test_a_value_of_any_kind_is_read_or_refused(model_type: str) -> None:
    for options in configs(FAMILIES[model_type], OF_ANY_KIND):
        with suppress(TranspectError):
            FAMILIES[model_type].read(whole(model_type, options))


@pytest.mark.parametrize("name", ["model_type", "architectures"])
@pytest.mark.parametrize("value", [[1], {"a": 1}, [[1]], 1.5, 10**30, True], ids=str)
def test_so_is_what_a_config_says_that_it_is(name: str, value: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", name: value}))
    with pytest.raises(TranspectError) as caught:
        load_config(tmp_path)
    assert name.rstrip("s") in str(caught.value)


@pytest.mark.slow
def test_sizes_that_no_model_has_take_no_memory() -> None:
    done = subprocess.run([sys.executable, __file__], check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]


def build_all() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ENOUGH, ENOUGH))
    for model_type, family in FAMILIES.items():
        for options in configs(family, SIZES):
            try:
                with suppress(TranspectError):
                    config = family.read(whole(model_type, options))
                    blank(config.map_stacks(n_layers=1, n_unique=None, others=()))
            except BaseException:
                print(f"{model_type}: {options}", file=sys.stderr)
                raise


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_so_is_a_value_of_any_kind_in_a_gguf_file(name: str) -> None:
    architecture = ARCHITECTURES[name]
    keys = [key for entry in architecture.entries for key in entry.keys]
    counts = {key: 2 for key in keys if key.endswith(("count", "length", "window")) and "scaling" not in key}
    usual = {**counts, **{key: 1.0 for key in keys if key.endswith(("epsilon", "freq_base"))}}
    values: tuple[Any, ...] = (*SIZES, "x", 1.5, [], np.array([1, 2]))
    for key in keys:
        for value in values:
            metadata = {f"{name}.{other}": said for other, said in {**usual, key: value}.items()}
            with suppress(TranspectError):
                config = architecture.read(Source(name, metadata, {}, lambda _: np.zeros(0, np.float32)))
                FAMILIES[architecture.model_type].read(config)


def test_every_family_has_its_row() -> None:
    found = {}
    for module in pkgutil.iter_modules(families.__path__):
        held = importlib.import_module(f"{families.__name__}.{module.name}")
        for family in (*getattr(held, "FAMILIES", ()), *filter(None, [getattr(held, "FAMILY", None)])):
            found[family.model_type] = family
    assert found == FAMILIES


if __name__ == "__main__":
    build_all()
