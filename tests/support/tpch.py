"""TPC-H: its eight tables, its data and its 22 queries, all from DuckDB's extension, and a mirror that gives a second opinion.

The mirror holds the same rows as the warehouse, in DuckDB: it is changed by the same changes, so that what a stream table should hold
is computed by another engine. DuckDB's texts run in Spark as they are; what is adapted stands in `ADAPTED`, and nowhere else.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

if TYPE_CHECKING:
    from headwater.warehouse import Warehouse

NUMBERS = tuple(range(1, 23))
TOLERANCE = 1e-9
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table of TPC-H: its columns as Spark DDL, with the types that DuckDB gives them, and its primary key."""

    ddl: str
    key: tuple[str, ...]

    @property
    def columns(self) -> list[str]:
        return [column.split()[0] for column in re.split(r", (?=[a-z]+_)", self.ddl)]


_MONEY = "DECIMAL(15, 2)"

TABLES = {
    "region": TableSpec("r_regionkey INT, r_name STRING, r_comment STRING", ("r_regionkey",)),
    "nation": TableSpec("n_nationkey INT, n_name STRING, n_regionkey INT, n_comment STRING", ("n_nationkey",)),
    "supplier": TableSpec(
        "s_suppkey BIGINT, s_name STRING, s_address STRING, s_nationkey INT, s_phone STRING, "
        f"s_acctbal {_MONEY}, s_comment STRING",
        ("s_suppkey",),
    ),
    "customer": TableSpec(
        "c_custkey BIGINT, c_name STRING, c_address STRING, c_nationkey INT, c_phone STRING, "
        f"c_acctbal {_MONEY}, c_mktsegment STRING, c_comment STRING",
        ("c_custkey",),
    ),
    "part": TableSpec(
        "p_partkey BIGINT, p_name STRING, p_mfgr STRING, p_brand STRING, p_type STRING, p_size INT, "
        f"p_container STRING, p_retailprice {_MONEY}, p_comment STRING",
        ("p_partkey",),
    ),
    "partsupp": TableSpec(
        f"ps_partkey BIGINT, ps_suppkey BIGINT, ps_availqty BIGINT, ps_supplycost {_MONEY}, ps_comment STRING",
        ("ps_partkey", "ps_suppkey"),
    ),
    "orders": TableSpec(
        f"o_orderkey BIGINT, o_custkey BIGINT, o_orderstatus STRING, o_totalprice {_MONEY}, o_orderdate DATE, "
        "o_orderpriority STRING, o_clerk STRING, o_shippriority INT, o_comment STRING",
        ("o_orderkey",),
    ),
    "lineitem": TableSpec(
        f"l_orderkey BIGINT, l_partkey BIGINT, l_suppkey BIGINT, l_linenumber BIGINT, l_quantity {_MONEY}, "
        f"l_extendedprice {_MONEY}, l_discount {_MONEY}, l_tax {_MONEY}, l_returnflag STRING, l_linestatus STRING, "
        "l_shipdate DATE, l_commitdate DATE, l_receiptdate DATE, l_shipinstruct STRING, l_shipmode STRING, "
        "l_comment STRING",
        ("l_orderkey", "l_linenumber"),
    ),
}

READS = {
    1: ("lineitem",),
    2: ("region", "nation", "supplier", "part", "partsupp"),
    3: ("customer", "orders", "lineitem"),
    4: ("orders", "lineitem"),
    5: ("region", "nation", "supplier", "customer", "orders", "lineitem"),
    6: ("lineitem",),
    7: ("nation", "supplier", "customer", "orders", "lineitem"),
    8: ("region", "nation", "supplier", "customer", "part", "orders", "lineitem"),
    9: ("nation", "supplier", "part", "partsupp", "orders", "lineitem"),
    10: ("nation", "customer", "orders", "lineitem"),
    11: ("nation", "supplier", "partsupp"),
    12: ("orders", "lineitem"),
    13: ("customer", "orders"),
    14: ("part", "lineitem"),
    15: ("supplier", "lineitem"),
    16: ("supplier", "part", "partsupp"),
    17: ("part", "lineitem"),
    18: ("customer", "orders", "lineitem"),
    19: ("part", "lineitem"),
    20: ("nation", "supplier", "part", "partsupp", "lineitem"),
    21: ("nation", "supplier", "orders", "lineitem"),
    22: ("customer", "orders"),
}
"""The tables that each query reads."""


