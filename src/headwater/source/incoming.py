"""Rows that users bring, in any shape, as a frame that fits a table: right names, right types, no forbidden NULL.

Types follow SQL's store assignment: what Spark would let an INSERT store, with overflow as an error at any depth and never as a
wrapped number. The checks are part of the expressions (`fitting.py`), so a bad row stops the one job that computes the rows;
nothing has been changed by then. A Python time without a zone means the session's time zone, as in any Spark session.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.engine.identity import has_variant
from headwater.engine.worker import Frame, Worker, arrow_schema
from headwater.errors import ConstraintError
from headwater.model.schema import Field
from headwater.model.sql import quoted
from headwater.model.tables import Table
from headwater.source.fitting import fitted_sql, unknown_column

_BAD_VALUE = (pa.ArrowException, OverflowError, ValueError, TypeError, ArithmeticError)
_SIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}


@dataclass(frozen=True, slots=True)
class Incoming:
    """Rows on their way in, with their number if it is known without running anything."""

    frame: Frame
    count: int | None


@dataclass(frozen=True, slots=True)
class Gate:
    """How rows get in: at most `local_rows` as a local relation, more through a file that `spill` names."""

    worker: Worker
    local_rows: int
    spill: Callable[[], Path]

    def incoming(self, rows: Any, table: Table, extra: Sequence[Field] = ()) -> Incoming:
        """Return `rows` (DataFrame, Arrow, pandas, or dicts) as a frame. `extra` are columns besides the table's (an action)."""
        if isinstance(rows, Frame):
            return Incoming(self.worker.adopted(rows), None)
        fields = {f.name.casefold(): f for f in (*table.schema.visible, *extra)}
        if isinstance(rows, Mapping):
            rows = [rows]
        if isinstance(rows, pd.DataFrame):
            return self._given(_from_pandas(rows, fields, table), table)
        if isinstance(rows, pa.RecordBatch):
            rows = pa.Table.from_batches([rows])
        if isinstance(rows, pa.Table):
            return self._given(rows, table)
        if isinstance(rows, Sequence) and all(isinstance(r, Mapping) for r in rows):
            return self._given(_from_dicts(rows, fields, table), table)
        raise ConstraintError(
            f'rows for table "{table.name}" have the type {type(rows).__name__}',
            hint="Give a Spark DataFrame, a pyarrow.Table, a pandas.DataFrame, or a list of dicts.",
        )

    def _given(self, rows: pa.Table, table: Table) -> Incoming:
        """Few rows become a local relation; many go through a file, so that executors read them and not the driver."""
        if len({n.casefold() for n in rows.column_names}) != len(rows.column_names):
            raise ConstraintError("the rows name a column twice")
        try:
            rows = rows.cast(pa.schema([f.with_type(_SIGNED.get(f.type, f.type)) for f in rows.schema]))
            if rows.num_rows <= self.local_rows:
                frame = self.worker.local(rows)
            else:
                path = self.spill()
                pq.write_table(rows, path, coerce_timestamps="us", allow_truncated_timestamps=True)
                frame = self.worker.session.read.parquet(str(path))
        except _BAD_VALUE as error:
            raise ConstraintError(
                f'the rows for table "{table.name}" cannot be read', detail=str(error), hint="Nothing was changed."
            ) from error
        return Incoming(self._parsed(frame, table), rows.num_rows)

    def _parsed(self, frame: Frame, table: Table) -> Frame:
        """Turn JSON text into VARIANT: Arrow has no such type, so Python values travel as text."""
        variants = {f.name.casefold() for f in table.schema.visible if f.type == "VARIANT"}
        texts = {name for name, kind in frame.dtypes if kind == "string" and name.casefold() in variants}
        if not texts:
            return frame
        items = ", ".join(f"parse_json({quoted(c)}) AS {quoted(c)}" if c in texts else quoted(c) for c in frame.columns)
        return self.worker.sql(f"SELECT {items} FROM {self.worker.view(frame)}")


def _from_dicts(rows: Sequence[Mapping[str, Any]], fields: Mapping[str, Field], table: Table) -> pa.Table:
    names = dict.fromkeys(name for row in rows for name in row)
    for name in names:
        if str(name).casefold() not in fields:
            raise unknown_column(str(name), table)
    if not names:
        return pa.table({f.name: pa.nulls(len(rows)) for f in list(fields.values())[:1]})
    arrays = [_typed([r.get(name) for r in rows], fields[str(name).casefold()], table) for name in names]
    return pa.Table.from_arrays(arrays, names=[fields[str(n).casefold()].name for n in names])


