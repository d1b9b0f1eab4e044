"""Templates: a delta program as SQL texts with named places for what changes from refresh to refresh.

A template is made once, when a stream table is created, and stored with it; a refresh in any process fills in the places and runs
the texts, without planning anything. A place is written `<<kind:name@n>>`: `changes`, `old`, `new` of a table, `kept` rows of a state,
or a `stage` of the program; n is the number of the read, which says which columns are wanted, and how much of the table. A text with
a place left over is never run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from headwater.delta.context import AnyStage, Delta, LoopStage, RowsStage, StateStage, Term, changes_place
from headwater.delta.near import with_where
from headwater.delta.program import Program, fused_result
from headwater.errors import CatalogCorruptError
from headwater.model.schema import Field, TableSchema
from headwater.plan.expressions import Column
from headwater.plan.operators import At, Between, Expand, Filter, Near, Operator, Scan, Side, Stage, Union, Via
from headwater.plan.printer import branch_sql
from headwater.plan.simplify import simplified
from headwater.plan.where import Comparison, Kind, Where, exactly

FORMAT = 6
_PLACE = re.compile(r"<<(changes|old|new|kept|stage):([^<>@]+)(?:@(\d+))?>>")
_KINDS = {Side.DELTA: "changes", Side.OLD: "old", Side.NEW: "new", Side.PLAIN: "new", Side.KEPT: "kept"}


@dataclass(frozen=True, slots=True)
class Read:
    """What stands at a place: the columns wanted of a table or stage, and the rows at hand that limit what is read."""

    kind: str
    name: str
    columns: tuple[str, ...]
    types: tuple[str, ...] = ()
    near: tuple[Near, ...] = ()
    where: tuple[Where, ...] = ()
    between: Between | None = None


@dataclass(frozen=True, slots=True)
class TermText:
    """A query, and what it has rows because of; no drivers: it always runs."""

    drivers: tuple[str, ...]
    sql: str


@dataclass(frozen=True, slots=True)
class Text:
    """A sum of queries over places. `columns` are what it yields (as `c<id>` names with types).

    `fanout` is the largest number of rows that one row it reads can become, where it only looks at one row at a time.
    """

    terms: tuple[TermText, ...]
    columns: tuple[tuple[str, str], ...]
    reads: tuple[Read, ...]
    fanout: int = 1

    @property
    def sql(self) -> str:
        """The whole text, for people."""
        return " UNION ALL ".join(t.sql for t in self.terms)

    def live(self, places: Container[str]) -> tuple[TermText, ...]:
        """Return the terms that can have rows if only these places have any."""
        return tuple(t for t in self.terms if not t.drivers or any(d in places for d in t.drivers))

    def fields(self) -> tuple[Field, ...]:
        return tuple(Field(n, t) for n, t in self.columns)


def filled(text: str, place: Callable[[str, str, int], str]) -> str:
    """Return a text with every place filled."""
    return _PLACE.sub(lambda m: place(m[1], m[2], int(m[3] or 0)), text)


def places(text: str) -> Iterator[int]:
    """Yield the numbers of the reads that a text makes."""
    for found in _PLACE.finditer(text):
        yield int(found[3] or 0)


@dataclass(frozen=True, slots=True)
class RowsText:
    """Rows that are computed once and read by what follows; `weight` names the weight of change rows that are netted first.

    `chosen`: they are just those rows of another stage for which simple conditions hold.
    """

    name: str
    rows: Text
    weight: str = ""
    chosen: Read | None = None


@dataclass(frozen=True, slots=True)
class LoopText:
    """Rows that follow from seeds, round after round."""

    name: str
    wave: str
    seeds: Text
    step: Text
    weight: str


@dataclass(frozen=True, slots=True)
class StageText:
    """A state stage as texts. `columns` are the `c<id>` names of the state's fields, in order.

    `delta` restricts the old state to the changed groups itself; `delta_of_few` and `delta_of_many` are given exactly the rows of
    these groups. The latter carries no old values through its GROUP BY, but yields pairs that cancel.
    """

    name: str
    schema: str
    columns: tuple[str, ...]
    groups: int
    keys_name: str
    keys: Text
    delta: Text
    delta_of_few: Text
    delta_of_many: Text
    initial: Text
    rescan: Text
    rescan_name: str
    rescan_columns: tuple[tuple[str, str], ...]
    weight: str
    flag: str
    paired: str
    always_rescan: bool
    strategy: str
    source_groups: tuple[tuple[str, str] | None, ...]
    is_direct: bool

    @property
    def table_schema(self) -> TableSchema:
        return TableSchema.from_json(self.schema)

    @property
    def state(self) -> tuple[Field, ...]:
        """The state's columns under their `c<id>` names."""
        return tuple(Field(c, f.type, f.nullable) for c, f in zip(self.columns, self.table_schema.fields, strict=True))


