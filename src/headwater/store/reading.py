"""Reading a table: its state at a version, and its changes between two versions.

    changes(t, from, to]   the change rows of those versions
    state(t, v)            base + changes(b, v]   if the base stands at b <= v
                           base - changes(v, b]   if the base has run ahead

Z-sets subtract as well as add, so one rule serves a base that lags and one that leads. For the user the signed rows are
*consolidated*: the changes are first summed per full tuple (what cancels never meets the base), then, with a key, base rows
whose key was taken away are left out and what remains positive is added; without a key, tuples are counted.

Projecting before summing is right as long as the key stays in: two tuples that differ in unread columns alone cancel, and the
base row, which has the same read columns, stays.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.catalog import Catalog, Manifest
from headwater.engine.identity import has_variant, identity_list, identity_sql, is_plain, keys_equal_sql
from headwater.engine.worker import Frame, Worker, arrow_schema
from headwater.model.schema import Field
from headwater.model.sql import quoted, sql_literal
from headwater.model.tables import Batch, BatchFormat, DataFile, Table
from headwater.store.columns import Columns
from headwater.store.layout import Bound, Layout, files_within
from headwater.store.netting import copies_sql
from headwater.store.netting import net_sql as net_sql
from headwater.store.rows import (
    ACTION,
    ACTION_FIELD,
    CHANGE_FIELDS,
    CHANGED,
    CHANGED_FIELD,
    VERSION,
    VERSION_FIELD,
    WEIGHT,
    Rows,
    added_up,
    as_inserts,
    concatenated,
    decoded,
    fitted,
)

_BROADCAST_ROWS = 1_000_000
_CACHED_BATCHES = 4096
_CHUNK_ROWS = 50_000
_FEW_ROWS = 4_000
_CHANGES_AT_HAND = 200_000
_KEPT_FILE_BYTES = 8 << 20
_KEPT_BYTES = 128 << 20
_FEW_BYTES = 4 << 20
"""Tables of no more than that are added up by the driver."""


@dataclass(frozen=True, slots=True)
class Source:
    """A table as one reader sees it: definition, manifest, and rows of the reader's own open transaction."""

    table: Table
    manifest: Manifest
    pending: tuple[Rows, ...] = ()

    def batches(self, after: int, upto: int) -> tuple[Batch, ...]:
        """Return the batches with change rows of versions in (after, upto]."""
        return tuple(b for b in self.manifest.batches if b.last_version > after and b.first_version <= upto)


@dataclass(frozen=True, slots=True)
class Changes:
    """Change rows as a query with the fields asked for, `__changed_cols` and `__w` (+1 or -1)."""

    worker: Worker
    sql: str
    count: int
    deletes: int

    @property
    def frame(self) -> Frame:
        """The change rows as a frame of the worker that read them."""
        return self.worker.sql(self.sql)


class ChangeReads:
    """How often the changes of each table were read, and how long that took."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def of(self, table_id: str) -> Iterator[None]:
        """Count one read of a table's changes."""
        began = time.perf_counter()
        try:
            yield
        finally:
            with self._lock:
                self._counts[table_id] += 1
                self._seconds[table_id] += time.perf_counter() - began

    def counts(self) -> dict[str, int]:
        """Return how often each table's changes were read."""
        with self._lock:
            return dict(self._counts)

    def milliseconds(self) -> dict[str, float]:
        """Return how long reading the changes of each table took in all."""
        with self._lock:
            return {table_id: 1000.0 * s for table_id, s in self._seconds.items()}


