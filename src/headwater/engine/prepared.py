"""Queries that are planned once and run many times, each time over other rows.

Refreshing a table reads few rows with the same text again and again, and planning takes longer than running. So the text is planned
over empty inputs whose contents Spark cannot look into, and before each run the leaves of the physical plan are replaced by the
rows of the day: from memory, or from a scan of files that is planned by itself. Every node above a replaced leaf is copied:
nothing that a run has computed is seen by the next one.

Holds for plans whose leaves are such inputs or constants. Others (tables read in part, subqueries) are not prepared.
"""

from __future__ import annotations

import os
import re
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

_EXECUTION = "org.apache.spark.sql.execution."
_SLOT = f"{_EXECUTION}RDDScanExec"
_REUSE = "spark.sql.exchange.reuse"
_BROADCAST = re.compile(r"/\*\+ BROADCAST\((\w+)\) \*/")
_CONSTANTS = (f"{_EXECUTION}LocalTableScanExec", f"{_EXECUTION}OneRowRelationExec")


class NotPreparableError(Exception):
    """The plan of a query depends on more than its inputs."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of an input, as Spark's schema text and as Arrow's."""

    spark: str
    arrow: pa.Schema


@dataclass(frozen=True, slots=True)
class _Node:
    """A node of a physical plan above an input, or the scan of an input, which has a name."""

    plan: Any
    slot: str | None
    children: tuple[Any, ...]
    details: tuple[Any, ...] = ()


class Internals:
    """Spark's own classes, looked up once: each step of a dotted name is a call into the JVM."""

    def __init__(self, session: SparkSession) -> None:
        jvm: Any = session._jvm
        self.session: Any = session._jsparkSession
        self.context: Any = session.sparkContext._jsc
        self.list = jvm.java.util.ArrayList
        self.scala = jvm.scala.jdk.javaapi.CollectionConverters.asScala
        self.none = jvm.scala.Option.empty()
        self.data_type = jvm.org.apache.spark.sql.types.DataType
        self.from_arrow = jvm.org.apache.spark.sql.api.python.PythonSQLUtils.toDataFrame
        self.local_scan = jvm.org.apache.spark.sql.execution.LocalTableScanExec
        self.scan = jvm.org.apache.spark.sql.execution.RDDScanExec
        self.input = jvm.org.apache.spark.sql.execution.LogicalRDD
        self.dataset = jvm.org.apache.spark.sql.classic.Dataset
        physical = jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.plans.physical.SinglePartition$")
        self.single_partition = physical.getField("MODULE$").get(None)
        self.with_conf = jvm.org.apache.spark.sql.execution.SQLExecutionRDD
        self.rdd = jvm.org.apache.spark.api.java.JavaRDD.fromRDD
        self.bytes = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
        self.write_all = jvm.org.apache.spark.api.python.PythonRDD.writeIteratorToStream
        self.data_stream = jvm.java.io.DataOutputStream
        self.file_stream = jvm.java.io.FileOutputStream
        self.active = jvm.org.apache.spark.sql.classic.SparkSession

    def seq(self, items: Sequence[Any]) -> Any:
        """Return a Scala sequence."""
        made = self.list()
        for item in items:
            made.add(item)
        return self.scala(made).toSeq()

    def no_rows(self) -> Any:
        """Return no rows, in one part."""
        return self.context.parallelize(self.list(), 1).rdd()

    def local_frame(self, table: pa.Table, shape: Shape) -> Any:
        """Return rows as a local relation, a Dataset of the JVM."""
        table = table.select(shape.arrow.names).cast(shape.arrow).combine_chunks()
        parts = self.list()
        for batch in table.to_batches():
            parts.add(batch.serialize().to_pybytes())
        return self.from_arrow(self.scala(parts.iterator()), shape.spark, self.session)

    def collected(self, rdd: Any) -> list[bytes]:
        """Run a job and return its pieces of bytes.

        By way of a file: py4j sends an answer in pieces of 8 KB, and the second one waits 40 ms until the first is acknowledged. As
        a job that is waited for: a plain collect reads the code of Spark's largest classes, twice, to see what its closure holds.
        """
        try:
            pieces = self.rdd(rdd, self.bytes).collectAsync().get()
        except Py4JJavaError as error:
            reason = error.java_exception
            if reason.getClass().getName() != "java.util.concurrent.ExecutionException":
                raise
            raise Py4JJavaError(error.errmsg, reason.getCause()) from None
        if not pieces.size():
            return []
        place, path = tempfile.mkstemp(prefix="headwater-")
        try:
            with os.fdopen(place, "rb") as file:
                stream = self.data_stream(self.file_stream(path))
                self.write_all(self.scala(pieces.iterator()), stream)
                stream.close()
                return list(_pieces(file.read()))
        finally:
            os.unlink(path)

    @contextmanager
    def activated(self) -> Iterator[None]:
        """Make plans under this session, as Spark's own entry points do."""
        before = self.active.getActiveSession()
        self.active.setActiveSession(self.session)
        try:
            yield
        finally:
            if before.isDefined():
                self.active.setActiveSession(before.get())
            else:
                self.active.clearActiveSession()


