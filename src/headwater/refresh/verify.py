"""Verify: contents = the query over its sources at the frontier, as multisets. Checkable at any moment, changing nothing.

Everything is compared exactly, except FLOAT and DOUBLE columns: the order of additions decides their last digits, so two values
count as equal when they differ by at most `tolerance`, relative to the larger, or to the numbers that were summed where it is a sum.
The multiset hash in the catalog is checked too.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headwater.catalog import Snapshot
from headwater.engine.identity import identity_list, is_plain, row_hash_sql
from headwater.engine.multiset import hash_of_sums, hash_sums_sql
from headwater.engine.worker import Worker
from headwater.model.schema import Field
from headwater.model.sql import quoted
from headwater.model.tables import StreamTable
from headwater.refresh.cycle import Refresher
from headwater.refresh.definition import SCALE
from headwater.refresh.moment import Moment
from headwater.refresh.scene import Scene
from headwater.store.ground import Ground
from headwater.store.reading import net_sql
from headwater.store.rows import WEIGHT

_COMPARED = 100_000
_SHOWN = 5
_FLOATS = ("FLOAT", "DOUBLE")


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of comparing a stream table with its query.

    `missing` rows should be there and are not, `unexpected` ones are and should not be; `examples` shows a few of both.
    """

    name: str
    equal: bool
    missing: int
    unexpected: int
    rows: int
    tolerance: float
    hash_matches: bool
    frontier: int
    examples: tuple[str, ...] = ()


def verified(ground: Ground, refresher: Refresher, snapshot: Snapshot, stream: StreamTable) -> Verification:
    """Compare a populated stream table with its query at its frontier."""
    table = snapshot.tables[stream.table_id]
    assert stream.frontier is not None
    definition = refresher.definition(stream)
    scene = Scene(ground, snapshot, Moment(stream.frontier, {}, stream.frontiers))
    fields = table.schema.visible
    names = ", ".join(quoted(f.name) for f in fields)
    floats = [f for f in fields if f.type in _FLOATS]
    tolerance = ground.settings.float_tolerance if floats else 0.0
    with ground.engine.worker() as worker:
        worker.configure(definition.meaning)
        worker.size_for(max([table.row_count, *(snapshot.tables[s].row_count for s in snapshot.sources[table.id])]))
        expected = worker.view(refresher.computer.full_query(worker, scene, definition, measured=True))
        contents = worker.view(ground.reader.state(worker, ground.source(snapshot, table), snapshot.version))
        scales = [quoted(SCALE + n) for n in definition.scales]
        measured = "".join(f"{x}, " for x in scales)
        unmeasured = "".join(f"CAST(NULL AS DOUBLE) AS {x}, " for x in scales)
        signed = (
            f"(SELECT {names}, {measured}1 AS {WEIGHT} FROM {expected} "
            f"UNION ALL SELECT {names}, {unmeasured}-1 AS {WEIGHT} FROM {contents})"
        )
        text = net_sql(signed, fields, scales)
        if floats:
            text = _apart_sql(text, fields, definition.scales, tolerance)
        rows = worker.rows(worker.sql(f"{text} LIMIT {_COMPARED}"))
        wanted = [r for r in rows for _ in range(max(0, r[WEIGHT]))]
        found = [r for r in rows for _ in range(max(0, -r[WEIGHT]))]
        if floats and len(rows) < _COMPARED:
            wanted, found = _unmatched(wanted, found, fields, definition.scales, tolerance)
        hash_matches, count = _hash(worker, contents, table.schema.visible, table.hash)
    examples = [f"missing: {_shown(r, fields)}" for r in wanted[:_SHOWN]]
    examples += [f"unexpected: {_shown(r, fields)}" for r in found[:_SHOWN]]
    return Verification(
        table.name,
        not wanted and not found and hash_matches,
        len(wanted),
        len(found),
        count,
        tolerance,
        hash_matches,
        stream.frontier,
        tuple(examples),
    )


