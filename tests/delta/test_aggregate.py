"""Delta of an aggregate: old state - changes = new state, for calls with an algebra."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from tests.support.lab import Lab
from tests.support.stories import Story

import headwater as hw
from headwater.engine.worker import Worker
from headwater.errors import EvaluationError
from headwater.model.tables import RefreshAction
from headwater.refresh import evaluate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALLEST, LARGEST = -(2**63), 2**63 - 1


def test_having_group_that_rises_over_the_threshold_shows_all_its_rows(lab: Lab) -> None:
    t = lab.table("g STRING, v INT", [("a", 1), ("a", 2), ("b", 9)])
    s = lab.stream(f"SELECT g, sum(v) AS s, count(*) AS n FROM {t} GROUP BY g HAVING count(*) > 2")
    assert s.rows() == []
    lab.sql(f"INSERT INTO {t} VALUES ('a', 4)")
    assert s.follow() == [("a", 7, 3)]
    lab.sql(f"DELETE FROM {t} WHERE v = 1")
    assert s.follow() == []
    lab.sql(f"INSERT INTO {t} VALUES ('a', 10), ('b', 1), ('b', 1)")
    assert s.follow() == [("a", 16, 3), ("b", 11, 3)]


def test_global_aggregate_always_has_one_row(lab: Lab) -> None:
    t = lab.table("v INT, m DECIMAL(12,2)")
    s = lab.stream(f"SELECT count(*) AS n, sum(v) AS s, avg(m) AS a, max(v) AS x, bool_or(v > 1) AS b FROM {t}")
    assert s.rows() == [(0, None, None, None, None)]
    lab.sql(f"INSERT INTO {t} VALUES (1, 1.00), (2, 2.00)")
    assert s.follow() == [(2, 3, Decimal("1.500000"), 2, True)]
    lab.sql(f"UPDATE {t} SET m = 4 WHERE v = 2")
    assert s.follow() == [(2, 3, Decimal("2.500000"), 2, True)]
    lab.sql(f"TRUNCATE TABLE {t}")
    assert s.follow() == [(0, None, None, None, None)]


def test_global_aggregate_with_having_and_rescan(lab: Lab) -> None:
    t = lab.table("v INT")
    s = lab.stream(f"SELECT count(*) AS n FROM {t} HAVING count(*) > 1")
    c = lab.stream(f"SELECT sort_array(collect_list(v)) AS c, percentile(v, 0.5) AS p FROM {t}")
    assert (s.rows(), c.rows()) == ([], [((), None)])
    lab.sql(f"INSERT INTO {t} VALUES (1), (NULL), (3)")
    assert s.follow() == [(3,)]
    assert c.follow() == [((1, 3), 2.0)]
    lab.sql(f"DELETE FROM {t} WHERE v IS NOT NULL")
    assert s.follow() == []
    assert c.follow() == [((), None)]


def test_sum_of_nothing_is_null_and_not_zero(lab: Lab) -> None:
    t = lab.table("g STRING, v INT, m DECIMAL(12,2)", [("a", 5, Decimal(1)), ("a", None, None), ("b", None, None)])
    s = lab.stream(f"SELECT g, sum(v) AS s, sum(m) AS m, avg(v) AS a, count(v) AS n, count(*) AS r FROM {t} GROUP BY g")
    lab.sql(f"DELETE FROM {t} WHERE v = 5")
    assert s.follow() == [("a", None, None, None, 0, 1), ("b", None, None, None, 0, 1)]
    lab.sql(f"UPDATE {t} SET v = 0 WHERE g = 'b'")
    assert s.follow() == [("a", None, None, None, 0, 1), ("b", 0, None, 0.0, 1, 1)]


def test_null_group_keys_match_on_delete_and_update(lab: Lab) -> None:
    rows = [(1, None, None, 1), (2, None, 1, 2), (3, "a", None, 3), (4, None, None, 4)]
    t = lab.table("id BIGINT, g STRING, h INT, v INT", rows, key="id")
    s = lab.stream(f"SELECT g, h, sum(v) AS s, max(v) AS m FROM {t} GROUP BY g, h")
    c = lab.stream(f"SELECT g, h, sort_array(collect_list(v)) AS c FROM {t} GROUP BY g, h")
    lab.sql(f"DELETE FROM {t} WHERE id = 4")
    assert s.follow() == [(None, None, 1, 1), (None, 1, 2, 2), ("a", None, 3, 3)]
    assert c.follow() == [(None, None, (1,)), (None, 1, (2,)), ("a", None, (3,))]
    lab.sql(f"UPDATE {t} SET g = NULL, h = NULL")
    assert s.follow() == [(None, None, 6, 3)]
    assert c.follow() == [(None, None, (1, 2, 3))]
    lab.sql(f"DELETE FROM {t}")
    assert s.follow() == []
    assert c.follow() == []


def test_sum_of_case_retracts_what_the_old_row_gave(lab: Lab) -> None:
    t = lab.table("id BIGINT, p STRING, v INT", [(1, "1-URGENT", 10), (2, "2-HIGH", 20), (3, "5-LOW", 40)], key="id")
    s = lab.stream(
        f"SELECT sum(CASE WHEN p IN ('1-URGENT', '2-HIGH') THEN v ELSE 0 END) AS high, "
        f"sum(CASE WHEN p = '5-LOW' THEN 1 ELSE 0 END) AS low, sum(v) FILTER (WHERE p LIKE '%-H%') AS f FROM {t}"
    )
    lab.sql(f"UPDATE {t} SET p = '5-LOW', v = 1 WHERE id = 1")
    assert s.follow() == [(20, 2, 20)]
    lab.sql(f"UPDATE {t} SET p = '2-HIGH' WHERE id = 3")
    assert s.follow() == [(60, 1, 60)]


def test_aggregate_over_a_projected_alias(lab: Lab) -> None:
    t = lab.table("d STRING, v INT", [("2023-05-01", 1), ("2024-01-01", 2), ("2024-06-01", 4)])
    inner = f"SELECT EXTRACT(YEAR FROM CAST(d AS DATE)) AS y, v * 2 AS w FROM {t}"
    s = lab.stream(f"SELECT y, sum(w) AS s, max(w) AS m, sort_array(collect_list(w)) AS c FROM ({inner}) GROUP BY y")
    lab.sql(f"DELETE FROM {t} WHERE v = 4")
    assert s.follow() == [(2023, 2, 2, (2,)), (2024, 4, 4, (4,))]
    lab.sql(f"UPDATE {t} SET d = '2025-01-01' WHERE v = 1")
    assert s.follow() == [(2024, 4, 4, (4,)), (2025, 2, 2, (2,))]


def test_group_key_and_value_change_together(lab: Lab) -> None:
    t = lab.table("id BIGINT, g STRING, v INT", [(1, "a", 1), (2, "a", 2), (3, "b", 4)], key="id")
    s = lab.stream(f"SELECT g, sum(v) AS s, count(*) AS n, min(v) AS m FROM {t} GROUP BY g")
    lab.sql(f"UPDATE {t} SET g = CASE g WHEN 'a' THEN 'b' ELSE 'a' END, v = v * 10, id = id + 100")
    assert s.follow() == [("a", 40, 1, 40), ("b", 30, 2, 10)]


def test_an_empty_group_disappears_and_comes_back_afresh(lab: Lab) -> None:
    t = lab.table("g STRING, v INT, d DOUBLE", [("a", 5, 5.0), ("b", 1, 1.0)])
    s = lab.stream(
        f"SELECT g, sum(v) AS s, max(v) AS m, sum(d) AS d, var_pop(d) AS p, count(DISTINCT v) AS c FROM {t} GROUP BY g"
    )
    lab.sql(f"DELETE FROM {t} WHERE g = 'a'")
    assert s.follow() == [("b", 1, 1, 1.0, 0.0, 1)]
    lab.sql(f"INSERT INTO {t} VALUES ('a', 2, 2.0)")
    assert s.follow() == [("a", 2, 2, 2.0, 0.0, 1), ("b", 1, 1, 1.0, 0.0, 1)]
    lab.sql(f"UPDATE {t} SET v = 3 WHERE g = 'a'")
    lab.sql(f"DELETE FROM {t} WHERE g = 'a'")
    lab.sql(f"INSERT INTO {t} VALUES ('a', 7, NULL)")
    assert s.follow() == [("a", 7, 7, None, None, 1), ("b", 1, 1, 1.0, 0.0, 1)]


def test_wide_decimals_are_summed_to_the_last_digit(lab: Lab) -> None:
    values = [
        Decimal("999999999999999999.0000000001"),
        Decimal("-0.0000000003"),
        Decimal("123456789012345678.1234567891"),
    ]
    t = lab.table("id BIGINT, m DECIMAL(38,10)", list(enumerate(values)), key="id")
    s = lab.stream(f"SELECT sum(m) AS s, avg(m) AS a FROM {t}")
    lab.sql(f"UPDATE {t} SET m = if(id = 0, 999999999999999999.0000000002BD, -0.0000000002BD) WHERE id < 2")
    assert s.follow()[0][0] == Decimal("1123456789012345677.1234567891")
    lab.sql(f"DELETE FROM {t} WHERE id = 0")
    assert s.follow()[0][0] == Decimal("123456789012345678.1234567889")


def test_the_smallest_bigint_comes_and_goes(lab: Lab) -> None:
    t = lab.table("id BIGINT, n BIGINT", [(1, SMALLEST), (2, 5), (3, LARGEST)], key="id")
    s = lab.stream(f"SELECT sum(n) AS s, min(n) AS lo, max(n) AS hi, count(DISTINCT n) AS d FROM {t}")
    lab.sql(f"DELETE FROM {t} WHERE id = 1")
    lab.sql(f"UPDATE {t} SET n = -1 WHERE id = 2")
    assert s.follow() == [(LARGEST - 1, -1, LARGEST, 2)]
    lab.sql(f"UPDATE {t} SET n = {SMALLEST} WHERE id = 2")
    assert s.follow() == [(-1, SMALLEST, LARGEST, 2)]
    lab.sql(f"DELETE FROM {t} WHERE id = 3")
    assert s.follow() == [(SMALLEST, SMALLEST, SMALLEST, 1)]


def test_a_sum_that_overflows_fails_as_the_query_does_and_recovers(lab: Lab) -> None:
    t = lab.table("id BIGINT, n BIGINT", [(1, LARGEST)], key="id")
    s = lab.stream(f"SELECT sum(n) AS s FROM {t}")
    lab.sql(f"INSERT INTO {t} VALUES (2, 1)")
    with pytest.raises(EvaluationError, match="OVERFLOW"):
        lab.wh.refresh(s.name)
    assert s.rows() == [(LARGEST,)]
    lab.sql(f"DELETE FROM {t} WHERE id = 1")
    assert s.follow() == [(1,)]


def test_a_wide_decimal_that_passes_through_does_not_overflow_the_sum(lab: Lab) -> None:
    t = lab.table("id BIGINT, m DECIMAL(38,10)", [(1, Decimal(1))], key="id")
    s = lab.stream(f"SELECT sum(m) AS s FROM {t}")
    huge = "9999999999999999999999999999BD"
    for i in (2, 3):
        lab.sql(f"INSERT INTO {t} VALUES ({i}, {huge})")
    lab.sql(f"DELETE FROM {t} WHERE id IN (1, 2)")
    assert s.follow() == [(Decimal("9999999999999999999999999999.0000000000"),)]
    lab.sql(f"INSERT INTO {t} VALUES (4, {huge})")
    with pytest.raises(EvaluationError):
        lab.wh.refresh(s.name)
    lab.sql(f"UPDATE {t} SET m = -m WHERE id = 4")
    assert s.follow() == [(Decimal("0E-10"),)]


@pytest.mark.parametrize("ddl", ["DECIMAL(12,2)", "DECIMAL(23,14)", "DECIMAL(5,0)", "DECIMAL(30,5)", "DECIMAL(38,38)"])
def test_average_of_decimals_equals_sparks_to_the_last_digit(lab: Lab, ddl: str) -> None:
    precision, scale = (int(x) for x in ddl[8:-1].split(","))
    rng = Random(ddl)
    digits = 10 ** (precision - 1)

    def rows(count: int, first: int) -> list[tuple[int, int, Decimal]]:
        return [
            (first + i, rng.randrange(7), Decimal(f"{rng.randrange(-digits, digits)}E-{scale}")) for i in range(count)
        ]

    t = lab.table(f"id BIGINT, g INT, m {ddl}", rows(40, 0), key="id")
    s = lab.stream(f"SELECT g, avg(m) AS a, sum(m) AS s FROM {t} GROUP BY g")
    for step in range(3):
        lab.sql(f"DELETE FROM {t} WHERE id % 5 = {step}")
        names = ("id", "g", "m")
        lab.wh.insert(t, [dict(zip(names, r, strict=True)) for r in rows(7, 100 * (step + 1))])
        assert len(s.follow()) == 7


def test_calls_over_constants(lab: Lab) -> None:
    t = lab.table("g STRING, v INT", [("a", 1), ("a", 2), ("b", 3)])
    s = lab.stream(
        f"SELECT g, count(1) AS a, count('NULL') AS b, count(NULL) AS c, count(1 + 1) AS d, sum(1) AS e, min(7) AS f, "
        f"count_if(true) AS h, bool_and(false) AS i, avg(2) AS j, count(DISTINCT 5) AS k, max('x') AS l FROM {t} GROUP BY g"
    )
    lab.sql(f"DELETE FROM {t} WHERE v = 2")
    lab.sql(f"INSERT INTO {t} VALUES ('b', 4)")
    one = ("a", 1, 1, 0, 1, 1, 7, 1, False, 2.0, 1, "x")
    two = ("b", 2, 2, 0, 2, 2, 7, 2, False, 2.0, 1, "x")
    assert s.follow() == [one, two]


@pytest.mark.parametrize(
    "call", ["count(1 + 1)", "count('NULL')", "count(NULL)", "count_if(true)", "min(7)", "bool_or(true)", "sum(1.5)"]
)
def test_one_call_over_a_constant_alone(lab: Lab, call: str) -> None:
    t = lab.table("g STRING", [("a",), ("a",), ("b",)])
    s = lab.stream(f"SELECT g, {call} AS c FROM {t} GROUP BY g")
    lab.sql(f"DELETE FROM {t} WHERE g = 'b'")
    lab.sql(f"INSERT INTO {t} VALUES ('a'), ('c')")
    assert [row[0] for row in s.follow()] == ["a", "c"]


def test_the_same_column_grouped_and_aggregated(lab: Lab) -> None:
    t = lab.table("v INT", [(1,), (1,), (None,)])
    s = lab.stream(
        f"SELECT v, v + 1 AS w, sum(v) AS s, count(v) AS n, max(v) AS m, count(DISTINCT v) AS d FROM {t} GROUP BY v"
    )
    lab.sql(f"INSERT INTO {t} VALUES (1), (NULL), (2)")
    assert s.follow() == [(None, None, None, 0, None, 0), (1, 2, 3, 3, 1, 1), (2, 3, 2, 1, 2, 1)]


def test_groups_of_every_odd_value(lab: Lab) -> None:
    ddl = "d DOUBLE, f FLOAT, b BINARY, a ARRAY<INT>, s STRUCT<x: INT, y: STRING>, v INT"
    rows = [
        (math.nan, -0.0, b"\x00", [1, None], {"x": None, "y": "é"}, 1),
        (math.nan, 0.0, b"\x00", [1, None], {"x": None, "y": "é"}, 2),
        (-0.0, math.nan, b"", [], None, 3),
        (0.0, math.nan, b"", [], None, 4),
        (-math.inf, None, None, None, {"x": 1, "y": None}, 5),
    ]
    t = lab.table(ddl, rows)
    s = lab.stream(f"SELECT d, f, b, a, s, sum(v) AS n, max(v) AS m FROM {t} GROUP BY d, f, b, a, s")
    assert len(s.rows()) == 3
    lab.sql(f"DELETE FROM {t} WHERE v IN (2, 3)")
    assert sorted(row[-1] for row in s.follow()) == [1, 4, 5]
    lab.sql(
        f"UPDATE {t} SET d = DOUBLE('NaN'), f = FLOAT('-0.0'), b = X'00', a = array(1, NULL), s = named_struct('x', NULL, 'y', 'é')"
    )
    assert [(row[-2], row[-1]) for row in s.follow()] == [(10, 5)]


def test_an_aggregate_of_an_aggregate(lab: Lab) -> None:
    t = lab.table("id BIGINT, g STRING, v INT", [(i, "abcd"[i % 4], i % 3) for i in range(12)], key="id")
    inner = f"SELECT g, count(*) AS n, sum(v) AS s, max(v) AS m FROM {t} GROUP BY g"
    s = lab.stream(
        f"SELECT n, sum(s) AS s, max(m) AS m, count(*) AS c, collect_list(g) AS l FROM ({inner}) GROUP BY n",
        free=("l",),
    )
    lab.sql(f"DELETE FROM {t} WHERE id IN (0, 1, 5)")
    assert [(row[0], row[3]) for row in s.follow()] == [(1, 1), (2, 1), (3, 2)]
    lab.sql(f"UPDATE {t} SET g = 'a'")
    assert [row[0] for row in s.follow()] == [9]


def test_a_state_change_that_users_cannot_see_emits_no_row(lab: Lab) -> None:
    t = lab.table("id BIGINT, g STRING, v INT", [(1, "a", 5), (2, "a", 3)], key="id")
    s = lab.stream(f"SELECT g, max(v) AS m FROM {t} GROUP BY g")
    above = lab.stream(f"SELECT count(*) AS n FROM {s.name}")
    lab.sql(f"UPDATE {t} SET v = 4 WHERE id = 2")
    assert s.follow() == [("a", 5)]
    assert s.changes == (0, 0)
    assert above.wh.refresh(above.name).action.value == "NO_DATA"


def test_instants_in_the_repeated_hour_are_two_groups_whoever_refreshes(spark: SparkSession, tmp_path: Path) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    with hw.connect(tmp_path / "warehouse", spark=session) as wh:
        lab = Lab(wh)
        t = lab.table("id BIGINT, ts TIMESTAMP, v INT", key="id")
        lab.sql(
            f"INSERT INTO {t} VALUES (1, TIMESTAMP'2024-10-27 00:30:00Z', 1), (2, TIMESTAMP'2024-10-27 01:30:00Z', 10)"
        )
        by_instant = lab.stream(f"SELECT ts, sum(v) AS s FROM {t} GROUP BY ts")
        by_day = lab.stream(
            f"SELECT CAST(ts AS DATE) AS d, hour(ts) AS h, sum(v) AS s FROM {t} GROUP BY CAST(ts AS DATE), hour(ts)"
        )
        for _ in range(2):
            lab.sql(f"UPDATE {t} SET v = v + 1")
            assert len(by_instant.follow()) == 2
        lab.sql(f"INSERT INTO {t} VALUES (3, TIMESTAMP'2024-10-27 23:30:00Z', 100)")
        session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        wh.refresh(by_day.name)
        session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
        lab.sql(f"DELETE FROM {t} WHERE id = 1")
        assert [row[1:] for row in by_day.follow()] == [(2, 12), (0, 100)]


def test_old_values_are_carried_through_the_merge_only_while_groups_are_few(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    collected = Worker.collected
    monkeypatch.setattr(Worker, "collected", lambda self, text: asked.append(text) or collected(self, text))
    t = lab.table("g INT, v INT", [(1, 1), (1, 2), (2, 5)])
    s = lab.stream(f"SELECT g, sum(v) AS s, count(*) AS n FROM {t} GROUP BY g")
    for most, carried in ((20_000, True), (0, False)):
        monkeypatch.setattr(evaluate, "_MANY_GROUPS", most)
        asked.clear()
        lab.sql(f"UPDATE {t} SET v = v + 1 WHERE g = 1")
        before = s.rows()
        assert s.follow() == [(1, before[0][1] + 2, 2), (2, 5, 1)]
        assert ["UNION ALL" not in text.replace("UNION ALL", "", 1) for text in asked] == [carried]


def test_what_a_condition_on_groups_hides_is_not_computed(lab: Lab) -> None:
    t = lab.table("id BIGINT, k INT, x INT", [(1, 1, 4), (2, 2, 5)], key="id")
    s = lab.stream(f"SELECT k, 100 / n AS r FROM (SELECT k, sum(x) AS n FROM {t} GROUP BY k) WHERE n <> 0")
    lab.sql(f"INSERT INTO {t} VALUES (3, 3, 0), (4, 4, 10)")
    assert s.follow() == [(1, 25.0), (2, 20.0), (4, 10.0)]
    lab.sql(f"UPDATE {t} SET x = 5 - x WHERE id IN (2, 3)")
    assert s.follow() == [(1, 25.0), (3, 20.0), (4, 10.0)]


def test_an_argument_is_computed_only_where_its_filter_holds(lab: Lab) -> None:
    t = lab.table("id BIGINT, k INT, x INT", [(1, 1, 4), (2, 1, 0)], key="id")
    s = lab.stream(
        f"SELECT k, sum(100 / x) FILTER (WHERE x <> 0) AS s, max(100 / x) FILTER (WHERE x <> 0) AS m,"
        f" sum(100 / x) FILTER (WHERE x > 0 AND k = 1) AS o"
        f" FROM {t} GROUP BY k"
    )
    assert s.rows() == [(1, 25.0, 25.0, 25.0)]
    lab.sql(f"INSERT INTO {t} VALUES (3, 1, 0), (4, 1, 5), (5, 2, 0)")
    assert s.follow() == [(1, 45.0, 25.0, 45.0), (2, None, None, None)]
    lab.sql(f"DELETE FROM {t} WHERE id IN (1, 3)")
    assert s.follow() == [(1, 20.0, 20.0, 20.0), (2, None, None, None)]


def test_sums_of_decimals_with_more_digits_than_spark_negates(lab: Lab) -> None:
    """Spark's minus rounds decimals to 34 digits: a deleted value would leave a remainder."""
    wide, next_ = Decimal("1234567890123456789012345678.9012345678"), Decimal("1234567890123456789012345678.9012345679")
    t = lab.table("id INT, a DECIMAL(38,10), b DECIMAL(38,0)", key="id")
    lab.sql(f"INSERT INTO {t} VALUES (1, {wide}, {10**37 + 1}), (2, -{wide}, 7), (3, 0.0000000001, {10**36 + 3})")
    s = lab.stream(f"SELECT sum(a) AS a, sum(b) AS b FROM {t}")
    assert s.rows() == [(Decimal("0.0000000001"), Decimal(11 * 10**36 + 11))]
    lab.sql(f"DELETE FROM {t} WHERE id = 2")
    assert s.follow() == [(next_, Decimal(11 * 10**36 + 4))]
    lab.sql(f"UPDATE {t} SET a = a + 0.0000000001, b = b - 1 WHERE id = 1")
    lab.sql(f"DELETE FROM {t} WHERE id = 3")
    rounded = Decimal(
        "1234567890123456789012345678.9012345680"
    )  # by Spark's rules for the sum of two decimals, in the UPDATE
    assert s.follow() == [(rounded, Decimal(10**37))]
    lab.sql(f"UPDATE {t} SET a = 1, b = NULL WHERE id = 1")
    assert s.follow() == [(Decimal(1), None)]


