"""A delta program: everything needed to populate a stream table and to follow its sources, as data.

`stages` keep the state of the aggregates, in the order in which they depend on each other; `delta` is the change of the result,
reading the changes of sources and of stages; `current` is the whole result, reading sources and states as they are now.
The runner runs it, `explain` prints it, tests compare it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headwater.delta.context import WEIGHT, DeltaContext, DeltaOptions, StateStage, call
from headwater.delta.rules import delta_of
from headwater.plan.column_types import SchemaOf, with_types
from headwater.plan.expressions import ColumnRef, Expression, substituted
from headwater.plan.operators import Filter, Operator, Project, Stage


@dataclass(frozen=True, slots=True)
class Program:
    """The stages and trees of one stream table. `delta` has the columns of `current` and the weight."""

    stages: tuple[StateStage, ...]
    delta: Operator
    current: Operator


def compiled(tree: Operator, options: DeltaOptions, schema_of: SchemaOf) -> Program:
    """Return the program that maintains `tree` (in the normal forms of `delta/normal.py`, all types known)."""
    ctx = DeltaContext(rules=delta_of, options=options)
    delta = ctx.delta(tree)
    current = ctx.current(tree)
    stages = tuple(_typed(s, schema_of) for s in ctx.stages)
    return Program(stages, delta, current)


def _typed(stage: StateStage, schema_of: SchemaOf) -> StateStage:
    return replace(
        stage,
        keys=with_types(stage.keys, schema_of),
        delta=with_types(stage.delta, schema_of),
        delta_of_few=with_types(stage.delta_of_few, schema_of),
        delta_of_many=with_types(stage.delta_of_many, schema_of),
        initial=with_types(stage.initial, schema_of),
        rescan=with_types(stage.rescan, schema_of),
    )


def fused_result(program: Program) -> tuple[tuple[Expression, ...], Expression] | None:
    """Return the result's columns and its condition as expressions over the rows of the last stage, if it only projects and filters.

    Then state and result can be computed by one query.
    """
    if not program.stages:
        return None
    found = _over_stage(program.delta, program.stages[-1].name)
    if found is None:
        return None
    columns, conditions = found
    kept = call(" AND ".join(f"coalesce({{{i}}}, false)" for i in range(len(conditions))) or "true", *conditions)
    return tuple(columns[c.id] for c in program.delta.output if c.id != WEIGHT.id), kept


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
