"""The state at every version equals a model that never forgets, however the table is stored by then.

A history is a seeded list of changes to a keyed and to a keyless table, with everything that may happen to their storage in
between: folding, merging, inserts that go straight into the base, vacuum. After it, every version is read and compared.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import SparkSession
from tests.support.tables import check_hash, contents, counted, manifest_of, table_of

import headwater as hw
from headwater.errors import UnknownVersionError
from headwater.model.tables import BatchFormat
from headwater.warehouse import Warehouse

Bag = Counter[tuple[Any, ...]]
SMALL = {"arrow_max_rows": 5, "inline_max_rows": 2, "local_relation_max_rows": 3}


class Model:
    """What the tables should hold at each version."""

    def __init__(self, wh: Warehouse, seed: int) -> None:
        self.wh = wh
        self.random = random.Random(seed)
        self.now: dict[str, Bag] = {"keyed": Counter(), "bag": Counter()}
        self.past: dict[str, dict[int, Bag]] = {"keyed": {}, "bag": {}}

    def remember(self) -> None:
        for name, bag in self.now.items():
            self.past[name][self.wh.version] = Counter(bag)

    def change_keyed(self) -> None:
        """Delete, replace and insert some keys in one change."""
        bag = self.now["keyed"]
        by_key = {row[0]: row for row in bag}
        rows = []
        for key in self.random.sample(range(12), 4):
            if key in by_key:
                rows.append((*by_key[key], "D"))
            if self.random.random() < 0.7:
                rows.append((key, self.random.choice(["x", "y", None]), "I"))
        self._apply("keyed", ["id", "v"], rows)

    def change_bag(self) -> None:
        """Insert and delete equal rows."""
        bag = self.now["bag"]
        rows: list[tuple[Any, ...]] = [(*r, "D") for r in bag.elements() if self.random.random() < 0.3]
        rows += [(self.random.choice(["p", "q", None]), self.random.randrange(2), "I") for _ in range(3)]
        self._apply("bag", ["a", "n"], rows)

    def _apply(self, name: str, columns: list[str], rows: list[tuple[Any, ...]]) -> None:
        self.wh.apply_changes(name, [dict(zip([*columns, "action"], r, strict=True)) for r in rows])
        for *row, action in rows:
            self.now[name][tuple(row)] += 1 if action == "I" else -1
        self.now[name] = +self.now[name]

    def insert_many(self) -> None:
        """Insert by executors: into the base if nothing waits in the tail."""
        start = 100 * (1 + len(self.past["keyed"]))
        self.wh.sql(f"INSERT INTO keyed SELECT id + {start}, 'many' FROM range(30)")
        self.now["keyed"].update((start + i, "many") for i in range(30))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_version_equals_the_model(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    settings = {"arrow_max_rows": 20, "inline_max_rows": 4, "tail_max_files": 3, "local_relation_max_rows": 15}
    with hw.connect(tmp_path / "w", spark=spark, settings=settings) as wh:
        wh.sql("CREATE TABLE keyed (id BIGINT PRIMARY KEY, v STRING)")
        wh.sql("CREATE TABLE bag (a STRING, n INT)")
        model = Model(wh, seed)
        model.remember()
        steps = [model.change_keyed, model.change_bag, model.insert_many]
        for step in range(10):
            model.random.choice(steps)()
            model.remember()
            if step in (3, 7):
                wh.compact("keyed")
                wh.compact("bag")
                model.remember()
            if step == 3:
                model.insert_many()
                model.remember()
        formats: set[BatchFormat] = set()
        for name in ("keyed", "bag"):
            check_hash(wh, name)
            formats |= {b.format for b in manifest_of(wh, name).batches}
            check_past(wh, model, name)
        assert formats > {BatchFormat.INSERT}
        wh.vacuum()
        for name in ("keyed", "bag"):
            check_past(wh, model, name)
        check_telescope(wh, model)


def check_past(wh: Warehouse, model: Model, name: str) -> None:
    assert table_of(wh, name).base_version > min(model.past[name])
    for few in (0, 4000):  # added up by Spark, and by the driver
        with mock.patch.object(wh._ground.reader, "_local_rows", few):
            for version, bag in model.past[name].items():
                assert contents(wh, name, version=version) == bag, (version, few)


def check_telescope(wh: Warehouse, model: Model) -> None:
    """changes(a, b] + changes(b, c] = changes(a, c] = state(c) - state(a), as signed multisets."""
    versions = sorted(model.past["bag"])
    middle, last = versions[len(versions) // 2], versions[-1]
    parts = [signed(wh, "bag", a, b) for a, b in ((0, middle), (middle, last), (0, last))]
    assert total(parts[0], parts[1]) == total(parts[2]) == total(model.past["bag"][last])
    assert total(parts[1]) == total(model.past["bag"][last], negative(model.past["bag"][middle]))


def signed(wh: Warehouse, name: str, after: int, upto: int) -> Bag:
    rows = wh.changes(name, after, upto).collect()
    return total(
        counted(r[:-1] for r in rows if r["action"] == "I"),
        negative(counted(r[:-1] for r in rows if r["action"] == "D")),
    )


def negative(bag: Bag) -> Bag:
    return Counter({k: -n for k, n in bag.items()})


def total(*bags: Bag) -> Bag:
    result: Bag = Counter()
    for bag in bags:
        result.update(bag)
    return Counter({k: n for k, n in result.items() if n})


def test_an_insert_that_went_into_the_base_is_undone_by_leaving_its_files_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    with hw.connect(tmp_path / "w", spark=spark, settings=SMALL) as wh:
        wh.sql("CREATE TABLE t (n BIGINT)")
        empty = wh.version
        wh.sql("INSERT INTO t SELECT id FROM range(40)")
        forty = wh.version
        wh.sql("INSERT INTO t SELECT id + 40 FROM range(40)")
        manifest = manifest_of(wh, "t")
        assert [b.format for b in manifest.batches] == [BatchFormat.INSERT] * 2
        assert table_of(wh, "t").base_version == wh.version
        assert {f.path for f in manifest.files} == {f.path for fs in manifest.batch_files.values() for f in fs}
        assert (contents(wh, "t", version=empty), contents(wh, "t", version=forty).total()) == ({}, 40)
        # The plan of the older version reads the files of the first insert alone.
        assert len(wh.table("t", version=forty).inputFiles()) == len(manifest.batch_files[manifest.batches[0].id])
        wh.sql("DELETE FROM t WHERE n < 20")
        wh.compact("t")
        assert contents(wh, "t", version=forty) == {(n,): 1 for n in range(40)}
        assert contents(wh, "t", version=empty) == {}
        check_hash(wh, "t")


ODD = """
    n INT, d DOUBLE, m MAP<STRING, INT>, a ARRAY<STRUCT<x: INT, y: STRING>>, c DECIMAL(38, 10), t TIMESTAMP, l TIMESTAMP_NTZ,
    b BINARY, s STRING COLLATE UTF8_LCASE
