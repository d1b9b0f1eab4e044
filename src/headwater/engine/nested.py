"""Rules of Catalyst inside subqueries.

A rule that pulls correlated conditions out of a subquery does not enter the subqueries in there, but the rule that makes joins of
subqueries rewrites all levels at once: the inner ones would keep conditions that speak of rows outside. Spark's optimizer runs itself
anew for each subquery. What does that for one rule is a function from expressions to expressions; Scala has it as an abstract class,
so it is written in Java and compiled by the compiler that Spark brings along for its own queries.
"""

from __future__ import annotations

from typing import Any

_SOURCE = """
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


class InSubqueries:
    """Applies a rule to the plan of every subquery in a plan, at any depth, outer ones first."""

    def __init__(self, jvm: Any, gateway: Any, rule: Any) -> None:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(_SOURCE)
        arguments = gateway.new_array(jvm.java.lang.Object, 1)
        arguments[0] = rule
        self._function = compiler.getClassLoader().loadClass("InSubqueries").getConstructors()[0].newInstance(arguments)

    def apply(self, plan: Any) -> Any:
        """Return `plan` with its subqueries rewritten."""
        return plan.transformAllExpressions(self._function)
