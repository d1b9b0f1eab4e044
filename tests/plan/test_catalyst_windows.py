"""Window functions: read back as the same rows, in an order that is total wherever it matters."""

from __future__ import annotations

import pytest
from tests.plan.round_trip import Frontend

from headwater.plan.operators import Window, walk_operators
from headwater.plan.query import Query
from headwater.plan.refusal import Code


def orders_of(query: Query) -> list[str]:
    """Return the order of each window, from the outermost in."""
    return [", ".join(k.sql for k in op.order) for op in walk_operators(query.tree) if isinstance(op, Window)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v) AS r FROM a",
        "SELECT k, rank() OVER (ORDER BY k) AS r, dense_rank() OVER (ORDER BY k) AS d FROM a",
        "SELECT k, percent_rank() OVER (ORDER BY k) AS r, cume_dist() OVER (ORDER BY k) AS d FROM a",
        "SELECT ntile(2) OVER (ORDER BY v) AS n, lead(v) OVER (ORDER BY v) AS l, lag(v, -1) OVER (ORDER BY v) AS m FROM a",
        "SELECT k, v, lag(v, 2, 0) IGNORE NULLS OVER (PARTITION BY k ORDER BY v + 1 DESC) AS l FROM a",
        "SELECT k, sum(v) OVER (PARTITION BY k) AS s, count(*) OVER () AS n FROM a",
        "SELECT k, sum(sum(v)) OVER (ORDER BY k) AS s FROM a GROUP BY k",
        "SELECT sum(v) OVER (ORDER BY k RANGE BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS s FROM a",
        "SELECT sum(v) OVER (ORDER BY k, v ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS s FROM a",
        "SELECT sum(v) OVER (ORDER BY k, v ROWS BETWEEN -1 FOLLOWING AND CURRENT ROW) AS s FROM a",
        "SELECT count(*) OVER (ORDER BY date_add(DATE '2020-01-01', v) RANGE BETWEEN INTERVAL 2 DAYS PRECEDING AND CURRENT ROW)"
        " AS c FROM a",
        "SELECT v, collect_list(v) FILTER (WHERE v > 10) OVER (ORDER BY k, v ROWS 2 PRECEDING) AS c FROM a",
        "SELECT first_value(v) IGNORE NULLS OVER (ORDER BY v ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS f,"
        " nth_value(v, 2) IGNORE NULLS OVER (ORDER BY v ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING) AS n,"
        " last(v) OVER (ORDER BY v ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS l FROM a",
        "SELECT v, first_value(v) OVER (ORDER BY v) AS f FROM a",
        "SELECT count_if(v > 1) OVER (PARTITION BY k) AS m, try_sum(v) OVER (PARTITION BY k) AS t,"
        " sum(v) FILTER (WHERE v > 10) OVER (PARTITION BY k) AS f, sum(v * 1.5D) OVER (PARTITION BY k) AS d FROM a",
        "SELECT k, max_by(s, v) OVER (PARTITION BY k) AS y,"
        " percentile_cont(0.5) WITHIN GROUP (ORDER BY v) OVER (PARTITION BY k) AS p FROM a",
        "SELECT k, listagg(s, ',') OVER (PARTITION BY k) AS x FROM a",
        "SELECT k, listagg(s, ',') WITHIN GROUP (ORDER BY v) OVER (PARTITION BY k) AS x FROM a",
        "SELECT rank() OVER (PARTITION BY k + 1 ORDER BY v + 1, v - 1 DESC) AS c,"
        " max(struct(k, v)) OVER (PARTITION BY k + 1 ORDER BY v + 1, v - 1 DESC) AS m FROM a",
        "SELECT * FROM (SELECT k, v, row_number() OVER (PARTITION BY s ORDER BY v DESC) AS n FROM a) WHERE n = 1",
        "SELECT k, sum(v) OVER (ORDER BY 1) AS s FROM a",
    ],
)
def test_a_window_reads_back(pairs: Frontend, query: str) -> None:
    read = pairs.assert_same(query)
    assert orders_of(read)


def test_each_function_sees_of_the_order_what_it_needs(pairs: Frontend) -> None:
    read = pairs.assert_same(
        "SELECT k, v, s, row_number() OVER (PARTITION BY k ORDER BY v) AS n, rank() OVER (PARTITION BY k ORDER BY v) AS r,"
        " max(v) OVER (PARTITION BY k ORDER BY v ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS m FROM a"
    )
    by_rows = "c2 ASC NULLS FIRST, c3 ASC NULLS FIRST"
    assert orders_of(read) == [by_rows, "c2 ASC NULLS FIRST", ""]
    assert [n for n in read.notices if "tie-break" in n] == list(read.notices)


def test_an_order_that_is_total_stays_as_it_is(pairs: Frontend) -> None:
    read = pairs.assert_same("SELECT k, v, row_number() OVER (ORDER BY v DESC, k) AS n FROM a")
    assert orders_of(read) == ["c2 DESC NULLS LAST, c1 ASC NULLS FIRST"]
    assert read.notices == ()
    read = pairs.assert_same(
        "SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v) AS n, rank() OVER (PARTITION BY k ORDER BY v) AS r FROM a"
    )
    assert orders_of(read) == ["c2 ASC NULLS FIRST"] * 2  # row_number() tells peers apart, rank() does not


@pytest.mark.parametrize(
    ("query", "code", "fragment"),
    [
        (
            "SELECT k, s, first_value(s) OVER (ORDER BY k) AS f FROM a",
            Code.ORDER_DEPENDENT,
            "first_value() OVER (...)",
        ),
        (
            "SELECT k, v, sum(v * 1.5D) OVER (ORDER BY k) AS f FROM a",
            Code.ORDER_DEPENDENT,
            "sum() OVER (...)",
        ),
        (
            "SELECT m, row_number() OVER (ORDER BY k) AS n FROM (SELECT k, map(k, v) AS m FROM a WHERE k > 0)",
            Code.ORDER_DEPENDENT,
            "row_number() OVER (...)",
        ),
        (
            "SELECT approx_percentile(v, 0.5) OVER (PARTITION BY k) AS p FROM a",
            Code.ORDER_DEPENDENT,
            "ApproximatePercentile(...)",
        ),
        (
            "SELECT sum(rand()) OVER (PARTITION BY k) AS p FROM a",
            Code.EXPRESSION_NOT_DETERMINISTIC,
            "rand()",
        ),
    ],
)
def test_a_result_that_depends_on_the_order_of_peers_is_refused(
    pairs: Frontend, query: str, code: Code, fragment: str
) -> None:
    assert [(r.code, r.fragment) for r in pairs.refused(query).refusals] == [(code, fragment)]