# texts ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Adaptation:
    """Words of a standard text that are replaced, below a scale."""

    number: int
    below: float
    old: str
    new: str


ADAPTED = (
    # A stream table names all its columns.
    Adaptation(
        18,
        math.inf,
        "    o_totalprice,\n    sum(l_quantity)\n",
        "    o_totalprice,\n    sum(l_quantity) AS total_quantity\n",
    ),
    # So few rows pass at small scales that a handful of changes would leave none.
    Adaptation(18, 1, "sum(l_quantity) > 300", "sum(l_quantity) > 250"),
    Adaptation(2, 0.1, "p_size = 15", "p_size BETWEEN 11 AND 15"),
    Adaptation(8, 0.1, "p_type = 'ECONOMY ANODIZED STEEL'", "p_type LIKE 'ECONOMY%'"),
    Adaptation(17, 0.1, "p_container = 'MED BOX'", "p_container LIKE 'MED%'"),
    Adaptation(19, 0.1, "p_size BETWEEN 1 AND 5", "p_size BETWEEN 1 AND 25"),
    Adaptation(20, 0.1, "p_name LIKE 'forest%'", "p_name LIKE 'f%'"),
    Adaptation(21, 0.1, "n_name = 'SAUDI ARABIA'", "n_name IN ('SAUDI ARABIA', 'CANADA', 'INDIA', 'PERU')"),
)


def query_text(number: int, scale: float) -> str:
    """Return the text of a query, without its final semicolon, for data of this scale."""
    text = _standard_texts()[number]
    for change in ADAPTED:
        if change.number == number and scale < change.below:
            if change.old not in text:
                raise AssertionError(f"query {number} has no {change.old!r} to adapt")
            text = text.replace(change.old, change.new)
    return text


def unordered(text: str) -> str:
    """Return a text without the final ORDER BY that says nothing about its rows, which is one without LIMIT."""
    head, order, tail = text.rpartition("ORDER BY")
    return head.rstrip() if order and "LIMIT" not in tail and ")" not in tail else text


def stream_name(number: int) -> str:
    return f"q{number:02}"


@cache
def _standard_texts() -> dict[int, str]:
    with _duck() as duck:
        found = duck.execute("SELECT query_nr, query FROM tpch_queries()").fetchall()
    return {number: text.strip().removesuffix(";") for number, text in found}


# data -----------------------------------------------------------------------------------------------------------------------


def generate(scale: float) -> dict[str, pa.Table]:
    """Return the eight tables at this scale."""
    with _duck() as duck:
        duck.execute(f"CALL dbgen(sf = {scale})")
        return {name: duck.execute(f"FROM {name}").to_arrow_table() for name in TABLES}


def write_files(scale: float, directory: Path) -> None:
    """Write the eight tables at this scale as Parquet files in folders of their names; larger scales piece by piece."""
    pieces = max(1, math.ceil(scale))
    for step in range(pieces):
        with _duck() as duck:
            split = f", children = {pieces}, step = {step}" if pieces > 1 else ""
            duck.execute(f"CALL dbgen(sf = {scale}{split})")
            for name in TABLES:
                rows = duck.execute(f"SELECT count(*) FROM {name}").fetchone()
                if not rows or not rows[0]:
                    continue
                (directory / name).mkdir(parents=True, exist_ok=True)
                duck.execute(f"COPY {name} TO '{directory / name / f'{step:03}.parquet'}' (FORMAT parquet)")


