"""Settings that decide where rows go, each by its effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.support.tables import check_hash, files_on_disk, manifest_of, table_of

import headwater as hw
from headwater.model.tables import BatchFormat
from headwater.source import dml
from headwater.store.rows import Rows
from headwater.store.writing import Writer
from headwater.warehouse import Warehouse


def formats(wh: Warehouse) -> list[BatchFormat]:
    return [b.format for b in manifest_of(wh, "t").batches]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, BatchFormat.INLINE),
        ({"inline_max_rows": 9}, BatchFormat.TAIL),
        ({"inline_max_rows": 10}, BatchFormat.INLINE),
        ({"inline_max_bytes": 100}, BatchFormat.TAIL),
        ({"arrow_max_rows": 9, "inline_max_rows": 9}, BatchFormat.INSERT),
        # Ten rows that executors wrote are taken back when they are few enough for the catalog.
        ({"arrow_max_rows": 10, "inline_max_rows": 10}, BatchFormat.INLINE),
    ],
)
def test_ten_rows_go_where_the_limits_say(
    spark: SparkSession, tmp_path: Path, settings: dict[str, Any], expected: BatchFormat
) -> None:
    with hw.connect(tmp_path / "w", spark=spark, settings=settings) as wh:
        wh.sql("CREATE TABLE t (n BIGINT)")
        wh.sql("INSERT INTO t SELECT id FROM range(10)")
        assert formats(wh) == [expected]
        assert bool(files_on_disk(wh)) is (expected is not BatchFormat.INLINE)
        assert wh.table("t").count() == 10
        check_hash(wh, "t")


def test_many_given_rows_pass_through_a_file_that_is_gone_afterwards(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    original = Writer.scratch

    def counting(self: Writer) -> Any:
        opened.append("scratch")
        return original(self)

    monkeypatch.setattr(Writer, "scratch", counting)
    with hw.connect(tmp_path / "w", spark=spark, settings={"local_relation_max_rows": 3}) as wh:
        wh.sql("CREATE TABLE t (n BIGINT PRIMARY KEY)")
        wh.insert("t", [{"n": n} for n in range(3)])
        assert opened == []
        wh.insert("t", [{"n": n} for n in range(3, 8)])
        assert opened == ["scratch"]
        wh.upsert("t", [{"n": n} for n in range(20)])
        assert wh.table("t").count() == 20
        assert formats(wh) == [BatchFormat.INLINE] * 3
        assert files_on_disk(wh) == set()


def test_rows_without_a_key_get_ids_of_their_own_whoever_writes_them(spark: SparkSession, tmp_path: Path) -> None:
    with hw.connect(tmp_path / "w", spark=spark, settings={"arrow_max_rows": 5, "inline_max_rows": 3}) as wh:
        wh.sql("CREATE TABLE t (n BIGINT)")
        wh.sql("INSERT INTO t SELECT id % 5 FROM range(20)")
        wh.insert("t", [{"n": 1}, {"n": 1}])
        wh.sql(
            "MERGE INTO t USING (SELECT id FROM range(4, 24)) s ON t.n = s.id "
            "WHEN MATCHED THEN UPDATE SET n = -1 WHEN NOT MATCHED THEN INSERT (n) VALUES (s.id)"
        )
        wh.apply_changes("t", [{"n": n, "action": "I"} for n in range(9)] + [{"n": -1, "action": "D"}] * 4)
        with wh.transaction():
            wh.sql("INSERT INTO t SELECT id FROM range(100, 110)")
            wh.sql("DELETE FROM t WHERE n IN (100, 1)")
            wh.insert("t", [{"n": 7}])
        table = table_of(wh, "t")
        with wh._ground.engine.worker() as worker:
            source = wh._ground.source(wh._catalog.snapshot(), table)
            ids = [r["__row_id"] for r in wh._ground.reader.state(worker, source, wh.version).collect()]
        assert len(set(ids)) == len(ids) == table.row_count == 49
        assert max(ids) < table.next_row_id
        check_hash(wh, "t")


def test_the_retention_setting_is_what_vacuum_keeps(spark: SparkSession, tmp_path: Path) -> None:
    for hours, kept in ((1, True), (0, False)):
        with hw.connect(tmp_path / f"w{hours}", spark=spark, settings={"retention_hours": hours}) as wh:
            wh.sql("CREATE TABLE t (n INT)")
            wh.sql("INSERT INTO t VALUES (1)")
            wh.sql("INSERT INTO t VALUES (2)")
            newest = wh.version
            assert (wh.vacuum().oldest_version < newest) is kept
            assert bool(manifest_of(wh, "t").batches) is kept


@pytest.mark.slow
def test_millions_of_rows_go_through_executors(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Rows] = []
    original = dml.Changer._accept

    def watching(self: dml.Changer, table: Any, rows: Rows) -> Any:
        made.append(rows)
        return original(self, table, rows)

    monkeypatch.setattr(dml.Changer, "_accept", watching)
    with hw.connect(tmp_path / "w", spark=spark) as wh:
        wh.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, half DOUBLE)")
        wh.sql("INSERT INTO t SELECT id, id / 2 FROM range(3000000)")
        (rows,) = made
        assert (rows.arrow, rows.plain, rows.inserts) == (None, True, 3_000_000)
        assert formats(wh) == [BatchFormat.INSERT]
        assert sum(f.rows for f in manifest_of(wh, "t").files) == 3_000_000
        assert wh.table("t").where("id IN (0, 1234567, 2999999)").selectExpr("sum(half)").collect()[0][0] == 2117283.0
        wh.sql("UPDATE t SET half = 0 WHERE id = 77")
        assert table_of(wh, "t").row_count == 3_000_000
        assert made[-1].arrow is not None
