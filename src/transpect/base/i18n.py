"""What a person reads at length, in their language: ``tr("cli.train")``.

The rows live in `transpect.base.messages`, one file a subject; here the language is chosen and the values filled in.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

from transpect.base.messages import TABLE

__all__ = ["Language", "language", "tr"]

Language = Literal["en", "zh"]

# The order of POSIX (XBD 8.2), after our own variable. A variable that is set to nothing counts as not set.
_VARIABLES = ("TRANSPECT_LANG", "LC_ALL", "LC_MESSAGES", "LANG")


def language(environ: Mapping[str, str] | None = None) -> Language:
    """The reader's language: ``"zh"`` if the first variable that is set begins with ``zh``, otherwise ``"en"``.

    Args:
        environ: where ``TRANSPECT_LANG``, ``LC_ALL``, ``LC_MESSAGES`` and ``LANG`` are looked up, in this order;
            the environment of the process when None.
    """
    variables = os.environ if environ is None else environ
    chosen = next((variables[name] for name in _VARIABLES if variables.get(name)), "")
    return "zh" if chosen.lower().startswith("zh") else "en"


def tr(key: str, /, *, lang: Language | None = None, **values: object) -> str:
    """The message of `key` with its ``{placeholders}`` filled in by ``str.format``.

    Args:
        key: a row of `transpect.base.messages.TABLE`.
        lang: the language to use; the reader's (see `language`) when None.
        values: one value for each placeholder, e.g. ``tr("cli.saved", path=out)``.

    Raises:
        KeyError: the table has no such row, or a placeholder has no value. Both are slips of a programmer, never of
            a user; ``tests/base/test_i18n.py`` finds them.
    """
    if key not in TABLE:
        raise KeyError(f"no message {key!r}; add a row in transpect/base/messages")
    return TABLE[key][lang or language()].format(**values)
