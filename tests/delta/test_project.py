"""delta(project(R)) = project(delta R): rows that became equal are counted, not merged."""

from __future__ import annotations

from decimal import Decimal

from tests.support.lab import Lab

from headwater.model.tables import RefreshAction


def test_rows_that_became_equal_keep_their_number(lab: Lab) -> None:
    t = lab.table("id BIGINT, g STRING", [(1, "a"), (2, "a"), (3, "b")], key="id")
    s = lab.stream(f"SELECT upper(g) AS g FROM {t}")
    lab.sql(f"UPDATE {t} SET g = 'A' WHERE id = 3")
    assert s.follow() == [("A",), ("A",), ("A",)]
    lab.sql(f"DELETE FROM {t} WHERE id = 1")
    assert s.follow() == [("A",), ("A",)]


def test_an_update_of_a_column_that_is_not_read_emits_nothing(lab: Lab) -> None:
    t = lab.table("id BIGINT, g STRING, v INT", [(1, "a", 1)], key="id")
    s = lab.stream(f"SELECT id, g FROM {t}")
    lab.sql(f"UPDATE {t} SET v = 2")
    assert s.follow() == [(1, "a")]
    assert s.changes == (0, 0)


def test_an_update_that_the_expression_hides_emits_nothing(lab: Lab) -> None:
    t = lab.table("id BIGINT, v INT", [(1, 4)], key="id")
    s = lab.stream(f"SELECT id, v > 3 AS big FROM {t}")
    lab.sql(f"UPDATE {t} SET v = 5")
    assert s.follow() == [(1, True)]
    assert s.changes == (0, 0)


def test_b51_a_changed_key_deletes_under_the_old_key(lab: Lab) -> None:
    t = lab.table("id BIGINT, v INT", [(1, 1), (2, 2)], key="id")
    s = lab.stream(f"SELECT v * 10 AS w FROM {t}")
    keyed = lab.stream(f"SELECT id, v FROM {t}")
    lab.sql(f"UPDATE {t} SET id = 3 - id, v = v + 1")
    assert s.follow() == [(20,), (30,)]
    assert keyed.follow() == [(1, 3), (2, 2)]
    lab.sql(f"UPDATE {t} SET id = 7 WHERE id = 1")
    assert s.follow() == [(20,), (30,)]
    assert keyed.follow() == [(2, 2), (7, 3)]
    assert keyed.changes == (1, 1)


def test_nested_values_and_maps_in_any_order(lab: Lab) -> None:
    ddl = "m MAP<STRING, INT>, a ARRAY<INT>, s STRUCT<x: INT, y: STRING>"
    t = lab.table(ddl, [([("a", 1), ("b", 2)], [1, None], {"x": 1, "y": None})])
    s = lab.stream(f"SELECT m, a, s.x AS x, map_keys(m) AS k FROM {t}")
    rows = [
        {"m": [("b", 2), ("a", 1)], "a": [1, None], "s": {"x": 1, "y": None}, "action": "D"},
        {"m": [("c", None)], "a": [], "s": None, "action": "I"},
    ]
    lab.wh.apply_changes(t, rows)
    assert s.follow() == [((("c", None),), (), None, ("c",))]


def test_an_expression_that_yields_minus_zero(lab: Lab) -> None:
    t = lab.table("id BIGINT, d DOUBLE", [(1, 0.0), (2, 0.0)], key="id")
    s = lab.stream(f"SELECT -d AS d FROM {t}")
    grouped = lab.stream(f"SELECT -d AS d, count(*) AS n FROM {t} GROUP BY -d")
    lab.sql(f"DELETE FROM {t} WHERE id = 1")
    assert s.follow() == [(0.0,)]
    assert grouped.follow() == [(0.0, 1)]
    lab.sql(f"INSERT INTO {t} VALUES (4, -0.0D)")
    assert grouped.follow() == [(0.0, 2)]
    s.follow()
    s.verify()


def test_decimals_keep_their_scale(lab: Lab) -> None:
    t = lab.table("id BIGINT, m DECIMAL(38,10)", [(1, Decimal("9999999999999999999999999999.9999999999"))], key="id")
    s = lab.stream(f"SELECT m, CAST(m AS DECIMAL(38,2)) AS r FROM {t} WHERE m > 0")
    lab.sql(f"INSERT INTO {t} VALUES (2, 0.0000000001BD)")
    assert s.follow()[0] == (Decimal("0.0000000001"), Decimal("0.00"))


def test_constants_that_look_like_marks_of_our_texts(lab: Lab) -> None:
    t = lab.table("v INT", [(1,)])
    s = lab.stream(
        "SELECT v, '<<new:now>>' AS a, '/*+ COALESCE(1) */' AS b, '/*+ BROADCAST(r) */' AS c, '<<<a:b>>' AS d"
        f" FROM {t} WHERE 'x' NOT LIKE '<<stage:%>>'"
    )
    marks = ("<<new:now>>", "/*+ COALESCE(1) */", "/*+ BROADCAST(r) */", "<<<a:b>>")
    lab.sql(f"INSERT INTO {t} VALUES (2)")
    assert s.follow() == [(1, *marks), (2, *marks)]


def test_a_key_that_is_not_shown_computed_in_full(lab: Lab) -> None:
    t = lab.table("id BIGINT, v INT", [(1, 10), (2, 10)], key="id")
    name = f"full_{t}"
    lab.wh.create_stream_table(name, f"SELECT v FROM {t}", refresh_mode="FULL")
    lab.sql(f"INSERT INTO {t} VALUES (3, 30)")
    lab.sql(f"DELETE FROM {t} WHERE id = 2")
    assert lab.wh.refresh(name).action is RefreshAction.FULL
    assert sorted(tuple(r) for r in lab.wh.table(name).collect()) == [(10,), (30,)]
    lab.wh.alter_stream_table(name, refresh_mode="DIFFERENTIAL")
    lab.sql(f"INSERT INTO {t} VALUES (4, 30)")
    assert lab.wh.refresh(name).action is RefreshAction.DIFFERENTIAL
    assert sorted(tuple(r) for r in lab.wh.table(name).collect()) == [(10,), (30,), (30,)]
