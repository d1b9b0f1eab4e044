"""`when_full`: what a stream table does where changes do not suffice and nobody asked for a full refresh. Each value by what it changes."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headwater as hw
from headwater.catalog import Options
from headwater.catalog.migrate import Migrations
from headwater.catalog.opening import create_catalog
from headwater.errors import EvaluationError, FullRefusedError, NotIncrementalError, SettingError, StatementError, brief
from headwater.model.tables import RefreshAction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHANCE = "SELECT id, rand() AS r FROM t"
"""Never incremental: there is no change that would bring a new random number."""
PLAIN = "SELECT id, v FROM t WHERE v > 0"
VALUES = ("refuse", "warn", "allow")


@pytest.fixture(scope="module")
def shared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with hw.connect(tmp_path_factory.mktemp("when_full") / "w", spark=spark) as wh:
        wh.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v INT)")
        wh.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
        yield wh


@pytest.fixture
def wh(shared: Any) -> Iterator[Any]:
    """A warehouse with a table `t` and no stream table."""
    yield shared
    for status in shared.status():
        if status.kind == "stream":
            shared.drop_stream_table(status.name)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.NOTSET):
        yield caplog


def warnings(log: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings so far, and forget them."""
    found = [r.getMessage() for r in log.records if r.name == "headwater.refresh" and r.levelno >= logging.WARNING]
    log.clear()
    return found


def one(wh: Any, name: str) -> Any:
    return next(s for s in wh.status() if s.name == name)


def created(wh: Any, way: str, when_full: str, query: str = CHANCE) -> tuple[Any, tuple[str, ...]]:
    """Create the stream table `s` by Python or SQL; return its status and the notices shown."""
    if way == "python":
        status = wh.create_stream_table("s", query, when_full=when_full)
        return status, status.notices
    result = wh.sql(f"CREATE STREAM TABLE s WITH (when_full = '{when_full}') AS {query}")
    return result.value, result.notices


# creating ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["python", "sql"])
class TestCreation:
    def test_refuse_creates_nothing_and_gives_all_reasons(
        self, wh: Any, log: pytest.LogCaptureFixture, way: str
    ) -> None:
        version = wh.version
        query = "SELECT id, rand() AS r, current_timestamp() AS now FROM t"
        with pytest.raises(NotIncrementalError) as caught:
            created(wh, way, "refuse", query)
        error = caught.value
        assert error.code == "HW402"
        assert error.message == 'stream table "s" cannot be maintained incrementally, and its when_full is refuse'
        assert "EXPRESSION_NOT_DETERMINISTIC at rand(" in (error.detail or "")
        assert "TIME_DEPENDENT at " in (error.detail or "")
        assert "when_full = 'warn'" in (error.hint or "")
        assert (wh.version, [s.name for s in wh.status()], warnings(log)) == (version, ["t"], [])

    def test_warn_creates_with_a_notice_and_a_warning(self, wh: Any, log: pytest.LogCaptureFixture, way: str) -> None:
        status, notices = created(wh, way, "warn")
        assert (status.when_full, status.mode, status.rows) == ("warn", "AUTO", 2)
        [notice] = notices
        assert notice.startswith("it will be computed in full: EXPRESSION_NOT_DETERMINISTIC: rand(")
        [line] = warnings(log)
        assert line.startswith("created without incremental maintenance table=s reason=EXPRESSION_NOT_DETERMINISTIC")

    def test_allow_creates_silently_and_explain_knows_why(
        self, wh: Any, log: pytest.LogCaptureFixture, way: str
    ) -> None:
        status, notices = created(wh, way, "allow")
        assert (status.when_full, status.rows, notices, warnings(log)) == ("allow", 2, (), [])
        text = wh.explain_stream_table("s")
        assert "when_full    allow" in text
        assert "not incremental: EXPRESSION_NOT_DETERMINISTIC at rand(" in text
        assert "notice" not in text

    @pytest.mark.parametrize("value", VALUES)
    def test_a_query_that_is_incremental_has_nothing_to_say(
        self, wh: Any, log: pytest.LogCaptureFixture, way: str, value: str
    ) -> None:
        status, notices = created(wh, way, value, PLAIN)
        assert (status.when_full, notices, warnings(log)) == (value, (), [])
        assert f"when_full    {value}" in wh.explain_stream_table("s")

    def test_a_value_that_is_none(self, wh: Any, way: str) -> None:
        with pytest.raises(StatementError) as caught:
            created(wh, way, "maybe", PLAIN)
        assert caught.value.message == "when_full cannot be 'maybe'"
        assert caught.value.hint == "Choose one of refuse, warn, allow."
        assert [s.name for s in wh.status()] == ["t"]

    def test_letter_case_does_not_matter(self, wh: Any, way: str) -> None:
        assert created(wh, way, "Refuse", PLAIN)[0].when_full == "refuse"


