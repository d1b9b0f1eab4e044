"""A tick that finds nothing to do, with ever more stream tables.

Three stream tables are created by Spark (an aggregate, a selection from it, a join of two) and copied in the catalog, each copy with a
definition text of its own: 10 of them make a block of six over one source and four over those, with a diamond. So schedulers tick
over real definitions, and a few copies are refreshed and verified at the end. None is due: what is measured is the tick itself.

    idle      nothing changed
    changed   one of the sources did, and those that read it wait for their time
    rebuild   a stream table was created or dropped, so the graph is built anew

Changes are made through another connection, as those of another process: the tick itself reads them from the catalog.

    make bench BENCH=tick      (or: python -m benchmarks.tick --sizes 10 100 --repeats 50)
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from sqlalchemy import event

import headwater as hw
from benchmarks._scheduling import (
    COLUMNS,
    Results,
    finished,
    met,
    parser_of,
    percentile,
    rows_of,
    table_of,
    verified_text,
)
from benchmarks._tpch import Progress, machine, milliseconds, save
from headwater.model.commit import Change, Commit, CreateTable, DefineStream, DropTable, MoveFrontier
from headwater.model.tables import StreamTable, Table
from headwater.schedule.scheduler import Scheduler

SIZES = (10, 100, 1_000, 5_000)
SOURCES = 10
TICKS = 200
TARGET_SIZE, TARGET_MS, TARGET_STATEMENTS = 1_000, 20.0, 2
NOISE = 1.1
"""Linear growth is measured as a little more, or a little less."""
BLOCK = 10
MARK = 1_234_567
"""A number in the queries that each copy has another one for."""
QUERIES = {
    "left": f"SELECT region, count(*) AS n, sum(amount) AS total FROM model_source WHERE amount < {MARK} GROUP BY region",
    "right": "SELECT region, count(*) AS n, sum(amount) AS total FROM model_source GROUP BY region",
    "top": f"SELECT region, n, total FROM model_left WHERE total < {MARK}",
    "join": f"""
        SELECT a.region, a.n + b.n AS n, a.total + b.total AS total
        FROM model_left a JOIN model_right b ON a.region = b.region WHERE a.total < {MARK}""",
}
SHAPE: tuple[tuple[str, tuple[int, ...]], ...] = (
    *(("left", ()),) * 5,
    ("top", (0,)),
    ("top", (5,)),
    ("top", (1,)),
    ("join", (2, 3)),
    ("top", (8,)),
)
"""A block: what each copy is made of, and which copies of the block it reads; without any it reads the block's source."""


# stream tables without Spark ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Model:
    """A stream table that was really planned, with the tables of its state and what it reads."""

    table: Table
    parts: tuple[Table, ...]
    stream: StreamTable
    sources: tuple[str, ...]

    def copied(self, number: int, table_id: str, sources: Sequence[str], frontier: int) -> list[Change]:
        """Return what creates an empty copy over other sources, which are empty too."""
        name = f"copy_{number}"
        text = self.stream.definition.replace(str(MARK), str(MARK + number))
        for old, new in zip(self.sources, sources, strict=True):
            text = text.replace(old, new)
        if str(MARK) not in self.stream.definition or any(s in text for s in self.sources):
            raise RuntimeError("a definition is not written as this benchmark expects it")
        changes: list[Change] = [CreateTable(_empty(replace(self.table, id=table_id, name=name)))]
        for part in self.parts:
            own = name + part.name.removeprefix(self.table.name)
            changes.append(CreateTable(_empty(replace(part, id=uuid.uuid4().hex, name=own, parent_id=table_id))))
        mine = replace(self.stream, table_id=table_id, schedule="1h", definition=text, frontier=frontier)
        changes.append(
            DefineStream(
                mine.table_id, mine.query, mine.mode, mine.schedule, mine.when_full, text, tuple(sources), frontier
            )
        )
        return changes


def _empty(table: Table) -> Table:
    return replace(table, created=0, moved=0, base_version=0, row_count=0, hash=0, next_row_id=0)


def models_of(wh: hw.Warehouse) -> dict[str, Model]:
    """Plan the stream tables that are copied; they are gone afterwards."""
    wh.create_table("model_source", COLUMNS, primary_key="id")
    for name, query in QUERIES.items():
        wh.create_stream_table(f"model_{name}", query, refresh_mode="DIFFERENTIAL")
    snapshot = wh.snapshot()
    found = {}
    for name in QUERIES:
        table = snapshot.table(f"model_{name}")
        assert table is not None
        parts = tuple(snapshot.tables[p] for p in snapshot.parts.get(table.id, ()))
        found[name] = Model(table, parts, snapshot.streams[table.id], snapshot.sources[table.id])
    wh.drop_table("model_source", cascade=True)
    return found


