"""Reading expressions: Catalyst's JSON becomes an `Expression` that prints as SQL with the same meaning.

Spark implements many functions by a replacement. Where the replacement consists of ordinary expressions it is what gets printed:
it is what Spark would run. Where it is a call into Spark's own code, the name comes from the outer class and the arguments from
the call: the arguments the user wrote stand outside the children, where Catalyst's rules do not reach, and may be stale.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.model.types import cast_ddl
from headwater.plan.catalyst_json import Node
from headwater.plan.constructs import CONSTRUCTS
from headwater.plan.expressions import Call, Expression
from headwater.plan.forms import UNKNOWN, call, fragment
from headwater.plan.functions import ENVIRONMENT_DEPENDENT, NON_DETERMINISTIC, SPECIAL_TIMES, TIME_DEPENDENT
from headwater.plan.irregular import IRREGULAR
from headwater.plan.refusal import Code, Findings
from headwater.plan.scope import ReadClass, Scope, Session
from headwater.plan.spelling import FORMS, MODES, function_name

_READ: dict[str, ReadClass] = {**CONSTRUCTS, **IRREGULAR}

_SUBQUERIES = frozenset(
    {"ScalarSubquery", "Exists", "ListQuery", "InSubquery", "LateralSubquery", "DynamicPruningSubquery"}
)
_UDFS = frozenset({"ScalaUDF", "PythonUDF", "PythonUDAF", "ScalaAggregator", "ScalaUDAF", "ApplyFunctionExpression"})
_WINDOWS = frozenset({"WindowExpression", "WindowSpecDefinition"})
_TRANSPARENT = frozenset(
    {"Alias", "KnownNullable", "KnownNotNull", "KnownFloatingPointNormalized", "TempResolvedColumn"}
)
_INVOKES = frozenset({"StaticInvoke", "Invoke"})


class ExpressionReader:
    """Reads the expressions of one query; what cannot be read goes to `findings`."""

    def __init__(self, session: Session, findings: Findings) -> None:
        self.session = session
        self.findings = findings

    def read(self, node: Node, scope: Scope) -> Expression:
        """Return the expression, or a placeholder after recording why it is refused."""
        if "hw_plan" in node.fields:
            return self._subquery(node, scope)
        if self._is_refused(node):
            self._find_more_reasons(node, scope)
            return UNKNOWN
        read = _READ.get(node.kind)
        if read is not None:
            return read(self, node, scope)
        if node.kind in _TRANSPARENT:
            return self.read(node.children[0], scope)
        if "replacement" in node.fields and len(node.children) == 1:
            return self._replaced(node, scope)
        return self.function(node, self.children(node, scope))

    def _subquery(self, node: Node, scope: Scope) -> Expression:
        if node.expression_id not in scope.subqueries and scope.columns is not None:
            self.findings.refuse(Code.SUBQUERY_NOT_SUPPORTED, node.kind, "There is no delta rule for it in this place.")
        return scope.subqueries.get(node.expression_id, UNKNOWN)

    def children(self, node: Node, scope: Scope) -> tuple[Expression, ...]:
        """Read all children."""
        return tuple(self.read(c, scope) for c in node.children)

    def function(self, node: Node, args: tuple[Expression, ...]) -> Expression:
        """Return the function that the class of `node` stands for, over `args`."""
        kind = node.kind
        name = function_name(kind, self.session.names)
        if kind in MODES:
            form, try_form = MODES[kind]
            return Call(name or kind.lower(), args, self.moded(node, form, try_form))
        form_of_kind = FORMS.get(f"{kind}{len(args)}") or FORMS.get(kind)
        if form_of_kind is not None:
            return Call(name or kind.lower(), args, form_of_kind)
        if name is None:
            return self.unprintable(node)
        return call(self._variant(name, node), args)

    def unprintable(self, node: Node) -> Expression:
        """Refuse `node` because it has no SQL text; return a placeholder."""
        detail = f"Spark's {node.kind} has no SQL text that reads back as the same expression."
        self.findings.refuse(Code.FUNCTION_NOT_PRINTABLE, fragment(node), detail)
        return UNKNOWN

    def moded(self, node: Node, form: str, try_form: str) -> str:
        """Return the form for the evaluation mode of `node`."""
        session_mode = "ANSI" if self.session.is_ansi else "LEGACY"
        mode = node.fields.get("evalMode") or node.fields.get("evalContext") or session_mode
        if mode == "TRY" and try_form:
            return try_form
        if mode != session_mode:
            detail = f"It was built in mode {mode}, the session runs in mode {session_mode}."
            self.findings.refuse(Code.EVALUATION_MODE, fragment(node), detail)
        return form

    def _variant(self, name: str, node: Node) -> str:
        """Return the name of the try_ function if there is one and `node` does not fail on bad input."""
        fails = node.fields.get("failOnError", node.fields.get("ansiEnabled", True))
        may_try = not fails and (self.session.is_ansi or name in _FAILS_IN_EVERY_MODE)
        return f"try_{name}" if may_try and self.session.has_function(f"try_{name}") else name

    def _replaced(self, node: Node, scope: Scope) -> Expression:
        replacement = node.children[0]
        if replacement.kind not in _INVOKES:
            return self.read(replacement, scope)
        args = tuple(self.read(c, scope) for c in _invoke_arguments(replacement))
        return self.function(Node(node.kind, node.fields, ()), args)

    def _find_more_reasons(self, node: Node, scope: Scope) -> None:
        if node.kind in _WINDOWS:
            return
        for child in node.children:
            self.read(child, replace(scope, columns=None))

    def _is_refused(self, node: Node) -> bool:
        kind, refuse = node.kind, self.findings.refuse
        if kind in NON_DETERMINISTIC:
            detail = "It gives another value each time it is evaluated."
            refuse(Code.EXPRESSION_NOT_DETERMINISTIC, f"{NON_DETERMINISTIC[kind]}()", detail)
        elif kind == "AesEncrypt" and not _has_fixed_vector(node):
            detail = "Without an initialization vector it encrypts with a random one."
            refuse(Code.EXPRESSION_NOT_DETERMINISTIC, "aes_encrypt()", detail)
        elif kind in TIME_DEPENDENT:
            detail = "Its value changes with time, without a change in any source."
            refuse(Code.TIME_DEPENDENT, f"{TIME_DEPENDENT[kind]}()", detail)
        elif kind == "Cast" and _is_special_time(node):
            text = f"CAST('{node.children[0].fields['value']}' AS {cast_ddl(node.fields['dataType'])})"
            refuse(Code.TIME_DEPENDENT, text, "It means the present, which changes without a change in any source.")
        elif kind in ENVIRONMENT_DEPENDENT:
            detail = "Its value depends on who runs the query, and where."
            refuse(Code.ENVIRONMENT_DEPENDENT, f"{ENVIRONMENT_DEPENDENT[kind]}()", detail)
        elif kind in _SUBQUERIES:
            refuse(Code.SUBQUERY_NOT_SUPPORTED, kind, "A subquery inside an expression has no delta rule.")
        elif kind in _UDFS:
            self._refuse_udf(node)
        elif kind == "Alias" and _is_session_window(node):
            refuse(Code.OPERATOR_NOT_SUPPORTED, "session_window()", "There is no delta rule for it.")
        elif kind in _WINDOWS:
            refuse(Code.OPERATOR_NOT_SUPPORTED, "OVER (...)", "There is no delta rule for it.")
        else:
            return False
        return True

    def _refuse_udf(self, node: Node) -> None:
        name = str(node.fields.get("name") or node.fields.get("udfName") or "a user-defined function")
        if node.fields.get("udfDeterministic", True) in (False, "false"):
            self.findings.refuse(Code.UDF_NOT_DETERMINISTIC, name, "It is declared non-deterministic.")
        else:
            detail = "A user-defined function exists only in the session that made it."
            self.findings.refuse(Code.FUNCTION_NOT_PRINTABLE, name, detail)


_FAILS_IN_EVERY_MODE = frozenset(
    {"parse_json", "variant_insert", "variant_set", "variant_array_append", "parse_url", "to_number", "to_binary"}
)
"""Functions that fail on bad input in every mode: what does not fail is the try_ function."""


def _invoke_arguments(node: Node) -> tuple[Node, ...]:
    """Return the arguments of a call into Spark's code, without the object it is called on."""
    if (
        node.kind == "Invoke"
        and node.children[0].kind == "Literal"
        and "object" in str(node.children[0].fields["dataType"])
    ):
        return node.children[1:]
    return node.children


def _has_fixed_vector(node: Node) -> bool:
    """Say whether the result is fixed: ECB uses no initialization vector, otherwise one must be given."""
    mode, vector = node.children[2], node.children[4]
    if mode.kind == "Literal" and mode.fields["value"] == "ECB":
        return True
    return not any(n.kind == "Literal" and n.fields["value"] == "" for n in vector.walk())


def _is_session_window(node: Node) -> bool:
    """Sessions are merged by a physical operator that Spark plans for this very column: as plain SQL it means nothing."""
    is_window = node.fields["name"] == "session_window" and node.children[0].kind == "CreateNamedStruct"
    return is_window and any(n.kind == "PreciseTimestampConversion" for n in node.walk())


def _is_special_time(node: Node) -> bool:
    target, child = node.fields["dataType"], node.children[0]
    is_time = isinstance(target, str) and target.startswith(("date", "timestamp"))
    text = child.fields.get("value") if child.kind == "Literal" and child.fields["dataType"] == "string" else None
    return is_time and isinstance(text, str) and text.strip().lower() in SPECIAL_TIMES
