"""delta(R) = its change rows: what a window of changes nets to, whatever happened inside it."""

from __future__ import annotations

from tests.support.lab import Lab


def test_truncate_then_insert_in_one_window(lab: Lab) -> None:
    t = lab.table("id BIGINT, v INT", [(1, 1), (2, 2)], key="id")
    s = lab.stream(f"SELECT id, v FROM {t}")
    n = lab.stream(f"SELECT count(*) AS n, sum(v) AS s FROM {t}")
    lab.sql(f"TRUNCATE TABLE {t}")
    lab.sql(f"INSERT INTO {t} VALUES (1, 7)")
    assert s.follow() == [(1, 7)]
    assert n.follow() == [(1, 7)]
    with lab.wh.transaction():
        lab.sql(f"INSERT INTO {t} VALUES (5, 5)")
        lab.sql(f"TRUNCATE TABLE {t}")
        lab.sql(f"INSERT INTO {t} VALUES (6, 6)")
    assert s.follow() == [(6, 6)]
    assert n.follow() == [(1, 6)]


def test_a_row_that_comes_and_goes_between_two_refreshes(lab: Lab) -> None:
    t = lab.table("id BIGINT, v INT", [(1, 1)], key="id")
    s = lab.stream(f"SELECT v FROM {t}")
    m = lab.stream(f"SELECT max(v) AS m, min(v) AS n FROM {t}")
    lab.sql(f"INSERT INTO {t} VALUES (2, 99)")
    lab.sql(f"UPDATE {t} SET v = -99 WHERE id = 2")
    lab.sql(f"DELETE FROM {t} WHERE id = 2")
    assert s.follow() == [(1,)]
    assert s.changes == (0, 0)
    assert m.follow() == [(1, 1)]
    assert m.changes == (0, 0)


def test_keyless_duplicates_are_counted(lab: Lab) -> None:
    t = lab.table("g STRING, m MAP<STRING, INT>", [("a", [("x", 1)])] * 2)
    s = lab.stream(f"SELECT g, m FROM {t}")
    n = lab.stream(f"SELECT g, count(*) AS n FROM {t} GROUP BY g")
    lab.wh.apply_changes(t, [{"g": "a", "m": [("x", 1)], "action": "D"}])
    assert len(s.follow()) == 1
    assert n.follow() == [("a", 1)]
    lab.wh.insert(t, [{"g": "a", "m": [("x", 1)]}] * 3)
    assert len(s.follow()) == 4
    assert n.follow() == [("a", 4)]
    lab.sql(f"UPDATE {t} SET g = 'b'")
    assert n.follow() == [("b", 4)]
    assert {row[0] for row in s.follow()} == {"b"}


def test_a_keyless_row_deleted_and_inserted_in_one_batch(lab: Lab) -> None:
    t = lab.table("g STRING, v INT", [("a", 1), ("a", 1)])
    s = lab.stream(f"SELECT g, sum(v) AS s, count(*) AS n FROM {t} GROUP BY g")
    rows = [("D", "a", 1), ("I", "a", 1), ("I", "a", 1), ("I", "b", 2)]
    lab.wh.apply_changes(t, [{"g": g, "v": v, "action": a} for a, g, v in rows])
    assert s.follow() == [("a", 3, 3), ("b", 2, 1)]


def test_rows_with_null_in_every_column_are_updated_and_deleted(lab: Lab) -> None:
    t = lab.table("a INT, b STRING", [(None, None), (None, None), (1, None)])
    s = lab.stream(f"SELECT a, b FROM {t}")
    n = lab.stream(f"SELECT a, count(*) AS n, count(b) AS b FROM {t} GROUP BY a")
    lab.sql(f"UPDATE {t} SET b = 'x' WHERE a IS NULL")
    assert s.follow() == [(None, "x"), (None, "x"), (1, None)]
    assert n.follow() == [(None, 2, 2), (1, 1, 0)]
    lab.sql(f"DELETE FROM {t} WHERE a IS NULL")
    assert s.follow() == [(1, None)]
    assert n.follow() == [(1, 1, 0)]


def test_two_consumers_at_different_positions(lab: Lab) -> None:
    t = lab.table("id BIGINT, v INT", [(1, 1)], key="id")
    eager = lab.stream(f"SELECT sum(v) AS s FROM {t}")
    lazy = lab.stream(f"SELECT v, count(*) AS n FROM {t} GROUP BY v")
    for i in range(2, 6):
        lab.sql(f"INSERT INTO {t} VALUES ({i}, {i % 2})")
        lab.sql(f"UPDATE {t} SET v = v + 1 WHERE id = {i - 1}")
        eager.follow()
        lab.wh.compact(t)
    lab.wh.vacuum(retention_hours=0)
    assert lazy.follow() == [(1, 3), (2, 2)]


def test_masks_of_more_than_63_columns(lab: Lab) -> None:
    names = [f"c{i}" for i in range(70)]
    t = lab.table("id BIGINT, " + ", ".join(f"{n} INT" for n in names), [(1, *range(70))], key="id")
    last = lab.stream(f"SELECT id, c69 FROM {t}")
    first = lab.stream(f"SELECT id, c0 FROM {t}")
    lab.sql(f"UPDATE {t} SET c69 = -1")
    assert last.follow() == [(1, -1)]
    assert first.follow() == [(1, 0)]
    lab.sql(f"UPDATE {t} SET c0 = -2, c62 = 0, c63 = 0")
    assert first.follow() == [(1, -2)]
    assert last.follow() == [(1, -1)]


def test_a_column_added_later(lab: Lab) -> None:
    t = lab.table("g STRING, v INT", [("a", 1), ("b", 2)])
    old = lab.stream(f"SELECT g, sum(v) AS s FROM {t} GROUP BY g")
    lab.sql(f"UPDATE {t} SET v = 5 WHERE g = 'a'")
    lab.wh.add_column(t, "w", "INT")
    lab.sql(f"UPDATE {t} SET w = 3 WHERE g = 'b'")
    assert old.follow() == [("a", 5), ("b", 2)]
    new = lab.stream(f"SELECT w, count(*) AS n FROM {t} GROUP BY w")
    lab.sql(f"UPDATE {t} SET w = 3, v = 0")
    assert new.follow() == [(3, 2)]
    assert old.follow() == [("a", 0), ("b", 0)]
