"""A prepared query gives what the text gives, over whatever rows it is given, and is planned once: when it comes again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headwater.engine import worker as worker_module
from headwater.engine.prepared import PreparedQuery
from headwater.engine.worker import Worker, arrow_schema
from headwater.errors import EvaluationError
from headwater.model.schema import Field

FIELDS = (Field("g", "STRING"), Field("x", "BIGINT"))


@pytest.fixture
def worker(spark: SparkSession) -> Iterator[Worker]:
    made = Worker(spark.newSession())
    made.size_for(1)
    yield made
    made.release()


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were planned."""
    texts: list[str] = []

    class Counted(PreparedQuery):
        def __init__(self, session: Any, internals: Any, text: str, inputs: Any, *, in_one: bool) -> None:
            texts.append(text)
            super().__init__(session, internals, text, inputs, in_one=in_one)

    monkeypatch.setattr(worker_module, "PreparedQuery", Counted)
    return texts


def rows(*values: tuple[str | None, int | None]) -> pa.Table:
    return pa.Table.from_pylist([{"g": g, "x": x} for g, x in values], schema=arrow_schema(FIELDS))


def run(worker: Worker, text: str, *tables: pa.Table) -> list[tuple[Any, ...]]:
    """Run `text` with {0}, {1}... standing for the tables, as a new user of the worker."""
    worker.release()
    names = [worker.relation(t, FIELDS) for t in tables]
    found = worker.collected(text.format(*names))
    return sorted((tuple(r.values()) for r in found.to_pylist()), key=repr)


def test_one_plan_serves_all_rows(worker: Worker, planned: list[str]) -> None:
    text = "SELECT g, sum(x) AS s, count(*) AS n FROM (SELECT * FROM {0} UNION ALL SELECT * FROM {1}) GROUP BY g"
    assert run(worker, text, rows(("a", 1), ("b", 2)), rows(("a", 3))) == [("a", 4, 2), ("b", 2, 1)]
    assert run(worker, text, rows(("c", 7)), rows()) == [("c", 7, 1)]
    assert run(worker, text, rows(), rows()) == []
    assert run(worker, text, rows((None, None)), rows((None, 5), ("c", None))) == [("c", None, 1), (None, 5, 2)]
    many = rows(*(("a", i) for i in range(3000)))
    assert run(worker, text, many, many) == [("a", 3000 * 2999, 6000)]
    assert len(planned) == 1


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a.g, a.x + b.x AS x FROM {0} a JOIN {0} b ON a.x = b.x",
        "SELECT g, x FROM {0} WHERE x > (SELECT avg(x) FROM {0})",
        "SELECT g, x, row_number() OVER (PARTITION BY g ORDER BY x) AS i FROM {0}",
        "SELECT g, inline(array(struct(x AS y, 1 AS one), struct(-x AS y, 2 AS one))) FROM {0}",
        "SELECT g, x FROM {0} UNION ALL SELECT 'constant', 1 UNION ALL SELECT g, x FROM VALUES ('v', 2L) AS t(g, x)",
        "SELECT g, grouping_id() AS i, max(x) AS x FROM {0} GROUP BY CUBE (g)",
        "SELECT count(*) AS n, min_by(x, x, 2) AS low FROM {0}",
        "SELECT /*+ BROADCAST(b) */ a.g FROM {0} a LEFT ANTI JOIN (SELECT * FROM {0} WHERE x > 2) b ON a.x = b.x",
    ],
)
def test_shapes_give_what_the_text_gives_again_and_again(worker: Worker, text: str) -> None:
    for given in (rows(("a", 1), ("a", 2), ("b", 3)), rows(), rows(("z", 9), (None, None), ("z", 9))):
        worker.release()
        name = worker.relation(given, FIELDS)
        expected = worker.to_arrow(worker.sql(text.format(name))).to_pylist()
        assert run(worker, text, given) == sorted((tuple(r.values()) for r in expected), key=repr)


