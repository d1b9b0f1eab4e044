"""Who refreshes: threads, each with a Spark session of its own while it works.

Three ways to have them, all behind one call. *Inline* works in the thread that asks, one unit after the other. *Spawned* makes a thread
for each unit. A *pool* keeps its threads, and Spark's sessions with them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

Task = Callable[[], None]


class Workers(Protocol):
    """Runs tasks; a task raises nothing."""

    @property
    def capacity(self) -> int:
        """How many tasks run at once."""
        ...

    def submit(self, task: Task) -> None:
        """Run a task, now or soon. The caller keeps within the capacity."""
        ...

    def close(self) -> None:
        """Wait for what runs; nothing more will come."""
        ...


class Inline:
    """Tasks run where they are submitted."""

    capacity = 1

    def submit(self, task: Task) -> None:
        task()

    def close(self) -> None:
        pass


class Spawned:
    """A thread for each task."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()

    def submit(self, task: Task) -> None:
        def run() -> None:
            try:
                task()
            finally:
                with self._lock:
                    self._threads.discard(threading.current_thread())

        thread = threading.Thread(target=run, name="headwater-refresh", daemon=True)
        with self._lock:
            self._threads.add(thread)
        thread.start()

    def close(self) -> None:
        with self._lock:
            running = list(self._threads)
        for thread in running:
            thread.join()


class Pool:
    """Threads that stay."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._threads = ThreadPoolExecutor(capacity, thread_name_prefix="headwater-refresh")

    def submit(self, task: Task) -> None:
        self._threads.submit(task)

    def close(self) -> None:
        self._threads.shutdown(wait=True)
