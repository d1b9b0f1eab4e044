"""VALUES never change: they are joined and united like a table whose delta is empty."""

from __future__ import annotations

from tests.support.stories import Story


def orders(story: Story) -> None:
    story.table(
        "orders", "id INT, state STRING, v INT", [(1, "o", 5), (2, "d", 6), (3, "q", 7), (4, None, 8)], key="id"
    )


LABELS = "(VALUES ('o', 'open'), ('d', 'done'), ('x', 'never')) AS l(state, label)"


def test_a_list_of_labels_joined_in(story: Story) -> None:
    orders(story)
    s = story.stream(f"SELECT o.id, l.label FROM orders o JOIN {LABELS} ON o.state = l.state", "joined")
    left = story.stream(f"SELECT o.id, l.label FROM orders o LEFT JOIN {LABELS} ON o.state = l.state", "padded")
    assert s.rows() == [(1, "open"), (2, "done")]
    assert left.rows() == [(1, "open"), (2, "done"), (3, None), (4, None)]
    story.change("UPDATE orders SET state = 'd' WHERE id IN (1, 3)")
    assert s.refreshed() == [(1, "done"), (2, "done"), (3, "done")]
    assert left.refreshed() == [(1, "done"), (2, "done"), (3, "done"), (4, None)]
    story.change(
        "DELETE FROM orders WHERE id = 2",
        "INSERT INTO orders VALUES (5, 'o', 9)",
        "UPDATE orders SET state = 'z' WHERE id = 1",
    )
    assert s.refreshed() == [(3, "done"), (5, "open")]
    assert left.refreshed() == [(1, None), (3, "done"), (4, None), (5, "open")]
    story.verified()


def test_labels_without_orders_are_padded_from_the_constant_side(story: Story) -> None:
    orders(story)
    s = story.stream(
        f"SELECT l.label, count(o.id) AS n, sum(o.v) AS total FROM {LABELS} LEFT JOIN orders o ON o.state = l.state GROUP BY l.label"
    )
    f = story.stream(f"SELECT o.id, l.label FROM orders o FULL JOIN {LABELS} ON o.state = l.state", "either")
    assert s.rows() == [("done", 1, 6), ("never", 0, None), ("open", 1, 5)]
    assert f.rows() == [(None, "never"), (1, "open"), (2, "done"), (3, None), (4, None)]
    story.change("UPDATE orders SET state = 'x' WHERE id IN (1, 4)")
    assert s.refreshed() == [("done", 1, 6), ("never", 2, 13), ("open", 0, None)]
    assert f.refreshed() == [(None, "open"), (1, "never"), (2, "done"), (3, None), (4, "never")]
    story.change("TRUNCATE TABLE orders")
    assert s.refreshed() == [("done", 0, None), ("never", 0, None), ("open", 0, None)]
    assert f.refreshed() == [(None, "done"), (None, "never"), (None, "open")]
    story.verified()


def test_constants_united_with_rows_of_a_table(story: Story) -> None:
    orders(story)
    s = story.stream(
        "SELECT state FROM orders UNION SELECT * FROM VALUES ('o'), ('n'), (NULL) AS v(state)", "distinct_rows"
    )
    b = story.stream(
        "SELECT id, v FROM orders WHERE v > 5 UNION ALL SELECT 0, 0 UNION ALL SELECT * FROM VALUES (2, 6), (9, 9)",
        "all_rows",
    )
    assert s.rows() == [(None,), ("d",), ("n",), ("o",), ("q",)]
    assert b.rows() == [(0, 0), (2, 6), (2, 6), (3, 7), (4, 8), (9, 9)]
    story.change("DELETE FROM orders WHERE id IN (1, 2, 4)")
    assert s.refreshed() == [(None,), ("n",), ("o",), ("q",)]
    assert b.refreshed() == [(0, 0), (2, 6), (3, 7), (9, 9)]
    story.change("UPDATE orders SET state = 'n', v = 1")
    assert s.refreshed() == [(None,), ("n",), ("o",)]
    assert b.refreshed() == [(0, 0), (2, 6), (9, 9)]
    story.verified()


def test_a_list_to_choose_from_and_a_list_to_leave_out(story: Story) -> None:
    orders(story)
    s = story.stream(
        "SELECT id FROM orders WHERE (state, v) IN (SELECT * FROM VALUES ('o', 5), ('d', 7), ('q', 7))", "listed"
    )
    n = story.stream("SELECT id FROM orders WHERE state NOT IN (SELECT * FROM VALUES ('o'), ('d'))", "others")
    e = story.stream("SELECT state FROM orders EXCEPT SELECT * FROM VALUES ('o'), (NULL)", "rest")
    assert (s.rows(), n.rows(), e.rows()) == ([(1,), (3,)], [(3,)], [("d",), ("q",)])
    story.change("UPDATE orders SET v = 7 WHERE id = 2", "UPDATE orders SET state = 'o' WHERE id = 3")
    assert s.refreshed() == [(1,), (2,)]
    assert n.refreshed() == []
    assert e.refreshed() == [("d",)]
    story.change("UPDATE orders SET state = 'w' WHERE id IN (2, 4)")
    assert s.refreshed() == [(1,)]
    assert n.refreshed() == [(2,), (4,)]
    assert e.refreshed() == [("w",)]
    story.verified()


def test_a_series_of_numbers_joined_with_what_happened(story: Story) -> None:
    story.table("events", "id INT, day INT", [(1, 1), (2, 1), (3, 3)], key="id")
    days = "(SELECT explode(sequence(1, 3)) AS day) d"
    s = story.stream(f"SELECT d.day, count(e.id) AS n FROM {days} LEFT JOIN events e ON e.day = d.day GROUP BY d.day")
    assert s.rows() == [(1, 2), (2, 0), (3, 1)]
    story.change("UPDATE events SET day = 2 WHERE id = 1", "INSERT INTO events VALUES (4, 9)")
    assert s.refreshed() == [(1, 1), (2, 1), (3, 1)]
    story.change("DELETE FROM events WHERE day = 3", "UPDATE events SET day = 2 WHERE id IN (2, 4)")
    assert s.refreshed() == [(1, 0), (2, 3), (3, 0)]
    story.verified()


def test_rows_that_are_not_constant_are_refused(story: Story) -> None:
    orders(story)
    story.refused(
        "SELECT o.id FROM orders o JOIN (SELECT rand() AS r FROM VALUES (1)) v ON o.v > v.r",
        "EXPRESSION_NOT_DETERMINISTIC",
    )
    story.refused("SELECT o.id, v.d FROM orders o CROSS JOIN (VALUES (current_date())) AS v(d)", "TIME_DEPENDENT")
