"""The 22 queries of TPC-H: differential against full refresh, side by side in one run.

First all eight tables are changed in six cycles and every query is compared with DuckDB after each. Then, per change rate, that share
of orders and lineitem is deleted, inserted and updated and the same share of customer and part is updated; each stream table is
refreshed, and its query is computed over the same tables and written as Parquet, which is what a scheduled full refresh does at
least. Both sides share the session and alternate, and each has run equally often before it is measured. In the end a new process
measures the first run of each side.

    make bench BENCH=tpch      (or: python -m benchmarks.tpch --scale 0.1 --queries 1 3 5 --rates 0.001 --repeats 2)

What was measured is written to a file all the time; `--render FILE` makes the page and the chart of it again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from tests.support import tpch
from tests.support.tpch_churn import CYCLES
from tests.support.tpch_story import Story

import headwater as hw
from benchmarks._chart import bar_chart
from benchmarks._tpch import Changes, Progress, machine, milliseconds, profiled, save, write_full
from headwater.errors import HeadwaterError
from headwater.model.tables import RefreshAction

RATES = (0.0001, 0.001, 0.01, 0.1)
MEAN_TARGETS = {0.001: 6.0, 0.01: 4.0}
WORST = (5, 7, 8, 9, 20, 22)
"""The slowest queries of the reference, which must be three times as fast as full at 0.1 %."""
WORST_TARGET, WORST_RATE = 3.0, 0.001
WARM_UP = 1
"""Rounds of both sides before measuring at a rate, after the six cycles in which both sides ran too."""

Results = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Options:
    """What to measure."""

    scale: float
    rates: tuple[float, ...]
    repeats: int
    queries: tuple[int, ...]
    results: Path
    cycles: int


# measuring ------------------------------------------------------------------------------------------------------------------


class Bench:
    """One run."""

    def __init__(self, options: Options, root: Path, progress: Progress) -> None:
        self._options = options
        self._root = root
        self._progress = progress
        self.results: Results = {
            "scale": options.scale,
            "machine": machine(),
            "rates": list(options.rates),
            "queries": list(options.queries),
            "errors": {},
            "cycles": {},
            "runs": [],
            "plain_ms": {},
            "cold": {},
            "profiles": [],
            "verified": {},
        }

    def run(self) -> Results:
        """Measure everything that the budget allows."""
        with hw.connect(self._root / "warehouse") as wh:
            self._follow(wh)
            self._measure_plain(wh)
            changes = Changes(wh)
            for rate in self._options.rates:
                self._measure_rate(wh, changes, rate)
            self._profile(wh, changes)
            if not self._progress.is_over:
                changes.share(WORST_RATE)
                self._measure_cold()
            self._verify(wh)
        return self.results

    def _save(self) -> None:
        save(self._options.results, self.results)

    def _followed(self) -> list[int]:
        return [n for n in self._options.queries if str(n) not in self.results["errors"]]

    def _full(self, wh: hw.Warehouse, number: int) -> float:
        text = tpch.unordered(tpch.query_text(number, self._options.scale))
        return write_full(wh, text, self._root)

    def _follow(self, wh: hw.Warehouse) -> None:
        """Load, create, and go through the six cycles; the full side runs as often as the differential one."""
        story = Story(wh, self._options.scale, self._options.queries, say=self._progress.say)
        try:
            story.reach(self._options.cycles, also=lambda number: self._full(wh, number))
        finally:
            story.close()
        self.results["errors"] = {str(n): text for n, text in story.errors.items()}
        for number in self._options.queries:
            steps = [s for (cycle, n), s in story.steps.items() if n == number and cycle > 0]
            if steps:
                self.results["cycles"][str(number)] = {
                    "cycles": len(steps),
                    "wrong": [s.wrong for s in steps if s.wrong],
                    "changed": sum(s.changed for s in steps),
                    "empty": sum(s.is_empty for s in steps),
                }
        self._save()

    def _measure_plain(self, wh: hw.Warehouse) -> None:
        """Measure each query over plain Parquet files of the same rows: what a full refresh costs where no tail is waiting."""
        folder = self._root / "plain"
        session = wh.spark.newSession()
        for name in tpch.TABLES:
            wh.table(name).write.parquet(str(folder / name))
            session.read.parquet(str(folder / name)).createOrReplaceTempView(name)
        for number in self._followed():
            if self._progress.is_over:
                break
            text = tpch.unordered(tpch.query_text(number, self._options.scale))
            target = folder / "result"

            def once(text: str = text, target: Path = target) -> None:
                session.sql(text).write.mode("overwrite").parquet(str(target))

            once()
            self.results["plain_ms"][str(number)] = [milliseconds(once) for _ in range(2)]
            self._progress.say(f"query {number} over plain files: {min(self.results['plain_ms'][str(number)]):.0f} ms")
            self._save()
        shutil.rmtree(folder)

    def _measure_rate(self, wh: hw.Warehouse, changes: Changes, rate: float) -> None:
        for turn in range(-WARM_UP, self._options.repeats):
            if self._progress.is_over:
                self._progress.say(f"the budget is used up at rate {rate:.2%}, round {turn}")
                return
            ms = milliseconds(lambda: changes.share(rate))
            self._progress.say(f"rate {rate:.2%}, round {turn}: changed in {ms / 1000:.1f} s")
            for number in self._followed():
                run = self._measured(wh, number)
                if run is not None and turn >= 0:
                    self.results["runs"].append({"query": number, "rate": rate, "round": turn, **run})
                    self._save()

    def _measured(self, wh: hw.Warehouse, number: int) -> Results | None:
        """Refresh one stream table and compute its query in full; a failure ends it for this run."""
        began = time.perf_counter()
        try:
            report = wh.refresh(tpch.stream_name(number))
        except HeadwaterError as error:
            self.results["errors"][str(number)] = f"refresh failed: {error}"
            self._progress.say(f"query {number}: {self.results['errors'][str(number)]}")
            return None
        upkeep = (time.perf_counter() - began) * 1000 - report.duration_ms
        if report.action not in (RefreshAction.DIFFERENTIAL, RefreshAction.NO_DATA):
            self.results["errors"][str(number)] = f"a refresh was {report.action.value}: {report.reason}"
            return None
        full = self._full(wh, number)
        shown = f"differential {report.duration_ms:7.0f} ms  full {full:7.0f} ms  {full / report.duration_ms:6.1f}x"
        self._progress.say(f"  query {number:2}: {shown}  {report.action.value}")
        return {
            "action": report.action.value,
            "differential_ms": report.duration_ms,
            "full_ms": full,
            "upkeep_ms": upkeep,
            "jobs": report.spark_jobs,
            "rows_in": report.rows_in,
            "rows_out": report.rows_inserted + report.rows_deleted,
            "bytes_written": report.bytes_written,
        }

    def _profile(self, wh: hw.Warehouse, changes: Changes) -> None:
        """Where a target is missed, say what the time of one more refresh was spent on."""
        table = Table(self.results)
        for rate in MEAN_TARGETS:
            numbers = [n for n in table.below_target(rate) if str(n) not in self.results["errors"]]
            if not numbers or self._progress.is_over:
                continue
            changes.share(rate)
            for number in numbers:
                with profiled() as profile:
                    report = wh.refresh(tpch.stream_name(number))
                shown = profile.shown(report.duration_ms)
                entry = {"query": number, "rate": rate, "ms": report.duration_ms, "where": shown}
                self.results["profiles"].append(entry)
                self._progress.say(f"  query {number} at {rate:.2%}: {report.duration_ms:.0f} ms: {shown}")
            self._save()

    def _measure_cold(self) -> None:
        """Let a process of its own refresh and recompute everything once."""
        self._progress.say("measuring first runs in a new process")
        out = self._root / "cold.json"
        command = [sys.executable, "-m", "benchmarks.tpch", "--cold", str(self._root), "--results", str(out)]
        command += ["--scale", str(self._options.scale), "--queries", *map(str, self._followed())]
        subprocess.run(command, check=True)
        self.results["cold"] = json.loads(out.read_text())
        self._save()

    def _verify(self, wh: hw.Warehouse) -> None:
        for number in self._followed():
            if self._progress.is_over:
                return
            self.results["verified"][str(number)] = wh.verify(tpch.stream_name(number)).equal
            self._progress.say(f"query {number}: verified {self.results['verified'][str(number)]}")
            self._save()


def measure_cold(root: Path, scale: float, queries: Sequence[int], out: Path) -> None:
    """In a fresh process: the first refresh and the first full computation of each query, taking turns at who is first."""
    found: Results = {}
    with hw.connect(root / "warehouse", create=False) as wh:
        started = milliseconds(lambda: wh.spark.range(1).collect())
        found["start_ms"] = started
        for i, number in enumerate(queries):
            text = tpch.unordered(tpch.query_text(number, scale))
            sides = {
                "differential_ms": lambda n=number: wh.refresh(tpch.stream_name(n)).duration_ms,
                "full_ms": lambda t=text: write_full(wh, t, root),
            }
            order = list(sides) if i % 2 == 0 else list(reversed(sides))
            measured = {side: sides[side]() for side in order}
            found[str(number)] = {**measured, "first": order[0].removesuffix("_ms")}
    save(out, found)


# the page -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pair:
    """The medians of both sides."""

    differential_ms: float
    full_ms: float
    upkeep_ms: float
    jobs: int

    @property
    def ratio(self) -> float:
        return self.full_ms / self.differential_ms


class Table:
    """What was measured, by query and rate."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.queries: list[int] = results["queries"]
        self.rates: list[float] = results["rates"]
        self.failed = {int(n) for n in results["errors"]}
        self.idle: set[tuple[int, float]] = set()
        """Where no table that the query reads had changed: a refresh then takes no time, and says nothing about speed."""
        self.pairs: dict[tuple[int, float], Pair] = {}
        for number in self.queries:
            for rate in self.rates:
                all_runs = [r for r in results["runs"] if r["query"] == number and r["rate"] == rate]
                runs = [r for r in all_runs if r["action"] == RefreshAction.DIFFERENTIAL.value]
                if all_runs and not runs:
                    self.idle.add((number, rate))
                if runs:
                    self.pairs[number, rate] = Pair(
                        statistics.median(r["differential_ms"] for r in runs),
                        statistics.median(r["full_ms"] for r in runs),
                        statistics.mean(r["upkeep_ms"] for r in runs),
                        runs[-1]["jobs"],
                    )

    def ratios(self, rate: float) -> dict[int, float]:
        return {n: p.ratio for (n, r), p in self.pairs.items() if r == rate}

    def mean(self, rate: float) -> float | None:
        """Return the geometric mean of the ratios at a rate."""
        ratios = self.ratios(rate).values()
        return statistics.geometric_mean(ratios) if ratios else None

    def plain_mean(self, rate: float) -> float | None:
        """Return the geometric mean against the same queries over plain files."""
        plain = self.results["plain_ms"]
        ratios = [
            min(plain[str(n)]) / p.differential_ms for (n, r), p in self.pairs.items() if r == rate and str(n) in plain
        ]
        return statistics.geometric_mean(ratios) if ratios else None

    def below_target(self, rate: float) -> list[int]:
        """Return the queries that a missed target at this rate is due to."""
        ratios = self.ratios(rate)
        mean = self.mean(rate)
        missed = set()
        if mean is not None and mean < MEAN_TARGETS[rate]:
            missed |= {n for n, ratio in ratios.items() if ratio < MEAN_TARGETS[rate]}
        if rate == WORST_RATE:
            missed |= {n for n, ratio in ratios.items() if ratio < 1 or (n in WORST and ratio < WORST_TARGET)}
        return sorted(missed)

    def is_complete(self, rate: float) -> bool:
        """Say whether each of the 22 queries was measured at a rate, or had nothing to do."""
        return all((n, rate) in self.pairs or (n, rate) in self.idle for n in tpch.NUMBERS)

    def targets(self) -> list[tuple[str, str, bool | None]]:
        """Return each target, what was reached, and whether that meets it; None if that is not known. What failed misses."""
        found: list[tuple[str, str, bool | None]] = []
        for rate, wanted in sorted(MEAN_TARGETS.items()):
            mean = self.mean(rate)
            reached = "not measured" if mean is None else f"{mean:.1f}x over {len(self.ratios(rate))} queries"
            met = None if mean is None else mean >= wanted
            found.append(
                (f"geometric mean at {_percent(rate)} at least {wanted:.0f}x", reached, self._judged(met, rate))
            )
        ratios = self.ratios(WORST_RATE)
        slower = sorted(n for n, ratio in ratios.items() if ratio < 1)
        reached = _listed(slower, ratios) or f"none of {len(ratios)}"
        met = not slower if ratios else None
        found.append((f"no query slower than full at {_percent(WORST_RATE)}", reached, self._judged(met, WORST_RATE)))
        for number in WORST:
            ratio = ratios.get(number)
            reached = "failed" if number in self.failed else "not measured" if ratio is None else f"{ratio:.1f}x"
            met = False if number in self.failed else None if ratio is None else ratio >= WORST_TARGET
            found.append((f"query {number} at {_percent(WORST_RATE)} at least {WORST_TARGET:.0f}x", reached, met))
        return found

    def _judged(self, met: bool | None, rate: float) -> bool | None:
        """A target for all queries is met when all were measured, and missed when one failed."""
        if self.failed:
            return False
        return met if not met or self.is_complete(rate) else None


