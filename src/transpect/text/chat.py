"""Chat templates: a list of messages to the text, and the ids, that a model was trained on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from transpect.base.errors import TokenizerError
from transpect.text.tokenizer import Tokenizer

MAX_CHARS: Final = 16_000_000
"""The longest text that a template may make."""
MAX_TEMPLATE: Final = 1_000_000
"""The longest template, in characters."""

Message = Mapping[str, Any]
"""A message: ``role``, ``content``, and what else the template reads (``tool_calls``, ``name``, …)."""


def render_chat(
    template: str,
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool = False,
    special_tokens: Mapping[str, str] | None = None,
    tools: Sequence[Mapping[str, Any]] | None = None,
    variables: Mapping[str, Any] | None = None,
    max_chars: int = MAX_CHARS,
    marks: tuple[str, str] = ("", ""),
) -> str:
    """The text of a conversation.

    The template is a stranger's program: it runs in jinja2's immutable sandbox, on a budget of work and of
    text (:mod:`transpect.text.sandbox`). It sees what it sees in ``transformers``: ``messages``, ``tools``,
    ``add_generation_prompt``, the special tokens as ``bos_token`` and so on, ``raise_exception``,
    ``strftime_now``, the filter ``tojson``, ``break`` and ``continue``.

    Args:
        template: Jinja source.
        messages: at least one; made of what JSON can hold.
        add_generation_prompt: end with what makes the assistant speak next.
        special_tokens: role to token, as in ``Tokenizer.special_tokens``.
        tools: JSON schemas of functions that the model may call.
        variables: more names for the template, such as ``enable_thinking``.
        max_chars: the longest text to accept.
        marks: what to write before and after each part that the template marks by ``{% generation %}``.

    Raises:
        TokenizerError: a message without a role, values that JSON can't hold, a template that is wrong, refuses the
            messages, reaches for Python, or goes over a limit.
    """
    from jinja2 import TemplateSyntaxError

    from transpect.text.sandbox import compiled, render

    if len(template) > MAX_TEMPLATE:
        raise TokenizerError(f"a chat template has at most {MAX_TEMPLATE} characters", value=len(template))
    seen = {
        **{f"{role}_token": token for role, token in (special_tokens or {}).items()},
        **_plain(variables or {}, "variables"),
        "messages": _checked_messages(messages),
        "tools": None if tools is None else _plain(tools, "tools"),
        "add_generation_prompt": add_generation_prompt,
    }
    try:
        return render(compiled(template), seen, max_chars, marks)
    except TemplateSyntaxError as error:
        raise TokenizerError(
            f"the chat template is not valid Jinja, line {error.lineno}: {error.message}", remedy="Mend the template."
        ) from error
    except Exception as error:  # a template's expressions can raise anything
        raise TokenizerError(
            f"the chat template can't render these messages: {str(error) or type(error).__name__}",
            remedy="Check their roles and their order against the model's card, or pass another template.",
        ) from error


def encode_chat(
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    *,
    template: str = "default",
    add_generation_prompt: bool = True,
    tools: Sequence[Mapping[str, Any]] | None = None,
    variables: Mapping[str, Any] | None = None,
) -> list[int]:
    """The ids of a conversation, ready to be continued.

    There is one bos where the model wants one: the template's own, or else the one that the tokenizer puts before
    raw text. No eos, cls or sep is added.

    Args:
        template: the name of one of the tokenizer's templates, or Jinja source (anything with a ``{``).

    The other arguments and errors are those of :func:`render_chat`; also:

    Raises:
        TokenizerError: the tokenizer has no such template.
    """
    source = template if "{" in template else chat_template(tokenizer, template)
    text = render_chat(
        source,
        messages,
        add_generation_prompt=add_generation_prompt,
        special_tokens=tokenizer.special_tokens,
        tools=tools,
        variables=variables,
    )
    ids = tokenizer.encode(text)
    bos = tokenizer.bos_id
    return [bos, *ids] if bos is not None and tokenizer.adds_bos and ids[:1] != [bos] else ids


def chat_template(tokenizer: Tokenizer, name: str = "default") -> str:
    """The source of one of a tokenizer's chat templates.

    Raises:
        TokenizerError: it has none of that name.
    """
    if name not in tokenizer.chat_templates:
        has = ", ".join(tokenizer.chat_templates) or "none at all"
        raise TokenizerError(
            "the tokenizer has no such chat template",
            value=name,
            remedy=f"It has {has}; put a chat_template.jinja beside its tokenizer.json, or pass Jinja source.",
        )
    return tokenizer.chat_templates[name]


def _checked_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    if isinstance(messages, (str, Mapping)) or not messages:
        raise TokenizerError(
            "a chat is a non-empty list of messages",
            value=messages,
            remedy='Pass [{"role": "user", "content": "…"}].',
        )
    for number, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise TokenizerError(
                f"message {number} must have a role",
                value=message,
                remedy='Write {"role": "user", "content": "…"}.',
            )
    plain: list[dict[str, Any]] = _plain(messages, "messages")
    return plain


def _plain(value: Any, what: str) -> Any:
    """A copy made of dict, list, str and numbers: a template is handed no object of the program."""
    try:
        return json.loads(json.dumps(value, ensure_ascii=False, default=_as_plain))
    except (TypeError, ValueError, RecursionError) as error:
        raise TokenizerError(
            f"{what} must be made of what JSON can hold ({error})", remedy="Pass dicts, lists, strings and numbers."
        ) from error


def _as_plain(value: object) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not")
