"""Settings that a refresh obeys and no other test looks at."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.support.oracle import LIMITS, interpreted

import headwater as hw
from headwater.errors import NotIncrementalError


def test_the_cache_of_definitions_has_a_size(spark: SparkSession, tmp_path: Path) -> None:
    with hw.connect(tmp_path / "w", spark=spark, settings={"template_cache_max_entries": 2}) as wh:
        wh.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v INT)")
        for i in range(3):
            wh.create_stream_table(f"s{i}", f"SELECT id, v + {i} AS v FROM t")
        wh.sql("INSERT INTO t VALUES (1, 1)")
        wh.refresh()
        streams = wh._catalog.snapshot().streams.values()
        refresher = wh._refresher
        assert len(refresher._definitions) == 2
        for stream in streams:
            assert refresher.definition(stream) is refresher.definition(stream)
        assert len(refresher._definitions) == 2
        assert [wh.table(f"s{i}").collect()[0].v for i in range(3)] == [1, 2, 3]
        for name in ("s0", "s1", "s2"):  # a text is planned when it comes again
            for _ in range(3):
                wh.sql("UPDATE t SET v = v + 1")
                assert wh.refresh(name).rows_inserted == 1
        with wh._ground.engine.worker() as worker:
            assert len(worker._prepared) == 2


@pytest.mark.parametrize(("level", "seen"), [("INFO", True), ("WARNING", False)])
def test_the_log_level_decides_what_is_written(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, level: str, seen: bool
) -> None:
    with hw.connect(tmp_path / "w", spark=spark, settings={"log_level": level}) as wh:
        wh.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v INT)")
        wh.create_stream_table("s", "SELECT id, v FROM t")
        wh.sql("INSERT INTO t VALUES (1, 1)")
        with caplog.at_level(logging.NOTSET):
            wh.refresh()
    lines = [r.getMessage() for r in caplog.records if r.name == "headwater.refresh"]
    assert any(line.startswith("refreshed table=s action=DIFFERENTIAL rows_in=1 inserted=1") for line in lines) is seen


@pytest.mark.parametrize("value", ["refuse", "warn", "allow"])
def test_when_full_is_what_new_stream_tables_get(spark: SparkSession, tmp_path: Path, value: str) -> None:
    """What each value does is told in tests/scenarios/test_when_full.py."""
    with hw.connect(tmp_path / "w", spark=spark, settings={"when_full": value}) as wh:
        wh.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v INT)")
        assert wh.create_stream_table("s", "SELECT id, v FROM t").when_full == value
        if value == "refuse":
            with pytest.raises(NotIncrementalError):
                wh.create_stream_table("r", "SELECT id, rand() AS r FROM t")
        else:
            made = wh.create_stream_table("r", "SELECT id, rand() AS r FROM t")
            assert (made.when_full, bool(made.notices)) == (value, value == "warn")


def test_a_change_of_columns_nobody_reads_leaves_the_one_group_alone_in_files_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Found by a random case: the one row of a query without GROUP BY was read again, but its old row was not deleted."""
    with interpreted(spark), hw.connect(tmp_path / "w", spark=spark, settings=LIMITS) as wh:
        wh.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v INT, unread INT)")
        wh.sql("INSERT INTO t SELECT id, id, 0 FROM range(20)")
        wh.create_stream_table("s", "SELECT percentile(v, 0.5) AS middle, avg(v) AS mean FROM t")
        wh.sql("UPDATE t SET unread = 1")
        report = wh.refresh("s")
        assert (report.action.value, report.rescanned_groups, wh.table("s").count()) == ("DIFFERENTIAL", 0, 1)
        wh.sql("UPDATE t SET v = v + 1")
        report = wh.refresh("s")
        assert (report.action.value, report.rescanned_groups) == ("DIFFERENTIAL", 1)
        assert [tuple(r) for r in wh.table("s").collect()] == [(10.5, 10.5)]
        assert wh.verify("s").equal


def test_an_inner_state_that_stays_as_it_was_is_read_again_in_files_too(spark: SparkSession, tmp_path: Path) -> None:
    """Found by a random case: a stage without a changed row has no file to read."""
    with interpreted(spark), hw.connect(tmp_path / "w", spark=spark, settings=LIMITS) as wh:
        wh.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, g INT, v INT)")
        wh.sql("INSERT INTO t SELECT id, id % 4, id FROM range(20)")
        inner = "SELECT g, count(*) AS n, sum(v) AS total FROM t GROUP BY g"
        wh.create_stream_table("s", f"SELECT n, percentile(total, 0.5) AS middle FROM ({inner}) GROUP BY n")
        wh.sql("UPDATE t SET v = CASE WHEN id < 10 THEN v + 8 ELSE v - 8 END WHERE id IN (0, 1, 2, 3, 16, 17, 18, 19)")
        report = wh.refresh("s")
        assert (report.action.value, report.rows_in, report.rows_inserted) == ("DIFFERENTIAL", 16, 0)
        wh.sql("UPDATE t SET v = v + 1 WHERE g < 2")
        report = wh.refresh("s")
        assert (report.action.value, report.rows_inserted) == ("DIFFERENTIAL", 1)
        assert wh.verify("s").equal


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, v + 1 AS w FROM t WHERE v >= 0",
        "SELECT id % 1500 AS g, count(*) AS n, sum(v) AS s FROM t GROUP BY id % 1500",
        "SELECT n, count(*) AS groups FROM (SELECT id % 1500 AS g, count(*) AS n FROM t GROUP BY id % 1500) GROUP BY n",
    ],
)
def test_a_result_that_the_driver_may_not_hold_is_written_by_executors(
    spark: SparkSession, tmp_path: Path, query: str
) -> None:
    """`spark.driver.maxResultSize` is the user's word on what fits; a refresh obeys it and goes on."""
    settings: Any = spark.sparkContext._jsc.sc().conf()
    limit = settings.get("spark.driver.maxResultSize", "1g")
    with hw.connect(tmp_path / "w", spark=spark) as wh:
        wh.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        wh.insert("t", spark.range(3000).selectExpr("id", "id * 7 AS v"))
        wh.create_stream_table("s", query)
        for step in (1, 2):
            wh.sql(f"INSERT INTO t SELECT id + 1000000 * {step}, id FROM (SELECT explode(sequence(0, 1999)) AS id)")
            settings.set("spark.driver.maxResultSize", "24k")
            try:
                report = wh.refresh("s")
            finally:
                settings.set("spark.driver.maxResultSize", limit)
            assert (report.action, report.rows_inserted > 0) == (hw.RefreshAction.DIFFERENTIAL, True)
            assert wh.verify("s").equal
