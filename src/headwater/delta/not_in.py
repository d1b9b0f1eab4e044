"""NOT IN as existence joins: a normal form, not a rule.

Catalyst writes `a NOT IN (SELECT b ...)` as a join on `a = b OR (a = b) IS NULL`: a NULL on either side matches everything. That
condition has no key. But a left row has such a match exactly if

    some b equals a,   or some b is NULL,   or a is NULL and there is any b at all

and each of the three is an existence join with a key, or with none and then one answer for all rows: how many b there are and how many
of them are NULL. What else the join asks (the subquery's correlation) is asked of each of the three. What is never NULL is not asked
whether it is: between two keys, NOT IN is an anti join.

Several columns, `(a1, a2) NOT IN (...)`, stay as they are: their matches are counted row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from headwater.delta.context import call
from headwater.delta.near import EQUAL, reads
from headwater.plan.expressions import Call, Column, ColumnRef, Expression
from headwater.plan.operators import Filter, Join, JoinKind, Named, Operator, Project, Scan, Top, walk_operators

NeverNull = Callable[[str, str], bool]
"""Says whether a column of a table never holds NULL."""


def without_not_in(tree: Operator, never_null: NeverNull) -> Operator:
    """Return `tree` with every NOT IN over one column written as existence joins, or as an anti join."""
    return _rewritten(tree, _Ids(tree), never_null)


class _Ids:
    def __init__(self, tree: Operator) -> None:
        self.next = 1 + max((c.id for o in walk_operators(tree) for c in o.output), default=0)

    def column(self, name: str, type_: str) -> Column:
        self.next += 1
        return Column(self.next - 1, name, type_, nullable=False)


def _rewritten(op: Operator, ids: _Ids, never_null: NeverNull) -> Operator:
    if op.inputs:
        op = op.with_inputs(*(_rewritten(i, ids, never_null) for i in op.inputs))
    if not isinstance(op, Join) or op.kind not in (JoinKind.ANTI, JoinKind.EXISTENCE):
        return op
    aware = [(c, found) for c in op.conditions if (found := _null_aware(c, op)) is not None]
    if len(aware) != 1:
        return op
    condition, (left, right) = aware[0]
    equal = Call("=", (left, right), EQUAL)
    others = tuple(c for c in op.conditions if c is not condition)
    asked: list[tuple[str, str, Operator]] = []
    if not _has_values(op.right, right, never_null):
        asked.append(("null", "{1}", Filter(op.right, call("({0} IS NULL)", right))))
    if not _has_values(op.left, left, never_null):
        asked.append(("any", "({0} IS NULL AND {1})", op.right))
    if not asked:
        return replace(op, conditions=(*others, equal))
    return _as_existence(op, equal, others, asked, ids)


def _null_aware(condition: Expression, op: Join) -> tuple[Expression, Expression] | None:
    """Return the two sides of `a = b OR (a = b) IS NULL`, the left side's first."""
    if not isinstance(condition, Call) or len(condition.args) != 2 or " OR " not in condition.form:
        return None
    equal, null = condition.args
    if not isinstance(equal, Call) or equal.form != EQUAL or not isinstance(null, Call) or null.args != (equal,):
        return None
    a, b = equal.args
    if reads(a, op.left.output) and (reads(b, op.right.output)):
        return a, b
    if reads(b, op.left.output) and reads(a, op.right.output):
        return b, a
    return None


def _has_values(op: Operator, expression: Expression, never_null: NeverNull) -> bool:
    """Say whether an expression is a column that no row of `op` has NULL in: it comes from a table that forbids it, unfilled."""
    if not isinstance(expression, ColumnRef):
        return False
    column = expression.id
    match op:
        case Scan():
            names = {c.id: n for c, n in zip(op.columns, op.names, strict=True)}
            return never_null(op.table, names[column])
        case Project():
            return _has_values(op.input, next(i.expression for i in op.items if i.column.id == column), never_null)
        case Filter() | Top():
            return _has_values(op.inputs[0], expression, never_null)
        case Join() if op.kind is not JoinKind.FULL:
            if any(c.id == column for c in op.left.output):
                return _has_values(op.left, expression, never_null)
            return op.kind is JoinKind.INNER and _has_values(op.right, expression, never_null)
        case _:
            return False


def _as_existence(
    op: Join,
    equal: Call,
    others: tuple[Expression, ...],
    asked: Sequence[tuple[str, str, Operator]],
    ids: _Ids,
) -> Operator:
    tree: Operator = op.left
    left = next(a for a in equal.args if reads(a, op.left.output))
    answers: list[Expression] = []
    for name, form, source in (("equal", "{1}", op.right), *asked):
        exists = ids.column(name, "BOOLEAN")
        conditions = (*others, equal) if name == "equal" else others
        tree = Join(tree, source, JoinKind.EXISTENCE, conditions, exists=exists)
        answers.append(call(form, left, ColumnRef(exists.id)))
    matched = call("(" + " OR ".join(f"{{{i}}}" for i in range(len(answers))) + ")", *answers)
    kept = tuple(Named.same(c) for c in op.left.output)
    if op.exists is not None:
        return Project(tree, (*kept, Named(op.exists, matched)))
    return Project(Filter(tree, call("(NOT {0})", matched)), kept)
