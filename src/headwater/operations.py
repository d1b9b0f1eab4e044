"""What operators do with a running warehouse: pausing, draining, gates, watermarks, groups, fuses.

All of it is written into the catalog as notes, so that it holds for every scheduler of the warehouse and survives a restart. A name that
does not exist is an error, and then nothing is written.
"""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

from headwater.catalog import Catalog, Snapshot
from headwater.errors import DuplicateTableError, PausedError, StatementError, UnknownGroupError, WrongKindError
from headwater.model.commit import Commit, DefineStream, LeaseToken, MoveFrontier
from headwater.model.control import (
    EVERYTHING,
    Blown,
    Drain,
    Gate,
    Noted,
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
from headwater.model.options import StreamOptions, options_with
from headwater.model.reports import FuseStatus, GateStatus, GroupStatus, PauseReport, WatermarkStatus
from headwater.model.tables import SUSPENDED, RefreshAction, StreamTable, Table, TableKind
from headwater.refresh.cycle import LEASES, Refresher, RefreshReport, lease_name
from headwater.schedule.graph import Graph, empty_graph, rebuilt
from headwater.schedule.groups import Group, groups_of
from headwater.schedule.scheduler import Scheduler
from headwater.schedule.schedules import seconds_of
from headwater.schedule.telling import Listener, Teller
from headwater.schedule.units import units_of
from headwater.schedule.watch import fuse_ceiling, rows_waiting
from headwater.schedule.workers import Crew, workers_of
from headwater.store.ground import Ground
from headwater.store.maintain import Maintenance

LOG = logging.getLogger("headwater.operations")

_POLL_SECONDS = 0.1
FUSE_ACTIONS = ("apply", "reinitialize", "skip_changes")


class Operations(ABC):
    """The part of a warehouse that operators use."""

    _catalog: Catalog
    _ground: Ground
    _refresher: Refresher
    _maintenance: Maintenance
    _teller: Teller
    _graph: Graph = empty_graph()

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Return the newest snapshot."""

    @abstractmethod
    def lookup(self, snapshot: Snapshot, name: str) -> Table:
        """Return the table of that name."""

    @abstractmethod
    def _stream(self, snapshot: Snapshot, name: str) -> tuple[Table, StreamTable]:
        """Return a stream table and its definition."""

    # scheduler --------------------------------------------------------------------------------------------------------------

    def scheduler(self, crew: Crew | None = None) -> Scheduler:
        """Return a scheduler of this warehouse: `tick` runs one round, `start` a thread that goes on until `stop`.

        Give the same `crew` to the schedulers of several warehouses, and they share its workers fairly.
        """
        self.snapshot()
        workers = crew or Crew(workers_of(self._ground.settings))
        return Scheduler(
            self._ground, self._refresher, self._maintenance.after_change, crew=workers, teller=self._teller
        )

    def events(self, limit: int = 100, after: int = 0) -> list[Event]:
        """Return what happened, newest first; `after` is the id of the last event that is known already."""
        self._teller.keep()
        return self._catalog.events(limit, after)

    def on_event(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with each event of this process from now on; return what ends that."""
        return self._teller.listen(listener)

    # pausing ----------------------------------------------------------------------------------------------------------------

    def pause_scheduler(self, names: Sequence[str] | str) -> PauseReport:
        """Start no refreshes of these stream tables, and wait for those that run, `scheduler_drain_timeout` seconds at most.

        Holds for all schedulers, until `resume_scheduler`. Refreshes asked for by hand still run.
        """
        snapshot = self.snapshot()
        streams = self._streams(snapshot, names)
        now = self._catalog.now()
        fresh = [t for t in streams if snapshot.notes.get(Pause, t.id) is None]
        self._catalog.note([noted(t.id, Pause(now, self._ground.owner)) for t in fresh])
        return self._waited(streams)

    def resume_scheduler(self, names: Sequence[str] | str) -> tuple[str, ...]:
        """Let schedulers refresh these stream tables again; return those that were paused."""
        snapshot = self.snapshot()
        paused = [t for t in self._streams(snapshot, names) if snapshot.notes.get(Pause, t.id) is not None]
        self._catalog.note([withdrawn(Pause, t.id) for t in paused])
        return tuple(t.name for t in paused)

    def pause_all(self) -> PauseReport:
        """Pause every stream table, those made later too, until `resume_all`."""
        snapshot = self.snapshot()
        self._catalog.note([noted(EVERYTHING, Pause(self._catalog.now(), self._ground.owner))])
        return self._waited([snapshot.tables[i] for i in snapshot.streams])

    def resume_all(self) -> tuple[str, ...]:
        """End all pauses; return the stream tables that were paused by name."""
        snapshot = self.snapshot()
        paused = snapshot.notes.of(Pause)
        self._catalog.note([withdrawn(Pause, name) for name in paused])
        return tuple(sorted(snapshot.tables[i].name for i in paused if i in snapshot.streams))

    def drain(self, timeout_seconds: float = 60.0) -> bool:
        """Let no scheduler begin anything, and wait for what runs; return whether nothing runs any more. `undrain` ends it."""
        self._catalog.note([noted(EVERYTHING, Drain(self._catalog.now(), self._ground.owner))])
        deadline = time.monotonic() + timeout_seconds
        while self._running():
            if time.monotonic() >= deadline:
                LOG.warning("drain timed out after=%gs running=%s", timeout_seconds, ",".join(self._running()))
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def undrain(self) -> None:
        """Let schedulers begin work again."""
        self._catalog.note([withdrawn(Drain, EVERYTHING)])

    def is_drained(self) -> bool:
        """Say whether the warehouse is drained and nothing runs."""
        return self.snapshot().notes.get(Drain, EVERYTHING) is not None and not self._running()

    def _running(self) -> list[str]:
        """Return the stream tables that anybody is refreshing now."""
        snapshot = self.snapshot()
        held = self._catalog.leases_of_others(LEASES, "")
        found = (snapshot.tables.get(name.removeprefix(LEASES)) for name in held)
        return sorted(t.name for t in found if t is not None)

    def _waited(self, tables: Sequence[Table]) -> PauseReport:
        names = {t.name for t in tables}
        deadline = time.monotonic() + self._ground.settings.scheduler_drain_timeout
        while True:
            running = tuple(n for n in self._running() if n in names)
            if not running or time.monotonic() >= deadline:
                break
            time.sleep(_POLL_SECONDS)
        if running:
            LOG.warning(
                "still running after=%gs tables=%s", self._ground.settings.scheduler_drain_timeout, ",".join(running)
            )
        return PauseReport(tuple(sorted(names)), running)

    def _streams(self, snapshot: Snapshot, names: Sequence[str] | str) -> list[Table]:
        wanted = [names] if isinstance(names, str) else list(names)
        return [self._stream(snapshot, n)[0] for n in dict.fromkeys(wanted)]

    # suspended tables and fuses ---------------------------------------------------------------------------------------------

    def resume_stream_table(self, name: str) -> bool:
        """Let a suspended stream table be refreshed again, its failures forgotten; return whether it was in trouble."""
        snapshot = self.snapshot()
        table, stream = self._stream(snapshot, name)
        was_suspended = stream.status == SUSPENDED
        had_trouble = snapshot.notes.get(Trouble, table.id) is not None
        if had_trouble:
            self._catalog.note([withdrawn(Trouble, table.id)])
        if was_suspended:
            self._catalog.resume_stream(table.id)
            self._teller.tell(EventKind.RESUMED, self._catalog.now(), table.name)
            self._teller.keep()
        return was_suspended or had_trouble

    def fuse_status(self) -> list[FuseStatus]:
        """Return the fuse of each stream table that has one: its ceiling, what waits, and whether it has blown."""
        snapshot = self.snapshot()
        ceilings = {i: fuse_ceiling(s, self._ground.settings) for i, s in snapshot.streams.items()}
        blown = snapshot.notes.of(Blown)
        guarded = [i for i, ceiling in ceilings.items() if ceiling or i in blown]
        waiting = rows_waiting(self._catalog, snapshot, guarded)
        return [
            FuseStatus(
                snapshot.tables[i].name,
                snapshot.streams[i].options.fuse_mode.value,
                ceilings[i],
                waiting.get(i, 0),
                blown[i].at if i in blown else None,
            )
            for i in sorted(guarded, key=lambda i: snapshot.tables[i].name)
        ]

    def reset_fuse(self, name: str, action: str = "apply") -> RefreshReport | None:
        """Mend the fuse of a stream table: `apply` what waits, `reinitialize` it from its sources, or `skip_changes`.

        After `skip_changes` the table is not equal to its query any more until it is computed anew; `status` and `verify` say so.
        """
        snapshot = self.snapshot()
        table, stream = self._stream(snapshot, name)
        if action not in FUSE_ACTIONS:
            raise StatementError(
                f"unknown action {action!r} for a fuse", hint=f"Choose one of {', '.join(FUSE_ACTIONS)}."
            )
        if snapshot.notes.get(Blown, table.id) is None:
            raise PausedError(
                f'the fuse of stream table "{table.name}" has not blown', hint="`headwater fuse` lists all fuses."
            )
        report = None
        group = self._with_group(snapshot, table.id)
        if action == "skip_changes":
            if len(group) > 1:
                names = ", ".join(f'"{snapshot.tables[i].name}"' for i in group if i != table.id)
                raise StatementError(
                    f'changes of stream table "{table.name}" cannot be skipped for it alone',
                    detail=f"It stands for one moment together with {names}.",
                    hint="Use apply or reinitialize; or drop the group first.",
                )
            self._skip(snapshot, table, stream)
        else:
            report = self.refreshed_together(group, full=action == "reinitialize")[table.id]
        self._catalog.note([withdrawn(Blown, table.id)])
        return report

    def refreshed_together(self, table_ids: Sequence[str], *, full: bool = False) -> dict[str, RefreshReport]:
        """Refresh stream tables to the newest version in one commit, and put them in order afterwards."""
        reports = self._refresher.refresh_together(table_ids, full=full)
        done = dict(zip(table_ids, reports, strict=True))
        self._maintenance.after_change([i for i, r in done.items() if r.action is not RefreshAction.NO_DATA])
        return done

    def _skip(self, snapshot: Snapshot, table: Table, stream: StreamTable) -> None:
        """Bring the frontier of a stream table to the newest version without computing anything."""
        if stream.frontier is None:
            raise WrongKindError(f'stream table "{table.name}" is not populated yet', hint="Refresh it first.")
        lease = self._lease(table)
        with self._catalog.keep_leases([lease], self._ground.settings.lease_seconds):
            before = snapshot.notes.get(Skipped, table.id)
            after = stream.frontier if before is None else before.after
            # Said before it is done: a difference that nobody knows of would be worse than one that is not there.
            self._catalog.note([noted(table.id, Skipped(self._catalog.now(), after, snapshot.version))])
            move = MoveFrontier(table.id, stream.frontier, snapshot.version)
            self._catalog.commit(Commit((move,), leases=(lease,)))

    def _lease(self, table: Table) -> LeaseToken:
        settings = self._ground.settings
        taken = self._catalog.acquire(lease_name(table.id), self._ground.owner, settings.lease_seconds)
        if taken is None:
            raise PausedError(f'stream table "{table.name}" is being refreshed', hint="Try again when that is over.")
        return taken

    # gates and watermarks ---------------------------------------------------------------------------------------------------

    def gate_source(self, name: str, reason: str = "") -> None:
        """Let scheduled refreshes of everything that reads this table wait, for example while it is loaded."""
        table = self._source(self.snapshot(), name)
        self._catalog.note([noted(table.id, Gate(self._catalog.now(), self._ground.owner, reason))])

    def ungate_source(self, name: str) -> bool:
        """Open a gate; return whether it was closed."""
        snapshot = self.snapshot()
        table = self._source(snapshot, name)
        was_gated = snapshot.notes.get(Gate, table.id) is not None
        if was_gated:
            self._catalog.note([withdrawn(Gate, table.id)])
        return was_gated

    def source_gates(self) -> list[GateStatus]:
        """Return the gates that are closed, and who waits at them."""
        snapshot = self.snapshot()
        return [
            GateStatus(
                snapshot.tables[i].name,
                gate.at,
                gate.reason,
                tuple(sorted(snapshot.tables[r].name for r in snapshot.dependents.get(i, ()))),
            )
            for i, gate in snapshot.notes.of(Gate).items()
            if i in snapshot.tables
        ]

    def advance_watermark(self, source: str, value: float) -> None:
        """Say that the data of a source are complete up to `value`, in epoch seconds. A watermark never goes back."""
        snapshot = self.snapshot()
        table = self._source(snapshot, source)
        before = snapshot.notes.get(Watermark, table.id)
        if not math.isfinite(value):
            raise StatementError(f"a watermark cannot be {value}", hint="Give a moment in epoch seconds.")
        if before is not None and value < before.value:
            raise StatementError(
                f'the watermark of "{table.name}" cannot go back',
                detail=f"It stands at {before.value:g}, {value:g} was given.",
                hint="A watermark says up to when data are complete; that does not become untrue.",
            )
        if before is None or value > before.value:
            self._catalog.note([noted(table.id, Watermark(float(value), self._catalog.now()))])

    def create_watermark_group(self, name: str, sources: Sequence[str], tolerance_seconds: float = 0.0) -> None:
        """Let stream tables that read several of these sources wait until their watermarks are no further apart than that."""
        snapshot = self.snapshot()
        ids = tuple(dict.fromkeys(self._source(snapshot, s).id for s in sources))
        if len(ids) < 2:
            raise StatementError(f'watermark group "{name}" needs two sources or more')
        if not (math.isfinite(tolerance_seconds) and tolerance_seconds >= 0):
            raise StatementError(
                f"a tolerance of {tolerance_seconds:g} s makes no sense", hint="Give 0 or more seconds."
            )
        if snapshot.notes.get(WatermarkGroup, name) is not None:
            raise DuplicateTableError(f'watermark group "{name}" exists already', hint="Drop it first.")
        self._catalog.note([noted(name, WatermarkGroup(ids, float(tolerance_seconds)))])

    def drop_watermark_group(self, name: str) -> None:
        """Forget a watermark group."""
        self._drop_group(WatermarkGroup, name)

    def watermarks(self) -> list[WatermarkStatus]:
        """Return the watermarks, the groups that their sources are in, and how far each is behind the furthest of its groups."""
        snapshot = self.snapshot()
        marks = snapshot.notes.of(Watermark)
        groups = snapshot.notes.of(WatermarkGroup)
        found = []
        for source, mark in marks.items():
            if source not in snapshot.tables:
                continue
            mine = {n: g for n, g in groups.items() if source in g.sources}
            furthest = max((marks[s].value for g in mine.values() for s in g.sources if s in marks), default=mark.value)
            found.append(
                WatermarkStatus(
                    snapshot.tables[source].name, mark.value, mark.at, tuple(sorted(mine)), furthest - mark.value
                )
            )
        return sorted(found, key=lambda w: w.source)

    # groups -----------------------------------------------------------------------------------------------------------------

    def create_refresh_group(self, name: str, members: Sequence[str]) -> None:
        """Let stream tables always appear together: their refreshes are one commit, at one moment."""
        snapshot = self.snapshot()
        ids = tuple(dict.fromkeys(t.id for t in self._streams(snapshot, members)))
        if len(ids) < 2:
            raise StatementError(f'refresh group "{name}" needs two stream tables or more')
        if snapshot.notes.get(RefreshGroup, name) is not None:
            raise DuplicateTableError(f'refresh group "{name}" exists already', hint="Drop it first.")
        for other, group in snapshot.notes.of(RefreshGroup).items():
            shared = [i for i in ids if i in group.members]
            if shared:
                raise DuplicateTableError(
                    f'stream table "{snapshot.tables[shared[0]].name}" is in refresh group "{other}" already',
                    hint="A stream table is in one group at most.",
                )
        self._catalog.note([noted(name, RefreshGroup(ids))])
        self._brought_together(ids)

    def drop_refresh_group(self, name: str) -> None:
        """Forget a refresh group; its stream tables are refreshed one by one again."""
        self._drop_group(RefreshGroup, name)

    def refresh_groups(self) -> list[GroupStatus]:
        """Return the refresh groups that users made."""
        snapshot = self.snapshot()
        return [
            GroupStatus(name, tuple(snapshot.tables[m].name for m in group.members if m in snapshot.streams))
            for name, group in sorted(snapshot.notes.of(RefreshGroup).items())
        ]

    def _drop_group(self, kind: type[WatermarkGroup] | type[RefreshGroup], name: str) -> None:
        known = self.snapshot().notes.of(kind)
        if name not in known:
            raise UnknownGroupError(
                f'group "{name}" does not exist', hint=f"The groups are {', '.join(sorted(known))}." if known else None
            )
        self._catalog.note([withdrawn(kind, name)])

    def _groups(self, snapshot: Snapshot) -> tuple[Group, ...]:
        """Return the groups that are committed together."""
        return groups_of(self._graph_of_streams(snapshot), snapshot)

    def _graph_of_streams(self, snapshot: Snapshot) -> Graph:
        """Return the graph of a snapshot; what is known of an older one is used again."""
        graph = rebuilt(self._graph, {n: snapshot.sources.get(n, ()) for n in snapshot.streams})
        self._graph = graph
        return graph

    def _with_group(self, snapshot: Snapshot, table_id: str) -> tuple[str, ...]:
        """Return the stream tables that have to be refreshed with one, itself included, sources first."""
        for group in self._groups(snapshot):
            if table_id in group.members:
                return group.members
        return (table_id,)

    def _units(self, snapshot: Snapshot) -> list[tuple[str, ...]]:
        """Return all stream tables, those together that are committed together, sources first."""
        groups = [g.members for g in self._groups(snapshot)]
        return [u.members for u in units_of(self._graph_of_streams(snapshot), snapshot.streams, groups)]

    def _brought_together(self, table_ids: Iterable[str]) -> None:
        """Bring the groups of stream tables to one moment, where they are not yet."""
        snapshot = self.snapshot()
        wanted = set(table_ids)
        for group in self._groups(snapshot):
            if wanted.intersection(group.members):
                self.refreshed_together(group.members)

    # promises ---------------------------------------------------------------------------------------------------------------

    def set_stream_table_sla(self, name: str, seconds: float | str | None) -> None:
        """Promise that changes are visible in a stream table so long after they were made, at most; None takes it back."""
        snapshot = self.snapshot()
        table, stream = self._stream(snapshot, name)
        promised = seconds_of(str(seconds)) if seconds is not None else None
        self._redefine(snapshot, table, stream, options_with(stream.options, {"sla_seconds": promised}))

    def _redefine(self, snapshot: Snapshot, table: Table, stream: StreamTable, options: StreamOptions) -> None:
        """Replace the options of a stream table."""
        change = DefineStream(
            table.id,
            stream.query,
            stream.mode,
            stream.schedule,
            stream.when_full,
            stream.definition,
            snapshot.sources[table.id],
            stream.frontier,
            options,
        )
        self._catalog.commit(Commit((change,), generation=snapshot.generation))

    def _source(self, snapshot: Snapshot, name: str) -> Table:
        table = self.lookup(snapshot, name)
        if table.kind is TableKind.STREAM:
            raise WrongKindError(
                f'"{table.name}" is a stream table', hint="Gates and watermarks are of tables that users write to."
            )
        return table


def carried_over(snapshot: Snapshot, old_id: str, new_id: str) -> list[Noted]:
    """Return what has to be noted so that a stream table that replaces another one stays paused, and in its group."""
    found: list[Noted] = []
    pause = snapshot.notes.get(Pause, old_id)
    if pause is not None:
        found.append(noted(new_id, pause))
    for name, group in snapshot.notes.of(RefreshGroup).items():
        if old_id in group.members:
            found.append(noted(name, RefreshGroup(tuple(new_id if m == old_id else m for m in group.members))))
    return found
