"""`headwater run`: it refreshes what is due, says what it does, and ends as it is asked to."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.cli.shops import Run, documents
from tests.support.postgres import postgres_server, postgres_url  # noqa: F401

import headwater as hw
from headwater.cli import client
from headwater.cli.cells import Column
from headwater.cli.output import output_on
from headwater.cli.runboard import RunView
from headwater.cli.screen import Screen, Surface, console_on
from headwater.cli.service import Service
from headwater.cli.sockets import SOCKET, connected, listening
from headwater.model.tables import RefreshAction
from headwater.refresh.cycle import Refresher, RefreshReport, Terms
from headwater.schedule.scheduler import TickReport
from headwater.warehouse import Warehouse

FAILING = "CREATE STREAM TABLE inverse AS SELECT id, 1 / (amount - 1) AS x FROM orders"


@pytest.fixture
def warehouse(shop: str) -> Iterator[Warehouse]:
    with hw.connect(shop, create=False) as opened:
        yield opened


def signalled(condition: Callable[[], bool], *numbers: int) -> threading.Thread:
    """Send signals to this process, one after the other, as soon as something is the case."""

    def send() -> None:
        deadline = time.monotonic() + 60
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.05)
        for number in numbers:
            time.sleep(0.3)
            os.kill(os.getpid(), number)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def events(result: Any) -> list[dict[str, Any]]:
    return documents(result)


# -- one tick ----------------------------------------------------------------------------------------------------------------


def test_once_refreshes_what_is_due_and_ends(run: Run, shop: str, warehouse: Warehouse) -> None:
    warehouse.sql("INSERT INTO orders VALUES (9, 'west', 10.00)")
    [document] = documents(run("run", "--once", "--json", "-w", shop))
    found = {row["name"]: row for row in document["tables"]}
    assert {n: r["action"] for n, r in found.items()} == {"sales": "DIFFERENTIAL", "large": "DIFFERENTIAL"}
    assert found["sales"]["rows_inserted"] == 1
    assert document["warehouse"] == shop
    assert not (Path(shop) / SOCKET).exists()
    [again] = documents(run("run", "--once", "--json", "-w", shop))
    assert again["tables"] == []
    assert warehouse.verify("sales").equal


def test_once_says_what_was_left_and_why(run: Run, shop: str, warehouse: Warehouse) -> None:
    warehouse.sql("INSERT INTO orders VALUES (9, 'west', 10.00)")
    warehouse.pause_scheduler("sales")
    [document] = documents(run("run", "--once", "--json", "-w", shop))
    found = {row["name"]: row for row in document["tables"]}
    assert (found["sales"]["action"], found["sales"]["freshness"]) == ("SKIPPED", "paused")
    assert found["large"]["action"] == "DIFFERENTIAL"


def test_once_is_1_if_something_failed(run: Run, shop: str, warehouse: Warehouse) -> None:
    warehouse.sql(FAILING)
    warehouse.sql("INSERT INTO orders VALUES (9, 'west', 1.00)")
    result = run("run", "--once", "-w", shop)
    assert result.exit_code == 1
    assert "FAILED" in result.output
    assert "DIVIDE_BY_ZERO" in warehouse.history("inverse", 1)[0].error  # type: ignore[operator]
    assert warehouse.verify("sales").equal


def test_once_of_several_warehouses_is_a_document_each(run: Run, shop: str, tmp_path: Path) -> None:
    other = shutil.copytree(shop, tmp_path / "depot")
    with hw.connect(other, create=False) as depot:
        depot.sql("INSERT INTO orders VALUES (9, 'west', 10.00)")
    first, second = documents(run("run", "--once", "--json", "-w", shop, "-w", str(other)))
    assert (first["warehouse"], first["tables"]) == (shop, [])
    assert {row["name"] for row in second["tables"]} == {"sales", "large"}


def test_wrong_usage(run: Run, shop: str, tmp_path: Path) -> None:
    assert run("run", "--once", "--seconds", "3", "-w", shop).exit_code == 2
    missing = run("run", "-w", shop, "-w", str(tmp_path / "none"))
    assert missing.exit_code == 1
    assert "HW101" in missing.stderr
    assert not (Path(shop) / SOCKET).exists()


# -- going on ----------------------------------------------------------------------------------------------------------------


def test_it_refreshes_until_its_time_is_over(run: Run, shop: str, warehouse: Warehouse) -> None:
    warehouse.sql("INSERT INTO orders VALUES (9, 'west', 10.00)")
    ready, *refreshes, stopped = events(run("run", "--seconds", "2", "--json", "-w", shop))
    assert ready["event"] == "ready"
    assert ready["pid"] == os.getpid()
    [site] = ready["warehouses"]
    assert (site["warehouse"], site["stream_tables"], site["socket"]) == (shop, 2, str(Path(shop) / SOCKET))
    assert {(r["event"], r["name"], r["action"]) for r in refreshes} == {
        ("refresh", "sales", "DIFFERENTIAL"),
        ("refresh", "large", "DIFFERENTIAL"),
    }
    assert stopped == {"event": "stopped", "refreshes": 2, "failures": 0, "drained": True}
    assert not (Path(shop) / SOCKET).exists()
    assert warehouse.verify("sales").equal


def test_lines_for_people(run: Run, shop: str, warehouse: Warehouse) -> None:
    warehouse.sql("INSERT INTO orders VALUES (9, 'west', 10.00)")
    result = run("run", "--seconds", "2", "-w", shop)
    assert result.exit_code == 0
    ready, *lines, stopped = result.stdout.splitlines()
    assert ready.startswith(f"ready: {shop}, 2 stream tables, ")
    assert any(line.startswith("stream table sales  action DIFFERENTIAL") for line in lines)
    assert stopped == "stopped after 2 refreshes"


def test_several_warehouses_in_one_process(run: Run, shop: str, tmp_path: Path) -> None:
    other = shutil.copytree(shop, tmp_path / "depot")
    for place in (shop, other):
        with hw.connect(place, create=False) as opened:
            opened.sql("INSERT INTO orders VALUES (9, 'west', 10.00)")
    ready, *refreshes, stopped = events(run("run", "--seconds", "4", "--json", "-w", shop, "-w", str(other)))
    assert [w["warehouse"] for w in ready["warehouses"]] == [shop, str(other)]
    assert {(r["warehouse"], r["name"]) for r in refreshes} == {
        (w, n) for w in (shop, str(other)) for n in ("sales", "large")
    }
    assert stopped["refreshes"] == 4


def test_a_second_process_works_without_the_socket(run: Run, shop: str, warehouse: Warehouse) -> None:
    first = listening(Path(shop))
    assert first is not None
    warehouse.sql("INSERT INTO orders VALUES (9, 'west', 10.00)")
    ready, *refreshes, _ = events(run("run", "--seconds", "2", "--json", "-w", shop))
    assert ready["warehouses"][0]["socket"] is None
    assert {r["name"] for r in refreshes} == {"sales", "large"}
    assert (Path(shop) / SOCKET).exists()
    assert "another process" in run("run", "--seconds", "0", "-w", shop).stdout
    first.close()


def test_without_a_place_for_a_socket_it_runs_all_the_same(
    run: Run, shop: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(_: Path) -> Any:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("headwater.cli.sites.listening", refused)
    result = run("run", "--seconds", "0", "-w", shop)
    assert result.exit_code == 0
    assert "Operation not supported" in result.stdout


# -- the end -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_with_0(run: Run, shop: str, number: int) -> None:
    handler = signal.getsignal(number)
    sender = signalled(lambda: connected_to(shop), number)
    began = time.monotonic()
    *_, stopped = events(run("run", "--seconds", "60", "--json", "-w", shop))
    sender.join()
    assert time.monotonic() - began < 50
    assert stopped["event"] == "stopped"
    assert not (Path(shop) / SOCKET).exists()
    assert signal.getsignal(number) is handler


def connected_to(shop: str) -> bool:
    connection = connected(Path(shop))
    if connection is not None:
        connection.close()
    return connection is not None


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Refreshes that run until they are cancelled, or until the event that is yielded is set; `began` of it is set by them."""
    free = threading.Event()
    free.began = threading.Event()  # type: ignore[attr-defined]
    real = Refresher.refresh_unit

    def refresh_unit(self: Refresher, *arguments: Any, **named: Any) -> Any:
        free.began.set()  # type: ignore[attr-defined]
        terms = named["terms"] or Terms()
        while not free.wait(0.05):
            terms.cancellation.check()
        return real(self, *arguments, **named)

    monkeypatch.setattr(Refresher, "refresh_unit", refresh_unit)
    yield free
    free.set()


