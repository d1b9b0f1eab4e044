"""What holds on SQLite alone: kill -9 at any instant, the write lock, the plans of the hot queries."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Executable
from sqlalchemy.dialects import sqlite
from tests.catalog.building import apply, create, data_file, define, inline, inserted, managed, refresh_record

from headwater.catalog import Catalog, Options
from headwater.catalog.noting import RECENT_NOTES
from headwater.catalog.reading import STANDING_BATCHES, STANDING_FILES
from headwater.catalog.snapshots import LIVE, NEWER, PROGRESS
from headwater.catalog.states import STATES
from headwater.errors import BusyError
from headwater.model.commit import CreateTable, MoveFrontier, ReplaceBatches
from headwater.model.tables import TableKind

KILLS = 4


def commit_for_ever(url: str) -> None:
    """Commit a version after the other, each with a batch, files, a frontier and a line of history."""
    with Catalog.open(url) as catalog:
        while True:
            snapshot = catalog.snapshot()
            version = snapshot.version + 1
            write = catalog.open_write("child", 60.0, ())
            files = [data_file(f"f{version}-{number}", "t", write) for number in range(3)]
            apply(
                catalog,
                inserted(f"b{version}", "t", *files, hash_change=version, into_base=True),
                inline(f"s{version}", "s", hash_change=version),
                MoveFrontier("s", snapshot.streams["s"].frontier, version),
                unmoved={"t": snapshot.tables["t"].moved},
                write_ids=(write,),
                history=(refresh_record("s", frontier_to=version),),
            )


def check_whole(url: str) -> int:
    """Check that every version up to the newest has all that its commit brought; return the newest."""
    with Catalog.open(url) as catalog:
        snapshot = catalog.snapshot()
        version = snapshot.version
        made = version - 1
        assert snapshot.streams["s"].frontier == (version if made else None)
        assert (snapshot.tables["t"].row_count, snapshot.tables["s"].row_count) == (30 * made, made)
        assert snapshot.tables["t"].hash == snapshot.tables["s"].hash == sum(range(2, version + 1))
        manifest = catalog.manifest("t", version)
        assert [batch.id for batch in manifest.batches] == [f"b{v}" for v in range(2, version + 1)]
        assert len(manifest.files) == 3 * made
        assert {len(files) for files in manifest.batch_files.values()} <= {3}
        stored = catalog.manifest("s", version).batches
        assert set(catalog.inline(batch.id for batch in stored)) == {f"s{v}" for v in range(2, version + 1)}
        lines = catalog.history("s", limit=version + 1)
        assert [line.version for line in lines] == list(range(version, 1, -1))
    return version


def wait_for_version(catalog: Catalog, version: int) -> None:
    deadline = time.monotonic() + 60.0
    while catalog.head().version < version:
        assert time.monotonic() < deadline, "the child does not commit"
        time.sleep(0.002)


def test_kill_at_any_instant_leaves_whole_versions(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    with Catalog.create(str(path), location="/warehouse") as catalog:
        stream = CreateTable(managed("s", kind=TableKind.STREAM))
        reached = apply(catalog, CreateTable(managed("t")), stream, define("s", "t"))
    context = multiprocessing.get_context("spawn")
    instants = random.Random(7)
    for _ in range(KILLS):
        child = context.Process(target=commit_for_ever, args=(str(path),))
        child.start()
        with Catalog.open(str(path)) as watcher:
            wait_for_version(watcher, reached + 1)
        time.sleep(instants.uniform(0.0, 0.03))
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        after = check_whole(str(path))
        assert after > reached
        reached = after
        connection = sqlite3.connect(path)
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        connection.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "catalog.db"
    with Catalog.create(str(path), location="/warehouse") as catalog:
        catalog.commit(create("t"))
    return path


def test_locked_catalog_is_busy(path: Path) -> None:
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with Catalog.open(str(path), options=Options(busy_timeout=0.05)) as catalog:
        with pytest.raises(BusyError, match="locked by another writer"):
            apply(catalog, inline("b", "t"))
        with pytest.raises(BusyError):
            catalog.acquire("l", "a", 1.0)
        assert catalog.snapshot().version == 1, "readers do not wait"
        blocker.execute("ROLLBACK")
        blocker.close()
        assert apply(catalog, inline("b", "t")) == 2


def test_waiting_writer_gets_its_turn(path: Path) -> None:
    blocker = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    blocker.execute("BEGIN IMMEDIATE")
    with Catalog.open(str(path)) as catalog, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(apply, catalog, inline("b", "t"))
        time.sleep(0.1)
        assert not waiting.done()
        blocker.execute("ROLLBACK")
        assert waiting.result(timeout=10) == 2
    blocker.close()


def test_open_reader_does_not_stop_writers(path: Path) -> None:
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT version FROM warehouse").fetchone() == (1,)
    with Catalog.open(str(path)) as catalog:
        apply(catalog, inline("b", "t"))
    assert reader.execute("SELECT version FROM warehouse").fetchone() == (1,)
    reader.close()


def plan(path: Path, statement: Executable, **values: object) -> list[str]:
    text = str(
        statement.params(**values).compile(  # type: ignore[attr-defined]
            dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True}
        )
    )
    connection = sqlite3.connect(path)
    steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}")]
    connection.close()
    return steps


def test_hot_queries_search_an_index(path: Path) -> None:
    """Thousands of commits later, each query must still touch only what it returns."""
    with Catalog.open(str(path)) as catalog:
        for start in range(0, 4_000, 500):
            names = tuple(f"b{number}" for number in range(start, start + 500))
            apply(catalog, *(inline(name, "t") for name in names))
            apply(catalog, ReplaceBatches("t", names[:-1]))
        version = catalog.head().version
        assert len(catalog.manifest("t", version).batches) == 8
    ids = {"ids": ["t"], "at_version": version}
    for statement, values, wanted in (
        (STANDING_FILES, ids, "ix_files_table_id_removed (table_id=? AND removed"),
        (STANDING_BATCHES, ids, "ix_batches_table_id_removed (table_id=? AND removed"),
        (STATES, ids, "(table_id=? AND version"),
        (NEWER, {"after": version - 1, "at_version": version}, "ix_table_states_version (version>? AND version<?)"),
        (PROGRESS, {"progressed": version}, "ix_streams_progressed (progressed>?)"),
        (RECENT_NOTES, {"progressed": version}, "ix_notes_progressed (progressed>?)"),
    ):
        steps = plan(path, statement, **values)
        assert any(wanted in step for step in steps), steps
        assert not [step for step in steps if step.startswith("SCAN")], steps
    live = plan(path, LIVE, at_version=version)
    assert [step for step in live if step.startswith("SCAN")] == ["SCAN tables"], "all tables, but not all their states"
