"""delta(expand(R)) = expand(delta R): the grouping id keeps NULL as "all" apart from NULL as a value."""

from __future__ import annotations

from tests.support.lab import Lab


def test_rollup_keeps_the_null_group_apart_from_the_total(lab: Lab) -> None:
    t = lab.table("id BIGINT, g STRING, v INT", [(1, None, 1), (2, "a", 2), (3, None, 4)], key="id")
    s = lab.stream(f"SELECT g, grouping(g) AS all, sum(v) AS s FROM {t} GROUP BY ROLLUP (g)")
    assert s.rows() == [(None, 0, 5), (None, 1, 7), ("a", 0, 2)]
    lab.sql(f"DELETE FROM {t} WHERE id = 1")
    assert s.follow() == [(None, 0, 4), (None, 1, 6), ("a", 0, 2)]
    lab.sql(f"UPDATE {t} SET g = NULL WHERE id = 2")
    assert s.follow() == [(None, 0, 6), (None, 1, 6)]


def test_cube_with_extremum_and_distinct(lab: Lab) -> None:
    rows = [(i, "abc"[i % 3], i % 2 == 0, i % 5) for i in range(12)]
    t = lab.table("id BIGINT, g STRING, b BOOLEAN, v INT", rows, key="id")
    s = lab.stream(
        f"SELECT g, b, grouping_id() AS i, max(v) AS m, count(DISTINCT v) AS d FROM {t} GROUP BY CUBE (g, b)"
    )
    lab.sql(f"DELETE FROM {t} WHERE v = 4")
    s.follow()
    lab.sql(f"UPDATE {t} SET g = NULL, b = NULL, v = 9 WHERE id < 4")
    s.follow()
    lab.sql(f"DELETE FROM {t} WHERE g IS NULL")
    assert s.follow()


def test_grouping_sets_with_the_same_set_twice(lab: Lab) -> None:
    t = lab.table("g STRING, v INT", [("a", 1), ("b", 2)])
    s = lab.stream(f"SELECT g, count(*) AS n FROM {t} GROUP BY GROUPING SETS ((g), (g), ())")
    lab.sql(f"INSERT INTO {t} VALUES ('a', 5)")
    s.follow()
    lab.sql(f"DELETE FROM {t} WHERE g = 'b'")
    assert ("a", 2) in s.follow()


def test_a_table_that_runs_empty_and_fills_again(lab: Lab) -> None:
    t = lab.table("g STRING, v INT", [("a", 1)])
    s = lab.stream(f"SELECT g, sum(v) AS s, collect_list(v) AS c FROM {t} GROUP BY ROLLUP (g)")
    lab.sql(f"TRUNCATE TABLE {t}")
    s.follow()
    lab.sql(f"INSERT INTO {t} VALUES (NULL, 3)")
    assert s.follow() == [(None, 3, (3,)), (None, 3, (3,))]


def test_grouping_sets_right_above_a_union(lab: Lab) -> None:
    t = lab.table("g STRING, h STRING, v INT", [("a", "x", 1), ("b", None, 2)])
    union = f"SELECT g, v FROM {t} UNION ALL SELECT h, v FROM {t}"
    s = lab.stream(f"SELECT g, grouping(g) AS all, count(*) AS n, sum(v) AS s FROM ({union}) GROUP BY ROLLUP (g)")
    assert s.rows() == [(None, 0, 1, 2), (None, 1, 4, 6), ("a", 0, 1, 1), ("b", 0, 1, 2), ("x", 0, 1, 1)]
    lab.sql(f"INSERT INTO {t} VALUES ('x', NULL, 10)")
    s.follow()
    lab.sql(f"DELETE FROM {t} WHERE g = 'a'")
    assert s.follow() == [(None, 0, 2, 12), (None, 1, 4, 24), ("b", 0, 1, 2), ("x", 0, 1, 10)]
