"""A conversation with a model, and what a person can do with it besides going on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transpect.base.codec import did_you_mean
from transpect.base.errors import ConfigError, DataError
from transpect.base.files import read_json_file
from transpect.base.i18n import tr
from transpect.cli.parameters import parameter

if TYPE_CHECKING:
    from transpect.decode import FinishReason
    from transpect.lm import LanguageModel

__all__ = ["COMMANDS", "Conversation"]

COMMANDS = (
    "help", "system", "history", "undo", "retry", "edit", "reset", "params", "set", "unset", "save", "load", "quit",
)  # fmt: skip


class Conversation:
    """Messages, the parameters of their answers, and what the model was told before.

    Args:
        lm: with a chat template.
        params: of generation, by name.
        system: what the model is told before the conversation; None is nothing.
        template: see `LanguageModel.chat`.
        options: of the engine: ``memory`` and its like.

    Attributes:
        messages: ``role`` and ``content`` of each, without the system's.
        finish_reason: why the last answer ended; None where somebody ended it.
    """

    def __init__(
        self,
        lm: LanguageModel,
        params: Mapping[str, Any],
        *,
        system: str | None = None,
        template: str = "default",
        options: Mapping[str, Any],
    ) -> None:
        self.lm, self.params, self.system, self.template = lm, dict(params), system, template
        self.messages: list[dict[str, str]] = []
        self.finish_reason: FinishReason | None = None
        self._options, self._tries = dict(options), 0

    def say(self, text: str) -> Iterator[str]:
        """Say something; the answer comes in pieces and becomes a part of the conversation. Closing the iterator ends
        the answer where it is. Where it can't begin, nothing was said.

        Raises:
            TranspectError: the template can't render it, it is too long, or the parameters don't fit.
        """
        before = list(self.messages)
        self._tries = 0
        self.messages.append({"role": "user", "content": text})
        return self._answer(before)

    def do(self, command: str, rest: str) -> Iterator[str]:
        """Do what a line asks for that begins with a slash; what it says comes in pieces.

        Args:
            command: without the slash, of `COMMANDS`; ``help`` and ``quit`` are for the caller.
            rest: what follows it.

        Raises:
            TranspectError: there is no such command, or it can't be done.
        """
        if command not in COMMANDS:
            raise ConfigError("no such command", value=f"/{command}", remedy=_alike(command))
        done: Iterator[str] | str | None = getattr(self, f"_{command}")(rest.strip())
        return iter([done] if isinstance(done, str) and done else done or [])

    def _system(self, text: str) -> None:
        self.system = text or None

    def _history(self, _: str) -> str:
        told = [] if self.system is None else [f"system: {self.system}"]
        numbered = [f"{i}. {one['role']}: {one['content']}" for i, one in enumerate(self.messages, 1)]
        return "\n".join([*told, *numbered])

    def _undo(self, _: str) -> str:
        last = self._last("user")
        text = self.messages[last]["content"]
        del self.messages[last:]
        return tr("cli.chat.undone", text=text)

    def _retry(self, _: str) -> Iterator[str]:
        last = self._last("user")
        before = list(self.messages)
        del self.messages[last + 1 :]
        self._tries += 1
        return self._answer(before)

    def _edit(self, rest: str) -> Iterator[str] | None:
        number = re.match(r"([0-9]+)(?:\s+|$)", rest)
        place = self._last("user") if number is None else int(number[1]) - 1
        text = rest if number is None else rest[number.end() :]
        if not 0 <= place < len(self.messages):
            raise ConfigError(
                f"a message has a number from 1 to {len(self.messages)}", value=place + 1, remedy="See /history."
            )
        if not text:
            raise ConfigError("/edit needs the new text", remedy="Write /edit TEXT, or /edit N TEXT.")
        before, role = list(self.messages), self.messages[place]["role"]
        self.messages[place:] = [{"role": role, "content": text}]
        self._tries = 0
        return self._answer(before) if role == "user" else None

    def _reset(self, _: str) -> None:
        self.messages.clear()

    def _params(self, _: str) -> str:
        return "\n".join(f"{name} = {value}" for name, value in self.params.items())

    def _set(self, rest: str) -> None:
        name, _, text = rest.partition(" ")
        if not text.strip():
            raise ConfigError("/set needs a name and a value", value=rest, remedy="Write /set temperature 0.7.")
        found = parameter(name)
        changed = {**self.params, found.name: found.value(text.strip())}
        self.lm.requests([[0]], **changed)  # it refuses what can't be, before it is kept
        self.params = changed

    def _unset(self, name: str) -> None:
        self.params.pop(parameter(name).name, None)

    def _save(self, name: str) -> str:
        file = _named(name, "save")
        told = [] if self.system is None else [{"role": "system", "content": self.system}]
        file.write_text(json.dumps([*told, *self.messages], ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        return tr("cli.chat.saved", path=file, n=len(self.messages))

    def _load(self, name: str) -> str:
        file = _named(name, "load")
        messages = read_json_file(file, DataError)
        if not isinstance(messages, list) or not all(
            isinstance(one, dict) and isinstance(one.get("role"), str) and isinstance(one.get("content"), str)
            for one in messages
        ):
            raise DataError(
                "a conversation is a list of messages, each with a role and a content", file=file, remedy="See /save."
            )
        told = messages and messages[0]["role"] == "system"
        self.system = messages[0]["content"] if told else None
        self.messages = messages[1:] if told else messages
        return tr("cli.chat.saved", path=file, n=len(self.messages))

    def _last(self, role: str) -> int:
        """Where the last message of a role is."""
        found = [place for place, message in enumerate(self.messages) if message["role"] == role]
        if not found:
            raise ConfigError("there must be a message of yours", remedy="Say something first.")
        return found[-1]

    def _answer(self, before: list[dict[str, str]]) -> Iterator[str]:
        """Let the model speak; if it can't begin, the messages are again those that were there before."""
        told = [] if self.system is None else [{"role": "system", "content": self.system}]
        params = self.params
        if params.get("seed") is not None:
            params = {**params, "seed": params["seed"] + self._tries}
        try:
            if params.get("n", 1) != 1:
                raise ConfigError("a conversation goes on with one answer", value=f"n={params['n']}")
            ids = self.lm.chat_prompt([*told, *self.messages], template=self.template)
            events = self.lm.events([ids], **params, **self._options)
        except Exception:
            self.messages = before
            raise
        answer = {"role": "assistant", "content": ""}
        self.messages.append(answer)
        self.finish_reason = None

        def pieces() -> Iterator[str]:
            for event in events:
                answer["content"] += event.text
                self.finish_reason = event.finish_reason
                yield event.text

        return pieces()


def _named(name: str, command: str) -> Path:
    if not name:
        raise ConfigError(f"/{command} needs a file", remedy=f"Write /{command} talk.json.")
    return Path(name)


def _alike(command: str) -> str:
    return f"{did_you_mean(command, COMMANDS)} /help lists the commands; a message with a slash has two.".strip()
