"""Rows that users bring, in any shape, as a frame that fits a table: right names, right types, no forbidden NULL.

Types follow SQL's store assignment: what Spark would let an INSERT store, with overflow as an error and never as a wrapped number.
The checks are part of the expressions, so a bad row stops the one job that computes the rows; nothing has been changed by then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.engine.identity import canonical_sql
from headwater.engine.worker import Frame, Worker, arrow_schema, data_type
from headwater.errors import ConstraintError
from headwater.model.schema import Field
from headwater.model.sql import quoted, sql_string
from headwater.model.tables import Table

MARK = "[HW301]"


@dataclass(frozen=True, slots=True)
class Incoming:
    """Rows on their way in, with their number if it is known without running anything."""

    frame: Frame
    count: int | None


def incoming(
    worker: Worker, rows: Any, table: Table, *, extra: Sequence[Field] = (), local_rows: int, spill: Callable[[], str]
) -> Incoming:  # noqa: E501
    """Return `rows` (DataFrame, Arrow, pandas, or dicts) as a frame. `extra` are columns besides the table's (an action)."""
    if isinstance(rows, Frame):
        return Incoming(worker.adopted(rows), None)
    fields = (*table.schema.visible, *extra)
    if isinstance(rows, Mapping):
        rows = [rows]
    if isinstance(rows, pd.DataFrame):
        rows = pa.Table.from_pandas(rows, preserve_index=False)
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        return Incoming(_arrow_frame(worker, rows, local_rows, spill), rows.num_rows)
    if isinstance(rows, Sequence) and all(isinstance(r, Mapping) for r in rows):
        arrow = _from_dicts(rows, fields, table)
        return Incoming(_arrow_frame(worker, arrow, local_rows, spill), arrow.num_rows)
    raise ConstraintError(
        f'rows for table "{table.name}" have the type {type(rows).__name__}',
        hint="Give a Spark DataFrame, a pyarrow.Table, a pandas.DataFrame, or a list of dicts.",
    )


def _arrow_frame(worker: Worker, table: pa.Table, local_rows: int, spill: Callable[[], str]) -> Frame:
    """Few rows become a local relation; many go through a file, so that executors read them and not the driver."""
    if len(set(table.column_names)) != len(table.column_names):
        raise ConstraintError("the rows name a column twice")
    if table.num_rows <= local_rows:
        if table.num_rows == 0:
            return worker.session.createDataFrame(table.slice(0, 0))
        return worker.session.createDataFrame(table)
    path = spill()
    pq.write_table(table, path, coerce_timestamps="us")
    return worker.session.read.parquet(path)


def _from_dicts(rows: Sequence[Mapping[str, Any]], fields: Sequence[Field], table: Table) -> pa.Table:
    by_name = {f.name.casefold(): f for f in fields}
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    unknown = [n for n in names if n.casefold() not in by_name]
    if unknown:
        raise unknown_column(unknown[0], table)
    used = [by_name[n.casefold()] for n in names]
    arrays = []
    for name, field in zip(names, used, strict=True):
        kind = arrow_schema([field]).field(0).type
        try:
            arrays.append(pa.array([r.get(name) for r in rows], kind))
        except (
            pa.ArrowInvalid,
            pa.ArrowTypeError,
            pa.ArrowNotImplementedError,
            OverflowError,
            ValueError,
            TypeError,
        ) as error:
            raise ConstraintError(
                f'a value of column "{field.name}" of table "{table.name}" is not of type {field.type}',
                detail=str(error),
                hint="Convert the value first; nothing was changed.",
            ) from error
    schema = pa.schema([(f.name, a.type) for f, a in zip(used, arrays, strict=True)])
    if not names:
        return pa.table({f.name: pa.nulls(len(rows)) for f in fields[:1]})
    return pa.Table.from_arrays(arrays, schema=schema)


def unknown_column(name: str, table: Table) -> ConstraintError:
    from difflib import get_close_matches

    known = [f.name for f in table.schema.visible]
    near = get_close_matches(name, known, n=2, cutoff=0.5)
    hint = (
        f"Did you mean {' or '.join(chr(34) + n + chr(34) for n in near)}?" if near else f"It has {', '.join(known)}."
    )
    return ConstraintError(f'table "{table.name}" has no column "{name}"', hint=hint)


def fitted_sql(worker: Worker, value: str, source_type: Any, field: Field, table: Table) -> str:
    """Return an expression that stores `value` in `field`, or fails with a clear message."""
    target = data_type(field.type)
    if source_type.simpleString() == "void":
        made = f"CAST(NULL AS {field.type})"
    elif source_type == target:
        made = value
    else:
        if not worker.can_assign(source_type, target):
            raise ConstraintError(
                f'column "{field.name}" of table "{table.name}" is of type {field.type}, '
                f"the value is of type {source_type.simpleString().upper()}",
                hint="Write an explicit CAST if the conversion is meant.",
            )
        text = f'{MARK} a value does not fit column "{field.name}" of type {field.type}: '
        made = (
            f"CASE WHEN {value} IS NOT NULL AND try_cast({value} AS {_cast_type(field.type)}) IS NULL "
            f"THEN CAST(raise_error(concat({sql_string(text)}, CAST({value} AS STRING))) AS {_cast_type(field.type)}) "
            f"ELSE try_cast({value} AS {_cast_type(field.type)}) END"
        )
    made = canonical_sql(f"({made})", field.type)
    limit = _length(field.type)
    if limit is not None:
        text = f'{MARK} a value is longer than column "{field.name}" of type {field.type} allows: '
        made = (
            f"CASE WHEN char_length({made}) > {limit} THEN CAST(raise_error(concat({sql_string(text)}, {made})) AS STRING) "
            f"ELSE {f'rpad({made}, {limit}, chr(32))' if field.type.startswith('CHAR(') else made} END"
        )
    if not field.nullable:
        text = f'{MARK} column "{field.name}" must not be NULL'
        made = f"coalesce({made}, CAST(raise_error({sql_string(text)}) AS {_cast_type(field.type)}))"
    return made


def _length(ddl: str) -> int | None:
    for prefix in ("VARCHAR(", "CHAR("):
        if ddl.startswith(prefix):
            return int(ddl[len(prefix) : -1])
    return None


def _cast_type(ddl: str) -> str:
    return "STRING" if _length(ddl) is not None else ddl


def fitted(worker: Worker, rows: Incoming, table: Table, *, passed: Sequence[str] = ()) -> Frame:
    """Return the rows with exactly the visible columns of the table, and the columns in `passed` as they are."""
    names = {n.casefold(): n for n in rows.frame.columns}
    known = {f.name.casefold() for f in table.schema.visible} | {p.casefold() for p in passed}
    for folded, name in names.items():
        if folded not in known:
            raise unknown_column(name, table)
    types = {f.name.casefold(): f.dataType for f in rows.frame.schema.fields}
    view = worker.view(rows.frame)
    items = []
    for field in table.schema.visible:
        folded = field.name.casefold()
        if folded in names:
            text = fitted_sql(worker, quoted(names[folded]), types[folded], field, table)
        elif field.nullable:
            text = f"CAST(NULL AS {_cast_type(field.type)})"
        else:
            raise ConstraintError(
                f'column "{field.name}" of table "{table.name}" must not be NULL',
                detail="The rows do not have this column.",
            )
        items.append(f"{text} AS {quoted(field.name)}")
    items += [quoted(names[p.casefold()]) for p in passed]
    return worker.sql(f"SELECT {', '.join(items)} FROM {view}")
