"""Cancelling: a refresh that takes too long is stopped between its steps, and so are its Spark jobs.

Spark marks the jobs of a piece of work with a tag, by which they can be cancelled while they run. Work that is between two jobs looks
at the token itself, before each table and before the commit: what was cancelled is never committed.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from headwater.errors import CancelledError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Cancellation:
    """A token that one thread gives to the work of another, to be able to stop it."""

    def __init__(self) -> None:
        self._reason: str | None = None
        self._error: type[CancelledError] = CancelledError
        self._running: dict[str, SparkSession] = {}
        self._lock = threading.Lock()

    @property
    def is_cancelled(self) -> bool:
        return self._reason is not None

    def cancel(self, reason: str, error: type[CancelledError] = CancelledError) -> None:
        """Stop the work, with its Spark jobs. May be called again: for jobs that began at the same moment; the first reason stands."""
        with self._lock:
            if self._reason is None:
                self._reason, self._error = reason, error
            running = list(self._running.items())
        for tag, spark in running:
            spark.sparkContext.cancelJobsWithTag(tag)

    def check(self) -> None:
        """Raise `CancelledError` if the work was cancelled."""
        if self.is_cancelled:
            raise self.error()

    def error(self) -> CancelledError:
        """Return the error of work that was cancelled."""
        return self._error("the refresh was cancelled", detail=f"{self._reason}.", hint="Nothing was changed.")

    def began(self, tag: str, spark: SparkSession) -> None:
        """Note that jobs with this tag may run from now on."""
        with self._lock:
            self._running[tag] = spark

    def ended(self, tag: str) -> None:
        """Note that no job with this tag will run any more."""
        with self._lock:
            self._running.pop(tag, None)
