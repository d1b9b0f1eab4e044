"""Reading a query and running what is printed, next to the query itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.engine.catalyst import CatalystPlanner, spark_errors_as_query_errors
from headwater.plan.printer import final_sql, sql
from headwater.plan.query import Query, RefusedQuery, read_query
from headwater.plan.scope import Session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Answer:
    """What a query returns: the types of its columns, and its rows as text, sorted; or the class of the error."""

    schema: str
    rows: tuple[str, ...]
    error: str = ""


class Frontend:
    """A planner, and a session in which the same tables have rows."""

    def __init__(self, spark: SparkSession) -> None:
        self.planning = spark.newSession()
        self.data = spark.newSession()
        self.planner = CatalystPlanner(self.planning)
        self.data.conf.set("spark.sql.codegen.wholeStage", "false")
        self.data.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")  # compiling costs more than these rows

    def set(self, key: str, value: str) -> None:
        for session in (self.planning, self.data):
            session.conf.set(key, value)

    def add(self, name: str, query: str) -> None:
        """Make `name` a table with the rows of `query`."""
        rows = self.data.sql(query)
        rows.createOrReplaceTempView(name)
        self.planner.register(name, rows.schema, name)

    def read(self, query: str) -> Query | RefusedQuery:
        session = Session(self.planner.function_names(), self.planner.is_ansi())
        return read_query(self.planner.analyze(query), session, self.planner.schema_of)

    def accepted(self, query: str) -> Query:
        read = self.read(query)
        assert isinstance(read, Query), [str(r) for r in read.refusals]
        return read

    def refused(self, query: str) -> RefusedQuery:
        read = self.read(query)
        assert isinstance(read, RefusedQuery), sql(read.tree, lambda leaf: leaf.table)
        return read

    def printed(self, query: Query) -> str:
        return final_sql(query.tree, query.names, lambda leaf: leaf.table)

    def answer(self, query: str) -> Answer:
        return answer_of(self.data.sql(query))

    def answers(self, query: str, other: str) -> tuple[Answer, Answer]:
        """Return what two queries return; where neither fails, by one job."""
        frames = self.data.sql(query), self.data.sql(other)
        marked = [_as_text(f).selectExpr(f"{i} AS which", "row") for i, f in enumerate(frames)]
        try:
            rows = marked[0].unionAll(marked[1]).collect()
        except Exception:
            return answer_of(frames[0]), answer_of(frames[1])
        one, two = (
            Answer(f.schema.simpleString(), tuple(sorted(r["row"] for r in rows if r["which"] == i)))
            for i, f in enumerate(frames)
        )
        return one, two

    def assert_same(self, query: str) -> Query:
        """Assert that the printed query has the schema and the rows of the query; return what was read."""
        read = self.accepted(query)
        printed = self.printed(read)
        actual, expected = self.answers(printed, query)
        assert actual == expected, printed
        return read


def answer_of(frame: DataFrame) -> Answer:
    try:
        with spark_errors_as_query_errors():
            rows = tuple(sorted(r["row"] for r in _as_text(frame).collect()))
    except Exception as error:
        return Answer(frame.schema.simpleString(), (), str(error).partition("]")[0])
    return Answer(frame.schema.simpleString(), rows)


def _as_text(frame: DataFrame) -> DataFrame:
    names = [f"c{i}" for i in range(len(frame.columns))]
    items = [f"to_json(struct({n}))" if "variant" in t else n for n, (_, t) in zip(names, frame.dtypes, strict=True)]
    return frame.toDF(*names).selectExpr(f"CAST(struct({', '.join(items)}) AS STRING) AS row")
