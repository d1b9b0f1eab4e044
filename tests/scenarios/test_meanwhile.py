"""What others do between the moment a process reads and the moment it commits: it is refused as busy, or it is right.

The dangerous things are those that the commit does not see by itself. The new frontier of a refresh is not in the catalog yet, so
vacuum could take the changes after it for unneeded, or sum them with changes before it. A change of definition could set a frontier
back that somebody else has moved on.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headwater as hw
from headwater.catalog import CommitUnknownError
from headwater.errors import BusyError, EvaluationError, UnknownVersionError
from headwater.refresh.graph import topological

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {"retention_hours": 0, "vacuum_grace_seconds": 0}
QUERY = "SELECT k, count(*) AS n, sum(v) AS total FROM t GROUP BY k"


def _before_commit(wh: Any, number: int, act: Callable[[], None]) -> None:
    """Let `act` happen before the commit with this number that `wh` makes."""
    commit = wh._catalog.commit
    calls = 0

    def wrapped(given: Any) -> int:
        nonlocal calls
        calls += 1
        if calls == number:
            act()
        return int(commit(given))

    wh._catalog.commit = wrapped


def _insert(wh: Any, first: int, count: int = 3) -> None:
    wh.insert("t", [{"id": i, "k": i % 2, "v": i} for i in range(first, first + count)])


@pytest.fixture
def pair(spark: SparkSession, tmp_path: Path) -> tuple[Any, Any]:
    """Two users of one warehouse."""
    one = hw.connect(tmp_path / "w", spark=spark, settings=SETTINGS)
    one.create_table("t", "id BIGINT, k BIGINT, v BIGINT", primary_key="id")
    _insert(one, 0)
    return one, hw.connect(tmp_path / "w", spark=spark, settings=SETTINGS)


def _finish(one: Any, other: Any, work: Callable[[], object]) -> None:
    """Run `work`; refused as busy it is run again. Then the stream table must be right."""
    try:
        work()
    except BusyError:
        work()
    one.refresh("s")
    result = one.verify("s")
    assert result.equal, result
    total = one.sql("SELECT sum(n) AS n FROM s").collect()[0]["n"]
    assert total == one.table("t").count()
    one.close()
    other.close()


def test_changes_after_a_first_refresh_in_flight(pair: tuple[Any, Any]) -> None:
    one, other = pair

    def meanwhile() -> None:
        _insert(other, 100)
        _insert(other, 200)
        other.compact("t")
        other.vacuum()

    _before_commit(one, 1, meanwhile)
    _finish(one, other, lambda: one.create_stream_table("s", QUERY))


def test_changes_around_a_differential_refresh_in_flight(pair: tuple[Any, Any]) -> None:
    one, other = pair
    one.create_stream_table("s", QUERY)
    _insert(one, 100)
    _insert(one, 200)

    def meanwhile() -> None:
        _insert(other, 300)
        _insert(other, 400)
        other.vacuum()

    _before_commit(one, 1, meanwhile)
    _finish(one, other, lambda: one.refresh("s"))


def test_b49_a_transaction_that_commits_after_the_frontier_passed_it_is_not_lost(pair: tuple[Any, Any]) -> None:
    one, other = pair
    one.create_table("u", "k BIGINT, v BIGINT")
    query = "SELECT k, count(*) AS n, sum(v) AS total FROM (SELECT k, v FROM t UNION ALL SELECT k, v FROM u) GROUP BY k"
    one.create_stream_table("s", query)
    with one.transaction():
        _insert(one, 100)
        for k in (0, 1):  # the frontier moves on, twice, between the first statement and the commit
            other.insert("u", [{"k": k, "v": 1}])
            assert other.refresh("s").action is hw.RefreshAction.DIFFERENTIAL
    report = other.refresh("s")
    assert (report.action, report.rows_in) == (hw.RefreshAction.DIFFERENTIAL, 3)
    assert other.verify("s").equal
    assert sorted(map(tuple, other.table("s").collect())) == [(0, 5, 205), (1, 3, 103)]
    one.close()
    other.close()


@pytest.mark.parametrize("is_committed", [False, True])
def test_b58_a_refresh_whose_commit_breaks_is_there_whole_and_once_or_not_at_all(
    pair: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    one, other = pair
    one.create_stream_table("s", QUERY)
    _insert(one, 100)
    before = other.version
    commit = one._catalog.commit

    def broken(given: Any) -> int:
        if is_committed:
            commit(given)
        raise CommitUnknownError("the connection broke")

    with monkeypatch.context() as patch:
        patch.setattr(one._catalog, "commit", broken)
        with pytest.raises(CommitUnknownError):
            one.refresh("s")
    assert other.version == before + is_committed
    rows, changes = other.table("s"), other.changes("s", before)
    assert (rows.selectExpr("sum(n)").collect()[0][0], changes.count()) == ((6, 4) if is_committed else (3, 0))
    assert other.verify("s").equal
    again = other.refresh("s")
    assert again.action is (hw.RefreshAction.NO_DATA if is_committed else hw.RefreshAction.DIFFERENTIAL)
    assert other.changes("s", before).count() == 4
    _finish(one, other, lambda: one.refresh("s"))


def test_b72_a_stream_table_that_another_process_made_is_refreshed_with_the_rest(pair: tuple[Any, Any]) -> None:
    one, other = pair
    assert other.refresh() == []
    one.create_stream_table("s", QUERY)
    _insert(one, 100)
    assert [(r.name, r.action) for r in other.refresh()] == [("s", hw.RefreshAction.DIFFERENTIAL)]
    _finish(one, other, lambda: one.refresh("s"))


def test_b74_a_refresh_that_failed_holds_no_lease(pair: tuple[Any, Any]) -> None:
    one, other = pair
    one.create_stream_table("s", "SELECT k, count(*) AS n, sum(10 DIV (v - 100)) AS q FROM t GROUP BY k")
    _insert(one, 100)
    for user in (one, other, one):
        with pytest.raises(EvaluationError, match="DIVIDE_BY_ZERO"):
            user.refresh("s")
    other.sql("DELETE FROM t WHERE id = 100")
    assert other.refresh("s").action is hw.RefreshAction.DIFFERENTIAL
    _finish(one, other, lambda: one.refresh("s"))


def test_a_refresh_while_another_alters_the_schedule(pair: tuple[Any, Any]) -> None:
    one, other = pair
    one.create_stream_table("s", QUERY)
    _insert(one, 100)
    _before_commit(one, 1, lambda: other.refresh("s"))
    _finish(one, other, lambda: one.alter_stream_table("s", schedule="5m"))


def test_a_stream_table_dropped_while_all_are_refreshed(pair: tuple[Any, Any]) -> None:
    one, other = pair
    one.create_stream_table("a", QUERY)
    one.create_stream_table("s", QUERY)
    _insert(one, 100)
    _before_commit(one, 1, lambda: other.drop_stream_table("s" if order[0] == "a" else "a"))
    order = [one.snapshot().tables[i].name for i in topological(one.snapshot())]
    with suppress(BusyError):
        one.refresh()
    assert one.verify(order[0]).equal
    one.close()
    other.close()


def test_vacuum_with_a_longer_retention_than_before(pair: tuple[Any, Any]) -> None:
    one, other = pair
    one.vacuum(retention_hours=0)
    _insert(one, 100)
    report = other.vacuum(retention_hours=24)
    assert report.oldest_version > 0
    assert one.table("t").count() == 6
    one.close()
    other.close()


def test_a_vacuum_overtaken_by_another(pair: tuple[Any, Any]) -> None:
    one, other = pair
    moved = one._catalog.removable_files

    def overtaken(keep_from: int, before: float) -> Any:
        _insert(other, 100)
        other.vacuum()
        return moved(keep_from, before)

    one._catalog.removable_files = overtaken
    one.vacuum()
    assert one.table("t").count() == 6
    one.close()
    other.close()


@pytest.mark.parametrize("read", ["table", "sql", "changes"])
def test_a_reader_that_vacuum_overtakes_reads_again(pair: tuple[Any, Any], read: str) -> None:
    one, two = pair
    first = one.version
    held, calls = one._pins.held, 0

    def overtaken(frame: Any, version: int) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            _insert(two, 100)
            two.vacuum(retention_hours=0)
        return held(frame, version)

    one._pins.held = overtaken
    if read == "changes":
        with pytest.raises(UnknownVersionError, match="no longer kept"):
            one.changes("t", first - 1)
        assert one.changes("t", one.version).count() == 0
        return
    frame = one.table("t") if read == "table" else one.sql("SELECT * FROM t")
    assert (calls, frame.count()) == (2, 6)
