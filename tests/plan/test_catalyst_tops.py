"""LIMIT and OFFSET over a total order; without any order they are refused."""

from __future__ import annotations

import pytest
from tests.plan.round_trip import Frontend

from headwater.plan.operators import Top, walk_operators
from headwater.plan.refusal import Code


@pytest.mark.parametrize(
    ("query", "order", "limit", "offset"),
    [
        ("SELECT k FROM a ORDER BY v LIMIT 2", "c2 ASC NULLS FIRST, c1 ASC NULLS FIRST", 2, 0),
        ("SELECT k, v FROM a ORDER BY v, k DESC LIMIT 2", "c2 ASC NULLS FIRST, c1 DESC NULLS LAST", 2, 0),
        ("SELECT k, v FROM a ORDER BY v + k DESC, v LIMIT 2 OFFSET 1", None, 2, 1),
        ("SELECT k + 1 AS y FROM a ORDER BY v NULLS LAST OFFSET 2", None, None, 2),
        ("SELECT k FROM a ORDER BY v LIMIT 0", None, 0, 0),
        ("SELECT * FROM a LIMIT 0", "", 0, 0),
        ("SELECT s, sum(v) AS t FROM a GROUP BY s ORDER BY t DESC, s LIMIT 2", None, 2, 0),
        ("SELECT count(*) AS n FROM (SELECT k FROM a ORDER BY v LIMIT 3)", None, 3, 0),
        ("SELECT * FROM b WHERE k IN (SELECT k FROM a ORDER BY v, k LIMIT 3)", None, 3, 0),
        ("SELECT x.k FROM (SELECT k FROM a ORDER BY v DESC LIMIT 4) x JOIN b USING (k)", None, 4, 0),
    ],
)
def test_a_limit_cuts_a_total_order(
    pairs: Frontend, query: str, order: str | None, limit: int | None, offset: int
) -> None:
    read = pairs.assert_same(query)
    (top,) = [op for op in walk_operators(read.tree) if isinstance(op, Top)]
    assert (top.limit, top.offset) == (limit, offset)
    assert order is None or ", ".join(k.sql for k in top.order) == order


def test_a_tie_break_is_announced(pairs: Frontend) -> None:
    (notice,) = pairs.accepted("SELECT k FROM a ORDER BY v LIMIT 2").notices
    assert notice.startswith("LIMIT and OFFSET decide")
    assert pairs.accepted("SELECT k FROM a ORDER BY k LIMIT 2").notices == ()


def test_a_limit_that_is_no_limit_vanishes(pairs: Frontend) -> None:
    assert not any(isinstance(op, Top) for op in walk_operators(pairs.assert_same("SELECT k FROM a LIMIT ALL").tree))


@pytest.mark.parametrize(
    ("query", "code", "fragment"),
    [
        ("SELECT k FROM a LIMIT 2", Code.ORDER_DEPENDENT, "LIMIT without ORDER BY"),
        ("SELECT k FROM a OFFSET 2", Code.ORDER_DEPENDENT, "OFFSET without ORDER BY"),
        ("SELECT k FROM a SORT BY k LIMIT 2", Code.ORDER_DEPENDENT, "LIMIT without ORDER BY"),
        ("SELECT k FROM a ORDER BY k LIMIT 1 + 1", Code.OPERATOR_NOT_SUPPORTED, "LIMIT"),
        ("SELECT map(k, v) AS m, k FROM a WHERE k > 0 ORDER BY k LIMIT 1", Code.ORDER_DEPENDENT, "LIMIT"),
    ],
)
def test_a_limit_without_a_total_order_is_refused(pairs: Frontend, query: str, code: Code, fragment: str) -> None:
    (refusal,) = pairs.refused(query).refusals
    assert (refusal.code, refusal.fragment) == (code, fragment)
    assert "ORDER BY" not in fragment or refusal.hint.startswith("Add an ORDER BY")
