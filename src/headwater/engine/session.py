"""The Spark session: start the embedded one, or adopt the user's.

The embedded session is a classic local one on all cores, reachable from this machine only, quiet, and without files in the
current directory. Its time zone is the machine's, as in any Spark session: TIMESTAMP values are shown in it. A stream table
stores the zone it was defined under, so its contents do not depend on who refreshes it.

pyspark is imported inside the functions: importing Headwater, and every command that needs no Spark, stays fast.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

from headwater.engine.java import read_java
from headwater.engine.jobs import JobCount, counting_jobs
from headwater.errors import SparkUnavailableError
from headwater.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JobCount", "adopt_session", "counting_jobs", "start_session"]

OLDEST_SPARK = (4, 3)
LOG_CONFIG = Path(__file__).with_name("log4j2.properties")
BANNERS = ("WARNING: Using incubator modules",)
"""Lines that the JVM prints at every start, before any logging can be configured."""

SMALL_POOL, FULL_POOL = "headwater", "headwater-full"
"""The pools of Spark's scheduler in which refreshes run: from changes, and in full."""

_GIB = 1 << 30


def start_session(settings: Settings, *, config: Mapping[str, str] | None = None) -> SparkSession:
    """Start the embedded session; `config` overrides single Spark settings.

    A process can hold one Spark context. If there is one already, the result is a new session over it: with its own
    temporary views and SQL settings, and without those settings that only a fresh start can have.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    silence_query_context_loggers()
    running = SparkContext._active_spark_context
    if running is not None:
        return adopt_session(SparkSession(running).newSession())
    scratch = Path(tempfile.mkdtemp(prefix="headwater-spark-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    conf = SparkConf().setAll([*session_config(settings, scratch).items(), *(config or {}).items()])
    if SparkContext._gateway is None:
        _launch(conf)
    try:
        context = SparkContext(conf=conf)
    except Exception as error:
        raise SparkUnavailableError(
            "Spark cannot be started",
            detail=_first_lines(str(error)),
            hint="Check the Spark settings in SPARK_CONF_DIR and PYSPARK_SUBMIT_ARGS, if any, and the memory that is free.",
        ) from error
    context.setLogLevel("ERROR")
    return adopt_session(SparkSession(context))


def adopt_session(spark: SparkSession) -> SparkSession:
    """Return `spark` if Headwater can use it: a classic session, still running, of a version that is new enough."""
    silence_query_context_loggers()
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise SparkUnavailableError(
            "a Spark Connect session cannot be used",
            detail="Headwater reads query plans through the JVM of a classic session, which a Connect session does not have.",
            hint="Give a classic session (SparkSession.builder.master(...)), or none to start the embedded one.",
        )
    context = getattr(spark, "_sc", None)
    if context is None:
        raise SparkUnavailableError(
            "this is not a Spark session",
            detail=f"The value given is a {type(spark).__module__}.{type(spark).__qualname__}.",
            hint="Give a pyspark.sql.SparkSession, or none to start the embedded one.",
        )
    if context._jsc is None or context._jsc.sc().isStopped():
        raise SparkUnavailableError(
            "the Spark session was stopped",
            hint="Give a running session, or none to start the embedded one.",
        )
    if spark_version(spark.version) < OLDEST_SPARK:
        needed = ".".join(map(str, OLDEST_SPARK))
        raise SparkUnavailableError(
            f"Spark {spark.version} is too old",
            detail=f"Headwater needs Spark {needed} or newer.",
            hint="Upgrade pyspark, or give no session to start the embedded one.",
        )
    return spark


def _pools(scratch: Path) -> Path:
    """Write down how Spark shares its cores between small refreshes and full ones."""
    file = scratch / "pools.xml"
    pools = "".join(
        f'<pool name="{name}"><schedulingMode>FAIR</schedulingMode><weight>{weight}</weight><minShare>{share}</minShare></pool>'
        for name, weight, share in ((SMALL_POOL, 4, 1), (FULL_POOL, 1, 0))
    )
    file.write_text(f'<?xml version="1.0"?><allocations>{pools}</allocations>')
    return file


def session_config(settings: Settings, scratch: Path, *, cores: int | None = None) -> dict[str, str]:
    """Return the Spark settings of the embedded session; its temporary files go below `scratch`."""
    cores = cores or os.cpu_count() or 1
    return {
        "spark.app.name": "headwater",
        "spark.master": "local[*]",
        "spark.driver.memory": settings.spark_memory or default_memory(machine_memory()),
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # What Spark remembers for its pages is memory that a long-lived process does not get back.
        "spark.ui.retainedJobs": "200",
        "spark.ui.retainedStages": "200",
        "spark.ui.retainedTasks": "1000",
        "spark.sql.ui.retainedExecutions": "50",
        # A small refresh must not stand in line behind the tasks of a large one.
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": f"file://{_pools(scratch)}",  # not a URI: Spark decodes nothing
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.sql.catalogImplementation": "in-memory",
        # Compiled queries are kept: with Spark's 100, a few dozen stream tables would compile at every refresh.
        "spark.sql.codegen.cache.maxEntries": "5000",
        # Each hash table and each sort takes a page at least, of 64 MB in a large heap: a broadcast of ten rows would keep as much.
        "spark.buffer.pageSize": "1m",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Below this number of files the driver lists them itself, which costs no Spark job.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions or max(8, 2 * cores)),
    }


def default_memory(total: int) -> str:
    """Return half of `total` bytes, at least 1 and at most 8 GiB, in Spark's notation."""
    return f"{min(max(total // 2, _GIB), 8 * _GIB) >> 20}m"


