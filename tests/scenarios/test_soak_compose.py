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
    random_family,
    row_differences,
)
from tests.support.corpus import load, save
from tests.support.generate import Delete
from tests.support.histories import DeleteWhere, Tables
from tests.support.relations import Filter, Join, Ref, UnresolvedError, depth, require_resolved, walked
from tests.support.simplify import shrunk, smaller_queries

FAMILIES = range(5)
WIDTH = 8
FILES = sorted((Path(__file__).parent / "compositions").glob("*.json"))


@pytest.fixture(scope="module")
def made() -> list[Composition]:
    return [member for seed in FAMILIES for member in random_family(seed, WIDTH)]


def test_a_seed_is_the_same_composition_for_ever() -> None:
    assert random_composition(7) == random_composition(7)
    assert random_composition(7).sql != random_composition(9).sql


def test_a_family_shares_tables_and_its_members_can_be_run_alone() -> None:
    family = random_family(3, 4)
    assert family == random_family(3, 4)
    assert family[:2] == random_family(3, 2)
    assert len({m.sql for m in family}) == 4
    assert all((m.tables, m.steps) == (family[0].tables, family[0].steps) for m in family)
    for member in family:
        alone = member.alone()
        assert {t.name for t in alone.tables} <= {t.name for t in member.tables}
        assert list(map(Counter, duckdb_results(alone))) == list(map(Counter, duckdb_results(member)))


def test_many_seeds_cover_every_operator(made: list[Composition]) -> None:
    kinds = Counter(type(node).__name__ for c in made if c.query for node in walked(c.query))
    for kind in ("Join", "Lateral", "Explode", "Aggregate", "Distinct", "SetOperation", "Window", "TopK", "With"):
        assert kinds[kind] > 0, kind
    for kind in ("Exists", "Within", "Scalar", "Over", "Values"):
        assert kinds[kind] > 0, kind
    assert {t.keyed for c in made for t in c.tables} == {True, False}
    assert len({len(c.tables) for c in made}) > 1
    assert max(depth(c.query) for c in made if c.query) >= 6


def test_duckdb_answers_and_the_answers_change(made: list[Composition]) -> None:
    there = changed = 0
    for composition in made:
        results = [Counter(rows) for rows in duckdb_results(composition)]
        there += sum(map(bool, results))
        changed += sum(a != b for a, b in itertools.pairwise(results))
    assert there >= 0.85 * 4 * len(made)
    assert changed >= 0.65 * 3 * len(made)


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


def test_a_composition_comes_back_from_its_file(made: list[Composition], tmp_path: Path) -> None:
    for composition in made[:12]:
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
