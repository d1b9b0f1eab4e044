"""A transaction: statements that see each other's effects and become one commit.

Changes wait as materialised rows beside the manifest; reading a table inside the transaction reads them too. At the end the rows
of each table are summed into one batch, so that a batch never names a key more than once with each sign.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headwater.catalog import Snapshot
from headwater.engine.worker import Worker
from headwater.errors import WrongKindError
from headwater.model.commit import Change, Commit
from headwater.model.sql import quoted
from headwater.model.tables import Table, TableKind
from headwater.store.ground import Ground
from headwater.store.reading import Source, net_sql
from headwater.store.rows import ACTION, WEIGHT, Rows


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
        if next_row_id is not None:
            self.next_row_id[table.id] = next_row_id

    def is_untouched(self, table: Table) -> bool:
        """Say whether no change of the table waits, here or in its tail: inserted rows can then join the base."""
        return not self.pending.get(table.id) and table.base_version >= self.snapshot.changed.get(table.id, 0)

    def commit(self, worker: Worker) -> int | None:
        """Make all changes one version; return it, or None if there are none."""
        changes: list[Change] = []
        write_ids: list[str] = []
        unmoved: dict[str, int] = {}
        for table_id, waiting in self.pending.items():
            table = self.table(table_id)
            rows = waiting[0] if len(waiting) == 1 else self._summed(worker, table, waiting)
            if rows.count == 0:
                continue
            batch, ids = self.ground.writer.batch(rows, table, next_row_id=self.next_row_id.get(table_id))
            changes.append(batch)
            write_ids += ids
            unmoved[table_id] = table.moved
        if not changes:
            return None
        return self.ground.catalog.commit(Commit(tuple(changes), unmoved=unmoved, write_ids=tuple(write_ids)))

    def _summed(self, worker: Worker, table: Table, waiting: list[Rows]) -> Rows:
        source = Source(
            table, replace(self.ground.catalog.manifest(table.id, self.snapshot.version), batches=()), tuple(waiting)
        )
        fields = table.schema.fields
        changes = self.ground.reader.changes(worker, source, 0, 0, fields)
        net = net_sql(worker.view(changes.frame), fields)
        names = "".join(quoted(f.name) + ", " for f in fields)
        text = (
            f"SELECT {names}CASE WHEN {WEIGHT} > 0 THEN 'I' ELSE 'D' END AS {ACTION} FROM ({net}) "
            f"LATERAL VIEW explode(sequence(1, abs({WEIGHT}))) AS __copy"
        )
        rows = self.ground.writer.materialised(worker, worker.sql(text), table, changes.count)
        for old in waiting:
            self.ground.writer.discard(old)
        return rows

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
