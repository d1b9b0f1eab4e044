"""Workers: three ways to have threads, and how several warehouses share them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from headwater.schedule.workers import Allocation, Crew, Inline, Pool, Spawned, Workers, workers_of
from headwater.settings import Settings

MAKES: dict[str, Callable[[], Workers]] = {"inline": Inline, "spawned": lambda: Spawned(3), "pool": lambda: Pool(3)}


@contextmanager
def closing(workers: Workers) -> Iterator[Workers]:
    try:
        yield workers
    finally:
        workers.close()


@pytest.fixture(params=MAKES)
def workers(request: pytest.FixtureRequest) -> Iterator[Workers]:
    """Every way to have workers."""
    with closing(MAKES[request.param]()) as made:
        yield made


@dataclass
class Seen:
    """Which threads worked, and how many at once. With a barrier, so many as it asks for must work at the same time."""

    barrier: threading.Barrier = field(default_factory=lambda: threading.Barrier(1))
    threads: list[threading.Thread] = field(default_factory=list)
    now: int = 0
    most: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def task(self, seconds: float = 0.0) -> Callable[[], None]:
        def work() -> None:
            with self.lock:
                self.threads.append(threading.current_thread())
                self.now += 1
                self.most = max(self.most, self.now)
            self.barrier.wait(20)
            time.sleep(seconds)
            with self.lock:
                self.now -= 1

        return work


class TestThreads:
    def test_each_task_runs_once(self, workers: Workers) -> None:
        seen = Seen()
        for _ in range(workers.capacity):
            workers.submit(seen.task())
        workers.close()
        assert len(seen.threads) == workers.capacity
        assert seen.now == 0

    def test_closing_waits_for_what_runs(self, workers: Workers) -> None:
        seen = Seen()
        workers.submit(seen.task(0.1))
        workers.close()
        assert (len(seen.threads), seen.now) == (1, 0)

    def test_closing_without_work_is_quick(self, workers: Workers) -> None:
        began = time.monotonic()
        workers.close()
        assert time.monotonic() - began < 1

    def test_inline_works_in_the_thread_that_asks_and_one_at_a_time(self) -> None:
        seen, inline = Seen(), Inline()
        for _ in range(3):
            inline.submit(seen.task())
        assert seen.threads == [threading.current_thread()] * 3
        assert (seen.most, inline.capacity, inline.kind) == (1, 1, "inline")

    def test_spawned_makes_a_thread_for_each(self) -> None:
        seen = Seen(threading.Barrier(4))
        with closing(Spawned(4)) as spawned:
            for _ in range(4):
                spawned.submit(seen.task())
        assert len(set(seen.threads)) == seen.most == 4
        assert threading.current_thread() not in seen.threads
        assert spawned.kind == "spawned"

    def test_spawned_keeps_no_thread(self) -> None:
        seen, spawned = Seen(), Spawned(4)
        for _ in range(20):
            spawned.submit(seen.task())
            spawned.close()
        assert not [t for t in threading.enumerate() if t.name == "headwater-refresh"]
        assert spawned._threads == set()

    def test_a_pool_keeps_its_threads(self) -> None:
        seen = Seen(threading.Barrier(2))
        with closing(Pool(2)) as pool:
            for _ in range(20):
                pool.submit(seen.task())
        assert len(seen.threads) == 20
        assert len(set(seen.threads)) == 2
        assert (seen.most, pool.kind) == (2, "pool")

    @pytest.mark.parametrize(
        ("settings", "kind", "capacity"),
        [
            (Settings(), "spawned", 4),
            (Settings(max_concurrent_refreshes=9), "spawned", 9),
            (Settings(worker_pool_size=3), "pool", 3),
            (Settings(worker_pool_size=3, max_concurrent_refreshes=9), "pool", 3),
        ],
    )
    def test_what_the_settings_ask_for(self, settings: Settings, kind: str, capacity: int) -> None:
        with closing(workers_of(settings)) as made:
            assert (made.kind, made.capacity) == (kind, capacity)


class Counted:
    """Workers that only count: a crew asks them for nothing but their capacity and their end."""

    kind = "counted"

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.closed = 0

    def submit(self, task: Callable[[], None]) -> None:
        task()

    def close(self) -> None:
        self.closed += 1


class Woken(list[str]):
    """Who was woken, in order."""

    def by(self, key: str) -> Callable[[], None]:
        return lambda: self.append(key)


def crew_of(capacity: int, **quotas: int) -> tuple[Crew, Woken]:
    """Return a crew with a member for each name."""
    crew, woken = Crew(Counted(capacity)), Woken()
    for key, quota in quotas.items():
        crew.join(key, woken.by(key), quota)
    return crew, woken


def taken(crew: Crew, key: str) -> int:
    """Take as many workers as one member may have, and return how many that were."""
    count = 0
    while crew.take(key):
        count += 1
    return count


class TestFairShares:
    def test_alone_it_may_use_all(self) -> None:
        crew, _ = crew_of(4, a=0, b=0, c=0)
        crew.wait("a", 9)
        assert taken(crew, "a") == 4

    @pytest.mark.parametrize(("capacity", "share"), [(1, 1), (2, 1), (4, 2), (5, 3), (8, 4)])
    def test_two_that_wait_get_half_each(self, capacity: int, share: int) -> None:
        crew, _ = crew_of(capacity, a=0, b=0)
        crew.wait("a", 9)
        crew.wait("b", 9)
        assert taken(crew, "a") == share
        assert taken(crew, "b") == capacity - share

    def test_what_others_do_not_ask_for_may_be_used(self) -> None:
        crew, _ = crew_of(4, a=0, b=0)
        crew.wait("a", 9)
        crew.wait("b", 1)
        assert crew.take("b")
        assert taken(crew, "a") == 3

    def test_who_comes_later_gets_the_next_free_ones(self) -> None:
        crew, woken = crew_of(4, a=0, b=0)
        crew.wait("a", 9)
        assert taken(crew, "a") == 4
        crew.wait("b", 9)
        assert not crew.take("b"), "none is free"
        crew.give_back("a")
        assert woken == ["b"]
        assert not crew.take("a"), "it has three, its share is two"
        assert crew.take("b")
        crew.give_back("a")
        assert not crew.take("a")
        assert crew.take("b")
        crew.give_back("a")
        assert crew.take("a"), "each has its share again"

    def test_none_of_three_is_left_without(self) -> None:
        """A third of four is one and a bit: who waits with nothing comes before who has one already."""
        crew, _ = crew_of(4, a=0, b=0, c=0)
        for key in "abc":
            crew.wait(key, 9)
        shares = [taken(crew, key) for key in "abc"]
        assert min(shares) >= 1
        assert sum(shares) == 4

    def test_two_that_share_one_worker_take_turns(self) -> None:
        crew, woken = crew_of(1, a=0, b=0)
        crew.wait("a", 9)
        crew.wait("b", 9)
        assert crew.take("a")
        crew.give_back("a")
        assert woken == ["b"]
        assert not crew.take("a"), "b waits longer"
        assert crew.take("b")


class TestQuotas:
    def test_a_quota_and_half_as_many_more_while_a_fifth_is_free(self) -> None:
        crew, _ = crew_of(10, a=4, b=4)
        crew.wait("a", 9)
        assert taken(crew, "a") == 6

    def test_no_more_than_the_quota_while_others_wait_below_theirs(self) -> None:
        crew, _ = crew_of(10, a=4, b=4)
        crew.wait("a", 9)
        crew.wait("b", 9)
        assert taken(crew, "a") == 4
        assert taken(crew, "b") == 4, "a has all that it may, but fewer than a fifth is free"

    def test_more_again_once_nobody_waits(self) -> None:
        crew, _ = crew_of(20, a=4, b=4)
        crew.wait("a", 9)
        crew.wait("b", 1)
        assert taken(crew, "a") == 4
        assert crew.take("b")
        assert taken(crew, "a") == 2

    @pytest.mark.parametrize(("quota", "most"), [(1, 2), (2, 3), (3, 4), (4, 6), (6, 9)])
    def test_half_as_many_but_one_at_least(self, quota: int, most: int) -> None:
        crew, _ = crew_of(64, a=quota)
        crew.wait("a", 64)
        assert taken(crew, "a") == most

    def test_no_more_than_there_are(self) -> None:
        crew, _ = crew_of(3, a=9)
        crew.wait("a", 9)
        assert crew.allocation("a").quota == 3
        assert taken(crew, "a") == 3

    def test_the_quota_is_kept_where_workers_are_scarce(self) -> None:
        crew, _ = crew_of(4, a=2, b=3)
        crew.wait("b", 9)
        assert taken(crew, "b") == 4, "three, and one more while a fourth of all is free"
        crew.wait("a", 9)
        assert taken(crew, "a") == 0
        crew.give_back("b")
        assert not crew.take("b")
        assert crew.take("a")

    def test_different_quotas_side_by_side(self) -> None:
        crew, _ = crew_of(4, a=1, b=0)
        crew.wait("a", 9)
        crew.wait("b", 9)
        assert (taken(crew, "a"), taken(crew, "b")) == (1, 3)


class TestMembers:
    def test_giving_back_wakes_those_that_wait_and_no_others(self) -> None:
        crew, woken = crew_of(1, a=0, b=0, c=0)
        crew.wait("b", 2)
        crew.wait("a", 1)
        assert crew.take("a")
        crew.give_back("a")
        assert woken == ["b"], "c does not wait, a knows itself"

    def test_the_numbers(self) -> None:
        crew, _ = crew_of(4, a=0, b=3)
        crew.wait("a", 5)
        assert crew.take("a")
        assert crew.take("a")
        crew.wait("b", 1)
        assert crew.take("b")
        assert crew.allocation("a") == Allocation(used=2, quota=2, waiting=3, active=3, capacity=4)
        assert crew.allocation("b") == Allocation(used=1, quota=3, waiting=0, active=3, capacity=4)

    def test_the_last_one_to_leave_ends_the_workers(self) -> None:
        workers = Counted(4)
        crew = Crew(workers)
        crew.join("a", lambda: None, 0)
        crew.join("b", lambda: None, 0)
        crew.leave("a")
        assert workers.closed == 0
        crew.leave("b")
        assert workers.closed == 1

    def test_who_has_left_gives_back_without_harm(self) -> None:
        crew, woken = crew_of(1, a=0, b=0)
        crew.wait("a", 1)
        assert crew.take("a")
        crew.leave("a")
        crew.wait("b", 1)
        crew.give_back("a")
        assert woken == ["b"]
        assert crew.take("b")

    def test_who_has_left_keeps_nobody_waiting(self) -> None:
        crew, _ = crew_of(4, a=0, b=0)
        crew.wait("b", 9)
        crew.wait("a", 9)
        crew.leave("b")
        assert taken(crew, "a") == 4


class House:
    """A warehouse with units to do: a thread begins as many as it may, and waits to be woken, as a scheduler does."""

    def __init__(self, crew: Crew, key: str, units: int, seconds: float, quota: int = 0) -> None:
        self.crew, self.key, self.left, self.seconds = crew, key, units, seconds
        self.running = self.most = self.done = 0
        self.other: House | None = None
        self.left_of_other = 0
        self.signals = 0
        self.changed = threading.Condition()
        crew.join(key, self.wake, quota)
        self.thread = threading.Thread(target=self.dispatch)

    def wake(self) -> None:
        with self.changed:
            self.signals += 1
            self.changed.notify_all()

    def dispatch(self) -> None:
        while True:
            with self.changed:
                signals = self.signals
                if not self.left and not self.running:
                    break
                self.crew.wait(self.key, self.left)
                began = 0
                while self.left and self.crew.take(self.key):
                    self.left -= 1
                    self.running += 1
                    began += 1
                self.most = max(self.most, self.running)
            for _ in range(began):
                self.crew.workers.submit(self.work)
            with self.changed:
                woken = self.changed.wait_for(lambda before=signals: self.signals != before, 20)
            assert woken, f"{self.key} was never woken: {self.left} left"
        self.left_of_other = self.other.left if self.other is not None else 0
        self.crew.wait(self.key, 0)

    def work(self) -> None:
        time.sleep(self.seconds)
        with self.changed:
            self.running -= 1
            self.done += 1
        self.crew.give_back(self.key)
        self.wake()


@pytest.mark.parametrize("make", [lambda n: Spawned(n), lambda n: Pool(n)], ids=["spawned", "pool"])
class TestWithThreads:
    def run(self, crew: Crew, *houses: House) -> None:
        for house in houses:
            house.thread.start()
        for house in houses:
            house.thread.join(60)
            assert not house.thread.is_alive()
            assert house.left == house.running == 0
        for house in houses:
            crew.leave(house.key)

    def test_two_busy_warehouses_end_together(self, make: Callable[[int], Workers]) -> None:
        crew = Crew(make(4))
        a, b = House(crew, "a", 100, 0.01), House(crew, "b", 100, 0.01)
        a.other, b.other = b, a
        self.run(crew, a, b)
        assert (a.done, b.done) == (100, 100)
        assert max(a.left_of_other, b.left_of_other) < 50, "each had about half of the workers all the time"

    def test_one_with_much_to_do_does_not_keep_another_from_a_little(self, make: Callable[[int], Workers]) -> None:
        crew = Crew(make(4))
        much, little = House(crew, "much", 300, 0.02), House(crew, "little", 20, 0.02)
        little.other = much
        much.thread.start()
        with much.changed:
            assert much.changed.wait_for(lambda: much.done > 0, 20)
        assert much.most == 4, "alone it has all"
        little.thread.start()
        little.thread.join(60)
        assert little.left_of_other > 100
        much.thread.join(60)
        assert (much.done, little.done) == (300, 20)

    def test_three_on_two_workers_all_come_to_their_end(self, make: Callable[[int], Workers]) -> None:
        crew = Crew(make(2))
        houses = [House(crew, key, 40, 0.002) for key in "abc"]
        self.run(crew, *houses)
        assert [h.done for h in houses] == [40, 40, 40]

    def test_a_quota_holds_while_others_are_busy(self, make: Callable[[int], Workers]) -> None:
        crew = Crew(make(4))
        small, large = House(crew, "small", 20, 0.005, quota=1), House(crew, "large", 200, 0.005, quota=3)
        large.thread.start()
        time.sleep(0.02)
        small.thread.start()
        small.thread.join(60)
        assert small.most <= 2
        large.thread.join(60)
        assert (small.done, large.done) == (20, 200)
