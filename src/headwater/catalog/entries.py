"""The entries of one commit: files and batches that begin or end to stand with its version.

New entries are collected and written in one statement per kind. Ended ones are marked at once: an entry that is not
standing any more was ended by somebody else, and the commit fails as busy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Table, insert, select, update

from headwater.catalog.rows import batch_row, chunks, file_row, inline_data
from headwater.catalog.states import name_of
from headwater.catalog.tables import batches, files, inline_rows
from headwater.errors import BusyError
from headwater.model.tables import Batch, BatchFormat, DataFile, FileRole


class Entries:
    """Adds and removes entries at `version`; `now` starts the grace of what is removed."""

    def __init__(self, connection: Connection, version: int, now: float) -> None:
        self._connection = connection
        self._version = version
        self._ended = {"removed": version, "removed_at": now}
        self._files: list[DataFile] = []
        self._batches: list[Batch] = []

    def add_files(self, table_id: str, added: Iterable[DataFile], role: FileRole, batch_id: str | None = None) -> None:
        """Add entries of `role`; the id of a batch replaces the one that a file carries."""
        for file in added:
            if file.table_id != table_id:
                raise ValueError(f"file {file.path} belongs to table {file.table_id}, not to {table_id}")
            self._files.append(
                replace(file, role=role, batch_id=batch_id or file.batch_id, added=self._version, removed=None)
            )

    def add_batch(self, batch: Batch, batch_files: tuple[DataFile, ...]) -> None:
        """Add a batch, whose versions are set, and its files."""
        check_batch(batch, batch_files)
        self._batches.append(replace(batch, added=self._version, removed=None))
        self.add_files(batch.table_id, batch_files, FileRole.TAIL, batch.id)

    def end_base_files(self, table_id: str, file_ids: Iterable[str]) -> None:
        """End base files by their ids."""
        wanted = set(file_ids)
        mine = (files.c.table_id == table_id) & (files.c.role == FileRole.BASE.value)
        ended = sum(len(self._end(files, mine & files.c.id.in_(part), files.c.id)) for part in chunks(sorted(wanted)))
        if ended != len(wanted):
            raise self._gone(table_id, "base files", len(wanted) - ended)

    def end_batches(self, table_id: str, batch_ids: Iterable[str]) -> tuple[int, int]:
        """End batches and their files; return the first and the last version that they held."""
        wanted = sorted(set(batch_ids))
        held: list[Any] = []
        for part in chunks(wanted):
            mine = (batches.c.table_id == table_id) & batches.c.id.in_(part)
            held += self._end(batches, mine, batches.c.first_version, batches.c.last_version)
            tail = (files.c.batch_id.in_(part)) & (files.c.role == FileRole.TAIL.value)
            self._end(files, tail, files.c.id)
        if len(held) != len(wanted):
            raise self._gone(table_id, "change batches", len(wanted) - len(held))
        return min(row.first_version for row in held), max(row.last_version for row in held)

    def end_tables(self, table_ids: Iterable[str]) -> None:
        """End everything that tables consist of."""
        for part in chunks(table_ids):
            self._end(files, files.c.table_id.in_(part), files.c.id)
            self._end(batches, batches.c.table_id.in_(part), batches.c.id)

    def write(self) -> None:
        """Write what was added."""
        if self._batches:
            self._connection.execute(insert(batches), [batch_row(batch) for batch in self._batches])
        inline = [
            {"batch_id": batch.id, "data": data} for batch in self._batches if (data := inline_data(batch)) is not None
        ]
        if inline:
            self._connection.execute(insert(inline_rows), inline)
        if self._files:
            self._connection.execute(insert(files), [file_row(file) for file in self._files])

    def tables(self) -> set[str]:
        """Return the ids of the tables that get new entries."""
        return {file.table_id for file in self._files} | {batch.table_id for batch in self._batches}

    def _end(self, entries: Table, which: Any, *answer: Any) -> list[Any]:
        ended = update(entries).where(which, entries.c.removed.is_(None)).values(self._ended).returning(*answer)
        return list(self._connection.execute(ended))

    def _gone(self, table_id: str, what: str, missing: int) -> BusyError:
        return BusyError(
            f'table "{name_of(self._connection, table_id)}" was rewritten by somebody else',
            detail=f"{missing} of its {what} to be replaced are gone.",
            hint="Nothing was changed; try again.",
        )


def check_batch(batch: Batch, batch_files: tuple[DataFile, ...]) -> None:
    """Refuse a batch whose rows are not where its format says."""
    if batch.format is BatchFormat.INLINE:
        if inline_data(batch) is None or batch_files:
            raise ValueError(f"inline batch {batch.id} must have bytes and no files")
        return
    if inline_data(batch) is not None:
        raise ValueError(f"batch {batch.id} has inline bytes, but its format is {batch.format.value}")
    if batch.inserts + batch.deletes > 0 and not batch_files:
        raise ValueError(f"batch {batch.id} has rows, but no files")
    if batch.format is BatchFormat.INSERT and batch.deletes:
        raise ValueError(f"batch {batch.id} deletes rows, but its format holds inserted rows only")


def check_written(connection: Connection, added: Iterable[DataFile], write_ids: frozenset[str]) -> None:
    """Refuse files that stand under no write of this commit, unless another entry that stands names them.

    Such an entry is how a fold takes an insert batch's file into the base. If it is gone, vacuum may be deleting the
    file.
    """
    known = {file.path for file in added if file.write_id not in write_ids}
    for part in chunks(sorted(known)):
        query = select(files.c.path).where(files.c.path.in_(part), files.c.removed.is_(None))
        known.difference_update(connection.execute(query).scalars())
    if known:
        raise BusyError(
            f"{len(known)} files of the commit belong to none of its writes",
            detail=f'"{min(known)}" is named by no table any more.',
            hint="Nothing was changed; write the files again under a new write.",
        )
