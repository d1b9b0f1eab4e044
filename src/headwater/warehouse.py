"""The object users hold: tables, stream tables, refreshes, and one consistent view of them all."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar, assert_never

from headwater.catalog import Catalog, CatalogExistsError, Options, Snapshot
from headwater.delta.context import DeltaOptions
from headwater.engine.identity import is_key_type, refused_type
from headwater.engine.lazy import Engine
from headwater.engine.texts import named_views
from headwater.engine.worker import Frame, Worker, ddl_fields, struct_type
from headwater.errors import (
    BusyError,
    ClosedError,
    ConstraintError,
    DuplicateTableError,
    HasDependentsError,
    HeadwaterError,
    NotAWarehouseError,
    StatementError,
    UnknownTableError,
    UnknownVersionError,
    UnsupportedTypeError,
    WrongKindError,
)
from headwater.model.commit import Change as CommitChange
from headwater.model.commit import Commit, CreateTable, DefineStream, DropTable, SetSchema
from headwater.model.schema import Field, TableSchema
from headwater.model.tables import RefreshAction, RefreshMode, RefreshRecord, StreamTable, Table, TableKind
from headwater.refresh.cycle import Refresher, RefreshReport, pending_sources
from headwater.refresh.definition import Planned, planned, require_mode, require_no_cycle
from headwater.refresh.verify import Verification, verified
from headwater.settings import FloatMode, Settings
from headwater.source import statements as st
from headwater.source.dml import Change, Changer
from headwater.source.mentions import mentioned_tables
from headwater.source.parse import read_statement, split_script
from headwater.source.transaction import Transaction, require_managed
from headwater.store.ground import Ground
from headwater.store.layout import Layout
from headwater.store.maintain import Maintenance, VacuumReport
from headwater.store.pins import Pins
from headwater.store.reading import Reader
from headwater.store.rows import ROW_ID
from headwater.store.writing import WriteLimits, Writer

T = TypeVar("T")
CATALOG_FILE = "headwater.db"


@dataclass(frozen=True, slots=True)
class Result:
    """What a statement that is not a query did."""

    message: str
    rows_affected: int = 0
    value: Any = None


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table at a glance; everything comes from the catalog."""

    name: str
    kind: str
    rows: int
    version: int
    mode: str | None = None
    schedule: str | None = None
    status: str | None = None
    frontier: int | None = None
    pending: bool = False
    last_action: str | None = None
    last_duration_ms: float | None = None
    last_error: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Validation:
    """How a query would be maintained, and what stands against it."""

    mode: RefreshMode
    operators: tuple[tuple[str, str, str], ...]
    notices: tuple[str, ...]
    refusals: tuple[Any, ...]
    columns: tuple[tuple[str, str], ...]


def connect(
    target: str | os.PathLike[str],
    *,
    location: str | os.PathLike[str] | None = None,
    spark: Any = None,
    settings: Mapping[str, Any] | None = None,
    create: bool = True,
) -> Warehouse:
    """Open a warehouse, or create it where nothing is.

    `target` is a directory (its catalog is a SQLite file in it) or a `postgresql://` URL of a shared catalog; then `location` says
    where the data files are. `spark` is a classic Spark session to use; without one an embedded session starts when it is needed.
    """
    text = os.fspath(target)
    if text.startswith(("postgresql://", "postgres://", "postgresql+")):
        catalog, root, values = _shared(text, location, settings, create)
    else:
        catalog, root, values = _local(Path(text), settings, create)
    return Warehouse(catalog, root, values, spark)


def _local(path: Path, settings: Mapping[str, Any] | None, create: bool) -> tuple[Catalog, Path, Settings]:
    values = Settings.read(settings, directory=path)
    file = path / CATALOG_FILE
    options = Options(busy_timeout=values.busy_timeout_seconds)
    if path.exists() and not path.is_dir():
        raise NotAWarehouseError(f'"{path}" is a file', hint="A warehouse is a directory.")
    if file.exists():
        return Catalog.open(str(file), options=options), path, values
    if not create or (path.exists() and any(p.name != "headwater.toml" for p in path.iterdir())):
        raise NotAWarehouseError(
            f'"{path}" is not a warehouse',
            detail=f"It holds no {CATALOG_FILE}." if path.exists() else "The directory does not exist.",
            hint="`headwater init` creates a warehouse in a new or empty directory.",
        )
    path.mkdir(parents=True, exist_ok=True)
    try:
        return Catalog.create(str(file), location=".", options=options), path, values
    except CatalogExistsError:  # another process was first
        return Catalog.open(str(file), options=options), path, values