"""
ODD_ROW = """
    ({n}, {d}, map('p', 1, 'q', {n}), array(struct({n}, 'y'), NULL), {n} + 0.0000000001, TIMESTAMP '2026-03-29 01:30:00',
     TIMESTAMP_NTZ '1582-10-15 00:00:00', X'00FF', {s})
"""


@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (n)"])
def test_the_driver_adds_up_what_spark_adds_up(wh: Warehouse, key: str) -> None:
    """Few rows never go through Spark's joins: values of every type must come out the same."""
    wh.sql(f"CREATE TABLE odd ({ODD}{key})")
    rows = [
        ODD_ROW.format(n=n, d=d, s=s)
        for n, d, s in ((1, "double('NaN')", "'A'"), (2, "-0.0D", "'a'"), (3, "double(NULL)", "NULL"))
    ]
    twice = [*rows, *rows] if not key else rows
    wh.sql(f"INSERT INTO odd VALUES {', '.join(twice)}")
    versions = [wh.version]
    for statement in (
        "UPDATE odd SET a = NULL WHERE n = 1",
        "ALTER TABLE odd ADD COLUMN later STRING",
        "DELETE FROM odd WHERE isnan(d)",
        "UPDATE odd SET d = 5, later = 'now' WHERE s = 'A'",
        "DELETE FROM odd WHERE n = 3",
    ):
        wh.sql(statement)
        versions.append(wh.version)
        if statement.startswith("UPDATE odd SET a"):
            wh.compact("odd")
    wh.compact("odd")
    seen = []
    for version in versions:
        read = []
        for few in (0, 4000):
            with mock.patch.object(wh._ground.reader, "_local_rows", few):
                read.append(sorted(map(repr, wh.table("odd", version=version).toArrow().to_pylist())))
        assert read[0] == read[1], version
        seen.append(read[0])
    assert [len(r) for r in seen] == ([3, 3, 3, 2, 2, 1] if key else [6, 6, 6, 4, 4, 2])
    assert len({str(r) for r in seen}) == 6


def test_versions_that_cannot_be_read_are_refused(wh: Warehouse) -> None:
    wh.sql("CREATE TABLE early (n INT)")
    born = wh.version
    wh.sql("INSERT INTO early VALUES (1)")
    wh.sql("CREATE TABLE late (n INT)")
    with pytest.raises(UnknownVersionError, match=f"version {wh.version + 1} does not exist yet"):
        wh.table("early", version=wh.version + 1)
    with pytest.raises(UnknownVersionError, match='table "late" did not exist'):
        wh.table("late", version=born)
    assert contents(wh, "early", version=born) == {}
    wh.vacuum(retention_hours=0)
    with pytest.raises(UnknownVersionError, match="no longer kept"):
        wh.table("early", version=born)
    with pytest.raises(UnknownVersionError, match="no longer kept"):
        wh.changes("early", born)
    assert contents(wh, "early", version=wh.version) == {(1,): 1}
