"""Threads that stay against a thread for each task, over ever more stream tables that are due at a tick.

`worker_pool_size` is 0 (a worker per task, as many at once as `max_concurrent_refreshes` says), 1, 2 and 4. All sides work on one
warehouse, each through a connection and a scheduler of its own, and tick in turn over equal changes in one session. Batching is off, so
that each stream table is one task.

    make bench BENCH=pool      (or: python -m benchmarks.pool --due 1 4 --sizes 0 2 --repeats 2)
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from math import prod
from pathlib import Path

import headwater as hw
from benchmarks._scheduling import (
    COLUMNS,
    SCHEDULE,
    Results,
    Side,
    alternated,
    finished,
    parser_of,
    rows_of,
    table_of,
    verified_text,
    wrong_tables,
)
from benchmarks._tpch import Progress, machine, save

SIZES = (0, 1, 2, 4)
DUE = (1, 4, 16, 50)
BASE_ROWS, CHANGED = 10_000, 100
REPEATS = 5
WARM_UP, WARM_AGAIN = 8, 1
"""Rounds before measuring all tables, which go first, and before measuring fewer of them. Each of several sessions plans a query when it
meets it for the second time, so it takes some rounds until all of them know all."""
PAYS = 0.05
"""A pool pays where it is faster by more than this share; less is noise."""
QUERIES = (
    "SELECT region, count(*) AS n, sum(amount) AS total FROM {s} GROUP BY region",
    "SELECT id, customer, amount FROM {s} WHERE amount > 5000",
    "SELECT customer, count(*) AS n, sum(amount) AS total FROM {s} GROUP BY customer",
    "SELECT region, min(amount) AS low, max(amount) AS high FROM {s} GROUP BY region",
    "SELECT DISTINCT customer, region FROM {s}",
)


def label_of(size: int) -> str:
    return f"pool of {size}" if size else "spawn"


def create(wh: hw.Warehouse, due: Sequence[int]) -> None:
    """Make a source for each step of `due`, so that with all sources up to one of them just as many tables have work."""
    made = 0
    for step, (before, upto) in enumerate(pairwise([0, *due])):
        wh.create_table(f"s{step}", COLUMNS, primary_key="id")
        wh.insert(f"s{step}", rows_of(0, BASE_ROWS, salt=step))
        for _ in range(before, upto):
            query = QUERIES[made % len(QUERIES)].format(s=f"s{step}")
            wh.create_stream_table(f"t{made}", query, schedule=SCHEDULE, refresh_mode="DIFFERENTIAL")
            made += 1


def measure(args: argparse.Namespace, root: Path, progress: Progress) -> Results:
    """Measure every number of due tables on all sides."""
    due = sorted(args.due)
    results: Results = {"machine": machine(), "sizes": args.sizes, "due": due, "runs": [], "warm_up": [], "wrong": []}
    with ExitStack() as stack:
        settings = {"adaptive_batch_coalescing": False}
        sides: list[Side] = []
        for size in args.sizes:
            own = {**settings, "worker_pool_size": size}
            sides.append(stack.enter_context(Side(label_of(size), root / "warehouse", own)))
            if len(sides) == 1:
                create(sides[0].wh, due)
                progress.say(f"created {due[-1]} stream tables")
        results["spawned"] = sides[0].wh.settings.max_concurrent_refreshes
        changed = 0
        for step, count in reversed(list(enumerate(due))):
            for turn in range(-args.warm_up if count == due[-1] else -WARM_AGAIN, args.repeats):
                if progress.is_over and turn > 0:
                    break
                for side in alternated(sides, turn):
                    changed += 1
                    _wait(sides)
                    for i in range(step + 1):
                        side.wh.insert(f"s{i}", rows_of(BASE_ROWS + changed * CHANGED, CHANGED, salt=i))
                    ticked = side.tick(count)
                    run = {"side": side.label, "due": count, **ticked.as_dict()}
                    results["runs" if turn >= 0 else "warm_up"].append(run)
            progress.say(f"{count} due: {_told(results, count)}")
            save(args.results, results)
        results["wrong"] = wrong_tables(sides[0].wh)
    return results


def _wait(sides: Sequence[Side]) -> None:
    """Wait until all are due again, whoever refreshed them last."""
    for side in sides:
        side.wait_until_due()


def _median(results: Results, side: str, count: int) -> float | None:
    times = [r["ms"] for r in results["runs"] if r["side"] == side and r["due"] == count]
    return statistics.median(times) if times else None


def _told(results: Results, count: int) -> str:
    labels = [label_of(size) for size in results["sizes"]]
    return ", ".join(f"{label} {_median(results, label, count) or 0:,.0f} ms" for label in labels)


# the page -------------------------------------------------------------------------------------------------------------------


def page(results: Results) -> str:
    """Return the page as Markdown."""
    labels = [label_of(size) for size in results["sizes"]]
    measured = [n for n in results["due"] if all(_median(results, label, n) for label in labels)]
    times = {(label, n): _median(results, label, n) or 0.0 for label in labels for n in measured}
    lines, rates = [], []
    for n in measured:
        best = min(times[label, n] for label in labels)
        cells = [f"**{times[x, n]:,.0f}**" if times[x, n] == best else f"{times[x, n]:,.0f}" for x in labels]
        ratios = [f"{times['spawn', n] / times[x, n]:.2f}x" for x in labels[1:]] if "spawn" in labels else []
        lines.append([str(n), *cells, *ratios])
        rates.append([str(n), *(f"{1000 * n / times[x, n]:.1f}" for x in labels)])
    ratio_heads = [f"spawn / {x}" for x in labels[1:]] if "spawn" in labels else []
    out = [
        "# Workers: a pool against a thread for each task",
        "",
        f"{results['due'][-1]} stream tables, {CHANGED} rows inserted into what each of the due ones reads, one run on",
        f"{results['machine']}. `make bench BENCH=pool`. *spawn* is `worker_pool_size = 0`: a worker per task, {results['spawned']} at",
        "once. All sides work on one warehouse and tick in turn; batching is off, so that each stream table is a task of its own.",
        "",
        "Milliseconds of a tick, medians; the fastest of each line is bold, and above 1x the pool is faster than spawning.",
        "",
        *table_of(["due at a tick", *labels, *ratio_heads], lines, texts=0),
        "",
        "Refreshes per second:",
        "",
        *table_of(["due at a tick", *labels], rates, texts=0),
        "",
        "## Where they cross",
        "",
        *_crossings(labels, measured, times),
        "",
    ]
    return "\n".join([*out, verified_text(results["wrong"]), ""])


def _crossings(labels: Sequence[str], measured: Sequence[int], times: dict[tuple[str, int], float]) -> list[str]:
    """Say of each pool from how many due tables on it pays, and what follows."""
    if "spawn" not in labels or not measured:
        return ["Without the side *spawn* there is nothing to compare with."]
    out, means = [], {}
    for label in labels:
        if label == "spawn":
            continue
        gains = {n: times["spawn", n] / times[label, n] for n in measured}
        means[label] = prod(gains.values()) ** (1 / len(gains))
        pays = [n for n in measured if gains[n] > 1 + PAYS]
        loses = [n for n in measured if gains[n] < 1 - PAYS]
        text = f"- {label}: {means[label]:.2f}x in the geometric mean; faster by more than {PAYS:.0%} at {_listed(pays)} due, "
        out.append(f"{text}slower at {_listed(loses)}.")
    best = max(means, key=lambda label: means[label])
    if means[best] > 1 + PAYS:
        out += [
            "",
            f"Recommendation: `worker_pool_size = {best.removeprefix('pool of ')}`; a pool pays on this machine.",
        ]
    else:
        out += ["", "Recommendation: `worker_pool_size = 0`; no pool is faster over all rates by more than noise."]
    return out


def _listed(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts)) or "none"


def main() -> int:
    """Run the benchmark and print, or write, the page."""
    parser = parser_of(__doc__, "pool", repeats=REPEATS, warm_up=WARM_UP)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="of the pool; 0 is a worker per task")
    parser.add_argument("--due", type=int, nargs="+", default=list(DUE), help="stream tables that are due at a tick")
    return finished(parser.parse_args(), measure, page)


if __name__ == "__main__":
    sys.exit(main())
