"""The object users hold: tables, stream tables, refreshes, and one consistent view of them all."""

from __future__ import annotations

import os
import re
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from headwater.catalog import Catalog, Snapshot
from headwater.delta.context import DeltaOptions
from headwater.diagnostics import Diagnostics
from headwater.engine.lazy import Engine
from headwater.engine.texts import named_views
from headwater.engine.worker import Frame, ddl_fields, struct_type
from headwater.errors import (
    ClosedError,
    ConstraintError,
    DuplicateTableError,
    HasDependentsError,
    HeadwaterError,
    StatementError,
    UnknownTableError,
    UnknownVersionError,
    WrongKindError,
)
from headwater.execute import executed
from headwater.model.commit import Commit, CreateTable, DefineStream, DropTable, SetSchema
from headwater.model.control import Skipped
from headwater.model.options import DEFAULT_OPTIONS
from headwater.model.reports import Result, TableStatus, Validation
from headwater.model.schema import Field
from headwater.model.sql import quoted
from headwater.model.tables import (
    REREAD,
    RefreshMode,
    RefreshRecord,
    StreamTable,
    Table,
    TableKind,
    WhenFull,
)
from headwater.operations import Operations, carried_over
from headwater.refresh.cycle import Refresher, RefreshReport, chosen
from headwater.refresh.definition import Planned, planned, require_mode, require_no_cycle
from headwater.refresh.graph import dependents_of, topological
from headwater.refresh.moment import pending_sources
from headwater.refresh.scene import newest_scene
from headwater.refresh.streams import StreamRequest, create_stream
from headwater.refresh.verify import Verification, verified
from headwater.refresh.when_full import full_notices, require_incremental, when_full_of
from headwater.schedule.schedules import schedule_of
from headwater.schedule.stream_options import plain_options, require_known, stream_options
from headwater.schedule.telling import Teller
from headwater.settings import FloatMode, Settings
from headwater.source import statements as st
from headwater.source.dml import Change, Changer
from headwater.source.mentions import mentioned_tables
from headwater.source.parse import read_statement, split_script
from headwater.source.schemas import managed_schema, require_name, require_storable
from headwater.source.session import ChangeSession, named_frames
from headwater.source.transaction import Transaction, require_managed
from headwater.store.columns import Columns
from headwater.store.ground import Ground
from headwater.store.layout import Layout
from headwater.store.maintain import Maintenance, VacuumReport
from headwater.store.pins import Pins
from headwater.store.reading import Reader
from headwater.store.rows import ACTION, WEIGHT
from headwater.store.writing import WriteLimits, Writer

_PIN_TRIES = 4