def page(results: Results, chart: str) -> str:
    """Return the page as Markdown; `chart` is the name of the file with the chart, beside it."""
    table = Table(results)
    return "\n".join(
        [
            *_introduction(results, chart),
            *_targets(table),
            *_ratios(table),
            *_losers(table),
            *_times(table),
            *_cold(table),
            *_cycles(table),
            *_where(results),
            "",
        ]
    )


def _introduction(results: Results, chart: str) -> list[str]:
    return [
        "# TPC-H: differential against full",
        "",
        f"The 22 queries at scale {results['scale']:g}, one run on {results['machine']}. `make bench BENCH=tpch`. A ratio is full /",
        "differential: above 1, differential is faster. Times are medians in milliseconds, both sides in one session, alternating, each",
        "run as often as the other before it was measured.",
        "",
        "A rate is the share of orders and of lineitem that changes between two refreshes, a fifth of it deleted, a fifth inserted and",
        "the rest updated, spread over the whole tables; the same share of customer and of part is updated. `differential` is all of a",
        "refresh, from the question what changed to the commit. `full` is the query analysed, computed over the same tables and written",
        "to Parquet files, and nothing else. `plain` is the same over plain Parquet files, without changes that wait to be folded in.",
        "",
        f"![Ratios by query and rate]({chart})",
        "",
    ]


