"""Which requests run, and what each pass of the model reads of them. Plain data, no torch.

A request is sequences of tokens that have to be read; how far each has been read is the length of its table. There are
no phases: a prompt that is new, a token that was just chosen, a draft, and what a request that was put aside has to
read again are all the same, tokens that are known and not yet read. A pass reads as many as its budget has room for,
first of those that have few, then of those that have many in the order of their ranks.

Memory is promised by what a request may need at most, up to a multiple of what there is. Where it runs short, kept
beginnings are given up, then those that rank last wait, then they are put aside: they let go of all, and read it again
later. The one that ranks first is never stopped, and alone every request fits, so all come to an end.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from transpect.cache.block_pool import BlockPool
from transpect.serve.fairness import Fairness
from transpect.serve.plan import Entry, Limits, Line, Plan, leader_of, reads_of
from transpect.serve.prefixes import Prefixes


class Scheduler:
    """Requests that run and that wait.

    Args:
        pool: with a limit.
        limits: of a pass and of all.
        prefixes: beginnings in the same pool; None keeps none.
    """

    def __init__(self, pool: BlockPool, limits: Limits, prefixes: Prefixes | None = None) -> None:
        assert pool.limit is not None, "blocks are counted"
        self.pool, self.limits, self.prefixes = pool, limits, prefixes
        self.running: list[Entry] = []
        self.passes = self.preemptions = self.hits = self.queries = 0
        self._total = pool.limit
        self._waiting: list[tuple[tuple[float, int], Entry]] = []
        self._fairness = Fairness()
        self._slots = list(range(limits.rows))
        self._rows = self._promised = self._gone = self._served = 0
        self._ahead = 0  # tokens of prompts that have been read since those that have few read theirs
        self._aside: list[Entry] = []

    @property
    def waiting(self) -> int:
        """How many requests do not run."""
        return len(self._waiting) - self._gone

    def add(self, entry: Entry) -> None:
        """Let a request wait for its turn. Alone it fits."""
        assert entry.rows <= self.limits.rows and entry.blocks <= self._total, "refused before"
        entry.rank = self._fairness.arrive(entry.tenant, entry.priority, entry.cost), entry.number
        heapq.heappush(self._waiting, (entry.rank, entry))

    def remove(self, entry: Entry) -> None:
        """Forget a request, wherever it is; what it held is free."""
        assert not entry.over
        entry.over = True
        if entry.running:
            self._stop(entry)
        else:
            self._gone += 1
            if 2 * self._gone > len(self._waiting):  # or those that leave pile up behind one that waits for long
                self._waiting = [own for own in self._waiting if not own[1].over]
                heapq.heapify(self._waiting)
                self._gone = 0
        self.hits += entry.cached
        self._fairness.leave(entry.tenant)

    def admit(self) -> list[Entry]:
        """Let those that wait begin, or go on, as long as there is room; which."""
        begun = []
        while self._waiting:
            entry = self._waiting[0][1]
            if entry.over:
                self._gone -= 1
            elif not self._makes_room(entry):
                break
            heapq.heappop(self._waiting)
            if not entry.over:
                begun.append(entry)
                self._begin(entry)
        return begun

    def plan(self) -> Plan:
        """The next pass. Every request that runs waits for what it has to read."""
        self.passes += 1
        budget, few = self.limits.budget, max(1, self.limits.budget // 4)
        short, long = list[Entry](), list[Entry]()
        for entry in self.running:
            if entry.lines:
                many = entry.left > max(few, len(entry.lines))
                (long if many else short).append(entry)
        short.sort(key=lambda entry: (entry.served, entry.rank))
        long.sort(key=lambda entry: entry.rank)
        # where many wait for their first token, those who wait for the next one wait once, and then all go on together
        waits = 2 * len(long) > len(short) and self._ahead < self.limits.ahead
        # a part of each pass is for those that have many, so that they come to their end as well
        chosen = [] if waits else self._choose(short, budget - (few if long else 0))
        left = (budget if chosen else max(budget, self.limits.alone)) - sum(count for _, _, count in chosen)
        if long and any(line.table.length < line.many for line in long[0].lines):
            left = max(left, self.limits.chunk)
        chosen += self._choose(long, left)
        chosen = self._with_room(chosen)
        self._ahead = self._ahead + sum(count for _, _, count in chosen) if waits else 0
        reads = [read for entry, line, count in chosen for read in reads_of(entry, line, count)]
        copies = self.pool.extend([line.table for _, line, _ in chosen], [count for _, _, count in chosen])
        turn = min((entry for entry in self.running if not entry.lines), key=lambda own: own.served, default=None)
        for entry in dict.fromkeys([*(entry for entry, _, _ in chosen), *([turn] if turn else [])]):
            self._served += 1
            entry.served = self._served
        aside, self._aside = self._aside, []
        return Plan(reads, copies, turn, aside)

    def commit(self, plan: Plan) -> None:
        """What a plan reads has been read."""
        if self.prefixes is not None:
            for entry, line, *_ in plan.reads:
                if entry.salt is not None and line.slot >= 0:
                    self._keep(self.prefixes, entry.salt, line)

    def cut(self, line: Line, length: int) -> None:
        """Forget the tokens of a line from ``length`` on."""
        del line.tokens[length:]
        self.pool.cut(line.table, min(length, line.table.length))
        full = length // self.pool.block
        del line.keys[full:]
        line.kept = min(line.kept, full)

    def read_again(self, entry: Entry, line: Line) -> None:
        """Ask for the logits of all tokens of a line, of which none has been read but by others."""
        self.pool.cut(line.table, 0)
        line.wanted = line.kept = entry.cached = 0

    def select(self, entry: Entry, index: Sequence[int]) -> None:
        """Go on with these lines of a request, in this order; one may be chosen more than once or not at all."""
        for place in set(range(len(entry.lines))) - set(index):
            self._release(entry.lines[place])
        chosen: list[Line] = []
        for n, place in enumerate(index):
            line = entry.lines[place]
            chosen.append(line if place not in index[:n] else self._fork(line))
        entry.lines = chosen

    def _fork(self, line: Line) -> Line:
        return Line(
            list(line.tokens),
            line.wanted,
            line.whole,
            line.many,
            line.source,
            table=self.pool.fork(line.table),
            slot=self._slots.pop(),
            keys=list(line.keys),
            kept=line.kept,
        )

    def _release(self, line: Line) -> None:
        if self.prefixes is not None:
            self.prefixes.touch(reversed(line.keys[: line.kept]))
        self.pool.release(line.table)
        line.kept = 0
        self._slots.append(line.slot)
        line.slot = -1

    def _begin(self, entry: Entry) -> None:
        entry.running = True
        self.running.append(entry)
        self._rows += entry.rows
        self._promised += entry.blocks
        if not entry.begun:
            entry.begun = True
            self._fairness.begin(entry.cost)
            self.queries += len(entry.lines[0].tokens) if entry.lines else 0
        for n, line in enumerate(entry.lines):
            line.slot = self._slots.pop()
            line.leader, line.shared = leader_of(line, entry.lines[:n])

    def _stop(self, entry: Entry) -> None:
        entry.running = False
        self.running.remove(entry)
        self._rows -= entry.rows
        self._promised -= entry.blocks
        for line in entry.lines:
            self._release(line)

    def _put_aside(self, entry: Entry) -> None:
        self._stop(entry)
        entry.returned = True
        self.preemptions += 1
        self._aside.append(entry)
        heapq.heappush(self._waiting, (entry.rank, entry))

    def _makes_room(self, entry: Entry) -> bool:
        """Whether an entry may begin, once others of a lower priority that rank after it have been put aside."""
        while not self._fits(entry):
            for line in entry.lines:  # who waits holds nothing
                self.pool.release(line.table)
                line.kept = 0
            others = [own for own in self.running if own.lines and own.priority < entry.priority]
            worst = max(others, key=lambda own: own.rank, default=None)
            if worst is None or worst.rank < entry.rank:
                return False
            self._put_aside(worst)
        return True

    def _fits(self, entry: Entry) -> bool:
        if not self.running:
            return True
        # what reads by itself can't be put aside, so it is promised no more than there is
        most = self.limits.overcommit * self._total if entry.lines else self._total
        if self._rows + entry.rows > self.limits.rows or self._promised + entry.blocks > most:
            return False
        # those that run will want a block each before long: who begins only to be put aside has worked in vain
        return not entry.lines or self._frees(self._needs(entry) + self._rows)

    def _needs(self, entry: Entry) -> int:
        """How many blocks its tokens take that it does not find in the prefix cache; found ones are held from now."""
        needed = 0
        for n, line in enumerate(entry.lines):
            if n == 0 and not line.whole:
                self._adopt(entry, line)
            _, shared = leader_of(line, entry.lines[:n])
            have = max(line.table.length, shared)
            needed += -(-len(line.tokens) // self.pool.block) - have // self.pool.block
        return needed

    def _frees(self, count: int) -> bool:
        """Whether so many blocks are free, once kept beginnings have been given up."""
        assert self.pool.free is not None
        short = count - self.pool.free
        return short <= 0 or (self.prefixes is not None and self.prefixes.give_up(short) >= short)

    def _choose(self, entries: Iterable[Entry], budget: int) -> list[tuple[Entry, Line, int]]:
        """What to read of them, in this order."""
        chosen: list[tuple[Entry, Line, int]] = []
        for entry in entries:
            for line in entry.lines:
                if not self._catches_up(line):
                    continue
                if line.table.length < line.whole:
                    count = line.whole if line.whole <= budget or not chosen else 0
                else:
                    self._adopt(entry, line)
                    count = min(line.left, budget)
                if count > 0:
                    chosen.append((entry, line, count))
                    budget -= count
            if budget <= 0:
                break
        return chosen

    def _catches_up(self, line: Line) -> bool:
        """Whether a line may be read: a leader must have read what both begin with, which is then shared."""
        if line.leader is None:
            return True
        if line.leader.table.length < line.shared:
            return False
        line.table = self.pool.fork(line.leader.table)
        self.pool.cut(line.table, line.shared)
        line.leader = None
        return True

    def _with_room(self, chosen: list[tuple[Entry, Line, int]]) -> list[tuple[Entry, Line, int]]:
        """What there are blocks for, or can be: those that rank last wait, or are put aside."""
        worst = iter(sorted((own for own in self.running if own.lines), key=lambda own: own.rank, reverse=True))
        while not self._frees(self.pool.needed([line.table for _, line, _ in chosen], [n for *_, n in chosen])):
            entry = next(worst)
            chosen = [one for one in chosen if one[0] is not entry]
            if not self._frees(self.pool.needed([line.table for _, line, _ in chosen], [n for *_, n in chosen])):
                self._put_aside(entry)
        return chosen

    def _adopt(self, entry: Entry, line: Line) -> None:
        """Take over the blocks of the prefix cache that go on where a line is, but for what is asked for."""
        block, first = self.pool.block, line.table.length
        if self.prefixes is None or entry.salt is None or line.leader is not None or first % block:
            return
        while (end := line.table.length + block) <= min(line.wanted, line.settled):
            number = line.table.length // block
            own = line.read_as(end - block, end)
            found = self.prefixes.find(self._key(entry.salt, line, number), own)
            if found is None:
                break
            line.table.blocks += found.blocks
            line.table.length = end
            line.kept = number + 1
        if line is entry.lines[0] and not entry.returned:
            entry.cached = entry.cached + line.table.length - first if first else line.table.length

    def _key(self, salt: str, line: Line, number: int) -> bytes:
        """Of a full block of a line."""
        block = self.pool.block
        while len(line.keys) <= number:
            n = len(line.keys)
            before = line.keys[-1] if n else Prefixes.root(salt)
            line.keys.append(Prefixes.key(before, line.read_as(n * block, (n + 1) * block)))
        return line.keys[number]

    def _keep(self, prefixes: Prefixes, salt: str, line: Line) -> None:
        block = self.pool.block
        # what is wanted now may be forgotten again
        for number in range(line.kept, min(line.table.length, line.settled, line.wanted) // block):
            own = line.read_as(number * block, (number + 1) * block)
            prefixes.keep(self._key(salt, line, number), own, line.table.blocks[number])
            line.kept = number + 1
