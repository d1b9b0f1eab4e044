"""x NOT IN (R): true while R is empty, false or unknown for every row while R holds a NULL, unknown for a NULL x otherwise."""

from __future__ import annotations

from tests.support.stories import Story

NOT_IN = "SELECT id, k FROM a WHERE k NOT IN (SELECT k FROM b)"


def sides(story: Story) -> None:
    story.table("a", "id INT, k INT", [(1, 1), (2, 2), (3, None)], key="id")
    story.table("b", "k INT", [(1,)])


def test_b33_a_null_in_the_subquery_hides_every_row_until_it_is_gone(story: Story) -> None:
    sides(story)
    s = story.stream(NOT_IN)
    assert s.rows() == [(2, 2)]
    story.change("INSERT INTO b VALUES (NULL), (NULL)")
    assert s.refreshed() == []
    story.apply("b", (None, "D"))
    story.change("INSERT INTO a VALUES (4, 4)")
    assert s.kept() == []
    story.apply("b", (None, "D"))
    assert s.refreshed() == [(2, 2), (4, 4)]
    story.change("INSERT INTO b VALUES (NULL)", "UPDATE b SET k = 4 WHERE k IS NULL")
    assert s.refreshed() == [(2, 2)]
    story.verified()


def test_b33_a_null_on_the_left_shows_only_while_the_subquery_is_empty(story: Story) -> None:
    sides(story)
    s = story.stream(NOT_IN)
    story.change("TRUNCATE TABLE b")
    assert s.refreshed() == [(1, 1), (2, 2), (3, None)]
    story.change("INSERT INTO b VALUES (7)", "UPDATE a SET k = 7 WHERE id = 2")
    assert s.refreshed() == [(1, 1)]
    story.change("DELETE FROM b WHERE k = 7", "INSERT INTO a VALUES (4, NULL)")
    assert s.refreshed() == [(1, 1), (2, 7), (3, None), (4, None)]
    story.change("INSERT INTO b VALUES (NULL)", "DELETE FROM a WHERE id = 3")
    assert s.refreshed() == []
    story.change("TRUNCATE TABLE b", "UPDATE a SET k = 1 WHERE id = 4")
    assert s.refreshed() == [(1, 1), (2, 7), (4, 1)]
    story.verified()


def test_both_sides_change_in_one_refresh(story: Story) -> None:
    sides(story)
    s = story.stream(NOT_IN)
    story.change(
        "INSERT INTO a VALUES (4, 4), (5, 5)", "INSERT INTO b VALUES (4), (4), (2)", "DELETE FROM b WHERE k = 1"
    )
    assert s.refreshed() == [(1, 1), (5, 5)]
    story.together(
        "UPDATE a SET k = 4 WHERE id = 1",
        "DELETE FROM b WHERE k = 4",
        "INSERT INTO b VALUES (NULL)",
        "DELETE FROM b WHERE k IS NULL",
    )
    assert s.refreshed() == [(1, 4), (4, 4), (5, 5)]
    story.change("DELETE FROM a WHERE k = 4", "INSERT INTO b VALUES (4)", "DELETE FROM b WHERE k = 2")
    assert s.refreshed() == [(2, 2), (5, 5)]
    story.verified()


def test_b33_several_columns_are_compared_with_three_values(story: Story) -> None:
    story.table("a", "id INT, x INT, y INT", [(1, 1, 1), (2, 1, 2), (3, 2, None), (4, None, None)], key="id")
    story.table("b", "x INT, y INT", [(1, 1)])
    s = story.stream("SELECT id FROM a WHERE (x, y) NOT IN (SELECT x, y FROM b)")
    assert s.rows() == [(2,), (3,)]
    story.change("INSERT INTO b VALUES (2, 5)")
    assert s.refreshed() == [(2,)]
    story.change("INSERT INTO b VALUES (NULL, 2)")
    assert s.refreshed() == []
    story.change(
        "DELETE FROM b WHERE x IS NULL", "INSERT INTO b VALUES (3, NULL)", "INSERT INTO a VALUES (5, 3, 1), (6, 4, 1)"
    )
    assert s.refreshed() == [(2,), (6,)]
    story.change("TRUNCATE TABLE b")
    assert s.refreshed() == [(1,), (2,), (3,), (4,), (5,), (6,)]
    story.change("INSERT INTO b VALUES (NULL, NULL)", "DELETE FROM a WHERE id > 4")
    assert s.refreshed() == []
    story.verified()


def test_a_correlated_subquery_is_empty_or_unknown_for_each_row_alone(story: Story) -> None:
    story.table("a", "id INT, g STRING, k INT", [(1, "x", 1), (2, "x", 2), (3, "y", 1), (4, "y", None)], key="id")
    story.table("b", "g STRING, k INT", [("x", 1)])
    s = story.stream("SELECT a.id FROM a WHERE a.k NOT IN (SELECT b.k FROM b WHERE b.g = a.g)")
    assert s.rows() == [(2,), (3,), (4,)]
    story.change("INSERT INTO b VALUES ('y', NULL)")
    assert s.refreshed() == [(2,)]
    story.change("UPDATE b SET g = 'x' WHERE k IS NULL", "INSERT INTO a VALUES (5, 'y', 9)")
    assert s.refreshed() == [(3,), (4,), (5,)]
    story.change("UPDATE b SET k = 2", "UPDATE a SET g = 'y' WHERE id = 1")
    assert s.refreshed() == [(1,), (3,), (4,), (5,)]
    story.change("INSERT INTO b VALUES ('y', 9)", "DELETE FROM b WHERE g = 'x'")
    assert s.refreshed() == [(1,), (2,), (3,)]
    story.verified()