def _targets(table: Table) -> list[str]:
    out = ["## Targets", "", "| target | reached | |", "|---|---|---|"]
    for what, reached, met in table.targets():
        said = {True: "met", False: "**missed**", None: "not decided"}[met]
        out.append(f"| {what} | {reached} | {said} |")
    return [*out, ""]


def _ratios(table: Table) -> list[str]:
    head = " | ".join(_percent(r) for r in table.rates)
    out = ["## Ratios", "", f"| query | {head} |", "|---|" + "---:|" * len(table.rates)]
    for number in table.queries:
        out.append(f"| {number} | {' | '.join(_ratio(table, number, rate) for rate in table.rates)} |")
    for name, means in (("geometric mean", table.mean), ("the same against `plain`", table.plain_mean)):
        cells = [f"**{m:.1f}x**" if (m := means(rate)) is not None else "" for rate in table.rates]
        out.append(f"| {name} | {' | '.join(cells)} |")
    if table.idle:
        numbers = ", ".join(str(n) for n in sorted({n for n, _ in table.idle}))
        out += [
            "",
            f"Query {numbers}: reads no table that changed. A refresh then does nothing, and counts in no mean.",
        ]
    failed = [f"- Query {n}: {_first_line(text)}" for n, text in table.results["errors"].items()]
    return [*out, "", *(["What failed:", "", *failed, ""] if failed else [])]


