"""Rules of Catalyst inside subqueries, and one of ours.

*Inside.* A rule that pulls correlated conditions out of a subquery does not enter the subqueries in there, but the rule that makes joins of
subqueries rewrites all levels at once: the inner ones would keep conditions that speak of rows outside. Spark's optimizer runs itself
anew for each subquery. What does that for one rule is a function from expressions to expressions; Scala has it as an abstract class,
so it is written in Java and compiled by the compiler that Spark brings along for its own queries.

*Limits.* `WHERE r.a = <outer> ORDER BY ... LIMIT n` takes n rows for each outer row. Where <outer> is more than a column (a cast from INT
to BIGINT that nobody wrote is enough) Spark 4.3 pulls the equality out and leaves a LIMIT for all rows together: most outer rows find
nothing. Where one outer column is compared with two, the LIMIT divides the rows by the last of them alone. Inside of `coalesce(...)` an
equality stays where it is: rows are then matched before they are limited. What coalesces one value is that value, so the call is taken
off again afterwards.
"""

from __future__ import annotations

from typing import Any

_IN_SUBQUERIES = """
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;

public class InSubqueries extends scala.runtime.AbstractPartialFunction {
    private final Rule rule;

    public InSubqueries(Rule rule) {
        this.rule = rule;
    }

    public boolean isDefinedAt(Object expression) {
        return expression instanceof SubqueryExpression;
    }

    public Object applyOrElse(Object expression, scala.Function1 otherwise) {
        if (!isDefinedAt(expression)) {
            return otherwise.apply(expression);
        }
        SubqueryExpression subquery = (SubqueryExpression) expression;
        Object plan = rule.apply((TreeNode) subquery.plan());
        return subquery.withNewPlan((LogicalPlan) ((QueryPlan) plan).transformAllExpressions(this));
    }
}
"""


_CORRELATED_LIMITS = """
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.catalyst.trees.TreeNode;

public class CorrelatedLimits extends scala.runtime.AbstractPartialFunction {
    public boolean isDefinedAt(Object expression) {
        return expression instanceof SubqueryExpression;
    }

    public Object applyOrElse(Object expression, scala.Function1 otherwise) {
        if (!isDefinedAt(expression)) {
            return otherwise.apply(expression);
        }
        SubqueryExpression subquery = (SubqueryExpression) expression;
        LogicalPlan plan = (LogicalPlan) ((QueryPlan) subquery.plan()).transformAllExpressions(this);
        if (limits(plan)) {
            java.util.Map compared = new java.util.HashMap();
            count(plan, compared);
            plan = (LogicalPlan) ((TreeNode) plan).transformDown(new Filters(compared));
        }
        return subquery.withNewPlan(plan);
    }

    private static boolean limits(LogicalPlan plan) {
        if (plan instanceof GlobalLimit || plan instanceof LocalLimit || plan instanceof Offset) {
            return true;
        }
        for (int i = 0; i < plan.children().size(); i++) {
            if (limits((LogicalPlan) plan.children().apply(i))) {
                return true;
            }
        }
        return false;
    }

    private static void count(LogicalPlan plan, java.util.Map compared) {
        if (plan instanceof Filter) {
            count(((Filter) plan).condition(), compared);
        }
        for (int i = 0; i < plan.children().size(); i++) {
            count((LogicalPlan) plan.children().apply(i), compared);
        }
    }

    private static void count(Expression expression, java.util.Map compared) {
        ExprId outer = Equalities.known(expression);
        if (outer != null) {
            compared.put(outer, compared.containsKey(outer) ? Boolean.TRUE : Boolean.FALSE);
        }
        for (int i = 0; i < expression.children().size(); i++) {
            count((Expression) expression.children().apply(i), compared);
        }
    }

    public static class Filters extends scala.runtime.AbstractPartialFunction {
        private final scala.runtime.AbstractPartialFunction equalities;

        public Filters(java.util.Map compared) {
            this.equalities = new Equalities(compared);
        }

        public boolean isDefinedAt(Object plan) {
            return plan instanceof Filter;
        }

        public Object applyOrElse(Object plan, scala.Function1 otherwise) {
            if (!isDefinedAt(plan)) {
                return otherwise.apply(plan);
            }
            Filter filter = (Filter) plan;
            return new Filter((Expression) ((TreeNode) filter.condition()).transformUp(equalities), filter.child());
        }
    }

    public static class Equalities extends scala.runtime.AbstractPartialFunction {
        private final java.util.Map compared;

        public Equalities(java.util.Map compared) {
            this.compared = compared;
        }

        public boolean isDefinedAt(Object expression) {
            if (!(expression instanceof EqualTo) && !(expression instanceof EqualNullSafe)) {
                return false;
            }
            Expression left = (Expression) ((BinaryComparison) expression).left();
            Expression right = (Expression) ((BinaryComparison) expression).right();
            if (!outer(left) && !outer(right)) {
                return false;
            }
            ExprId known = known(expression);
            return known == null || compared.get(known) == Boolean.TRUE;
        }

        public static ExprId known(Object expression) {
            if (!(expression instanceof EqualTo) && !(expression instanceof EqualNullSafe)) {
                return null;
            }
            Expression left = (Expression) ((BinaryComparison) expression).left();
            Expression right = (Expression) ((BinaryComparison) expression).right();
            if (left instanceof Attribute && right instanceof OuterReference) {
                return ((OuterReference) right).exprId();
            }
            if (left instanceof OuterReference && right instanceof Attribute) {
                return ((OuterReference) left).exprId();
            }
            return null;
        }

        public Object applyOrElse(Object expression, scala.Function1 otherwise) {
            if (!isDefinedAt(expression)) {
                return otherwise.apply(expression);
            }
            return new Coalesce(scala.collection.immutable.Nil$.MODULE$.$colon$colon(expression));
        }

        private static boolean outer(Expression expression) {
            if (expression instanceof OuterReference) {
                return true;
            }
            for (int i = 0; i < expression.children().size(); i++) {
                if (outer((Expression) expression.children().apply(i))) {
                    return true;
                }
            }
            return false;
        }
    }
}
"""


