"""Graphs of stream tables: one tick against a `refresh` of each table by itself, in topological order.

    chain     ten stream tables, each reading the one before
    wide      three layers of twenty, each table reading the one above it
    diamond   one stream table, three that read it, one that joins these

Both sides work on one warehouse, in turn, over equal changes: what is refreshed, and from what, is the same.

    make bench BENCH=dag      (or: python -m benchmarks.dag --shapes diamond --repeats 2)
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import headwater as hw
from benchmarks._scheduling import (
    COLUMNS,
    SCHEDULE,
    Results,
    Side,
    finished,
    met,
    parser_of,
    rows_of,
    table_of,
    verified_text,
    wrong_tables,
)
from benchmarks._tpch import Progress, machine, save
from headwater.refresh.moment import pending_sources

BASE_ROWS, CHANGED = 20_000, 500
REPEATS, WARM_UP = 6, 10
"""Each of several sessions plans a query when it meets it for the second time, so it takes some rounds until all of them know all."""
CHAIN, LAYERS, WIDTH = 10, 3, 20
TARGET_SHAPE, TARGET = "wide", 1.5
TICK, EACH = "one tick", "refresh of each"

Queries = dict[str, str]

TOPS = (
    "SELECT {i} AS part, region, count(*) AS n, sum(amount) AS total FROM {above} WHERE pmod(product, 20) <> {i} GROUP BY region",
    "SELECT part, region, n, total FROM {above} WHERE n > {i}",
    "SELECT part, sum(n) AS n, sum(total) AS total, count(*) AS regions FROM {above} GROUP BY part",
)
"""What the three layers of the wide graph do."""


def chain(source: str, _: int) -> Queries:
    """Rows are passed on, with a column that changes at every step; the last step sums them up."""
    found = {"chain_0": f"SELECT id, customer, amount FROM {source} WHERE amount >= 100"}
    for i in range(1, CHAIN - 1):
        found[f"chain_{i}"] = f"SELECT id, customer, amount + {i} AS amount FROM chain_{i - 1} WHERE customer <> {i}"
    last = f"SELECT customer, count(*) AS n, sum(amount) AS total FROM chain_{CHAIN - 2} GROUP BY customer"
    return {**found, f"chain_{CHAIN - 1}": last}


def wide(source: str, width: int) -> Queries:
    found = {}
    for layer in range(LAYERS):
        for i in range(width):
            above = f"wide_{layer - 1}_{i}" if layer else source
            found[f"wide_{layer}_{i}"] = TOPS[layer].format(i=i, above=above)
    return found


def diamond(source: str, _: int) -> Queries:
    return {
        "diamond_top": f"SELECT id, customer, product, amount FROM {source} WHERE amount >= 100",
        "diamond_count": "SELECT customer, count(*) AS n FROM diamond_top GROUP BY customer",
        "diamond_sum": "SELECT customer, sum(amount) AS total FROM diamond_top GROUP BY customer",
        "diamond_high": "SELECT customer, max(product) AS high FROM diamond_top GROUP BY customer",
        "diamond_meet": "SELECT customer, n, total, high FROM diamond_count JOIN diamond_sum USING (customer) "
        "JOIN diamond_high USING (customer)",
    }


SHAPES = {"chain": chain, "wide": wide, "diamond": diamond}
TELLS = {
    "chain": f"{CHAIN} stream tables, each reading the one before",
    "wide": "{layers} layers of {width}, each table reading the one above it",
    "diamond": "one stream table, three that read it, one that joins these; a refresh of one of these four brings all four along",
}


def source_of(shape: str) -> str:
    return f"{shape}_source"


def refresh_each(wh: hw.Warehouse, names: Queries) -> float:
    """Time a refresh of every table, those that others read first; the first one of a diamond brings the others along."""
    began = time.perf_counter()
    reports = [wh.refresh(name) for name in names]
    ms = (time.perf_counter() - began) * 1000
    snapshot = wh.snapshot()
    behind = [snapshot.tables[s.table_id].name for s in snapshot.streams.values() if pending_sources(snapshot, s)]
    behind += [r.name for r in reports if r.action is hw.RefreshAction.FULL]
    if behind:
        raise RuntimeError(f"{EACH}: not refreshed, or not from changes: {', '.join(behind)}")
    return ms


def measure(args: argparse.Namespace, root: Path, progress: Progress) -> Results:
    """Measure both sides of every shape."""
    results: Results = {
        "machine": machine(),
        "shapes": args.shapes,
        "width": args.width,
        "runs": [],
        "warm_up": [],
        "wrong": [],
    }
    with Side(TICK, root / "warehouse", {}) as side:
        for shape in args.shapes:
            side.wh.create_table(source_of(shape), COLUMNS, primary_key="id")
            side.wh.insert(source_of(shape), rows_of(0, BASE_ROWS))
            queries = SHAPES[shape](source_of(shape), args.width)
            for name, query in queries.items():
                side.wh.create_stream_table(name, query, schedule=SCHEDULE, refresh_mode="DIFFERENTIAL")
            progress.say(f"{shape}: created {len(queries)} stream tables")
            first = BASE_ROWS
            for turn in range(-args.warm_up, args.repeats):
                if progress.is_over and turn > 0:
                    break
                for way in (TICK, EACH) if turn % 2 == 0 else (EACH, TICK):
                    side.wh.insert(source_of(shape), rows_of(first, CHANGED))
                    first += CHANGED
                    if way == TICK:
                        side.wait_until_due()
                        time.sleep(1.0)  # those that were refreshed by themselves are due again, too
                        ms = side.tick(len(queries)).ms
                    else:
                        ms = refresh_each(side.wh, queries)
                    run = {"shape": shape, "way": way, "ms": ms, "tables": len(queries)}
                    results["runs" if turn >= 0 else "warm_up"].append(run)
            progress.say(f"{shape}: " + ", ".join(f"{w} {_median(results, shape, w):,.0f} ms" for w in (TICK, EACH)))
            save(args.results, results)
        results["wrong"] = wrong_tables(side.wh)
    return results


def _median(results: Results, shape: str, way: str) -> float:
    return statistics.median(r["ms"] for r in results["runs"] if r["shape"] == shape and r["way"] == way)


def page(results: Results) -> str:
    """Return the page as Markdown."""
    lines = []
    for shape in results["shapes"]:
        runs = [r for r in results["runs"] if r["shape"] == shape]
        if not runs:
            continue
        tick, each = _median(results, shape, TICK), _median(results, shape, EACH)
        tables = runs[0]["tables"]
        target = f"{TARGET:g}x {met(each / tick >= TARGET)}" if shape == TARGET_SHAPE else ""
        per_table = [f"{tick / tables:.0f}", f"{each / tables:.0f}"]
        lines.append([shape, str(tables), f"{tick:,.0f}", f"{each:,.0f}", *per_table, f"{each / tick:.2f}x", target])
    head = ["graph", "stream tables", f"{TICK}, ms", f"{EACH}, ms", "per table", "per table", "ratio", "target"]
    out = [
        "# Graphs: one tick against a refresh of each table",
        "",
        f"{CHANGED} rows are inserted into the source before each turn. One run on {results['machine']}, both sides in turn on one",
        "warehouse. `make bench BENCH=dag`. Times are medians in milliseconds; the ratio is separate refreshes / tick: above 1, the tick",
        "is faster.",
        "",
        *table_of(head, lines),
        "",
        *(f"- {shape}: {TELLS[shape].format(layers=LAYERS, width=results['width'])}." for shape in results["shapes"]),
        "",
        verified_text(results["wrong"]),
    ]
    return "\n".join([*out, ""])


def main() -> int:
    """Run the benchmark and print, or write, the page."""
    parser = parser_of(__doc__, "dag", repeats=REPEATS, warm_up=WARM_UP)
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument(
        "--width", type=int, default=WIDTH, help=f"stream tables in a layer of the wide graph ({WIDTH})"
    )
    return finished(parser.parse_args(), measure, page)


if __name__ == "__main__":
    sys.exit(main())