class Reader:
    """Turns manifests into queries over a worker's views. Texts nest, so that only the whole has to be analysed."""

    def __init__(
        self, catalog: Catalog, layout: Layout, columns: Columns, *, local_rows: int, driver_rows: int
    ) -> None:
        self._catalog = catalog
        self.layout = layout
        self.columns = columns
        self._local_rows = local_rows
        self.driver_rows = driver_rows
        self._cache: OrderedDict[str, pa.Table] = OrderedDict()
        self._foreseen: dict[str, pa.Table] = {}
        self._files: OrderedDict[str, pa.Table] = OrderedDict()
        self._lock = threading.Lock()
        self.change_reads = ChangeReads()

    # changes ----------------------------------------------------------------------------------------------------------------

    def changes(self, worker: Worker, source: Source, after: int, upto: int, fields: Sequence[Field]) -> Changes:
        """Return the change rows of the versions in (after, upto]."""
        with self.change_reads.of(source.table.id):
            return self._signed(worker, source, source.batches(after, upto), after, upto, fields, flip=False)

    def few_changes(self, source: Source, after: int, upto: int, fields: Sequence[Field]) -> pa.Table | None:
        """Return the change rows of the versions in (after, upto] if they are few: `fields` and the change columns."""
        batches = source.batches(after, upto)
        count = sum(b.inserts + b.deletes for b in batches)
        if count > min(self.driver_rows, _CHANGES_AT_HAND) or any(has_variant(f.type) for f in fields):
            return None
        with self.change_reads.of(source.table.id):
            return self.arrow(batches, source, (), after, upto, (*fields, *CHANGE_FIELDS))

    def change_values(self, source: Source, after: int, upto: int, fields: Sequence[Field]) -> pa.Table:
        """Return columns of the change rows of the versions in (after, upto], read without Spark."""
        return self.arrow(source.batches(after, upto), source, (), after, upto, fields)

    def tail(
        self, source: Source, batches: Sequence[Batch], version: int
    ) -> Iterator[tuple[pa.Table, npt.NDArray[np.int64]]]:
        """Yield the change rows between the base and `version` with the version of every row, newest batches first.

        Batches cover disjoint ranges of versions, so nothing that follows is newer than what was yielded.
        """
        stored = (*source.table.schema.fields, *CHANGE_FIELDS[:1])
        after = source.table.base_version
        parts: list[pa.Table] = []
        versions: list[npt.NDArray[np.int64]] = []
        ordered = sorted(batches, key=lambda b: b.first_version)
        waiting: list[Batch | tuple[int, Rows]] = [*ordered, *enumerate(source.pending, start=version + 1)]
        chunk = 1
        while waiting:
            item = waiting.pop()
            if isinstance(item, Batch):
                part = self.arrow([item], source, (), after, version, (*stored, VERSION_FIELD))
                at = part.column(VERSION).to_numpy() if item.merged else np.full(part.num_rows, item.first_version)
                part = part.drop_columns([VERSION])
            else:
                part = self.arrow([], source, (item[1],), after, version, stored)
                at = np.full(part.num_rows, item[0])
            parts.append(part)
            versions.append(at)
            if not waiting or len(parts) == chunk or sum(p.num_rows for p in parts) > _CHUNK_ROWS:
                yield concatenated(parts), np.concatenate(versions)
                parts, versions = [], []
                chunk *= 2

    def _signed(
        self,
        worker: Worker,
        source: Source,
        batches: Sequence[Batch],
        after: int,
        upto: int,
        fields: Sequence[Field],
        *,
        flip: bool,
    ) -> Changes:
        pending = source.pending if not flip else ()
        count = sum(b.inserts + b.deletes for b in batches) + sum(p.count for p in pending)
        deletes = sum(b.deletes for b in batches) + sum(p.deletes for p in pending)
        stored = (*fields, ACTION_FIELD, CHANGED_FIELD)
        if count <= self._local_rows and not any(has_variant(f.type) for f in fields):
            arrow = self.arrow(batches, source, pending, after, upto, stored)
            relations = [worker.relation(arrow, stored)]
        else:
            relations = self._relations(worker, source, batches, pending, after, upto, stored)
        plus = "'D'" if flip else "'I'"
        columns = ", ".join(quoted(f.name) for f in fields)
        comma = ", " if fields else ""
        parts = [
            f"SELECT {columns}{comma}{CHANGED}, CASE WHEN {ACTION} = {plus} THEN 1 ELSE -1 END AS {WEIGHT} FROM {x}"
            for x in relations
        ]
        return Changes(worker, " UNION ALL ".join(parts), count, deletes)

    def arrow(
        self,
        batches: Sequence[Batch],
        source: Source,
        pending: Sequence[Rows],
        after: int,
        upto: int,
        stored: Sequence[Field],
    ) -> pa.Table:
        """Return the change rows as one Arrow table with exactly the stored columns."""
        inline = self.inline_tables([b for b in batches if b.format is BatchFormat.INLINE])
        tables = []
        for batch in batches:
            if batch.format is BatchFormat.INLINE:
                table = inline[batch.id]
            else:
                files = source.manifest.batch_files[batch.id]
                self.layout.require(files)
                wanted = [f.name for f in stored] + [VERSION] * batch.merged + [ACTION]
                parts = [self._tail_columns(f, wanted) for f in files]
                if batch.format is BatchFormat.INSERT:
                    firsts = [0, *itertools.accumulate(p.num_rows for p in parts)]
                    parts = [as_inserts(p, first) for p, first in zip(parts, firsts, strict=False)]
                table = concatenated(parts)
            tables.append(within(table, batch, after, upto))
        tables += [self._pending_table(rows) for rows in pending if rows.count]
        names = [f.name for f in stored]
        if not tables:
            return pa.table({n: pa.nulls(0) for n in names})
        # Of tables without any column, pyarrow forgets how many rows they have.
        kept = list(dict.fromkeys([*names, ACTION]))
        table = concatenated([t.select([n for n in kept if n in t.column_names]) for t in tables])
        for name in names:
            if name not in table.column_names:
                table = table.append_column(name, pa.nulls(table.num_rows))
        return table.select(names)

    def _tail_columns(self, file: DataFile, names: Sequence[str]) -> pa.Table:
        """Return those of the columns that a file of the tail has; small files are read once."""
        path = self.layout.absolute(file.path)
        if file.bytes > _KEPT_FILE_BYTES:
            return _columns(path, names)
        with self._lock:
            table = self._files.get(path)
            if table is not None:
                self._files.move_to_end(path)
        if table is None:
            with pq.ParquetFile(path) as data:
                table = data.read(use_threads=False)
            with self._lock:
                self._files[path] = table
                while sum(t.nbytes for t in self._files.values()) > _KEPT_BYTES:
                    self._files.popitem(last=False)
        return table.select([n for n in dict.fromkeys(names) if n in table.column_names])

    def _pending_table(self, rows: Rows) -> pa.Table:
        if rows.arrow is not None:
            return rows.arrow
        table = concatenated([pq.read_table(p) for p in self.layout.paths(rows.files)])
        return as_inserts(table) if rows.plain else table

    def _relations(
        self,
        worker: Worker,
        source: Source,
        batches: Sequence[Batch],
        pending: Sequence[Rows],
        after: int,
        upto: int,
        stored: Sequence[Field],
    ) -> list[str]:
        """Return the change rows as few relations: one per kind of storage, never one per batch."""
        found = []
        inline = [b for b in batches if b.format is BatchFormat.INLINE]
        in_memory = [
            within(t, b, after, upto) for b, t in zip(inline, self.inline_tables(inline).values(), strict=True)
        ]
        in_memory += [r.arrow for r in pending if r.arrow is not None]
        if in_memory:
            table = concatenated(in_memory)
            for name in (f.name for f in stored):
                if name not in table.column_names:
                    table = table.append_column(name, pa.nulls(table.num_rows))
            found.append(worker.relation(table, stored))
        whole: list[DataFile] = []
        partial: list[DataFile] = []
        plain: list[DataFile] = []
        for batch in batches:
            files = source.manifest.batch_files.get(batch.id, ())
            if batch.format is BatchFormat.INSERT:
                plain += files
            elif batch.format is BatchFormat.TAIL:
                (whole if batch.first_version > after and batch.last_version <= upto else partial).extend(files)
        for rows in pending:
            (plain if rows.plain else whole).extend(rows.files)
        self.layout.require([*whole, *partial, *plain])
        if whole:
            found.append(worker.relation(worker.read_parquet(self.layout.paths(whole), stored), stored))
        if partial:
            versioned = (*stored, VERSION_FIELD)
            view = worker.relation(worker.read_parquet(self.layout.paths(partial), versioned), versioned)
            names = ", ".join(quoted(f.name) for f in stored)
            found.append(f"(SELECT {names} FROM {view} WHERE {VERSION} > {after} AND {VERSION} <= {upto})")
        if plain:
            fields = [f for f in stored if f not in CHANGE_FIELDS]
            view = worker.relation(worker.read_parquet(self.layout.paths(plain), fields), fields)
            names = "".join(quoted(f.name) + ", " for f in fields)
            found.append(f"(SELECT {names}'I' AS {ACTION}, CAST(NULL AS ARRAY<BIGINT>) AS {CHANGED} FROM {view})")
        return found or [worker.view(worker.empty(stored))]

    def foresee(self, batch: Batch) -> None:
        """Let an inline batch be read before a commit names it."""
        assert batch.inline is not None
        with self._lock:
            self._foreseen[batch.id] = decoded(batch.inline)

    def forget(self, batch_ids: Iterable[str]) -> None:
        """Read inline batches from the catalog again: they are committed, or never will be."""
        with self._lock:
            for batch_id in batch_ids:
                self._foreseen.pop(batch_id, None)

    def inline_tables(self, batches: Sequence[Batch]) -> dict[str, pa.Table]:
        """Return decoded inline batches, in order; immutable, so kept."""
        with self._lock:
            found = {b.id: self._cache[b.id] for b in batches if b.id in self._cache}
            found |= {b.id: self._foreseen[b.id] for b in batches if b.id in self._foreseen}
        missing = [b.id for b in batches if b.id not in found]
        if missing:
            for batch_id, data in self._catalog.inline(missing).items():
                found[batch_id] = decoded(data)
            with self._lock:
                for batch_id in missing:
                    self._cache[batch_id] = found[batch_id]
                while len(self._cache) > _CACHED_BATCHES:
                    self._cache.popitem(last=False)
        return {b.id: found[b.id] for b in batches}

    # state ------------------------------------------------------------------------------------------------------------------

    def state(
        self,
        worker: Worker,
        source: Source,
        version: int,
        fields: Sequence[Field] | None = None,
        bounds: Mapping[str, Bound] | None = None,
    ) -> Frame:
        """Return the rows of the table at `version`, consolidated: stored fields `fields` (all if None)."""
        return worker.sql(self.state_sql(worker, source, version, fields, bounds))

    def state_sql(
        self,
        worker: Worker,
        source: Source,
        version: int,
        fields: Sequence[Field] | None = None,
        bounds: Mapping[str, Bound] | None = None,
    ) -> str:
        """Return a query for the rows of the table at `version`, consolidated.

        `bounds` limits the read to rows inside them. Rows outside may be left out or not: the caller restricts exactly.
        """
        table = source.table
        asked = tuple(table.schema.fields if fields is None else fields)
        key = tuple(f for f in table.schema.fields if f.name in table.schema.key)
        wanted = distinguishing(table, asked)
        parts = parts_of(source, version)
        batches, forward, (after, upto) = parts.batches, parts.forward, parts.between
        base_files = files_within(parts.files, bounds or {})
        self.layout.require(base_files)
        columns = ", ".join(quoted(f.name) for f in asked) or "1 AS __one"
        few = self._few_rows(source, base_files, batches, (after, upto), wanted)
        if few is not None:
            return f"SELECT {columns} FROM {worker.relation(few, wanted)}"
        base = worker.view(worker.read_parquet(self.layout.paths(base_files), wanted))
        condition = _bounds_sql(bounds or {}, wanted)
        where = f" WHERE {condition}" if condition else ""
        if not batches and not (forward and source.pending):
            return f"SELECT {columns} FROM {base}{where}"
        tail = self._signed(worker, source, batches, after, upto, wanted, flip=not forward)
        if tail.deletes == 0 and forward:
            return f"SELECT {columns} FROM {base}{where} UNION ALL SELECT {columns} FROM ({tail.sql}){where}"
        net = f"({net_sql(f'({tail.sql})', wanted)})"
        broadcast = tail.count <= _BROADCAST_ROWS
        if key:
            return _keyed_sql(base, net, key, columns, where, broadcast=broadcast)
        return _counted_sql(base, net, wanted, columns, where, broadcast=broadcast)

    def _few_rows(
        self,
        source: Source,
        files: Sequence[DataFile],
        batches: Sequence[Batch],
        between: tuple[int, int],
        fields: Sequence[Field],
    ) -> pa.Table | None:
        """Return the rows that base files and tail come to, if they are few: the driver adds them up before Spark has planned it."""
        forward = source.table.base_version == between[0]
        pending = source.pending if forward else ()
        count = sum(f.rows for f in files) + sum(b.inserts + b.deletes for b in batches) + sum(p.count for p in pending)
        size = sum(f.bytes for f in files) + sum(b.bytes for b in batches)
        if count > min(self._local_rows, _FEW_ROWS) or size > _FEW_BYTES or any(has_variant(f.type) for f in fields):
            return None
        schema = arrow_schema(fields)
        parts = [_columns(p, schema.names) for p in self.layout.paths(files)]
        base = fitted(concatenated(parts), schema) if parts else schema.empty_table()
        tail = self.arrow(batches, source, pending, *between, (*fields, ACTION_FIELD))
        if tail.num_rows == 0:
            return base
        rows = pa.concat_tables([base, fitted(tail, schema)])
        return added_up(rows, np.concatenate([np.ones(base.num_rows, dtype=np.int64), signs_of(tail, forward=forward)]))

    def few(self, source: Source, version: int, fields: Sequence[Field]) -> pa.Table | None:
        """Return `fields` of all rows of the table at `version`, without asking Spark; None if they are many."""
        parts = parts_of(source, version)
        self.layout.require(parts.files)
        wanted = distinguishing(source.table, fields)
        found = self._few_rows(source, parts.files, parts.batches, parts.between, wanted)
        return None if found is None else found.select([f.name for f in fields])


