"""Generators, constant rows and recursion."""

from __future__ import annotations

import pytest
from tests.plan.round_trip import Frontend

from headwater.plan.operators import Generate, Recursion, Values, walk_operators
from headwater.plan.refusal import Code


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, explode(tags) AS t, region FROM orders",
        "SELECT id, explode_outer(tags) AS t, region FROM orders",
        "SELECT id, t FROM orders LATERAL VIEW OUTER explode(split(region, 'o')) AS t",
        "SELECT id, p.* FROM orders LATERAL VIEW posexplode(tags) p AS i, x",
        "SELECT id, j.* FROM orders LATERAL VIEW json_tuple(region, 'a', 'b') j",
        "SELECT id, explode(map('a', id, 'b', 2L)) FROM orders",
        "SELECT inline(array(struct(id, region))) FROM orders",
        "SELECT stack(2, id, region, 1L, 'x') FROM orders",
        "SELECT id, x.y FROM orders, LATERAL explode(tags) AS x(y)",
        "SELECT x.t, y.u FROM orders LATERAL VIEW explode(tags) x AS t LATERAL VIEW explode(array(t, 0)) y AS u",
        "SELECT id FROM orders UNION ALL SELECT explode(tags) FROM orders",
    ],
)
def test_a_generator_reads_back(orders: Frontend, query: str) -> None:
    read = orders.assert_same(query)
    assert any(isinstance(op, Generate) for op in walk_operators(read.tree))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM a UNPIVOT (val FOR col IN (k, v))",
        "SELECT * FROM (SELECT k, v, s FROM a) PIVOT (sum(v) FOR s IN ('x', 'y'))",
    ],
)
def test_columns_and_rows_change_places(pairs: Frontend, query: str) -> None:
    pairs.assert_same(query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM a JOIN (VALUES (1, 'q', DATE '2020-01-01', 1.5D, array(1)), (NULL, NULL, NULL, NULL, NULL))"
        " AS v(k, t, d, x, y) USING (k)",
        "SELECT * FROM a CROSS JOIN (SELECT 1 AS one)",
        "SELECT k FROM a UNION ALL SELECT 1",
        "SELECT k FROM a UNION ALL SELECT * FROM VALUES (1), (2) AS v(x)",
        "SELECT k FROM a WHERE k IN (SELECT * FROM VALUES (1), (2))",
    ],
)
def test_constant_rows_read_back(pairs: Frontend, query: str) -> None:
    read = pairs.assert_same(query)
    assert any(isinstance(op, Values) for op in walk_operators(read.tree))
    assert "a" in read.sources


@pytest.mark.parametrize(
    "query",
    [
        "WITH RECURSIVE t(n) AS (SELECT min(k) FROM a UNION ALL SELECT n + 1 FROM t WHERE n < 5) SELECT * FROM t",
        "WITH RECURSIVE t(n, d) AS (SELECT src, dst FROM e UNION ALL SELECT t.n, e.dst FROM t JOIN e ON t.d = e.src)"
        " SELECT * FROM t",
        "WITH RECURSIVE t(n, d) AS (SELECT src, dst FROM e UNION ALL SELECT t.n, e.dst FROM t JOIN e ON t.d = e.src)"
        " SELECT x.n, count(*) AS c FROM t x JOIN t y ON x.d = y.n GROUP BY x.n",
    ],
)
def test_a_recursion_reads_back(pairs: Frontend, query: str) -> None:
    read = pairs.assert_same(query)
    assert any(isinstance(op, Recursion) for op in walk_operators(read.tree))


@pytest.mark.parametrize(
    ("query", "code", "fragment"),
    [
        ("SELECT explode(array(rand())) AS r FROM a", Code.EXPRESSION_NOT_DETERMINISTIC, "rand()"),
        ("SELECT 1 AS one", Code.SOURCE_NOT_TRACKED, "the query"),
        ("SELECT * FROM VALUES (1), (2) AS v(a)", Code.SOURCE_NOT_TRACKED, "the query"),
        ("SELECT a.k FROM a JOIN range(5) r ON a.k = r.id", Code.SOURCE_NOT_TRACKED, "Range"),
    ],
)
def test_what_has_no_changes_or_another_answer_is_refused(
    pairs: Frontend, query: str, code: Code, fragment: str
) -> None:
    assert [(r.code, r.fragment) for r in pairs.refused(query).refusals] == [(code, fragment)]


def test_too_many_constant_rows_are_refused(pairs: Frontend) -> None:
    rows = ", ".join(f"({i})" for i in range(1001))
    refused = pairs.refused(f"SELECT k FROM a UNION ALL SELECT * FROM VALUES {rows} AS v(x)")
    assert [(r.code, r.fragment) for r in refused.refusals] == [(Code.OPERATOR_NOT_SUPPORTED, "VALUES")]