def test_the_mode_full_is_asked_for(wh: Any, log: pytest.LogCaptureFixture) -> None:
    made = wh.create_stream_table("s", CHANCE, refresh_mode="FULL", when_full="refuse")
    assert (made.when_full, made.notices) == ("refuse", ())
    assert wh.refresh("s").action is hw.RefreshAction.FULL
    assert warnings(log) == []
    with pytest.raises(NotIncrementalError):  # going back to AUTO is a creation
        wh.alter_stream_table("s", refresh_mode="AUTO")
    assert one(wh, "s").mode == "FULL"


def test_the_mode_differential_refuses_under_any_value(wh: Any) -> None:
    with pytest.raises(NotIncrementalError, match=r'"s" cannot be maintained incrementally\n'):
        wh.create_stream_table("s", CHANCE, refresh_mode="DIFFERENTIAL", when_full="allow")


def test_an_unknown_option_is_refused(wh: Any) -> None:
    for statement in (
        f"CREATE STREAM TABLE s WITH (when_ful = 'warn') AS {PLAIN}",
        "ALTER STREAM TABLE s SET (when_ful = 'warn')",
    ):
        with pytest.raises(StatementError, match="unknown option 'when_ful'") as caught:
            wh.sql(statement)
        assert "when_full" in (caught.value.hint or "")


# refreshing -------------------------------------------------------------------------------------------------------------------


def test_a_query_that_is_not_incremental_is_refreshed_as_the_table_says(wh: Any, log: pytest.LogCaptureFixture) -> None:
    wh.create_stream_table("s", CHANCE, when_full="allow")
    before = wh.table("s").toArrow()
    assert wh.refresh("s").action is hw.RefreshAction.FULL
    changed = wh.table("s").toArrow()
    assert (warnings(log), changed != before) == ([], True)

    wh.alter_stream_table("s", when_full="warn")
    report = wh.refresh("s")
    assert (report.action, report.reason[:28]) == (hw.RefreshAction.FULL, "EXPRESSION_NOT_DETERMINISTIC")
    assert warnings(log) == [f"computed in full table=s reason={report.reason}"]

    wh.alter_stream_table("s", when_full="refuse")
    contents, status, version = wh.table("s").toArrow(), one(wh, "s"), wh.version
    with pytest.raises(FullRefusedError) as caught:
        wh.refresh("s")
    error = caught.value
    assert error.code == "HW403"
    assert error.message == 'stream table "s" would be computed in full, and its when_full is refuse'
    assert report.reason in (error.detail or "")
    assert "full=True" in (error.hint or "")
    assert "ALTER STREAM TABLE `s` SET (when_full = 'warn')" in (error.hint or "")
    assert wh.table("s").toArrow() == contents
    assert (wh.version, one(wh, "s").frontier, one(wh, "s").last_error) == (version, status.frontier, brief(error))
    assert [(r.status, r.error) for r in wh.history("s", 1)] == [("FAILED", str(error))]
    with pytest.raises(FullRefusedError):
        wh.sql("REFRESH STREAM TABLE s")

    log.clear()
    report = wh.refresh("s", full=True)  # asked for
    assert (report.action, report.reason, warnings(log)) == (hw.RefreshAction.FULL, "asked for", [])
    assert (one(wh, "s").last_error, one(wh, "s").when_full) == (None, "refuse")


