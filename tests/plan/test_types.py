"""Types as DDL text read back as the same type."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.types import DataType, StructType

from headwater.model.types import cast_ddl, field_ddl, struct_ddl, type_ddl


@pytest.mark.parametrize(
    "ddl",
    [
        "INT",
        "BIGINT",
        "SMALLINT",
        "TINYINT",
        "FLOAT",
        "DOUBLE",
        "BOOLEAN",
        "STRING",
        "BINARY",
        "DATE",
        "TIMESTAMP",
        "TIMESTAMP_NTZ",
        "DECIMAL(38,18)",
        "INTERVAL YEAR TO MONTH",
        "INTERVAL MONTH",
        "INTERVAL DAY TO SECOND",
        "INTERVAL HOUR",
        "VARIANT",
        "VOID",
        "CHAR(3)",
        "VARCHAR(7)",
        "ARRAY<INT>",
        "MAP<STRING, ARRAY<DECIMAL(5,2)>>",
        "STRUCT<a: INT, `b c`: STRING, `d``e`: STRUCT<`1`: DATE>>",
    ],
)
def test_type_reads_back(ddl: str) -> None:
    parsed = DataType.fromDDL(ddl)
    written = type_ddl(json.loads(parsed.json()))
    assert written == ddl
    assert DataType.fromDDL(written) == parsed


def test_collations_are_kept() -> None:
    schema = StructType.fromDDL(
        "a STRING COLLATE UNICODE, b ARRAY<STRING COLLATE UTF8_LCASE>, m MAP<STRING, STRING COLLATE UNICODE>"
    )
    fields = json.loads(schema.json())["fields"]
    assert [field_ddl(f) for f in fields] == [
        "STRING COLLATE UNICODE",
        "ARRAY<STRING COLLATE UTF8_LCASE>",
        "MAP<STRING, STRING COLLATE UNICODE>",
    ]
    assert type_ddl("string collate UNICODE_CI") == "STRING COLLATE UNICODE_CI"


def test_only_casts_name_nullability() -> None:
    struct = json.loads(DataType.fromDDL("STRUCT<a: INT NOT NULL, b: STRING>").json())
    assert type_ddl(struct) == "STRUCT<a: INT, b: STRING>"
    assert cast_ddl(struct) == "STRUCT<a: INT NOT NULL, b: STRING>"
    assert struct_ddl(struct) == "a INT NOT NULL, b STRING"


def test_unknown_type_is_named() -> None:
    with pytest.raises(ValueError, match="unknown Spark type"):
        type_ddl({"type": "tensor"})
