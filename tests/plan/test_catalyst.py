"""Plans become operator trees in normal form; each accepted construct has a refused neighbour."""

from __future__ import annotations

import pytest
from tests.plan.round_trip import Frontend

from headwater.errors import QueryError
from headwater.plan.operators import Aggregate, Expand, Filter, Project, Scan, Union, walk_operators
from headwater.plan.printer import sql
from headwater.plan.query import Query, read_query
from headwater.plan.refusal import Code
from headwater.plan.scope import Session


def kinds(query: Query) -> list[str]:
    return [type(op).__name__ for op in walk_operators(query.tree)]


@pytest.mark.parametrize(
    ("query", "tree", "printed"),
    [
        (
            "SELECT id, region FROM orders WHERE amount > 5",
            ["Project", "Filter", "Scan"],
            "SELECT c1, c2 FROM (SELECT `id` AS c1, `region` AS c2, `amount` AS c3 FROM orders)"
            " WHERE (c3 > CAST(CAST(5 AS DECIMAL(1,0)) AS DECIMAL(4,2)))",
        ),
        (
            "SELECT region, count(*) AS n, sum(amount) AS total FROM orders GROUP BY region",
            ["Aggregate", "Scan"],
            "SELECT c2, count(1) AS c6, sum(c3) AS c7 FROM (SELECT `region` AS c2, `amount` AS c3 FROM orders) GROUP BY c2",
        ),
        (
            "SELECT DISTINCT region FROM orders",
            ["Aggregate", "Scan"],
            "SELECT c2 FROM (SELECT `region` AS c2 FROM orders) GROUP BY c2",
        ),
        (
            "SELECT upper(region) AS r, sum(amount) / count(*) AS a FROM orders GROUP BY upper(region) HAVING count(*) > 1",
            ["Project", "Filter", "Project", "Aggregate", "Project", "Scan"],
            None,
        ),
        ("SELECT id FROM orders UNION ALL SELECT id + 1 FROM orders", ["Union", "Scan", "Project", "Scan"], None),
        ("SELECT region, sum(id) AS s FROM orders GROUP BY ROLLUP (region)", None, None),
        (
            "SELECT count(*) AS n FROM orders",
            ["Aggregate", "Scan"],
            "SELECT count(1) AS c6 FROM (SELECT 1 FROM orders)",
        ),
        ("SELECT 1 AS one FROM orders HAVING true", None, None),
        ("SELECT id, id, id AS other FROM orders", ["Project", "Scan"], None),
        ("SELECT region, region, count(*) AS n FROM orders GROUP BY region", None, None),
        ("SELECT sum(id), count(*) AS `a``b c` FROM orders", None, None),
        (
            "WITH big AS (SELECT * FROM orders WHERE amount > 8) SELECT region FROM big UNION SELECT region FROM big",
            None,
            None,
        ),
        ("SELECT 'x' AS k, count(*) AS n FROM orders GROUP BY 'x'", None, None),
        ("SELECT count(*) + 1 AS n FROM orders WHERE id > 100", None, None),
        ("SELECT region, count(*) AS n FROM orders WHERE id > 100 GROUP BY region", None, None),
        (
            "SELECT region, id % 2 AS odd, grouping_id() AS g, count(*) AS n FROM orders GROUP BY CUBE (region, id % 2)",
            None,
            None,
        ),
        ("SELECT sum(a) AS s FROM (SELECT region, avg(amount) AS a FROM orders GROUP BY region)", None, None),
        (
            "SELECT transform(tags, x -> x + 1) AS t, count(*) AS n FROM orders GROUP BY transform(tags, y -> y + 1)",
            None,
            None,
        ),
        ("SELECT /*+ REPARTITION(3) */ id FROM orders", ["Scan"], None),
        ("SELECT * FROM orders", ["Scan"], None),
        (
            "SELECT window(t, '10 seconds', '5 seconds').start AS s, count(*) AS n FROM (SELECT timestamp(id) AS t FROM orders)"
            " GROUP BY window(t, '10 seconds', '5 seconds')",
            None,
            None,
        ),
        (
            "SELECT region, nullif(id, 1) AS x FROM (SELECT region, id + 0 AS id FROM orders) WHERE nvl2(region, true, false)",
            None,
            None,
        ),
        (
            "SELECT * FROM (SELECT region, amount FROM orders) PIVOT (sum(amount) FOR region IN ('north', 'south'))",
            None,
            None,
        ),
    ],
)
def test_query_becomes_a_tree_with_the_same_meaning(
    orders: Frontend, query: str, tree: list[str] | None, printed: str | None
) -> None:
    read = orders.assert_same(query)
    assert tree is None or kinds(read) == tree
    assert printed is None or sql(read.tree, lambda leaf: leaf.table) == printed
    assert set(kinds(read)) <= {t.__name__ for t in (Scan, Filter, Project, Aggregate, Expand, Union)}
    assert read.sources == ("orders",)


def test_every_column_has_a_type(orders: Frontend) -> None:
    read = orders.accepted("SELECT upper(region) AS r, sum(amount) / count(*) AS a FROM orders GROUP BY upper(region)")
    columns = [c for op in walk_operators(read.tree) for c in op.output]
    assert all(c.type for c in columns)
    assert [(c.name, c.type, c.nullable) for c in read.columns] == [
        ("r", "STRING", True),
        ("a", "DECIMAL(35,23)", True),
    ]


def test_ids_do_not_depend_on_what_was_planned_before(orders: Frontend) -> None:
    query = "SELECT region, count(*) AS n FROM orders GROUP BY region"
    assert orders.accepted(query).tree == orders.accepted(query).tree