def test_rows_are_counted_where_no_column_is_read(lab: Lab) -> None:
    """Rows with a VARIANT come as a file of plain inserts, of which a count reads no column."""
    wh = lab.wh
    wh.sql("CREATE TABLE documents (id BIGINT PRIMARY KEY, body VARIANT)")
    wh.sql("CREATE TABLE people (id BIGINT PRIMARY KEY)")
    wh.sql("INSERT INTO people VALUES (1), (2)")
    queries = {
        "counted": "SELECT count(*) AS n FROM documents",
        "crossed": "SELECT p.id, count(*) AS n FROM people p CROSS JOIN documents d GROUP BY p.id",
        "asked": "SELECT p.id FROM people p WHERE EXISTS (SELECT 1 FROM documents)",
    }
    for name, query in queries.items():
        wh.create_stream_table(name, query, refresh_mode="DIFFERENTIAL")
    for count in (1, 2):
        wh.sql(f"INSERT INTO documents SELECT {count}, parse_json('{{}}')")
        for name in queries:
            report = wh.refresh(name)
            assert report.action is RefreshAction.DIFFERENTIAL
            assert wh.verify(name).equal, name
        assert wh.table("counted").collect()[0].n == count
        assert [r.n for r in wh.table("crossed").collect()] == [count, count]
        assert wh.table("asked").count() == 2
    for name in (*queries, "documents", "people"):
        wh.sql(f"DROP {'STREAM TABLE' if name in queries else 'TABLE'} {name}")


