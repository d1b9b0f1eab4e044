"""Rows that Spark keeps while a refresh runs are given back when it has ended, however it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import headwater as hw
from headwater.errors import EvaluationError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.parametrize("limit", [0, 500_000])
def test_refreshes_leave_nothing_in_the_memory_of_spark(limit: int, spark: SparkSession, tmp_path: Path) -> None:
    kept = spark.sparkContext._jsc.getPersistentRDDs().size()  # type: ignore[union-attr]
    with hw.connect(tmp_path / "w", spark=spark, settings={"arrow_max_rows": limit}) as wh:
        wh.sql("CREATE TABLE t (id INT PRIMARY KEY, k INT, v INT)")
        wh.sql("INSERT INTO t SELECT id, id % 10, 1 + id FROM range(100)")
        query = "SELECT k, min(v) AS low, percentile(v, 0.5) AS mid, sum(100 DIV v) AS q FROM t GROUP BY k"
        wh.create_stream_table("s", query, refresh_mode="DIFFERENTIAL")
        wh.sql("DELETE FROM t WHERE id < 20")
        assert wh.refresh("s").action is hw.RefreshAction.DIFFERENTIAL
        wh.sql("DELETE FROM t WHERE id < 30")
        assert wh.refresh("s", full=True).action is hw.RefreshAction.FULL
        wh.sql("UPDATE t SET v = 0 WHERE id = 50")
        for full in (False, True):
            with pytest.raises(EvaluationError):
                wh.refresh("s", full=full)
        wh.sql("UPDATE t SET v = 1 WHERE id = 50")
        wh.refresh("s")
        assert wh.verify("s").equal
        assert spark.sparkContext._jsc.getPersistentRDDs().size() == kept  # type: ignore[union-attr]
