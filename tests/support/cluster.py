"""The core of Headwater on a cluster whose executors are processes of their own; a program for `test_cluster.py` to run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import headwater as hw
from headwater.engine.session import start_session
from headwater.settings import Settings

SETTINGS = {
    # Most results are written by executors, and most changes are read by them.
    "inline_max_rows": 3,
    "arrow_max_rows": 20,
    "local_relation_max_rows": 10,
    "tail_max_files": 3,
    "retention_hours": 0,
    "vacuum_grace_seconds": 0,
}

STREAMS = {
    "totals": "SELECT region, count(*) AS n, sum(amount) AS total, avg(amount) AS mean FROM orders GROUP BY region",
    "extremes": "SELECT region, min(amount) AS least, max(amount) AS most FROM orders GROUP BY region",
    "large": "SELECT id, region, amount * 2 AS twice FROM orders WHERE amount > 50",
    "notes": "SELECT text FROM remarks WHERE text LIKE 'n%'",
    "named": "SELECT o.id, r.label FROM orders o JOIN regions r ON o.region = r.region",
    "over_totals": "SELECT sum(n) AS orders, sum(total) AS total FROM totals",
    "ranked": "SELECT id, rank() OVER (PARTITION BY region ORDER BY amount DESC) AS place FROM orders",
}


def main(folder: str) -> None:
    """Create, change, refresh, verify, look back, clean up."""
    spark = start_session(
        Settings(shuffle_partitions=2, spark_memory="1g"),
        config={
            "spark.master": "local-cluster[2,1,1024]",
            "spark.executor.memory": "1024m",
            "spark.sql.session.timeZone": "UTC",
        },
    )
    with hw.connect(Path(folder) / "shop", spark=spark, settings=SETTINGS) as wh:
        wh.sql("CREATE TABLE orders (id BIGINT PRIMARY KEY, region STRING, amount BIGINT)")
        wh.sql("CREATE TABLE regions (region STRING PRIMARY KEY, label STRING)")
        wh.sql("CREATE TABLE remarks (text STRING)")
        wh.insert("orders", [{"id": i, "region": f"r{i % 5}", "amount": i % 100} for i in range(500)])
        wh.sql("INSERT INTO regions SELECT concat('r', id), concat('region ', id) FROM range(5)")
        wh.insert("remarks", [{"text": f"n{i % 3}"} for i in range(40)])
        for name, query in STREAMS.items():
            wh.create_stream_table(name, query)
        past = (wh.version, _sum(wh, None))
        _change(wh)
        reports = {r.name: r for r in wh.refresh()}
        assert reports["totals"].action is hw.RefreshAction.DIFFERENTIAL, reports["totals"]
        assert reports["large"].rows_inserted > 0
        _verify(wh)
        assert _sum(wh, past[0]) == past[1] != _sum(wh, None)
        now = _sum(wh, None)
        wh.compact("orders")
        wh.update("orders", set={"amount": "amount + 1"}, where="id < 100")
        wh.refresh("totals", full=True)
        assert wh.refresh("large").action is hw.RefreshAction.DIFFERENTIAL
        assert wh.vacuum().files_deleted > 0
        assert _sum(wh, None) == now + wh.table("orders").where("id < 100").count()
        _verify(wh)
    executors = len(spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) - 1
    assert executors == 2, executors
    spark.stop()
    print(f"cluster: {len(STREAMS)} stream tables, {executors} executors, all verified")


def _change(wh: Any) -> None:
    first = 1000 + wh.version * 1000
    wh.insert("orders", [{"id": first + i, "region": f"r{i % 6}", "amount": 40 + i} for i in range(60)])
    wh.update("orders", set={"amount": "amount + 3"}, where="id % 3 = 0")
    wh.delete("orders", where="id % 10 = 7")
    with wh.transaction():
        wh.sql("DELETE FROM remarks WHERE text = 'n1'")
        wh.sql("INSERT INTO remarks SELECT concat('n', id) FROM range(30)")
        wh.sql("UPDATE regions SET label = concat(label, '!') WHERE region = 'r2'")
    wh.upsert("orders", [{"id": i, "region": "r9", "amount": 99} for i in range(3)])


def _sum(wh: Any, version: int | None) -> int:
    return int(wh.table("orders", version=version).selectExpr("sum(amount) AS s").collect()[0]["s"])


def _verify(wh: Any) -> None:
    for result in wh.verify():
        assert result.equal, result
        assert result.rows > 0, result


if __name__ == "__main__":
    main(sys.argv[1])
