"""delta(R) = its change rows: what a window of changes nets to, whatever happened inside it."""

from __future__ import annotations

import pytest
from tests.support.lab import Lab
from tests.support.tables import contents

from headwater.engine.worker import Worker
from headwater.errors import ConstraintError
from headwater.model.tables import RefreshAction


def test_b54_truncate_then_insert_in_one_window(lab: Lab) -> None:
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


def test_b55_keyless_duplicates_are_counted(lab: Lab) -> None:
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


def test_b55_a_keyless_row_deleted_and_inserted_in_one_batch(lab: Lab) -> None:
    t = lab.table("g STRING, v INT", [("a", 1), ("a", 1)])
    s = lab.stream(f"SELECT g, sum(v) AS s, count(*) AS n FROM {t} GROUP BY g")
    rows = [("D", "a", 1), ("I", "a", 1), ("I", "a", 1), ("I", "b", 2)]
    lab.wh.apply_changes(t, [{"g": g, "v": v, "action": a} for a, g, v in rows])
    assert s.follow() == [("a", 3, 3), ("b", 2, 1)]


def test_b52_rows_with_null_in_every_column_are_updated_and_deleted(lab: Lab) -> None:
    t = lab.table("a INT, b STRING", [(None, None), (None, None), (1, None)])
    s = lab.stream(f"SELECT a, b FROM {t}")
    n = lab.stream(f"SELECT a, count(*) AS n, count(b) AS b FROM {t} GROUP BY a")
    lab.sql(f"UPDATE {t} SET b = 'x' WHERE a IS NULL")
    assert s.follow() == [(None, "x"), (None, "x"), (1, None)]
    assert n.follow() == [(None, 2, 2), (1, 1, 0)]
    lab.sql(f"DELETE FROM {t} WHERE a IS NULL")
    assert s.follow() == [(1, None)]
    assert n.follow() == [(1, 1, 0)]


def test_b53_two_consumers_at_different_positions(lab: Lab) -> None:
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


@pytest.mark.parametrize("in_memory", [True, False])
def test_b56_masks_of_more_than_63_columns(lab: Lab, monkeypatch: pytest.MonkeyPatch, in_memory: bool) -> None:
    """Updates of columns that are not read are left out, of few rows before any text runs; the others never are."""
    if not in_memory:
        monkeypatch.setattr(lab.wh._ground.reader, "_local_rows", 0)
    asked: list[str] = []
    collected = Worker.collected
    monkeypatch.setattr(Worker, "collected", lambda self, text: asked.append(text) or collected(self, text))
    t = lab.table("id BIGINT, " + ", ".join(f"c{i} INT" for i in range(70)), [(1, *range(70))], key="id")
    streams = [lab.stream(f"SELECT id, {x} AS x FROM {t}") for x in ("c0", "c69", "c61 + c62")]
    # After the key, c61 has the last bit of the first word and c62 the first one of the second.
    for change, concerned, value in (
        ("c69 = -1", 1, -1),
        ("c0 = -2, c63 = 0", 0, -2),
        ("c61 = 1000", 2, 1062),
        ("c62 = 0", 2, 1000),
        ("c1 = 0, c60 = 0, c64 = 0", None, None),
    ):
        lab.sql(f"UPDATE {t} SET {change}")
        for i, stream in enumerate(streams):
            asked.clear()
            stream.follow()
            assert stream.changes == ((1, 1) if i == concerned else (0, 0))
            if in_memory:
                assert bool(asked) is (i == concerned)
            if i == concerned:
                assert stream.rows() == [(1, value)]


def test_b56_a_mask_that_becomes_wider_under_a_plan(lab: Lab) -> None:
    names = [f"c{i}" for i in range(60)]
    t = lab.table("id BIGINT, " + ", ".join(f"{n} INT" for n in names), [(1, *range(60))], key="id")
    old = lab.stream(f"SELECT id, c59 FROM {t}")
    lab.sql(f"UPDATE {t} SET c59 = -1")
    for i in range(60, 66):
        lab.wh.add_column(t, f"c{i}", "INT")
    lab.sql(f"UPDATE {t} SET c65 = 1")
    assert old.follow() == [(1, -1)]
    new = lab.stream(f"SELECT id, c59, c65 FROM {t}")
    lab.sql(f"UPDATE {t} SET c65 = 2")
    lab.sql(f"UPDATE {t} SET c59 = -2")
    assert new.follow() == [(1, -2, 2)]
    assert old.follow() == [(1, -2)]
    assert old.changes == new.changes == (1, 1)


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


