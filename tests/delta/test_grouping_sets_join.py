"""GROUPING SETS, PIVOT and UNPIVOT over joins: rows are multiplied or folded above the join, and the grouping id keeps them apart."""

from __future__ import annotations

from tests.support.stories import Story

JOINED = "FROM sales s JOIN shops p ON s.shop = p.id"


def shops(story: Story) -> None:
    story.table("shops", "id INT, city STRING", [(1, "Bonn"), (2, "Rome"), (3, None)], key="id")
    story.table(
        "sales",
        "id INT, shop INT, kind STRING, v INT",
        [(1, 1, "x", 1), (2, 1, "y", 2), (3, 2, "x", 4), (4, 3, "x", 8)],
        key="id",
    )


def test_rollup_over_a_join_keeps_null_apart_from_the_total(story: Story) -> None:
    shops(story)
    s = story.stream(
        f"SELECT p.city, grouping(p.city) AS is_total, sum(s.v) AS total, count(*) AS n {JOINED} GROUP BY ROLLUP (p.city)"
    )
    assert s.rows() == [(None, 0, 8, 1), (None, 1, 15, 4), ("Bonn", 0, 3, 2), ("Rome", 0, 4, 1)]
    story.change("UPDATE shops SET city = 'Bonn' WHERE id = 3", "DELETE FROM sales WHERE id = 1")
    assert s.refreshed() == [(None, 1, 14, 3), ("Bonn", 0, 10, 2), ("Rome", 0, 4, 1)]
    story.change("DELETE FROM shops WHERE id = 2", "UPDATE sales SET shop = 3, v = 5 WHERE id = 2")
    assert s.refreshed() == [(None, 1, 13, 2), ("Bonn", 0, 13, 2)]
    story.change("TRUNCATE TABLE shops")
    assert s.refreshed() == []  # Spark has no total of nothing
    story.change("INSERT INTO shops VALUES (3, NULL)")
    assert s.refreshed() == [(None, 0, 13, 2), (None, 1, 13, 2)]
    story.verified()


def test_cube_over_a_left_join_with_an_extremum(story: Story) -> None:
    shops(story)
    s = story.stream(
        "SELECT p.city, s.kind, grouping_id(p.city, s.kind) AS i, max(s.v) AS m, count(s.id) AS n FROM shops p"
        " LEFT JOIN sales s ON s.shop = p.id WHERE p.id < 3 GROUP BY CUBE (p.city, s.kind)"
    )
    assert s.rows() == [
        (None, None, 3, 4, 3),
        (None, "x", 2, 4, 2),
        (None, "y", 2, 2, 1),
        ("Bonn", None, 1, 2, 2),
        ("Bonn", "x", 0, 1, 1),
        ("Bonn", "y", 0, 2, 1),
        ("Rome", None, 1, 4, 1),
        ("Rome", "x", 0, 4, 1),
    ]
    story.change("DELETE FROM sales WHERE id = 3")
    assert s.refreshed() == [
        (None, None, 2, None, 0),
        (None, None, 3, 2, 2),
        (None, "x", 2, 1, 1),
        (None, "y", 2, 2, 1),
        ("Bonn", None, 1, 2, 2),
        ("Bonn", "x", 0, 1, 1),
        ("Bonn", "y", 0, 2, 1),
        ("Rome", None, 0, None, 0),
        ("Rome", None, 1, None, 0),
    ]
    story.change("DELETE FROM shops WHERE id = 1", "INSERT INTO sales VALUES (9, 2, 'z', 7)")
    assert s.refreshed() == [
        (None, None, 3, 7, 1),
        (None, "z", 2, 7, 1),
        ("Rome", None, 1, 7, 1),
        ("Rome", "z", 0, 7, 1),
    ]
    story.verified()


