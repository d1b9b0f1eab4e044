"""delta(window(R)) = window(R') - window(R), over the partitions that the change touches: old ones and new ones."""

from __future__ import annotations

from tests.support.lab import Lab
from tests.support.stories import Story


def scores(story: Story) -> None:
    rows = [(1, "a", 10), (2, "a", 20), (3, "a", 20), (4, "b", 5), (5, "b", 7)]
    story.table("scores", "id INT, g STRING, v INT", rows, key="id")


def test_b41_ranks_know_ties(story: Story) -> None:
    scores(story)
    over = "OVER (PARTITION BY g ORDER BY v DESC)"
    s = story.stream(f"SELECT id, rank() {over} AS r, dense_rank() {over} AS d, count(*) {over} AS n FROM scores")
    assert s.rows() == [(1, 3, 2, 3), (2, 1, 1, 2), (3, 1, 1, 2), (4, 2, 2, 2), (5, 1, 1, 1)]
    story.change("INSERT INTO scores VALUES (6, 'a', 10), (7, 'b', 7)")
    assert s.refreshed() == [
        (1, 3, 2, 4),
        (2, 1, 1, 2),
        (3, 1, 1, 2),
        (4, 3, 2, 3),
        (5, 1, 1, 2),
        (6, 3, 2, 4),
        (7, 1, 1, 2),
    ]
    story.change("DELETE FROM scores WHERE id IN (2, 4)")
    assert s.refreshed() == [(1, 2, 2, 3), (3, 1, 1, 1), (5, 1, 1, 2), (6, 2, 2, 3), (7, 1, 1, 2)]
    story.change("UPDATE scores SET v = 15 WHERE id = 3", "UPDATE scores SET v = NULL WHERE id = 5")
    assert s.refreshed() == [(1, 2, 2, 3), (3, 1, 1, 1), (5, 2, 2, 2), (6, 2, 2, 3), (7, 1, 1, 1)]
    story.verified()


def test_a_partition_that_did_not_change_is_left_alone(story: Story) -> None:
    scores(story)
    s = story.stream(
        "SELECT id, g, sum(v) OVER (PARTITION BY g) AS total, row_number() OVER (PARTITION BY g ORDER BY v, id) AS n FROM scores"
    )
    assert s.rows() == [(1, "a", 50, 1), (2, "a", 50, 2), (3, "a", 50, 3), (4, "b", 12, 1), (5, "b", 12, 2)]
    story.change("INSERT INTO scores VALUES (6, 'b', 6)")
    assert s.refreshed() == [
        (1, "a", 50, 1),
        (2, "a", 50, 2),
        (3, "a", 50, 3),
        (4, "b", 18, 1),
        (5, "b", 18, 3),
        (6, "b", 18, 2),
    ]
    assert s.changes == (3, 2)
    story.change("DELETE FROM scores WHERE g = 'b'", "UPDATE scores SET v = 30 WHERE id = 1")
    assert s.refreshed() == [(1, "a", 70, 3), (2, "a", 70, 1), (3, "a", 70, 2)]
    story.verified()


def test_b41_frames_of_rows(story: Story) -> None:
    story.table("days", "d INT, v INT", [(1, 1), (2, 2), (3, 4), (4, 8)], key="d")
    s = story.stream(
        "SELECT d, sum(v) OVER (ORDER BY d ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS two,"
        " sum(v) OVER (ORDER BY d ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier,"
        " max(v) OVER (ORDER BY d ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS rest FROM days"
    )
    assert s.rows() == [(1, 1, None, 8), (2, 3, 1, 8), (3, 6, 3, 8), (4, 12, 7, 8)]
    story.change("DELETE FROM days WHERE d = 2")
    assert s.refreshed() == [(1, 1, None, 8), (3, 5, 1, 8), (4, 12, 5, 8)]
    story.change("INSERT INTO days VALUES (0, 16), (5, 1)", "UPDATE days SET v = NULL WHERE d = 4")
    assert s.refreshed() == [(0, 16, None, 16), (1, 17, 16, 4), (3, 5, 17, 4), (4, 4, 21, 1), (5, 1, 21, 1)]
    story.change("UPDATE days SET d = 9 WHERE d = 0")
    assert s.refreshed() == [(1, 1, None, 16), (3, 5, 1, 16), (4, 4, 5, 16), (5, 1, 5, 16), (9, 17, 6, 16)]
    story.verified()


