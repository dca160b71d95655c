"""Conversations, in the words of the checkpoint's chat template."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from transpect.lm.writing import Writing
from transpect.text.chat import Message, encode_chat


class Chatting(Writing):
    """A language model that answers in a conversation."""

    def chat(
        self,
        messages: str | Sequence[Message],
        *,
        template: str = "default",
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
        **params: Any,
    ) -> Any:
        """The assistant's next message: a string, or with ``n`` a list of them.

        Args:
            messages: the conversation, ``[{"role": "user", "content": "…"}, …]``; a string is one message of a user.
            template: the name of one of the tokenizer's templates, or Jinja source.
            tools: JSON schemas of functions that the model may call.
            variables: more names for the template, such as ``enable_thinking``.
            params: as for `generate`.

        Raises:
            TokenizerError: no such template, or messages that it can't render (see `transpect.text.chat`).
            GenerationError, ContextLengthError: as `generate`.
        """
        ids = self.chat_prompt(messages, template=template, tools=tools, variables=variables)
        return self.generate(ids, **params)

    def stream_chat(
        self,
        messages: str | Sequence[Message],
        *,
        template: str = "default",
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
        **params: Any,
    ) -> Iterator[str]:
        """As `chat`, in pieces of text as soon as they are certain."""
        ids = self.chat_prompt(messages, template=template, tools=tools, variables=variables)
        return self.stream(ids, **params)

    def chat_prompt(
        self,
        messages: str | Sequence[Message],
        *,
        template: str = "default",
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """The ids of a conversation, ready to be continued by the assistant.

        Raises:
            TokenizerError: as `chat`.
        """
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return encode_chat(self.tokenizer, messages, template=template, tools=tools, variables=variables)
