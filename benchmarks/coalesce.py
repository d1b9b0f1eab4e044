"""Many stream tables over few sources: refreshes that share a commit, against a commit for each.

50 stream tables over 5 sources, ten over each, all due at every tick. Two warehouses hold the same, one with the setting
`adaptive_batch_coalescing` and one without; they tick in turn over equal changes in one session.

    make bench BENCH=coalesce      (or: python -m benchmarks.coalesce --tables 10 --sources 2 --repeats 2)
"""

from __future__ import annotations

import argparse
import statistics
import sys
from contextlib import ExitStack
from pathlib import Path

import headwater as hw
from benchmarks._scheduling import (
    COLUMNS,
    SCHEDULE,
    Results,
    Side,
    alternated,
    finished,
    met,
    parser_of,
    percentile,
    rows_of,
    table_of,
    verified_text,
    wrong_tables,
)
from benchmarks._tpch import Progress, machine, save

TABLES, SOURCES = 50, 5
BASE_ROWS, INSERTED, REPLACED = 20_000, 150, 50
REPEATS, WARM_UP = 8, 10
"""Each of several sessions plans a query when it meets it for the second time, so it takes some rounds until all of them know all."""
TARGET = 0.10
ON, OFF = "batched", "one by one"
SETTING = "adaptive_batch_coalescing"
QUERIES = (
    "SELECT region, count(*) AS n, sum(amount) AS total FROM {s} GROUP BY region",
    "SELECT customer, count(*) AS n, sum(amount) AS total FROM {s} GROUP BY customer",
    "SELECT product, avg(amount) AS mean FROM {s} GROUP BY product",
    "SELECT id, customer, amount FROM {s} WHERE amount > 5000",
    "SELECT id, upper(region) AS region, amount * 2 AS doubled FROM {s} WHERE product < 250",
    "SELECT region, min(amount) AS low, max(amount) AS high FROM {s} GROUP BY region",
    "SELECT region, count(DISTINCT customer) AS customers FROM {s} GROUP BY region",
    "SELECT DISTINCT customer, region FROM {s}",
    "SELECT customer, product, count(*) AS n FROM {s} GROUP BY customer, product",
    "SELECT region, product, sum(amount) AS total FROM {s} WHERE amount > 100 GROUP BY region, product",
)


def create(wh: hw.Warehouse, tables: int, sources: int) -> None:
    """Make the sources with their rows, and the stream tables, each source having as many."""
    for i in range(sources):
        wh.create_table(f"s{i}", COLUMNS, primary_key="id")
        wh.insert(f"s{i}", rows_of(0, BASE_ROWS, salt=i))
    for i in range(tables):
        source, form = i % sources, i // sources
        query = QUERIES[form % len(QUERIES)].format(s=f"s{source}")
        wh.create_stream_table(f"t{i}", query, schedule=SCHEDULE, refresh_mode="DIFFERENTIAL")


def change(wh: hw.Warehouse, sources: int, turn: int) -> None:
    """Insert rows into every source, and replace some of its first ones."""
    for i in range(sources):
        wh.insert(f"s{i}", rows_of(BASE_ROWS + turn * INSERTED, INSERTED, salt=i))
        wh.upsert(f"s{i}", rows_of(turn * REPLACED % BASE_ROWS, REPLACED, salt=100 + turn))


def measure(args: argparse.Namespace, root: Path, progress: Progress) -> Results:
    """Measure both sides."""
    results: Results = {
        "machine": machine(),
        "tables": args.tables,
        "sources": args.sources,
        "runs": [],
        "warm_up": [],
        "wrong": {},
    }
    with ExitStack() as stack:
        sides = [stack.enter_context(Side(label, root / label, {SETTING: label == ON})) for label in (ON, OFF)]
        for side in sides:
            create(side.wh, args.tables, args.sources)
            progress.say(f"{side.label}: created {args.tables} stream tables")
        for turn in range(-args.warm_up, args.repeats):
            if progress.is_over and turn > 0:
                break
            for side in alternated(sides, turn):
                change(side.wh, args.sources, turn + args.warm_up)
                ticked = side.tick(args.tables)
                results["runs" if turn >= 0 else "warm_up"].append({"side": side.label, **ticked.as_dict()})
                progress.say(f"round {turn}, {side.label}: {ticked.ms:,.0f} ms, {ticked.reads} reads of changes")
            save(args.results, results)
        results["wrong"] = {side.label: wrong_tables(side.wh) for side in sides}
    return results


def page(results: Results) -> str:
    """Return the page as Markdown."""
    rates = {side: _rate(results, side) for side in (ON, OFF)}
    lines = []
    for side in (ON, OFF):
        runs = [r for r in results["runs"] if r["side"] == side]
        times = [r["ms"] for r in runs]
        reads, read_ms = (statistics.median(r[k] for r in runs) for k in ("reads", "read_ms"))
        lines.append(
            [
                side,
                f"{rates[side]:.1f}",
                f"{statistics.median(times):,.0f}",
                f"{min(times):,.0f}",
                f"{percentile(times, 1.0):,.0f}",
                f"{reads:g}",
                f"{read_ms:.1f}",
            ]
        )
    gain = rates[ON] / rates[OFF] - 1
    wrong = [f"{name} ({side})" for side, names in results["wrong"].items() for name in names]
    head = ["", "refreshes per second", "tick ms, median", "fastest", "slowest", "reads of changes", "reading ms"]
    out = [
        f"# Batching: {results['tables']} stream tables over {results['sources']} sources",
        "",
        f"{INSERTED} rows are inserted into every source and {REPLACED} replaced between two ticks, and every stream table is due. One",
        f"run on {results['machine']}. `make bench BENCH=coalesce`. `{SETTING}` is on in one warehouse (*{ON}*) and off in the other",
        f"(*{OFF}*); they tick in turn, {len(results['runs']) // 2} times each. Fan-out is on in both.",
        "",
        *table_of(head, lines),
        "",
        f"Throughput: {gain:+.1%}, the target is at least {TARGET:+.0%}: {met(gain >= TARGET)}.",
        "",
        verified_text(wrong),
    ]
    return "\n".join([*out, ""])


def _rate(results: Results, side: str) -> float:
    """Return the refreshes per second of a tick as it is in the middle: one slow tick does not decide."""
    return statistics.median(1000 * r["refreshed"] / r["ms"] for r in results["runs"] if r["side"] == side)


def main() -> int:
    """Run the benchmark and print, or write, the page."""
    parser = parser_of(__doc__, "coalesce", repeats=REPEATS, warm_up=WARM_UP)
    parser.add_argument("--tables", type=int, default=TABLES)
    parser.add_argument("--sources", type=int, default=SOURCES)
    return finished(parser.parse_args(), measure, page)


if __name__ == "__main__":
    sys.exit(main())
