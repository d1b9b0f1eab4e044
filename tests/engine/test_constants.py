"""Rows written as constants are the same rows."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from headwater.engine.constants import values_sql
from headwater.engine.worker import Worker, arrow_schema
from headwater.model.schema import Field

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXACT: dict[str, list[Any]] = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, 127],
    "SMALLINT": [-(2**15), 0],
    "INT": [-(2**31), 2**31 - 1],
    "BIGINT": [-(2**63), 2**63 - 1],
    "STRING": ["", "it's", "a\\nb\n\\", "${spark.app.name}", "é\u0000\U0001f600", '"', "--", "<<new:t>>", "%_"],
    "BINARY": [b"", b"\x00\xff"],
    "FLOAT": [0.1, -0.0, math.inf],
    "DOUBLE": [0.1, -0.0, 1e300, 5e-324, -math.inf, math.nan],
    "DATE": [date(1, 1, 1), date(9999, 12, 31)],
    "TIMESTAMP": [datetime(1, 1, 2, tzinfo=UTC), datetime(2024, 10, 27, 0, 30, 0, 123456, tzinfo=UTC)],
    "TIMESTAMP_NTZ": [datetime(1900, 1, 1, 0, 0, 0, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)],
    "DECIMAL(38, 10)": [Decimal("1e-10"), Decimal("-9999999999999999999999999999.9999999999")],
    "ARRAY<BIGINT>": [[], [1, None, -5]],
    "ARRAY<STRUCT<a: INT>>": [],
    "STRING COLLATE UTF8_LCASE": [],
    "MAP<STRING, INT>": [],
}


@pytest.mark.parametrize("zone", ["UTC", "America/St_Johns"])
def test_values_survive(spark: SparkSession, zone: str) -> None:
    session = spark.newSession()
    worker = Worker(session)
    worker.configure({"spark.sql.session.timeZone": zone})
    fields = [Field(f"a `{i}`", t) for i, (t, values) in enumerate(EXACT.items()) if values]
    height = max(len(v) for v in EXACT.values())
    columns = [[*EXACT[f.type], *[None] * (height - len(EXACT[f.type]))] for f in fields]
    table = pa.Table.from_arrays(
        [pa.array(c, arrow_schema([f]).field(0).type) for c, f in zip(columns, fields, strict=True)],
        schema=arrow_schema(fields),
    )
    text = values_sql(table, fields)
    assert text is not None
    frame = worker.sql(f"SELECT * FROM {text}")
    assert frame.schema.simpleString() == worker.from_arrow(table, fields).schema.simpleString()
    found = frame.toArrow().cast(table.schema)
    for expected, got in zip(table.columns, found.columns, strict=True):
        assert repr(got.to_pylist()) == repr(expected.to_pylist())


@pytest.mark.parametrize("type_", [t for t, values in EXACT.items() if not values])
def test_types_without_an_exact_text(type_: str) -> None:
    assert values_sql(pa.table({"a": pa.nulls(1)}), [Field("a", type_)]) is None


def test_a_day_outside_the_calendar_of_python() -> None:
    table = pa.table({"a": pa.array([2**30], pa.int32()).cast(pa.date32())})
    assert values_sql(table, [Field("a", "DATE")]) is None
