"""Constraints of managed tables, checked against the version that is committed upon.

Keys are unique: no two inserted rows share one, and none belongs to a row that stays. A deleted row was there. The checks read the
materialised rows, so what was checked is what is committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headwater.engine.identity import identity_list, keys_equal_sql
from headwater.engine.worker import Frame, Worker
from headwater.errors import ConstraintError, EvaluationError, MissingRowError
from headwater.model.schema import Field
from headwater.model.sql import quoted
from headwater.model.tables import Table
from headwater.source.fitting import MARK
from headwater.store.ground import Ground
from headwater.store.layout import Bound, column_bounds, decoded_statistics, files_within
from headwater.store.reading import Source
from headwater.store.rows import ACTION, CHANGE_FIELDS, Rows


def rows_frame(worker: Worker, ground: Ground, rows: Rows, table: Table) -> Frame:
    """Return materialised change rows as a frame: stored fields and the action."""
    fields = table.schema.fields
    names = "".join(quoted(f.name) + ", " for f in fields)
    if rows.arrow is not None:
        return worker.from_arrow(rows.arrow, (*fields, CHANGE_FIELDS[0]))
    if rows.plain:
        view = worker.view(worker.read_parquet(ground.layout.paths(rows.files), fields))
        return worker.sql(f"SELECT {names}'I' AS {ACTION} FROM {view}")
    return worker.read_parquet(ground.layout.paths(rows.files), (*fields, CHANGE_FIELDS[0]))


def key_fields(table: Table) -> tuple[Field, ...]:
    """Return the fields of a table's key."""
    return tuple(f for f in table.schema.fields if f.name in table.schema.key)


def check_keys(worker: Worker, ground: Ground, rows: Rows, source: Source, version: int) -> None:
    """Fail if the rows would leave two rows with one key, or delete one row twice."""
    table = source.table
    key = key_fields(table)
    if any(f.hidden for f in key):
        return
    view = worker.view(rows_frame(worker, ground, rows, table))
    names = ", ".join(quoted(f.name) for f in key)
    same = ", ".join(identity_list(key))
    shown = ", ".join(f"any_value({quoted(f.name)}) AS {quoted(f.name)}" for f in key)
    if rows.count > 1:
        text = f"SELECT {ACTION}, {shown} FROM {view} GROUP BY {ACTION}, {same} HAVING count(*) > 1 LIMIT 1"
        for row in worker.rows(worker.sql(text)):
            _raise_duplicate(row, key, table, "inserted" if row[ACTION] == "I" else "matched")
    if rows.inserts == 0:
        return
    bounds = rows_bounds(rows, [f.name for f in key])
    if rows.deletes == 0 and _is_surely_empty(source, bounds):
        return
    state = ground.reader.state(worker, source, version, key, bounds)
    added = f"SELECT {names} FROM {view} WHERE {ACTION} = 'I'"
    if rows.deletes:
        gone = f"SELECT {names} FROM {view} WHERE {ACTION} = 'D'"
        added = f"SELECT {names} FROM ({added}) i LEFT ANTI JOIN ({gone}) g ON {keys_equal_sql('i', 'g', key)}"
    hint = "/*+ BROADCAST(i) */ " if rows.count <= 500_000 else ""
    text = (
        f"SELECT {hint}{', '.join(f'i.{quoted(f.name)}' for f in key)} FROM {worker.view(state)} s "
        f"JOIN ({added}) i ON {keys_equal_sql('s', 'i', key)} LIMIT 1"
    )
    for row in worker.rows(worker.sql(text)):
        _raise_duplicate(row, key, table, "there already")


def _is_surely_empty(source: Source, bounds: Mapping[str, Bound]) -> bool:
    """Say whether statistics alone show that no stored row is inside the bounds."""
    has_tail = bool(source.pending) or any(b.last_version > source.table.base_version for b in source.manifest.batches)
    return not has_tail and not files_within(source.manifest.files, bounds)


def rows_bounds(rows: Rows, columns: Sequence[str]) -> dict[str, Bound]:
    """Return the bounds of the rows' columns, from memory or from the statistics of their files."""
    if rows.arrow is not None:
        return column_bounds(rows.arrow, columns)
    found: dict[str, Bound] = {}
    stats = [decoded_statistics(f) for f in rows.files]
    for column in columns:
        parts = [s.get(column) for s in stats]
        if parts and all(p is not None and p[0] is not None and p[2] == 0 for p in parts):
            known = [p for p in parts if p is not None]
            found[column] = (min(p[0] for p in known), max(p[1] for p in known))
    return found


def _raise_duplicate(row: Any, key: Sequence[Field], table: Table, how: str) -> None:
    values = ", ".join(f"{f.name} = {row[f.name]!r}" for f in key)
    if how == "matched":
        raise ConstraintError(
            f'a row of table "{table.name}" is changed more than once by one statement: {values}',
            hint="Make the source of the statement unique; nothing was changed.",
        )
    detail = "Two of the rows share it." if how == "inserted" else "A row with this key exists already."
    raise ConstraintError(
        f'duplicate key in table "{table.name}": {values}',
        detail=detail,
        hint="Use upsert or MERGE INTO to replace rows; nothing was changed.",
    )


def missing_rows(table: Table, example: Mapping[str, Any], count: int) -> MissingRowError:
    """Return the error for rows that were to be deleted and are not there."""
    return MissingRowError(
        f'{count} row(s) to be deleted are not in table "{table.name}"',
        detail=f"For example: {example}.",
        hint="Deletions name whole rows as they are stored; nothing was changed.",
    )


def constraint_error(error: EvaluationError) -> Exception:
    """Return the violated constraint if Spark's error came from one of our checks, an overflow as what it is."""
    detail = error.detail or ""
    if MARK in detail:
        text = detail[detail.index(MARK) + len(MARK) :].split(" SQLSTATE")[0].strip()
        return ConstraintError(text.rstrip(". "), hint="Nothing was changed.")
    for word in (
        "ARITHMETIC_OVERFLOW",
        "CAST_OVERFLOW",
        "CAST_INVALID_INPUT",
        "NUMERIC_VALUE_OUT_OF_RANGE",
        "DIVIDE_BY_ZERO",
        "DUPLICATED_MAP_KEY",
        "NULL_MAP_KEY",
        "MALFORMED_RECORD_IN_PARSING",
    ):
        if word in detail:
            return ConstraintError("a value cannot be computed", detail=detail, hint="Nothing was changed.")
    return error
