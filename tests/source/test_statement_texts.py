"""Statements written at random are read back: every part is found, and every fragment is the user's own text.

Expressions are made to mislead: keywords, brackets, commas and semicolons inside strings, quoted names, comments and nested
queries; columns that are called end, when, limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import StatementError
from headwater.model.names import quoted_name
from headwater.source.parse import read_statement, split_script
from headwater.source.statements import (
    CreateStreamTable,
    CreateTable,
    Delete,
    Fragment,
    Insert,
    Merge,
    MergeAction,
    MergeKind,
    Update,
)
from headwater.source.tokens import tokens_of

LEAVES = (
    *("a", "t.b", "s.end", "t.when", "`WHERE`", "t.`x, y`", "1", "2.5e-3", "7L", "(NULL)", "DATE '2020-01-01'", ":p"),
    *("'it''s; WHERE ('", r"'\') THEN'", '"WHEN MATCHED, ("', r"r'\'", "$$;THEN ($$", "INTERVAL '1' DAY", "x'0A'"),
)
SHAPES = (
    *("({0} + {1})", "{0} - {1}", "f({0}, {1})", "{0} AND {1}", "NOT {0}", "{0} IN ({1}, 3)", "{0} BETWEEN {1} AND 9"),
    *("CASE WHEN {0} THEN {1} ELSE 0 END", "CASE {0} WHEN 1 THEN {1} END", "xs[{0}]", "{0}::MAP<STRING, ARRAY<INT>>"),
    *("transform(xs, (x, i) -> x + {0})", "EXISTS (SELECT 1 FROM u WHERE {0} ORDER BY {1} LIMIT 1)"),
    *("{0} /* , WHERE ; ( ' */ = {1}", "{0} -- THEN ' ) ;\n = {1}", "{0} IS DISTINCT FROM {1}", "{0} IS NOT NULL"),
)
EXPRESSIONS = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.builds(str.format, st.sampled_from(SHAPES), inner, inner),
    max_leaves=8,
)
GAPS = st.sampled_from((" ", "\n", "\t ", " /* ; ' ( */ ", " -- it's ) WHERE\n", " /* /* nested */ */ "))
NAMES = st.sampled_from(("t", "orders", "T1", "order date", "we`ird", "ünï", "select", "a;b", "'q'", "1st"))
QUERIES = st.builds("SELECT {} FROM u WHERE {}".format, EXPRESSIONS, EXPRESSIONS) | st.sampled_from(
    ("WITH q AS (SELECT 1) SELECT * FROM q", "VALUES (1, ';'), (2, ')')", "(SELECT 1) UNION ALL (SELECT 2)", "TABLE u")
)
ASSIGNMENTS = st.dictionaries(NAMES, EXPRESSIONS, min_size=1, max_size=3)
TYPES = st.sampled_from(
    ("INT", "DECIMAL(12, 2)", "MAP<STRING, STRUCT<a: INT NOT NULL, b: ARRAY<INT>>>", "STRING COLLATE UNICODE")
)


@st.composite
def written(draw: st.DrawFn, *parts: str) -> str:
    """The parts with gaps between them, plain words in any case."""
    text = draw(st.sampled_from(("", " ", "-- begin\n")))
    for part in parts:
        plain = part.replace(" ", "").isalpha() and part.isupper()
        text += (draw(st.sampled_from((part, part.lower()))) if plain else part) + draw(GAPS)
    return text + draw(st.sampled_from(("", ";", ";\n-- end")))


def fragments(value: Any) -> Iterator[Fragment]:
    if isinstance(value, Fragment):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from fragments(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from fragments(getattr(value, field.name))


def read_verbatim(sql: str) -> Any:
    """Read one statement, alone and as part of a script; its fragments are slices of the text at their place."""
    statement = read_statement(sql)
    for fragment in fragments(statement):
        assert sql[fragment.start : fragment.end] == fragment.text
        before = sql[: fragment.start].split("\n")
        assert (fragment.line, fragment.column) == (len(before), len(before[-1]) + 1)
    (piece,) = split_script(sql)
    assert read_statement(piece) == statement
    return statement


@given(st.data(), NAMES, NAMES, ASSIGNMENTS, st.none() | EXPRESSIONS)
def test_update_and_delete(data: Any, table: str, alias: str, assignments: dict[str, str], where: str | None) -> None:
    clause = [] if where is None else ["WHERE", where]
    pairs = [f"{quoted_name(column)} = {value}" for column, value in assignments.items()]
    head = ["UPDATE", f"shop.{quoted_name(table)}", quoted_name(alias), "SET"]
    update = read_verbatim(data.draw(written(*head, " , ".join(pairs), *clause)))
    assert isinstance(update, Update)
    assert (update.table.parts, update.alias) == (("shop", table), alias)
    assert {a.column: a.value.text for a in update.assignments} == assignments
    assert (update.where and update.where.text) == where

    delete = read_verbatim(data.draw(written("DELETE", "FROM", quoted_name(table), *clause)))
    assert isinstance(delete, Delete)
    assert (delete.table.parts, delete.alias, delete.where and delete.where.text) == ((table,), None, where)


@given(st.data(), NAMES, st.none() | st.lists(NAMES, min_size=1, unique_by=str.casefold), QUERIES)
def test_insert(data: Any, table: str, columns: list[str] | None, query: str) -> None:
    listed = [] if columns is None else ["(" + ", ".join(map(quoted_name, columns)) + ")"]
    insert = read_verbatim(data.draw(written("INSERT", "INTO", quoted_name(table), *listed, query)))
    assert isinstance(insert, Insert)
    assert (insert.table.parts, insert.columns) == ((table,), None if columns is None else tuple(columns))
    assert insert.source.text == query


CONDITIONS = st.none() | EXPRESSIONS


@given(st.data(), QUERIES, EXPRESSIONS, CONDITIONS, CONDITIONS, ASSIGNMENTS)
def test_merge(
    data: Any, query: str, on: str, first: str | None, second: str | None, assignments: dict[str, str]
) -> None:
    def when(words: str, condition: str | None) -> list[str]:
        return ["WHEN", *words.split(), *(() if condition is None else ("AND", condition)), "THEN"]

    pairs = ", ".join(f"{quoted_name(column)} = {value}" for column, value in assignments.items())
    columns = ", ".join(map(quoted_name, assignments))
    parts = ["MERGE", "INTO", "`t x`", "USING", f"({query})", "AS", "s", "ON", on]
    parts += [*when("MATCHED", first), "UPDATE", "SET", pairs, *when("NOT MATCHED BY SOURCE", second), "DELETE"]
    parts += [*when("NOT MATCHED", second), "INSERT", f"({columns})", "VALUES", f"({', '.join(assignments.values())})"]
    merge = read_verbatim(data.draw(written(*parts)))
    assert isinstance(merge, Merge)
    assert (merge.source.text, merge.source_alias, merge.on.text) == (f"({query})", "s", on)
    assert [(c.kind, c.action, c.condition and c.condition.text) for c in merge.clauses] == [
        (MergeKind.MATCHED, MergeAction.UPDATE, first),
        (MergeKind.NOT_MATCHED_BY_SOURCE, MergeAction.DELETE, second),
        (MergeKind.NOT_MATCHED, MergeAction.INSERT, second),
    ]
    update, _, insert = merge.clauses
    assert {a.column: a.value.text for a in update.assignments} == assignments
    assert dict(zip(insert.insert_columns, map(str, insert.insert_values), strict=True)) == assignments


@given(st.data(), NAMES, st.dictionaries(NAMES.map(str.lower), TYPES, min_size=1, max_size=4), QUERIES)
def test_create(data: Any, name: str, columns: dict[str, str], query: str) -> None:
    key = data.draw(st.lists(st.sampled_from(sorted(columns)), unique=True))
    items = [f"{quoted_name(column)} {type_text} NOT NULL" for column, type_text in columns.items()]
    items += [f"PRIMARY KEY ({', '.join(map(quoted_name, key))})"] * bool(key)
    table = read_verbatim(data.draw(written("CREATE", "TABLE", quoted_name(name), f"({' , '.join(items)})")))
    assert isinstance(table, CreateTable)
    assert {c.name: c.type.text for c in table.columns} == columns
    assert (table.name.parts, table.primary_key) == ((name,), tuple(key))

    head = ["CREATE", "STREAM", "TABLE", quoted_name(name), "SCHEDULE", "'1s'"]
    stream = read_verbatim(data.draw(written(*head, "WITH (tier = 'a;b')", "AS", query)))
    assert isinstance(stream, CreateStreamTable)
    assert (stream.query.text, stream.schedule, stream.options) == (query, "1s", {"tier": "a;b"})


@given(EXPRESSIONS, st.integers(0, 60))
def test_a_statement_cut_short_is_read_or_refused(expression: str, count: int) -> None:
    sql = f"MERGE INTO t USING s ON {expression} WHEN MATCHED AND {expression} THEN UPDATE SET a = {expression}, b = 1"
    tokens = tokens_of(Fragment(sql))
    shorter = sql[: tokens[min(count, len(tokens) - 1)].start]
    try:
        merge = read_statement(shorter)
    except StatementError:
        return
    assert isinstance(merge, Merge)
    assert merge.on.text == expression
