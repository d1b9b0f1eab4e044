"""Columns and values for generated tables: every type that is stored, with the values that break engines.

A column has a *tag* that says what may be done with it: `int` is small and may be summed, `big` holds the smallest and largest
BIGINT and may only be compared, `wild` holds doubles whose sums would overflow or cancel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a generated table, or of a query over one."""

    name: str
    tag: str
    ddl: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """A type: its DDL, its Arrow type, and how to draw a value that is not NULL."""

    ddl: str
    arrow: pa.DataType
    draw: Callable[[Random], Any]


def _one_of(*values: Any) -> Callable[[Random], Any]:
    return lambda rng: rng.choice(values)


def _quarter(rng: Random) -> float:
    """A number whose sums are exact in any order."""
    return rng.randint(-80, 80) / 4


def _double(rng: Random) -> float:
    special = (math.nan, math.inf, -math.inf, -0.0, 0.0, 1e300)
    return rng.choice(special) if rng.random() < 0.2 else _quarter(rng)


def _spread(rng: Random) -> float:
    """For second moments: 1e300 would overflow when squared."""
    return rng.choice((math.nan, 1e12, 0.0)) if rng.random() < 0.12 else _quarter(rng)


def _decimal(rng: Random) -> Decimal:
    return (
        rng.choice((Decimal("0.00"), Decimal("9999999999.99"), Decimal("-9999999999.99")))
        if rng.random() < 0.1
        else Decimal(rng.randint(-99999, 99999)).scaleb(-2)
    )


def _wide(rng: Random) -> Decimal:
    """27 significant digits: any detour through a double or a rounded product shows."""
    return Decimal(rng.randint(-(10**27), 10**27)).scaleb(-10)


_MAX38 = Decimal("9999999999999999999999999999.9999999999")

KINDS: dict[str, Kind] = {
    "int": Kind("INT", pa.int32(), lambda rng: rng.randint(-3, 9)),
    "small": Kind("SMALLINT", pa.int16(), _one_of(-32768, 32767, 0, 1, 2, 3)),
    "big": Kind("BIGINT", pa.int64(), _one_of(-(2**63), 2**63 - 1, 0, 1, -1, 2**53 + 1, 7)),
    "string": Kind(
        "STRING", pa.string(), _one_of("", "a", "b", "B", "ab", "é", "e\u0301", "日本", "😀", "a'b\\c", "null", "%_ x ")
    ),
    "bool": Kind("BOOLEAN", pa.bool_(), _one_of(True, False)),
    "double": Kind("DOUBLE", pa.float64(), _double),
    "spread": Kind("DOUBLE", pa.float64(), _spread),
    "wild": Kind(
        "DOUBLE",
        pa.float64(),
        _one_of(math.nan, math.inf, -math.inf, -0.0, 0.0, 1e300, -1e300, 5e-324, 1.7976931348623157e308, 0.1, -0.1),
    ),
    "float": Kind(
        "FLOAT", pa.float32(), lambda rng: rng.choice((math.nan, math.inf, -0.0, 0.0, _quarter(rng), _quarter(rng)))
    ),
    "dec": Kind("DECIMAL(12,2)", pa.decimal128(12, 2), _decimal),
    "wide": Kind("DECIMAL(38,10)", pa.decimal128(38, 10), _wide),
    "limit": Kind(
        "DECIMAL(38,10)",
        pa.decimal128(38, 10),
        _one_of(_MAX38, Decimal("-9999999999999999999999999999.9999999999"), Decimal("0E-10"), Decimal("1E-10")),
    ),
    "date": Kind(
        "DATE",
        pa.date32(),
        _one_of(
            date(1, 1, 1),
            date(1582, 10, 4),
            date(1582, 10, 15),
            date(1899, 12, 31),
            date(2024, 2, 29),
            date(9999, 12, 31),
        ),
    ),
    "ts": Kind(
        "TIMESTAMP",
        pa.timestamp("us", "UTC"),
        _one_of(
            datetime(1, 1, 3, tzinfo=UTC),
            datetime(1883, 11, 18, 12, 3, 58, tzinfo=UTC),
            datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
            datetime(2024, 3, 31, 1, 30, tzinfo=UTC),
            datetime(2024, 10, 27, 1, 30, 0, 1, tzinfo=UTC),
            datetime(9999, 12, 30, 23, 59, 59, 999999, tzinfo=UTC),
        ),
    ),
    "ntz": Kind(
        "TIMESTAMP_NTZ",
        pa.timestamp("us"),
        _one_of(
            datetime(1, 1, 1),
            datetime(1900, 1, 1, 0, 0, 0, 1),
            datetime(2024, 3, 31, 2, 30),
            datetime(9999, 12, 31, 23, 59, 59),
        ),
    ),
    "bin": Kind("BINARY", pa.binary(), _one_of(b"", b"\x00", b"\xff\x00", b"abc")),
    "arr": Kind("ARRAY<INT>", pa.list_(pa.int32()), _one_of([], [1], [1, None], [None], [2, 1], [1, 2, 3])),
    "struct": Kind(
        "STRUCT<a: INT, b: STRING>",
        pa.struct([("a", pa.int32()), ("b", pa.string())]),
        _one_of({"a": 1, "b": "x"}, {"a": 1, "b": None}, {"a": None, "b": None}, {"a": 2, "b": ""}),
    ),
    "map": Kind(
        "MAP<STRING, INT>",
        pa.map_(pa.string(), pa.int32()),
        _one_of([], [("a", 1)], [("a", 1), ("b", 2)], [("b", 2), ("a", 1)], [("a", None)]),
    ),
}


def draw(rng: Random, tag: str, nulls: float = 0.15) -> Any:
    """Return a value for a column, NULL now and then."""
    return None if rng.random() < nulls else KINDS[tag].draw(rng)


def arrow_table(columns: tuple[Column, ...], rows: list[Row]) -> pa.Table:
    """Return rows as an Arrow table, typed by the columns."""
    schema = pa.schema([(c.name, KINDS[c.tag].arrow if c.name != "id" else pa.int64()) for c in columns])
    return pa.table(
        {c.name: pa.array([r.get(c.name) for r in rows], schema.field(c.name).type) for c in columns}, schema=schema
    )


def literal(value: Any, ddl: str) -> str:
    """Return a value as Spark SQL of that type."""
    if value is None:
        return f"CAST(NULL AS {ddl})"
    if ddl.startswith("ARRAY"):
        return f"CAST(array({', '.join('NULL' if v is None else str(v) for v in value)}) AS {ddl})"
    if ddl.startswith("STRUCT"):
        return f"CAST(named_struct('a', {literal(value['a'], 'INT')}, 'b', {literal(value['b'], 'STRING')}) AS {ddl})"
    if ddl.startswith("MAP"):
        entries = [part for k, v in value for part in (literal(k, "STRING"), literal(v, "INT"))]
        return f"CAST(map({', '.join(entries)}) AS {ddl})"
    if ddl == "BINARY":
        return f"X'{value.hex()}'"
    if ddl in ("FLOAT", "DOUBLE"):
        return f"CAST('{value!r}' AS {ddl})"
    if ddl == "STRING":
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if ddl == "BOOLEAN":
        return str(value).lower()
    if ddl in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"):
        return f"CAST('{value.isoformat().replace('+00:00', 'Z')}' AS {ddl})"
    return f"CAST('{value}' AS {ddl})"