@pytest.mark.parametrize("mode", ["AUTO", "DIFFERENTIAL"])
def test_changes_that_are_no_longer_kept(
    spark: SparkSession, tmp_path: Path, log: pytest.LogCaptureFixture, mode: str
) -> None:
    settings = {"consumer_limit_rows": 5, "vacuum_grace_seconds": 0}
    with hw.connect(tmp_path / "w", spark=spark, settings=settings) as wh:
        wh.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v INT)")
        wh.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
        for value in VALUES:
            wh.create_stream_table(value, "SELECT sum(v) AS total FROM t", refresh_mode=mode, when_full=value)
        for i in range(6):
            wh.sql(f"UPDATE t SET v = v + {i + 1} WHERE id = 1")
        wh.compact("t")
        wh.vacuum(retention_hours=0)
        assert [one(wh, value).status for value in VALUES] == ["REREAD"] * 3
        reason = "its changes were no longer kept"
        assert one(wh, "refuse").notices[0].endswith(f"refuse: {reason}")
        assert one(wh, "warn").notices == (f"it will be computed in full: {reason}",)
        assert one(wh, "allow").notices == ()
        log.clear()

        version = wh.version
        with pytest.raises(FullRefusedError, match=reason):
            wh.refresh("refuse")
        assert (wh.version, one(wh, "refuse").status) == (version, "REREAD")
        assert wh.table("refuse").collect()[0].total == 3
        log.clear()

        for value, lines in (("warn", [f"computed in full table=warn reason={reason}"]), ("allow", [])):
            report = wh.refresh(value)
            assert (report.action, report.reason) == (hw.RefreshAction.FULL, reason)
            assert (wh.table(value).collect()[0].total, warnings(log)) == (24, lines)

        assert wh.refresh("refuse", full=True).action is hw.RefreshAction.FULL
        wh.sql("UPDATE t SET v = 0 WHERE id = 2")
        for value in VALUES:  # with its changes at hand, no table is full and none is refused
            assert wh.refresh(value).action is hw.RefreshAction.DIFFERENTIAL
            assert wh.table(value).collect()[0].total == 22
            assert wh.verify(value).equal
        assert warnings(log) == []


def test_nothing_changed_is_nothing_to_refuse(wh: Any) -> None:
    limited = "SELECT id FROM t LIMIT 1"
    wh.create_stream_table("s", limited, when_full="allow")
    wh.alter_stream_table("s", when_full="refuse")
    assert wh.refresh("s").action is hw.RefreshAction.NO_DATA
    wh.sql("UPDATE t SET v = v + 1")
    with pytest.raises(FullRefusedError):
        wh.refresh("s")


# altering ---------------------------------------------------------------------------------------------------------------------


def test_alter_changes_this_alone(wh: Any) -> None:
    made = wh.create_stream_table("s", PLAIN, schedule="5s")
    assert made.when_full == "warn"
    altered = wh.sql("ALTER STREAM TABLE s SET (when_full = 'refuse')").value
    assert (altered.when_full, altered.schedule, altered.mode) == ("refuse", "5s", "AUTO")
    assert (altered.frontier, altered.rows) == (made.frontier, made.rows)
    assert wh.alter_stream_table("s", when_full="allow").when_full == "allow"
    assert wh.alter_stream_table("s", schedule="9s").when_full == "allow"
    both = wh.sql("ALTER STREAM TABLE s SET SCHEDULE '1s' SET (when_full = warn)").value
    assert (both.when_full, both.schedule) == ("warn", "1s")
    wh.sql("UPDATE t SET v = v + 1")
    assert wh.refresh("s").action is hw.RefreshAction.DIFFERENTIAL
    with pytest.raises(StatementError, match="when_full cannot be 'never'"):
        wh.sql("ALTER STREAM TABLE s SET (when_full = 'never')")


