"""Random histories over several tables: what happens to all of them between two refreshes.

Operations of `generate` name rows by the selecting column; two more name them by any column and value, NULL too, so that both
sides of a join can lose or change what they share. All make sense whatever rows are there: any of them may be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa
from tests.support.generate import (
    Apply,
    Delete,
    Insert,
    Merge,
    Rekey,
    TableSpec,
    Update,
    Upsert,
)
from tests.support.model import Model
from tests.support.phrases import DOMAINS
from tests.support.relations import TYPES
from tests.support.values import Column, Row, arrow_table, literal

from headwater.warehouse import Warehouse

IDS = 40
KEYS = 6
NULLS = {"int": 0.22, "string": 0.18, "arr": 0.15}


@dataclass(frozen=True, slots=True)
class DeleteWhere:
    """Remove the rows with one of these values in a column."""

    table: str
    column: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class UpdateWhere:
    """Set columns of the rows with one of these values in a column."""

    table: str
    column: str
    values: tuple[Any, ...]
    to: Row


@dataclass(frozen=True, slots=True)
class Together:
    """Several changes, of any tables, in one transaction."""

    parts: tuple[Change, ...]


Change = Insert | Update | Rekey | Upsert | Delete | Apply | Merge | DeleteWhere | UpdateWhere | Together
Step = tuple[Change, ...]


def restricted(kept: set[str], change: Change) -> Change | None:
    """Return what a change does to some tables; None if nothing."""
    if not isinstance(change, Together):
        return change if change.table in kept else None
    parts = tuple(p for p in (restricted(kept, part) for part in change.parts) if p is not None)
    return Together(parts) if parts else None


# tables ---------------------------------------------------------------------------------------------------------------------


def random_tables(rng: Random) -> tuple[TableSpec, ...]:
    """Return one to five tables, with and without key. Those without have few columns, so that rows repeat."""
    count = rng.choices((1, 2, 3, 4, 5), weights=(4, 30, 36, 20, 10))[0]
    tables = [_table(rng, f"t{n + 1}", keyed=rng.random() < 0.5) for n in range(count)]
    if all("arr_9" not in {c.name for c in t.columns} for t in tables) and rng.random() < 0.5:
        tables[0] = TableSpec(tables[0].name, (*tables[0].columns, _column("arr", 9)), tables[0].keyed)
    return tuple(tables)


def _table(rng: Random, name: str, *, keyed: bool) -> TableSpec:
    others = rng.sample(
        ("big", "dec", "date", "bool", "double", "int"), rng.randint(1, 4) if keyed else rng.randint(0, 2)
    )
    columns = [Column("k", "int", "INT"), _column("int", 0), _column("string", 1)]
    columns += [_column(tag, n + 2) for n, tag in enumerate(others)]
    if rng.random() < 0.25:
        columns.append(_column("arr", 9))
    if keyed:
        columns.insert(0, Column("id", "big", "BIGINT"))
    return TableSpec(name, tuple(columns), keyed)


def _column(tag: str, number: int) -> Column:
    return Column(f"{tag}_{number}", tag, TYPES[tag])


def drawn(rng: Random, tag: str) -> Any:
    """Return a value of a small domain, often NULL."""
    if rng.random() < NULLS.get(tag, 0.12):
        return None
    value = rng.choice(DOMAINS[tag])
    return list(value) if tag == "arr" else value


def random_rows(rng: Random, table: TableSpec, count: int) -> tuple[Row, ...]:
    """Return rows; a table without key gets some of them several times."""
    made = [_row(rng, table) for _ in range(count)]
    if not table.keyed:
        made += [dict(rng.choice(made)) for _ in range(count // 3)]
    return tuple(made)


def _row(rng: Random, table: TableSpec) -> Row:
    row = {c.name: drawn(rng, c.tag) for c in table.columns}
    row["k"] = rng.randrange(KEYS)
    if table.keyed:
        row["id"] = rng.randrange(IDS)
    return row


# steps ----------------------------------------------------------------------------------------------------------------------


def random_step(rng: Random, tables: Sequence[TableSpec], used: set[str]) -> Step:
    """Return changes of one to all tables, at least one of them a table that the query reads."""
    read = [t for t in tables if t.name in used] or list(tables)
    first = rng.choice(read)
    others = [t for t in tables if t is not first and rng.random() < (0.6 if t.name in used else 0.2)]
    changes: list[Change] = []
    for table in (first, *others):
        for _ in range(rng.choice((1, 1, 2, 3))):
            changes += _changes(rng, table)
    if others and rng.random() < 0.3:
        changes += _both_sides(rng, (first, rng.choice(others)))
    rng.shuffle(changes)
    if rng.random() < 0.15:
        return (Together(tuple(p for c in changes for p in (c.parts if isinstance(c, Together) else (c,)))),)
    return tuple(changes)


def _both_sides(rng: Random, tables: Sequence[TableSpec]) -> Iterator[Change]:
    """Yield the loss, or the change, of what two tables may share."""
    column = rng.choice(("k", "int_0", "string_1"))
    values = tuple(rng.sample(DOMAINS["string" if column == "string_1" else "int"], 2))
    for table in tables:
        if rng.random() < 0.6:
            yield DeleteWhere(table.name, column, values)
        else:
            yield UpdateWhere(table.name, column, values, {column: values[0]})


def _changes(rng: Random, table: TableSpec) -> list[Change]:
    """Return one change, or two that belong together."""
    makers: dict[Callable[[Random, TableSpec], list[Change]], float] = {
        _inserted: 24,
        _updated: 20,
        _updated_where: 14,
        _deleted: 12,
        _deleted_where: 8,
        _rekeyed: 5,
        _applied: 6,
        _merged: 4,
        _upserted: 5 if table.keyed else 0,
        _passing: 4,
        _emptied: 4,
    }
    return rng.choices(tuple(makers), weights=tuple(makers.values()))[0](rng, table)


def _chosen(rng: Random, table: TableSpec) -> tuple[int, ...]:
    if table.keyed:
        return tuple(sorted(rng.sample(range(IDS), rng.choice((4, 8, 14)))))
    return tuple(sorted(rng.sample(range(KEYS), rng.choice((1, 1, 2)))))


def _settable(table: TableSpec) -> list[Column]:
    return [c for c in table.columns if c.name not in ("id", "k")]


def _new_values(rng: Random, table: TableSpec) -> Row:
    free = _settable(table)
    return {c.name: drawn(rng, c.tag) for c in rng.sample(free, rng.randint(1, min(2, len(free))))}


def _inserted(rng: Random, table: TableSpec) -> list[Change]:
    rows = random_rows(rng, table, rng.choice((1, 2, 4, 8)))
    return [Insert(table.name, rows, rng.choice(("dicts", "arrow", "sql")))]


def _updated(rng: Random, table: TableSpec) -> list[Change]:
    return [Update(table.name, _chosen(rng, table), _new_values(rng, table))]


def _where(rng: Random, table: TableSpec) -> tuple[str, tuple[Any, ...]]:
    column = rng.choice([c for c in table.columns if c.tag in ("int", "string", "bool")])
    values = tuple(rng.sample(DOMAINS[column.tag], rng.choice((1, 1, 2))))
    return column.name, (*values, None) if rng.random() < 0.25 else values


def _updated_where(rng: Random, table: TableSpec) -> list[Change]:
    return [UpdateWhere(table.name, *_where(rng, table), _new_values(rng, table))]


def _deleted(rng: Random, table: TableSpec) -> list[Change]:
    return [Delete(table.name, _chosen(rng, table))]


def _deleted_where(rng: Random, table: TableSpec) -> list[Change]:
    column, values = _where(rng, table)
    return [DeleteWhere(table.name, column, values[:1])]


def _rekeyed(rng: Random, table: TableSpec) -> list[Change]:
    return [Rekey(table.name, _chosen(rng, table), 100 if table.keyed else 1)]


def _applied(rng: Random, table: TableSpec) -> list[Change]:
    rows = random_rows(rng, table, rng.randint(0, 3)) if table.keyed or rng.random() < 0.7 else ()
    return [Apply(table.name, _chosen(rng, table), rows, rng.random() < 0.3)]


def _merged(rng: Random, table: TableSpec) -> list[Change]:
    return [Merge(table.name, _one_each(table, random_rows(rng, table, rng.randint(1, 5))))]


def _upserted(rng: Random, table: TableSpec) -> list[Change]:
    return [Upsert(table.name, _one_each(table, random_rows(rng, table, rng.randint(1, 6))))]


def _one_each(table: TableSpec, rows: Sequence[Row]) -> tuple[Row, ...]:
    return tuple({r[table.selector]: r for r in rows}.values())


def _passing(rng: Random, table: TableSpec) -> list[Change]:
    """Rows that come and go within one batch, in a transaction or not."""
    rows = random_rows(rng, table, 2)
    gone = tuple(sorted({r[table.selector] for r in rows}))
    parts: tuple[Change, ...] = (Insert(table.name, rows, "dicts"), Delete(table.name, gone))
    return [Together(parts)] if rng.random() < 0.6 else list(parts)


def _emptied(rng: Random, table: TableSpec) -> list[Change]:
    again = Insert(table.name, random_rows(rng, table, rng.choice((3, 8))), "arrow")
    gone = Delete(table.name, None)
    if rng.random() < 0.35:
        return [gone]
    return [Together((gone, again))] if rng.random() < 0.5 else [gone, again]


# tables while they change ---------------------------------------------------------------------------------------------------


class Tables:
    """The rows of all tables, kept in Python; with a warehouse every change is made there too."""

    def __init__(self, specs: Sequence[TableSpec], wh: Warehouse | None = None) -> None:
        self.wh: Any = _Nowhere() if wh is None else wh
        self.models = {t.name: Model(t) for t in specs}
        for t in specs:
            self.wh.create_table(t.name, t.ddl, "id" if t.keyed else None)

    def fill(self, rows: Mapping[str, Sequence[Row]]) -> None:
        for name, made in rows.items():
            if made:
                self.change(Insert(name, tuple(made), "arrow"))

    def change(self, change: Change) -> None:
        match change:
            case Together():
                with self.wh.transaction():
                    for part in change.parts:
                        self.change(part)
            case DeleteWhere():
                model, where = self.models[change.table], self._where(change)
                self.wh.delete(change.table, where=where)
                model.rows = [r for r in model.rows if r[change.column] not in change.values]
            case UpdateWhere():
                self._update_where(change)
            case Insert() if not change.rows:
                return
            case _:
                self.models[change.table].apply(change, self.wh)

    def _update_where(self, change: UpdateWhere) -> None:
        model = self.models[change.table]
        types = {c.name: c.ddl for c in model.columns}
        texts = {n: literal(v, types[n]) for n, v in change.to.items()}
        self.wh.update(change.table, set=texts, where=self._where(change))
        for row in model.rows:
            if row[change.column] in change.values:
                row.update(change.to)

    def _where(self, change: DeleteWhere | UpdateWhere) -> str:
        ddl = next(c.ddl for c in self.models[change.table].columns if c.name == change.column)
        known = [literal(v, ddl) for v in change.values if v is not None]
        parts = [f"{change.column} IN ({', '.join(known)})"] if known else []
        parts += [f"{change.column} IS NULL"] if None in change.values else []
        return " OR ".join(parts)

    def arrow(self) -> dict[str, pa.Table]:
        return {name: arrow_table(m.columns, m.rows) for name, m in self.models.items()}


class _Nowhere:
    """A warehouse that takes every change and does nothing."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def __getattr__(self, name: str) -> Callable[..., _Nowhere]:
        return lambda *_, **__: self
