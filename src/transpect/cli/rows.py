"""Results as JSON data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transpect.decode import Result


def as_row(result: Result) -> dict[str, Any]:
    """A result as JSON data."""
    return {
        "choice": result.choice,
        "text": result.text,
        "ids": list(result.ids),
        "logprobs": list(result.logprobs),
        "score": result.score,
        "finish_reason": result.finish_reason,
        "seed": result.seed,
        **({"top_logprobs": [dict(top) for top in result.top_logprobs]} if result.top_logprobs else {}),
        **({"drafted": result.drafted, "accepted": result.accepted} if result.drafted else {}),
    }