def test_what_cancels_is_taken_out_of_a_table_that_is_read_without_columns(story: Story) -> None:
    story.table("a", "id BIGINT, g INT, v INT", [(1, 1, 5), (2, 2, 2)], key="id")
    story.table("d", "id BIGINT", [(1,)], key="id")
    s = story.stream("SELECT a.g, sum(10 / a.v) AS x FROM a CROSS JOIN d GROUP BY a.g")
    story.change("INSERT INTO a VALUES (3, 1, 0)", "INSERT INTO d VALUES (2)", "DELETE FROM a WHERE id = 3")
    assert s.refreshed() == [(1, 4.0), (2, 10.0)]
    story.verified()


def test_fields_are_called_like_places_of_arguments(story: Story) -> None:
    story.table("t", "id INT, k INT, v INT", [(1, 1, 5), (2, 1, 7), (3, 2, 1)], key="id")
    kept = "max(named_struct('{0}', v)) AS m, max_by(named_struct('{x}', id), v) AS b"
    s = story.stream(f"SELECT k, m.`{{0}}` AS m, b.`{{x}}` AS b FROM (SELECT k, {kept} FROM t GROUP BY k)")
    top = story.stream(
        "SELECT id, s.`{1}` AS f FROM (SELECT id, named_struct('{1}', v) AS s FROM t ORDER BY v DESC LIMIT 2)", "top"
    )
    assert (s.rows(), top.rows()) == ([(1, 7, 2), (2, 1, 3)], [(1, 5), (2, 7)])
    story.change("DELETE FROM t WHERE id = 2", "UPDATE t SET v = 9 WHERE id = 3")
    assert (s.refreshed(), top.refreshed()) == ([(1, 5, 1), (2, 9, 3)], [(1, 5), (3, 9)])
    story.verified()
