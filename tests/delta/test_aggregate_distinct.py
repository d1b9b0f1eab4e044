"""DISTINCT: how often each (group, value) occurs is kept; a value counts until its last copy is gone."""

from __future__ import annotations

from decimal import Decimal

from tests.support.lab import Lab


def test_count_distinct_counts_copies(lab: Lab) -> None:
    t = lab.table("g STRING, v INT", [("a", 1), ("a", 1), ("a", None), ("b", 2)])
    s = lab.stream(f"SELECT g, count(DISTINCT v) AS n, sum(DISTINCT v) AS s, avg(DISTINCT v) AS a FROM {t} GROUP BY g")
    lab.wh.apply_changes(t, [{"g": "a", "v": 1, "action": "D"}])
    assert s.follow() == [("a", 1, 1, 1.0), ("b", 1, 2, 2.0)]
    lab.wh.apply_changes(t, [{"g": "a", "v": 1, "action": "D"}, {"g": "b", "v": 3, "action": "I"}])
    assert s.follow() == [("a", 0, None, None), ("b", 2, 5, 2.5)]
    lab.sql(f"UPDATE {t} SET v = 3")
    assert s.follow() == [("a", 1, 3, 3.0), ("b", 1, 3, 3.0)]


def test_several_distinct_sources_and_filters(lab: Lab) -> None:
    rows = [(i, "ab"[i % 2], i % 3, f"x{i % 4}", Decimal(i % 5)) for i in range(20)]
    t = lab.table("id BIGINT, g STRING, v INT, w STRING, m DECIMAL(12,2)", rows, key="id")
    s = lab.stream(
        f"SELECT g, count(DISTINCT v) AS a, count(DISTINCT w) AS b, count(DISTINCT v, w) AS c, sum(DISTINCT m) AS d, "
        f"count(DISTINCT v) FILTER (WHERE w <> 'x1') AS e, count(v) AS f, avg(DISTINCT m) AS h, max(DISTINCT v) AS i FROM {t} GROUP BY g"
    )
    lab.sql(f"DELETE FROM {t} WHERE v = 1 AND g = 'a'")
    s.follow()
    lab.sql(f"UPDATE {t} SET w = NULL, m = m + 1 WHERE id % 3 = 0")
    s.follow()
    lab.sql(f"UPDATE {t} SET g = 'a', w = 'x1'")
    assert len(s.follow()) == 1


def test_a_distinct_value_moves_between_groups(lab: Lab) -> None:
    t = lab.table("id BIGINT, g STRING, v INT", [(1, "a", 7), (2, "b", 7), (3, None, 7)], key="id")
    s = lab.stream(f"SELECT g, count(DISTINCT v) AS n FROM {t} GROUP BY g")
    lab.sql(f"UPDATE {t} SET g = 'b' WHERE id = 1")
    assert s.follow() == [(None, 1), ("b", 1)]
    lab.sql(f"UPDATE {t} SET g = NULL, v = 8 WHERE id = 2")
    assert s.follow() == [(None, 2), ("b", 1)]


def test_select_distinct_follows_the_last_copy(lab: Lab) -> None:
    t = lab.table("id BIGINT, g STRING, v INT", [(1, "a", 1), (2, "a", 1), (3, None, None), (4, None, None)], key="id")
    s = lab.stream(f"SELECT DISTINCT g, v FROM {t}")
    lab.sql(f"DELETE FROM {t} WHERE id IN (1, 3)")
    assert s.follow() == [(None, None), ("a", 1)]
    assert s.changes == (0, 0)
    lab.sql(f"DELETE FROM {t} WHERE id IN (2, 4)")
    assert s.follow() == []


def test_distinct_of_floats_has_one_zero_and_one_nan(lab: Lab) -> None:
    t = lab.table(
        "id BIGINT, d DOUBLE", [(1, 0.0), (2, -0.0), (3, float("nan")), (4, float("nan")), (5, 1.5)], key="id"
    )
    s = lab.stream(f"SELECT count(DISTINCT d) AS n, count(DISTINCT -d) AS m, sum(DISTINCT d) AS s FROM {t}")
    assert s.rows() == [(3, 3, "NaN")]
    lab.sql(f"DELETE FROM {t} WHERE id IN (1, 3)")
    assert s.follow() == [(3, 3, "NaN")]
    lab.sql(f"DELETE FROM {t} WHERE id IN (2, 4)")
    assert s.follow() == [(1, 1, 1.5)]


def test_distinct_without_groups_and_on_an_empty_table(lab: Lab) -> None:
    t = lab.table("g STRING")
    s = lab.stream(f"SELECT count(DISTINCT g) AS n, count(*) AS r FROM {t}")
    assert s.rows() == [(0, 0)]
    lab.sql(f"INSERT INTO {t} VALUES ('a'), ('a'), (NULL)")
    assert s.follow() == [(1, 3)]
    lab.sql(f"TRUNCATE TABLE {t}")
    assert s.follow() == [(0, 0)]


def test_distinct_of_structs_and_arrays(lab: Lab) -> None:
    t = lab.table(
        "id BIGINT, a ARRAY<INT>, s STRUCT<x: INT>",
        [(1, [1], {"x": 1}), (2, [1], None), (3, [], {"x": None})],
        key="id",
    )
    s = lab.stream(f"SELECT count(DISTINCT a) AS a, count(DISTINCT s) AS s, count(DISTINCT a, s) AS b FROM {t}")
    assert s.rows() == [(2, 2, 2)]
    lab.sql(f"UPDATE {t} SET a = array(1), s = named_struct('x', 1) WHERE id > 1")
    assert s.follow() == [(1, 1, 1)]


def test_distinct_of_strings_that_a_collation_calls_equal(lab: Lab) -> None:
    t = lab.table("id INT, g INT, s STRING COLLATE UTF8_LCASE", [(1, 1, "a"), (2, 1, "A"), (3, 1, "b")], key="id")
    s = lab.stream(f"SELECT g, count(DISTINCT s) AS n FROM {t} GROUP BY g")
    assert s.rows() == [(1, 2)]
    lab.sql(f"INSERT INTO {t} VALUES (4, 1, 'B'), (5, 1, 'c'), (6, 2, 'x'), (7, 2, 'X')")
    assert s.follow() == [(1, 3), (2, 1)]
    lab.sql(f"DELETE FROM {t} WHERE id IN (1, 3, 5, 6)")
    assert s.follow() == [(1, 2), (2, 1)]
    s.verify()
