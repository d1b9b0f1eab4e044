"""Random cases from a seed: tables, stream tables over them, and a history of changes.

Operations name rows by a selecting column (the key, or `k` where there is none) and say what should happen to those that are
there. What is there is known only when they run, so any operation may be left out of a history and the rest still makes sense.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from tests.support.queries import Query, random_query
from tests.support.values import KINDS, Column, Row, draw

MOST_ROWS = 40
IDS = 45
KEYS = 6


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A generated table; `selector` is the column by which operations name rows."""

    name: str
    columns: tuple[Column, ...]
    keyed: bool

    @property
    def selector(self) -> str:
        return "id" if self.keyed else "k"

    @property
    def ddl(self) -> str:
        return ", ".join(f"{c.name} {c.ddl}" for c in self.columns)


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """A generated stream table. A `late` one is refreshed at the end only: the same history in one batch."""

    name: str
    source: str
    query: Query
    late: bool = False

    @property
    def sql(self) -> str:
        return self.query.sql(self.source)


@dataclass(frozen=True, slots=True)
class Insert:
    """Add rows whose key is free, by dicts, by Arrow, or as a statement."""

    table: str
    rows: tuple[Row, ...]
    via: str


@dataclass(frozen=True, slots=True)
class Update:
    """Set columns of the selected rows; a column set to itself changes nothing."""

    table: str
    chosen: tuple[int, ...]
    values: Row
    same: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rekey:
    """Move the selected rows to other keys."""

    table: str
    chosen: tuple[int, ...]
    by: int


@dataclass(frozen=True, slots=True)
class Upsert:
    """Add or replace rows by key."""

    table: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the selected rows; all of them if `chosen` is None."""

    table: str
    chosen: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Apply:
    """Hand in change rows: one copy of each distinct selected row goes, others come, perhaps the very same."""

    table: str
    gone: tuple[int, ...]
    rows: tuple[Row, ...]
    again: bool


@dataclass(frozen=True, slots=True)
class Merge:
    """MERGE: matched rows go (if the value is odd) or change, the others come."""

    table: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Widen the table."""

    table: str
    column: Column


@dataclass(frozen=True, slots=True)
class Atomic:
    """Several operations in one transaction."""

    parts: tuple[Operation, ...]


Operation = Insert | Update | Rekey | Upsert | Delete | Apply | Merge | AddColumn | Atomic


@dataclass(frozen=True, slots=True)
class Case:
    """Everything that a run needs. A step is what happens between two refreshes."""

    seed: int
    tables: tuple[TableSpec, ...]
    streams: tuple[StreamSpec, ...]
    steps: tuple[tuple[Operation, ...], ...]

    def without_steps(self, dropped: set[int]) -> Case:
        return replace(self, steps=tuple(s for i, s in enumerate(self.steps) if i not in dropped))

    def without_streams(self, dropped: set[str]) -> Case:
        """Leave out stream tables and those above them."""
        gone = set(dropped)
        for s in self.streams:
            if s.source in gone:
                gone.add(s.name)
        return replace(self, streams=tuple(s for s in self.streams if s.name not in gone))


def random_case(seed: int, *, streams: int = 8, steps: int = 8) -> Case:
    """Return the case of a seed: the same one forever."""
    rng = Random(f"case {seed}")
    table = _table(rng, "t", keyed=rng.random() < 0.6)
    specs = list(_streams(rng, table, streams))
    history = [(Insert(table.name, _rows(rng, table, rng.choice((0, 12, 25, MOST_ROWS))), "arrow"),)]
    history += [tuple(_step(rng, table)) for _ in range(steps)]
    widened = Column("added", "int", "INT")
    if rng.random() < 0.3:
        history.insert(rng.randint(1, len(history)), (AddColumn(table.name, widened), *_touching(rng, table)))
    return Case(seed, (table,), tuple(specs), tuple(history))


def _touching(rng: Random, table: TableSpec) -> tuple[Operation, ...]:
    return (Update(table.name, _chosen(rng, table), {"added": 5}),)