def test_what_reads_files_is_planned_each_time(worker: Worker, planned: list[str], tmp_path: Any) -> None:
    worker.from_arrow(rows(("f", 4)), FIELDS).write.parquet(str(tmp_path / "files"))
    view = worker.view(worker.read_parquet([str(tmp_path / "files")], FIELDS))
    name = worker.relation(rows(("a", 1)), FIELDS)
    found = worker.collected(f"SELECT g, x FROM {view} UNION ALL SELECT g, x FROM {name}")
    assert sorted(found.column("g").to_pylist()) == ["a", "f"]
    assert planned == []


def test_files_that_are_read_whole_are_inputs_too(worker: Worker, planned: list[str], tmp_path: Any) -> None:
    text = "SELECT g, sum(x) AS s FROM (SELECT g, x FROM {0} UNION ALL SELECT g, x FROM {1}) GROUP BY g"
    for number in range(3):
        worker.release()
        path = str(tmp_path / f"files{number}")
        worker.from_arrow(rows(("f", number), ("a", 10)), FIELDS).write.parquet(path)
        names = [worker.relation(worker.read_parquet([path], FIELDS), FIELDS), worker.relation(rows(("a", 1)), FIELDS)]
        found = worker.collected(text.format(*names)).to_pylist()
        assert sorted((r["g"], r["s"]) for r in found) == [("a", 11), ("f", number)]
        assert sorted(r.g for r in worker.sql(f"SELECT g FROM {names[0]}").collect()) == ["a", "f"]
    assert len(planned) == 1


def test_another_spark_with_other_classes_plans_each_time(
    worker: Worker, spark: SparkSession, planned: list[str]
) -> None:
    jvm: Any = spark._jvm
    worker._internals.local_scan = jvm.org.apache.spark.sql.execution.NoSuchScanExec
    for number in (1, 2):
        assert run(worker, "SELECT sum(x) AS s FROM {0}", rows(("a", number))) == [(number,)]
    assert set(worker._prepared.values()) == {None}
    assert len(planned) == 1


def test_large_inputs_are_not_handed_over_through_the_plan(worker: Worker, planned: list[str]) -> None:
    wide = rows(*(("x" * 10_000, i) for i in range(1000)))
    assert run(worker, "SELECT count(g) AS n, sum(length(g)) AS s FROM {0}", wide) == [(1000, 10_000_000)]
    assert planned == []


def test_settings_make_a_plan_of_their_own(worker: Worker, planned: list[str]) -> None:
    text = "SELECT CAST(g AS INT) AS i FROM {0}"
    worker.configure({"spark.sql.ansi.enabled": "false"})
    for _ in range(2):
        assert run(worker, text, rows(("12", 1), ("no", 1))) == [(12,), (None,)]
    worker.configure({"spark.sql.ansi.enabled": "true"})
    assert run(worker, text, rows(("12", 1))) == [(12,)]
    with pytest.raises(EvaluationError, match="CAST_INVALID_INPUT"):
        run(worker, text, rows(("no", 1)))
    assert run(worker, text, rows(("13", 1))) == [(13,)]
    assert len(planned) == 2


def test_an_error_in_the_text_is_reported_as_such(worker: Worker, planned: list[str]) -> None:
    for times in range(3):
        with pytest.raises(EvaluationError, match="HW503"):
            run(worker, "SELECT raise_error(concat('[HW503] ', g)) AS e FROM {0}", rows(("a", 1)))
        assert len(planned) == min(times, 1)


def test_results_of_any_size_come_whole(worker: Worker, planned: list[str]) -> None:
    """Nothing, a row, and more than one batch of Arrow."""
    many = pa.table({"g": pa.nulls(25_000, pa.string()), "x": pa.array(range(25_000), pa.int64())})
    run(worker, "SELECT x FROM {0} WHERE x >= 0", many)
    for given in (many, rows(), rows(("a", -1)), rows(("a", 7)), many):
        wanted = sorted((x,) for x in given.column("x").to_pylist() if x >= 0)
        assert sorted(run(worker, "SELECT x FROM {0} WHERE x >= 0", given)) == wanted
    assert len(planned) == 1


