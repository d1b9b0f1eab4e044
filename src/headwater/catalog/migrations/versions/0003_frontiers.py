"""A stream table may read its sources at versions of their own, and snapshots read only the stream tables that progressed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("dependencies", sa.Column("frontier", sa.BigInteger()))
    op.add_column("streams", sa.Column("progressed", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_index("ix_streams_progressed", "streams", ["progressed"])
