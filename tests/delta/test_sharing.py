"""Equal parts of a query are computed once, whatever their columns are called; parts that differ in anything else are not."""

from __future__ import annotations

from tests.support.stories import Story

TOTALS = "WITH totals AS (SELECT customer, sum(v) AS total FROM orders GROUP BY customer) "


def orders(story: Story) -> None:
    story.table("orders", "id INT, customer INT, v INT", [(1, 1, 5), (2, 1, 6), (3, 2, 7)], key="id")


def kept(story: Story, name: str = "result") -> dict[str, int]:
    """Return how many states, and how many other stages, a stream table has."""
    lines = story.wh.explain_stream_table(name).splitlines()
    labels = [line.split()[0] for line in lines if line.startswith("  ") and not line.startswith("   ")]
    return {label: labels.count(label) for label in ("state", "rows", "rounds")}


def test_a_cte_with_an_aggregate_has_one_state_however_often_it_is_used(story: Story) -> None:
    orders(story)
    s = story.stream(
        TOTALS + "SELECT a.customer, a.total FROM totals a WHERE a.total = (SELECT max(total) FROM totals)"
        " UNION ALL SELECT b.customer, -b.total FROM totals AS b WHERE b.total > 10"
    )
    assert kept(story)["state"] == 2  # the totals, and their maximum
    assert s.rows() == [(1, -11), (1, 11)]
    story.change("INSERT INTO orders VALUES (4, 2, 10)")
    assert s.refreshed() == [(1, -11), (2, -17), (2, 17)]
    story.change("DELETE FROM orders WHERE id = 4", "UPDATE orders SET customer = 3 WHERE id = 2")
    assert s.refreshed() == [(2, 7)]
    story.change("UPDATE orders SET v = v + 10")
    assert s.refreshed() == [(1, -15), (2, -17), (2, 17), (3, -16)]
    story.verified()


def test_the_same_text_written_twice_is_one_part(story: Story) -> None:
    orders(story)
    part = "(SELECT customer, count(*) AS n FROM orders WHERE v > 5 GROUP BY customer)"
    s = story.stream(f"SELECT x.customer, x.n, y.n AS other FROM {part} x JOIN {part} y ON x.n = y.n + 1")
    assert kept(story)["state"] == 1
    story.change("INSERT INTO orders VALUES (4, 2, 9)")
    assert s.refreshed() == [(2, 2, 1)]
    story.change("INSERT INTO orders VALUES (5, 1, 9), (6, 3, 8)")
    assert s.refreshed() == [(1, 2, 1), (2, 2, 1)]
    story.change("DELETE FROM orders WHERE id = 6", "DELETE FROM orders WHERE id = 2")
    assert s.refreshed() == [(2, 2, 1)]
    story.verified()


def test_parts_that_differ_in_a_constant_are_two(story: Story) -> None:
    orders(story)
    part = "(SELECT customer, count(*) AS n FROM orders WHERE v > {} GROUP BY customer)"
    s = story.stream(
        f"SELECT x.customer, x.n, y.n AS other FROM {part.format(5)} x JOIN {part.format(4)} y USING (customer)"
    )
    assert kept(story)["state"] == 2
    assert s.rows() == [(1, 1, 2), (2, 1, 1)]
    story.change("UPDATE orders SET v = 5 WHERE id = 3", "INSERT INTO orders VALUES (4, 2, 6)")
    assert s.refreshed() == [(1, 1, 2), (2, 1, 2)]
    story.verified()


def test_parts_over_two_tables_of_one_form_are_two(story: Story) -> None:
    orders(story)
    story.table("returns", "id INT, customer INT, v INT", [(1, 1, 1)], key="id")
    part = "(SELECT customer, sum(v) AS v FROM {} GROUP BY customer)"
    s = story.stream(
        f"SELECT a.customer, a.v, b.v AS back FROM {part.format('orders')} a"
        f" LEFT JOIN {part.format('returns')} b USING (customer)"
    )
    assert kept(story)["state"] == 2
    story.change("INSERT INTO returns VALUES (2, 2, 3)")
    assert s.refreshed() == [(1, 11, 1), (2, 7, 3)]
    story.verified()


def test_a_left_join_and_a_window_used_twice_are_staged_once(story: Story) -> None:
    orders(story)
    story.table("customers", "id INT, name STRING", [(1, "Ann"), (3, "Cid")], key="id")
    text = (
        "WITH w AS (SELECT o.id, o.v, c.name, row_number() OVER (PARTITION BY o.customer ORDER BY o.v, o.id) AS n"
        " FROM orders o LEFT JOIN customers c ON c.id = o.customer)"
        " SELECT id, name, n FROM w WHERE n = 1 {} SELECT id, name, n FROM w WHERE n > 1"
    )
    s = story.stream(text.format("UNION ALL"))
    once = kept(story)["rows"]
    assert s.rows() == [(1, "Ann", 1), (2, "Ann", 2), (3, None, 1)]
    story.change("INSERT INTO customers VALUES (2, 'Bea')", "UPDATE orders SET v = 9 WHERE id = 1")
    assert s.refreshed() == [(1, "Ann", 2), (2, "Ann", 1), (3, "Bea", 1)]
    story.change("DELETE FROM customers WHERE id = 1", "UPDATE orders SET customer = 1 WHERE id = 3")
    assert s.refreshed() == [(1, None, 3), (2, None, 1), (3, None, 2)]
    story.verified()
    story.stream(text.partition("{}")[0].strip(), "half")
    assert kept(story, "half")["rows"] == once


