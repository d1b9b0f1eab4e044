"""Compiled templates, shared by all processes of the warehouse."""

from __future__ import annotations

from sqlalchemy import delete, select

from headwater.catalog.connect import Database
from headwater.catalog.tables import templates


def template(database: Database, key: str) -> str | None:
    """Return the text stored under `key`."""
    query = select(templates.c.text).where(templates.c.key == key)
    return database.read(lambda connection: connection.scalar(query))


def put_template(database: Database, key: str, text: str, generation: int) -> None:
    """Store `text` under `key`, made when the catalog was at `generation`; a text of a newer generation stays."""
    put = database.insert(templates).values(key=key, text=text, generation=generation)
    statement = put.on_conflict_do_update(
        index_elements=[templates.c.key],
        set_={"text": put.excluded.text, "generation": put.excluded.generation},
        where=templates.c.generation <= put.excluded.generation,
    )
    database.write(lambda connection: connection.execute(statement))


def clear_templates(database: Database) -> int:
    """Forget all templates; return how many there were."""
    return database.write(lambda connection: connection.execute(delete(templates)).rowcount)
