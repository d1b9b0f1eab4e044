"""Templates: a delta program as SQL texts with named places for what changes from refresh to refresh.

A template is made once, when a stream table is created, and stored with it; a refresh in any process fills in the places and runs
the texts, without planning anything. A place is written `<<kind:name>>`: `changes`, `old` and `new` of a table, or a `stage` of the
program. A text with a place left over is never run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from headwater.delta.context import StateStage
from headwater.delta.program import Program, fused_result
from headwater.errors import CatalogCorruptError
from headwater.model.schema import Field, TableSchema
from headwater.plan.expressions import Column
from headwater.plan.operators import Expand, Operator, Scan, Side, Stage, Union, walk_operators
from headwater.plan.printer import sql
from headwater.plan.simplify import simplified

FORMAT = 2
_PLACE = re.compile(r"<<(changes|old|new|touched|stage):([^<>]+)>>")
_KINDS = {Side.DELTA: "changes", Side.OLD: "old", Side.NEW: "new", Side.PLAIN: "new"}


@dataclass(frozen=True, slots=True)
class Text:
    """A SQL text, the columns it yields (as `c<id>` names with types), and what it reads: (kind, name) to column names.

    `fanout` is the largest number of rows that one row it reads can become.
    """

    sql: str
    columns: tuple[tuple[str, str], ...]
    reads: tuple[tuple[str, str, tuple[str, ...]], ...]
    fanout: int = 1

    def filled(self, place: Callable[[str, str], str]) -> str:
        """Return the text with every place filled."""
        return _PLACE.sub(lambda m: place(m[1], m[2]), self.sql)

    def fields(self) -> tuple[Field, ...]:
        return tuple(Field(n, t) for n, t in self.columns)


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

    @property
    def table_schema(self) -> TableSchema:
        return TableSchema.from_json(self.schema)

    @property
    def state(self) -> tuple[Field, ...]:
        """The state's columns under their `c<id>` names."""
        return tuple(Field(c, f.type, f.nullable) for c, f in zip(self.columns, self.table_schema.fields, strict=True))


@dataclass(frozen=True, slots=True)
class Template:
    """All texts of a stream table.

    `fused` are the result's columns, in stored order, as expressions over the rows of the last stage, and `fused_keep` says which of
    these rows the result has; empty if the result is more than a projection of that state.
    """

    stages: tuple[StageText, ...]
    delta: Text
    current: Text
    weight: str
    output: tuple[str, ...]
    fused: tuple[str, ...] = ()
    fused_keep: str = ""
    format: int = FORMAT

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    @staticmethod
    def from_json(text: str) -> Template:
        return _template(json.loads(text))

    def source_reads(self, kind: str) -> dict[str, tuple[str, ...]]:
        """Return {table: columns} of everything of this kind that the differential texts read."""
        found: dict[str, dict[str, None]] = {}
        texts = [self.delta]
        for stage in self.stages:
            texts += [stage.keys, stage.delta, stage.rescan, stage.initial]
        for text in (*texts, self.current):
            for k, name, columns in text.reads:
                if k == kind:
                    found.setdefault(name, {}).update(dict.fromkeys(columns))
        return {name: tuple(columns) for name, columns in found.items()}


def printed(program: Program, output: tuple[Column, ...]) -> Template:
    """Return the texts of `program`; `output` are the columns of the result in stored order."""
    fused = fused_result(program)
    by_column = dict(zip((c.id for c in program.delta.output), fused[0], strict=False)) if fused else {}
    return Template(
        stages=tuple(_stage_text(s) for s in program.stages),
        delta=_text(program.delta),
        current=_text(program.current),
        weight=program.delta.output[-1].sql,
        output=tuple(c.sql for c in output),
        fused=tuple(by_column[c.id].sql for c in output) if fused else (),
        fused_keep=fused[1].sql if fused else "",
    )