def _shared(
    url: str, location: str | os.PathLike[str] | None, settings: Mapping[str, Any] | None, create: bool
) -> tuple[Catalog, Path, Settings]:
    root = Path(location) if location is not None else None
    values = Settings.read(settings, directory=root)
    options = Options(busy_timeout=values.busy_timeout_seconds)
    try:
        catalog = Catalog.open(url, options=options)
    except NotAWarehouseError:
        if not create or root is None:
            raise
        root.mkdir(parents=True, exist_ok=True)
        try:
            catalog = Catalog.create(url, location=str(root.resolve()), options=options)
        except CatalogExistsError:
            catalog = Catalog.open(url, options=options)
    return catalog, root if root is not None else Path(catalog.location), values


class Warehouse:
    """Tables and stream tables over one catalog. Safe for use by several threads; close it, or use `with`."""

    def __init__(self, catalog: Catalog, location: Path, settings: Settings, spark: Any) -> None:
        self._catalog = catalog
        self._settings = settings
        layout = Layout(location.resolve())
        engine = Engine(settings, spark)
        owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        limits = WriteLimits(
            settings.inline_max_bytes, settings.inline_max_rows, settings.arrow_max_rows, settings.write_seconds
        )
        self._ground = Ground(
            catalog,
            layout,
            engine,
            Reader(catalog, layout, settings.local_relation_max_rows),
            Writer(catalog, layout, limits, owner),
            settings,
            owner,
        )
        self._refresher = Refresher(self._ground)
        self._maintenance = Maintenance(self._ground)
        self._pins = Pins(catalog, owner, settings.lease_seconds, settings.vacuum_grace_seconds)
        self._local = threading.local()
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

    def _table(self, snapshot: Snapshot, name: str) -> Table:
        table = snapshot.table(name)
        if table is None or table.kind is TableKind.AUX:
            known = [t.name for t in snapshot.tables.values() if t.kind is not TableKind.AUX]
            raise UnknownTableError(name, known)
        return table

    def _stream(self, snapshot: Snapshot, name: str) -> tuple[Table, StreamTable]:
        table = self._table(snapshot, name)
        if table.kind is not TableKind.STREAM:
            raise WrongKindError(f'"{table.name}" is not a stream table', hint="It is a table that users write to.")
        return table, snapshot.streams[table.id]

    # tables -----------------------------------------------------------------------------------------------------------------

    def create_table(self, name: str, schema: Any, primary_key: Sequence[str] | str | None = None) -> Table:
        """Create a managed table. `schema` is DDL text ("id BIGINT, name STRING"), a StructType, or (name, type) pairs."""
        self._require_open()
        fields = self._fields(schema)
        key = (primary_key,) if isinstance(primary_key, str) else tuple(primary_key or ())
        return self._create_table(name, fields, key)

    def _fields(self, schema: Any) -> list[Field]:
        """Read column types; Spark does, so it is started."""
        self._ground.engine.spark  # noqa: B018
        return ddl_fields(schema)

    def _columns(self, columns: Sequence[st.ColumnDefinition]) -> list[Field]:
        made = self._fields([(c.name, c.type.text) for c in columns])
        return [Field(f.name, f.type, c.nullable) for f, c in zip(made, columns, strict=True)]

    def _create_table(self, name: str, fields: Sequence[Field], key: Sequence[str]) -> Table:
        _require_name(name)
        table_schema = _managed_schema(name, fields, key)
        table = Table(uuid.uuid4().hex, name, TableKind.MANAGED, table_schema, 0, 0, 0)
        self._catalog.commit(Commit((CreateTable(table),)))
        return self._catalog.snapshot().tables[table.id]

    def drop_table(self, name: str, *, cascade: bool = False) -> None:
        """Drop a managed table; with `cascade` also the stream tables that read it."""
        snapshot = self._snapshot()
        table = self._table(snapshot, name)
        if table.kind is TableKind.STREAM:
            raise WrongKindError(f'"{table.name}" is a stream table', hint="Use DROP STREAM TABLE.")
        self._drop(snapshot, table, cascade)

    def _drop(self, snapshot: Snapshot, table: Table, cascade: bool) -> None:
        doomed = _dependents(snapshot, table.id)
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
        self._alter(name, self._fields([(column, type_)]))

    def _alter(self, name: str, fields: Sequence[Field]) -> None:
        snapshot = self._snapshot()
        table = self._table(snapshot, name)
        require_managed(table)
        schema = table.schema
        for field in fields:
            _require_storable(field)
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
        return self._change(name, "inserted", lambda changer, table: changer.insert(table, rows))

    def upsert(self, name: str, rows: Any) -> Result:
        """Add rows, replacing those with the same primary key."""
        return self._change(name, "upserted", lambda changer, table: changer.upsert(table, rows))

    def update(self, name: str, *, set: Mapping[str, str], where: str | None = None) -> Result:
        """Change columns to SQL expressions over the row, where a SQL condition holds."""

        def work(changer: Changer, table: Table) -> Change:
            text = " , ".join([*set.values(), where or ""])
            return changer.update(table, None, set, where, self._named(changer, text, table))

        return self._change(name, "updated", work)

    def delete(self, name: str, *, where: str | None = None) -> Result:
        """Remove the rows for which a SQL condition holds; all rows without one."""
        return self._change(
            name, "deleted", lambda c, table: c.delete(table, None, where, self._named(c, where or "", table))
        )

    def apply_changes(self, name: str, rows: Any, *, action: str = "action") -> Result:
        """Apply rows that say I or D in their column `action`, as one atomic change. Each deleted row must be there."""
        return self._change(name, "changed", lambda changer, table: changer.apply_changes(table, rows, action))

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Make all changes inside the `with` block one atomic commit; statements see the effects of those before them."""
        self._require_open()
        if getattr(self._local, "transaction", None) is not None:
            raise StatementError("a transaction is open already", hint="Transactions do not nest.")
        tx = Transaction(self._ground, self._catalog.snapshot())
        self._local.transaction = tx
        try:
            yield tx
            with self._ground.engine.worker() as worker:
                tx.commit(worker)
        except BaseException:
            tx.discard()
            raise
        finally:
            self._local.transaction = None
        self._maintenance.after_change(list(tx.pending))

    def _change(self, name: str, verb: str, work: Callable[[Changer, Table], Change]) -> Result:
        """Run one statement, in the open transaction or as a commit of its own; a busy table is tried again."""
        self._require_open()
        open_tx: Transaction | None = getattr(self._local, "transaction", None)
        if open_tx is not None:
            with self._ground.engine.worker() as worker:
                change = self._worked(open_tx, worker, name, work)
            return _changed(verb, change)
        deadline = time.monotonic() + self._settings.busy_timeout_seconds
        attempt = 0
        while True:
            tx = Transaction(self._ground, self._catalog.snapshot())
            try:
                with self._ground.engine.worker() as worker:
                    change = self._worked(tx, worker, name, work)
                    tx.commit(worker)
            except BusyError:
                tx.discard()
                attempt += 1
                if time.monotonic() >= deadline:
                    raise
                time.sleep(min(0.5, 0.01 * 2**attempt) * (0.5 + uuid.uuid4().int % 100 / 100))
                continue
            except BaseException:
                tx.discard()
                raise
            self._maintenance.after_change(list(tx.pending))
            return _changed(verb, change)

    def _worked(self, tx: Transaction, worker: Worker, name: str, work: Callable[[Changer, Table], Change]) -> Change:
        table = self._table(tx.snapshot, name)
        require_managed(table)
        worker.configure(self._ground.engine.meaning())
        worker.size_for(0)
        return work(Changer(tx, worker), tx.table(table.id))

    def _named(self, changer: Changer, text: str, target: Table) -> dict[str, Frame]:
        """Return the tables that the expressions of a statement may read."""
        tx = changer.transaction
        return {
            t.name: changer.visible(t) for t in mentioned_tables(text, tx.snapshot) if t.id != target.id or _reads(text)
        }

    # stream tables ----------------------------------------------------------------------------------------------------------

    def create_stream_table(
        self,
        name: str,
        query: Any,
        *,
        schedule: str | None = None,
        refresh_mode: str | RefreshMode = RefreshMode.AUTO,
        or_replace: bool = False,
        if_not_exists: bool = False,
    ) -> TableStatus:
        """Define a stream table by SQL, or by a DataFrame made from `source(...)`, and populate it."""
        self._require_open()
        _require_name(name)
        mode = _mode(refresh_mode)
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
        table_id = uuid.uuid4().hex
        if existing is not None:
            require_no_cycle(snapshot, existing.id, name, plan.sources)
        changes = self._definition_changes(snapshot, plan, table_id, name, mode, schedule, query, existing)
        self._catalog.commit(Commit(tuple(changes), generation=snapshot.generation))
        try:
            self._refresher.refresh(table_id)
        except BaseException:
            if existing is None:
                self._catalog.commit(Commit((DropTable(table_id),)))
            raise
        self._maintenance.after_change([table_id])
        return self._status_of(self._catalog.snapshot(), self._catalog.snapshot().tables[table_id])

    def _planned(self, snapshot: Snapshot, query: Any) -> Planned:
        meaning = self._ground.engine.meaning()
        mentioned = mentioned_tables(query, snapshot) if isinstance(query, str) else []
        options = DeltaOptions(
            self._settings.extremum_buffer,
            self._settings.float_tolerance,
            self._settings.float_mode is FloatMode.EXACT,
        )
        with self._ground.engine.planner(meaning) as planner:
            return planned(planner, query, snapshot, mentioned, meaning, options)

    def _definition_changes(
        self,
        snapshot: Snapshot,
        plan: Planned,
        table_id: str,
        name: str,
        mode: RefreshMode,
        schedule: str | None,
        query: Any,
        existing: Table | None,
    ) -> list[CommitChange]:
        changes: list[CommitChange] = []
        if existing is not None:
            readers = _dependents(snapshot, existing.id)
            if readers:
                names = ", ".join(f'"{snapshot.tables[r].name}"' for r in readers)
                raise HasDependentsError(
                    f'stream table "{name}" cannot be replaced because others read it',
                    detail=f"They are {names}.",
                    hint="Drop them first, or use DROP STREAM TABLE ... CASCADE.",
                )
            changes.append(DropTable(existing.id))
        changes.append(CreateTable(Table(table_id, name, TableKind.STREAM, plan.schema, 0, 0, 0)))
        template = plan.definition.template if mode is not RefreshMode.FULL else None
        for stage in template.stages if template is not None else ():
            aux = f"{name}${stage.name}"
            changes.append(
                CreateTable(Table(uuid.uuid4().hex, aux, TableKind.AUX, stage.table_schema, 0, 0, 0, parent_id=table_id))
            )
        text = query if isinstance(query, str) else plan.definition.text
        changes.append(
            DefineStream(table_id, text, mode, schedule, plan.definition.to_json(), tuple(plan.sources), frontier=None)
        )
        return changes

    def drop_stream_table(self, name: str, *, cascade: bool = False) -> None:
        """Drop a stream table and its state; with `cascade` also the stream tables that read it."""
        snapshot = self._snapshot()
        table, _ = self._stream(snapshot, name)
        self._drop(snapshot, table, cascade)

    def alter_stream_table(
        self, name: str, *, schedule: str | None = None, refresh_mode: str | RefreshMode | None = None, query: str | None = None
    ) -> TableStatus:
        """Change schedule, mode or query. A new query or a change to or from FULL builds the table anew."""
        snapshot = self._snapshot()
        table, stream = self._stream(snapshot, name)
        mode = stream.mode if refresh_mode is None else _mode(refresh_mode)
        new_schedule = stream.schedule if schedule is None else schedule
        rebuild = query is not None or (RefreshMode.FULL in (mode, stream.mode) and mode is not stream.mode)
        if rebuild:
            text = stream.query if query is None else query
            return self.create_stream_table(table.name, text, schedule=new_schedule, refresh_mode=mode, or_replace=True)
        definition = self._refresher.definition(stream)
        if mode is RefreshMode.DIFFERENTIAL and definition.template is None:
            require_mode(self._planned(snapshot, stream.query), mode, table.name)
        change = DefineStream(
            table.id, stream.query, mode, new_schedule, stream.definition, snapshot.sources[table.id], stream.frontier
        )
        self._catalog.commit(Commit((change,), generation=snapshot.generation))
        return self._status_of(self._catalog.snapshot(), table)

    def refresh(
        self, name: str | None = None, *, full: bool = False, progress: Callable[[str, int, int], None] | None = None
    ) -> Any:
        """Bring one stream table up to date, or all of them in the order of their dependencies."""
        snapshot = self._snapshot()
        if name is not None:
            table, _ = self._stream(snapshot, name)
            return self._refreshed(table.id, full)
        reports: list[RefreshReport] = []
        order = _topological(snapshot)
        for i, table_id in enumerate(order):
            if progress is not None:
                progress(snapshot.tables[table_id].name, i, len(order))
            reports.append(self._refreshed(table_id, full))
        return reports

    def _refreshed(self, table_id: str, full: bool) -> RefreshReport:
        report = self._refresher.refresh(table_id, full=full)
        if report.action is not RefreshAction.NO_DATA:
            self._maintenance.after_change([table_id])
        return report

    def verify(self, name: str | None = None, *, progress: Callable[[str, int, int], None] | None = None) -> Any:
        """Compare a stream table with its query at its frontier; all of them without a name."""
        snapshot = self._snapshot()
        if name is not None:
            _, stream = self._stream(snapshot, name)
            return self._verified(snapshot, stream)
        results: list[Verification] = []
        order = _topological(snapshot)
        for i, table_id in enumerate(order):
            if progress is not None:
                progress(snapshot.tables[table_id].name, i, len(order))
            results.append(self._verified(snapshot, snapshot.streams[table_id]))
        return results

    def _verified(self, snapshot: Snapshot, stream: StreamTable) -> Verification:
        if stream.frontier is None:
            table = snapshot.tables[stream.table_id]
            raise WrongKindError(f'stream table "{table.name}" is not populated yet', hint="Refresh it first.")
        return verified(self._ground, self._refresher, snapshot, stream)

    def validate_query(self, query: Any) -> Validation:
        """Say how a query would be maintained, without creating anything."""
        plan = self._planned(self._snapshot(), query)
        mode = RefreshMode.FULL if plan.refusals else RefreshMode.DIFFERENTIAL
        columns = tuple((f.name, f.type) for f in plan.schema.visible)
        return Validation(mode, plan.operators, plan.definition.notices, plan.refusals, columns)

    def explain_stream_table(self, name: str) -> str:
        """Return the definition, the mode and its reason, the state kept, and the texts that a refresh runs."""
        from headwater.refresh.explain import explained

        snapshot = self._snapshot()
        table, stream = self._stream(snapshot, name)
        return explained(snapshot, table, stream, self._refresher.definition(stream))

    # reading ----------------------------------------------------------------------------------------------------------------

    def table(self, name: str, *, version: int | None = None) -> Frame:
        """Return the contents of a table as a DataFrame, now or at a past version."""
        tx: Transaction | None = getattr(self._local, "transaction", None)
        if tx is not None and version is None:
            with self._ground.engine.worker() as worker:
                return Changer(tx, worker).visible(self._table(tx.snapshot, name))
        snapshot = self._snapshot()
        table = self._table(snapshot, name)
        at = self._readable(snapshot, table, version)
        with self._ground.engine.worker() as worker:
            frame = self._ground.reader.state(worker, self._ground.source(snapshot, table), at, table.schema.visible)
        return self._pins.held(frame, snapshot.version)

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
        """Return the change rows of the versions in (after, upto]: the visible columns and `action`, I or D."""
        snapshot = self._snapshot()
        table = self._table(snapshot, name)
        last = self._readable(snapshot, table, upto)
        if after >= table.created:
            self._readable(snapshot, table, after)
        with self._ground.engine.worker() as worker:
            source = self._ground.source(snapshot, table)
            found = self._ground.reader.changes(worker, source, after, last, table.schema.visible)
            view = worker.view(found.frame)
            names = ", ".join(f"`{f.name.replace('`', '``')}`" for f in table.schema.visible)
            frame = worker.sql(f"SELECT {names}, CASE WHEN __w > 0 THEN 'I' ELSE 'D' END AS action FROM {view}")
        return self._pins.held(frame, snapshot.version)

    def source(self, name: str) -> Frame:
        """Return a table as an empty DataFrame to define stream tables with: `source("orders").where(...)`."""
        snapshot = self._snapshot()
        table = self._table(snapshot, name)
        with self._ground.engine.planner(self._ground.engine.meaning()) as planner:
            return planner.frame(struct_type(table.schema.visible), table.id)

    def sql(self, text: str) -> Any:
        """Run one statement: a DataFrame for a query, a `Result` for anything else."""
        self._require_open()
        return self._executed(read_statement(text))

    def script(self, text: str) -> list[Any]:
        """Run several statements separated by semicolons; the first that fails ends it."""
        return [self._executed(read_statement(piece)) for piece in split_script(text)]

    def _query(self, text: str) -> Frame:
        tx: Transaction | None = getattr(self._local, "transaction", None)
        snapshot = tx.snapshot if tx is not None else self._snapshot()
        with self._ground.engine.worker() as worker:
            worker.configure(self._ground.engine.meaning())
            if tx is not None:
                changer = Changer(tx, worker)
                frames = {t.name: changer.visible(t) for t in mentioned_tables(text, snapshot)}
            else:
                frames = dict(self._refresher.named_frames(worker, snapshot, text, snapshot.version))
            try:
                with named_views(worker, frames):
                    frame = worker.sql(text)
            except HeadwaterError as error:
                raise _unknown_in(error, snapshot) from None
        return frame if tx is not None else self._pins.held(frame, snapshot.version)

    def _executed(self, statement: st.Statement) -> Any:
        match statement:
            case st.Query():
                return self._query(statement.text.text)
            case st.Insert():
                return self._insert_statement(statement)
            case st.Update():
                pairs = {a.column: a.value.text for a in statement.assignments}
                where = statement.where.text if statement.where else None
                text = " , ".join([*pairs.values(), where or ""])
                return self._change(
                    str(statement.table),
                    "updated",
                    lambda c, t: c.update(t, statement.alias, pairs, where, self._named(c, text, t)),
                )
            case st.Delete():
                where = statement.where.text if statement.where else None
                return self._change(
                    str(statement.table),
                    "deleted",
                    lambda c, t: c.delete(t, statement.alias, where, self._named(c, where or "", t)),
                )
            case st.Merge():
                return self._merge_statement(statement)
            case st.TruncateTable():
                return self._change(str(statement.name), "deleted", lambda c, t: c.truncate(t))
            case st.CreateTable():
                return self._create_statement(statement)
            case st.AlterTableAddColumns():
                self._alter(str(statement.name), self._columns(statement.columns))
                return Result(f'table "{statement.name}" altered')
            case st.DropTable():
                if statement.if_exists and self._snapshot().table(str(statement.name)) is None:
                    return Result(f'table "{statement.name}" does not exist, nothing dropped')
                self.drop_table(str(statement.name), cascade=statement.cascade)
                return Result(f'table "{statement.name}" dropped')
            case st.CreateStreamTable():
                if statement.options:
                    raise StatementError(
                        f"unknown option {next(iter(statement.options))!r}", hint="SCHEDULE and REFRESH MODE are known."
                    )
                made = self.create_stream_table(
                    str(statement.name),
                    statement.query.text,
                    schedule=statement.schedule,
                    refresh_mode=statement.mode or RefreshMode.AUTO,
                    or_replace=statement.or_replace,
                    if_not_exists=statement.if_not_exists,
                )
                return Result(f'stream table "{made.name}" created, {made.rows} rows', value=made)
            case st.AlterStreamTable():
                if statement.options:
                    raise StatementError(f"unknown option {next(iter(statement.options))!r}")
                altered = self.alter_stream_table(
                    str(statement.name),
                    schedule=statement.schedule,
                    refresh_mode=statement.mode,
                    query=statement.query.text if statement.query else None,
                )
                return Result(f'stream table "{altered.name}" altered', value=altered)
            case st.DropStreamTable():
                if statement.if_exists and self._snapshot().table(str(statement.name)) is None:
                    return Result(f'stream table "{statement.name}" does not exist, nothing dropped')
                self.drop_stream_table(str(statement.name), cascade=statement.cascade)
                return Result(f'stream table "{statement.name}" dropped')
            case st.RefreshStreamTable():
                report = self.refresh(None if statement.name is None else str(statement.name))
                reports = report if isinstance(report, list) else [report]
                lines = [f'"{r.name}": {r.action.value}, +{r.rows_inserted} -{r.rows_deleted}' for r in reports]
                return Result("\n".join(lines) or "there are no stream tables", value=report)
            case st.ExplainStreamTable():
                return Result(self.explain_stream_table(str(statement.name)))
            case st.ShowTables() | st.ShowStreamTables():
                only = isinstance(statement, st.ShowStreamTables)
                rows = [s for s in self.status() if not only or s.kind == TableKind.STREAM.value]
                return Result("\n".join(f"{s.name} ({s.kind}, {s.rows} rows)" for s in rows), value=rows)
            case st.DescribeTable():
                table = self._table(self._snapshot(), str(statement.name))
                lines = [
                    f"{f.name} {f.type.upper()}{'' if f.nullable else ' NOT NULL'}{' KEY' if f.name in table.schema.key else ''}"
                    for f in table.schema.visible
                ]
                return Result("\n".join(lines), value=table.schema)
            case _:
                assert_never(statement)

    def _insert_statement(self, statement: st.Insert) -> Result:
        def work(changer: Changer, table: Table) -> Change:
            text = statement.source.text
            frames = {t.name: changer.visible(t) for t in mentioned_tables(text, changer.transaction.snapshot)}
            with named_views(changer.worker, frames):
                query = changer.worker.sql(text)
            return changer.insert_query(table, statement.columns, query, by_name=statement.by_name)

        return self._change(str(statement.table), "inserted", work)

    def _merge_statement(self, statement: st.Merge) -> Result:
        def work(changer: Changer, table: Table) -> Change:
            parts = [statement.source.text, statement.on.text]
            for clause in statement.clauses:
                parts += [f.text for f in (clause.condition, *clause.insert_values) if f is not None]
                parts += [a.value.text for a in clause.assignments]
            frames = {t.name: changer.visible(t) for t in mentioned_tables(" , ".join(parts), changer.transaction.snapshot)}
            alias = str(statement.source_name) if statement.source_name is not None else "source"
            return changer.merge(statement, table, statement.source.text, alias, frames)

        return self._change(str(statement.target), "merged", work)

    def _create_statement(self, statement: st.CreateTable) -> Result:
        name = str(statement.name)
        existing = self._snapshot().table(name)
        if existing is not None and statement.if_not_exists:
            return Result(f'table "{existing.name}" exists already, nothing created')
        if existing is not None and statement.or_replace:
            self.drop_table(name)
        if statement.query is None:
            self._create_table(name, self._columns(statement.columns), statement.primary_key)
            return Result(f'table "{name}" created')
        frame = self._query(statement.query.text)
        fields = [Field(f.name, f.type, f.name not in statement.primary_key) for f in ddl_fields(frame.schema)]
        self._create_table(name, fields, statement.primary_key)
        try:
            change = self.insert(name, frame)
        except BaseException:
            self.drop_table(name)
            raise
        return Result(f'table "{name}" created, {change.rows_affected} rows', change.rows_affected)

    # looking ----------------------------------------------------------------------------------------------------------------

    def _snapshot(self) -> Snapshot:
        self._require_open()
        return self._catalog.snapshot()

    def status(self) -> list[TableStatus]:
        """Return every table with its size, and for stream tables how far they have come. Starts no Spark."""
        snapshot = self._snapshot()
        tables = [t for t in snapshot.tables.values() if t.kind is not TableKind.AUX]
        return [self._status_of(snapshot, t) for t in sorted(tables, key=lambda t: t.name)]

    def _status_of(self, snapshot: Snapshot, table: Table) -> TableStatus:
        table = snapshot.tables[table.id]
        changed = snapshot.changed.get(table.id, table.created)
        stream = snapshot.streams.get(table.id)
        if stream is None:
            return TableStatus(table.name, table.kind.value, table.row_count, changed)
        last = next(iter(self._catalog.history(table.id, 1)), None)
        definition = self._refresher.definition(stream)
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
        )

    def history(self, name: str | None = None, limit: int = 20) -> list[RefreshRecord]:
        """Return what refreshes did, newest first. Starts no Spark."""
        snapshot = self._snapshot()
        table_id = None if name is None else self._table(snapshot, name).id
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
        snapshot = self._snapshot()
        self._maintenance.compact(self._table(snapshot, name).id)

    def base_path(self, name: str) -> str:
        """Return the folder of a table's base, which outside readers open as a Delta Lake table."""
        snapshot = self._snapshot()
        return str(self._ground.layout.base(self._table(snapshot, name).id))


