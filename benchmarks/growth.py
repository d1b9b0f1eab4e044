"""The same 1,000 changed rows over ever more data: how a refresh grows with the tables below it.

About 200 orders with their lines are changed, once *clustered* in time (neighbouring order keys, the newest), where files and row groups
without such keys can be skipped, and once *scattered* over all keys, where they cannot. A refresh of clustered changes may take twice as
long per step of the data; one of scattered changes may grow with the scan of the narrow key columns, which is measured too.

Each scale has a process of its own, so that all are equally warm.

    make bench BENCH=growth      (or: python -m benchmarks.growth --scales 0.01 0.1 --queries 3 6)
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from tests.support import tpch

import headwater as hw
from benchmarks._tpch import Changes, Progress, load_files, machine, milliseconds, save
from headwater.errors import HeadwaterError

SCALES = (0.1, 1.0, 5.0)
QUERIES = (1, 3, 4, 5, 6, 9, 10, 12, 14, 18, 21)
ORDERS = 200
"""With five rows in an order and its lines on average, these are 1,000 rows."""
WARM_UP = 5
CLUSTERED, SCATTERED = "clustered", "scattered"
MOST = 2.0
NARROW = "SELECT max(l_orderkey) AS a, max(l_partkey) AS b, max(l_suppkey) AS c FROM lineitem"

Results = dict[str, Any]


# measuring ------------------------------------------------------------------------------------------------------------------


def measure(scale: float, queries: Sequence[int], repeats: int, root: Path, progress: Progress) -> Results:
    """Measure one scale in this process."""
    found: Results = {"scale": scale, "runs": [], "errors": {}, "narrow_ms": []}
    with hw.connect(root / "warehouse") as wh:
        load_files(wh, scale, root / "files", progress)
        for number in queries:
            text = tpch.query_text(number, scale)
            try:
                ms = milliseconds(
                    lambda n=number, t=text: wh.create_stream_table(tpch.stream_name(n), t, refresh_mode="DIFFERENTIAL")
                )
            except HeadwaterError as error:
                found["errors"][str(number)] = str(error)
                progress.say(f"query {number} was not created: {error}")
                continue
            progress.say(f"created query {number} in {ms / 1000:.1f} s")
        row = wh.sql("SELECT count(*) AS n, max(o_orderkey) AS top FROM orders").collect()[0]
        total, top = int(row["n"]), int(row["top"])
        clustered, scattered = Changes(wh), Changes(wh)
        ways: dict[str, Callable[[], None]] = {
            CLUSTERED: lambda: clustered.newest(ORDERS, top),
            SCATTERED: lambda: scattered.scattered(ORDERS, total),
        }
        for way, change in ways.items():
            for turn in range(-WARM_UP, repeats):
                change()
                for number in queries:
                    if str(number) in found["errors"]:
                        continue
                    report = wh.refresh(tpch.stream_name(number))
                    if turn >= 0:
                        run = {"query": number, "way": way, "ms": report.duration_ms, "rows_in": report.rows_in}
                        found["runs"].append({**run, "action": report.action.value, "jobs": report.spark_jobs})
                progress.say(f"scale {scale:g}, {way}, round {turn}")
        found["narrow_ms"] = [milliseconds(lambda: wh.sql(NARROW).collect()) for _ in range(4)][1:]
        found["verified"] = {
            str(n): wh.verify(tpch.stream_name(n)).equal for n in queries if str(n) not in found["errors"]
        }
    return found


def measure_all(args: argparse.Namespace, progress: Progress) -> Results:
    """Measure each scale in a process of its own."""
    results: Results = {"machine": machine(), "queries": list(args.queries), "scales": []}
    for scale in sorted(args.scales):
        if progress.is_over:
            progress.say(f"the budget is used up before scale {scale:g}")
            break
        root = Path(tempfile.mkdtemp(prefix="headwater-growth-", dir=args.directory))
        try:
            out = root / "found.json"
            command = [sys.executable, "-m", "benchmarks.growth", "--child", str(root), "--results", str(out)]
            command += ["--scales", str(scale), "--repeats", str(args.repeats), "--queries", *map(str, args.queries)]
            subprocess.run(command, check=True)
            results["scales"].append(json.loads(out.read_text()))
        finally:
            shutil.rmtree(root, ignore_errors=True)
        save(args.results, results)
    return results


# the page -------------------------------------------------------------------------------------------------------------------


def page(results: Results) -> str:
    """Return the page as Markdown."""
    scales = results["scales"]
    names = [f"scale {s['scale']:g}" for s in scales]
    steps = [f"{a} to {b}" for a, b in pairwise(names)]
    narrow = [statistics.median(s["narrow_ms"]) for s in scales]
    allowed = {
        CLUSTERED: [MOST for _ in steps],
        SCATTERED: [max(MOST, b / a) for a, b in pairwise(narrow)],
    }
    out = [
        "# Growth: the same change over ever more data",
        "",
        f"About {ORDERS} orders with their lines, 1,000 rows, are updated, deleted and inserted between two refreshes, on "
        f"{results['machine']}. `make bench BENCH=growth`.",
        "Times are medians in milliseconds of whole refreshes, warm, in a process of its own for each scale.",
        "",
        "*Clustered* changes are neighbouring order keys, the newest: files and row groups without them are skipped, and a step of the",
        f"data may take {MOST:g} times as long. *Scattered* changes are spread over all keys: nothing can be skipped, and a step may take",
        "as much longer as the scan of the three key columns of lineitem does.",
        "",
        "| scan of the key columns | " + " | ".join(names) + " |",
        "|---|" + "---:|" * len(names),
        "| milliseconds | " + " | ".join(f"{ms:,.0f}" for ms in narrow) + " |",
        "",
        "| query | changes | " + " | ".join([*names, *steps]) + " | allowed | |",
        "|---|---|" + "---:|" * (len(names) + len(steps)) + "---:|---|",
    ]
    for number in results["queries"]:
        for way in (CLUSTERED, SCATTERED):
            out.append(_line(scales, number, way, allowed[way]))
    errors = [
        f"- Query {n} at scale {s['scale']:g}: {e.splitlines()[0]}" for s in scales for n, e in s["errors"].items()
    ]
    wrong = [
        f"- Query {n} at scale {s['scale']:g}: `verify` disagrees"
        for s in scales
        for n, ok in s["verified"].items()
        if not ok
    ]
    out += ["", *errors, *wrong]
    if not errors and not wrong:
        out.append("Every refresh was differential, and `verify` agreed with all of them at the end.")
    return "\n".join([*out, ""])


def _line(scales: Sequence[Results], number: int, way: str, allowed: Sequence[float]) -> str:
    times: list[float | None] = []
    for scale in scales:
        runs = [
            r["ms"] for r in scale["runs"] if r["query"] == number and r["way"] == way and r["action"] == "DIFFERENTIAL"
        ]
        times.append(statistics.median(runs) if runs else None)
    ratios = [b / a if a and b else None for a, b in pairwise(times)]
    known = [(r, most) for r, most in zip(ratios, allowed, strict=True) if r is not None]
    met = (
        "" if len(known) < len(ratios) or not known else "met" if all(r <= most for r, most in known) else "**missed**"
    )
    cells = [f"{t:,.0f}" if t is not None else "failed" for t in times]
    cells += [f"{r:.1f}x" if r is not None else "" for r in ratios]
    limits = ", ".join(f"{most:.1f}x" for most in allowed)
    return f"| {number} | {way} | {' | '.join(cells)} | {limits} | {met} |"


# the command ----------------------------------------------------------------------------------------------------------------


def main() -> int:
    """Run the benchmark and print, or write, the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scales", type=float, nargs="+", default=list(SCALES))
    parser.add_argument("--queries", type=int, nargs="+", default=list(QUERIES))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--budget", type=float, help="minutes after which no new scale is begun")
    parser.add_argument("--page", type=Path, help="write the result as Markdown to this file")
    parser.add_argument("--results", type=Path, default=Path("build/benchmarks/growth.json"), help="what was measured")
    parser.add_argument("--render", type=Path, help="measure nothing; take what was measured from this file")
    parser.add_argument(
        "--directory", type=Path, help="where the warehouses are made; a temporary directory without it"
    )
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    progress = Progress(Console(), args.budget)
    if args.child:
        (scale,) = args.scales
        save(args.results, measure(scale, args.queries, args.repeats, args.child, progress))
        return 0
    results = json.loads(args.render.read_text()) if args.render else measure_all(args, progress)
    text = page(results)
    if args.page:
        args.page.parent.mkdir(parents=True, exist_ok=True)
        args.page.write_text(text)
    Console().print(text, markup=False, highlight=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
