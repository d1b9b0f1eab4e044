"""The oracle: is what a stream table holds true?

Expected results come from the user's own words, run by plain Spark over tables kept in Python: nothing of Headwater's planning,
storage or rules takes part. Checked after every step: the table's contents; for each stream table that its refresh was
differential and its contents are right; that refreshing again does nothing. At the end: `verify`, that the change rows since
creation add up to the contents, and that a table refreshed once holds what one refreshed at every step holds.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.generate import Case, StreamSpec
from tests.support.model import Model, plain
from tests.support.queries import BAG, FREE, Item
from tests.support.values import arrow_table
from tests.support.ways import ways_of

from headwater.model.tables import RefreshAction
from headwater.warehouse import Warehouse

TOLERANCE = 1e-9


class WrongResultError(AssertionError):
    """A check failed; says which, where, and with which rows."""

    def __init__(self, what: str, *, step: int, stream: StreamSpec | None = None, detail: str = "") -> None:
        where = f" of {stream.name}: {stream.sql}" if stream else ""
        super().__init__(f"after step {step}: {what}{where}\n{detail}")
        self.what = what
        self.step = step
        self.stream = stream


@dataclass(slots=True)
class Tally:
    """What was checked; a run that compared constants shows here."""

    refreshes: int = 0
    changed: int = 0
    nonempty: int = 0
    idle: int = 0
    rescanned: int = 0
    verified: int = 0
    cases: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        for name in ("refreshes", "changed", "nonempty", "idle", "rescanned", "verified", "cases"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


@contextmanager
def interpreted(spark: Any) -> Iterator[None]:
    """Let sessions made inside plan and run in the simplest way: compiling Java for a query takes longer than 40 rows do."""
    conf = spark.sparkContext._jsc.sc().conf()
    wanted = {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.leafNodeDefaultParallelism": "1",
    }
    before = {k: conf.get(k) if conf.contains(k) else None for k in wanted}
    session = {k: spark.conf.get(k, None) for k in wanted}
    for k, v in wanted.items():
        conf.set(k, v)
        spark.conf.set(k, v)
    try:
        yield
    finally:
        for k in wanted:
            if session[k] is None:
                spark.conf.unset(k)
            else:
                spark.conf.set(k, session[k])
            if before[k] is None:
                conf.remove(k)
            else:
                conf.set(k, before[k])


LIMITS = {"inline_max_rows": 3, "arrow_max_rows": 8, "local_relation_max_rows": 5, "tail_max_files": 3}
"""With these a few rows already go the ways of many: through files and executors."""


def settings_for(case: Case) -> dict[str, int]:
    """Return the settings of the warehouse a case runs in: one of twelve is made for small memories."""
    return LIMITS if case.seed % 12 == 7 else {}


def run_case(wh: Warehouse, case: Case) -> Tally:
    """Run a case in an empty warehouse; raise at the first thing that is wrong."""
    with ways_of(case.seed):
        return _Run(wh, case).run()


class _Run:
    def __init__(self, wh: Warehouse, case: Case) -> None:
        self.wh = wh
        self.case = case
        self.tally = Tally(cases=1)
        self.models = {t.name: Model(t) for t in case.tables}
        self.shown: dict[str, list[tuple[Any, ...]]] = {}

    def run(self) -> Tally:
        for table in self.case.tables:
            self.wh.create_table(table.name, table.ddl, "id" if table.keyed else None)
        self._change(0)
        for stream in self.case.streams:
            self.wh.create_stream_table(stream.name, stream.sql, refresh_mode="DIFFERENTIAL")
        self._check_all(0, [s for s in self.case.streams if not s.late])
        for step in range(1, len(self.case.steps)):
            self._change(step)
            self._refresh_all(step, [s for s in self.case.streams if not s.late])
        last = len(self.case.steps) - 1
        self._refresh_all(last, [s for s in self.case.streams if s.late])
        for stream in self.case.streams:
            self._verify(last, stream)
            self._check_changes(last, stream)
        return self.tally

    def _change(self, step: int) -> None:
        for op in self.case.steps[step] if self.case.steps else ():
            for model in self.models.values():
                model.apply(op, self.wh)
        for name, model in self.models.items():
            found = Counter(_rows(self.wh.table(name)))
            if found != model.counted():
                detail = f"missing {model.counted() - found}\nunexpected {found - model.counted()}"
                raise WrongResultError(f"table {name} holds other rows", step=step, detail=detail)

    def _refresh_all(self, step: int, streams: Sequence[StreamSpec]) -> None:
        refreshed = []
        for stream in streams:
            version = self.wh.version
            report = self.wh.refresh(stream.name)
            if report.action is RefreshAction.NO_DATA:
                self._require_idle(step, stream, report, version)
                continue
            if report.action is not RefreshAction.DIFFERENTIAL:
                raise WrongResultError(f"refresh was {report.action.value}", step=step, stream=stream)
            refreshed.append(stream)
            self.tally.refreshes += 1
            self.tally.changed += report.rows_inserted + report.rows_deleted > 0
            self.tally.rescanned += report.rescanned_groups > 0
        self._check_all(step, refreshed if step < len(self.case.steps) - 1 else streams)
        for stream in streams[-1:]:
            version = self.wh.version
            self._require_idle(step, stream, self.wh.refresh(stream.name), version)

    def _require_idle(self, step: int, stream: StreamSpec, report: Any, version: int) -> None:
        self.tally.idle += 1
        if report.action is not RefreshAction.NO_DATA or report.spark_jobs or self.wh.version != version:
            raise WrongResultError(
                "a refresh without changes did something", step=step, stream=stream, detail=str(report)
            )

    # checks -----------------------------------------------------------------------------------------------------------------

    def _check_all(self, step: int, streams: Sequence[StreamSpec]) -> None:
        spark = self.wh.spark
        for name, model in self.models.items():
            ddl = ", ".join(f"{c.name} {c.ddl}" for c in model.columns)
            rows = spark.createDataFrame(arrow_table(model.columns, model.rows), ddl)
            rows.createOrReplaceTempView(f"expected_{name}")
        needed = {s.name for s in streams}
        for stream in reversed(self.case.streams):
            if stream.name in needed:
                needed.add(stream.source)
        for stream in self.case.streams:
            if stream.name in needed:
                text = stream.query.sql(f"expected_{stream.source}")
                spark.sql(text).createOrReplaceTempView(f"expected_{stream.name}")
        for stream in streams:
            expected = _rows(spark.table(f"expected_{stream.name}"))
            found = _rows(self.wh.table(stream.name))
            self.tally.nonempty += bool(found)
            wrong = differences(expected, found, stream.query.items)
            if wrong:
                raise WrongResultError("wrong contents", step=step, stream=stream, detail=wrong)
            if any(i.check == FREE for i in stream.query.items):
                self._verify(step, stream)

    def _verify(self, step: int, stream: StreamSpec) -> None:
        result = self.wh.verify(stream.name)
        self.tally.verified += 1
        if not result.equal:
            raise WrongResultError("verify found a difference", step=step, stream=stream, detail=str(result))

    def _check_changes(self, step: int, stream: StreamSpec) -> None:
        """The change rows since creation add up to the contents, digit by digit."""
        total: Counter[tuple[Any, ...]] = Counter()
        for *row, action in _rows(self.wh.changes(stream.name, 0)):
            total[tuple(row)] += 1 if action == "I" else -1
        total = Counter({k: v for k, v in total.items() if v})
        found = Counter(_rows(self.wh.table(stream.name)))
        if total != found:
            detail = f"sum of changes {total}\ncontents {found}"
            raise WrongResultError("changes do not add up to the contents", step=step, stream=stream, detail=detail)


def _rows(frame: Any) -> list[tuple[Any, ...]]:
    table = frame.toArrow()
    columns = [[plain(v) for v in column.to_pylist()] for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else []


def differences(expected: Sequence[tuple[Any, ...]], found: Sequence[tuple[Any, ...]], items: Sequence[Item]) -> str:
    """Say how two multisets of rows differ; empty if they do not. Floats may differ in their last digits."""
    kept = [i for i, item in enumerate(items) if item.check != FREE]

    def comparable(row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            tuple(sorted(row[i], key=repr)) if items[i].check == BAG and row[i] is not None else row[i] for i in kept
        )

    groups: dict[tuple[Any, ...], tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
    for side, rows in enumerate((expected, found)):
        for row in map(comparable, rows):
            exact = tuple("~" if isinstance(v, float) else v for v in row)
            groups[exact][side].append([v for v in row if isinstance(v, float)])
    wrong = []
    for exact, (wanted, got) in groups.items():
        rest = list(got)
        for floats in wanted:
            match = next((g for g in rest if all(_near(a, b) for a, b in zip(floats, g, strict=True))), None)
            if match is None:
                wrong.append(f"missing    {exact} {floats}")
            else:
                rest.remove(match)
        wrong += [f"unexpected {exact} {floats}" for floats in rest]
    return "\n".join(wrong[:12])


def _near(a: float, b: float) -> bool:
    return a == b or math.isclose(a, b, rel_tol=TOLERANCE)