# helpers --------------------------------------------------------------------------------------------------------------------


def _changed(verb: str, change: Change) -> Result:
    rows = max(change.inserted, change.deleted)
    return Result(f"{rows} row{'' if rows == 1 else 's'} {verb}", rows, change)


def _reads(text: str) -> bool:
    """Whether an expression may hold a subquery, and so name the table that it belongs to."""
    return "select" in text.casefold() or "from" in text.casefold()


def _mode(mode: str | RefreshMode) -> RefreshMode:
    if isinstance(mode, RefreshMode):
        return mode
    try:
        return RefreshMode[mode.upper()]
    except KeyError:
        raise StatementError(
            f"unknown refresh mode {mode!r}", hint=f"Choose one of {', '.join(m.value for m in RefreshMode)}."
        ) from None


def _require_name(name: str) -> None:
    if not name or "$" in name or "/" in name or name.startswith("__"):
        raise StatementError(f"{name!r} cannot be the name of a table", hint="Names have no $ or / and do not start with __.")


def _require_storable(field: Field) -> None:
    bad = refused_type(field.type)
    if bad is not None:
        raise UnsupportedTypeError(
            f'column "{field.name}" has the type {bad.upper()}, which cannot be stored',
            detail="Delta Lake has no such type.",
            hint="Store it as a number or a string.",
        )
    if field.name.startswith("__"):
        raise ConstraintError(f'column name "{field.name}" is reserved', hint="Names must not start with two underscores.")


