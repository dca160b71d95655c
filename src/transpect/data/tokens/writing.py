"""Write shards one after the other; each is on the disk, whole, before it is spoken of."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from transpect.data.ragged import Ints
from transpect.data.tokens.encoding import Part
from transpect.data.tokens.layout import COLUMNS, Shard


class Writing:
    """One shard in the making. It has another name until it is whole.

    Args:
        folder: where it will stand.
        number: which shard it is.
        dtype: of the ids.
    """

    def __init__(self, folder: Path, number: int, dtype: np.dtype[Any]) -> None:
        self._name, self._folder, self._dtype = f"{number:05d}", folder, dtype
        self._fresh = folder / f".{self._name}.bin.new"
        self._stream = self._fresh.open("wb")
        self._digest = sha256()
        self._index: list[Ints] = []
        self.documents = self.tokens = self.characters = 0

    def add(self, part: Part, begin: int, end: int) -> None:
        """Take up the documents ``begin`` … ``end`` − 1 of a part."""
        starts = part.rows.starts[begin : end + 1]
        data = part.rows.flat[starts[0] : starts[-1]].astype(self._dtype).tobytes()
        self._stream.write(data)
        self._digest.update(data)
        characters = part.characters[begin:end]
        ends = np.cumsum(characters)
        index = np.empty((end - begin, COLUMNS), "<i8")
        index[:, 0] = self.tokens + starts[:-1] - starts[0]
        index[:, 1] = self.characters + ends - characters
        index[:, 2] = np.frombuffer(part.digests, "<i8")[begin:end]
        self._index.append(index)
        self.documents += end - begin
        self.tokens += int(starts[-1] - starts[0])
        self.characters += int(ends[-1])

    def close(self) -> Shard:
        """Give the shard its name."""
        end = np.array([[self.tokens, self.characters, 0]], "<i8")
        index = np.concatenate([*self._index, end]).tobytes()
        with self._stream as stream:
            stream.flush()
            os.fsync(stream.fileno())
        fresh = self._folder / f".{self._name}.idx.new"
        with fresh.open("wb") as other:
            other.write(index)
            other.flush()
            os.fsync(other.fileno())
        fresh.replace(self._folder / f"{self._name}.idx")
        self._fresh.replace(self._folder / f"{self._name}.bin")
        sums = self._digest.hexdigest(), sha256(index).hexdigest()
        return Shard(self._name, self.documents, self.tokens, self.characters, *sums)

    def abandon(self) -> None:
        """Leave nothing."""
        self._stream.close()
        self._fresh.unlink(missing_ok=True)
