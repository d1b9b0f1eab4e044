"""Random cases until time is up: `python -m tests.soak`, or `make soak`.

    SOAK_MINUTES=30 make soak
    python -m tests.soak --seed 5000 --refreshes 2000
    python -m tests.soak --replay 5017 --operations 0.0,3.1 --streams s2:0/1

A failing case is made small and printed with the command that replays it. The exit status is 1 if any case failed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from tests.support.generate import Case, random_case
from tests.support.oracle import Tally, WrongResultError, interpreted, run_case, settings_for
from tests.support.shrink import Cut, described, shrunk

import headwater as hw
from headwater.engine.session import start_session
from headwater.settings import Settings


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    config = {"spark.master": "local[2]", "spark.sql.session.timeZone": "UTC"}
    spark = start_session(Settings(shuffle_partitions=2, spark_memory="2g"), config=config)
    with nullcontext() if options.compiled else interpreted(spark):
        status = _replay(spark, options) if options.replay is not None else _soak(spark, options)
    spark.stop()
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.splitlines()[0])
    minutes = float(os.environ.get("SOAK_MINUTES", "10"))
    parser.add_argument("--minutes", type=float, default=minutes, help="how long to run (default: SOAK_MINUTES, or 10)")
    parser.add_argument("--refreshes", type=int, default=0, help="stop after this many refreshes")
    seed = int(os.environ.get("SOAK_SEED", "1000"))
    parser.add_argument("--seed", type=int, default=seed, help="the first seed (default: SOAK_SEED, or 1000)")
    parser.add_argument(
        "--every", type=int, default=1, help="take each so many-th seed (--seed 7 --every 12: small memories)"
    )
    parser.add_argument(
        "--compiled", action="store_true", help="let Spark compile its queries to Java, as in production"
    )
    parser.add_argument("--no-shrink", action="store_true", help="print failing cases whole")
    parser.add_argument("--report", type=Path, help="append failing cases to this file")
    parser.add_argument("--replay", type=int, help="run the case of this seed alone")
    parser.add_argument(
        "--operations", default="", help="of the replayed case: step.position of each operation to keep"
    )
    parser.add_argument("--streams", default="", help="of the replayed case: name:items of each stream table to keep")
    return parser


def _run(spark: Any, case: Case) -> Tally:
    with (
        tempfile.TemporaryDirectory(prefix="headwater-soak-") as directory,
        hw.connect(Path(directory) / "warehouse", spark=spark, settings=settings_for(case)) as wh,
    ):
        return run_case(wh, case)


def _fails(spark: Any, kind: type[Exception]) -> Callable[[Case], bool]:
    def fails(case: Case) -> bool:
        try:
            _run(spark, case)
        except Exception as error:
            return type(error) is kind
        return False

    return fails


def _soak(spark: Any, options: argparse.Namespace) -> int:
    total, failed = Tally(), []
    ends = time.monotonic() + 60 * options.minutes
    seed = options.seed
    while time.monotonic() < ends and (not options.refreshes or total.refreshes < options.refreshes):
        try:
            total.add(_run(spark, random_case(seed)))
            print(f"seed {seed}: fine; {total.refreshes} refreshes, {total.changed} changed their table", flush=True)
        except Exception as error:
            failed.append(seed)
            _report(spark, seed, error, options)
        seed += options.every
    print(
        f"{total.cases} cases, {total.refreshes} differential refreshes, {total.changed} of them changed the table, "
        f"{total.nonempty} comparisons with a result that was not empty, {total.rescanned} refreshes read groups again, "
        f"{total.idle} refreshes had nothing to do, {total.verified} verified; failed seeds: {failed or 'none'}"
    )
    return 1 if failed else 0


def _report(spark: Any, seed: int, error: Exception, options: argparse.Namespace) -> None:
    case = random_case(seed)
    print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
    cut = Cut.whole(case)
    if not options.no_shrink:
        culprit = error.stream.name if isinstance(error, WrongResultError) and error.stream else None
        cut = shrunk(case, _fails(spark, type(error)), culprit)
    text = f"case {seed}, {type(error).__name__}\n{described(cut.of(case))}\nreplay: python -m tests.soak --replay {seed} {cut.arguments}\n"
    print(text, flush=True)
    if options.report:
        with options.report.open("a") as file:
            file.write(f"{text}{error}\n\n")


def _replay(spark: Any, options: argparse.Namespace) -> int:
    case = random_case(options.replay)
    if options.operations or options.streams:
        whole, given = Cut.whole(case), Cut.parse(options.operations, options.streams)
        case = Cut(given.operations or whole.operations, given.streams or whole.streams).of(case)
    print(described(case))
    try:
        print(_run(spark, case))
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