def test_what_runs_comes_to_its_end(run: Run, shop: str, warehouse: Warehouse, stuck: threading.Event) -> None:
    warehouse.sql("INSERT INTO orders VALUES (9, 'west', 10.00)")
    began: threading.Event = stuck.began  # type: ignore[attr-defined]
    sender = signalled(began.is_set, signal.SIGTERM)
    freer = threading.Timer(3.0, stuck.set)
    freer.start()
    _, *refreshes, stopped = events(run("run", "--seconds", "60", "--json", "-w", shop))
    sender.join()
    freer.join()
    assert {r["action"] for r in refreshes} == {"DIFFERENTIAL"}
    assert stopped["drained"] is True
    assert warehouse.snapshot().version == max(r["version"] for r in refreshes)


def test_what_does_not_end_in_time_is_cancelled(
    run: Run, shop: str, warehouse: Warehouse, stuck: threading.Event
) -> None:
    (Path(shop) / "headwater.toml").write_text("scheduler_drain_timeout = 0.3\n")
    warehouse.sql("INSERT INTO orders VALUES (9, 'west', 10.00)")
    began: threading.Event = stuck.began  # type: ignore[attr-defined]
    sender = signalled(began.is_set, signal.SIGTERM)
    result = run("run", "--seconds", "60", "-w", shop)
    sender.join()
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "stopped after 0 refreshes; what did not end in time was cancelled"
    assert warehouse._catalog.leases_of_others("", "") == {}
    stuck.set()
    assert [r.action for r in warehouse.refresh()] == [RefreshAction.DIFFERENTIAL] * 2


