"""How many Spark jobs a piece of work started: reported with every refresh.

The thread's jobs are marked with a tag that nobody else uses, so that other threads of the same Spark context do not count.
Spark's own job counter is exact and costs one call: if it has not moved, nothing was started and nothing else is asked.
Otherwise Spark's status store is asked for the tag. It is filled by events, a moment behind, so the newest job is awaited.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from headwater.engine.cancelling import Cancellation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SERIAL = count(1)
_WAIT_SECONDS = 0.25


@dataclass(slots=True)
class JobCount:
    """The number of Spark jobs; final when its `with` block has ended."""

    count: int = 0


@contextmanager
def counting_jobs(spark: SparkSession, cancellation: Cancellation | None = None) -> Iterator[JobCount]:
    """Count the Spark jobs that this thread starts in the `with` block, and let `cancellation` stop them."""
    context = spark.sparkContext
    scala = context._jsc.sc()
    scheduler = scala.dagScheduler()
    tag = f"headwater-{next(_SERIAL)}"
    result = JobCount()
    before = scheduler.numTotalJobs()
    context.addJobTag(tag)
    if cancellation is not None:
        cancellation.began(tag, spark)
    try:
        yield result
    finally:
        context.removeJobTag(tag)
        if cancellation is not None:
            cancellation.ended(tag)
        after = scheduler.numTotalJobs()
        if after > before:
            tracker = scala.statusTracker()
            deadline = time.monotonic() + _WAIT_SECONDS
            while tracker.getJobInfo(after - 1).isEmpty() and time.monotonic() < deadline:
                time.sleep(0.001)
            result.count = len(tracker.getJobIdsForTag(tag))
