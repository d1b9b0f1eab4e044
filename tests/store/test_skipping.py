"""Which files a read may skip: statistics of every type with an order, and never a file that holds a wanted row."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.support.tables import manifest_of

import headwater as hw
from headwater.model.tables import DataFile, FileRole
from headwater.store.layout import column_bounds, decoded_statistics, files_within, footer_statistics

SAMPLES: dict[str, tuple[pa.DataType, list[Any], Any]] = {
    "integers": (pa.int32(), [3, 9, 5], 10),
    "texts": (pa.string(), ["b", "ü", "é"], "🌊"),
    "days": (pa.date32(), [date(2024, 1, 1), date(2024, 3, 1), date(2024, 2, 1)], date(2024, 3, 2)),
    "decimals": (pa.decimal128(9, 2), [Decimal("1.10"), Decimal("9.99"), Decimal("2.00")], Decimal("10.00")),
    "wide decimals": (pa.decimal128(38, 2), [Decimal("-5.10"), Decimal("9.99"), Decimal("2.00")], Decimal("9.9999")),
    "times": (
        pa.timestamp("us", "UTC"),
        [datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 3, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC)],
        datetime(2024, 1, 4, tzinfo=UTC),
    ),
    "local times": (
        pa.timestamp("us"),
        [datetime(2024, 1, 1), datetime(2024, 1, 3, 0, 0, 0, 7), datetime(2024, 1, 2)],
        datetime(2024, 1, 3, 0, 0, 0, 8),
    ),
}


def data_file(path: Path, table: pa.Table, **options: Any) -> DataFile:
    pq.write_table(table, path, **options)
    stats = json.dumps(footer_statistics(pq.read_metadata(path)))
    return DataFile("f", "t", FileRole.BASE, path.name, table.num_rows, path.stat().st_size, "w", stats)


@pytest.mark.parametrize("case", SAMPLES)
def test_a_file_is_skipped_only_outside_its_bounds(tmp_path: Path, case: str) -> None:
    kind, values, beyond = SAMPLES[case]
    table = pa.table({"c": pa.array([*values, None], kind)})
    file = data_file(tmp_path / "f.parquet", table, row_group_size=2)
    low, high = min(values), max(values)
    assert decoded_statistics(file)["c"] == (low, high, 1)
    for bounds in ((low, low), (high, high), (low, beyond), (high, beyond)):
        assert files_within([file], {"c": bounds}) == (file,)
    assert files_within([file], {"c": (beyond, beyond)}) == ()
    assert files_within([file], {"other": (beyond, beyond)}) == (file,)
    assert files_within([file], {}) == (file,)
    assert column_bounds(table.slice(0, 3), ["c"]) == {"c": (low, high)}
    assert column_bounds(table, ["c"]) == {}
    assert column_bounds(table.slice(0, 0), ["c"]) == {}


def test_a_file_of_nulls_holds_nothing_inside_any_bounds(tmp_path: Path) -> None:
    nulls = data_file(tmp_path / "f.parquet", pa.table({"c": pa.array([None, None], pa.int64())}))
    assert decoded_statistics(nulls)["c"] == (None, None, 2)
    assert files_within([nulls], {"c": (1, 2)}) == ()
    some = data_file(tmp_path / "g.parquet", pa.table({"c": pa.array([None, 5], pa.int64())}), row_group_size=1)
    assert decoded_statistics(some)["c"] == (5, 5, 1)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.float64(), [1.0, float("nan")]),
        (pa.binary(), [b"a", b"b"]),
        (pa.bool_(), [True, False]),
        (pa.string(), ["x" * 129, "y"]),
        (pa.list_(pa.int64()), [[1], [2]]),
        (pa.struct([("c", pa.int64())]), [{"c": 1}, {"c": 2}]),
        (pa.date32(), pa.array([4_000_000, 4_000_001], pa.int32())),
    ],
)
def test_what_has_no_sure_order_is_never_skipped(tmp_path: Path, kind: pa.DataType, values: Any) -> None:
    array = values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)
    table = pa.table({"c": array})
    file = data_file(tmp_path / "f.parquet", table)
    assert decoded_statistics(file) == {}
    assert files_within([file], {"c": (1, 2)}) == (file,)
    assert column_bounds(table, ["c"]) == {}


def test_files_that_spark_writes_have_the_same_statistics(spark: SparkSession, tmp_path: Path) -> None:
    with hw.connect(tmp_path / "w", spark=spark, settings={"arrow_max_rows": 5, "inline_max_rows": 2}) as wh:
        wh.sql(
            "CREATE TABLE t (i INT PRIMARY KEY, d DECIMAL(9,2), w DECIMAL(38,2), s STRING, a DATE, t TIMESTAMP, l TIMESTAMP_NTZ)"
        )
        wh.sql(
            "INSERT INTO t SELECT id, id / 4, -id, concat('k', id), DATE '2024-01-01' + INT(id), "
            "timestamp_seconds(id), TIMESTAMP_NTZ '2024-01-01 00:00:00' + INTERVAL 1 SECOND * id FROM range(0, 10, 1, 1)"
        )
        (file,) = manifest_of(wh, "t").files
        assert decoded_statistics(file) == {
            "i": (0, 9, 0),
            "d": (Decimal("0.00"), Decimal("2.25"), 0),
            "w": (Decimal("-9.00"), Decimal("0.00"), 0),
            "s": ("k0", "k9", 0),
            "a": (date(2024, 1, 1), date(2024, 1, 10), 0),
            "t": (datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, 0, 0, 9, tzinfo=UTC), 0),
            "l": (datetime(2024, 1, 1), datetime(2024, 1, 1, 0, 0, 9), 0),
        }
