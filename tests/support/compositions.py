"""Compositions: tables, a query that composes many operators, and three steps of changes. Is what Headwater keeps true?

After each step the stream table must hold what the user's own text gives: in plain Spark over the tables' rows, kept in Python, and in
DuckDB where the text says the same there. Refreshes must be differential. Spark has errors of its own: where it stands alone against
DuckDB and Headwater, the query is counted and named, and not a failure.

A *family* is several queries over the same tables, which change once for all of them.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any
from zlib import crc32

import duckdb
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from tests.support.composer import composed
from tests.support.dialects import duckdb_text, spark_text
from tests.support.generate import TableSpec
from tests.support.histories import Step, Tables, random_rows, random_step, random_tables, restricted
from tests.support.model import plain
from tests.support.oracle import differences
from tests.support.queries import EXACT, Item
from tests.support.relations import Relation, tables_in
from tests.support.values import Row
from tests.support.ways import ways_of

from headwater.errors import NotIncrementalError
from headwater.model.tables import RefreshAction
from headwater.warehouse import Warehouse

STEPS = 3
TRIES = 6
ENOUGH = 8
MOST_ROWS = 1000

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Composition:
    """Everything that a run needs. One that was stored has texts but no tree."""

    name: str
    tables: tuple[TableSpec, ...]
    rows: Mapping[str, tuple[Row, ...]]
    steps: tuple[Step, ...]
    sql: str
    duckdb: str | None
    query: Relation | None = None

    def with_query(self, query: Relation) -> Composition:
        """Return the composition with another query, without the tables that it does not read."""
        made = replace(self, query=query, sql=spark_text(query), duckdb=duckdb_text(query) if self.duckdb else None)
        return made.with_tables(tables_in(query))

    def alone(self) -> Composition:
        """Return a member of a family as a composition of its own: with the tables that its query reads."""
        return self if self.query is None else self.with_tables(tables_in(self.query))

    def with_tables(self, kept: set[str]) -> Composition:
        return replace(
            self,
            tables=tuple(t for t in self.tables if t.name in kept),
            rows={name: rows for name, rows in self.rows.items() if name in kept},
            steps=tuple(tuple(c for c in map(partial(restricted, kept), step) if c is not None) for step in self.steps),
        )


# families -------------------------------------------------------------------------------------------------------------------


Family = tuple[Composition, ...]
"""Compositions with the same tables, rows and steps."""


def random_composition(seed: int) -> Composition:
    """Return the composition of a seed: the same one forever, given the tested version of DuckDB."""
    (member,) = random_family(seed, 1)
    return member.alone()


def random_family(seed: int, width: int) -> Family:
    """Return the family of a seed: the same one forever, given the tested version of DuckDB.

    Many queries over few rows give nothing, or always the same. Of several tries the first is taken whose result is there and
    changes; one member of eight takes its first try as it comes.
    """
    rng = Random(f"family {seed}")
    tables = random_tables(rng)
    rows = {t.name: random_rows(rng, t, rng.choice((6, 12, 18, 26))) for t in tables}
    steps = tuple(random_step(rng, tables, {t.name for t in tables}) for _ in range(STEPS))
    with _States(tables, rows, steps) as states:
        members = []
        for number in range(width):
            name = f"seed {seed}.{number}"
            tries = (_member(name, Random(f"family {seed} {number} {n}"), tables, rows, steps) for n in range(TRIES))
            members.append(next(tries) if number % 8 == 7 else _most_telling(tries, states.telling))
    return tuple(members)


def _member(
    name: str, rng: Random, tables: tuple[TableSpec, ...], rows: Mapping[str, tuple[Row, ...]], steps: tuple[Step, ...]
) -> Composition:
    query = composed(rng, tables)
    return Composition(name, tables, rows, steps, spark_text(query), duckdb_text(query), query)


def _most_telling(tries: Iterator[Composition], telling: Callable[[Composition], int]) -> Composition:
    """Return the try that shows the most, or the first that shows enough."""
    best, most = None, -2
    for made in tries:
        if (told := telling(made)) > most:
            best, most = made, told
        if most >= ENOUGH:
            break
    assert best is not None
    return best


# running --------------------------------------------------------------------------------------------------------------------


class WrongCompositionError(AssertionError):
    """A stream table does not hold what its query gives; says which, when, and with which rows."""

    def __init__(self, what: str, composition: Composition, step: int, detail: str = "") -> None:
        super().__init__(f"{composition.name}, after step {step}: {what}\n{composition.sql}\n{detail}")
        self.what = what
        self.step = step


class OraclesDisagreeError(WrongCompositionError):
    """The stream table holds what Spark says, and DuckDB says something else: perhaps the texts do not mean the same."""


class _InvalidError(Exception):
    """Plain Spark cannot analyse or run the query."""


@dataclass(slots=True)
class CompositionTally:
    """What was checked. Queries that Headwater refuses, or Spark does, are counted by the reason."""

    queries: int = 0
    maintained: int = 0
    refreshes: int = 0
    changed: int = 0
    nonempty: int = 0
    idle: int = 0
    duckdb: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    invalid: Counter[str] = field(default_factory=Counter)
    outvoted: Counter[str] = field(default_factory=Counter)
    """Queries whose rows Spark alone sees otherwise: it has errors of its own."""

    def add(self, other: CompositionTally) -> None:
        for name in (
            "queries",
            "maintained",
            "refreshes",
            "changed",
            "nonempty",
            "idle",
            "duckdb",
            "refused",
            "invalid",
            "outvoted",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def __str__(self) -> str:
        reasons = [f"{n} {reason}" for reason, n in self.refused.most_common()]
        errors = [f"{n} {reason}" for reason, n in self.invalid.most_common()]
        return (
            f"{self.queries} queries, {self.maintained} maintained, {self.refreshes} differential refreshes, "
            f"{self.changed} of them changed the table, {self.nonempty} results were not empty, "
            f"{self.idle} refreshes had nothing to do, {self.duckdb} compared with DuckDB; "
            f"refused: {', '.join(reasons) or 'none'}; invalid: {', '.join(errors) or 'none'}; "
            f"Spark alone differs: {', '.join(self.outvoted) or 'never'}"
        )


def run_composition(wh: Warehouse, spark_plain: Any, composition: Composition) -> CompositionTally:
    """Run a composition in an empty warehouse; raise at the first thing that is wrong.

    `spark_plain` is a session of its own: temporary views with the names of the tables are made in it.
    """
    tally, failures = run_family(wh, spark_plain, (composition,))
    for _, error in failures:
        raise error
    return tally


Failures = list[tuple[Composition, Exception]]


def run_family(wh: Warehouse, spark_plain: Any, family: Family) -> tuple[CompositionTally, Failures]:
    """Run a family in an empty warehouse. A member that fails is not followed any more; the others are."""
    history = _History(wh, spark_plain, family[0])
    runs = [_Run(history, m, f"composed{i}") for i, m in enumerate(family)]
    total, failures = CompositionTally(), Failures()
    history.show()
    for number, step in enumerate(((), *family[0].steps)):
        if step:
            history.change(step)
        for run in runs:
            if run.is_over:
                continue
            try:
                with ways_of(crc32(run.composition.name.encode())):
                    run.go_on(number)
            except Exception as error:
                run.is_over = True
                failures.append((run.composition.alone(), error))
    history.close()
    for run in runs:
        total.add(run.tally)
    return total, failures


class _History:
    """The tables of a family while they change: in a warehouse, as views of plain Spark, and in DuckDB."""

    def __init__(self, wh: Warehouse, spark_plain: Any, composition: Composition) -> None:
        self.wh = wh
        self.spark = spark_plain
        self.tables = Tables(composition.tables, wh)
        self.tables.fill(composition.rows)
        self.duckdb = DuckDB()

    def change(self, step: Step) -> None:
        for change in step:
            self.tables.change(change)
        self.show()

    def show(self) -> None:
        """Let the oracles see the rows of now."""
        rows = self.tables.arrow()
        self.duckdb.take(rows)
        for name, table in rows.items():
            frame = self.spark.createDataFrame(table, self.tables.models[name].spec.ddl)
            frame.createOrReplaceTempView(name)

    def close(self) -> None:
        self.duckdb.close()


class _Run:
    """One query of a family."""

    def __init__(self, history: _History, composition: Composition, stream: str) -> None:
        self.history = history
        self.wh = history.wh
        self.composition = composition
        self.stream = stream
        self.tally = CompositionTally(queries=1)
        self.contents: Counter[tuple[Any, ...]] = Counter()
        self.is_over = False

    def go_on(self, step: int) -> None:
        """Create the stream table, or refresh it after a step, and look at what it holds."""
        try:
            if step == 0:
                expected = self._expected()
                self.wh.create_stream_table(self.stream, self.composition.sql, refresh_mode="DIFFERENTIAL")
                self.tally.maintained = 1
                self._check(0, expected)
            else:
                self._follow(step)
        except _InvalidError as error:
            self.tally.maintained, self.is_over = 0, True
            self.tally.invalid[str(error)] += 1
        except NotIncrementalError as error:
            self.tally.maintained, self.is_over = 0, True
            self.tally.refused[refusal(error)] += 1

    def _follow(self, step: int) -> None:
        expected = self._expected()
        before, version = self.contents, self.wh.version
        self._refresh(step)
        self._check(step, expected)
        self._check_changes(step, before, version)

    def _expected(self) -> Rows:
        try:
            return _fetched(self.history.spark.sql(self.composition.sql))
        except (PySparkException, Py4JJavaError) as error:  # the latter where Spark itself stumbles
            condition = error.getCondition() if isinstance(error, PySparkException) else None
            raise _InvalidError(condition or type(error).__name__) from error

    def _refresh(self, step: int) -> None:
        report = self.wh.refresh(self.stream)
        if report.action is RefreshAction.NO_DATA:
            self.tally.idle += 1
        elif report.action is RefreshAction.DIFFERENTIAL:
            self.tally.refreshes += 1
            self.tally.changed += report.rows_inserted + report.rows_deleted > 0
        else:
            raise WrongCompositionError(f"the refresh was {report.action.value}", self.composition, step, str(report))

    def _check(self, step: int, expected: Rows) -> None:
        """Compare with both oracles. Where Headwater and DuckDB agree against plain Spark, Spark is outvoted; its name is told."""
        found = _fetched(self.wh.table(self.stream))
        self.contents = Counter(found)
        self.tally.nonempty += bool(found)
        wrong, other = row_differences(expected, found), self._elsewhere()
        wrong_elsewhere = "" if other is None else row_differences(other, found)
        self.tally.duckdb += other is not None
        if wrong and other is not None and not wrong_elsewhere:
            self.tally.outvoted[self.composition.name] += 1
        elif wrong:
            raise WrongCompositionError("other rows than Spark gives", self.composition, step, wrong)
        elif wrong_elsewhere:
            raise OraclesDisagreeError("other rows than DuckDB gives", self.composition, step, wrong_elsewhere)

    def _check_changes(self, step: int, before: Counter[tuple[Any, ...]], version: int) -> None:
        """Require that the change rows are what the contents changed by: a key may hide a row that is deleted twice."""
        total = Counter(before)
        for *row, action in _fetched(self.wh.changes(self.stream, version)):
            total[tuple(row)] += 1 if action == "I" else -1
        wrong = {row: n - self.contents[row] for row, n in total.items() if n != self.contents[row]}
        if wrong:
            detail = "\n".join(f"{n:+} {row}" for row, n in wrong.items())
            raise WrongCompositionError("the change rows do not add up to the contents", self.composition, step, detail)

    def _elsewhere(self) -> Rows | None:
        """Return what DuckDB says; None where it has no text, or fails on it."""
        if self.composition.duckdb is None:
            return None
        try:
            return self.history.duckdb.answer(self.composition.duckdb)
        except duckdb.Error:
            return None


def refusal(error: NotIncrementalError) -> str:
    """Return the codes in a refusal."""
    codes = re.findall(r"(?:^|; )([A-Z_]+) at ", error.detail or "")
    return " and ".join(dict.fromkeys(codes)) or error.code


def row_differences(expected: Rows, found: Rows) -> str:
    """Say how two multisets of rows differ; empty if they do not."""
    width = len(next(iter(expected or found), ()))
    return differences(expected, found, [Item(f"c{n}", "", None, EXACT) for n in range(width)])


class DuckDB:
    """The other oracle: a database of its own, in memory."""

    def __init__(self) -> None:
        self.connection = duckdb.connect(config={"threads": 1})

    def close(self) -> None:
        self.connection.close()

    def take(self, tables: Mapping[str, pa.Table]) -> None:
        """Take over the rows of tables. They are copied: not every filter can be pushed into Arrow."""
        for name, rows in tables.items():
            self.connection.register("incoming", rows)
            self.connection.execute(f"CREATE OR REPLACE TABLE {name} AS FROM incoming")

    def answer(self, text: str) -> Rows:
        return _plain(self.connection.execute(text).fetchall())


class _States:
    """DuckDB with the tables as they are at first, and others as they are after each step."""

    def __init__(self, specs: Sequence[TableSpec], rows: Mapping[str, Sequence[Row]], steps: Sequence[Step]) -> None:
        self._states: list[DuckDB] = []
        tables = Tables(specs)
        tables.fill(rows)
        for step in ((), *steps):
            for change in step:
                tables.change(change)
            self._states.append(DuckDB())
            self._states[-1].take(tables.arrow())

    def __enter__(self) -> _States:
        return self

    def __exit__(self, *_: object) -> None:
        for state in self._states:
            state.close()

    def answers(self, composition: Composition) -> Iterator[Rows]:
        assert composition.duckdb is not None
        for state in self._states:
            yield state.answer(composition.duckdb)

    def telling(self, composition: Composition) -> int:
        """Return how much a run would show: how often the result changes and how often it is there."""
        try:
            results = [Counter(rows) for rows in self.answers(composition)]
        except duckdb.Error:
            return -1
        if any(r.total() > MOST_ROWS for r in results):
            return -1
        return 2 * sum(a != b for a, b in itertools.pairwise(results)) + sum(map(bool, results))


def duckdb_results(composition: Composition) -> Iterator[Rows]:
    """Yield what DuckDB makes of the query at first, and after each step."""
    with _States(composition.tables, composition.rows, composition.steps) as states:
        yield from states.answers(composition)


def _fetched(frame: Any) -> Rows:
    columns = [column.to_pylist() for column in frame.toArrow().columns]
    return _plain(list(zip(*columns, strict=True)))


def _plain(rows: Sequence[Sequence[Any]]) -> Rows:
    return [tuple(plain(v) for v in row) for row in rows]
