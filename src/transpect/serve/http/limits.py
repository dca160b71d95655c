"""How much a request may ask for, and how long it may take."""

from __future__ import annotations

from dataclasses import dataclass, fields

from transpect.base.checks import above, within

__all__ = ["Limits"]


@dataclass(frozen=True)
class Limits:
    """Bounds that are held before work starts. Every one of them is an error with a name, never a cut in silence.

    Attributes:
        body_bytes: the longest body of a request; beyond it 413.
        header_bytes: the longest head of a request, its first line and its headers; beyond it 431.
        json_depth: how deep arrays and objects may nest.
        json_parts: how many arrays, objects and members a body may have.
        prompts: how many prompts, or texts, one request may have.
        messages: how many messages a conversation may have.
        n: how many outputs of one prompt.
        best_of: how many are drawn to choose them from.
        num_beams: the widest beam search.
        stops: how many stop strings.
        stop_chars: the longest stop string.
        biases: how many entries ``logit_bias`` may have.
        top_logprobs: how many alternatives of each token.
        tools: how many functions the model may be offered.
        schema_bytes: the longest JSON schema, grammar or regular expression.
        schema_seconds: how long reading one of them may take.
        schema_mebibytes: how much memory it may take.
        default_max_tokens: how many tokens a conversation's answer has at most where the request does not say.
        active: how many requests are taken in at a time; beyond it 429.
        connections: how many connections are open at a time; beyond it 503.
        receive_seconds: until the head of a request must be there, from its first byte or the opening of its
            connection; and then until its body must be.
        idle_seconds: how long a connection may be idle between two requests.
        send_seconds: how long a reader may leave what was sent to it unread.
        request_seconds: how long an answer may take.
        drain_seconds: how long running requests may go on after SIGTERM.
    """

    body_bytes: int = 2 * 2**20
    header_bytes: int = 16 * 2**10
    json_depth: int = 32
    json_parts: int = 100_000
    prompts: int = 64
    messages: int = 1024
    n: int = 16
    best_of: int = 16
    num_beams: int = 16
    stops: int = 16
    stop_chars: int = 256
    biases: int = 1024
    top_logprobs: int = 20
    tools: int = 128
    schema_bytes: int = 64 * 2**10
    schema_seconds: float = 2.0
    schema_mebibytes: int = 512
    default_max_tokens: int = 1024
    active: int = 512
    connections: int = 1024
    receive_seconds: float = 30.0
    idle_seconds: float = 30.0
    send_seconds: float = 30.0
    request_seconds: float = 600.0
    drain_seconds: float = 30.0

    def __post_init__(self) -> None:
        for own in fields(self):
            value = getattr(self, own.name)
            if own.name.endswith("_seconds"):
                above(own.name, value, 0)
            else:
                within(own.name, value)
