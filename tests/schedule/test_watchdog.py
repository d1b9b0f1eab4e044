"""The watchdog and what it cancels: late work is told to stop until it does, and nothing else is."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.engine.cancelling import Cancellation
from headwater.errors import CancelledError
from headwater.schedule import watchdog as watchdogs
from headwater.schedule.watchdog import Watchdog

LATE = 0.05
"""So long the work of these tests may take."""
NEVER = 60.0


class Session:
    """Stands for a Spark session: it notes which tags are cancelled."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []
        self.sparkContext = SimpleNamespace(cancelJobsWithTag=self._cancel)
        self.called = threading.Event()

    def _cancel(self, tag: str) -> None:
        self.cancelled.append(tag)
        self.called.set()


class BrokenSession(Session):
    """A session whose Spark has gone."""

    def _cancel(self, tag: str) -> None:
        super()._cancel(tag)
        raise ConnectionError("Spark is gone")


@pytest.fixture
def dog(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watchdog]:
    monkeypatch.setattr(watchdogs, "_AGAIN_SECONDS", 0.02)
    yield Watchdog()
    assert until(lambda: not threads()), "its thread ends with the work"


def until(condition: Any) -> bool:
    """Wait until something is true; return whether it came to be."""
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    return bool(condition())


def threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "headwater-watchdog"]


class TestWatchdog:
    def test_late_work_is_cancelled_with_the_reason(self, dog: Watchdog) -> None:
        work = Cancellation()
        with dog.watching(work, LATE):
            assert until(lambda: work.is_cancelled)
        assert work.error().detail == "It took longer than 0.05 s."

    def test_not_before_its_time(self, dog: Watchdog) -> None:
        work, began = Cancellation(), time.monotonic()
        with dog.watching(work, 0.2):
            assert until(lambda: work.is_cancelled)
        assert time.monotonic() - began >= 0.2

    def test_work_that_ends_in_time_is_left_alone(self, dog: Watchdog) -> None:
        work, late = Cancellation(), Cancellation()
        with dog.watching(work, LATE):
            pass
        with dog.watching(late, 2 * LATE):
            assert until(lambda: late.is_cancelled)
        assert not work.is_cancelled

    @pytest.mark.parametrize("seconds", [0.0, -1.0])
    def test_zero_is_for_ever_and_needs_no_thread(self, dog: Watchdog, seconds: float) -> None:
        work = Cancellation()
        with dog.watching(work, seconds):
            assert threads() == []
            time.sleep(LATE)
        assert not work.is_cancelled

    def test_again_and_again_until_it_ends(self, dog: Watchdog) -> None:
        """Jobs that begin after they were cancelled are cancelled the next time."""
        work, spark = Cancellation(), Session()
        with dog.watching(work, LATE):
            assert until(lambda: work.is_cancelled)
            work.began("late", spark)  # type: ignore[arg-type]
            assert until(lambda: len(spark.cancelled) >= 3)
        assert until(lambda: not threads())
        count = len(spark.cancelled)
        time.sleep(0.1)
        assert len(spark.cancelled) == count, "and not after its end"

    def test_each_by_its_own_time(self, dog: Watchdog) -> None:
        slow, quick = Cancellation(), Cancellation()
        with dog.watching(slow, NEVER), dog.watching(quick, LATE):
            assert until(lambda: quick.is_cancelled)
            assert not slow.is_cancelled

    def test_one_that_is_due_earlier_than_all_others_is_not_overlooked(self, dog: Watchdog) -> None:
        """The thread sleeps towards the first time that it knows; a later call with an earlier time wakes it."""
        slow, quick = Cancellation(), Cancellation()
        with dog.watching(slow, NEVER):
            assert until(threads)
            time.sleep(0.05)
            with dog.watching(quick, LATE):
                assert until(lambda: quick.is_cancelled)

    def test_its_thread_ends_with_the_work(self, dog: Watchdog) -> None:
        with dog.watching(Cancellation(), NEVER):
            assert len(threads()) == 1
            with dog.watching(Cancellation(), NEVER):
                assert len(threads()) == 1, "one is enough"
        assert until(lambda: not threads())

    def test_and_a_new_one_begins_with_new_work(self, dog: Watchdog) -> None:
        for _ in range(3):
            work = Cancellation()
            with dog.watching(work, LATE):
                assert until(lambda work=work: work.is_cancelled)
            assert until(lambda: not threads())

    def test_it_lets_failures_through(self, dog: Watchdog) -> None:
        with pytest.raises(ValueError, match="of the work"), dog.watching(Cancellation(), NEVER):
            raise ValueError("of the work")
        assert until(lambda: not threads())

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
    def test_what_cannot_be_cancelled_does_not_end_it(self, dog: Watchdog) -> None:
        """Spark may be away just then: others are cancelled all the same, now and later."""
        broken, gone = Cancellation(), BrokenSession()
        broken.began("a", gone)  # type: ignore[arg-type]
        with dog.watching(broken, LATE):
            assert gone.called.wait(10)
            other = Cancellation()
            with dog.watching(other, LATE):
                assert until(lambda: other.is_cancelled)

    def test_many_at_once(self, dog: Watchdog) -> None:
        late: list[Cancellation] = []
        early: list[Cancellation] = []

        def work(i: int) -> None:
            own = Cancellation()
            with dog.watching(own, LATE if i % 2 else NEVER):
                if i % 2:
                    until(lambda: own.is_cancelled)
            (late if i % 2 else early).append(own)

        workers = [threading.Thread(target=work, args=(i,)) for i in range(20)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert [w.is_cancelled for w in late] == [True] * 10
        assert [w.is_cancelled for w in early] == [False] * 10
        assert until(lambda: not threads())


class TestCancellation:
    def test_nothing_is_cancelled_by_itself(self) -> None:
        work = Cancellation()
        work.check()
        assert not work.is_cancelled

    def test_the_work_finds_out_when_it_looks(self) -> None:
        work = Cancellation()
        work.cancel("It took longer than 5 s")
        with pytest.raises(CancelledError) as caught:
            work.check()
        assert caught.value.message == "the refresh was cancelled"
        assert caught.value.detail == "It took longer than 5 s."
        assert caught.value.hint == "Nothing was changed."

    def test_the_jobs_that_run_are_cancelled(self) -> None:
        work, spark = Cancellation(), Session()
        work.began("a", spark)  # type: ignore[arg-type]
        work.began("b", spark)  # type: ignore[arg-type]
        work.ended("a")
        work.cancel("late")
        assert spark.cancelled == ["b"]

    def test_those_of_others_are_not(self) -> None:
        work, other, spark = Cancellation(), Cancellation(), Session()
        other.began("b", spark)  # type: ignore[arg-type]
        work.cancel("late")
        assert spark.cancelled == []
        assert not other.is_cancelled

    def test_ending_what_never_began_is_nothing(self) -> None:
        Cancellation().ended("a")

    def test_the_first_reason_is_the_reason(self) -> None:
        """It took too long; that the process ends meanwhile is not why."""
        work = Cancellation()
        work.cancel("It took longer than 5 s")
        work.cancel("The process ends")
        assert work.error().detail == "It took longer than 5 s."