def test_order_by_is_dropped_with_a_notice(orders: Frontend) -> None:
    read = orders.assert_same("SELECT id FROM orders ORDER BY amount DESC")
    assert read.notices == ("ORDER BY is dropped: a stream table is a set of rows, give the order when you read it.",)


def test_a_frame_is_read_like_its_text(orders: Frontend) -> None:
    frame = orders.planning.table("orders").groupBy("region").count()
    session = Session(orders.planner.function_names(), orders.planner.is_ansi())
    read = read_query(orders.planner.analyze_frame(frame), session, orders.planner.schema_of)
    assert isinstance(read, Query)
    assert read.names == ("region", "count")
    assert orders.answer(orders.printed(read)) == orders.answer(
        "SELECT region, count(*) AS count FROM orders GROUP BY region"
    )


def test_duplicates_dropped_by_a_frame_leave_real_rows(orders: Frontend) -> None:
    frame = orders.planning.table("orders").select("region", "id", "amount").dropDuplicates(["region"])
    session = Session(orders.planner.function_names(), orders.planner.is_ansi())
    read = read_query(orders.planner.analyze_frame(frame), session, orders.planner.schema_of)
    assert isinstance(read, Query)
    rows = {tuple(r) for r in orders.data.sql(orders.printed(read)).collect()}
    assert len(rows) == 3
    assert rows <= {tuple(r) for r in orders.data.sql("SELECT region, id, amount FROM orders").collect()}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT id FROM orders TABLESAMPLE (50 PERCENT)", [(Code.OPERATOR_NOT_SUPPORTED, "TABLESAMPLE")]),
        (
            "SELECT a, session_window(t, '5 minutes') AS w, count(*) AS n FROM (SELECT id AS a, timestamp(id) AS t FROM orders)"
            " GROUP BY a, session_window(t, '5 minutes')",
            [(Code.OPERATOR_NOT_SUPPORTED, "session_window()")],
        ),
        ("SELECT rand() AS r FROM orders", [(Code.EXPRESSION_NOT_DETERMINISTIC, "rand()")]),
        ("SELECT uuid() AS u FROM orders", [(Code.EXPRESSION_NOT_DETERMINISTIC, "uuid()")]),
        ("SELECT id FROM orders WHERE current_date() > DATE '2024-01-01'", [(Code.TIME_DEPENDENT, "current_date()")]),
        ("SELECT unix_timestamp() AS u FROM orders", [(Code.TIME_DEPENDENT, "current_timestamp()")]),
        ("SELECT CAST('now' AS TIMESTAMP) AS n FROM orders", [(Code.TIME_DEPENDENT, "CAST('now' AS TIMESTAMP)")]),
        ("SELECT current_user() AS u FROM orders", [(Code.ENVIRONMENT_DEPENDENT, "current_user()")]),
        (
            "SELECT aes_encrypt('a', '0123456789abcdef') AS e FROM orders",
            [(Code.EXPRESSION_NOT_DETERMINISTIC, "aes_encrypt()")],
        ),
        (
            "SELECT rand() AS r, now() AS n FROM orders TABLESAMPLE (50 PERCENT) JOIN orders o USING (id)"
            " ORDER BY uuid() LIMIT 3",
            [
                (Code.EXPRESSION_NOT_DETERMINISTIC, "uuid()"),
                (Code.OPERATOR_NOT_SUPPORTED, "TABLESAMPLE"),
                (Code.EXPRESSION_NOT_DETERMINISTIC, "rand()"),
                (Code.TIME_DEPENDENT, "now()"),
            ],
        ),
    ],
)
def test_what_cannot_be_maintained_is_refused_by_name(
    orders: Frontend, query: str, found: list[tuple[Code, str]]
) -> None:
    refused = orders.refused(query)
    assert sorted((r.code.value, r.fragment) for r in refused.refusals) == sorted((c.value, f) for c, f in found)
    assert all(r.detail and r.hint for r in refused.refusals)


def test_a_python_function_is_refused(orders: Frontend) -> None:
    orders.planning.udf.register("shout", lambda text: text)
    refused = orders.refused("SELECT shout(region) AS r FROM orders")
    assert [(r.code, r.fragment) for r in refused.refusals] == [(Code.FUNCTION_NOT_PRINTABLE, "shout")]


def test_a_python_function_that_is_not_deterministic_is_refused(orders: Frontend) -> None:
    from pyspark.sql.functions import udf

    orders.planning.udf.register("dice", udf(lambda: "1").asNondeterministic())
    refused = orders.refused("SELECT dice() AS r FROM orders")
    assert [(r.code, r.fragment) for r in refused.refusals] == [(Code.UDF_NOT_DETERMINISTIC, "dice")]


@pytest.mark.parametrize(
    ("query", "condition", "position"),
    [
        ("SELECT nothing FROM orders", "UNRESOLVED_COLUMN.WITH_SUGGESTION", "line 1 pos 7"),
        ("SELECT id FROM missing", "TABLE_OR_VIEW_NOT_FOUND", "line 1 pos 15"),
        ("SELECT (id FROM orders", "PARSE_SYNTAX_ERROR", "pos "),
        ("SELECT id + array(1) AS x FROM orders", "DATATYPE_MISMATCH", "line 1 pos 7"),
    ],
)
def test_errors_keep_the_words_of_spark(
    orders: Frontend, capfd: pytest.CaptureFixture[str], query: str, condition: str, position: str
) -> None:
    with pytest.raises(QueryError) as raised:
        orders.planner.analyze(query)
    assert condition in str(raised.value.detail)
    assert position in str(raised.value.detail)
    assert condition in str(raised.value.hint)
    assert "SQLQueryContextLogger" not in capfd.readouterr().err
