"""Scripts that peers' own interpreters run, a folder a task and a file a peer; `loop` is their common one,
and `clients` asks servers.

None imports transpect, except ``ours``: a peer's environment does not have it. Each defines one function::

    def load(options: dict[str, Any]) -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]

which opens a model and gives what is known of it (``versions``, ``bits``, ...), and what does the work once.
"""
