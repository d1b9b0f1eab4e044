"""Who refreshes: threads, each with a Spark session of its own while it works, and how warehouses share them.

Three ways to have threads, all behind one call. *Inline* works in the thread that asks, one unit after the other. *Spawned* makes a thread
for each unit. A *pool* keeps its threads.

A *crew* divides the workers of a process among the warehouses that it serves. Each may use its quota; up to half as many more while at
least a fifth of all workers is free and nobody else waits below its own quota.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from headwater.settings import Settings

Task = Callable[[], None]
_CROWDED = 0.8


class Workers(Protocol):
    """Runs tasks; a task raises nothing."""

    @property
    def kind(self) -> str:
        """Which way of having threads this is."""
        ...

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

    kind = "inline"
    capacity = 1

    def submit(self, task: Task) -> None:
        task()

    def close(self) -> None:
        pass


class Spawned:
    """A thread for each task."""

    kind = "spawned"

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
            thread.start()
            self._threads.add(thread)

    def close(self) -> None:
        with self._lock:
            running = list(self._threads)
        for thread in running:
            thread.join()


class Pool:
    """Threads that stay."""

    kind = "pool"

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._threads = ThreadPoolExecutor(capacity, thread_name_prefix="headwater-refresh")

    def submit(self, task: Task) -> None:
        self._threads.submit(task)

    def close(self) -> None:
        self._threads.shutdown(wait=True)


def workers_of(settings: Settings) -> Workers:
    """Return the workers that the settings ask for."""
    if settings.worker_pool_size:
        return Pool(settings.worker_pool_size)
    return Spawned(settings.max_concurrent_refreshes)


@dataclass(slots=True)
class _Member:
    """A warehouse that shares the workers."""

    wake: Callable[[], None]
    quota: int
    used: int = 0
    waiting: int = 0
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Allocation:
    """How many workers a warehouse uses, may use, and waits for; and how many are used and exist in all."""

    used: int
    quota: int
    waiting: int
    active: int
    capacity: int


class Crew:
    """The workers of a process."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers
        self._members: dict[str, _Member] = {}
        self._turns = itertools.count(1)
        self._lock = threading.Lock()

    def join(self, key: str, wake: Callable[[], None], quota: int) -> None:
        """Take part; `wake` is called when workers become free."""
        with self._lock:
            self._members[key] = _Member(wake, quota)

    def leave(self, key: str) -> None:
        """Take part no more; the last one to leave ends the workers."""
        with self._lock:
            self._members.pop(key, None)
            last = not self._members
        if last:
            self.workers.close()

    def wait(self, key: str, units: int) -> None:
        """Say how many units could begin."""
        with self._lock:
            self._members[key].waiting = units

    def take(self, key: str) -> bool:
        """Take one worker, if this warehouse may have one more."""
        with self._lock:
            mine = self._members[key]
            active = sum(m.used for m in self._members.values())
            if mine.used >= self._limit(mine, active):
                return False
            if self.workers.capacity - active <= sum(1 for m in self._members.values() if self._comes_before(m, mine)):
                return False
            mine.used += 1
            mine.waiting = max(0, mine.waiting - 1)
            mine.turn = next(self._turns)
            return True

    def give_back(self, key: str) -> None:
        """Give one worker back."""
        with self._lock:
            if key in self._members:
                self._members[key].used -= 1
            others = [m.wake for k, m in self._members.items() if k != key and m.waiting]
        for wake in others:
            wake()

    def allocation(self, key: str) -> Allocation:
        """Return how a warehouse fares."""
        with self._lock:
            mine = self._members.get(key) or _Member(lambda: None, 0)
            active = sum(m.used for m in self._members.values())
            return Allocation(mine.used, self._base(mine), mine.waiting, active, self.workers.capacity)

    def _comes_before(self, other: _Member, mine: _Member) -> bool:
        """Say whether another one that waits below its share has fewer workers, or as many and waited longer."""
        is_below = other is not mine and other.waiting > 0 and other.used < self._base(other)
        return is_below and (other.used, other.turn) < (mine.used, mine.turn)

    def _base(self, mine: _Member) -> int:
        if mine.quota:
            return min(mine.quota, self.workers.capacity)
        asking = 1 + sum(1 for m in self._members.values() if m is not mine and (m.used or m.waiting))
        return max(1, -(-self.workers.capacity // asking))

    def _limit(self, mine: _Member, active: int) -> int:
        base = self._base(mine)
        if any(m.waiting and m.used < self._base(m) for m in self._members.values() if m is not mine):
            return base
        if not mine.quota:
            return self.workers.capacity
        is_crowded = active >= -(-self.workers.capacity * _CROWDED // 1)
        return base if is_crowded else max(base * 3 // 2, base + 1)
