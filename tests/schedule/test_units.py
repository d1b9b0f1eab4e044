"""Units: what belongs together is together, nothing comes before what it reads, and everything comes once."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.schedule.test_graph import random_edges

from headwater.schedule.graph import graph_of
from headwater.schedule.units import Unit, UnitKind, units_of

SINGLE, GROUP, CHAIN = UnitKind.SINGLE, UnitKind.GROUP, UnitKind.CHAIN


@given(st.integers(0, 100_000), st.integers(1, 40))
@settings(max_examples=300, deadline=None)
def test_random_graphs_and_groups(seed: int, nodes: int) -> None:
    random_ = random.Random(seed)
    edges = random_edges(seed, nodes)
    graph = graph_of(edges)
    wanted = set(random_.sample(sorted(edges), random_.randint(1, nodes)))
    groups = [random_.sample(sorted(edges), min(nodes, random_.randint(1, 4))) for _ in range(random_.randint(0, 3))]
    fusible = {n for n in edges if random_.random() < 0.8}
    units = units_of(graph, wanted, groups, fusible=fusible)
    flat = [n for u in units for n in u.members]
    assert sorted(flat) == sorted(wanted)
    place = {n: i for i, u in enumerate(units) for n in u.members}
    for n in wanted:
        assert all(place[s] <= place[n] for s in edges[n] if s in wanted)
    for unit in units:
        order = {n: i for i, n in enumerate(unit.members)}
        assert all(order[s] < order[n] for n in unit.members for s in edges[n] if s in order)
        if unit.kind is CHAIN:
            for n, after in zip(unit.members, unit.members[1:], strict=False):
                assert graph.dependents[n] == (after,)
            assert set(unit.members) <= fusible
        assert (unit.kind is SINGLE) == (len(unit.members) == 1)
    for group in groups:
        assert len({place[n] for n in group if n in wanted}) <= 1


def test_a_chain_takes_in_what_only_the_next_one_reads() -> None:
    graph = graph_of({"a": ("t",), "b": ("a", "u"), "c": ("b",), "d": ("c",), "e": ("c",)})
    assert units_of(graph, "abcde", [], fusible="abcde") == (
        Unit(CHAIN, ("a", "b", "c")),
        Unit(SINGLE, ("d",)),
        Unit(SINGLE, ("e",)),
    )
    assert [u.members for u in units_of(graph, "abde", [], fusible="abde")] == [("a", "b"), ("d",), ("e",)]
    assert [u.kind for u in units_of(graph, "abcde", [])] == [SINGLE] * 5


def test_two_that_feed_one_are_not_a_chain() -> None:
    graph = graph_of({"a": ("t",), "b": ("u",), "c": ("a", "b")})
    assert [u.kind for u in units_of(graph, "abc", [], fusible="abc")] == [SINGLE] * 3


def test_what_lies_between_two_members_comes_with_them() -> None:
    graph = graph_of({"a": ("t",), "x": ("a",), "y": ("x",), "d": ("y",), "z": ("d",)})
    assert units_of(graph, "axydz", [["a", "d"]]) == (Unit(GROUP, ("a", "x", "y", "d")), Unit(SINGLE, ("z",)))


def test_groups_that_wait_for_each_other_are_one() -> None:
    graph = graph_of({"a": ("t",), "b": ("t",), "c": ("a",), "d": ("b",)})
    assert units_of(graph, "abcd", [["a", "d"], ["b", "c"]])[0].members == ("a", "b", "c", "d")


def test_the_key_does_not_depend_on_the_order() -> None:
    assert Unit(GROUP, ("b", "a")).key == Unit(GROUP, ("a", "b")).key != Unit(CHAIN, ("a", "b")).key
