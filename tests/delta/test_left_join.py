"""delta(L left join R) = delta(L join R) + delta(L anti join R) x NULL: a row is padded while nothing matches it, once."""

from __future__ import annotations

from tests.support.stories import Story

PADDED = "SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id"


def shop(story: Story) -> None:
    story.table("customers", "id INT, name STRING", [(1, "Ann")], key="id")
    story.table("orders", "id INT, customer INT", [(10, 1), (11, 2), (12, None)], key="id")


def test_padding_comes_and_goes_with_the_partner(story: Story) -> None:
    shop(story)
    s = story.stream(PADDED)
    assert s.rows() == [(10, "Ann"), (11, None), (12, None)]
    story.change("INSERT INTO customers VALUES (2, 'Bob')")
    assert s.refreshed() == [(10, "Ann"), (11, "Bob"), (12, None)]
    assert s.changes == (1, 1)
    story.change("DELETE FROM customers WHERE id = 1", "INSERT INTO orders VALUES (13, 1), (14, 2)")
    assert s.refreshed() == [(10, None), (11, "Bob"), (12, None), (13, None), (14, "Bob")]
    story.change("UPDATE customers SET id = 1 WHERE id = 2", "DELETE FROM orders WHERE id = 10")
    assert s.refreshed() == [(11, None), (12, None), (13, "Bob"), (14, None)]
    story.change("TRUNCATE TABLE customers")
    assert s.refreshed() == [(11, None), (12, None), (13, None), (14, None)]
    story.verified()


def test_a_row_and_its_partner_arrive_leave_and_move_together(story: Story) -> None:
    shop(story)
    s = story.stream(PADDED)
    story.change("INSERT INTO orders VALUES (13, 3)", "INSERT INTO customers VALUES (3, 'Cy')")
    assert s.refreshed() == [(10, "Ann"), (11, None), (12, None), (13, "Cy")]
    assert s.changes == (1, 0)
    story.change("DELETE FROM orders WHERE id = 13", "DELETE FROM customers WHERE id = 3")
    assert s.refreshed() == [(10, "Ann"), (11, None), (12, None)]
    assert s.changes == (0, 1)
    story.together("UPDATE orders SET customer = 9 WHERE id = 10", "UPDATE customers SET id = 9 WHERE id = 1")
    assert s.kept() == [(10, "Ann"), (11, None), (12, None)]
    story.change("UPDATE orders SET customer = 2 WHERE id = 10", "UPDATE orders SET customer = 9 WHERE id = 11")
    assert s.refreshed() == [(10, None), (11, "Ann"), (12, None)]
    story.verified()


def test_b9_several_partners_at_once_give_one_transition(story: Story) -> None:
    shop(story)
    s = story.stream(PADDED)
    story.change("INSERT INTO customers VALUES (2, 'Bob'), (3, 'Cy')", "INSERT INTO customers VALUES (4, 'Di')")
    story.change("UPDATE orders SET customer = 2 WHERE id = 12")
    assert s.refreshed() == [(10, "Ann"), (11, "Bob"), (12, "Bob")]
    story.table("tags", "ord INT, tag STRING", [(10, "x")])
    tagged = story.stream("SELECT o.id, t.tag FROM orders o LEFT JOIN tags t ON t.ord = o.id", "tagged")
    story.change("INSERT INTO tags VALUES (11, 'a'), (11, 'b'), (11, 'c')", "INSERT INTO tags VALUES (10, 'y')")
    assert tagged.refreshed() == [(10, "x"), (10, "y"), (11, "a"), (11, "b"), (11, "c"), (12, None)]
    assert tagged.changes == (4, 1)
    story.change("DELETE FROM tags WHERE tag IN ('a', 'b')")
    assert tagged.refreshed() == [(10, "x"), (10, "y"), (11, "c"), (12, None)]
    story.change("DELETE FROM tags WHERE tag <> 'x'", "INSERT INTO tags VALUES (12, 'z'), (12, 'z')")
    assert tagged.refreshed() == [(10, "x"), (11, None), (12, "z"), (12, "z")]
    story.verified()


def test_b11_a_label_changes_upstream_while_a_member_is_deleted(story: Story) -> None:
    story.table("teams", "id INT, label STRING", [(1, "red"), (2, "blue")], key="id")
    story.table("members", "id INT, team INT, points INT", [(1, 1, 5), (2, 1, 7), (3, 2, 1)], key="id")
    labels = story.stream("SELECT id, upper(label) AS label FROM teams", "labels")
    s = story.stream(
        "SELECT l.label, count(m.id) AS n, sum(m.points) AS points FROM labels l LEFT JOIN members m ON m.team = l.id"
        " GROUP BY l.label"
    )
    assert s.rows() == [("BLUE", 1, 1), ("RED", 2, 12)]
    story.change("UPDATE teams SET label = 'pink' WHERE id = 1", "DELETE FROM members WHERE id = 2")
    labels.refreshed()
    assert s.refreshed() == [("BLUE", 1, 1), ("PINK", 1, 5)]
    story.change("DELETE FROM members WHERE id = 3", "UPDATE teams SET label = 'pink' WHERE id = 2")
    labels.refreshed()
    assert s.refreshed() == [("PINK", 1, 5)]
    story.change("DELETE FROM members", "UPDATE teams SET label = 'gold' WHERE id = 2")
    labels.refreshed()
    assert s.refreshed() == [("GOLD", 0, None), ("PINK", 0, None)]
    story.verified()