class Copies:
    """Grows a warehouse by copies of the models, block by block."""

    def __init__(self, wh: hw.Warehouse, models: dict[str, Model]) -> None:
        self._wh = wh
        self._models = models
        self.ids: list[str] = []
        for i in range(SOURCES):
            wh.create_table(source_name(i), COLUMNS, primary_key="id")

    def grow(self, size: int) -> None:
        """Make more copies, until there are `size`; none of them is due within an hour."""
        catalog = self._wh._catalog
        while len(self.ids) < size:
            changes: list[Change] = []
            snapshot = self._wh.snapshot()
            made: list[str] = []
            while len(self.ids) < size and len(made) < 10 * BLOCK:
                made.append(uuid.uuid4().hex)
                self.ids.append(made[-1])
                changes += self._copy(len(self.ids) - 1, snapshot)
            version = catalog.commit(Commit(tuple(changes)))
            now = catalog.now()
            catalog.commit(Commit(tuple(MoveFrontier(i, snapshot.version, version, began=now, ms=50.0) for i in made)))

    def one_more(self) -> str:
        """Create one copy more and return its id."""
        snapshot = self._wh.snapshot()
        table_id, source = uuid.uuid4().hex, snapshot.table(source_name(0))
        assert source is not None
        changes = self._models["left"].copied(len(self.ids), table_id, (source.id,), snapshot.version)
        version = self._wh._catalog.commit(Commit(tuple(changes)))
        moved = MoveFrontier(table_id, snapshot.version, version, began=self._wh._catalog.now(), ms=50.0)
        self._wh._catalog.commit(Commit((moved,)))
        return table_id

    def _copy(self, number: int, snapshot: hw.catalog.Snapshot) -> list[Change]:
        block, place = divmod(number, BLOCK)
        kind, above = SHAPE[place]
        source = snapshot.table(source_name(block))
        assert source is not None
        sources = tuple(self.ids[block * BLOCK + a] for a in above) or (source.id,)
        return self._models[kind].copied(number, self.ids[number], sources, snapshot.version)


def source_name(number: int) -> str:
    return f"source_{number % SOURCES}"


# measuring ------------------------------------------------------------------------------------------------------------------


@contextmanager
def noted_statements(wh: hw.Warehouse) -> Iterator[list[str]]:
    """Note every statement that the catalog's database is given, by whatever way, BEGIN and COMMIT among them."""
    pool = wh._catalog._database._engine.pool
    noted: list[str] = []
    lent: dict[int, Any] = {}

    def on_checkout(driver: Any, record: object, proxy: object) -> None:
        lent[id(driver)] = driver
        driver.set_trace_callback(noted.append)

    event.listen(pool, "checkout", on_checkout)
    try:
        yield noted
    finally:
        event.remove(pool, "checkout", on_checkout)
        for driver in lent.values():
            driver.set_trace_callback(None)


def ticked(scheduler: Scheduler) -> float:
    """Time a tick that must not refresh anything."""
    began = time.perf_counter()
    report = scheduler.tick()
    ms = (time.perf_counter() - began) * 1000
    if report.refreshed or report.failed:
        raise RuntimeError(f"a tick was not idle: {report.refreshed[:1]} {report.failed[:1]}")
    return ms


def statements_of(wh: hw.Warehouse, work: Callable[[], object]) -> int:
    with noted_statements(wh) as noted:
        work()
    return len(noted)


