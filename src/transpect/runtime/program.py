"""A decode program: the same model as a table of calls of loops over its weights, for the few rows of a step on a CPU.

Axes: B sequences, R rows, D model, K key-value heads, S capacity, E head, N blocks, P tokens of a block, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transpect.base.errors import ConfigError
from transpect.cache.block_pool import Copy, Table
from transpect.core import Tags, Transformer
from transpect.core.context import Cache
from transpect.core.heads import CausalLMHead
from transpect.runtime.build import Builder, Room
from transpect.runtime.machine import Calls, team
from transpect.runtime.memory import MOST_ROWS, Layout, Memory, copy_blocks

Array = Any
_LAYERS, _HEAD = -1, -2
"""A program without its head, and the head alone."""
_PLAIN = Layout()
WIDEST = 128
"""Rows of a pass of a program of so many sequences, one of each."""
MANY_ROWS = 1032
"""Of a pass over longer prompts; a multiple of `products.ROWS` whatever it is."""


class Program:
    """A model's weights bound to buffers for some sequences. The weights are shared with the model, not copied.

    It computes what the model does up to the order of sums; activations, keys and values are float32, whatever the
    weights are.

    Args:
        model: a decoder or an encoder–decoder on a CPU, in float32 or bfloat16.
        sequences: B.
        capacity: S, how long a sequence may become.
        sources: how long the longest source is.
        layout: how keys and values are held.
        blocks: see `Memory`; steps of such a program are taken by `step`.

    Raises:
        ConfigError: something that a program can't do, by name.
    """

    def __init__(
        self,
        model: Transformer,
        sequences: int,
        capacity: int,
        sources: int = 0,
        layout: Layout = _PLAIN,
        blocks: int | None = None,
    ) -> None:
        if model.device.type != "cpu" or not isinstance(model.head, CausalLMHead):
            raise ConfigError(
                "a decode program is for a CPU and a language-model head",
                value=f"{model.device}, head {model.config.head.kind}",
                remedy="Decode with runtime=torch.",
            )
        # its parts and not the model, which goes when nobody else has it (see `runtime.kept`)
        self._token, self._tower, self._head = model.token, _last_tower(model), model.head
        self._width, self._size = model.config.d_model, model.config.vocab_size
        self._threads = torch.get_num_threads()
        self._capacity, self._longest_source, self._layout = capacity, sources, layout
        self._memory = Memory(layout, sequences, capacity, blocks)
        self._build()
        self._sources = np.arange(sequences)

    def _build(self) -> None:
        rows = min(WIDEST, -(-len(self._memory.numbers) // MOST_ROWS) * MOST_ROWS)
        room = Room(rows, self._memory, self._capacity, self._longest_source)
        tower = self._tower
        self._built = Builder(tower.stack, tower.embeddings, self._token, self._width, room)
        self._logits = self._built.head(self._head, self._token)
        self._tables: dict[tuple[int | None, Calls], Any] = {}
        self._reads_many: Builder | None = None

    def _many(self) -> Builder:
        """The same layers for passes of many rows, made when a long prompt is read first."""
        if self._reads_many is None:
            room, tower = replace(self._built.room, rows=MANY_ROWS, many=True), self._tower
            self._reads_many = Builder(tower.stack, tower.embeddings, self._token, self._width, room, self._built)
        return self._reads_many

    @property
    def size(self) -> int:
        """How many calls it has."""
        return len(self._built.calls)

    @property
    def bytes_held(self) -> int:
        """Of keys and values."""
        built = self._built
        sources = (*built.source_keys.values(), *built.source_values.values())
        return sum(own.nbytes for own in (*built.keys, *built.values, *sources))

    def has_room(self, sequences: int, capacity: int, sources: int, layout: Layout) -> bool:
        """Whether it would do for other sequences, by the threads that there are now."""
        return (
            sequences <= self._built.room.sequences
            and capacity <= self._capacity
            and sources <= self._longest_source
            and layout == self._layout
            and self._threads == torch.get_num_threads()
        )

    def restart(self, sequences: int) -> None:
        """Forget all sequences, for so many that have no tokens yet."""
        self._memory.restart(sequences)
        self._sources = np.arange(sequences)

    @property
    def calls(self) -> Calls:
        """What it is made of, for who measures them one by one."""
        return self._built.calls

    @property
    def lengths(self) -> Any:
        """Of each sequence, [B]."""
        return self._memory.lengths

    @torch.inference_mode()
    def fill(
        self,
        cache: Cache,
        source: Tags | None = None,
        sequences: Sequence[int] | None = None,
        sources: Sequence[int] | None = None,
    ) -> None:
        """Take over what a cache holds of each sequence, and of its source, without the padding.

        Args:
            sequences: which one each row of the cache is; None is each in turn.
            sources: where its source goes; None is the number of the sequence.
        """
        built, memory = self._built, self._memory
        owners = list(range(len(memory.tables)) if sequences is None else sequences)
        after = torch.as_tensor(cache.next_position).expand(len(owners), 1)[:, 0].tolist()
        position = cache.admit(Tags.dense(len(owners), 0, device="cpu")).position
        dtype = self._token(torch.zeros(1, dtype=torch.int64)).dtype
        held, places = [], []
        for own, length, tokens in zip(owners, after, position, strict=True):
            held.append((tokens >= memory.begin(own, length)).nonzero()[:, 0])
            places.append(memory.places(own, tokens[held[-1]].numpy()))
        for layer, (keys, values) in enumerate(zip(built.keys, built.values, strict=True)):
            none = torch.empty(len(owners), keys.shape[1], 0, keys.shape[3], dtype=dtype)
            for theirs, ours in zip(cache.extend(layer, none, none), (keys, values), strict=True):
                for row, columns, (blocks, slots) in zip(theirs, held, places, strict=True):
                    ours[blocks, :, slots] = row[:, columns].transpose(0, 1).float().numpy()
        if source is not None:
            real = [row.nonzero()[:, 0] for row in source.position >= 0]
            into = owners if sources is None else sources
            built.source_last[into] = [len(columns) - 1 for columns in real]
            for layer, keys in built.source_keys.items():
                _copy(cache.cross(layer, _computed_before), (keys, built.source_values[layer]), real, into)

    @torch.inference_mode()
    def read(self, tokens: Tensor, sequence: Sequence[int], n_layers: int | None = None) -> tuple[Tensor, Tensor]:
        """Read tokens [R], each the next one of its sequence. With a memory, at most `MOST_ROWS` of each.

        Args:
            tokens: ids.
            sequence: which one, of each.
            n_layers: leave the other layers out; None is all.

        Returns:
            logits [R, V] of what follows each, and what the head read, [R, D].
        """
        logits, hidden, first = [], [], self._memory.see(set(sequence))
        most = self._built.room.rows
        for start in range(0, len(tokens), most):
            chosen = slice(start, start + most)
            count = len(sequence[chosen])
            self._take(self._built, tokens[chosen], sequence[chosen], first)
            self._run(count, n_layers)
            logits.append(torch.from_numpy(self._logits[:count, : self._size].copy()))
            hidden.append(torch.from_numpy(self._built.x[:count, : self._width].copy()))
        return _joined(logits), _joined(hidden)

    @torch.inference_mode()
    def begin(self, prompts: Mapping[int, Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Read whole prompts, each of its sequence, which has read nothing before.

        Args:
            prompts: by sequence; none is empty, nor, with a memory, longer than `MOST_ROWS`.

        Returns:
            logits [P, V] of what follows each prompt, in their order, and what the head read, [P, D].
        """
        built, width = self._built, self._width
        last, first = np.empty((len(prompts), width), np.float32), self._memory.see(prompts)
        # decided for each prompt by itself, as the two ways round differently
        long = [len(prompt) > MOST_ROWS for prompt in prompts.values()]
        for which in set(long):
            places = [place for place, own in enumerate(long) if own == which]
            chosen = {own: prompts[own] for own, is_long in zip(prompts, long, strict=True) if is_long == which}
            last[places] = self._last_of(self._many() if which else built, chosen, first)
        return self._headed(last)

    def lend(self, own: int, table: Table, source: int) -> None:
        """Let a sequence hold what a table does (`Memory.lend`), and read the source that was filled for another."""
        self._memory.lend(own, table)
        self._sources[own] = source

    def copy(self, copies: Iterable[Copy]) -> None:
        """Copy beginnings of blocks to others, in this order."""
        told = np.array([*copies], np.int64).reshape(-1, 3)
        if len(told):
            for held in (*self._built.keys, *self._built.values):
                copy_blocks(held, told)

    @torch.inference_mode()
    def step(
        self,
        tokens: Sequence[int],
        sequence: Sequence[int],
        position: Sequence[int],
        wanted: Sequence[int],
        n_layers: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Read tokens [R] of sequences whose tables have been lent, with room for them. A row gets the same, bit for
        bit, whatever the others are.

        Args:
            tokens: ids; those of one sequence in their order.
            sequence: which one, of each.
            position: the place of each there.
            wanted: rows, rising, whose logits are asked for.
            n_layers: as for `read`.

        Returns:
            logits [W, V] of what follows each row that is wanted, and what the head read there, [W, D].
        """
        built, rows, width, size = self._built, self._built.rows, self._width, self._size
        logits, hidden = torch.empty(len(wanted), size), torch.empty(len(wanted), width)
        ids, done = torch.tensor(tokens), 0
        rows.first[:] = 0
        for start in range(0, len(tokens), MOST_ROWS):
            chosen = slice(start, start + MOST_ROWS)
            count = len(tokens[chosen])
            rows.position[:count] = position[chosen]
            heads = [row - start for row in wanted[done:] if row < start + count]
            self._write(self._built, ids[chosen], sequence[chosen])
            if len(heads) == count or n_layers is not None:
                self._run(count, n_layers)
            else:
                self._run(count, _LAYERS)
                if heads:
                    built.x[: len(heads), :width] = built.x[heads, :width]
                    self._run(len(heads), _HEAD)
            own = heads if n_layers is not None else slice(0, len(heads))
            following = slice(done, done + len(heads))
            logits[following] = torch.from_numpy(self._logits[own, :size])
            hidden[following] = torch.from_numpy(built.x[own, :width])
            done += len(heads)
        return logits, hidden

    @torch.inference_mode()
    def step_many(
        self, tokens: Sequence[int], sequence: Sequence[int], position: Sequence[int], wanted: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """`step` by passes of many rows, which are quicker and round otherwise. Here too a row gets the same whatever
        the others are."""
        reader, width = self._many(), self._width
        ids, last = torch.tensor(tokens), np.empty((len(wanted), width), np.float32)
        reader.rows.first[:], done = 0, 0
        for start in range(0, len(tokens), MANY_ROWS):
            chosen = slice(start, start + MANY_ROWS)
            count = len(tokens[chosen])
            reader.rows.position[:count] = position[chosen]
            self._write(reader, ids[chosen], sequence[chosen])
            self._run(count, _LAYERS, reader)
            heads = [row - start for row in wanted[done:] if row < start + count]
            last[done : done + len(heads)] = reader.x[heads, :width]
            done += len(heads)
        return self._headed(last)

    def _headed(self, last: Array) -> tuple[Tensor, Tensor]:
        """Logits [W, V] of rows of the residual stream after all layers [W, D], and what the head read, [W, D]."""
        built, size = self._built, self._size
        logits, hidden = torch.empty(len(last), size), torch.empty(last.shape)
        for start in range(0, len(last), MOST_ROWS):
            some = last[start : start + MOST_ROWS]
            own = slice(start, start + len(some))
            built.x[: len(some), : last.shape[1]] = some
            self._run(len(some), _HEAD)
            logits[own] = torch.from_numpy(self._logits[: len(some), :size])
            hidden[own] = torch.from_numpy(built.x[: len(some), : last.shape[1]])
        return logits, hidden

    def _last_of(self, reader: Builder, prompts: Mapping[int, Sequence[int]], first: Mapping[int, int]) -> Array:
        """Read prompts by the passes of a builder; the residual stream at the last token of each, [P, D]."""
        rows = [(own, token) for own, prompt in prompts.items() for token in prompt]
        ends = {end - 1: n for n, end in enumerate(accumulate(map(len, prompts.values())))}
        width, most = self._width, reader.room.rows
        last = np.empty((len(prompts), width), np.float32)
        for start in range(0, len(rows), most):
            chosen = rows[start : start + most]
            self._take(reader, torch.tensor([token for _, token in chosen]), [own for own, _ in chosen], first)
            self._run(len(chosen), _LAYERS, reader)
            for row in range(len(chosen)):
                if start + row in ends:
                    last[ends[start + row]] = reader.x[row, :width]
        return last

    def forget(self, counts: Sequence[int]) -> None:
        """Forget the last tokens of each sequence, so many."""
        self._memory.forget(counts)

    def select(self, index: Sequence[int]) -> None:
        """Go on with these sequences, in this order; one may be chosen more than once or not at all."""
        if len(index) > self._built.room.sequences:
            self._grow(len(index))
        self._memory.select(index)
        self._sources = self._sources[list(index)]

    def _grow(self, sequences: int) -> None:
        before, memory, blocks = self._built, self._memory, self._memory.size
        longest = min(int(memory.lengths.max()), memory.block)
        memory.grow(sequences)
        self._build()
        built = self._built
        for old, new in zip((*before.keys, *before.values), (*built.keys, *built.values), strict=True):
            new[:blocks, :, :longest] = old[:, :, :longest]
        for layer in before.source_keys:
            built.source_keys[layer][: len(before.source_last)] = before.source_keys[layer]
            built.source_values[layer][: len(before.source_last)] = before.source_values[layer]
        built.source_last[: len(before.source_last)] = before.source_last

    def _take(self, built: Builder, tokens: Tensor, sequence: Sequence[int], first: Mapping[int, int]) -> None:
        """Make room for the next tokens of sequences, and tell the calls of a builder of them."""
        rows, memory = built.rows, self._memory
        places = {own: memory.tables[own].length for own in sequence}
        self.copy(memory.extend(sequence))
        for row, own in enumerate(sequence):
            rows.position[row], rows.first[row] = places[own], first[own]
            places[own] += 1
        self._write(built, tokens, sequence)

    def _write(self, built: Builder, tokens: Tensor, sequence: Sequence[int]) -> None:
        """Tell the calls of a builder of their rows, whose positions are told."""
        rows, count = built.rows, len(sequence)
        rows.token[:count] = tokens.numpy()
        rows.sequence[:count], rows.source[:count] = sequence, self._sources[list(sequence)]
        assert rows.position[:count].max(initial=0) < self._capacity, "a sequence fits its room"
        if not built.looks_up:
            tags = Tags.of(torch.from_numpy(rows.position[:count])[:, None])
            x = self._tower.embeddings(self._token(tokens[:, None]), tags, self._tower.stack.positions, None)
            built.x[:count, : self._width] = x[:, 0].float().numpy()

    def _run(self, count: int, what: int | None, built: Builder | None = None) -> None:
        """All calls, the head after the first layers alone, or one of both parts; of another builder the layers."""
        calls, layers = (built or self._built).calls, (built or self._built).layers
        if (what, calls) not in self._tables:
            leave = len(layers) if what is None or what == _LAYERS else max(what, 0)
            first, head = slice(layers[leave - 1] if leave else 0), slice(layers[-1], None)
            self._tables[what, calls] = calls.table(first, *([] if what == _LAYERS else [head]))
        calls.rows[0] = count
        team(self._threads).run(self._tables[what, calls], calls.rows)


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _last_tower(model: Transformer) -> Any:
    return list(model.towers.values())[-1]


def _computed_before() -> tuple[Tensor, Tensor]:
    raise AssertionError("the prefill has computed the keys of the source")


def _copy(held: tuple[Tensor, Tensor], own: tuple[Any, Any], real: Sequence[Tensor], places: Sequence[int]) -> None:
    """The real columns of [B, K, S, E]."""
    for theirs, ours in zip(held, own, strict=True):
        for row, (columns, place) in enumerate(zip(real, places, strict=True)):
            ours[place, :, : len(columns)] = theirs[row][:, columns].float().numpy()
