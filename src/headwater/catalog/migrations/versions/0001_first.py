"""The first format."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "commits",
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("committed_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_commits")),
    )
    op.create_index("ix_commits_committed_at", "commits", ["committed_at"], unique=False)
    op.create_index("ix_commits_uid", "commits", ["uid"], unique=True)
    op.create_table(
        "history",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("table_id", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double(), nullable=False),
        sa.Column("action", sa.String(length=16), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("rows_in", sa.BigInteger(), nullable=False),
        sa.Column("rows_inserted", sa.BigInteger(), nullable=False),
        sa.Column("rows_deleted", sa.BigInteger(), nullable=False),
        sa.Column("duration_ms", sa.Double(), nullable=False),
        sa.Column("spark_jobs", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("frontier_from", sa.BigInteger(), nullable=True),
        sa.Column("frontier_to", sa.BigInteger(), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("bytes_written", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_history")),
    )
    op.create_index("ix_history_finished_at", "history", ["finished_at"], unique=False)
    op.create_index("ix_history_table_id_id", "history", ["table_id", "id"], unique=False)
    op.create_table(
        "leases",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("expires", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )
    op.create_table(
        "pins",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("expires", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pins")),
    )
    op.create_index("ix_pins_version", "pins", ["version"], unique=False)
    op.create_table(
        "tables",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("name_key", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("parent_id", sa.Text(), nullable=True),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("dropped", sa.BigInteger(), nullable=True),
        sa.Column("dropped_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["parent_id"], ["tables.id"], name=op.f("fk_tables_parent_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tables")),
    )
    op.create_index("ix_tables_parent_id", "tables", ["parent_id"], unique=False)
    op.create_index(
        "uq_tables_live_name",
        "tables",
        ["name_key"],
        unique=True,
        sqlite_where=sa.text("dropped IS NULL"),
        postgresql_where=sa.text("dropped IS NULL"),
    )
    op.create_table(
        "templates",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_templates")),
    )
    op.create_table(
        "warehouse",
        sa.Column("format", sa.Integer(), nullable=False),
        sa.Column("warehouse_id", sa.Text(), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("horizon", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("warehouse_id", name=op.f("pk_warehouse")),
    )
    op.create_table(
        "writes",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("paths", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("opened_at", sa.Double(), nullable=False),
        sa.Column("expires", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_writes")),
    )
    op.create_table(
        "batches",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("table_id", sa.Text(), nullable=False),
        sa.Column("format", sa.String(length=16), nullable=False),
        sa.Column("inserts", sa.BigInteger(), nullable=False),
        sa.Column("deletes", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("merged", sa.Boolean(), nullable=False),
        sa.Column("first_version", sa.BigInteger(), nullable=False),
        sa.Column("last_version", sa.BigInteger(), nullable=False),
        sa.Column("added", sa.BigInteger(), nullable=False),
        sa.Column("removed", sa.BigInteger(), nullable=True),
        sa.Column("removed_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["table_id"], ["tables.id"], name=op.f("fk_batches_table_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_batches")),
    )
    op.create_index(
        "ix_batches_removed",
        "batches",
        ["removed"],
        unique=False,
        sqlite_where=sa.text("removed IS NOT NULL"),
        postgresql_where=sa.text("removed IS NOT NULL"),
    )
    op.create_index("ix_batches_table_id_removed", "batches", ["table_id", "removed"], unique=False)
    op.create_table(
        "dependencies",
        sa.Column("stream_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("source_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["source_id"], ["tables.id"], name=op.f("fk_dependencies_source_id")),
        sa.ForeignKeyConstraint(["stream_id"], ["tables.id"], name=op.f("fk_dependencies_stream_id")),
        sa.PrimaryKeyConstraint("stream_id", "position", name=op.f("pk_dependencies")),
    )
    op.create_index("ix_dependencies_source_id", "dependencies", ["source_id"], unique=False)
    op.create_table(
        "exports",
        sa.Column("table_id", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["table_id"], ["tables.id"], name=op.f("fk_exports_table_id")),
        sa.PrimaryKeyConstraint("table_id", name=op.f("pk_exports")),
    )
    op.create_table(
        "files",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("role", sa.String(length=8), nullable=False),
        sa.Column("table_id", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("write_id", sa.Text(), nullable=False),
        sa.Column("stats", sa.Text(), nullable=False),
        sa.Column("batch_id", sa.Text(), nullable=True),
        sa.Column("added", sa.BigInteger(), nullable=False),
        sa.Column("removed", sa.BigInteger(), nullable=True),
        sa.Column("removed_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["table_id"], ["tables.id"], name=op.f("fk_files_table_id")),
        sa.PrimaryKeyConstraint("id", "role", name=op.f("pk_files")),
    )
    op.create_index("ix_files_batch_id", "files", ["batch_id"], unique=False)
    op.create_index("ix_files_path", "files", ["path"], unique=False)
    op.create_index(
        "ix_files_removed",
        "files",
        ["removed"],
        unique=False,
        sqlite_where=sa.text("removed IS NOT NULL"),
        postgresql_where=sa.text("removed IS NOT NULL"),
    )
    op.create_index("ix_files_table_id_removed", "files", ["table_id", "removed"], unique=False)
    op.create_table(
        "streams",
        sa.Column("table_id", sa.Text(), nullable=False),
        sa.Column("query", sa.Text(), nullable=False),
        sa.Column("mode", sa.String(length=16), nullable=False),
        sa.Column("schedule", sa.Text(), nullable=True),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("frontier", sa.BigInteger(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("full_ms", sa.Double(), nullable=True),
        sa.Column("diff_ms", sa.Double(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["table_id"], ["tables.id"], name=op.f("fk_streams_table_id")),
        sa.PrimaryKeyConstraint("table_id", name=op.f("pk_streams")),
    )
    op.create_table(
        "table_schemas",
        sa.Column("table_id", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("schema", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["table_id"], ["tables.id"], name=op.f("fk_table_schemas_table_id")),
        sa.PrimaryKeyConstraint("table_id", "version", name=op.f("pk_table_schemas")),
    )
    op.create_table(
        "table_states",
        sa.Column("table_id", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("moved", sa.BigInteger(), nullable=False),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.Column("base_version", sa.BigInteger(), nullable=False),
        sa.Column("base_changed", sa.BigInteger(), nullable=False),
        sa.Column("row_count", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.BigInteger(), nullable=False),
        sa.Column("next_row_id", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["table_id"], ["tables.id"], name=op.f("fk_table_states_table_id")),
        sa.PrimaryKeyConstraint("table_id", "version", name=op.f("pk_table_states")),
    )
    op.create_index("ix_table_states_version", "table_states", ["version"], unique=False)
    op.create_table(
        "inline_rows",
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["batch_id"], ["batches.id"], name=op.f("fk_inline_rows_batch_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("batch_id", name=op.f("pk_inline_rows")),
    )
