"""NOT IN as existence joins: a normal form, not a rule.

Catalyst writes `a NOT IN (SELECT b ...)` as a join on `a = b OR (a = b) IS NULL`: a NULL on either side matches everything. That
condition has no key. But a left row has such a match exactly if

    some b equals a,   or some b is NULL,   or a is NULL and there is any b at all

and each of the three is an existence join with a key, or with none and then one answer for all rows: how many b there are and how many
of them are NULL. What else the join asks (the subquery's correlation) is asked of each of the three.

Several columns, `(a1, a2) NOT IN (...)`, stay as they are: their matches are counted row by row.
"""

from __future__ import annotations

from headwater.delta.context import call
from headwater.delta.near import EQUAL, reads
from headwater.plan.expressions import Call, Column, ColumnRef, Expression
from headwater.plan.operators import Filter, Join, JoinKind, Named, Operator, Project, walk_operators


def without_not_in(tree: Operator) -> Operator:
    """Return `tree` with every NOT IN over one column written as existence joins."""
    ids = _Ids(tree)
    return _rewritten(tree, ids)


class _Ids:
    def __init__(self, tree: Operator) -> None:
        self.next = 1 + max((c.id for o in walk_operators(tree) for c in o.output), default=0)

    def column(self, name: str, type_: str) -> Column:
        self.next += 1
        return Column(self.next - 1, name, type_, nullable=False)


def _rewritten(op: Operator, ids: _Ids) -> Operator:
    if op.inputs:
        op = op.with_inputs(*(_rewritten(i, ids) for i in op.inputs))
    if not isinstance(op, Join) or op.kind not in (JoinKind.ANTI, JoinKind.EXISTENCE):
        return op
    aware = [(c, found) for c in op.conditions if (found := _null_aware(c, op)) is not None]
    if len(aware) != 1:
        return op
    condition, (left, right) = aware[0]
    others = tuple(c for c in op.conditions if c is not condition)
    return _as_existence(op, left, right, others, ids)


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


def _as_existence(op: Join, left: Expression, right: Expression, others: tuple[Expression, ...], ids: _Ids) -> Operator:
    sources = {
        "equal": (op.right, (*others, Call("=", (left, right), EQUAL))),
        "null": (Filter(op.right, call("({0} IS NULL)", right)), others),
        "any": (op.right, others),
    }
    tree = op.left
    answers = []
    for name, (source, conditions) in sources.items():
        answers.append(ids.column(name, "BOOLEAN"))
        tree = Join(tree, source, JoinKind.EXISTENCE, conditions, exists=answers[-1])
    matched = call("({0} OR {1} OR ({3} IS NULL AND {2}))", *(ColumnRef(a.id) for a in answers), left)
    kept = tuple(Named.same(c) for c in op.left.output)
    if op.exists is not None:
        return Project(tree, (*kept, Named(op.exists, matched)))
    return Project(Filter(tree, call("(NOT {0})", matched)), kept)
