"""Events while they come, and a way to say that some of them are not wanted any more."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from transpect.decode.request import Event


class Events(Iterator[Event]):
    """The events of requests that are being decoded. The work is done while they are taken, and only then.

    Closing them, or letting go of them, ends all work at once and frees the caches.

    Args:
        events: where they come from; it leaves out those of cancelled requests.
        cancelled: requests that ``events`` leaves out, by their place in the list of requests; it is filled here.

    Example:
        >>> with stream(model, requests) as events:
        ...     for event in events:
        ...         if not wanted(event.request):
        ...             events.cancel(event.request)
    """

    def __init__(self, events: Generator[Event, None, None], cancelled: set[int]) -> None:
        self._events, self._cancelled = events, cancelled

    def __next__(self) -> Event:
        return next(self._events)

    def cancel(self, request: int) -> None:
        """End one request: it has no more events, and its rows leave the model's batch before the next token.

        The others go on, with the tokens that they would have had. One that has ended, or is cancelled already, may be
        cancelled. It may be done from another thread.

        Args:
            request: its place in the list of requests.
        """
        self._cancelled.add(request)

    def close(self) -> None:
        """End all work."""
        self._events.close()

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
