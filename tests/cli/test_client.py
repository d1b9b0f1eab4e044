"""The client: when a command lets the service do its work, and when it does it itself."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.shops import ENDLESS, Run, documents, until

import headwater as hw
from headwater.cli import protocol
from headwater.cli.protocol import PROTOCOL, Lines, encoded
from headwater.cli.service import Service
from headwater.cli.sockets import Listener, listening
from headwater.warehouse import Warehouse


class FakeService:
    """Greets as it is told, and then says what it is told."""

    def __init__(self, listener: Listener, *says: bytes) -> None:
        self._listener = listener
        self._says = says
        self.asked: list[bytes] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            connection, _ = self._listener.connection.accept()
        except OSError:
            return  # nobody came
        with connection:
            connection.sendall(self._says[0])
            for said in self._says[1:]:
                self.asked.append(connection.recv(1 << 16))
                connection.sendall(said)

    def close(self) -> None:
        self._listener.close()
        self._thread.join(10)


@pytest.fixture
def fake(shop: str) -> Iterator[Callable[..., FakeService]]:
    made: list[FakeService] = []

    def make(*says: bytes) -> FakeService:
        listener = listening(Path(shop))
        assert listener is not None
        made.append(FakeService(listener, *says))
        return made[-1]

    yield make
    for each in made:
        each.close()


def greeting(**fields: Any) -> bytes:
    value = {
        "headwater": PROTOCOL,
        "zone": protocol.local_zone(),
        "directory": os.getcwd(),
        "warehouse": "w",
        "settings": {},
    }
    return encoded({**value, **fields})


@pytest.mark.parametrize(
    ("says", "note"),
    [
        (encoded({"headwater": PROTOCOL + 1}), "another protocol"),
        (b"SSH-2.0-OpenSSH\n", "does not answer"),
        (b"", "does not answer"),
        (greeting(zone="Mars"), "another time zone"),
    ],
    ids=["other protocol", "other program", "silent", "other zone"],
)
def test_the_command_works_without_a_service_that_is_another(
    run: Run, shop: str, fake: Callable[..., FakeService], says: bytes, note: str
) -> None:
    stub = fake(says)
    result = run("sql", "--json", "-w", shop, "SELECT 7 AS n")
    assert documents(result)[0]["rows"] == [[7]]
    assert note in json.loads(result.stderr)["note"]
    assert "process" in json.loads(result.stderr)["note"]
    assert stub.asked == []


def test_a_note_is_no_part_of_the_answer(run: Run, shop: str, fake: Callable[..., FakeService]) -> None:
    fake(encoded({"headwater": PROTOCOL + 1}))
    result = run("sql", "-w", shop, "SELECT 7 AS n")
    assert "another protocol" in result.stderr
    assert "another protocol" not in result.stdout


def test_a_service_that_refuses_is_done_without(run: Run, shop: str, fake: Callable[..., FakeService]) -> None:
    fake(greeting(), encoded({"refused": "it is full"}))
    result = run("sql", "--json", "-w", shop, "SELECT 7 AS n")
    assert documents(result)[0]["rows"] == [[7]]
    assert "it is full" in result.stderr


def test_a_service_that_dies_meanwhile_is_an_error_and_nothing_is_done_twice(
    run: Run, shop: str, fake: Callable[..., FakeService]
) -> None:
    stub = fake(greeting(), encoded({"out": "half "}))
    result = run("sql", "-w", shop, "DELETE FROM orders")
    assert result.exit_code == 1
    assert result.stdout == "half "
    assert "HW111" in result.stderr
    assert len(stub.asked) == 1
    stub.close()
    assert documents(run("sql", "--json", "-w", shop, "SELECT count(*) AS n FROM orders"))[0]["rows"] == [[3]]


def test_settings_of_the_command_are_obeyed(
    run: Run, shop: str, fake: Callable[..., FakeService], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_WHEN_FULL", "refuse")
    made = "CREATE STREAM TABLE r AS SELECT id, rand() AS r FROM orders"
    stub = fake(greeting(settings={"when_full": "warn"}))
    result = run("sql", "-w", shop, made)
    assert "other settings (when_full)" in result.stderr
    assert "HW402" in result.stderr
    assert stub.asked == []


def test_settings_that_are_the_same_are_no_hindrance(
    run: Run, shop: str, fake: Callable[..., FakeService], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_WHEN_FULL", "refuse")
    stub = fake(greeting(settings={"when_full": "refuse", "tail_max_files": 3}), encoded({"exit": 0}))
    result = run("sql", "-w", shop, "SELECT 1")
    assert (result.exit_code, result.output) == (0, "")
    assert len(stub.asked) == 1


def test_a_bad_setting_is_told_before_anything_is_asked(
    run: Run, shop: str, served: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_TAIL_MAX_FILE", "3")
    result = run("sql", "-w", shop, "SELECT 1")
    assert result.exit_code == 1
    assert '"tail_max_files"' in result.stderr


@pytest.mark.parametrize("how", ["option", "environment"])
def test_a_command_may_do_without(
    run: Run, shop: str, fake: Callable[..., FakeService], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    stub = fake(greeting(), encoded({"exit": 0}))
    if how == "environment":
        monkeypatch.setenv("HEADWATER_NO_SERVICE", "1")
    option = ["--no-service"] if how == "option" else []
    result = run("sql", *option, "--json", "-w", shop, "SELECT 7 AS n")
    assert documents(result)[0]["rows"] == [[7]]
    assert result.stderr == ""
    assert stub.asked == []


@pytest.mark.parametrize("command", ["sql", "validate"])
def test_a_file_named_relative_to_here_is_not_looked_for_elsewhere(
    run: Run, shop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake: Callable[..., FakeService], command: str
) -> None:
    stub = fake(greeting(directory="/elsewhere"))
    result = run(command, "-w", shop, "SELECT * FROM csv . `nothing.csv`")
    assert "another directory" in result.stderr
    assert stub.asked == []


@pytest.mark.parametrize("directory", ["/elsewhere", None], ids=["elsewhere", "here"])
def test_files_that_are_found_from_anywhere_are_no_hindrance(
    run: Run, shop: str, fake: Callable[..., FakeService], directory: str | None
) -> None:
    """Absolute names, and relative ones if the service runs in the same directory."""
    stub = fake(greeting(directory=directory or os.getcwd()), encoded({"exit": 0}))
    query = "SELECT * FROM CSV.`/a.csv`, json.`s3://a/b`, t.`odd name`" if directory else "SELECT * FROM csv.`a.csv`"
    result = run("sql", "-w", shop, query)
    assert (result.exit_code, result.output) == (0, "")
    assert len(stub.asked) == 1


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Have lines typed at the prompt; a function among them is called instead."""

    def type_(*lines: str | Callable[[], object]) -> None:
        queue = iter(lines)

        def answer(_: str) -> str:
            line = next(queue, "exit")
            while callable(line):
                line()
                line = next(queue, "exit")
            return line

        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        monkeypatch.setattr("headwater.cli.prompt.is_interactive", lambda: True)
        monkeypatch.setattr("builtins.input", answer)

    return type_


