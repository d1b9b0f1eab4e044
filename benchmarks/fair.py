"""A small refresh beside a big one: how long a stream table of few changed rows takes while another is computed in full.

A scheduler runs in a thread of its own. The small stream table gets a few rows, again and again; first alone, then while a big stream
table is computed in full without a pause. Once Spark shares its cores fairly, with a pool of its own for full refreshes (as shipped),
once first come, first served (`spark.scheduler.mode = FIFO`, for comparison). Spark takes that mode when it starts, so each has a process
of its own; the ratio of beside to alone is taken within a process.

    make bench BENCH=fair      (or: python -m benchmarks.fair --rows 500000 --repeats 4)
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

import headwater as hw
from benchmarks._scheduling import (
    COLUMNS,
    SCHEDULE,
    SCHEDULE_SECONDS,
    SETTINGS,
    Results,
    finished,
    parser_of,
    percentile,
    rows_of,
    scratch,
    table_of,
    verified_text,
)
from benchmarks._tpch import Progress, machine, save
from headwater.engine.session import start_session
from headwater.settings import Settings

MODES = ("FAIR", "FIFO")
ALONE, BESIDE = "alone", "beside"
ROWS, SMALL_ROWS, CHANGED = 6_000_000, 20_000, 20
REPEATS, WARM_UP = 25, 8
MOST_SECONDS = 120.0
SMALL = "SELECT region, count(*) AS n, sum(amount) AS total FROM small_source GROUP BY region"
BIG = """
    SELECT pmod(id, 20000) AS slot, count(*) AS n, sum(amount) AS total, count(DISTINCT customer) AS customers,
        max(sha2(concat(id, '-', customer, '-', amount), 256)) AS high
    FROM big_source GROUP BY pmod(id, 20000)"""


# one process ----------------------------------------------------------------------------------------------------------------


def measure_mode(mode: str, args: argparse.Namespace, root: Path, progress: Progress) -> Results:
    """Measure both situations in this process."""
    config = {"spark.scheduler.mode": mode}
    spark = start_session(Settings(), config=config)
    settings = {**SETTINGS, "scheduler_interval_seconds": 0.05}
    found: Results = {"mode": mode, "runs": [], "big_ms": [], "verified": False}
    with hw.connect(root / "warehouse", spark=spark, settings=settings) as wh:
        create(wh, args.rows)
        progress.say(f"{mode}: created")
        with wh.scheduler() as scheduler:
            scheduler.start()
            first = SMALL_ROWS
            for situation, big in ((ALONE, False), (BESIDE, True)):
                with kept_busy(wh) if big else nothing():
                    for turn in range(-args.warm_up, args.repeats):
                        if progress.is_over and turn > 0:
                            break
                        time.sleep(SCHEDULE_SECONDS + 0.1)  # due, so that it may begin at once
                        run = small_refresh(wh, first)
                        first += CHANGED
                        if turn >= 0:
                            found["runs"].append({"situation": situation, **run})
                progress.say(f"{mode}, {situation}: {_told(found, situation)}")
        found["runs"] = [r | {"overlap": overlap_of(wh, r)} for r in found["runs"]]
        found["big_ms"] = [r.duration_ms for r in wh.history("big", 100) if r.action is hw.RefreshAction.FULL]
        found["verified"] = wh.verify("small").equal and wh.verify("big").equal
    spark.stop()
    return found


def create(wh: hw.Warehouse, rows: int) -> None:
    wh.create_table("small_source", COLUMNS, primary_key="id")
    wh.insert("small_source", rows_of(0, SMALL_ROWS))
    wh.create_table("big_source", COLUMNS)
    wh.insert(
        "big_source",
        wh.spark.range(rows).selectExpr(
            "id",
            "CAST(pmod(xxhash64(id), 50000) AS INT) AS customer",
            "CAST(pmod(xxhash64(id, 1), 500) AS INT) AS product",
            "concat('region ', pmod(xxhash64(id, 2), 20)) AS region",
            "pmod(xxhash64(id, 3), 10000) AS amount",
        ),
    )
    wh.create_stream_table("small", SMALL, schedule=SCHEDULE, refresh_mode="DIFFERENTIAL")
    wh.create_stream_table("big", BIG, schedule=SCHEDULE, refresh_mode="FULL")


def small_refresh(wh: hw.Warehouse, first: int) -> Results:
    """Insert a few rows, wait until readers see them, and return how long that took and how long the refresh did."""
    wh.insert("small_source", rows_of(first, CHANGED))
    committed, version = time.time(), wh.version
    while frontier_of(wh, "small") < version:
        if time.time() - committed > MOST_SECONDS:
            raise RuntimeError(f"the small stream table was not refreshed within {MOST_SECONDS:g} s")
        time.sleep(0.005)
    visible_ms = (time.time() - committed) * 1000
    (record,) = wh.history("small", 1)
    return {
        "refresh_ms": record.duration_ms,
        "visible_ms": visible_ms,
        "began": record.started_at,
        "ended": record.finished_at,
    }


def frontier_of(wh: hw.Warehouse, name: str) -> int:
    snapshot = wh.snapshot()
    table = snapshot.table(name)
    assert table is not None
    return snapshot.streams[table.id].frontier or 0


@contextmanager
def kept_busy(wh: hw.Warehouse) -> Iterator[None]:
    """Let the big stream table have work all the time: whenever it has caught up, a row is inserted."""
    over = threading.Event()

    def feed() -> None:
        number, seen = 0, -1
        while not over.is_set():
            now = frontier_of(wh, "big")
            if now != seen:
                seen, number = now, number + 1
                wh.insert("big_source", rows_of(1_000_000_000 + number, 1))
            over.wait(0.1)

    feeder = threading.Thread(target=feed, name="feeder")
    feeder.start()
    try:
        time.sleep(2.0)  # the first full refresh has begun
        yield
    finally:
        over.set()
        feeder.join()


@contextmanager
def nothing() -> Iterator[None]:
    yield


def overlap_of(wh: hw.Warehouse, run: Results) -> float:
    """Return the share of a small refresh during which a big one ran."""
    length = max(run["ended"] - run["began"], 1e-9)
    shared = 0.0
    for record in wh.history("big", 1000):
        shared += max(0.0, min(record.finished_at, run["ended"]) - max(record.started_at, run["began"]))
    return min(1.0, shared / length)


def _told(found: Results, situation: str) -> str:
    runs = [r for r in found["runs"] if r["situation"] == situation]
    refresh, visible = (statistics.median(r[k] for r in runs) for k in ("refresh_ms", "visible_ms"))
    return f"refresh {refresh:,.0f} ms, visible after {visible:,.0f} ms"


def measure(args: argparse.Namespace, root: Path, progress: Progress) -> Results:
    """Measure each mode in a process of its own."""
    results: Results = {"machine": machine(), "rows": args.rows, "modes": []}
    for mode in args.modes:
        out = root / f"{mode}.json"
        command = [sys.executable, "-m", "benchmarks.fair", "--child", mode, "--results", str(out)]
        command += [
            "--rows",
            str(args.rows),
            "--repeats",
            str(args.repeats),
            "--warm-up",
            str(args.warm_up),
            "--directory",
            str(root),
        ]
        subprocess.run(command, check=True)
        results["modes"].append(json.loads(out.read_text()))
        progress.say(f"{mode}: measured")
        save(args.results, results)
    return results


# the page -------------------------------------------------------------------------------------------------------------------


def page(results: Results) -> str:
    """Return the page as Markdown."""
    head = [
        "Spark's mode",
        "refresh alone",
        "beside",
        "p95",
        "times",
        "visible alone",
        "beside",
        "p95",
        "times",
        "overlap",
    ]
    lines = []
    for found in results["modes"]:
        cells = []
        for key in ("refresh_ms", "visible_ms"):
            alone, beside = (_values(found, s, key) for s in (ALONE, BESIDE))
            a, b = statistics.median(alone), statistics.median(beside)
            cells += [f"{a:,.0f}", f"{b:,.0f}", f"{percentile(beside, 0.95):,.0f}", f"{b / a:.1f}x"]
        name = "FAIR, as shipped" if found["mode"] == "FAIR" else found["mode"]
        lines.append([name, *cells, f"{statistics.mean(_values(found, BESIDE, 'overlap')):.0%}"])
    big = [
        f"{f['mode']} {statistics.median(f['big_ms']):,.0f} ms ({len(f['big_ms'])})"
        for f in results["modes"]
        if f["big_ms"]
    ]
    wrong = [f["mode"] for f in results["modes"] if not f["verified"]]
    out = [
        "# Fair shares: a small refresh beside a big one",
        "",
        f"The small stream table sums by region over {SMALL_ROWS:,} rows and gets {CHANGED} rows at a time; the big one is computed",
        f"in full over {results['rows']:,} rows, again and again. One run on {results['machine']}, a process for each mode.",
        "`make bench BENCH=fair`.",
        "",
        "*Refresh* is what the small refresh took; *visible* is the time from the commit of the rows until readers see them, with",
        "waiting for the scheduler. Milliseconds, medians and 95th percentiles; *times* is beside / alone. *Overlap* is the share of the",
        "small refreshes during which the big one really ran.",
        "",
        *table_of(head, lines),
        "",
        f"The big refresh took, in the median: {', '.join(big) or 'it never ran'}.",
        "",
        verified_text(wrong),
    ]
    return "\n".join([*out, ""])


def _values(found: Results, situation: str, key: str) -> list[float]:
    return [r[key] for r in found["runs"] if r["situation"] == situation]


def main() -> int:
    """Run the benchmark and print, or write, the page."""
    parser = parser_of(__doc__, "fair", repeats=REPEATS, warm_up=WARM_UP)
    parser.add_argument("--rows", type=int, default=ROWS, help=f"of the big table ({ROWS:,})")
    parser.add_argument("--modes", nargs="+", choices=list(MODES), default=list(MODES))
    parser.add_argument("--child", choices=list(MODES), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        with scratch(args.directory) as root:
            save(args.results, measure_mode(args.child, args, root, Progress(Console(), args.budget)))
        return 0
    return finished(args, measure, page)


if __name__ == "__main__":
    sys.exit(main())