def test_a_condition_on_the_right_side_pads_and_one_in_where_does_not(story: Story) -> None:
    story.table("a", "id INT, v INT", [(1, 5), (2, 5)], key="id")
    story.table("b", "id INT, v INT", [(1, 1), (2, 9)], key="id")
    inside = story.stream("SELECT a.id, b.v FROM a LEFT JOIN b ON a.id = b.id AND b.v > 4", "inside")
    outside = story.stream("SELECT a.id, b.v FROM a LEFT JOIN b ON a.id = b.id WHERE b.v > 4", "outside")
    orphans = story.stream("SELECT a.id FROM a LEFT JOIN b ON a.id = b.id AND b.v > 4 WHERE b.id IS NULL", "orphans")
    assert (inside.rows(), outside.rows(), orphans.rows()) == ([(1, None), (2, 9)], [(2, 9)], [(1,)])
    story.change("UPDATE b SET v = 10 - v")
    assert inside.refreshed() == [(1, 9), (2, None)]
    assert outside.refreshed() == [(1, 9)]
    assert orphans.refreshed() == [(2,)]
    story.change("UPDATE b SET v = 8 WHERE id = 1", "DELETE FROM b WHERE id = 2", "INSERT INTO a VALUES (3, 1)")
    assert inside.refreshed() == [(1, 8), (2, None), (3, None)]
    assert outside.refreshed() == [(1, 8)]
    assert orphans.refreshed() == [(2,), (3,)]
    story.verified()


def test_a_range_condition_counts_matches_per_row(story: Story) -> None:
    story.table("bids", "id INT, price INT", [(1, 5), (2, 15), (3, None)], key="id")
    story.table("bands", "lo INT, hi INT, name STRING", [(0, 9, "low")])
    s = story.stream("SELECT i.id, n.name FROM bids i LEFT JOIN bands n ON i.price >= n.lo AND i.price <= n.hi")
    assert s.rows() == [(1, "low"), (2, None), (3, None)]
    story.change("INSERT INTO bands VALUES (4, 20, 'wide'), (10, 20, 'high')")
    assert s.refreshed() == [(1, "low"), (1, "wide"), (2, "high"), (2, "wide"), (3, None)]
    story.change("DELETE FROM bands WHERE name <> 'high'", "UPDATE bids SET price = 12 WHERE id = 3")
    assert s.refreshed() == [(1, None), (2, "high"), (3, "high")]
    story.change("UPDATE bands SET hi = 11", "UPDATE bids SET price = 10 WHERE id = 1")
    assert s.refreshed() == [(1, "high"), (2, None), (3, None)]
    story.verified()


def test_equal_rows_of_tables_without_a_key_are_padded_as_often_as_they_occur(story: Story) -> None:
    story.table("a", "k INT", [(1,), (1,), (None,), (None,)])
    story.table("b", "k INT, v STRING", [(1, "x"), (1, "x")])
    s = story.stream("SELECT a.k, b.v FROM a LEFT JOIN b ON a.k = b.k")
    assert s.rows() == [(None, None)] * 2 + [(1, "x")] * 4
    story.apply("b", (1, "x", "D"))
    assert s.refreshed() == [(None, None)] * 2 + [(1, "x")] * 2
    story.apply("b", (1, "x", "D"))
    story.apply("a", (1, "I"), (None, "D"))
    assert s.refreshed() == [(None, None)] + [(1, None)] * 3
    story.apply("a", (1, "D"), (2, "I"), (2, "I"))
    story.apply("b", (2, "y", "I"), (2, "y", "I"), (1, "z", "I"))
    assert s.refreshed() == [(None, None)] + [(1, "z")] * 2 + [(2, "y")] * 4
    story.verified()


def test_a_right_join_is_a_left_join_seen_from_the_other_side(story: Story) -> None:
    shop(story)
    right = story.stream("SELECT o.id, c.name FROM orders o RIGHT JOIN customers c ON o.customer = c.id", "mirrored")
    keyed = story.stream(
        "SELECT c.id AS customer, o.id FROM orders o RIGHT OUTER JOIN customers c ON c.id = o.customer", "keyed"
    )
    assert right.rows() == [(10, "Ann")]
    story.change("INSERT INTO customers VALUES (3, 'Cy')", "DELETE FROM orders WHERE id = 10")
    assert right.refreshed() == [(None, "Ann"), (None, "Cy")]
    assert keyed.refreshed() == [(1, None), (3, None)]
    story.change("UPDATE orders SET customer = 3", "UPDATE customers SET name = 'Amy' WHERE id = 1")
    assert right.refreshed() == [(None, "Amy"), (11, "Cy"), (12, "Cy")]
    assert keyed.refreshed() == [(1, None), (3, 11), (3, 12)]
    story.change("DELETE FROM customers WHERE id = 1", "DELETE FROM orders WHERE id = 12")
    assert right.refreshed() == [(11, "Cy")]
    assert keyed.refreshed() == [(3, 11)]
    story.verified()


