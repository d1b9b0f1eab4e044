"""A bench for rules: a table, a stream table over it, changes, and the question whether it followed them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any

from tests.support.model import plain
from tests.support.oracle import differences
from tests.support.queries import EXACT, FREE, Item

from headwater.model.tables import RefreshAction
from headwater.refresh.cycle import RefreshReport
from headwater.warehouse import Warehouse

_numbers = itertools.count()


class Lab:
    """Tables with names of their own in a shared warehouse."""

    def __init__(self, wh: Warehouse) -> None:
        self.wh = wh

    def table(self, ddl: str, rows: Iterable[Sequence[Any]] = (), *, key: str | None = None) -> str:
        """Create a table, fill it, and return its name."""
        name = f"t{next(_numbers)}"
        self.wh.create_table(name, ddl, key)
        names = [re.split(r"[\s:]", part.strip())[0] for part in ddl_parts(ddl)]
        made = [dict(zip(names, row, strict=True)) for row in rows]
        if made:
            self.wh.insert(name, made)
        return name

    def stream(self, query: str, *, free: Sequence[str] = ()) -> Followed:
        """Define a stream table. Columns in `free` have several valid values: `verify` checks them."""
        name = f"s{next(_numbers)}"
        self.wh.create_stream_table(name, query, refresh_mode="DIFFERENTIAL")
        return Followed(self.wh, name, query, tuple(free))

    def sql(self, text: str) -> Any:
        return self.wh.sql(text)


class Followed:
    """A stream table that is checked after every refresh against its query, run anew."""

    def __init__(self, wh: Warehouse, name: str, query: str, free: tuple[str, ...]) -> None:
        self.wh = wh
        self.name = name
        self.query = query
        self.free = free
        self.report: RefreshReport | None = None
        self._checked()

    @property
    def rescanned(self) -> int:
        assert self.report is not None
        return self.report.rescanned_groups

    @property
    def changes(self) -> tuple[int, int]:
        """Rows inserted and deleted by the last refresh."""
        assert self.report is not None
        return self.report.rows_inserted, self.report.rows_deleted

    def rows(self) -> list[tuple[Any, ...]]:
        """The contents, sorted, NULL first."""
        return sorted(tuples_of(self.wh.table(self.name)), key=row_order)

    def follow(self) -> list[tuple[Any, ...]]:
        """Refresh from changes, check, and return the contents."""
        self.report = self.wh.refresh(self.name)
        assert self.report.action is RefreshAction.DIFFERENTIAL, self.report
        return sorted(self._checked(), key=row_order)

    def verify(self) -> None:
        result = self.wh.verify(self.name)
        assert result.equal, result

    def _checked(self) -> list[tuple[Any, ...]]:
        table = self.wh.table(self.name)
        found = tuples_of(table)
        items = [Item(n, n, None, FREE if n in self.free else EXACT) for n in table.columns]
        wrong = differences(tuples_of(self.wh.sql(self.query)), found, items)
        assert not wrong, f"{self.query}\n{wrong}"
        if self.free:
            self.verify()
        return found


def ddl_parts(ddl: str) -> list[str]:
    """Split DDL at the commas between columns."""
    depth, made = 0, [""]
    for char in ddl:
        depth += (char in "<(") - (char in ">)")
        if char == "," and depth == 0:
            made.append("")
        else:
            made[-1] += char
    return made


def tuples_of(frame: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a frame as Python values that can be compared."""
    columns = [[plain(v) for v in column.to_pylist()] for column in frame.toArrow().columns]
    return list(zip(*columns, strict=True)) if columns else []


def row_order(row: tuple[Any, ...]) -> list[tuple[bool, str, Any]]:
    """Return the place of a row among others, NULL first."""
    return [(v is not None, "" if isinstance(v, int | float) else type(v).__name__, 0 if v is None else v) for v in row]