def test_equal_rows_of_tables_without_a_key(story: Story) -> None:
    story.table("a", "k INT", [(1,), (1,), (2,), (None,), (None,)])
    story.table("b", "k INT", [(2,), (2,)])
    s = story.stream("SELECT k FROM a WHERE k NOT IN (SELECT k FROM b)")
    assert s.rows() == [(1,), (1,)]
    story.apply("b", (2, "D"))
    story.apply("a", (1, "D"), (3, "I"), (3, "I"))
    assert s.refreshed() == [(1,), (3,), (3,)]
    story.apply("b", (2, "D"))
    assert s.refreshed() == [(None,), (None,), (1,), (2,), (3,), (3,)]
    story.apply("b", (None, "I"))
    story.apply("a", (None, "D"))
    assert s.refreshed() == []
    story.verified()


def test_not_in_over_groups_and_over_a_stream_table(story: Story) -> None:
    sides(story)
    seen = story.stream("SELECT k FROM b GROUP BY k HAVING count(*) > 1", "seen")
    s = story.stream("SELECT id FROM a WHERE k NOT IN (SELECT k FROM seen)", "above")
    inlined = story.stream(
        "SELECT id FROM a WHERE k NOT IN (SELECT k FROM b GROUP BY k HAVING count(*) > 1)", "inlined"
    )
    assert s.rows() == inlined.rows() == [(1,), (2,), (3,)]
    story.change("INSERT INTO b VALUES (1), (NULL)")
    assert seen.refreshed() == [(1,)]
    assert s.refreshed() == inlined.refreshed() == [(2,)]
    story.change("INSERT INTO b VALUES (NULL)", "INSERT INTO a VALUES (4, 1)")
    assert seen.refreshed() == [(None,), (1,)]
    assert s.refreshed() == inlined.refreshed() == []
    story.change("DELETE FROM b WHERE k IS NULL", "DELETE FROM b WHERE k = 1")
    assert seen.refreshed() == []
    assert s.refreshed() == inlined.refreshed() == [(1,), (2,), (3,), (4,)]
    story.verified()


def test_a_subquery_of_any_rows_or_random_values_is_refused(story: Story) -> None:
    sides(story)
    story.refused("SELECT id FROM a WHERE k NOT IN (SELECT k FROM b LIMIT 1)", "ORDER_DEPENDENT")
    story.refused(
        "SELECT id FROM a WHERE k NOT IN (SELECT k + CAST(rand() * 2 AS INT) FROM b)", "EXPRESSION_NOT_DETERMINISTIC"
    )


def test_between_columns_that_are_never_null_it_is_an_anti_join(story: Story) -> None:
    story.table("a", "id INT, k INT", [(1, 1), (2, 2), (3, None)], key="id")
    story.table("b", "id INT, v INT", [(1, 5)], key="id")
    keys = story.stream("SELECT id, k FROM a WHERE id NOT IN (SELECT id FROM b WHERE v > 3)", "keys")
    nulls = story.stream("SELECT id, k FROM a WHERE k NOT IN (SELECT id FROM b WHERE v > 3)", "nulls")
    filled = story.stream(
        "SELECT id FROM a WHERE id NOT IN (SELECT r.id FROM a l LEFT JOIN b r ON l.k = r.id)", "filled"
    )
    assert "existence" not in story.wh.explain_stream_table("keys")
    assert keys.rows() == [(2, 2), (3, None)]
    assert (nulls.rows(), filled.rows()) == ([(2, 2)], [])
    story.change("INSERT INTO b VALUES (2, 9), (3, 1)", "DELETE FROM b WHERE id = 1")
    assert keys.refreshed() == [(1, 1), (3, None)]
    assert nulls.refreshed() == [(1, 1)]
    assert filled.kept() == []
    story.change("TRUNCATE TABLE b", "INSERT INTO a VALUES (4, 4)")
    assert keys.refreshed() == [(1, 1), (2, 2), (3, None), (4, 4)]
    assert nulls.refreshed() == [(1, 1), (2, 2), (3, None), (4, 4)]
    story.change("INSERT INTO b VALUES (1, 4)", "UPDATE a SET k = 1")
    assert keys.refreshed() == [(2, 1), (3, 1), (4, 1)]
    assert filled.refreshed() == [(2,), (3,), (4,)]
    story.change("INSERT INTO b VALUES (4, 4)")
    assert keys.refreshed() == [(2, 1), (3, 1)]
    assert nulls.refreshed() == []
    story.verified()
