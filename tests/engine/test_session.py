"""The embedded session, adopted sessions, and the job counter."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.engine import session as session_module
from headwater.engine.session import (
    adopt_session,
    counting_jobs,
    default_memory,
    machine_memory,
    session_config,
    spark_version,
    start_session,
)
from headwater.errors import SparkUnavailableError
from headwater.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_python(code: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("HEADWATER_")} | environ
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, env=env, capture_output=True, text=True, timeout=180)


def test_settings_of_the_session(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    assert conf.get("spark.scheduler.mode") == "FAIR"
    assert conf.get("spark.ui.enabled") == "false"
    assert conf.get("spark.driver.host") == "localhost"
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
    assert spark.conf.get("spark.sql.sources.parallelPartitionDiscovery.threshold") == "10000"


def test_a_second_start_is_a_new_session_over_the_same_context(spark: SparkSession) -> None:
    second = start_session(Settings())
    assert second.sparkContext is spark.sparkContext
    second.range(1).createOrReplaceTempView("only_in_second")
    assert not spark.catalog.tableExists("only_in_second")
    second.catalog.dropTempView("only_in_second")


def test_adopt_accepts_a_classic_session(spark: SparkSession) -> None:
    assert adopt_session(spark) is spark


def test_adopt_refuses_spark_connect() -> None:
    # The class that Spark Connect returns, without the server it would need.
    connect = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(SparkUnavailableError, match="Spark Connect session cannot be used") as caught:
        adopt_session(connect)
    assert "classic" in (caught.value.hint or "")


def test_adopt_refuses_what_is_no_session() -> None:
    with pytest.raises(SparkUnavailableError, match="not a Spark session"):
        adopt_session("local[2]")  # type: ignore[arg-type]


def test_adopt_refuses_an_old_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "OLDEST_SPARK", (99, 0))
    with pytest.raises(SparkUnavailableError, match="too old") as caught:
        adopt_session(spark)
    assert "99.0" in (caught.value.detail or "")


@pytest.mark.parametrize(
    ("text", "version"), [("4.3.0", (4, 3)), ("4.1.0-preview1", (4, 1)), ("3.5.6", (3, 5)), ("?", (0, 0))]
)
def test_spark_version(text: str, version: tuple[int, int]) -> None:
    assert spark_version(text) == version


def test_memory_is_half_between_one_and_eight_gigabytes() -> None:
    gib = 1 << 30
    assert default_memory(gib) == "1024m"
    assert default_memory(6 * gib) == "3072m"
    assert default_memory(64 * gib) == "8192m"
    assert machine_memory() > gib // 2


def test_session_config_follows_the_settings(tmp_path: Path) -> None:
    config = session_config(Settings(spark_memory="3g", shuffle_partitions=5), tmp_path, cores=4)
    assert config["spark.driver.memory"] == "3g"
    assert config["spark.sql.shuffle.partitions"] == "5"
    assert session_config(Settings(), tmp_path, cores=16)["spark.sql.shuffle.partitions"] == "32"
    assert "spark.sql.session.timeZone" not in config


def test_a_hash_table_takes_a_small_page(spark: SparkSession) -> None:
    assert spark.sparkContext.getConf().get("spark.buffer.pageSize") == "1m"


def test_counting_jobs(spark: SparkSession) -> None:
    with counting_jobs(spark) as nothing:
        spark.sql("SELECT 1 AS a").schema  # noqa: B018
    assert nothing.count == 0
    with counting_jobs(spark) as one:
        spark.range(10).collect()
    assert one.count == 1
    with counting_jobs(spark) as outer:
        spark.range(10).collect()
        with counting_jobs(spark) as inner:
            spark.range(10).collect()
    assert (outer.count, inner.count) == (2, 1)


def test_counting_jobs_ignores_other_threads(spark: SparkSession) -> None:
    def other() -> None:
        for _ in range(3):
            spark.range(10).collect()

    thread = threading.Thread(target=other)
    with counting_jobs(spark) as mine:
        thread.start()
        spark.range(10).collect()
        thread.join()
    assert mine.count == 1


def test_counting_jobs_counts_jobs_that_fail(spark: SparkSession) -> None:
    with counting_jobs(spark) as failed, pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        spark.sql("SELECT 1 / (id - id) FROM range(3)").collect()
    assert failed.count == 1


def test_counting_jobs_costs_little(spark: SparkSession) -> None:
    durations = []
    for _ in range(50):
        begun = time.perf_counter()
        with counting_jobs(spark):
            pass
        durations.append(time.perf_counter() - begun)
    assert sorted(durations)[25] < 0.02


def test_importing_the_session_module_imports_no_pyspark(tmp_path: Path) -> None:
    ran = run_python("import sys, headwater.engine.session; assert 'pyspark' not in sys.modules", tmp_path)
    assert ran.returncode == 0, ran.stderr


START = """
from headwater.engine.session import start_session
from headwater.settings import Settings
s = start_session(Settings(), config={"spark.master": "local[1]"})
try:
    s.sql("SELECT nothing FROM range(3)")
except Exception:
    pass
try:
    s.sql("SELECT 1 / (id - id) FROM range(3)").collect()
except Exception:
    pass
print(s.range(10).count(), s.conf.get("spark.sql.session.timeZone"))
s.stop()
"""


@pytest.mark.slow
def test_a_start_prints_nothing_and_leaves_no_files(tmp_path: Path) -> None:
    cwd, tmp = tmp_path / "a cwd", tmp_path / "a tmp"
    cwd.mkdir()
    tmp.mkdir()
    ran = run_python(START, cwd, TMPDIR=str(tmp), TZ="Asia/Tokyo")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "10 Asia/Tokyo"
    assert ran.stderr == ""
    assert list(cwd.iterdir()) == []
    assert [p.name for p in tmp.iterdir() if p.name.startswith("headwater-spark-")] == []


def test_a_java_process_that_dies_is_explained(tmp_path: Path) -> None:
    code = (
        "from headwater.engine.session import start_session; from headwater.settings import Settings\n"
        "from headwater.errors import SparkUnavailableError\n"
        "try:\n    start_session(Settings(spark_memory='1m'))\n"
        "except SparkUnavailableError as e:\n    print(e)\n"
    )
    ran = run_python(code, tmp_path)
    assert "its Java process ended at once" in ran.stdout, ran.stderr
    assert "heap" in ran.stdout
    assert ran.stderr == ""
