"""Catching what Spark really runs: the physical plans of everything that is run inside a `with` block, and the bytes it shuffles.

Frames are run by few methods of PySpark, which are wrapped; what Headwater prepared runs below PySpark, and is wrapped there. The
plan is read after the run, when an adaptive one is final.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.readwriter import DataFrameWriter
from tests.support.plans import Node, Tables, parse

from headwater.engine.prepared import PreparedQuery, _Node
from headwater.warehouse import Warehouse

_RUN = (
    "toArrow",
    "toPandas",
    "collect",
    "count",
    "tail",
    "isEmpty",
    "toLocalIterator",
    "localCheckpoint",
    "checkpoint",
)
_WRITE = ("parquet", "save")
_ALL_FIELDS = 10_000


@dataclass(slots=True)
class Captured:
    """What ran: complete when its `with` block has ended."""

    plans: list[Node] = field(default_factory=list)
    jobs: int = 0
    shuffled_bytes: int = 0


@contextmanager
def capturing(spark: SparkSession) -> Iterator[Captured]:
    """Catch what this thread runs in the `with` block."""
    caught = Captured()
    running = _Depth()
    scala: Any = spark.sparkContext._jsc.sc()
    first = scala.dagScheduler().numTotalJobs()
    with ExitStack() as patches:
        for name in _RUN:
            wrapped = _wrapped(getattr(DataFrame, name), running, lambda frame: caught.plans.append(plan_of(frame)))
            patches.enter_context(mock.patch.object(DataFrame, name, wrapped))
        for name in _WRITE:
            wrapped = _wrapped(
                getattr(DataFrameWriter, name), running, lambda writer: caught.plans.append(plan_of(writer._df))
            )
            patches.enter_context(mock.patch.object(DataFrameWriter, name, wrapped))
        run = PreparedQuery.run

        def prepared(self: PreparedQuery, given: Mapping[str, Any]) -> Any:
            with running.deeper():
                result = run(self, given)
            caught.plans.append(_prepared_plan(self._root, given))
            return result

        patches.enter_context(mock.patch.object(PreparedQuery, "run", prepared))
        yield caught
    last = scala.dagScheduler().numTotalJobs()
    caught.jobs = last - first
    caught.shuffled_bytes = _shuffled_bytes(scala, range(first, last))


def plan_of(frame: Any) -> Node:
    """Return the physical plan of a frame."""
    return parse(frame._jdf.queryExecution().executedPlan().toString())


class _Depth:
    """Tells calls from outside from those that wrapped methods make."""

    def __init__(self) -> None:
        self.value = 0

    @contextmanager
    def deeper(self) -> Iterator[None]:
        self.value += 1
        try:
            yield
        finally:
            self.value -= 1


def _wrapped(method: Callable[..., Any], running: _Depth, note: Callable[[Any], None]) -> Callable[..., Any]:
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        with running.deeper():
            result = method(self, *args, **kwargs)
        if running.value == 0:
            note(self)
        return result

    return run


def _prepared_plan(node: Any, given: Mapping[str, Any]) -> Node:
    """Return a prepared plan with the plans of the frames it was given in their places."""
    if not isinstance(node, _Node):
        return parse(node.toString())
    if node.slot is not None:
        source = given[node.slot]
        return (
            plan_of(source) if isinstance(source, DataFrame) else Node("LocalTableScan", f"LocalTableScan {node.slot}")
        )
    text = node.plan.simpleString(_ALL_FIELDS)
    name = parse(text.splitlines()[0]).name
    return Node(name, text, tuple(_prepared_plan(c, given) for c in node.children))


def _shuffled_bytes(scala: Any, jobs: range) -> int:
    """Return how much the stages of these jobs wrote for others to fetch."""
    scala.listenerBus().waitUntilEmpty()
    stages: set[int] = set()
    for job in jobs:
        found = scala.statusTracker().getJobInfo(job)
        if found.isDefined():
            stages |= {int(stage) for stage in found.get().stageIds()}
    total = 0
    for stage in stages:
        try:
            total += scala.statusStore().lastStageAttempt(stage).shuffleWriteBytes()
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() != "NoSuchElementException":
                raise  # a stage that was skipped wrote nothing
    return total


@contextmanager
def readable_plans(spark: SparkSession, broadcast_limit: int) -> Iterator[None]:
    """Let sessions made inside write plans in full, and broadcast by themselves only what is smaller than `broadcast_limit`."""
    conf = spark.sparkContext._jsc.sc().conf()
    wanted = {
        "spark.sql.maxMetadataStringLength": "1000000",
        "spark.sql.debug.maxToStringFields": str(_ALL_FIELDS),
        "spark.sql.autoBroadcastJoinThreshold": str(broadcast_limit),
    }
    before = {k: conf.get(k) if conf.contains(k) else None for k in wanted}
    session = {k: spark.conf.get(k) for k in wanted}
    for k, v in wanted.items():
        conf.set(k, v)
        spark.conf.set(k, v)
    try:
        yield
    finally:
        for k in wanted:
            spark.conf.set(k, session[k])
            if before[k] is None:
                conf.remove(k)
            else:
                conf.set(k, before[k])


def tables_of(wh: Warehouse, limit: int) -> Tables:
    """Return what the catalog knows about all tables of a warehouse, state of stream tables too."""
    snapshot = wh.snapshot()
    manifests = wh._catalog.manifests(snapshot.tables, snapshot.version)
    return Tables(
        {i: t.name for i, t in snapshot.tables.items()},
        {i: sum(f.bytes for f in m.files) for i, m in manifests.items()},
        limit,
    )
