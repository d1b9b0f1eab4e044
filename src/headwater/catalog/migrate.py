"""Bringing a catalog to a format, by Alembic, without any configuration file.

The scripts are in `migrations/versions`, one per format, named by its number. The caller holds a lock and an open
transaction; a migration is committed whole or not at all, on SQLite as on PostgreSQL.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from sqlalchemy import Connection

SCRIPTS = Path(__file__).parent / "migrations"

ALEMBIC = Lock()
"""Alembic hands the connection to its scripts through a global: one thread of a process may migrate at a time."""


@dataclass(frozen=True, slots=True)
class Migrations:
    """The way to `format`: directories of migration scripts."""

    format: int
    directories: tuple[Path, ...] = (SCRIPTS / "versions",)


def upgrade(connection: Connection, migrations: Migrations) -> None:
    """Run the migrations that the database behind `connection` has not seen, up to `migrations.format`."""
    # Imported here: opening an up-to-date catalog, as almost every command does, must not wait for Alembic to load.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", _escaped(SCRIPTS))
    config.set_main_option("path_separator", "os")
    config.set_main_option("version_locations", os.pathsep.join(map(_escaped, migrations.directories)))
    config.attributes["connection"] = connection
    with ALEMBIC:
        command.upgrade(config, revision(migrations.format))


def revision(format_number: int) -> str:
    """Return Alembic's name for a format."""
    return f"{format_number:04d}"


def _escaped(path: Path) -> str:
    return str(path).replace("%", "%%")
