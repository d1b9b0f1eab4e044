"""How a worker shapes what it runs."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headwater.engine.worker import Worker
from headwater.model.schema import Field


@pytest.mark.parametrize(("met", "tasks"), [(10, 1), (100_000, 2), (10_000_000, 2)])
def test_rows_at_hand_are_one_task_where_few_rows_are_met(spark: SparkSession, met: int, tasks: int) -> None:
    worker = Worker(spark.newSession())
    worker.size_for(met)
    rows = worker.relation(pa.table({"n": pa.array(range(100), pa.int32())}), (Field("n", "INT"),))
    frame = worker.sql(f"SELECT n + 1 AS m FROM {rows} WHERE n > rand()")
    assert frame._jdf.queryExecution().toRdd().getNumPartitions() == tasks
    worker.release()
