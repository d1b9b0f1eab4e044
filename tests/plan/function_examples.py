"""Spark's own examples of its functions, as queries over tables.

`DESCRIBE FUNCTION EXTENDED` shows for each function what its documentation shows: `SELECT f(constants)` or `SELECT f(col) FROM
VALUES ...`. A stream table reads tables, so the constants are selected from a table of one row, and each VALUES becomes a table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

ONE_ROW = "one_row"

_EXAMPLE = re.compile(r"^\s*> (.*?);\s*$", re.MULTILINE | re.DOTALL)
_VALUES = re.compile(r"\bFROM\s+(\(?\s*VALUES)\b", re.IGNORECASE)
_FROM_IN_CALL = re.compile(r"\b(trim|extract|overlay|position|substring|substr)\s*\(.*", re.IGNORECASE | re.DOTALL)
_ITEM = re.compile(r"\s*(NULL|-?[\w.]+|'[^']*'|struct\()")
_ALIAS = re.compile(
    r"\s*(AS\s+)?(?!ORDER|GROUP|UNION|WHERE|LATERAL)\w+\s*\([\w\s,]*\)|\s*AS\s+\w+(?!\s*\()|\s+(?!AS\b|ORDER|GROUP|UNION|WHERE)\w+\b",
    re.IGNORECASE,
)
_SKETCH = re.compile(r"\b(\w+_(?:sketch|union|intersection|merge)_agg\w*|approx_top_k_accumulate)\(", re.IGNORECASE)


@dataclass(frozen=True)
class Example:
    """A query over tables, and the tables it needs: name and query of each."""

    query: str
    tables: tuple[tuple[str, str], ...]


def examples(text: str) -> list[Example]:
    """Return the examples in the documentation of a function; settings are not among them."""
    found = [m.group(1).strip() for m in _EXAMPLE.finditer(text)]
    return [_over_tables(q) for q in found if not q.upper().startswith("SET ")]


def over_stored_sketches(example: Example) -> Example | None:
    """Return the example with the sketches it makes read from a table; None if it makes none.

    Sketches depend on the order of rows and are refused; functions over stored sketches do not.
    """
    head, separator, rest = example.query.partition(" FROM ")
    items: list[str] = []
    while match := _SKETCH.search(head):
        end = _closing(head, match.end() - 1)
        items.append(f"{head[match.start() : end]} AS s{len(items)}")
        head = f"{head[: match.start()]}s{len(items) - 1}{head[end:]}"
    if not items or not separator:
        return None
    table = ("sketches", f"SELECT {', '.join(items)} FROM {rest}")
    return Example(f"{head} FROM sketches", (*example.tables, table))


def _over_tables(query: str) -> Example:
    tables: list[tuple[str, str]] = []
    while match := _VALUES.search(query):
        start = match.start(1)
        end = _values_end(query, start, match.end(1))
        alias = _ALIAS.match(query[end:])
        end += alias.end() if alias else 0
        words = re.findall(r"\w+", alias.group(0).split("(")[0]) if alias else []
        name = f"table{len(tables)}"
        tables.append((name, f"SELECT * FROM {query[start:end]}"))
        query = f"{query[:start]}{name} {words[-1] if words else ''} {query[end:]}"
    if not tables and not re.search(r"\bFROM\b", _FROM_IN_CALL.sub("", query), re.IGNORECASE):
        query = f"{query} FROM {ONE_ROW}"
    return Example(query, tuple(tables))


def _values_end(query: str, start: int, after_word: int) -> int:
    if query[start] == "(":
        return _closing(query, start)
    end = after_word
    while True:
        end = _item_end(query, end)
        comma = re.match(r"\s*,", query[end:])
        if not comma:
            return end
        end += comma.end()


def _item_end(query: str, start: int) -> int:
    row = re.match(r"\s*\(", query[start:])
    if row:
        return _closing(query, start + row.end() - 1)
    item = _ITEM.match(query[start:])
    if not item:
        return start
    end = start + item.end()
    return _closing(query, end - 1) if item.group(1).endswith("(") else end


def _closing(text: str, start: int) -> int:
    """Return where the parenthesis that opens at `start` has been closed."""
    depth, quote, position = 0, "", start
    while position < len(text):
        ch = text[position]
        if quote:
            if ch == "\\":
                position += 1
            elif ch == quote:
                quote = ""
        elif ch in "'\"":
            quote = ch
        elif ch in "()":
            depth += 1 if ch == "(" else -1
            if depth == 0:
                return position + 1
        position += 1
    return position
