"""Other processes for tests, ready at once.

A child process needs a Spark session, and a JVM takes ten seconds to start. So the children use the JVM of the test run: a nursery
process imports everything, then forks a child per task, and the child attaches to the running JVM. Killing the child leaves the
JVM alone. For its own part of a warehouse (catalog connections, leases, writes, pins) such a child is as separate as any process.

A task is a function "package.module:name" that takes keyword arguments which JSON can carry; `session()` inside it is Spark.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 240.0
"""How long a child may take before the test fails, in seconds: machines that run tests are slow at times."""


def environment(**extra: str) -> dict[str, str]:
    """Return the environment of a process that imports this code."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return {**os.environ, "PYTHONPATH": path, **extra}


class Child:
    """A process of the nursery."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery = nursery
        self.pid = pid

    def ended(self, timeout: float = PATIENCE) -> int:
        """Wait for the end; return the exit code, or minus the signal that ended it."""
        return self._nursery.await_event(self.pid, "ended", timeout)

    def stopped(self, timeout: float = PATIENCE) -> int:
        """Wait until the child is stopped by a signal, and return that."""
        return self._nursery.await_event(self.pid, "stopped", timeout)

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)


class Nursery:
    """Forks children that share the JVM of `spark`."""

    def __init__(self, spark: SparkSession, log: Path) -> None:
        gateway = spark.sparkContext._gateway.gateway_parameters
        extra = {"PYSPARK_GATEWAY_PORT": str(gateway.port), "PYSPARK_GATEWAY_SECRET": str(gateway.auth_token)}
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.children"],
                cwd=ROOT,
                env=environment(**extra),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self._events: dict[tuple[int, str], int] = {}
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._await(lambda: self._events.get((0, "ready")), PATIENCE)

    def start(self, task: str, **arguments: Any) -> Child:
        """Start a child that runs `task`."""
        with self._changed:
            self._events.pop((0, "started"), None)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"task": task, "arguments": arguments}).encode() + b"\n")
        self._process.stdin.flush()
        return Child(self, self._await(lambda: self._events.pop((0, "started"), None), PATIENCE))

    def await_event(self, pid: int, kind: str, timeout: float) -> int:
        return self._await(lambda: self._events.pop((pid, kind), None), timeout)

    def _await(self, found: Callable[[], int | None], timeout: float) -> int:
        end = time.monotonic() + timeout
        with self._changed:
            while True:
                value = found()
                if value is not None:
                    return value
                if not self._changed.wait(max(0.0, end - time.monotonic())):
                    raise TimeoutError(f"a child said nothing for {timeout:g} s; its log: {self.log()}")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            with self._changed:
                self._events[(event["pid"], event["kind"])] = event["value"]
                self._changed.notify_all()

    def log(self) -> str:
        """Return what the children wrote to standard error, the end of it."""
        return self._log.read_text()[-4000:]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._reader.join(30)
        self._process.stdout.close()


@contextmanager
def nursery(spark: SparkSession, directory: Path) -> Iterator[Nursery]:
    """Open a nursery; its children are gone at the end."""
    opened = Nursery(spark, directory / "children.log")
    try:
        yield opened
    finally:
        opened.close()


def session() -> SparkSession:
    """In a child: return a session of its own over the JVM of the test run."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None:
        gateway = launch_gateway()
        running = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
        java = gateway.jvm.org.apache.spark.api.java.JavaSparkContext(running)
        SparkContext._ensure_initialized(gateway=gateway)
        SparkContext(conf=SparkConf(_jconf=java.getConf()), gateway=gateway, jsc=java)
    made = SparkSession(SparkContext._active_spark_context).newSession()
    made.conf.set("spark.sql.session.timeZone", "UTC")
    return made


def wait_until_idle(spark: SparkSession, quiet: float = 0.5) -> None:
    """Wait until the JVM has finished what a killed child had asked it for."""
    tracker = spark.sparkContext.statusTracker()
    since = time.monotonic()
    while time.monotonic() - since < quiet:
        if tracker.getActiveJobsIds():
            since = time.monotonic()
        time.sleep(0.05)


# the nursery's own process ------------------------------------------------------------------------------------------------------


def _say(output: IO[bytes], pid: int, kind: str, value: int) -> None:
    output.write(json.dumps({"pid": pid, "kind": kind, "value": value}).encode() + b"\n")
    output.flush()


def _run(request: dict[str, Any]) -> None:
    """In the fork: run one task and leave without any clean-up of the nursery's."""
    code = 1
    try:
        module, _, name = request["task"].partition(":")
        getattr(importlib.import_module(module), name)(**request["arguments"])
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _reap(output: IO[bytes], alive: set[int]) -> None:
    for pid in list(alive):
        found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
        if found and os.WIFSTOPPED(status):
            _say(output, pid, "stopped", os.WSTOPSIG(status))
        elif found:
            alive.discard(pid)
            _say(output, pid, "ended", -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def _serve() -> None:
    for module in ("pyspark.sql", "deltalake", "pyarrow.parquet", "headwater.opening", "headwater.warehouse"):
        importlib.import_module(module)
    requests, output = sys.stdin.buffer, sys.stdout.buffer
    alive: set[int] = set()
    _say(output, 0, "ready", 1)
    while True:
        readable, _, _ = select.select([requests], [], [], 0.02)
        _reap(output, alive)
        if not readable:
            continue
        line = requests.readline()
        if not line:
            break
        pid = os.fork()
        if pid == 0:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(2, 1)
            _run(json.loads(line))
        alive.add(pid)
        _say(output, 0, "started", pid)
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    _serve()