def test_b41_frames_of_values_take_all_peers(story: Story) -> None:
    story.table("t", "id INT, x INT, v INT", [(1, 1, 1), (2, 2, 2), (3, 2, 4), (4, 5, 8)], key="id")
    s = story.stream(
        "SELECT id, sum(v) OVER (ORDER BY x RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS near, sum(v) OVER (ORDER BY x) AS upto FROM t"
    )
    assert s.rows() == [(1, 7, 1), (2, 7, 7), (3, 7, 7), (4, 8, 15)]
    story.change("INSERT INTO t VALUES (5, 4, 16)")
    assert s.refreshed() == [(1, 7, 1), (2, 7, 7), (3, 7, 7), (4, 24, 31), (5, 24, 23)]
    story.change("UPDATE t SET x = 3 WHERE id = 3", "DELETE FROM t WHERE id = 1")
    assert s.refreshed() == [(2, 6, 2), (3, 22, 6), (4, 24, 30), (5, 28, 22)]
    story.change("UPDATE t SET x = NULL WHERE id IN (2, 5)")
    assert s.refreshed() == [(2, 18, 18), (3, 4, 22), (4, 8, 30), (5, 18, 18)]
    story.verified()


def test_b41_several_partitionings_in_one_query(story: Story) -> None:
    story.table(
        "sales",
        "id INT, shop STRING, day INT, v INT",
        [(1, "n", 1, 1), (2, "n", 2, 2), (3, "s", 1, 4), (4, "s", 2, 8)],
        key="id",
    )
    s = story.stream(
        "SELECT id, sum(v) OVER (PARTITION BY shop) AS by_shop, sum(v) OVER (PARTITION BY day) AS by_day, sum(v) OVER () AS total,"
        " rank() OVER (PARTITION BY shop ORDER BY v DESC) AS r FROM sales"
    )
    assert s.rows() == [(1, 3, 5, 15, 2), (2, 3, 10, 15, 1), (3, 12, 5, 15, 2), (4, 12, 10, 15, 1)]
    story.change("UPDATE sales SET day = 2 WHERE id = 3")
    assert s.refreshed() == [(1, 3, 1, 15, 2), (2, 3, 14, 15, 1), (3, 12, 14, 15, 2), (4, 12, 14, 15, 1)]
    story.change("DELETE FROM sales WHERE id = 2", "INSERT INTO sales VALUES (5, 'n', 1, 16)")
    assert s.refreshed() == [(1, 17, 17, 29, 2), (3, 12, 12, 29, 2), (4, 12, 12, 29, 1), (5, 17, 17, 29, 1)]
    story.change("UPDATE sales SET shop = 'n', day = 1")
    assert s.refreshed() == [(1, 29, 29, 29, 4), (3, 29, 29, 29, 3), (4, 29, 29, 29, 2), (5, 29, 29, 29, 1)]
    story.verified()


def test_b42_a_row_that_moves_refreshes_both_partitions(story: Story) -> None:
    scores(story)
    s = story.stream(
        "SELECT id, g, rank() OVER (PARTITION BY g ORDER BY v) AS r, max(v) OVER (PARTITION BY g) AS m FROM scores"
    )
    assert s.rows() == [(1, "a", 1, 20), (2, "a", 2, 20), (3, "a", 2, 20), (4, "b", 1, 7), (5, "b", 2, 7)]
    story.change("UPDATE scores SET g = 'b' WHERE id = 3")
    assert s.refreshed() == [(1, "a", 1, 20), (2, "a", 2, 20), (3, "b", 3, 20), (4, "b", 1, 20), (5, "b", 2, 20)]
    story.change("UPDATE scores SET g = NULL, v = v + 1 WHERE id IN (2, 3)")
    assert s.refreshed() == [(1, "a", 1, 10), (2, None, 1, 21), (3, None, 1, 21), (4, "b", 1, 7), (5, "b", 2, 7)]
    story.change("UPDATE scores SET g = 'a' WHERE id = 3", "UPDATE scores SET g = 'c' WHERE g = 'b'")
    assert s.refreshed() == [(1, "a", 1, 21), (2, None, 1, 21), (3, "a", 2, 21), (4, "c", 1, 7), (5, "c", 2, 7)]
    story.verified()


