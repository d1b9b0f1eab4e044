"""A delta program: everything needed to populate a stream table and to follow its sources, as data.

`stages` compute rows and keep the state of aggregates, in the order in which they depend on each other; `delta` is the change of the
result, reading the changes of sources and of stages; `current` is the whole result, reading sources and states as they are now.
The runner runs it, `explain` prints it, tests compare it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from headwater.delta.context import (
    WEIGHT,
    AnyStage,
    Delta,
    DeltaContext,
    DeltaOptions,
    LoopStage,
    RowsStage,
    StateStage,
    TableFacts,
    Term,
    call,
)
from headwater.delta.rules import delta_of
from headwater.plan.column_types import SchemaOf, with_types
from headwater.plan.expressions import Column, ColumnRef, Expression, substituted
from headwater.plan.operators import Filter, Operator, Project, Stage


@dataclass(frozen=True, slots=True)
class Program:
    """The stages and trees of one stream table. `delta` has the columns of `current` and the weight."""

    stages: tuple[AnyStage, ...]
    delta: Delta
    columns: tuple[Column, ...]
    current: Operator


def compiled(
    tree: Operator,
    options: DeltaOptions,
    schema_of: SchemaOf,
    facts: Callable[[str], TableFacts] = lambda table: TableFacts(),
) -> Program:
    """Return the program that maintains `tree` (in the normal forms of `delta/normal.py`, all types known)."""
    ctx = DeltaContext(rules=delta_of, options=options, facts=facts)
    delta = ctx.delta(tree)
    current = ctx.new(tree)
    typing = _Typing(schema_of)
    stages = tuple(typing.stage(s) for s in ctx.stages)
    return Program(stages, typing.terms(delta), (*tree.output, WEIGHT), typing.tree(current))


class _Typing:
    """Fills in the types of columns, stage after stage: what a stage yields is known to those that read it."""

    def __init__(self, schema_of: SchemaOf) -> None:
        self._schema_of = schema_of
        self._known: dict[int, Column] = {}

    def stage(self, stage: AnyStage) -> AnyStage:
        if isinstance(stage, RowsStage):
            terms = self.terms(stage.terms)
            return replace(stage, terms=terms, columns=self._columns(stage.columns, terms))
        if isinstance(stage, LoopStage):
            seeds = self.terms(stage.seeds)
            return replace(stage, seeds=seeds, columns=self._columns(stage.columns, seeds), step=self.tree(stage.step))
        keys = self.terms(stage.keys)
        return self._state(replace(stage, keys=keys, keys_columns=self._columns(stage.keys_columns, keys)))

    def _state(self, stage: StateStage) -> StateStage:
        return replace(
            stage,
            delta=self.tree(stage.delta),
            delta_of_few=self.tree(stage.delta_of_few),
            delta_of_many=self.tree(stage.delta_of_many),
            initial=self.tree(stage.initial),
            rescan=self.tree(stage.rescan),
        )

    def terms(self, delta: Delta) -> Delta:
        return tuple(Term(t.drivers, self.tree(t.tree)) for t in delta)

    def tree(self, tree: Operator) -> Operator:
        return with_types(_with_known(tree, self._known), self._schema_of)

    def _columns(self, columns: tuple[Column, ...], terms: Delta) -> tuple[Column, ...]:
        """Return the columns of a stage as its terms describe them, and remember them."""
        for term in terms:
            columns = tuple(replace(c, type=c.type or o.type) for c, o in zip(columns, term.tree.output, strict=True))
        self._known.update({c.id: c for c in columns})
        return columns


def _with_known(op: Operator, known: Mapping[int, Column]) -> Operator:
    if isinstance(op, Stage):
        return replace(op, columns=tuple(c if c.type else known.get(c.id, c) for c in op.columns))
    return op.with_inputs(*(_with_known(i, known) for i in op.inputs)) if op.inputs else op


def fused_result(program: Program) -> tuple[tuple[Expression, ...], Expression] | None:
    """Return the result's columns and its condition as expressions over the rows of the last stage, if it only projects and filters.

    Then state and result can be computed by one query.
    """
    if not program.stages or not isinstance(program.stages[-1], StateStage) or len(program.delta) != 1:
        return None
    found = _over_stage(program.delta[0].tree, program.stages[-1].name)
    if found is None:
        return None
    columns, conditions = found
    kept = call(" AND ".join(f"coalesce({{{i}}}, false)" for i in range(len(conditions))) or "true", *conditions)
    return tuple(columns[c.id] for c in program.columns if c.id != WEIGHT.id), kept


def _over_stage(op: Operator, stage: str) -> tuple[dict[int, Expression], list[Expression]] | None:
    if isinstance(op, Stage):
        return ({c.id: ColumnRef(c.id) for c in op.columns}, []) if op.name == stage else None
    if not isinstance(op, Project | Filter):
        return None
    below = _over_stage(op.input, stage)
    if below is None:
        return None
    columns, conditions = below
    if isinstance(op, Filter):
        return columns, [*conditions, substituted(op.condition, columns)]
    return {i.column.id: substituted(i.expression, columns) for i in op.items}, conditions