def distinguishing(table: Table, fields: Sequence[Field]) -> tuple[Field, ...]:
    """Return the fields that have to be read to tell rows apart: these and the key, or all of them."""
    names = {f.name for f in fields} | set(table.schema.key)
    return tuple(f for f in table.schema.fields if f.name in names or not table.schema.key)


@dataclass(frozen=True, slots=True)
class Parts:
    """What a state is made of: base files, and the batches of `between`, added if `forward`, taken away otherwise."""

    files: tuple[DataFile, ...]
    batches: tuple[Batch, ...]
    between: tuple[int, int]
    forward: bool


def parts_of(source: Source, version: int) -> Parts:
    """Return what has to be read for the state at `version`."""
    base = source.table.base_version
    if version >= base:
        return Parts(source.manifest.files, source.batches(base, version), (base, version), forward=True)
    files, batches = _without_whole_batches(source, source.manifest.files, source.batches(version, base), version)
    return Parts(files, batches, (version, base), forward=False)


def signs_of(tail: pa.Table, *, forward: bool) -> npt.NDArray[np.int64]:
    """Return +1 or -1 for each change row: whether it is added to the base or taken away."""
    inserted = pc.equal(tail.column(ACTION), "I").to_numpy()
    return np.where(inserted == forward, 1, -1).astype(np.int64)


