"""LIMIT in a correlated subquery takes rows for each outer row, whatever the condition compares.

Plain Spark 4.3 takes them once for all outer rows where the condition compares more than two columns (a cast is enough), so DuckDB is
the second opinion here.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import duckdb
from tests.support.stories import tuples_of

import headwater as hw
from headwater.model.tables import RefreshAction

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

FIRST = "(SELECT r.id FROM r WHERE {0} ORDER BY r.id LIMIT 1)"
LATERAL = (
    "SELECT l.id, s.* FROM l LEFT JOIN LATERAL (SELECT r.id AS r, r.a FROM r WHERE {0} ORDER BY r.id LIMIT 1) s ON TRUE"
)
QUERIES = {
    "two_columns": LATERAL.format("l.x = r.a AND l.y = r.b"),
    "a_column_and_a_sum": LATERAL.format("l.x = r.a AND l.y + 0 = r.b"),
    "one_with_two": LATERAL.format("l.x = r.a AND l.x = r.b"),
    "one_with_two_of_which_one_may_be_null": LATERAL.format("l.x = r.a AND l.x <=> r.b"),
    "one_with_two_and_another": LATERAL.format("l.x = r.a AND r.b = l.x AND l.wide = r.wide"),
    "one_with_two_in_a_subquery": "SELECT l.id, "
    "(SELECT q.id FROM (SELECT * FROM r WHERE r.a = l.x) q WHERE q.b = l.x ORDER BY q.id LIMIT 1) AS f FROM l",
    "a_sum": LATERAL.format("l.x + 1 = r.a"),
    "a_wider_outer_type": "SELECT l.id, " + FIRST.format("l.wide = r.a") + " AS f FROM l",
    "a_wider_inner_type": "SELECT l.id, " + FIRST.format("l.x = r.wide") + " AS f FROM l",
    "a_cast_of_both": "SELECT l.id, " + FIRST.format("CAST(l.x AS BIGINT) = CAST(r.a AS BIGINT)") + " AS f FROM l",
    "in_a_condition": "SELECT l.id FROM l WHERE l.id < " + FIRST.format("l.x + 1 = r.a"),
    "in_exists": "SELECT l.id FROM l WHERE EXISTS "
    + FIRST.format("l.x + 1 = r.a").replace("LIMIT 1", "LIMIT 1 OFFSET 1"),
    "in_a_list": "SELECT l.id FROM l WHERE l.id + 8 IN "
    + FIRST.format("l.x + 0 = r.a").replace("LIMIT 1", "LIMIT 1 OFFSET 1"),
    "in_a_subquery_of_a_subquery": "SELECT l.id, (SELECT max(r.id) FROM r WHERE l.x = r.a AND r.id IN "
    "(SELECT q.id FROM r q WHERE q.wide + 0 = r.a ORDER BY q.id LIMIT 1)) AS f FROM l",
    "beside_another_condition": "SELECT l.id, " + FIRST.format("l.x + 0 = r.a OR l.id = r.b") + " AS f FROM l",
}
TABLES = {
    "l": (
        "id INT PRIMARY KEY, x INT, y INT, wide BIGINT",
        "(1, 2, 2, 2), (2, 3, 3, 3), (3, 9, 9, 9), (4, 2, NULL, NULL)",
    ),
    "r": (
        "id INT PRIMARY KEY, a INT, b INT, wide BIGINT",
        "(4, 9, 2, 3), (7, 2, 1, 2), (8, 2, 2, 2), (9, 3, 3, 3), (10, 3, 2, 3), (11, 3, 3, 1)",
    ),
}
STEPS = (
    "INSERT INTO r VALUES (5, 3, 3, 3), (6, 9, 1, 9)",
    "UPDATE l SET x = 3, y = 1, wide = 9 WHERE id = 1",
    "DELETE FROM r WHERE id IN (5, 7)",
)


def test_rows_are_limited_for_each_outer_row(spark: SparkSession, tmp_path: Path) -> None:
    elsewhere = duckdb.connect()
    with hw.connect(tmp_path / "w", spark=spark) as wh:
        for name, (columns, rows) in TABLES.items():
            for statement in (f"CREATE TABLE {name} ({columns})", f"INSERT INTO {name} VALUES {rows}"):
                wh.sql(statement)
                elsewhere.execute(statement)
        seen: dict[str, list[object]] = {name: [] for name in QUERIES}
        for step in ("", *STEPS):
            if step:
                wh.sql(step)
                elsewhere.execute(step)
            for name, query in QUERIES.items():
                if not step:
                    wh.create_stream_table(name, query, refresh_mode="DIFFERENTIAL")
                else:
                    assert wh.refresh(name).action is RefreshAction.DIFFERENTIAL
                found = sorted(tuples_of(wh.table(name)), key=str)
                assert found == sorted(
                    elsewhere.execute(query.replace("<=>", "IS NOT DISTINCT FROM")).fetchall(), key=str
                ), (name, step)
                seen[name].append(found)
        for name, results in seen.items():
            assert all(results[i] for i in (0, -1)), name
            assert any(a != b for a, b in itertools.pairwise(results)), name
            assert wh.verify(name).equal, name
    elsewhere.close()