def test_neighbours_in_the_order(story: Story) -> None:
    story.table("days", "d INT, v INT", [(1, 10), (2, 20), (3, 30)], key="d")
    s = story.stream(
        "SELECT d, lag(v) OVER (ORDER BY d) AS p, lead(v, 2, -1) OVER (ORDER BY d) AS q, first_value(v) OVER (ORDER BY d) AS f,"
        " last_value(v) OVER (ORDER BY d ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS l,"
        " nth_value(v, 2) OVER (ORDER BY d ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS n, ntile(2) OVER (ORDER BY d) AS t"
        " FROM days"
    )
    assert s.rows() == [(1, None, 30, 10, 30, 20, 1), (2, 10, -1, 10, 30, 20, 1), (3, 20, -1, 10, 30, 20, 2)]
    story.change("DELETE FROM days WHERE d = 2", "INSERT INTO days VALUES (4, 40)")
    assert s.refreshed() == [(1, None, 40, 10, 40, 30, 1), (3, 10, -1, 10, 40, 30, 1), (4, 30, -1, 10, 40, 30, 2)]
    story.change("UPDATE days SET d = 5 WHERE d = 1")
    assert s.refreshed() == [(3, None, 10, 30, 10, 40, 1), (4, 30, -1, 30, 10, 40, 1), (5, 40, -1, 30, 10, 40, 2)]
    story.change("DELETE FROM days WHERE d > 3")
    assert s.refreshed() == [(3, None, -1, 30, 30, None, 1)]
    story.verified()


def test_b41_windows_over_aggregates_and_joins(story: Story) -> None:
    story.table("sales", "id INT, item INT, v INT", [(1, 1, 5), (2, 1, 6), (3, 2, 4), (4, 3, 11)], key="id")
    story.table("goods", "id INT, kind STRING", [(1, "x"), (2, "x"), (3, "y")], key="id")
    s = story.stream(
        "SELECT i.kind, s.item, sum(s.v) AS total, rank() OVER (PARTITION BY i.kind ORDER BY sum(s.v) DESC) AS r,"
        " sum(sum(s.v)) OVER () AS all_kinds FROM sales s JOIN goods i ON s.item = i.id GROUP BY i.kind, s.item"
    )
    assert s.rows() == [("x", 1, 11, 1, 26), ("x", 2, 4, 2, 26), ("y", 3, 11, 1, 26)]
    story.change("INSERT INTO sales VALUES (5, 2, 8)")
    assert s.refreshed() == [("x", 1, 11, 2, 34), ("x", 2, 12, 1, 34), ("y", 3, 11, 1, 34)]
    story.change("UPDATE goods SET kind = 'y' WHERE id = 1", "DELETE FROM sales WHERE id = 3")
    assert s.refreshed() == [("x", 2, 8, 1, 30), ("y", 1, 11, 1, 30), ("y", 3, 11, 1, 30)]
    story.change("DELETE FROM goods WHERE id = 3", "UPDATE sales SET item = 2 WHERE id = 1")
    assert s.refreshed() == [("x", 2, 13, 1, 19), ("y", 1, 6, 1, 19)]
    story.verified()


