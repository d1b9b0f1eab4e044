"""`headwater run` as a process, and commands as other processes: nothing is shared but the warehouse."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.cli.shops import HEADWATER, environment, run_process

from headwater.cli.sockets import SOCKET, connected

pytestmark = pytest.mark.slow

PATIENCE = 240.0
LOADS_NO_SPARK = """
import atexit, sys
from headwater.cli import main
heavy = ("pyspark", "py4j", "pyarrow", "pandas", "headwater.warehouse")
atexit.register(lambda: print(sorted(set(heavy) & set(sys.modules)), file=sys.stderr))
main()
"""


class Runner:
    """A `headwater run` whose lines of JSON are read as they come."""

    def __init__(self, shop: str) -> None:
        command = [HEADWATER, "run", "--json", "-w", shop]
        self._pending = b""
        self.process = subprocess.Popen(
            command, env=environment(HEADWATER_SPARK_MEMORY="1g"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def next(self, event: str) -> dict[str, Any]:
        """Return the next line about an event; skip others."""
        deadline = time.monotonic() + PATIENCE
        assert self.process.stdout is not None
        while time.monotonic() < deadline:
            line, found, rest = self._pending.partition(b"\n")
            if found:
                self._pending = rest
                value: dict[str, Any] = json.loads(line)
                if value["event"] == event:
                    return value
                continue
            if select.select([self.process.stdout], [], [], 1.0)[0]:
                chunk = os.read(self.process.stdout.fileno(), 1 << 16)
                assert chunk, self.process.communicate()[1].decode()
                self._pending += chunk
        raise AssertionError(f"no {event}")

    def end(self, number: int) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        """Kill it if it still runs."""
        if self.process.poll() is None:
            self.end(signal.SIGKILL)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@pytest.fixture
def runners(shop: str) -> Iterator[list[Runner]]:
    started: list[Runner] = []
    yield started
    for each in started:
        each.close()


def test_the_life_of_a_run(shop: str, tmp_path: Path, runners: list[Runner]) -> None:
    no_java = str(tmp_path / "no-java")

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_process(*arguments, "-w", shop, cwd=tmp_path, JAVA_HOME=no_java)

    first = Runner(shop)
    runners.append(first)
    ready = first.next("ready")
    assert ready["pid"] == first.process.pid
    assert ready["warehouses"][0]["socket"] == str(Path(shop) / SOCKET)

    # a change that comes through the socket is refreshed by the schedule
    changed = command("sql", "--json", "INSERT INTO orders VALUES (9, 'west', 10.00)")
    assert (changed.returncode, changed.stderr) == (0, "")
    assert json.loads(changed.stdout)["rows_affected"] == 1
    assert {first.next("refresh")["name"], first.next("refresh")["name"]} == {"sales", "large"}
    result = command("sql", "--json", "SELECT region, n FROM sales WHERE region = 'west'")
    assert json.loads(result.stdout)["rows"] == [["west", 1]]
    assert command("verify").returncode == 0
    assert command("sql", "SELECT nothing").returncode == 1

    # the client loads neither Spark nor what needs it
    client = [sys.executable, "-c", LOADS_NO_SPARK, "sql", "--json", "-w", shop, "SELECT 1 AS a"]
    ran = subprocess.run(client, env=environment(JAVA_HOME=no_java), capture_output=True, text=True, timeout=PATIENCE)
    assert json.loads(ran.stdout)["rows"] == [[1]]
    assert ran.stderr == "[]\n"

    # several at once
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda n: command("sql", "--json", f"SELECT {n} AS n"), range(6)))
    assert [json.loads(a.stdout)["rows"] for a in answers] == [[[n]] for n in range(6)]

    # killed: what is left of it is ignored, and the next run replaces it
    assert first.end(signal.SIGKILL) == -signal.SIGKILL
    assert (Path(shop) / SOCKET).exists()
    alone = command("sql", "SELECT 1")
    assert alone.returncode == 1
    assert "HW105" in alone.stderr  # it has tried to do it itself, with a Java that is not there
    second = Runner(shop)
    runners.append(second)
    second.next("ready")
    assert command("sql", "SELECT 1").returncode == 0

    # asked to end, with a client in the middle of something short
    busy = subprocess.Popen([HEADWATER, "refresh", "--full", "--json", "-w", shop], stdout=subprocess.PIPE, text=True)
    time.sleep(1.0)
    second.process.send_signal(signal.SIGTERM)
    assert second.next("stopped")["drained"] is True
    assert second.process.wait(PATIENCE) == 0
    out, _ = busy.communicate(timeout=PATIENCE)
    assert [r["action"] for r in json.loads(out)] == ["FULL", "FULL"]
    assert not (Path(shop) / SOCKET).exists()
    assert connected(Path(shop)) is None


def test_two_processes_share_a_warehouse(shop: str, tmp_path: Path, runners: list[Runner]) -> None:
    """Only the first has the socket; when it is killed, the other one goes on refreshing."""
    first, second = Runner(shop), Runner(shop)
    runners += [first, second]
    sockets = [each.next("ready")["warehouses"][0]["socket"] for each in (first, second)]
    assert sorted(sockets, key=str) == sorted([None, str(Path(shop) / SOCKET)], key=str)
    owner, other = (first, second) if sockets[0] else (second, first)
    assert run_process("sql", "INSERT INTO orders VALUES (9, 'w', 10.00)", "-w", shop, cwd=tmp_path).returncode == 0
    assert owner.end(signal.SIGKILL) == -signal.SIGKILL
    deadline = time.monotonic() + PATIENCE
    while True:
        shown = json.loads(run_process("status", "--json", "-w", shop, cwd=tmp_path).stdout)
        if all(s["freshness"] in (None, "up to date") for s in shown) or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    assert {s["name"]: s["freshness"] for s in shown if s["kind"] == "stream"} == {
        "sales": "up to date",
        "large": "up to date",
    }
    assert other.end(signal.SIGTERM) == 0
