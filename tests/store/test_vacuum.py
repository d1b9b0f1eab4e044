"""Vacuum removes what nobody needs, and nothing else."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.tables import check_hash, contents, files_in_catalog, files_on_disk, manifest_of, table_of

import headwater as hw
from headwater.errors import UnknownVersionError
from headwater.model.events import EventKind
from headwater.model.tables import FileRole, RefreshAction
from headwater.store.rows import CHANGED
from headwater.warehouse import Warehouse

TO_FILES = {"inline_max_rows": 0, "vacuum_grace_seconds": 0}


@pytest.fixture
def filed(spark: SparkSession, tmp_path: Path) -> Warehouse:
    """A warehouse without grace that keeps every batch in a file."""
    with hw.connect(tmp_path / "w", spark=spark, settings=TO_FILES) as warehouse:
        warehouse.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v STRING)")
        yield warehouse


def let_go(wh: Warehouse) -> None:
    """Give back the pins of frames that nobody holds any more, as happens every few seconds."""
    gc.collect()
    wh._pins._renew_once()


def test_nothing_goes_before_the_retention_and_all_that_is_old_after_it(filed: Warehouse) -> None:
    filed.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    first = filed.version
    filed.sql("UPDATE t SET v = 'c' WHERE id = 1")
    before = files_on_disk(filed)
    report = filed.vacuum()
    assert (report.files_deleted, report.batches_forgotten) == (0, 0)
    assert before <= files_on_disk(filed)
    assert contents(filed, "t", version=first) == {(1, "a"): 1, (2, "b"): 1}

    let_go(filed)
    report = filed.vacuum(retention_hours=0)
    assert (report.tables_folded, report.batches_forgotten) == (1, 2)
    with pytest.raises(UnknownVersionError):
        filed.table("t", version=first)
    report = filed.vacuum(retention_hours=0)
    assert report.files_deleted == 2
    assert files_on_disk(filed) == files_in_catalog(filed)
    assert contents(filed, "t") == {(1, "c"): 1, (2, "b"): 1}
    check_hash(filed, "t")
    # A longer retention than before cannot bring anything back, and does no harm.
    assert filed.vacuum().oldest_version == report.oldest_version
    assert contents(filed, "t") == {(1, "c"): 1, (2, "b"): 1}


def test_the_grace_keeps_files_that_nothing_needs(spark: SparkSession, tmp_path: Path) -> None:
    with hw.connect(tmp_path / "w", spark=spark, settings={**TO_FILES, "vacuum_grace_seconds": 3600}) as wh:
        wh.sql("CREATE TABLE t (n INT)")
        wh.sql("INSERT INTO t VALUES (1)")
        wh.sql("DROP TABLE t")
        wh.vacuum(retention_hours=0)
        assert len(files_on_disk(wh)) == 1
    with hw.connect(tmp_path / "w", spark=spark, settings=TO_FILES) as wh:
        wh.vacuum(retention_hours=0)
        assert files_on_disk(wh) == set()


def test_a_dry_run_counts_and_changes_nothing(filed: Warehouse) -> None:
    filed.sql("INSERT INTO t VALUES (1, 'a')")
    filed.sql("DROP TABLE t")
    before = (filed.version, files_on_disk(filed), filed._catalog.horizon())
    report = filed.vacuum(retention_hours=0, dry_run=True)
    assert report.dry_run
    assert (report.files_deleted, report.bytes_deleted > 0) == (1, True)
    assert before == (filed.version, files_on_disk(filed), filed._catalog.horizon())
    assert filed.vacuum(retention_hours=0).files_deleted == 1


def test_dropped_tables_go_with_everything(filed: Warehouse) -> None:
    filed.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    filed.create_stream_table("s", "SELECT v, count(*) AS n, min(id) AS m FROM t GROUP BY v")
    filed.compact("t")
    folder = Path(filed.base_path("t"))
    assert (folder / "_delta_log").exists()
    filed.sql("DROP TABLE t CASCADE")
    filed.vacuum(retention_hours=0)
    assert files_on_disk(filed) == set()
    assert not folder.exists()
    filed.sql("CREATE TABLE t (n INT)")
    filed.sql("INSERT INTO t VALUES (7)")
    assert contents(filed, "t") == {(7,): 1}


def test_a_consumer_keeps_the_changes_it_has_not_read(filed: Warehouse) -> None:
    filed.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'b')")
    filed.create_stream_table("s", "SELECT v, count(*) AS n FROM t GROUP BY v")
    filed.sql("UPDATE t SET v = 'x' WHERE id = 1")
    filed.sql("DELETE FROM t WHERE id = 2")
    filed.sql("UPDATE t SET v = 'a' WHERE id = 1")
    filed.sql("INSERT INTO t VALUES (4, 'd')")
    frontier = filed._catalog.snapshot().streams[table_of(filed, "s").id].frontier
    assert frontier is not None
    assert filed.vacuum(retention_hours=0).batches_merged == 4
    # Four steps became their sum: the row that went there and back is gone, and no mask is left.
    (batch,) = manifest_of(filed, "t").batches
    assert (batch.inserts, batch.deletes, batch.merged) == (1, 1, True)
    with filed._ground.engine.worker() as worker:
        snapshot = filed._catalog.snapshot()
        source = filed._ground.source(snapshot, table_of(filed, "t"))
        fields = source.table.schema.fields
        changes = filed._ground.reader.changes(worker, source, frontier, snapshot.version, fields)
        rows = changes.frame.collect()
    assert sorted((r["id"], r["v"], r["__w"]) for r in rows) == [(2, "b", -1), (4, "d", 1)]
    assert [r[CHANGED] for r in rows] == [None, None]
    filed.vacuum(retention_hours=0)
    assert filed.refresh("s").action is RefreshAction.DIFFERENTIAL
    assert contents(filed, "s") == {("a", 1): 1, ("b", 1): 1, ("d", 1): 1}
    assert filed.verify("s").equal
    let_go(filed)
    for _ in range(2):
        filed.vacuum(retention_hours=0)
    assert manifest_of(filed, "t").batches == ()
    assert files_on_disk(filed) == files_in_catalog(filed)
    check_hash(filed, "t")


def test_x1_changes_are_summed_only_between_the_frontiers_of_all_consumers(filed: Warehouse) -> None:
    filed.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    for name in ("first", "second", "third"):
        filed.create_stream_table(name, "SELECT v, count(*) AS n FROM t GROUP BY v")
    filed.sql("DELETE FROM t WHERE id = 1")
    filed.sql("UPDATE t SET v = 'x' WHERE id = 2")
    for name in ("second", "third"):
        filed.refresh(name)
    filed.sql("INSERT INTO t VALUES (1, 'a')")
    filed.sql("UPDATE t SET v = 'b' WHERE id = 2")
    filed.refresh("third")
    filed.sql("INSERT INTO t VALUES (3, 'c')")
    filed.sql("DELETE FROM t WHERE id = 3")
    # Up to the end nothing has changed in sum; to those who stand in between something has.
    let_go(filed)
    assert filed.vacuum(retention_hours=0).batches_merged == 6
    assert [(b.inserts, b.deletes) for b in manifest_of(filed, "t").batches] == [(1, 2), (2, 1), (0, 0)]
    filed.vacuum(retention_hours=0)
    for name, changed in (("first", (0, 0)), ("second", (2, 1)), ("third", (0, 0))):
        report = filed.refresh(name)
        assert (report.action, (report.rows_inserted, report.rows_deleted)) == (RefreshAction.DIFFERENTIAL, changed)
        assert contents(filed, name) == {("a", 1): 1, ("b", 1): 1}
        assert filed.verify(name).equal
    check_hash(filed, "t")


def test_x2_sums_of_rows_without_a_key_count_copies(filed: Warehouse) -> None:
    filed.sql("CREATE TABLE bag (v STRING)")
    filed.create_stream_table("counts", "SELECT v, count(*) AS n FROM bag GROUP BY v")
    filed.create_stream_table("copies", "SELECT v FROM bag UNION ALL SELECT v FROM bag")
    filed.create_stream_table("above", "SELECT v, count(*) AS n FROM copies GROUP BY v")
    for action, value in (("I", "one"), ("I", "one"), ("D", "one"), ("I", "two"), ("I", "two"), ("I", "two")):
        filed.apply_changes("bag", [{"v": value, "action": action}])
        filed.refresh("copies")
    let_go(filed)
    assert filed.vacuum(retention_hours=0).batches_merged == 12
    sums = [manifest_of(filed, name).batches for name in ("bag", "copies")]
    assert [[(b.inserts, b.deletes, b.merged) for b in batches] for batches in sums] == [[(4, 0, True)], [(8, 0, True)]]
    for name, times in (("counts", 1), ("above", 2)):
        assert filed.refresh(name).action is RefreshAction.DIFFERENTIAL
        assert contents(filed, name) == {("one", times): 1, ("two", 3 * times): 1}
        assert filed.verify(name).equal
    assert contents(filed, "bag") == {("one",): 1, ("two",): 3}
    check_hash(filed, "bag")
    check_hash(filed, "copies")


def test_sums_never_cross_the_version_of_the_base(filed: Warehouse) -> None:
    filed.sql("INSERT INTO t VALUES (1, 'a')")
    filed.create_stream_table("s", "SELECT v, count(*) AS n FROM t GROUP BY v")
    filed.sql("INSERT INTO t VALUES (2, 'b')")
    filed.compact("t")
    filed.sql("INSERT INTO t VALUES (3, 'c')")
    # The consumer stands before the base, the kept versions begin after it: the base must stay a border.
    filed._maintenance._fold = lambda table_id: False  # type: ignore[method-assign]
    filed.vacuum(retention_hours=0)
    assert contents(filed, "t") == {(1, "a"): 1, (2, "b"): 1, (3, "c"): 1}
    check_hash(filed, "t")
    assert filed.refresh("s").action is RefreshAction.DIFFERENTIAL
    assert contents(filed, "s") == {("a", 1): 1, ("b", 1): 1, ("c", 1): 1}


def test_a_lazy_frame_keeps_what_it_will_read(filed: Warehouse) -> None:
    filed.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    derived = filed.table("t").where("id < 2").select("v")
    joined = filed.sql("SELECT a.v FROM t a JOIN t b ON a.id = b.id")
    filed.sql("UPDATE t SET v = 'z'")
    for _ in range(3):
        let_go(filed)
        filed.vacuum(retention_hours=0)
    assert [r["v"] for r in derived.collect()] == ["a"]
    assert sorted(r["v"] for r in joined.collect()) == ["a", "b"]
    held = len(files_on_disk(filed))
    del derived, joined
    let_go(filed)
    for _ in range(2):
        filed.vacuum(retention_hours=0)
    assert len(files_on_disk(filed)) < held
    assert files_on_disk(filed) == files_in_catalog(filed)
    assert contents(filed, "t") == {(1, "z"): 1, (2, "z"): 1}


def test_what_an_abandoned_write_left_behind_is_removed(spark: SparkSession, tmp_path: Path) -> None:
    with hw.connect(tmp_path / "w", spark=spark, settings={**TO_FILES, "write_seconds": 0.001}) as wh:
        wh.sql("CREATE TABLE t (n INT)")
        with wh._ground.writer.opened(table_of(wh, "t").id, FileRole.TAIL) as (_, directory):
            folder = tmp_path / "w" / directory
            folder.mkdir(parents=True)
            (folder / "part-0.parquet").write_bytes(b"half a file")
        assert files_on_disk(wh)
        assert wh.vacuum(dry_run=True).writes_discarded == 1
        assert files_on_disk(wh)
        assert wh.vacuum().writes_discarded == 1
        assert files_on_disk(wh) == set()
        assert wh.vacuum().writes_discarded == 0


def test_a_pin_that_died_in_its_sleep_is_taken_anew(filed: Warehouse) -> None:
    filed.sql("INSERT INTO t VALUES (1, 'a')")
    frame = filed.table("t")
    pins = filed._pins
    (pin,) = (p for v, p in pins._pins.items() if v == filed.version)
    filed._catalog.unpin(pin.id)
    pins._renew_once()
    assert filed.version not in pins._pins
    again = filed.table("t")
    assert filed._catalog.pinned_versions() == [filed.version]
    del frame
    gc.collect()
    pins._renew_once()
    assert filed._catalog.pinned_versions() == [filed.version]
    assert again.count() == 1


def test_history_days_is_how_long_refreshes_and_events_are_remembered(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "w"
    with hw.connect(place, spark=spark) as wh:
        wh.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        wh.create_stream_table("n", "SELECT count(*) AS n FROM t")
        wh._teller.tell(EventKind.STALE_DATA, wh._catalog.now(), "n")
        wh._teller.tell(EventKind.RESUMED, wh._catalog.now(), "n")
        wh.vacuum()
        assert (len(wh.history("n")), len(wh.events())) == (1, 2)
    with hw.connect(place, spark=spark, settings={"history_days": 1e-9}) as wh:
        wh.vacuum()
        assert wh.history("n") == []
        assert [e.kind for e in wh.events()] == [EventKind.RESUMED]  # the newest stays: its number must not come again
