"""A file of prompts in, a line of JSON for each output; what was interrupted goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transpect.base.errors import DataError, TranspectError
from transpect.base.i18n import tr
from transpect.cli.inputs import cache_named
from transpect.cli.job import Job
from transpect.cli.prompt_files import Asked, digest, read_prompts
from transpect.cli.rows import as_row
from transpect.cli.screen import progress

if TYPE_CHECKING:
    from transpect.core import Transformer
    from transpect.decode import Request, Result
    from transpect.lm import LanguageModel

__all__ = ["Settings", "complete_file"]


@dataclass(frozen=True)
class Settings:
    """How the prompts of a file are answered.

    Attributes:
        params: parameters of generation, for all that a line does not say itself.
        chat: take a text for the message of a user.
        batch_size: how many rows at a time. It is a part of what decides the last bit of a result.
        memory: see `transpect.decode.stream`.
        cache: how the command line spells a kind of cache; None is the default.
    """

    params: Mapping[str, Any]
    chat: bool
    batch_size: int
    memory: int | None
    cache: str | None


def complete_file(lm: LanguageModel, prompts: str, out: Path, settings: Settings) -> None:
    """Answer each prompt of a file.

    An output without a seed is sampled with one that depends on its line and on a number that is drawn when the job
    begins. A batch is always the same prompts, also after an interruption, so even the rounding of its products is.

    Raises:
        DataError: a file that can't be read, or an output that was begun otherwise.
        TranspectError: a prompt that can't be answered; all are checked before the first is begun.
    """
    from secrets import randbits

    lines = read_prompts(prompts)
    requests = [_request(lm, line, settings, prompts) for line in lines]
    job = Job(
        out,
        {
            "prompts": digest(prompts),
            "model": _digest_of(lm),
            "parameters": dict(settings.params),
            "chat": settings.chat,
            "batch_size": settings.batch_size,
            "memory": settings.memory,
            "cache": settings.cache,
            "runtime": lm.runtime,
            **_drafts_of(requests),
        },
        lambda: {"seed": randbits(63)},
    )
    requests = [_seeded(request, job.fixed["seed"], line.line) for request, line in zip(requests, lines, strict=True)]
    done = _whole(job, lines, requests)
    size = settings.batch_size
    with progress(tr("cli.generate.progress"), len(lines), done) as advance:
        for start in range(done // size * size, len(lines), size):
            chunk = slice(start, start + size)
            rows = list(_answers(lm, lines[chunk], requests[chunk], settings))
            new = [row for row in rows if row["line"] not in {line.line for line in lines[:done]}]
            job.add(new)
            advance(len({row["line"] for row in new}))
    print(tr("cli.generate.saved", path=out, prompts=f"{len(lines):,}", outputs=f"{len(job.rows()):,}"))


def _request(lm: LanguageModel, line: Asked, settings: Settings, file: str) -> Request:
    from transpect.cache import chosen
    from transpect.decode.fitting import fit

    try:
        prompt = line.prompt if line.messages is None else lm.chat_prompt(line.messages)
        if settings.chat and isinstance(prompt, str):
            prompt = lm.chat_prompt(prompt)
        assert prompt is not None
        (request,) = lm.requests([prompt], **{**settings.params, **line.params})
        return fit(lm.model.config, request, chosen(cache_named(settings.cache), settings.memory))
    except TranspectError as error:
        error.file, error.line = error.file or file, error.line or line.line
        raise


def _seeded(request: Request, seed: int, line: int) -> Request:
    if request.params.seed is not None:
        return request
    drawn = int.from_bytes(blake2b(f"{seed} {line}".encode(), digest_size=8).digest(), "little") >> 1
    return replace(request, params=replace(request.params, seed=drawn))


def _whole(job: Job, lines: Sequence[Asked], requests: Sequence[Request]) -> int:
    """How many prompts have all their outputs; the file is cut to these."""
    groups = [(number, len(list(rows))) for number, rows in groupby(job.rows(), key=lambda row: row.get("line"))]
    done = kept = 0
    for place, ((number, count), line, request) in enumerate(zip(groups, lines, requests, strict=False)):
        if number != line.line:
            break
        if count < request.params.n and place == len(groups) - 1:  # a search may find fewer; what follows shows it
            break
        done, kept = done + 1, kept + count
    if len(groups) > done + 1:
        raise DataError(
            "the lines of an output must be in the order of the prompts",
            value=groups[done][0],
            file=job.out,
            remedy=f"Name another --out, or remove {job.out} to begin anew.",
        )
    job.keep(kept)
    return done


def _answers(
    lm: LanguageModel, lines: Sequence[Asked], requests: Sequence[Request], settings: Settings
) -> Iterator[dict[str, Any]]:
    from transpect.decode import generate

    results = iter(
        generate(
            lm.model,
            requests,
            tokenizer=lm.tokenizer,
            batch_size=settings.batch_size,
            memory=settings.memory,
            cache=cache_named(settings.cache),
            runtime=lm.runtime,
        )
    )
    for line, own in zip(lines, _by_request(results), strict=True):
        asked = {"prompt": line.prompt} if line.messages is None else {"messages": line.messages}
        named = {} if line.id is None else {"id": line.id}
        for result in own:
            yield {"line": line.line, **named, **asked, **as_row(result)}


def _by_request(results: Iterator[Result]) -> Iterator[list[Result]]:
    """The outputs of one request after those of another; the first of each is number 0."""
    own: list[Result] = []
    for result in results:
        if result.choice == 0 and own:
            yield own
            own = []
        own.append(result)
    if own:
        yield own


def _drafts_of(requests: Sequence[Request]) -> dict[str, Any]:
    """Models that draft, where there are any: a name may come to mean another."""
    drafts = {id(own): own for request in requests if (own := getattr(request.params.strategy, "draft", None))}
    return {"drafts": [_told_apart(own) for own in drafts.values()]} if drafts else {}


def _digest_of(lm: LanguageModel) -> str:
    """What tells a model, its tokenizer and its settings from all others."""
    told = (sorted(lm.tokenizer.chat_templates.items()), sorted(lm.generation.items()))
    return _told_apart(lm.model, lm.tokenizer.backend.to_str(), *map(repr, told))


def _told_apart(model: Transformer, *more: str) -> str:
    """What tells the config and the weights of a model from all others, and some texts."""
    import torch

    found = blake2b(digest_size=16)
    for text in (repr(model.config), *more):
        found.update(text.encode())
    for name, tensor in sorted(model.state_dict().items()):
        found.update(name.encode())
        found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return found.hexdigest()
