"""The base as a Delta Lake table: what outside readers find there is what the table holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from tests.support.tables import contents, manifest_of, table_of

import headwater as hw
from headwater.store import maintain
from headwater.store.export import export_base, not_exported_because
from headwater.warehouse import Warehouse


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with its delta extension, loaded from the wheel."""
    found = find_spec("duckdb_extension_delta")
    assert found is not None
    assert found.submodule_search_locations is not None
    (root,) = found.submodule_search_locations
    (extension,) = Path(root).rglob("delta.duckdb_extension")
    with duckdb.connect() as connection:
        connection.load_extension(str(extension))
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


@pytest.fixture
def far(spark: SparkSession, tmp_path: Path) -> Iterator[Warehouse]:
    """A warehouse in a folder whose name needs quoting in a URI."""
    with hw.connect(tmp_path / "größe 1", spark=spark, settings={"vacuum_grace_seconds": 0}) as warehouse:
        yield warehouse


def by_duckdb(duck: duckdb.DuckDBPyConnection, wh: Warehouse, name: str, what: str = "*") -> Counter[tuple[Any, ...]]:
    return Counter(duck.execute(f"SELECT {what} FROM delta_scan(?)", [wh.base_path(name)]).fetchall())


def by_deltalake(wh: Warehouse, name: str) -> Counter[tuple[Any, ...]]:
    rows = DeltaTable(wh.base_path(name)).to_pyarrow_table().to_pylist()
    return Counter(tuple(r.values()) for r in rows)


def test_outside_readers_see_the_folded_table(far: Warehouse, duck: duckdb.DuckDBPyConnection) -> None:
    far.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v STRING)")
    far.sql("INSERT INTO t SELECT id, concat('v', id) FROM range(50)")
    far.sql("DELETE FROM t WHERE id >= 5")
    far.compact("t")
    expected = {(n, f"v{n}"): 1 for n in range(5)}
    assert by_duckdb(duck, far, "t") == by_deltalake(far, "t") == contents(far, "t") == expected
    # Between folds outsiders lag, they never lead.
    far.sql("UPDATE t SET v = 'new' WHERE id < 2")
    assert by_duckdb(duck, far, "t") == expected
    far.compact("t")
    assert by_duckdb(duck, far, "t") == by_deltalake(far, "t") == contents(far, "t")
    assert by_duckdb(duck, far, "t")[(1, "new")] == 1
    # A filter uses the statistics in the log.
    where = duck.execute("SELECT v FROM delta_scan(?) WHERE id = 3 AND v > 'v'", [far.base_path("t")]).fetchall()
    assert where == [("v3",)]
    far.sql("ALTER TABLE t ADD COLUMNS (extra DOUBLE)")
    far.sql("INSERT INTO t VALUES (9, 'nine', 9.5)")
    far.compact("t")
    assert by_duckdb(duck, far, "t") == by_deltalake(far, "t") == contents_plain(far, "t")
    far.sql("TRUNCATE TABLE t")
    far.compact("t")
    assert by_duckdb(duck, far, "t") == by_deltalake(far, "t") == Counter()
    for _ in range(2):
        far.vacuum(retention_hours=0)
    assert by_duckdb(duck, far, "t") == Counter()


def contents_plain(wh: Warehouse, name: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(r) for r in wh.table(name).collect())


