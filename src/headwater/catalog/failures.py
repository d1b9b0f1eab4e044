"""Errors of the database driver as errors of Headwater.

A driver says what its call met; a user needs to know whether anything was committed and what to do next. This is the
one place that reads driver errors.
"""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from headwater.errors import BusyError, CatalogCorruptError, HeadwaterError

LOCKED = frozenset({"55P03", "40P01", "40001"})
"""PostgreSQL: lock not available, deadlock, serialization failure."""

DAMAGED = frozenset({"XX001", "XX002", "42P01", "42703"})
"""PostgreSQL: corrupted data or index, a table or column that is not there."""


class CatalogUnavailableError(HeadwaterError):
    """The catalog's database cannot be reached or cannot write."""

    code = "HW108"


class CatalogExistsError(HeadwaterError):
    """A catalog was to be created where one stands already."""

    code = "HW109"


class CommitUnknownError(CatalogUnavailableError):
    """The connection broke while a commit was under way and the catalog could not be asked since."""

    code = "HW110"


def is_lost(error: SQLAlchemyError) -> bool:
    """Say whether the connection is gone, so that nothing more will happen in the transaction it carried."""
    return isinstance(error, DBAPIError) and error.connection_invalidated


def catalog_error(error: SQLAlchemyError | sqlite3.Error, where: str) -> Exception:
    """Return what to raise for `error`; `where` names the catalog without a password. Nothing was committed."""
    if isinstance(error, PoolTimeoutError):
        return BusyError(
            "all connections to the catalog are in use",
            detail=str(error),
            hint="Try again; if it stays so, let fewer threads share this warehouse object.",
        )
    if isinstance(error, IntegrityError):
        return ValueError(f"the change contradicts what the catalog {where} holds: {error.orig}")
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, sqlite3.Error):
        return _sqlite_error(cause, where)
    state = getattr(cause, "sqlstate", None)
    if state in LOCKED:
        return BusyError(
            "the catalog is locked by another writer",
            detail=str(cause).strip(),
            hint="Nothing was changed; try again.",
        )
    if state in DAMAGED:
        return CatalogCorruptError(
            f"the catalog {where} is damaged",
            detail=str(cause).strip(),
            hint="Restore it from a backup.",
        )
    return CatalogUnavailableError(
        f"the catalog {where} cannot be reached",
        detail=str(cause).strip() or type(cause).__name__,
        hint="Nothing was changed. Check that the database runs and accepts connections, then try again.",
    )


def _sqlite_error(error: sqlite3.Error, where: str) -> Exception:
    text = str(error)
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return BusyError(
            "the catalog is locked by another writer",
            detail=f"{where}: {text}.",
            hint="Nothing was changed; try again.",
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or "no such" in text:
        return CatalogCorruptError(
            f"the catalog {where} is damaged",
            detail=f"SQLite says: {text}.",
            hint="Restore the file from a backup, together with its -wal file if there is one.",
        )
    return CatalogUnavailableError(
        f"the catalog {where} cannot be used",
        detail=f"SQLite says: {text}.",
        hint="Nothing was changed. Check the free space and the permissions of its directory, then try again.",
    )
