"""The catalog against a model of it: random commits, right and wrong, must give what plain dictionaries give."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from tests.catalog.building import ManualClock, apply, data_file, define, inline, inserted, managed

from headwater.catalog import Catalog, Options
from headwater.errors import BusyError, CheckFailedError, DuplicateTableError
from headwater.model.commit import CreateTable, DropTable, MoveFrontier, ReplaceBase, ReplaceBatches
from headwater.model.control import Blown, Note, Pause, WatermarkGroup, noted, withdrawn
from headwater.model.options import StreamOptions, Tier
from headwater.model.tables import Batch, BatchFormat, Table, TableKind

NOTES: tuple[Note, ...] = (Pause(1.0), Pause(2.0, "anna"), Blown(1.0, 2, 3), WatermarkGroup(("x", "y"), 1.5))


@dataclass(frozen=True)
class Version:
    """All that one version of the warehouse holds."""

    tables: dict[str, Table] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)
    files: dict[str, frozenset[str]] = field(default_factory=dict)
    batches: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    frontiers: dict[str, int | None] = field(default_factory=dict)
    refreshed: dict[str, float | None] = field(default_factory=dict)
    tiers: dict[str, Tier] = field(default_factory=dict)


class CatalogMachine(RuleBasedStateMachine):
    """Each rule does one thing to the catalog and to the list of versions that it should be."""

    tables = Bundle("tables")
    template: Path

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.clock = ManualClock()
        path = shutil.copy(self.template, self.directory)
        self.catalog = Catalog.open(str(path), options=Options(clock=self.clock))
        self.other = Catalog.open(str(path), options=Options(clock=self.clock))
        self.versions = [Version()]
        self.kept_from = 0
        self.pins: dict[str, int] = {}
        self.notes: dict[tuple[type[Note], str], Note] = {}
        self.numbers = iter(range(10**9))

    def teardown(self) -> None:
        self.catalog.close()
        self.other.close()
        shutil.rmtree(self.directory)

    @property
    def now(self) -> Version:
        return self.versions[-1]

    @property
    def next(self) -> int:
        return len(self.versions)

    def becomes(self, version: int, **values: object) -> None:
        assert version == self.next
        self.versions.append(replace(self.now, **values))  # type: ignore[arg-type]

    def new_name(self, prefix: str) -> str:
        return f"{prefix}{next(self.numbers)}"

    @initialize(target=tables)
    def first_table(self) -> str:
        return self.create_table_as(self.new_name("t"))

    def create_table_as(self, table_id: str) -> str:
        version = apply(self.catalog, CreateTable(managed(table_id)))
        table = replace(managed(table_id), created=version, moved=version, base_version=version)
        self.becomes(
            version,
            tables={**self.now.tables, table_id: table},
            changed={**self.now.changed, table_id: 0},
            files={**self.now.files, table_id: frozenset()},
            batches={**self.now.batches, table_id: {}},
        )
        return table_id

    @rule(target=tables)
    def create_table(self) -> str:
        return self.create_table_as(self.new_name("t"))

    @rule(table=tables)
    def create_taken_name(self, table: str) -> None:
        try:
            apply(self.catalog, CreateTable(managed(self.new_name("t"), table.upper())))
        except DuplicateTableError:
            return
        raise AssertionError("a name was taken twice")

    @rule(target=tables, table=consumes(tables), sources=st.lists(tables, max_size=2), tier=st.sampled_from(Tier))
    def make_stream(self, table: str, sources: list[str], tier: Tier) -> object:
        if self.now.tables[table].kind is TableKind.STREAM or table in self.now.frontiers:
            return table
        definition = define(table, *(s for s in sources if s not in self.now.frontiers and s != table))
        version = apply(self.catalog, replace(definition, options=StreamOptions(tier)))
        moved = replace(self.now.tables[table], moved=version)
        self.becomes(
            version,
            tables={**self.now.tables, table: moved},
            frontiers={**self.now.frontiers, table: None},
            refreshed={**self.now.refreshed, table: None},
            tiers={**self.now.tiers, table: tier},
        )
        return table

    @rule(table=tables, inserts=st.integers(0, 5), deletes=st.integers(0, 3), hash_change=st.integers(-(2**64), 2**64))
    def change_rows(self, table: str, inserts: int, deletes: int, hash_change: int) -> None:
        old = self.now.tables[table]
        name = self.new_name("b")
        change = inline(name, table, inserts, deletes, hash_change=hash_change)
        unmoved = {table: old.moved}
        if old.row_count + inserts < deletes:
            try:
                apply(self.catalog, change, unmoved=unmoved)
            except CheckFailedError:
                return
            raise AssertionError("more rows were deleted than there are")
        version = apply(self.catalog, change, unmoved=unmoved)
        new = replace(
            old,
            moved=version,
            row_count=old.row_count + inserts - deletes,
            hash=(old.hash + hash_change) % 2**64,
        )
        self.becomes(
            version,
            tables={**self.now.tables, table: new},
            changed={**self.now.changed, table: version},
            batches={**self.now.batches, table: {**self.now.batches[table], name: (version, version)}},
        )

    @rule(table=tables, count=st.integers(1, 3))
    def load(self, table: str, count: int) -> None:
        """Insert files, into the base where it has not fallen behind."""
        old = self.now.tables[table]
        into_base = self.now.changed[table] <= old.base_version
        name, write = self.new_name("b"), self.catalog.open_write("model", 60.0, ())
        files = [data_file(self.new_name("f"), table, write) for _ in range(count)]
        version = apply(self.catalog, inserted(name, table, *files, into_base=into_base), write_ids=(write,))
        new = replace(old, moved=version, row_count=old.row_count + 10 * count)
        base = self.now.files[table]
        if into_base:
            new = replace(new, base_version=version)
            base |= {file.id for file in files}
        self.becomes(
            version,
            tables={**self.now.tables, table: new},
            changed={**self.now.changed, table: version},
            files={**self.now.files, table: base},
            batches={**self.now.batches, table: {**self.now.batches[table], name: (version, version)}},
        )

    @rule(table=tables, moved=st.booleans())
    def lose_a_race(self, table: str, moved: bool) -> None:
        old = self.now.tables[table]
        values = {"unmoved": {table: old.moved - 1}} if moved else {"generation": -1}
        try:
            apply(self.catalog, inline(self.new_name("b"), table), **values)
        except BusyError:
            return
        raise AssertionError("a lost race was not noticed")

    @rule(table=tables)
    def fold(self, table: str) -> None:
        old = self.now.tables[table]
        write, name = self.catalog.open_write("fold", 60.0, ()), self.new_name("f")
        target = self.next - 1
        change = ReplaceBase(
            table, tuple(self.now.files[table]), (data_file(name, table, write),), target, old.base_version
        )
        version = apply(self.catalog, change, write_ids=(write,))
        self.becomes(
            version,
            tables={**self.now.tables, table: replace(old, base_version=target)},
            files={**self.now.files, table: frozenset({name})},
        )

    @rule(table=tables, data=st.data())
    def merge_or_trim(self, table: str, data: st.DataObject) -> None:
        standing = self.now.batches[table]
        if not standing:
            return
        gone = data.draw(st.lists(st.sampled_from(sorted(standing)), min_size=1, unique=True))
        kept = {name: span for name, span in standing.items() if name not in gone}
        merged: Batch | None = None
        if data.draw(st.booleans()):
            merged = Batch(self.new_name("m"), table, BatchFormat.INLINE, 1, 0, 1, merged=True, inline=b"m")
            kept[merged.id] = (min(standing[g][0] for g in gone), max(standing[g][1] for g in gone))
        version = apply(self.catalog, ReplaceBatches(table, tuple(gone), merged))
        self.becomes(version, batches={**self.now.batches, table: kept})

    @rule(table=tables, right=st.booleans())
    def refresh(self, table: str, right: bool) -> None:
        if table not in self.now.frontiers:
            return
        expected, new = self.now.frontiers[table], self.next
        try:
            move = MoveFrontier(table, expected if right else self.next + 7, new, began=float(new))
            version = apply(self.catalog, move)
        except (BusyError, ValueError):
            assert not right
            return
        assert right
        self.becomes(
            version,
            frontiers={**self.now.frontiers, table: new},
            refreshed={**self.now.refreshed, table: float(new)},
        )

    @rule(
        notes=st.lists(st.tuples(st.sampled_from(("x", "y", "*")), st.sampled_from(NOTES)), min_size=1),
        far=st.booleans(),
    )
    def note(self, notes: list[tuple[str, Note]], far: bool) -> None:
        (self.other if far else self.catalog).note([noted(name, note) for name, note in notes])
        self.notes.update({(type(note), name): note for name, note in notes})

    @rule(names=st.sets(st.sampled_from(("x", "y", "*")), min_size=1), note=st.sampled_from(NOTES), far=st.booleans())
    def withdraw(self, names: set[str], note: Note, far: bool) -> None:
        (self.other if far else self.catalog).note([withdrawn(type(note), name) for name in sorted(names)])
        for name in names:
            self.notes.pop((type(note), name), None)

    @rule()
    def read_elsewhere(self) -> None:
        """What a process makes of what it kept is what another one makes of what that kept."""
        assert self.other.snapshot() == self.catalog.snapshot()

    @rule(target=tables, table=consumes(tables))
    def drop(self, table: str) -> object:
        if any(table in sources for sources in self.catalog.snapshot().sources.values()):
            return table
        version = apply(self.catalog, DropTable(table))
        self.becomes(
            version,
            **{
                name: {key: value for key, value in getattr(self.now, name).items() if key != table}
                for name in ("tables", "changed", "files", "batches", "frontiers", "refreshed", "tiers")
            },
        )
        return multiple()

    def draw_version(self, data: st.DataObject) -> int:
        """Draw one of the versions that are kept, rather a new one."""
        return self.next - 1 - data.draw(st.integers(0, min(self.next - 1 - self.kept_from, 4)))

    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        version = self.draw_version(data)
        self.pins[self.catalog.pin(version, "model", 1e9)] = version

    @rule(data=st.data())
    def vacuum(self, data: st.DataObject) -> None:
        self.kept_from = self.draw_version(data)
        self.clock.advance(1.0)
        files = self.catalog.removable_files(self.kept_from, self.clock.time)
        self.catalog.forget_files([file.id for file in files])
        self.catalog.forget_batches(self.kept_from, self.clock.time)
        self.catalog.forget_tables(self.kept_from, self.clock.time)
        self.catalog.forget_versions(self.kept_from)
        for version in {self.kept_from, *self.pins.values()}:
            self.compare(version)

    @invariant()
    def newest_is_right(self) -> None:
        self.compare(self.next - 1)

    @rule(data=st.data())
    def older_is_right(self, data: st.DataObject) -> None:
        kept = [*range(self.kept_from, self.next), *self.pins.values()]
        self.compare(data.draw(st.sampled_from(kept)))

    def compare(self, version: int) -> None:
        expected = self.versions[version]
        newest = version == self.next - 1
        snapshot = self.catalog.snapshot(None if newest else version)
        assert (snapshot.version, dict(snapshot.tables)) == (version, expected.tables)
        assert dict(snapshot.changed) == expected.changed
        if newest:
            assert {id_: stream.frontier for id_, stream in snapshot.streams.items()} == expected.frontiers
            assert {id_: stream.refreshed_at for id_, stream in snapshot.streams.items()} == expected.refreshed
            assert {id_: stream.options.tier for id_, stream in snapshot.streams.items()} == expected.tiers
        found = {(kind, name): note for kind, named in snapshot.notes.values.items() for name, note in named.items()}
        assert found == self.notes, "whatever the version: notes are of the present"
        manifests = self.catalog.manifests(expected.tables, version)
        assert {id_: {f.id for f in manifest.files} for id_, manifest in manifests.items()} == expected.files
        assert {
            id_: {batch.id: (batch.first_version, batch.last_version) for batch in manifest.batches}
            for id_, manifest in manifests.items()
        } == expected.batches
        stored = [b.id for m in manifests.values() for b in m.batches if b.format is BatchFormat.INLINE]
        assert set(self.catalog.inline(stored)) == set(stored)
        asked = [(id_, after) for id_ in expected.tables for after in (version - 2, version - 1, version)]
        assert self.catalog.changed_since(asked, version) == {
            id_ for id_, after in asked if expected.changed[id_] > after
        }


def test_catalog_is_like_its_model(tmp_path: Path) -> None:
    template = tmp_path / "catalog.db"
    Catalog.create(str(template), location="/warehouse").close()

    class Machine(CatalogMachine):
        pass

    Machine.template = template
    Machine.TestCase.settings = settings(
        max_examples=20,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    Machine.TestCase().runTest()
