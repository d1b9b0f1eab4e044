"""Catalyst reads the query: text or DataFrame in, a normalised plan as Python objects out.

Every table is a temporary view without rows whose columns carry a tag in their metadata (which table, which column), so that
a leaf is recognised after Catalyst has removed all names. The analyzed plan is taken, not the optimized one: the optimizer
replaces functions by internal ones that cannot be written back as SQL. For the same reason ReplaceExpressions is not among the
rules applied here: a function that Spark implements by a replacement keeps its own class, and with it its name.

The rules do not enter the plans of scalar subqueries that stay as expressions. They are applied to those plans by themselves, and
the result hangs at the expression.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from headwater.engine.catalyst_fields import Annotator, nodes_with_nested
from headwater.engine.nested import HiddenEqualities, InSubqueries, ShownEqualities
from headwater.errors import QueryError, SparkUnavailableError
from headwater.model.analyzed import AnalyzedQuery, OutputField
from headwater.model.types import field_ddl

TABLE_TAG = "headwater.table"
COLUMN_TAG = "headwater.column"

_ANALYSIS = "org.apache.spark.sql.catalyst.analysis."
_OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer."

RULES: tuple[str, ...] = (
    _ANALYSIS + "EliminateSubqueryAliases",
    _ANALYSIS + "EliminateView",
    "org.apache.spark.sql.catalyst.expressions.EliminatePipeOperators",
    _OPTIMIZER + "InlineCTE",
    _OPTIMIZER + "ReplaceIntersectWithSemiJoin",
    _OPTIMIZER + "ReplaceExceptWithAntiJoin",
    _OPTIMIZER + "RewriteExceptAll",
    _OPTIMIZER + "RewriteIntersectAll",
    _OPTIMIZER + "ReplaceDistinctWithAggregate",
    _OPTIMIZER + "ReplaceDeduplicateWithAggregate",
    _OPTIMIZER + "OptimizeOneRowRelationSubquery",
    _OPTIMIZER + "PullupCorrelatedPredicates",
    _OPTIMIZER + "RewriteCorrelatedScalarSubquery",
    _OPTIMIZER + "EliminateOuterJoin",
    _OPTIMIZER + "RewritePredicateSubquery",
    _OPTIMIZER + "RewriteLateralSubquery",
    _OPTIMIZER + "BooleanSimplification",
    _OPTIMIZER + "PushDownPredicates",
    _OPTIMIZER + "ColumnPruning",
    _OPTIMIZER + "CollapseProject",
    _OPTIMIZER + "CombineUnions",
    _ANALYSIS + "UpdateAttributeNullability",
)
"""Applied in this order, again and again until nothing changes: a subquery in a subquery takes a round per level."""

PULL_UP = _OPTIMIZER + "PullupCorrelatedPredicates"
"""Applied in subqueries of subqueries too (`engine/nested.py`), before all levels become joins."""

_ROUNDS = 8


class CatalystPlanner:
    """Analyses queries over schema-only tables in one classic session that is used for nothing else."""

    def __init__(self, session: SparkSession) -> None:
        """`session` must be a classic session of its own (`spark.newSession()`): temporary views are created in it."""
        if not hasattr(session, "_jsparkSession"):
            raise SparkUnavailableError(
                "queries cannot be planned in a Spark Connect session",
                detail="The plan of a query is read through the JVM, which a Connect session does not expose.",
                hint="Give Headwater a classic SparkSession, or none, so that it starts one.",
            )
        self._session = session
        self._rules: list[Any] | None = None
        self._names: dict[str, tuple[str, ...]] | None = None

    def register(self, name: str, schema: StructType, table: str) -> None:
        """Make `name` a table without rows; leaves of plans that read it are scans of `table`."""
        self.frame(schema, table).createOrReplaceTempView(name)

    def frame(self, schema: StructType, table: str) -> DataFrame:
        """Return a frame without rows whose leaf is recognised as a scan of `table`."""
        java_schema = self._jvm.org.apache.spark.sql.types.DataType.fromJson(_tagged(schema, table).json())
        # Rows that Catalyst cannot look into: it takes two empty local tables of one schema for the same table.
        rows = self._session.sparkContext._jsc.emptyRDD().rdd()
        return DataFrame(self._session._jsparkSession.internalCreateDataFrame(rows, java_schema, False), self._session)

    def unregister(self, name: str) -> None:
        """Forget the table `name`."""
        self._session.catalog.dropTempView(name)

    def analyze(self, sql: str) -> AnalyzedQuery:
        """Return the normalised plan of a SQL text; what Spark refuses is a QueryError in Spark's own words."""
        with spark_errors_as_query_errors():
            return self.analyze_frame(self._session.sql(sql))

    def analyze_frame(self, frame: DataFrame) -> AnalyzedQuery:
        """Return the normalised plan of a DataFrame made over registered tables."""
        with spark_errors_as_query_errors():
            execution = frame._jdf.queryExecution()
            plan = execution.analyzed()
            output = _fields(plan.schema())
            plan = self._normalised(plan)
            nodes = Annotator(self._jvm, self._normalised, TABLE_TAG, COLUMN_TAG).nodes(plan)
        tables = dict.fromkeys(n["hw_scan"]["table"] for n in nodes_with_nested(nodes) if "hw_scan" in n)
        return AnalyzedQuery(tuple(nodes), output, tuple(tables), plan.deterministic())

    def schema_of(self, sql: str) -> list[tuple[str, str, bool]]:
        """Return (name, DDL type, nullable) of the result of `sql` without running it."""
        with spark_errors_as_query_errors():
            fields = _fields(self._session.sql(sql)._jdf.queryExecution().analyzed().schema())
        return [(f.name, f.type, f.nullable) for f in fields]

    def is_ansi(self) -> bool:
        """Say whether the session runs in ANSI mode."""
        return self._session.conf.get("spark.sql.ansi.enabled") == "true"

    def function_names(self) -> Mapping[str, tuple[str, ...]]:
        """Return the names under which each expression class is registered; the class is given without its package."""
        if self._names is None:
            functions = DataFrame(self._session._jsparkSession.catalog().listFunctions().toDF(), self._session)
            names: dict[str, list[str]] = {}
            for row in functions.where("className IS NOT NULL").select("name", "className").collect():
                names.setdefault(row["className"].rpartition(".")[2], []).append(row["name"])
            self._names = {c: tuple(sorted(n)) for c, n in names.items()}
        return self._names

    def _normalised(self, plan: Any) -> Any:
        for _ in range(_ROUNDS):
            before = plan
            for rule in self._catalyst_rules():
                plan = rule.apply(plan)
            if plan.fastEquals(before):
                break
        return plan

    @property
    def _jvm(self) -> Any:
        return self._session._jvm

    def _catalyst_rules(self) -> list[Any]:
        if self._rules is None:
            gateway = self._session.sparkContext._gateway
            rules = []
            for name in RULES:
                rule = _rule(self._jvm, name)
                if name == PULL_UP:
                    hidden, shown = HiddenEqualities(self._jvm, gateway), ShownEqualities(self._jvm, gateway)
                    rules += [hidden, rule, InSubqueries(self._jvm, gateway, rule), shown]
                else:
                    rules.append(rule)
            self._rules = rules
        return self._rules


