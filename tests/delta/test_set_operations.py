"""Set operations count tuples: with l copies on the left and r on the right, UNION has one of any, INTERSECT ALL min(l, r),

EXCEPT ALL max(0, l - r), INTERSECT one if both have any, EXCEPT one if only the left has. NULLs are equal here.
"""

from __future__ import annotations

import pytest
from tests.support.stories import Story

ROWS = "k INT, v STRING"


def sides(story: Story) -> None:
    story.table("a", ROWS, [(1, "x"), (1, "x"), (2, "y"), (None, None)])
    story.table("b", ROWS, [(1, "x"), (3, "z"), (None, None)])


def test_union_keeps_a_row_until_its_last_copy_is_gone(story: Story) -> None:
    sides(story)
    s = story.stream("SELECT k, v FROM a UNION SELECT k, v FROM b")
    assert s.rows() == [(None, None), (1, "x"), (2, "y"), (3, "z")]
    story.apply("a", (1, "x", "D"), (1, "x", "D"), (None, None, "D"))
    assert s.kept() == [(None, None), (1, "x"), (2, "y"), (3, "z")]
    assert s.changes == (0, 0)
    story.change(
        "DELETE FROM b WHERE k = 1",
        "INSERT INTO a VALUES (3, 'z'), (4, 'w'), (4, 'w')",
        "INSERT INTO b VALUES (4, 'w')",
    )
    assert s.refreshed() == [(None, None), (2, "y"), (3, "z"), (4, "w")]
    assert s.changes == (1, 1)
    story.change("TRUNCATE TABLE b", "UPDATE a SET k = NULL, v = NULL WHERE k = 2")
    assert s.refreshed() == [(None, None), (3, "z"), (4, "w")]
    story.verified()


def test_b39_intersect_has_a_row_once_while_both_sides_have_it(story: Story) -> None:
    sides(story)
    s = story.stream("SELECT k, v FROM a INTERSECT SELECT k, v FROM b")
    assert s.rows() == [(None, None), (1, "x")]
    story.apply("a", (1, "x", "D"))
    story.apply("b", (2, "y", "I"), (2, "y", "I"))
    assert s.refreshed() == [(None, None), (1, "x"), (2, "y")]
    story.change("DELETE FROM a WHERE k = 1", "INSERT INTO a VALUES (3, 'z'), (3, 'z')")
    assert s.refreshed() == [(None, None), (2, "y"), (3, "z")]
    story.change("DELETE FROM b WHERE k IS NULL", "DELETE FROM a WHERE k = 3", "DELETE FROM b WHERE k = 3")
    assert s.refreshed() == [(2, "y")]
    story.verified()


def test_b39_intersect_all_has_the_smaller_number_of_copies(story: Story) -> None:
    sides(story)
    s = story.stream("SELECT k, v FROM a INTERSECT ALL SELECT k, v FROM b")
    assert s.rows() == [(None, None), (1, "x")]
    story.change("INSERT INTO b VALUES (1, 'x'), (1, 'x'), (NULL, NULL)")
    assert s.refreshed() == [(None, None), (1, "x"), (1, "x")]
    story.change("INSERT INTO a VALUES (1, 'x'), (1, 'x'), (3, 'z')", "INSERT INTO b VALUES (3, 'z')")
    assert s.refreshed() == [(None, None), (1, "x"), (1, "x"), (1, "x"), (3, "z")]
    story.apply("b", (1, "x", "D"), (1, "x", "D"), (None, None, "D"), (None, None, "D"))
    story.apply("a", (1, "x", "D"), (3, "z", "I"))
    assert s.refreshed() == [(1, "x"), (3, "z"), (3, "z")]
    story.verified()


def test_b39_except_has_a_row_once_while_only_the_left_has_it(story: Story) -> None:
    sides(story)
    s = story.stream("SELECT k, v FROM a EXCEPT SELECT k, v FROM b")
    assert s.rows() == [(2, "y")]
    story.change("DELETE FROM b WHERE k = 1 OR k IS NULL")
    assert s.refreshed() == [(None, None), (1, "x"), (2, "y")]
    story.change("INSERT INTO b VALUES (2, 'y'), (2, 'y')", "INSERT INTO a VALUES (2, 'y'), (4, 'w'), (4, 'w')")
    assert s.refreshed() == [(None, None), (1, "x"), (4, "w")]
    story.apply("a", (1, "x", "D"), (4, "w", "D"))
    story.apply("b", (2, "y", "D"), (3, "z", "D"))
    assert s.kept() == [(None, None), (1, "x"), (4, "w")]
    story.apply("b", (2, "y", "D"))
    story.apply("a", (1, "x", "D"), (None, None, "D"))
    assert s.refreshed() == [(2, "y"), (4, "w")]
    story.verified()


