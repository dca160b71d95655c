"""Sentence embeddings: what `sentence-transformers` keeps beside a model to say how its vectors are pooled.

``modules.json`` lists the way from a text to its vector: a Transformer, then pooling (``1_Pooling/config.json``), then
perhaps scaling to length 1. Here that is the model's head, `Pooled`; the head that its family would have is not used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, get_args

from transpect.base.errors import CheckpointError
from transpect.base.files import read_json_file
from transpect.core import ModelConfig, Pooled
from transpect.core.heads import Pool
from transpect.interop.family import Family
from transpect.interop.tensors import Table
from transpect.interop.weights import read_json

__all__ = [
    "MODULES",
    "SETTINGS",
    "body_of",
    "read_head",
    "read_max_length",
    "read_pooled",
    "sayable",
    "without_heads",
    "write_head",
    "write_max_length",
]

MODULES: Final = "modules.json"
_SETTINGS: Final = "config_sentence_transformers.json"
_LENGTH: Final = "sentence_bert_config.json"
_POOLING: Final = "1_Pooling"
SETTINGS: Final = (_SETTINGS, _LENGTH)
"""Files about texts rather than about the model."""

_MODES: Final[Mapping[str, Pool | None]] = {
    "cls": "first",
    "cls_token": "first",
    "lasttoken": "last",
    "mean": "mean",
    "mean_tokens": "mean",
    "max": None,
    "max_tokens": None,
    "mean_sqrt_len_tokens": None,
    "weightedmean": None,
    "weightedmean_tokens": None,
}
_WORDS: Final[Mapping[Pool, str]] = {"first": "cls_token", "last": "lasttoken", "mean": "mean_tokens"}
_KINDS: Final = ("Transformer", "Pooling", "Normalize")


def body_of(folder: Path) -> Path:
    """Where the model itself lies in a directory: in it, or where ``modules.json`` puts its Transformer."""
    if not (folder / MODULES).is_file():
        return folder
    place = _modules(folder)[0]["path"]
    return folder / place if place else folder


def read_head(folder: Path) -> Pooled | None:
    """The head that ``modules.json`` describes; None where there is no such file.

    Raises:
        CheckpointError: a step or an option that can't be built.
    """
    if not (folder / MODULES).is_file():
        return None
    modules = _modules(folder)
    kinds = tuple(_kind(module) for module in modules)
    if kinds not in (_KINDS[:2], _KINDS):
        raise CheckpointError(
            "the steps from a text to its vector must be Transformer, Pooling and perhaps Normalize",
            value=", ".join(kinds),
            file=folder / MODULES,
        )
    _check_settings(folder, body_of(folder))
    return Pooled(pool=_pool(folder / modules[1]["path"] / "config.json"), normalize=len(kinds) == len(_KINDS))


def read_max_length(folder: Path) -> int | None:
    """How many tokens of a text a sentence encoder reads, ``max_seq_length``; None where it says none of its own.

    Raises:
        CheckpointError: it is no length.
    """
    file = body_of(folder) / _LENGTH
    length = read_json(file).get("max_seq_length") if (folder / MODULES).is_file() and file.is_file() else None
    if length is not None and (not isinstance(length, int) or isinstance(length, bool) or length < 1):
        raise CheckpointError("max_seq_length must be a whole number of at least 1, or null", value=length, file=file)
    return length


def read_pooled(family: Family, data: Mapping[str, Any], head: Pooled, tensors: Any) -> ModelConfig:
    """The config of a family's model with another head than the family's own.

    Raises:
        CheckpointError: see `Family.read`.
    """
    architecture = next(
        (name for name, own in family.heads.items() if isinstance(own, Pooled)), next(iter(family.heads))
    )
    return replace(family.read({**data, "architectures": [architecture]}, tensors), head=head)


def without_heads(family: Family, config: ModelConfig) -> Table:
    """The family's table for a model with our head, in which all tensors of its own heads say nothing."""
    table = family.table(config)
    void = set(table.void)
    for head in family.heads.values():
        other = family.table(replace(config, head=head))
        void |= {*other.void, *(row.theirs for row in other.head)}
        void |= {row.theirs for row in other.body if all(part.startswith("head.") for part in row.parts)}
        void |= {alias.theirs for alias in other.aliases if _of_head(alias.theirs, other)}
    return replace(table, void=tuple(sorted(void)))


def sayable(head: Pooled) -> bool:
    """Whether ``modules.json`` has words for a head."""
    return head.transform is None


