"""Reports over snapshots built by hand: freshness, health, buffers, trees, drawings, workers, numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import pytest

from headwater.catalog import Manifest, Snapshot
from headwater.catalog.records import SchedulerEntry
from headwater.errors import StatementError
from headwater.model.control import (
    EVERYTHING,
    NO_NOTES,
    Blown,
    Drain,
    ErrorKind,
    Gate,
    Note,
    Notes,
    Pause,
    RefreshGroup,
    Skipped,
    Trouble,
    Watermark,
    WatermarkGroup,
)
from headwater.model.options import Consistency, GroupPolicy, StreamOptions, Tier
from headwater.model.reports import (
    ChangeBuffer,
    ClusterWorkers,
    DependencyTree,
    DiamondGroup,
    Freshness,
    RefreshTotals,
    Severity,
    TreeNode,
    Unseen,
    WorkerAllocation,
)
from headwater.model.schema import Field, TableSchema
from headwater.model.tables import (
    REREAD,
    SUSPENDED,
    Batch,
    BatchFormat,
    RefreshAction,
    RefreshMode,
    RefreshRecord,
    StreamTable,
    Table,
    TableKind,
    WhenFull,
)
from headwater.schedule.freshness_report import (
    Ages,
    Pace,
    ages_of,
    blocked_reason,
    freshness_of,
    overdue,
    paces,
    present_of,
)
from headwater.schedule.graph import graph_of
from headwater.schedule.graph_report import (
    dependency_tree,
    diamond_groups,
    drawing_of,
    explained_dag,
)
from headwater.schedule.health_report import CHECKS, Vitals, health_checks
from headwater.schedule.reports import (
    GONE,
    change_buffers,
    cluster_workers,
    divided_batches,
    metrics_of,
    read_tables,
    scheduler_statuses,
    timeline_of,
    worker_allocation,
)
from headwater.schedule.schedules import Calculated, Cron, Every, schedule_of
from headwater.settings import Settings

NOW = 1_000_000.0
SCHEMA = TableSchema((Field("id", "BIGINT", nullable=False),), ("id",))
DEFAULTS = Settings()


@dataclass(frozen=True)
class S:
    """A stream table of a test: what it reads, and what is unusual about it. By default it was refreshed at version 10."""

    reads: tuple[str, ...]
    schedule: str | None = "10s"
    frontier: int | None = 10
    options: StreamOptions = field(default_factory=StreamOptions)
    more: Mapping[str, Any] = field(default_factory=dict)


def of(*reads: str, **values: Any) -> S:
    given = {n: values.pop(n) for n in ("schedule", "frontier", "options") if n in values}
    return S(reads, **given, more=values)


def id_of(name: str) -> str:
    """Ids are no names: who takes one for the other is found out."""
    return f"id:{name}"


def snapshot_of(
    streams: Mapping[str, S], changed: Mapping[str, int] | None = None, notes: Notes = NO_NOTES
) -> Snapshot:
    """Return a snapshot at version 20. Tables that only appear as sources are managed; each changed at version 5 if not said."""
    names = list(dict.fromkeys([*(r for s in streams.values() for r in s.reads), *streams]))
    tables = {
        id_of(n): Table(id_of(n), n, TableKind.STREAM if n in streams else TableKind.MANAGED, SCHEMA, 1, 5, 5)
        for n in names
    }
    definitions = {
        id_of(n): StreamTable(
            id_of(n),
            "SELECT 1",
            RefreshMode.AUTO,
            s.schedule,
            WhenFull.WARN,
            "{}",
            s.frontier,
            options=s.options,
            **s.more,
        )
        for n, s in streams.items()
    }
    sources = {id_of(n): tuple(id_of(r) for r in s.reads) for n, s in streams.items()}
    dependents: dict[str, tuple[str, ...]] = {}
    for reader, read in sources.items():
        for source in read:
            dependents[source] = (*dependents.get(source, ()), reader)
    return Snapshot(
        version=20,
        generation=1,
        tables=tables,
        changed=dict.fromkeys(tables, 5) | {id_of(n): at for n, at in (changed or {}).items()},
        streams=definitions,
        sources=sources,
        dependents=dependents,
        names={n.casefold(): id_of(n) for n in names},
        notes=notes,
    )


def notes(*given: tuple[str, Note]) -> Notes:
    """Return notes about tables by their names, or about groups and everything."""
    named = NO_NOTES
    for name, note in given:
        is_table = not isinstance(note, WatermarkGroup | RefreshGroup) and name != EVERYTHING
        named = named.with_changes({(type(note), id_of(name) if is_table else name): note})
    return named


def unseen(**ages: float) -> dict[tuple[str, str], Unseen]:
    """Return what stream tables have not seen: `reader__source=seconds`."""
    pairs = {tuple(name.split("__")): seconds for name, seconds in ages.items()}
    return {(id_of(reader), id_of(source)): Unseen(11, seconds) for (reader, source), seconds in pairs.items()}


def by_name(values: Mapping[str, Any]) -> dict[str, Any]:
    return {i.removeprefix("id:"): v for i, v in values.items()}


def freshness(snapshot: Snapshot, name: str, settings: Settings = DEFAULTS, **ages: float) -> Freshness:
    return freshness_of(present_of(snapshot, unseen(**ages), settings, NOW), id_of(name))


class TestAges:
    def test_a_change_is_unseen_below_as_long_as_it_is_above(self) -> None:
        chain = snapshot_of({"a": of("t"), "b": of("a"), "c": of("b", "u"), "beside": of("u")})
        ages = ages_of(chain, unseen(a__t=30.0, c__u=5.0))
        assert by_name(ages.own) == {"a": 30.0, "b": 0.0, "c": 5.0, "beside": 0.0}
        assert by_name(ages.staleness) == {"a": 30.0, "b": 30.0, "c": 30.0, "beside": 0.0}
        assert by_name(ages.slowest) == {"b": "id:a", "c": "id:a"}

    def test_the_oldest_of_several_sources_counts(self) -> None:
        two = snapshot_of({"a": of("t", "u"), "b": of("a")})
        ages = ages_of(two, unseen(a__t=3.0, a__u=8.0, b__a=20.0))
        assert by_name(ages.staleness) == {"a": 8.0, "b": 20.0}
        assert ages.slowest == {}

    def test_what_was_never_populated_has_no_age(self) -> None:
        ages = ages_of(snapshot_of({"a": of("t", frontier=None), "b": of("a")}), {})
        assert by_name(ages.own) == by_name(ages.staleness) == {"b": 0.0}

    def test_circles_come_to_an_end(self) -> None:
        circle = snapshot_of({"a": of("t", "c"), "b": of("a"), "c": of("b")})
        assert by_name(ages_of(circle, unseen(b__a=7.0)).staleness) == {"a": 7.0, "b": 7.0, "c": 7.0}

    def test_dropped_tables_are_left_out(self) -> None:
        assert by_name(ages_of(snapshot_of({"a": of("t")}), unseen(gone__t=9.0)).staleness) == {"a": 0.0}


class TestFreshness:
    def test_fresh(self) -> None:
        assert freshness(snapshot_of({"a": of("t")}), "a") == Freshness(0.0)

    def test_a_paused_table_that_is_fresh_needs_no_reason(self) -> None:
        assert freshness(snapshot_of({"a": of("t")}, notes=notes(("a", Pause(1.0)))), "a") == Freshness(0.0)

    @pytest.mark.parametrize(
        ("stream", "reason"),
        [
            (of("t", refreshed_at=NOW - 3), "not due"),
            (of("t", refreshed_at=NOW - 10), "due"),
            (of("t"), "due"),
            (of("t", refreshed_at=NOW - 10, options=StreamOptions(tier=Tier.WARM)), "not due"),
            (of("t", refreshed_at=NOW - 20, options=StreamOptions(tier=Tier.WARM)), "due"),
            (of("t", schedule=None, refreshed_at=NOW - 0.5), "not due"),
            (of("t", schedule=None, refreshed_at=NOW - 1), "due"),
            (of("t", schedule="@hourly", refreshed_at=NOW - 60), "not due"),
            (of("t", schedule="@hourly", refreshed_at=NOW - 3600), "due"),
            (of("t", schedule="manual", refreshed_at=NOW - 3600), "manual"),
            (of("t", options=StreamOptions(tier=Tier.FROZEN)), "frozen"),
            (of("t", status=SUSPENDED), "suspended"),
        ],
    )
    def test_the_reason(self, stream: S, reason: str) -> None:
        assert freshness(snapshot_of({"a": stream}, {"t": 11}), "a", a__t=4.0) == Freshness(4.0, reason)

    @pytest.mark.parametrize(
        ("note", "reason"),
        [
            (("a", Pause(1.0)), "paused"),
            ((EVERYTHING, Pause(1.0)), "paused"),
            ((EVERYTHING, Drain(1.0)), "drained"),
            (("t", Gate(1.0)), "gated: t"),
            (("a", Blown(1.0, 9, 3)), "fuse blown"),
            (("a", Trouble(1, ErrorKind.SYSTEM, 1.0, NOW + 5, "m", 11)), "failed, and is tried again in 5 s"),
        ],
    )
    def test_the_reason_that_a_note_gives(self, note: tuple[str, Note], reason: str) -> None:
        stale = snapshot_of({"a": of("t", refreshed_at=NOW - 60)}, {"t": 11}, notes(note))
        assert freshness(stale, "a", a__t=4.0) == Freshness(4.0, reason)

    def test_notes_about_others_are_no_reason(self) -> None:
        about_b = notes(("b", Pause(1.0)), ("t", Gate(1.0)), ("b", Blown(1.0, 9, 3)))
        beside = snapshot_of({"a": of("u", refreshed_at=NOW - 60), "b": of("t")}, {"u": 11}, about_b)
        assert freshness(beside, "a", a__u=4.0) == Freshness(4.0, "due")

    def test_frozen_counts_only_with_tiers(self) -> None:
        frozen = snapshot_of({"a": of("t", options=StreamOptions(tier=Tier.FROZEN), refreshed_at=NOW - 3)})
        assert freshness(frozen, "a", Settings(tiered_scheduling=False), a__t=1.0) == Freshness(1.0, "not due")

    def test_what_waits_above(self) -> None:
        chain = snapshot_of({"a": of("t", schedule="1h", refreshed_at=NOW - 5), "b": of("a"), "c": of("b")})
        assert freshness(chain, "a", a__t=4.0) == Freshness(4.0, "not due")
        assert freshness(chain, "b", a__t=4.0) == Freshness(4.0, "waits for a")
        assert freshness(chain, "c", a__t=4.0) == Freshness(4.0, "waits for a")

    def test_below_a_failed_one(self) -> None:
        failed = snapshot_of({"a": of("t", status=SUSPENDED), "b": of("a", "t")}, {"t": 11})
        assert freshness(failed, "b", b__t=2.0).reason == "waits for a, which is suspended after repeated failures"

    def test_never_populated(self) -> None:
        assert freshness(snapshot_of({"a": of("t", frontier=None)}), "a") == Freshness(None, "not populated")
        paused = snapshot_of({"a": of("t", frontier=None)}, notes=notes(("a", Pause(1.0))))
        assert freshness(paused, "a") == Freshness(None, "paused")

    def test_all_gated_sources_are_named(self) -> None:
        two = snapshot_of({"a": of("t", "u", "v")}, notes=notes(("t", Gate(1.0)), ("v", Gate(1.0))))
        assert blocked_reason(two, id_of("a"), DEFAULTS, NOW) == "gated: t, v"
        assert blocked_reason(snapshot_of({"a": of("u")}), id_of("a"), DEFAULTS, NOW) is None

    def test_watermarks(self) -> None:
        apart = notes(
            ("t", Watermark(50.0, 1.0)), ("u", Watermark(20.0, 1.0)), ("g", WatermarkGroup((id_of("t"), id_of("u"))))
        )
        assert blocked_reason(snapshot_of({"a": of("t", "u")}, notes=apart), id_of("a"), DEFAULTS, NOW) == (
            "waits for the watermark of u, 30 s behind in group g"
        )


class TestPaces:
    def test_every_kind_of_schedule(self) -> None:
        found = paces(
            snapshot_of(
                {
                    "every": of("t", schedule="1m"),
                    "cold": of("t", schedule="1m", options=StreamOptions(tier=Tier.COLD)),
                    "frozen": of("t", schedule="1m", options=StreamOptions(tier=Tier.FROZEN)),
                    "manual": of("t", schedule="manual"),
                    "cron": of("t", schedule="@daily"),
                    "alone": of("t", schedule=None),
                }
            ),
            DEFAULTS,
        )
        assert {n: p.seconds for n, p in by_name(found).items()} == {
            "every": 60.0,
            "cold": 600.0,
            "frozen": None,
            "manual": None,
            "cron": 86_400.0,
            "alone": 1.0,
        }

    def test_calculated_is_as_fast_as_its_fastest_reader(self) -> None:
        above = {"a": of("t", schedule=None), "b": of("a", schedule="calculated")}
        below = {"slow": of("b", schedule="1h"), "fast": of("b", schedule="5m"), "hand": of("b", schedule="manual")}
        found = by_name(paces(snapshot_of({**above, **below}), DEFAULTS))
        assert found["a"] == found["b"] == Pace(Calculated(), 300.0)
        assert by_name(paces(snapshot_of({**above, "hand": below["hand"]}), DEFAULTS))["a"].seconds == 1.0

    def test_of_a_frozen_reader_nothing_is_calculated(self) -> None:
        frozen = of("a", options=StreamOptions(tier=Tier.FROZEN))
        found = by_name(paces(snapshot_of({"a": of("t", schedule=None), "b": frozen}), DEFAULTS))
        assert found["a"].seconds is None

    def test_circles_and_long_chains_come_to_an_end(self) -> None:
        chain = {f"s{i}": of(f"s{i - 1}" if i else "t", schedule=None) for i in range(3000)}
        assert by_name(paces(snapshot_of(chain), DEFAULTS))["s0"].seconds == 1.0
        circle = snapshot_of({"a": of("t", "b", schedule=None), "b": of("a", schedule="7s")})
        assert by_name(paces(circle, DEFAULTS))["a"].seconds == 7.0

    def test_overdue(self) -> None:
        assert not overdue(Pace(Every(10), 10.0), 20.0, NOW)
        assert overdue(Pace(Every(10), 10.0), 20.1, NOW)
        assert not overdue(Pace(schedule_of("manual"), None), 1e9, NOW)
        hourly, passed = Pace(Cron("@hourly"), 3600.0), NOW % 3600
        assert not overdue(hourly, passed + 3599, NOW)  # one time has passed since
        assert overdue(hourly, passed + 3601, NOW)  # two have


def vitals_of(
    snapshot: Snapshot,
    settings: Settings = DEFAULTS,
    ages: Mapping[tuple[str, str], Unseen] | None = None,
    **values: Any,
) -> Vitals:
    return Vitals(present_of(snapshot, ages or {}, settings, NOW), **values)


def found(vitals: Vitals) -> dict[str, tuple[Severity, str]]:
    """Return the checks that found something."""
    return {c.check: (c.severity, c.detail) for c in health_checks(vitals) if c.severity is not Severity.OK}


def entry(owner: str = "o", **data: Any) -> SchedulerEntry:
    usual = {"host": "h", "pid": 7, "warehouse": "w", "workers": 4, "active": 1, "queued": 0, "state": "running"}
    return SchedulerEntry(owner, 1.0, 2.0, {**usual, **data})


LIVE = (entry(),)


class TestHealth:
    def test_nothing_to_say_of_an_empty_warehouse(self) -> None:
        checks = health_checks(vitals_of(snapshot_of({})))
        assert [c.severity for c in checks] == [Severity.OK] * len(CHECKS)
        assert len({c.check for c in checks}) == len(CHECKS)
        assert all(c.detail and c.hint is None for c in checks)

    def test_nothing_to_say_of_a_healthy_one(self) -> None:
        healthy = snapshot_of({"a": of("t", refresh_ms=100.0, refreshed_at=NOW - 3), "b": of("a", schedule="@daily")})
        assert found(vitals_of(healthy, schedulers=LIVE)) == {}

    def test_who_finds_something_says_what_to_do(self) -> None:
        ill = snapshot_of(
            {"a": of("t", status=SUSPENDED, last_error="no", frontier=None)}, notes=notes(("a", Pause(1.0)))
        )
        lines = [c for c in health_checks(vitals_of(ill)) if c.severity is not Severity.OK]
        assert len(lines) > 3
        assert all(c.hint for c in lines)

    def test_no_scheduler(self) -> None:
        some = snapshot_of({"a": of("t"), "m": of("t", schedule="manual")})
        assert found(vitals_of(some))["scheduler_running"][0] is Severity.WARN
        behind = unseen(a__t=1.0)
        assert found(vitals_of(some, ages=behind)) == {
            "scheduler_running": (Severity.ERROR, 'none lives, and changes wait for "a"')
        }
        assert found(vitals_of(some, ages=behind, schedulers=LIVE)) == {}

    def test_none_is_needed_where_nothing_is_scheduled(self) -> None:
        by_hand = snapshot_of({"m": of("t", schedule="manual"), "f": of("t", options=StreamOptions(tier=Tier.FROZEN))})
        assert found(vitals_of(by_hand, ages=unseen(m__t=99.0, f__t=99.0))) == {}

    def test_suspended(self) -> None:
        ill = snapshot_of({"a": of("t", status=SUSPENDED), "b": of("t")})
        assert found(vitals_of(ill, schedulers=LIVE)) == {
            "suspended_tables": (Severity.ERROR, '"a" failed too often and are not refreshed any more')
        }

    def test_errors(self) -> None:
        ill = snapshot_of({"a": of("t", last_error="division by zero"), "b": of("t", last_error="no")})
        assert found(vitals_of(ill, schedulers=LIVE)) == {
            "error_tables": (Severity.WARN, 'the last refresh failed of "a", "b"; "a": division by zero')
        }

    def test_errors_in_a_row(self) -> None:
        two = notes(
            ("a", Trouble(2, ErrorKind.USER, 1.0, 2.0, "m", 9)), ("gone", Trouble(9, ErrorKind.USER, 1, 2, "m", 9))
        )
        ill = snapshot_of({"a": of("t")}, notes=two)
        assert found(vitals_of(ill, schedulers=LIVE))["consecutive_errors"][0] is Severity.WARN
        limited = found(vitals_of(ill, Settings(max_consecutive_errors=2), schedulers=LIVE))["consecutive_errors"]
        assert limited == (Severity.ERROR, '"a" failed in a row, 2 times at most; after 2 a table is suspended')

    def test_stale(self) -> None:
        chain = snapshot_of({"a": of("t"), "b": of("a"), "m": of("t", schedule="manual")})
        at_bound = vitals_of(chain, ages=unseen(a__t=20.0, m__t=900.0), schedulers=LIVE)
        assert found(at_bound) == {}
        over = vitals_of(chain, ages=unseen(a__t=75.0, m__t=900.0), schedulers=LIVE)
        assert found(over) == {
            "stale_tables": (
                Severity.WARN,
                'changes wait longer than twice the schedule for "a"; longest for "a", 1m15s',
            )
        }, "the one that reads it is not to blame"

    def test_promises(self) -> None:
        promised = StreamOptions(sla_seconds=30.0)
        chain = snapshot_of({"a": of("t", schedule="1h"), "b": of("a", options=promised)})
        assert "missed_promises" not in found(vitals_of(chain, ages=unseen(a__t=30.0)))
        missed = found(vitals_of(chain, ages=unseen(a__t=30.5)))["missed_promises"]
        assert missed == (Severity.ERROR, 'changes are not shown as soon as promised by "b"')

    def test_rebuilds(self) -> None:
        streams = {"a": of("t", frontier=None), "b": of("t", status=REREAD), "c": of("t")}
        ill = snapshot_of(streams, notes=notes(("c", Skipped(1.0, 2, 3)), ("gone", Skipped(1.0, 2, 3))))
        assert found(vitals_of(ill, schedulers=LIVE))["needs_rebuild"] == (
            Severity.WARN,
            'never populated: "a"; changes were given up, the next refresh reads everything: "b"; '
            'changes were skipped, the contents differ from the query: "c"',
        )

    def test_buffers(self) -> None:
        waiting = (ChangeBuffer("a", "t", 10, 0, 1.0, 1), ChangeBuffer("b", "t", 11, 0, 1.0, 1))
        limit = Settings(buffer_alert_threshold=10)
        assert found(vitals_of(snapshot_of({}), limit, buffers=waiting)) == {
            "buffer_growth": (
                Severity.WARN,
                'more than 10 change rows wait for "b"; most of "t" for "b", 11',
            )
        }
        assert found(vitals_of(snapshot_of({}), limit, buffers=waiting[:1])) == {}

    def test_notes_of_operators(self) -> None:
        some = {"a": of("t"), "b": of("u")}
        for name, note, check, severity in (
            ("a", Blown(1.0, 5, 3), "blown_fuses", Severity.ERROR),
            ("a", Pause(NOW - 90), "paused", Severity.WARN),
            (EVERYTHING, Pause(NOW - 90, "ann"), "paused", Severity.WARN),
            (EVERYTHING, Drain(NOW - 90), "drained", Severity.WARN),
            ("t", Gate(NOW - 90, reason="nightly load"), "gated_sources", Severity.WARN),
        ):
            lines = found(vitals_of(snapshot_of(some, notes=notes((name, note))), schedulers=LIVE))
            assert {c: s for c, (s, _) in lines.items()} == {check: severity}
            assert "1m30s" in lines[check][1] or check == "blown_fuses"
        gone = notes(("gone", Blown(1.0, 5, 3)), ("gone", Pause(1.0)), ("gone", Gate(1.0)))
        assert found(vitals_of(snapshot_of(some, notes=gone), schedulers=LIVE)) == {}

    def test_details_of_notes(self) -> None:
        given = notes((EVERYTHING, Pause(NOW - 60, "ann")), ("t", Gate(NOW - 60, reason="nightly load")))
        lines = found(vitals_of(snapshot_of({"a": of("t")}, notes=given), schedulers=LIVE))
        assert lines["paused"][1] == "everything has been paused for 1m, by ann"
        assert lines["gated_sources"][1] == '"t", for 1m at most: nightly load'

    def test_falling_behind(self) -> None:
        def checked(stream: S, settings: Settings = DEFAULTS) -> bool:
            return "falling_behind" in found(vitals_of(snapshot_of({"a": stream}), settings, schedulers=LIVE))

        assert checked(of("t", refresh_ms=8_000.0))
        assert not checked(of("t", refresh_ms=7_999.0))
        assert not checked(of("t", refresh_ms=8_000.0, options=StreamOptions(tier=Tier.WARM)))
        assert checked(
            of("t", refresh_ms=8_000.0, options=StreamOptions(tier=Tier.WARM)), Settings(tiered_scheduling=False)
        )
        assert not checked(of("t", refresh_ms=8_000.0, schedule=None)), "a calculated schedule promises nothing"
        assert not checked(of("t", refresh_ms=8_000.0, schedule="manual"))
        assert checked(of("t", refresh_ms=50_000.0, schedule="* * * * *"))

    def test_watermarks(self) -> None:
        def checked(timeout: float, *given: tuple[str, Note]) -> dict[str, tuple[Severity, str]]:
            group = ("g", WatermarkGroup((id_of("t"), id_of("u"), id_of("v")), 10.0))
            settings = Settings(watermark_holdback_timeout=timeout)
            streams = {"a": of("t", "u", "v")}
            return found(vitals_of(snapshot_of(streams, notes=notes(group, *given)), settings, schedulers=LIVE))

        late = ("t", Watermark(50.0, NOW - 100)), ("u", Watermark(100.0, NOW))
        assert checked(60.0, *late) == {
            "stuck_watermarks": (Severity.WARN, '"t" hold back the other sources of their group')
        }
        assert checked(0.0, *late) == {}, "not watched"
        assert checked(120.0, *late) == {}, "not yet"
        assert checked(60.0, ("t", Watermark(90.0, NOW - 100)), late[1]) == {}, "within the tolerance"
        assert checked(60.0, late[0]) == {}, "nobody is ahead of it"

    def test_workers(self) -> None:
        some = snapshot_of({"a": of("t")})
        busy = (entry("a", active=4, queued=3), entry("b", active=4, queued=0))
        assert found(vitals_of(some, schedulers=busy)) == {
            "worker_pool": (Severity.WARN, "all 4 workers are busy and 3 units of work wait")
        }
        assert found(vitals_of(some, schedulers=(entry(active=3, queued=3),))) == {}

    def test_many_names(self) -> None:
        ill = snapshot_of({f"s{i}": of("t", status=SUSPENDED) for i in range(8)})
        assert found(vitals_of(ill, schedulers=LIVE))["suspended_tables"][1].startswith(
            '"s0", "s1", "s2", "s3", "s4" and 3 more failed'
        )


def batch(id_: str, first: int, last: int, inserts: int, deletes: int = 0) -> Batch:
    rows = inserts + deletes
    return Batch(id_, "t", BatchFormat.INLINE, inserts, deletes, 10 * rows, first < last, None, first, last)


class TestBuffers:
    MANIFESTS: Mapping[str, Manifest] = {
        id_of("t"): Manifest(
            (),
            (batch("read", 1, 10, 100), batch("both", 9, 12, 6, 2), batch("new", 13, 13, 3)),
            MappingProxyType({}),
        ),
        id_of("u"): Manifest((), (), MappingProxyType({})),
    }

    def test_exact_to_the_version(self) -> None:
        streams = {"a": of("t", "u"), "b": of("t", frontier=13), "c": of("t", frontier=8), "d": of("t", frontier=None)}
        some = snapshot_of(streams)
        assert read_tables(some) == [id_of("t"), id_of("u")]
        divided = divided_batches(some, self.MANIFESTS)
        assert [(d.table_id, d.batch.id, d.after) for d in divided] == [
            (id_of("t"), "both", 10),
            (id_of("t"), "read", 8),
        ]
        parts = {("both", 10): 2, ("read", 8): 25}
        assert change_buffers(some, self.MANIFESTS, unseen(a__t=4.0), parts) == [
            ChangeBuffer("a", "t", 5, 50, 4.0, 2),
            ChangeBuffer("a", "u", 0, 0, None, 0),
            ChangeBuffer("b", "t", 0, 0, None, 0),
            ChangeBuffer("c", "t", 25 + 8 + 3, 360, None, 3),
            ChangeBuffer("d", "t", 0, 0, None, 0),
        ]

    def test_a_divided_batch_without_rows_behind_the_frontier_does_not_wait(self) -> None:
        some = snapshot_of({"a": of("t")})
        assert change_buffers(some, self.MANIFESTS, {}, {("both", 10): 0})[0] == ChangeBuffer("a", "t", 3, 30, None, 1)

    def test_a_source_read_at_another_version(self) -> None:
        later = snapshot_of({"a": of("t", frontiers={id_of("t"): 12})})
        assert divided_batches(later, self.MANIFESTS) == []
        assert change_buffers(later, self.MANIFESTS, {}, {})[0].pending_rows == 3


class TestTree:
    DIAMOND: Mapping[str, S] = {
        "left": of("orders", schedule="1m"),
        "right": of("orders", "items", schedule=None),
        "both": of("left", "right", status=SUSPENDED),
        "above": of("both", "left"),
        "other": of("items", schedule="manual"),
    }

    def test_all(self) -> None:
        tree = dependency_tree(snapshot_of(self.DIAMOND))
        assert str(tree).splitlines() == [
            "above (AUTO, 10s)",
            "├─ both (AUTO, 10s, SUSPENDED)",
            "│  ├─ left (AUTO, 1m)",
            "│  │  └─ orders (table)",
            "│  └─ right (AUTO, calculated)",
            "│     ├─ items (table)",
            "│     └─ orders (table)",
            "└─ left (AUTO, 1m) …",
            "other (AUTO, manual)",
            "└─ items (table)",
        ]
        assert [(n.name, n.depth, n.parent) for n in tree.nodes][:4] == [
            ("above", 0, None),
            ("both", 1, "above"),
            ("left", 2, "both"),
            ("orders", 3, "left"),
        ]
        assert tree.nodes[7] == TreeNode("left", "stream", 1, "above", "AUTO", "1m", "ACTIVE", is_repeated=True)
        assert tree.nodes[3] == TreeNode("orders", "managed", 3, "left")

    def test_one(self) -> None:
        some = snapshot_of(self.DIAMOND)
        assert dependency_tree(some, id_of("right")).text.splitlines() == [
            "right (AUTO, calculated)",
            "├─ items (table)",
            "└─ orders (table)",
        ]
        assert dependency_tree(some, id_of("orders")).text == "orders (table)"

    def test_nothing(self) -> None:
        assert dependency_tree(snapshot_of({})) == DependencyTree((), "")

    def test_circles_are_shown_once(self) -> None:
        circle = dependency_tree(snapshot_of({"a": of("t", "b"), "b": of("a")}))
        assert [n.name for n in circle.nodes] == ["a", "b", "a", "t"]
        assert circle.nodes[2].is_repeated

    def test_a_long_chain(self) -> None:
        chain = snapshot_of({f"s{i}": of(f"s{i - 1}" if i else "t") for i in range(2000)})
        assert dependency_tree(chain).nodes[-1].depth == 2000

    def test_names_cannot_break_lines(self) -> None:
        assert dependency_tree(snapshot_of({"a\nb": of("t")})).text.splitlines()[0] == "a b (AUTO, 10s)"


def graph(snapshot: Snapshot) -> Any:
    return graph_of({i: snapshot.sources[i] for i in snapshot.streams})


class TestDiamonds:
    def test_members_and_policies(self) -> None:
        slow = StreamOptions(diamond_schedule_policy=GroupPolicy.SLOWEST, diamond_consistency=Consistency.NONE)
        streams = {
            "left": of("t"),
            "right": of("t", frontier=9, options=StreamOptions(diamond_schedule_policy=GroupPolicy.SLOWEST)),
            "both": of("left", "right"),
            "x": of("u"),
            "again": of("x", "u", options=slow),
            "alone": of("v"),
        }
        some = snapshot_of(streams)
        fast, atomic = GroupPolicy.FASTEST, Consistency.ATOMIC
        assert diamond_groups(some, graph(some)) == [
            DiamondGroup("again", "x", False, GroupPolicy.SLOWEST, Consistency.NONE, 10),
            DiamondGroup("again", "again", True, GroupPolicy.SLOWEST, Consistency.NONE, 10),
            DiamondGroup("both", "left", False, fast, atomic, 10),
            DiamondGroup("both", "right", False, fast, atomic, 9),
            DiamondGroup("both", "both", True, fast, atomic, 10),
        ], "the options of where ways meet count, not those of the ways"

    def test_none(self) -> None:
        some = snapshot_of({"a": of("t"), "b": of("a")})
        assert diamond_groups(some, graph(some)) == []

    def test_the_strictest_of_two_meetings_counts(self) -> None:
        slow = StreamOptions(diamond_schedule_policy=GroupPolicy.SLOWEST, diamond_consistency=Consistency.NONE)
        some = snapshot_of({"a": of("t"), "b": of("t"), "m": of("a", "b", options=slow), "n": of("m", "b")})
        lines = diamond_groups(some, graph(some))
        assert {(d.group, d.policy, d.consistency) for d in lines} == {("n", GroupPolicy.SLOWEST, Consistency.ATOMIC)}
        assert {d.member for d in lines if d.is_convergence} == {"m", "n"}


class TestDrawing:
    STREAMS: Mapping[str, S] = {
        "left": of("t", options=StreamOptions(tier=Tier.COLD)),
        "right": of("t", schedule=None),
        "both": of("left", "right"),
        "late": of("u", schedule="@daily"),
        "stopped": of("t"),
        "ill": of("t", status=SUSPENDED),
    }

    def drawn(self, format_: str, **values: Any) -> str:
        some = snapshot_of(self.STREAMS, {"u": 12}, **values)
        return explained_dag(drawing_of(some, graph(some), DEFAULTS, NOW), format_)

    def test_mermaid(self) -> None:
        paused = notes(("stopped", Pause(1.0)), ("pair", RefreshGroup((id_of("late"), id_of("stopped")))))
        assert self.drawn("mermaid", notes=paused).splitlines()[:-5] == [
            "flowchart LR",
            '  subgraph g0["diamond both"]',
            '    t2["left<br/>10s, cold, AUTO"]:::fresh',
            '    t3["right<br/>calculated, hot, AUTO"]:::fresh',
            '    t7["both<br/>10s, hot, AUTO"]:::fresh',
            "  end",
            '  subgraph g1["group pair"]',
            '    t4["late<br/>@daily, hot, AUTO"]:::behind',
            '    t5["stopped<br/>10s, hot, AUTO"]:::blocked',
            "  end",
            '  t0[("t")]:::source',
            '  t1[("u")]:::source',
            '  t6["ill<br/>10s, hot, AUTO<br/>SUSPENDED"]:::failed',
            "  t0 --> t2",
            "  t0 --> t3",
            "  t1 --> t4",
            "  t0 --> t5",
            "  t0 --> t6",
            "  t2 --> t7",
            "  t3 --> t7",
        ]

    def test_every_class_is_defined(self) -> None:
        text = self.drawn("Mermaid")
        used = {line.rpartition(":::")[2] for line in text.splitlines() if ":::" in line}
        assert used == {"source", "fresh", "behind", "failed"}
        assert {line.split()[1] for line in text.splitlines() if line.startswith("  classDef")} >= used

    def test_dot(self) -> None:
        lines = self.drawn("dot").splitlines()
        assert lines[0] == "digraph headwater {"
        assert lines[-1] == "}"
        assert "  subgraph cluster_g0 {" in lines
        assert '    label="diamond both";' in lines
        assert '  t0 [label="t", fillcolor="#eceff1", color="#546e7a", shape=cylinder, style=filled];' in lines
        assert '    t2 [label="left\\n10s, cold, AUTO", fillcolor="#e8f5e9", color="#2e7d32"];' in lines
        assert "  t0 -> t2;" in lines
        assert sum("{" in line for line in lines) == sum("}" in line for line in lines)

    def test_a_group_that_shares_a_member_with_a_diamond_is_one_with_it(self) -> None:
        pair = notes(("pair", RefreshGroup((id_of("both"), id_of("late")))))
        text = self.drawn("mermaid", notes=pair)
        assert 'subgraph g0["diamond both and group pair"]' in text
        assert text.count("subgraph") == 1
        assert text.count('["late<br/>') == 1

    def test_a_group_without_members_left_is_not_drawn(self) -> None:
        gone = notes(("pair", RefreshGroup((id_of("gone"),))))
        assert self.drawn("mermaid", notes=gone).count("subgraph") == 1

    @pytest.mark.parametrize(
        "name",
        [
            'a"b',
            "a]b",
            "end",
            "a#quot;b",
            "<b>",
            "a\nb",
            "a`b",
            "a\\b",
            'x"];y',
            "größe",
            "a;b|c",
            "- a",
            "*a*",
            "1. a",
        ],
    )
    def test_names_are_quoted(self, name: str) -> None:
        some = snapshot_of({name: of("t")})
        drawing = drawing_of(some, graph(some), DEFAULTS, NOW)
        (line,) = [x for x in explained_dag(drawing, "mermaid").splitlines() if ":::fresh" in x]
        assert line.startswith('  t1["')
        assert line.endswith('<br/>10s, hot, AUTO"]:::fresh')
        inside = line[len('  t1["') : -len('<br/>10s, hot, AUTO"]:::fresh')]
        assert not set(inside) & set('"`[]{}<>|\\*-.')
        assert _unescaped(inside) == name.replace("\n", " ")
        (dot,) = [x for x in explained_dag(drawing, "dot").splitlines() if x.startswith("  t1 [")]
        text = dot[len('  t1 [label="') : dot.index("\\n10s")]
        assert text.replace('\\"', '"').replace("\\\\", "\\") == name.replace("\n", " ")

    @pytest.mark.parametrize("format_", ["svg", "", "mermaid "])
    def test_other_formats_are_refused(self, format_: str) -> None:
        with pytest.raises(StatementError, match="unknown format") as refused:
            self.drawn(format_)
        assert refused.value.hint == "Choose one of mermaid, dot."


def _unescaped(text: str) -> str:
    parts = text.split("#")
    return parts[0] + "".join(chr(int(p.partition(";")[0])) + p.partition(";")[2] for p in parts[1:])


class TestTimeline:
    def test_names(self) -> None:
        some = snapshot_of({"a": of("t")})
        line = RefreshRecord(id_of("a"), 1.0, 2.0, RefreshAction.FULL, "COMPLETED", 3, 2, 1, 12.5, 4, "why", 8, 9, 10)
        first, second = timeline_of(some, [line, replace(line, table_id="id:gone", status="FAILED", error="no")])
        assert (first.name, first.action, first.rows_inserted, first.frontier, first.version) == (
            "a",
            RefreshAction.FULL,
            2,
            9,
            10,
        )
        assert (second.name, second.status, second.error) == (GONE, "FAILED", "no")


class TestWorkers:
    ENTRIES = (
        entry("a", active=2, queued=1, quota=3, ticks=9, refreshes=7, failures=1, last_tick_ms=12.5, pool="pool"),
        entry("b", host="k", active=4, queued=5),
        entry("c", host="k", warehouse="v", workers=8, active=0, state="draining"),
    )

    def test_allocation(self) -> None:
        assert worker_allocation(self.ENTRIES) == [
            WorkerAllocation("w", "a", 2, 3, 1, 6, 16),
            WorkerAllocation("w", "b", 4, 4, 5, 6, 16),
            WorkerAllocation("v", "c", 0, 8, 0, 6, 16),
        ]

    def test_cluster(self) -> None:
        twice = (*self.ENTRIES, entry("d", host="k", active=1, queued=1))
        assert cluster_workers(twice) == [
            ClusterWorkers("v", "k", 1, 0, 0, 8),
            ClusterWorkers("w", "h", 1, 2, 1, 4),
            ClusterWorkers("w", "k", 2, 5, 6, 8),
        ]

    def test_schedulers(self) -> None:
        first, second, third = scheduler_statuses(self.ENTRIES)
        assert (first.scheduler, first.pid, first.pool, first.ticks, first.refreshes, first.failures) == (
            "a",
            7,
            "pool",
            9,
            7,
            1,
        )
        assert (first.alive_since, first.seen_at, first.last_tick_ms) == (1.0, 2.0, 12.5)
        assert (second.last_tick_ms, second.ticks) == (None, 0)
        assert third.state == "draining"

    def test_a_scheduler_that_says_nothing(self) -> None:
        (status,) = scheduler_statuses([SchedulerEntry("x", 1.0, 2.0, {})])
        assert (status.host, status.workers, status.last_tick_ms) == ("", 0, None)


class TestMetrics:
    def test_numbers(self) -> None:
        streams = {
            "a": of("t"),
            "b": of("u", status=SUSPENDED),
            "c": of("u"),
            "d": of("t", frontier=None),
        }
        given = notes(
            ("c", Pause(1.0)),
            ("gone", Pause(1.0)),
            ("b", Trouble(3, ErrorKind.USER, 1.0, 2.0, "m", 9)),
            ("gone", Trouble(30, ErrorKind.USER, 1.0, 2.0, "m", 9)),
            ("a", Blown(1.0, 9, 3)),
            ("t", Gate(1.0)),
        )
        some = snapshot_of(streams, {"t": 12}, given)
        totals = RefreshTotals(40, 2, 30, 10, 1000, 500, 4096, 80, 2500.0)
        ages = ages_of(some, unseen(a__t=5.0))
        numbers = metrics_of(some, totals, ages, [entry(), entry("b", queued=2)], {"x": 3, "y": 4})
        assert all(isinstance(v, float) for v in numbers.values())
        assert numbers == {
            "refreshes_total": 42,
            "refreshes_completed_total": 40,
            "refresh_failures_total": 2,
            "refreshes_differential_total": 30,
            "refreshes_full_total": 10,
            "refresh_seconds_total": 2.5,
            "rows_read_total": 1000,
            "rows_changed_total": 500,
            "bytes_written_total": 4096,
            "spark_jobs_total": 80,
            "change_reads_total": 7,
            "stream_tables": 4,
            "active_stream_tables": 2,
            "paused_stream_tables": 1,
            "suspended_stream_tables": 1,
            "pending_stream_tables": 2,
            "blown_fuses": 1,
            "gated_sources": 1,
            "consecutive_errors_max": 3,
            "staleness_max_seconds": 5.0,
            "schedulers": 2,
            "workers": 8,
            "workers_active": 2,
            "units_queued": 2,
            "version": 20,
        }

    def test_everything_paused(self) -> None:
        some = snapshot_of({"a": of("t"), "b": of("t")}, notes=notes((EVERYTHING, Pause(1.0))))
        numbers = metrics_of(some, RefreshTotals(), Ages({}, {}, {}), [], {})
        assert (numbers["paused_stream_tables"], numbers["active_stream_tables"]) == (2, 0)

    def test_nothing(self) -> None:
        numbers = metrics_of(snapshot_of({}), RefreshTotals(), Ages({}, {}, {}), [], {})
        assert {n for n, v in numbers.items() if v} == {"version"}