def _text(tree: Operator) -> Text:
    tree = simplified(tree)
    reads: dict[tuple[str, str], dict[str, None]] = {}
    for op in walk_operators(tree):
        if isinstance(op, Scan):
            reads.setdefault((_KINDS[op.side], op.table), {}).update(dict.fromkeys(op.names))
    columns = tuple((c.sql, c.type) for c in tree.output)
    return Text(sql(tree, _place), columns, tuple((k, n, tuple(c)) for (k, n), c in reads.items()), _fanout(tree))


def _fanout(op: Operator) -> int:
    below = (
        sum(_fanout(i) for i in op.inputs) if isinstance(op, Union) else max((_fanout(i) for i in op.inputs), default=1)
    )
    return below * len(op.rows) if isinstance(op, Expand) else below


def _place(leaf: Scan | Stage) -> str:
    if isinstance(leaf, Stage):
        return f"<<stage:{leaf.name}>>"
    return f"<<{_KINDS[leaf.side]}:{leaf.table}>>"


def _stage_text(stage: StateStage) -> StageText:
    return StageText(
        name=stage.name,
        schema=stage.schema.to_json(),
        columns=tuple(c.sql for c in stage.columns),
        groups=len(stage.groups),
        keys_name=stage.keys_name,
        keys=_text(stage.keys),
        delta=_text(stage.delta),
        delta_of_few=_text(stage.delta_of_few),
        delta_of_many=_text(stage.delta_of_many),
        initial=_text(stage.initial),
        rescan=_text(stage.rescan),
        rescan_name=stage.rescan_name,
        rescan_columns=tuple((c.sql, c.type) for c in stage.rescan_groups),
        weight=stage.keys.output[-2].sql,
        flag=stage.flag.sql,
        paired=stage.paired.sql,
        always_rescan=stage.always_rescan,
        strategy=stage.strategy,
        source_groups=stage.source_groups,
    )


def _template(data: Mapping[str, object]) -> Template:
    if data.get("format") != FORMAT:
        raise CatalogCorruptError(
            "a stream table was planned by another version of Headwater",
            detail=f"Its template has format {data.get('format')}, this version reads format {FORMAT}.",
            hint="Run CREATE OR REPLACE STREAM TABLE with the same query.",
        )

    def text(d: dict[str, object]) -> Text:
        columns: list[list[str]] = d["columns"]  # type: ignore[assignment]
        reads: list[tuple[str, str, list[str]]] = d["reads"]  # type: ignore[assignment]
        return Text(
            str(d["sql"]),
            tuple((n, t) for n, t in columns),
            tuple((k, n, tuple(c)) for k, n, c in reads),
            int(str(d["fanout"])),
        )

    def stage(d: dict[str, object]) -> StageText:
        parts = {k: text(d[k]) for k in ("keys", "delta", "delta_of_few", "delta_of_many", "initial", "rescan")}  # type: ignore[arg-type]
        rest = {k: v for k, v in d.items() if k not in parts}
        groups: list[list[str] | None] = rest["source_groups"]  # type: ignore[assignment]
        rest["source_groups"] = tuple((g[0], g[1]) if g else None for g in groups)
        rest["columns"] = tuple(rest["columns"])  # type: ignore[arg-type]
        columns: list[list[str]] = rest["rescan_columns"]  # type: ignore[assignment]
        rest["rescan_columns"] = tuple((n, t) for n, t in columns)
        return StageText(**rest, **parts)  # type: ignore[arg-type]

    stages: list[dict[str, object]] = data["stages"]  # type: ignore[assignment]
    output: list[str] = data["output"]  # type: ignore[assignment]
    fused: list[str] = data["fused"]  # type: ignore[assignment]
    return Template(
        tuple(stage(s) for s in stages),
        text(data["delta"]),  # type: ignore[arg-type]
        text(data["current"]),  # type: ignore[arg-type]
        str(data["weight"]),
        tuple(output),
        tuple(fused),
        str(data["fused_keep"]),
    )
