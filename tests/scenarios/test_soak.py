"""The tools behind `make soak`: cases are the same for ever, and a failing one becomes small and can be run again."""

from __future__ import annotations

from tests.support.generate import Case, Delete, random_case
from tests.support.shrink import Cut, described, shrunk


def test_a_seed_is_the_same_case_for_ever() -> None:
    assert described(random_case(7)) == described(random_case(7))
    assert described(random_case(7)) != described(random_case(8))


def test_many_seeds_cover_every_shape() -> None:
    cases = [random_case(seed) for seed in range(60)]
    sql = "\n".join(s.sql for c in cases for s in c.streams)
    for word in (
        "ROLLUP",
        "CUBE",
        "GROUPING SETS",
        "DISTINCT",
        "UNION ALL",
        "HAVING",
        "FILTER (WHERE",
        "collect_list",
        "corr(",
    ):
        assert word in sql
    assert {t.keyed for c in cases for t in c.tables} == {True, False}
    assert any(s.source.startswith("s") for c in cases for s in c.streams)
    kinds = {type(op).__name__ for c in cases for step in c.steps for op in step}
    assert kinds == {"Insert", "Update", "Rekey", "Upsert", "Delete", "Apply", "Merge", "AddColumn", "Atomic"}


def test_a_failing_case_is_cut_down_to_what_makes_it_fail() -> None:
    def fails(case: Case) -> bool:
        deletes = any(isinstance(op, Delete) for step in case.steps[1:] for op in step)
        return deletes and any("count(*)" in i.sql for s in case.streams for i in s.query.items)

    seed = next(s for s in range(100) if fails(random_case(s)))
    case = random_case(seed)
    cut = shrunk(case, fails, None, tries=500)
    small = cut.of(case)
    assert fails(small)
    assert [s.source for s in small.streams[1:]] == [s.name for s in small.streams[:-1]]
    assert len(small.streams[-1].query.items) == 1
    assert sum(len(step) for step in small.steps) == 1


def test_a_cut_can_be_given_to_a_command() -> None:
    case = random_case(3)
    whole = Cut.whole(case)
    cut = Cut(whole.operations[1:3], whole.streams[:2])
    _, operations, _, streams = cut.arguments.split()
    assert Cut.parse(operations, streams) == cut
    assert described(whole.of(case)) == described(case)
