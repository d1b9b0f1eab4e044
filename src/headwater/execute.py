"""Statements as calls on the warehouse, matched to the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from headwater.engine.texts import named_views
from headwater.engine.worker import ddl_fields
from headwater.errors import StatementError
from headwater.model.reports import Result
from headwater.model.schema import Field
from headwater.model.tables import RefreshMode, Table, TableKind
from headwater.source import statements as st
from headwater.source.dml import Change, Changer
from headwater.source.session import named_frames

if TYPE_CHECKING:
    from headwater.warehouse import Warehouse


def executed(wh: Warehouse, statement: st.Statement) -> Any:
    """Run one statement: a frame for a query, a `Result` for anything else."""
    match statement:
        case st.Query():
            return wh.query(statement.text.text)
        case st.Insert():
            return _insert(wh, statement)
        case st.Update():
            pairs = {a.column: a.value.text for a in statement.assignments}
            where = statement.where.text if statement.where else None
            text = " , ".join([*pairs.values(), where or ""])
            return wh.session.change(
                str(statement.table),
                "updated",
                lambda c, t: c.update(t, statement.alias, pairs, where, named_frames(c, text, t)),
            )
        case st.Delete():
            where = statement.where.text if statement.where else None
            return wh.session.change(
                str(statement.table),
                "deleted",
                lambda c, t: c.delete(t, statement.alias, where, named_frames(c, where or "", t)),
            )
        case st.Merge():
            return _merge(wh, statement)
        case st.TruncateTable():
            return wh.session.change(str(statement.name), "deleted", lambda c, t: c.truncate(t))
        case st.CreateTable():
            return _create_table(wh, statement)
        case st.AlterTableAddColumns():
            wh.add_columns(str(statement.name), wh.column_fields(statement.columns))
            return Result(f'table "{statement.name}" altered')
        case st.DropTable():
            if statement.if_exists and wh.snapshot().table(str(statement.name)) is None:
                return Result(f'table "{statement.name}" does not exist, nothing dropped')
            wh.drop_table(str(statement.name), cascade=statement.cascade)
            return Result(f'table "{statement.name}" dropped')
        case st.CreateStreamTable():
            made = wh.create_stream_table(
                str(statement.name),
                statement.query.text,
                schedule=statement.schedule,
                refresh_mode=statement.mode or RefreshMode.AUTO,
                or_replace=statement.or_replace,
                if_not_exists=statement.if_not_exists,
                **statement.options,
            )
            return Result(f'stream table "{made.name}" created, {made.rows} rows', value=made, notices=made.notices)
        case st.AlterStreamTable():
            altered = wh.alter_stream_table(
                str(statement.name),
                schedule=statement.schedule,
                refresh_mode=statement.mode,
                query=statement.query.text if statement.query else None,
                **statement.options,
            )
            return Result(f'stream table "{altered.name}" altered', value=altered, notices=altered.notices)
        case st.DropStreamTable():
            if statement.if_exists and wh.snapshot().table(str(statement.name)) is None:
                return Result(f'stream table "{statement.name}" does not exist, nothing dropped')
            wh.drop_stream_table(str(statement.name), cascade=statement.cascade)
            return Result(f'stream table "{statement.name}" dropped')
        case st.RefreshStreamTable():
            report = wh.refresh(None if statement.name is None else str(statement.name))
            reports = report if isinstance(report, list) else [report]
            lines = [f'"{r.name}": {r.action.value}, +{r.rows_inserted} -{r.rows_deleted}' for r in reports]
            return Result("\n".join(lines) or "there are no stream tables", value=report)
        case st.ExplainStreamTable():
            return Result(wh.explain_stream_table(str(statement.name)))
        case st.ShowTables() | st.ShowStreamTables():
            only = isinstance(statement, st.ShowStreamTables)
            rows = [s for s in wh.status() if not only or s.kind == TableKind.STREAM.value]
            return Result("\n".join(f"{s.name} ({s.kind}, {s.rows} rows)" for s in rows), value=rows)
        case st.DescribeTable():
            table = wh.lookup(wh.snapshot(), str(statement.name))
            lines = [
                f"{f.name} {f.type.upper()}{'' if f.nullable else ' NOT NULL'}{' KEY' if f.name in table.schema.key else ''}"
                for f in table.schema.visible
            ]
            return Result("\n".join(lines), value=table.schema)
        case _:
            assert_never(statement)


def _insert(wh: Warehouse, statement: st.Insert) -> Result:
    def work(changer: Changer, table: Table) -> Change:
        text = statement.source.text
        frames = named_frames(changer, text)
        with named_views(changer.worker, frames):
            query = changer.worker.sql(text)
        return changer.insert_query(table, statement.columns, query, by_name=statement.by_name)

    return wh.session.change(str(statement.table), "inserted", work)


def _merge(wh: Warehouse, statement: st.Merge) -> Result:
    def work(changer: Changer, table: Table) -> Change:
        parts = [statement.source.text, statement.on.text]
        for clause in statement.clauses:
            parts += [f.text for f in (clause.condition, *clause.insert_values) if f is not None]
            parts += [a.value.text for a in clause.assignments]
        frames = named_frames(changer, " , ".join(parts))
        alias = str(statement.source_name) if statement.source_name is not None else "source"
        return changer.merge(statement, table, alias, frames)

    return wh.session.change(str(statement.target), "merged", work)


def _create_table(wh: Warehouse, statement: st.CreateTable) -> Result:
    name = str(statement.name)
    existing = wh.snapshot().table(name)
    if existing is not None and statement.if_not_exists:
        return Result(f'table "{existing.name}" exists already, nothing created')
    if existing is not None and statement.or_replace and statement.query is not None:
        raise StatementError(
            f'table "{existing.name}" exists and cannot be replaced by a query',
            detail="It would be gone if the query failed, or read it.",
            hint="Create it under another name, or DROP TABLE first.",
        )
    if existing is not None and statement.or_replace:
        wh.drop_table(name)
    if statement.query is None:
        wh.create_stored_table(name, wh.column_fields(statement.columns), statement.primary_key)
        return Result(f'table "{name}" created')
    frame = wh.query(statement.query.text)
    fields = [Field(f.name, f.type, f.name not in statement.primary_key) for f in ddl_fields(frame.schema)]
    wh.create_stored_table(name, fields, statement.primary_key)
    try:
        change = wh.insert(name, frame)
    except BaseException:
        wh.drop_table(name)
        raise
    return Result(f'table "{name}" created, {change.rows_affected} rows', change.rows_affected)
