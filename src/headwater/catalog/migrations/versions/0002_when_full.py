"""Stream tables say what happens when they would be computed in full. Those of the first format go on as they did: `warn`."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("streams", sa.Column("when_full", sa.String(length=16), nullable=False, server_default="warn"))
