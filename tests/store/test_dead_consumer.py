"""`consumer_limit_rows`: a stream table that nobody refreshes does not keep its sources' history for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.errors import UnknownVersionError


def _left_behind(path: Path, spark: Any, limit: int) -> hw.Warehouse:
    wh = hw.connect(path, spark=spark, settings={"consumer_limit_rows": limit, "vacuum_grace_seconds": 0})
    wh.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v INT)")
    wh.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
    wh.create_stream_table("s", "SELECT sum(v) AS total FROM t", refresh_mode="DIFFERENTIAL")
    for i in range(6):
        wh.sql(f"UPDATE t SET v = v + {i + 1} WHERE id = 1")
    wh.compact("t")
    wh.vacuum(retention_hours=0)
    return wh


def test_beyond_the_limit_a_consumer_must_read_anew(spark: Any, tmp_path: Path) -> None:
    with _left_behind(tmp_path / "w", spark, limit=5) as wh:
        (status,) = [s for s in wh.status() if s.name == "s"]
        assert status.status == "REREAD"
        with pytest.raises(UnknownVersionError, match="no longer kept"):
            wh.verify("s")
        report = wh.refresh("s")
        assert (report.action, report.reason) == (hw.RefreshAction.FULL, "its changes were no longer kept")
        assert wh.table("s").collect()[0]["total"] == 24
        assert wh.verify("s").equal
        wh.sql("UPDATE t SET v = 0 WHERE id = 2")
        assert wh.refresh("s").action is hw.RefreshAction.DIFFERENTIAL


def test_below_the_limit_it_goes_on_from_changes(spark: Any, tmp_path: Path) -> None:
    with _left_behind(tmp_path / "w", spark, limit=0) as wh:
        assert wh.verify("s").equal
        assert wh.refresh("s").action is hw.RefreshAction.DIFFERENTIAL
        assert wh.table("s").collect()[0]["total"] == 24
        assert wh.verify("s").equal
