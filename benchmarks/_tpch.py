"""What the benchmarks over TPC-H share: loading, change sets made by Spark, timing, and where the time of a refresh goes."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from rich.console import Console
from tests.support import tpch

import headwater as hw
from headwater.catalog import Catalog
from headwater.engine.worker import Worker

_HASHES = 1_000_000_000
_DELETED, _COPIED, _UPDATED = 0.2, 0.2, 0.6


def milliseconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def machine() -> str:
    return f"{os.cpu_count()} cores"


class Progress:
    """Says what happens, with the minutes since the start, and knows when the budget is used up."""

    def __init__(self, console: Console, budget_minutes: float | None) -> None:
        self._console = console
        self._began = time.monotonic()
        self._budget = budget_minutes

    @property
    def minutes(self) -> float:
        return (time.monotonic() - self._began) / 60

    @property
    def is_over(self) -> bool:
        return self._budget is not None and self.minutes >= self._budget

    def say(self, text: str) -> None:
        self._console.print(f"[{self.minutes:6.1f} min] {text}", markup=False, highlight=False)


def save(path: Path, results: dict[str, Any]) -> None:
    """Write results so that an interruption leaves the old file or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(results, indent=1))
    fresh.replace(path)


def load_files(wh: hw.Warehouse, scale: float, directory: Path, progress: Progress) -> None:
    """Load the eight tables by way of files, which works at any scale; the files are gone afterwards."""
    tpch.write_files(scale, directory)
    progress.say(f"wrote scale {scale} as files")
    for name, spec in tpch.TABLES.items():
        wh.create_table(name, spec.ddl, primary_key=list(spec.key))
        ms = milliseconds(lambda n=name: wh.insert(n, wh.spark.read.parquet(str(directory / n))))  # type: ignore[misc]
        progress.say(f"loaded {name} in {ms / 1000:.1f} s")
    shutil.rmtree(directory)


def write_full(wh: hw.Warehouse, text: str, directory: Path) -> float:
    """Compute a query over the tables and write its result as Parquet, which a full refresh does at least; return milliseconds."""
    target = directory / "full"
    shutil.rmtree(target, ignore_errors=True)
    ms = milliseconds(lambda: wh.sql(text).write.parquet(str(target)))
    shutil.rmtree(target)
    return ms


# change sets ----------------------------------------------------------------------------------------------------------------


