"""Several threads and processes at once: no update is lost, versions are dense and unique, one of two rivals wins."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

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


class TestConcurrencyOnSqlite(OnSqlite, ConcurrencyContract):
    pass


class TestConcurrencyOnPostgres(OnPostgres, ConcurrencyContract):
    pass