class Warehouse(Operations, Diagnostics):
    """Tables and stream tables over one catalog. Safe for use by several threads; close it, or use `with`."""

    def __init__(self, catalog: Catalog, location: Path, settings: Settings, spark: Any) -> None:
        self._catalog = catalog
        self._settings = settings
        layout = Layout(location.resolve())
        columns = Columns(layout, settings.index_max_bytes)
        engine = Engine(settings, spark)
        owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        limits = WriteLimits(
            settings.inline_max_bytes, settings.inline_max_rows, settings.arrow_max_rows, settings.write_seconds
        )
        self._ground = Ground(
            catalog,
            layout,
            engine,
            Reader(
                catalog,
                layout,
                columns,
                local_rows=settings.local_relation_max_rows,
                driver_rows=settings.arrow_max_rows,
            ),
            Writer(catalog, layout, limits, owner),
            settings,
            owner,
        )
        self._refresher = Refresher(self._ground)
        self._maintenance = Maintenance(self._ground)
        self._teller = Teller(catalog)
        self._pins = Pins(catalog, owner, settings.lease_seconds, settings.vacuum_grace_seconds)
        self.session = ChangeSession(self._ground, self._maintenance, self.lookup)
        self._closed = False

    # life -------------------------------------------------------------------------------------------------------------------

    @property
    def spark(self) -> Any:
        """The Spark session that frames belong to."""
        self._require_open()
        return self._ground.engine.spark

    @property
    def settings(self) -> Settings:
        return self._settings

    @property
    def version(self) -> int:
        """The number of the latest commit."""
        self._require_open()
        return self._catalog.head().version

    def close(self) -> None:
        """Release pins and the catalog. Spark keeps running: frames may still be in use."""
        if not self._closed:
            self._closed = True
            self._pins.close()
            self._catalog.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _require_open(self) -> None:
        if self._closed:
            raise ClosedError("the warehouse was closed", hint="Call headwater.connect again.")

    def _require_no_transaction(self, what: str) -> None:
        if self.session.open is not None:
            raise StatementError(
                f"{what} cannot be part of a transaction",
                detail="A transaction holds changes of rows; definitions and refreshes are commits of their own.",
                hint="Do it before or after the `with wh.transaction():` block.",
            )

    def lookup(self, snapshot: Snapshot, name: str) -> Table:
        table = snapshot.table(name)
        if table is None or table.kind is TableKind.AUX:
            known = [t.name for t in snapshot.tables.values() if t.kind is not TableKind.AUX]
            raise UnknownTableError(name, known)
        return table

    def _stream(self, snapshot: Snapshot, name: str) -> tuple[Table, StreamTable]:
        table = self.lookup(snapshot, name)
        if table.kind is not TableKind.STREAM:
            raise WrongKindError(f'"{table.name}" is not a stream table', hint="It is a table that users write to.")
        return table, snapshot.streams[table.id]

    # tables -----------------------------------------------------------------------------------------------------------------

    def create_table(self, name: str, schema: Any, primary_key: Sequence[str] | str | None = None) -> Table:
        """Create a managed table. `schema` is DDL text ("id BIGINT, name STRING"), a StructType, or (name, type) pairs."""
        self._require_open()
        fields = self._fields(schema)
        key = (primary_key,) if isinstance(primary_key, str) else tuple(primary_key or ())
        return self.create_stored_table(name, fields, key)

    def _fields(self, schema: Any) -> list[Field]:
        """Read column types; Spark does, so it is started."""
        self._ground.engine.spark  # noqa: B018
        return ddl_fields(schema)

    def column_fields(self, columns: Sequence[st.ColumnDefinition]) -> list[Field]:
        made = self._fields([(c.name, c.type.text) for c in columns])
        return [Field(f.name, f.type, c.nullable) for f, c in zip(made, columns, strict=True)]

    def create_stored_table(self, name: str, fields: Sequence[Field], key: Sequence[str]) -> Table:
        self._require_no_transaction("CREATE TABLE")
        require_name(name)
        table_schema = managed_schema(name, fields, key)
        table = Table(uuid.uuid4().hex, name, TableKind.MANAGED, table_schema, 0, 0, 0)
        self._catalog.commit(Commit((CreateTable(table),)))
        return self._catalog.snapshot().tables[table.id]

    def drop_table(self, name: str, *, cascade: bool = False) -> None:
        """Drop a managed table; with `cascade` also the stream tables that read it."""
        snapshot = self.snapshot()
        table = self.lookup(snapshot, name)
        if table.kind is TableKind.STREAM:
            raise WrongKindError(f'"{table.name}" is a stream table', hint="Use DROP STREAM TABLE.")
        self._drop(snapshot, table, cascade)

    def _drop(self, snapshot: Snapshot, table: Table, cascade: bool) -> None:
        self._require_no_transaction("DROP")
        doomed = dependents_of(snapshot, table.id)
        if doomed and not cascade:
            names = ", ".join(f'"{snapshot.tables[d].name}"' for d in doomed)
            raise HasDependentsError(
                f'"{table.name}" cannot be dropped because stream tables read it',
                detail=f"They are {names}.",
                hint="Use CASCADE to drop them too.",
            )
        changes = tuple(DropTable(i) for i in (*reversed(doomed), table.id))
        self._catalog.commit(Commit(changes, generation=snapshot.generation))

    def add_column(self, name: str, column: str, type_: str) -> None:
        """Add a nullable column at the end of a managed table; existing rows have NULL in it."""
        self.add_columns(name, self._fields([(column, type_)]))

    def add_columns(self, name: str, fields: Sequence[Field]) -> None:
        self._require_no_transaction("ALTER TABLE")
        snapshot = self.snapshot()
        table = self.lookup(snapshot, name)
        require_managed(table)
        schema = table.schema
        for field in fields:
            require_storable(field)
            if not field.nullable:
                raise ConstraintError(
                    f'column "{field.name}" cannot be added as NOT NULL', detail="Existing rows have no value for it."
                )
            if schema.field(field.name) is not None:
                raise ConstraintError(f'table "{table.name}" has a column "{field.name}" already')
            schema = schema.with_field(field)
        self._catalog.commit(Commit((SetSchema(table.id, schema),), unmoved={table.id: table.moved}))

    # changes ----------------------------------------------------------------------------------------------------------------

    def insert(self, name: str, rows: Any) -> Result:
        """Add rows: a Spark DataFrame, a pyarrow.Table, a pandas.DataFrame, or a list of dicts."""
        return self.session.change(name, "inserted", lambda changer, table: changer.insert(table, rows))

    def upsert(self, name: str, rows: Any) -> Result:
        """Add rows, replacing those with the same primary key."""
        return self.session.change(name, "upserted", lambda changer, table: changer.upsert(table, rows))

    def update(self, name: str, *, set: Mapping[str, str], where: str | None = None) -> Result:
        """Change columns to SQL expressions over the row, where a SQL condition holds."""

        def work(changer: Changer, table: Table) -> Change:
            text = " , ".join([*set.values(), where or ""])
            return changer.update(table, None, set, where, named_frames(changer, text, table))

        return self.session.change(name, "updated", work)

    def delete(self, name: str, *, where: str | None = None) -> Result:
        """Remove the rows for which a SQL condition holds; all rows without one."""
        return self.session.change(
            name, "deleted", lambda c, table: c.delete(table, None, where, named_frames(c, where or "", table))
        )

    def apply_changes(self, name: str, rows: Any, *, action: str = "action") -> Result:
        """Apply rows that say I or D in their column `action`, as one atomic change. Each deleted row must be there."""
        return self.session.change(name, "changed", lambda changer, table: changer.apply_changes(table, rows, action))

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Make all changes inside the `with` block one atomic commit; statements see the effects of those before them."""
        self._require_open()
        return self.session.transaction()

    # stream tables ----------------------------------------------------------------------------------------------------------

    def create_stream_table(
        self,
        name: str,
        query: Any,
        *,
        schedule: str | None = None,
        refresh_mode: str | RefreshMode = RefreshMode.AUTO,
        when_full: str | WhenFull | None = None,
        or_replace: bool = False,
        if_not_exists: bool = False,
        **options: Any,
    ) -> TableStatus:
        """Define a stream table by SQL, or by a DataFrame made from `source(...)`, and populate it.

        `when_full` is what happens where changes do not suffice: refuse, warn or allow; the setting of that name if left out. `options`
        say how it is scheduled: tier, sla, timeout, fuse_mode, fuse_ceiling, fuse_sensitivity, diamond_consistency and
        diamond_schedule_policy.
        """
        self._require_open()
        self._require_no_transaction("CREATE STREAM TABLE")
        require_name(name)
        mode = _mode(refresh_mode)
        schedule_of(schedule)
        chosen_options = stream_options(DEFAULT_OPTIONS, options)
        policy = self._settings.when_full if when_full is None else when_full_of(when_full)
        snapshot = self._catalog.snapshot()
        existing = snapshot.table(name)
        if existing is not None:
            if if_not_exists and existing.kind is TableKind.STREAM:
                return self._status_of(snapshot, existing)
            if not or_replace or existing.kind is not TableKind.STREAM:
                raise DuplicateTableError(
                    f'table "{existing.name}" exists already',
                    hint="Use CREATE OR REPLACE STREAM TABLE, or another name."
                    if existing.kind is TableKind.STREAM
                    else "Choose another name.",
                )
        plan = self._planned(snapshot, query)
        require_mode(plan, mode, name)
        require_incremental(plan, mode, policy, name)
        if existing is not None:
            require_no_cycle(snapshot, existing.id, name, plan.sources)
        text = query if isinstance(query, str) else plan.definition.text
        request = StreamRequest(name, text, mode, schedule, policy, existing, chosen_options)
        table_id = create_stream(self._ground, self._refresher, snapshot, plan, request)
        self._maintenance.after_change([table_id])
        if existing is not None:
            self._catalog.note(carried_over(snapshot, existing.id, table_id))
        self._brought_together([table_id])
        made = self._catalog.snapshot()
        return self._status_of(made, made.tables[table_id])

    def _planned(self, snapshot: Snapshot, query: Any) -> Planned:
        meaning = self._ground.engine.meaning()
        mentioned = mentioned_tables(query, snapshot) if isinstance(query, str) else []
        options = DeltaOptions(
            self._settings.extremum_buffer,
            self._settings.float_tolerance,
            self._settings.float_mode is FloatMode.EXACT,
            meaning["spark.sql.decimalOperations.allowPrecisionLoss"] == "true",
        )
        with self._ground.engine.planner(meaning) as planner:
            try:
                return planned(planner, query, snapshot, mentioned, meaning, options)
            except HeadwaterError as error:
                raise _unknown_in(error, snapshot) from None

    def drop_stream_table(self, name: str, *, cascade: bool = False) -> None:
        """Drop a stream table and its state; with `cascade` also the stream tables that read it."""
        snapshot = self.snapshot()
        table, _ = self._stream(snapshot, name)
        self._drop(snapshot, table, cascade)

    def alter_stream_table(
        self,
        name: str,
        *,
        schedule: str | None = None,
        refresh_mode: str | RefreshMode | None = None,
        when_full: str | WhenFull | None = None,
        query: str | None = None,
        **options: Any,
    ) -> TableStatus:
        """Change schedule, mode, `when_full`, query, or options; what is left out stays as it is.

        A query that means something else, or a change to or from FULL, builds the table anew.
        """
        require_known(options)
        snapshot = self.snapshot()
        table, stream = self._stream(snapshot, name)
        mode = stream.mode if refresh_mode is None else _mode(refresh_mode)
        policy = stream.when_full if when_full is None else when_full_of(when_full)
        new_schedule = stream.schedule if schedule is None else schedule
        schedule_of(new_schedule)
        text = stream.query if query is None else query
        definition = self._refresher.definition(stream)
        is_other = query is not None and not definition.is_same_query(self._planned(snapshot, query).definition)
        if is_other or (RefreshMode.FULL in (mode, stream.mode) and mode is not stream.mode):
            given = plain_options(stream.options) | options
            return self.create_stream_table(
                table.name, text, schedule=new_schedule, refresh_mode=mode, when_full=policy, or_replace=True, **given
            )
        if mode is RefreshMode.DIFFERENTIAL and definition.template is None:
            require_mode(self._planned(snapshot, stream.query), mode, table.name)
        change = DefineStream(
            table.id,
            text,
            mode,
            new_schedule,
            policy,
            stream.definition,
            snapshot.sources[table.id],
            stream.frontier,
            stream_options(stream.options, options),
        )
        self._catalog.commit(Commit((change,), generation=snapshot.generation))
        return self._status_of(self._catalog.snapshot(), table)

    def refresh(
        self, name: str | None = None, *, full: bool = False, progress: Callable[[str, int, int], None] | None = None
    ) -> Any:
        """Bring one stream table up to date, or all of them in the order of their dependencies.

        Stream tables that are committed together, of a diamond or of a refresh group, are brought to one moment all of them.
        """
        self._require_no_transaction("REFRESH")
        snapshot = self.snapshot()
        if name is not None:
            table, _ = self._stream(snapshot, name)
            return self.refreshed_together(self._with_group(snapshot, table.id), full=full)[table.id]
        reports: list[RefreshReport] = []
        units = self._units(snapshot)
        total = sum(map(len, units))
        for unit in units:
            if progress is not None:
                progress(snapshot.tables[unit[0]].name, len(reports), total)
            reports += self.refreshed_together(unit, full=full).values()
        return reports

    def verify(self, name: str | None = None, *, progress: Callable[[str, int, int], None] | None = None) -> Any:
        """Compare a stream table with its query at its frontier; all of them without a name."""
        snapshot = self.snapshot()
        if name is not None:
            _, stream = self._stream(snapshot, name)
            return self._verified(snapshot, stream)
        results: list[Verification] = []
        order = topological(snapshot)
        for i, table_id in enumerate(order):
            if progress is not None:
                progress(snapshot.tables[table_id].name, i, len(order))
            results.append(self._verified(snapshot, snapshot.streams[table_id]))
        return results

    def _verified(self, snapshot: Snapshot, stream: StreamTable) -> Verification:
        if stream.frontier is None:
            table = snapshot.tables[stream.table_id]
            raise WrongKindError(f'stream table "{table.name}" is not populated yet', hint="Refresh it first.")
        if stream.status == REREAD:
            table = snapshot.tables[stream.table_id]
            raise UnknownVersionError(
                f'the sources of stream table "{table.name}" at its frontier are no longer kept',
                detail=stream.last_error,
                hint="Refresh it: it will read its sources anew.",
            )
        return verified(self._ground, self._refresher, snapshot, stream)

    def validate_query(self, query: Any) -> Validation:
        """Say how a query would be maintained, without creating anything."""
        plan = self._planned(self.snapshot(), query)
        mode = RefreshMode.FULL if plan.refusals else RefreshMode.DIFFERENTIAL
        columns = tuple((f.name, f.type) for f in plan.schema.visible)
        return Validation(mode, plan.operators, plan.definition.notices, plan.refusals, columns)

    def explain_stream_table(self, name: str) -> str:
        """Return the definition, the mode and its reason, the state kept, and the texts that a refresh runs."""
        from headwater.refresh.explain import explained

        snapshot = self.snapshot()
        table, stream = self._stream(snapshot, name)
        return explained(snapshot, table, stream, self._refresher.definition(stream))

    # reading ----------------------------------------------------------------------------------------------------------------

    def table(self, name: str, *, version: int | None = None) -> Frame:
        """Return the contents of a table as a DataFrame, now or at a past version."""
        tx = self.session.open
        if tx is not None and version is None:
            with self._ground.engine.worker() as worker:
                return Changer(tx, worker).visible(self.lookup(tx.snapshot, name))

        def contents(snapshot: Snapshot) -> Frame:
            table = self.lookup(snapshot, name)
            at = self._readable(snapshot, table, version)
            then = table if version is None else self._catalog.snapshot(at).tables[table.id]
            with self._ground.engine.worker() as worker:
                return self._ground.reader.state(worker, self._ground.source(snapshot, table), at, then.schema.visible)

        return self._pinned(contents)

    def _pinned(self, read: Callable[[Snapshot], Frame]) -> Frame:
        """Return a frame over the newest version that keeps its files; where vacuum was faster than the pin, read again."""
        for left in reversed(range(_PIN_TRIES)):
            snapshot = self.snapshot()
            try:
                return self._pins.held(self._ground.engine.for_user(read(snapshot)), snapshot.version)
            except UnknownVersionError:
                if not left:
                    raise
        raise AssertionError("the last try returns or raises")

    def _readable(self, snapshot: Snapshot, table: Table, version: int | None) -> int:
        if version is None:
            return snapshot.version
        if version > snapshot.version:
            raise UnknownVersionError(
                f"version {version} does not exist yet", detail=f"The latest version is {snapshot.version}."
            )
        past = self._catalog.snapshot(version)
        if table.id not in past.tables:
            raise UnknownVersionError(
                f'table "{table.name}" did not exist at version {version}', detail=f"It was created at {table.created}."
            )
        return version

    def changes(self, name: str, after: int, upto: int | None = None) -> Frame:
        """Return the change rows of the versions in (after, upto]: the visible columns and `action`, I or D.

        Where the table has a column of that name, ours is `__action`.
        """

        def rows(snapshot: Snapshot) -> Frame:
            table = self.lookup(snapshot, name)
            last = self._readable(snapshot, table, upto)
            self._readable(snapshot, table, max(after, table.created))
            with self._ground.engine.worker() as worker:
                source = self._ground.source(snapshot, table)
                found = self._ground.reader.changes(worker, source, after, last, table.schema.visible)
                names = ", ".join(quoted(f.name) for f in table.schema.visible)
                own = ACTION if any(f.name.casefold() == "action" for f in table.schema.visible) else "action"
                action = f"CASE WHEN {WEIGHT} > 0 THEN 'I' ELSE 'D' END AS {own}"
                return worker.sql(f"SELECT {names}, {action} FROM ({found.sql})")

        return self._pinned(rows)

    def source(self, name: str) -> Frame:
        """Return a table as an empty DataFrame to define stream tables with: `source("orders").where(...)`."""
        snapshot = self.snapshot()
        table = self.lookup(snapshot, name)
        with self._ground.engine.planner(self._ground.engine.meaning()) as planner:
            return planner.frame(struct_type(table.schema.visible), table.id)

    def sql(self, text: str) -> Any:
        """Run one statement: a DataFrame for a query, a `Result` for anything else."""
        self._require_open()
        return executed(self, read_statement(text))

    def script(self, text: str) -> list[Any]:
        """Run several statements separated by semicolons; the first that fails ends it."""
        return [executed(self, read_statement(piece)) for piece in split_script(text)]

    def query(self, text: str) -> Frame:
        tx = self.session.open

        def answer(snapshot: Snapshot) -> Frame:
            with self._ground.engine.worker() as worker:
                worker.configure(self._ground.engine.meaning())
                if tx is not None:
                    changer = Changer(tx, worker)
                    frames = {t.name: changer.visible(t) for t in mentioned_tables(text, snapshot)}
                else:
                    frames = dict(
                        self._refresher.computer.named_frames(worker, newest_scene(self._ground, snapshot), text)
                    )
                try:
                    with named_views(worker, frames):
                        return worker.sql(text)
                except HeadwaterError as error:
                    raise _unknown_in(error, snapshot) from None

        return self._pinned(answer) if tx is None else self._ground.engine.for_user(answer(tx.snapshot))

    # looking ----------------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        self._require_open()
        return self._catalog.snapshot()

    def status(self) -> list[TableStatus]:
        """Return every table with its size, and for stream tables how far they have come. Starts no Spark."""
        snapshot = self.snapshot()
        tables = [t for t in snapshot.tables.values() if t.kind is not TableKind.AUX]
        fresh = self.freshness(snapshot) if snapshot.streams else {}
        found = []
        for table in sorted(tables, key=lambda t: t.name):
            status = self._status_of(snapshot, table)
            if table.id in fresh:
                stream, how = snapshot.streams[table.id], fresh[table.id]
                status = replace(
                    status,
                    tier=stream.options.tier.value,
                    staleness_seconds=how.staleness_seconds,
                    why_behind=self._skipped(snapshot, table.id) or how.reason,
                )
            found.append(status)
        return found

    def _skipped(self, snapshot: Snapshot, table_id: str) -> str | None:
        skipped = snapshot.notes.get(Skipped, table_id)
        return (
            f"changes of versions {skipped.after + 1} to {skipped.upto} were skipped" if skipped is not None else None
        )

    def _status_of(self, snapshot: Snapshot, table: Table) -> TableStatus:
        table = snapshot.tables[table.id]
        changed = snapshot.changed.get(table.id, table.created)
        stream = snapshot.streams.get(table.id)
        if stream is None:
            return TableStatus(table.name, table.kind.value, table.row_count, changed)
        last = next(iter(self._catalog.history(table.id, 1)), None)
        definition = self._refresher.definition(stream)
        action, reason = chosen(stream, definition, full=False)
        return TableStatus(
            table.name,
            table.kind.value,
            table.row_count,
            changed,
            stream.mode.value,
            stream.schedule,
            stream.status,
            stream.frontier,
            bool(pending_sources(snapshot, stream)),
            last.action.value if last else None,
            last.duration_ms if last else None,
            stream.last_error,
            definition.reason or None,
            stream.when_full.value,
            full_notices(stream, action, reason),
        )

    def history(self, name: str | None = None, limit: int = 20) -> list[RefreshRecord]:
        """Return what refreshes did, newest first. Starts no Spark."""
        snapshot = self.snapshot()
        table_id = None if name is None else self.lookup(snapshot, name).id
        return self._catalog.history(table_id, limit)

    def vacuum(
        self,
        *,
        retention_hours: float | None = None,
        dry_run: bool = False,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> VacuumReport:
        """Fold and merge what grew, forget history beyond the retention, and delete files that nothing needs."""
        self._require_open()
        return self._maintenance.vacuum(retention_hours, dry_run=dry_run, progress=progress)

    def compact(self, name: str) -> None:
        """Fold all changes of a table into its base, and export it for outside readers."""
        snapshot = self.snapshot()
        self._maintenance.compact(self.lookup(snapshot, name).id)

    def base_path(self, name: str) -> str:
        """Return the folder of a table's base, which outside readers open as a Delta Lake table."""
        snapshot = self.snapshot()
        return str(self._ground.layout.base(self.lookup(snapshot, name).id))


# helpers --------------------------------------------------------------------------------------------------------------------


def _mode(mode: str | RefreshMode) -> RefreshMode:
    if isinstance(mode, RefreshMode):
        return mode
    try:
        return RefreshMode[mode.upper()]
    except KeyError:
        raise StatementError(
            f"unknown refresh mode {mode!r}", hint=f"Choose one of {', '.join(m.value for m in RefreshMode)}."
        ) from None


def _unknown_in(error: HeadwaterError, snapshot: Snapshot) -> HeadwaterError:
    """Add the nearest names to Spark's complaint about a table it does not know."""
    detail = error.detail or ""
    found = re.search(r"TABLE_OR_VIEW_NOT_FOUND\] The table or view `([^`]+)`", detail)
    if found is None:
        return error
    known = [t.name for t in snapshot.tables.values() if t.kind is not TableKind.AUX]
    return UnknownTableError(found[1], known)
