"""A worker: one Spark session of our own, with its own temporary views and settings, over the shared Spark context.

Everything that is computed goes through here: SQL text in, frames or Arrow tables out. Frames are opaque to the layers above;
they hand them back to the worker that made them.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, CharType, DataType, MapType, StructField, StructType, VarcharType

from headwater.errors import EvaluationError, MissingFileError, StatementError
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
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.sql.preserveCharVarcharTypeInfo": "false",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.files.ignoreMissingFiles": "false",
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
)

_SMALL_CONF = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "2"}


@dataclass(frozen=True, slots=True)
class Written:
    """What a write produced: totals that Spark counted while writing."""

    inserts: int
    deletes: int
    hash_change: int


@lru_cache(maxsize=4096)
def data_type(ddl: str) -> DataType:
    """Return Spark's type for DDL text; CHAR and VARCHAR are stored as STRING."""
    return _stored(DataType.fromDDL(ddl))


def _stored(kind: DataType) -> DataType:
    """Replace length-limited strings by plain ones, at any depth."""
    from pyspark.sql.types import StringType

    if isinstance(kind, CharType | VarcharType):
        return StringType()
    if isinstance(kind, ArrayType):
        return ArrayType(_stored(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(_stored(kind.keyType), _stored(kind.valueType), kind.valueContainsNull)
    if isinstance(kind, StructType):
        return StructType([StructField(x.name, _stored(x.dataType), x.nullable, x.metadata) for x in kind.fields])
    return kind


def struct_type(fields: Sequence[Field]) -> StructType:
    """Return the Spark schema for stored fields. Everything is nullable: constraints are checked by us, not promised to Spark."""
    return StructType([StructField(x.name, data_type(x.type), True) for x in fields])


class Worker:
    """One session. Not for use by two threads at once."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self._names = itertools.count()
        self._views: list[str] = []
        self._conf: dict[str, str] = {}
        self.configure(FIXED_CONF)

    def configure(self, conf: Mapping[str, str]) -> None:
        """Set session settings; unchanged ones cost nothing."""
        for key, value in conf.items():
            if self._conf.get(key) != value:
                self.session.conf.set(key, value)
                self._conf[key] = value

    def size_for(self, rows: int, partitions: int = 0) -> None:
        """Shape execution to the size of the work: few partitions and no adaptive planning for small changes."""
        if rows <= 500_000:
            self.configure({**_SMALL_CONF, **({"spark.sql.shuffle.partitions": str(partitions)} if partitions else {})})
        else:
            cores = self.session.sparkContext.defaultParallelism
            count = partitions or max(2 * cores, min(400, rows // 500_000))
            self.configure({"spark.sql.adaptive.enabled": "true", "spark.sql.shuffle.partitions": str(count)})

    def meaning(self) -> dict[str, str]:
        """Return the settings that a query's meaning depends on, as they are now."""
        return {k: str(self.session.conf.get(k)) for k in MEANING_CONF}

    # frames -----------------------------------------------------------------------------------------------------------------

    def sql(self, text: str) -> Frame:
        """Analyse `text`; nothing runs yet."""
        return self.session.sql(text)

    def view(self, frame: Frame) -> str:
        """Give `frame` a name for SQL texts; `release` drops it."""
        name = f"hw_{id(self):x}_{next(self._names)}"
        frame.createOrReplaceTempView(name)
        self._views.append(name)
        return name

    def release(self) -> None:
        """Drop all views."""
        for name in self._views:
            self.session.catalog.dropTempView(name)
        self._views.clear()

    def from_arrow(self, table: pa.Table, fields: Sequence[Field]) -> Frame:
        """Return the rows of `table` as a local relation with exactly these fields."""
        schema = struct_type(fields)
        table = table.select(list(schema.names))
        if table.num_rows == 0:
            return self.session.createDataFrame([], schema)
        return self.session.createDataFrame(table, schema=schema)

    def adopted(self, frame: Frame) -> Frame:
        """Return a frame of another session of the same Spark context as one of this session."""
        java = self.session._jvm.org.apache.spark.sql.classic.Dataset.ofRows(
            self.session._jsparkSession, frame._jdf.queryExecution().analyzed()
        )
        return DataFrame(java, self.session)

    def can_assign(self, source: DataType, target: DataType) -> bool:
        """Say whether SQL's store assignment lets a value of type `source` into a column of type `target`."""
        types = self.session._jvm.org.apache.spark.sql.types.DataType
        cast = self.session._jvm.org.apache.spark.sql.catalyst.expressions.Cast
        return bool(cast.canANSIStoreAssign(types.fromJson(source.json()), types.fromJson(target.json())))

    def empty(self, fields: Sequence[Field]) -> Frame:
        return self.session.createDataFrame([], struct_type(fields))

    def read_parquet(self, paths: Sequence[str], fields: Sequence[Field]) -> Frame:
        """Return the rows of `paths`; a column that an old file lacks is NULL."""
        if not paths:
            return self.empty(fields)
        return self.session.read.schema(struct_type(fields)).parquet(*paths)

    def to_arrow(self, frame: Frame) -> pa.Table:
        """Run `frame` and bring its rows to the driver."""
        with translated_errors():
            return frame.toArrow()

    def rows(self, frame: Frame) -> list[Any]:
        """Run `frame` and return its few rows."""
        with translated_errors():
            return frame.collect()

    def write_parquet(self, frame: Frame, directory: str, action: str | None, hash_sql: str) -> Written:
        """Write `frame` to `directory` and return what Spark counted on the way.

        `action` names the column that tells inserts from deletes (None: all are inserts); `hash_sql` is a row's hash. Counting
        rides on the write itself, so the rows are computed once.
        """
        weight = f.expr(f"`{action}` = 'I'") if action else f.lit(True)
        hashed = f.expr(f"CAST({hash_sql} AS DECIMAL(38, 0))")
        observed = Observation()
        counted = frame.observe(
            observed,
            f.count_if(weight).alias("inserts"),
            f.count_if(~weight).alias("deletes"),
            f.sum(f.when(weight, hashed)).alias("plus"),
            f.sum(f.when(~weight, hashed)).alias("minus"),
        )
        with translated_errors():
            counted.write.mode("errorifexists").parquet(directory)
        totals = observed.get
        change = int(totals["plus"] or 0) - int(totals["minus"] or 0)
        return Written(int(totals["inserts"]), int(totals["deletes"]), change % 2**64)


class WorkerPool:
    """Sessions made on demand and used again: a new one costs 100 ms."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._free: list[Worker] = []
        self._lock = threading.Lock()

    @contextmanager
    def worker(self) -> Iterator[Worker]:
        """Lend a worker; its views are dropped afterwards."""
        with self._lock:
            worker = self._free.pop() if self._free else None
        if worker is None:
            worker = Worker(self._spark.newSession())
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
    return EvaluationError("Spark could not compute the result", detail=first)


def arrow_schema(fields: Sequence[Field]) -> pa.Schema:
    """Return the Arrow schema of stored fields."""
    from pyspark.sql.pandas.types import to_arrow_schema

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
            raise StatementError("the column types cannot be read", detail=message, hint="Write Spark SQL types.") from None
    return ddl_fields(parsed)


def schema_json(fields: Sequence[Field]) -> str:
    """Return Spark's JSON for stored fields, which is also Delta Lake's."""
    return str(struct_type(fields).json())