def test_a_new_query_keeps_it_and_obeys_it(wh: Any) -> None:
    wh.create_stream_table("s", PLAIN, when_full="refuse")
    with pytest.raises(NotIncrementalError):
        wh.sql(f"ALTER STREAM TABLE s AS {CHANCE}")
    assert wh.table("s").columns == ["id", "v"]
    result = wh.sql(f"ALTER STREAM TABLE s SET (when_full = 'warn') AS {CHANCE}")
    assert (result.value.when_full, len(result.notices)) == ("warn", 1)
    assert wh.alter_stream_table("s", query=PLAIN).when_full == "warn"


def test_alter_to_refuse_says_what_it_means_for_the_next_refresh(wh: Any) -> None:
    wh.create_stream_table("s", CHANCE, when_full="allow")
    [notice] = wh.sql("ALTER STREAM TABLE s SET (when_full = 'refuse')").notices
    assert notice.startswith("its refresh will be refused, because its when_full is refuse: EXPRESSION_NOT_DET")
    assert f"notice       {notice}" in wh.explain_stream_table("s")


# the default, and tables that were there before -----------------------------------------------------------------------------


def test_the_setting_is_the_default_of_new_tables_only(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hw.connect(tmp_path / "w", spark=spark) as wh:
        wh.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v INT)")
        wh.create_stream_table("before", PLAIN)
    (tmp_path / "w" / "headwater.toml").write_text('when_full = "refuse"\n')
    with hw.connect(tmp_path / "w", spark=spark) as wh:
        wh.create_stream_table("s", PLAIN)
        wh.create_stream_table("own", PLAIN, when_full="allow")
        with pytest.raises(NotIncrementalError):
            wh.sql(f"CREATE STREAM TABLE r AS {CHANCE}")
        assert [one(wh, n).when_full for n in ("before", "s", "own")] == ["warn", "refuse", "allow"]
        replaced = wh.sql(f"CREATE OR REPLACE STREAM TABLE own AS {PLAIN}").value
        assert replaced.when_full == "refuse"  # a replacement is a new table
    monkeypatch.setenv("HEADWATER_WHEN_FULL", "allow")
    with hw.connect(tmp_path / "w", spark=spark) as wh:
        assert wh.create_stream_table("r", CHANCE).when_full == "allow"
    monkeypatch.setenv("HEADWATER_WHEN_FULL", "perhaps")
    with pytest.raises(SettingError, match="setting \"when_full\" cannot be 'perhaps'"):
        hw.connect(tmp_path / "w", spark=spark)


