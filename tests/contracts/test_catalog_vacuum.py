"""What vacuum may delete, and how far exports have come."""

from __future__ import annotations

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
    managed,
    postgres_server,  # noqa: F401
    postgres_url,  # noqa: F401
    refresh_record,
    write_into_base,
)

from headwater.catalog import Catalog
from headwater.errors import UnknownVersionError
from headwater.model.commit import CreateTable, DropTable, ReplaceBase, ReplaceBatches, SetSchema
from headwater.model.schema import Field
from headwater.model.tables import TableKind


def fold(catalog: Catalog, remove: tuple[str, ...], new: str) -> int:
    """Replace base files of table "t" by one, without moving the base."""
    base_version = catalog.snapshot().tables["t"].base_version
    write = catalog.open_write("fold", 60.0, ())
    change = ReplaceBase("t", remove, (data_file(new, "t", write),), base_version, base_version)
    return apply(catalog, change, write_ids=(write,))


def removable(catalog: Catalog, keep_from: int, before: float) -> list[str]:
    return [file.path for file in catalog.removable_files(keep_from, before)]


class VacuumContract(CatalogContract):
    def test_file_goes_when_no_entry_and_no_kept_version_needs_it(self, catalog: Catalog, clock: ManualClock) -> None:
        catalog.commit(create("t"))
        write_into_base(catalog, "b", "t")  # version 2: an entry in the base, one in the batch
        assert fold(catalog, ("f-b",), "g") == 3
        clock.advance(10)
        assert removable(catalog, 3, clock.time) == [], "the batch still names it"
        assert apply(catalog, ReplaceBatches("t", ("b",))) == 4
        clock.advance(10)
        assert removable(catalog, 3, clock.time) == [], "version 3 sees the batch"
        assert removable(catalog, 4, clock.time - 10) == [], "the grace has not passed"
        assert removable(catalog, 4, clock.time) == ["t/f-b.parquet"]
        (file,) = catalog.removable_files(4, clock.time)
        assert catalog.forget_batches(4, clock.time) == 0, "its file is not forgotten yet"
        catalog.forget_files([file.id])
        assert removable(catalog, 4, clock.time) == []
        assert catalog.forget_batches(4, clock.time) == 1
        assert [file.id for file in catalog.manifest("t", 4).files] == ["g"]

    def test_pinned_version_keeps_its_files(self, catalog: Catalog, clock: ManualClock) -> None:
        catalog.commit(create("t"))
        write_into_base(catalog, "b", "t")  # 2
        apply(catalog, ReplaceBatches("t", ("b",)))  # 3
        write_into_base(catalog, "c", "t")  # 4
        fold(catalog, ("f-b",), "g")  # 5
        apply(catalog, SetSchema("t", SCHEMA.with_field(Field("x", "INT"))))  # 6
        seen = catalog.snapshot(3), catalog.manifest("t", 3)
        pin = catalog.pin(3, "reader", 100.0)
        clock.advance(10)
        assert removable(catalog, 6, clock.time) == []
        catalog.forget_versions(6)
        assert (catalog.snapshot(3).tables, catalog.manifest("t", 3)) == (seen[0].tables, seen[1])
        for version in (2, 4, 5):
            with pytest.raises(UnknownVersionError, match="is no longer kept"):
                catalog.pin(version, "late", 10.0)
            with pytest.raises(UnknownVersionError):
                catalog.snapshot(version)
        again = catalog.pin(3, "also here", 10.0)
        catalog.unpin(again)
        catalog.unpin(pin)
        assert removable(catalog, 6, clock.time) == ["t/f-b.parquet"]
        with pytest.raises(UnknownVersionError):
            catalog.manifest("t", 3)
        assert catalog.snapshot(6).tables["t"].base_version == 4

    def test_pin_outside_the_life_of_a_file_does_not_keep_it(self, catalog: Catalog, clock: ManualClock) -> None:
        catalog.commit(create("t"))
        catalog.pin(1, "before it", 1000.0)
        write_into_base(catalog, "b", "t")  # 2
        apply(catalog, ReplaceBatches("t", ("b",)))  # 3
        fold(catalog, ("f-b",), "g")  # 4
        catalog.pin(4, "after it", 1000.0)
        clock.advance(10)
        assert removable(catalog, 4, clock.time) == ["t/f-b.parquet"]

    def test_horizon_never_goes_back(self, catalog: Catalog, clock: ManualClock) -> None:
        catalog.commit(create("t"))
        apply(catalog, inline("b", "t"))
        assert removable(catalog, 2, clock.time) == []
        assert removable(catalog, 1, clock.time) == []  # a slower vacuum: what it may delete, the faster one may too
        assert catalog.horizon() == 2
        with pytest.raises(ValueError, match="the newest is 2"):
            catalog.removable_files(3, clock.time)
        assert catalog.head().version == 2

    def test_dropped_table_goes_after_its_entries(self, catalog: Catalog, clock: ManualClock) -> None:
        apply(
            catalog,
            CreateTable(managed("t", kind=TableKind.STREAM)),
            define("t"),
            CreateTable(managed("a", "t$aux_1", kind=TableKind.AUX, parent_id="t")),
        )
        write_into_base(catalog, "b", "t")
        apply(catalog, inline("c", "a"))
        catalog.set_exported("t", 2)
        catalog.record(refresh_record("t"))
        apply(catalog, DropTable("t"))  # 4
        clock.advance(10)
        assert catalog.forget_tables(3, clock.time) == []
        assert catalog.forget_tables(4, clock.time) == [], "files and batches are not forgotten yet"
        files = catalog.removable_files(4, clock.time)
        assert [file.path for file in files] == ["t/f-b.parquet"]
        catalog.forget_files([file.id for file in files])
        assert catalog.forget_batches(4, clock.time) == 2
        assert catalog.forget_tables(4, clock.time - 10) == []
        assert sorted(catalog.forget_tables(4, clock.time)) == ["a", "t"]
        assert catalog.history("t") == []
        assert catalog.exported("t") == 0
        apply(catalog, CreateTable(managed("t")))

    def test_forgotten_versions(self, catalog: Catalog, clock: ManualClock) -> None:
        catalog.commit(create("t", "u"))
        for number in range(2, 8):
            apply(catalog, inline(f"b{number}", "t"))
        expected = [catalog.snapshot(version) for version in (5, 6, 7)]
        gone = catalog.forget_versions(5)
        assert gone == 4 + 4, "counters of t at 1 to 4, times of versions 1 to 4; u is as it was at 1"
        assert [catalog.snapshot(version) for version in (5, 6, 7)] == expected
        assert catalog.forget_versions(5) == 0
        assert catalog.version_at(clock.time) == 7

    def test_forgotten_history(self, catalog: Catalog) -> None:
        for finished in (10.0, 20.0, 30.0):
            catalog.record(refresh_record("t", finished_at=finished))
        assert catalog.forget_history(20.0) == 1
        assert [line.finished_at for line in catalog.history("t")] == [30.0, 20.0]