class PreparedQuery:
    """A physical plan over named inputs.

    `in_one`: every input comes in one part. Then rows that join are in the same place already: each join is a hash join inside of one
    task, nothing is broadcast, and a query with a dozen joins is one job.
    """

    def __init__(
        self, session: SparkSession, spark: Internals, text: str, inputs: Mapping[str, Shape], *, in_one: bool
    ) -> None:
        """Plan `text`; `NotPreparableError` if its plan depends on more than its inputs."""
        self._session = session
        self._spark = spark
        self._inputs = dict(inputs)
        self._in_one = in_one
        slots: dict[int, str] = {}
        try:
            for name, shape in inputs.items():
                empty = spark.no_rows()
                schema = spark.data_type.fromJson(shape.spark)
                frame = spark.session.internalCreateDataFrame(empty, schema, False)
                if in_one:
                    rows = frame.logicalPlan()
                    frame = spark.dataset.ofRows(spark.session, self._single(rows.output(), empty, rows))
                frame.createOrReplaceTempView(name)
                slots[empty.id()] = name
            with _without_reuse(session):
                frame = session.sql(_BROADCAST.sub(r"/*+ SHUFFLE_HASH(\1) */", text) if in_one else text)
                plan = frame._jdf.queryExecution().executedPlan()
            if not plan.subqueriesAll().isEmpty():
                raise NotPreparableError("it has a subquery")
            self._root = _tree(plan, slots)
            self._shown = frame._jdf
            self._conf = spark.session.sessionState().conf()
            self._arrow = to_arrow_schema(frame.schema, timezone="UTC")
            with spark.activated():
                self._bound(self._root, dict.fromkeys(inputs, (spark.seq([]), None)))
                self._bound(self._root, dict.fromkeys(inputs, (None, spark.no_rows())))
        except (Py4JError, TypeError) as error:  # TypeError: py4j takes a class that is not there for a package
            raise NotPreparableError(f"this Spark has other internals: {error}") from error
        finally:
            for name in inputs:
                session.catalog.dropTempView(name)

    def run(self, given: Mapping[str, pa.Table | DataFrame]) -> pa.Table:
        """Return the result over these rows."""
        spark = self._spark
        with spark.activated():
            rows = {name: self._given(given[name], shape) for name, shape in self._inputs.items()}
            result = self._shown.toArrowBatchRdd(self._bound(self._root, rows))
            batches = spark.collected(spark.with_conf(result, self._conf))
        return pa.Table.from_batches(
            [pa.ipc.read_record_batch(pa.py_buffer(b), self._arrow) for b in batches], self._arrow
        )

    def _single(self, output: Any, rows: Any, like: Any) -> Any:
        """Return an input of the plan whose rows are in one part."""
        none = self._spark.none
        args = (like.outputOrdering(), like.isStreaming(), like.stream(), self._spark.session, none, none, False)
        return self._spark.input(output, rows, self._spark.single_partition, *args)

    def _given(self, source: pa.Table | DataFrame, shape: Shape) -> tuple[Any, Any]:
        if isinstance(source, DataFrame):
            rows = source._jdf.queryExecution().toRdd()
            if self._in_one:
                rows = (
                    rows.coalesce(1, False, self._spark.none, None)
                    if rows.getNumPartitions()
                    else self._spark.no_rows()
                )
            return None, rows
        if source.num_rows == 0:  # a local scan of no rows has no part at all
            return None, self._spark.no_rows()
        return self._rows(source, shape), None

    def _bound(self, node: Any, rows: Mapping[str, tuple[Any, Any]]) -> Any:
        if not isinstance(node, _Node):
            return node
        if node.slot is not None:
            local, distributed = rows[node.slot]
            if distributed is not None:
                return self._spark.scan(node.plan, distributed, *node.details)
            return self._spark.local_scan(node.plan, local, self._spark.none, self._in_one)
        children = [self._bound(c, rows) for c in node.children]
        if len(children) == 1:
            return node.plan.withNewChildInternal(children[0])
        return node.plan.withNewChildren(self._spark.seq(children))

    def _rows(self, table: pa.Table, shape: Shape) -> Any:
        """Return the rows of `table` in Spark's own form."""
        return self._spark.local_frame(table, shape).logicalPlan().data()


@contextmanager
def _without_reuse(session: SparkSession) -> Iterator[None]:
    """Let Spark plan every exchange where it stands: one that stands for another would show that one's rows of the first day."""
    before = session.conf.get(_REUSE)
    session.conf.set(_REUSE, "false")
    try:
        yield
    finally:
        session.conf.set(_REUSE, str(before))


def _pieces(data: bytes) -> Iterator[bytes]:
    """Yield what was written as lengths and bytes."""
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at)
        yield data[at + 4 : at + 4 + length]
        at += 4 + length


def _tree(plan: Any, slots: Mapping[int, str]) -> Any:
    """Return the nodes above inputs; a part without inputs stays as it is."""
    children = plan.children()
    if children.isEmpty():
        kind = plan.getClass().getName()
        if kind == _SLOT and plan.rdd().id() in slots:
            details = (plan.name(), plan.outputPartitioning(), plan.outputOrdering(), plan.stream())
            return _Node(plan.output(), slots[plan.rdd().id()], (), details)
        if kind not in _CONSTANTS:
            raise NotPreparableError(f"it reads {kind}")
        return plan
    made = tuple(_tree(children.apply(i), slots) for i in range(children.size()))
    return _Node(plan, None, made) if any(isinstance(c, _Node) for c in made) else plan
