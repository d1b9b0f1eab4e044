"""Diamonds whose source gets 10,000 rows between two ticks: reading changes once for all, against once for each.

One source, two stream tables in the middle, two leaves, one where they meet. Two warehouses hold the same, one with the setting
`enable_change_buffer_fanout` and one without; they tick in turn over equal changes in one session.

    make bench BENCH=diamond_fanout      (or: python -m benchmarks.diamond_fanout --rows 1000 --repeats 3)
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
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
    rows_of,
    table_of,
    verified_text,
    wrong_tables,
)
from benchmarks._tpch import Progress, machine, save

ROWS, BASE_ROWS = 10_000, 100_000
REPEATS, WARM_UP = 10, 4
TARGET = 0.30
TABLES = 5
ON, OFF = "once", "by each"
SETTING = "enable_change_buffer_fanout"

SUMS = "SELECT {key}, count(*) AS n, sum(amount) AS total FROM {source} GROUP BY {key}"
ROLLED = "SELECT pmod({key}, 50) AS slot, sum(n) AS n, sum(total) AS total FROM {source} GROUP BY pmod({key}, 50)"
SLOTS = "SELECT slot, a.n AS n, b.total AS total FROM {a} a JOIN {b} b USING (slot)"
SHAPES: dict[str, tuple[tuple[str, str], ...]] = {
    "sums": (
        ("m1", SUMS.format(key="customer", source="{s}")),
        ("m2", SUMS.format(key="product", source="{s}")),
        ("l1", ROLLED.format(key="customer", source="{m1}")),
        ("l2", ROLLED.format(key="product", source="{m2}")),
        ("meet", SLOTS.format(a="{l1}", b="{l2}")),
    ),
    "filters": (
        ("m1", "SELECT id, customer, amount FROM {s} WHERE amount < 5000"),
        ("m2", "SELECT id, customer, product FROM {s} WHERE amount >= 5000"),
        ("l1", "SELECT customer, count(*) AS n, sum(amount) AS total FROM {m1} GROUP BY customer"),
        ("l2", "SELECT customer, count(*) AS n, max(product) AS top FROM {m2} GROUP BY customer"),
        ("meet", "SELECT customer, a.n + b.n AS n, total, top FROM {l1} a JOIN {l2} b USING (customer)"),
    ),
    "crossed": (
        ("m1", SUMS.format(key="customer", source="{s}")),
        ("m2", "SELECT customer, max(amount) AS high FROM {s} GROUP BY customer"),
        ("l1", "SELECT customer, n, high FROM {m1} JOIN {m2} USING (customer)"),
        ("l2", "SELECT customer, total, high FROM {m1} JOIN {m2} USING (customer) WHERE total > 100000"),
        ("meet", "SELECT customer, n, total FROM {l1} JOIN {l2} USING (customer)"),
    ),
}
"""The stream tables of each shape, those that others read first. In `crossed` each leaf reads both tables of the middle."""
TELLS = {
    "sums": "the middle sums by two keys, so most change rows are the source's",
    "filters": "the middle passes half of the rows on, so as many change rows are the middle's, which one leaf reads",
    "crossed": "the middle sums, and each leaf reads both tables of the middle",
}


def name_of(shape: str, role: str) -> str:
    return f"{shape}_{role}"


def create(wh: hw.Warehouse, shape: str, base_rows: int) -> None:
    """Make the source with its rows, and the five stream tables."""
    names = {role: name_of(shape, role) for role in ("s", *(role for role, _ in SHAPES[shape]))}
    wh.create_table(names["s"], COLUMNS, primary_key="id")
    wh.insert(names["s"], rows_of(0, base_rows))
    for role, query in SHAPES[shape]:
        wh.create_stream_table(names[role], query.format(**names), schedule=SCHEDULE, refresh_mode="DIFFERENTIAL")


def measure(args: argparse.Namespace, root: Path, progress: Progress) -> Results:
    """Measure all shapes on both sides."""
    results: Results = {
        "machine": machine(),
        "rows": args.rows,
        "base_rows": args.base_rows,
        "runs": [],
        "warm_up": [],
        "wrong": {},
    }
    with ExitStack() as stack:
        sides = [stack.enter_context(Side(label, root / label, {SETTING: label == ON})) for label in (ON, OFF)]
        for shape in args.shapes:
            for side in sides:
                create(side.wh, shape, args.base_rows)
            progress.say(f"{shape}: created")
            first = args.base_rows
            for turn in range(-args.warm_up, args.repeats):
                if progress.is_over and turn > 0:
                    break
                for side in alternated(sides, turn):
                    side.wh.insert(name_of(shape, "s"), rows_of(first, args.rows))
                    ticked = side.tick(TABLES)
                    run = {"shape": shape, "side": side.label, **ticked.as_dict()}
                    results["runs" if turn >= 0 else "warm_up"].append(run)
                first += args.rows
            progress.say(f"{shape}: {_told(results, shape)}")
            save(args.results, results)
        results["wrong"] = {side.label: wrong_tables(side.wh) for side in sides}
        results["same"] = all(_hashes(side.wh) == _hashes(sides[0].wh) for side in sides)
    return results


def _hashes(wh: hw.Warehouse) -> dict[str, tuple[int, int]]:
    """Return the number of rows and the hash of the contents of every stream table."""
    snapshot = wh.snapshot()
    return {snapshot.tables[i].name: (snapshot.tables[i].row_count, snapshot.tables[i].hash) for i in snapshot.streams}


def _told(results: Results, shape: str) -> str:
    parts = []
    for side in (ON, OFF):
        reads, read_ms, ms = _medians(results, shape, side)
        parts.append(f"{side}: {reads:g} reads, {read_ms:.1f} ms of {ms:.0f} ms")
    return "; ".join(parts)


def _medians(results: Results, shape: str, side: str) -> tuple[float, float, float]:
    runs = [r for r in results["runs"] if r["shape"] == shape and r["side"] == side]
    return (
        statistics.median(r["reads"] for r in runs),
        statistics.median(r["read_ms"] for r in runs),
        statistics.median(r["ms"] for r in runs),
    )


def page(results: Results) -> str:
    """Return the page as Markdown."""
    shapes = [s for s in SHAPES if any(r["shape"] == s for r in results["runs"])]
    head = ["diamond", f"reads, {ON}", OFF, f"reading ms, {ON}", OFF, "less", "", f"tick ms, {ON}", OFF, "less"]
    out = [
        "# Fan-out: a diamond over 10,000 inserted rows",
        "",
        f"One source of {results['base_rows']:,} rows, two stream tables in the middle, two leaves, one where they meet;",
        f"{results['rows']:,} rows are inserted between two ticks. One run on {results['machine']}. `make bench BENCH=diamond_fanout`.",
        f"`{SETTING}` is on in one warehouse (*{ON}*) and off in the other (*{OFF}*); they tick in turn.",
        "",
        "Reads are reads of change rows; reading is the time they take together in a tick. All figures are medians. The target is that",
        f"reading takes at least {TARGET:.0%} less.",
        "",
        *table_of(head, [_line(results, shape) for shape in shapes]),
        "",
        *(f"- {shape}: {TELLS[shape]}." for shape in shapes),
        "",
        *LIMITS,
        "",
        _checked(results),
    ]
    return "\n".join([*out, ""])


def _line(results: Results, shape: str) -> Sequence[str]:
    on, off = _medians(results, shape, ON), _medians(results, shape, OFF)
    less = 1 - on[1] / off[1] if off[1] else 0.0
    return [
        shape,
        f"{on[0]:g}",
        f"{off[0]:g}",
        f"{on[1]:.1f}",
        f"{off[1]:.1f}",
        f"{less:.0%}",
        met(less >= TARGET),
        f"{on[2]:,.0f}",
        f"{off[2]:,.0f}",
        f"{1 - on[2] / off[2]:.0%}",
    ]


LIMITS = (
    "What limits it: a process decodes a file of changes once and keeps it, whoever asks, so with the switch off the second read of",
    "the source costs next to nothing. What both sides pay is decoding, and the reads of stream tables in the middle, which one",
    "table each reads anyway. Reading is a few hundredths of a tick; what sharing saves in number grows with the tables that read a",
    "source.",
)


def _checked(results: Results) -> str:
    wrong = [f"{name} ({side})" for side, names in results["wrong"].items() for name in names]
    return f"{verified_text(wrong)} {'Both sides hold the same rows.' if results['same'] else '**The sides differ.**'}"


def main() -> int:
    """Run the benchmark and print, or write, the page."""
    parser = parser_of(__doc__, "diamond_fanout", repeats=REPEATS, warm_up=WARM_UP)
    parser.add_argument("--rows", type=int, default=ROWS, help=f"rows inserted between two ticks ({ROWS:,})")
    parser.add_argument("--base-rows", type=int, default=BASE_ROWS, help=f"rows that are there before ({BASE_ROWS:,})")
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    return finished(parser.parse_args(), measure, page)


if __name__ == "__main__":
    sys.exit(main())