def test_a_chain_of_left_joins_pads_everything_behind_the_gap(story: Story) -> None:
    story.table("a", "id INT, b INT", [(1, 1), (2, 2), (3, 3)], key="id")
    story.table("b", "id INT, c INT", [(1, 1), (2, 9)], key="id")
    story.table("c", "id INT, v STRING", [(1, "x")], key="id")
    s = story.stream("SELECT a.id, b.c, c.v FROM a LEFT JOIN b ON a.b = b.id LEFT JOIN c ON b.c = c.id")
    assert s.rows() == [(1, 1, "x"), (2, 9, None), (3, None, None)]
    story.change("INSERT INTO c VALUES (9, 'y')", "DELETE FROM b WHERE id = 1", "INSERT INTO b VALUES (3, 1)")
    assert s.refreshed() == [(1, None, None), (2, 9, "y"), (3, 1, "x")]
    story.change("DELETE FROM c WHERE id = 1", "UPDATE b SET c = 1 WHERE id = 2", "UPDATE a SET b = 3 WHERE id = 1")
    assert s.refreshed() == [(1, 1, None), (2, 1, None), (3, 1, None)]
    story.change("DELETE FROM b WHERE id = 3", "INSERT INTO c VALUES (1, 'z')", "DELETE FROM a WHERE id = 1")
    assert s.refreshed() == [(2, 1, "z"), (3, None, None)]
    story.verified()


def test_a_table_left_joined_with_itself(story: Story) -> None:
    story.table("people", "id INT, boss INT, name STRING", [(1, None, "Ann"), (2, 1, "Bob"), (3, 9, "Cy")], key="id")
    s = story.stream("SELECT e.name, b.name AS boss FROM people e LEFT JOIN people b ON e.boss = b.id")
    assert s.rows() == [("Ann", None), ("Bob", "Ann"), ("Cy", None)]
    story.change("UPDATE people SET id = 9 WHERE id = 1")
    assert s.refreshed() == [("Ann", None), ("Bob", None), ("Cy", "Ann")]
    story.change("UPDATE people SET boss = 2 WHERE id = 9", "INSERT INTO people VALUES (4, 3, 'Di')")
    assert s.refreshed() == [("Ann", "Bob"), ("Bob", None), ("Cy", "Ann"), ("Di", "Cy")]
    story.change("DELETE FROM people WHERE name IN ('Bob', 'Cy')")
    assert s.refreshed() == [("Ann", None), ("Di", None)]
    story.verified()


def test_a_condition_that_depends_on_the_user_or_the_clock_is_refused(story: Story) -> None:
    shop(story)
    story.refused(PADDED + " AND c.name = current_user()", "ENVIRONMENT_DEPENDENT")
    story.refused(PADDED + " AND now() > TIMESTAMP '2024-01-01 00:00:00'", "TIME_DEPENDENT")
    story.refused(
        PADDED.replace("customers c", "(SELECT id, uuid() AS name FROM customers) c"), "EXPRESSION_NOT_DETERMINISTIC"
    )


def test_a_zero_that_becomes_negative_is_a_change(story: Story) -> None:
    story.table("a", "id INT, f BOOLEAN, v DOUBLE", [(1, False, 0.0), (2, False, 1.5)], key="id")
    story.table("b", "id INT, w INT", [(1, 10)], key="id")
    story.table("c", "id INT", [(1,), (2,)], key="id")
    signed = "(SELECT a.id, if(f, -v, v) AS z FROM a JOIN c ON c.id = a.id)"
    queries = {
        "padded": f"SELECT x.id, CAST(x.z AS STRING) AS z, b.w FROM {signed} x LEFT JOIN b ON b.id = x.id",
        "asked": f"SELECT x.id, CAST(x.z AS STRING) AS z FROM {signed} x WHERE NOT EXISTS "
        "(SELECT 1 FROM b WHERE b.id > x.id)",
        "numbered": f"SELECT id, CAST(z AS STRING) AS z, row_number() OVER (ORDER BY id) AS n FROM {signed}",
    }
    padded, asked, numbered = (story.stream(q, n) for n, q in queries.items())
    assert padded.rows() == [(1, "0.0", 10), (2, "1.5", None)]
    story.change("UPDATE a SET f = TRUE WHERE id = 1")
    assert padded.refreshed() == [(1, "-0.0", 10), (2, "1.5", None)]
    assert asked.refreshed() == [(1, "-0.0"), (2, "1.5")]
    assert numbered.refreshed() == [(1, "-0.0", 1), (2, "1.5", 2)]
    story.change("UPDATE a SET f = FALSE WHERE id = 1", "UPDATE b SET w = 11")
    assert padded.refreshed() == [(1, "0.0", 11), (2, "1.5", None)]
    assert asked.refreshed() == [(1, "0.0"), (2, "1.5")]
    assert numbered.refreshed() == [(1, "0.0", 1), (2, "1.5", 2)]
    story.verified()
