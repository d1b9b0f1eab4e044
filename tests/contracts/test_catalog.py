"""What a catalog does, alike on SQLite and PostgreSQL: reading and committing."""

from __future__ import annotations

from dataclasses import replace

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
    statements,
    write_into_base,
)

from headwater.catalog import Catalog, CatalogExistsError
from headwater.errors import BusyError, ClosedError, UnknownVersionError
from headwater.model.commit import (
    AddBatch,
    Commit,
    CreateTable,
    DropTable,
    LeaseToken,
    MoveFrontier,
    ReplaceBase,
    ReplaceBatches,
    SetSchema,
)
from headwater.model.control import Gate, noted
from headwater.model.options import (
    DEFAULT_OPTIONS,
    OPTION_NAMES,
    Consistency,
    FuseMode,
    GroupPolicy,
    StreamOptions,
    Tier,
)
from headwater.model.reports import Unseen
from headwater.model.schema import Field
from headwater.model.tables import Batch, BatchFormat, FileRole, RefreshAction, TableKind


class ReadingContract(CatalogContract):
    def test_new_catalog_is_empty(self, catalog: Catalog) -> None:
        head = catalog.head()
        assert (head.version, head.generation) == (0, 0)
        snapshot = catalog.snapshot()
        assert (snapshot.version, dict(snapshot.tables), dict(snapshot.streams)) == (0, {}, {})
        assert catalog.location == "/warehouse"
        assert len(catalog.warehouse_id) == 32

    def test_reopened_catalog_is_the_same(self, catalog: Catalog, url: str) -> None:
        apply(catalog, CreateTable(managed("t", "Orders")))
        with Catalog.open(url) as again:
            assert again.warehouse_id == catalog.warehouse_id
            assert again.location == "/warehouse"
            assert again.snapshot() == catalog.snapshot()

    def test_second_creation_is_refused(self, catalog: Catalog, url: str) -> None:
        with pytest.raises(CatalogExistsError):
            Catalog.create(url, location="elsewhere")
        with Catalog.open(url) as found:
            assert found.location == "/warehouse"

    def test_closed_catalog_says_so(self, catalog: Catalog) -> None:
        catalog.close()
        for call in (catalog.head, catalog.snapshot, catalog.now, lambda: catalog.commit(create("t"))):
            with pytest.raises(ClosedError):
                call()

    def test_now_follows_the_clock(self, catalog: Catalog, clock: ManualClock) -> None:
        clock.advance(12.5)
        assert catalog.now() == clock.time

    def test_now_without_a_clock_is_the_present(self, catalog: Catalog, url: str) -> None:
        with Catalog.open(url) as other:
            first = other.now()
            assert first > 1.7e9
            assert other.now() >= first

    def test_names_ignore_letter_case(self, catalog: Catalog) -> None:
        apply(catalog, CreateTable(managed("t", "Größe")))
        snapshot = catalog.snapshot()
        assert snapshot.table("grösse") is snapshot.tables["t"]
        assert snapshot.table("GRÖSSE") is snapshot.tables["t"]
        assert snapshot.table("grosse") is None

    def test_unchanged_snapshot_is_the_same_object(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        first = catalog.snapshot()
        assert catalog.snapshot() is first
        assert catalog.snapshot(1) is first
        apply(catalog, inline("b", "t"))
        assert catalog.snapshot() is not first
        assert catalog.snapshot(1) == first

    def test_snapshot_sees_what_another_process_notes(self, catalog: Catalog, url: str) -> None:
        apply(catalog, CreateTable(managed("s", kind=TableKind.STREAM)), define("s"))
        assert catalog.snapshot().streams["s"].status == "ACTIVE"
        with Catalog.open(url) as other:
            other.set_stream_status("s", "ERROR", "division by zero")
            other.set_costs("s", 120.0, None)
        stream = catalog.snapshot().streams["s"]
        assert (stream.status, stream.last_error, stream.full_ms, stream.diff_ms) == (
            "ERROR",
            "division by zero",
            120.0,
            None,
        )

    def test_notes_on_a_dropped_table_are_ignored(self, catalog: Catalog) -> None:
        catalog.set_stream_status("gone", "ERROR", None)
        catalog.set_costs("gone", 1.0, 2.0)
        assert dict(catalog.snapshot().streams) == {}

    def test_older_snapshots_are_as_they_were(self, catalog: Catalog) -> None:
        kept = [catalog.snapshot()]
        wider = SCHEMA.with_field(Field("amount", "DECIMAL(12,2)"))
        for changes in (
            [CreateTable(managed("t", next_row_id=1))],
            [inline("b1", "t", inserts=5, hash_change=-7, next_row_id=6)],
            [SetSchema("t", wider)],
            [CreateTable(managed("u"))],
            [inline("b2", "t", inserts=0, deletes=2, hash_change=1 << 63)],
            [DropTable("u")],
            [DropTable("t"), CreateTable(managed("t2", "t"))],
        ):
            apply(catalog, *changes)
            kept.append(catalog.snapshot())
        for snapshot in kept:
            seen = catalog.snapshot(snapshot.version)
            assert (seen.version, seen.tables, seen.changed) == (snapshot.version, snapshot.tables, snapshot.changed)
        assert kept[2].tables["t"].hash == 2**64 - 7
        assert kept[2].tables["t"].next_row_id == 6
        assert kept[3].tables["t"].schema == wider
        assert kept[2].tables["t"].schema == SCHEMA
        assert kept[5].tables["t"].row_count == 3
        assert kept[5].tables["t"].hash == (2**63 - 7) % 2**64
        assert set(kept[6].tables) == {"t"}
        assert set(kept[7].tables) == {"t2"}

    @pytest.mark.parametrize("version", [-1, 2])
    def test_versions_outside_are_refused(self, catalog: Catalog, version: int) -> None:
        catalog.commit(create("t"))
        assert catalog.snapshot(0).version == 0
        assert catalog.manifest("t", 1).files == ()
        for read in (
            lambda: catalog.snapshot(version),
            lambda: catalog.manifest("t", version),
            lambda: catalog.changed_since([("t", 0)], version),
        ):
            with pytest.raises(UnknownVersionError):
                read()

    def test_manifest_without_entries_is_empty(self, catalog: Catalog) -> None:
        assert catalog.manifests([], 0) == {}
        manifest = catalog.manifest("unknown", 0)
        assert (manifest.files, manifest.batches, dict(manifest.batch_files)) == ((), (), {})

    def test_manifests_of_all_versions(self, catalog: Catalog) -> None:
        catalog.commit(create("t", "u"))
        write_into_base(catalog, "b1", "t")
        write_into_base(catalog, "b2", "t")
        apply(catalog, inline("b3", "t"), inline("b4", "u"))
        kept = {version: catalog.manifests(["t", "u"], version) for version in range(5)}
        write = catalog.open_write("fold", 60.0, ())
        fold = ReplaceBase("t", ("f-b1", "f-b2"), (data_file("g", "t", write),), 4, 3)
        apply(catalog, fold, write_ids=(write,))
        apply(catalog, ReplaceBatches("t", ("b1", "b3")))
        for version, manifests in kept.items():
            assert catalog.manifests(["t", "u"], version) == manifests
        assert [[f.id for f in kept[v]["t"].files] for v in range(5)] == [
            [],
            [],
            ["f-b1"],
            ["f-b1", "f-b2"],
            ["f-b1", "f-b2"],
        ]
        assert [batch.id for batch in kept[4]["t"].batches] == ["b1", "b2", "b3"]
        assert [batch.id for batch in kept[4]["u"].batches] == ["b4"]
        newest = catalog.manifest("t", 6)
        assert [file.id for file in newest.files] == ["g"]
        assert [batch.id for batch in newest.batches] == ["b2"]
        assert {batch: [file.path for file in files] for batch, files in newest.batch_files.items()} == {
            "b2": ["t/f-b2.parquet"]
        }
        assert all(file.role is FileRole.TAIL for files in newest.batch_files.values() for file in files)

    def test_inline_bytes(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        data = bytes(range(256)) * 20
        batch = Batch("b", "t", BatchFormat.INLINE, 1, 0, len(data), inline=data)
        apply(catalog, AddBatch(batch), inline("c", "t"))
        assert catalog.inline(["b", "c", "unknown"]) == {"b": data, "c": b"c"}
        assert catalog.inline([]) == {}
        assert [batch.inline for batch in catalog.manifest("t", 2).batches] == [None, None]

    def test_changed_since_bounds(self, catalog: Catalog) -> None:
        catalog.commit(create("t", "u", "v"))  # 1
        apply(catalog, inline("b2", "t"))  # 2
        apply(catalog, inline("b3", "u"))  # 3
        apply(catalog, SetSchema("v", SCHEMA.with_field(Field("x", "INT"))))  # 4: no rows changed
        apply(catalog, inline("b5", "t"))  # 5
        assert catalog.changed_since([("t", 0), ("u", 0), ("v", 0)], 5) == {"t", "u"}
        assert catalog.changed_since([("t", 1)], 2) == {"t"}
        assert catalog.changed_since([("t", 2)], 4) == set()
        assert catalog.changed_since([("t", 2)], 5) == {"t"}
        assert catalog.changed_since([("t", 5), ("u", 2)], 5) == {"u"}
        assert catalog.changed_since([("t", 1)], 1) == set()
        assert catalog.changed_since([], 5) == set()
        catalog.snapshot()  # from here on version 5 needs no query; the answers stay
        assert catalog.changed_since([("t", 4), ("u", 3), ("unknown", 0)], 5) == {"t"}

    def test_changed_since_survives_merged_and_forgotten_batches(self, catalog: Catalog, clock: ManualClock) -> None:
        catalog.commit(create("t"))
        apply(catalog, inline("b2", "t"))
        apply(catalog, inline("b3", "t"))
        apply(catalog, ReplaceBatches("t", ("b2", "b3")))
        clock.advance(10)
        assert catalog.forget_batches(4, clock.time) == 2
        assert catalog.changed_since([("t", 2)], 4) == {"t"}
        assert catalog.changed_since([("t", 3)], 4) == set()

    def test_waiting_rows(self, catalog: Catalog) -> None:
        catalog.commit(create("t", "u"))  # 1
        apply(catalog, inline("b2", "t", inserts=4))  # 2
        apply(catalog, inline("b3", "t", inserts=0, deletes=3), inline("c3", "u"))  # 3
        apply(catalog, inline("b4", "t", inserts=5, deletes=1))  # 4
        pairs = [("t", 0), ("t", 2), ("t", 3), ("t", 4), ("u", 2), ("u", 3), ("unknown", 0), ("t", 2)]
        assert catalog.waiting_rows(pairs) == {
            ("t", 0): 13,
            ("t", 2): 9,
            ("t", 3): 6,
            ("t", 4): 0,
            ("u", 2): 1,
            ("u", 3): 0,
            ("unknown", 0): 0,
        }
        assert catalog.waiting_rows([("u", 2)]) == {("u", 2): 1}
        assert catalog.waiting_rows([]) == {}
        merged = Batch("m", "t", BatchFormat.INLINE, 2, 0, 1, merged=True, inline=b"m")
        apply(catalog, ReplaceBatches("t", ("b2", "b3"), merged))
        assert catalog.waiting_rows([("t", 2), ("t", 3)]) == {("t", 2): 8, ("t", 3): 6}, "a merged batch counts whole"
        apply(catalog, ReplaceBatches("t", ("m", "b4")))
        assert catalog.waiting_rows([("t", 0)]) == {("t", 0): 0}

    def test_waiting_rows_cost_one_query(self, catalog: Catalog) -> None:
        catalog.commit(create(*(f"t{number}" for number in range(30))))
        apply(catalog, *(inline(f"b{number}", f"t{number}") for number in range(30)))
        with statements(catalog) as asked:
            found = catalog.waiting_rows([(f"t{number}", version) for number in range(30) for version in (0, 1, 2)])
        assert len(asked) == 1
        assert sum(found.values()) == 60

    def test_oldest_unseen_change(self, catalog: Catalog, clock: ManualClock) -> None:
        catalog.commit(create("t", "u"))  # 1
        apply(catalog, CreateTable(managed("s", kind=TableKind.STREAM)), define("s", "t", "u"))  # 2
        apply(catalog, inline("b3", "t"))  # 3
        assert catalog.oldest_unseen() == {}, "what was never populated shows nothing yet"
        apply(catalog, MoveFrontier("s", None, 3))  # 4
        assert catalog.oldest_unseen() == {}
        clock.advance(100.0)
        apply(catalog, inline("b5", "t"))  # 5
        clock.advance(10.0)
        apply(catalog, inline("b6", "t"), inline("c6", "u"))  # 6
        apply(catalog, SetSchema("u", SCHEMA.with_field(Field("x", "INT"))))  # 7: no rows changed
        clock.advance(5.0)
        assert catalog.oldest_unseen() == {("s", "t"): Unseen(5, 15.0), ("s", "u"): Unseen(6, 5.0)}
        apply(catalog, MoveFrontier("s", 3, 5, {"u": 7}))  # 8
        assert catalog.oldest_unseen() == {("s", "t"): Unseen(6, 5.0)}, "each source counts from where it was read"
        apply(catalog, MoveFrontier("s", 5, 8))  # 9
        with statements(catalog) as asked:
            assert catalog.oldest_unseen() == {}
        assert len(asked) == 1

    def test_history_is_newest_first(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        version = catalog.commit(Commit((inline("b", "t"),), history=(refresh_record("t"), refresh_record("u"))))
        failed = refresh_record("t", status="ERROR", error="no such column", action=RefreshAction.FULL)
        catalog.record(failed)
        lines = catalog.history("t", 10)
        assert [line.version for line in lines] == [None, version]
        assert lines[0].id is not None
        assert replace(lines[0], id=None) == failed
        assert replace(lines[1], id=None) == refresh_record("t", version=version)
        assert [line.table_id for line in catalog.history(limit=2)] == ["t", "u"]

    def test_version_at_a_moment(self, catalog: Catalog, clock: ManualClock) -> None:
        start = clock.time
        catalog.commit(create("t"))
        clock.advance(10)
        apply(catalog, inline("b", "t"))
        assert [catalog.version_at(start + seconds) for seconds in (-1, 0, 9, 10, 99)] == [0, 1, 1, 2, 2]

    def test_templates(self, catalog: Catalog) -> None:
        assert catalog.template_get("k") is None
        catalog.template_put("k", "SELECT 'ä'", 1)
        catalog.template_put("k", "SELECT 2", 2)
        catalog.template_put("k", "SELECT 1", 1)
        catalog.template_put("l", "SELECT 3", 2)
        assert catalog.template_get("k") == "SELECT 2"
        assert catalog.templates_clear() == 2
        assert catalog.template_get("k") is None


class CommittingContract(CatalogContract):
    def test_created_table(self, catalog: Catalog) -> None:
        version = apply(catalog, CreateTable(managed("t", "Orders", next_row_id=5)))
        table = catalog.snapshot().tables["t"]
        assert version == 1
        assert (table.name, table.created, table.moved, table.base_version, table.next_row_id) == ("Orders", 1, 1, 1, 5)
        assert (table.row_count, table.hash, table.dropped, table.schema) == (0, 0, None, SCHEMA)

    def test_generation_moves_with_definitions_only(self, catalog: Catalog) -> None:
        seen = []
        for changes in (
            [CreateTable(managed("t"))],
            [inline("b", "t")],
            [SetSchema("t", SCHEMA.with_field(Field("x", "INT")))],
            [CreateTable(managed("s", kind=TableKind.STREAM)), define("s", "t")],
            [define("s", "t")],
            [MoveFrontier("s", None, 3)],
            [DropTable("s"), DropTable("t")],
            [],
        ):
            apply(catalog, *changes)
            seen.append(catalog.head().generation)
        assert seen == [1, 1, 2, 3, 4, 4, 5, 5]
        assert catalog.head().version == 8

    def test_batch_moves_the_table(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        version = apply(catalog, inline("b", "t", inserts=4, deletes=1, hash_change=-1))
        table = catalog.snapshot().tables["t"]
        assert (table.moved, table.row_count, table.hash, table.base_version) == (version, 3, 2**64 - 1, 1)
        (batch,) = catalog.manifest("t", version).batches
        assert (batch.first_version, batch.last_version, batch.added, batch.inserts) == (2, 2, 2, 4)

    def test_hash_stays_unsigned(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        expected = 0
        for number, change in enumerate((2**63, 2**63 - 1, 5, -(2**64), -4, 2**64 + 3)):
            apply(catalog, inline(f"b{number}", "t", hash_change=change))
            expected = (expected + change) % 2**64
            assert catalog.snapshot().tables["t"].hash == expected

    def test_batch_into_base(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        version = write_into_base(catalog, "b", "t")
        table = catalog.snapshot().tables["t"]
        assert (table.base_version, table.row_count) == (version, 10)
        manifest = catalog.manifest("t", version)
        (base,) = manifest.files
        (tail,) = manifest.batch_files["b"]
        assert (base.role, tail.role, base.path) == (FileRole.BASE, FileRole.TAIL, tail.path)

    def test_rows_of_a_new_table_in_the_same_commit(self, catalog: Catalog) -> None:
        apply(catalog, CreateTable(managed("t")), inline("b", "t"))
        assert catalog.snapshot().tables["t"].base_version == 0, "the base holds nothing of version 1"
        write = catalog.open_write("test", 60.0, ())
        load = inserted("c", "u", data_file("f", "u", write), into_base=True)
        apply(catalog, CreateTable(managed("u")), load, write_ids=(write,))
        assert catalog.snapshot().tables["u"].base_version == 2

    def test_fold_keeps_contents_and_moved(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        apply(catalog, inline("b", "t", hash_change=9))
        before = catalog.snapshot().tables["t"]
        write = catalog.open_write("fold", 60.0, ())
        apply(catalog, ReplaceBase("t", (), (data_file("f", "t", write),), 2, 1), write_ids=(write,))
        assert catalog.snapshot().tables["t"] == replace(before, base_version=2)

    def test_fold_adopts_the_file_of_a_batch(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        apply(catalog, inline("b1", "t"))
        write = catalog.open_write("test", 60.0, ())
        file = data_file("f", "t", write)
        apply(catalog, inserted("b2", "t", file), write_ids=(write,))
        fold = catalog.open_write("fold", 60.0, ())
        new = ReplaceBase("t", (), (file, data_file("g", "t", fold)), 3, 1)
        version = apply(catalog, new, write_ids=(fold,))
        manifest = catalog.manifest("t", version)
        assert [file.id for file in manifest.files] == ["f", "g"]
        assert [file.id for file in manifest.batch_files["b2"]] == ["f"]

    def test_merge_takes_the_versions_of_what_it_replaces(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        for number in (2, 3, 4):
            apply(catalog, inline(f"b{number}", "t"))
        before = catalog.snapshot().tables["t"]
        merged = Batch("m", "t", BatchFormat.INLINE, 3, 0, 1, merged=True, inline=b"m")
        version = apply(catalog, ReplaceBatches("t", ("b2", "b3"), merged))
        assert catalog.snapshot().tables["t"] == before
        batches = catalog.manifest("t", version).batches
        assert [(b.id, b.first_version, b.last_version, b.added, b.merged) for b in batches] == [
            ("m", 2, 3, 5, True),
            ("b4", 4, 4, 4, False),
        ]

    def test_drop_takes_auxiliary_tables_along(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        aux = CreateTable(managed("a", "s$aux_1", kind=TableKind.AUX, parent_id="s"))
        apply(catalog, CreateTable(managed("s", kind=TableKind.STREAM)), aux, define("s", "t"))
        apply(catalog, inline("b", "a"), inline("c", "s"))
        snapshot = catalog.snapshot()
        assert snapshot.tables["a"].parent_id == "s"
        assert dict(snapshot.parts) == dict(catalog.snapshot(2).parts) == {"s": ("a",)}
        assert dict(catalog.snapshot(1).parts) == {}
        assert dict(snapshot.sources) == {"s": ("t",)}
        assert dict(snapshot.dependents) == {"t": ("s",)}
        version = apply(catalog, DropTable("s"))
        after = catalog.snapshot()
        assert (set(after.tables), dict(after.streams), dict(after.sources), dict(after.dependents)) == (
            {"t"},
            {},
            {},
            {},
        )
        assert dict(after.parts) == {}
        assert catalog.manifest("a", version).batches == ()
        assert [batch.id for batch in catalog.manifest("a", version - 1).batches] == ["b"]

    def test_name_is_free_after_drop_even_in_one_commit(self, catalog: Catalog) -> None:
        apply(catalog, CreateTable(managed("t", "Orders")))
        apply(catalog, DropTable("t"), CreateTable(managed("u", "ORDERS")))
        assert catalog.snapshot().table("orders") == catalog.snapshot().tables["u"]

    def test_stream_definition_and_frontier(self, catalog: Catalog) -> None:
        catalog.commit(create("t", "u"))
        apply(catalog, CreateTable(managed("s", kind=TableKind.STREAM)), define("s", "u", "t", "u"))
        stream = catalog.snapshot().streams["s"]
        assert (stream.frontier, stream.status, stream.schedule) == (None, "ACTIVE", "1s")
        assert catalog.snapshot().sources["s"] == ("u", "t")
        moved = catalog.snapshot().tables["s"].moved
        apply(catalog, MoveFrontier("s", None, 2))
        apply(catalog, MoveFrontier("s", 2, 3))
        assert catalog.snapshot().streams["s"].frontier == 3
        assert catalog.snapshot().tables["s"].moved == moved

    def test_new_query_starts_afresh_and_the_old_one_does_not(self, catalog: Catalog) -> None:
        apply(catalog, CreateTable(managed("s", kind=TableKind.STREAM)), define("s"))
        catalog.set_stream_status("s", "PAUSED", "by hand")
        catalog.set_costs("s", 5.0, 1.0)
        apply(catalog, MoveFrontier("s", None, 1))
        with pytest.raises(BusyError, match="was refreshed by somebody else"):
            apply(catalog, replace(define("s", frontier=0), schedule="1h"))
        apply(catalog, replace(define("s", frontier=1), schedule="1m"))
        stream = catalog.snapshot().streams["s"]
        assert (stream.schedule, stream.status, stream.last_error, stream.full_ms) == ("1m", "PAUSED", "by hand", 5.0)
        apply(catalog, MoveFrontier("s", 1, 2, began=5.0, ms=6.0))
        assert catalog.snapshot().streams["s"].refreshed_at == 5.0
        apply(catalog, define("s", query="SELECT 2"))
        stream = catalog.snapshot().streams["s"]
        assert (stream.refreshed_at, stream.refresh_ms) == (None, None)
        assert (stream.status, stream.last_error, stream.full_ms, stream.frontier) == ("ACTIVE", None, None, None)

    def test_options_of_a_stream_table(self, catalog: Catalog, url: str) -> None:
        options = StreamOptions(
            tier=Tier.COLD,
            sla_seconds=30.5,
            fuse_mode=FuseMode.ON,
            fuse_ceiling=10**12,
            fuse_sensitivity=3,
            diamond_consistency=Consistency.NONE,
            diamond_schedule_policy=GroupPolicy.SLOWEST,
            timeout_seconds=0.25,
        )
        assert all(getattr(options, name) != getattr(DEFAULT_OPTIONS, name) for name in OPTION_NAMES)
        apply(catalog, CreateTable(managed("s", kind=TableKind.STREAM)), replace(define("s"), options=options))
        apply(catalog, CreateTable(managed("r", kind=TableKind.STREAM)), define("r"))
        apply(catalog, MoveFrontier("s", None, 1))
        with Catalog.open(url) as other:
            for snapshot in (catalog.snapshot(), other.snapshot()):
                assert snapshot.streams["s"].options == options
                assert snapshot.streams["r"].options == DEFAULT_OPTIONS
            apply(catalog, replace(define("s", frontier=1), options=replace(options, tier=Tier.FROZEN)))
            for snapshot in (catalog.snapshot(), other.snapshot()):
                assert snapshot.streams["s"].options == replace(options, tier=Tier.FROZEN)
            apply(catalog, define("s", frontier=1))
            assert other.snapshot().streams["s"].options == DEFAULT_OPTIONS, "a definition is replaced whole"

    def test_options_of_a_newer_process_are_left_out(self, catalog: Catalog, url: str) -> None:
        apply(catalog, CreateTable(managed("s", kind=TableKind.STREAM)), define("s"))
        text = 'UPDATE streams SET options = \'{"tier": "cold", "colour": "red"}\''
        catalog._database.write(lambda connection: connection.exec_driver_sql(text).rowcount)
        with Catalog.open(url) as other:
            assert other.snapshot().streams["s"].options == StreamOptions(tier=Tier.COLD)

    def test_last_refresh_of_a_stream_table(self, catalog: Catalog, url: str) -> None:
        def last(catalog: Catalog) -> tuple[float | None, float | None]:
            stream = catalog.snapshot().streams["s"]
            return stream.refreshed_at, stream.refresh_ms

        apply(catalog, CreateTable(managed("s", kind=TableKind.STREAM)), define("s"))
        with Catalog.open(url) as other:
            assert last(catalog) == last(other) == (None, None)
            apply(catalog, MoveFrontier("s", None, 1, began=1000.5, ms=12.25))
            assert last(catalog) == last(other) == (1000.5, 12.25)
            with pytest.raises(BusyError):
                apply(catalog, MoveFrontier("s", None, 2, began=2000.0, ms=1.0))
            catalog.set_stream_status("s", "ERROR", "by hand")
            apply(catalog, replace(define("s", frontier=1), schedule="1h"))
            assert last(catalog) == last(other) == (1000.5, 12.25)
            apply(catalog, MoveFrontier("s", 1, 2, began=3000.0, ms=2.0))
            assert last(catalog) == last(other) == (3000.0, 2.0)
        with Catalog.open(url) as other:
            assert last(other) == (3000.0, 2.0)

    def test_commit_gives_leases_back(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        tokens = catalog.acquire_all(("l", "m"), "a", 10.0)
        assert not isinstance(tokens, str)
        apply(catalog, inline("b", "t"), leases=tuple(tokens))
        assert catalog.acquire_all(("l", "m"), "b", 10.0) == "l", "not unless it says so"
        apply(catalog, inline("c", "t"), leases=tuple(tokens[:1]), releases=True)
        assert catalog.leases_of_others("", "b") == {"m": "a"}, "those that it names"
        assert not catalog.heartbeat(tokens[0], 10.0)
        apply(catalog, inline("d", "t"), leases=tuple(tokens[1:]), releases=True)
        assert catalog.acquire_all(("l", "m"), "b", 10.0) == [LeaseToken("l", "b", 2), LeaseToken("m", "b", 2)]
        apply(catalog, inline("e", "t"), releases=True)
        assert catalog.leases_of_others("", "a") == {"l": "b", "m": "b"}

    def test_listeners_hear_of_commits(self, catalog: Catalog, url: str) -> None:
        heard: list[str] = []
        end_first = catalog.listen(lambda: heard.append(f"first {catalog.head().version}"))
        catalog.listen(lambda: heard.append("second"))
        catalog.commit(create("t"))
        assert heard == ["first 1", "second"], "after the commit, which they can see"
        with pytest.raises(BusyError):
            apply(catalog, inline("b", "t"), unmoved={"t": 0})
        catalog.note([noted("t", Gate(1.0))])
        with Catalog.open(url) as other:
            apply(other, inline("b", "t"))
        assert heard == ["first 1", "second"], "nothing was committed through this object"
        end_first()
        apply(catalog, inline("c", "t"))
        assert heard == ["first 1", "second", "second"]

    def test_many_files_in_one_commit(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        write = catalog.open_write("load", 60.0, ())
        files = tuple(data_file(f"f{number:05d}", "t", write) for number in range(10_100))
        version = apply(catalog, inserted("b", "t", *files, into_base=True), write_ids=(write,))
        manifest = catalog.manifest("t", version)
        assert [file.id for file in manifest.files] == [file.id for file in files]
        assert len(manifest.batch_files["b"]) == 10_100
        fold = catalog.open_write("fold", 60.0, ())
        all_ids = tuple(file.id for file in files)
        apply(catalog, ReplaceBase("t", all_ids, (data_file("g", "t", fold),), 2, 2), write_ids=(fold,))
        assert [file.id for file in catalog.manifest("t", 3).files] == ["g"]


class TestReadingOnSqlite(OnSqlite, ReadingContract):
    pass


class TestReadingOnPostgres(OnPostgres, ReadingContract):
    pass


class TestCommittingOnSqlite(OnSqlite, CommittingContract):
    pass


class TestCommittingOnPostgres(OnPostgres, CommittingContract):
    pass
