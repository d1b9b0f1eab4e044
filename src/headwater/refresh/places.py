"""What stands at the places of texts: rows at hand, and tables, read no further than the change reaches.

A read of a table says which of its columns must meet which rows at hand. Their bounds say which files have to be read at all. And
where several texts read a table near changes by the same column, these rows are *near rows*: read once, for all keys that any of
these texts will ask for as far as they are known, and given to each of them.

Relies on: rows of a table whose column meets none of the rows at hand make no difference to the text that reads it, so it may be
given more of them or fewer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.delta.context import changes_place, stage_place
from headwater.engine.identity import has_variant, is_plain
from headwater.engine.worker import Worker, arrow_schema
from headwater.errors import CheckFailedError, ResultTooLargeError
from headwater.model.schema import Field
from headwater.model.sql import quoted
from headwater.model.tables import Table
from headwater.plan.operators import At, Between, Near, Via
from headwater.plan.printer import BROADCAST_HINT, BROADCAST_LEFT_HINT
from headwater.plan.where import Where
from headwater.refresh.shared import SharedChanges
from headwater.refresh.template import LoopText, Read, RowsText, StageText, Template, Text, filled, places
from headwater.store.columns import has_plain_equality
from headwater.store.layout import Bound, column_bounds, files_within, write_parquet
from headwater.store.near import rows_between, rows_near
from headwater.store.reading import Changes, Reader, Source
from headwater.store.where import are_judged, columns_of, rows_where
from headwater.store.writing import Writer

_MET_ROWS = 300_000
_KEY_ROWS = 300_000
_NEAR_KEYS = 50_000
_NEAR_ROWS = 300_000
_NEAR_TABLE_ROWS = 10_000
"""Of a smaller table, rows near a change are not read apart: that costs a query of its own."""


@dataclass(frozen=True, slots=True)
class RefreshInput:
    """What a refresh reads: the stream table, the tables below it, its state, and the versions between which it moves.

    `since` and `upto` are of the sources; the stream table and its state are read at `version`.
    """

    target: Source
    template: Template
    sources: Mapping[str, Source]
    states: Mapping[str, Source]
    since: Mapping[str, int]
    upto: Mapping[str, int]
    version: int
    shared: SharedChanges | None = None

    def moved(self, source_id: str) -> tuple[int, int]:
        """Return the versions after and up to which changes of a source are read."""
        return self.since[source_id], self.upto[source_id]

    def few_changes(self, reader: Reader, source: Source, fields: tuple[Field, ...]) -> pa.Table | None:
        """Return the changes of a source if they are few, read together with others who need them now."""
        if self.shared is None or not self.shared.is_shared(source):
            return reader.few_changes(source, *self.moved(source.table.id), fields)
        return self.shared.few(source, *self.moved(source.table.id), fields)

    def many_changes(self, reader: Reader, worker: Worker, source: Source, fields: tuple[Field, ...]) -> Changes:
        """Return the changes of a source as a query, read together with others who need them now."""
        if self.shared is None or not self.shared.is_shared(source):
            return reader.changes(worker, source, *self.moved(source.table.id), fields)
        return self.shared.many(worker, source, *self.moved(source.table.id), fields)


@dataclass(frozen=True, slots=True)
class _Way:
    """How rows of a table are found: a side of it, and the column that must meet rows at hand."""

    kind: str
    name: str
    column: str


@dataclass(frozen=True, slots=True)
class _NearRows:
    """All rows of a table that have one of these keys, with these columns."""

    keys: pa.Array
    columns: frozenset[str]
    relation: str
    count: int


@dataclass(frozen=True, slots=True)
class _Reach:
    """The rows of a table, on one side, that are near others."""

    kind: str
    name: str
    near: tuple[Near, ...]
    between: Between | None = None


class Places:
    """The places of one refresh, filled as it goes on.

    `relations` are what stands after FROM by kind and name, `counts` the rows of drivers, `at_hand` those that the driver holds,
    `files` where others are, `change_rows` changes with their weights, `kept_rows` how many rows of a state are read, `new_states` the
    states of aggregates with what this refresh does to them, `filled_rows` the rows of the largest input of the last text.
    """

    def __init__(self, worker: Worker, reader: Reader, writer: Writer, local_rows: int, stack: ExitStack) -> None:
        self._worker = worker
        self._reader = reader
        self._writer = writer
        self._local_rows = local_rows
        self._stack = stack
        self.relations: dict[tuple[str, str], str] = {}
        self.counts: dict[str, int] = {}
        self.at_hand: dict[str, pa.Table] = {}
        self.files: dict[str, list[str]] = {}
        self.new_states: dict[str, Source] = {}
        self.kept_rows: dict[str, int] = {}
        self.change_rows: dict[str, tuple[pa.Table, tuple[Field, ...]]] = {}
        self.filled_rows = 0
        self._scans: dict[tuple[Read, tuple[tuple[str, Bound], ...]], tuple[str, int]] = {}
        self._near_rows: dict[_Way, _NearRows | None] = {}
        self._reached: dict[_Reach, pa.Table | None] = {}
        self._relations: dict[tuple[_Reach, tuple[Where, ...], int], tuple[str, int]] = {}
        self._changed: dict[tuple[str, tuple[Where, ...]], tuple[str, int]] = {}
        self._read_columns: defaultdict[_Reach, set[str]] = defaultdict(set)

    def read_back(self, table: pa.Table, fields: Sequence[Field]) -> str:
        """Give rows of the driver to Spark: few with the query, many by way of a file."""
        if table.num_rows <= self._local_rows:
            return self._worker.relation(table, fields)
        folder = self._stack.enter_context(self._writer.scratch())
        folder.mkdir(parents=True)
        write_parquet(table, folder / "rows.parquet")
        return self._worker.relation(self._worker.read_parquet([str(folder / "rows.parquet")], fields), fields)

    # texts ------------------------------------------------------------------------------------------------------------------

    def driving(self, text: Text) -> int:
        """Return how many rows drive a text."""
        found = {d for t in text.live(self._live) for d in t.drivers}
        return sum(self.counts[d] for d in found if d in self.counts)

    @property
    def _live(self) -> frozenset[str]:
        """The places that have rows."""
        return frozenset(p for p, n in self.counts.items() if n)

    def is_live(self, text: Text) -> bool:
        """Say whether a text can have rows."""
        return bool(text.live(self._live))

    def rows_where(self, read: Read) -> pa.Table | None:
        """Return the rows of a stage for which the conditions of `read` hold, if there are not too many for the driver."""
        rows = self.rows_at_hand(stage_place(read.name), read.columns)
        return None if rows is None or not are_judged(rows, read.where) else rows_where(rows, read.where)

    def live_text(self, text: Text, given: RefreshInput) -> str | None:
        """Return the terms that can have rows, filled, with Spark shaped for what they read; None if there are none."""
        live = text.live(self._live)
        if not live:
            return None
        return self._filled(text, " UNION ALL ".join(t.sql for t in live), given)

    def fill(self, text: Text, given: RefreshInput) -> str:
        """Return a text that runs in any case, filled."""
        return self._filled(text, text.sql, given)

    def _filled(self, text: Text, sql: str, given: RefreshInput) -> str:
        met = self.driving(text)
        if met > _MET_ROWS:
            sql = sql.replace(BROADCAST_HINT, "").replace(BROADCAST_LEFT_HINT, "")
        shown = {
            i: self._scan(r, given) if r.kind in ("old", "new") else self._relation(r)
            for i, r in self._reads(text, sql)
        }
        self.filled_rows = max([met, *(rows for _, rows in shown.values())])
        self._worker.size_for(self.filled_rows)
        return filled(sql, lambda kind, name, i: shown[i][0])

    def _reads(self, text: Text, sql: str) -> list[tuple[int, Read]]:
        """Return what a text reads: rows at hand first, then tables, as their names are given out in this order."""
        reads = [(i, text.reads[i]) for i in sorted(set(places(sql)))]
        return sorted(reads, key=lambda r: r[1].kind in ("old", "new"))

    def _relation(self, read: Read) -> tuple[str, int]:
        """Return rows at hand: changes, kept rows, or rows of a stage; none where there are none."""
        count = self._rows(read)
        if read.kind == "changes" and read.name in self.change_rows:
            return self._changes_where(read)
        found = self.relations.get((read.kind, read.name))
        if found is not None:
            return found, count
        fields = tuple(Field(n, t) for n, t in zip(read.columns, read.types, strict=True))
        return self._worker.relation(pa.table({f.name: pa.nulls(0) for f in fields}), fields), 0

    def _rows(self, read: Read) -> int:
        """Return how many rows at hand a read has."""
        if read.kind == "kept":
            return self.kept_rows.get(read.name, 0)
        return self.counts.get(changes_place(read.name) if read.kind == "changes" else stage_place(read.name), 0)

    def _changes_where(self, read: Read) -> tuple[str, int]:
        key = (read.name, read.where)
        if key not in self._changed:
            rows, fields = self.change_rows[read.name]
            rows = rows_where(rows, read.where)
            self._changed[key] = self.read_back(rows, fields), rows.num_rows
        return self._changed[key]

    # tables -----------------------------------------------------------------------------------------------------------------

    def _scan(self, read: Read, given: RefreshInput) -> tuple[str, int]:
        """Return a state of a table, as far as it has to be read, and how many rows that may be."""
        shown = self.relations.get((read.kind, read.name))
        if shown is not None:
            return shown, 0
        found = self._found(_reach(read, given), read.columns, given)
        if found is not None:
            return self._shown(_reach(read, given), read.where, found, given)
        near = self._near(read, given)
        if near is not None:
            return near.relation, near.count
        bounds = self._bounds(read.near, given)
        key = (replace(read, near=()), tuple(sorted(bounds.items(), key=lambda b: b[0])))
        if key not in self._scans:
            self._scans[key] = self._state_text(read, bounds, given)
        return self._scans[key]

    def _source(self, kind: str, name: str, given: RefreshInput) -> tuple[Source, int]:
        """Return a table and the version at which it is read."""
        if name not in given.states:
            return given.sources[name], (given.upto if kind == "new" else given.since)[name]
        state = given.states[name]
        return (self.new_states.get(name, state) if kind == "new" else state), given.version

    def _state_text(self, read: Read, bounds: Mapping[str, Bound], given: RefreshInput) -> tuple[str, int]:
        source, version = self._source(read.kind, read.name, given)
        fields = fields_of(source.table, read.columns)
        plain = {f.name for f in source.table.schema.fields if is_plain(f.type)}
        bounds = {name: bound for name, bound in bounds.items() if name in plain}
        rows = sum(f.rows for f in files_within(source.manifest.files, bounds))
        return f"({self._reader.state_sql(self._worker, source, version, fields, bounds)})", rows

    def _bounds(self, near: Sequence[Near], given: RefreshInput) -> dict[str, Bound]:
        """Return between which values the columns of a scan matter, as far as the rows at hand tell."""
        found: dict[str, Bound] = {}
        for one in near:
            bound = self._bound(one, given)
            if bound is not None:
                low, high = found.get(one.name, bound)
                found[one.name] = (max(low, bound[0]), min(high, bound[1]))
        return found

    def _bound(self, near: Near, given: RefreshInput) -> Bound | None:
        ends: list[Bound] = []
        for values in self._met_values(near, given):
            if values is None:
                return None
            if len(values):
                bound = column_bounds(pa.table({near.name: values}), [near.name]).get(near.name)
                if bound is None:
                    return None
                ends.append(bound)
        return (min(b[0] for b in ends), max(b[1] for b in ends)) if ends else None

    def _met_values(self, near: Near, given: RefreshInput) -> Iterator[pa.ChunkedArray | None]:
        """Yield the values that a column has to meet, None for those that are not at hand."""
        for origin in near.sources:
            values = self._values_at(origin) if isinstance(origin, At) else self._values_via(origin, given)
            if values is not None and not near.null_safe:
                values = values.drop_null()
            yield values

    def rows_at_hand(self, place: str, columns: Sequence[str]) -> pa.Table | None:
        """Return these columns of the changes of a table or the rows of a stage, if there are not too many for the driver."""
        table = self.at_hand.get(place)
        if table is not None:
            return table.select(columns)
        files = self.files.get(place)
        if not files or self.counts[place] > _KEY_ROWS:
            return None
        return pa.concat_tables([pq.read_table(f, columns=list(columns)) for f in files])

    def _values_at(self, at: At) -> pa.ChunkedArray | None:
        if self.counts.get(at.place) == 0:
            return pa.chunked_array([], pa.null())
        rows = self.rows_at_hand(at.place, list(dict.fromkeys([at.name, *columns_of(at.where)])))
        return None if rows is None else rows_where(rows, at.where).column(at.name)

    def _values_via(self, via: Via, given: RefreshInput) -> pa.ChunkedArray | None:
        found = self._found(_reach(via, given), [via.name, *columns_of(via.where)], given)
        return None if found is None else rows_where(found, via.where).column(via.name)

    # rows that are found without Spark --------------------------------------------------------------------------------------

    def _found(self, reach: _Reach, columns: Sequence[str], given: RefreshInput) -> pa.Table | None:
        """Return the rows of a table that are near others, found by the driver; None if Spark has to look for them."""
        if reach.kind == "new" and reach.name in given.states and reach.name not in self.new_states:
            return None  # asked for before its stage has run
        wanted = self._columns_read(given)[reach]
        if reach not in self._reached or not wanted.issuperset(columns):
            source, version = self._source(reach.kind, reach.name, given)
            wanted.update(columns or [source.table.schema.fields[0].name])  # rows without any column would be lost
            fields = fields_of(source.table, sorted(wanted))
            rows = self._rows_of(reach, source, version, fields, given)
            self._reached[reach] = rows
        return self._reached[reach]

    def _shown(self, reach: _Reach, where: tuple[Where, ...], found: pa.Table, given: RefreshInput) -> tuple[str, int]:
        """Return what stands after FROM for those found rows for which `where` holds, and how many they are."""
        key = (reach, where, len(found.column_names))
        if key not in self._relations:
            rows = rows_where(found, where)
            source, _ = self._source(reach.kind, reach.name, given)
            fields = fields_of(source.table, found.column_names)
            self._relations[key] = self.read_back(rows, fields), rows.num_rows
        return self._relations[key]

    def _rows_of(
        self, reach: _Reach, source: Source, version: int, fields: Sequence[Field], given: RefreshInput
    ) -> pa.Table | None:
        rows = self._reader.few(source, version, fields)
        if rows is not None:
            return rows
        if not reach.near:
            ends = self._ends(reach.between)
            return (
                None
                if ends is None or reach.between is None
                else rows_between(self._reader, source, version, fields, reach.between.name, ends)
            )
        keys: dict[str, pa.Array] = {}
        for near in reach.near:
            met = self._key_values(near, source.table, given)
            if met is not None:
                keys[near.name] = met if near.name not in keys else met.filter(pc.is_in(met, value_set=keys[near.name]))
        if not keys:
            return None
        if any(len(values) == 0 for values in keys.values()):
            return arrow_schema(fields).empty_table()
        return rows_near(self._reader, source, version, fields, keys)

    def _ends(self, limit: Between | None) -> tuple[Any, Any] | None:
        """Return between which values a column matters; None if that is not known, or does not hold."""
        rows = None if limit is None else self.rows_at_hand(limit.place, [limit.column, limit.weight])
        if limit is None or rows is None or not rows.num_rows or (pc.sum(rows.column(limit.weight)).as_py() or 0) != 0:
            return None
        values = rows.column(limit.column)
        if values.null_count:
            return None
        try:
            ends = pc.min_max(values).as_py()
        except (OverflowError, ValueError):  # outside Python's calendar
            return None
        return ends["min"], ends["max"]

    def _key_values(self, near: Near, table: Table, given: RefreshInput) -> pa.Array | None:
        """Return the values that a column has to meet, each once; None if some of them are not known, or too many."""
        (field,) = fields_of(table, [near.name])
        if not has_plain_equality(field.type):
            return None
        type_ = arrow_schema([field]).field(0).type
        found = []
        for values in self._met_values(near, given):
            if values is None or (len(values) and values.type != type_):
                return None
            found += [c for c in values.chunks if len(c)]
        keys = pa.chunked_array(found, type_).unique()
        keys = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
        return keys if len(keys) <= _KEY_ROWS else None

    def _columns_read(self, given: RefreshInput) -> Mapping[_Reach, set[str]]:
        """Return what is read of the same rows by all texts, so that they are found once."""
        if not self._read_columns:
            for text in given.template.texts():
                for read in text.reads:
                    if read.kind in ("old", "new"):
                        reach = _reach(read, given)
                        self._read_columns[reach].update(read.columns)
                        self._note(read.near, given)
        return self._read_columns

    def _note(self, near: Sequence[Near], given: RefreshInput) -> None:
        for via in (s for n in near for s in n.sources if isinstance(s, Via)):
            self._read_columns[_reach(via, given)].update([via.name, *columns_of(via.where)])
            self._note(via.near, given)

    def forget_found(self) -> None:
        """Find rows again: those at hand are about to be others."""
        self._reached.clear()
        self._relations.clear()

    # near rows --------------------------------------------------------------------------------------------------------------

    def _near(self, read: Read, given: RefreshInput) -> _NearRows | None:
        """Return the rows that a read needs out of near rows, which are read now if other texts need some too."""
        if read.name not in given.sources:
            return None
        for way in _ways(read, given):
            keys = self._keys(way, [read], given, require=True)
            if keys is None:
                continue
            if len(keys) == 0:
                return self._no_rows(way, given)
            if way not in self._near_rows:
                readers = [r for r in _later_reads(given.template, self._may_have_rows) if way in _ways(r, given)]
                self._near_rows[way] = self._read_near(way, readers, given) if len(readers) > 1 else None
            found = self._near_rows[way]
            if found is not None and found.columns.issuperset(read.columns) and _has_all(found, keys):
                return found
        return None

    def _no_rows(self, way: _Way, given: RefreshInput) -> _NearRows:
        fields = given.sources[way.name].table.schema.fields
        none = pa.table({f.name: pa.nulls(0) for f in fields})
        return _NearRows(pa.nulls(0), frozenset(none.column_names), self._worker.relation(none, fields), 0)

    def _may_have_rows(self, place: str) -> bool:
        return self.counts.get(place) != 0

    def _keys(self, way: _Way, reads: Iterable[Read], given: RefreshInput, *, require: bool) -> pa.Array | None:
        """Return the keys that these reads ask for, as far as they are at hand; None if all are required and some are not."""
        field = next(iter(fields_of(given.sources[way.name].table, [way.column])))
        type_ = arrow_schema([field]).field(0).type
        if not is_plain(field.type) or pa.types.is_nested(type_):
            return None
        found = []
        for near in (n for r in reads for n in r.near if n.name == way.column):
            for values in self._met_values(near, given):
                if values is not None and len(values) == 0:
                    continue
                if values is not None and values.type == type_:
                    found.append(values)
                elif require:
                    return None
        keys = pa.chunked_array([c for values in found for c in values.chunks], type_).unique()
        return keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys

    def _read_near(self, way: _Way, readers: Sequence[Read], given: RefreshInput) -> _NearRows | None:
        keys = self._keys(way, readers, given, require=False)
        wanted = {c for read in readers for c in read.columns} | {way.column}
        fields = [f for f in given.sources[way.name].table.schema.fields if f.name in wanted]
        if keys is None or len(keys) > _NEAR_KEYS or any(has_variant(f.type) for f in fields):
            return None
        read = Read(way.kind, way.name, tuple(f.name for f in fields))
        bound = column_bounds(pa.table({way.column: keys}), [way.column])
        text, rows = self._state_text(read, bound, given)
        if rows < _NEAR_TABLE_ROWS:
            return None
        self._worker.size_for(rows)
        column = quoted(way.column)
        met = self.read_back(pa.table({way.column: keys}), fields_of(given.sources[way.name].table, [way.column]))
        columns = ", ".join(f"l.{quoted(f.name)}" for f in fields)
        try:
            found = self._worker.collected(
                f"SELECT /*+ BROADCAST(r) */ {columns} FROM {text} l LEFT SEMI JOIN {met} r ON l.{column} <=> r.{column} "
                f"LIMIT {_NEAR_ROWS + 1}"
            )
        except ResultTooLargeError:
            return None
        if found.num_rows > _NEAR_ROWS:
            return None
        return _NearRows(keys, frozenset(read.columns), self.read_back(found, fields), found.num_rows)


def _has_all(rows: _NearRows, keys: pa.Array) -> bool:
    return bool(pc.all(pc.is_in(keys, rows.keys), min_count=0).as_py())


def _ways(read: Read, given: RefreshInput) -> list[_Way]:
    """Return the ways in which the rows that a read needs can be found."""
    kind = _side(read.kind, read.name, given)
    return list(dict.fromkeys(_Way(kind, read.name, near.name) for near in read.near))


def _reach(read: Read | Via, given: RefreshInput) -> _Reach:
    """Return what a read finds, whatever its columns."""
    kind, name = (read.side.value, read.table) if isinstance(read, Via) else (read.kind, read.name)
    return _Reach(_side(kind, name, given), name, read.near, None if isinstance(read, Via) else read.between)


def _side(kind: str, name: str, given: RefreshInput) -> str:
    """Return which side of a table is read: one that has not changed has only one."""
    if kind == "old" and name in given.sources and not given.sources[name].batches(*given.moved(name)):
        return "new"
    return kind


def _later_reads(template: Template, may_have_rows: Callable[[str], bool]) -> Iterator[Read]:
    """Yield every read of a table that a refresh may make, once for each place where it stands."""
    for text in _run_once(template):
        for term in text.terms:
            if not term.drivers or any(may_have_rows(d) for d in term.drivers):
                yield from (text.reads[i] for i in places(term.sql) if text.reads[i].kind in ("old", "new"))


def _run_once(template: Template) -> Iterator[Text]:
    for stage in template.stages:
        match stage:
            case RowsText():
                yield stage.rows
            case LoopText():
                yield stage.seeds
            case StageText():
                yield stage.keys
                if stage.always_rescan:
                    yield stage.rescan
    yield template.delta


def fields_of(table: Table, names: Sequence[str]) -> tuple[Field, ...]:
    """Return the stored fields of these names."""
    by_name = {f.name: f for f in table.schema.fields}
    missing = [n for n in names if n not in by_name]
    if missing:
        raise CheckFailedError(f'table "{table.name}" has no column {missing[0]!r} that a stream table reads')
    return tuple(by_name[n] for n in names)
