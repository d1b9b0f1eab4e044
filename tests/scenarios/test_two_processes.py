"""Two processes write to and refresh one warehouse: no update is lost, every read is consistent, the only refusal is "busy".

SOAK_SECONDS says how long each pair works; 8 if it is not set.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import bank
from tests.support.children import nursery
from tests.support.postgres import postgres_server, postgres_url  # noqa: F401

import headwater as hw

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SECONDS = float(os.environ.get("SOAK_SECONDS", "8"))


def _work_together(spark: SparkSession, target: str, location: str | None, here: Path) -> None:
    with hw.connect(target, location=location, spark=spark) as wh:
        bank.create(wh)
        with nursery(spark, here) as children:
            results = [here / f"result-{seed}.json" for seed in (1, 2)]
            working = [
                children.start(
                    "tests.support.bank:worker",
                    target=target,
                    location=location,
                    seed=seed,
                    seconds=SECONDS,
                    result=str(result),
                )
                for seed, result in zip((1, 2), results, strict=True)
            ]
            codes = [child.ended(SECONDS + 300) for child in working]
            assert codes == [0, 0], children.log()
        found = [json.loads(result.read_text()) for result in results]
        for one in found:
            assert one["failures"] == []
        done = sum(sum(one["done"].values()) for one in found)
        rate = sum(sum(one["done"].values()) / one["seconds"] for one in found)
        print(f"{done} statements, {rate:.1f} per second, busy: {[one['busy'] for one in found]}")
        assert all(set(one["done"]) == set(bank.KINDS) for one in found), "each process got everything done"

        counted = {r["id"]: r["n"] for r in wh.table("counters").collect()}
        assert counted == {i: sum(one["increments"][i] for one in found) for i in range(bank.COUNTERS)}
        assert wh.table("log").count() == sum(one["done"].get("note", 0) for one in found)
        assert bank.total(wh) == bank.TOTAL
        for result in wh.verify():
            assert result.equal, result
        wh.refresh()
        for result in wh.verify():
            assert result.equal, result
            assert result.rows > 0
        wh.vacuum(retention_hours=0)
        assert bank.total(wh) == bank.TOTAL


def test_two_processes_share_a_sqlite_catalog(spark: SparkSession, tmp_path: Path) -> None:
    _work_together(spark, str(tmp_path / "bank"), None, tmp_path)


@pytest.mark.postgres
def test_two_processes_share_a_postgresql_catalog(
    spark: SparkSession,
    postgres_url: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    _work_together(spark, postgres_url, str(tmp_path / "files"), tmp_path)
