"""A worker: one Spark session of our own, with its own temporary views and settings, over the shared Spark context.

Everything that is computed goes through here: SQL text in, frames or Arrow tables out. Frames are opaque to the layers above;
they hand them back to the worker that made them.
"""

from __future__ import annotations

import copy
import itertools
import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import convert_exception
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import ArrayType, CharType, DataType, MapType, StructField, StructType, VarcharType

from headwater.engine.multiset import hash_of_sums, hash_sums_sql
from headwater.engine.prepared import Internals, NotPreparableError, PreparedQuery, Shape
from headwater.errors import EvaluationError, MissingFileError, ResultTooLargeError, StatementError
from headwater.model.schema import Field
from headwater.model.sql import quoted
from headwater.model.types import field_ddl

Frame = DataFrame

logging.getLogger("SQLQueryContextLogger").disabled = True

# What every computation of ours relies on, whatever the user's session says.
FIXED_CONF = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.pyspark.fallback.enabled": "false",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    "spark.sql.execution.arrow.localRelationThreshold": "48MB",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.sql.preserveCharVarcharTypeInfo": "false",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.files.ignoreMissingFiles": "false",
    # Spark 4.3 computes wrong results with the first rule, and cannot plan EXISTS in the select list over a UNION with the second.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.PushProjectionThroughLimitAndOffset,"
    "org.apache.spark.sql.catalyst.optimizer.PushProjectionThroughUnion",
    # Texts that we make hold values of users: they mean what they say.
    "spark.sql.variable.substitute": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    # A shredded VARIANT has a file schema of its own in every file; whole ones can be joined by the driver and read by outsiders.
    "spark.sql.variant.writeShredding.enabled": "false",
    "spark.sql.variant.inferShreddingSchema": "false",
}

# Settings that decide what a query means. A stream table stores them; each of its refreshes sets them.
MEANING_CONF = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.decimalOperations.allowPrecisionLoss",
    "spark.sql.storeAssignmentPolicy",
    "spark.sql.legacy.timeParserPolicy",
    "spark.sql.mapKeyDedupPolicy",
    "spark.sql.cteRecursionLevelLimit",
)

LOG = logging.getLogger("headwater.engine")

_INPUT_NAME = re.compile(r"__rows\d+")
_PREPARED_BYTES = 8 << 20
_TINY_ROWS = 20_000
_SMALL_ROWS = 500_000
_COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
_POOL = "spark.scheduler.pool"
_PARTS = "spark.sql.leafNodeDefaultParallelism"
_TINY_CONF = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    _PARTS: "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_SMALL_CONF = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "2", **_COMPILED}
_LARGE_CONF = {"spark.sql.adaptive.enabled": "true", **_COMPILED}


@dataclass(frozen=True, slots=True)
class Written:
    """What a write produced: totals that Spark counted while writing."""

    inserts: int
    deletes: int
    hash_change: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """What Spark knows about a result before it runs: an upper bound of its rows, None if there is none, and a guess of its bytes."""

    rows: int | None
    bytes: int


_PreparedKey = tuple[str, tuple[tuple[str, tuple[Field, ...]], ...], tuple[tuple[str, str], ...]]


@lru_cache(maxsize=4096)
def data_type(ddl: str) -> DataType:
    """Return Spark's type for DDL text; CHAR and VARCHAR are stored as STRING."""
    return stored_type(DataType.fromDDL(ddl))


