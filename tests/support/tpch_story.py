"""TPC-H in a warehouse, followed cycle by cycle: change all eight tables, refresh every query, compare with DuckDB.

What went wrong with a query is written down and not raised, so that one query does not hide the others; tests ask for each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.support import tpch
from tests.support.tpch_churn import churn

from headwater.errors import HeadwaterError
from headwater.model.tables import RefreshAction
from headwater.refresh.cycle import RefreshReport
from headwater.warehouse import Warehouse

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Step:
    """One refresh of one query. `wrong` says what is not as it should be, empty if nothing."""

    report: RefreshReport | None
    wrong: str
    rows: int
    is_empty: bool
    changed: bool


class Story:
    """The eight tables, the stream tables over them, and the mirror of it all."""

    def __init__(
        self, wh: Warehouse, scale: float, numbers: Sequence[int] = tpch.NUMBERS, *, say: Say | None = None
    ) -> None:
        self.wh = wh
        self.scale = scale
        self.numbers = tuple(numbers)
        self.cycle = 0
        self.errors: dict[int, str] = {}
        """Queries that could not be created, or whose refresh failed: they are not followed any more."""
        self.steps: dict[tuple[int, int], Step] = {}
        self._say: Say = say or (lambda _: None)
        self._answers: dict[int, list[tpch.Row]] = {}
        tables = tpch.generate(scale)
        self.mirror = tpch.Mirror(tables, scale)
        tpch.load(wh, tables)
        self._say(f"loaded scale {scale}")
        for number in self.numbers:
            self._create(number)

    def close(self) -> None:
        self.mirror.close()

    def _create(self, number: int) -> None:
        began = time.perf_counter()
        text = tpch.query_text(number, self.scale)
        try:
            self.wh.create_stream_table(tpch.stream_name(number), text, refresh_mode="DIFFERENTIAL")
        except HeadwaterError as error:
            self.errors[number] = f"not created: {error}"
            self._say(f"query {number} was {self.errors[number]}")
            return
        self._answers[number] = self.mirror.answer(number)
        self.steps[0, number] = self._looked_at(number, None)
        self._say(f"created query {number} in {time.perf_counter() - began:.1f} s {self.steps[0, number].wrong}")

    @property
    def followed(self) -> list[int]:
        return [n for n in self.numbers if n not in self.errors]

    def reach(self, cycle: int, also: Callable[[int], None] | None = None) -> None:
        """Go on until this cycle is over; `also` is done with each query after its refresh."""
        while self.cycle < cycle:
            self.cycle += 1
            self._change()
            for number in self.followed:
                self._follow(number)
                if also is not None:
                    also(number)

    def _change(self) -> None:
        """Change all tables: in one cycle by rows that say I or D, in the next by statements."""
        began = time.perf_counter()
        apply = tpch.apply_signed if self.cycle % 2 else tpch.apply_statements
        batches = churn(self.mirror, self.cycle)
        for name, batch in batches.items():
            apply(self.wh, name, batch)
        rows = sum(b.count for b in batches.values())
        self._say(f"cycle {self.cycle}: changed {rows} rows in {time.perf_counter() - began:.1f} s")

    def _follow(self, number: int) -> None:
        try:
            report = self.wh.refresh(tpch.stream_name(number))
        except HeadwaterError as error:
            self.errors[number] = f"refresh of cycle {self.cycle} failed: {error}"
            self._say(f"query {number}: {self.errors[number]}")
            return
        step = self._looked_at(number, report)
        self.steps[self.cycle, number] = step
        said = "as expected" if not step.wrong else f"WRONG: {step.wrong}"
        self._say(f"  query {number}: {report.duration_ms:.0f} ms, {step.rows} rows, {said}")

    def _looked_at(self, number: int, report: RefreshReport | None) -> Step:
        found = self.wh.table(tpch.stream_name(number)).toArrow()
        expected = self.mirror.answer(number)
        wrong = tpch.differences(expected, found)
        if report is not None and report.action is not RefreshAction.DIFFERENTIAL:
            wrong = f"the refresh was {report.action.value} ({report.reason}) {wrong}"
        changed = sorted(map(repr, expected)) != sorted(map(repr, self._answers[number]))
        self._answers[number] = expected
        return Step(report, wrong, found.num_rows, tpch.is_empty(tpch.arrow_rows(found)), changed)