def machine_memory() -> int:
    """Return the bytes of memory this process may use: the machine's, or its container's limit if that is lower."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        total = 4 * _GIB
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limit = Path(file).read_text().strip()
        except OSError:
            continue
        if limit.isdigit() and int(limit) > 0:
            total = min(total, int(limit))
    return total


def spark_version(text: str) -> tuple[int, int]:
    """Return (major, minor) of a version such as `4.3.0` or `4.1.0-preview1`."""
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def silence_query_context_loggers() -> None:
    """Keep pyspark from logging each refused query as JSON: the exception says the same to whom it concerns."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _launch(conf: object) -> None:
    """Start the JVM with its standard error read by us: without its banners, and kept for the message if it does not come up."""
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    java = read_java()
    read_end, write_end = os.pipe()
    relay = _StderrRelay(os.fdopen(read_end, "rb", buffering=0))
    relay.start()
    try:
        gateway = launch_gateway(conf, popen_kwargs={"stderr": write_end})  # type: ignore[no-untyped-call]
    except (PySparkRuntimeError, OSError) as error:
        os.close(write_end)
        relay.join(timeout=5)
        raise SparkUnavailableError(
            "Spark cannot be started: its Java process ended at once",
            detail=_first_lines("\n".join(relay.last)) or f"{error}; Java is {java.path}, version {java.major}.",
            hint="If it is about memory, lower the setting spark_memory; if about Java, set JAVA_HOME to another one.",
        ) from error
    os.close(write_end)
    relay.pass_on()
    SparkContext._ensure_initialized(gateway=gateway)


class _StderrRelay(threading.Thread):
    """Passes the JVM's standard error on to ours, without its banners; until told to, it only remembers the last lines."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(name="headwater-spark-stderr", daemon=True)
        self.last: deque[str] = deque(maxlen=40)
        self._stream = stream
        self._passing = False
        self._lock = threading.Lock()

    def run(self) -> None:
        with self._stream:
            pending = b""
            while chunk := self._stream.read(65_536):
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    self._take(line.decode(errors="replace"))

    def pass_on(self) -> None:
        """Write what was held back and everything from now on."""
        with self._lock:
            for line in self.last:
                _write_stderr(line)
            self._passing = True

    def _take(self, line: str) -> None:
        if line.startswith(BANNERS):
            return
        with self._lock:
            if self._passing:
                _write_stderr(line)
            else:
                self.last.append(line)


def _write_stderr(line: str) -> None:
    try:
        os.write(2, line.encode() + b"\n")
    except OSError:
        return  # standard error is closed: nobody reads it


def _first_lines(text: str, limit: int = 6) -> str:
    return "\n".join([line for line in text.splitlines() if line.strip()][:limit])