class ExportContract(CatalogContract):
    def test_pending_follows_base_files_only(self, catalog: Catalog) -> None:
        catalog.commit(create("t", "u"))
        apply(catalog, inline("a", "u"))
        assert catalog.export_pending() == []
        version = write_into_base(catalog, "b", "t")
        assert catalog.export_pending() == ["t"]
        assert catalog.exported("t") == 0
        catalog.set_exported("t", version)
        assert catalog.exported("t") == version
        assert catalog.export_pending() == []
        apply(catalog, ReplaceBatches("t", ("b",)))
        assert catalog.export_pending() == []
        fold(catalog, ("f-b",), "g")
        assert catalog.export_pending() == ["t"]

    def test_pending_among_some(self, catalog: Catalog) -> None:
        catalog.commit(create("t", "u", "v"))
        write_into_base(catalog, "b", "t")
        write_into_base(catalog, "c", "u")
        assert catalog.export_pending() == ["t", "u"]
        assert catalog.export_pending(["u", "v", "unknown"]) == ["u"]
        assert catalog.export_pending(["v"]) == []
        assert catalog.export_pending([]) == []

    def test_export_never_goes_back(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        catalog.set_exported("t", 5)
        catalog.set_exported("t", 4)
        assert catalog.exported("t") == 5

    def test_dropped_table_needs_no_export(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        write_into_base(catalog, "b", "t")
        apply(catalog, DropTable("t"))
        assert catalog.export_pending() == []
        catalog.set_exported("unknown", 3)
        assert catalog.exported("unknown") == 0


class TestVacuumOnSqlite(OnSqlite, VacuumContract):
    pass


class TestVacuumOnPostgres(OnPostgres, VacuumContract):
    pass


class TestExportsOnSqlite(OnSqlite, ExportContract):
    pass


class TestExportsOnPostgres(OnPostgres, ExportContract):
    pass
