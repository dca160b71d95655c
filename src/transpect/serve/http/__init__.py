"""The HTTP API of the server: requests in the words of OpenAI's API, checked whole before any work starts.

A request's way: `protocol` (bytes, within bounds and in time) → `gate` (who asks, whether there is room) → `body`
(strict JSON) → `fields` (each field in its range) → a route → `generation` (jobs of the engine, their events) → JSON,
or a stream.
"""
