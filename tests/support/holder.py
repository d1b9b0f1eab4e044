"""A process that holds a lazy DataFrame and reads it when told to."""

from __future__ import annotations

import time
from pathlib import Path

from tests.support.children import session
from tests.support.load import SETTINGS, Journal

import headwater as hw


def holding(path: str, journal: str, signal_file: str, lease_seconds: float) -> None:
    """Make a frame, say so, wait for the file, read the frame, then keep it until killed."""
    record = Journal(Path(journal))
    with hw.connect(path, spark=session(), settings={**SETTINGS, "lease_seconds": lease_seconds}) as wh:
        frame = wh.table("accounts")
        derived = frame.where("balance >= 0").selectExpr("sum(balance) AS total", "count(*) AS n")
        record.write(holding=True)
        while not Path(signal_file).exists():
            time.sleep(0.05)
        row = derived.collect()[0]
        record.write(total=row["total"], n=row["n"])
        while True:
            time.sleep(1)
            assert frame is not None
