"""The graph of stream tables, as far as one snapshot shows it: who reads whom, and in which order."""

from __future__ import annotations

from headwater.catalog import Snapshot


def topological(snapshot: Snapshot) -> list[str]:
    """Return the stream tables, sources before those that read them, by name within a level."""
    done: dict[str, None] = {}

    def visit(table_id: str) -> None:
        if table_id in done or table_id not in snapshot.streams:
            return
        for source in sorted(snapshot.sources.get(table_id, ())):
            visit(source)
        done[table_id] = None

    for table_id in sorted(snapshot.streams, key=lambda i: snapshot.tables[i].name):
        visit(table_id)
    return list(done)


def dependents_of(snapshot: Snapshot, table_id: str) -> list[str]:
    """Return every stream table that reads the table, directly or not, nearest first."""
    found: dict[str, None] = {}
    waiting = list(snapshot.dependents.get(table_id, ()))
    while waiting:
        current = waiting.pop(0)
        if current not in found:
            found[current] = None
            waiting += snapshot.dependents.get(current, ())
    order = {t: i for i, t in enumerate(topological(snapshot))}
    return sorted(found, key=lambda t: order[t])
