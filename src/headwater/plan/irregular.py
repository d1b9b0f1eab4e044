"""Reading functions whose arguments are not all children: schemas, options, target types, names and modes held in fields."""

from __future__ import annotations

from headwater.model.types import cast_ddl, struct_ddl
from headwater.plan.catalyst_json import Node
from headwater.plan.expressions import Call, Expression
from headwater.plan.forms import call, escaped, options_sql, placeholders
from headwater.plan.literals import string_sql
from headwater.plan.scope import ReadClass, Reader, Scope
from headwater.plan.spelling import function_name


def _collate(reader: Reader, node: Node, scope: Scope) -> Expression:
    child = reader.read(node.children[0], scope)
    return Call("collate", (child,), f"collate({{0}}, {string_sql(node.children[1].fields['collationName'])})")


def _with_schema(name: str) -> ReadClass:
    """from_json, from_csv, from_xml: the schema and the options are fields."""

    def read(reader: Reader, node: Node, scope: Scope) -> Expression:
        schema = node.fields["schema"]
        is_struct = isinstance(schema, dict) and schema["type"] == "struct"
        text = string_sql(struct_ddl(schema) if is_struct else cast_ddl(schema))
        args = (reader.read(node.children[0], scope),)
        return Call(name, args, f"{name}({{0}}, {escaped(text + options_sql(node.fields.get('options')))})")

    return read


def _with_options(name: str) -> ReadClass:
    """to_json, schema_of_csv and the like: the options are a field."""

    def read(reader: Reader, node: Node, scope: Scope) -> Expression:
        args = (reader.read(node.children[0], scope),)
        return Call(name, args, f"{name}({{0}}{escaped(options_sql(node.fields.get('options')))})")

    return read


def _named_by_field(reader: Reader, node: Node, scope: Scope) -> Expression:
    """BinaryPad, BinaryPredicate: the name of the function is a field."""
    return call(node.fields.get("funcName") or node.fields["prettyName"], reader.children(node, scope))


def _variant_get(reader: Reader, node: Node, scope: Scope) -> Expression:
    name = "variant_get" if node.fields.get("failOnError", True) else "try_variant_get"
    target = escaped(string_sql(cast_ddl(node.fields["targetType"])))
    return Call(name, reader.children(node, scope), f"{name}({{0}}, {{1}}, {target})")


def _make_timestamp(reader: Reader, node: Node, scope: Scope) -> Expression:
    """The type of the timestamp is a field, and so is whether impossible parts fail."""
    name = "make_timestamp_ntz" if node.fields["dataType"] == "timestamp_ntz" else "make_timestamp_ltz"
    is_try = reader.session.is_ansi and not node.fields.get("failOnError", True)
    return call(f"try_{name}" if is_try else name, reader.children(node, scope))


def _parse_to_timestamp(reader: Reader, node: Node, scope: Scope) -> Expression:
    """As above, but the function that does not fail exists for the default timestamp type only."""
    name = "to_timestamp_ntz" if node.fields["dataType"] == "timestamp_ntz" else "to_timestamp_ltz"
    is_try = reader.session.is_ansi and not node.fields.get("failOnError", True)
    return call("try_to_timestamp" if is_try else name, reader.children(node, scope))


def _make_timestamp_of_date(reader: Reader, node: Node, scope: Scope) -> Expression:
    """A date with optional time and zone. A zone without a time has no form by position."""
    if "timezone" in node.fields and "time" not in node.fields:
        return reader.unprintable(node)
    return call("make_timestamp", reader.children(node, scope))


def _precise_conversion(reader: Reader, node: Node, scope: Scope) -> Expression:
    """Timestamps to microseconds and back, from the arithmetic of `window()`."""
    source, target = node.fields["fromType"], node.fields["toType"]
    epoch = "TIMESTAMP_NTZ '1970-01-01 00:00:00'"
    forms = {
        ("timestamp", "long"): "unix_micros({0})",
        ("long", "timestamp"): "timestamp_micros({0})",
        ("timestamp_ntz", "long"): f"timestampdiff(MICROSECOND, {epoch}, {{0}})",
        ("long", "timestamp_ntz"): f"timestampadd(MICROSECOND, {{0}}, {epoch})",
    }
    form = forms.get((source, target))
    return reader.unprintable(node) if form is None else Call("micros", reader.children(node, scope), form)


