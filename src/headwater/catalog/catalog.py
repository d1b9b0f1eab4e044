"""The catalog: the only truth about what the warehouse holds.

This class is the face of the package. It owns the database and the kept snapshot; what each method does is in the
module that it names.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Self

from sqlalchemy import func, select

from headwater.catalog import exports, freshness, leases, noting, pins, progress, reading, templates, vacuum, writes
from headwater.catalog.committing import Committer, record_refresh
from headwater.catalog.connect import Options
from headwater.catalog.keeper import LeaseKeeper
from headwater.catalog.opening import Opened, create_catalog, open_catalog
from headwater.catalog.records import Head, LeaseHolder, Manifest, SchedulerEntry, Snapshot, Write
from headwater.catalog.snapshots import Snapshots
from headwater.catalog.tables import commits
from headwater.model.commit import Commit, LeaseToken
from headwater.model.control import Noted
from headwater.model.events import Event
from headwater.model.reports import RefreshTotals, Unseen
from headwater.model.tables import DataFile, RefreshRecord

DEFAULTS = Options()
LOG = logging.getLogger("headwater.catalog")


class Catalog:
    """An open catalog. Threads may share it; every call is one short transaction of its own.

    `url` is the address as it was given, for other processes to open; `shown_url` is for people and never has a password.
    """

    def __init__(self, url: str, opened: Opened) -> None:
        self._database = opened.database
        self._snapshots = Snapshots(opened.database)
        self._committer = Committer(opened.database)
        self._listeners: list[Callable[[], None]] = []
        self.url = url
        self.shown_url = opened.database.url
        self.warehouse_id = opened.warehouse_id
        self.location = opened.location

    @staticmethod
    def create(url: str, *, location: str, options: Options = DEFAULTS) -> Catalog:
        """Make a new catalog for the files at `location`. Fails with `CatalogExistsError` if there is one."""
        return Catalog(url, create_catalog(url, location, options))

    @staticmethod
    def open(url: str, *, options: Options = DEFAULTS) -> Catalog:
        """Open a catalog, migrated if its format is older.

        What is no catalog, damaged or newer is refused unchanged.
        """
        return Catalog(url, open_catalog(url, options))

    def close(self) -> None:
        """Close the connections; any later call fails."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def now(self) -> float:
        """Return the catalog's time in epoch seconds: the clock that leases, writes and pins are measured by."""
        return float(
            self._database.read(lambda connection: connection.execute(select(self._database.now)).scalar_one())
        )

    # Reading

    def head(self) -> Head:
        """Return where the catalog stands: three numbers, one query."""
        return reading.head(self._database)

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Return all tables at `version`, or at the newest one."""
        return self._snapshots.newest() if version is None else self._snapshots.at(version)

    def manifest(self, table_id: str, version: int) -> Manifest:
        """Return what a table consists of at `version`."""
        return reading.manifests(self._database, (table_id,), version)[table_id]

    def manifests(self, table_ids: Iterable[str], version: int) -> dict[str, Manifest]:
        """Return what each table consists of at `version`, in as many queries as for one table."""
        return reading.manifests(self._database, table_ids, version)

    def inline(self, batch_ids: Iterable[str]) -> dict[str, bytes]:
        """Return the bytes of inline batches."""
        return reading.inline(self._database, batch_ids)

    def changed_since(self, pairs: Iterable[tuple[str, int]], upto: int) -> set[str]:
        """Return the tables whose rows changed after the version given for them, up to and with `upto`."""
        asked = list(pairs)
        kept = self._snapshots.kept_at(upto)
        ids = {table_id for table_id, _ in asked}
        changed = kept.changed if kept is not None else reading.changes_of(self._database, ids, upto)
        return {table_id for table_id, after in asked if changed.get(table_id, 0) > after}

    def history(self, table_id: str | None = None, limit: int = 100) -> list[RefreshRecord]:
        """Return the newest refreshes, newest first, of one table or of all."""
        return reading.refresh_records(self._database, table_id, limit)

    def refresh_totals(self) -> RefreshTotals:
        """Return the sums over the history that is kept, in one query."""
        return freshness.refresh_totals(self._database)

    def change_times(self, table_id: str, limit: int) -> list[float]:
        """Return when the newest `limit` commits were made that changed the rows of a table, the oldest first."""
        return freshness.change_times(self._database, table_id, limit)

    def waiting_rows(self, pairs: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Return, for tables and versions, how many change rows there are after that version. One question for all."""
        return reading.waiting_rows(self._database, pairs)

    def oldest_unseen(self) -> dict[tuple[str, str], Unseen]:
        """Return, for each stream table and source, the first change that the stream table has not read. One query for all."""
        return freshness.oldest_unseen(self._database)

    def version_at(self, moment: float) -> int:
        """Return the newest version that was committed at or before `moment`; 0 if none that is remembered was."""
        query = select(func.max(commits.c.version)).where(commits.c.committed_at <= moment)
        return self._database.read(lambda connection: connection.scalar(query)) or 0

    # Writing

    def commit(self, commit: Commit) -> int:
        """Apply `commit` whole and return its version, or change nothing and raise."""
        version = self._committer.publish(commit)
        for told in tuple(self._listeners):
            try:
                told()
            except Exception:  # the commit has landed: whoever made it must not take it for failed
                LOG.exception("a listener failed version=%d", version)
        return version

    def listen(self, told: Callable[[], None]) -> Callable[[], None]:
        """Have `told` called after each commit made through this object; return what ends that."""
        self._listeners.append(told)

        def end() -> None:
            if told in self._listeners:
                self._listeners.remove(told)

        return end

    def record(self, entry: RefreshRecord) -> None:
        """Add a refresh that committed nothing to the history."""
        record_refresh(self._database, entry)

    def set_stream_status(self, table_id: str, status: str, last_error: str | None = None) -> None:
        """Note how a stream table fares."""
        progress.set_stream_status(self._database, table_id, status, last_error)

    def set_stream_error(self, table_id: str, last_error: str | None) -> None:
        """Note why the last refresh of a stream table failed; its status stays."""
        progress.set_stream_error(self._database, table_id, last_error)

    def suspend_stream(self, table_id: str, last_error: str) -> None:
        """Note that a stream table is not to be refreshed, unless it must read its sources anew."""
        progress.suspend_stream(self._database, table_id, last_error)

    def resume_stream(self, table_id: str) -> None:
        """Note that a suspended stream table may be refreshed again."""
        progress.resume_stream(self._database, table_id)

    def set_costs(self, table_id: str, full_ms: float | None, diff_ms: float | None) -> None:
        """Note what a full and a differential refresh of a stream table cost."""
        progress.set_costs(self._database, table_id, full_ms, diff_ms)

    # Notes, events, schedulers

    def note(self, changes: Sequence[Noted]) -> None:
        """Write and withdraw notes; every process sees them in its next snapshot."""
        noting.write_notes(self._database, changes)

    def record_events(self, events: Sequence[Event]) -> None:
        """Keep events."""
        noting.record_events(self._database, events)

    def events(self, limit: int = 100, after: int = 0) -> list[Event]:
        """Return the newest events after the one with the id `after`, newest first."""
        return noting.read_events(self._database, limit, after)

    def forget_events(self, before: float) -> None:
        """Forget the events that are older than `before`."""
        noting.forget_events(self._database, before)

    def show_scheduler(self, owner: str, started_at: float, ttl: float, data: str) -> None:
        """Say that a scheduler lives, for `ttl` seconds, and how it fares (as JSON)."""
        noting.show_scheduler(self._database, owner, started_at, ttl, data)

    def hide_scheduler(self, owner: str) -> None:
        """Say that a scheduler has ended."""
        noting.hide_scheduler(self._database, owner)

    def schedulers(self) -> list[SchedulerEntry]:
        """Return the schedulers that live, the oldest first."""
        return noting.live_schedulers(self._database)

    # Leases

    def acquire_all(self, names: Sequence[str], owner: str, ttl: float) -> list[LeaseToken] | str:
        """Take several leases in one transaction, all or none; return the name of the first that somebody else holds."""
        return leases.acquire_all(self._database, names, owner, ttl)

    def heartbeat_all(self, tokens: Sequence[LeaseToken], ttl: float) -> bool:
        """Renew leases; False if one is lost."""
        return leases.heartbeat_all(self._database, tokens, ttl)

    def release_all(self, tokens: Sequence[LeaseToken]) -> None:
        """Give leases back."""
        leases.release_all(self._database, tokens)

    def leases_of_others(self, prefix: str, owner: str) -> dict[str, str]:
        """Return the leases that others hold and whose names begin with `prefix`, with their holders."""
        return noting.leases_of_others(self._database, prefix, owner)

    def acquire(self, name: str, owner: str, ttl: float) -> LeaseToken | None:
        """Take a lease for `ttl` seconds; None while somebody else holds it."""
        return leases.acquire(self._database, name, owner, ttl)

    def heartbeat(self, token: LeaseToken, ttl: float) -> bool:
        """Renew a lease; False if it is lost."""
        return leases.heartbeat(self._database, token, ttl)

    def release(self, token: LeaseToken) -> None:
        """Give a lease back."""
        leases.release(self._database, token)

    def lease_holder(self, name: str) -> LeaseHolder | None:
        """Return who holds a lease."""
        return leases.lease_holder(self._database, name)

    def keep_lease(self, token: LeaseToken, ttl: float) -> LeaseKeeper:
        """Return a context that renews a lease until its end, then gives it back."""
        return LeaseKeeper(self, (token,), ttl)

    def keep_leases(self, tokens: Sequence[LeaseToken], ttl: float) -> LeaseKeeper:
        """Return a context that renews leases until its end, then gives them back."""
        return LeaseKeeper(self, tuple(tokens), ttl)

    # Writes

    def open_write(self, owner: str, ttl: float, paths: Iterable[str]) -> str:
        """Register a write before its first byte and return its id; `{id}` in `paths` stands for it."""
        return writes.open_write(self._database, owner, ttl, paths)

    def extend_write(self, write_id: str, ttl: float) -> bool:
        """Let a write live longer; False if it is not open any more."""
        return writes.extend_write(self._database, write_id, ttl)

    def discard_write(self, write_id: str) -> None:
        """Forget a write whose files are deleted."""
        writes.discard_write(self._database, write_id)

    def expired_writes(self) -> list[Write]:
        """Return the writes that vacuum may take."""
        return writes.expired_writes(self._database)

    def take_write(self, write_id: str) -> bool:
        """Take an expired write for deletion; False if somebody was faster."""
        return writes.take_write(self._database, write_id)

    # Pins

    def pin(self, version: int, owner: str, ttl: float) -> str:
        """Keep a version from vacuum and return the pin's id."""
        return pins.pin(self._database, version, owner, ttl)

    def renew_pins(self, pin_ids: Iterable[str], ttl: float) -> set[str]:
        """Let pins hold longer; return those that still held."""
        return pins.renew_pins(self._database, pin_ids, ttl)

    def unpin(self, pin_id: str) -> None:
        """Give a pin back."""
        pins.unpin(self._database, pin_id)

    def pinned_versions(self) -> list[int]:
        """Return the versions that are pinned now."""
        return pins.pinned_versions(self._database)

    # Vacuum

    def horizon(self) -> int:
        """Return the oldest version that is kept."""
        return vacuum.horizon(self._database)

    def move_horizon(self, keep_from: int) -> None:
        """Stop keeping versions before `keep_from`."""
        vacuum.move_horizon(self._database, keep_from)

    def unneeded_files(self, keep_from: int, before: float) -> list[DataFile]:
        """Return the files that only versions before `keep_from` can see; nothing changes."""
        return vacuum.unneeded_files(self._database, keep_from, before)

    def removable_files(self, keep_from: int, before: float) -> list[DataFile]:
        """Stop keeping versions before `keep_from` and return the files that only they could see."""
        return vacuum.removable_files(self._database, keep_from, before)

    def forget_files(self, file_ids: Iterable[str]) -> None:
        """Forget files that are deleted."""
        vacuum.forget_files(self._database, file_ids)

    def forget_batches(self, keep_from: int, before: float) -> int:
        """Forget batches that nothing kept can see and whose files are forgotten."""
        return vacuum.forget_batches(self._database, keep_from, before)

    def forget_tables(self, keep_from: int, before: float, remove: Callable[[str], None] | None = None) -> list[str]:
        """Forget dropped tables whose entries are forgotten, each after `remove`; return their ids."""
        return vacuum.forget_tables(self._database, keep_from, before, remove)

    def forget_versions(self, keep_from: int) -> int:
        """Forget counters and schemas of versions that are not kept."""
        return vacuum.forget_versions(self._database, keep_from)

    def forget_history(self, before: float) -> int:
        """Forget the refreshes that ended before the time `before`."""
        return vacuum.forget_history(self._database, before)

    # Exports

    def exported(self, table_id: str) -> int:
        """Return the version that a table's export has reached."""
        return exports.exported(self._database, table_id)

    def set_exported(self, table_id: str, version: int) -> None:
        """Say how far a table's export has come."""
        exports.set_exported(self._database, table_id, version)

    def export_pending(self, among: Sequence[str] | None = None) -> list[str]:
        """Return the tables whose base files changed since their export: of all, or among some."""
        return exports.export_pending(self._database, among)

    # Templates

    def template_get(self, key: str) -> str | None:
        """Return a compiled template."""
        return templates.template(self._database, key)

    def template_put(self, key: str, text: str, generation: int) -> None:
        """Store a compiled template."""
        templates.put_template(self._database, key, text, generation)

    def templates_clear(self) -> int:
        """Forget all compiled templates; return how many."""
        return templates.clear_templates(self._database)
