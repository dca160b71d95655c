"""Requests that only count: what a scheduler plans for them is checked pass by pass, without a model.

A request reads its prompt, then goes on by tokens, drafts that are forgotten, beams that are chosen anew; what a
strategy of decoding may do. Of each block it is known which token of which text lies in each place.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from transpect.cache.block_pool import BlockPool
from transpect.serve.plan import Entry, Limits, Line, Plan, most_blocks
from transpect.serve.prefixes import Prefixes
from transpect.serve.scheduler import Scheduler

FEW = 9
"""Tokens of the longest prompt that is read by passes of few rows."""
LIMITS = Limits(8, 16, alone=24, chunk=12, ahead=40)


class World:
    """A scheduler and who asks it.

    Args:
        seed: of all chances.
        blocks, block, limits: of the scheduler.
        prefix: whether beginnings are kept.
        deep: whether what lies in the blocks is looked at: every token that is read must find those before it.
        eager: whether requests are short.
    """

    def __init__(
        self,
        seed: int,
        blocks: int = 40,
        block: int = 4,
        limits: Limits = LIMITS,
        *,
        prefix: bool,
        deep: bool,
        eager: bool = False,
    ) -> None:
        self.random, self.deep, self.eager = Random(seed), deep, eager
        self.pool = BlockPool(block, blocks)
        self.scheduler = Scheduler(self.pool, limits, Prefixes(self.pool) if prefix else None)
        self.left: dict[Entry, int] = {}
        self.ended, self.number, self.read = list[Entry](), 0, 0
        self.memory: dict[tuple[int, int], tuple[int, ...]] = {}  # by block and place, the text up to there
        self.waited: dict[Entry, int] = {}
        self.drafted: dict[Entry, bool] = {}

    def ask(self, tenant: str = "", priority: int = 0, *, own_turn: bool = False) -> Entry:
        """One more request."""
        random, block = self.random, self.pool.block
        count = random.choice([1, 1, 1, 2])
        rows = count * random.choice([1, 1, 3])
        prompts = [[random.choice([1, 1, 2]) for _ in range(random.randint(1, 30))] for _ in range(count)]
        new = random.randint(1, 3 if self.eager else 20)
        while (cost := most_blocks([(len(own), rows // count) for own in prompts], new, block)) > (
            self.pool.limit or 0
        ):
            prompts, new = [own[:5] for own in prompts], max(1, new // 2)
        whole = random.random() < 0.1
        lines = [
            Line(own, len(own) - 1, len(own) if whole else 0, len(own) if len(own) > FEW and not whole else 0, n)
            for n, own in enumerate(prompts)
        ]
        entry = Entry(
            self.number,
            [] if own_turn else lines,
            rows,
            cost,
            sum(map(len, prompts)) + rows * new,
            tenant,
            priority,
            None if whole else tenant,
        )
        self.number += 1
        self.left[entry] = new
        self.waited[entry] = self.scheduler.passes
        self.scheduler.add(entry)
        return entry

    def go_on(self) -> Plan:
        """One pass, and what its requests do then."""
        scheduler, limits = self.scheduler, self.scheduler.limits
        scheduler.admit()
        plan = scheduler.plan()
        counts = [read.stop - read.start for read in plan.reads]
        longest = max((count for read, count in zip(plan.reads, counts, strict=True) if read.line.whole), default=0)
        most = max(limits.budget, limits.alone)
        assert sum(counts) <= max(most, most + longest if longest > limits.budget // 4 else 0)
        if any(count == 1 for count in counts) and not any(read.line.whole or read.many for read in plan.reads):
            assert sum(counts) <= most
        assert plan.reads or plan.turn or not scheduler.running, "whoever runs gets on"
        for entry in plan.aside:
            assert not entry.running or entry.left == sum(len(own.tokens) - own.table.length for own in entry.lines)
        self._written(plan)
        scheduler.commit(plan)
        self.read += sum(counts)
        for entry in [own for own in scheduler.running if own.lines and not own.left]:
            self._next(entry)
        if plan.turn is not None:
            self.left[plan.turn] -= 1
            if self.left[plan.turn] <= 0:
                self.end(plan.turn)
        return plan

    def end(self, entry: Entry) -> None:
        """A request has ended, or is not wanted any more."""
        self.scheduler.remove(entry)
        self.ended.append(entry)
        del self.left[entry], self.waited[entry]
        self.drafted.pop(entry, None)

    def check(self) -> None:
        """Every block is held by whom the tables say, and by nobody else."""
        scheduler = self.scheduler
        held = Counter(number for entry in scheduler.running for line in entry.lines for number in line.table.blocks)
        if scheduler.prefixes is not None:
            held.update(kept.table.blocks[0] for kept in scheduler.prefixes._kept.values())
        assert all(self.pool.holders(number) == held[number] for number in range(1, self.pool.size))
        assert self.pool.used == len(held) <= (self.pool.limit or 0)
        slots = [line.slot for entry in scheduler.running for line in entry.lines]
        assert len(set(slots)) == len(slots) and min(slots, default=0) >= 0
        assert sorted([*slots, *scheduler._slots]) == list(range(scheduler.limits.rows))
        assert all(line.slot < 0 and not line.table.blocks for _, own in scheduler._waiting for line in own.lines)

    def _written(self, plan: Plan) -> None:
        if not self.deep:
            return
        block = self.pool.block
        for source, target, used in plan.copies:
            for place in range(used):
                self.memory[target, place] = self.memory[source, place]
        for _, line, start, stop, layers, many in plan.reads:
            for place in range(start, stop):
                past = tuple(line.tokens[: place + 1])
                self.memory[line.table.blocks[place // block], place % block] = (*past, layers or 0, many)
        for _, line, *_ in plan.reads:
            for place in range(line.table.length):
                *past, layers, many = self.memory[line.table.blocks[place // block], place % block]
                assert past == line.tokens[: place + 1], "a block holds what its line has read"
                assert layers == (0 if place < line.settled else line.layers)
                assert many == (place < line.many), "the same way whoever has read it"

    def _next(self, entry: Entry) -> None:
        """Each line knows one more token, or some: what a strategy does with its logits."""
        random, scheduler = self.random, self.scheduler
        if self.drafted.pop(entry, False):
            for line in entry.lines:  # the first layers have gone ahead, or some drafts do not stay
                scheduler.cut(line, line.wanted + 1 if line.deep is None else line.deep)
                line.deep = line.layers = None
        self.left[entry] -= 1
        if self.left[entry] <= 0:
            self.end(entry)
            return
        sources = sorted({line.source for line in entry.lines})
        each = entry.rows // len(sources)
        if each > 1:
            lines = [[n for n, own in enumerate(entry.lines) if own.source == source] for source in sources]
            scheduler.select(entry, [random.choice(own) for own in lines for _ in range(each)])
        drafts = random.choice([0, 0, 2]) if self.left[entry] > 3 else 0
        ahead, self.drafted[entry] = random.random() < 0.5, drafts > 0
        for line in entry.lines:
            line.wanted = len(line.tokens)
            line.tokens += [random.choice([1, 1, 2]) for _ in range(1 + drafts)]
            if drafts and ahead:
                line.deep, line.layers = line.wanted, 1