def test_b39_except_all_has_the_surplus_of_the_left(story: Story) -> None:
    sides(story)
    s = story.stream("SELECT k, v FROM a EXCEPT ALL SELECT k, v FROM b")
    assert s.rows() == [(1, "x"), (2, "y")]
    story.change("INSERT INTO b VALUES (1, 'x'), (1, 'x'), (1, 'x')", "INSERT INTO a VALUES (2, 'y'), (NULL, NULL)")
    assert s.refreshed() == [(None, None), (2, "y"), (2, "y")]
    story.change("INSERT INTO a VALUES (1, 'x'), (1, 'x'), (1, 'x')")
    assert s.refreshed() == [(None, None), (1, "x"), (2, "y"), (2, "y")]
    story.apply("b", (1, "x", "D"), (1, "x", "D"), (2, "y", "I"))
    story.apply("a", (None, None, "D"), (3, "z", "I"), (3, "z", "I"))
    assert s.refreshed() == [(1, "x"), (1, "x"), (1, "x"), (2, "y"), (3, "z")]
    story.verified()


@pytest.mark.parametrize("word", ["EXCEPT", "EXCEPT ALL"])
def test_b39_except_under_a_projection_keeps_its_counts(story: Story, word: str) -> None:
    story.table("a", "id INT, k INT", [(1, 1), (2, 1), (3, 2)], key="id")
    story.table("b", "id INT, k INT", [(1, 1)], key="id")
    s = story.stream(f"SELECT k * 10 AS t, count(*) AS n FROM (SELECT k FROM a {word} SELECT k FROM b) GROUP BY k * 10")
    assert s.rows() == ([(20, 1)] if word == "EXCEPT" else [(10, 1), (20, 1)])
    story.change("INSERT INTO a VALUES (4, 2), (5, 3)", "UPDATE b SET k = 3")
    assert s.refreshed() == ([(10, 1), (20, 1)] if word == "EXCEPT" else [(10, 2), (20, 2)])
    story.change("DELETE FROM b", "UPDATE a SET k = 3 WHERE id = 1")
    assert s.refreshed() == ([(10, 1), (20, 1), (30, 1)] if word == "EXCEPT" else [(10, 1), (20, 2), (30, 2)])
    story.change("UPDATE a SET k = 9", "INSERT INTO b VALUES (7, 9)")
    assert s.refreshed() == ([] if word == "EXCEPT" else [(90, 4)])
    story.verified()


@pytest.mark.parametrize("word", ["EXCEPT", "EXCEPT ALL"])
def test_b40_a_row_added_to_both_branches_at_once_is_remembered(story: Story, word: str) -> None:
    sides(story)
    s = story.stream(f"SELECT k, v FROM a {word} SELECT k, v FROM b")
    before = [(2, "y")] if word == "EXCEPT" else [(1, "x"), (2, "y")]
    assert s.rows() == before
    story.together("INSERT INTO a VALUES (7, 'n')", "INSERT INTO b VALUES (7, 'n')")
    assert s.kept() == before
    story.change("DELETE FROM b WHERE k = 7")
    assert s.refreshed() == [*before, (7, "n")]
    story.together("INSERT INTO b VALUES (7, 'n'), (8, 'm')", "INSERT INTO a VALUES (8, 'm')")
    assert s.refreshed() == before
    story.change("DELETE FROM a WHERE k = 7", "DELETE FROM b WHERE k > 6")
    assert s.refreshed() == [*before, (8, "m")]
    story.verified()


