"""delta(generate(R)) = generate(delta R): a row that changes takes its old elements with it and brings its new ones."""

from __future__ import annotations

from tests.support.stories import Story


def lists(story: Story) -> None:
    story.table("t", "id INT, tags ARRAY<STRING>", [(1, ["a", "b"]), (2, ["a", "a"]), (3, []), (4, None)], key="id")


def test_explode_drops_empty_lists_and_explode_outer_keeps_them(story: Story) -> None:
    lists(story)
    s = story.stream("SELECT id, explode(tags) AS tag FROM t", "inner_rows")
    o = story.stream("SELECT id, explode_outer(tags) AS tag FROM t", "outer_rows")
    assert s.rows() == [(1, "a"), (1, "b"), (2, "a"), (2, "a")]
    assert o.rows() == [(1, "a"), (1, "b"), (2, "a"), (2, "a"), (3, None), (4, None)]
    story.change("UPDATE t SET tags = array('b', 'c') WHERE id IN (1, 3)")
    assert s.refreshed() == [(1, "b"), (1, "c"), (2, "a"), (2, "a"), (3, "b"), (3, "c")]
    assert o.refreshed() == [(1, "b"), (1, "c"), (2, "a"), (2, "a"), (3, "b"), (3, "c"), (4, None)]
    story.change("UPDATE t SET tags = array('a', NULL) WHERE id = 2", "DELETE FROM t WHERE id = 3")
    assert s.refreshed() == [(1, "b"), (1, "c"), (2, None), (2, "a")]
    assert o.refreshed() == [(1, "b"), (1, "c"), (2, None), (2, "a"), (4, None)]
    story.change("UPDATE t SET tags = NULL WHERE id = 1", "INSERT INTO t VALUES (5, array('z'))")
    assert s.refreshed() == [(2, None), (2, "a"), (5, "z")]
    assert o.refreshed() == [(1, None), (2, None), (2, "a"), (4, None), (5, "z")]
    story.verified()


def test_posexplode_numbers_the_elements_and_moves_them(story: Story) -> None:
    lists(story)
    s = story.stream("SELECT id, p, tag FROM t LATERAL VIEW posexplode(tags) e AS p, tag")
    assert s.rows() == [(1, 0, "a"), (1, 1, "b"), (2, 0, "a"), (2, 1, "a")]
    story.change("UPDATE t SET tags = array('x', 'a', 'b') WHERE id = 1")
    assert s.refreshed() == [(1, 0, "x"), (1, 1, "a"), (1, 2, "b"), (2, 0, "a"), (2, 1, "a")]
    story.change("UPDATE t SET id = 9 WHERE id = 2", "UPDATE t SET tags = array('q') WHERE id = 4")
    assert s.refreshed() == [(1, 0, "x"), (1, 1, "a"), (1, 2, "b"), (4, 0, "q"), (9, 0, "a"), (9, 1, "a")]
    story.change("DELETE FROM t WHERE id = 1")
    assert s.refreshed() == [(4, 0, "q"), (9, 0, "a"), (9, 1, "a")]
    story.verified()