def test_a_second_signal_does_not_wait(
    run: Run, shop: str, warehouse: Warehouse, stuck: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(code: int) -> None:
        stuck.set()
        raise typer.Exit(code)

    monkeypatch.setattr("headwater.cli.run.exit_now", leave)
    warehouse.sql("INSERT INTO orders VALUES (9, 'west', 10.00)")
    began: threading.Event = stuck.began  # type: ignore[attr-defined]
    sender = signalled(began.is_set, signal.SIGINT, signal.SIGINT)
    started = time.monotonic()
    result = run("run", "--seconds", "60", "-w", shop)
    sender.join()
    assert result.exit_code == 130
    assert time.monotonic() - started < 25  # the drain would take 30 seconds
    assert not (Path(shop) / SOCKET).exists()


def test_a_signal_during_the_warm_up(run: Run, shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    def warm_up(self: Any, progress: Callable[[str, int, int], None], **_: Any) -> int:
        asked.set()
        for i in range(600):
            progress("sales", i, 600)
            time.sleep(0.1)
        return 600

    monkeypatch.setattr("headwater.schedule.scheduler.Scheduler.warm_up", warm_up)
    sender = signalled(asked.is_set, signal.SIGTERM)
    [stopped] = events(run("run", "--json", "-w", shop))
    sender.join()
    assert stopped["event"] == "stopped"


def test_an_error_while_warming_up_is_told(run: Run, shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def warm_up(*_: Any, **__: Any) -> int:
        raise hw.errors.SparkUnavailableError("Spark cannot be started")

    monkeypatch.setattr("headwater.schedule.scheduler.Scheduler.warm_up", warm_up)
    result = run("run", "-w", shop)
    assert result.exit_code == 1
    assert "HW105" in result.stderr
    assert not (Path(shop) / SOCKET).exists()


def test_a_scheduler_that_breaks_ends_the_run(run: Run, shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise hw.errors.CatalogCorruptError("the catalog is damaged")

    monkeypatch.setattr("headwater.schedule.scheduler.Scheduler.run", broken)
    result = run("run", "-w", shop)
    assert result.exit_code == 1
    assert "HW102" in result.stderr
    assert not (Path(shop) / SOCKET).exists()


# -- the board ---------------------------------------------------------------------------------------------------------------


def report(name: str, action: RefreshAction = RefreshAction.DIFFERENTIAL) -> RefreshReport:
    return RefreshReport(name, action, 1, 1, 0, 5.0, "", 1, 3)


def tick(
    *names: str, failed: tuple[tuple[str, str], ...] = (), skipped: tuple[tuple[str, str], ...] = ()
) -> TickReport:
    return TickReport(3, 1.0, tuple(report(n) for n in names), failed, skipped)


def terminal(height: int) -> Any:
    surface = Surface(True, True, 100, height, None, "utf-8", "xterm")
    console = console_on(surface, io.StringIO())
    return output_on(Screen(console, console, True, lambda: None), as_json=False)


def test_the_board_keeps_the_last_thing_that_happened() -> None:
    view, out = RunView(["shop"]), terminal(30)
    assert [r["name"] for r in view.taken("shop", tick("b", "a"))] == ["b", "a"]
    failed = view.taken("shop", tick(failed=(("a", "it failed\nDETAIL: more"),), skipped=(("b", "paused"),)))
    assert [(r["name"], r["action"], r["freshness"]) for r in failed] == [("a", "FAILED", "it failed")]
    rows, caption = view.shown(out)
    assert [(r["name"], r["action"], r["freshness"]) for r in rows] == [
        ("a", "FAILED", "it failed"),
        ("b", RefreshAction.DIFFERENTIAL, "paused"),
    ]
    assert caption == "2 refreshes, 1 failed, Ctrl-C ends"


def test_what_did_nothing_is_not_shown() -> None:
    view = RunView(["shop"])
    assert view.taken("shop", TickReport(3, 1.0, (report("a", RefreshAction.NO_DATA),))) == []


def test_the_board_shows_the_newest_rows_that_fit() -> None:
    view, out = RunView(["shop"]), terminal(10)
    view.taken("shop", tick(*[f"t{i}" for i in range(9)]))
    view.taken("shop", tick("t2"))
    rows, caption = view.shown(out)
    assert [r["name"] for r in rows] == ["t2", "t6", "t7", "t8"]
    assert "5 more tables" in caption


def test_the_warehouse_is_a_column_if_there_are_several() -> None:
    assert Column("warehouse", "warehouse") in RunView(["a", "b"]).columns
    assert Column("warehouse", "warehouse") not in RunView(["a"]).columns


# -- a shared catalog --------------------------------------------------------------------------------------------------------


@pytest.mark.postgres
def test_a_shared_catalog_is_served_where_its_files_are(
    run: Run,
    tmp_path: Path,
    spark: Any,
    postgres_url: str,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with hw.connect(postgres_url, location=tmp_path / "files") as opened:
        opened.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        listener = listening(tmp_path / "files")
        assert listener is not None
        running = Service(opened, opened._catalog.warehouse_id, listener)
        with monkeypatch.context() as only_service:
            only_service.setattr(client, "opened", lambda *_: pytest.fail("the command did the work itself"))
            assert run("sql", "-w", postgres_url, "INSERT INTO t VALUES (1), (2)").exit_code == 0
        running.close()
        other = listening(tmp_path / "files")
        assert other is not None
        stranger = Service(opened, "another warehouse", other)
        result = run("sql", "--json", "-w", postgres_url, "SELECT count(*) AS n FROM t")
        assert documents(result)[0]["rows"] == [[2]]
        assert "serves another catalog" in json.loads(result.stderr)["note"]
        stranger.close()
