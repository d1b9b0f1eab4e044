"""Joins, and what Catalyst makes joins of, read back as the same rows."""

from __future__ import annotations

import pytest
from tests.plan.round_trip import Frontend

from headwater.plan.operators import Join, JoinKind, walk_operators
from headwater.plan.query import Query
from headwater.plan.refusal import Code


def joins(query: Query) -> list[JoinKind]:
    return [op.kind for op in walk_operators(query.tree) if isinstance(op, Join)]


def conditions(query: Query) -> list[str]:
    return [c.sql for op in walk_operators(query.tree) if isinstance(op, Join) for c in op.conditions]


@pytest.mark.parametrize(
    ("query", "kinds"),
    [
        ("SELECT * FROM a JOIN b ON a.k = b.k", [JoinKind.INNER]),
        ("SELECT * FROM a CROSS JOIN b", [JoinKind.INNER]),
        ("SELECT * FROM a JOIN b ON a.v < b.v", [JoinKind.INNER]),
        ("SELECT * FROM a NATURAL JOIN b", [JoinKind.INNER]),
        ("SELECT x.k, y.v FROM a x JOIN a y ON x.k = y.v OR x.v = y.k", [JoinKind.INNER]),
        ("SELECT a.k, b.v FROM a LEFT JOIN b ON a.k = b.k AND a.v > 10", [JoinKind.LEFT]),
        ("SELECT a.k, b.v FROM a LEFT JOIN b ON a.k = b.k WHERE b.v > 3", [JoinKind.INNER]),
        ("SELECT * FROM a RIGHT JOIN b ON a.k = b.k AND a.v > 10", [JoinKind.LEFT]),
        ("SELECT a.s, b.v, k FROM a RIGHT JOIN b USING (k)", [JoinKind.LEFT]),
        ("SELECT * FROM a FULL JOIN b USING (k)", [JoinKind.FULL]),
        ("SELECT * FROM a LEFT SEMI JOIN b ON a.k = b.k", [JoinKind.SEMI]),
        ("SELECT * FROM a LEFT ANTI JOIN b ON a.k = b.k", [JoinKind.ANTI]),
        ("SELECT * FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k)", [JoinKind.ANTI]),
        ("SELECT * FROM a WHERE k NOT IN (SELECT k FROM b WHERE k > 1)", [JoinKind.ANTI]),
        ("SELECT * FROM a WHERE (k, v) NOT IN (SELECT k, v FROM b)", [JoinKind.ANTI]),
        ("SELECT * FROM a WHERE k IN (SELECT k FROM b) OR k IN (SELECT k FROM b2)", [JoinKind.EXISTENCE] * 2),
        ("SELECT * FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k) OR v > 15", [JoinKind.EXISTENCE]),
        ("SELECT k IN (SELECT k FROM b) AS q FROM a", [JoinKind.EXISTENCE]),
        ("SELECT CASE WHEN EXISTS (SELECT 1 FROM b WHERE v > 9) THEN k ELSE v END AS x FROM a", [JoinKind.EXISTENCE]),
        ("SELECT CASE WHEN k IN (SELECT k FROM b) THEN 1 ELSE 0 END AS x, count(*) AS n FROM a GROUP BY 1", None),
        ("SELECT * FROM a WHERE k NOT IN (SELECT k FROM b WHERE b.v > a.v) OR v > 20", [JoinKind.EXISTENCE]),
        (
            "SELECT x.* FROM a x LEFT JOIN b y ON x.k = y.k AND EXISTS (SELECT 1 FROM e WHERE e.src = x.k)",
            [JoinKind.LEFT, JoinKind.EXISTENCE],
        ),
        (
            "SELECT * FROM a WHERE k IN (SELECT k FROM b WHERE b.k IN (SELECT src FROM e WHERE e.dst IN (SELECT k FROM b)))",
            [JoinKind.SEMI] * 3,
        ),
        ("SELECT k FROM a INTERSECT SELECT k FROM b", [JoinKind.SEMI]),
        ("SELECT k FROM a EXCEPT SELECT k FROM b", [JoinKind.ANTI]),
        ("SELECT k, s FROM a EXCEPT ALL SELECT k, s FROM b", []),
        ("SELECT k FROM a INTERSECT ALL SELECT k FROM b", []),
        ("SELECT *, (SELECT max(v) FROM b WHERE b.k = a.k) AS m FROM a", [JoinKind.LEFT]),
        ("SELECT *, (SELECT v FROM b WHERE b.k = a.k) AS m FROM a", [JoinKind.SINGLE]),
        ("SELECT *, (SELECT count(*) FROM b WHERE b.k = a.k) AS m FROM a", [JoinKind.LEFT]),
        ("SELECT sum((SELECT max(v) FROM b WHERE b.k = a.k)) AS t FROM a", [JoinKind.LEFT]),
        ("SELECT a.k, x.m FROM a, LATERAL (SELECT a.v + 1 AS m) x", []),
        ("SELECT a.k, x.m FROM a, LATERAL (SELECT max(v) AS m FROM b WHERE b.k = a.k) x", None),
        ("SELECT a.k, x.m FROM a LEFT JOIN LATERAL (SELECT v AS m FROM b WHERE b.k > a.k ORDER BY v LIMIT 1) x", None),
        ("SELECT k, (SELECT v FROM b WHERE b.k = a.k ORDER BY v DESC LIMIT 1) AS t FROM a", None),
        (
            "WITH c AS (SELECT k, max(v) AS m FROM a GROUP BY k) SELECT * FROM c x JOIN c y ON x.k = y.k",
            [JoinKind.INNER],
        ),
        ("SELECT x.k FROM a x JOIN a y USING (k) JOIN a z USING (k)", [JoinKind.INNER] * 2),
    ],
)
def test_a_join_reads_as_its_kind(pairs: Frontend, query: str, kinds: list[JoinKind] | None) -> None:
    read = pairs.assert_same(query)
    assert kinds is None or joins(read) == kinds