class Changes:
    """Changes orders with their lines, a fifth of them deleted, a fifth inserted and the rest updated.

    Orders that are deleted or copied are taken from slices of the keys' hashes that are used once, so that no key is made twice.
    """

    def __init__(self, wh: hw.Warehouse) -> None:
        self._wh = wh
        self._used = 0
        self._turn = 0

    def share(self, share: float) -> None:
        """Change this share of orders and of lineitem, and update the same share of customer and of part."""
        self._turn += 1
        self._delete(self._slice(share * _DELETED))
        self._copy(self._slice(share * _COPIED))
        orders = self._some("o_orderkey", share * _UPDATED)
        lines = self._some("l_orderkey, l_linenumber", share * _UPDATED)
        self._update(orders, lines)
        self._wh.update(
            "customer",
            set={
                "c_acctbal": "CAST(c_acctbal + 17.31 AS DECIMAL(15, 2))",
                "c_mktsegment": "CASE c_mktsegment WHEN 'BUILDING' THEN 'MACHINERY' WHEN 'MACHINERY' THEN 'AUTOMOBILE' "
                "WHEN 'AUTOMOBILE' THEN 'FURNITURE' WHEN 'FURNITURE' THEN 'HOUSEHOLD' ELSE 'BUILDING' END",
            },
            where=self._some("c_custkey", share),
        )
        self._wh.update(
            "part",
            set={"p_retailprice": "CAST(p_retailprice + 1 AS DECIMAL(15, 2))", "p_size": "pmod(p_size, 50) + 1"},
            where=self._some("p_partkey", share),
        )

    def newest(self, orders: int, top: int) -> None:
        """Change about `orders` neighbouring orders with their lines: the newest that were not changed yet. `top` is the newest key."""
        self._turn += 1
        width = orders * 4  # TPC-H uses 8 of 32 keys in a row
        high = top - width * (self._turn - 1)
        self._change_each(f"{{key}} > {high - width} AND {{key}} <= {high}", 1)

    def scattered(self, orders: int, total: int) -> None:
        """Change about `orders` of `total` orders with their lines, spread over all keys."""
        self._turn += 1
        self._change_each(self._slice(orders / total), 2)

    def _change_each(self, window: str, copied: int) -> None:
        """Of the orders in a window, delete one of eight, copy the one of eight whose key ends so, and update the others."""
        self._delete(f"{window} AND pmod({{key}}, 8) = 0")
        self._copy(f"{window} AND pmod({{key}}, 8) = {copied}")
        rest = f"{window} AND pmod({{key}}, 8) NOT IN (0, {copied})"
        self._update(rest.format(key="o_orderkey"), rest.format(key="l_orderkey"))

    def _slice(self, share: float) -> str:
        """Return a condition on `{key}` that holds for this share of the keys, and for none of those before."""
        first = self._used
        self._used += max(1, round(share * _HASHES))
        if self._used > _HASHES:
            raise ValueError("all orders were changed: fewer repeats, or lower rates")
        return f"pmod(xxhash64({{key}}), {_HASHES}) >= {first} AND pmod(xxhash64({{key}}), {_HASHES}) < {self._used}"

    def _some(self, columns: str, share: float) -> str:
        return f"pmod(xxhash64({columns}, {self._turn}), {_HASHES}) < {round(share * _HASHES)}"

    def _delete(self, condition: str) -> None:
        self._wh.delete("lineitem", where=condition.format(key="l_orderkey"))
        self._wh.delete("orders", where=condition.format(key="o_orderkey"))

    def _copy(self, condition: str) -> None:
        """Insert copies of orders that the generator made, under keys that it, and the changes of the tests, leave free."""
        offset = 24
        for table, key, extra in (
            ("orders", "o_orderkey", {"o_orderdate": f"date_add(o_orderdate, {self._turn % 60})"}),
            ("lineitem", "l_orderkey", {"l_shipdate": f"date_add(l_shipdate, {self._turn % 60})"}),
        ):
            values = {key: f"{key} + {offset}", **extra}
            columns = ", ".join(f"{values.get(c, c)} AS {c}" for c in tpch.TABLES[table].columns)
            where = f"pmod({key}, 32) < 8 AND {condition.format(key=key)}"
            self._wh.insert(table, self._wh.sql(f"SELECT {columns} FROM {table} WHERE {where}"))

    def _update(self, orders: str, lines: str) -> None:
        self._wh.update(
            "orders",
            set={
                "o_totalprice": "CAST(o_totalprice + 10.5 AS DECIMAL(15, 2))",
                "o_orderpriority": "CASE o_orderpriority WHEN '1-URGENT' THEN '5-LOW' WHEN '5-LOW' THEN '2-HIGH' "
                "WHEN '2-HIGH' THEN '3-MEDIUM' ELSE '1-URGENT' END",
            },
            where=orders,
        )
        self._wh.update(
            "lineitem",
            set={
                "l_quantity": "CAST(pmod(l_quantity, 50) + 1 AS DECIMAL(15, 2))",
                "l_extendedprice": "CAST(l_extendedprice + 1.5 AS DECIMAL(15, 2))",
                "l_discount": "CAST(pmod(l_discount + 0.03, 0.1) AS DECIMAL(15, 2))",
                "l_receiptdate": "date_add(l_receiptdate, 1)",
            },
            where=lines,
        )


# where the time goes --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Profile:
    """How often and for how long Spark and the catalog were asked, by what they were asked for."""

    calls: Counter[str] = field(default_factory=Counter)
    ms: Counter[str] = field(default_factory=Counter)

    def shown(self, total_ms: float) -> str:
        parts = [f"{what} {ms:,.0f} ms in {self.calls[what]}" for what, ms in self.ms.most_common(6) if ms >= 1]
        return "; ".join([*parts, f"the rest {max(0.0, total_ms - sum(self.ms.values())):,.0f} ms"])


@contextmanager
def profiled() -> Iterator[Profile]:
    """Time every call that this process makes to a worker of Spark or to the catalog; calls inside such calls are theirs."""
    profile = Profile()
    inside = threading.local()

    def timed(label: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if getattr(inside, "busy", False):
                return method(*args, **kwargs)
            inside.busy = True
            began = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                inside.busy = False
                profile.calls[label] += 1
                profile.ms[label] += (time.perf_counter() - began) * 1000

        return call

    with ExitStack() as patches:
        for label, owner in (("Spark", Worker), ("catalog", Catalog)):
            for name, method in list(vars(owner).items()):
                if inspect.isfunction(method) and not name.startswith("_"):
                    patches.enter_context(mock.patch.object(owner, name, timed(f"{label}.{name}", method)))
        yield profile
