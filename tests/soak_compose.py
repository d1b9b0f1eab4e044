"""Random compositions of all operators until time is up: `python -m tests.soak_compose`.

    python -m tests.soak_compose --minutes 30 --seed 5000
    python -m tests.soak_compose --queries 200 --corpus tests/scenarios/compositions
    python -m tests.soak_compose --replay 5017.3

Each seed is a family: several queries over the same tables, which change once for all of them. A failing query is made small with
tables of its own, printed, and stored as JSON in the directory given by --corpus, where `tests/scenarios/test_composition.py` runs it
for ever. The exit status is 1 if any was wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from tests.support.compositions import (
    Composition,
    CompositionTally,
    Failures,
    Family,
    random_family,
    run_composition,
    run_family,
)
from tests.support.corpus import load, save
from tests.support.oracle import interpreted
from tests.support.simplify import shrunk

import headwater as hw
from headwater.engine.session import start_session
from headwater.settings import Settings

WIDTH = 8
"""Queries of a family."""


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    config = {"spark.master": "local[2]", "spark.sql.session.timeZone": "UTC"}
    spark = start_session(Settings(shuffle_partitions=2, spark_memory="2g"), config=config)
    with nullcontext() if options.compiled else interpreted(spark):
        status = _replay(spark, options) if options.replay else _soak(spark, options)
    spark.stop()
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.soak_compose", description=__doc__.splitlines()[0])
    minutes = float(os.environ.get("SOAK_MINUTES", "10"))
    parser.add_argument("--minutes", type=float, default=minutes, help="how long to run (default: SOAK_MINUTES, or 10)")
    parser.add_argument("--queries", type=int, default=0, help="stop after this many queries")
    seed = int(os.environ.get("SOAK_SEED", "1000"))
    parser.add_argument("--seed", type=int, default=seed, help="the first seed (default: SOAK_SEED, or 1000)")
    parser.add_argument(
        "--compiled", action="store_true", help="let Spark compile its queries to Java, as in production"
    )
    parser.add_argument("--no-shrink", action="store_true", help="print failing compositions whole")
    parser.add_argument("--tries", type=int, default=80, help="runs to make a failing composition small (default: 80)")
    parser.add_argument("--report", type=Path, help="append failing compositions to this file")
    parser.add_argument("--corpus", type=Path, help="store failing compositions in this directory, as JSON")
    parser.add_argument(
        "--replay", help="run one query alone: seed and number in its family, as in 5017.3, or a JSON file"
    )
    return parser


def _run_family(spark: Any, family: Family) -> tuple[CompositionTally, Failures]:
    with (
        tempfile.TemporaryDirectory(prefix="headwater-compose-") as directory,
        hw.connect(Path(directory) / "warehouse", spark=spark) as wh,
    ):
        return run_family(wh, spark.newSession(), family)


def _run(spark: Any, composition: Composition) -> CompositionTally:
    with (
        tempfile.TemporaryDirectory(prefix="headwater-compose-") as directory,
        hw.connect(Path(directory) / "warehouse", spark=spark) as wh,
    ):
        return run_composition(wh, spark.newSession(), composition)


def _fails(spark: Any, kind: type[Exception]) -> Callable[[Composition], bool]:
    def fails(composition: Composition) -> bool:
        try:
            _run(spark, composition)
        except Exception as error:
            return type(error) is kind
        return False

    return fails


def _soak(spark: Any, options: argparse.Namespace) -> int:
    total, wrong = CompositionTally(), []
    ends = time.monotonic() + 60 * options.minutes
    seed = options.seed
    while time.monotonic() < ends and (not options.queries or total.queries < options.queries):
        began = time.monotonic()
        done, failures = _run_family(spark, random_family(seed, WIDTH))
        total.add(done)
        print(f"family {seed}, {time.monotonic() - began:.1f} s: {done}", flush=True)
        for composition, error in failures:
            wrong.append(composition.name.removeprefix("seed "))
            _report(spark, composition, error, options)
        seed += 1
    print(f"{total}; wrong: {len(wrong)}, {', '.join(wrong) or 'none'}")
    return 1 if wrong else 0


def _report(spark: Any, composition: Composition, error: Exception, options: argparse.Namespace) -> None:
    kind = type(error).__name__
    print(f"{composition.name}: {kind}: {error}", flush=True)
    found = f"{kind}, found as {composition.name}"
    if not options.no_shrink:
        composition = shrunk(composition, _fails(spark, type(error)), tries=options.tries)
    directory = options.corpus or Path(tempfile.gettempdir()) / "headwater-compositions"
    path = directory / f"{composition.name.replace(' ', '_').replace('.', '_')}.json"
    save(composition, path, found)
    text = f"{found}\n{path.read_text()}replay: python -m tests.soak_compose --replay {path}\n"
    print(text, flush=True)
    if options.report:
        with options.report.open("a") as file:
            file.write(f"{text}{error}\n\n")


def _replay(spark: Any, options: argparse.Namespace) -> int:
    composition = _named(options.replay)
    print(composition.sql)
    try:
        print(_run(spark, composition))
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def _named(given: str) -> Composition:
    seed, _, number = given.partition(".")
    if not (seed.isdigit() and number.isdigit()):
        return load(Path(given))
    return random_family(int(seed), int(number) + 1)[-1].alone()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
