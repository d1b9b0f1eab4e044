"""The tools behind `python -m tests.soak_compose`: compositions are the same for ever, make sense to DuckDB, and become small."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.compositions import (
    Composition,
    duckdb_results,
    random_composition,
    row_differences,
)
from tests.support.corpus import load, save
from tests.support.generate import Delete
from tests.support.histories import DeleteWhere, Tables
from tests.support.relations import Filter, Join, Ref, UnresolvedError, depth, require_resolved, walked
from tests.support.simplify import shrunk, smaller_queries

SEEDS = range(40)
FILES = sorted((Path(__file__).parent / "compositions").glob("*.json"))


def test_a_seed_is_the_same_composition_for_ever() -> None:
    assert random_composition(7) == random_composition(7)
    assert random_composition(7).sql != random_composition(9).sql


def test_many_seeds_cover_every_operator() -> None:
    made = [random_composition(seed) for seed in SEEDS]
    kinds = Counter(type(node).__name__ for c in made if c.query for node in walked(c.query))
    for kind in ("Join", "Lateral", "Explode", "Aggregate", "Distinct", "SetOperation", "Window", "TopK", "With"):
        assert kinds[kind] > 0, kind
    for kind in ("Exists", "Within", "Scalar", "Over", "Values"):
        assert kinds[kind] > 0, kind
    assert {t.keyed for c in made for t in c.tables} == {True, False}
    assert max(depth(c.query) for c in made if c.query) >= 6


def test_duckdb_answers_and_the_answers_change() -> None:
    there = changed = 0
    for seed in SEEDS:
        results = [Counter(rows) for rows in duckdb_results(random_composition(seed))]
        there += sum(map(bool, results))
        changed += sum(a != b for a, b in itertools.pairwise(results))
    assert there >= 0.85 * 4 * len(SEEDS)
    assert changed >= 0.65 * 3 * len(SEEDS)


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_duckdb_answers_kept_compositions(file: Path) -> None:
    composition = load(file)
    if composition.duckdb is None:
        pytest.skip("Spark alone can say")
    results = [Counter(rows) for rows in duckdb_results(composition)]
    if file.stem.startswith("seed_"):
        return
    assert any(results)
    assert any(a != b for a, b in itertools.pairwise(results))


def test_a_composition_comes_back_from_its_file(tmp_path: Path) -> None:
    for seed in range(12):
        composition = random_composition(seed)
        save(composition, tmp_path / "one.json")
        assert load(tmp_path / "one.json") == replace(composition, query=None)


def test_simpler_queries_make_sense() -> None:
    composition = random_composition(3)
    assert composition.query is not None
    found = list(smaller_queries(composition.query))
    assert found
    for query in found:
        require_resolved(query)
    with pytest.raises(UnresolvedError):
        require_resolved(Filter(composition.query, Ref("nowhere", "bool")))


def test_a_failing_composition_becomes_small() -> None:
    def fails(composition: Composition) -> bool:
        joins = composition.query is not None and any(isinstance(n, Join) for n in walked(composition.query))
        deletes = any(isinstance(c, Delete | DeleteWhere) for step in composition.steps for c in step)
        return joins and deletes

    seed = next(s for s in range(100) if fails(random_composition(s)))
    small = shrunk(random_composition(seed), fails, tries=600)
    assert fails(small)
    assert len(small.steps) == 1
    assert len(small.steps[0]) == 1
    assert not any(small.rows.values())
    assert small.query is not None
    assert depth(small.query) <= 2


def test_rows_differ_as_multisets_and_floats_by_more_than_their_last_digit() -> None:
    assert row_differences([(1, 0.1 + 0.2), (1, 0.5)], [(1, 0.5), (1, 0.3)]) == ""
    assert "missing" in row_differences([(1,), (1,)], [(1,)])
    assert "unexpected" in row_differences([], [(None, "a")])


def test_tables_follow_changes_without_a_warehouse() -> None:
    composition = random_composition(5)
    tables = Tables(composition.tables)
    tables.fill(composition.rows)
    name = composition.tables[0].name
    tables.change(DeleteWhere(name, "k", (0, 1, 2)))
    assert {r["k"] for r in tables.models[name].rows} <= {3, 4, 5}
    tables.change(Delete(name, None))
    assert tables.arrow()[name].num_rows == 0