def test_the_users_session_stays_the_active_one(worker: Worker, spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    active = jvm.org.apache.spark.sql.classic.SparkSession
    active.setActiveSession(spark._jsparkSession)
    run(worker, "SELECT sum(x) AS s FROM {0}", rows(("a", 1)))
    run(worker, "SELECT sum(x) AS s FROM {0}", rows(("a", 1)))
    assert active.getActiveSession().get().equals(spark._jsparkSession)


def test_few_plans_are_kept(spark: SparkSession, planned: list[str]) -> None:
    worker = Worker(spark.newSession(), kept_plans=2)
    worker.size_for(1)
    for number in (1, 1, 2, 2, 1, 3, 3):
        run(worker, f"SELECT x + {number} AS y FROM {{0}}", rows(("a", 1)))
    assert len(worker._prepared) == 2
    assert len(planned) == 3
    for _ in range(2):
        run(worker, "SELECT x + 2 AS y FROM {0}", rows(("a", 1)))
    assert len(planned) == 4
    worker.release()


def test_a_text_that_comes_once_is_not_prepared(worker: Worker, planned: list[str]) -> None:
    assert run(worker, "SELECT x + 1 AS y FROM {0}", rows(("a", 1))) == [(2,)]
    assert planned == []
    assert run(worker, "SELECT x + 1 AS y FROM {0}", rows(("a", 2))) == [(3,)]
    assert len(planned) == 1


def test_an_input_that_another_text_made_a_view_of_is_an_input_still(worker: Worker, planned: list[str]) -> None:
    for turn in range(4):
        worker.release()
        name = worker.relation(rows(("a", turn)), FIELDS)
        seen = worker.to_arrow(worker.sql(f"SELECT x * {turn} AS y FROM {name}"))  # another text each time
        assert worker.collected(f"SELECT x + 1 AS y FROM {name}").to_pydict() == {"y": [turn + 1]}
        again = worker.to_arrow(worker.sql(f"SELECT x * {turn} AS y FROM {name}"))
        assert seen.to_pydict() == again.to_pydict() == {"y": [turn * turn]}
    assert len(planned) == 1


VALUES: list[tuple[str, list[Any]]] = [
    ("BOOLEAN", [True, False, None]),
    ("TINYINT", [-128, 127, None]),
    ("FLOAT", [1.5, float("inf"), None]),
    ("DOUBLE", [-0.0, 1e300, None]),
    ("DECIMAL(38, 10)", [Decimal("9" * 28 + ".0123456789"), Decimal("-0.0000000001"), None]),
    ("STRING", ["", "ü\x00'\"${x}", None]),
    ("STRING COLLATE UTF8_LCASE", ["Ab", "aB", None]),
    ("BINARY", [b"", b"\x00\xff", None]),
    ("DATE", [date(1, 1, 1), date(9999, 12, 31), None]),
    ("TIMESTAMP", [datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), datetime(2026, 3, 29, 1, 30, tzinfo=UTC), None]),
    ("TIMESTAMP_NTZ", [datetime(2026, 3, 29, 2, 30), datetime(1582, 10, 15), None]),
    ("ARRAY<STRUCT<a: INT, b: STRING>>", [[], [{"a": None, "b": "x"}, None], None]),
    ("MAP<STRING, DECIMAL(5, 2)>", [[("k", Decimal("1.50"))], [], None]),
    ("STRUCT<d: DATE, t: TIMESTAMP>", [{"d": None, "t": datetime(2026, 1, 1, tzinfo=UTC)}, None]),
]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[k for k, _ in VALUES])
def test_values_of_every_type_arrive_unchanged(worker: Worker, kind: str, values: list[Any]) -> None:
    worker.configure({"spark.sql.session.timeZone": "America/New_York"})
    fields = (Field("i", "INT"), Field("v", kind))
    schema = arrow_schema(fields)
    numbers = pa.array(range(len(values)), pa.int32())
    table = pa.Table.from_arrays([numbers, pa.array(values, schema.field("v").type)], schema=schema)
    for _ in range(2):
        worker.release()
        text = f"SELECT i, v FROM {worker.relation(table, fields)} WHERE i >= 0"
        found = worker.collected(text).sort_by("i")
        assert found.column("v").to_pylist() == values
        assert found.column("v").type == table.column("v").type
    assert list(map(type, worker._prepared.values())) == [PreparedQuery]