def test_outside_readers_see_every_type(far: Warehouse, duck: duckdb.DuckDBPyConnection) -> None:
    far.sql(
        "CREATE TABLE t (a TINYINT, b SMALLINT, c INT, d BOOLEAN, e FLOAT, f DOUBLE, g DECIMAL(12,2), h DECIMAL(38,10), "
        "i VARCHAR(3), j CHAR(5), k BINARY, l DATE, m TIMESTAMP, n TIMESTAMP_NTZ, o ARRAY<INT>, p MAP<STRING, INT>, "
        "q STRUCT<x: INT, y: STRING>, r STRING COLLATE UTF8_LCASE)"
    )
    row = {
        "a": 1,
        "b": 2,
        "c": 3,
        "d": True,
        "e": 1.5,
        "f": 2.5,
        "g": Decimal("1.25"),
        "h": Decimal("1.0123456789"),
        "i": "abc",
        "j": "ab",
        "k": b"\x00\xff",
        "l": date(2024, 2, 29),
        "m": datetime(2024, 3, 31, 12, 30, 0, 5, tzinfo=UTC),
        "n": datetime(2024, 3, 31, 2, 30),
        "o": [1, None],
        "p": {"k": 1},
        "q": {"x": 1, "y": "z"},
        "r": "Ab",
    }
    far.insert("t", [row, {}])
    far.compact("t")
    (found,) = duck.execute("SELECT * FROM delta_scan(?) WHERE c = 3", [far.base_path("t")]).fetchall()
    (log,) = (r for r in DeltaTable(far.base_path("t")).to_pyarrow_table().to_pylist() if r["c"] == 3)
    expected = {**row, "j": "ab   "}
    assert dict(zip(expected, found, strict=True)) == expected
    assert {**log, "p": dict(log["p"])} == expected


def test_a_variant_is_exported_where_the_reader_can(far: Warehouse) -> None:
    far.sql("CREATE TABLE t (id INT, v VARIANT)")
    far.sql("INSERT INTO t SELECT 1, parse_json('{\"a\": [1, 2]}')")
    far.compact("t")
    reason = not_exported_because(table_of(far, "t"))
    exported = DeltaTable.is_deltatable(far.base_path("t"))
    assert exported is (reason is None)
    assert far.table("t").selectExpr("v:a[1]::INT AS x").collect()[0]["x"] == 2


def test_an_export_that_was_missed_is_caught_up_once(
    far: Warehouse, duck: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    far.sql("CREATE TABLE t (n INT)")
    far.sql("INSERT INTO t VALUES (1), (2)")
    with monkeypatch.context() as patch:
        patch.setattr(maintain, "export_base", lambda *_: False)  # the process died between commit and export
        far.compact("t")
    assert not DeltaTable.is_deltatable(far.base_path("t"))
    assert far._catalog.export_pending() == [table_of(far, "t").id]
    assert far.vacuum().tables_exported == 1
    assert by_duckdb(duck, far, "t") == Counter({(1,): 1, (2,): 1})
    log = DeltaTable(far.base_path("t")).version()
    snapshot = far._catalog.snapshot()
    for _ in range(2):
        assert not export_base(
            far._catalog, far._ground.layout, table_of(far, "t"), manifest_of(far, "t"), snapshot.version
        )
    assert DeltaTable(far.base_path("t")).version() == log
    assert far._catalog.export_pending() == []


def test_names_that_delta_forbids_are_not_exported(far: Warehouse) -> None:
    far.sql("CREATE TABLE t (`order date` DATE, n INT)")
    far.sql("INSERT INTO t VALUES (DATE '2024-01-01', 1)")
    far.compact("t")
    assert not_exported_because(table_of(far, "t")) == (
        'column name "order date" is not allowed in Delta Lake without column mapping'
    )
    assert not DeltaTable.is_deltatable(far.base_path("t"))
    assert far._catalog.export_pending() == []
    assert contents(far, "t") == {(date(2024, 1, 1), 1): 1}


def test_an_export_that_fails_does_not_fail_the_change(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> bool:
        raise OSError("no space left on device")

    monkeypatch.setattr(maintain, "export_base", broken)
    with hw.connect(tmp_path / "w", spark=spark, settings={"arrow_max_rows": 1, "inline_max_rows": 0}) as wh:
        wh.sql("CREATE TABLE t (n BIGINT)")
        assert wh.sql("INSERT INTO t SELECT id FROM range(10)").rows_affected == 10
        assert "no space left" in caplog.text
        assert wh.table("t").count() == 10