def test_b41_windows_inside_expressions_and_filters(story: Story) -> None:
    scores(story)
    s = story.stream(
        "SELECT id, v - avg(v) OVER (PARTITION BY g) AS off, CASE WHEN v = max(v) OVER (PARTITION BY g) THEN 'top' ELSE 'not' END AS t,"
        " coalesce(lag(v) OVER (PARTITION BY g ORDER BY v, id), 0) + 1 AS p FROM scores WHERE v > 4",
        "computed",
    )
    best = story.stream(
        "SELECT g, id FROM (SELECT g, id, row_number() OVER (PARTITION BY g ORDER BY v DESC, id) AS n FROM scores) WHERE n = 1",
        "best",
    )
    assert s.rows()[3:] == [(4, -1.0, "not", 1), (5, 1.0, "top", 6)]
    assert best.rows() == [("a", 2), ("b", 5)]
    story.change("DELETE FROM scores WHERE id = 2", "UPDATE scores SET v = 9 WHERE id = 4")
    assert s.refreshed() == [(1, -5.0, "not", 1), (3, 5.0, "top", 11), (4, 1.0, "top", 8), (5, -1.0, "not", 1)]
    assert best.refreshed() == [("a", 3), ("b", 4)]
    story.change("UPDATE scores SET v = 1 WHERE id IN (4, 5)", "INSERT INTO scores VALUES (6, 'a', 30)")
    assert s.refreshed() == [(1, -10.0, "not", 1), (3, 0.0, "not", 11), (6, 10.0, "top", 21)]
    assert best.refreshed() == [("a", 6), ("b", 4)]
    story.change("DELETE FROM scores WHERE g = 'b'")
    assert s.kept() == [(1, -10.0, "not", 1), (3, 0.0, "not", 11), (6, 10.0, "top", 21)]
    assert best.refreshed() == [("a", 6)]
    story.verified()


def test_equal_rows_of_a_table_without_a_key_are_numbered(story: Story) -> None:
    story.table("t", "g STRING, v INT", [("a", 1), ("a", 1), ("a", 2)])
    s = story.stream(
        "SELECT g, v, row_number() OVER (PARTITION BY g ORDER BY v) AS n, sum(v) OVER (PARTITION BY g) AS t FROM t"
    )
    assert s.rows() == [("a", 1, 1, 4), ("a", 1, 2, 4), ("a", 2, 3, 4)]
    story.apply("t", ("a", 1, "D"))
    assert s.refreshed() == [("a", 1, 1, 3), ("a", 2, 2, 3)]
    story.apply("t", ("a", 2, "I"), ("a", 2, "I"), ("b", 1, "I"), ("b", 1, "I"))
    assert s.refreshed() == [
        ("a", 1, 1, 7),
        ("a", 2, 2, 7),
        ("a", 2, 3, 7),
        ("a", 2, 4, 7),
        ("b", 1, 1, 2),
        ("b", 1, 2, 2),
    ]
    story.apply("t", ("a", 1, "D"), ("a", 2, "D"), ("b", 1, "D"))
    assert s.refreshed() == [("a", 2, 1, 4), ("a", 2, 2, 4), ("b", 1, 1, 1)]
    story.verified()


def test_rows_that_only_a_hidden_key_tells_apart_keep_their_numbers(story: Story) -> None:
    story.table("t", "id INT, v STRING, other INT", [(1, "a", 0), (2, "a", 0), (3, "a", 0), (4, "b", 0)], key="id")
    numbered = story.stream(
        "SELECT v, row_number() OVER (ORDER BY v) AS n, rank() OVER (ORDER BY v) AS r FROM t", "numbered"
    )
    shifted = story.stream("SELECT v, lag(v) OVER (PARTITION BY v ORDER BY v) AS before FROM t")
    assert numbered.rows() == [("a", 1, 1), ("a", 2, 1), ("a", 3, 1), ("b", 4, 4)]
    assert shifted.rows() == [("a", None), ("a", "a"), ("a", "a"), ("b", None)]
    story.change("UPDATE t SET other = 1 WHERE id = 1")  # which nobody reads; the row lies behind the others now
    numbered.kept()
    shifted.kept()
    story.change("INSERT INTO t VALUES (5, 'a', 0)", "DELETE FROM t WHERE id = 4")
    assert numbered.refreshed() == [("a", 1, 1), ("a", 2, 1), ("a", 3, 1), ("a", 4, 1)]
    assert shifted.refreshed() == [("a", None), ("a", "a"), ("a", "a"), ("a", "a")]
    story.verified()


