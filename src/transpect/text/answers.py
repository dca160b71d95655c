"""Which ids of a conversation are the assistant's: what instruction tuning learns, and nothing else.

A template that marks answers itself (``{% generation %} … {% endgeneration %}``) is taken at its word. Of any other, an
answer is found between two renderings that a writer would make: what stands before it is the conversation up to it,
ready to be continued; what stands up to its end is the conversation with it. Both must begin the text of the whole
conversation. Where they do not, the template rewrites what has been said (it drops earlier thoughts, or moves the tools
along), no mask could be right, and the conversation is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from transpect.base.errors import TokenizerError
from transpect.text.chat import Message, chat_template, render_chat
from transpect.text.tokenizer import Tokenizer

MARKS: Final = ("\ufdd0", "\ufdd1")
"""Around what a template marks while it is rendered: two code points that Unicode keeps out of every text."""

_GENERATION: Final = re.compile(r"\{%[-+]?\s*generation\b")

Span = tuple[int, int]
"""A half-open range of characters."""


@dataclass(frozen=True)
class Answers:
    """A conversation as ids.

    Attributes:
        ids: of the whole.
        learnt: for each of them, whether the assistant says it.
    """

    ids: list[int]
    learnt: list[bool]


def encode_answers(
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    *,
    template: str = "default",
    tools: Sequence[Mapping[str, Any]] | None = None,
    variables: Mapping[str, Any] | None = None,
    last: bool = False,
) -> Answers:
    """The ids of a conversation as `encode_chat` makes them, and which of them are the assistant's.

    An answer is what the assistant would write after the prompt that the template makes for it, up to and including the
    token that ends its turn; what a template puts after that (a line feed) is not. Where the template leaves the end
    out, the tokenizer's eos counts if it follows; an answer that ends the text without an end is given that eos. A
    message of ``weight`` 0 is context. Prompt
    and answer share no token: where the tokenizer would join the two, they are encoded apart, as in writing. What
    follows the last answer is left out, and a message of the assistant before any other is context.

    Args:
        tokenizer: of the model.
        messages: with at least one of role ``assistant``.
        template: the name of one of the tokenizer's templates, or Jinja source (anything with a ``{``).
        tools: JSON schemas of functions that the model may call.
        variables: more names for the template.
        last: only the last answer that has weight.

    Raises:
        TokenizerError: no answer, no such template, messages that it can't render, a template that rewrites what has
            been said, or a tokenizer that can't be parted where an answer begins.
    """
    source = template if "{" in template else chat_template(tokenizer, template)
    said = [at for at, message in enumerate(messages) if at and message.get("role") == "assistant"]
    turns = [at for at in said if messages[at].get("weight", 1)]
    if not turns:
        raise TokenizerError(
            "a conversation to learn from needs an answer: a message of the assistant after another message"
            f"{', of weight 1' if said else ''}",
            value=[message.get("role") for message in messages],
            remedy="Remove it, or check the roles.",
        )

    def render(count: int, **options: Any) -> str:
        return render_chat(
            source,
            messages[:count],
            special_tokens=tokenizer.special_tokens,
            tools=tools,
            variables=variables,
            **options,
        )

    def marked_before(count: int) -> int:
        return len(_marks_in(render(count, marks=MARKS))[1])

    wanted = turns[-1:] if last else turns
    whole = turns[-1] + 1
    text = render(whole)
    if _GENERATION.search(source):
        spans = _marked(text, render(whole, marks=MARKS))
        if wanted != [at for at in said if at < whole]:
            spans = [span for at in wanted for span in spans[marked_before(at) : marked_before(at + 1)]]
    else:
        spans = [_between(text, render(at, add_generation_prompt=True), render(at + 1), at) for at in wanted]
    return _encoded(tokenizer, text, [(begin, end) for begin, end in spans if begin < end])


def _marked(text: str, marked: str) -> list[Span]:
    plain, spans = _marks_in(marked)
    if plain != text or not spans:
        raise TokenizerError(
            "a template that marks answers by {% generation %} must mark one, and write what it marks as it is",
            value=plain[:200],
            remedy="Move the tags to where the answer is written, or remove them.",
        )
    return spans


def _marks_in(marked: str) -> tuple[str, list[Span]]:
    """The text without marks, and what they stand around; marks inside marks add nothing."""
    plain, spans, depth, begin = "", list[Span](), 0, 0
    for part in re.split(f"([{''.join(MARKS)}])", marked):
        if part == MARKS[0]:
            begin = begin if depth else len(plain)
            depth += 1
        elif part == MARKS[1]:
            depth -= 1
            spans += [] if depth else [(begin, len(plain))]
        else:
            plain += part
    return plain, spans


def _between(text: str, before: str, after: str, at: int) -> Span:
    if not (text.startswith(before) and text.startswith(after) and len(before) <= len(after)):
        raise TokenizerError(
            f"the chat template must not rewrite what has been said, and it does around message {at}",
            value=(before if not text.startswith(before) else after)[-200:],
            remedy="Learn only the last answer (data.objective.answers: last), mark answers by {% generation %} in the "
            "template, or use another template.",
        )
    return len(before), len(after)


def _encoded(tokenizer: Tokenizer, text: str, spans: Sequence[Span]) -> Answers:
    pieces = _apart(tokenizer, text, [border for span in spans for border in span])
    bos, eos = tokenizer.bos_id, tokenizer.eos_id
    ids: list[int] = [] if bos is None or not tokenizer.adds_bos or pieces[0][:1] == [bos] else [bos]
    learnt = [False] * len(ids)
    for number, piece in enumerate(pieces):
        ids += piece
        if number % 2 == 0:
            learnt += [False] * len(piece)
            continue
        end = _end(tokenizer, piece)
        learnt += [True] * (end or len(piece)) + [False] * (len(piece) - (end or len(piece)))
        following = pieces[number + 1]
        if end is None and eos is not None:
            if following[:1] == [eos]:
                ids.append(eos)
                learnt.append(True)
                del following[0]
            elif not following and number + 2 == len(pieces):
                ids.append(eos)
                learnt.append(True)
    return Answers(ids, learnt)


def _end(tokenizer: Tokenizer, answer: Sequence[int]) -> int | None:
    """How many ids of an answer there are up to its last special one, if only spaces follow that."""
    special = [at for at, token in enumerate(answer) if token in tokenizer.special_ids]
    if not special or tokenizer.decode(answer[special[-1] + 1 :]).strip():
        return None
    return special[-1] + 1


def _apart(tokenizer: Tokenizer, text: str, borders: Sequence[int]) -> list[list[int]]:
    """The ids of a text, parted at some characters; they are those of the whole where no token reaches across."""
    whole = tokenizer.encode(text)
    heads = tokenizer.encode_batch([text[:border] for border in borders])
    bad = [border for border, head in zip(borders, heads, strict=True) if whole[: len(head)] != head]
    if not bad:
        marks = [0, *map(len, heads), len(whole)]
        return [whole[a:b] for a, b in pairwise(marks)]
    pieces: list[list[int]] = []
    edges = [0, *bad, len(text)]
    for begin, end in pairwise(edges):
        inside = [border - begin for border in borders if border not in bad and begin <= border <= end]
        pieces += _apart(tokenizer, text[begin:end], inside)
    if tokenizer.decode([token for piece in pieces for token in piece]) != tokenizer.decode(whole):
        raise TokenizerError(
            "prompt and answer must be encoded apart, and this tokenizer reads them otherwise than together",
            value=text[max(0, bad[0] - 20) : bad[0] + 20],
            remedy="Let the template put a special token or a line feed before the answer.",
        )
    return pieces