def write_head(head: Pooled, d_model: int, max_length: int, folder: Path) -> None:
    """Write the files that `read_head` reads."""
    steps = [("0", "", "Transformer"), ("1", _POOLING, "Pooling")] + (
        [("2", "2_Normalize", "Normalize")] if head.normalize else []
    )
    modules = [
        {"idx": int(number), "name": number, "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, path, kind in steps
    ]
    chosen = _WORDS[head.pool]
    pooling: dict[str, Any] = {"word_embedding_dimension": d_model}
    pooling |= {f"pooling_mode_{mode}": mode == chosen for mode in _SPELLED}
    pooling |= {"include_prompt": True}
    (folder / _POOLING).mkdir(exist_ok=True)
    if head.normalize:
        (folder / "2_Normalize").mkdir(exist_ok=True)
    for name, content in ((MODULES, modules), (f"{_POOLING}/config.json", pooling)):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    write_max_length(max_length, folder)


def write_max_length(length: int, folder: Path) -> None:
    """Write the file that `read_max_length` reads, if the directory is a sentence encoder's."""
    if not (folder / MODULES).is_file():
        return
    text = json.dumps({"max_seq_length": length, "do_lower_case": False}, indent=2)
    (folder / _LENGTH).write_text(text + "\n", encoding="utf-8")


_SPELLED: Final = (
    "cls_token",
    "mean_tokens",
    "max_tokens",
    "mean_sqrt_len_tokens",
    "weightedmean_tokens",
    "lasttoken",
)
assert set(_WORDS) == set(get_args(Pool))


def _modules(folder: Path) -> list[dict[str, Any]]:
    file = folder / MODULES
    modules = read_json_file(file, CheckpointError)
    if not isinstance(modules, list) or not modules or not all(isinstance(module, dict) for module in modules):
        raise CheckpointError("must hold a list of modules", value=modules, file=file)
    modules = sorted(modules, key=lambda module: module["idx"] if isinstance(module.get("idx"), int) else 0)
    for module in modules:
        place = module.get("path")
        if not isinstance(place, str) or place in (".", "..") or set(place) & set("/\\\0:"):
            raise CheckpointError("a module must lie in a plain directory of this one", value=place, file=file)
        if not isinstance(module.get("type"), str):
            raise CheckpointError("a module must have a type", value=module, file=file)
    return modules


def _kind(module: Mapping[str, Any]) -> str:
    return str(module["type"]).rpartition(".")[2]


def _pool(file: Path) -> Pool:
    options = read_json(file)
    old = {key.removeprefix("pooling_mode_"): on for key, on in options.items() if key.startswith("pooling_mode_")}
    new = options.get("pooling_mode")
    chosen = [mode for mode, on in old.items() if on] + ([new] if isinstance(new, str) else list(new or []))
    unknown = sorted(options.keys() - {f"pooling_mode_{mode}" for mode in old} - _VOID - {"pooling_mode"})
    pools = [_MODES.get(mode) for mode in chosen]
    if unknown or len(pools) != 1 or pools[0] is None:
        raise CheckpointError(
            "vectors can be pooled from the first token, the last one, or the mean of all",
            value=", ".join(unknown or map(str, chosen)) or "nothing",
            file=file,
        )
    return pools[0]


# how wide the vectors are follows from the model; a prompt is refused where there is one, so leaving it out is void
_VOID: Final = {"word_embedding_dimension", "embedding_dimension", "include_prompt"}


def _check_settings(folder: Path, body: Path) -> None:
    """Refuse what would change a text before it reaches the tokenizer."""
    settings = read_json(folder / _SETTINGS) if (folder / _SETTINGS).is_file() else {}
    prompts, name = settings.get("prompts") or {}, settings.get("default_prompt_name")
    if name is not None and prompts.get(name):
        raise CheckpointError(
            "a prompt that is put before every text can't be built",
            value=prompts[name],
            file=folder / _SETTINGS,
            remedy="Set default_prompt_name to null there, and put it before your texts yourself.",
        )
    limits = read_json(body / _LENGTH) if (body / _LENGTH).is_file() else {}
    if limits.get("do_lower_case"):
        raise CheckpointError(
            "a text that is put in lower case before it is tokenized can't be built",
            value={"do_lower_case": True},
            file=body / _LENGTH,
            remedy="Set it to false there, and lower your texts yourself.",
        )


def _of_head(name: str, table: Table) -> bool:
    """Whether a second name belongs to a head: it is outside the body's prefix."""
    return bool(table.prefix) and not name.startswith(table.prefix)
