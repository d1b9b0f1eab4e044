"""Changing managed tables: every statement becomes change rows, computed by Spark in one pass.

INSERT, UPDATE, DELETE, MERGE, upsert and `apply_changes` differ only in how they say which rows go and which come. What they say is
materialised once, checked, and handed to the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.engine.identity import equal_sql, identity_list, identity_sql, keys_equal_sql
from headwater.engine.texts import named_views
from headwater.engine.worker import Frame, Worker
from headwater.errors import ConstraintError, EvaluationError, ResultTooLargeError
from headwater.model.schema import Field
from headwater.model.sql import quoted, sql_string
from headwater.model.tables import Table
from headwater.source.change_texts import FRESH_ID, assigned, column, has_row_id, row_of, rows_type, update_sql
from headwater.source.constraints import check_keys, constraint_error, key_fields, missing_rows
from headwater.source.fitting import MARK, fitted_sql
from headwater.source.incoming import Gate, Incoming, fitted
from headwater.source.merge import merge_frame
from headwater.source.statements import Merge
from headwater.source.transaction import Transaction
from headwater.store.layout import decoded_statistics
from headwater.store.netting import copies_sql, net_sql
from headwater.store.rows import ACTION, ROW_ID, WEIGHT, Rows, arrow_rows

_PROBE_ROWS = 50_000
_PROBE_BYTES = 64 << 20
_MANY = 10_000_000
_BROADCAST_ROWS = 500_000


@dataclass(frozen=True, slots=True)
class Change:
    """What a statement did."""

    inserted: int
    deleted: int


class Changer:
    """Runs statements of one transaction with one worker."""

    def __init__(self, transaction: Transaction, worker: Worker) -> None:
        self.transaction = transaction
        self.worker = worker
        self._ground = transaction.ground
        self._writer = transaction.ground.writer

    # what a statement reads -------------------------------------------------------------------------------------------------

    def state(self, table: Table) -> Frame:
        """Return the table as the transaction sees it, all stored fields."""
        tx = self.transaction
        return self._ground.reader.state(self.worker, tx.source(table.id), tx.snapshot.version)

    def visible(self, table: Table) -> Frame:
        """Return the table as the transaction sees it, as users see it."""
        tx = self.transaction
        return self._ground.reader.state(self.worker, tx.source(table.id), tx.snapshot.version, table.schema.visible)

    @contextmanager
    def _gate(self) -> Iterator[Gate]:
        """Lend a way in for rows of users; what had to go through a file is gone afterwards."""
        with ExitStack() as files:

            def spill() -> Path:
                directory = files.enter_context(self._writer.scratch())
                directory.mkdir(parents=True)
                return directory / "rows.parquet"

            yield Gate(self.worker, self._ground.settings.local_relation_max_rows, spill)

    # statements -------------------------------------------------------------------------------------------------------------

    def insert(self, table: Table, rows: Any) -> Change:
        """Add rows."""
        with self._gate() as gate:
            given = gate.incoming(rows, table)
            return self._insert_frame(table, fitted(self.worker, given, table), given.count)

    def insert_query(self, table: Table, columns: Sequence[str] | None, query: Frame, *, by_name: bool) -> Change:
        """Add the rows of a query, matched by position, by the columns named, or by name."""
        if not by_name:
            names = list(columns) if columns is not None else [f.name for f in table.schema.visible]
            if len(names) != len(query.columns):
                raise ConstraintError(
                    f'INSERT INTO "{table.name}" has {len(names)} target columns but {len(query.columns)} values',
                    hint="Name the columns: INSERT INTO table (a, b) ...",
                )
            if len({n.casefold() for n in names}) != len(names):
                raise ConstraintError("INSERT names a column twice")
            query = query.toDF(*names)
        return self._insert_frame(table, fitted(self.worker, Incoming(query, None), table), None)

    def _insert_frame(self, table: Table, frame: Frame, count: int | None) -> Change:
        row_id = f", {FRESH_ID}L AS {ROW_ID.name}" if has_row_id(table) else ""
        stored = self.worker.sql(f"SELECT *{row_id} FROM {self.worker.view(frame)}")
        rows = self.worker.sql(f"SELECT *, 'I' AS {ACTION} FROM {self.worker.view(stored)}")

        def into_base() -> Rows:
            return self._writer.inserted(self.worker, self._numbered(stored, table), table)

        to_files = into_base if self.transaction.is_untouched(table) else None
        return self._accept(table, self._materialised(rows, table, count, to_files))

    def delete(self, table: Table, alias: str | None, where: str | None, named: Mapping[str, Frame]) -> Change:
        """Remove the rows for which the condition is true."""
        fields = ", ".join(quoted(f.name) for f in table.schema.fields)
        condition = f" WHERE ({where})" if where else ""
        view = self.worker.view(self.state(table))
        with named_views(self.worker, named):
            frame = self.worker.sql(
                f"SELECT {fields}, 'D' AS {ACTION} FROM {view} AS {quoted(alias or table.name)}{condition}"
            )
        return self._accept(table, self._materialised(frame, table))

    def truncate(self, table: Table) -> Change:
        """Remove all rows."""
        return self.delete(table, None, None, {})

    def update(
        self,
        table: Table,
        alias: str | None,
        assignments: Mapping[str, str],
        where: str | None,
        named: Mapping[str, Frame],
    ) -> Change:
        """Change columns of the rows for which the condition is true."""
        by_name = assigned(assignments, table)
        view = self.worker.view(self.state(table))
        condition = f" WHERE ({where})" if where else ""
        values = ", ".join(f"({text}) AS {quoted('__new_' + name)}" for name, text in by_name.items())
        old = ", ".join(f"{quoted(f.name)} AS {quoted('__old_' + f.name)}" for f in table.schema.fields)
        with named_views(self.worker, named):
            computed = self.worker.sql(
                f"SELECT {old}, {values} FROM {view} AS {quoted(alias or table.name)}{condition}"
            )
        types = {f.name: f.dataType for f in computed.schema.fields}
        new = {
            name: fitted_sql(self.worker, quoted("__new_" + name), types["__new_" + name], column(table, name), table)
            for name in by_name
        }
        frame = self.worker.sql(update_sql(self.worker.view(computed), table, new))
        return self._accept(table, self._materialised(frame, table))

    def upsert(self, table: Table, rows: Any) -> Change:
        """Insert rows, replacing those with the same key."""
        if not table.schema.key or has_row_id(table):
            raise ConstraintError(
                f'table "{table.name}" has no primary key to upsert by',
                hint="Use insert, or create the table with a PRIMARY KEY.",
            )
        with self._gate() as gate:
            given = gate.incoming(rows, table)
            key = key_fields(table)
            arriving = self.worker.view(fitted(self.worker, given, table))
            same_key = ", ".join(identity_list(key))
            ranked = f"SELECT *, row_number() OVER (PARTITION BY {same_key} ORDER BY 1) AS __rank FROM {arriving}"
            shown = ", ', ', ".join(f"'{f.name} = ', CAST(s.{quoted(f.name)} AS STRING)" for f in key)
            text = f'{MARK} duplicate key in the rows for table "{table.name}": '
            error = f"CAST(raise_error(concat({sql_string(text)}, {shown})) AS {rows_type(table)})"
            differs = " OR ".join(
                f"NOT {equal_sql(f't.{quoted(f.name)}', f's.{quoted(f.name)}', f.type)}" for f in table.schema.visible
            )
            hint = "/*+ BROADCAST(s) */ " if given.count is not None and given.count <= _BROADCAST_ROWS else ""
            frame = self.worker.sql(
                f"SELECT {hint}inline(CASE WHEN s.__rank > 1 THEN {error} "
                f"WHEN t.{quoted(key[0].name)} IS NULL THEN array({row_of(table, 's', 'I')}) "
                f"WHEN {differs} THEN array({row_of(table, 't', 'D')}, {row_of(table, 's', 'I')}) END) "
                f"FROM ({ranked}) s LEFT JOIN {self.worker.view(self.state(table))} t ON {keys_equal_sql('t', 's', key)}"
            )
            return self._accept(table, self._materialised(frame, table))

    def merge(self, statement: Merge, table: Table, source_name: str, named: Mapping[str, Frame]) -> Change:
        """Run MERGE INTO."""
        with named_views(self.worker, named):
            frame = merge_frame(self.worker, statement, table, self.state(table), source_name)
        return self._accept(table, self._materialised(frame, table))

    def apply_changes(self, table: Table, rows: Any, action: str) -> Change:
        """Apply rows that carry their own action, I or D, as one Z-set: what cancels is not there, a deleted row must be."""
        with self._gate() as gate:
            given = gate.incoming(rows, table, (Field(action, "STRING", nullable=False),))
            if action.casefold() not in {c.casefold() for c in given.frame.columns}:
                raise ConstraintError(f'the rows have no column "{action}"', hint="It says I or D for each row.")
            view = self.worker.view(fitted(self.worker, given, table, passed=(action,)))
            visible = table.schema.visible
            names = ", ".join(quoted(f.name) for f in visible)
            text = f"{MARK} an action is neither I nor D: "
            weight = (
                f"CASE {quoted(action)} WHEN 'I' THEN 1 WHEN 'D' THEN -1 ELSE "
                f"CAST(raise_error(concat({sql_string(text)}, coalesce({quoted(action)}, 'NULL'))) AS INT) END"
            )
            net = self.worker.view(
                self.worker.sql(net_sql(f"(SELECT {names}, {weight} AS {WEIGHT} FROM {view})", visible))
            )
            row_id = f", {FRESH_ID}L AS {ROW_ID.name}" if has_row_id(table) else ""
            added = copies_sql(net, f"{names}{row_id}, 'I' AS {ACTION}", f" WHERE {WEIGHT} > 0")
            made = self._materialised(self.worker.sql(f"{self._deleted_sql(net, table)} UNION ALL {added}"), table)
            try:
                self._check_deleted(net, made, table)
            except BaseException:
                self._writer.discard(made)
                raise
            return self._accept(table, made)

    def _deleted_sql(self, net: str, table: Table) -> str:
        """Return, for each tuple of weight -n in `net`, n stored rows that equal it."""
        visible = table.schema.visible
        match = " AND ".join(
            f"{identity_sql(f's.{quoted(f.name)}', f.type)} <=> {identity_sql(f'd.{quoted(f.name)}', f.type)}"
            for f in visible
        )
        fields = ", ".join(f"s.{quoted(f.name)}" for f in table.schema.fields)
        ranked = (
            f"SELECT {fields}, d.{WEIGHT} AS __n, row_number() OVER (PARTITION BY {', '.join(identity_list(visible, 's'))} "
            f"ORDER BY {', '.join(f's.{quoted(k)}' for k in table.schema.key)}) AS __i "
            f"FROM {self.worker.view(self.state(table))} s JOIN (SELECT * FROM {net} WHERE {WEIGHT} < 0) d ON {match}"
        )
        stored = ", ".join(quoted(f.name) for f in table.schema.fields)
        return f"SELECT {stored}, 'D' AS {ACTION} FROM ({ranked}) WHERE __i <= -__n"

    def _check_deleted(self, net: str, rows: Rows, table: Table) -> None:
        total = self.worker.rows(self.worker.sql(f"SELECT -sum({WEIGHT}) AS n FROM {net} WHERE {WEIGHT} < 0"))
        wanted = int(total[0]["n"] or 0)
        if rows.deletes < wanted:
            gone = self.worker.sql(f"SELECT * EXCEPT ({WEIGHT}) FROM {net} WHERE {WEIGHT} < 0 LIMIT 1")
            raise missing_rows(table, self.worker.rows(gone)[0].asDict(), wanted - rows.deletes)

    # rows made --------------------------------------------------------------------------------------------------------------

    def _materialised(
        self, frame: Frame, table: Table, count: int | None = None, to_files: Callable[[], Rows] | None = None
    ) -> Rows:
        """Run a statement's change rows: few come to the driver, many are written by executors (`to_files` if given).

        `count` is their number if it is known. What is not known is asked of Spark's optimizer; where that does not know either,
        a result of little data is tried with a limit first, and one of much data is written at once and taken back if it was small.
        """
        writer, worker, fields = self._writer, self.worker, table.schema.fields
        try:
            size = worker.estimate(frame)
            most = size.rows if count is None else count
            if writer.fits_in_memory(fields, most):
                with suppress(ResultTooLargeError):
                    return arrow_rows(worker.to_arrow(writer.selected(worker, frame, table)))
            if most is None and size.bytes <= _PROBE_BYTES and writer.fits_in_memory(fields, _PROBE_ROWS):
                found = worker.to_arrow(writer.selected(worker, frame, table).limit(_PROBE_ROWS + 1))
                if found.num_rows <= _PROBE_ROWS:
                    return arrow_rows(found)
            worker.size_for(most or _MANY)
            if to_files is not None:
                return writer.fetched(to_files(), table)
            return writer.fetched(writer.materialised(worker, self._numbered(frame, table), table, None), table)
        except EvaluationError as error:
            raise constraint_error(error) from error

    def _numbered(self, frame: Frame, table: Table) -> Frame:
        """Give rows that executors will write their ids."""
        if not has_row_id(table):
            return frame
        fresh = f"{table.next_row_id}L + monotonically_increasing_id()"
        name = quoted(ROW_ID.name)
        return self.worker.sql(
            f"SELECT * EXCEPT ({name}), CASE WHEN {name} = {FRESH_ID} THEN {fresh} ELSE {name} END AS {name} "
            f"FROM {self.worker.view(frame)}"
        )

    def _accept(self, table: Table, rows: Rows) -> Change:
        """Check the rows and hand them to the transaction."""
        tx = self.transaction
        try:
            check_keys(self.worker, self._ground, rows, tx.source(table.id), tx.snapshot.version)
            next_row_id = None
            if has_row_id(table):
                rows, next_row_id = _with_row_ids(rows, table.next_row_id)
        except BaseException:
            self._writer.discard(rows)
            raise
        tx.add(table, rows, next_row_id)
        return Change(rows.inserts, rows.deletes)


def _with_row_ids(rows: Rows, first: int) -> tuple[Rows, int]:
    """Return the rows with ids of their own, and the next free id."""
    if rows.arrow is None:
        highest = [decoded_statistics(f)[ROW_ID.name][1] for f in rows.files]
        return rows, max([first, *(int(h) + 1 for h in highest)])
    ids = rows.arrow.column(ROW_ID.name).to_numpy(zero_copy_only=False).astype(np.int64, copy=True)
    fresh = ids == FRESH_ID
    ids[fresh] = first + np.arange(int(fresh.sum()))
    position = rows.arrow.column_names.index(ROW_ID.name)
    arrow = rows.arrow.set_column(position, ROW_ID.name, pa.array(ids))
    return replace(rows, arrow=arrow), int(ids.max(initial=first - 1)) + 1
