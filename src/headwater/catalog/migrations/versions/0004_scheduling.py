"""Notes of operators and schedulers, events, registered schedulers; options and the last refresh of stream tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

ROW_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.add_column("streams", sa.Column("options", sa.Text(), nullable=False, server_default="{}"))
    op.add_column("streams", sa.Column("refreshed_at", sa.Double()))
    op.add_column("streams", sa.Column("refresh_ms", sa.Double()))
    op.create_table(
        "notes",
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text()),
        sa.Column("progressed", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", name="pk_notes"),
    )
    op.create_index("ix_notes_progressed", "notes", ["progressed"])
    op.create_table(
        "events",
        sa.Column("id", ROW_NUMBER, nullable=False, autoincrement=True),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("event", sa.String(64), nullable=False),
        sa.Column("table_name", sa.Text()),
        sa.Column("data", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
    )
    op.create_index("ix_events_at", "events", ["at"])
    op.create_table(
        "schedulers",
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.Column("expires", sa.Double(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("owner", name="pk_schedulers"),
    )
