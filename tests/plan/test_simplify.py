"""Simplified trees say the same in fewer words."""

from __future__ import annotations

from headwater.plan.expressions import Call, Column, ColumnRef, Literal
from headwater.plan.operators import Filter, Named, Operator, Project, Scan, Union
from headwater.plan.printer import sql
from headwater.plan.simplify import simplified

A, B, X, Y, Z = (Column(i, n, "INT") for i, n in enumerate(("a", "b", "x", "y", "z"), start=1))
SCAN = Scan("t", (A, B), ("a", "b"))
SUM = Call("add", (ColumnRef(1), ColumnRef(2)), "({0} + {1})")


def text(op: Operator) -> str:
    return sql(simplified(op), lambda leaf: "t")


def test_renamings_are_merged() -> None:
    op = Project(
        Project(SCAN, (Named(X, ColumnRef(1)), Named(Y, Literal("7")))), (Named(Z, ColumnRef(3)), Named.same(Y))
    )
    assert text(op) == "SELECT c1 AS c5, 7 AS c4 FROM (SELECT `a` AS c1, `b` AS c2 FROM t)"


def test_what_is_computed_is_passed_on_once() -> None:
    inner = Project(SCAN, (Named(X, SUM),))
    assert text(Project(inner, (Named(Z, ColumnRef(3)),))).count("+") == 1
    twice = Project(inner, (Named(Y, ColumnRef(3)), Named(Z, ColumnRef(3))))
    assert simplified(twice) == twice
    used = Project(inner, (Named(Z, Call("twice", (ColumnRef(3),), "({0} * {0})")),))
    assert simplified(used) == used


def test_nothing_is_left_out() -> None:
    assert simplified(Project(SCAN, (Named.same(A), Named.same(B)))) == SCAN
    swapped = Project(SCAN, (Named.same(B), Named.same(A)))
    assert simplified(swapped) == swapped
    one = Union((SCAN,), (X, Y))
    assert text(one) == "SELECT c1 AS c3, c2 AS c4 FROM (SELECT `a` AS c1, `b` AS c2 FROM t)"
    filtered = Project(
        Filter(Project(SCAN, (Named(X, SUM),)), Call("p", (ColumnRef(3),), "({0} > 0)")), (Named.same(X),)
    )
    assert simplified(filtered) == filtered.input
