"""Opening tokenizers that exist."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import tokenizers

from transpect.base.errors import TokenizerError
from transpect.base.files import parse_json, read_text_file
from transpect.base.gguf import is_gguf
from transpect.text.tokenizer import ROLES, Tokenizer

TOKENIZER_JSON: Final = "tokenizer.json"
VOCABULARIES: Final = ("tokenizer.model", "spiece.model", "vocab.txt", "vocab.json")
"""The vocabularies of before tokenizer.json that a directory is searched for, in this order."""
RUN_PARTS: Final = ("best", "last")
"""What a run directory keeps its models in, in the order of preference."""

USUAL_TOKENS: Final[Mapping[str, tuple[str, ...]]] = {
    "bos": ("<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>"),
    "eos": ("</s>", "<eos>", "<|end_of_text|>", "<|endoftext|>"),
    "pad": ("<pad>", "[PAD]"),
    "unk": ("<unk>", "[UNK]"),
    "mask": ("<mask>", "[MASK]"),
    "cls": ("[CLS]",),
    "sep": ("[SEP]",),
}
"""What tokens are called by convention: the roles where a ``tokenizer.json`` comes without a word about them."""


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Open a tokenizer.

    Args:
        path: a directory with a ``tokenizer.json`` (a Hugging Face directory), a run directory (its ``best/``, then
            its ``last/``), a ``tokenizer.json`` under any name, a GGUF file, a SentencePiece ``.model``, a
            ``vocab.txt``, a ``vocab.json`` with its ``merges.txt``, or a directory that has only such a vocabulary.

    The roles of special tokens come from ``tokenizer_config.json`` and ``special_tokens_map.json`` beside the file, as
    ``transformers`` reads them; then from the model's ``config.json``; from convention (:data:`USUAL_TOKENS`) where
    none of these says a word.

    Warns:
        UserWarning: a token that holds a role is not in the vocabulary.

    Raises:
        TokenizerError: nothing there, or nothing that is a tokenizer; the message says what was found and what to do.
        CheckpointError: a damaged GGUF file.
    """
    if path == "":  # a variable that was not set; as a path it would be the working directory
        raise TokenizerError("a tokenizer must have a name", value=path, remedy="Name its place; . is where you are.")
    place = Path(path)
    for loader in LOADERS:
        if loader.takes(place):
            return loader.load(place)
    raise _not_a_tokenizer(place)


@dataclass(frozen=True)
class Loader:
    """One way to keep a tokenizer on disk.

    Args:
        takes: whether a path is kept in this way, told without reading all of it.
        load: opens it.
    """

    takes: Callable[[Path], bool]
    load: Callable[[Path], Tokenizer]


def _has_tokenizer_json(path: Path) -> bool:
    return (path / TOKENIZER_JSON).is_file()


def _run_part(path: Path) -> Path | None:
    return next((path / part for part in RUN_PARTS if _has_tokenizer_json(path / part)), None)


def _load_run(path: Path) -> Tokenizer:
    part = _run_part(path)
    assert part is not None, "takes() found it"
    return _load_json(part / TOKENIZER_JSON)


def _load_json(path: Path) -> Tokenizer:
    """A ``tokenizer.json``, with the files beside it."""
    text = read_text_file(path, TokenizerError)
    try:
        backend = tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # what `tokenizers` raises is a plain Exception
        if not isinstance(_parsed(text, path).get("model"), dict):
            raise TokenizerError(
                "not a tokenizer: it has no 'model'", file=path, remedy="Give the tokenizer.json that `save` wrote."
            ) from error
        raise TokenizerError(
            f"not a tokenizer that the tokenizers package {tokenizers.__version__} can open ({error})",
            file=path,
            remedy="Save it again, or upgrade tokenizers.",
        ) from error
    config = _read_beside(path, "tokenizer_config.json")
    roles = _roles(path, backend, config)
    _warn_of_new(roles, backend, path)
    return Tokenizer(
        backend,
        roles,
        chat_templates=_chat_templates(path.parent, config),
        extra_config={key: config[key] for key in _KEPT if key in config},
    )


def _load_gguf(path: Path) -> Tokenizer:
    from transpect.text.gguf import load_gguf_tokenizer  # the others need no numpy

    return load_gguf_tokenizer(path)


def _vocabulary(path: Path) -> Path | None:
    """The vocabulary that a path means: the file itself, or the first of `VOCABULARIES` in a directory."""
    if path.is_dir():
        return next((path / name for name in VOCABULARIES if (path / name).is_file()), None)
    known = path.suffix in (".model", ".txt") or path.name.endswith("vocab.json")
    return path if known and path.is_file() else None


def _load_vocabulary(path: Path) -> Tokenizer:
    """A vocabulary file of before tokenizer.json, with the files beside it."""
    from transpect.text.vocabulary import load_legacy

    file = _vocabulary(path)
    assert file is not None, "takes() found it"
    config = _read_beside(file, "tokenizer_config.json")
    found = load_legacy(file, config)
    said = _roles(file, found.backend, config)
    named = {role for role in ROLES if f"{role}_token" in config}
    _warn_of_new(said, found.backend, file)
    return Tokenizer(
        found.backend,
        {**{role: token for role, token in found.roles.items() if role not in named}, **said},
        chat_templates=_chat_templates(file.parent, config),
        extra_config={key: config[key] for key in _KEPT if key in config},
    )


