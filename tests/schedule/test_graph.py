"""The graph of stream tables: its order, its circles, its diamonds, and that a changed part is all that is built anew."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import CycleError
from headwater.schedule import graph as graphs
from headwater.schedule.graph import Diamond, Graph, graph_of, rebuilt

Edges = dict[str, tuple[str, ...]]


def is_in_order(graph: Graph) -> bool:
    place = {n: i for i, n in enumerate(graph.order)}
    return all(place[s] < place[n] for n, read in graph.sources.items() for s in read if s in place)


def random_edges(seed: int, nodes: int) -> Edges:
    random_ = random.Random(seed)
    names = [f"s{i}" for i in range(nodes)]
    tables = [f"t{i}" for i in range(4)]
    return {
        n: tuple(dict.fromkeys(random_.choices([*tables, *names[max(0, i - 12) : i]], k=random_.randint(1, 3))))
        for i, n in enumerate(names)
    }


def ancestors(edges: Edges, node: str) -> set[str]:
    return {a for s in edges.get(node, ()) for a in (s, *ancestors(edges, s))}


def expected_diamonds(edges: Edges) -> list[set[str]]:
    """Ways that meet, said plainly: pairs of sources of a node, each with what is above it."""
    groups: list[set[str]] = []
    for node, read in edges.items():
        whole = {s: {s} | ancestors(edges, s) for s in read}
        shared = {x for a in whole for b in whole if a != b for x in whole[a] & whole[b]}
        if not shared:
            continue
        on_the_way = {x for s in whole if whole[s] & shared for x in whole[s] - shared if x in edges}
        group = {node} | {x for x in on_the_way if ancestors(edges, x) & shared}
        for other in [g for g in groups if g & group]:
            groups.remove(other)
            group |= other
        groups.append(group)
    return sorted((g for g in groups if len(g) > 1), key=min)


@given(st.integers(0, 10_000), st.integers(1, 40))
@settings(max_examples=150, deadline=None)
def test_random_graphs_are_in_order_and_know_their_ancestors_and_diamonds(seed: int, nodes: int) -> None:
    edges = random_edges(seed, nodes)
    graph = graph_of(dict(random.Random(seed).sample(sorted(edges.items()), len(edges))))
    assert set(graph.order) == set(edges)
    assert is_in_order(graph)
    assert {n: graph.ancestors(n) for n in edges} == {n: ancestors(edges, n) for n in edges}
    assert sorted((set(d.members) for d in graph.diamonds), key=min) == expected_diamonds(edges)
    for node in edges:
        assert graph.level[node] == max((graph.level[s] + 1 for s in edges[node] if s in edges), default=0)
        assert graph.descendants([node]) == {n for n in edges if node in ancestors(edges, n)}


@given(st.integers(0, 10_000))
@settings(max_examples=150, deadline=None)
def test_a_rebuilt_graph_is_the_one_built_anew(seed: int) -> None:
    random_ = random.Random(seed)
    edges = random_edges(seed, 40)
    graph = graph_of(edges)
    for step in range(6):
        leaves = [n for n in edges if not graph.dependents.get(n)]
        edges = dict(edges)
        match random_.randrange(3):
            case 0:
                del edges[random_.choice(leaves)]
            case 1:
                edges[f"n{step}"] = tuple(random_.sample(sorted(edges), 2))
            case _:
                changed = random_.choice(leaves)
                edges[changed] = ("t0", random_.choice([n for n in edges if n != changed]))
        again, anew = rebuilt(graph, edges), graph_of(edges)
        assert is_in_order(again)
        assert set(again.order) == set(anew.order)
        assert (again.level, again.dependents) == (anew.level, anew.dependents)
        assert {n: again.ancestors(n) for n in edges} == {n: anew.ancestors(n) for n in edges}
        assert sorted(sorted(d.members) for d in again.diamonds) == sorted(sorted(d.members) for d in anew.diamonds)
        graph = again


def test_what_is_not_touched_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    edges: Edges = {f"s{i}": (f"s{i - 1}",) if i % 10 else ("t",) for i in range(100)}
    old = graph_of(edges)
    monkeypatch.setattr(graphs, "graph_of", None)  # built from the old one, or not at all
    new = rebuilt(old, {**edges, "s55": ("t", "s54")})
    assert new.order == (
        *(n for n in old.order if n not in ("s55", "s56", "s57", "s58", "s59")),
        *[f"s{i}" for i in range(55, 60)],
    )
    assert rebuilt(new, dict(new.sources)) is new


def test_a_circle_is_refused_with_its_path() -> None:
    with pytest.raises(CycleError) as refused:
        graph_of({"a": ("t",), "b": ("a", "d"), "c": ("b",), "d": ("c",), "e": ("d",)})
    assert refused.value.detail in {
        f"The path is {p}." for p in ("b <- d <- c <- b", "d <- c <- b <- d", "c <- b <- d <- c")
    }
    with pytest.raises(CycleError, match="read themselves"):
        graph_of({"a": ("a",)})


def test_diamonds() -> None:
    six = {
        "left": ("t",),
        "right": ("t",),
        "low": ("left",),
        "high": ("right",),
        "both": ("low", "high"),
        "other": ("u",),
    }
    assert graph_of(six).diamonds == (Diamond(("left", "right", "low", "high", "both"), ("both",)),)
    direct = {"total": ("t",), "share": ("t", "total")}
    assert graph_of(direct).diamonds == (Diamond(("total", "share"), ("share",)),)
    apart = {"a": ("t",), "b": ("u",), "c": ("a", "b")}
    assert graph_of(apart).diamonds == ()
    beside = {"left": ("t", "aside"), "aside": ("u",), "right": ("t",), "both": ("left", "right")}
    assert graph_of(beside).diamonds == (Diamond(("right", "left", "both"), ("both",)),)


def test_overlapping_diamonds_are_one_group() -> None:
    edges: Edges = {"a": ("t",), "b": ("t",), "c": ("a", "b"), "d": ("b", "c"), "x": ("u",), "y": ("u", "x")}
    assert graph_of(edges).diamonds == (Diamond(("a", "b", "c", "d"), ("c", "d")), Diamond(("x", "y"), ("y",)))
