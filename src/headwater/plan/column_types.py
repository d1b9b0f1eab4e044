"""Types of computed columns: asked of Spark, not derived here.

Spark's rules for the type of `a * b` or `sum(x)` depend on its settings and its version. A node whose columns have no type yet is
printed over an input of typed NULLs and analysed; nothing is run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from headwater.plan.expressions import Column, SortKey
from headwater.plan.operators import (
    Aggregate,
    Expand,
    Generate,
    Join,
    JoinKind,
    Named,
    NamedAggregate,
    NamedWindow,
    Operator,
    Project,
    Recursion,
    Scan,
    SemiJoin,
    Stage,
    Top,
    Union,
    Values,
    Window,
    walk_operators,
)
from headwater.plan.printer import sql

SchemaOf = Callable[[str], list[tuple[str, str, bool]]]
"""Analyses a query and returns (name, DDL type, nullable) of its columns."""


def with_types(tree: Operator, schema_of: SchemaOf) -> Operator:
    """Return `tree` with the type of every column filled in: one call per node that lacks any."""
    inputs = tuple(with_types(i, schema_of) for i in tree.inputs)
    known = {c.id: c for i in inputs for c in i.output}
    op = with_columns(tree.with_inputs(*inputs), known) if inputs else tree
    if all(c.type for c in op.output):
        return op
    return with_columns(op, _described(op, schema_of))


def typed_nulls(leaf: Scan | Stage) -> str:
    """Return a relation with the columns of `leaf` and no meaning but their types."""
    names = leaf.names if isinstance(leaf, Scan) else tuple(c.sql for c in leaf.columns)
    items = [f"CAST(NULL AS {c.type}) AS `{n.replace('`', '``')}`" for n, c in zip(names, leaf.columns, strict=True)]
    return f"(SELECT {', '.join(items) or '1'})"


def _described(op: Operator, schema_of: SchemaOf) -> Mapping[int, Column]:
    shallow = op.with_inputs(*(Stage("input", i.output) for i in op.inputs))
    fields = schema_of(sql(shallow, typed_nulls))
    return {
        column.id: column if column.type else replace(column, type=type_, nullable=nullable)
        for column, (_, type_, nullable) in zip(op.output, fields, strict=True)
    }


def with_columns(op: Operator, columns: Mapping[int, Column]) -> Operator:
    """Return `op` with its own columns described as `columns` says, wherever it names them; its inputs stay as they are."""

    def described(column: Column) -> Column:
        return columns.get(column.id, column)

    def all_described(given: Sequence[Column]) -> tuple[Column, ...]:
        return tuple(described(c) for c in given)

    def ordered(keys: Sequence[SortKey]) -> tuple[SortKey, ...]:
        return tuple(replace(k, column=described(k.column)) for k in keys)

    match op:
        case Project():
            return replace(op, items=tuple(Named(described(i.column), i.expression) for i in op.items))
        case Aggregate():
            calls = tuple(NamedAggregate(described(c.column), c.call) for c in op.calls)
            return replace(op, groups=all_described(op.groups), calls=calls)
        case Window():
            windows = tuple(NamedWindow(described(c.column), c.call) for c in op.calls)
            return replace(op, partition=all_described(op.partition), order=ordered(op.order), calls=windows)
        case Top():
            return replace(op, order=ordered(op.order))
        case Join(exists=Column() as exists):
            return replace(op, exists=described(exists))
        case SemiJoin():
            return replace(op, on=tuple((described(a), described(b)) for a, b in op.on))
        case Scan() | Stage() | Expand() | Union() | Generate() | Values() | Recursion():
            return replace(op, columns=all_described(op.columns))
        case _:
            return op


def with_outer_nulls(tree: Operator) -> Operator:
    """Return `tree` with every column that an outer join or LATERAL VIEW OUTER fills with NULLs called nullable, everywhere."""
    filled: set[int] = set()
    for op in walk_operators(tree):
        if isinstance(op, Join) and op.kind in (JoinKind.LEFT, JoinKind.SINGLE, JoinKind.FULL):
            filled |= {c.id for c in op.right.output}
            filled |= {c.id for c in op.left.output} if op.kind is JoinKind.FULL else set()
        if isinstance(op, Generate) and op.outer:
            filled |= {c.id for c in op.columns}
    columns = {c.id: replace(c, nullable=True) for op in walk_operators(tree) for c in op.output if c.id in filled}
    return _everywhere(tree, columns) if columns else tree


def _everywhere(op: Operator, columns: Mapping[int, Column]) -> Operator:
    inputs = tuple(_everywhere(i, columns) for i in op.inputs)
    return with_columns(op.with_inputs(*inputs) if inputs else op, columns)
