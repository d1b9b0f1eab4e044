"""The graph of stream tables: who reads whom, in which order, and who must appear together.

A graph is never changed. It is built beside the old one and takes its place by one assignment, so readers never wait. What a change of
definitions touches are the changed nodes and everything below them; the rest keeps its order, its level and its ancestors:

    order  =  the old order of what is not touched  ++  what is touched, sources first

That is an order again: what is not touched reads nothing that is.

Ancestors are sets of bits, one per node, so that all of them together take one pass over the edges.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from headwater.errors import CycleError

MOST_TOUCHED = 0.25
"""Where more of the graph than that is touched, it is built anew: nothing would be saved."""

Edges = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Diamond:
    """Stream tables that read the same thing on several ways, down to those where the ways meet.

    `members` stand in topological order. `meetings` are those of them where ways meet.
    """

    members: tuple[str, ...]
    meetings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """Stream tables and what they read. `order` has every stream table once, sources first."""

    order: tuple[str, ...]
    sources: Edges
    dependents: Edges
    level: Mapping[str, int]
    diamonds: tuple[Diamond, ...]
    _bits: Mapping[str, int]
    _above: Mapping[str, int]

    def ancestors(self, node: str) -> set[str]:
        """Return everything that a stream table reads, directly or not, tables included."""
        above = self._above[node]
        return {n for n, bit in self._bits.items() if above >> bit & 1}

    def descendants(self, nodes: Iterable[str]) -> set[str]:
        """Return every stream table that reads one of the nodes, directly or not."""
        return _below(nodes, self.dependents)


def empty_graph() -> Graph:
    """Return a graph without any stream table."""
    return graph_of({})


def graph_of(sources: Edges) -> Graph:
    """Build the graph of stream tables from what each of them reads; a circle is refused with its path."""
    return _built(dict(sources), [], {}, {}, {})


def rebuilt(old: Graph, sources: Edges) -> Graph:
    """Return the graph of `sources`, of which `old` may know most."""
    changed = [n for n, read in sources.items() if old.sources.get(n) != read]
    gone = [n for n in old.order if n not in sources]
    if not changed and not gone:
        return old
    touched = _below(changed, _dependents(sources)) | set(changed)
    forgotten = len(old._bits) - len(old.sources.keys() | old.dependents.keys())
    if len(touched) + forgotten > MOST_TOUCHED * len(sources):
        return graph_of(sources)
    kept = [n for n in old.order if n in sources and n not in touched]
    level = {n: old.level[n] for n in kept}
    above = {n: old._above[n] for n in kept}
    return _built(dict(sources), kept, level, dict(old._bits), above)


def _built(
    sources: dict[str, tuple[str, ...]],
    order: list[str],
    level: dict[str, int],
    bits: dict[str, int],
    above: dict[str, int],
) -> Graph:
    """Go on with `order` until all of `sources` is in it."""
    for node in _ordered(sources, order):
        order.append(node)
        level[node] = 1 + max((level[s] for s in sources[node] if s in sources), default=-1)
        found = 0
        for source in sources[node]:
            bit = bits.setdefault(source, len(bits))
            found |= 1 << bit | above.get(source, 0)
        above[node] = found
        bits.setdefault(node, len(bits))
    return Graph(
        tuple(order),
        MappingProxyType(sources),
        MappingProxyType(_dependents(sources)),
        MappingProxyType(level),
        _diamonds(order, sources, bits, above),
        MappingProxyType(bits),
        MappingProxyType(above),
    )


def _ordered(sources: Edges, known: Sequence[str]) -> list[str]:
    """Return the nodes that are not known yet, each after what it reads."""
    done = set(known)
    waiting = {
        n: sum(s in sources and s not in done for s in set(read)) for n, read in sources.items() if n not in done
    }
    readers = _dependents({n: tuple(dict.fromkeys(sources[n])) for n in waiting})
    ready = deque(n for n, count in waiting.items() if count == 0)
    found: list[str] = []
    while ready:
        node = ready.popleft()
        found.append(node)
        for reader in readers.get(node, ()):
            waiting[reader] -= 1
            if waiting[reader] == 0:
                ready.append(reader)
    if len(found) < len(waiting):
        raise circle({n: sources[n] for n in waiting.keys() - set(found)})
    return found


def circle(sources: Edges) -> CycleError:
    """Return the error for nodes that wait for each other, with one path around."""
    path = [min(sources)]
    while True:
        following = next((s for s in sources[path[-1]] if s in sources), None)
        if following is None:  # it only waits for the circle
            return circle({n: s for n, s in sources.items() if n != path[-1]})
        if following in path:
            around = [*path[path.index(following) :], following]
            return CycleError("stream tables would read themselves", detail=f"The path is {' <- '.join(around)}.")
        path.append(following)


def _dependents(sources: Edges) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for node, read in sources.items():
        for source in dict.fromkeys(read):
            found.setdefault(source, []).append(node)
    return {source: tuple(nodes) for source, nodes in found.items()}


def _below(nodes: Iterable[str], dependents: Edges) -> set[str]:
    found: set[str] = set()
    waiting = list(nodes)
    while waiting:
        for reader in dependents.get(waiting.pop(), ()):
            if reader not in found:
                found.add(reader)
                waiting.append(reader)
    return found


def _diamonds(
    order: Sequence[str], sources: Edges, bits: Mapping[str, int], above: Mapping[str, int]
) -> tuple[Diamond, ...]:
    """Find where ways from one thing meet again; groups that share a member are one.

    For a node that reads several things, what is above two of them (each counted with itself) is shared. Between the shared part and the
    node lie the members.
    """
    position = {n: i for i, n in enumerate(order)}
    streams = 0
    for node in order:
        streams |= 1 << bits[node]
    names = {bits[n]: n for n in order}
    parent = {n: n for n in order}
    meetings = []

    def root(node: str) -> str:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for node in order:
        read = dict.fromkeys(sources[node])
        if len(read) < 2:
            continue
        seen = shared = 0
        for source in read:
            whole = 1 << bits[source] | above.get(source, 0)
            shared |= seen & whole
            seen |= whole
        if not shared:
            continue
        meetings.append(node)
        inside = 0
        for source in read:
            whole = 1 << bits[source] | above.get(source, 0)
            if whole & shared:
                inside |= whole & ~shared & streams
        for member in _members(inside, shared, names, above):
            parent[root(member)] = root(node)
    groups: dict[str, list[str]] = {}
    met = {root(m) for m in meetings}
    for node in order:
        if root(node) in met:
            groups.setdefault(root(node), []).append(node)
    found = [
        Diamond(tuple(members), tuple(m for m in meetings if root(m) == top))
        for top, members in groups.items()
        if len(members) > 1
    ]
    return tuple(sorted(found, key=lambda d: position[d.members[0]]))


def _members(inside: int, shared: int, names: Mapping[int, str], above: Mapping[str, int]) -> list[str]:
    """Return the nodes of `inside` that themselves read something shared: others stand beside the ways."""
    found = []
    while inside:
        low = inside & -inside
        node = names[low.bit_length() - 1]
        if above[node] & shared:
            found.append(node)
        inside ^= low
    return found
