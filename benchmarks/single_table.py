"""Differential against full refresh over one table, side by side in one run.

A table of six million rows; stream tables of five shapes; changes of 1, 1,000 and 60,000 updated rows, spread over the whole table.
Every figure is a ratio within this run: both sides share the session, are warmed up equally, and alternate. `full` is the query
computed over the whole table and written as Parquet, which is what a scheduled full refresh does at least.

    make bench BENCH=single_table          (or: python -m benchmarks.single_table --rows 600000)
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

import headwater as hw

QUERIES = {
    "filter + project": "SELECT id, amount * 2 AS doubled, region FROM facts WHERE amount > 900",
    "group by, 7 groups": "SELECT region, count(*) AS n, sum(amount) AS total, avg(amount) AS mean FROM facts GROUP BY region",
    "group by, 7 groups, DOUBLE": "SELECT region, count(*) AS n, sum(score) AS total, avg(score) AS mean FROM facts GROUP BY region",
    "group by, many groups": "SELECT parent, count(*) AS n, sum(amount) AS total FROM facts GROUP BY parent",
    "group by, many groups, DOUBLE": "SELECT parent, count(*) AS n, sum(score) AS total FROM facts GROUP BY parent",
    "MIN / MAX": "SELECT region, min(amount) AS low, max(score) AS high FROM facts GROUP BY region",
    "COUNT(DISTINCT)": "SELECT region, count(DISTINCT customer) AS customers FROM facts GROUP BY region",
}
TARGETS = {1: 10.0, 60_000: 5.0}
WARM_UP = {1: 25, 1_000: 6, 60_000: 6}
"""Refreshes of every table before measuring: a scheduler lives for days, and Java compiles what it runs often."""


@dataclass(frozen=True)
class Line:
    """One measured pair."""

    query: str
    changed: int
    differential_ms: float
    full_ms: float
    jobs: int
    bytes_written: int
    rescanned: int
    upkeep_ms: float

    @property
    def ratio(self) -> float:
        return self.full_ms / self.differential_ms


def _ms(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def _load(wh: hw.Warehouse, rows: int) -> None:
    wh.sql(
        "CREATE TABLE facts (id BIGINT PRIMARY KEY, parent BIGINT, region STRING, customer INT, amount DECIMAL(12, 2), score DOUBLE)"
    )
    frame = wh.spark.range(rows).selectExpr(
        "id",
        "id DIV 4 AS parent",
        "concat('region ', pmod(xxhash64(id), 7)) AS region",
        "CAST(pmod(xxhash64(id, 1), 50000) AS INT) AS customer",
        "CAST(pmod(xxhash64(id, 2), 100000) / 100.0 AS DECIMAL(12, 2)) AS amount",
        "pmod(xxhash64(id, 3), 1000000) / 997.0D AS score",
    )
    wh.insert("facts", frame)


def _change(wh: hw.Warehouse, rows: int, count: int, turn: int) -> None:
    """Update `count` rows spread over the table: amount, score and sometimes the customer."""
    step = max(1, rows // count)
    where = (
        f"id = {turn * 7919131 % rows}" if count == 1 else f"pmod(id, {step}) = {turn % step} AND id < {step * count}"
    )
    wh.update(
        "facts",
        set={
            "amount": "CAST(pmod(amount + 17.31, 1000) AS DECIMAL(12, 2))",
            "score": "pmod(score + 3.7D, 1000D)",
            "customer": "pmod(customer + 1, 50000)",
        },
        where=where,
    )


def run(rows: int, sizes: list[int], repeats: int, console: Console) -> tuple[list[Line], float, int]:
    """Measure everything; return the lines, the cost of a refresh with nothing to do in ms, and its Spark jobs."""
    root = Path(tempfile.mkdtemp(prefix="headwater-bench-"))
    lines: list[Line] = []
    try:
        with hw.connect(root / "warehouse") as wh:
            console.print(f"loading {rows:,} rows ...")
            console.print(f"  {_ms(lambda: _load(wh, rows)) / 1000:.1f} s")
            names = {}
            for i, (label, query) in enumerate(QUERIES.items()):
                name = f"st_{i}"
                names[label] = name
                console.print(
                    f"creating {label}: {_ms(lambda n=name, q=query: wh.create_stream_table(n, q)) / 1000:.1f} s"
                )
            turn = 0
            for count in sizes:
                for _ in range(WARM_UP.get(count, 2)):
                    turn += 1
                    _change(wh, rows, count, turn)
                    wh.refresh()
                measured: dict[str, list[tuple[float, object]]] = {label: [] for label in QUERIES}
                full: dict[str, list[float]] = {label: [] for label in QUERIES}
                upkeep: dict[str, list[float]] = {label: [] for label in QUERIES}
                for _ in range(repeats):
                    turn += 1
                    _change(wh, rows, count, turn)
                    for label, name in names.items():
                        began = time.perf_counter()
                        report = wh.refresh(name)
                        upkeep[label].append((time.perf_counter() - began) * 1000 - report.duration_ms)
                        assert report.action is hw.RefreshAction.DIFFERENTIAL, report
                        measured[label].append((report.duration_ms, report))
                        target = root / f"full-{name}-{turn}"
                        full[label].append(_ms(lambda q=QUERIES[label], t=target: wh.sql(q).write.parquet(str(t))))
                        shutil.rmtree(target)
                for label in QUERIES:
                    last = measured[label][-1][1]
                    line = Line(
                        label,
                        count,
                        statistics.median(m for m, _ in measured[label]),
                        statistics.median(full[label]),
                        last.spark_jobs,  # type: ignore[attr-defined]
                        last.bytes_written,  # type: ignore[attr-defined]
                        last.rescanned_groups,  # type: ignore[attr-defined]
                        statistics.mean(upkeep[label]),
                    )
                    lines.append(line)
                    times = f"{line.differential_ms:8.0f} ms  full {line.full_ms:8.0f} ms  {line.ratio:6.1f}x"
                    console.print(f"  {count:>6} {label:<30} {times}  upkeep {line.upkeep_ms:5.0f} ms")
            idle = [wh.refresh(names["MIN / MAX"]) for _ in range(50)]
            checks = [wh.verify(n) for n in names.values()]
            assert all(c.equal for c in checks), checks
            return lines, statistics.median(r.duration_ms for r in idle), sum(r.spark_jobs for r in idle)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _page(lines: list[Line], rows: int, idle_ms: float, idle_jobs: int) -> str:
    out = [
        "# Single table: differential against full",
        "",
        f"Table of {rows:,} rows, one run on {_machine()}. `make bench BENCH=single_table`. Times are medians in milliseconds; the",
        "ratio is full / differential, both sides warm, alternating in one session. All tables were verified at the end.",
        "",
        "`full` is the query analysed, computed and written to Parquet files, and nothing else; `differential` is all of a refresh, from",
        "the question what changed to the commit.",
        "",
        "`upkeep` is what merging and folding tails after the commit took, on average: it delays the next refresh of this process, not",
        "the readers.",
        "",
        "| stream table | rows changed | differential | full | ratio | target | upkeep | Spark jobs | bytes written | groups re-read |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for x in lines:
        grouped = x.query != "filter + project"
        target = TARGETS.get(x.changed) if grouped or x.changed == 1 else None
        shown = "" if target is None else f"{target:.0f}x {'met' if x.ratio >= target else '**missed**'}"
        out.append(
            f"| {x.query} | {x.changed:,} | {x.differential_ms:,.0f} | {x.full_ms:,.0f} | {x.ratio:.1f}x | {shown} "
            f"| {x.upkeep_ms:,.0f} | {x.jobs} | {x.bytes_written:,} | {x.rescanned:,} |"
        )
    out += ["", f"A refresh with nothing to do: {idle_ms:.2f} ms (median of 50), {idle_jobs} Spark jobs.", ""]
    return "\n".join(out)


def _machine() -> str:
    import os

    return f"{os.cpu_count()} cores"


def main() -> int:
    """Run the benchmark and print, or write, the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=6_000_000)
    parser.add_argument("--sizes", type=int, nargs="*", default=[1, 1_000, 60_000])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--page", type=Path, help="write the result as Markdown to this file")
    args = parser.parse_args()
    console = Console()
    lines, idle_ms, idle_jobs = run(args.rows, args.sizes, args.repeats, console)
    table = Table(title=f"{args.rows:,} rows")
    for column in ("stream table", "changed", "differential ms", "full ms", "ratio", "jobs", "bytes"):
        table.add_column(column, justify="left" if column == "stream table" else "right")
    for x in lines:
        table.add_row(
            x.query,
            f"{x.changed:,}",
            f"{x.differential_ms:.0f}",
            f"{x.full_ms:.0f}",
            f"{x.ratio:.1f}x",
            str(x.jobs),
            f"{x.bytes_written:,}",
        )
    console.print(table)
    console.print(f"nothing to do: {idle_ms:.2f} ms, {idle_jobs} Spark jobs")
    if args.page:
        args.page.parent.mkdir(parents=True, exist_ok=True)
        args.page.write_text(_page(lines, args.rows, idle_ms, idle_jobs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
