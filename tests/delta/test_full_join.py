"""delta(L full join R) = delta(L join R) + delta(L anti join R) x NULL + NULL x delta(R anti join L)."""

from __future__ import annotations

from tests.support.stories import Story

BOTH = "SELECT a.id AS a, b.id AS b, a.v, b.w FROM a FULL JOIN b ON a.id = b.id"


def sides(story: Story) -> None:
    story.table("a", "id INT, v INT", [(1, 10), (2, 20)], key="id")
    story.table("b", "id INT, w INT", [(2, 200), (3, 300)], key="id")


def test_each_side_is_padded_while_it_is_alone(story: Story) -> None:
    sides(story)
    s = story.stream(BOTH)
    assert s.rows() == [(None, 3, None, 300), (1, None, 10, None), (2, 2, 20, 200)]
    story.change("INSERT INTO a VALUES (3, 30)", "INSERT INTO b VALUES (1, 100)")
    assert s.refreshed() == [(1, 1, 10, 100), (2, 2, 20, 200), (3, 3, 30, 300)]
    assert s.changes == (2, 2)
    story.change("DELETE FROM a WHERE id IN (1, 3)", "UPDATE b SET w = 201 WHERE id = 2")
    assert s.refreshed() == [(None, 1, None, 100), (None, 3, None, 300), (2, 2, 20, 201)]
    story.change("TRUNCATE TABLE b")
    assert s.refreshed() == [(2, None, 20, None)]
    story.change("TRUNCATE TABLE a", "INSERT INTO b VALUES (7, 7)")
    assert s.refreshed() == [(None, 7, None, 7)]
    story.verified()


def test_both_partners_arrive_leave_and_move_in_one_refresh(story: Story) -> None:
    sides(story)
    s = story.stream(BOTH)
    story.change("INSERT INTO a VALUES (4, 40)", "INSERT INTO b VALUES (4, 400)")
    assert s.refreshed() == [(None, 3, None, 300), (1, None, 10, None), (2, 2, 20, 200), (4, 4, 40, 400)]
    assert s.changes == (1, 0)
    story.change("DELETE FROM a WHERE id = 2", "DELETE FROM b WHERE id = 2")
    assert s.refreshed() == [(None, 3, None, 300), (1, None, 10, None), (4, 4, 40, 400)]
    assert s.changes == (0, 1)
    story.together("UPDATE a SET id = 3 WHERE id = 4", "UPDATE b SET id = 1 WHERE id = 4")
    assert s.refreshed() == [(1, 1, 10, 400), (3, 3, 40, 300)]
    story.together("UPDATE a SET id = 4 - id", "UPDATE b SET w = -w")
    assert s.refreshed() == [(1, 1, 40, -400), (3, 3, 10, -300)]
    story.verified()


def test_b12_groups_named_by_the_key_of_either_side(story: Story) -> None:
    story.table("sales", "id INT, day INT, v INT", [(1, 1, 5), (2, 1, 6), (3, 2, 7)], key="id")
    story.table("refunds", "id INT, day INT, v INT", [(1, 2, 1), (2, 3, 2)], key="id")
    s = story.stream(
        "SELECT coalesce(s.day, r.day) AS day, sum(s.v) AS sold, sum(r.v) AS back, count(s.id) AS n, count(*) AS r"
        " FROM sales s FULL OUTER JOIN refunds r ON s.day = r.day GROUP BY coalesce(s.day, r.day)"
    )
    assert s.rows() == [(1, 11, None, 2, 2), (2, 7, 1, 1, 1), (3, None, 2, 0, 1)]
    story.change("UPDATE sales SET day = 3 WHERE id = 3", "INSERT INTO refunds VALUES (3, 1, 9)")
    assert s.refreshed() == [(1, 11, 18, 2, 2), (2, None, 1, 0, 1), (3, 7, 2, 1, 1)]
    story.change("DELETE FROM refunds WHERE day = 2", "UPDATE refunds SET day = 4 WHERE id = 2")
    assert s.refreshed() == [(1, 11, 18, 2, 2), (3, 7, None, 1, 1), (4, None, 2, 0, 1)]
    story.change(
        "DELETE FROM sales WHERE id = 1",
        "INSERT INTO sales VALUES (4, NULL, 8)",
        "INSERT INTO refunds VALUES (5, NULL, 3)",
    )
    assert s.refreshed() == [(None, 8, 3, 1, 2), (1, 6, 9, 1, 1), (3, 7, None, 1, 1), (4, None, 2, 0, 1)]
    story.verified()


