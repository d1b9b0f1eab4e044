"""Notes, events and schedulers: what every process learns of them, and what that costs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.catalog.building import (
    CatalogContract,
    ManualClock,
    OnPostgres,
    OnSqlite,
    apply,
    create,
    define,
    inline,
    managed,
    postgres_server,  # noqa: F401
    postgres_url,  # noqa: F401
    statements,
)

from headwater.catalog import Catalog, Options, Snapshot
from headwater.model.commit import CreateTable, DropTable, MoveFrontier
from headwater.model.control import (
    EVERYTHING,
    KINDS,
    NO_NOTES,
    Blown,
    Drain,
    ErrorKind,
    Gate,
    Note,
    Pause,
    RefreshGroup,
    Skipped,
    Trouble,
    Watermark,
    WatermarkGroup,
    noted,
    withdrawn,
)
from headwater.model.events import Event, EventKind
from headwater.model.tables import TableKind

EVERY_KIND: tuple[Note, ...] = (
    Pause(1.5, "anna"),
    Drain(2.0),
    Gate(3.0, "anna", "loading 'ä'"),
    Blown(4.0, 10**12, 5),
    Trouble(3, ErrorKind.SCHEMA, 5.0, 6.5, 'no such\ncolumn: "x"', 7),
    Skipped(7.0, 1, 2),
    Watermark(8.25, 9.0),
    WatermarkGroup(("t", "u"), 0.25),
    RefreshGroup(("s",)),
)

STREAM = (CreateTable(managed("s", kind=TableKind.STREAM)), define("s", "t"))


def freshly_read(url: str) -> Snapshot:
    """Return the snapshot of a process that has read nothing before."""
    with Catalog.open(url) as other:
        return other.snapshot()


def rows_of_notes(catalog: Catalog) -> int:
    return int(catalog._database.first_row("SELECT count(*) FROM notes")[0])


def raw(catalog: Catalog, *texts: str) -> None:
    """Run statements as another version of this code might."""
    catalog._database.write(lambda connection: [connection.exec_driver_sql(text) for text in texts])


class NotesContract(CatalogContract):
    def test_every_kind_comes_back_as_it_was(self, catalog: Catalog, url: str) -> None:
        assert {type(note) for note in EVERY_KIND} == set(KINDS)
        assert catalog.snapshot().notes == NO_NOTES
        catalog.note([noted("x", note) for note in EVERY_KIND])
        for snapshot in (catalog.snapshot(), freshly_read(url)):
            assert tuple(snapshot.notes.get(type(note), "x") for note in EVERY_KIND) == EVERY_KIND
            assert snapshot.notes.get(Pause, "y") is None
            assert dict(snapshot.notes.of(Pause)) == {"x": EVERY_KIND[0]}

    def test_notes_move_the_revision_only(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        before = catalog.head()
        catalog.note([noted("t", Pause(1.0)), noted("u", Gate(1.0))])
        catalog.note([withdrawn(Pause, "t")])
        assert catalog.head() == replace(before, revision=before.revision + 2)

    def test_no_notes_are_no_change(self, catalog: Catalog) -> None:
        before = catalog.snapshot()
        catalog.note([])
        assert catalog.snapshot() is before

    def test_note_of_another_process_is_in_the_next_snapshot(self, catalog: Catalog, url: str) -> None:
        apply(catalog, CreateTable(managed("t")), *STREAM)
        before = catalog.snapshot()
        with Catalog.open(url) as other:
            other.note([noted("s", Pause(1.0, "other"))])
            assert other.snapshot().notes.get(Pause, "s") == Pause(1.0, "other")
        after = catalog.snapshot()
        assert after.notes.get(Pause, "s") == Pause(1.0, "other")
        assert before.notes.get(Pause, "s") is None, "what was handed out does not change"
        assert after.tables["t"] is before.tables["t"], "read again was what is new, not everything"
        assert after.streams is before.streams

    def test_commit_leaves_the_notes(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        catalog.note([noted("t", Gate(1.0))])
        apply(catalog, inline("b", "t"))
        assert catalog.snapshot().notes.get(Gate, "t") == Gate(1.0)
        apply(catalog, CreateTable(managed("u")))
        assert catalog.snapshot().notes.get(Gate, "t") == Gate(1.0)

    def test_note_is_replaced_by_the_next_one(self, catalog: Catalog) -> None:
        catalog.note([noted("t", Watermark(1.0, 2.0))])
        assert catalog.snapshot().notes.get(Watermark, "t") == Watermark(1.0, 2.0)
        catalog.note([noted("t", Watermark(3.0, 4.0))])
        assert catalog.snapshot().notes.get(Watermark, "t") == Watermark(3.0, 4.0)
        assert rows_of_notes(catalog) == 1

    def test_last_one_of_a_name_counts(self, catalog: Catalog) -> None:
        catalog.note([noted("t", Pause(1.0)), noted("t", Pause(2.0)), noted("u", Pause(1.0)), withdrawn(Pause, "u")])
        assert dict(catalog.snapshot().notes.of(Pause)) == {"t": Pause(2.0)}
        catalog.note([withdrawn(Pause, "t"), noted("t", Pause(3.0))])
        assert dict(catalog.snapshot().notes.of(Pause)) == {"t": Pause(3.0)}

    def test_kinds_share_names(self, catalog: Catalog) -> None:
        catalog.note([noted(EVERYTHING, Pause(1.0)), noted(EVERYTHING, Drain(1.0)), noted("T", Pause(2.0))])
        catalog.note([withdrawn(Pause, EVERYTHING), withdrawn(Pause, "t")])
        notes = catalog.snapshot().notes
        assert (dict(notes.of(Pause)), dict(notes.of(Drain))) == ({"T": Pause(2.0)}, {EVERYTHING: Drain(1.0)})

    def test_withdrawn_note_is_gone_for_every_process(self, catalog: Catalog, url: str) -> None:
        catalog.note([noted("t", Pause(1.0)), noted("u", Gate(1.0))])
        assert catalog.snapshot().notes.get(Pause, "t") is not None
        with Catalog.open(url) as other:
            assert other.snapshot().notes.get(Pause, "t") is not None
            other.note([withdrawn(Pause, "t")])
            for snapshot in (other.snapshot(), catalog.snapshot(), freshly_read(url)):
                assert dict(snapshot.notes.of(Pause)) == {}
                assert dict(snapshot.notes.of(Gate)) == {"u": Gate(1.0)}
            other.note([noted("t", Pause(2.0))])
        assert catalog.snapshot().notes.get(Pause, "t") == Pause(2.0)

    def test_withdrawn_notes_leave_one_row_for_a_name(self, catalog: Catalog) -> None:
        for number in range(5):
            catalog.note([noted("t", Pause(float(number)))])
            catalog.note([withdrawn(Pause, "t"), withdrawn(Pause, "never noted"), withdrawn(Gate, "t")])
        assert rows_of_notes(catalog) == 1
        assert catalog.snapshot().notes == NO_NOTES

    def test_equal_heads_are_equal_snapshots(self, catalog: Catalog, url: str) -> None:
        """Whatever a process has kept, and for how long: what it makes of it is what a new one reads."""
        apply(catalog, CreateTable(managed("t")), *STREAM)
        steps = (
            lambda: catalog.note([noted("t", Gate(1.0)), noted("s", Pause(1.0))]),
            lambda: apply(catalog, inline("b1", "t")),
            lambda: catalog.note([withdrawn(Pause, "s")]),
            lambda: apply(catalog, MoveFrontier("s", None, 2, began=5.0, ms=6.0)),
            lambda: catalog.set_stream_status("s", "SUSPENDED", "division by zero"),
            lambda: catalog.note([noted("s", Pause(2.0))]),
            lambda: apply(catalog, inline("b2", "t"), MoveFrontier("s", 2, 4, {"t": None}, began=7.0, ms=8.0)),
            lambda: catalog.note([withdrawn(Gate, "t")]),
            lambda: apply(catalog, CreateTable(managed("u"))),
            lambda: catalog.note([noted("s", Pause(3.0)), noted("u", Gate(3.0))]),
            lambda: apply(catalog, inline("b3", "u")),
            lambda: catalog.note([withdrawn(Gate, "u"), withdrawn(Pause, "s")]),
        )
        followers = {every: Catalog.open(url) for every in (1, 2, 3, len(steps))}
        for follower in followers.values():
            assert follower.snapshot().notes == NO_NOTES
        seen = 0
        for number, step in enumerate(steps, start=1):
            step()
            expected = freshly_read(url)
            seen += expected.notes != NO_NOTES
            for every, follower in followers.items():
                if number % every == 0:
                    assert follower.snapshot() == expected, f"read after every {every} steps, at step {number}"
        assert seen == len(steps) - 1
        for follower in followers.values():
            follower.close()

    def test_dropped_table_takes_its_notes_along(self, catalog: Catalog, url: str) -> None:
        apply(catalog, CreateTable(managed("t")), *STREAM)
        with Catalog.open(url) as other:
            other.note([noted("s", Pause(1.0)), noted("t", Gate(1.0)), noted("s", Drain(1.0))])
            other.note([withdrawn(Drain, "s")])
            assert catalog.snapshot().notes == other.snapshot().notes
            apply(other, DropTable("s"))
            for snapshot in (catalog.snapshot(), other.snapshot(), freshly_read(url)):
                assert dict(snapshot.notes.of(Pause)) == {}
                assert dict(snapshot.notes.of(Gate)) == {"t": Gate(1.0)}
        assert rows_of_notes(catalog) == 1

    def test_older_version_has_the_notes_of_the_present(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        apply(catalog, inline("b", "t"))
        catalog.note([noted("t", Gate(1.0))])
        assert catalog.snapshot(1).notes == catalog.snapshot().notes
        assert catalog.snapshot(1).notes.get(Gate, "t") == Gate(1.0)

    def test_notes_are_written_all_or_none(self, catalog: Catalog) -> None:
        catalog.note([noted("t", Pause(1.0))])
        before, head = catalog.snapshot(), catalog.head()
        unwritable = noted("u", Pause(at=object()))  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            catalog.note([noted("t", Pause(2.0)), withdrawn(Pause, "t"), unwritable])
        assert catalog.head() == head
        assert catalog.snapshot() is before
        catalog.note([noted("t", Pause(2.0)), noted("u", Pause(2.0))])
        assert set(catalog.snapshot().notes.of(Pause)) == {"t", "u"}

    def test_what_a_newer_process_notes_is_left_out(self, catalog: Catalog, url: str) -> None:
        catalog.note([noted("t", Pause(1.0))])
        assert set(catalog.snapshot().notes.values) == {Pause}
        wider = json.dumps({"at": 2.0, "by": "anna", "colour": "red"})
        raw(
            catalog,
            "UPDATE warehouse SET revision = revision + 1",
            "INSERT INTO notes (kind, name, value, progressed) VALUES ('of later', 't', '[]', 2)",
            f"INSERT INTO notes (kind, name, value, progressed) VALUES ('pause', 'u', '{wider}', 2)",
        )
        for snapshot in (catalog.snapshot(), freshly_read(url)):
            assert dict(snapshot.notes.of(Pause)) == {"t": Pause(1.0), "u": Pause(2.0, "anna")}
            assert set(snapshot.notes.values) == {Pause}

    def test_unchanged_catalog_costs_one_query(self, catalog: Catalog) -> None:
        catalog.commit(create("t"))
        catalog.note([noted("t", Pause(1.0))])
        before = catalog.snapshot()
        catalog.record_events([Event(EventKind.RESUMED, 1.0, "t")])
        catalog.show_scheduler("a", 1.0, 10.0, "{}")
        catalog.acquire_all(("l", "m"), "a", 10.0)
        with statements(catalog) as asked:
            assert catalog.snapshot() is before
        assert len(asked) == 1, asked

    @pytest.mark.parametrize("tables", [1, 40])
    def test_note_costs_as_many_queries_as_a_commit(self, catalog: Catalog, url: str, tables: int) -> None:
        streams = [f"s{number}" for number in range(tables)]
        apply(catalog, CreateTable(managed("t")))
        for name in streams:
            apply(catalog, CreateTable(managed(name, kind=TableKind.STREAM)), define(name, "t"))
        before = catalog.snapshot()
        with Catalog.open(url) as other:
            other.note([noted(name, Pause(1.0)) for name in streams])
        with statements(catalog) as asked:
            after = catalog.snapshot()
        assert len(asked) == 5, "the head twice, counters, stream tables, notes"
        assert set(after.notes.of(Pause)) == set(streams)
        assert all(after.tables[name] is before.tables[name] for name in streams)
        apply(catalog, inline("b", "t"))
        with statements(catalog) as asked:
            assert catalog.snapshot().notes == after.notes
        assert len(asked) == 5


def event(kind: EventKind, at: float, table: str | None = None, **data: object) -> Event:
    return Event(kind, at, table, data)


def without_ids(events: list[Event]) -> list[Event]:
    return [replace(found, id=None) for found in events]


class EventContract(CatalogContract):
    def test_events_are_newest_first(self, catalog: Catalog, url: str) -> None:
        assert catalog.events() == []
        first = event(EventKind.FUSE_BLOWN, 10.0, "sales", pending=10**12, reason="'ä'")
        second = event(EventKind.RESUMED, 9.0)
        third = event(EventKind.STALE_DATA, 11.0, "sales", sources=["t", "u"], late={"by": 1.5})
        catalog.record_events([first, second])
        with Catalog.open(url) as other:
            other.record_events([third])
        found = catalog.events()
        assert without_ids(found) == [third, second, first], "newest is what was recorded last, not what happened last"
        ids = [e.id for e in found]
        assert None not in ids
        assert ids == sorted(ids, reverse=True)

    def test_limit_and_after(self, catalog: Catalog) -> None:
        catalog.record_events([event(EventKind.RESUMED, float(number)) for number in range(6)])
        every = catalog.events()
        assert [e.at for e in every] == [5.0, 4.0, 3.0, 2.0, 1.0, 0.0]
        assert catalog.events(limit=2) == every[:2]
        third = every[2].id
        assert third is not None
        assert catalog.events(after=third) == every[:2]
        assert catalog.events(limit=1, after=third) == every[:1], "of those after it the newest"
        newest = every[0].id
        assert newest is not None
        assert catalog.events(after=newest) == []
        catalog.record_events([event(EventKind.RESUMED, 6.0)])
        assert [e.at for e in catalog.events(after=newest)] == [6.0]

    def test_events_are_not_part_of_snapshots(self, catalog: Catalog) -> None:
        head = catalog.head()
        catalog.record_events([])
        catalog.record_events([event(EventKind.RESUMED, 1.0)])
        catalog.forget_events(5.0)
        assert catalog.head() == head

    def test_old_events_are_forgotten(self, catalog: Catalog) -> None:
        catalog.record_events([event(EventKind.RESUMED, at) for at in (10.0, 20.0, 5.0, 30.0)])
        catalog.forget_events(20.0)
        assert [e.at for e in catalog.events()] == [30.0, 20.0]
        catalog.forget_events(20.0)
        assert [e.at for e in catalog.events()] == [30.0, 20.0]

    def test_ids_never_begin_again(self, catalog: Catalog) -> None:
        """Who has followed up to an event finds what comes after it, however much was forgotten meanwhile."""
        catalog.forget_events(1e9)
        catalog.record_events([event(EventKind.RESUMED, at) for at in (1.0, 2.0, 3.0)])
        last = catalog.events(limit=1)[0].id
        assert last is not None
        catalog.forget_events(1e9)
        assert [e.id for e in catalog.events()] == [last], "the last one stays"
        catalog.record_events([event(EventKind.STALE_DATA, 4.0)])
        assert without_ids(catalog.events(after=last)) == [event(EventKind.STALE_DATA, 4.0)]

    def test_withdrawn_notes_are_no_events(self, catalog: Catalog) -> None:
        catalog.note([noted("t", Pause(1.0)), noted("u", Pause(1.0)), withdrawn(Pause, "u")])
        catalog.forget_events(1e9)
        assert dict(catalog.snapshot().notes.of(Pause)) == {"t": Pause(1.0)}

    def test_kinds_of_a_newer_process_are_left_out(self, catalog: Catalog) -> None:
        catalog.record_events([event(EventKind.RESUMED, 1.0)])
        raw(catalog, *["INSERT INTO events (at, event, data) VALUES (2, 'of later', '{}')"] * 3)
        assert [e.at for e in catalog.events(limit=1)] == [1.0], "they take no room of those that are known"

    def test_data_that_json_does_not_know_becomes_text(self, catalog: Catalog) -> None:
        catalog.record_events(
            [event(EventKind.REFRESH_FAILED, 1.0, "t", error=ValueError("no"), at_fault=ErrorKind.USER)]
        )
        assert dict(catalog.events()[0].data) == {"error": "no", "at_fault": "ErrorKind.USER"}


class SchedulerContract(CatalogContract):
    def owners(self, catalog: Catalog) -> list[str]:
        return [entry.owner for entry in catalog.schedulers()]

    def test_entry_is_what_was_shown_last(self, catalog: Catalog, url: str, clock: ManualClock) -> None:
        assert catalog.schedulers() == []
        catalog.show_scheduler("a", 5.0, 10.0, '{"workers": 4}')
        clock.advance(3.0)
        catalog.show_scheduler("a", 5.0, 10.0, '{"workers": 2, "state": "running"}')
        with Catalog.open(url, options=Options(clock=clock)) as other:
            (entry,) = other.schedulers()
        assert (entry.owner, entry.started_at, entry.seen_at) == ("a", 5.0, clock.time)
        assert dict(entry.data) == {"workers": 2, "state": "running"}

    def test_oldest_comes_first(self, catalog: Catalog) -> None:
        for owner, started_at in (("b", 5.0), ("a", 6.0), ("c", 4.0)):
            catalog.show_scheduler(owner, started_at, 10.0, "{}")
        assert self.owners(catalog) == ["c", "b", "a"]
        catalog.show_scheduler("c", 7.0, 10.0, "{}")
        assert self.owners(catalog) == ["b", "a", "c"], "it was started again under its name"

    def test_one_that_shows_itself_no_more_expires(self, catalog: Catalog, clock: ManualClock) -> None:
        catalog.show_scheduler("a", 1.0, 10.0, "{}")
        clock.advance(9.9)
        catalog.show_scheduler("b", 2.0, 10.0, "{}")
        assert self.owners(catalog) == ["a", "b"]
        clock.advance(0.1)
        assert self.owners(catalog) == ["b"]
        catalog.show_scheduler("a", 1.0, 10.0, "{}")
        assert self.owners(catalog) == ["a", "b"], "it was late, not dead"

    def test_hidden_one_is_gone(self, catalog: Catalog) -> None:
        catalog.show_scheduler("a", 1.0, 10.0, "{}")
        catalog.show_scheduler("b", 2.0, 10.0, "{}")
        catalog.hide_scheduler("a")
        catalog.hide_scheduler("a")
        catalog.hide_scheduler("unknown")
        assert self.owners(catalog) == ["b"]

    def test_long_dead_ones_are_forgotten(self, catalog: Catalog, clock: ManualClock) -> None:
        def rows() -> int:
            return int(catalog._database.first_row("SELECT count(*) FROM schedulers")[0])

        for number in range(3):
            catalog.show_scheduler(f"dead {number}", 1.0, 10.0, "{}")
        clock.advance(109.0)
        catalog.show_scheduler("a", 2.0, 10.0, "{}")
        assert rows() == 4, "some of them may only sleep"
        clock.advance(2.0)
        catalog.show_scheduler("a", 2.0, 10.0, "{}")
        assert rows() == 1
        clock.advance(1000.0)
        catalog.show_scheduler("a", 2.0, 10.0, "{}")
        assert self.owners(catalog) == ["a"], "one that slept does not forget itself"

    def test_showing_oneself_changes_no_snapshot(self, catalog: Catalog) -> None:
        head = catalog.head()
        catalog.show_scheduler("a", 1.0, 10.0, "{}")
        catalog.hide_scheduler("a")
        assert catalog.head() == head


class TestNotesOnSqlite(OnSqlite, NotesContract):
    pass


class TestNotesOnPostgres(OnPostgres, NotesContract):
    pass


class TestEventsOnSqlite(OnSqlite, EventContract):
    pass


class TestEventsOnPostgres(OnPostgres, EventContract):
    pass


class TestSchedulersOnSqlite(OnSqlite, SchedulerContract):
    pass


class TestSchedulersOnPostgres(OnPostgres, SchedulerContract):
    pass
