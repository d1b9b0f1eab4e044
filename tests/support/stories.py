"""Stories: tables with names, a stream table over them, changes, and after every refresh two opinions on what it should hold.

The test writes the expected rows by hand; the oracle runs the user's own SQL, by plain Spark, over the tables as they are. Every
refresh must have been differential (unless the story asks for the mode FULL), and the next one must find nothing to do.

    story.table("orders", "id BIGINT, customer BIGINT", [(1, 7)], key="id")
    s = story.stream("SELECT ... FROM orders JOIN customers ...")
    story.change("DELETE FROM orders WHERE id = 1", "INSERT INTO customers VALUES (7, 'Ann')")
    assert s.refreshed() == [...]
    story.verified()
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import pytest
from tests.support.lab import ddl_parts, row_order, tuples_of
from tests.support.oracle import differences
from tests.support.queries import EXACT, Item

from headwater.errors import HeadwaterError, NotIncrementalError
from headwater.model.tables import RefreshAction
from headwater.refresh.cycle import RefreshReport
from headwater.warehouse import Warehouse

Rows = list[tuple[Any, ...]]


class Story:
    """Tables and stream tables of one test. Closing it drops them, so that the next story may use their names."""

    def __init__(self, wh: Warehouse) -> None:
        self.wh = wh
        self._tables: list[str] = []
        self._streams: list[Stream] = []

    def table(
        self, name: str, ddl: str, rows: Iterable[Sequence[Any]] = (), *, key: str | Sequence[str] | None = None
    ) -> None:
        """Create a table and fill it."""
        self.wh.create_table(name, ddl, key)
        self._tables.append(name)
        names = [re.split(r"[\s:]", part.strip())[0] for part in ddl_parts(ddl)]
        made = [dict(zip(names, row, strict=True)) for row in rows]
        if made:
            self.wh.insert(name, made)

    def stream(
        self, query: str, name: str = "result", mode: Literal["DIFFERENTIAL", "FULL"] = "DIFFERENTIAL"
    ) -> Stream:
        """Define a stream table that must be maintained from changes, or always in full, and check its first contents."""
        # Each table is refreshed by itself, so that every rule is seen at work.
        self.wh.create_stream_table(name, query, refresh_mode=mode, diamond_consistency="none")
        stream = Stream(self, name, query, RefreshAction[mode])
        self._streams.append(stream)
        stream.check()
        return stream

    def altered(self, stream: Stream, query: str) -> None:
        """Give a stream table another query."""
        self.wh.alter_stream_table(stream.name, query=query)
        stream.query = query
        stream.check()

    def change(self, *statements: str) -> None:
        """Run statements, each a commit of its own."""
        for statement in statements:
            self.wh.sql(statement)

    def together(self, *statements: str) -> None:
        """Run statements as one commit."""
        with self.wh.transaction():
            self.change(*statements)

    def apply(self, name: str, *rows: tuple[Any, ...]) -> None:
        """Apply change rows to a table; the last value of each is I or D."""
        names = [*self.wh.table(name).columns, "action"]
        self.wh.apply_changes(name, [dict(zip(names, row, strict=True)) for row in rows])

    def refused(self, query: str, code: str) -> None:
        """Require that the query cannot be maintained from changes, for this reason."""
        with pytest.raises(NotIncrementalError) as raised:
            self.wh.create_stream_table("refused", query, refresh_mode="DIFFERENTIAL")
        assert code in (raised.value.detail or "")

    def notices(self, query: str) -> tuple[str, ...]:
        """Return what users are told about a query that is maintained from changes."""
        found = self.wh.validate_query(query)
        assert not found.refusals
        return found.notices

    def verified(self) -> None:
        """End of the story: nothing compared constants, `verify` agrees, and the change rows add up to the contents."""
        assert self._streams
        for stream in self._streams:
            stream.verify()

    def close(self) -> None:
        """Drop everything."""
        for name in self._tables:
            if self.wh.snapshot().table(name) is not None:
                self.wh.drop_table(name, cascade=True)

    @contextmanager
    def views(self, query: str) -> Iterator[Any]:
        """Lend plain Spark with the tables that `query` mentions as views."""
        names = [n for n in (*self._tables, *(s.name for s in self._streams)) if re.search(rf"\b{n}\b", query)]
        for name in names:
            self.wh.table(name).createOrReplaceTempView(name)
        try:
            yield self.wh.spark
        finally:
            for name in names:
                self.wh.spark.catalog.dropTempView(name)


class Stream:
    """A stream table that is checked whenever it is looked at after a refresh."""

    def __init__(self, story: Story, name: str, query: str, action: RefreshAction) -> None:
        self.name = name
        self.query = query
        self.action = action
        self.report: RefreshReport | None = None
        self._story = story
        self._contents: Counter[tuple[Any, ...]] = Counter()
        self._has_changed = False
        self._had_rows = False

    @property
    def changes(self) -> tuple[int, int]:
        """Rows inserted and deleted by the last refresh."""
        assert self.report is not None
        return self.report.rows_inserted, self.report.rows_deleted

    def rows(self) -> Rows:
        """The contents, sorted, NULL first."""
        return sorted(tuples_of(self._story.wh.table(self.name)), key=row_order)

    def refreshed(self) -> Rows:
        """Refresh from changes; the contents must have changed, and are returned."""
        before = self._contents
        found = self._followed()
        assert self._contents != before, f"nothing changed in {self.query}"
        self._has_changed = True
        return found

    def kept(self) -> Rows:
        """Refresh from changes that leave the contents as they were."""
        before = self._contents
        found = self._followed()
        assert self._contents == before, f"something changed in {self.query}"
        return found

    def idle(self) -> None:
        """Refresh where no source has changed: nothing happens."""
        assert self._story.wh.refresh(self.name).action is RefreshAction.NO_DATA

    def fails(self, match: str) -> None:
        """Refresh, which must fail with these words (a pattern, in any case) and leave everything as it was."""
        before = self.rows()
        with pytest.raises(HeadwaterError) as raised:
            self._story.wh.refresh(self.name)
        assert re.search(match, str(raised.value), re.IGNORECASE), str(raised.value)
        assert self.rows() == before

    def check(self) -> Rows:
        """Compare the contents with the query, run anew by plain Spark over the tables as they are."""
        with self._story.views(self.query) as spark:
            expected = tuples_of(spark.sql(self.query))
        found = self.rows()
        items = [Item(n, n, None, EXACT) for n in self._story.wh.table(self.name).columns]
        wrong = differences(expected, found, items)
        assert not wrong, f"{self.query}\n{wrong}"
        self._contents = Counter(found)
        self._had_rows = self._had_rows or bool(found)
        return found

    def verify(self) -> None:
        """Require that the table changed, had rows, is what `verify` computes, and is the sum of its changes."""
        assert self._has_changed, f"{self.name} never changed"
        assert self._had_rows, f"{self.name} was always empty"
        result = self._story.wh.verify(self.name)
        assert result.equal, result
        total: Counter[tuple[Any, ...]] = Counter()
        for *row, action in tuples_of(self._story.wh.changes(self.name, 0)):
            total[tuple(row)] += 1 if action == "I" else -1
        assert Counter({k: n for k, n in total.items() if n}) == Counter(self.rows())

    def _followed(self) -> Rows:
        count = self._contents.total()
        self.report = self._story.wh.refresh(self.name)
        assert self.report.action is self.action, self.report
        found = self.check()
        inserted, deleted = self.changes
        assert len(found) - count == inserted - deleted, self.report
        self.idle()
        return found