def test_operations_in_a_row_are_read_from_the_inside(story: Story) -> None:
    sides(story)
    story.table("c", ROWS, [(2, "y"), (3, "z")])
    s = story.stream("(SELECT * FROM a UNION ALL SELECT * FROM b) EXCEPT ALL SELECT * FROM c", "surplus")
    t = story.stream("SELECT * FROM a UNION SELECT * FROM b INTERSECT SELECT * FROM c", "mixed")
    assert s.rows() == [(None, None), (None, None), (1, "x"), (1, "x"), (1, "x")]
    assert t.rows() == [(None, None), (1, "x"), (2, "y"), (3, "z")]
    story.change("DELETE FROM c WHERE k = 3", "DELETE FROM a WHERE k IS NULL", "INSERT INTO c VALUES (1, 'x')")
    assert s.refreshed() == [(None, None), (1, "x"), (1, "x"), (3, "z")]
    assert t.refreshed() == [(1, "x"), (2, "y")]
    story.change("UPDATE a SET k = 2, v = 'y'", "INSERT INTO c VALUES (NULL, NULL), (NULL, NULL)")
    assert s.refreshed() == [(2, "y"), (2, "y"), (3, "z")]
    assert t.refreshed() == [(None, None), (1, "x"), (2, "y")]
    story.change("TRUNCATE TABLE b", "TRUNCATE TABLE c")
    assert s.refreshed() == [(2, "y"), (2, "y"), (2, "y")]
    assert t.refreshed() == [(2, "y")]
    story.verified()


def test_a_table_against_itself_and_branches_of_other_types(story: Story) -> None:
    story.table("a", "id INT, k INT", [(1, 1), (2, 5), (3, 9)], key="id")
    story.table("b", "k BIGINT", [(1,), (9,)])
    s = story.stream("SELECT k FROM a WHERE k > 2 INTERSECT SELECT k FROM a WHERE k < 8", "middle")
    t = story.stream(
        "SELECT k FROM a EXCEPT SELECT k FROM b UNION ALL SELECT CAST(k AS DECIMAL(20,0)) FROM b WHERE k > 5", "types"
    )
    assert (s.rows(), t.rows()) == ([(5,)], [(5,), (9,)])
    story.change("UPDATE a SET k = k - 2", "INSERT INTO b VALUES (7), (7)")
    assert s.refreshed() == [(3,), (7,)]
    assert t.refreshed() == [(-1,), (3,), (7,), (7,), (9,)]
    story.change("UPDATE a SET k = 3", "DELETE FROM b WHERE k <> 9")
    assert s.refreshed() == [(3,)]
    assert t.refreshed() == [(3,), (9,)]
    story.verified()


def test_set_operations_over_joins_and_below_them(story: Story) -> None:
    story.table("customers", "id INT, city STRING", [(1, "Bonn"), (2, "Rome"), (3, "Oslo")], key="id")
    story.table("orders", "id INT, customer INT", [(10, 1), (11, 2)], key="id")
    story.table("complaints", "id INT, customer INT", [(20, 2)], key="id")
    s = story.stream(
        "SELECT c.city FROM orders o JOIN customers c ON o.customer = c.id"
        " EXCEPT SELECT c.city FROM complaints p JOIN customers c ON p.customer = c.id",
        "above",
    )
    t = story.stream(
        "SELECT c.city FROM customers c JOIN (SELECT customer FROM orders EXCEPT SELECT customer FROM complaints) x ON x.customer = c.id",
        "below",
    )
    assert s.rows() == t.rows() == [("Bonn",)]
    story.change("INSERT INTO orders VALUES (12, 3)", "UPDATE customers SET city = 'Rome' WHERE id = 1")
    assert s.refreshed() == [("Oslo",)]
    assert t.refreshed() == [("Oslo",), ("Rome",)]
    story.change("DELETE FROM complaints", "DELETE FROM orders WHERE id = 10")
    assert s.refreshed() == [("Oslo",), ("Rome",)]
    assert t.kept() == [("Oslo",), ("Rome",)]
    story.change("INSERT INTO complaints VALUES (21, 3)", "UPDATE customers SET id = 4 - id WHERE id <> 2")
    assert s.refreshed() == []
    assert t.refreshed() == [("Rome",)]
    story.verified()


def test_floating_point_sums_are_not_compared(story: Story) -> None:
    story.table("a", "k INT, d DOUBLE", [(1, 0.5)])
    sums = "SELECT k, sum(d) AS s FROM a GROUP BY k"
    for word in ("UNION", "EXCEPT", "INTERSECT ALL"):
        story.refused(f"{sums} {word} SELECT k, d FROM a", "ORDER_DEPENDENT")
    story.refused("SELECT k, d FROM a EXCEPT SELECT k, rand() FROM a", "EXPRESSION_NOT_DETERMINISTIC")
