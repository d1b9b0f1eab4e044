"""Definition time: a query becomes a stored definition, once.

What is stored is all that a refresh needs: the canonical query, the settings its meaning depends on, and the template of its delta
program. A query that cannot be maintained from changes is stored with its reasons; AUTO then means FULL, and says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headwater.catalog import Snapshot
from headwater.delta.context import DeltaOptions, TableFacts
from headwater.delta.describe import described
from headwater.delta.exactness import compared_sums
from headwater.delta.magnitude import with_magnitudes
from headwater.delta.normal import SourceKey, with_argument_columns, with_key
from headwater.delta.not_in import without_not_in
from headwater.delta.program import compiled
from headwater.delta.sharing import with_shared_parts
from headwater.delta.top import with_kept_tops
from headwater.engine.catalyst import CatalystPlanner
from headwater.engine.identity import is_key_type, refused_type
from headwater.engine.worker import Frame, struct_type
from headwater.errors import CycleError, NotIncrementalError, QueryError, UnsupportedTypeError
from headwater.model.schema import Field, TableSchema
from headwater.model.sql import quoted
from headwater.model.tables import RefreshMode, Table
from headwater.plan.column_types import with_types
from headwater.plan.operators import Aggregate, Recursion, Scan, Stage, walk_operators
from headwater.plan.printer import final_sql
from headwater.plan.query import Query, RefusedQuery, read_query
from headwater.plan.refusal import Code, Findings, Refusal
from headwater.plan.scope import Session
from headwater.plan.unique import is_collated
from headwater.refresh.template import Template, printed

SCALE = "__scale_"
_CLOCK = frozenset({Code.TIME_DEPENDENT, Code.EXPRESSION_NOT_DETERMINISTIC})


@dataclass(frozen=True, slots=True)
class Definition:
    """What is stored of a stream table besides its schema.

    `text` is the query that full refreshes and verify run: canonical, with `<<new:table>>` places, or the user's own words if `named`.
    `always` is true where the result changes without its sources (it reads the clock): such a table is due on its schedule.
    `measured` is `text` with one more column for each of `scales`, floating-point sums: how large the numbers were that were summed.
    """

    text: str
    named: bool
    meaning: dict[str, str]
    notices: tuple[str, ...]
    refusals: tuple[tuple[str, str, str, str], ...]
    template: Template | None
    always: bool = False
    measured: str = ""
    scales: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(
            {
                "text": self.text,
                "named": self.named,
                "meaning": self.meaning,
                "notices": self.notices,
                "refusals": self.refusals,
                "template": self.template.to_json() if self.template else None,
                "always": self.always,
                "measured": self.measured,
                "scales": self.scales,
            },
            ensure_ascii=False,
        )

    @staticmethod
    def from_json(text: str) -> Definition:
        data = json.loads(text)
        return Definition(
            data["text"],
            data["named"],
            data["meaning"],
            tuple(data["notices"]),
            tuple(tuple(r) for r in data["refusals"]),
            Template.from_json(data["template"]) if data["template"] else None,
            data["always"],
            data["measured"],
            tuple(data["scales"]),
        )

    @staticmethod
    def is_always(text: str) -> bool:
        """Say whether a stored definition has `always`, without reading all of it: in the texts within, quotes are escaped."""
        return '"always": true' in text

    def is_same_query(self, other: Definition) -> bool:
        """Say whether both mean the same query, however it was written; what is only known by its words is never the same."""
        return not (self.named or other.named) and (self.text, self.meaning) == (other.text, other.meaning)

    @property
    def reason(self) -> str:
        """Why the table is refreshed in full, empty if it is not."""
        return "; ".join(f"{code}: {fragment}" for code, fragment, _, _ in self.refusals)


@dataclass(frozen=True, slots=True)
class Planned:
    """A query that was read: its definition, the schema of its result, the tables it reads, and how each operator is kept."""

    definition: Definition
    schema: TableSchema
    sources: tuple[str, ...]
    operators: tuple[tuple[str, str, str], ...]
    refusals: tuple[Refusal, ...]


def planned(
    planner: CatalystPlanner,
    query: str | Frame,
    snapshot: Snapshot,
    mentioned: Iterable[Table],
    meaning: dict[str, str],
    options: DeltaOptions,
) -> Planned:
    """Read a query and decide how its result is kept. `mentioned` are the tables that its text may mean."""
    registered = []
    try:
        for table in mentioned:
            planner.register(quoted(table.name), struct_type(table.schema.visible), table.id)
            registered.append(table.name)
        analyzed = planner.analyze(query) if isinstance(query, str) else planner.analyze_frame(query)
        for field in analyzed.output:
            _require_storable(field.name, field.type)
        facts = _facts_of(snapshot)
        session = Session(planner.function_names(), planner.is_ansi(), lambda table: facts(table).key)
        read = read_query(analyzed, session, planner.schema_of)
        names = tuple(f.name for f in analyzed.output)
        _require_distinct(names)
        if isinstance(read, Query):
            read = _with_groupable_keys(read)
        if isinstance(read, RefusedQuery):
            return _refused(query, read, analyzed.output, meaning)
        return _maintained(read, names, snapshot, meaning, options, planner)
    finally:
        for name in registered:
            planner.unregister(quoted(name))


def _with_groupable_keys(read: Query) -> Query | RefusedQuery:
    """Refuse groups that are not identified by their values alone."""
    findings = Findings()
    for op in walk_operators(read.tree):
        for column in op.groups if isinstance(op, Aggregate) else ():
            if is_collated(column):
                detail = "Strings that the collation calls equal fall into one group; which of them names it depends on row order."
                findings.refuse(Code.ORDER_DEPENDENT, f"GROUP BY {column.name}", detail)
            elif not is_key_type(column.type):
                detail = f"A {column.type.partition('<')[0]} cannot be looked up by its value."
                findings.refuse(Code.OPERATOR_NOT_SUPPORTED, f"GROUP BY {column.name}", detail)
        for column in op.columns if isinstance(op, Recursion) else ():
            if is_collated(column):
                detail = "Its rows are counted, and strings that the collation calls equal would be counted as one."
                findings.refuse(Code.ORDER_DEPENDENT, f"WITH RECURSIVE ... ({column.name})", detail)
            elif not is_key_type(column.type):
                detail = f"A {column.type.partition('<')[0]} cannot be looked up by its value."
                findings.refuse(Code.OPERATOR_NOT_SUPPORTED, f"WITH RECURSIVE ... ({column.name})", detail)
        for text in compared_sums(op):
            detail = "The last digits of a floating-point sum depend on the order of additions, so it does not identify a group."
            findings.refuse(Code.ORDER_DEPENDENT, text, detail)
    if not findings.refusals:
        return read
    return RefusedQuery(tuple(findings.refusals), read.names, read.sources, read.notices)


def _require_storable(name: str, type_: str) -> None:
    bad = refused_type(type_)
    if bad is not None:
        raise UnsupportedTypeError(
            f'column "{name}" has the type {bad.upper()}, which cannot be stored',
            detail="Delta Lake has no such type.",
            hint="Cast the column to a number or a string.",
        )


def _require_distinct(names: tuple[str, ...]) -> None:
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:
            raise QueryError(
                f'the query names two columns "{name}"',
                hint="Give each column of a stream table a name of its own, with AS.",
            )
        if name.startswith("__"):
            raise QueryError(
                f'column name "{name}" is reserved', hint="Names that start with two underscores are Headwater's."
            )
        seen.add(name.casefold())


def _refused(query: str | Frame, read: RefusedQuery, output: Iterable[object], meaning: dict[str, str]) -> Planned:
    if not isinstance(query, str):
        raise NotIncrementalError(
            "a DataFrame that cannot be maintained incrementally cannot define a stream table",
            detail="; ".join(str(r) for r in read.refusals),
            hint="Define it by SQL with REFRESH MODE FULL.",
        )
    fields = tuple(Field(f.name, f.type) for f in output)  # type: ignore[attr-defined]
    refusals = tuple((r.code.value, r.fragment, r.detail, r.hint) for r in read.refusals)
    always = any(r.code in _CLOCK for r in read.refusals)
    definition = Definition(query, True, meaning, read.notices, refusals, None, always)
    return Planned(definition, TableSchema(fields), read.sources, (), read.refusals)


def _maintained(
    read: Query,
    names: tuple[str, ...],
    snapshot: Snapshot,
    meaning: dict[str, str],
    options: DeltaOptions,
    planner: CatalystPlanner,
) -> Planned:
    text = final_sql(read.tree, names, _leaf_place)
    scaled, positions = with_magnitudes(read.tree)
    scales = tuple(names[i] for i in positions)
    normal = with_types(with_argument_columns(without_not_in(read.tree, _never_null(snapshot))), planner.schema_of)
    width = len(read.tree.output)
    tree, key = with_key(normal, _key_of(snapshot))
    if key is not None and not all(is_key_type(c.type) for c in key):
        tree, key = normal, None
    visible, extra = tree.output[:width], tree.output[width:]
    following = with_types(with_shared_parts(with_kept_tops(tree)), planner.schema_of)
    program = compiled(following, options, planner.schema_of, _facts_of(snapshot))
    fields = [Field(n, c.type) for n, c in zip(names, visible, strict=True)]
    may_be_null = {c.id: c.nullable for c in key or ()}
    hidden = {c.id: Field(f"__key_{i}", c.type, may_be_null.get(c.id, True), hidden=True) for i, c in enumerate(extra)}
    by_id = {c.id: f.name for c, f in zip(visible, fields, strict=True)} | {i: f.name for i, f in hidden.items()}
    key_names = tuple(by_id[c.id] for c in key) if key is not None else ()
    schema = TableSchema((*fields, *hidden.values()), tuple(dict.fromkeys(key_names)))
    template = printed(program, (*visible, *extra))
    measured = final_sql(scaled, (*names, *(SCALE + n for n in scales)), _leaf_place) if scales else ""
    definition = Definition(text, False, meaning, read.notices, (), template, measured=measured, scales=scales)
    return Planned(definition, schema, read.sources, described(with_shared_parts(normal), options), ())


def _leaf_place(leaf: Scan | Stage) -> str:
    return f"<<new:{leaf.table if isinstance(leaf, Scan) else leaf.name}>>"


def _key_of(snapshot: Snapshot) -> Callable[[str], SourceKey]:
    def key_of(table_id: str) -> SourceKey:
        schema = snapshot.tables[table_id].schema
        fields = [f for name in schema.key for f in schema.fields if f.name == name]
        return SourceKey(
            tuple(f.name for f in fields), tuple(f.type for f in fields), tuple(f.nullable for f in fields)
        )

    return key_of


def _never_null(snapshot: Snapshot) -> Callable[[str, str], bool]:
    def never_null(table_id: str, column: str) -> bool:
        table = snapshot.tables.get(table_id)
        return table is not None and any(f.name == column and not f.nullable for f in table.schema.fields)

    return never_null


def _facts_of(snapshot: Snapshot) -> Callable[[str], TableFacts]:
    def facts_of(table_id: str) -> TableFacts:
        table = snapshot.tables.get(table_id)
        return TableFacts(table.schema.key, table.row_count) if table is not None else TableFacts()

    return facts_of


def require_no_cycle(snapshot: Snapshot, table_id: str, name: str, sources: Iterable[str]) -> None:
    """Fail if the table would read itself, with the path."""
    paths = [[s] for s in sources]
    while paths:
        path = paths.pop()
        if path[-1] == table_id:
            shown = " <- ".join([name, *(snapshot.tables[p].name for p in path if p in snapshot.tables)])
            raise CycleError(f'stream table "{name}" would read itself', detail=f"The path is {shown}.")
        paths += [[*path, s] for s in snapshot.sources.get(path[-1], ())]


def require_mode(plan: Planned, mode: RefreshMode, name: str) -> None:
    """Fail if the mode demands what the query cannot give."""
    if mode is RefreshMode.DIFFERENTIAL and plan.refusals:
        first = plan.refusals[0]
        raise NotIncrementalError(
            f'stream table "{name}" cannot be maintained incrementally',
            detail="; ".join(f"{r.code.value} at {r.fragment}: {r.detail}" for r in plan.refusals),
            hint=first.hint,
        )