@contextmanager
def _duck() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with its TPC-H extension, loaded from the wheel, on one core: Spark has the others."""
    found = find_spec("duckdb_extension_tpch")
    assert found is not None
    assert found.submodule_search_locations is not None
    (root,) = found.submodule_search_locations
    (extension,) = Path(root).rglob("tpch.duckdb_extension")
    with duckdb.connect(config={"threads": "1"}) as connection:
        connection.load_extension(str(extension))
        yield connection


def load(wh: Warehouse, tables: dict[str, pa.Table]) -> None:
    """Create the eight tables in a warehouse and fill them."""
    for name, spec in TABLES.items():
        wh.create_table(name, spec.ddl, primary_key=list(spec.key))
        wh.insert(name, tables[name])


# the mirror -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Batch:
    """What happened to a table: rows that went, rows that came, and rows that were changed, as they were and as they are."""

    deleted: pa.Table
    inserted: pa.Table
    before: pa.Table
    after: pa.Table

    @property
    def count(self) -> int:
        return self.deleted.num_rows + self.inserted.num_rows + self.after.num_rows


@dataclass(frozen=True, slots=True)
class Insert:
    """Add the rows of a query."""

    table: str
    query: str


@dataclass(frozen=True, slots=True)
class Update:
    """Change columns where a condition holds."""

    table: str
    assignments: str
    where: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove rows where a condition holds."""

    table: str
    where: str


class Mirror:
    """The contents of the eight tables in DuckDB."""

    def __init__(self, tables: dict[str, pa.Table], scale: float) -> None:
        self.scale = scale
        self._duck = duckdb.connect(config={"threads": "1"})
        for name, rows in tables.items():
            self._duck.register("given", rows)
            self._duck.execute(f"CREATE TABLE {name} AS FROM given")  # a copy without NOT NULL
            self._duck.unregister("given")

    def close(self) -> None:
        self._duck.close()

    def count(self, table: str) -> int:
        return int(self.value(f"SELECT count(*) FROM {table}"))

    def value(self, sql: str) -> Any:
        row = self._duck.execute(sql).fetchone()
        assert row is not None
        return row[0]

    def changed(self, statements: Iterable[Insert | Update | Delete]) -> dict[str, Batch]:
        """Run statements, one after the other, and return what they did to each table in net.

        Whatever a statement is about to touch is written down as it was before the first one, so that nothing else is compared.
        """
        for name, spec in TABLES.items():
            self._duck.execute(f"CREATE OR REPLACE TEMP TABLE before_{name} AS FROM {name} LIMIT 0")
            self._duck.execute(
                f"CREATE OR REPLACE TEMP TABLE touched_{name} AS SELECT {_keys(spec)} FROM {name} LIMIT 0"
            )
        for statement in statements:
            self._run(statement)
        return {name: self._batch(name, spec) for name, spec in TABLES.items()}

    def _run(self, statement: Insert | Update | Delete) -> None:
        table = statement.table
        keys = _keys(TABLES[table])
        rows = statement.query if isinstance(statement, Insert) else f"FROM {table} WHERE {statement.where}"
        self._duck.execute(f"CREATE OR REPLACE TEMP TABLE now AS FROM {table} LIMIT 0")
        self._duck.execute(f"INSERT INTO now {rows}")
        fresh = f"FROM now ANTI JOIN touched_{table} USING ({keys})"
        if not isinstance(statement, Insert):
            self._duck.execute(f"INSERT INTO before_{table} SELECT now.* {fresh}")
        self._duck.execute(f"INSERT INTO touched_{table} SELECT {keys} {fresh}")
        these = f"WHERE ({keys}) IN (SELECT ({keys}) FROM now)"
        if isinstance(statement, Insert):
            self._duck.execute(f"INSERT INTO {table} FROM now")
        elif isinstance(statement, Update):
            self._duck.execute(f"UPDATE {table} SET {statement.assignments} {these}")
        else:
            self._duck.execute(f"DELETE FROM {table} {these}")

    def _batch(self, name: str, spec: TableSpec) -> Batch:
        keys = _keys(spec)
        order = ", ".join(f"b.{k}" for k in spec.key)
        self._duck.execute(
            f"CREATE OR REPLACE TEMP TABLE after_{name} AS FROM {name} SEMI JOIN touched_{name} USING ({keys})"
        )
        pairs = f"FROM before_{name} b JOIN after_{name} a USING ({keys}) WHERE a IS DISTINCT FROM b ORDER BY {order}"
        return Batch(
            self._rows(f"SELECT b.* FROM before_{name} b ANTI JOIN after_{name} USING ({keys}) ORDER BY {order}"),
            self._rows(f"SELECT b.* FROM after_{name} b ANTI JOIN before_{name} USING ({keys}) ORDER BY {order}"),
            self._rows(f"SELECT b.* {pairs}"),
            self._rows(f"SELECT a.* {pairs}"),
        )

    def _rows(self, sql: str) -> pa.Table:
        return self._duck.execute(sql).to_arrow_table()

    def answer(self, number: int) -> list[Row]:
        """Return what the query gives now."""
        return self.rows(query_text(number, self.scale))

    def rows(self, sql: str) -> list[Row]:
        return self._duck.execute(sql).fetchall()