def _try_eval(reader: Reader, node: Node, scope: Scope) -> Expression:
    """Errors below become NULL: the try_ function of what stands below."""
    inner = node.children[0]
    if inner.kind == "Cast":
        # Casts between dates and timestamps that follow the arithmetic do not fail, so they may stand outside.
        below = Node("TryEval", {}, inner.children)
        return reader.read(Node(inner.kind, inner.fields, (below,)), scope)
    if "replacement" in inner.fields and len(inner.children) == 1 and inner.kind not in _TRY_NAMES:
        return _try_eval(reader, Node(node.kind, node.fields, inner.children), scope)
    name = _TRY_NAMES.get(inner.kind) or f"try_{function_name(inner.kind, reader.session.names)}"
    if not reader.session.has_function(name):
        return reader.unprintable(node)
    return call(name, reader.children(inner, scope))


_TRY_NAMES = {
    "Add": "try_add",
    "DateAddInterval": "try_add",
    "DateAddYMInterval": "try_add",
    "TimestampAddInterval": "try_add",
    "TimestampAddYMInterval": "try_add",
    "TimeAddInterval": "try_add",
    "DateAdd": "try_add",
    "Subtract": "try_subtract",
    "SubtractDates": "try_subtract",
    "SubtractTimestamps": "try_subtract",
    "DateSub": "try_subtract",
    "Multiply": "try_multiply",
    "MultiplyInterval": "try_multiply",
    "MultiplyYMInterval": "try_multiply",
    "MultiplyDTInterval": "try_multiply",
    "Divide": "try_divide",
    "DivideInterval": "try_divide",
    "DivideYMInterval": "try_divide",
    "DivideDTInterval": "try_divide",
}


def _raise_error(reader: Reader, node: Node, scope: Scope) -> Expression:
    """Only the form with a message can be written; its message sits in a map of parameters."""
    parameters = node.children[1] if len(node.children) == 2 else None
    if parameters is None or parameters.kind != "CreateMap" or len(parameters.children) != 2:
        return reader.unprintable(node)
    return call("raise_error", (reader.read(parameters.children[1], scope),))


def _extract(part: str) -> ReadClass:
    def read(reader: Reader, node: Node, scope: Scope) -> Expression:
        return Call("extract", reader.children(node, scope), f"extract({part} FROM {{0}})")

    return read


def _in_unit(name: str) -> ReadClass:
    """timestampadd, timestampdiff: the unit is a field."""

    def read(reader: Reader, node: Node, scope: Scope) -> Expression:
        return Call(name, reader.children(node, scope), f"{name}({node.fields['unit'].upper()}, {{0}}, {{1}})")

    return read


def _arrays_zip(reader: Reader, node: Node, scope: Scope) -> Expression:
    """The names of its fields are those of the user's columns, which our columns do not have: a cast gives them back."""
    args = reader.children(node, scope)
    target = escaped(node.fields["hw_type"])
    return Call("arrays_zip", args, f"CAST(arrays_zip({placeholders(len(args))}) AS {target})")


IRREGULAR: dict[str, ReadClass] = {
    "Collate": _collate,
    "JsonToStructs": _with_schema("from_json"),
    "CsvToStructs": _with_schema("from_csv"),
    "XmlToStructs": _with_schema("from_xml"),
    "StructsToJson": _with_options("to_json"),
    "StructsToCsv": _with_options("to_csv"),
    "StructsToXml": _with_options("to_xml"),
    "SchemaOfJson": _with_options("schema_of_json"),
    "SchemaOfCsv": _with_options("schema_of_csv"),
    "SchemaOfXml": _with_options("schema_of_xml"),
    "BinaryPad": _named_by_field,
    "BinaryPredicate": _named_by_field,
    "VariantGet": _variant_get,
    "MakeTimestamp": _make_timestamp,
    "MakeTimestampFromDateTime": _make_timestamp_of_date,
    "ParseToTimestamp": _parse_to_timestamp,
    "PreciseTimestampConversion": _precise_conversion,
    "TimestampAdd": _in_unit("timestampadd"),
    "TimestampDiff": _in_unit("timestampdiff"),
    "YearOfWeek": _extract("YEAROFWEEK"),
    "ArraysZip": _arrays_zip,
    "TryEval": _try_eval,
    "RaiseError": _raise_error,
    **{
        f"Extract{kind}{part}s": _extract(part.upper())
        for kind in ("ANSIInterval", "Interval")
        for part in ("Year", "Month", "Day", "Hour", "Minute", "Second")
    },
}
"""How each of these classes is read."""
