"""Models on a hub, through the hub's own client: only what a checkpoint is made of is downloaded, and no code."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import warnings
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Final, cast

from transpect.base.errors import CheckpointError, first_line
from transpect.interop.places import TOKENIZER, checkpoint_in, found_in

__all__ = ["huggingface", "modelscope"]

# what describes a model; patterns of fnmatch, in which * matches a / too
DESCRIPTION: Final = (
    *TOKENIZER,
    "config.json",
    "generation_config.json",
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "*_Pooling/config.json",
    "0_Transformer/*.json",
    "0_Transformer/vocab.txt",
)
SAFETENSORS: Final = (
    "model.safetensors",
    "model.safetensors.index.json",
    "model-*-of-*.safetensors",
    "0_Transformer/model.safetensors",
)
HEAVY: Final = (*SAFETENSORS, "*.gguf")
PICKLED: Final = ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-*-of-*.bin")
PATIENCE: Final = 10.0
"""Seconds until a hub counts as one that can't be reached."""
_PART: Final = r"(?!\.{1,2}(?:[/@]|$))[\w.-]+"  # never . or .., which lead elsewhere
_ID: Final = re.compile(
    rf"(?P<id>{_PART}(/{_PART})?)(/(?P<file>{_PART}\.gguf))?(@(?P<revision>{_PART}(/{_PART})*))?", re.ASCII
)
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_NONSENSE: Final = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""What the client raises where an answer is not what a hub says: it takes JSON of a certain form for granted."""
_BUSY: Final = (408, 429)


def huggingface(name: str, *, weights: bool, allow_pickle: bool, typed: str | None = None) -> Path:
    """Download ``OWNER/NAME[/FILE.gguf][@REVISION]`` from the Hugging Face hub, or from ``HF_ENDPOINT``.

    Where the hub can't be reached, or something else answers in its place (a network that wants a log-in first, say),
    what an earlier download left in its cache is taken, with a warning.

    Args:
        name: of the model, without a prefix.
        weights: see `locate`.
        allow_pickle: see `locate`.
        typed: what an error names; None is the name with ``hf:``.

    Raises:
        CheckpointError: no such model, nothing in it that can be loaded, no connection, or an answer that makes no
            sense or would lead out of the cache.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.constants import HF_HUB_OFFLINE
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled

    # the errors of the client below it, which is another one in every version
    no_answer = cast(type[Exception], HfHubHTTPError.__mro__[1])
    typed = f"hf:{name}" if typed is None else typed
    model, file, revision = _parse(name, typed)
    endpoint = os.environ.get("HF_ENDPOINT") or None
    where = endpoint or "the Hugging Face hub"
    # of a cache, whatever of these it holds
    wanted = [*DESCRIPTION, *((file,) if file else (*HEAVY, *(PICKLED if allow_pickle else ())))]
    unreachable: Exception | None = None
    try:
        if not HF_HUB_OFFLINE:
            # one question, without the client's waits and repetitions where nobody answers
            found = HfApi(endpoint=endpoint).model_info(model, revision=revision, timeout=PATIENCE)
            files = [sibling.rfilename for sibling in found.siblings or ()]
            _check_answer(where, found.sha, files)
            chosen = choose(files, file, weights=weights, allow_pickle=allow_pickle)
            wanted = [glob.escape(name) for name in chosen]
    except (HFValidationError, HfHubHTTPError) as error:
        status = _status(error)
        if status is None or (status < 500 and status not in _BUSY):
            raise CheckpointError(
                f"no model of this name on {where}, and no such path here: {first_line(error)}",
                value=typed,
                remedy="Check the name. A model with restricted access needs `hf auth login` first.",
            ) from error
        unreachable = error
    except (no_answer, OSError, *_NONSENSE) as error:
        unreachable = error
    cached_only = HF_HUB_OFFLINE or unreachable is not None
    try:
        folder = snapshot_download(
            model, revision=revision, allow_patterns=wanted, endpoint=endpoint, local_files_only=cached_only
        )
    except (LocalEntryNotFoundError, OfflineModeIsEnabled, no_answer, OSError, *_NONSENSE) as error:
        absent = isinstance(error, LocalEntryNotFoundError)  # in the cache: why it is looked for there is the reason
        reason = unreachable or (absent and error.__cause__) or error
        raise CheckpointError(
            f"no such path here, and {where} {_trouble(reason)}",
            value=typed,
            remedy="Check the path and the connection; HF_ENDPOINT names another hub, and ms:OWNER/NAME is ModelScope.",
        ) from error
    _check_answer(where, Path(folder).name, ())
    if unreachable is not None:
        warnings.warn(f"{where} {_trouble(unreachable)}; taking {model} from the cache", stacklevel=2)
    return _chosen(Path(folder), file, weights)


