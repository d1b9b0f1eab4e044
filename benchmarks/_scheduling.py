"""What the benchmarks of the scheduler share: warehouses side by side, ticks with what they read, and the command around them."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
from rich.console import Console

import headwater as hw
from benchmarks._tpch import Progress, save

Results = dict[str, Any]

SCHEDULE = "1s"
SCHEDULE_SECONDS = 1.0
"""The schedule of every stream table whose ticks are timed: a tick begins when all of them are due again, and waiting is not timed."""
_MARGIN = 0.05
SETTINGS: Mapping[str, Any] = {"auto_backoff": False}
"""A stream table that takes long would be due less often, and a tick would refresh less than it is meant to."""

COLUMNS = "id BIGINT, customer INT, product INT, region STRING, amount BIGINT"
CUSTOMERS, PRODUCTS, REGIONS = 1_000, 500, 20
_PRIME = 2_654_435_761


def rows_of(first: int, count: int, salt: int = 0) -> pa.Table:
    """Return rows with the keys from `first` on, always the same for the same arguments."""
    ids = np.arange(first, first + count, dtype=np.int64)
    mixed = (ids + salt * 7_919) * _PRIME % (1 << 32)
    regions = np.array([f"region {i}" for i in range(REGIONS)])
    return pa.table(
        {
            "id": ids,
            "customer": (mixed % CUSTOMERS).astype(np.int32),
            "product": (mixed // CUSTOMERS % PRODUCTS).astype(np.int32),
            "region": regions[mixed // 7 % REGIONS],
            "amount": mixed // 11 % 10_000,
        }
    )


# sides ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ticked:
    """One timed tick: how many tables it refreshed, and by table how often its changes were read and how long that took."""

    ms: float
    refreshed: int
    counts: Mapping[str, int]
    times: Mapping[str, float]

    @property
    def reads(self) -> int:
        return sum(self.counts.values())

    def as_dict(self) -> Results:
        found = {"ms": self.ms, "refreshed": self.refreshed, "reads": self.reads, "read_ms": sum(self.times.values())}
        return {**found, "counts": dict(self.counts), "times": dict(self.times)}


class Side:
    """A warehouse with settings of its own and a scheduler; sides of one benchmark share the Spark session."""

    def __init__(self, label: str, directory: Path, settings: Mapping[str, Any]) -> None:
        self.label = label
        self._stack = ExitStack()
        self.wh = self._stack.enter_context(hw.connect(directory, settings={**SETTINGS, **settings}))
        self.scheduler = self._stack.enter_context(self.wh.scheduler())
        self._ended = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def wait_until_due(self) -> None:
        """Wait until every stream table that the last tick refreshed is due again."""
        time.sleep(max(0.0, self._ended + SCHEDULE_SECONDS + _MARGIN - time.monotonic()))

    def tick(self, expected: int) -> Ticked:
        """Time one tick, which must refresh `expected` tables, and none of them in vain."""
        self.wait_until_due()
        reads = self.wh._ground.reader.change_reads
        counts, times = reads.counts(), reads.milliseconds()
        began = time.perf_counter()
        report = self.scheduler.tick()
        ms = (time.perf_counter() - began) * 1000
        self._ended = time.monotonic()
        if report.failed or len(report.refreshed) != expected:
            raise RuntimeError(
                f"{self.label}: a tick refreshed {len(report.refreshed)} of {expected} stream tables; "
                f"failed: {report.failed[:3]}, skipped: {report.skipped[:3]}"
            )
        return Ticked(ms, expected, self._grown(counts, reads.counts()), self._grown(times, reads.milliseconds()))

    def _grown(self, before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, Any]:
        """Return by how much figures have grown, by the names of their tables."""
        tables = self.wh.snapshot().tables
        return {tables[i].name: n - before.get(i, 0) for i, n in after.items() if n != before.get(i, 0)}


def alternated(sides: Sequence[Side], turn: int) -> Sequence[Side]:
    """Return the sides in the order of a turn: each is the first one equally often."""
    first = turn % len(sides)
    return [*sides[first:], *sides[:first]]


def wrong_tables(wh: hw.Warehouse) -> list[str]:
    """Return the stream tables that `verify` disagrees with."""
    return [v.name for v in wh.verify() if not v.equal]


def verified_text(wrong: Sequence[str]) -> str:
    """Return what a page says of the comparison with the queries at the end."""
    if wrong:
        return f"**`verify` disagrees with {', '.join(wrong)}.**"
    return "`verify` agreed with all stream tables at the end."


# figures --------------------------------------------------------------------------------------------------------------------


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest of the values that `share` of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def met(is_met: bool) -> str:
    return "met" if is_met else "**missed**"


def table_of(head: Sequence[str], lines: Sequence[Sequence[str]], texts: int = 1) -> list[str]:
    """Return a Markdown table whose first columns, `texts` of them, are texts and whose others are figures."""
    rule = "|---" * texts + "|---:" * (len(head) - texts) + "|"
    return ["| " + " | ".join(head) + " |", rule, *("| " + " | ".join(line) + " |" for line in lines)]


# the command ----------------------------------------------------------------------------------------------------------------


def parser_of(doc: str | None, name: str, *, repeats: int, warm_up: int) -> argparse.ArgumentParser:
    """Return a parser with the options that all of the benchmarks have."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=repeats, help=f"how often each side is measured ({repeats})")
    parser.add_argument("--warm-up", type=int, default=warm_up, help=f"rounds of each side before that ({warm_up})")
    parser.add_argument("--budget", type=float, help="minutes after which nothing more is begun")
    parser.add_argument("--page", type=Path, help="write the result as Markdown to this file")
    results = Path(f"build/benchmarks/{name}.json")
    parser.add_argument("--results", type=Path, default=results, help="what was measured")
    parser.add_argument("--render", type=Path, help="measure nothing; take what was measured from this file")
    parser.add_argument("--directory", type=Path, help="where warehouses are made; a temporary directory without it")
    return parser


def finished(
    args: argparse.Namespace,
    measure: Callable[[argparse.Namespace, Path, Progress], Results],
    page: Callable[[Results], str],
) -> int:
    """Measure, or take what was measured before; write the page and print it."""
    console = Console()
    if args.render:
        results = json.loads(args.render.read_text())
    else:
        with scratch(args.directory) as root:
            results = measure(args, root, Progress(console, args.budget))
        save(args.results, results)
    text = page(results)
    if args.page:
        args.page.parent.mkdir(parents=True, exist_ok=True)
        args.page.write_text(text)
    console.print(text, markup=False, highlight=False, soft_wrap=True)
    return 0


@contextmanager
def scratch(directory: Path | None) -> Iterator[Path]:
    """Lend a directory that is gone afterwards."""
    root = Path(tempfile.mkdtemp(prefix="headwater-bench-", dir=directory))
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)