AnyText = RowsText | LoopText | StageText


@dataclass(frozen=True, slots=True)
class Template:
    """All texts of a stream table.

    `fused` are the result's columns, in stored order, as expressions over the rows of the last stage, and `fused_keep` says which of
    these rows the result has; empty if the result is more than a projection of that state.
    """

    stages: tuple[AnyText, ...]
    delta: Text
    current: Text
    weight: str
    output: tuple[str, ...]
    fused: tuple[str, ...] = ()
    fused_keep: str = ""
    format: int = FORMAT

    @property
    def states(self) -> tuple[StageText, ...]:
        """The stages that keep an auxiliary table."""
        return tuple(s for s in self.stages if isinstance(s, StageText))

    def to_json(self) -> str:
        data = asdict(self)
        data["stages"] = [{"kind": type(s).__name__, **asdict(s)} for s in self.stages]
        return json.dumps(data, ensure_ascii=False, default=lambda side: side.value)

    @staticmethod
    def from_json(text: str) -> Template:
        return _template(json.loads(text))

    def texts(self) -> Iterator[Text]:
        """Yield the texts that a refresh from changes may run."""
        yield self.delta
        for stage in self.stages:
            match stage:
                case RowsText():
                    yield stage.rows
                case LoopText():
                    yield from (stage.seeds, stage.step)
                case StageText():
                    yield from (stage.keys, stage.delta, stage.rescan)

    def changes_read(self) -> dict[str, tuple[str, ...]]:
        """Return {table: columns} of all tables whose changes drive a text: a change of any other column changes nothing."""
        texts = tuple(self.texts())
        driving = {d for text in texts for term in text.terms for d in term.drivers}
        found: dict[str, dict[str, None]] = {}
        for read in (r for text in texts for r in text.reads if r.kind in ("changes", "old", "new")):
            if changes_place(read.name) in driving:
                found.setdefault(read.name, {}).update(dict.fromkeys(read.columns))
        return {name: tuple(columns) for name, columns in found.items()}


# printing -------------------------------------------------------------------------------------------------------------------


def printed(program: Program, output: tuple[Column, ...]) -> Template:
    """Return the texts of `program`; `output` are the columns of the result in stored order."""
    fused = fused_result(program)
    by_column = dict(zip((c.id for c in program.columns), fused[0], strict=False)) if fused else {}
    return Template(
        stages=tuple(_any_text(s) for s in program.stages),
        delta=_text(program.delta, program.columns),
        current=_whole(program.current),
        weight=program.columns[-1].sql,
        output=tuple(c.sql for c in output),
        fused=tuple(by_column[c.id].sql for c in output) if fused else (),
        fused_keep=fused[1].sql if fused else "",
    )


def _whole(tree: Operator) -> Text:
    return _text((Term((), tree),), tree.output)


def _text(delta: Delta, columns: tuple[Column, ...]) -> Text:
    reads: dict[Read, int] = {}

    def place(leaf: Scan | Stage) -> str:
        read = _read(leaf)
        return f"<<{read.kind}:{read.name}@{reads.setdefault(read, len(reads))}>>"

    terms, fanout = [], 0
    for term in delta:
        tree = with_where(simplified(term.tree))
        terms.append(TermText(term.drivers, branch_sql(tree, columns, place)))
        fanout += _fanout(tree)
    return Text(tuple(terms), tuple((c.sql, c.type) for c in columns), tuple(reads), fanout)


def _read(leaf: Scan | Stage) -> Read:
    types = tuple(c.type for c in leaf.columns)
    if isinstance(leaf, Stage):
        return Read("stage", leaf.name, tuple(c.sql for c in leaf.columns), types)
    return Read(_KINDS[leaf.side], leaf.table, leaf.names, types, leaf.near, leaf.where, leaf.between)


def _fanout(op: Operator) -> int:
    below = (
        sum(_fanout(i) for i in op.inputs) if isinstance(op, Union) else max((_fanout(i) for i in op.inputs), default=1)
    )
    return below * len(op.rows) if isinstance(op, Expand) else below


def _any_text(stage: AnyStage) -> AnyText:
    match stage:
        case RowsStage():
            weight = stage.columns[-1].sql if stage.netted else ""
            return RowsText(stage.name, _text(stage.terms, stage.columns), weight, _chosen(stage))
        case LoopStage():
            seeds, step = _text(stage.seeds, stage.columns), _text((Term((), stage.step),), stage.columns)
            return LoopText(stage.name, stage.wave, seeds, step, stage.columns[-1].sql)
        case StateStage():
            return _stage_text(stage)


