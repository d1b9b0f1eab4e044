"""The commands, as a user types them: what they print, in both forms, and their exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.shops import Run, documents, run_process
from typer.main import get_command

from headwater.cli.app import app

COMMANDS = sorted(get_command(app).commands)  # type: ignore[attr-defined]


# -- without a warehouse ---------------------------------------------------------------------------------------------------


def test_version(run: Run) -> None:
    assert run("--version").output.startswith("headwater 0.")
    assert documents(run("--json", "--version"))[0]["version"].startswith("0.")


def test_the_commands() -> None:
    assert set(COMMANDS) >= {"sql", "refresh", "run", "status", "health", "pause", "drain", "fuse", "explain"}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example_and_json(run: Run, command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert "Example" in result.output
    assert "--json" in result.output


def test_wrong_usage_is_2(run: Run) -> None:
    assert run("nonsense").exit_code == 2
    assert run("status", "--nonsense").exit_code == 2
    assert run("demo", "--rows", "-3").exit_code == 2
    both = run("sql", "SELECT 1", "-f", "x.sql")
    assert both.exit_code == 2
    assert "not both" in both.output


def test_no_command_shows_the_commands(run: Run) -> None:
    assert "validate" in run().output


def test_importing_the_command_line_imports_no_spark(tmp_path: Path) -> None:
    code = "import sys, headwater.cli; bad = {'pyspark', 'py4j', 'pandas'} & set(sys.modules); sys.exit(str(bad) if bad else 0)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr


# -- errors ----------------------------------------------------------------------------------------------------------------


def test_a_missing_warehouse_is_1_with_a_hint(run: Run, tmp_path: Path) -> None:
    result = run("status", "-w", str(tmp_path / "none"))
    assert result.exit_code == 1
    assert "HW101" in result.stderr
    assert "hint" in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.output


def test_an_error_as_json(run: Run, tmp_path: Path) -> None:
    result = run("status", "--json", "-w", str(tmp_path / "none"))
    assert result.exit_code == 1
    assert json.loads(result.stderr)["error"]["code"] == "HW101"


def test_json_may_stand_before_the_command(run: Run, tmp_path: Path) -> None:
    result = run("--json", "status", "-w", str(tmp_path / "none"))
    assert json.loads(result.stderr)["error"]["code"] == "HW101"


def test_nothing_to_run(run: Run, shop: str) -> None:
    result = run("sql", "-w", shop, " ; -- nothing")
    assert result.exit_code == 1
    assert "no statement" in result.stderr


def test_a_query_that_spark_refuses(run: Run, shop: str) -> None:
    result = run("sql", "-w", shop, "SELECT nothing FROM orders")
    assert result.exit_code == 1
    assert "HW401" in result.stderr
    assert "Traceback" not in result.output


def test_a_query_that_fails_while_running(run: Run, shop: str) -> None:
    result = run("sql", "-w", shop, "SELECT 1 / (id - id) FROM orders")
    assert result.exit_code == 1
    assert "DIVIDE_BY_ZERO" in result.stderr
    assert "Traceback" not in result.output


def test_an_unknown_table_names_the_nearest(run: Run, shop: str) -> None:
    result = run("refresh", "-w", shop, "salez")
    assert result.exit_code == 1
    assert '"sales"' in result.stderr


def test_a_bad_setting(run: Run, shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_TAIL_MAX_FILE", "3")
    result = run("status", "-w", shop)
    assert result.exit_code == 1
    assert '"tail_max_files"' in result.stderr


# -- the journey -----------------------------------------------------------------------------------------------------------


def test_the_journey(run: Run, shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_WAREHOUSE", shop)
    [changed] = documents(run("sql", "--json", "UPDATE orders SET amount = 20 WHERE id = 1"))
    assert changed["rows_affected"] == 1

    before = {s["name"]: s for s in documents(run("status", "--json"))[0]}
    assert set(before) == {"orders", "sales", "large"}
    assert before["sales"]["kind"] == "stream"
    assert before["sales"]["rows"] == 2

    [reports] = documents(run("refresh", "--json"))
    sales = next(r for r in reports if r["name"] == "sales")
    assert sales["action"] == "DIFFERENTIAL"
    assert (sales["rows_deleted"], sales["rows_inserted"]) == (1, 1)

    [result] = documents(run("sql", "--json", "SELECT region, n, total FROM sales ORDER BY region"))
    assert result == {
        "columns": ["region", "n", "total"],
        "rows": [["north; east", 2, "25.50"], ["south", 1, "7.25"]],
        "more": False,
    }

    [verified] = documents(run("verify", "--json"))
    assert {v["name"]: v["equal"] for v in verified} == {"sales": True, "large": True}

    [lines] = documents(run("history", "sales", "--json"))
    assert [line["action"] for line in lines[:2]] == ["DIFFERENTIAL", "INITIAL"]
    [one] = documents(run("history", "--limit", "1", "--json"))
    assert len(one) == 1

    [again] = documents(run("refresh", "sales", "--json"))
    assert [r["action"] for r in again] == ["NO_DATA"]


def test_text_forms(run: Run, shop: str) -> None:
    for command in (["status"], ["history"], ["refresh"], ["verify"], ["vacuum"], ["vacuum", "--dry-run"]):
        result = run(*command, "-w", shop)
        assert result.exit_code == 0, result.output
    assert "sales" in run("status", "-w", shop).output
    assert "equal" in run("verify", "sales", "-w", shop).output
    assert "deleted" in run("vacuum", "-w", shop).output
    assert "would delete" in run("vacuum", "--dry-run", "-w", shop).output
    rows = run("sql", "-w", shop, "SELECT * FROM sales", "--limit", "1")
    assert "the first 1 row" in rows.output


def test_vacuum_as_json(run: Run, shop: str) -> None:
    [report] = documents(run("vacuum", "--dry-run", "--json", "-w", shop))
    assert report["dry_run"] is True
    assert report["files_deleted"] >= 0


def test_validate(run: Run, shop: str) -> None:
    good = "SELECT region, max(amount) AS m FROM orders GROUP BY region"
    [answer] = documents(run("validate", good, "--json", "-w", shop))
    assert answer["mode"] == "DIFFERENTIAL"
    assert answer["refusals"] == []
    assert answer["operators"]
    bad = "SELECT id, rand() AS r FROM orders"
    [answer] = documents(run("validate", bad, "--json", "-w", shop))
    assert answer["mode"] == "FULL"
    assert [r["code"] for r in answer["refusals"]] == ["EXPRESSION_NOT_DETERMINISTIC"]
    text = run("validate", bad, "-w", shop)
    assert text.exit_code == 0
    assert "rand" in text.output


def test_when_full_is_shown_and_obeyed(run: Run, shop: str) -> None:
    query = "SELECT id, rand() AS r FROM orders"
    text = run("sql", "-w", shop, f"CREATE STREAM TABLE a AS {query}")
    assert text.exit_code == 0, text.output
    assert "notice: it will be computed in full: EXPRESSION_NOT_DETERMINISTIC" in text.output
    [silent] = documents(
        run("sql", "--json", "-w", shop, f"CREATE STREAM TABLE b WITH (when_full = 'allow') AS {query}")
    )
    assert silent["notices"] == []
    refused = run("sql", "--json", "-w", shop, f"CREATE STREAM TABLE c WITH (when_full = 'refuse') AS {query}")
    assert (refused.exit_code, json.loads(refused.stderr)["error"]["code"]) == (1, "HW402")

    [altered] = documents(run("sql", "--json", "-w", shop, "ALTER STREAM TABLE a SET (when_full = 'refuse')"))
    assert "refused" in altered["notices"][0]
    status = {s["name"]: s for s in documents(run("status", "--json", "-w", shop))[0]}
    assert {n: s["when_full"] for n, s in status.items()} == {
        "orders": None,
        "sales": "warn",
        "large": "warn",
        "a": "refuse",
        "b": "allow",
    }
    assert "when full" in run("status", "-w", shop).output
    assert "when_full    refuse" in run("sql", "-w", shop, "EXPLAIN STREAM TABLE a").output

    failed = run("refresh", "a", "-w", shop)
    assert failed.exit_code == 1
    assert "HW403" in failed.stderr
    assert "--full" in failed.stderr
    [[done]] = documents(run("refresh", "a", "--full", "--json", "-w", shop))
    assert (done["action"], done["reason"]) == ("FULL", "asked for")


def test_several_statements_are_one_document_each(run: Run, shop: str) -> None:
    result = run("sql", "--json", "-w", shop, "SELECT 1 AS a; SELECT ';' AS b;")
    assert [d["rows"] for d in documents(result)] == [[[1]], [[";"]]]


def test_statements_after_a_failing_one_do_not_run(run: Run, shop: str) -> None:
    result = run("sql", "-w", shop, "DELETE FROM orders WHERE id = 1; SELECT nothing; DELETE FROM orders")
    assert result.exit_code == 1
    [count] = documents(run("sql", "--json", "-w", shop, "SELECT count(*) FROM orders"))
    assert count["rows"] == [[2]]


def test_init_twice_keeps_everything(run: Run, shop: str) -> None:
    assert run("init", shop).exit_code == 0
    assert len(documents(run("status", "--json", "-w", shop))[0]) == 3


# -- real processes --------------------------------------------------------------------------------------------------------


def test_what_needs_no_spark_starts_none(tmp_path: Path) -> None:
    """With a Java that does not exist, these still work."""
    no_java = str(tmp_path / "no-java")
    for command in (["init", "shop"], ["status", "-w", "shop"], ["history", "-w", "shop"], ["vacuum", "-w", "shop"]):
        ran = run_process(*command, cwd=tmp_path, JAVA_HOME=no_java)
        assert ran.returncode == 0, (command, ran.stderr)
        assert ran.stderr == ""
    ran = run_process("sql", "-w", "shop", "SELECT 1", cwd=tmp_path, JAVA_HOME=no_java)
    assert ran.returncode == 1
    assert "HW105" in ran.stderr
    assert "JAVA_HOME" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.slow
def test_a_process_of_its_own_prints_the_result_and_nothing_else(tmp_path: Path) -> None:
    assert run_process("init", cwd=tmp_path).returncode == 0
    made = "CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t VALUES (1), (2); SELECT count(*) AS n FROM t"
    ran = run_process("sql", "--json", made, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    assert json.loads(ran.stdout.splitlines()[-1]) == {"columns": ["n"], "rows": [[2]], "more": False}
    assert not {"spark-warehouse", "metastore_db", "derby.log"} & {p.name for p in tmp_path.iterdir()}
