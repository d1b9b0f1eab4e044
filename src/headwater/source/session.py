"""Changes as users make them: each statement a commit of its own, or several in one transaction.

A commit that meets another writer is refused by the catalog and nothing has happened; a single statement is then computed again on
the new state, for as long as `busy_timeout_seconds` allows. A transaction is not: it may have shown its reads to the user.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headwater.catalog import Snapshot
from headwater.engine.worker import Frame, Worker
from headwater.errors import BusyError, StatementError
from headwater.model.reports import Result
from headwater.model.tables import Table
from headwater.source.dml import Change, Changer
from headwater.source.mentions import mentioned_tables
from headwater.source.transaction import Transaction, require_managed
from headwater.store.ground import Ground
from headwater.store.maintain import Maintenance

Lookup = Callable[[Snapshot, str], Table]
Work = Callable[[Changer, Table], Change]


class ChangeSession:
    """Runs changes of one warehouse object. A transaction belongs to the thread that opened it."""

    def __init__(self, ground: Ground, maintenance: Maintenance, lookup: Lookup) -> None:
        self._ground = ground
        self._maintenance = maintenance
        self._lookup = lookup
        self._local = threading.local()

    @property
    def open(self) -> Transaction | None:
        """The transaction that this thread is in."""
        found: Transaction | None = getattr(self._local, "transaction", None)
        return found

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Make all changes inside the `with` block one atomic commit; statements see the effects of those before them."""
        if self.open is not None:
            raise StatementError("a transaction is open already", hint="Transactions do not nest.")
        tx = Transaction(self._ground, self._ground.catalog.snapshot())
        self._local.transaction = tx
        try:
            yield tx
            with self._ground.engine.worker() as worker:
                tx.commit(worker)
        except BaseException:
            tx.discard()
            raise
        finally:
            self._local.transaction = None
        self._maintenance.after_change(list(tx.pending))

    def change(self, name: str, verb: str, work: Work) -> Result:
        """Run one statement, in the open transaction or as a commit of its own; a busy table is tried again."""
        open_tx = self.open
        if open_tx is not None:
            with self._ground.engine.worker() as worker:
                change = self._worked(open_tx, worker, name, work)
            return _changed(verb, change)
        deadline = time.monotonic() + self._ground.settings.busy_timeout_seconds
        attempt = 0
        while True:
            tx = Transaction(self._ground, self._ground.catalog.snapshot())
            try:
                with self._ground.engine.worker() as worker:
                    change = self._worked(tx, worker, name, work)
                    tx.commit(worker)
            except BusyError:
                tx.discard()
                attempt += 1
                if time.monotonic() >= deadline:
                    raise
                time.sleep(min(0.5, 0.01 * 2**attempt) * (0.5 + random.random()))
                continue
            except BaseException:
                tx.discard()
                raise
            self._maintenance.after_change(list(tx.pending))
            return _changed(verb, change)

    def _worked(self, tx: Transaction, worker: Worker, name: str, work: Work) -> Change:
        table = self._lookup(tx.snapshot, name)
        require_managed(table)
        worker.configure(self._ground.engine.meaning())
        worker.size_for(0)
        return work(Changer(tx, worker), tx.table(table.id))


def named_frames(changer: Changer, text: str, target: Table | None = None) -> dict[str, Frame]:
    """Return the tables that a text may read, as the transaction sees them; `target` only if the text can hold a subquery."""
    found = mentioned_tables(text, changer.transaction.snapshot)
    return {t.name: changer.visible(t) for t in found if target is None or t.id != target.id or _may_read(text)}


def _may_read(text: str) -> bool:
    return "select" in text.casefold() or "from" in text.casefold()


def _changed(verb: str, change: Change) -> Result:
    rows = max(change.inserted, change.deleted)
    return Result(f"{rows} row{'' if rows == 1 else 's'} {verb}", rows, change)