@pytest.mark.parametrize(
    ("query", "kinds"),
    [
        ("SELECT * FROM a WHERE v < (SELECT avg(v) FROM b)", [JoinKind.INNER]),
        (
            "SELECT * FROM a WHERE v < (SELECT v FROM b WHERE k = 1) AND k < (SELECT v FROM b WHERE k = 1)",
            [JoinKind.SINGLE],
        ),
        ("SELECT *, (SELECT v FROM b WHERE k = 9) AS missing FROM a", [JoinKind.SINGLE]),
        (
            "SELECT k, sum(v) + (SELECT max(v) FROM b) AS x, sum(v + (SELECT min(v) FROM b)) AS y FROM a GROUP BY k"
            " HAVING sum(v) < (SELECT min(v) FROM b)",
            [JoinKind.INNER] * 3,
        ),
        (
            "SELECT k + (SELECT max(v) FROM b) AS z, (SELECT max(v) FROM b) AS y, count(*) AS n FROM a"
            " GROUP BY k + (SELECT max(v) FROM b)",
            [JoinKind.INNER] * 2,
        ),
        ("SELECT (SELECT max(v) FROM b) AS y, (SELECT max(v) FROM b) + count(*) AS n FROM a", [JoinKind.INNER]),
        ("SELECT *, (SELECT max(v) FROM b WHERE v > (SELECT min(v) FROM a)) AS y FROM a", [JoinKind.INNER] * 2),
        ("SELECT * FROM a LEFT JOIN b ON a.k = b.k AND a.v + b.v > (SELECT min(v) FROM b2)", None),
        ("SELECT k, v, sum(v) OVER (PARTITION BY k ORDER BY v) + (SELECT max(v) FROM b) AS t FROM a", [JoinKind.INNER]),
        ("SELECT k, v FROM a ORDER BY v * (SELECT max(k) FROM b), k LIMIT 2", [JoinKind.INNER]),
        ("SELECT * FROM a WHERE k IN (SELECT k FROM b WHERE v = (SELECT max(v) FROM b2 WHERE k < 3))", None),
    ],
)
def test_a_scalar_subquery_becomes_a_column(pairs: Frontend, query: str, kinds: list[JoinKind] | None) -> None:
    read = pairs.assert_same(query)
    assert kinds is None or joins(read) == kinds


def test_a_scalar_subquery_with_two_rows_still_fails(pairs: Frontend) -> None:
    query = "SELECT k, (SELECT v FROM b) AS v FROM a"
    printed = pairs.printed(pairs.accepted(query))
    assert pairs.answer(printed).error == pairs.answer(query).error != ""


def test_conditions_are_conjuncts_in_forms_that_show_their_keys(pairs: Frontend) -> None:
    read = pairs.accepted("SELECT * FROM a JOIN b ON a.k = b.k AND a.s <=> b.s AND a.v < b.v")
    assert conditions(read) == ["(c1 = c4)", "(c3 <=> c6)", "(c2 < c5)"]
    read = pairs.accepted("SELECT * FROM a WHERE k NOT IN (SELECT k FROM b)")
    assert conditions(read) == ["((c1 = c4) OR ((c1 = c4) IS NULL))"]
    assert read.sources == ("a", "b")


def test_tables_of_one_schema_are_told_apart(pairs: Frontend) -> None:
    read = pairs.accepted("SELECT * FROM a WHERE k IN (SELECT k FROM b) OR k IN (SELECT k FROM b2)")
    assert read.sources == ("a", "b", "b2")


def test_what_an_outer_join_fills_with_nulls_is_nullable(pairs: Frontend) -> None:
    pairs.add("n", "SELECT * FROM VALUES (1, 2) AS t(k, w)")
    read = pairs.accepted("SELECT n.w, m.w AS w2 FROM n LEFT JOIN (SELECT w, k FROM n) m ON n.w = m.k")
    assert [(c.name, c.nullable) for c in read.columns] == [("w", False), ("w2", True)]
    (join,) = [op for op in walk_operators(read.tree) if isinstance(op, Join)]
    assert all(c.nullable for c in join.right.output)
    read = pairs.accepted("SELECT n.w, m.w AS w2 FROM n FULL JOIN (SELECT w, k FROM n) m ON n.w = m.k")
    assert all(c.nullable for c in read.columns)


@pytest.mark.parametrize(
    ("query", "code", "fragment"),
    [
        ("SELECT a.k FROM a JOIN (SELECT rand() AS k FROM b) b USING (k)", Code.EXPRESSION_NOT_DETERMINISTIC, "rand()"),
        ("SELECT k FROM a WHERE k IN (SELECT k FROM b LIMIT 1)", Code.ORDER_DEPENDENT, "LIMIT without ORDER BY"),
        ("SELECT (SELECT max(current_date()) FROM b) AS d FROM a", Code.TIME_DEPENDENT, "current_date()"),
        (
            "SELECT a.k, x.m FROM a, LATERAL (SELECT v AS m FROM b WHERE b.k > a.k LIMIT 1) x",
            Code.ORDER_DEPENDENT,
            "LIMIT without ORDER BY",
        ),
    ],
)
def test_what_cannot_be_maintained_is_found_in_joins(pairs: Frontend, query: str, code: Code, fragment: str) -> None:
    assert [(r.code, r.fragment) for r in pairs.refused(query).refusals] == [(code, fragment)]
