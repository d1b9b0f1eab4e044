"""`headwater demo`: two stream tables follow a table of orders that keeps changing.

What is compared: the time of a refresh, commit included, against the time Spark takes to compute the same query over the same
table from nothing, without writing the result. That favours full recomputation. Both are warm.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from headwater.cli.cells import Column, Shown
from headwater.cli.output import Board, Output

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.warehouse import Warehouse

TABLE = "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer INT, status STRING, amount DECIMAL(12,2), placed DATE)"
STREAMS = {
    "open_orders": "SELECT id, customer, amount FROM orders WHERE status = 'open' AND amount > 500",
    "sales": (
        "SELECT customer, count(*) AS orders, sum(amount) AS total, max(amount) AS largest FROM orders GROUP BY customer"
    ),
}
ORDERS_PER_CUSTOMER = 20
STATUSES = ("open", "paid", "sent", "returned")
BATCH_ROWS = 200
LOAD_ROWS = 50_000
RECOMPUTE_EVERY = 6.0
WARM_UP_ROUNDS = 3

BOARD = (
    Column("name", "stream table"),
    Column("action", "action", Shown.ACTION),
    Column("rows_in", "rows in", Shown.COUNT),
    Column("rows_inserted", "+rows", Shown.COUNT),
    Column("rows_deleted", "-rows", Shown.COUNT),
    Column("duration_ms", "ms", Shown.MILLISECONDS),
    Column("full_ms", "full ms", Shown.MILLISECONDS),
    Column("speed_up", "speed-up", Shown.FACTOR),
)
SUMMARY = (
    Column("name", "stream table"),
    Column("refreshes", "refreshes", Shown.COUNT),
    Column("differential", "differential", Shown.COUNT),
    Column("median_ms", "median ms", Shown.MILLISECONDS),
    Column("full_ms", "full ms", Shown.MILLISECONDS),
    Column("speed_up", "speed-up", Shown.FACTOR),
    Column("rows", "rows", Shown.COUNT),
    Column("verdict", "contents", Shown.ACTION),
)


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """How long, how large, and which random changes."""

    seconds: float
    rows: int
    seed: int


@dataclass(frozen=True, slots=True)
class DemoSummary:
    """What came out."""

    tables: list[dict[str, Any]]
    changes: int
    equal: bool


class _Orders:
    """The orders as the demo itself remembers them: which ids there are, and the next one."""

    def __init__(self, options: DemoOptions) -> None:
        import numpy as np

        self.customers = max(1, options.rows // ORDERS_PER_CUSTOMER)
        self.ids: list[int] = []
        self.next_id = 1
        self._random = np.random.default_rng(options.seed)

    def new(self, count: int) -> pa.Table:
        ids = list(range(self.next_id, self.next_id + count))
        self.next_id += count
        self.ids += ids
        return self._rows(ids)

    def changed(self, count: int) -> pa.Table:
        picks = self._random.choice(len(self.ids), size=min(count, len(self.ids)), replace=False)
        return self._rows([self.ids[i] for i in picks])

    def removed(self, count: int) -> list[int]:
        picks = sorted(
            self._random.choice(len(self.ids), size=min(count, len(self.ids) // 2), replace=False), reverse=True
        )
        gone = []
        for i in picks:
            gone.append(self.ids[i])
            self.ids[i] = self.ids[-1]
            self.ids.pop()
        return gone

    def _rows(self, ids: list[int]) -> pa.Table:
        from decimal import Decimal

        import numpy as np
        import pyarrow as pa

        count = len(ids)
        customers = self._random.integers(1, self.customers + 1, count)
        statuses = np.array(STATUSES)[self._random.integers(0, len(STATUSES), count)]
        cents = self._random.integers(100, 100_000, count)
        days = self._random.integers(19_700, 20_400, count)
        return pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "customer": pa.array(customers.astype("int32"), pa.int32()),
                "status": pa.array(statuses.tolist(), pa.string()),
                "amount": pa.array([Decimal(int(c)).scaleb(-2) for c in cents], pa.decimal128(12, 2)),
                "placed": pa.array(days.astype("int32"), pa.int32()).cast(pa.date32()),
            }
        )


def run_demo(options: DemoOptions, out: Output) -> DemoSummary:
    """Run the demo and show it; everything happens in a directory that is deleted at the end."""
    import headwater as hw

    with tempfile.TemporaryDirectory(prefix="headwater-demo-") as directory:
        out.note("Starting Spark in this process (a few seconds) ...")
        with hw.connect(str(Path(directory, "shop"))) as warehouse:
            orders = _Orders(options)
            _load(warehouse, orders, options.rows, out)
            _create(warehouse, out)
            full_ms = _warm_up(warehouse, orders, out)
            refreshes, changes = _follow(warehouse, orders, options.seconds, full_ms, out)
            return _summary(warehouse, refreshes, changes, full_ms, out)


def _load(warehouse: Warehouse, orders: _Orders, rows: int, out: Output) -> None:
    warehouse.sql(TABLE)
    begun = time.perf_counter()
    with out.steps("Loading orders", rows) as steps:
        for done in range(0, rows, LOAD_ROWS):
            warehouse.insert("orders", orders.new(min(LOAD_ROWS, rows - done)))
            steps.advance(min(done + LOAD_ROWS, rows), rows)
    out.note(f"Loaded {rows:,} orders in {time.perf_counter() - begun:.1f} s.")


def _create(warehouse: Warehouse, out: Output) -> None:
    for name, query in STREAMS.items():
        warehouse.create_stream_table(name, query)
        out.note(f"CREATE STREAM TABLE {name} AS {query}")


def _warm_up(warehouse: Warehouse, orders: _Orders, out: Output) -> dict[str, float]:
    """Run both ways of computing a few times without counting: first runs compile, and would blur the comparison."""
    with out.steps("Warming up", WARM_UP_ROUNDS) as steps:
        for done, _ in enumerate(islice(_changes(warehouse, orders), WARM_UP_ROUNDS)):
            steps.advance(done, WARM_UP_ROUNDS)
            warehouse.refresh()
            full_ms = _recompute(warehouse)
    return full_ms


def _recompute(warehouse: Warehouse) -> dict[str, float]:
    """Return how long Spark takes to compute each query from nothing."""
    durations = {}
    for name, query in STREAMS.items():
        begun = time.perf_counter()
        result: Any = warehouse.sql(query)
        result.write.format("noop").mode("overwrite").save()
        durations[name] = (time.perf_counter() - begun) * 1000
    return durations


def _follow(
    warehouse: Warehouse, orders: _Orders, seconds: float, full_ms: dict[str, float], out: Output
) -> tuple[list[dict[str, Any]], int]:
    """Change the orders and refresh, over and over; return a record per refresh and the number of changed rows."""
    refreshes: list[dict[str, Any]] = []
    latest: dict[str, dict[str, Any]] = {}
    changes = 0
    begun = measured = time.monotonic()
    with out.board(BOARD) as board:
        for changed in _changes(warehouse, orders):
            changes += changed
            for report in warehouse.refresh():
                row = _row(report, full_ms)
                refreshes.append(row)
                latest[report.name] = row
                _show(board, latest, row, changes, time.monotonic() - begun)
            if time.monotonic() - begun >= seconds:
                break
            if time.monotonic() - measured >= RECOMPUTE_EVERY:
                full_ms.update(_recompute(warehouse))
                measured = time.monotonic()
    return refreshes, changes


def _changes(warehouse: Warehouse, orders: _Orders) -> Iterator[int]:
    """Insert, update and delete in turn; yield the number of rows after each."""
    while True:
        warehouse.insert("orders", orders.new(BATCH_ROWS))
        yield BATCH_ROWS
        warehouse.upsert("orders", orders.changed(BATCH_ROWS))
        yield BATCH_ROWS
        gone = orders.removed(BATCH_ROWS)
        warehouse.delete("orders", where=f"id IN ({', '.join(map(str, gone))})")
        yield len(gone)


def _row(report: Any, full_ms: dict[str, float]) -> dict[str, Any]:
    full = full_ms[report.name]
    return {
        "name": report.name,
        "action": report.action,
        "rows_in": report.rows_in,
        "rows_inserted": report.rows_inserted,
        "rows_deleted": report.rows_deleted,
        "duration_ms": report.duration_ms,
        "full_ms": full,
        "speed_up": full / max(report.duration_ms, 0.001),
        "spark_jobs": report.spark_jobs,
        "reason": report.reason,
    }


def _show(board: Board, latest: dict[str, dict[str, Any]], row: dict[str, Any], changes: int, passed: float) -> None:
    board.update(list(latest.values()), row, f"{changes:,} changed orders in {passed:.0f} s")


def _summary(
    warehouse: Warehouse, refreshes: list[dict[str, Any]], changes: int, full_ms: dict[str, float], out: Output
) -> DemoSummary:
    rows = {s.name: s.rows for s in warehouse.status()}
    tables = []
    with out.steps("Verifying", len(STREAMS)) as steps:
        for done, name in enumerate(STREAMS):
            steps.advance(done, len(STREAMS), f"Verifying {name}")
            mine = [r for r in refreshes if r["name"] == name]
            typical = median(r["duration_ms"] for r in mine)
            tables.append(
                {
                    "name": name,
                    "refreshes": len(mine),
                    "differential": sum(getattr(r["action"], "value", r["action"]) == "DIFFERENTIAL" for r in mine),
                    "median_ms": typical,
                    "full_ms": full_ms[name],
                    "speed_up": full_ms[name] / typical,
                    "rows": rows[name],
                    "verdict": "equal" if warehouse.verify(name).equal else "different",
                }
            )
    summary = DemoSummary(tables, changes, all(t["verdict"] == "equal" for t in tables))
    out.document({**asdict(summary), "refreshes": refreshes})
    out.note("")
    out.text_records(SUMMARY, tables)
    verdict = "Both stream tables are equal" if summary.equal else "The stream tables are NOT equal"
    out.note(f"\n{changes:,} orders changed. {verdict} to their queries, computed anew.")
    return summary