def _rule(jvm: Any, name: str) -> Any:
    if name.endswith("InlineCTE"):
        constructor = jvm.java.lang.Class.forName(name).getConstructors()[0]
        arguments = jvm.java.util.ArrayList()
        arguments.add(True)  # always inline; whatever else the constructor of this Spark version asks for stays false
        for _ in range(constructor.getParameterCount() - 1):
            arguments.add(False)
        return constructor.newInstance(arguments.toArray())
    return jvm.java.lang.Class.forName(name + "$").getField("MODULE$").get(None)


def _tagged(schema: StructType, table: str) -> StructType:
    fields = [
        StructField(f.name, f.dataType, f.nullable, {**(f.metadata or {}), TABLE_TAG: table, COLUMN_TAG: f.name})
        for f in schema
    ]
    return StructType(fields)


def _fields(java_schema: Any) -> tuple[OutputField, ...]:
    fields = json.loads(java_schema.json())["fields"]
    return tuple(OutputField(f["name"], field_ddl(f), f["nullable"]) for f in fields)


@contextmanager
def spark_errors_as_query_errors() -> Iterator[None]:
    """Turn what Spark raises into a QueryError, and keep PySpark from logging a page of JSON about it."""
    logger = logging.getLogger("SQLQueryContextLogger")
    was_disabled, logger.disabled = logger.disabled, True
    try:
        yield
    except PySparkException as error:
        raise _query_error(str(error), error.getCondition()) from None
    except Py4JJavaError as error:
        raise _query_error(str(error.java_exception.getMessage()), None) from None
    finally:
        logger.disabled = was_disabled


def _query_error(text: str, condition: str | None) -> QueryError:
    message = text.split("\n\nJVM stacktrace:")[0].split(";\n")[0].strip()
    hint = f"Spark's error class is {condition}." if condition else None
    return QueryError("Spark refuses the query", detail=message, hint=hint)
