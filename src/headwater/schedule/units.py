"""Units: what is refreshed by one worker in one commit.

Three things put stream tables into one unit. A *group* must appear at once: a diamond, or one that users made. A *chain* may: each of
its tables is read by the next one alone, which takes the change from memory before anything is committed. A *batch* holds quick
refreshes that read the same changes: they share a commit, but not their failures. All others are on their own.

    units  =  strongly connected components of the graph in which each group is one node

A table between two members of a group waits for one and is waited for by the other; so it, too, is refreshed with them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from headwater.schedule.graph import Graph

MOST_IN_BATCH = 16


class UnitKind(Enum):
    """Why stream tables are refreshed together."""

    SINGLE = "single"
    GROUP = "group"
    CHAIN = "chain"
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class Unit:
    """Stream tables that are committed together, those that others read first."""

    kind: UnitKind
    members: tuple[str, ...]

    @property
    def key(self) -> str:
        """Return what tells the unit apart, the same for the same members."""
        return f"{self.kind.value}:{','.join(sorted(self.members))}"


def units_of(
    graph: Graph, nodes: Iterable[str], groups: Sequence[Sequence[str]], *, fusible: Iterable[str] = ()
) -> tuple[Unit, ...]:
    """Divide `nodes` into units, in an order in which each comes after those that it reads.

    Of `groups` the members among the nodes count. `fusible` are the nodes that may be part of a chain.
    """
    wanted = set(nodes)
    order = [n for n in graph.order if n in wanted]
    found = components_of(graph, order, contracted(order, groups))
    return _fused(graph, found, wanted, set(fusible))


def components_of(graph: Graph, order: Sequence[str], home: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Return the nodes of `order` in components, each after those that it reads; nodes with the same home are one node."""
    wanted = set(order)
    joined: dict[str, list[str]] = {}
    for n in order:
        joined.setdefault(home[n], []).extend(home[s] for s in graph.sources[n] if s in wanted and home[s] != home[n])
    components = _components({h: tuple(dict.fromkeys(e)) for h, e in joined.items()})
    members: list[list[str]] = [[] for _ in components]
    place = {h: i for i, component in enumerate(components) for h in component}
    for n in order:
        members[place[home[n]]].append(n)
    return [tuple(m) for m in members]


def coalesced(units: Iterable[Unit], windows: Mapping[str, Hashable], capacity: int) -> tuple[Unit, ...]:
    """Join single units that read the same changes; those that do have the same window. Who has none stays alone.

    Several workers have at least two batches each, as far as there are units: the last one must not leave the others idle for long.
    """
    alike: dict[Hashable, list[str]] = {}
    kept: list[Unit] = []
    for unit in units:
        if unit.kind is UnitKind.SINGLE and unit.members[0] in windows:
            alike.setdefault(windows[unit.members[0]], []).append(unit.members[0])
        else:
            kept.append(unit)
    shares = capacity if capacity == 1 else 2 * capacity
    size = max(1, min(MOST_IN_BATCH, sum(map(len, alike.values())) // shares))
    for members in alike.values():
        for start in range(0, len(members), size):
            part = tuple(members[start : start + size])
            kept.append(Unit(UnitKind.BATCH if len(part) > 1 else UnitKind.SINGLE, part))
    return tuple(kept)


def contracted(order: Sequence[str], groups: Sequence[Sequence[str]]) -> dict[str, str]:
    """Return for each node the one that stands for its group; groups that share a member are one."""
    home = {n: n for n in order}

    def root(node: str) -> str:
        while home[node] != node:
            home[node] = home[home[node]]
            node = home[node]
        return node

    for group in groups:
        present = [n for n in group if n in home]
        for n in present[1:]:
            home[root(n)] = root(present[0])
    return {n: root(n) for n in order}


def _components(sources: Mapping[str, tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the strongly connected components, each after those that it reads (Tarjan, without recursion)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    found: list[tuple[str, ...]] = []
    for start in sources:
        if start in index:
            continue
        work = [(start, iter(sources[start]))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on_stack.add(start)
        while work:
            node, rest = work[-1]
            following = next(rest, None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    cut = stack.index(node)
                    found.append(tuple(stack[cut:]))
                    on_stack -= set(stack[cut:])
                    del stack[cut:]
            elif following not in index:
                index[following] = low[following] = len(index)
                stack.append(following)
                on_stack.add(following)
                work.append((following, iter(sources[following])))
            elif following in on_stack:
                low[node] = min(low[node], index[following])
    return found


def _fused(
    graph: Graph, components: Sequence[tuple[str, ...]], wanted: set[str], fusible: set[str]
) -> tuple[Unit, ...]:
    """Join single nodes with the only ones that read them."""
    alone = {c[0] for c in components if len(c) == 1 and c[0] in fusible}
    follower = {}
    for n in alone:
        readers = graph.dependents.get(n, ())
        if len(readers) == 1 and readers[0] in alone and readers[0] in wanted:
            follower[n] = readers[0]
    fed: dict[str, list[str]] = {}
    for n, reader in follower.items():
        fed.setdefault(reader, []).append(n)
    follower = {n: r for n, r in follower.items() if len(fed[r]) == 1}
    continued = set(follower.values())
    units = []
    for component in components:
        if len(component) > 1:
            units.append(Unit(UnitKind.GROUP, component))
            continue
        (node,) = component
        if node in follower:
            continue  # it comes with the last one of its chain, after all that this one reads
        chain = [node]
        if node in continued:
            back = {r: n for n, r in follower.items()}
            while chain[0] in back:
                chain.insert(0, back[chain[0]])
        units.append(Unit(UnitKind.CHAIN if len(chain) > 1 else UnitKind.SINGLE, tuple(chain)))
    return tuple(units)