def test_a_recursion_used_twice_runs_its_rounds_once(story: Story) -> None:
    story.table("edges", "a INT, b INT", [(1, 2), (2, 3)])
    s = story.stream(
        "WITH RECURSIVE r(a, b) AS (SELECT a, b FROM edges WHERE a = 1 UNION ALL"
        " SELECT r.a, e.b FROM r JOIN edges e ON e.a = r.b)"
        " SELECT x.b, y.b AS other FROM r x JOIN r y ON x.b < y.b"
    )
    assert kept(story)["rounds"] == 1
    assert s.rows() == [(2, 3)]
    story.change("INSERT INTO edges VALUES (3, 4)")
    assert s.refreshed() == [(2, 3), (2, 4), (3, 4)]
    story.change("DELETE FROM edges WHERE a = 2")
    assert s.refreshed() == []
    story.verified()


def test_two_recursions_of_one_form_read_themselves(story: Story) -> None:
    """Their steps are written alike, with an EXISTS that would be shared; each reads its own rows."""
    story.table("steps", "a INT", [(1,), (2,), (5,)])
    step = "UNION ALL SELECT {0}.b + 1, {0}.n + 1 FROM {0} WHERE EXISTS (SELECT 1 FROM steps s WHERE s.a = {0}.b)"
    s = story.stream(
        f"WITH RECURSIVE p(b, n) AS (SELECT a, 0 FROM steps WHERE a = 1 {step.format('p')}),"
        f" q(b, n) AS (SELECT a, 0 FROM steps WHERE a = 5 {step.format('q')})"
        " SELECT p.b, q.b AS other FROM p JOIN q ON p.n = q.n"
    )
    assert s.rows() == [(1, 5), (2, 6)]
    story.change("INSERT INTO steps VALUES (6)")
    assert s.refreshed() == [(1, 5), (2, 6), (3, 7)]
    story.change("DELETE FROM steps WHERE a = 2")
    assert s.refreshed() == [(1, 5), (2, 6)]
    story.verified()


def test_what_is_shared_is_told(story: Story) -> None:
    orders(story)
    found = story.wh.validate_query(TOTALS + "SELECT a.customer FROM totals a JOIN totals b ON a.total < b.total")
    told = [how for name, how, _ in found.operators if name == "Aggregate"]
    assert told == ["algebraic", "shared with an equal part"]


def test_a_shared_part_joined_with_itself_asks_each_side_for_its_own_columns(story: Story) -> None:
    story.table("t", "id INT, parent INT", [(2, 1), (3, 1)], key="id")
    story.table("u", "id INT", [(1,), (2,), (3,)])
    part = "WITH v AS (SELECT t.id, t.parent FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.id = t.id)) "
    children = story.stream(part + "SELECT a.id, b.id AS child FROM v a JOIN v b ON b.parent = a.id", "children")
    siblings = story.stream(
        part + "SELECT a.id, b.id AS other FROM v a JOIN v b ON a.parent = b.parent AND a.id < b.id", "siblings"
    )
    story.change("INSERT INTO t VALUES (1, NULL), (4, 2)")
    assert children.refreshed() == [(1, 2), (1, 3)]
    story.change("INSERT INTO u VALUES (4)", "INSERT INTO t VALUES (5, 2)")
    assert children.refreshed() == [(1, 2), (1, 3), (2, 4)]
    story.change("INSERT INTO u VALUES (5)", "UPDATE t SET parent = 2 WHERE id = 3")
    assert children.refreshed() == [(1, 2), (2, 3), (2, 4), (2, 5)]
    assert siblings.refreshed() == [(3, 4), (3, 5), (4, 5)]
    story.verified()


def test_a_shared_aggregate_joined_with_itself_leads_to_other_tables(story: Story) -> None:
    story.table("o", "id INT, g INT, k INT", [(1, 1, 1), (2, 1, 2), (3, 2, 3)], key="id")
    story.table("s", "id INT, name STRING", [(1, "a"), (2, "b"), (3, "c"), (4, "d")], key="id")
    s = story.stream(
        "WITH t AS (SELECT g, k, count(*) AS n FROM o GROUP BY g, k)"
        " SELECT a.k, s.name FROM t a JOIN t b ON a.g = b.g AND a.k < b.k JOIN s ON s.id = b.k"
    )
    assert s.rows() == [(1, "b")]
    story.change("INSERT INTO o VALUES (4, 2, 4), (5, 1, 3)")
    assert s.refreshed() == [(1, "b"), (1, "c"), (2, "c"), (3, "d")]
    story.change("DELETE FROM o WHERE id = 2", "UPDATE s SET name = 'D' WHERE id = 4")
    assert s.refreshed() == [(1, "c"), (3, "D")]
    story.verified()