def _keyed_sql(base: str, net: str, key: Sequence[Field], columns: str, where: str, *, broadcast: bool) -> str:
    hint = "/*+ BROADCAST(d) */ " if broadcast else ""
    names = ", ".join(quoted(f.name) for f in key)
    return (
        f"SELECT {hint}{columns} FROM (SELECT * FROM {base}{where}) b "
        f"LEFT ANTI JOIN (SELECT {names} FROM {net} WHERE {WEIGHT} < 0) d ON {keys_equal_sql('b', 'd', key)} "
        f"UNION ALL SELECT {columns} FROM (SELECT * FROM {net}{where}) WHERE {WEIGHT} > 0"
    )


def _counted_sql(base: str, net: str, fields: Sequence[Field], columns: str, where: str, *, broadcast: bool) -> str:
    """Without a key: of the base rows equal to a tuple with weight -n, leave out n."""
    hint = "/*+ BROADCAST(d) */ " if broadcast else ""
    same = " AND ".join(
        f"{identity_sql(f'b.{quoted(f.name)}', f.type)} <=> {identity_sql(f'd.{quoted(f.name)}', f.type)}"
        for f in fields
    )
    tuple_ = ", ".join(identity_list(fields, "b"))
    inner = ", ".join(f"b.{quoted(f.name)}" for f in fields)
    return (
        f"SELECT {columns} FROM (SELECT {hint}{inner}, d.{WEIGHT} AS __n, "
        f"row_number() OVER (PARTITION BY d.{WEIGHT} IS NULL, {tuple_} ORDER BY 1) AS __i "
        f"FROM {base} b JOIN (SELECT * FROM {net} WHERE {WEIGHT} < 0) d ON {same}) WHERE __i > -__n "
        f"UNION ALL SELECT {hint}{columns} FROM {base} b LEFT ANTI JOIN (SELECT * FROM {net} WHERE {WEIGHT} < 0) d ON {same} "
        f"UNION ALL {copies_sql(net, columns, f' WHERE {WEIGHT} > 0')}"
    )


