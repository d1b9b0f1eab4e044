"""Few rows as constants in a text: Spark reads them with the query, which saves the calls that hand over a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headwater.model.schema import Field
from headwater.model.sql import quoted, sql_string

_ARRAY = "ARRAY<"


def values_sql(table: pa.Table, fields: Sequence[Field]) -> str | None:
    """Return the rows of `table` as what stands after FROM, with exactly these fields; None if a value has no exact text."""
    makers = [_maker(f.type) for f in fields]
    if any(m is None for m in makers):
        return None
    try:
        columns = [table.column(f.name).to_pylist() for f in fields]
        texts = [[m(v) for v in column] for m, column in zip(makers, columns, strict=True) if m is not None]
    except (ValueError, OverflowError):  # a date or time outside Python's calendar
        return None
    rows = ", ".join(f"({', '.join(row)})" for row in zip(*texts, strict=True))
    items = ", ".join(f"CAST(col{i} AS {f.type}) AS {quoted(f.name)}" for i, f in enumerate(fields, start=1))
    return f"(SELECT {items} FROM VALUES {rows})"


def _maker(type_: str) -> Callable[[Any], str] | None:
    """Return the function that writes a value of this type, None if there is none."""
    kind = type_.upper()
    if kind.startswith(_ARRAY) and kind.endswith(">"):
        inner = _maker(kind[len(_ARRAY) : -1])
        if inner is None:
            return None
        return lambda v: "NULL" if v is None else f"CAST(array({', '.join(inner(x) for x in v)}) AS {kind})"
    write = _decimal if kind.startswith("DECIMAL(") else _WRITERS.get(kind)
    if write is None:
        return None
    return lambda v: "NULL" if v is None else write(v, kind)


def _in_words(value: Any, kind: str) -> str:
    return f"CAST({sql_string(str(value))} AS {kind})"


def _decimal(value: Decimal, kind: str) -> str:
    return _in_words(f"{value:f}", kind)


def _float(value: float, kind: str) -> str:
    return _in_words(repr(value), kind)


def _timestamp(value: datetime, kind: str) -> str:
    if value.tzinfo is None:
        raise ValueError("an instant without a zone")
    return f"TIMESTAMP {sql_string(value.astimezone(UTC).isoformat(sep=' '))}"


def _local_time(value: datetime, kind: str) -> str:
    return f"TIMESTAMP_NTZ {sql_string(value.isoformat(sep=' '))}"


def _date(value: date, kind: str) -> str:
    return f"DATE {sql_string(value.isoformat())}"


_WRITERS: dict[str, Callable[[Any, str], str]] = {
    "BOOLEAN": lambda v, _: "true" if v else "false",
    "TINYINT": lambda v, _: f"{v}Y",
    "SMALLINT": lambda v, _: f"{v}S",
    "INT": lambda v, _: f"{v}",
    "BIGINT": lambda v, _: f"{v}L",
    "STRING": lambda v, _: sql_string(v),
    "BINARY": lambda v, _: f"X'{v.hex()}'",
    "FLOAT": _float,
    "DOUBLE": _float,
    "DATE": _date,
    "TIMESTAMP": _timestamp,
    "TIMESTAMP_NTZ": _local_time,
}
