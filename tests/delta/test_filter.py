"""delta(filter(R)) = filter(delta R): each half of an update is judged by its own values."""

from __future__ import annotations

import math

from tests.support.lab import Lab


def test_an_update_moves_rows_across_the_condition_in_both_directions(lab: Lab) -> None:
    t = lab.table("id BIGINT, v INT", [(1, 1), (2, 5), (3, 9)], key="id")
    s = lab.stream(f"SELECT id, v FROM {t} WHERE v > 4")
    lab.sql(f"UPDATE {t} SET v = 10 - v")
    assert s.follow() == [(1, 9), (2, 5)]
    assert s.changes == (1, 1)


def test_a_condition_that_is_null_holds_for_no_row_before_or_after(lab: Lab) -> None:
    t = lab.table("id BIGINT, v INT", [(1, None), (2, 7)], key="id")
    s = lab.stream(f"SELECT id FROM {t} WHERE v > 4")
    negated = lab.stream(f"SELECT id FROM {t} WHERE NOT (v > 4)")
    lab.sql(f"UPDATE {t} SET v = CASE id WHEN 1 THEN 8 END")
    assert s.follow() == [(1,)]
    assert negated.follow() == []
    lab.sql(f"UPDATE {t} SET v = 0 WHERE id = 2")
    assert s.follow() == [(1,)]
    assert negated.follow() == [(2,)]


def test_a_predicate_on_a_column_that_is_not_selected(lab: Lab) -> None:
    t = lab.table("id BIGINT, g STRING, v INT", [(1, "a", 1), (2, "b", 2)], key="id")
    s = lab.stream(f"SELECT g FROM {t} WHERE v % 2 = 0")
    lab.sql(f"UPDATE {t} SET v = v + 1")
    assert s.follow() == [("a",)]
    lab.sql(f"UPDATE {t} SET g = 'z' WHERE v = 3")
    assert s.follow() == [("a",)]
    assert s.changes == (0, 0)


def test_nan_is_larger_than_everything_and_equal_to_itself(lab: Lab) -> None:
    t = lab.table("id BIGINT, d DOUBLE", [(1, math.nan), (2, math.inf), (3, -0.0)], key="id")
    s = lab.stream(f"SELECT id FROM {t} WHERE d > 1e308 OR d = 0")
    lab.sql(f"UPDATE {t} SET d = CASE id WHEN 1 THEN 1D WHEN 3 THEN DOUBLE('NaN') ELSE d END")
    assert s.follow() == [(2,), (3,)]
    lab.sql(f"DELETE FROM {t} WHERE isnan(d)")
    assert s.follow() == [(2,)]
