"""Constants as text: the golden side of what `test_expressions.py` runs."""

from __future__ import annotations

import pytest

from headwater.plan.literals import literal_sql


@pytest.mark.parametrize(
    ("json_type", "value", "text"),
    [
        ("integer", "5", "5"),
        ("byte", "-128", "-128Y"),
        ("long", "-9223372036854775808", "-9223372036854775808L"),
        ("float", "1.5E10", "1.5E10F"),
        ("double", "NaN", "CAST('NaN' AS DOUBLE)"),
        ("decimal(3,1)", "10.5", "10.5BD"),
        ("decimal(12,2)", "10.50", "CAST(10.50BD AS DECIMAL(12,2))"),
        ("decimal(18,18)", "0E-18", "0.000000000000000000BD"),
        ("string", "it's \\ ${x}\n", r"'it\'s \\ \u0024{x}\n'"),
        ("string", None, "CAST(NULL AS STRING)"),
        ("void", None, "NULL"),
        ("string collate UNICODE", "a", "CAST('a' AS STRING COLLATE UNICODE)"),
        ("binary", "00FF", "X'00FF'"),
        ("date", "19782", "DATE '2024-02-29'"),
        ("date", "-800000", "date_from_unix_date(-800000)"),
        ("timestamp", "1", "TIMESTAMP_LTZ '1970-01-01 00:00:00.000001Z'"),
        ("timestamp_ntz", "-1", "TIMESTAMP_NTZ '1969-12-31 23:59:59.999999'"),
        ("timestamp", "999999999999999999", "timestamp_micros(999999999999999999L)"),
        ("interval year to month", "-14", "INTERVAL '-1-2' YEAR TO MONTH"),
        ("interval month", "5", "CAST(INTERVAL '0-5' YEAR TO MONTH AS INTERVAL MONTH)"),
        ("interval day to second", "93784000005", "INTERVAL '1 02:03:04.000005' DAY TO SECOND"),
        ({"type": "array", "elementType": "integer", "containsNull": True}, ["1", None], "array(1, CAST(NULL AS INT))"),
        ({"type": "array", "elementType": "integer", "containsNull": True}, [], "CAST(array() AS ARRAY<INT>)"),
        ({"type": "map", "keyType": "string", "valueType": "integer"}, [["a"], ["1"]], "map('a', 1)"),
        (
            {"type": "struct", "fields": [{"name": "a b", "type": "integer", "nullable": True, "metadata": {}}]},
            ["1"],
            "named_struct('a b', 1)",
        ),
    ],
)
def test_constant(json_type: object, value: object, text: str) -> None:
    assert literal_sql(json_type, value) == text


@pytest.mark.parametrize("json_type", ["variant", "timestamp_ltz(9)", "geometry(4326)"])
def test_types_without_constants_are_refused(json_type: str) -> None:
    with pytest.raises(ValueError, match="cannot be written as SQL"):
        literal_sql(json_type, "1")
