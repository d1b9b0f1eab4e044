"""Rows found by a column's values are the rows that have them: in files, in tails, before and after, keyed and keyless."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.support.tables import manifest_of, table_of

import headwater as hw
from headwater.store.near import rows_near
from headwater.store.reading import Source
from headwater.warehouse import Warehouse

VALUES = {
    "BIGINT": [None, -(2**62), -1, 0, 1, 2**62],
    "SMALLINT": [None, -3, 0, 7],
    "STRING": [None, "", "a", "A", "é"],
    "DATE": [None, "0001-01-01", "1970-01-01", "2024-02-29"],
    "TIMESTAMP": [None, "2024-10-27 00:30:00", "2024-10-27 01:30:00"],
    "DECIMAL(12,2)": [None, "0.00", "1.10", "-7.25"],
    "BOOLEAN": [None, True, False],
}
Rows = Counter[tuple[Any, ...]]


def sql_value(value: Any, type_: str) -> str:
    return f"CAST({'NULL' if value is None else repr(value)} AS {type_})"


def near(wh: Warehouse, name: str, version: int, keys: dict[str, pa.Array]) -> Rows | None:
    source = Source(table_of(wh, name), manifest_of(wh, name))
    found = rows_near(wh._ground.reader, source, version, source.table.schema.visible, keys)
    return None if found is None else Counter(tuple(r.values()) for r in found.to_pylist())


def everything(wh: Warehouse, name: str, version: int) -> pa.Table:
    source = Source(table_of(wh, name), manifest_of(wh, name))
    with wh._ground.engine.worker() as worker:
        return worker.to_arrow(wh._ground.reader.state(worker, source, version, source.table.schema.visible))


@pytest.mark.parametrize("key", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_rows_are_those_that_a_scan_finds(spark: SparkSession, tmp_path: Path, key: bool, seed: int) -> None:
    rng = Random(seed)
    types = dict(zip(rng.sample(list(VALUES), 3), "abc", strict=True))
    definition = ", ".join(f"{n} {t}" for t, n in types.items())
    with hw.connect(tmp_path / "w", spark=spark, settings={"inline_max_rows": 0}) as wh:
        wh.sql(f"CREATE TABLE t (id BIGINT{' PRIMARY KEY' if key else ''}, {definition})")

        def row(id_: int) -> str:
            return f"({id_}, {', '.join(sql_value(rng.choice(VALUES[t]), t) for t in types)})"

        wh.sql(f"INSERT INTO t VALUES {', '.join(row(i if key else i // 3) for i in range(60))}")
        versions = [wh.version]
        for step in range(6):
            if step == 3:
                wh.compact("t")
            wh.sql(f"INSERT INTO t VALUES {row(100 + step)}")
            type_, name = rng.choice(list(types.items()))
            wh.sql(
                f"UPDATE t SET {name} = {sql_value(rng.choice(VALUES[type_]), type_)} WHERE pmod(id, 5) = {step % 5}"
            )
            wh.sql(f"DELETE FROM t WHERE pmod(id, 13) = {step}")
            versions.append(wh.version)
        compared = 0
        for version in versions:
            rows = everything(wh, "t", version)
            for name in "abc":
                values = rows.column(name).unique()
                picked = values.take(pa.array(sorted(rng.sample(range(len(values)), min(2, len(values))))))
                ids = rows.column("id").unique().slice(0, 40)
                for keys in ({name: picked}, {name: picked, "id": ids}):
                    kept = [
                        tuple(r.values())
                        for r in rows.to_pylist()
                        if all(r[n] in set(k.to_pylist()) for n, k in keys.items())
                    ]
                    assert near(wh, "t", version, keys) == Counter(kept), (version, keys)
                    compared += bool(kept)
        assert compared > 20


def test_without_room_nothing_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    for most, kept in ((0, 0), (1 << 30, 1)):
        settings = {"index_max_bytes": most}
        with hw.connect(tmp_path / f"w{kept}", spark=spark, settings=settings) as wh:
            wh.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v STRING)")
            wh.insert("t", spark.range(5_000).selectExpr("id", "'x' AS v"))
            wh.compact("t")
            found = near(wh, "t", wh.version, {"id": pa.array([3, 4_999])})
            assert (found is not None) == bool(kept)
            assert bool(list((tmp_path / f"w{kept}" / "index").glob("**/*.arrow"))) == bool(kept)


def test_least_recently_used_columns_make_room(spark: SparkSession, tmp_path: Path) -> None:
    with hw.connect(tmp_path / "w", spark=spark, settings={"index_max_bytes": 400_000}) as wh:
        wh.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, b BIGINT)")
        wh.insert("t", spark.range(6_000).selectExpr("id", "id AS a", "id AS b").coalesce(1))
        wh.compact("t")
        for name in ("id", "a", "b", "id", "a", "b"):
            assert near(wh, "t", wh.version, {name: pa.array([17])}) == Counter({(17, 17, 17): 1})
        kept = list((tmp_path / "w" / "index").glob("**/*.arrow"))
        assert 0 < sum(p.stat().st_size for p in kept) <= 400_000
    assert not list((tmp_path / "w" / "index").glob("**/*.new"))


def test_half_a_column_is_made_again(spark: SparkSession, tmp_path: Path) -> None:
    keys = {"id": pa.array([1, 2, 4_000])}
    with hw.connect(tmp_path / "w", spark=spark) as wh:
        wh.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        wh.insert("t", spark.range(5_000).selectExpr("id", "-id AS v"))
        wh.compact("t")
        expected = near(wh, "t", wh.version, keys)
    for path in (tmp_path / "w" / "index").glob("**/*.arrow"):
        path.write_bytes(path.read_bytes()[:100])
    with hw.connect(tmp_path / "w", spark=spark) as wh:
        assert near(wh, "t", wh.version, keys) == expected == Counter({(1, -1): 1, (2, -2): 1, (4_000, -4_000): 1})


def test_vacuum_forgets_what_belonged_to_deleted_files(spark: SparkSession, tmp_path: Path) -> None:
    settings = {"vacuum_grace_seconds": 0}
    with hw.connect(tmp_path / "w", spark=spark, settings=settings) as wh:
        wh.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        wh.insert("t", spark.range(5_000).selectExpr("id", "-id AS v"))
        wh.compact("t")
        near(wh, "t", wh.version, {"id": pa.array([1])})
        assert list((tmp_path / "w" / "index").glob("**/*.arrow"))
        wh.sql("DELETE FROM t WHERE id < 2000")
        wh.compact("t")
        wh.vacuum(retention_hours=0)
        assert not list((tmp_path / "w" / "index").glob("**/*.arrow"))
        assert near(wh, "t", wh.version, {"id": pa.array([1, 2_500])}) == Counter({(2_500, -2_500): 1})


def test_what_another_vacuum_removes_meanwhile_is_no_failure(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hw.connect(tmp_path / "w", spark=spark, settings={"vacuum_grace_seconds": 0}) as wh:
        filled(wh, spark)
        near(wh, "t", wh.version, {"id": pa.array([1])})
        wh.sql("DELETE FROM t WHERE id < 2000")
        wh.compact("t")
        index = tmp_path / "w" / "index"
        (kept,) = {p.parent for p in index.glob("**/*.arrow")}
        unfinished = kept.parent / "unfinished.new"
        unfinished.touch()
        os.utime(unfinished, (0, 0))
        removed: list[Path] = []
        walk = os.walk

        def overtaken(top: Path) -> Iterator[tuple[str, list[str], list[str]]]:
            for place, folders, files in walk(top):
                if Path(place).is_relative_to(index):
                    for path in (Path(place) / f for f in files):
                        path.unlink()
                        removed.append(path)
                yield place, folders, files

        monkeypatch.setattr(os, "walk", overtaken)
        wh.vacuum(retention_hours=0)
        monkeypatch.undo()
        assert unfinished in removed
        assert not list(index.rglob("*.new"))
        assert near(wh, "t", wh.version, {"id": pa.array([1, 2_500])}) == Counter({(2_500, -2_500): 1})


def test_a_column_may_be_called_like_anything(spark: SparkSession, tmp_path: Path) -> None:
    with hw.connect(tmp_path / "w", spark=spark) as wh:
        wh.sql("CREATE TABLE t (sales BIGINT PRIMARY KEY, `sales order` BIGINT, `a/b` BIGINT)")
        wh.sql("INSERT INTO t VALUES (3, 30, 1), (1, 10, 2), (2, 20, 3)")
        wh.compact("t")
        for name, key in (("sales", 3), ("sales order", 30), ("a/b", 1)):
            assert near(wh, "t", wh.version, {name: pa.array([key])}) == Counter({(3, 30, 1): 1})


def filled(wh: Warehouse, spark: SparkSession) -> None:
    wh.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
    wh.insert("t", spark.range(5_000).selectExpr("id", "-id AS v"))
    wh.compact("t")


def test_what_cannot_be_kept_is_found_all_the_same(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with hw.connect(tmp_path / "w", spark=spark) as wh:
        filled(wh, spark)
        (tmp_path / "w" / "index").write_text("in the way")
        assert near(wh, "t", wh.version, {"id": pa.array([7])}) == Counter({(7, -7): 1})
    assert "column not kept" in caplog.text


def test_more_text_than_arrow_holds_in_a_column_is_left_to_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overflow(*_: object) -> None:
        raise pa.ArrowInvalid("offset overflow while concatenating arrays")

    with hw.connect(tmp_path / "w", spark=spark) as wh:
        filled(wh, spark)
        wh.sql("CREATE TABLE u (id BIGINT PRIMARY KEY)")
        stream = "SELECT u.id, t.v FROM u JOIN t ON u.id = t.id"
        wh.create_stream_table("s", stream, refresh_mode="DIFFERENTIAL")
        wh.sql("INSERT INTO u VALUES (3), (4000), (9000)")
        monkeypatch.setattr("headwater.store.columns.Columns.taken", overflow)
        assert near(wh, "t", wh.version, {"id": pa.array([7])}) is None
        assert wh.refresh("s").action is hw.RefreshAction.DIFFERENTIAL
        assert sorted(map(tuple, wh.table("s").collect())) == [(3, -3), (4000, -4000)]


@pytest.mark.parametrize("most", [0, 1 << 30])
def test_a_refresh_finds_the_same_rows_with_and_without(spark: SparkSession, tmp_path: Path, most: int) -> None:
    with hw.connect(tmp_path / "w", spark=spark, settings={"index_max_bytes": most}) as wh:
        filled(wh, spark)
        wh.sql("CREATE TABLE u (id BIGINT PRIMARY KEY, of BIGINT)")
        wh.sql("INSERT INTO u VALUES (1, 10), (2, 4999)")
        wh.create_stream_table("s", "SELECT u.id, t.v FROM u JOIN t ON u.of = t.id", refresh_mode="DIFFERENTIAL")
        wh.sql("UPDATE t SET v = 0 WHERE id = 4999")
        wh.sql("INSERT INTO u VALUES (3, 4999), (4, 20)")
        wh.sql("DELETE FROM u WHERE id = 1")
        assert wh.refresh("s").action is hw.RefreshAction.DIFFERENTIAL
        assert sorted(map(tuple, wh.table("s").collect())) == [(2, 0), (3, 0), (4, -20)]
        assert bool(list((tmp_path / "w" / "index").glob("**/*.arrow"))) == bool(most)
