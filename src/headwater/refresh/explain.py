"""Explaining a stream table: what it is, how it is kept, and the very texts that a refresh runs."""

from __future__ import annotations

from headwater.catalog import Snapshot
from headwater.model.tables import StreamTable, Table
from headwater.refresh.cycle import chosen, pending_sources, state_tables
from headwater.refresh.definition import Definition


def explained(snapshot: Snapshot, table: Table, stream: StreamTable, definition: Definition) -> str:
    """Return a page about a stream table, derived from what its refreshes use."""
    action, reason = chosen(stream, definition, full=False)
    lines = [
        f"stream table {table.name}",
        f"  query        {' '.join(stream.query.split())}",
        f"  mode         {stream.mode.value}; the next refresh is {action.value}: {reason}",
        f"  schedule     {stream.schedule or 'manual'}",
        f"  frontier     {stream.frontier} of {snapshot.version}",
        f"  rows         {table.row_count}",
        f"  key          {', '.join(table.schema.key) or 'none: rows are counted'}",
    ]
    changed = set(pending_sources(snapshot, stream))
    for source in snapshot.sources.get(table.id, ()):
        state = "changed" if source in changed else "unchanged"
        lines.append(f"  source       {snapshot.tables[source].name} ({state})")
    for notice in definition.notices:
        lines.append(f"  notice       {notice}")
    for code, fragment, detail, hint in definition.refusals:
        lines.append(f"  not incremental: {code} at {fragment}: {detail} {hint}")
    if definition.template is not None:
        states = state_tables(snapshot, table.id)
        for stage in definition.template.stages:
            kept = states.get(stage.name)
            rows = kept.row_count if kept else 0
            lines.append(f"  state        {stage.name}: {stage.strategy}, {rows} groups")
            lines.append(f"    changes    {stage.keys.sql}")
            lines.append(f"    merge      {stage.delta.sql}")
            lines.append(f"    rescan     {stage.rescan.sql}")
        lines.append(f"  result       {definition.template.delta.sql}")
    return "\n".join(lines)