def test_rows_whose_hidden_key_has_no_order_are_counted(story: Story) -> None:
    story.table("w", "word STRING COLLATE UTF8_LCASE, v INT", [("x", 1), ("X", 1), ("z", 2)], key="word")
    s = story.stream("SELECT v, row_number() OVER (ORDER BY v) AS n FROM w")
    assert s.rows() == [(1, 1), (1, 2), (2, 3)]
    story.change("DELETE FROM w WHERE v = 2", "INSERT INTO w VALUES ('q', 1)")
    assert s.refreshed() == [(1, 1), (1, 2), (1, 3)]
    story.change("DELETE FROM w WHERE word = 'x'")  # both spellings
    assert s.refreshed() == [(1, 1)]
    story.verified()


def test_aggregates_windows_and_stream_tables_above_a_window(story: Story) -> None:
    scores(story)
    ranked = story.stream("SELECT id, g, v, rank() OVER (PARTITION BY g ORDER BY v DESC) AS r FROM scores", "ranked")
    s = story.stream("SELECT r, count(*) AS n, sum(v) AS total FROM ranked GROUP BY r", "by_rank")
    twice = story.stream(
        "SELECT id, max(r) OVER (PARTITION BY v) AS worst"
        " FROM (SELECT id, v, rank() OVER (PARTITION BY g ORDER BY v DESC) AS r FROM scores)",
        "twice",
    )
    assert s.rows() == [(1, 3, 47), (2, 1, 5), (3, 1, 10)]
    story.change("UPDATE scores SET v = 20 WHERE id IN (1, 5)")
    ranked.refreshed()
    assert s.refreshed() == [(1, 4, 80), (2, 1, 5)]
    assert twice.refreshed() == [(1, 1), (2, 1), (3, 1), (4, 2), (5, 1)]
    story.change("INSERT INTO scores VALUES (6, 'b', 30)", "DELETE FROM scores WHERE id = 4")
    ranked.refreshed()
    assert s.refreshed() == [(1, 4, 90), (2, 1, 20)]
    assert twice.refreshed() == [(1, 2), (2, 2), (3, 2), (5, 2), (6, 1)]
    story.verified()


def test_an_order_by_last_digits_or_by_chance_is_refused(story: Story) -> None:
    story.table("t", "id INT, g STRING, d DOUBLE", [(1, "a", 0.5), (2, "b", 0.25)], key="id")
    ranked = "SELECT g, rank() OVER (ORDER BY {}) AS r FROM (SELECT g, sum(d) AS s FROM t GROUP BY g)"
    story.refused(ranked.format("s"), "ORDER_DEPENDENT")
    story.refused("SELECT id, rank() OVER (ORDER BY rand()) AS r FROM t", "EXPRESSION_NOT_DETERMINISTIC")
    s = story.stream(ranked.format("round(s, 2)"))
    story.change("UPDATE t SET d = 0.125 WHERE id = 1")
    assert s.refreshed() == [("a", 1), ("b", 2)]
    story.verified()


def test_an_average_of_bigints_is_taken_in_one_order(lab: Lab) -> None:
    """Spark adds them up as DOUBLE: which are added first decides on the last digits."""
    big = 2**53
    t = lab.table("id INT, k INT, o INT, v BIGINT", [(i, 1, 1, v) for i, v in enumerate([big, 1, 1, 1, 1, -big, 1, 3])])
    s = lab.stream(
        f"SELECT k, v, avg(v) OVER (PARTITION BY k) AS a, avg(o) OVER (PARTITION BY k) AS b FROM {t}", free=("a",)
    )
    for i in range(3):
        before = s.rows()
        lab.sql(f"UPDATE {t} SET v = {big - i}, o = {i} WHERE id = {5 - i}")
        assert s.follow() != before
        assert len({row[2] for row in s.rows()}) == 1