def test_b21_a_sum_over_a_full_join_is_null_and_not_zero(story: Story) -> None:
    sides(story)
    s = story.stream("SELECT sum(a.v) AS v, sum(b.w) AS w, count(*) AS n FROM a FULL JOIN b ON a.id = b.id", "totals")
    g = story.stream(
        "SELECT coalesce(a.id, b.id) AS id, sum(a.v) AS v, sum(b.w) AS w FROM a FULL JOIN b ON a.id = b.id GROUP BY 1",
        "groups",
    )
    assert s.rows() == [(30, 500, 3)]
    story.change("DELETE FROM a")
    assert s.refreshed() == [(None, 500, 2)]
    assert g.refreshed() == [(2, None, 200), (3, None, 300)]
    story.change("DELETE FROM b", "INSERT INTO a VALUES (2, 0)")
    assert s.refreshed() == [(0, None, 1)]
    assert g.refreshed() == [(2, 0, None)]
    story.change("DELETE FROM a")
    assert s.refreshed() == [(None, None, 0)]
    assert g.refreshed() == []
    story.verified()


def test_null_keys_stand_alone_on_both_sides(story: Story) -> None:
    story.table("a", "k INT, v INT", [(None, 1), (1, 2)])
    story.table("b", "k INT, w INT", [(None, 3), (1, 4)])
    s = story.stream("SELECT a.k AS ak, a.v, b.k AS bk, b.w FROM a FULL JOIN b ON a.k = b.k", "plain")
    safe = story.stream("SELECT a.k AS ak, a.v, b.k AS bk, b.w FROM a FULL JOIN b ON a.k <=> b.k", "safe")
    assert s.rows() == [(None, None, None, 3), (None, 1, None, None), (1, 2, 1, 4)]
    assert safe.rows() == [(None, 1, None, 3), (1, 2, 1, 4)]
    story.change("UPDATE b SET k = NULL WHERE w = 4")
    assert s.refreshed() == [(None, None, None, 3), (None, None, None, 4), (None, 1, None, None), (1, 2, None, None)]
    assert safe.refreshed() == [(None, 1, None, 3), (None, 1, None, 4), (1, 2, None, None)]
    story.change("DELETE FROM a WHERE k IS NULL", "UPDATE b SET k = 1 WHERE w = 3")
    assert s.refreshed() == [(None, None, None, 4), (1, 2, 1, 3)]
    assert safe.refreshed() == [(None, None, None, 4), (1, 2, 1, 3)]
    story.verified()


def test_equal_rows_of_tables_without_a_key(story: Story) -> None:
    story.table("a", "k INT", [(1,), (1,), (2,)])
    story.table("b", "k INT", [(2,), (2,), (3,)])
    s = story.stream("SELECT a.k AS a, b.k AS b FROM a FULL JOIN b ON a.k = b.k")
    assert s.rows() == [(None, 3), (1, None), (1, None), (2, 2), (2, 2)]
    story.apply("a", (1, "D"), (3, "I"), (3, "I"))
    story.apply("b", (2, "D"))
    assert s.refreshed() == [(1, None), (2, 2), (3, 3), (3, 3)]
    story.apply("a", (2, "D"), (3, "D"))
    story.apply("b", (3, "I"), (1, "I"))
    assert s.refreshed() == [(None, 2), (1, 1), (3, 3), (3, 3)]
    story.apply("b", (3, "D"), (3, "D"), (2, "I"))
    assert s.refreshed() == [(None, 2), (None, 2), (1, 1), (3, None)]
    story.verified()