def test_grouping_sets_with_distinct_and_having(story: Story) -> None:
    shops(story)
    s = story.stream(
        f"SELECT p.city, s.kind, count(DISTINCT s.shop) AS shops, sum(s.v) AS total {JOINED}"
        " GROUP BY GROUPING SETS ((p.city), (s.kind)) HAVING sum(s.v) > 3"
    )
    assert s.rows() == [(None, None, 1, 8), (None, "x", 3, 13), ("Rome", None, 1, 4)]
    story.change("UPDATE sales SET v = 6 WHERE id = 2")
    assert s.refreshed() == [
        (None, None, 1, 8),
        (None, "x", 3, 13),
        (None, "y", 1, 6),
        ("Bonn", None, 1, 7),
        ("Rome", None, 1, 4),
    ]
    story.change("UPDATE shops SET city = 'Rome' WHERE id = 1", "DELETE FROM sales WHERE id = 4")
    assert s.refreshed() == [(None, "x", 2, 5), (None, "y", 1, 6), ("Rome", None, 2, 11)]
    story.change("UPDATE sales SET kind = 'z', shop = 3 WHERE id = 3")
    assert s.refreshed() == [(None, None, 1, 4), (None, "y", 1, 6), (None, "z", 1, 4), ("Rome", None, 1, 7)]
    story.verified()


def test_pivot_over_a_join(story: Story) -> None:
    shops(story)
    s = story.stream(
        f"SELECT * FROM (SELECT p.city, s.kind, s.v {JOINED})"
        " PIVOT (sum(v) AS total, max(v) AS best FOR kind IN ('x' AS x, 'y' AS y))"
    )
    assert s.rows() == [(None, 8, 8, None, None), ("Bonn", 1, 1, 2, 2), ("Rome", 4, 4, None, None)]
    story.change("UPDATE sales SET kind = 'y' WHERE id = 3", "INSERT INTO sales VALUES (5, 1, 'x', 16)")
    assert s.refreshed() == [(None, 8, 8, None, None), ("Bonn", 17, 16, 2, 2), ("Rome", None, None, 4, 4)]
    story.change("UPDATE shops SET city = 'Rome' WHERE id = 3", "DELETE FROM sales WHERE id = 2")
    assert s.refreshed() == [("Bonn", 17, 16, None, None), ("Rome", 8, 8, 4, 4)]
    story.change("DELETE FROM shops WHERE id = 1", "UPDATE sales SET kind = 'z' WHERE id = 4")
    assert s.refreshed() == [("Rome", None, None, 4, 4)]
    story.verified()


def test_unpivot_over_a_join(story: Story) -> None:
    story.table("plans", "id INT, q1 INT, q2 INT", [(1, 10, 20), (2, 30, None)], key="id")
    story.table("owners", "id INT, name STRING", [(1, "Ann"), (2, "Bob")], key="id")
    joined = "(SELECT o.name, p.q1, p.q2 FROM plans p JOIN owners o ON o.id = p.id)"
    s = story.stream(f"SELECT * FROM {joined} UNPIVOT (v FOR quarter IN (q1, q2))", "filled")
    n = story.stream(
        f"SELECT * FROM {joined} UNPIVOT INCLUDE NULLS (v FOR quarter IN (q1 AS `one`, q2 AS `two`))", "padded"
    )
    assert s.rows() == [("Ann", "q1", 10), ("Ann", "q2", 20), ("Bob", "q1", 30)]
    assert n.rows() == [("Ann", "one", 10), ("Ann", "two", 20), ("Bob", "one", 30), ("Bob", "two", None)]
    story.change("UPDATE plans SET q2 = 40 WHERE id = 2", "UPDATE owners SET name = 'Amy' WHERE id = 1")
    assert s.refreshed() == [("Amy", "q1", 10), ("Amy", "q2", 20), ("Bob", "q1", 30), ("Bob", "q2", 40)]
    assert n.refreshed() == [("Amy", "one", 10), ("Amy", "two", 20), ("Bob", "one", 30), ("Bob", "two", 40)]
    story.change("UPDATE plans SET q1 = NULL, q2 = NULL WHERE id = 1", "DELETE FROM owners WHERE id = 2")
    assert s.refreshed() == []
    assert n.refreshed() == [("Amy", "one", None), ("Amy", "two", None)]
    story.verified()


def test_a_clock_or_a_sample_below_a_rollup_is_refused(story: Story) -> None:
    shops(story)
    clocked = "count(*) FILTER (WHERE current_date() > DATE '2024-01-01')"
    story.refused(f"SELECT p.city, {clocked} AS n {JOINED} GROUP BY ROLLUP (p.city)", "TIME_DEPENDENT")
    sampled = JOINED.replace("sales s", "(SELECT * FROM sales TABLESAMPLE (50 PERCENT)) s")
    story.refused(f"SELECT p.city, count(*) AS n {sampled} GROUP BY CUBE (p.city)", "OPERATOR_NOT_SUPPORTED")
