"""Changes that several refreshes of one round read: each is read once, for all of them.

Few change rows are held as Arrow, many stay with Spark, kept by its executors until the round is over. What is read are the columns
that any of the refreshes needs; each takes its own.

Relies on: the rows between two versions of the same batches are always the same, whoever asks.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import pyarrow as pa

from headwater.engine.worker import Frame, Worker
from headwater.model.schema import Field
from headwater.model.sql import quoted
from headwater.store.ground import Ground
from headwater.store.reading import Changes, Source
from headwater.store.rows import CHANGE_FIELDS, CHANGED, CHANGED_FIELD, WEIGHT

_Key = tuple[str, tuple[str, ...], int, int]


@dataclass(slots=True)
class _Kept:
    """Change rows that were read: `few` as Arrow, or `many` as a frame of the worker that keeps them."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    is_read: bool = False
    few: pa.Table | None = None
    many: Frame | None = None
    count: int = 0
    deletes: int = 0


class SharedChanges:
    """Use as a context: rows are kept until its end. `wanted` are the columns that are read of a source, `readers` by how many."""

    def __init__(self, ground: Ground, wanted: Mapping[str, frozenset[str]], readers: Mapping[str, int]) -> None:
        self._ground = ground
        self._wanted = wanted
        self._readers = readers
        self._kept: dict[_Key, _Kept] = {}
        self._lock = threading.Lock()
        self._planning = threading.Lock()
        self._stack = ExitStack()
        self._worker: Worker | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let all rows go."""
        self._kept.clear()
        self._stack.close()

    def is_shared(self, source: Source) -> bool:
        """Say whether somebody else of the round reads the changes of a source, too."""
        return self._readers.get(source.table.id, 0) > 1

    def few(self, source: Source, after: int, upto: int, fields: tuple[Field, ...]) -> pa.Table | None:
        """Return change rows if they are few, with `fields` and the change columns."""
        after, upto = _narrowed(source, after, upto)
        kept = self._entry(source, after, upto)
        with kept.lock:
            if not kept.is_read:
                kept.few = self._ground.reader.few_changes(source, after, upto, self._fields(source, fields))
                kept.is_read = True
        return None if kept.few is None else kept.few.select([f.name for f in (*fields, *CHANGE_FIELDS)])

    def many(self, worker: Worker, source: Source, after: int, upto: int, fields: tuple[Field, ...]) -> Changes:
        """Return change rows that stay with Spark, as a query of `worker`."""
        after, upto = _narrowed(source, after, upto)
        kept = self._entry(source, after, upto)
        with kept.lock:
            if kept.many is None:
                with self._planning:
                    own = self._own_worker()
                    changes = self._ground.reader.changes(own, source, after, upto, self._fields(source, fields))
                    kept.many = own.persisted(own.sql(changes.sql))
                    kept.count, kept.deletes = changes.count, changes.deletes
        stored = (*fields, CHANGED_FIELD, Field(WEIGHT, "INT"))
        shown = worker.relation(worker.adopted(kept.many), stored)
        columns = "".join(quoted(f.name) + ", " for f in fields)
        return Changes(worker, f"SELECT {columns}{CHANGED}, {WEIGHT} FROM {shown}", kept.count, kept.deletes)

    def _entry(self, source: Source, after: int, upto: int) -> _Kept:
        key = (source.table.id, tuple(b.id for b in source.batches(after, upto)), after, upto)
        with self._lock:
            return self._kept.setdefault(key, _Kept())

    def _fields(self, source: Source, fields: tuple[Field, ...]) -> tuple[Field, ...]:
        wanted = self._wanted.get(source.table.id, frozenset()) | {f.name for f in fields}
        return tuple(f for f in source.table.schema.fields if f.name in wanted)

    def _own_worker(self) -> Worker:
        if self._worker is None:
            self._worker = self._stack.enter_context(self._ground.engine.worker())
        return self._worker


def _narrowed(source: Source, after: int, upto: int) -> tuple[int, int]:
    """Return the versions between which the rows really are: who has seen nothing new since reads the same as who has seen all."""
    batches = source.batches(after, upto)
    if not batches:
        return upto, upto
    return max(after, min(b.first_version for b in batches) - 1), min(upto, max(b.last_version for b in batches))