def test_a_chain_of_full_joins_with_using(story: Story) -> None:
    for name, rows in (("a", [(1, 10)]), ("b", [(1, 20), (2, 20)]), ("c", [(2, 30), (3, 30)])):
        story.table(name, f"k INT, v{name} INT", rows, key="k")
    s = story.stream("SELECT k, va, vb, vc FROM a FULL JOIN b USING (k) FULL JOIN c USING (k)")
    assert s.rows() == [(1, 10, 20, None), (2, None, 20, 30), (3, None, None, 30)]
    story.change("DELETE FROM b WHERE k = 2", "INSERT INTO a VALUES (3, 11)", "INSERT INTO c VALUES (1, 31)")
    assert s.refreshed() == [(1, 10, 20, 31), (2, None, None, 30), (3, 11, None, 30)]
    story.change("DELETE FROM a WHERE k = 1", "DELETE FROM b WHERE k = 1", "UPDATE c SET k = 4 WHERE k = 3")
    assert s.refreshed() == [(1, None, None, 31), (2, None, None, 30), (3, 11, None, None), (4, None, None, 30)]
    story.change("INSERT INTO b VALUES (3, 21), (4, 22)", "DELETE FROM c WHERE k < 3")
    assert s.refreshed() == [(3, 11, 21, None), (4, None, 22, 30)]
    story.verified()


def test_a_condition_beside_the_key_decides_who_is_alone(story: Story) -> None:
    sides(story)
    s = story.stream("SELECT a.id AS a, b.id AS b FROM a FULL JOIN b ON a.id = b.id AND a.v * 10 = b.w")
    assert s.rows() == [(None, 3), (1, None), (2, 2)]
    story.change("UPDATE a SET v = 21 WHERE id = 2")
    assert s.refreshed() == [(None, 2), (None, 3), (1, None), (2, None)]
    story.change("UPDATE b SET w = 210 WHERE id = 2", "INSERT INTO a VALUES (3, 1)")
    assert s.refreshed() == [(None, 3), (1, None), (2, 2), (3, None)]
    story.change("UPDATE a SET v = 30 WHERE id = 3", "DELETE FROM a WHERE id = 2")
    assert s.refreshed() == [(None, 2), (1, None), (3, 3)]
    story.verified()


def test_a_clock_beside_the_key_is_refused(story: Story) -> None:
    sides(story)
    story.refused(BOTH + " AND current_date() > DATE '2024-01-01'", "TIME_DEPENDENT")
    story.refused(BOTH.replace("FULL JOIN b", "FULL JOIN (SELECT id, w FROM b LIMIT 1) b"), "ORDER_DEPENDENT")


def test_groups_of_null_on_either_side_are_two_rows(story: Story) -> None:
    story.table("a", "k INT, v INT", [(None, 1), (1, 2)])
    story.table("b", "k INT, w INT", [(None, 3), (None, 4), (1, 5)])
    grouped = "(SELECT k, count(*) AS n, sum({1}) AS total FROM {0} GROUP BY k)"
    sides = grouped.format("a", "v") + " x FULL JOIN " + grouped.format("b", "w") + " y"
    s = story.stream(f"SELECT x.k, x.total AS v, y.n, y.total AS w FROM {sides} ON x.k = y.k")
    ordered = "SELECT v, w, row_number() OVER (ORDER BY n, w, v) AS place, lag(w) OVER (ORDER BY n, w, v) AS before FROM result"
    above = story.stream(ordered, "above")
    assert s.rows() == [(None, None, 2, 7), (None, 1, None, None), (1, 2, 1, 5)]
    story.change("UPDATE b SET w = 6 WHERE w = 4")
    assert s.refreshed() == [(None, None, 2, 9), (None, 1, None, None), (1, 2, 1, 5)]
    above.refreshed()
    story.change("UPDATE a SET v = 7 WHERE v = 1", "DELETE FROM b WHERE k IS NULL")
    assert s.refreshed() == [(None, 7, None, None), (1, 2, 1, 5)]
    above.refreshed()
    story.change("DELETE FROM a", "INSERT INTO b VALUES (NULL, 8)")
    assert s.refreshed() == [(None, None, 1, 5), (None, None, 1, 8)]
    above.refreshed()
    story.verified()