def _table(rng: Random, name: str, *, keyed: bool) -> TableSpec:
    tags = list(KINDS)
    always = ["int", "string", "dec"]
    others = rng.sample([t for t in tags if t not in always], rng.randint(4, 7))
    columns = [Column("k", "int", "INT"), Column("g", "string", "STRING")]
    if keyed:
        columns.insert(0, Column("id", "big", "BIGINT"))
    columns += [Column(f"{tag}_{n}", tag, KINDS[tag].ddl) for n, tag in enumerate([*always, *others])]
    return TableSpec(name, tuple(columns), keyed)


def _streams(rng: Random, table: TableSpec, count: int) -> Iterator[StreamSpec]:
    made: list[StreamSpec] = []
    for n in range(count):
        below = [s for s in made if s.query.columns and not s.late]
        if below and rng.random() < 0.2:
            under = rng.choice(below)
            spec = StreamSpec(f"s{n}", under.name, random_query(rng, under.query.columns))
        else:
            spec = StreamSpec(f"s{n}", table.name, random_query(rng, table.columns))
        made.append(spec)
        yield spec
    twin = rng.choice([s for s in made if s.source == table.name])
    yield replace(twin, name=f"{twin.name}_late", late=True)


def _row(rng: Random, table: TableSpec) -> Row:
    row = {c.name: draw(rng, c.tag) for c in table.columns}
    row["k"] = rng.randrange(KEYS)
    if table.keyed:
        row["id"] = rng.randrange(IDS)
    return row


def _rows(rng: Random, table: TableSpec, count: int) -> tuple[Row, ...]:
    made = [_row(rng, table) for _ in range(count)]
    if not table.keyed and made and rng.random() < 0.6:
        made += [dict(made[0]) for _ in range(rng.randint(1, 3))]
    return tuple(made)


def _chosen(rng: Random, table: TableSpec) -> tuple[int, ...]:
    if table.keyed:
        return tuple(sorted(rng.sample(range(IDS), rng.choice((2, 5, 12, 25)))))
    return tuple(sorted(rng.sample(range(KEYS), rng.choice((1, 1, 2)))))


def _operation(rng: Random, table: TableSpec) -> Operation:
    name = table.name
    roll = rng.random()
    if roll < 0.2:
        return Insert(name, _rows(rng, table, rng.choice((0, 1, 3, 6, 10))), rng.choice(("dicts", "arrow", "sql")))
    if roll < 0.45:
        free = [c for c in table.columns if c.name not in ("id", "k")]
        chosen = rng.sample(free, rng.randint(1, min(3, len(free))))
        values = {c.name: draw(rng, c.tag, 0.25) for c in chosen}
        same = tuple(c.name for c in free if c not in chosen and rng.random() < 0.2)
        return Update(name, _chosen(rng, table), values, same)
    if roll < 0.52:
        return Update(name, _chosen(rng, table), {}, ("g",))
    if roll < 0.6:
        return Rekey(name, _chosen(rng, table), rng.choice((1, 100)) if table.keyed else 1)
    if roll < 0.75:
        return Delete(name, _chosen(rng, table))
    if roll < 0.78:
        return Delete(name, None)
    if roll < 0.86:
        return Apply(name, _chosen(rng, table), _rows(rng, table, rng.randint(0, 4)), rng.random() < 0.5)
    if roll < 0.92:
        return Merge(name, _one_per_selector(table, _rows(rng, table, rng.randint(1, 6))))
    if roll < 0.96 and table.keyed:
        return Upsert(name, _one_per_selector(table, _rows(rng, table, rng.randint(1, 8))))
    row = _row(rng, table)
    parts: tuple[Operation, ...] = (
        Insert(name, (row,), "dicts"),
        Delete(name, (row[table.selector],)),
        Insert(name, _rows(rng, table, 2), "dicts"),
        Update(name, _chosen(rng, table), {"g": draw(rng, "string")}),
    )
    return Atomic(parts[: rng.randint(2, 4)])


def _step(rng: Random, table: TableSpec) -> Iterator[Operation]:
    for _ in range(rng.choice((1, 1, 2, 3))):
        op = _operation(rng, table)
        yield op
        if isinstance(op, Delete) and op.chosen is None and rng.random() < 0.8:
            yield Insert(table.name, _rows(rng, table, 12), "dicts")


def _one_per_selector(table: TableSpec, rows: tuple[Row, ...]) -> tuple[Row, ...]:
    return tuple({r[table.selector]: r for r in rows}.values())
