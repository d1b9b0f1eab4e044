"""One printer: any operator tree as Spark SQL.

Every relation exposes its columns as `c<id>`, so that a parent can name them whatever stands below. A filter is merged into the
SELECT above it, everything else is a subquery: Spark's optimizer flattens what can be flattened, and does it soundly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headwater.plan.expressions import Column, Expression, quoted
from headwater.plan.operators import (
    Aggregate,
    Expand,
    Filter,
    Generate,
    Join,
    JoinKind,
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
)

LeafName = Callable[[Scan | Stage], str]
"""Gives the text that stands in FROM for a leaf."""

BROADCAST_HINT = "/*+ BROADCAST(r) */"
"""Written into joins against the keys of a change; whoever runs the text takes it out when the keys are many."""

BROADCAST_LEFT_HINT = "/*+ BROADCAST(l) */"
"""The same where the change stands on the left."""

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
        case Join():
            return _join(tree, leaf_name)
        case Window():
            order = f" ORDER BY {', '.join(k.sql for k in tree.order)}" if tree.order else ""
            parts = f"PARTITION BY {_columns(tree.partition)}" if tree.partition else ""
            items = [f"{c.call.sql} OVER ({parts}{order} {c.call.frame}) AS {c.column.sql}" for c in tree.calls]
            return f"SELECT {_list([*(c.sql for c in tree.input.output), *items])} FROM {_from(tree.input, leaf_name)}"
        case Top():
            limit = "ALL" if tree.limit is None else str(tree.limit)
            order = f" ORDER BY {', '.join(k.sql for k in tree.order)}" if tree.order else ""
            cut = f"{order} LIMIT {limit}" + (f" OFFSET {tree.offset}" if tree.offset else "")
            return f"SELECT {_columns(tree.output)} FROM {_from(tree.input, leaf_name)}{cut}"
        case Generate():
            outer = "OUTER " if tree.outer else ""
            view = f"LATERAL VIEW {outer}{tree.generator.sql} g AS {_columns(tree.columns)}"
            return f"SELECT {_columns(tree.output)} FROM ({sql(tree.input, leaf_name)}) {view}"
        case Values():
            return _values(tree)
        case Recursion():
            return _recursion(tree, leaf_name)
        case _:
            raise AssertionError(f"{type(tree).__name__} does not print")


_JOIN_WORDS = {
    JoinKind.INNER: "JOIN",
    JoinKind.LEFT: "LEFT JOIN",
    JoinKind.FULL: "FULL JOIN",
    JoinKind.SEMI: "LEFT SEMI JOIN",
    JoinKind.ANTI: "LEFT ANTI JOIN",
}


def _join(tree: Join, leaf_name: LeafName) -> str:
    left, right = f"({sql(tree.left, leaf_name)}) l", f"({sql(tree.right, leaf_name)}) r"
    condition = " AND ".join(c.sql for c in tree.conditions)
    where = f" WHERE {condition}" if condition else ""
    if tree.exists is not None:
        items = [*(c.sql for c in tree.left.output), f"EXISTS (SELECT 1 FROM {right}{where}) AS {tree.exists.sql}"]
        return f"SELECT {_list(items)} FROM {left}"
    if tree.kind is JoinKind.SINGLE:
        # A scalar subquery: Spark itself refuses a second row.
        fields = ", ".join(f"'{c.sql}', {c.sql}" for c in tree.right.output)
        found = f"(SELECT named_struct({fields}) FROM {right}{where}) AS found"
        kept = _list([*(c.sql for c in tree.left.output), found])
        items = [*(c.sql for c in tree.left.output), *(f"found.{c.sql} AS {c.sql}" for c in tree.right.output)]
        return f"SELECT {_list(items)} FROM (SELECT {kept} FROM {left})"
    word = _JOIN_WORDS[tree.kind]
    if not condition and tree.kind is JoinKind.INNER:
        word = "CROSS JOIN"
    on = f" ON {condition or 'true'}" if word != "CROSS JOIN" else ""
    return f"SELECT {tree.hint}{' ' if tree.hint else ''}{_columns(tree.output)} FROM {left} {word} {right}{on}"


def _values(tree: Values) -> str:
    if not tree.rows:
        return f"SELECT {_list([f'CAST(NULL AS {c.type}) AS {c.sql}' for c in tree.columns])} WHERE false"
    if not tree.columns:
        return " UNION ALL ".join(["SELECT 1"] * len(tree.rows))
    rows = ", ".join(f"({', '.join(e.sql for e in row)})" for row in tree.rows)
    return f"SELECT {_columns(tree.columns)} FROM VALUES {rows} AS v ({_columns(tree.columns)})"


def _recursion(tree: Recursion, leaf_name: LeafName) -> str:
    names = [f"k{i}" for i in range(len(tree.columns))]

    def place(leaf: Scan | Stage) -> str:
        if not isinstance(leaf, Stage) or leaf.name != tree.name:
            return leaf_name(leaf)
        return (
            f"(SELECT {_list([f'{k} AS {c.sql}' for k, c in zip(names, leaf.columns, strict=True)])} FROM {tree.name})"
        )

    anchor = _branch(tree.anchor, tree.columns, leaf_name)
    step = _branch(tree.step, tree.columns, place)
    items = [f"{k} AS {c.sql}" for k, c in zip(names, tree.columns, strict=True)]
    loop = f"WITH RECURSIVE {tree.name} ({', '.join(names)}) AS ({anchor} UNION ALL {step})"
    return f"{loop} SELECT {_list(items)} FROM {tree.name}"


def final_sql(tree: Operator, names: Sequence[str], leaf_name: LeafName) -> str:
    """Return a query whose columns are the output of `tree` under the names that the user gave them."""
    items = [f"{c.sql} AS {quoted(n)}" for c, n in zip(tree.output, names, strict=True)]
    return f"SELECT {_list(items)} FROM {_from(tree, leaf_name)}"


def branch_sql(tree: Operator, columns: Sequence[Column], leaf_name: LeafName) -> str:
    """Return a query for the rows of `tree` under other columns, by position."""
    return _branch(tree, columns, leaf_name)


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