def in_the_first_format(path: Path) -> None:
    """Replace the catalog of a warehouse by one that the first format has room for."""
    file, new = path / "headwater.db", path / "new.db"
    shutil.move(file, new)
    create_catalog(str(file), ".", Options(), Migrations(1)).database.close()
    with closing(sqlite3.connect(file)) as old:
        old.execute("PRAGMA foreign_keys = OFF")
        old.execute("ATTACH ? AS new", (str(new),))
        tables = [r[0] for r in old.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'")]
        for table in tables:
            columns = [r[1] for r in old.execute(f"PRAGMA main.table_info({table})")]
            if table.startswith(("sqlite_", "alembic_")):
                continue
            names = ", ".join(columns)
            old.execute(f"DELETE FROM main.{table}")
            old.execute(f"INSERT INTO main.{table} ({names}) SELECT {names} FROM new.{table}")
        old.execute("UPDATE main.warehouse SET format = 1")
        assert "when_full" not in [r[1] for r in old.execute("PRAGMA main.table_info(streams)")]
        old.commit()
    new.unlink()


def test_tables_of_the_previous_format_warn(spark: SparkSession, tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    with hw.connect(tmp_path / "w", spark=spark) as wh:
        wh.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v INT)")
        wh.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
        wh.create_stream_table("s", PLAIN, schedule="5s", when_full="refuse")
        wh.create_stream_table("r", CHANCE, when_full="allow")
        contents = wh.table("r").toArrow()
    in_the_first_format(tmp_path / "w")
    log.clear()
    with hw.connect(tmp_path / "w", spark=spark, settings={"when_full": "refuse"}) as wh:
        assert {s.name: (s.when_full, s.schedule) for s in wh.status() if s.kind == "stream"} == {
            "s": ("warn", "5s"),
            "r": ("warn", None),
        }
        assert wh.table("r").toArrow() == contents
        wh.sql("INSERT INTO t VALUES (3, 3)")
        assert wh.refresh("s").action is hw.RefreshAction.DIFFERENTIAL
        assert warnings(log) == []
        assert wh.refresh("r").action is hw.RefreshAction.FULL
        assert len(warnings(log)) == 1
        assert (wh.table("s").count(), wh.table("r").count()) == (3, 3)


def test_pairs_that_never_were_may_fail_and_are_computed_in_full_then(wh: Any) -> None:
    """Each side's change meets the other side's rows of either time: together they may divide by zero though no row of the query does."""
    wh.sql("CREATE TABLE a (id INT PRIMARY KEY, v INT)")
    wh.sql("CREATE TABLE b (id INT PRIMARY KEY, w INT)")
    wh.sql("INSERT INTO a VALUES (1, 1), (2, 5), (3, 1)")
    wh.sql("INSERT INTO b VALUES (1, 5), (2, 1), (3, 1)")
    query = "SELECT a.id, 60 DIV (a.v + b.w) AS q FROM a JOIN b ON a.id = b.id"
    wh.create_stream_table("allowed", query, refresh_mode="DIFFERENTIAL", when_full="allow")
    wh.create_stream_table("refusing", query, refresh_mode="DIFFERENTIAL", when_full="refuse")
    with wh.transaction():
        wh.sql("UPDATE a SET v = if(id = 1, -5, 1) WHERE id < 3")
        wh.sql("UPDATE b SET w = if(id = 1, 1, -5) WHERE id < 3")
    report = wh.refresh("allowed")
    assert report.action is RefreshAction.FULL
    assert "DIVIDE_BY_ZERO" in (report.reason or "")
    assert sorted(map(tuple, wh.table("allowed").collect())) == [(1, -15), (2, -15), (3, 30)]
    with pytest.raises(FullRefusedError) as refused:
        wh.refresh("refusing")
    assert "DIVIDE_BY_ZERO" in (refused.value.detail or "")
    assert sorted(map(tuple, wh.table("refusing").collect())) == [(1, 10), (2, 10), (3, 30)]
    wh.sql("UPDATE a SET v = 2 WHERE id = 3")
    assert wh.refresh("allowed").action is RefreshAction.DIFFERENTIAL
    assert wh.verify("allowed").equal


def test_a_query_that_fails_fails_in_full_too(wh: Any) -> None:
    wh.sql("CREATE TABLE divisors (id INT PRIMARY KEY, v INT)")
    wh.sql("INSERT INTO divisors VALUES (1, 1)")
    wh.create_stream_table(
        "inverse", "SELECT id, 60 DIV v AS q FROM divisors", refresh_mode="DIFFERENTIAL", when_full="allow"
    )
    wh.sql("INSERT INTO divisors VALUES (2, 0)")
    with pytest.raises(EvaluationError) as failed:
        wh.refresh("inverse")
    assert "DIVIDE_BY_ZERO" in (failed.value.detail or "")
    wh.sql("UPDATE divisors SET v = 2 WHERE id = 2")
    assert wh.refresh("inverse").action is RefreshAction.DIFFERENTIAL
    assert sorted(map(tuple, wh.table("inverse").collect())) == [(1, 60), (2, 30)]
