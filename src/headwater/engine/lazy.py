"""Spark, started when it is first needed: what needs none starts none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from headwater.engine.catalyst import CatalystPlanner
from headwater.engine.session import adopt_session, start_session
from headwater.engine.worker import FIXED_CONF, MEANING_CONF, Frame, Worker, WorkerPool, adopted
from headwater.settings import Settings


class Engine:
    """The user's session, a pool of workers over it, and a session for planning."""

    def __init__(self, settings: Settings, spark: SparkSession | None) -> None:
        self._settings = settings
        self._spark = adopt_session(spark) if spark is not None else None
        self._pool: WorkerPool | None = None
        self._planning: CatalystPlanner | None = None
        self._lock = threading.RLock()

    @property
    def is_started(self) -> bool:
        return self._spark is not None

    @property
    def spark(self) -> SparkSession:
        """The session that users see; started here if none was given."""
        with self._lock:
            if self._spark is None:
                self._spark = start_session(self._settings)
            return self._spark

    @contextmanager
    def worker(self, task: str = "") -> Iterator[Worker]:
        """Lend a worker; one that did this task before, if there is one."""
        with self._lock:
            if self._pool is None:
                self._pool = WorkerPool(self.spark, self._settings.template_cache_max_entries)
            pool = self._pool
        with pool.worker(task) as worker:
            yield worker

    @contextmanager
    def planner(self, meaning: dict[str, str]) -> Iterator[CatalystPlanner]:
        """Lend the planning session, set to what the query's meaning depends on."""
        with self._lock:
            if self._planning is None:
                self._planning_session = self.spark.newSession()
                for key, value in FIXED_CONF.items():
                    self._planning_session.conf.set(key, value)
                self._planning = CatalystPlanner(self._planning_session)
            for key, value in meaning.items():
                self._planning_session.conf.set(key, value)
            yield self._planning

    def for_user(self, frame: Frame) -> Frame:
        """Return a worker's frame as one of the user's session: it runs with the user's settings, whenever it runs."""
        return adopted(frame, self.spark)

    def meaning(self) -> dict[str, str]:
        """Return the user's settings that decide what a query means."""
        spark = self.spark
        return {k: str(spark.conf.get(k)) for k in MEANING_CONF}
