"""Kill a loaded process at random instants, many times, and check after each death.

    python -m tests.soak_kill --count 200              children share the JVM of this process
    python -m tests.soak_kill --count 20 --own-spark   each child has a Spark of its own and dies with it
    python -m tests.soak_kill --first 137 --count 1    the steps and the delay of one seed again

Every seed fixes the steps and the delay before the kill. After a failure the warehouse stays, and its path is printed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

from tests.support.children import nursery
from tests.support.crash import Survivor

from headwater.engine.session import start_session
from headwater.settings import Settings

FRESH_EVERY = 25
"""After so many deaths a new warehouse: a failure is then not far from its cause."""


def main() -> None:
    """Run the deaths that the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=200, help="how many deaths")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--longest", type=float, default=6.0, help="seconds until a kill, at most")
    parser.add_argument("--own-spark", action="store_true", help="a JVM per child, killed with it")
    given = parser.parse_args()
    spark = start_session(
        Settings(shuffle_partitions=2, spark_memory="2g"),
        config={"spark.master": "local[2]", "spark.sql.session.timeZone": "UTC"},
    )
    began = time.monotonic()
    here = Path(tempfile.mkdtemp(prefix="headwater-soak-"))
    with nullcontext() if given.own_spark else nursery(spark, here) as children:
        for number, seed in enumerate(range(given.first, given.first + given.count)):
            if number % FRESH_EVERY == 0:
                survivor = Survivor(here / f"from-{seed}" / "bank", spark)
                survivor.path.parent.mkdir()
                survivor.create()
            delay = random.Random(seed).uniform(0.05, given.longest)
            try:
                survivor.die_under_load(seed, delay, children)
                survivor.check()
            except BaseException:
                print(f"seed {seed}, killed after {delay:.2f} s, warehouse {survivor.path}")
                raise
            done = sum("done" in e for e in survivor.journal.entries())
            print(f"seed {seed}: killed after {delay:.2f} s and {done} steps, all there", flush=True)
    shutil.rmtree(here)
    spark.stop()
    print(f"{given.count} deaths survived in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
