"""Making a failing case small: leave out operations, stream tables and select items as long as it still fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.support.generate import Case


@dataclass(frozen=True, slots=True)
class Cut:
    """What is kept of a case: operations as (step, position), stream tables with the positions of their items."""

    operations: tuple[tuple[int, int], ...]
    streams: tuple[tuple[str, tuple[int, ...]], ...]

    @staticmethod
    def whole(case: Case) -> Cut:
        return Cut(
            tuple((s, o) for s, ops in enumerate(case.steps) for o in range(len(ops))),
            tuple((s.name, tuple(range(len(s.query.items)))) for s in case.streams),
        )

    @staticmethod
    def parse(operations: str, streams: str) -> Cut:
        """Read `0.0,2.1` and `s3:0/2,s4:1`."""
        places = [tuple(int(n) for n in text.split(".")) for text in operations.split(",") if text]
        named = [text.partition(":") for text in streams.split(",") if text]
        return Cut(
            tuple((s, o) for s, o in places), tuple((n, tuple(int(i) for i in kept.split("/"))) for n, _, kept in named)
        )

    @property
    def arguments(self) -> str:
        """The same as arguments of a command."""
        places = ",".join(f"{s}.{o}" for s, o in self.operations)
        streams = ",".join(f"{n}:{'/'.join(map(str, kept))}" for n, kept in self.streams)
        return f"--operations {places} --streams {streams}"

    def of(self, case: Case) -> Case:
        """Return the case with only what is kept. The first step fills the tables and stays, perhaps empty."""
        steps = [tuple(op for o, op in enumerate(ops) if (s, o) in self.operations) for s, ops in enumerate(case.steps)]
        kept = dict(self.streams)
        streams = []
        for stream in case.streams:
            if stream.name in kept:
                items = tuple(stream.query.items[i] for i in kept[stream.name])
                streams.append(replace(stream, query=replace(stream.query, items=items)))
        return replace(case, steps=(steps[0], *(s for s in steps[1:] if s)), streams=tuple(streams))


def shrunk(case: Case, fails: Callable[[Case], bool], culprit: str | None, *, tries: int = 40) -> Cut:
    """Return a cut of the case that still fails, with nothing left that alone could be left out (within `tries` runs)."""
    best = Cut.whole(case)
    left = tries

    def attempt(cut: Cut) -> bool:
        nonlocal best, left
        if left <= 0 or cut == best:
            return False
        left -= 1
        if not fails(cut.of(case)):
            return False
        best = cut
        return True

    if culprit is not None:
        attempt(replace(best, streams=tuple(s for s in best.streams if s[0] in _needed(case, culprit))))
    for name, _ in list(best.streams):
        gone = {s.name for s in case.streams if name in _needed(case, s.name)}
        attempt(replace(best, streams=tuple(s for s in best.streams if s[0] not in gone)))
    for place in reversed(best.operations):
        attempt(replace(best, operations=tuple(p for p in best.operations if p != place)))
    for name, kept in list(best.streams):
        for item in reversed(kept):
            smaller = tuple((n, tuple(i for i in k if i != item) if n == name else k) for n, k in best.streams)
            if all(k for _, k in smaller):
                attempt(replace(best, streams=smaller))
    return best


def _needed(case: Case, name: str) -> set[str]:
    """Return a stream table and those below it."""
    sources = {s.name: s.source for s in case.streams}
    found: set[str] = set()
    while name in sources:
        found.add(name)
        name = sources[name]
    return found


def described(case: Case) -> str:
    """Return a case as a reader wants it: tables, queries, history."""
    lines = []
    for t in case.tables:
        key = " PRIMARY KEY (id)" if t.keyed else ""
        lines.append(f"table {t.name} ({t.ddl}){key}")
    lines += [f"stream table {s.name}: {s.sql}" for s in case.streams]
    for n, step in enumerate(case.steps):
        lines += [f"step {n}: {op}" for op in step] or [f"step {n}: nothing"]
    return "\n".join(lines)