_ONE_VALUE = """
import org.apache.spark.sql.catalyst.expressions.Coalesce;

public class OneValue extends scala.runtime.AbstractPartialFunction {
    public boolean isDefinedAt(Object expression) {
        return expression instanceof Coalesce && ((Coalesce) expression).children().size() == 1;
    }

    public Object applyOrElse(Object expression, scala.Function1 otherwise) {
        return isDefinedAt(expression) ? ((Coalesce) expression).children().apply(0) : otherwise.apply(expression);
    }
}
"""


def _compiled(jvm: Any, gateway: Any, name: str, source: str, *arguments: Any) -> Any:
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(source)
    given = gateway.new_array(jvm.java.lang.Object, len(arguments))
    for i, argument in enumerate(arguments):
        given[i] = argument
    return compiler.getClassLoader().loadClass(name).getConstructors()[0].newInstance(given)


class InSubqueries:
    """Applies a rule to the plan of every subquery in a plan, at any depth, outer ones first."""

    def __init__(self, jvm: Any, gateway: Any, rule: Any) -> None:
        self._function = _compiled(jvm, gateway, "InSubqueries", _IN_SUBQUERIES, rule)

    def apply(self, plan: Any) -> Any:
        """Return `plan` with its subqueries rewritten."""
        return plan.transformAllExpressions(self._function)


class HiddenEqualities:
    """Keeps equalities with outer expressions below the LIMIT or OFFSET of their subquery: no rule pulls out what it does not see."""

    def __init__(self, jvm: Any, gateway: Any) -> None:
        self._function = _compiled(jvm, gateway, "CorrelatedLimits", _CORRELATED_LIMITS)

    def apply(self, plan: Any) -> Any:
        """Return `plan` with such equalities hidden."""
        return plan.transformAllExpressions(self._function)


class ShownEqualities:
    """Shows hidden equalities again."""

    def __init__(self, jvm: Any, gateway: Any) -> None:
        self._function = _compiled(jvm, gateway, "OneValue", _ONE_VALUE)

    def apply(self, plan: Any) -> Any:
        """Return `plan` without calls of coalesce() that have one argument."""
        return plan.transformAllExpressionsWithSubqueries(self._function)