def test_b50_the_order_of_changes_in_a_batch_does_not_matter(lab: Lab) -> None:
    t = lab.table("id BIGINT, v STRING", [(1, "a"), (2, "a")], key="id")
    s = lab.stream(f"SELECT id, v FROM {t}")
    n = lab.stream(f"SELECT v, count(*) AS n FROM {t} GROUP BY v")
    # From a to b to c, told backwards, and a row that was never there.
    rows = [("I", 1, "c"), ("D", 1, "b"), ("I", 1, "b"), ("D", 1, "a"), ("D", 3, "x"), ("I", 3, "x")]
    lab.wh.apply_changes(t, [{"id": i, "v": v, "action": a} for a, i, v in rows])
    assert s.follow() == [(1, "c"), (2, "a")]
    assert (s.changes, n.follow()) == ((1, 1), [("a", 1), ("c", 1)])


def test_b57_an_update_of_one_large_value_alone_is_noticed(lab: Lab) -> None:
    t = lab.table("id BIGINT, doc STRING, v INT", [(1, "x" * 300_000, 1)], key="id")
    s = lab.stream(f"SELECT id, length(doc) AS n, right(doc, 1) AS last FROM {t}")
    lab.sql(f"UPDATE {t} SET doc = concat(left(doc, 299999), 'y')")
    assert s.follow() == [(1, 300_000, "y")]
    assert s.changes == (1, 1)
    lab.wh.upsert(t, [{"id": 1, "doc": "x" * 299_999 + "z", "v": 1}])
    assert s.follow() == [(1, 300_000, "z")]
    lab.sql(f"UPDATE {t} SET v = 2")
    assert s.follow() == [(1, 300_000, "z")]
    assert s.changes == (0, 0)


def test_b62_columns_are_called_like_words_of_sql_and_of_ours(lab: Lab) -> None:
    t = lab.table("id BIGINT, `select` INT", key="id")
    lab.sql(f"INSERT INTO {t} VALUES (1, 1), (2, 2)")
    old = lab.stream(f"SELECT `select` AS `from`, count(*) AS `group` FROM {t} GROUP BY `select`")
    for name in ("table", "order", "action", "version", "hash", "row_id", "w"):
        lab.wh.add_column(t, name, "INT")
    with pytest.raises(ConstraintError, match="is reserved"):
        lab.wh.add_column(t, "__w", "INT")
    new = lab.stream(f"SELECT id, `table`, `order`, action, version, hash, row_id, w FROM {t}")
    lab.sql(f"UPDATE {t} SET `select` = 2, `table` = 3, `order` = 4, action = 5, version = 6 WHERE id = 1")
    assert old.follow() == [(2, 2)]
    assert new.follow() == [(1, 3, 4, 5, 6, None, None, None), (2, *[None] * 7)]
    row = {"id": 2, "select": 2, "table": None, "order": None, "version": None, "hash": None, "row_id": None, "w": None}
    changed = [{**row, "action": None, "kind": "D"}, {**row, "action": 7, "hash": 8, "kind": "I"}]
    lab.wh.apply_changes(t, changed, action="kind")
    assert new.follow() == [(1, 3, 4, 5, 6, None, None, None), (2, None, None, 7, None, 8, None, None)]
    lab.wh.compact(t)
    assert contents(lab.wh, t) == {
        (1, 2, 3, 4, 5, 6, None, None, None): 1,
        (2, 2, None, None, 7, None, 8, None, None): 1,
    }


def test_x4_rows_that_were_read_are_not_pending_while_they_are_kept(lab: Lab) -> None:
    t = lab.table("id BIGINT, v INT", [(1, 1)], key="id")
    s = lab.stream(f"SELECT sum(v) AS s FROM {t}")
    slow = lab.stream(f"SELECT max(v) AS m FROM {t}")

    def pending() -> dict[str, bool]:
        return {x.name: x.pending for x in lab.wh.status() if x.name in (s.name, slow.name)}

    lab.sql(f"INSERT INTO {t} VALUES (2, 2)")
    assert pending() == {s.name: True, slow.name: True}
    assert s.follow() == [(3,)]
    assert pending() == {s.name: False, slow.name: True}
    for keep in (lambda: None, lambda: lab.wh.compact(t), lambda: lab.wh.vacuum(retention_hours=0)):
        keep()
        version = lab.wh.version
        assert lab.wh.refresh(s.name).action is RefreshAction.NO_DATA
        assert (pending(), lab.wh.version) == ({s.name: False, slow.name: True}, version)
    assert slow.follow() == [(2,)]
    assert pending() == {s.name: False, slow.name: False}