def _apart_sql(net: str, fields: Sequence[Field], scales: Sequence[str], tolerance: float) -> str:
    """Return the differences less those in the last digits alone.

    Of rows that are equal in all other columns, those that are missing and those that should not be there are put in order: if they
    are near each other pair by pair, they are the same rows.
    """
    exact = [f for f in fields if f.type not in _FLOATS]
    floats = [quoted(f.name) for f in fields if f.type in _FLOATS]
    names = [quoted(f.name) for f in exact]
    items = [n if is_plain(f.type) else f"any_value({n}) AS {n}" for n, f in zip(names, exact, strict=True)]
    measures = [quoted(SCALE + n) for n in scales]
    row = f"struct({', '.join((*floats, *measures))}, {WEIGHT})"
    for side, sign in (("missing", ">"), ("unexpected", "<")):
        items.append(f"collect_list({row}) FILTER (WHERE {WEIGHT} {sign} 0) AS __{side}")
    values = ", ".join(f"r.{x} AS {x}" for x in (*floats, *measures))
    scale_of = {quoted(n): f"a.{quoted(SCALE + n)}" for n in scales}

    def in_order(side: str) -> str:
        return f"sort_array(flatten(transform(__{side}, r -> array_repeat(struct({values}), abs(r.{WEIGHT})))))"

    near = " AND ".join(_near_sql(f"a.{x}", f"b.{x}", scale_of.get(x, "0D"), tolerance) for x in floats)
    pairs = f"zip_with({in_order('missing')}, {in_order('unexpected')}, (a, b) -> a IS NOT NULL AND b IS NOT NULL AND {near})"
    grouped = f"SELECT {', '.join(items)} FROM ({net}) GROUP BY {', '.join(identity_list(exact)) or 'true'}"
    columns = "".join(f"{n}, " for n in names)
    return f"SELECT {columns}inline(concat(__missing, __unexpected)) FROM ({grouped}) WHERE NOT forall({pairs}, x -> x)"


def _near_sql(a: str, b: str, scale: str, tolerance: float) -> str:
    gap = f"abs({a} - {b})"
    size = f"greatest(abs({a}), abs({b}), if({scale} < double('infinity'), {scale}, 0D))"
    within = f"{gap} <= {tolerance!r}D * {size} AND {gap} < double('infinity')"
    return f"({a} <=> {b} OR coalesce({within}, false))"


def _hash(worker: Worker, view: str, fields: Sequence[Field], kept: int) -> tuple[bool, int]:
    sums = ", ".join(f"{text} AS {name}" for name, text in hash_sums_sql(row_hash_sql(fields)).items())
    row = worker.rows(worker.sql(f"SELECT {sums}, count(*) AS n FROM {view}"))[0]
    return hash_of_sums(row.asDict()) == kept, int(row["n"])


def _unmatched(
    wanted: Sequence[Any], found: Sequence[Any], fields: Sequence[Field], scales: Sequence[str], tolerance: float
) -> tuple[list[Any], list[Any]]:
    """Pair rows that agree in everything but the last digits of floating-point columns; return the rest of both sides."""
    floats = [f.name for f in fields if f.type in _FLOATS]
    exact = [f.name for f in fields if f.type not in _FLOATS]
    candidates: dict[str, list[Any]] = defaultdict(list)
    for row in found:
        candidates[repr([row[n] for n in exact])].append(row)
    missing = []
    for row in wanted:
        near = candidates[repr([row[n] for n in exact])]
        size = {n: row[SCALE + n] if n in scales else 0.0 for n in floats}
        match = next(
            (i for i, f in enumerate(near) if all(_near(row[n], f[n], size[n], tolerance) for n in floats)), None
        )
        if match is None:
            missing.append(row)
        else:
            del near[match]
    return missing, [row for rows in candidates.values() for row in rows]


def _near(a: float | None, b: float | None, scale: float | None, tolerance: float) -> bool:
    if a is None or b is None:
        return a is b
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    size = scale if scale is not None and math.isfinite(scale) else 0.0
    return a == b or math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance * size)


def _shown(row: Any, fields: Sequence[Field]) -> str:
    return "(" + ", ".join(f"{f.name}={row[f.name]!r}" for f in fields) + ")"
