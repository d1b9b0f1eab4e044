"""The service: what it does for a client is what the command would have done itself."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cli.shops import ENDLESS, Run, documents, until

import headwater as hw
from headwater.cli import service
from headwater.cli.protocol import PROTOCOL, Lines, Request, encoded, request_value
from headwater.cli.screen import Surface
from headwater.cli.service import Service
from headwater.cli.sockets import connected, listening
from headwater.cli.tasks import Refresh, Sql, Task
from headwater.warehouse import Warehouse

PIPE = Surface(False, False, 100_000, 25, None, "utf-8", "")
TERMINAL = Surface(True, True, 60, 25, "256", "utf-8", "xterm")


def frames(shop: str, task: Task, out: Surface = PIPE, err: Surface = PIPE, *, as_json: bool = False) -> list[Any]:
    """Ask for a task and return what comes back."""
    connection = connected(Path(shop))
    assert connection is not None
    with connection:
        lines = Lines(connection)
        assert lines.read()["headwater"] == PROTOCOL
        connection.sendall(encoded(request_value(Request(task, as_json, out, err))))
        found = []
        while (frame := lines.read()) is not None:
            found.append(frame)
        return found


def text(found: list[Any], name: str = "out") -> str:
    return "".join(frame.get(name, "") for frame in found)


# -- the same answers ------------------------------------------------------------------------------------------------------

COMMANDS = {
    "a query": ["sql", "SELECT * FROM sales ORDER BY region"],
    "types": ["sql", "SELECT 1.5D AS d, NULL AS n, DATE'2025-01-02' AS t, array(1, 2) AS a, 'ü' AS s, X'00ff' AS b"],
    "several": ["sql", "SELECT 1; SELECT 2"],
    "limited": ["sql", "SELECT * FROM orders ORDER BY id", "--limit", "1"],
    "a change": ["sql", "UPDATE orders SET amount = amount"],
    "an error": ["sql", "SELECT nothing"],
    "an error while running": ["sql", "SELECT 1 / (id - id) FROM orders"],
    "verify": ["verify"],
    "validate": ["validate", "SELECT id, rand() AS r FROM orders"],
    "explain": ["explain", "sales"],
    "an unknown table": ["explain", "salez"],
}


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_the_answer_is_that_of_the_command_itself(
    run: Run, shop: str, served: Warehouse, monkeypatch: pytest.MonkeyPatch, command: list[str], form: list[str]
) -> None:
    there = run(*command, *form, "-w", shop)
    monkeypatch.undo()
    here = run(*command, *form, "--no-service", "-w", shop)
    assert (there.exit_code, there.stdout, there.stderr) == (here.exit_code, here.stdout, here.stderr)
    assert there.output


def test_a_refresh_is_done_there(run: Run, shop: str, served: Warehouse) -> None:
    [changed] = documents(run("sql", "--json", "-w", shop, "UPDATE orders SET amount = 20 WHERE id = 1"))
    assert changed["rows_affected"] == 1
    [reports] = documents(run("refresh", "--json", "-w", shop))
    sales = next(r for r in reports if r["name"] == "sales")
    assert sales["action"] == "DIFFERENTIAL"
    assert (sales["rows_deleted"], sales["rows_inserted"]) == (1, 1)
    assert served.table("sales").count() == 2
    text_form = run("refresh", "sales", "--full", "-w", shop)
    assert "FULL" in text_form.stdout


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["verify", "sales"], 0),
        (["refresh", "salez"], 1),
        (["sql", "SELEC 1"], 1),
    ],
)
def test_exit_codes_are_carried_over(run: Run, shop: str, served: Warehouse, command: list[str], code: int) -> None:
    assert run(*command, "-w", shop).exit_code == code


def test_busy_is_3(run: Run, shop: str, served: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: Any, **__: Any) -> Any:
        raise hw.errors.BusyError("somebody else is at it")

    monkeypatch.setattr(served, "refresh", busy)
    monkeypatch.setattr(served, "_settings", served.settings.model_copy(update={"busy_timeout_seconds": 0.3}))
    began = time.monotonic()
    result = run("refresh", "-w", shop)
    assert result.exit_code == 3
    assert "somebody else is at it" in result.stderr
    assert time.monotonic() - began >= 0.3  # it was tried again until then


def test_a_refresh_waits_for_somebody_who_does_the_same(
    run: Run, shop: str, served: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = served.refresh, []

    def busy_at_first(*args: Any, **named: Any) -> Any:
        calls.append(args)
        if len(calls) < 3:
            raise hw.errors.BusyError("somebody else is at it")
        return real(*args, **named)

    monkeypatch.setattr(served, "refresh", busy_at_first)
    [reports] = documents(run("refresh", "--json", "-w", shop))
    assert [r["action"] for r in reports] == ["NO_DATA", "NO_DATA"]
    assert len(calls) == 3


def test_a_fault_of_ours_shows_its_trace_and_the_service_goes_on(
    run: Run, shop: str, served: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "verify", lambda *_, **__: {}["gone"])
    result = run("verify", "-w", shop)
    assert result.exit_code == 1
    assert "KeyError: 'gone'" in result.stderr
    assert documents(run("sql", "--json", "-w", shop, "SELECT 1 AS a"))[0]["rows"] == [[1]]


# -- the client's terminal -------------------------------------------------------------------------------------------------


def test_a_pipe_gets_plain_long_lines(shop: str, served: Warehouse) -> None:
    found = frames(shop, Sql(("SELECT repeat('x', 300) AS a, repeat('y', 300) AS b",), 10))
    assert f"{'x' * 300}   {'y' * 300}" in text(found)
    assert "\x1b" not in text(found)
    assert found[-1] == {"exit": 0}


def test_a_terminal_gets_colours_and_its_own_width(shop: str, served: Warehouse) -> None:
    found = frames(shop, Sql(("SELECT repeat('x', 300) AS a",), 10), TERMINAL, TERMINAL)
    assert "\x1b[" in text(found)
    assert max(line.count("x") for line in text(found).splitlines()) <= 60
    plain = frames(shop, Sql(("SELECT 1",), 10), replace(TERMINAL, colours=None), TERMINAL)
    assert "\x1b[3" not in text(plain)


def test_a_terminal_gets_a_progress_bar(shop: str, served: Warehouse) -> None:
    found = frames(shop, Refresh(None, False), TERMINAL, TERMINAL)
    assert "Refreshing" in text(found, "err")
    assert "Refreshing" not in text(found, "out")
    assert text(frames(shop, Refresh(None, False)), "err") == ""


def test_results_come_as_they_are_found(shop: str, served: Warehouse) -> None:
    found = frames(shop, Sql(("SELECT 1 AS a", "SELECT 2 AS b", "SELECT c"), 10), as_json=True)
    assert [json.loads(f["out"])["columns"] for f in found if "out" in f] == [["a"], ["b"]]
    assert found[-1] == {"exit": 1}


# -- several clients, and clients that leave ---------------------------------------------------------------------------------


def test_clients_are_served_side_by_side(shop: str, served: Warehouse) -> None:
    """A long query is still under way while short ones come and go."""
    slow = connected(Path(shop))
    assert slow is not None
    with slow:
        slow.sendall(encoded(request_value(Request(Sql((ENDLESS,), 10), True, PIPE, PIPE))))
        with ThreadPoolExecutor(4) as pool:
            tasks = [Sql((f"SELECT {i} AS n",), 10) for i in range(12)]
            answers = list(pool.map(lambda task: frames(shop, task, as_json=True), tasks))
        assert [json.loads(text(a))["rows"] for a in answers] == [[[i]] for i in range(12)]


def test_a_client_that_leaves_takes_its_jobs_along(
    shop: str, served: Warehouse, caplog: pytest.LogCaptureFixture
) -> None:
    connection = connected(Path(shop))
    assert connection is not None
    status = served.spark.sparkContext.statusTracker()
    connection.sendall(encoded(request_value(Request(Sql((ENDLESS, "DELETE FROM orders"), 10), True, PIPE, PIPE))))
    assert until(lambda: bool(status.getActiveJobsIds()))
    connection.close()
    assert until(lambda: not status.getActiveJobsIds())
    time.sleep(0.3)
    assert served.table("orders").count() == 3  # nothing after it was done


def test_a_refresh_of_all_ends_between_tables_when_its_client_leaves(
    shop: str, served: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, left = threading.Event(), threading.Event()
    names: list[str] = []

    def refresh(name: str | None, *, full: bool, progress: Callable[[str, int, int], None]) -> Any:
        for i, each in enumerate(("a", "b")):
            progress(each, i, 2)
            names.append(each)
            begun.set()
            left.wait(10)
            time.sleep(0.5)
        return []

    monkeypatch.setattr(served, "refresh", refresh)
    connection = connected(Path(shop))
    assert connection is not None
    connection.sendall(encoded(request_value(Request(Refresh(None, False), True, PIPE, PIPE))))
    assert begun.wait(10)
    connection.close()
    left.set()
    time.sleep(1.5)
    assert names == ["a"]


def test_a_client_that_says_nothing_is_sent_away(shop: str, served: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "REQUEST_SECONDS", 0.2)
    connection = connected(Path(shop))
    assert connection is not None
    with connection:
        lines = Lines(connection)
        assert lines.read()["headwater"] == PROTOCOL
        connection.settimeout(10)
        assert lines.read() is None


def test_a_request_that_is_too_large_is_refused(shop: str, served: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_REQUEST_BYTES", 1000)
    connection = connected(Path(shop))
    assert connection is not None
    with connection:
        lines = Lines(connection)
        lines.read()
        connection.sendall(b'{"headwater": 1, "task": "' + b"x" * 5000)
        assert "more than 1,000 bytes" in lines.read()["refused"]


@pytest.mark.parametrize("line", [b"GET / HTTP/1.1\n", b'{"headwater": 99}\n', b'{"headwater": 1, "task": "x"}\n'])
def test_what_is_no_request_is_refused_and_nothing_is_begun(shop: str, served: Warehouse, line: bytes) -> None:
    connection = connected(Path(shop))
    assert connection is not None
    with connection:
        lines = Lines(connection)
        lines.read()
        connection.sendall(line)
        assert "refused" in lines.read()
        assert lines.read() is None


def test_too_many_that_wait_are_refused(shop: str, served: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_WAITING", 0)
    connection = connected(Path(shop))
    assert connection is not None
    with connection:
        lines = Lines(connection)
        lines.read()
        assert "too many" in lines.read()["refused"]


def test_the_service_ends_when_what_it_does_has_ended(shop: str) -> None:
    with hw.connect(shop, create=False) as warehouse:
        listener = listening(Path(shop))
        assert listener is not None
        running = Service(warehouse, "w", listener)
        connection = connected(Path(shop))
        assert connection is not None
        with connection:
            lines = Lines(connection)
            lines.read()
            connection.sendall(encoded(request_value(Request(Sql((ENDLESS,), 1), True, PIPE, PIPE))))
            assert until(lambda: not running.drain(0))
            running.refuse()
            assert connected(Path(shop)) is None
            assert not running.drain(0.3)
            running.cancel("The test is over")
            assert running.drain(20)
            assert lines.read()["err"]
            assert lines.read() == {"exit": 1}
        running.close()
