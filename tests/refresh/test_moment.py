"""Refreshes of one moment agree with each other, whatever is committed while they run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import headwater as hw
from headwater.model.tables import RefreshAction
from headwater.refresh.moment import newest
from headwater.warehouse import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def wh(spark: SparkSession, tmp_path: Path) -> Iterator[Warehouse]:
    with hw.connect(tmp_path / "w", spark=spark) as made:
        made.sql("CREATE TABLE moves (id INT PRIMARY KEY, account INT, amount INT)")
        made.sql("INSERT INTO moves VALUES (1, 1, 10), (2, 2, -10)")
        made.create_stream_table("balances", "SELECT account, sum(amount) AS balance FROM moves GROUP BY account")
        both = (
            "SELECT m.id, m.amount, b.balance, t.total FROM moves m JOIN balances b ON b.account = m.account "
            "CROSS JOIN (SELECT sum(amount) AS total FROM moves) t"
        )
        made.create_stream_table("shares", both, refresh_mode="DIFFERENTIAL", diamond_consistency="none")
        yield made


def rows(wh: Warehouse, name: str) -> list[tuple[object, ...]]:
    return sorted(tuple(r) for r in wh.table(name).collect())


def ids(wh: Warehouse, *names: str) -> list[str]:
    snapshot = wh.snapshot()
    found = [snapshot.table(n) for n in names]
    return [t.id for t in found if t is not None]


def test_what_is_committed_while_a_moment_is_refreshed_belongs_to_the_next_one(wh: Warehouse) -> None:
    balances, shares = ids(wh, "balances", "shares")
    wh.sql("INSERT INTO moves VALUES (3, 1, 5)")
    moment = newest(wh.snapshot())
    wh.sql("INSERT INTO moves VALUES (4, 1, 100)")

    first = wh._refresher.refresh(balances, at=moment)
    assert rows(wh, "balances") == [(1, 15), (2, -10)]
    wh.sql("INSERT INTO moves VALUES (5, 2, 1000)")
    moment = moment.with_refreshed(balances, first.version)
    report = wh._refresher.refresh(shares, at=moment)

    assert report.action is RefreshAction.DIFFERENTIAL
    assert rows(wh, "shares") == [(1, 10, 15, 5), (2, -10, -10, 5), (3, 5, 15, 5)]
    stream = wh.snapshot().streams[shares]
    assert (stream.frontier, dict(stream.frontiers)) == (moment.version, {balances: first.version})
    assert wh.verify("shares").equal
    assert wh.verify("balances").equal
    with hw.connect(wh._ground.layout.location, spark=wh.spark) as other:
        assert other.snapshot().streams[shares] == stream

    assert wh._refresher.refresh(shares, at=moment).action is RefreshAction.NO_DATA
    wh.refresh()
    assert rows(wh, "balances") == [(1, 115), (2, 990)]
    assert [r[2:] for r in rows(wh, "shares")] == [(115, 1105), (990, 1105), (115, 1105), (115, 1105), (990, 1105)]
    assert not wh.snapshot().streams[shares].frontiers
    assert wh.verify("shares").equal


def test_a_moment_that_is_over_changes_nothing(wh: Warehouse) -> None:
    (shares,) = ids(wh, "shares")
    wh.sql("INSERT INTO moves VALUES (3, 1, 5)")
    moment = newest(wh.snapshot())
    wh.sql("DELETE FROM moves WHERE id = 1")
    wh.refresh()
    version = wh.version
    report = wh._refresher.refresh(shares, at=moment)
    assert (report.action, report.reason) == (RefreshAction.NO_DATA, "it stands for a later moment already")
    assert wh.version == version


def test_vacuum_and_folding_keep_what_a_source_that_was_read_later_needs(wh: Warehouse) -> None:
    balances, shares = ids(wh, "balances", "shares")
    wh.sql("INSERT INTO moves VALUES (3, 1, 5)")
    moment = newest(wh.snapshot())
    wh.sql("INSERT INTO moves VALUES (4, 1, 100)")
    first = wh._refresher.refresh(balances, at=moment)
    wh._refresher.refresh(shares, at=moment.with_refreshed(balances, first.version))
    wh.refresh("balances")
    wh.sql("UPDATE moves SET amount = amount + 1 WHERE account = 1")
    wh.refresh("balances")
    for name in ("moves", "balances"):
        wh.compact(name)
    wh.vacuum(retention_hours=0)
    assert wh.verify("shares").equal
    assert wh.refresh("shares").action is RefreshAction.DIFFERENTIAL
    assert rows(wh, "shares") == [(1, 11, 118, 108), (2, -10, -10, 108), (3, 6, 118, 108), (4, 101, 118, 108)]
    assert wh.verify("shares").equal


def test_altering_keeps_the_versions_that_were_read(wh: Warehouse) -> None:
    balances, shares = ids(wh, "balances", "shares")
    wh.sql("INSERT INTO moves VALUES (3, 1, 5)")
    moment = newest(wh.snapshot())
    first = wh._refresher.refresh(balances, at=moment)
    wh._refresher.refresh(shares, at=moment.with_refreshed(balances, first.version))
    before = wh.snapshot().streams[shares]
    wh.alter_stream_table("shares", schedule="1h")
    after = wh.snapshot().streams[shares]
    assert before.frontiers == after.frontiers != {}
    assert wh.refresh("shares").action is RefreshAction.NO_DATA


# together -------------------------------------------------------------------------------------------------------------------


def test_tables_refreshed_together_appear_in_one_commit(wh: Warehouse) -> None:
    group = ids(wh, "balances", "shares")
    wh.sql("INSERT INTO moves VALUES (3, 1, 5)")
    moment = newest(wh.snapshot())
    wh.sql("INSERT INTO moves VALUES (4, 1, 100)")
    before = wh.version
    reports = wh._refresher.refresh_together(group, at=moment)
    assert [(r.name, r.action, r.version) for r in reports] == [
        ("balances", RefreshAction.DIFFERENTIAL, before + 1),
        ("shares", RefreshAction.DIFFERENTIAL, before + 1),
    ]
    assert wh.version == before + 1
    assert rows(wh, "shares") == [(1, 10, 15, 5), (2, -10, -10, 5), (3, 5, 15, 5)]
    assert wh.verify("shares").equal
    assert wh.snapshot().streams[group[1]].frontiers == {group[0]: before + 1}
    reports = wh._refresher.refresh_together(group)
    assert [r.action for r in reports] == [RefreshAction.DIFFERENTIAL] * 2
    assert wh.verify("shares").equal
    assert [r.action for r in wh._refresher.refresh_together(group)] == [RefreshAction.NO_DATA] * 2


def test_many_rows_are_handed_on_in_files(wh: Warehouse) -> None:
    group = ids(wh, "balances", "shares")
    wh.sql("INSERT INTO moves SELECT 10 + id, id % 3000, 1 FROM range(6000)")
    reports = wh._refresher.refresh_together(group)
    assert [r.action for r in reports] == [RefreshAction.DIFFERENTIAL] * 2
    assert reports[0].rows_inserted > 2900
    assert wh.verify("balances").equal
    assert wh.verify("shares").equal
    wh.sql("DELETE FROM moves WHERE id >= 10")
    reports = wh._refresher.refresh_together(group)
    assert [r.action for r in reports] == [RefreshAction.DIFFERENTIAL] * 2
    assert wh.verify("shares").equal
    assert len(rows(wh, "shares")) == 2


def test_a_full_refresh_in_the_middle_hands_on_its_difference(wh: Warehouse) -> None:
    wh.create_stream_table("whole", "SELECT account, sum(amount) AS a FROM moves GROUP BY account", refresh_mode="FULL")
    wh.create_stream_table("above", "SELECT a, count(*) AS n FROM whole GROUP BY a", refresh_mode="DIFFERENTIAL")
    group = ids(wh, "whole", "above")
    wh.sql("UPDATE moves SET amount = 11 WHERE id = 1")
    reports = wh._refresher.refresh_together(group)
    assert [(r.action, r.rows_inserted, r.rows_deleted) for r in reports] == [
        (RefreshAction.FULL, 1, 1),
        (RefreshAction.DIFFERENTIAL, 1, 1),
    ]
    assert rows(wh, "above") == [(-10, 1), (11, 1)]
    assert wh.verify("above").equal


def test_if_one_fails_none_of_the_group_changes(wh: Warehouse) -> None:
    wh.create_stream_table("inverse", "SELECT account, 100 DIV balance AS q FROM balances", refresh_mode="DIFFERENTIAL")
    group = ids(wh, "balances", "inverse", "shares")
    before = {n: rows(wh, n) for n in ("balances", "inverse", "shares")}
    version = wh.version
    wh.sql("UPDATE moves SET amount = 0 WHERE id = 1")
    with pytest.raises(hw.errors.EvaluationError):
        wh._refresher.refresh_together(group)
    assert wh.version == version + 1
    assert {n: rows(wh, n) for n in before} == before
    assert [(r.table_id, r.status) for r in wh.history(limit=2)] == [(group[1], "FAILED"), (group[0], "ROLLED_BACK")]
    assert [s.last_error is not None for s in wh.status() if s.kind == "stream"] == [False, True, False]
    wh.sql("UPDATE moves SET amount = 4 WHERE id = 1")
    wh._refresher.refresh_together(group)
    assert rows(wh, "inverse") == [(1, 25), (2, -10)]
    assert all(v.equal for v in wh.verify())
