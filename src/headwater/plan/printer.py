"""One printer: any operator tree as Spark SQL.

Every relation exposes its columns as `c<id>`, so that a parent can name them whatever stands below. A filter is merged into the
SELECT above it, everything else is a subquery: Spark's optimizer flattens what can be flattened, and does it soundly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headwater.plan.expressions import Column, Expression, quoted
from headwater.plan.operators import Aggregate, Expand, Filter, Operator, Project, Scan, SemiJoin, Stage, Union

LeafName = Callable[[Scan | Stage], str]
"""Gives the text that stands in FROM for a leaf."""

BROADCAST_HINT = "/*+ BROADCAST(r) */"
"""Written into joins against the keys of a change; whoever runs the text takes it out when the keys are many."""

ONE_PARTITION_HINT = "/*+ COALESCE(1) */"
"""Written above a gathered union: few rows in one partition need no shuffle. Taken out when the rows are many."""


def sql(tree: Operator, leaf_name: LeafName) -> str:
    """Return a query whose columns are the output of `tree`, named `c<id>`."""
    match tree:
        case Scan():
            items = [f"{quoted(n)} AS {c.sql}" for n, c in zip(tree.names, tree.columns, strict=True)]
            return f"SELECT {_list(items)} FROM {leaf_name(tree)}"
        case Stage():
            return f"SELECT {_columns(tree.columns)} FROM {leaf_name(tree)}"
        case Filter():
            return f"SELECT {_columns(tree.output)} FROM {_from(tree, leaf_name)}"
        case Project():
            items = [_named(i.expression, i.column) for i in tree.items]
            return f"SELECT {_list(items)} FROM {_from(tree.input, leaf_name)}"
        case Aggregate():
            items = [*(g.sql for g in tree.groups), *(f"{c.call.sql} AS {c.column.sql}" for c in tree.calls)]
            groups = f" GROUP BY {_columns(tree.groups)}" if tree.groups else ""
            return f"SELECT {_list(items)} FROM {_from(tree.input, leaf_name)}{groups}"
        case Expand():
            rows = [_row(row, tree.columns) for row in tree.rows]
            names = _columns(tree.columns)
            return f"SELECT inline(array({', '.join(rows)})) AS ({names}) FROM {_from(tree.input, leaf_name)}"
        case Union():
            text = " UNION ALL ".join(_branch(b, tree.columns, leaf_name) for b in tree.branches)
            return f"SELECT {ONE_PARTITION_HINT} * FROM ({text})" if tree.gathered else text
        case SemiJoin():
            on = " AND ".join(f"l.{a.sql} <=> r.{b.sql}" for a, b in tree.on)
            kept = _list([f"l.{c.sql}" for c in tree.output])
            left, right = sql(tree.left, leaf_name), sql(tree.right, leaf_name)
            return f"SELECT {BROADCAST_HINT} {kept} FROM ({left}) l LEFT SEMI JOIN ({right}) r ON {on}"
        case _:
            raise AssertionError(f"{type(tree).__name__} does not print")


def final_sql(tree: Operator, names: Sequence[str], leaf_name: LeafName) -> str:
    """Return a query whose columns are the output of `tree` under the names that the user gave them."""
    items = [f"{c.sql} AS {quoted(n)}" for c, n in zip(tree.output, names, strict=True)]
    return f"SELECT {_list(items)} FROM {_from(tree, leaf_name)}"


def _from(op: Operator, leaf_name: LeafName) -> str:
    """Return what stands after FROM: a subquery and the conditions of the filters on top of it."""
    conditions = []
    while isinstance(op, Filter):
        conditions.append(op.condition.sql)
        op = op.input
    source = leaf_name(op) if isinstance(op, Stage) else f"({sql(op, leaf_name)})"
    return f"{source} WHERE {' AND '.join(reversed(conditions))}" if conditions else source


def _branch(branch: Operator, columns: Sequence[Column], leaf_name: LeafName) -> str:
    if isinstance(branch, Project):
        items = [_named(i.expression, new) for i, new in zip(branch.items, columns, strict=True)]
        return f"SELECT {_list(items)} FROM {_from(branch.input, leaf_name)}"
    items = [_named_column(old, new) for old, new in zip(branch.output, columns, strict=True)]
    return f"SELECT {_list(items)} FROM {_from(branch, leaf_name)}"


def _row(row: Sequence[Expression], columns: Sequence[Column]) -> str:
    return (
        f"named_struct({', '.join(f'{chr(39)}{c.sql}{chr(39)}, {e.sql}' for e, c in zip(row, columns, strict=True))})"
    )


def _named(expression: Expression, column: Column) -> str:
    text = expression.sql
    return text if text == column.sql else f"{text} AS {column.sql}"


def _named_column(old: Column, new: Column) -> str:
    return new.sql if old.id == new.id else f"{old.sql} AS {new.sql}"


def _columns(columns: Sequence[Column]) -> str:
    return _list([c.sql for c in columns])


def _list(items: Sequence[str]) -> str:
    """Return a select list; a relation without columns still has rows, so it selects a constant."""
    return ", ".join(items) or "1"