def test_maps_structs_and_lateral_views_one_over_the_other(story: Story) -> None:
    ddl = "id INT, m MAP<STRING, INT>, s ARRAY<STRUCT<x: INT, y: STRING>>"
    rows = [(1, [("k", 1), ("l", 2)], [{"x": 1, "y": "a"}, {"x": 2, "y": None}]), (2, [("k", 3)], [])]
    story.table("t", ddl, rows, key="id")
    maps = story.stream("SELECT id, explode(m) AS (k, v) FROM t", "maps")
    structs = story.stream("SELECT id, x, y FROM t LATERAL VIEW OUTER inline(s) e AS x, y", "structs")
    pairs = story.stream(
        "SELECT id, k, x FROM t LATERAL VIEW explode(m) a AS k, v LATERAL VIEW inline(s) b AS x, y WHERE v > 1", "both"
    )
    assert maps.rows() == [(1, "k", 1), (1, "l", 2), (2, "k", 3)]
    assert structs.rows() == [(1, 1, "a"), (1, 2, None), (2, None, None)]
    assert pairs.rows() == [(1, "l", 1), (1, "l", 2)]
    story.change("UPDATE t SET m = map('k', 5), s = array(named_struct('x', 7, 'y', 'b')) WHERE id = 2")
    assert maps.refreshed() == [(1, "k", 1), (1, "l", 2), (2, "k", 5)]
    assert structs.refreshed() == [(1, 1, "a"), (1, 2, None), (2, 7, "b")]
    assert pairs.refreshed() == [(1, "l", 1), (1, "l", 2), (2, "k", 7)]
    story.change(
        "UPDATE t SET s = NULL WHERE id = 1", "INSERT INTO t VALUES (3, NULL, array(named_struct('x', 0, 'y', 'c')))"
    )
    assert maps.kept() == [(1, "k", 1), (1, "l", 2), (2, "k", 5)]
    assert structs.refreshed() == [(1, None, None), (2, 7, "b"), (3, 0, "c")]
    assert pairs.refreshed() == [(2, "k", 7)]
    story.verified()


def test_json_tuple_and_stack(story: Story) -> None:
    story.table(
        "t", "id INT, j STRING, a INT, b INT", [(1, '{"x": 1, "y": "u"}', 10, 20), (2, "broken", 30, None)], key="id"
    )
    j = story.stream("SELECT id, x, y FROM t LATERAL VIEW json_tuple(j, 'x', 'y') e AS x, y", "fields")
    s = story.stream("SELECT id, name, v FROM t LATERAL VIEW stack(2, 'a', a, 'b', b) e AS name, v", "stacked")
    assert j.rows() == [(1, "1", "u"), (2, None, None)]
    assert s.rows() == [(1, "a", 10), (1, "b", 20), (2, "a", 30), (2, "b", None)]
    story.change("""UPDATE t SET j = '{"y": 2}', b = 40 WHERE id = 2""")
    assert j.refreshed() == [(1, "1", "u"), (2, None, "2")]
    assert s.refreshed() == [(1, "a", 10), (1, "b", 20), (2, "a", 30), (2, "b", 40)]
    assert s.changes == (1, 1)
    story.change("DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (3, NULL, NULL, 5)")
    assert j.refreshed() == [(2, None, "2"), (3, None, None)]
    assert s.refreshed() == [(2, "a", 30), (2, "b", 40), (3, "a", None), (3, "b", 5)]
    story.verified()


def test_elements_joined_and_counted(story: Story) -> None:
    lists(story)
    story.table("names", "tag STRING, name STRING", [("a", "Alpha"), ("b", "Beta")], key="tag")
    s = story.stream(
        "SELECT n.name, count(*) AS n, count(DISTINCT x.id) AS ids FROM (SELECT id, explode(tags) AS tag FROM t) x"
        " JOIN names n ON n.tag = x.tag GROUP BY n.name"
    )
    assert s.rows() == [("Alpha", 3, 2), ("Beta", 1, 1)]
    story.change("UPDATE t SET tags = array('b') WHERE id = 2", "UPDATE names SET name = 'Gamma' WHERE tag = 'a'")
    assert s.refreshed() == [("Beta", 2, 2), ("Gamma", 1, 1)]
    story.change("DELETE FROM names WHERE tag = 'b'", "UPDATE t SET tags = array('a', 'a', 'c') WHERE id = 3")
    assert s.refreshed() == [("Gamma", 3, 2)]
    story.change("INSERT INTO names VALUES ('c', 'Gamma')", "DELETE FROM t WHERE id = 1")
    assert s.refreshed() == [("Gamma", 3, 1)]
    story.verified()


def test_equal_rows_of_a_table_without_a_key_unfold_as_often_as_they_occur(story: Story) -> None:
    story.table("t", "tags ARRAY<STRING>", [(["a", "b"],), (["a", "b"],)])
    s = story.stream("SELECT tag FROM t LATERAL VIEW explode(tags) e AS tag")
    assert s.rows() == [("a",), ("a",), ("b",), ("b",)]
    story.apply("t", (["a", "b"], "D"))
    assert s.refreshed() == [("a",), ("b",)]
    story.apply("t", (["b"], "I"), (["b"], "I"), ([], "I"))
    assert s.refreshed() == [("a",), ("b",), ("b",), ("b",)]
    story.verified()