LOADERS: Final = (
    Loader(_has_tokenizer_json, lambda path: _load_json(path / TOKENIZER_JSON)),
    Loader(lambda path: _run_part(path) is not None, _load_run),
    Loader(lambda path: path.is_file() and (path.suffix == ".gguf" or is_gguf(path)), _load_gguf),
    Loader(lambda path: _vocabulary(path) is not None, _load_vocabulary),
    Loader(lambda path: path.is_file(), _load_json),
)
"""How tokenizers are kept; the first that takes a path opens it."""

_KEPT = ("model_max_length", "padding_side", "truncation_side", "model_input_names")
"""What of a ``tokenizer_config.json`` is kept through loading and saving: data without a say in the ids."""


def _roles(path: Path, backend: tokenizers.Tokenizer, config: Mapping[str, Any]) -> dict[str, str]:
    # As in transformers: the older special_tokens_map.json counts, and first, where the config lists no added tokens.
    older = {} if "added_tokens_decoder" in config else _read_beside(path, "special_tokens_map.json")
    named = {**config, **older}
    model_config = _read_beside(path, "config.json")
    ids = {role: _first_id(model_config.get(f"{role}_token_id")) for role in ROLES}
    roles: dict[str, str] = {}
    for role in ROLES:
        key, number = f"{role}_token", ids[role]
        if key in named:  # with null too: there is none, whatever the model's config says
            token = _content(named[key], path, key)
        else:
            token = None if number is None else backend.id_to_token(number)
        if token is not None:
            roles[role] = token
    if named or any(number is not None for number in ids.values()):
        return roles
    special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    return {role: usual for role, names in USUAL_TOKENS.items() for usual in names if usual in special}


def _warn_of_new(roles: Mapping[str, str], backend: tokenizers.Tokenizer, path: Path) -> None:
    """Say which tokens are new with their roles. They are added, as in transformers, and a model has no rows for them.

    Warns:
        UserWarning: there are some.
    """
    new = [f"{role}_token {token!r}" for role, token in roles.items() if backend.token_to_id(token) is None]
    if new:
        warnings.warn(
            f"{path.parent}: the vocabulary has no {', '.join(new)}, though the files beside it say so: added with ids "
            "of their own, which the model may have no rows for. Mend tokenizer_config.json if that is a slip",
            stacklevel=4,
        )


def _content(token: Any, path: Path, key: str) -> str | None:
    """A special token in a config: a string, an object with ``content``, or null."""
    content = token.get("content") if isinstance(token, dict) else token
    if content is not None and not isinstance(content, str):
        raise TokenizerError(f"{key} must be a string", value=content, file=path.parent, remedy="Mend its config.")
    return content or None


def _first_id(value: Any) -> int | None:
    """A token id in a model's config: a number, or a list of them (several tokens end a text)."""
    first = value[0] if isinstance(value, list) and value else value
    return first if isinstance(first, int) and first >= 0 else None


def _chat_templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """The templates of a directory: those in its config, and over them those in files of their own."""
    found = config.get("chat_template") or {}
    named = found if isinstance(found, list) else [{"name": "default", "template": found}] if found else []
    templates: dict[str, str] = {}
    for entry in named:
        match entry:
            case {"name": str(name), "template": str(template)}:
                templates[name] = template
            case _:
                raise TokenizerError(
                    "chat_template must be a string or a list of {name, template}",
                    value=entry,
                    file=folder / "tokenizer_config.json",
                    remedy="Mend it, or take it out.",
                )
    for file in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        templates[file.stem] = read_text_file(file, TokenizerError)
    if (folder / "chat_template.jinja").is_file():
        templates["default"] = read_text_file(folder / "chat_template.jinja", TokenizerError)
    return templates


def _parsed(text: str, path: Path) -> dict[str, Any]:
    content = parse_json(text, path, TokenizerError)
    if not isinstance(content, dict):
        raise TokenizerError("must hold a JSON object", file=path, remedy="Give the file that `save` wrote.")
    return content


def _read_beside(path: Path, name: str) -> dict[str, Any]:
    """A JSON file in the same directory, or nothing where there is none."""
    file = path.parent / name
    return _parsed(read_text_file(file, TokenizerError), file) if file.is_file() else {}


def _not_a_tokenizer(path: Path) -> TokenizerError:
    if not path.exists():
        return TokenizerError(
            "no such file or directory",
            file=path,
            remedy="Give a directory with a tokenizer.json, a run directory, a tokenizer.json, or a GGUF file.",
        )
    remedy = (
        "Give a directory with a tokenizer.json or a vocabulary (tokenizer.model, spiece.model, vocab.txt, or "
        "vocab.json and merges.txt), or a run directory whose best/ or last/ has one."
    )
    return TokenizerError("no tokenizer.json in this directory", file=path, remedy=remedy)