def _bounds_sql(bounds: Mapping[str, Bound], fields: Sequence[Field]) -> str:
    """Return the bounds as literals, so that Spark can skip row groups. A collated string has another order than its bounds."""
    names = {f.name for f in fields if is_plain(f.type)}
    terms = []
    for column, (low, high) in bounds.items():
        a, b = sql_literal(low), sql_literal(high)
        if column in names and a is not None and b is not None:
            terms.append(f"{quoted(column)} >= {a} AND {quoted(column)} <= {b}")
    return " AND ".join(terms)


def _without_whole_batches(
    source: Source, files: Sequence[DataFile], batches: Sequence[Batch], version: int
) -> tuple[tuple[DataFile, ...], tuple[Batch, ...]]:
    """Undo insert batches whose files are still base files by leaving the files out: cheaper than subtracting their rows."""
    live = {f.path for f in files}
    undone: set[str] = set()
    kept = []
    for batch in batches:
        paths = {f.path for f in source.manifest.batch_files.get(batch.id, ())}
        if batch.format is BatchFormat.INSERT and batch.first_version > version and paths and paths <= live:
            undone |= paths
        else:
            kept.append(batch)
    return tuple(f for f in files if f.path not in undone), tuple(kept)


def _columns(path: str, names: Sequence[str]) -> pa.Table:
    """Return those of the columns that the file has."""
    with pq.ParquetFile(path) as file:
        return file.read(columns=[n for n in names if n in file.schema_arrow.names])


def within(table: pa.Table, batch: Batch, after: int, upto: int) -> pa.Table:
    """Cut a merged batch down to the versions in (after, upto]."""
    if batch.first_version > after and batch.last_version <= upto:
        return table
    version = table.column(VERSION)
    return table.filter(pc.and_(pc.greater(version, after), pc.less_equal(version, upto)))