def _keys(spec: TableSpec) -> str:
    return ", ".join(spec.key)


def apply_signed(wh: Warehouse, name: str, batch: Batch) -> None:
    """Change a table by rows that say I or D, as one atomic change."""
    gone = pa.concat_tables([batch.deleted, batch.before])
    come = pa.concat_tables([batch.inserted, batch.after])
    actions = pa.array(["D"] * gone.num_rows + ["I"] * come.num_rows)
    if len(actions):
        wh.apply_changes(name, pa.concat_tables([gone, come]).append_column("action", actions))


def apply_statements(wh: Warehouse, name: str, batch: Batch) -> None:
    """Change a table by a DELETE and an upsert, each a commit of its own."""
    key = TABLES[name].key
    if batch.deleted.num_rows:
        wanted = zip(*(batch.deleted.column(k).to_pylist() for k in key), strict=True)
        if len(key) == 1:
            wh.delete(name, where=f"{key[0]} IN ({', '.join(str(k) for (k,) in wanted)})")
        else:
            text = "concat_ws('-', " + ", ".join(f"CAST({k} AS STRING)" for k in key) + ")"
            values = ", ".join("'" + "-".join(map(str, k)) + "'" for k in wanted)
            wh.delete(name, where=f"{text} IN ({values})")
    come = pa.concat_tables([batch.inserted, batch.after])
    if come.num_rows:
        wh.upsert(name, come)


# comparing ------------------------------------------------------------------------------------------------------------------


def is_empty(rows: Sequence[Row]) -> bool:
    """Say whether a result says nothing: no rows, or the NULL of an aggregate over none."""
    return all(value is None for row in rows for value in row)


def arrow_rows(table: pa.Table) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def differences(expected: Sequence[Row], found: pa.Table) -> str:
    """Say how DuckDB's rows and a stream table differ as multisets; empty if they do not.

    Everything is compared exactly, except where DuckDB has a DOUBLE (averages and quotients): there Spark has a decimal, rounded to
    its scale, or a DOUBLE, and both are equal within that rounding and 1e-9.
    """
    width = found.num_columns
    if any(len(row) != width for row in expected):
        return f"{len(expected[0])} columns expected, {width} found"
    near = {i for row in expected for i, value in enumerate(row) if isinstance(value, float)}
    scales = {
        i: found.schema.field(i).type.scale if pa.types.is_decimal(found.schema.field(i).type) else None for i in near
    }
    sides: dict[Row, tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    for side, rows in enumerate((expected, arrow_rows(found))):
        for row in rows:
            exact = tuple(value for i, value in enumerate(row) if i not in near)
            sides[exact][side].append(tuple(row[i] for i in sorted(near)))
    wrong = []
    for exact, (wanted, got) in sides.items():
        wanted, got = sorted(wanted, key=_order), sorted(got, key=_order)
        pairs = zip(wanted, got, strict=False)
        if len(wanted) == len(got) and all(_near(a, b, [scales[i] for i in sorted(near)]) for a, b in pairs):
            continue
        wrong.append(f"{exact}: expected {len(wanted)} rows {wanted[:3]}, found {len(got)} {got[:3]}")
    return "\n".join(wrong[:8])


def _order(values: Row) -> list[tuple[bool, Any]]:
    return [(value is not None, float(value or 0)) for value in values]


def _near(wanted: Row, got: Row, scales: Sequence[int | None]) -> bool:
    for a, b, scale in zip(wanted, got, scales, strict=True):
        if a is None or b is None:
            if a is not b:
                return False
            continue
        rounding = 0.5 * 10.0**-scale if isinstance(b, Decimal) and scale is not None else 0.0
        if abs(float(a) - float(b)) > rounding + TOLERANCE * max(abs(float(a)), abs(float(b))):
            return False
    return True
