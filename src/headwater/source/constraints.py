"""Constraints of managed tables, checked against the version that is committed upon.

Keys are unique: no two inserted rows share one, and none belongs to a row that stays. A deleted row was there. The checks read the
materialised rows, so what was checked is what is committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.identity import identity_list, is_plain, keys_equal_sql
from headwater.engine.worker import Frame, Worker
from headwater.errors import ConstraintError, EvaluationError, MissingRowError
from headwater.model.schema import Field
from headwater.model.sql import quoted, sql_string
from headwater.model.tables import Table
from headwater.source.fitting import MARK
from headwater.store.ground import Ground
from headwater.store.layout import Bound, column_bounds, decoded_statistics, files_within
from headwater.store.lookup import rows_of_keys
from headwater.store.reading import Source
from headwater.store.rows import ACTION, CHANGE_FIELDS, Rows

_BROADCAST_ROWS = 500_000


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
    if _are_surely_new(ground, rows, source, version, key):
        return
    view = worker.view(rows_frame(worker, ground, rows, table))
    if rows.count > 1 and not _has_distinct_keys(rows, key):
        same = ", ".join(identity_list(key))
        shown = _shown_sql([f"any_value({quoted(f.name)})" for f in key], key)
        text = f"SELECT {ACTION}, {shown} FROM {view} GROUP BY {ACTION}, {same} HAVING count(*) > 1 LIMIT 1"
        for action, values in worker.rows(worker.sql(text)):
            raise _inserted_twice(table, values) if action == "I" else _changed_twice(table, values)
    if rows.inserts == 0:
        return
    bounds = rows_bounds(rows, [f.name for f in key])
    if rows.deletes == 0 and _is_surely_empty(source, bounds):
        return
    names = ", ".join(quoted(f.name) for f in key)
    added = f"SELECT {names} FROM {view} WHERE {ACTION} = 'I'"
    if rows.deletes:
        gone = f"SELECT {names} FROM {view} WHERE {ACTION} = 'D'"
        added = f"SELECT {names} FROM ({added}) i LEFT ANTI JOIN ({gone}) g ON {keys_equal_sql('i', 'g', key)}"
    state = worker.view(ground.reader.state(worker, source, version, key, bounds))
    hint = "/*+ BROADCAST(i) */ " if rows.count <= _BROADCAST_ROWS else ""
    shown = _shown_sql([f"i.{quoted(f.name)}" for f in key], key)
    text = f"SELECT {hint}{shown} FROM {state} s JOIN ({added}) i ON {keys_equal_sql('s', 'i', key)} LIMIT 1"
    for (values,) in worker.rows(worker.sql(text)):
        raise _there_already(table, values)


def _are_surely_new(ground: Ground, rows: Rows, source: Source, version: int, key: Sequence[Field]) -> bool:
    """Say whether rows in memory name no key twice and none that a stored row keeps; False if that is not known without Spark."""
    if rows.arrow is None or (rows.count > 1 and not _has_distinct_keys(rows, key)):
        return False
    if not all(is_plain(f.type) for f in key):
        return False
    names = [f.name for f in key]
    inserted = pc.equal(rows.arrow.column(ACTION), "I")
    keys = rows.arrow.select(names)
    try:
        added = keys.filter(inserted).join(keys.filter(pc.invert(inserted)), names, join_type="left anti")
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return False
    if added.num_rows == 0:
        return True
    found = rows_of_keys(ground.reader, ground.layout, source, version, added)
    return found is not None and found.num_rows == 0


def _has_distinct_keys(rows: Rows, key: Sequence[Field]) -> bool:
    """Say whether rows in memory surely name no key twice; False if that is not known without Spark."""
    if rows.arrow is None or not all(is_plain(f.type) for f in key):
        return False
    names = [ACTION, *(f.name for f in key)]
    try:
        return bool(rows.arrow.select(names).group_by(names).aggregate([]).num_rows == rows.arrow.num_rows)
    except (pa.ArrowNotImplementedError, pa.ArrowKeyError):  # a type that Arrow cannot group by
        return False


def _shown_sql(values: Sequence[str], key: Sequence[Field]) -> str:
    """Return key values as text, made by Spark: Python cannot hold every date."""
    parts = [f"{sql_string(f.name + ' = ')}, CAST({v} AS STRING)" for f, v in zip(key, values, strict=True)]
    between = ", ', ', "
    return f"concat({between.join(parts)})"


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


def _inserted_twice(table: Table, values: str) -> ConstraintError:
    return _duplicate(table, values, "Two of the rows share it.")


def _there_already(table: Table, values: str) -> ConstraintError:
    return _duplicate(table, values, "A row with this key exists already.")


def _duplicate(table: Table, values: str, detail: str) -> ConstraintError:
    return ConstraintError(
        f'duplicate key in table "{table.name}": {values}',
        detail=detail,
        hint="Use upsert or MERGE INTO to replace rows; nothing was changed.",
    )


def _changed_twice(table: Table, values: str) -> ConstraintError:
    return ConstraintError(
        f'a row of table "{table.name}" is changed more than once by one statement: {values}',
        hint="Make the source of the statement unique; nothing was changed.",
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
