"""Folding: the base takes the tail in, only the files it touches are written anew, and no reader notices."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from tests.support.tables import check_hash, contents, manifest_of, table_of

import headwater as hw
from headwater.warehouse import Warehouse

BIG = {"arrow_max_rows": 5, "inline_max_rows": 2, "vacuum_grace_seconds": 0}
"""Limits that send everything to files."""


def three_files(wh: Warehouse, key: str) -> list[str]:
    """Make a table of three base files with the keys 0-9, 100-109 and 200-209; return the ids of the files."""
    wh.sql(f"CREATE TABLE t (id BIGINT{key}, v STRING)")
    ids: list[str] = []
    for start in (0, 100, 200):
        wh.sql(f"INSERT INTO t SELECT id + {start}, 'old' FROM range(0, 10, 1, 1)")
        ids += [f.id for f in manifest_of(wh, "t").files if f.id not in ids]
    assert len(ids) == 3
    return ids


def test_only_files_that_hold_deleted_rows_are_rewritten(spark: SparkSession, tmp_path: Path) -> None:
    with hw.connect(tmp_path / "w", spark=spark, settings=BIG) as wh:
        first, second, third = three_files(wh, " PRIMARY KEY")
        wh.sql("UPDATE t SET v = 'new' WHERE id BETWEEN 103 AND 105")
        wh.sql("INSERT INTO t VALUES (300, 'more')")
        before = contents(wh, "t")
        moved, version = table_of(wh, "t").moved, wh.version
        wh.compact("t")
        kept = {f.id for f in manifest_of(wh, "t").files}
        assert {first, third} < kept
        assert second not in kept
        assert contents(wh, "t") == before
        assert table_of(wh, "t").base_version == version
        assert table_of(wh, "t").moved == moved
        check_hash(wh, "t")
        # Inserts alone touch nothing, and folding twice does nothing.
        wh.sql("INSERT INTO t VALUES (400, 'more'), (401, 'more'), (402, 'more')")
        wh.compact("t")
        again = {f.id for f in manifest_of(wh, "t").files}
        assert kept < again
        version = wh.version
        wh.compact("t")
        assert {f.id for f in manifest_of(wh, "t").files} == again
        assert wh.version == version


def test_a_table_without_a_key_folds_by_row_id(spark: SparkSession, tmp_path: Path) -> None:
    with hw.connect(tmp_path / "w", spark=spark, settings=BIG) as wh:
        first, second, third = three_files(wh, "")
        wh.sql("DELETE FROM t WHERE id IN (3, 4)")
        wh.compact("t")
        kept = {f.id for f in manifest_of(wh, "t").files}
        assert {second, third} < kept
        assert first not in kept
        assert contents(wh, "t").total() == 28
        check_hash(wh, "t")


def test_everything_deleted_leaves_no_base(spark: SparkSession, tmp_path: Path) -> None:
    with hw.connect(tmp_path / "w", spark=spark, settings=BIG) as wh:
        three_files(wh, " PRIMARY KEY")
        full = wh.version
        wh.sql("TRUNCATE TABLE t")
        wh.compact("t")
        assert manifest_of(wh, "t").files == ()
        assert contents(wh, "t") == {}
        assert contents(wh, "t", version=full).total() == 30
        wh.sql("INSERT INTO t VALUES (1, 'x')")
        assert contents(wh, "t") == {(1, "x"): 1}


def test_many_small_base_files_become_one(spark: SparkSession, tmp_path: Path) -> None:
    with hw.connect(tmp_path / "w", spark=spark, settings=BIG) as wh:
        wh.sql("CREATE TABLE t (v VARIANT)")
        for n in range(34):
            wh.sql(f"INSERT INTO t SELECT parse_json('{n}')")
        assert len(manifest_of(wh, "t").files) < 5
        assert wh.table("t").selectExpr("sum(v::INT) AS s").collect()[0]["s"] == sum(range(34))
        check_hash(wh, "t")


def test_the_tail_is_folded_when_it_outgrows_its_share_of_the_base(spark: SparkSession, tmp_path: Path) -> None:
    for fraction, folded in ((0.1, True), (0.9, False)):
        settings = {"fold_tail_fraction": fraction}
        with hw.connect(tmp_path / f"w{fraction}", spark=spark, settings=settings) as wh:
            wh.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
            wh.sql("INSERT INTO t SELECT id FROM range(20000)")
            wh.compact("t")
            base = table_of(wh, "t").base_version
            wh.sql("DELETE FROM t WHERE id < 6000")
            assert (table_of(wh, "t").base_version > base) is folded
            assert wh.table("t").count() == 14000
