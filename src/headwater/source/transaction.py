"""A transaction: statements that see each other's effects and become one commit.

Changes wait as materialised rows beside the manifest; reading a table inside the transaction reads them too. At the end the rows
of each table are summed into one batch, so that a batch never names a key more than once with each sign.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headwater.catalog import CommitUnknownError, Manifest, Snapshot
from headwater.engine.worker import Worker
from headwater.errors import HeadwaterError, WrongKindError
from headwater.model.commit import Change, Commit
from headwater.model.tables import Table, TableKind
from headwater.store.ground import Ground
from headwater.store.netting import net_changes_sql
from headwater.store.reading import Source
from headwater.store.rows import Rows


@dataclass
class Transaction:
    """Changes of several tables on top of one snapshot."""

    ground: Ground
    snapshot: Snapshot
    pending: dict[str, list[Rows]] = field(default_factory=dict)
    next_row_id: dict[str, int] = field(default_factory=dict)

    def table(self, table_id: str) -> Table:
        table = self.snapshot.tables[table_id]
        return replace(table, next_row_id=self.next_row_id.get(table_id, table.next_row_id))

    def source(self, table_id: str) -> Source:
        """Return the table as this transaction sees it."""
        source = self.ground.source(self.snapshot, self.snapshot.tables[table_id])
        return replace(source, table=self.table(table_id), pending=tuple(self.pending.get(table_id, ())))

    def add(self, table: Table, rows: Rows, next_row_id: int | None = None) -> None:
        """Take checked change rows into the transaction."""
        if rows.count:
            self.pending.setdefault(table.id, []).append(rows)
        else:
            self.ground.writer.discard(rows)
        if next_row_id is not None:
            self.next_row_id[table.id] = next_row_id

    def is_untouched(self, table: Table) -> bool:
        """Say whether no change of the table waits, here or in its tail: inserted rows can then join the base."""
        return not self.pending.get(table.id) and table.base_version >= self.snapshot.changed.get(table.id, 0)

    def commit(self, worker: Worker) -> int | None:
        """Make all changes one version; return it, or None if there are none. If it fails, `discard` removes what was written."""
        changes: list[Change] = []
        write_ids: list[str] = []
        unmoved: dict[str, int] = {}
        for table_id in self.pending:
            table = self.table(table_id)
            rows = self._one_batch(worker, table)
            if rows.count == 0:
                continue
            batch, ids = self.ground.writer.batch(rows, table, next_row_id=self.next_row_id.get(table_id))
            changes.append(batch)
            write_ids += ids
            unmoved[table_id] = table.moved
        if not changes:
            self.discard()
            return None
        try:
            return self.ground.catalog.commit(Commit(tuple(changes), unmoved=unmoved, write_ids=tuple(write_ids)))
        except BaseException as error:
            if not isinstance(error, HeadwaterError) or isinstance(error, CommitUnknownError):
                # It may have been committed, so the files must stay. If it was not, vacuum finds them under their open writes.
                self.pending.clear()
            raise

    def _one_batch(self, worker: Worker, table: Table) -> Rows:
        """Bring the waiting rows of a table into the form of one batch, and let them wait in that form."""
        waiting = self.pending[table.id]
        writer = self.ground.writer
        rows = waiting[0]
        if len(waiting) > 1:
            source = Source(table, Manifest((), (), {}), tuple(waiting))
            changes = self.ground.reader.changes(worker, source, 0, 0, table.schema.fields)
            text = net_changes_sql(worker.view(changes.frame), table.schema.fields)
            rows = writer.materialised(worker, worker.sql(text), table, changes.count)
            self.pending[table.id] = [rows]
            for old in waiting:
                writer.discard(old)
        self.pending[table.id] = [writer.stored(rows, table)]
        return self.pending[table.id][0]

    def discard(self) -> None:
        """Remove what was written for a transaction that will not be committed."""
        for waiting in self.pending.values():
            for rows in waiting:
                self.ground.writer.discard(rows)
        self.pending.clear()


def require_managed(table: Table) -> None:
    """Fail unless users may change the table."""
    if table.kind is not TableKind.MANAGED:
        raise WrongKindError(
            f'"{table.name}" is a stream table: its contents follow from its query',
            hint="Change the tables that it reads.",
        )
