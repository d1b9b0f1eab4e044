"""What `plan.toJSON()` leaves out, asked of the JVM objects themselves.

JSON writes null for everything Spark's encoder does not know: evaluation modes, characters, maps of options. TRY, ANSI and LEGACY
differ in results, so these are read from the expression. JSON and objects are walked side by side, and only where something
is missing: JSON is one call, every object costs several.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from headwater.model.types import field_ddl, type_ddl

Json = dict[str, Any]

_KNOWN_NULL = frozenset({"value", "metadata", "explicitMetadata", "function", "filter", "resultId", "qualifier"})
"""Fields that are null in JSON and not needed, or null in truth."""

_TEXT_IS_VALUE = (
    "string",
    "integer",
    "long",
    "short",
    "byte",
    "boolean",
    "float",
    "double",
    "decimal",
    "void",
    "interval ",
)
"""Types (by how their name starts) whose literals JSON writes exactly."""


MOST_ROWS = 1000
"""Constant tables with more rows are not read."""


def nodes_with_nested(nodes: Iterable[Json]) -> Iterator[Json]:
    """Yield the nodes of a plan and those of the plans of its subqueries, at any depth."""
    for node in nodes:
        yield node
        for value in node.values():
            for root in _expression_lists(value):
                for expression in root:
                    yield from nodes_with_nested(expression.get("hw_plan", ()))


class Annotator:
    """Reads plans as JSON with the missing pieces filled in; `normalised` is applied to the plans of scalar subqueries."""

    def __init__(self, jvm: Any, normalised: Callable[[Any], Any], table_tag: str, column_tag: str) -> None:
        self.jvm = jvm
        self.normalised = normalised
        self.table_tag = table_tag
        self.column_tag = column_tag

    def nodes(self, plan: Any) -> list[Json]:
        """Return the JSON of `plan` in preorder."""
        nodes: list[Json] = json.loads(plan.toJSON())
        _Walk(nodes, self).annotate(plan)
        return nodes


class _Walk:
    def __init__(self, nodes: list[Json], annotator: Annotator) -> None:
        self._nodes = iter(nodes)
        self._annotator = annotator
        self._jvm = annotator.jvm

    def annotate(self, plan: Any) -> None:
        node = next(self._nodes)
        fields = json.loads(plan.schema().json())["fields"]
        node["hw_output"] = [[field_ddl(f), f["nullable"]] for f in fields]
        if node["num-children"] == 0:
            self._annotate_leaf(node, plan, fields)
            return
        if node["class"].endswith(".Generate"):
            node["unrequiredChildIndex"] = self._field(plan.unrequiredChildIndex())
        if (
            node["class"].endswith(".Expand") and node["projections"] is None
        ):  # over a UNION: JSON knows lists, not vectors
            node["projections"] = [[json.loads(e.toJSON()) for e in _items(row)] for row in _items(plan.projections())]
        roots = [r for key, value in node.items() if not key.startswith("hw_") for r in _expression_lists(value)]
        if any(_lacks(e) for root in roots for e in root):
            expressions = plan.expressions()
            for index, root in enumerate(roots):
                if any(_lacks(e) for e in root):
                    self._annotate_expression(root, 0, expressions.apply(index))
        children = plan.children()
        for index in range(node["num-children"]):
            self.annotate(children.apply(index))

    def _annotate_leaf(self, node: Json, plan: Any, fields: list[Json]) -> None:
        table_tag, column_tag = self._annotator.table_tag, self._annotator.column_tag
        tables = {f["metadata"].get(table_tag) for f in fields}
        if node["class"].endswith(".LocalRelation"):
            self._annotate_rows(node, plan, fields)
        if len(tables) != 1 or None in tables:
            return
        output = plan.output()
        columns = []
        for index, field in enumerate(fields):
            expression_id = output.apply(index).exprId().id()
            columns.append([expression_id, field["metadata"][column_tag], field_ddl(field), field["nullable"]])
        node["hw_scan"] = {"table": tables.pop(), "columns": columns}

    def _annotate_rows(self, node: Json, plan: Any, fields: list[Json]) -> None:
        rows = plan.data()
        if rows.size() > MOST_ROWS:
            return
        types = [f.dataType() for f in plan.schema().fields()]
        node["hw_types"] = [f["type"] for f in fields]
        node["hw_rows"] = [
            [self._value(rows.apply(i).get(j, kind), kind) for j, kind in enumerate(types)] for i in range(rows.size())
        ]

    def _annotate_expression(self, flat: list[Json], start: int, expression: Any) -> int:
        """Fill the subtree that starts at `flat[start]`; return where the next one starts."""
        node = flat[start]
        if _lacks(node):
            self._fill(node, expression)
        position = start + 1
        children = None
        for index in range(node["num-children"]):
            end = _subtree_end(flat, position)
            if any(_lacks(e) for e in flat[position:end]):
                children = children or expression.children()
                self._annotate_expression(flat, position, children.apply(index))
            position = end
        return position

    def _fill(self, node: Json, expression: Any) -> None:
        if _is_literal(node):
            node["hw_value"] = self._value(expression.value(), expression.dataType())
            return
        if _is_uncorrelated_subquery(node):
            annotator = self._annotator
            node["hw_plan"] = annotator.nodes(annotator.normalised(expression.plan()))
            del node["plan"]
            return
        if _is_aggregate(node):
            children = expression.children()
            node["hw_arguments"] = [children.apply(i).dataType().sql() for i in range(node["num-children"])]
            node["hw_result"] = type_ddl(json.loads(expression.dataType().json()))
        if _hides_its_type(node):
            node["hw_type"] = expression.dataType().sql()
        if _is_unnamed_field(node):
            node["name"] = expression.extractFieldName()
        for key in _null_fields(node):
            node[key] = self._field(getattr(expression, key)())

    def _field(self, value: Any) -> Any:
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        kind = value.getClass().getName()
        if kind.endswith("EvalContext"):
            return value.evalMode().toString()
        if self._is_a(value, "scala.Option"):
            return self._field(value.get()) if value.isDefined() else None
        if self._is_a(value, "scala.collection.Seq"):
            return [self._field(v) for v in _items(value)]
        if self._is_a(value, "scala.collection.Map"):
            java_map = self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(value)
            return {str(k): str(java_map.get(k)) for k in java_map.keySet()}
        return value.toString()

    def _is_a(self, value: Any, name: str) -> bool:
        return bool(self._jvm.java.lang.Class.forName(name).isInstance(value))

    def _value(self, value: Any, data_type: Any) -> Any:
        """Return a literal's internal value: numbers as text, bytes as hex, nested values as lists."""
        if value is None:
            return None
        kind = data_type.typeName()
        if kind == "array":
            element = data_type.elementType()
            return [self._value(value.get(i, element), element) for i in range(value.numElements())]
        if kind == "map":
            keys = self._jvm.org.apache.spark.sql.types.ArrayType(data_type.keyType(), True)
            values = self._jvm.org.apache.spark.sql.types.ArrayType(data_type.valueType(), True)
            return [self._value(value.keyArray(), keys), self._value(value.valueArray(), values)]
        if kind == "struct":
            types = [f.dataType() for f in data_type.fields()]
            return [self._value(value.get(i, t), t) for i, t in enumerate(types)]
        if isinstance(value, (bytes, bytearray)):
            return bytes(value).hex().upper()
        if kind == "interval":
            return [value.months, value.days, value.microseconds]
        if isinstance(value, (bool, int, float, str)):
            return str(value).lower() if isinstance(value, bool) else str(value)
        return value.toString()


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(i) for i in range(sequence.size())]