def measure_size(
    wh: hw.Warehouse, other: hw.Warehouse, copies: Copies, size: int, args: argparse.Namespace, progress: Progress
) -> Results:
    """Measure one number of stream tables, with a scheduler of its own; whoever changes something is the `other`."""
    copies.grow(size)
    progress.say(f"{size:,} stream tables are there")
    found: Results = {"size": size, "tables": len(wh.snapshot().tables), "idle": [], "changed": [], "rebuild": []}
    found |= {"first": 0.0, "rebuild_reading": [], "idle_statements": [], "changed_statements": [], "waiting": 0}
    turn = 0

    def change() -> None:
        nonlocal turn
        turn += 1
        other.insert(source_name(0), rows_of(size * 1_000_000 + turn, 1))

    with wh.scheduler() as scheduler:
        found["first"] = ticked(scheduler)
        for _ in range(args.warm_up):
            ticked(scheduler)
        found["idle"] = [ticked(scheduler) for _ in range(args.repeats)]
        found["idle_statements"] = [statements_of(wh, lambda: ticked(scheduler)) for _ in range(50)]
        progress.say(f"{size:,}: idle {statistics.median(found['idle']):.2f} ms")
        for i in range(5 + args.repeats // 2):
            change()
            ms = ticked(scheduler)
            if i >= 5:
                found["changed"].append(ms)
        for _ in range(10):
            change()
            found["changed_statements"].append(statements_of(wh, lambda: ticked(scheduler)))
        found["waiting"] = len({name for name, _ in scheduler.tick().skipped})
        progress.say(f"{size:,}: changed {statistics.median(found['changed']):.2f} ms, {found['waiting']} tables wait")
        for i in range(8):
            if i % 2 == 0:
                extra = copies.one_more()
            else:
                other._catalog.commit(Commit((DropTable(extra),)))
            found["rebuild_reading"].append(milliseconds(wh.snapshot))
            found["rebuild"].append(found["rebuild_reading"][-1] + ticked(scheduler))
        progress.say(f"{size:,}: rebuild {statistics.median(found['rebuild']):.1f} ms")
    return found


def measure(args: argparse.Namespace, root: Path, progress: Progress) -> Results:
    """Grow one warehouse and measure it at each size."""
    results: Results = {"machine": machine(), "sizes": [], "verified": []}
    with hw.connect(root / "warehouse") as wh, hw.connect(root / "warehouse") as other:
        models = models_of(other)
        progress.say("planned the stream tables that are copied")
        copies = Copies(other, models)
        for size in sorted(args.sizes):
            if progress.is_over:
                progress.say(f"the budget is used up before {size:,} stream tables")
                break
            results["sizes"].append(measure_size(wh, other, copies, size, args, progress))
            save(args.results, results)
        for place in range(BLOCK):  # those that others read come first
            report = wh.refresh(f"copy_{place}")
            verified = wh.verify(f"copy_{place}")
            results["verified"].append([report.action.value, verified.equal, verified.rows])
    return results


# the page -------------------------------------------------------------------------------------------------------------------


def page(results: Results) -> str:
    """Return the page as Markdown."""
    sizes = results["sizes"]
    head = ["stream tables", "idle", "p99", "source changed", "p99", "tables that wait", "rebuild", "of it reading"]
    head += ["first tick", "statements, idle", "statements, changed"]
    lines = []
    for s in sizes:
        idle, changed = s["idle"], s["changed"]
        times = [statistics.median(idle), percentile(idle, 0.99), statistics.median(changed), percentile(changed, 0.99)]
        rebuild = [statistics.median(s["rebuild"]), statistics.median(s["rebuild_reading"]), s["first"]]
        lines.append(
            [
                f"{s['size']:,}",
                *(f"{ms:.2f}" for ms in times),
                f"{s['waiting']:,}",
                *(f"{ms:,.1f}" for ms in rebuild),
                _spread(s["idle_statements"]),
                _spread(s["changed_statements"]),
            ]
        )
    out = [
        "# Tick: a scheduler that finds nothing to do",
        "",
        f"Stream tables over {SOURCES} sources, up to four levels deep, one run on {results['machine']}. `make bench BENCH=tick`.",
        "Times are milliseconds of whole ticks, medians and 99th percentiles; the first tick reads and builds everything.",
        "",
        "*Source changed*: one row was inserted into one source, and those that read it are not due. *Rebuild*: a stream table was",
        "created or dropped; the time is that of the next tick, with reading all definitions from the catalog anew. Statements are what",
        "the catalog's database was given in a tick, BEGIN and COMMIT counted: the median, and the most. Changes were made through",
        "another connection, so the tick itself reads them.",
        "",
        *table_of(head, lines, texts=0),
        "",
        "## Targets",
        "",
        *_targets(sizes),
        "",
        _verified(results["verified"]),
    ]
    return "\n".join([*out, ""])


def _spread(counts: Sequence[int]) -> str:
    low, high = statistics.median(counts), max(counts)
    return f"{low:g}" if low == high else f"{low:g}, at most {high}"


def _targets(sizes: Sequence[Results]) -> list[str]:
    lines = []
    for s in sizes:
        if s["size"] == TARGET_SIZE:
            ms = statistics.median(s["idle"])
            wanted = f"idle tick at {TARGET_SIZE:,} stream tables under {TARGET_MS:g} ms"
            lines.append([wanted, f"{ms:.2f} ms", met(ms < TARGET_MS)])
            count = statistics.median(s["idle_statements"])
            wanted = f"catalog statements of an idle tick, {TARGET_STATEMENTS} at most"
            lines.append([wanted, f"{count:g}", met(count <= TARGET_STATEMENTS)])
    for a, b in pairwise(sizes):
        allowed = NOISE * b["size"] / a["size"]
        for kind in ("idle", "changed", "rebuild"):
            grown = statistics.median(b[kind]) / statistics.median(a[kind])
            wanted = f"{kind}, {a['size']:,} to {b['size']:,} stream tables: at most {allowed:.3g}x"
            lines.append([wanted, f"{grown:.1f}x", met(grown <= allowed)])
    return table_of(["target", "reached", ""], lines, texts=3)


def _verified(found: Sequence[Sequence[Any]]) -> str:
    if not found:
        return "No copy was refreshed."
    wrong = [f"copy_{i}" for i, (_, equal, _) in enumerate(found) if not equal]
    by_itself = sum(action == "DIFFERENTIAL" for action, _, _ in found)
    empty = sum(not rows for _, _, rows in found)
    text = f"Of {len(found)} copies {by_itself} were refreshed from changes at the end, the others together with them;"
    return f"{text} {empty} were empty. {verified_text(wrong)}"


def main() -> int:
    """Run the benchmark and print, or write, the page."""
    parser = parser_of(__doc__, "tick", repeats=TICKS, warm_up=20)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    return finished(parser.parse_args(), measure, page)


if __name__ == "__main__":
    sys.exit(main())
