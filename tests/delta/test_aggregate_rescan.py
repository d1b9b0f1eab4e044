"""Calls without an algebra: the groups that changed are read again, and only they."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.lab import Lab

import headwater as hw

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_order_by_inside_string_agg_is_kept(lab: Lab) -> None:
    t = lab.table(
        "id BIGINT, g STRING, s STRING, o INT", [(1, "a", "x", 3), (2, "a", "y", 1), (3, "b", "z", 1)], key="id"
    )
    s = lab.stream(f"SELECT g, string_agg(s, ',') WITHIN GROUP (ORDER BY o DESC) AS l FROM {t} GROUP BY g")
    assert s.rows() == [("a", "x,y"), ("b", "z")]
    lab.sql(f"INSERT INTO {t} VALUES (4, 'a', 'w', 2)")
    assert s.follow() == [("a", "x,w,y"), ("b", "z")]
    assert s.changes == (1, 1)
    lab.sql(f"UPDATE {t} SET o = 9 WHERE id = 2")
    assert s.follow() == [("a", "y,x,w"), ("b", "z")]


def test_only_changed_groups_are_read_again(lab: Lab) -> None:
    t = lab.table("id BIGINT, g INT, v INT", [(i, i % 10, i) for i in range(40)], key="id")
    s = lab.stream(f"SELECT g, median(v) AS m, mode(v) AS o FROM {t} GROUP BY g", free=("o",))
    lab.sql(f"UPDATE {t} SET v = 100 WHERE id IN (3, 13)")
    s.follow()
    assert s.rescanned == 1
    assert s.changes == (1, 1)


def test_a_group_that_moves_disappears_and_appears(lab: Lab) -> None:
    t = lab.table("id BIGINT, g STRING, v INT", [(1, "a", 1), (2, None, 2)], key="id")
    s = lab.stream(f"SELECT g, sort_array(collect_set(v)) AS c FROM {t} GROUP BY g")
    lab.sql(f"UPDATE {t} SET g = CASE WHEN g IS NULL THEN 'b' END")
    assert s.follow() == [(None, (1,)), ("b", (2,))]
    lab.sql(f"TRUNCATE TABLE {t}")
    assert s.follow() == []


def test_every_order_dependent_call_follows(lab: Lab) -> None:
    rows = [(i, "abc"[i % 3], i % 4, f"n{i % 5}") for i in range(15)]
    t = lab.table("id BIGINT, g STRING, v INT, n STRING", rows, key="id")
    calls = {
        "a": "collect_list(v)",
        "b": "first(n)",
        "c": "last(v)",
        "d": "any_value(v)",
        "e": "max_by(n, v)",
        "f": "min_by(n, v)",
        "h": "mode(v)",
        "i": "listagg(n, '|')",
        "j": "approx_percentile(v, 0.5)",
        "k": "array_agg(v)",
    }
    items = ", ".join(f"{c} AS {n}" for n, c in calls.items())
    s = lab.stream(f"SELECT g, count(*) AS n, {items} FROM {t} GROUP BY g", free=tuple(calls))
    lab.sql(f"UPDATE {t} SET v = v + 1 WHERE id % 2 = 0")
    s.follow()
    lab.sql(f"DELETE FROM {t} WHERE id < 5")
    assert len(s.follow()) == 3


def test_a_rescan_over_a_filter_and_an_expression_key(lab: Lab) -> None:
    t = lab.table("id BIGINT, g STRING, v INT", [(1, "a", 1), (2, "A", 2), (3, "b", 3), (4, "a", None)], key="id")
    s = lab.stream(
        f"SELECT upper(g) AS u, sort_array(collect_list(v * 2)) AS c FROM {t} WHERE coalesce(v, 0) < 5 GROUP BY upper(g)"
    )
    lab.sql(f"UPDATE {t} SET v = 9 WHERE id = 2")
    assert s.follow() == [("A", (2,)), ("B", (6,))]
    lab.sql(f"UPDATE {t} SET g = 'B', v = 4 WHERE id IN (1, 2)")
    assert s.follow() == [("A", ()), ("B", (6, 8, 8))]


def test_floating_point_sums_do_not_name_groups(lab: Lab) -> None:
    t = lab.table("id BIGINT, k STRING, d DOUBLE", [(1, "a", 0.1), (2, "b", 5.0)], key="id")
    inner = f"SELECT k, sum(d) AS s, count(*) AS n FROM {t} GROUP BY k"

    def codes(query: str) -> list[str]:
        return [r.code.value for r in lab.wh.validate_query(query).refusals]

    assert codes(f"SELECT s, count(*) AS c FROM ({inner}) GROUP BY s") == ["ORDER_DEPENDENT"]
    assert codes(f"SELECT s * 2 AS x, count(*) AS c FROM ({inner}) GROUP BY s * 2") == ["ORDER_DEPENDENT"]
    assert codes(f"SELECT count(DISTINCT s) AS c FROM ({inner})") == ["ORDER_DEPENDENT"]
    assert codes(f"SELECT m, count(*) AS c FROM (SELECT n, max(s) AS m FROM ({inner}) GROUP BY n) GROUP BY m") == [
        "ORDER_DEPENDENT"
    ]
    assert codes(f"SELECT round(s, 2) AS x, count(*) AS c FROM ({inner}) GROUP BY round(s, 2)") == []
    assert codes(f"SELECT n, min(s) AS c, collect_list(s) AS l FROM ({inner}) GROUP BY n") == []


def test_a_rescan_over_another_aggregate_reads_its_kept_sums(tmp_path: Path, spark: SparkSession) -> None:
    """0.1 + 100000.3 + 0.2 - 100000.3 is not 0.1 + 0.2: the group that is read again must see the sum that left it."""
    with hw.connect(tmp_path / "warehouse", spark=spark, settings={"extremum_buffer": 1}) as wh:
        lab = Lab(wh)
        rows = [(1, "a", 0.1), (2, "a", 100000.3), (3, "a", 0.2), (4, "b", 5.0), (5, "c", 7.0)]
        t = lab.table("id BIGINT, k STRING, d DOUBLE", rows, key="id")
        inner = f"SELECT k, sum(d) AS s FROM {t} GROUP BY k"
        lists = lab.stream(f"SELECT round(s, 3) AS r, collect_list(k) AS c FROM ({inner}) GROUP BY round(s, 3)")
        least = lab.stream(f"SELECT min(s) AS m, max(s) AS x, count(*) AS n FROM ({inner})")
        middle = lab.stream(f"SELECT median(s) AS l FROM ({inner})")
        for change in (
            f"DELETE FROM {t} WHERE id = 2",
            f"INSERT INTO {t} VALUES (6, 'b', 1.0)",
            f"DELETE FROM {t} WHERE k = 'a'",
            f"UPDATE {t} SET d = d + 0.1",
            f"DELETE FROM {t} WHERE k = 'b'",
        ):
            lab.sql(change)
            assert lists.follow() != []
            assert lists.changes != (0, 0)
            least.follow()
            assert middle.follow() != []
        assert least.rows() == [(7.1, 7.1, 1)]
        assert lists.rows() == [(7.1, ("c",))]


def test_a_change_that_the_filter_hides_leaves_its_group_alone(lab: Lab) -> None:
    t = lab.table("id BIGINT, g STRING, v INT", [(1, "a", 9), (2, "a", 1), (3, "b", 7)], key="id")
    s = lab.stream(f"SELECT g, sort_array(collect_list(v)) AS c FROM {t} WHERE v > 5 GROUP BY g")
    lab.sql(f"UPDATE {t} SET v = 2 WHERE id = 2")
    assert s.follow() == [("a", (9,)), ("b", (7,))]
    assert s.changes == (0, 0)


def test_a_rescanned_call_beside_algebraic_ones_and_extremes(lab: Lab) -> None:
    t = lab.table("id BIGINT, g STRING, v INT, d DOUBLE", [(i, "ab"[i % 2], i, i / 4) for i in range(10)], key="id")
    s = lab.stream(
        f"SELECT g, count(*) AS n, sum(v) AS s, min(v) AS lo, avg(d) AS a, count(DISTINCT v) AS c, percentile(v, 0.9) AS p "
        f"FROM {t} GROUP BY g HAVING count(*) > 2"
    )
    lab.sql(f"DELETE FROM {t} WHERE id IN (0, 2, 4)")
    assert [row[0] for row in s.follow()] == ["b"]
    lab.sql(f"UPDATE {t} SET g = 'a', v = 0 WHERE id = 1")
    assert [row[:4] for row in s.follow()] == [("a", 3, 14, 0), ("b", 4, 24, 3)]


def test_an_ordered_list_beside_a_distinct_sum_starts_from_an_empty_table(lab: Lab) -> None:
    t = lab.table("g STRING, v INT")
    s = lab.stream(f"SELECT listagg(g, ',') WITHIN GROUP (ORDER BY g DESC) AS l, sum(DISTINCT v) AS v FROM {t}")
    assert s.rows() == [(None, None)]
    lab.sql(f"INSERT INTO {t} VALUES ('a', 1), ('b', 1), (NULL, 2)")
    assert s.follow() == [("b,a", 3)]
