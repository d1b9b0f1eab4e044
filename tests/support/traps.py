"""Traps: very small stories, each of which a wrong delta rule cannot get through.

A trap is tables, a query, and one or two steps of statements. After each step the stream table must hold what plain Spark makes of
the query, or, where the query itself fails by then, its refresh must fail. Rows are few, and come more than once where a rule
might count them as one; NULL is among the keys; both sides of a join change in one step.

A result with a key hides how often a change row comes: it is there, or not. So most joins here stand in a union with constant rows, which
has no key, and whose rows are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.stories import Story, Stream

from headwater.errors import HeadwaterError
from headwater.warehouse import Warehouse


@dataclass(frozen=True, slots=True)
class TrapTable:
    """A table as a trap begins."""

    name: str
    ddl: str
    rows: Sequence[tuple[Any, ...]]
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Trap:
    """A story without surprises. `fails`: words of the error with which the refresh after the last step must fail."""

    name: str
    tables: tuple[TrapTable, ...]
    query: str
    steps: tuple[tuple[str, ...], ...]
    fails: str = ""


def set_trap(wh: Warehouse, trap: Trap) -> tuple[Story, Stream]:
    """Make the tables and the stream table of a trap, and check its first contents."""
    story = Story(wh)
    for table in trap.tables:
        story.table(table.name, table.ddl, table.rows, key=table.key)
    return story, story.stream(trap.query)


def spring_trap(story: Story, stream: Stream, trap: Trap) -> None:
    """Take the steps; raise at the first refresh after which the stream table is wrong."""
    for number, step in enumerate(trap.steps, 1):
        story.change(*step)
        if trap.fails and number == len(trap.steps):
            _require_failure(story, stream, trap)
        else:
            stream.refreshed()


def _require_failure(story: Story, stream: Stream, trap: Trap) -> None:
    try:
        story.wh.refresh(stream.name)
    except HeadwaterError as error:
        if trap.fails in str(error):
            return
        raise
    raise AssertionError(f"the refresh did not fail: {trap.query}")


LEFT = TrapTable("l", "k INT, a INT", [(1, 10), (1, 10), (2, 20), (None, 30)])
RIGHT = TrapTable("r", "k INT, b INT", [(1, 100), (4, 400), (4, 401), (None, 500)])
KNOWN = (TrapTable("l", "k INT, a INT", [(1, 10), (2, 20), (3, 30)]), TrapTable("r", "k INT, b INT", [(1, 100)]))
ITEMS = TrapTable("t", "id INT, k INT, a INT, s STRING", [(1, 1, 5, "x"), (2, 1, 5, "y"), (3, 2, 12, "x")], key="id")

BOTH_SIDES = (
    ("INSERT INTO l VALUES (3, 30), (1, 11), (4, 40), (NULL, 31)", "INSERT INTO r VALUES (3, 300), (2, 200), (2, 201)"),
    ("DELETE FROM l WHERE k = 3", "DELETE FROM r WHERE k IN (2, 3)", "INSERT INTO r VALUES (NULL, 501)"),
)
"""A pair comes at once, with one row and with two for one that was alone; then pairs go, from one side and from both."""

NO_KEY = " UNION ALL SELECT 0, 0, 0"

TRAPS = (
    # joins
    Trap("inner_join", (LEFT, RIGHT), "SELECT l.k, l.a, r.b FROM l JOIN r ON r.k = l.k" + NO_KEY, BOTH_SIDES),
    Trap(
        "inner_join_where_null_is_a_key",
        (LEFT, RIGHT),
        "SELECT l.k, l.a, r.b FROM l JOIN r ON r.k <=> l.k",
        (("INSERT INTO l VALUES (NULL, 31), (1, 11)",),),
    ),
    Trap(
        "inner_join_with_an_aggregate",
        (LEFT, RIGHT),
        "SELECT l.k, l.a, g.n FROM l JOIN (SELECT k, count(*) AS n FROM r GROUP BY k) g ON g.k = l.k",
        (("INSERT INTO l VALUES (4, 40)", "INSERT INTO r VALUES (4, 402), (2, 200)"),),
    ),
    Trap(
        "one_table_joined_twice_in_a_row",
        (
            TrapTable("l", "id INT, k INT", [(1, 1)], key="id"),
            TrapTable("r", "k INT, v INT", [(1, 2), (2, 3), (3, 1)], key="k"),
        ),
        "SELECT l.id, a.v, b.v AS w FROM l LEFT JOIN r a ON a.k = l.k LEFT JOIN r b ON b.k = a.v",
        (("INSERT INTO l VALUES (2, 2), (3, 9)",), ("UPDATE l SET k = 3 WHERE id = 1",)),
    ),
    Trap("left_join", (LEFT, RIGHT), "SELECT l.k, l.a, r.b FROM l LEFT JOIN r ON r.k = l.k" + NO_KEY, BOTH_SIDES),
    Trap(
        "left_join_of_keyed_tables",
        (
            TrapTable("l", "id INT, k INT", [(1, 1), (2, 2)], key="id"),
            TrapTable("r", "id INT, k INT", [(10, 1), (11, 1)], key="id"),
        ),
        "SELECT l.id, r.id AS other FROM l LEFT JOIN r ON r.k = l.k",
        (("UPDATE r SET k = 2 WHERE id = 11",), ("UPDATE r SET id = 12 WHERE id = 10",)),
    ),
    Trap(
        "left_join_of_a_left_join",
        (LEFT, RIGHT),
        "SELECT l.k, r.b, s.b AS c FROM l LEFT JOIN r ON r.k = l.k LEFT JOIN r s ON s.k = l.k" + NO_KEY,
        (("INSERT INTO l VALUES (1, 10), (1, 10), (2, 20)",),),
    ),
    Trap(
        "left_join_where_null_is_a_key",
        (LEFT, TrapTable("r", "k INT, b INT", [(1, 100)])),
        "SELECT l.k, l.a, r.b FROM l LEFT JOIN r ON r.k <=> l.k",
        (("INSERT INTO r VALUES (NULL, 500), (1, 101)",),),
    ),
    Trap("full_join", (LEFT, RIGHT), "SELECT l.k, l.a, r.b FROM l FULL JOIN r ON r.k = l.k" + NO_KEY, BOTH_SIDES),
    Trap("semi_join", (LEFT, RIGHT), "SELECT k, a, 1 AS n FROM l WHERE k IN (SELECT k FROM r)" + NO_KEY, BOTH_SIDES),
    Trap(
        "semi_join_by_a_range",
        (LEFT, TrapTable("r", "k INT, b INT", [(1, 15), (2, 15)])),
        "SELECT k, a FROM l WHERE EXISTS (SELECT 1 FROM r WHERE r.b > l.a AND r.k = l.k)",
        (("INSERT INTO r VALUES (2, 25)",), ("DELETE FROM r WHERE k = 1",)),
    ),
    Trap(
        "anti_join",
        (LEFT, RIGHT),
        "SELECT k, a, 1 AS n FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.k = l.k)" + NO_KEY,
        BOTH_SIDES,
    ),
    Trap(
        "existence_join",
        (LEFT, RIGHT),
        "SELECT k, a, EXISTS (SELECT 1 FROM r WHERE r.k = l.k) AS e FROM l",
        BOTH_SIDES,
    ),
    Trap(
        "not_in",
        KNOWN,
        "SELECT k, a FROM l WHERE k NOT IN (SELECT k FROM r)",
        (("INSERT INTO l VALUES (NULL, 40), (5, 50)",), ("INSERT INTO r VALUES (NULL, 500)",)),
    ),
    Trap(
        "single_join",
        KNOWN,
        "SELECT k, a, (SELECT b FROM r WHERE r.k = l.k) AS b FROM l",
        (("INSERT INTO r VALUES (2, 200)",), ("INSERT INTO r VALUES (2, 201)",)),
        fails="more than one row",
    ),
    # what looks at one row at a time
    Trap(
        "filter",
        (ITEMS,),
        "SELECT id, a FROM t WHERE a > 10",
        (
            ("INSERT INTO t VALUES (4, 2, NULL, 'z'), (5, 2, 20, 'z')",),
            ("UPDATE t SET a = a + 6", "DELETE FROM t WHERE id = 3"),
        ),
    ),
    Trap(
        "update_of_one_column",
        (LEFT,),
        "SELECT k, a FROM l",
        (("UPDATE l SET k = 3 WHERE a = 20",), ("UPDATE l SET a = 21 WHERE k = 3",)),
    ),
    Trap(
        "project",
        (LEFT,),
        "SELECT k + 1 AS j, count(*) AS n FROM l GROUP BY k + 1",
        (("INSERT INTO l VALUES (3, 30), (3, 30)",),),
    ),
    Trap(
        "rollup",
        (LEFT,),
        "SELECT k, count(*) AS n FROM l GROUP BY ROLLUP (k)",
        (("INSERT INTO l VALUES (NULL, 31), (2, 21)",),),
    ),
    Trap(
        "explode_outer",
        (TrapTable("t", "id INT, xs ARRAY<INT>", [(1, [1, 1]), (2, [])], key="id"),),
        "SELECT id, x FROM t LATERAL VIEW OUTER explode(xs) AS x",
        (("INSERT INTO t VALUES (3, array()), (4, array(4))", "DELETE FROM t WHERE id = 1"),),
    ),
    Trap(
        "union",
        (LEFT, RIGHT),
        "SELECT k, a FROM l UNION ALL SELECT k, b FROM r",
        (("INSERT INTO r VALUES (1, 10), (1, 10)", "DELETE FROM r WHERE k = 4"),),
    ),
    Trap(
        "values",
        (LEFT,),
        "SELECT k, a FROM l UNION ALL SELECT * FROM VALUES (1, 10), (2, 20) AS v(k, a)",
        (("INSERT INTO l VALUES (1, 10)",),),
    ),
    # groups
    Trap(
        "groups",
        (TrapTable("l", "k INT, a INT", [(1, 10), (1, 10), (2, 20), (None, 30), (4, 40), (4, None)]),),
        "SELECT k, count(*) AS n, sum(a) AS s, max(a) AS m, count(DISTINCT a) AS d FROM l GROUP BY k",
        (
            ("INSERT INTO l VALUES (NULL, 31), (1, 10)",),
            (
                "DELETE FROM l WHERE a IN (20, 31, 40)",
                "UPDATE l SET k = 5 WHERE a IS NULL",
                "INSERT INTO l VALUES (4, 3)",
            ),
        ),
    ),
    Trap(
        "groups_that_having_hides",
        (LEFT,),
        "SELECT k, count(*) AS n FROM l GROUP BY k HAVING count(*) > 1",
        (("INSERT INTO l VALUES (5, 50), (1, 11)",), ("INSERT INTO l VALUES (5, 51)",)),
    ),
    Trap(
        "groups_of_filtered_rows",
        (LEFT,),
        "SELECT k, count(*) AS n FROM l WHERE a > 15 GROUP BY k",
        (("DELETE FROM l WHERE a = 10", "INSERT INTO l VALUES (2, 21)"),),
    ),
    Trap(
        "average_with_a_filter",
        (LEFT,),
        "SELECT k, avg(a) AS m, count(*) FILTER (WHERE a < 15) AS n FROM l GROUP BY k",
        (("INSERT INTO l VALUES (1, NULL), (2, 22)",),),
    ),
    Trap(
        "more_values_than_are_kept",
        (TrapTable("l", "k INT, a INT", [(1, n) for n in range(20)]),),
        "SELECT k, max(a) AS m FROM l GROUP BY k",
        (("DELETE FROM l WHERE a > 3",),),
    ),
    Trap(
        "one_group_for_all",
        (LEFT,),
        "SELECT count(*) AS n, sum(a) AS s FROM l",
        (("DELETE FROM l",),),
    ),
    Trap(
        "groups_read_again",
        (ITEMS,),
        "SELECT k, upper(s) AS u, percentile(a, 0.5) AS p FROM t GROUP BY k, upper(s)",
        (("UPDATE t SET k = 2 WHERE id = 1", "INSERT INTO t VALUES (4, 2, 14, 'x')"),),
    ),
    Trap(
        "distinct",
        (LEFT,),
        "SELECT DISTINCT k FROM l",
        (("INSERT INTO l VALUES (2, 21), (6, 60)",), ("DELETE FROM l WHERE a IN (21, 60)",)),
    ),
    Trap(
        "groups_that_differ_in_a_constant",
        (TrapTable("l", "k INT, a INT", [(1, 300)]),),
        "SELECT k, count(*) AS n FROM l WHERE a > 100 GROUP BY k"
        " UNION ALL SELECT k, count(*) FROM l WHERE a > 200 GROUP BY k",
        (("INSERT INTO l VALUES (1, 150)",),),
    ),
    # what looks at many rows at once
    Trap(
        "window",
        (TrapTable("l", "k INT, a INT", [(1, 10), (1, 11), (2, 20), (2, 21), (None, 30)]),),
        "SELECT k, a, row_number() OVER (PARTITION BY k ORDER BY a) AS n, count(*) OVER (PARTITION BY k) AS c FROM l",
        (("UPDATE l SET k = 2 WHERE a = 10", "INSERT INTO l VALUES (NULL, 29)"),),
    ),
    Trap(
        "equal_rows_that_change_places",
        (
            TrapTable("l", "id INT, k INT", [(3, 1), (2, 1), (1, 1), (4, 2)], key="id"),
            TrapTable("r", "id INT, k INT", [(13, 1), (12, 1), (11, 1), (14, 2)], key="id"),
        ),
        "SELECT l.k, row_number() OVER (PARTITION BY l.k ORDER BY l.k) AS n FROM l JOIN r ON r.k = l.k",
        (
            ("INSERT INTO l VALUES (5, 1)",),
            ("UPDATE l SET k = 2 WHERE id = 3", "INSERT INTO r VALUES (15, 1)"),
            ("DELETE FROM r WHERE id = 12", "INSERT INTO l VALUES (6, 1), (7, 1)"),
        ),
    ),
    Trap(
        "window_by_the_null_side_of_a_left_join",
        (LEFT, RIGHT),
        "SELECT l.k, l.a, r.b, count(*) OVER (PARTITION BY r.b) AS n FROM l LEFT JOIN r ON r.k = l.k",
        (("INSERT INTO l VALUES (4, 40), (1, 12)",), ("INSERT INTO r VALUES (2, 100)",)),
    ),
    Trap(
        "window_by_a_side_of_a_full_join",
        (LEFT, TrapTable("r", "k INT, b INT", [(1, 100), (4, 400), (7, 700)])),
        "SELECT l.k, l.a, r.b, count(*) OVER (PARTITION BY l.k) AS n FROM l FULL JOIN r ON r.k = l.k",
        (("INSERT INTO l VALUES (4, 40)",),),
    ),
    Trap(
        "limit",
        (LEFT,),
        "SELECT k, a FROM l ORDER BY a DESC LIMIT 2",
        (("INSERT INTO l VALUES (5, 25), (6, NULL)",), ("INSERT INTO l VALUES (6, 1)", "DELETE FROM l WHERE a = 30")),
    ),
    Trap(
        "limit_beyond_what_is_kept",
        (TrapTable("l", "k INT, a INT", [(1, n) for n in range(30)]),),
        "SELECT k, a FROM l ORDER BY a DESC LIMIT 3",
        (("DELETE FROM l WHERE a > 8",),),
    ),
    Trap(
        "offset_without_a_limit",
        (LEFT,),
        "SELECT k, a FROM l ORDER BY a DESC OFFSET 2",
        (("INSERT INTO l VALUES (5, 25)",),),
    ),
    Trap(
        "recursion",
        (
            TrapTable("roots", "node INT", [(1,), (1,)]),
            TrapTable("edges", "parent INT, child INT", [(1, 2), (2, 3), (3, 4)]),
        ),
        "WITH RECURSIVE f(node, depth) AS (SELECT node, 0 FROM roots UNION ALL"
        " SELECT e.child, f.depth + 1 FROM f JOIN edges e ON e.parent = f.node) SELECT node, depth FROM f",
        (("INSERT INTO edges VALUES (2, 5)", "INSERT INTO roots VALUES (2)"), ("DELETE FROM edges WHERE child = 3",)),
    ),
)


def trap_named(name: str) -> Trap:
    return next(t for t in TRAPS if t.name == name)