def _from_pandas(frame: pd.DataFrame, fields: Mapping[str, Field], table: Table) -> pa.Table:
    """Columns of Python objects are read as what the table wants, all others as what they are; missing values are NULL."""
    names = [str(c) for c in frame.columns]
    arrays = []
    for position, name in enumerate(names):
        series = frame.iloc[:, position]
        field = fields.get(name.casefold())
        if field is not None and (series.dtype == object or field.type == "VARIANT"):
            values = [None if _is_missing(v) else v for v in series]
            arrays.append(_typed(values, field, table))
        else:
            try:
                made = pa.array(series, from_pandas=True)
            except _BAD_VALUE as error:
                raise ConstraintError(f'column "{name}" cannot be read', detail=str(error)) from error
            arrays.append(made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made)
    return pa.Table.from_arrays(arrays, names=names)


def _is_missing(value: Any) -> bool:
    return value is None or value is pd.NaT or value is pd.NA or (isinstance(value, float) and value != value)


def _typed(values: list[Any], field: Field, table: Table) -> pa.Array:
    """Return Python values as an Arrow array of the column's type."""
    try:
        if field.type == "VARIANT":
            texts = [None if v is None else json.dumps(v, allow_nan=False) for v in values]
            return pa.array(texts, pa.string())
        if has_variant(field.type):
            raise TypeError("a VARIANT inside another type cannot be given as a Python value")
        kind = arrow_schema([field]).field(0).type
        reading = _Reading()
        values = [reading.exact(v, kind) for v in values]
        if reading.zoned and reading.local:
            raise TypeError("some times have a time zone and some have none")
        return pa.array(values, _without_zone(kind) if reading.local else kind)
    except _BAD_VALUE as error:
        raise ConstraintError(
            f'a value of column "{field.name}" of table "{table.name}" is not of type {field.type}',
            detail=str(error),
            hint="Convert the value first; nothing was changed.",
        ) from error


@dataclass(slots=True)
class _Reading:
    """Reads Python values as exactly what they say: Arrow alone would cut 1.5 to 1 and drop fields that a struct does not have."""

    zoned: bool = False
    local: bool = False

    def exact(self, value: Any, kind: pa.DataType) -> Any:
        """Return a value that Arrow stores unchanged, or raise."""
        if value is None:
            return None
        if pa.types.is_integer(kind) and not isinstance(value, int | np.integer):
            return _whole(value)
        if pa.types.is_decimal(kind) and isinstance(value, float):
            return _rounded(value, kind.scale)
        if pa.types.is_date(kind) and (isinstance(value, datetime) or not isinstance(value, date)):
            raise TypeError(f"{value!r} is not a date")
        if pa.types.is_timestamp(kind):
            value = _time(value)
            self.zoned |= value.tzinfo is not None
            self.local |= value.tzinfo is None
        elif pa.types.is_list(kind) and isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
            return [self.exact(v, kind.value_type) for v in value]
        elif pa.types.is_map(kind) and isinstance(value, Mapping):
            return [(self.exact(k, kind.key_type), self.exact(v, kind.item_type)) for k, v in value.items()]
        elif pa.types.is_struct(kind) and isinstance(value, Mapping):
            fields = {f.name: f.type for f in kind}
            unknown = [name for name in value if name not in fields]
            if unknown:
                raise TypeError(f"the struct has no field {unknown[0]!r}")
            return {name: self.exact(v, fields[name]) for name, v in value.items()}
        return value


def _whole(value: Any) -> int:
    if not isinstance(value, float | Decimal) or value != int(value):
        raise TypeError(f"{value!r} is not a whole number")
    return int(value)


def _time(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    raise TypeError(f"{value!r} is not a time")


def _rounded(value: float, scale: int) -> Decimal:
    """Return a float as Spark would store it: rounded half up."""
    exact = Decimal(repr(value))
    return exact.quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_UP) if exact.is_finite() else exact


def _without_zone(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit)
    if pa.types.is_list(kind):
        return pa.list_(_without_zone(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_without_zone(kind.key_type), _without_zone(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_without_zone(f.type)) for f in kind])
    return kind


def fitted(worker: Worker, rows: Incoming, table: Table, *, passed: Sequence[str] = ()) -> Frame:
    """Return the rows with exactly the visible columns of the table, and the columns in `passed` as they are."""
    names = {n.casefold(): n for n in rows.frame.columns}
    known = {f.name.casefold() for f in table.schema.visible} | {p.casefold() for p in passed}
    for folded, name in names.items():
        if folded not in known:
            raise unknown_column(name, table)
    if len(names) != len(rows.frame.columns):
        raise ConstraintError("the rows name a column twice")
    types = {f.name.casefold(): f.dataType for f in rows.frame.schema.fields}
    items = []
    for field in table.schema.visible:
        folded = field.name.casefold()
        if folded not in names and not field.nullable:
            raise ConstraintError(
                f'column "{field.name}" of table "{table.name}" must not be NULL',
                detail="The rows do not have this column.",
            )
        value = quoted(names[folded]) if folded in names else "NULL"
        items.append(f"{fitted_sql(worker, value, types.get(folded), field, table)} AS {quoted(field.name)}")
    items += [quoted(names[p.casefold()]) for p in passed]
    return worker.sql(f"SELECT {', '.join(items)} FROM {worker.view(rows.frame)}")
