"""Several threads and processes at once: no update is lost, versions are dense and unique, one of two rivals wins."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from threading import Event as Signal

from tests.catalog.building import (
    CatalogContract,
    ManualClock,
    OnPostgres,
    OnSqlite,
    apply,
    create,
    data_file,
    inline,
    inserted,
    postgres_server,  # noqa: F401
    postgres_url,  # noqa: F401
)

from headwater.catalog import Catalog
from headwater.errors import BusyError, LeaseLostError
from headwater.model.control import Pause, noted, withdrawn
from headwater.model.events import Event, EventKind

WORKERS = 3
COMMITS = 15


def at_once(*works: Callable[[], object]) -> list[object]:
    """Run functions in threads that start together; return their results, or the `BusyError` that one met."""
    barrier = Barrier(len(works))

    def run(work: Callable[[], object]) -> object:
        barrier.wait()
        try:
            return work()
        except BusyError as error:
            return error

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(run, works))


def commit_blindly(catalog: Catalog, worker: int) -> list[int]:
    return [apply(catalog, inline(f"{worker}-{number}", "t", hash_change=1)) for number in range(COMMITS)]


def commit_in_process(url: str, worker: int, results: multiprocessing.Queue[list[int]]) -> None:
    with Catalog.open(url) as catalog:
        results.put(commit_blindly(catalog, worker))


class ConcurrencyContract(CatalogContract):
    def check_all_committed(self, catalog: Catalog, versions: list[int]) -> None:
        total = WORKERS * COMMITS
        assert sorted(versions) == list(range(2, total + 2))
        table = catalog.snapshot().tables["t"]
        assert (table.row_count, table.hash, table.moved) == (total, total, total + 1)
        batches = catalog.manifest("t", total + 1).batches
        assert [batch.first_version for batch in batches] == list(range(2, total + 2))

    def test_threads_lose_nothing(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        results = at_once(*(lambda w=worker: commit_blindly(catalog, w) for worker in range(WORKERS)))
        self.check_all_committed(catalog, [version for result in results for version in result])  # type: ignore[attr-defined]

    def test_processes_lose_nothing(self, catalog: Catalog, url: str) -> None:
        catalog.commit(create("t"))
        context = multiprocessing.get_context("spawn")
        results: multiprocessing.Queue[list[int]] = context.Queue()
        processes = [context.Process(target=commit_in_process, args=(url, w, results)) for w in range(WORKERS)]
        for process in processes:
            process.start()
        versions = [version for _ in processes for version in results.get(timeout=60)]
        for process in processes:
            process.join()
        self.check_all_committed(catalog, versions)

    def test_of_two_that_read_the_same_one_wins(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        for number in range(10):
            moved = catalog.snapshot().tables["t"].moved
            results = at_once(
                *(
                    lambda w=worker, n=number, m=moved: apply(catalog, inline(f"{w}-{n}", "t"), unmoved={"t": m})
                    for worker in range(2)
                )
            )
            assert {type(result) for result in results} == {int, BusyError}
        assert catalog.snapshot().tables["t"].row_count == 10

    def test_readers_see_whole_versions_only(self, catalog: Catalog) -> None:
        catalog.commit(create("t", "u"))

        def write() -> None:
            for number in range(30):
                apply(catalog, inline(f"t{number}", "t"), inline(f"u{number}", "u"))

        def read() -> int:
            seen = 0
            for _ in range(60):
                snapshot = catalog.snapshot()
                rows = snapshot.tables["t"].row_count
                assert snapshot.tables["u"].row_count == rows == snapshot.version - 1
                manifests = catalog.manifests(["t", "u"], snapshot.version)
                assert len(manifests["t"].batches) == len(manifests["u"].batches) == rows
                assert snapshot.version >= seen
                seen = snapshot.version
            return seen

        at_once(write, read, read)
        assert catalog.snapshot().tables["t"].row_count == 30

    def test_one_thread_gets_the_lease(self, catalog: Catalog) -> None:
        for number in range(5):
            results = at_once(
                *(lambda w=worker, n=number: catalog.acquire(f"l{n}", f"worker {w}", 60.0) for worker in range(4))
            )
            assert sum(result is not None for result in results) == 1

    def test_commit_or_vacuum_gets_the_write(self, catalog: Catalog, clock: ManualClock) -> None:
        catalog.commit(create("t"))
        wins = {"commit": 0, "vacuum": 0}
        for number in range(10):
            write = catalog.open_write("worker", 1.0, ())
            clock.advance(2.0)
            change = inserted(f"b{number}", "t", data_file(f"f{number}", "t", write))
            committed, taken = at_once(
                lambda change=change, write=write: apply(catalog, change, write_ids=(write,)),
                lambda write=write: catalog.take_write(write),
            )
            assert isinstance(committed, int) is not taken, "exactly one of them has the files"
            assert isinstance(committed, int | LeaseLostError)
            wins["commit" if isinstance(committed, int) else "vacuum"] += 1
        assert catalog.snapshot().tables["t"].row_count == 10 * wins["commit"]

    def test_leases_are_taken_all_or_none(self, catalog: Catalog) -> None:
        for number in range(5):
            names = [f"{number}-{name}" for name in "abcd"]
            results = at_once(
                *(
                    lambda w=worker, wanted=names[worker:] + names[:worker]: catalog.acquire_all(
                        wanted, f"worker {w}", 60.0
                    )
                    for worker in range(4)
                )
            )
            won = [result for result in results if isinstance(result, list)]
            assert len(won) == 1
            assert [token.name for token in won[0]] == names
            assert results.count(names[0]) == 3
            assert set(catalog.leases_of_others(f"{number}-", "nobody").values()) == {won[0][0].owner}

    def test_who_holds_several_is_alone_and_nobody_waits_for_ever(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        names = tuple("abcd")
        holders: list[str] = []

        def work(worker: int) -> int:
            done, owner = 0, f"worker {worker}"
            wanted = [names[worker], names[(worker + 1) % 4], "shared"]
            deadline = time.monotonic() + 30.0
            while done < 5:
                assert time.monotonic() < deadline
                tokens = catalog.acquire_all(wanted, owner, 60.0)
                if isinstance(tokens, str):
                    continue
                holders.append(owner)
                assert holders == [owner]
                assert catalog.heartbeat_all(tokens[::-1], 60.0)
                holders.remove(owner)
                if done % 2:
                    apply(catalog, inline(f"{worker}-{done}", "t"), leases=tuple(tokens[::-1]), releases=True)
                else:
                    catalog.release_all(tokens)
                done += 1
            return done

        assert at_once(*(lambda w=worker: work(w) for worker in range(4))) == [5] * 4
        assert catalog.leases_of_others("", "nobody") == {}
        assert catalog.snapshot().tables["t"].row_count == 8

    def test_heartbeats_and_commits_of_one_holder(self, catalog: Catalog) -> None:
        """A keeper renews from a thread of its own while the commit checks what it renews."""
        catalog.commit(create("t"))
        tokens = catalog.acquire_all([f"l{number}" for number in range(8)], "a", 60.0)
        assert not isinstance(tokens, str)

        def renew() -> int:
            return [catalog.heartbeat_all(tokens[::-1], 60.0) for _ in range(30)].count(True)

        def commit(worker: int) -> int:
            for number in range(15):
                apply(catalog, inline(f"{worker}-{number}", "t"), leases=tuple(tokens))
            return 15

        assert at_once(renew, lambda: commit(0), lambda: commit(1)) == [30, 15, 15]

    def test_notes_of_all_are_kept(self, catalog: Catalog, url: str) -> None:
        catalog.commit(create("t"))
        names = [[f"{worker}-{number}" for number in range(12)] for worker in range(WORKERS)]

        def write(worker: int) -> None:
            with Catalog.open(url) as mine:
                for number, name in enumerate(names[worker]):
                    mine.note([noted(name, Pause(float(number))), noted(f"gone {name}", Pause(0.0))])
                    mine.note([withdrawn(Pause, f"gone {name}")])
                    apply(mine, inline(name, "t"))

        def read() -> None:
            seen: set[str] = set()
            for _ in range(60):
                found = set(catalog.snapshot().notes.of(Pause))
                standing = {name for name in found if not name.startswith("gone ")}
                assert standing >= seen, "a note that was seen is not lost again"
                seen = standing

        results = at_once(read, *(lambda w=worker: write(w) for worker in range(WORKERS)))
        assert results == [None] * (WORKERS + 1)
        everything = {name for of_worker in names for name in of_worker}
        assert set(catalog.snapshot().notes.of(Pause)) == everything
        with Catalog.open(url) as other:
            assert other.snapshot() == catalog.snapshot()

    def test_who_follows_events_misses_none(self, catalog: Catalog) -> None:
        done = Signal()

        def write(worker: int) -> None:
            for number in range(20):
                found = [Event(EventKind.RESUMED, float(number), f"{worker}-{number}-{part}") for part in range(3)]
                catalog.record_events(found)

        def write_all() -> None:
            try:
                assert at_once(*(lambda w=worker: write(w) for worker in range(WORKERS))) == [None] * WORKERS
            finally:
                done.set()

        def follow() -> list[str | None]:
            seen: list[str | None] = []
            last = 0
            while True:
                is_last = done.is_set()
                for found in reversed(catalog.events(limit=10_000, after=last)):
                    assert found.id is not None
                    seen.append(found.table)
                    last = found.id
                if is_last:
                    return seen

        _, seen = at_once(write_all, follow)
        assert isinstance(seen, list)
        assert len(seen) == len(set(seen)) == WORKERS * 20 * 3

    def test_schedulers_that_wake_up_late_do_not_wait_for_each_other(
        self, catalog: Catalog, clock: ManualClock
    ) -> None:
        owners = [f"scheduler {number}" for number in range(4)]
        for _ in range(10):
            for owner in owners:
                catalog.show_scheduler(owner, 1.0, 1.0, "{}")
            clock.advance(1000.0)
            results = at_once(*(lambda o=owner: catalog.show_scheduler(o, 1.0, 1.0, "{}") for owner in owners))
            assert results == [None] * 4
            assert {entry.owner for entry in catalog.schedulers()} == set(owners)


class TestConcurrencyOnSqlite(OnSqlite, ConcurrencyContract):
    pass


class TestConcurrencyOnPostgres(OnPostgres, ConcurrencyContract):
    pass
