"""Every commit that is refused, beside its neighbour that is accepted. A refused commit changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.catalog.building import (
    SCHEMA,
    CatalogContract,
    ManualClock,
    OnPostgres,
    OnSqlite,
    apply,
    create,
    data_file,
    define,
    inline,
    inserted,
    managed,
    postgres_server,  # noqa: F401
    postgres_url,  # noqa: F401
    refresh_record,
    write_into_base,
)

from headwater.catalog import Catalog
from headwater.errors import (
    BusyError,
    CheckFailedError,
    DuplicateTableError,
    HasDependentsError,
    HeadwaterError,
    LeaseLostError,
)
from headwater.model.commit import (
    AddBatch,
    Change,
    Commit,
    CreateTable,
    DropTable,
    LeaseToken,
    MoveFrontier,
    ReplaceBase,
    ReplaceBatches,
    SetSchema,
)
from headwater.model.tables import Batch, BatchFormat, TableKind


@contextmanager
def refused(catalog: Catalog, kind: type[Exception], text: str) -> Iterator[None]:
    """Expect an error of exactly `kind` that says `text`, and a catalog that is as before."""
    head, snapshot, history = catalog.head(), catalog.snapshot(), catalog.history()
    held = catalog.leases_of_others("", "nobody")
    manifests = catalog.manifests(snapshot.tables, head.version)
    with pytest.raises(kind) as caught:
        yield
    assert type(caught.value) is kind
    assert text in str(caught.value)
    if isinstance(caught.value, HeadwaterError):
        assert caught.value.hint
    assert (catalog.head(), catalog.snapshot(), catalog.history()) == (head, snapshot, history)
    assert catalog.leases_of_others("", "nobody") == held
    assert catalog.manifests(snapshot.tables, head.version) == manifests


class RefusalContract(CatalogContract):
    def test_moved_table(self, catalog: Catalog) -> None:
        catalog.commit(create("t", "u"))
        apply(catalog, inline("b1", "t"))
        change = inline("b2", "u")
        with refused(catalog, BusyError, 'table "t" was changed by somebody else'):
            apply(catalog, change, unmoved={"u": 1, "t": 1}, history=(refresh_record("u"),))
        apply(catalog, change, unmoved={"u": 1, "t": 2})

    def test_unmoved_table_is_gone(self, catalog: Catalog) -> None:
        catalog.commit(create("t", "u"))
        apply(catalog, DropTable("u"))
        with refused(catalog, BusyError, 'table "u" was dropped by somebody else'):
            apply(catalog, inline("b", "t"), unmoved={"u": 1})

    def test_changed_generation(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        with refused(catalog, BusyError, "was created, changed or dropped by somebody else"):
            apply(catalog, CreateTable(managed("u")), generation=0)
        apply(catalog, CreateTable(managed("u")), generation=1)
        apply(catalog, inline("b", "t"), generation=2)

    def test_taken_name(self, catalog: Catalog) -> None:
        apply(catalog, CreateTable(managed("t", "Orders")))
        with refused(catalog, DuplicateTableError, 'table "Orders" exists already'):
            apply(catalog, CreateTable(managed("u", "ORDERS")))
        with refused(catalog, DuplicateTableError, 'table "x" exists already'):
            apply(catalog, CreateTable(managed("u", "x")), CreateTable(managed("v", "x")))
        apply(catalog, CreateTable(managed("u", "orders2")))

    def test_used_ids(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        apply(catalog, inline("b", "t"))
        with refused(catalog, ValueError, "contradicts"):
            apply(catalog, inline("b", "t"))
        with refused(catalog, ValueError, "contradicts"):
            apply(catalog, DropTable("t"), CreateTable(managed("t", "new")))

    @pytest.mark.parametrize(
        "change",
        [
            inline("b", "gone"),
            SetSchema("gone", SCHEMA),
            DropTable("gone"),
            define("gone"),
            define("t", "gone"),
            MoveFrontier("gone", None, 1),
            ReplaceBase("gone", (), (), 1, 1),
            ReplaceBatches("gone", ("b",)),
            CreateTable(managed("a", parent_id="gone")),
        ],
        ids=lambda change: type(change).__name__,
    )
    def test_touched_table_is_gone(self, catalog: Catalog, change: Change) -> None:
        catalog.commit(create("t", "gone"))
        apply(catalog, DropTable("gone"))
        with refused(catalog, BusyError, 'table "gone" was dropped by somebody else'):
            apply(catalog, change)

    def test_dropped_table_with_readers(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        apply(catalog, CreateTable(managed("s", "sales", kind=TableKind.STREAM)), define("s", "t"))
        with refused(catalog, HasDependentsError, 'Stream table "sales" reads it'):
            apply(catalog, DropTable("t"))
        apply(catalog, DropTable("t"), DropTable("s"))

    def test_rows_for_a_table_dropped_in_the_same_commit(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        with refused(catalog, ValueError, "are dropped in one commit"):
            apply(catalog, inline("b", "t"), DropTable("t"))

    def test_frontier_moved_by_somebody_else(self, catalog: Catalog) -> None:
        apply(catalog, CreateTable(managed("s", kind=TableKind.STREAM)), define("s"))
        apply(catalog, MoveFrontier("s", None, 1))
        for expected in (None, 0):
            with refused(catalog, BusyError, 'stream table "s" was refreshed by somebody else'):
                apply(catalog, inline("b", "s"), MoveFrontier("s", expected, 2))
        apply(catalog, inline("b", "s"), MoveFrontier("s", 1, 2))

    def test_impossible_frontiers(self, catalog: Catalog) -> None:
        apply(catalog, CreateTable(managed("s", kind=TableKind.STREAM)), define("s", frontier=1))
        for new in (0, 3):
            with refused(catalog, ValueError, "a frontier cannot move"):
                apply(catalog, MoveFrontier("s", 1, new))
        apply(catalog, MoveFrontier("s", 1, 2))

    def test_frontier_of_a_table_without_a_query(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        with refused(catalog, BusyError, "was refreshed by somebody else"):
            apply(catalog, MoveFrontier("t", None, 1))

    def test_more_deleted_than_there_is(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        apply(catalog, inline("b", "t", inserts=2))
        with refused(catalog, CheckFailedError, 'table "t" would have -1 rows'):
            apply(catalog, inline("c", "t", inserts=0, deletes=3))
        apply(catalog, inline("c", "t", inserts=0, deletes=2))

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            (AddBatch(Batch("b", "t", BatchFormat.INLINE, 1, 0, 1)), "must have bytes and no files"),
            (AddBatch(Batch("b", "t", BatchFormat.TAIL, 1, 0, 1)), "has rows, but no files"),
            (AddBatch(Batch("b", "t", BatchFormat.TAIL, 0, 0, 1, inline=b"x")), "has inline bytes"),
            (AddBatch(Batch("b", "t", BatchFormat.INSERT, 0, 1, 1), (data_file("f", "t", "w"),)), "inserted rows only"),
            (AddBatch(Batch("b", "t", BatchFormat.TAIL, 1, 0, 1), (data_file("f", "u", "w"),)), "belongs to table u"),
        ],
    )
    def test_batch_that_is_not_where_it_says(self, catalog: Catalog, change: AddBatch, text: str) -> None:
        catalog.commit(create("t", "u"))
        write = catalog.open_write("test", 60.0, ())
        files = tuple(data_file(file.id, file.table_id, write) for file in change.files)
        with refused(catalog, ValueError, text):
            apply(catalog, AddBatch(change.batch, files), write_ids=(write,))

    def test_into_a_base_that_lags(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        apply(catalog, inline("b", "t"))
        with refused(catalog, ValueError, "cannot go into it before the changes between are folded"):
            write_into_base(catalog, "c", "t")
        apply(catalog, ReplaceBase("t", (), (), 2, 1))
        write_into_base(catalog, "c", "t")

    def test_into_base_with_change_columns(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        with refused(catalog, ValueError, "cannot be base files"):
            apply(catalog, inline("b", "t", into_base=True))

    def test_rows_of_one_commit_are_in_the_base_or_not(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        write = catalog.open_write("test", 60.0, ())
        whole = inserted("b", "t", data_file("f", "t", write), into_base=True)
        with refused(catalog, ValueError, "all, or none of them"):
            apply(catalog, whole, inline("c", "t"), write_ids=(write,))
        with refused(catalog, ValueError, "before the changes between are folded"):
            apply(catalog, inline("c", "t"), whole, write_ids=(write,))

    def test_two_folds_at_once(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        apply(catalog, inline("b", "t"))
        fold = ReplaceBase("t", (), (), 2, 1)
        apply(catalog, fold)
        with refused(catalog, BusyError, 'the base of table "t" was rewritten by somebody else'):
            apply(catalog, fold)

    @pytest.mark.parametrize("base_version", [0, 2])
    def test_impossible_base_versions(self, catalog: Catalog, base_version: int) -> None:
        catalog.commit(create("t"))
        with refused(catalog, ValueError, "a base cannot go from version 1"):
            apply(catalog, ReplaceBase("t", (), (), base_version, 1))
        apply(catalog, ReplaceBase("t", (), (), 1, 1))

    def test_base_file_is_gone(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        write_into_base(catalog, "b", "t")
        write_into_base(catalog, "c", "t")
        apply(catalog, ReplaceBase("t", ("f-b",), (), 3, 3))
        for files in (("f-b", "f-c"), ("f-b",), ("unknown",)):
            with refused(catalog, BusyError, 'table "t" was rewritten by somebody else'):
                apply(catalog, ReplaceBase("t", files, (), 3, 3))
        apply(catalog, ReplaceBase("t", ("f-c",), (), 3, 3))

    def test_batch_is_gone(self, catalog: Catalog) -> None:
        catalog.commit(create("t", "u"))
        apply(catalog, inline("b", "t"), inline("c", "t"), inline("d", "u"))
        apply(catalog, ReplaceBatches("t", ("b",)))
        for batches in (("b", "c"), ("c", "d"), ("c", "unknown")):
            with refused(catalog, BusyError, 'table "t" was rewritten by somebody else'):
                apply(catalog, ReplaceBatches("t", batches))
        apply(catalog, ReplaceBatches("t", ("c",)))

    def test_merge_of_nothing_or_of_other_versions(self, catalog: Catalog) -> None:
        catalog.commit(create("t", "u"))
        apply(catalog, inline("b", "t"))

        def merged(table_id: str = "t", **versions: Any) -> Batch:
            return Batch("m", table_id, BatchFormat.INLINE, 1, 0, 1, inline=b"m", **versions)

        for change, text in (
            (ReplaceBatches("t", ()), "at least one batch"),
            (ReplaceBatches("t", ("b",), None, (data_file("f", "t", "w"),)), "belong to none of its writes"),
            (ReplaceBatches("t", ("b",), merged("u")), "belongs to table u"),
            (ReplaceBatches("t", ("b",), merged(first_version=2, last_version=3)), "those it replaces 2 to 2"),
        ):
            with refused(catalog, BusyError if "writes" in text else ValueError, text):
                apply(catalog, change)
        apply(catalog, ReplaceBatches("t", ("b",), merged(first_version=2, last_version=2)))

    def test_lost_lease(self, catalog: Catalog, clock: ManualClock) -> None:
        catalog.commit(create("t"))
        token = catalog.acquire("refresh/t", "worker 1", 10.0)
        assert token is not None
        change = inline("b", "t")
        for wrong in (
            LeaseToken("refresh/t", "worker 2", token.number),
            LeaseToken("refresh/t", "worker 1", token.number + 1),
            LeaseToken("refresh/u", "worker 1", 1),
        ):
            with refused(catalog, LeaseLostError, "was lost"):
                apply(catalog, change, leases=(wrong,))
        clock.advance(10.0)
        with refused(catalog, LeaseLostError, 'the lease "refresh/t" expired'):
            apply(catalog, change, leases=(token,))
        assert catalog.heartbeat(token, 10.0)
        apply(catalog, change, leases=(token,))
        catalog.release(token)
        with refused(catalog, LeaseLostError, "was lost"):
            apply(catalog, inline("c", "t"), leases=(token,))

    def test_lease_taken_over(self, catalog: Catalog, clock: ManualClock) -> None:
        catalog.commit(create("t"))
        old = catalog.acquire("l", "worker 1", 10.0)
        clock.advance(11.0)
        new = catalog.acquire("l", "worker 2", 10.0)
        assert old is not None
        assert new is not None
        with refused(catalog, LeaseLostError, 'the lease "l" was lost'):
            apply(catalog, inline("b", "t"), leases=(old,))
        apply(catalog, inline("b", "t"), leases=(new,))

    def test_refused_commit_keeps_the_leases_that_it_would_give_back(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        tokens = catalog.acquire_all(("l", "m"), "a", 10.0)
        assert not isinstance(tokens, str)
        theirs = catalog.acquire("n", "b", 10.0)
        assert theirs is not None
        change = inline("b", "t")
        with refused(catalog, BusyError, "was changed by somebody else"):
            apply(catalog, change, unmoved={"t": 0}, leases=tuple(tokens), releases=True)
        with refused(catalog, CheckFailedError, "would have -1 rows"):
            apply(catalog, inline("b", "t", inserts=0, deletes=1), leases=tuple(tokens), releases=True)
        wrong = LeaseToken("n", "a", theirs.number)
        with refused(catalog, LeaseLostError, 'the lease "n" was lost'):
            apply(catalog, change, leases=(*tokens, wrong), releases=True)
        assert catalog.heartbeat_all(tokens, 10.0)
        apply(catalog, change, leases=tuple(tokens), releases=True)
        assert catalog.leases_of_others("", "nobody") == {"n": "b"}
        with refused(catalog, LeaseLostError, "was lost"):
            apply(catalog, inline("c", "t"), leases=tuple(tokens), releases=True)

    def test_write_that_is_not_open(self, catalog: Catalog, clock: ManualClock) -> None:
        catalog.commit(create("t"))
        write = catalog.open_write("test", 10.0, ())
        change = inserted("b", "t", data_file("f", "t", write))
        with refused(catalog, LeaseLostError, "no longer open"):
            apply(catalog, change, write_ids=(write, "unknown"))
        clock.advance(11.0)
        assert catalog.take_write(write)
        with refused(catalog, LeaseLostError, "no longer open"):
            apply(catalog, change, write_ids=(write,))
        late = catalog.open_write("test", 10.0, ())
        clock.advance(11.0)  # expired, but nobody took it
        apply(catalog, inserted("b", "t", data_file("f", "t", late)), write_ids=(late,))
        with refused(catalog, LeaseLostError, "no longer open"):
            apply(catalog, inserted("c", "t", data_file("g", "t", late)), write_ids=(late,))

    def test_file_without_a_write(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        write = catalog.open_write("test", 10.0, ())
        with refused(catalog, BusyError, "belong to none of its writes"):
            apply(catalog, inserted("b", "t", data_file("f", "t", write)))
        apply(catalog, inserted("b", "t", data_file("f", "t", write)), write_ids=(write,))

    def test_empty_commit_is_a_version(self, catalog: Catalog) -> None:
        assert catalog.commit(Commit(())) == 1


class TestRefusalsOnSqlite(OnSqlite, RefusalContract):
    pass


class TestRefusalsOnPostgres(OnPostgres, RefusalContract):
    pass