JOINS = {
    "inner": "SELECT l.g, l.x + r.x AS s FROM {0} l JOIN {1} r ON l.g = r.g",
    "broadcast": "SELECT /*+ BROADCAST(l) */ l.g, l.x + r.x AS s FROM {0} l JOIN {1} r ON l.g = r.g",
    "left": "SELECT l.g, l.x, r.x AS y FROM {0} l LEFT JOIN {1} r ON l.g = r.g",
    "full": "SELECT l.g, l.x, r.x AS y FROM {0} l FULL JOIN {1} r ON l.g = r.g",
    "semi": "SELECT /*+ BROADCAST(r) */ l.g, l.x FROM {0} l LEFT SEMI JOIN {1} r ON l.g <=> r.g",
    "anti": "SELECT /*+ BROADCAST(r) */ l.g, l.x FROM {0} l LEFT ANTI JOIN {1} r ON l.g <=> r.g",
    "cross": "SELECT l.g, r.x FROM {0} l CROSS JOIN {1} r",
    "range": "SELECT l.g, r.x FROM {0} l LEFT JOIN {1} r ON l.x < r.x",
    "union below a join": "SELECT u.g, u.x, r.x AS y FROM (SELECT * FROM {0} UNION ALL SELECT * FROM {1}) u JOIN {1} r ON u.g = r.g",
    "groups of a union": "SELECT g, sum(x) AS s, count(*) AS n FROM (SELECT * FROM {0} UNION ALL SELECT * FROM {1}) GROUP BY g",
    "one group": "SELECT count(*) AS n, sum(x) AS s FROM (SELECT * FROM {0} UNION ALL SELECT * FROM {1})",
    "window": "SELECT g, x, row_number() OVER (PARTITION BY g ORDER BY x) AS n FROM (SELECT * FROM {0} UNION ALL SELECT * FROM {1})",
}


@pytest.mark.parametrize("text", JOINS.values(), ids=JOINS)
@pytest.mark.parametrize("in_files", [False, True])
def test_inputs_in_one_part_give_what_the_text_gives(
    worker: Worker, planned: list[str], text: str, in_files: bool, spark: SparkSession
) -> None:
    """Nothing is exchanged between parts that are planned as one: if one of them came in two, rows would not meet."""
    cases = [
        (rows(("a", 1), ("b", 2), (None, 3)), rows(("a", 3), ("c", 4), (None, 5), ("a", 9))),
        (rows(("a", 1), ("a", 2)), rows(("a", -1))),
        (rows(), rows(("a", 3), ("b", 1))),
        (rows(("a", 1), ("b", 2)), rows()),
        (rows(), rows()),
    ]
    for left, right in [cases[0], *cases]:
        plain = spark.newSession()
        for name, table in (("l0", left), ("r0", right)):
            plain.createDataFrame(table.to_pylist(), "g STRING, x BIGINT").repartition(3).createOrReplaceTempView(name)
        expected = sorted((tuple(r) for r in plain.sql(text.format("l0", "r0")).collect()), key=repr)
        worker.release()
        given: list[Any] = [left, right]
        if in_files:
            given[1] = worker.session.createDataFrame(right.to_pylist(), "g STRING, x BIGINT").repartition(3)
        names = [worker.relation(t, FIELDS) for t in given]
        found = worker.collected(text.format(*names))
        assert sorted((tuple(r.values()) for r in found.to_pylist()), key=repr) == expected
    assert len(planned) == 1
