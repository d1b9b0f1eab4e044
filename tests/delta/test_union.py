"""delta(A + B) = delta A + delta B."""

from __future__ import annotations

from tests.support.lab import Lab
from tests.support.stories import Story


def test_a_row_that_both_branches_have_counts_twice(lab: Lab) -> None:
    t = lab.table("id BIGINT, v INT", [(1, 1), (2, 5)], key="id")
    s = lab.stream(f"SELECT id FROM {t} WHERE v > 0 UNION ALL SELECT id FROM {t} WHERE v > 4")
    assert s.rows() == [(1,), (2,), (2,)]
    lab.sql(f"UPDATE {t} SET v = 6 - v")
    assert s.follow() == [(1,), (1,), (2,)]
    lab.sql(f"DELETE FROM {t} WHERE id = 1")
    assert s.follow() == [(2,)]


def test_union_keeps_a_row_until_its_last_branch_loses_it(lab: Lab) -> None:
    t = lab.table("g STRING, v INT", [("a", 1), ("b", 5), ("b", 1)])
    s = lab.stream(f"SELECT g FROM {t} WHERE v < 3 UNION SELECT g FROM {t} WHERE v > 3")
    lab.sql(f"DELETE FROM {t} WHERE g = 'b' AND v = 5")
    assert s.follow() == [("a",), ("b",)]
    lab.sql(f"DELETE FROM {t} WHERE g = 'b'")
    assert s.follow() == [("a",)]


def test_two_tables_change_in_one_refresh(lab: Lab) -> None:
    left = lab.table("v INT", [(1,), (2,)])
    right = lab.table("v BIGINT", [(2,)])
    s = lab.stream(f"SELECT v, count(*) AS n FROM (SELECT v FROM {left} UNION ALL SELECT v FROM {right}) GROUP BY v")
    lab.sql(f"DELETE FROM {left} WHERE v = 2")
    lab.sql(f"INSERT INTO {right} VALUES (1), (3)")
    assert s.follow() == [(1, 2), (2, 1), (3, 1)]
    lab.sql(f"TRUNCATE TABLE {right}")
    assert s.follow() == [(1, 1)]


def test_one_of_two_tables_changes(lab: Lab) -> None:
    left = lab.table("v INT", [(1,)])
    right = lab.table("v INT", [(7,)])
    s = lab.stream(
        f"SELECT max(v) AS m, collect_list(v) AS c FROM (SELECT v FROM {left} UNION ALL SELECT v FROM {right})",
        free=("c",),
    )
    lab.sql(f"INSERT INTO {left} VALUES (3)")
    assert s.follow() == [(7, (1, 3, 7))]


def test_a_row_with_negative_zero_is_deleted_as_zero(story: Story) -> None:
    """Spark's GROUP BY makes one zero of both; the stored row may hold the other one."""
    story.table("a", "id INT, v DOUBLE", [(1, 0.0), (2, 5.0)], key="id")
    story.table("b", "id INT, v DOUBLE", [(1, 0.0)], key="id")
    stream = story.stream("SELECT -v AS w FROM a UNION ALL SELECT v FROM b")
    story.change("DELETE FROM a WHERE id = 1")
    assert stream.refreshed() == [(-5.0,), (0.0,)]
    story.change("DELETE FROM b")
    assert stream.refreshed() == [(-5.0,)]
    story.verified()