def test_what_is_typed_at_the_prompt_is_done_there(
    run: Run, shop: str, served: Warehouse, typed: Callable[..., None]
) -> None:
    typed("DELETE FROM orders WHERE id = 1;", "SELECT nothing;", "SELECT count(*) AS n FROM orders;")
    result = run("sql", "--json", "-w", shop)
    assert result.exit_code == 0
    assert [json.loads(line).get("rows") for line in result.stdout.splitlines()] == [None, [[2]]]
    assert "HW401" in result.stderr


def test_the_prompt_outlives_the_service(run: Run, shop: str, typed: Callable[..., None]) -> None:
    with hw.connect(shop, create=False) as warehouse:
        listener = listening(Path(shop))
        assert listener is not None
        running = Service(warehouse, "w", listener)
        typed("SELECT 1 AS n;", running.close, "SELECT 2 AS n;", "SELECT 3 AS n;")
        result = run("sql", "--json", "-w", shop)
    assert [json.loads(line)["rows"] for line in result.stdout.splitlines()] == [[[1]], [[2]], [[3]]]
    assert result.stderr == ""


def test_a_relative_path_finds_the_service(
    run: Run, shop: str, served: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shop)
    assert documents(run("sql", "--json", "SELECT 7 AS n"))[0]["rows"] == [[7]]
    monkeypatch.chdir(Path(shop).parent)
    assert documents(run("sql", "--json", "-w", "shop", "SELECT 7 AS n"))[0]["rows"] == [[7]]


def test_ctrl_c_is_130_and_closes_the_connection(
    run: Run, shop: str, served: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = served.spark.sparkContext.statusTracker()
    real = Lines.read
    reads: list[int] = []

    def read(self: Lines, limit: int | None = None) -> Any:
        if threading.current_thread() is threading.main_thread():
            reads.append(1)
            if len(reads) == 2:  # the answer
                assert until(lambda: bool(status.getActiveJobsIds()))
                raise KeyboardInterrupt
        return real(self, limit)

    monkeypatch.setattr(Lines, "read", read)
    assert run("sql", "-w", shop, ENDLESS).exit_code == 130
    assert until(lambda: not status.getActiveJobsIds())


def test_nobody_connects_to_a_plain_file(shop: str, run: Run) -> None:
    (Path(shop) / "headwater.sock").write_text("")
    result = run("sql", "--json", "-w", shop, "SELECT 7 AS n")
    assert documents(result)[0]["rows"] == [[7]]
    assert result.stderr == ""
    with pytest.raises(OSError), socket.socket(socket.AF_UNIX) as s:
        s.connect(str(Path(shop) / "headwater.sock"))