def test_b46_a_lateral_subquery_follows_its_own_outer_rows(story: Story) -> None:
    story.table("customers", "id INT, name STRING", [(1, "Ann"), (2, "Bob"), (3, "Cy")], key="id")
    story.table("orders", "id INT, customer INT, amount INT", [(10, 1, 5), (11, 1, 7), (12, 2, 9)], key="id")
    s = story.stream(
        "SELECT c.name, x.id, x.amount FROM customers c,"
        " LATERAL (SELECT o.id, o.amount FROM orders o WHERE o.customer = c.id ORDER BY o.amount DESC, o.id LIMIT 1) x",
        "best",
    )
    g = story.stream(
        "SELECT c.name, x.n, x.total FROM customers c LEFT JOIN LATERAL"
        " (SELECT count(*) AS n, sum(o.amount) AS total FROM orders o WHERE o.customer = c.id) x",
        "sums",
    )
    assert s.rows() == [("Ann", 11, 7), ("Bob", 12, 9)]
    assert g.rows() == [("Ann", 2, 12), ("Bob", 1, 9), ("Cy", 0, None)]
    story.change("INSERT INTO orders VALUES (13, 3, 1)")
    assert s.refreshed() == [("Ann", 11, 7), ("Bob", 12, 9), ("Cy", 13, 1)]
    assert g.refreshed() == [("Ann", 2, 12), ("Bob", 1, 9), ("Cy", 1, 1)]
    assert (s.changes, g.changes) == ((1, 0), (1, 1))
    story.change("DELETE FROM orders WHERE id = 11", "UPDATE customers SET name = 'Bea' WHERE id = 2")
    assert s.refreshed() == [("Ann", 10, 5), ("Bea", 12, 9), ("Cy", 13, 1)]
    assert g.refreshed() == [("Ann", 1, 5), ("Bea", 1, 9), ("Cy", 1, 1)]
    story.change("UPDATE orders SET customer = 1", "DELETE FROM customers WHERE id = 3")
    assert s.refreshed() == [("Ann", 12, 9)]
    assert g.refreshed() == [("Ann", 3, 15), ("Bea", 0, None)]
    story.verified()


def test_b46_lateral_expressions_over_their_own_row(story: Story) -> None:
    story.table("t", "id INT, a INT, b INT", [(1, 3, 4), (2, 3, 4)], key="id")
    s = story.stream(
        "SELECT t.id, x.c, y.d FROM t, LATERAL (SELECT t.a + t.b AS c) x, LATERAL (SELECT x.c * 2 AS d) y", "sums"
    )
    e = story.stream("SELECT t.id, x.v FROM t, LATERAL explode(array(a, b)) x(v)", "parts")
    assert s.rows() == [(1, 7, 14), (2, 7, 14)]
    assert e.rows() == [(1, 3), (1, 4), (2, 3), (2, 4)]
    story.change("UPDATE t SET b = 3 WHERE id = 2")
    assert s.refreshed() == [(1, 7, 14), (2, 6, 12)]
    assert e.refreshed() == [(1, 3), (1, 4), (2, 3), (2, 3)]
    story.change("DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (3, NULL, 0)")
    assert s.refreshed() == [(2, 6, 12), (3, None, None)]
    assert e.refreshed() == [(2, 3), (2, 3), (3, None), (3, 0)]
    story.verified()


def test_a_list_in_random_order_is_refused(story: Story) -> None:
    lists(story)
    story.refused(
        "SELECT id, explode(tags) AS tag FROM (SELECT id, shuffle(tags) AS tags FROM t)", "EXPRESSION_NOT_DETERMINISTIC"
    )
    story.refused("SELECT id, d FROM t LATERAL VIEW explode(array(current_date())) e AS d", "TIME_DEPENDENT")
