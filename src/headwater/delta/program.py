"""A delta program: everything needed to populate a stream table and to follow its sources, as data.

`stages` keep the state of the aggregates, in the order in which they depend on each other; `delta` is the change of the result,
reading the changes of sources and of stages; `current` is the whole result, reading sources as they are now and stages as if they
had just been filled. The runner runs it, `explain` prints it, tests compare it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headwater.delta.context import WEIGHT, DeltaContext, DeltaOptions, StateStage, at_side
from headwater.delta.rules import delta_of
from headwater.plan.column_types import SchemaOf, with_types
from headwater.plan.operators import Aggregate, Operator, Project, Scan, Side


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
    current = _current(tree, ctx)
    stages = tuple(_typed(s, schema_of) for s in ctx.stages)
    return Program(stages, delta, current)


def _current(op: Operator, ctx: DeltaContext) -> Operator:
    """Return `op` over the sources as they are now, with each aggregate read from its state."""
    if isinstance(op, Aggregate):
        results = ctx.delta(op)
        assert isinstance(results, Project)
        return replace(results, items=tuple(i for i in results.items if i.column.id != WEIGHT.id))
    if isinstance(op, Scan):
        return at_side(op, Side.NEW)
    return op.with_inputs(*(_current(i, ctx) for i in op.inputs))


def _typed(stage: StateStage, schema_of: SchemaOf) -> StateStage:
    return replace(
        stage,
        keys=with_types(stage.keys, schema_of),
        delta=with_types(stage.delta, schema_of),
        initial=with_types(stage.initial, schema_of),
        rescan=with_types(stage.rescan, schema_of),
    )
