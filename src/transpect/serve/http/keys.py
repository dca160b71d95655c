"""Who may ask: API keys, compared in constant time, each with limits of its own.

Keys come from a YAML file or from the environment variable ``TRANSPECT_API_KEYS`` (``name:key`` or ``key``, parted by
commas). Only their SHA-256 is kept. A key is looked for among all of them, so the time that takes says nothing of where
one was found or of how much of a guess was right.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from transpect.base.checks import within
from transpect.base.codec import load_config
from transpect.base.errors import ConfigError
from transpect.serve.http.errors import ApiError, busy

__all__ = ["ANYONE", "Account", "Key", "KeyFile", "Keys", "from_environment", "from_file"]

VARIABLE: Final = "TRANSPECT_API_KEYS"
SHORTEST: Final = 16
"""Characters of the shortest key: fewer could be guessed."""


@dataclass(frozen=True)
class Key:
    """An API key and what it may ask for.

    Attributes:
        key: the secret, or ``sha256:`` and its digest in hexadecimal.
        name: in logs and metrics; callers with different names share no cached prompts.
        requests_per_minute: None is without a limit.
        tokens_per_minute: of prompts and outputs together; None is without a limit.
        concurrent: how many requests at a time; None is without a limit.
        priority: of its requests; the higher one goes first.
    """

    key: str
    name: str = "default"
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None
    priority: int = 0

    def __post_init__(self) -> None:
        for name in ("requests_per_minute", "tokens_per_minute", "concurrent"):
            within(name, getattr(self, name))
        if not self.key.startswith("sha256:") and len(self.key) < SHORTEST:
            raise ConfigError(
                f"an API key must have at least {SHORTEST} characters",
                value=f"{len(self.key)} characters",
                remedy='Make one: python -c "import secrets; print(secrets.token_urlsafe(32))".',
            )
        if not self.key.isascii():
            raise ConfigError("an API key must be of ASCII characters, as headers are", value=self.name)
        if self.key.startswith("sha256:"):
            self.digest  # noqa: B018 # refuses what is no digest

    @property
    def digest(self) -> bytes:
        """SHA-256 of the secret."""
        if not self.key.startswith("sha256:"):
            return hashlib.sha256(self.key.encode()).digest()
        try:
            found = bytes.fromhex(self.key.removeprefix("sha256:"))
        except ValueError:
            found = b""
        if len(found) != 32:
            raise ConfigError("sha256: must be followed by 64 hexadecimal digits", value=self.name)
        return found

    def __repr__(self) -> str:
        return f"Key(name={self.name!r})"  # the secret stays out of logs


@dataclass(frozen=True)
class KeyFile:
    """A file of keys: ``keys``, a list."""

    keys: tuple[Key, ...]


class Bucket:
    """So much a minute: it fills steadily, holds a minute's worth, and may be overdrawn by what was not known before.

    Args:
        per_minute: how much; None is without a limit.
        clock: seconds that never go back.
    """

    def __init__(self, per_minute: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = None if per_minute is None else per_minute / 60
        self._clock, self._at = clock, clock()
        self._most = self._level = float(per_minute or 0)

    def wait(self, amount: float = 1.0) -> float:
        """Seconds until so much is there; 0 where it is."""
        if self._rate is None:
            return 0.0
        self._fill(self._rate)
        return max(0.0, (min(amount, self._most) - self._level) / self._rate)

    def take(self, amount: float) -> None:
        """Take so much, even where it is not there."""
        if self._rate is not None:
            self._fill(self._rate)
            self._level -= amount

    def _fill(self, rate: float) -> None:
        now = self._clock()
        self._level = min(self._most, self._level + (now - self._at) * rate)
        self._at = now


@dataclass
class Account:
    """What a key has used."""

    key: Key
    running: int = 0
    requests: Bucket = field(init=False)
    tokens: Bucket = field(init=False)

    def __post_init__(self) -> None:
        self.requests = Bucket(self.key.requests_per_minute)
        self.tokens = Bucket(self.key.tokens_per_minute)

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """For as long as one request runs.

        Raises:
            ApiError: 429, the key has used up what it may.
        """
        if self.key.concurrent is not None and self.running >= self.key.concurrent:
            raise busy(f"This key may have {self.key.concurrent} requests running at a time.", 1)
        for bucket, what in ((self.requests, "requests"), (self.tokens, "tokens")):
            wait = bucket.wait()
            if wait:
                raise busy(f"This key has used up its {what} per minute.", wait)
        self.requests.take(1)
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1


ANYONE: Final = Key("sha256:" + "0" * 64, name="anyone")
"""Who asks where there are no keys."""


class Keys:
    """All keys, or none: then anyone may ask.

    Raises:
        ConfigError: two keys of one name or of one secret.
    """

    def __init__(self, keys: Sequence[Key]) -> None:
        if len({key.name for key in keys}) < len(keys) or len({key.digest for key in keys}) < len(keys):
            raise ConfigError("each API key needs a name and a secret of its own", value=[key.name for key in keys])
        self._accounts = [(key.digest, Account(key)) for key in keys]
        self._anyone = Account(ANYONE)

    def __len__(self) -> int:
        return len(self._accounts)

    def account(self, authorization: str | None) -> Account:
        """Whose request this is.

        Args:
            authorization: the header: ``Bearer KEY``; or ``Basic``, as browsers send it, with the key as the password.

        Raises:
            ApiError: 401, no key or an unknown one.
        """
        if not self._accounts:
            return self._anyone
        secret = _secret(authorization or "")
        asked = hashlib.sha256(secret).digest()
        found = [own for digest, own in self._accounts if hmac.compare_digest(digest, asked)]
        if secret and found:
            return found[0]
        what = "Incorrect API key provided." if secret else "You didn't provide an API key."
        raise ApiError(
            401,
            f"{what} Send it as the header Authorization: Bearer YOUR_KEY.",
            code="invalid_api_key",
            headers={"WWW-Authenticate": 'Basic realm="transpect", charset="UTF-8"'},
        )


def from_file(path: str | Path) -> list[Key]:
    """The keys of a YAML file.

    Raises:
        ConfigError: there is none, or it is not one of keys.
    """
    return list(load_config(KeyFile, path).keys)


def from_environment(environ: Mapping[str, str]) -> list[Key]:
    """The keys of ``TRANSPECT_API_KEYS``.

    Raises:
        ConfigError: a key that is too short.
    """
    keys = []
    for place, entry in enumerate(filter(None, (own.strip() for own in environ.get(VARIABLE, "").split(",")))):
        name, colon, secret = entry.partition(":")
        keys.append(Key(secret, name) if colon and name != "sha256" else Key(entry, f"key-{place + 1}"))
    return keys


def _secret(authorization: str) -> bytes:
    scheme, _, value = authorization.strip().partition(" ")
    if scheme.lower() == "bearer":
        return value.strip().encode("latin-1", "replace")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value.strip(), validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""