def _managed_schema(name: str, fields: Sequence[Field], key: Sequence[str]) -> TableSchema:
    for field in fields:
        _require_storable(field)
    by_name = {f.name.casefold(): f for f in fields}
    if len(by_name) != len(fields):
        raise ConstraintError(f'table "{name}" would have two columns of one name')
    if not fields:
        raise ConstraintError(f'table "{name}" would have no columns')
    names = []
    for part in key:
        found = by_name.get(part.casefold())
        if found is None:
            raise ConstraintError(f'primary key column "{part}" is not a column of table "{name}"')
        if not is_key_type(found.type):
            raise UnsupportedTypeError(f'column "{part}" of type {found.type.upper()} cannot be part of a primary key')
        names.append(found.name)
    if not names:
        return TableSchema((*fields, ROW_ID), (ROW_ID.name,))
    stored = tuple(Field(f.name, f.type, False) if f.name in names else f for f in fields)
    return TableSchema(stored, tuple(dict.fromkeys(names)))


def _dependents(snapshot: Snapshot, table_id: str) -> list[str]:
    """Return every stream table that reads the table, directly or not, nearest first."""
    found: dict[str, None] = {}
    waiting = list(snapshot.dependents.get(table_id, ()))
    while waiting:
        current = waiting.pop(0)
        if current not in found:
            found[current] = None
            waiting += snapshot.dependents.get(current, ())
    order = {t: i for i, t in enumerate(_topological(snapshot))}
    return sorted(found, key=lambda t: order[t])


def _topological(snapshot: Snapshot) -> list[str]:
    """Return the stream tables, sources before those that read them, by name within a level."""
    done: dict[str, None] = {}

    def visit(table_id: str) -> None:
        if table_id in done or table_id not in snapshot.streams:
            return
        for source in sorted(snapshot.sources.get(table_id, ())):
            visit(source)
        done[table_id] = None

    for table_id in sorted(snapshot.streams, key=lambda i: snapshot.tables[i].name):
        visit(table_id)
    return list(done)


def _unknown_in(error: HeadwaterError, snapshot: Snapshot) -> HeadwaterError:
    """Add the nearest names to Spark's complaint about a table it does not know."""
    import re

    detail = error.detail or ""
    found = re.search(r"TABLE_OR_VIEW_NOT_FOUND\] The table or view `([^`]+)`", detail)
    if found is None:
        return error
    known = [t.name for t in snapshot.tables.values() if t.kind is not TableKind.AUX]
    return UnknownTableError(found[1], known)