def stored_type(kind: DataType) -> DataType:
    """Replace length-limited strings by plain ones, at any depth."""
    from pyspark.sql.types import StringType

    if isinstance(kind, CharType | VarcharType):
        return StringType()
    if isinstance(kind, ArrayType):
        return ArrayType(stored_type(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(stored_type(kind.keyType), stored_type(kind.valueType), kind.valueContainsNull)
    if isinstance(kind, StructType):
        return StructType([StructField(x.name, stored_type(x.dataType), x.nullable, x.metadata) for x in kind.fields])
    return kind


def type_text(kind: DataType) -> str:
    """Return the DDL text of a type."""
    return field_ddl(StructType([StructField("x", kind)]).jsonValue()["fields"][0])


def struct_type(fields: Sequence[Field]) -> StructType:
    """Return the Spark schema for stored fields. Everything is nullable: constraints are checked by us, not promised to Spark."""
    return StructType([StructField(x.name, data_type(x.type), True) for x in fields])


class Worker:
    """One session. Not for use by two threads at once."""

    def __init__(self, session: SparkSession, kept_plans: int = 256) -> None:
        self.session = session
        self._kept_plans = kept_plans
        self.tasks: set[str] = set()
        self._names = itertools.count()
        self._views: list[str] = []
        self._persisted: list[Frame] = []
        self._inputs: dict[str, tuple[pa.Table | Frame, tuple[Field, ...]]] = {}
        self._seen: OrderedDict[_PreparedKey, None] = OrderedDict()
        self._prepared: OrderedDict[_PreparedKey, PreparedQuery | None] = OrderedDict()
        self._conf: dict[str, str] = {}
        self.configure(FIXED_CONF)

    @property
    def _jvm(self) -> Any:
        return self.session._jvm

    @cached_property
    def _internals(self) -> Internals:
        return Internals(self.session)

    def configure(self, conf: Mapping[str, str]) -> None:
        """Set session settings; unchanged ones cost nothing."""
        for key, value in conf.items():
            if self._conf.get(key) != value:
                self.session.conf.set(key, value)
                self._conf[key] = value

    def size_for(self, rows: int) -> None:
        """Shape execution to the number of rows that it will meet.

        For few rows, planning and compiling cost more than running: no adaptive planning, one task for each part, interpreted
        expressions (measured: half the time of compiled ones, whose code differs with every literal). For many, the other way round.
        """
        if rows <= _TINY_ROWS:
            self.configure(_TINY_CONF)
            return
        cores = self.session.sparkContext.defaultParallelism
        leaves = {_PARTS: str(cores)}
        if rows <= _SMALL_ROWS:
            self.configure(_SMALL_CONF | leaves)
        else:
            count = max(2 * cores, min(400, rows // _SMALL_ROWS))
            self.configure(_LARGE_CONF | leaves | {"spark.sql.shuffle.partitions": str(count)})

    def meaning(self) -> dict[str, str]:
        """Return the settings that a query's meaning depends on, as they are now."""
        return {k: str(self.session.conf.get(k)) for k in MEANING_CONF}

    def recursion_limits(self) -> tuple[int, int]:
        """Return after how many rounds, and after how many rows, a recursive query fails."""
        rounds = int(self.session.conf.get("spark.sql.cteRecursionLevelLimit", "100") or 100)
        rows = int(self.session.conf.get("spark.sql.cteRecursionRowLimit", "1000000") or 1_000_000)
        return rounds if rounds >= 0 else 100_000, rows if rows >= 0 else 1 << 62

    @contextmanager
    def in_pool(self, name: str) -> Iterator[None]:
        """Let the Spark jobs that this thread starts share the cores as that pool does."""
        context = self.session.sparkContext
        before = context.getLocalProperty(_POOL)
        context.setLocalProperty(_POOL, name)
        try:
            yield
        finally:
            context.setLocalProperty(_POOL, before)  # type: ignore[arg-type]

    # frames -----------------------------------------------------------------------------------------------------------------

    def sql(self, text: str) -> Frame:
        """Analyse `text`; nothing runs yet."""
        for name in (n for n in self._mentioned(text) if n not in self._views):
            rows, fields = self._inputs[name]
            frame = self.from_arrow(rows, fields) if isinstance(rows, pa.Table) else rows
            frame.createOrReplaceTempView(name)
            self._views.append(name)
        return self.session.sql(text)

    def _mentioned(self, text: str) -> list[str]:
        """Return the inputs that `text` reads."""
        return [n for n in dict.fromkeys(_INPUT_NAME.findall(text)) if n in self._inputs]

    def collected(self, text: str) -> pa.Table:
        """Run `text` and bring its rows to the driver; a text that reads only inputs is planned when it comes again, and then kept."""
        query = self._prepare(text)
        if query is None:
            return self.to_arrow(self.sql(text))
        with translated_errors():
            return _nullable(query.run({name: self._inputs[name][0] for name in self._mentioned(text)}))

    def _prepare(self, text: str) -> PreparedQuery | None:
        names = self._mentioned(text)
        if not names or any(v in text for v in self._views if v not in self._inputs):
            return None
        tables = [x for n in names if isinstance(x := self._inputs[n][0], pa.Table)]
        if sum(t.nbytes for t in tables) > _PREPARED_BYTES:
            return None
        inputs = {n: self._inputs[n][1] for n in names}
        key = (text, tuple(inputs.items()), tuple(sorted(self._conf.items())))
        if key not in self._prepared:
            if key not in self._seen:  # perhaps it never comes again, and Spark plans well what it can look into
                self._seen[key] = None
                if len(self._seen) > self._kept_plans:
                    self._seen.popitem(last=False)
                return None
            del self._seen[key]
            try:
                shapes = {n: _shape(x) for n, x in inputs.items()}
                # Preparing makes views of these names, and drops them.
                self._views = [v for v in self._views if v not in inputs]
                with translated_errors():
                    in_one = self._conf.get(_PARTS) == "1"
                    self._prepared[key] = PreparedQuery(self.session, self._internals, text, shapes, in_one=in_one)
            except NotPreparableError as reason:
                LOG.debug("not prepared: %s", reason)
                self._prepared[key] = None
            while len(self._prepared) > self._kept_plans:
                self._prepared.popitem(last=False)
        self._prepared.move_to_end(key)
        return self._prepared[key]

    def view(self, frame: Frame) -> str:
        """Give `frame` a name for SQL texts; `release` drops it."""
        name = f"hw_{id(self):x}_{next(self._names)}"
        frame.createOrReplaceTempView(name)
        self._views.append(name)
        return name

    def persisted(self, frame: Frame) -> Frame:
        """Let the rows of a frame be computed once, and kept until the worker is released."""
        with translated_errors():  # Spark plans here, and computes constants
            self._persisted.append(frame.persist())
        return frame

    def release(self) -> None:
        """Drop all views and kept rows."""
        for frame in self._persisted:
            frame.unpersist()
        self._persisted.clear()
        for name in self._views:
            self.session.catalog.dropTempView(name)
        self._views.clear()
        self._inputs.clear()

    def from_arrow(self, table: pa.Table, fields: Sequence[Field]) -> Frame:
        """Return the rows of `table` as a local relation with exactly these fields."""
        if table.num_rows == 0:
            return self.empty(fields)
        if table.nbytes > _PREPARED_BYTES:
            return self.session.createDataFrame(table.select([x.name for x in fields]), schema=struct_type(fields))
        return DataFrame(self._internals.local_frame(table, _shape(tuple(fields))), self.session)

    def relation(self, rows: pa.Table | Frame, fields: Sequence[Field]) -> str:
        """Return what stands after FROM for the rows of a table or a frame, all of which will be read.

        Like uses get like names, so that their texts are the same and need not be planned again.
        """
        name = f"__rows{len(self._inputs)}"
        self._inputs[name] = (rows, tuple(fields))
        return name

    def local(self, table: pa.Table) -> Frame:
        """Return the rows of any Arrow table as a local relation; times without a zone stay without one."""
        schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
        return self.session.createDataFrame(table if table.num_rows else [], schema=schema)

    def estimate(self, frame: Frame) -> Estimate:
        """Ask Spark's optimizer how large the result of `frame` may be; nothing runs."""
        with translated_errors():
            plan = frame._jdf.queryExecution().optimizedPlan()
            most = plan.maxRows()
            return Estimate(int(most.get()) if most.isDefined() else None, int(str(plan.stats().sizeInBytes())))

    def adopted(self, frame: Frame) -> Frame:
        """Return a frame of another session of the same Spark context as one of this session."""
        return adopted(frame, self.session)

    def can_assign(self, source: DataType, target: DataType) -> bool:
        """Say whether SQL's store assignment lets a value of type `source` into a column of type `target`."""
        types = self._jvm.org.apache.spark.sql.types.DataType
        cast = self._jvm.org.apache.spark.sql.catalyst.expressions.Cast
        return bool(cast.canANSIStoreAssign(types.fromJson(source.json()), types.fromJson(target.json())))

    def empty(self, fields: Sequence[Field]) -> Frame:
        """Return no rows, in a way that Spark's optimizer sees: what joins or filters them costs nothing.

        VALUES and not plain constants: a column that is a constant takes other, less trodden ways through the optimizer.
        """
        nulls = ", ".join(f"CAST(NULL AS {type_text(data_type(x.type))})" for x in fields)
        names = ", ".join(quoted(x.name) for x in fields)
        return self.sql(f"SELECT * FROM VALUES ({nulls}) AS none ({names}) WHERE false")

    def read_parquet(self, paths: Sequence[str], fields: Sequence[Field]) -> Frame:
        """Return the rows of `paths`; a column that an old file lacks is NULL."""
        if not paths:
            return self.empty(fields)
        return self.session.read.schema(struct_type(fields)).parquet(*paths)

    def to_arrow(self, frame: Frame) -> pa.Table:
        """Run `frame` and bring its rows to the driver; every column may hold NULL, whatever Spark knows about this one result."""
        with translated_errors():
            return _nullable(frame.toArrow())

    def rows(self, frame: Frame) -> list[Any]:
        """Run `frame` and return its few rows."""
        with translated_errors():
            return frame.collect()

    def save(self, frame: Frame, directory: str) -> None:
        """Write the rows of `frame` as Parquet files that only this computation reads."""
        with translated_errors():
            frame.write.mode("errorifexists").parquet(directory)

    def write_parquet(self, frame: Frame, directory: str, action: str | None, hash_sql: str) -> Written:
        """Write `frame` to `directory` and return what Spark counted on the way.

        `action` names the column that tells inserts from deletes (None: all are inserts); `hash_sql` is a row's hash. Counting
        rides on the write itself, so the rows are computed once.
        """
        inserted = f.expr(f"`{action}` = 'I'") if action else f.lit(True)
        sign = f"if(`{action}` = 'I', 1L, -1L)" if action else "1L"
        sums = [f.expr(text).alias(name) for name, text in hash_sums_sql(hash_sql, sign).items()]
        observed = Observation()
        counted = frame.observe(
            observed,
            f.count_if(inserted).alias("inserts"),
            f.count_if(~inserted).alias("deletes"),
            *sums,
        )
        with translated_errors():
            counted.write.mode("errorifexists").parquet(directory)
        totals = observed.get
        return Written(int(totals["inserts"]), int(totals["deletes"]), hash_of_sums(totals))


def own_session(frame: Frame) -> SparkSession:
    """Give `frame` a session object of its own, the same session in every respect, and return it.

    Frames derived from another one share its session object, so that object lives exactly as long as one of them does.
    """
    frame._session = copy.copy(frame.sparkSession)
    return frame.sparkSession


def adopted(frame: Frame, session: SparkSession) -> Frame:
    """Return a frame as one of `session`, which must share its Spark context."""
    jvm: Any = session._jvm
    plan = frame._jdf.queryExecution().analyzed()
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan), session)


class WorkerPool:
    """Sessions made on demand and used again: a new one costs 100 ms."""

    def __init__(self, spark: SparkSession, kept_plans: int) -> None:
        self._spark = spark
        self._kept_plans = kept_plans
        self._free: list[Worker] = []
        self._lock = threading.Lock()

    @contextmanager
    def worker(self, task: str = "") -> Iterator[Worker]:
        """Lend a worker; its views are dropped afterwards. One that did the same task before has its plans still."""
        with self._lock:
            known = [i for i, w in enumerate(self._free) if task and task in w.tasks]
            worker = self._free.pop(known[-1] if known else -1) if self._free else None
        if worker is None:
            worker = Worker(self._spark.newSession(), self._kept_plans)
        if task:
            worker.tasks.add(task)
        try:
            yield worker
        finally:
            worker.release()
            with self._lock:
                self._free.append(worker)


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turn Spark's run-time failures into ours, keeping its own words."""
    try:
        yield
    except PySparkException as error:
        raise evaluation_error(error) from error
    except Py4JJavaError as error:  # what PySpark itself does not translate
        reason = error.java_exception
        raise evaluation_error(convert_exception(reason.getCause() or reason)) from error


def evaluation_error(error: PySparkException) -> EvaluationError | MissingFileError:
    """Return our error for a failure of Spark while running."""
    text = str(error)
    condition = error.getCondition() or ""
    first = next((line for line in text.splitlines() if line.strip()), text)
    if "FILE_NOT_EXIST" in condition or "FAILED_READ_FILE.FILE_NOT_EXIST" in text or "FileNotFoundException" in text:
        return MissingFileError(
            "a data file of the warehouse is missing",
            detail=first,
            hint="Restore the file from a backup; `headwater verify` names the tables it belongs to.",
        )
    if "maxResultSize" in text:
        return ResultTooLargeError("the result is too large for the driver", detail=first)
    return EvaluationError("Spark could not compute the result", detail=first)


def _nullable(table: pa.Table) -> pa.Table:
    if all(x.nullable for x in table.schema):
        return table
    return table.cast(pa.schema([x.with_nullable(True) for x in table.schema]))


@lru_cache(maxsize=1024)
def _shape(fields: tuple[Field, ...]) -> Shape:
    return Shape(schema_json(fields), arrow_schema(fields))


def arrow_schema(fields: Sequence[Field]) -> pa.Schema:
    """Return the Arrow schema of stored fields."""
    return to_arrow_schema(struct_type(fields), timezone="UTC")


def ddl_fields(schema: Any) -> list[Field]:
    """Return the fields of a schema given as DDL text, a StructType, or (name, type) pairs."""
    if isinstance(schema, StructType):
        return [Field(x["name"], field_ddl(x), x["nullable"]) for x in schema.jsonValue()["fields"]]
    pairs = [schema] if isinstance(schema, str) else [f"{quoted(n)} {t}" for n, t in schema]
    with translated_errors():
        try:
            parsed = StructType.fromDDL(", ".join(pairs))
        except PySparkException as error:
            message = str(error).strip().splitlines()[0]
            raise StatementError(
                "the column types cannot be read", detail=message, hint="Write Spark SQL types."
            ) from None
    return ddl_fields(parsed)


def schema_json(fields: Sequence[Field]) -> str:
    """Return Spark's JSON for stored fields, which is also Delta Lake's."""
    return str(struct_type(fields).json())
