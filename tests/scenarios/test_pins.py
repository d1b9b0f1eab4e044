"""Vacuum beside a lazy DataFrame of another process: the frame stays readable, and its files go when its process has died."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.children import nursery
from tests.support.crash import Survivor, orphans
from tests.support.load import Journal, step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

LEASE = 4.0


def _entry(journal: Journal, count: int) -> dict[str, Any]:
    end = time.monotonic() + 120
    while len(journal.entries()) < count:
        assert time.monotonic() < end
        time.sleep(0.05)
    return journal.entries()[count - 1]


def _totals(bank: Survivor) -> tuple[int, int]:
    """Return the sum and the number of balances, read by a warehouse object of its own: its pin goes with it."""
    with bank.open() as wh:
        row = wh.sql("SELECT sum(balance) AS total, count(*) AS n FROM accounts").collect()[0]
    return row["total"], row["n"]


def test_a_pin_keeps_files_until_its_process_has_died(spark: SparkSession, tmp_path: Path) -> None:
    bank = Survivor(tmp_path / "bank", spark)
    bank.create()
    journal = Journal(tmp_path / "holder.jsonl")
    with bank.open() as wh, nursery(spark, tmp_path) as children:
        step("open", first=0, count=40).run(wh)
        wh.compact("accounts")
        base = Path(wh.base_path("accounts"))
        old = set(base.rglob("*.parquet"))
        assert old
        before = _totals(bank)
        child = children.start(
            "tests.support.holder:holding",
            path=str(bank.path),
            journal=str(tmp_path / "holder.jsonl"),
            signal_file=str(tmp_path / "go"),
            lease_seconds=LEASE,
        )
        _entry(journal, 1)
        time.sleep(LEASE * 1.5)  # the pin is renewed
        wh.update("accounts", set={"balance": "balance + 1000"})
        wh.compact("accounts")
        wh.vacuum()
        assert old <= set(base.rglob("*.parquet"))
        (tmp_path / "go").touch()
        read = _entry(journal, 2)
        assert (read["total"], read["n"]) == before

        child.send(signal.SIGKILL)
        assert child.ended() == -signal.SIGKILL
        wh.refresh()
        wh.vacuum()  # whoever else needed the old files has passed
        time.sleep(LEASE + 0.5)
        wh.vacuum()
        assert not old & set(base.rglob("*.parquet"))
        assert orphans(bank.path) == []
        assert _totals(bank)[0] == before[0] + 1000 * before[1]
