"""Aggregates that depend on the order of rows get a form that does not: a valid answer of the same type, always the same."""

from __future__ import annotations

import pytest
from tests.plan.round_trip import Frontend

from headwater.plan.refusal import Code

ROWS = "(1, 'b', 2, NULL), (1, 'a', 2, 'n'), (1, NULL, 1, 'm'), (1, 'b', NULL, 'z'), (2, NULL, NULL, NULL), (3, 'c', 5, 'c')"


@pytest.fixture(scope="module")
def groups(frontend: Frontend) -> Frontend:
    frontend.add("g", f"SELECT * FROM VALUES {ROWS} AS g(k, s, o, t)")
    frontend.data.sql("SELECT * FROM g ORDER BY o DESC, s DESC, t").createOrReplaceTempView("turned")
    return frontend


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("collect_list(s)", {1: ["a", "b", "b"], 2: [], 3: ["c"]}),
        ("array_agg(s) FILTER (WHERE o IS NOT NULL)", {1: ["a", "b"], 2: [], 3: ["c"]}),
        ("collect_set(s)", {1: ["a", "b"], 2: [], 3: ["c"]}),
        ("collect_list(DISTINCT s)", {1: ["a", "b"], 2: [], 3: ["c"]}),
        ("first(s)", {1: "a", 2: None, 3: "c"}),
        ("last(s)", {1: "b", 2: None, 3: "c"}),
        ("any_value(s)", {1: "a", 2: None, 3: "c"}),
        ("first(s, true)", {1: "a", 2: None, 3: "c"}),
        ("listagg(s, ',')", {1: "a,b,b", 2: None, 3: "c"}),
        ("listagg(s)", {1: "abb", 2: None, 3: "c"}),
        ("listagg(s, ',') FILTER (WHERE o > 1)", {1: "a,b", 2: None, 3: "c"}),
        ("decode(listagg(encode(s, 'UTF-8'), X'2C'), 'UTF-8')", {1: "a,b,b", 2: None, 3: "c"}),
        ("string_agg(DISTINCT s, ',')", {1: "a,b", 2: None, 3: "c"}),
        ("listagg(s, ',') WITHIN GROUP (ORDER BY s DESC)", {1: "b,b,a", 2: None, 3: "c"}),
        ("listagg(DISTINCT s, ',') WITHIN GROUP (ORDER BY s DESC)", {1: "b,a", 2: None, 3: "c"}),
        ("listagg(s, ',') WITHIN GROUP (ORDER BY s)", {1: "a,b,b", 2: None, 3: "c"}),
        ("listagg(s, ',') WITHIN GROUP (ORDER BY o)", {1: "b,a,b", 2: None, 3: "c"}),
        ("mode(s)", {1: "b", 2: None, 3: "c"}),
        ("mode(o)", {1: 2, 2: None, 3: 5}),
        ("max_by(s, o)", {1: "b", 2: None, 3: "c"}),
        ("min_by(s, o)", {1: None, 2: None, 3: "c"}),
        ("max_by(s, o, 2)", {1: ["b", "a"], 2: None, 3: ["c"]}),
        ("approx_percentile(o, 0.5)", {1: 2, 2: None, 3: 5}),
        ("approx_percentile(o, array(0.0, 0.5, 1.0))", {1: [1, 2, 2], 2: None, 3: [5, 5, 5]}),
    ],
)
def test_form_is_valid_and_does_not_depend_on_order(groups: Frontend, call: str, expected: dict[int, object]) -> None:
    query = f"SELECT k, {call} AS x FROM g GROUP BY k"
    read = groups.accepted(query)
    printed = groups.printed(read)
    result = groups.data.sql(printed)
    assert result.schema.simpleString() == groups.data.sql(query).schema.simpleString()
    assert {r["k"]: r["x"] for r in result.collect()} == expected
    turned = groups.data.sql(printed.replace("FROM g)", "FROM turned)"))
    assert {r["k"]: r["x"] for r in turned.collect()} == expected
    assert read.notices or "WITHIN GROUP" in call


@pytest.mark.parametrize(("order", "joined"), [("", "a,b,b,c"), (" WITHIN GROUP (ORDER BY s DESC)", "c,b,b,a")])
def test_listagg_beside_distinct_calls_is_one_that_spark_can_plan(groups: Frontend, order: str, joined: str) -> None:
    read = groups.accepted(f"SELECT listagg(s, ','){order} AS s, count(DISTINCT o) AS o, sum(DISTINCT k) AS k FROM g")
    assert [tuple(r) for r in groups.data.sql(groups.printed(read)).collect()] == [(joined, 3, 6)]


def test_several_firsts_come_from_one_row(groups: Frontend) -> None:
    read = groups.accepted("SELECT k, first(s) AS s, first(o) AS o, first(t) AS t FROM g GROUP BY k")
    stored = {tuple(r) for r in groups.data.sql("SELECT k, s, o, t FROM g").collect()}
    assert {tuple(r) for r in groups.data.sql(groups.printed(read)).collect()} <= stored


def test_ordered_mode_is_not_rewritten(groups: Frontend) -> None:
    assert not groups.assert_same("SELECT mode() WITHIN GROUP (ORDER BY s DESC) AS x FROM g").notices


@pytest.mark.parametrize(
    ("call", "fragment"),
    [
        ("collect_list(map(k, s))", "collect_list()"),
        ("first(map(k, s))", "first()"),
        ("histogram_numeric(o, 3)", "histogram_numeric()"),
        ("hll_sketch_agg(o)", "hll_sketch_agg()"),
        ("kll_sketch_agg_bigint(o)", "kll_sketch_agg_bigint()"),
        ("approx_top_k(s)", "approx_top_k()"),
        ("min(s COLLATE UNICODE_CI)", "min()"),
    ],
)
def test_without_a_canonical_form_it_is_refused(groups: Frontend, call: str, fragment: str) -> None:
    refused = groups.refused(f"SELECT {call} AS x FROM g")
    assert [(r.code, r.fragment) for r in refused.refusals] == [(Code.ORDER_DEPENDENT, fragment)]


def test_grouping_by_a_collated_column_is_refused(groups: Frontend) -> None:
    refused = groups.refused("SELECT c, count(*) AS n FROM (SELECT s COLLATE UNICODE_CI AS c FROM g) GROUP BY c")
    assert [r.code for r in refused.refusals] == [Code.ORDER_DEPENDENT]
