"""Groups: stream tables that are committed together, because they form a diamond or because somebody wants it.

Groups that share a member are one. A group acts as one: it waits as long as one of its members is blocked or still running, and it is
due by its policy. Where policies differ, the strictest wins: atomic before none, slowest before fastest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from headwater.catalog import Snapshot
from headwater.model.control import RefreshGroup
from headwater.model.options import Consistency, GroupPolicy
from headwater.schedule.graph import Graph
from headwater.schedule.units import components_of, contracted


@dataclass(frozen=True, slots=True)
class Group:
    """Stream tables in topological order, and when they are due together."""

    members: tuple[str, ...]
    policy: GroupPolicy


def groups_of(graph: Graph, snapshot: Snapshot) -> tuple[Group, ...]:
    """Return the groups that count: diamonds that are not set to `none`, and groups that users made, merged where they overlap.

    A table between two members belongs to them, too: it waits for one and is waited for by the other.
    """
    streams = snapshot.streams
    wanted: list[tuple[str, ...]] = []
    slowest: set[str] = set()
    for diamond in graph.diamonds:
        options = [streams[m].options for m in diamond.meetings]
        if any(o.diamond_consistency is Consistency.ATOMIC for o in options):
            wanted.append(diamond.members)
            if any(o.diamond_schedule_policy is GroupPolicy.SLOWEST for o in options):
                slowest.update(diamond.members)
    for group in snapshot.notes.of(RefreshGroup).values():
        wanted.append(tuple(m for m in group.members if m in streams))
    if not wanted:
        return ()
    home = contracted(graph.order, wanted)
    found = []
    for members in components_of(graph, graph.order, home):
        if len(members) > 1:
            policy = GroupPolicy.SLOWEST if slowest.intersection(members) else GroupPolicy.FASTEST
            found.append(Group(members, policy))
    return tuple(found)


def due_together(
    groups: Iterable[Group],
    due: Collection[str],
    candidates: Collection[str],
    stopped: Mapping[str, str],
    manual: Collection[str] = (),
) -> tuple[set[str], dict[str, str]]:
    """Return who is refreshed now of those that are due, with the rest of their groups, and why others of them are not.

    `candidates` have something to do, `stopped` must not begin, with the reason. Those in `manual` are never due by themselves: nobody
    waits for that, and they come along.
    """
    chosen = {n for n in due if n not in stopped}
    reasons = {n: stopped[n] for n in candidates if n in stopped}
    for group in groups:
        busy = [m for m in group.members if m in candidates]
        wants = [m for m in busy if m in due]
        if not wants:
            continue
        first = next((m for m in group.members if m in stopped), None)
        if first is not None:
            chosen.difference_update(group.members)
            reasons.update({m: stopped.get(m, f"waits for its group: {stopped[first]}") for m in wants})
        elif group.policy is GroupPolicy.SLOWEST and any(m not in due and m not in manual for m in busy):
            chosen.difference_update(group.members)
            reasons.update(dict.fromkeys(wants, "waits until all of its group are due"))
        else:
            chosen.update(busy)
    return chosen, reasons
