"""Explaining a stream table: what it is, how it is kept, and the very texts that a refresh runs."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.catalog import Snapshot
from headwater.model.tables import StreamTable, Table
from headwater.refresh.computing import state_tables
from headwater.refresh.cycle import chosen
from headwater.refresh.definition import Definition
from headwater.refresh.moment import pending_sources
from headwater.refresh.template import AnyText, LoopText, RowsText, StageText, Text
from headwater.refresh.when_full import full_notices


def explained(snapshot: Snapshot, table: Table, stream: StreamTable, definition: Definition) -> str:
    """Return a page about a stream table, derived from what its refreshes use."""
    action, reason = chosen(stream, definition, full=False)
    lines = [
        f"stream table {table.name}",
        f"  query        {' '.join(stream.query.split())}",
        f"  mode         {stream.mode.value}; the next refresh is {action.value}: {reason}",
        f"  when_full    {stream.when_full.value}",
        f"  schedule     {stream.schedule or 'manual'}",
        f"  frontier     {stream.frontier} of {snapshot.version}",
        f"  rows         {table.row_count}",
        f"  key          {', '.join(table.schema.key) or 'none: rows are counted'}",
    ]
    changed = set(pending_sources(snapshot, stream))
    for source in snapshot.sources.get(table.id, ()):
        state = "changed" if source in changed else "unchanged"
        lines.append(f"  source       {snapshot.tables[source].name} ({state})")
    for notice in (*definition.notices, *full_notices(stream, action, reason)):
        lines.append(f"  notice       {notice}")
    for code, fragment, detail, hint in definition.refusals:
        lines.append(f"  not incremental: {code} at {fragment}: {detail} {hint}")
    if definition.template is not None:
        states = state_tables(snapshot, table.id)
        for stage in definition.template.stages:
            lines += _stage_lines(stage, states)
        lines += [f"  result       {_terms(definition.template.delta)}"]
    return "\n".join(lines)


def _stage_lines(stage: AnyText, states: Mapping[str, Table]) -> list[str]:
    match stage:
        case RowsText():
            return [f"  rows         {stage.name}", f"    computed   {_terms(stage.rows)}"]
        case LoopText():
            return [
                f"  rounds       {stage.name}",
                f"    begin      {_terms(stage.seeds)}",
                f"    follow     {stage.step.sql}",
            ]
        case StageText():
            kept = states.get(stage.name)
            rows = kept.row_count if kept else 0
            return [
                f"  state        {stage.name}: {stage.strategy}, {rows} groups",
                f"    changes    {_terms(stage.keys)}",
                f"    merge      {stage.delta.sql}",
                f"    rescan     {stage.rescan.sql}",
            ]


def _terms(text: Text) -> str:
    return "\n             + ".join(t.sql for t in text.terms) or "nothing"
