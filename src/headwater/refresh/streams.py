"""Creating stream tables: definition, state and first contents are one commit, or nothing.

The contents are computed before anything is committed, over tables that only this process knows of. So a query that fails while it
runs leaves no trace, and a stream table that is replaced stays as it was until its successor is complete.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from headwater.catalog import Snapshot
from headwater.engine.jobs import counting_jobs
from headwater.errors import BusyError, DuplicateTableError, HasDependentsError
from headwater.model.commit import Change, Commit, CreateTable, DefineStream, DropTable
from headwater.model.options import DEFAULT_OPTIONS, StreamOptions
from headwater.model.schema import TableSchema
from headwater.model.tables import (
    RefreshAction,
    RefreshMode,
    RefreshRecord,
    StreamTable,
    Table,
    TableKind,
    WhenFull,
)
from headwater.refresh.cycle import Refresher
from headwater.refresh.definition import Planned
from headwater.refresh.graph import dependents_of
from headwater.refresh.scene import newest_scene
from headwater.store.ground import Ground
from headwater.store.rows import Rows

LOG = logging.getLogger("headwater.refresh")


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """A stream table to be made: what it is called, what it replaces, and how it is kept."""

    name: str
    query: str
    mode: RefreshMode
    schedule: str | None
    when_full: WhenFull
    replaces: Table | None = None
    options: StreamOptions = DEFAULT_OPTIONS


def create_stream(
    ground: Ground, refresher: Refresher, snapshot: Snapshot, plan: Planned, request: StreamRequest
) -> str:
    """Populate and commit a stream table; return its id."""
    began = time.perf_counter()
    started_at = ground.catalog.now()
    if request.replaces is not None:
        _require_unread(snapshot, request.replaces)
    tables = _tables(plan, request)
    target = tables[0]
    stream = StreamTable(
        target.id,
        request.query,
        request.mode,
        request.schedule,
        request.when_full,
        plan.definition.to_json(),
        frontier=None,
    )
    foreseen = _with_stream(snapshot, tables, stream, plan.sources)
    with counting_jobs(ground.engine.spark) as jobs, ground.engine.worker() as worker:
        worker.configure(plan.definition.meaning)
        outcome = refresher.computer.whole(worker, newest_scene(ground, foreseen), stream, plan.definition)
    changes: list[Change] = [DropTable(request.replaces.id)] if request.replaces is not None else []
    changes += [CreateTable(t) for t in tables]
    changes.append(
        DefineStream(
            target.id,
            request.query,
            request.mode,
            request.schedule,
            request.when_full,
            stream.definition,
            tuple(plan.sources),
            frontier=snapshot.version,
            options=request.options,
        )
    )
    write_ids: list[str] = []
    for table_id, rows in list(outcome.rows.items()):
        if rows.count:
            outcome.rows[table_id] = ground.writer.stored(rows, outcome.tables[table_id])
            batch, ids = ground.writer.batch(outcome.rows[table_id], outcome.tables[table_id])
            changes.append(batch)
            write_ids += ids
    made = outcome.rows.get(target.id, Rows(0, 0, 0))
    record = RefreshRecord(
        target.id,
        started_at,
        ground.catalog.now(),
        RefreshAction.INITIAL,
        "COMPLETED",
        outcome.rows_in,
        made.inserts,
        made.deletes,
        (time.perf_counter() - began) * 1000,
        jobs.count,
        "created",
        None,
        snapshot.version,
    )
    try:
        ground.catalog.commit(Commit(tuple(changes), write_ids=tuple(write_ids), history=(record,)))
    except (BusyError, DuplicateTableError):  # refused: nothing names the files
        for rows in outcome.rows.values():
            ground.writer.discard(rows)
        raise
    if request.mode is RefreshMode.AUTO and plan.refusals and request.when_full is WhenFull.WARN:
        LOG.warning("created without incremental maintenance table=%s reason=%s", target.name, plan.definition.reason)
    return target.id


def _shown(schema: TableSchema) -> TableSchema:
    """Return the columns that users see; without one of its columns a key is none."""
    shown = {f.name for f in schema.visible}
    return TableSchema(tuple(schema.visible), schema.key if shown.issuperset(schema.key) else ())


def _tables(plan: Planned, request: StreamRequest) -> list[Table]:
    """Return the stream table and the tables of its state, as they will be."""
    schema = _shown(plan.schema) if request.mode is RefreshMode.FULL else plan.schema
    target = Table(uuid.uuid4().hex, request.name, TableKind.STREAM, schema, 0, 0, 0)
    template = plan.definition.template if request.mode is not RefreshMode.FULL else None
    stages = template.states if template is not None else ()
    return [
        target,
        *(
            Table(
                uuid.uuid4().hex,
                f"{request.name}${s.name}",
                TableKind.AUX,
                s.table_schema,
                0,
                0,
                0,
                parent_id=target.id,
            )
            for s in stages
        ),
    ]


def _with_stream(snapshot: Snapshot, tables: Sequence[Table], stream: StreamTable, sources: Sequence[str]) -> Snapshot:
    """Return the snapshot as it would be with an empty stream table in it."""
    return replace(
        snapshot,
        tables=MappingProxyType({**snapshot.tables, **{t.id: t for t in tables}}),
        streams=MappingProxyType({**snapshot.streams, stream.table_id: stream}),
        sources=MappingProxyType({**snapshot.sources, stream.table_id: tuple(sources)}),
        parts=MappingProxyType({**snapshot.parts, stream.table_id: tuple(t.id for t in tables[1:])}),
    )


def _require_unread(snapshot: Snapshot, table: Table) -> None:
    readers = dependents_of(snapshot, table.id)
    if readers:
        names = ", ".join(f'"{snapshot.tables[r].name}"' for r in readers)
        raise HasDependentsError(
            f'stream table "{table.name}" cannot be replaced because others read it',
            detail=f"They are {names}.",
            hint="Drop them first, or use DROP STREAM TABLE ... CASCADE.",
        )
