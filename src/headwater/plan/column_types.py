"""Types of computed columns: asked of Spark, not derived here.

Spark's rules for the type of `a * b` or `sum(x)` depend on its settings and its version. A node whose columns have no type yet is
printed over an input of typed NULLs and analysed; nothing is run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from headwater.plan.expressions import Column
from headwater.plan.operators import Aggregate, Expand, Named, NamedAggregate, Operator, Project, Scan, Stage, Union
from headwater.plan.printer import sql

SchemaOf = Callable[[str], list[tuple[str, str, bool]]]
"""Analyses a query and returns (name, DDL type, nullable) of its columns."""


def with_types(tree: Operator, schema_of: SchemaOf) -> Operator:
    """Return `tree` with the type of every column filled in: one call per node that lacks any."""
    inputs = tuple(with_types(i, schema_of) for i in tree.inputs)
    known = {c.id: c for i in inputs for c in i.output}
    op = _passed_on(tree.with_inputs(*inputs), known) if inputs else tree
    if all(c.type for c in op.output):
        return op
    return _filled(op, _described(op, schema_of))


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


def _passed_on(op: Operator, known: Mapping[int, Column]) -> Operator:
    """Return `op` with the columns it passes on described as its input describes them."""
    if isinstance(op, Project):
        items = tuple(Named(known[i.column.id], i.expression) if i.column.id in known else i for i in op.items)
        return Project(op.input, items)
    if isinstance(op, Aggregate):
        return Aggregate(op.input, tuple(known[g.id] for g in op.groups), op.calls)
    return op


def _filled(op: Operator, columns: Mapping[int, Column]) -> Operator:
    if isinstance(op, Project):
        return Project(op.input, tuple(Named(columns[i.column.id], i.expression) for i in op.items))
    if isinstance(op, Aggregate):
        calls = tuple(NamedAggregate(columns[c.column.id], c.call) for c in op.calls)
        return Aggregate(op.input, op.groups, calls)
    if isinstance(op, Expand):
        return Expand(op.input, op.rows, tuple(columns[c.id] for c in op.columns))
    if isinstance(op, Union):
        return replace(op, columns=tuple(columns[c.id] for c in op.columns))
    return op