def _lacks(node: Json) -> bool:
    if _is_literal(node):
        return node.get("value") is not None and not _is_exact(node["dataType"])
    if _is_uncorrelated_subquery(node):
        return True
    known_lacks = (_null_fields(node), _hides_its_type(node), _is_aggregate(node), _is_unnamed_field(node))
    return any(known_lacks)


def _is_literal(node: Json) -> bool:
    return bool(node["class"].endswith(".Literal"))


def _is_uncorrelated_subquery(node: Json) -> bool:
    return node["class"].endswith((".ScalarSubquery", ".Exists")) and not node.get("outerAttrs")


def _is_aggregate(node: Json) -> bool:
    return ".expressions.aggregate." in node["class"] and not node["class"].endswith(".AggregateExpression")


def _is_unnamed_field(node: Json) -> bool:
    return node["class"].endswith(".GetStructField") and node.get("name") is None


def _is_exact(json_type: Any) -> bool:
    return isinstance(json_type, str) and json_type.startswith(_TEXT_IS_VALUE)


def _hides_its_type(node: Json) -> bool:
    """A cast to an array or map of strings (JSON drops their collation), or a function whose type depends on column names."""
    if node["class"].endswith(".Cast"):
        return isinstance(node["dataType"], dict) and '"string"' in json.dumps(node["dataType"])
    return bool(node["class"].endswith(".ArraysZip"))


def _null_fields(node: Json) -> list[str]:
    return [k for k, v in node.items() if v is None and k not in _KNOWN_NULL]


def _subtree_end(flat: list[Json], start: int) -> int:
    end, open_nodes = start, 1
    while open_nodes:
        open_nodes += flat[end]["num-children"] - 1
        end += 1
    return end


def _expression_lists(value: Any) -> list[list[Json]]:
    """Return the expressions in a field of a plan node, each as its flat list, in the order of `plan.expressions()`."""
    if not isinstance(value, list) or not value:
        return []
    if isinstance(value[0], dict):
        return [value] if "class" in value[0] and "num-children" in value[0] else []
    return [r for item in value for r in _expression_lists(item)]