def modelscope(name: str, *, weights: bool, allow_pickle: bool) -> Path:
    """Download ``OWNER/NAME[@REVISION]`` from ModelScope, by its own package.

    Raises:
        CheckpointError: the package is absent, or it could not download the model.
    """
    model, file, revision = _parse(name, f"ms:{name}")
    try:
        from modelscope import snapshot_download  # type: ignore[import-not-found]
    except ImportError as error:
        raise CheckpointError(
            "ms: needs the package modelscope", value=f"ms:{name}", remedy="Install it: pip install modelscope."
        ) from error
    patterns = [*DESCRIPTION]
    if file is not None:
        patterns.append(file)
    elif weights:
        patterns += [*SAFETENSORS, *(PICKLED if allow_pickle else ())]
    try:
        folder = snapshot_download(model, revision=revision, allow_patterns=patterns)
    except Exception as error:  # the package has no tree of errors of its own
        raise CheckpointError(
            f"ModelScope did not give this model: {first_line(error)}",
            value=f"ms:{name}",
            remedy="Check the name and the connection.",
        ) from error
    return _chosen(Path(folder), file, weights)


def choose(files: Collection[str], file: str | None, *, weights: bool, allow_pickle: bool) -> list[str]:
    """Which of a repository's files to download.

    Raises:
        CheckpointError: it has no weights that may be loaded, or several ``.gguf`` files.
    """
    described = _matching(files, DESCRIPTION)
    if file is not None:
        if file not in files:
            raise CheckpointError("no such file in this repository", value=file, remedy=_offer(files))
        return [*described, file]
    if not weights and "config.json" in described:
        return described
    safe, pickled, gguf = _matching(files, SAFETENSORS), _matching(files, PICKLED), _matching(files, ("*.gguf",))
    if safe:
        return [*described, *safe]
    if len(gguf) == 1:
        return [*described, *gguf]
    if pickled and allow_pickle:
        return [*described, *pickled]
    if pickled:
        raise CheckpointError(
            "this model has pickled weights only",
            value=pickled[0],
            remedy="Allow them where you trust their author: --allow-pickle, or allow_pickle=True.",
        )
    raise CheckpointError(
        "several .gguf files in this repository" if gguf else "no weights in this repository that can be loaded",
        value=", ".join(sorted(files)[:8]),
        remedy=_offer(files),
    )


def _check_answer(where: str, commit: object, files: Iterable[object]) -> None:
    """Names that become places in the cache stay below it."""
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise CheckpointError(
            f"{where} must name a commit, which is 40 hexadecimal digits", value=str(commit), remedy=_UNTRUE
        )
    for file in files:
        plain = isinstance(file, str) and not set(file) & set("\\\0")
        if not plain or not {"", ".", ".."}.isdisjoint(str(file).split("/")):
            raise CheckpointError(
                f"a file of a repository must lie in it; {where} names one that does not",
                value=file,
                remedy=_UNTRUE,
            )


_UNTRUE: Final = "Check HF_ENDPOINT and the connection: is this a hub that you trust?"


def _status(error: BaseException) -> int | None:
    """The HTTP status that a server answered with; None where it is no answer."""
    return getattr(getattr(error, "response", None), "status_code", None)


def _trouble(error: BaseException) -> str:
    """What is the matter with a hub that was asked in vain."""
    said = first_line(error)
    if _status(error) is not None:
        return f"answers with an error: {said}"
    if isinstance(error, _NONSENSE):
        return f"does not answer as a hub does: {said}"
    return f"can't be reached: {said}"


def _parse(name: str, typed: str) -> tuple[str, str | None, str | None]:
    match = _ID.fullmatch(name)
    if match is None:
        raise CheckpointError(
            "a model of a hub is OWNER/NAME, OWNER/NAME@REVISION or OWNER/NAME/FILE.gguf", value=typed
        )
    return match["id"], match["file"], match["revision"]


def _chosen(folder: Path, file: str | None, weights: bool) -> Path:
    """What of a download is the checkpoint."""
    if not (folder if file is None else folder / file).exists():  # the client keeps what a hub sends where the hub says
        raise CheckpointError("nothing of this model came to the place where it belongs", value=folder, remedy=_UNTRUE)
    if file is not None:
        return folder / file
    found = checkpoint_in(folder)
    if found is None and weights:
        raise CheckpointError("no checkpoint in what was downloaded", value=folder, remedy=found_in(folder))
    return found or folder


def _matching(files: Collection[str], patterns: Sequence[str]) -> list[str]:
    return sorted(file for file in files if any(fnmatch.fnmatchcase(file, pattern) for pattern in patterns))


def _offer(files: Collection[str]) -> str:
    gguf = _matching(files, ("*.gguf",))
    return f"Name one: hf:OWNER/NAME/FILE.gguf, of {', '.join(gguf[:10])}." if gguf else ""