def _ratio(table: Table, number: int, rate: float) -> str:
    pair = table.pairs.get((number, rate))
    if pair is not None:
        return f"{pair.ratio:.1f}x"
    return "failed" if number in table.failed else "nothing to do" if (number, rate) in table.idle else "not measured"


def _losers(table: Table) -> list[str]:
    slower = [(n, rate, p) for (n, rate), p in table.pairs.items() if p.ratio < 1]
    if not slower:
        return ["No query was slower than full at any rate that was measured.", ""]
    said = ", ".join(f"query {n} at {_percent(rate)} ({p.ratio:.2f}x)" for n, rate, p in slower)
    return [f"Slower than full: {said}.", ""]


def _times(table: Table) -> list[str]:
    out = [
        "## Times",
        "",
        "`upkeep` is what merging and folding tails after the commit took, on average.",
        "",
        "| query | rate | differential | full | ratio | upkeep | Spark jobs | plain |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for (number, rate), p in table.pairs.items():
        plain = table.results["plain_ms"].get(str(number))
        out.append(
            f"| {number} | {_percent(rate)} | {p.differential_ms:,.0f} | {p.full_ms:,.0f} | {p.ratio:.1f}x "
            f"| {p.upkeep_ms:,.0f} | {p.jobs} | {f'{min(plain):,.0f}' if plain else ''} |"
        )
    return [*out, ""]


def _cold(table: Table) -> list[str]:
    cold = table.results["cold"]
    out = ["## First runs", ""]
    if not cold:
        return [*out, "The run ended before they were measured.", ""]
    out += [
        f"In a new process, which starts Spark in {cold['start_ms'] / 1000:.1f} s, after a change of {_percent(WORST_RATE)}: the first",
        "refresh of each query and its first computation in full. The sides take turns at being first, and so does what they warm up.",
        "",
        "| query | differential | full | ratio | first |",
        "|---|---:|---:|---:|---|",
    ]
    for number in table.queries:
        found = cold.get(str(number))
        if found is not None:
            a, b = found["differential_ms"], found["full_ms"]
            out.append(f"| {number} | {a:,.0f} | {b:,.0f} | {b / a:.1f}x | {found['first']} |")
    return [*out, ""]


def _cycles(table: Table) -> list[str]:
    results = table.results
    if not results["cycles"]:
        return []
    wrong = {n: c for n, c in results["cycles"].items() if c["wrong"] or c["empty"] or not c["changed"]}
    cycles = max(c["cycles"] for c in results["cycles"].values())
    out = [
        "## Correctness",
        "",
        f"Before anything was measured all eight tables were changed in {cycles} cycles of inserts, deletes and updates. Every stream",
        "table was created as DIFFERENTIAL, refreshed, and compared with DuckDB's answer over the same rows.",
        "",
    ]
    good = len(results["cycles"]) - len(wrong)
    out.append(
        f"{good} of {len(results['queries'])} queries: every refresh differential, contents equal, never empty, changed on the way."
    )
    out += [f"- Query {n}: {_first_line((c['wrong'] or ['empty or unchanged'])[0])}" for n, c in wrong.items()]
    verified = results["verified"]
    unequal = [n for n, equal in verified.items() if not equal]
    if not verified:
        return [*out, "", "The run ended before `verify` was asked.", ""]
    said = f"`verify` agreed for {len(verified) - len(unequal)} of {len(verified)} at the end."
    return [*out, "", said + (f" It did not for: {', '.join(unequal)}." if unequal else ""), ""]


def _where(results: Results) -> list[str]:
    if not results["profiles"]:
        return []
    out = [
        "## Where the time goes",
        "",
        "For the queries that a missed target is due to, one more refresh: what Spark and the catalog were asked for, how long that took,",
        "and in how many calls. `Spark.sql` is analysis, `Spark.collected`, `Spark.to_arrow` and `Spark.write_parquet` plan and run.",
        "",
        "| query | rate | ms | where |",
        "|---|---:|---:|---|",
    ]
    out += [f"| {p['query']} | {_percent(p['rate'])} | {p['ms']:,.0f} | {p['where']} |" for p in results["profiles"]]
    return [*out, ""]


def chart(results: Results) -> str:
    """Return the chart as SVG."""
    table = Table(results)
    groups: dict[str, Sequence[float | None]] = {
        f"Q{n}": [p.ratio if (p := table.pairs.get((n, rate))) else None for rate in table.rates] for n in table.queries
    }
    groups["mean"] = [table.mean(rate) for rate in table.rates]
    title = f"TPC-H, scale {results['scale']:g}: how many times faster than full"
    return bar_chart(title, [f"{_percent(r)} changed" for r in table.rates], groups, {"as fast as full": 1.0})


def _percent(rate: float) -> str:
    return f"{rate * 100:g} %"


def _listed(numbers: Iterable[int], ratios: dict[int, float]) -> str:
    return ", ".join(f"{n} ({ratios[n]:.2f}x)" for n in numbers)


def _first_line(text: str) -> str:
    return next(iter(text.splitlines()), "").replace("|", "\\|")


def write_page(results: Results, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = path.with_suffix(".svg")
    picture.write_text(chart(results))
    path.write_text(page(results, picture.name))


# the command ----------------------------------------------------------------------------------------------------------------


def main() -> int:
    """Run the benchmark and print, or write, the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rates", type=float, nargs="+", default=list(RATES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--queries", type=int, nargs="+", default=list(tpch.NUMBERS))
    parser.add_argument(
        "--cycles", type=int, default=CYCLES, help="cycles over all tables that are compared with DuckDB"
    )
    parser.add_argument("--budget", type=float, help="minutes after which no new measurement is begun")
    parser.add_argument("--page", type=Path, help="write the result as Markdown to this file, and the chart beside it")
    parser.add_argument("--results", type=Path, default=Path("build/benchmarks/tpch.json"), help="what was measured")
    parser.add_argument("--render", type=Path, help="measure nothing; take what was measured from this file")
    parser.add_argument("--directory", type=Path, help="where the warehouse is made; a temporary directory without it")
    parser.add_argument("--cold", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    console = Console()
    if args.cold:
        measure_cold(args.cold, args.scale, args.queries, args.results)
        return 0
    if args.render:
        results = json.loads(args.render.read_text())
    else:
        options = Options(args.scale, tuple(args.rates), args.repeats, tuple(args.queries), args.results, args.cycles)
        root = Path(tempfile.mkdtemp(prefix="headwater-tpch-", dir=args.directory))
        bench = Bench(options, root, Progress(console, args.budget))
        try:
            results = bench.run()
        except KeyboardInterrupt:
            results = bench.results
            console.print(f"interrupted; what was measured is in {args.results}")
        finally:
            shutil.rmtree(root, ignore_errors=True)
    if args.page:
        write_page(results, args.page)
    console.print(page(results, "tpch.svg"), markup=False, highlight=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
