"""Export: the base of a table as a Delta Lake log, for readers that are not Headwater.

The log is written after the catalog's commit, as the difference between the files it names and the files the catalog names. So it
may be redone by anyone after a crash, and doing it twice changes nothing. Outsiders may lag, never lead.
"""

from __future__ import annotations

import json
import time
import urllib.parse
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from headwater.catalog import Catalog, Manifest
from headwater.engine.worker import schema_json
from headwater.model.tables import DataFile, Table
from headwater.store.layout import Layout, decoded_statistics

APP = "headwater"
_FORBIDDEN = set(" ,;{}()\n\t=")


def not_exported_because(table: Table) -> str | None:
    """Return why a table has no Delta log, None if it has one."""
    for field in table.schema.visible:
        if _FORBIDDEN & set(field.name):
            return f'column name "{field.name}" is not allowed in Delta Lake without column mapping'
    return None


def export_base(catalog: Catalog, layout: Layout, table: Table, manifest: Manifest, version: int) -> bool:
    """Bring the Delta log of a table up to `version`; return whether anything was written."""
    if not_exported_because(table) is not None:
        catalog.set_exported(table.id, version)
        return False
    folder = layout.base(table.id)
    folder.mkdir(parents=True, exist_ok=True)
    schema = Schema.from_json(schema_json(table.schema.visible))
    if not DeltaTable.is_deltatable(str(folder)):
        log = DeltaTable.create(str(folder), schema, mode="ignore", name=table.name)
    else:
        log = DeltaTable(str(folder))
    known = {f.name for f in log.schema().fields}
    added = [f for f in schema.fields if f.name not in known]
    if added:
        log.alter.add_columns(added)
        log = DeltaTable(str(folder))
    prefix = f"data/{table.id}/base/"
    wanted = {f.path.removeprefix(prefix): f for f in manifest.files}
    root = log.table_uri.rstrip("/") + "/"
    present = {_relative(u, root) for u in log.file_uris()}
    actions: list[AddAction | RemoveAction] = [_add(p, f, table) for p, f in wanted.items() if p not in present]
    actions += [RemoveAction(p, True, int(time.time() * 1000)) for p in present if p not in wanted]
    if actions:
        stamp = CommitProperties(app_transactions=[Transaction(APP, version)])
        try:
            log.create_write_transaction(actions, "append", schema, commit_properties=stamp)
        except CommitFailedError:
            return False  # somebody else has written the log meanwhile; what it lacks is still pending
    catalog.set_exported(table.id, version)
    return bool(actions)


def _relative(uri: str, root: str) -> str:
    plain, base = (urllib.parse.unquote(u).removeprefix("file://") for u in (uri, root))
    return plain.removeprefix(base)


def _add(path: str, file: DataFile, table: Table) -> AddAction:
    names = {f.name for f in table.schema.visible}
    known = {k: v for k, v in decoded_statistics(file).items() if k in names and _has_exact_text(v[0])}
    stats = {
        "numRecords": file.rows,
        "minValues": {k: _value(v[0]) for k, v in known.items() if v[0] is not None},
        "maxValues": {k: _value(v[1]) for k, v in known.items() if v[1] is not None},
        "nullCount": {k: v[2] for k, v in known.items()},
    }
    return AddAction(path, file.bytes, {}, int(time.time() * 1000), True, json.dumps(stats))


def _has_exact_text(value: Any) -> bool:
    """Timestamps are cut to milliseconds and decimals to floats in Delta's statistics: a bound that is off would hide rows."""
    return not isinstance(value, datetime | Decimal)


def _value(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value
