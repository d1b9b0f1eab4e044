"""The graph for people: as a tree, as a list of diamonds, as a drawing.

A drawing is planned as data (`Drawing`) and then printed as Mermaid or for Graphviz. Names come from users: each language has one
function that quotes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from headwater.catalog import Snapshot
from headwater.errors import StatementError
from headwater.model.control import RefreshGroup, Trouble
from headwater.model.options import Consistency, GroupPolicy
from headwater.model.reports import DependencyTree, DiamondGroup, TreeNode
from headwater.model.tables import REREAD, SUSPENDED
from headwater.refresh.moment import pending_sources
from headwater.schedule.blocks import block_of
from headwater.schedule.graph import Diamond, Graph
from headwater.schedule.schedules import schedule_of
from headwater.settings import Settings

# trees ----------------------------------------------------------------------------------------------------------------------


def dependency_tree(snapshot: Snapshot, table_id: str | None = None) -> DependencyTree:
    """Return what a table reads as a tree; without one, a tree for each stream table that no other reads.

    What was shown before with all that it reads is marked with an ellipsis instead of being repeated.
    """
    shown: set[str] = set()
    nodes: list[TreeNode] = []
    lines: list[str] = []
    _add_trees(snapshot, _roots(snapshot) if table_id is None else [table_id], shown, nodes, lines)
    while table_id is None and (circle := snapshot.streams.keys() - shown):
        _add_trees(snapshot, _by_name(snapshot, circle)[:1], shown, nodes, lines)
    return DependencyTree(tuple(nodes), "\n".join(lines))


def _add_trees(
    snapshot: Snapshot, roots: Sequence[str], shown: set[str], nodes: list[TreeNode], lines: list[str]
) -> None:
    work: list[tuple[str, str | None, int, str, str]] = [(root, None, 0, "", "") for root in reversed(roots)]
    while work:
        current, parent, depth, corner, indent = work.pop()
        sources = _by_name(snapshot, snapshot.sources.get(current, ()))
        node = _tree_node(snapshot, current, parent, depth, is_repeated=bool(sources) and current in shown)
        nodes.append(node)
        lines.append(corner + _tree_line(node))
        shown.add(current)
        if node.is_repeated:
            continue
        for source in reversed(sources):
            branch, below = ("└─ ", "   ") if source == sources[-1] else ("├─ ", "│  ")
            work.append((source, node.name, depth + 1, indent + branch, indent + below))


def _tree_node(snapshot: Snapshot, table_id: str, parent: str | None, depth: int, *, is_repeated: bool) -> TreeNode:
    table, stream = snapshot.tables[table_id], snapshot.streams.get(table_id)
    if stream is None:
        return TreeNode(table.name, table.kind.value, depth, parent)
    schedule = str(schedule_of(stream.schedule))
    return TreeNode(
        table.name, table.kind.value, depth, parent, stream.mode.value, schedule, stream.status, is_repeated
    )


def _tree_line(node: TreeNode) -> str:
    if node.schedule is None:
        return f"{_flat(node.name)} (table)"
    status = "" if node.status == "ACTIVE" else f", {node.status}"
    return f"{_flat(node.name)} ({node.mode}, {node.schedule}{status}){' …' if node.is_repeated else ''}"


def _roots(snapshot: Snapshot) -> list[str]:
    return _by_name(snapshot, (i for i in snapshot.streams if not snapshot.dependents.get(i)))


def _by_name(snapshot: Snapshot, table_ids: Iterable[str]) -> list[str]:
    return sorted(table_ids, key=lambda i: (snapshot.tables[i].name.casefold(), i))


# diamonds -------------------------------------------------------------------------------------------------------------------


def diamond_groups(snapshot: Snapshot, graph: Graph) -> list[DiamondGroup]:
    """Return the members of all diamonds, with the policies that count for all of them: the strictest of where their ways meet."""
    found = []
    for diamond in graph.diamonds:
        consistency, policy = _policies(snapshot, diamond)
        name = diamond_name(snapshot, diamond)
        found += [
            DiamondGroup(
                name,
                snapshot.tables[m].name,
                m in diamond.meetings,
                policy,
                consistency,
                snapshot.streams[m].frontier,
            )
            for m in diamond.members
        ]
    return sorted(found, key=lambda d: d.group)


def diamond_name(snapshot: Snapshot, diamond: Diamond) -> str:
    """Return the name of a diamond: that of the last table in which its ways meet, which belongs to no other diamond."""
    return snapshot.tables[diamond.meetings[-1]].name


def _policies(snapshot: Snapshot, diamond: Diamond) -> tuple[Consistency, GroupPolicy]:
    options = [snapshot.streams[m].options for m in diamond.meetings]
    is_atomic = any(o.diamond_consistency is Consistency.ATOMIC for o in options)
    is_slowest = any(o.diamond_schedule_policy is GroupPolicy.SLOWEST for o in options)
    return (
        Consistency.ATOMIC if is_atomic else Consistency.NONE,
        GroupPolicy.SLOWEST if is_slowest else GroupPolicy.FASTEST,
    )


# drawings -------------------------------------------------------------------------------------------------------------------


class Look(Enum):
    """What the colour of a node tells."""

    SOURCE = "source"
    FRESH = "fresh"
    BEHIND = "behind"
    BLOCKED = "blocked"
    FAILED = "failed"


COLOURS: Mapping[Look, tuple[str, str]] = {
    Look.SOURCE: ("#eceff1", "#546e7a"),
    Look.FRESH: ("#e8f5e9", "#2e7d32"),
    Look.BEHIND: ("#fff8e1", "#f9a825"),
    Look.BLOCKED: ("#e3f2fd", "#1565c0"),
    Look.FAILED: ("#ffebee", "#c62828"),
}
"""Fill and line."""


@dataclass(frozen=True, slots=True)
class Node:
    """A table in a drawing: its lines of text, the first of them its name."""

    key: str
    lines: tuple[str, ...]
    look: Look


@dataclass(frozen=True, slots=True)
class Cluster:
    """Stream tables that appear together, and why."""

    key: str
    title: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Drawing:
    """What is drawn, whatever the language. A node is part of one cluster at most; edges lead from what is read to who reads it."""

    nodes: tuple[Node, ...]
    clusters: tuple[Cluster, ...]
    edges: tuple[tuple[str, str], ...]


def drawing_of(snapshot: Snapshot, graph: Graph, settings: Settings, now: float) -> Drawing:
    """Return the drawing of all stream tables and what they read."""
    order = [*_by_name(snapshot, {s for n in graph.order for s in graph.sources[n]} - set(graph.order)), *graph.order]
    keys = {table_id: f"t{i}" for i, table_id in enumerate(order)}
    nodes = tuple(
        Node(keys[i], (snapshot.tables[i].name, *_facts(snapshot, i)), _look(snapshot, i, settings, now)) for i in order
    )
    edges = tuple((keys[s], keys[n]) for n in graph.order for s in dict.fromkeys(graph.sources[n]))
    return Drawing(nodes, _clusters(snapshot, graph, keys), edges)


def explained_dag(drawing: Drawing, format: str) -> str:
    """Print a drawing as Mermaid or for Graphviz."""
    printed = FORMATS.get(format.lower())
    if printed is None:
        raise StatementError(f"unknown format {format!r}", hint=f"Choose one of {', '.join(FORMATS)}.")
    return printed(drawing)


def _facts(snapshot: Snapshot, table_id: str) -> tuple[str, ...]:
    stream = snapshot.streams.get(table_id)
    if stream is None:
        return ()
    status = () if stream.status == "ACTIVE" else (stream.status,)
    return (f"{schedule_of(stream.schedule)}, {stream.options.tier.value}, {stream.mode.value}", *status)


def _look(snapshot: Snapshot, table_id: str, settings: Settings, now: float) -> Look:
    stream = snapshot.streams.get(table_id)
    if stream is None:
        return Look.SOURCE
    if stream.status == SUSPENDED or snapshot.notes.get(Trouble, table_id) is not None:
        return Look.FAILED
    if block_of(snapshot, table_id, settings, now) is not None:
        return Look.BLOCKED
    is_behind = stream.frontier is None or stream.status == REREAD or pending_sources(snapshot, stream)
    return Look.BEHIND if is_behind else Look.FRESH


def _clusters(snapshot: Snapshot, graph: Graph, keys: Mapping[str, str]) -> tuple[Cluster, ...]:
    """Return diamonds and refresh groups; those that share a member are one, since a node is drawn once."""
    wanted = [(f"diamond {diamond_name(snapshot, d)}", d.members) for d in graph.diamonds]
    groups = snapshot.notes.of(RefreshGroup)
    wanted += [(f"group {n}", tuple(m for m in groups[n].members if m in snapshot.streams)) for n in sorted(groups)]
    merged: list[tuple[list[str], set[str]]] = []
    for title, members in wanted:
        titles, together = [title], set(members)
        for other in [m for m in merged if m[1] & together]:
            merged.remove(other)
            titles, together = [*other[0], *titles], together | other[1]
        merged.append((titles, together))
    return tuple(
        Cluster(f"g{i}", " and ".join(titles), tuple(keys[n] for n in graph.order if n in members))
        for i, (titles, members) in enumerate(merged)
        if members
    )


def _mermaid(drawing: Drawing) -> str:
    nodes = {n.key: n for n in drawing.nodes}
    inside = {n for c in drawing.clusters for n in c.nodes}
    lines = ["flowchart LR"]
    for cluster in drawing.clusters:
        lines.append(f"  subgraph {cluster.key}[{_mermaid_text(cluster.title)}]")
        lines += [f"    {_mermaid_node(nodes[n])}" for n in cluster.nodes]
        lines.append("  end")
    lines += [f"  {_mermaid_node(n)}" for n in drawing.nodes if n.key not in inside]
    lines += [f"  {read} --> {reader}" for read, reader in drawing.edges]
    for look, (fill, line) in COLOURS.items():
        lines.append(f"  classDef {look.value} fill:{fill},stroke:{line},color:#000000")
    return "\n".join(lines) + "\n"


def _mermaid_node(node: Node) -> str:
    left, right = ("[(", ")]") if node.look is Look.SOURCE else ("[", "]")
    return f"{node.key}{left}{_mermaid_text(*node.lines)}{right}:::{node.look.value}"


def _mermaid_text(*lines: str) -> str:
    """Return lines as one quoted text: what may mean something to Mermaid, Markdown or HTML is written as its number."""
    return f'"{"<br/>".join("".join(_mermaid_character(c) for c in _flat(line)) for line in lines)}"'


def _mermaid_character(character: str) -> str:
    is_plain = character.isalnum() or character in " _,:/()@"
    return character if is_plain else f"#{ord(character)};"


def _dot(drawing: Drawing) -> str:
    nodes = {n.key: n for n in drawing.nodes}
    inside = {n for c in drawing.clusters for n in c.nodes}
    lines = ["digraph headwater {", "  rankdir=LR;", '  node [shape=box, style="filled,rounded"];']
    for cluster in drawing.clusters:
        lines.append(f"  subgraph cluster_{cluster.key} {{")
        lines.append(f"    label={_dot_text(cluster.title)};")
        lines += [f"    {_dot_node(nodes[n])}" for n in cluster.nodes]
        lines.append("  }")
    lines += [f"  {_dot_node(n)}" for n in drawing.nodes if n.key not in inside]
    lines += [f"  {read} -> {reader};" for read, reader in drawing.edges]
    return "\n".join([*lines, "}"]) + "\n"


def _dot_node(node: Node) -> str:
    fill, line = COLOURS[node.look]
    shape = ", shape=cylinder, style=filled" if node.look is Look.SOURCE else ""
    return f'{node.key} [label={_dot_text(*node.lines)}, fillcolor="{fill}", color="{line}"{shape}];'


def _dot_text(*lines: str) -> str:
    """Return lines as one quoted text of Graphviz."""
    return '"' + "\\n".join(_flat(line).replace("\\", "\\\\").replace('"', '\\"') for line in lines) + '"'


def _flat(text: str) -> str:
    """Return a text on one line."""
    return "".join(c if c.isprintable() else " " for c in text)


FORMATS: Mapping[str, Callable[[Drawing], str]] = {"mermaid": _mermaid, "dot": _dot}