def _chosen(stage: RowsStage) -> Read | None:
    """Return the rows that a stage takes from another one, if it does nothing else."""
    if len(stage.terms) != 1 or stage.netted:
        return None
    tree = stage.terms[0].tree
    if not isinstance(tree, Filter) or not isinstance(tree.input, Stage) or tree.output != stage.columns:
        return None
    where = exactly(tree.condition, {c.id: (c.sql, c.type) for c in tree.output})
    return replace(_read(tree.input), where=where) if where else None


def _stage_text(stage: StateStage) -> StageText:
    return StageText(
        name=stage.name,
        schema=stage.schema.to_json(),
        columns=tuple(c.sql for c in stage.columns),
        groups=len(stage.groups),
        keys_name=stage.keys_name,
        keys=_text(stage.keys, stage.keys_columns),
        delta=_whole(stage.delta),
        delta_of_few=_whole(stage.delta_of_few),
        delta_of_many=_whole(stage.delta_of_many),
        initial=_whole(stage.initial),
        rescan=_whole(stage.rescan),
        rescan_name=stage.rescan_name,
        rescan_columns=tuple((c.sql, c.type) for c in stage.rescan_groups),
        weight=stage.keys_columns[-2].sql,
        flag=stage.flag.sql,
        paired=stage.paired.sql,
        always_rescan=stage.always_rescan,
        strategy=stage.strategy,
        source_groups=stage.source_groups,
        is_direct=stage.is_direct,
    )


# reading back ---------------------------------------------------------------------------------------------------------------


def _template(data: Mapping[str, Any]) -> Template:
    if data.get("format") != FORMAT:
        raise CatalogCorruptError(
            "a stream table was planned by another version of Headwater",
            detail=f"Its template has format {data.get('format')}, this version reads format {FORMAT}.",
            hint="Run CREATE OR REPLACE STREAM TABLE with the same query.",
        )
    return Template(
        tuple(_read_stage(s) for s in data["stages"]),
        _read_text(data["delta"]),
        _read_text(data["current"]),
        data["weight"],
        tuple(data["output"]),
        tuple(data["fused"]),
        data["fused_keep"],
    )


def _read_text(data: Mapping[str, Any]) -> Text:
    return Text(
        tuple(TermText(tuple(t["drivers"]), t["sql"]) for t in data["terms"]),
        tuple((n, t) for n, t in data["columns"]),
        tuple(_read_read(r) for r in data["reads"]),
        data["fanout"],
    )


def _read_read(data: Mapping[str, Any]) -> Read:
    columns, types = tuple(data["columns"]), tuple(data["types"])
    between = Between(**data["between"]) if data["between"] else None
    return Read(
        data["kind"], data["name"], columns, types, _read_near(data["near"]), _read_where(data["where"]), between
    )


def _read_near(data: Sequence[Mapping[str, Any]]) -> tuple[Near, ...]:
    return tuple(Near(n["name"], tuple(_read_origin(s) for s in n["sources"]), n["null_safe"]) for n in data)


def _read_origin(data: Mapping[str, Any]) -> At | Via:
    if "place" in data:
        return At(data["place"], data["name"], _read_where(data["where"]))
    where = _read_where(data["where"])
    return Via(Side(data["side"]), data["table"], data["name"], _read_near(data["near"]), where)


def _read_where(data: Sequence[Mapping[str, Any]]) -> tuple[Where, ...]:
    return tuple(Where(w["name"], Comparison(w["test"]), Kind(w["kind"]), tuple(w["values"])) for w in data)


def _read_stage(data: Mapping[str, Any]) -> AnyText:
    if data["kind"] == "RowsText":
        chosen = _read_read(data["chosen"]) if data["chosen"] else None
        return RowsText(data["name"], _read_text(data["rows"]), data["weight"], chosen)
    if data["kind"] == "LoopText":
        texts = _read_text(data["seeds"]), _read_text(data["step"])
        return LoopText(data["name"], data["wave"], *texts, data["weight"])
    rest = {k: v for k, v in data.items() if k != "kind"}
    for name in ("keys", "delta", "delta_of_few", "delta_of_many", "initial", "rescan"):
        rest[name] = _read_text(rest[name])
    rest["columns"] = tuple(rest["columns"])
    rest["source_groups"] = tuple((g[0], g[1]) if g else None for g in rest["source_groups"])
    rest["rescan_columns"] = tuple((n, t) for n, t in rest["rescan_columns"])
    return StageText(**rest)
