"""The commands of operators: what they show and change, in both forms, and their exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.shops import Run, documents, run_process

import headwater as hw
from headwater.model.control import Blown, ErrorKind, Trouble, noted
from headwater.model.events import Event, EventKind
from headwater.model.tables import SUSPENDED
from headwater.warehouse import Warehouse


@pytest.fixture
def warehouse(shop: str) -> Iterator[Warehouse]:
    with hw.connect(shop, create=False) as opened:
        yield opened


def table_id(warehouse: Warehouse, name: str) -> str:
    return warehouse.snapshot().names[name]


def only(run: Run, *arguments: str) -> Any:
    [document] = documents(run(*arguments, "--json"))
    return document


def status(run: Run, shop: str) -> dict[str, dict[str, Any]]:
    return {s["name"]: s for s in only(run, "status", "-w", shop)}


# -- looking -----------------------------------------------------------------------------------------------------------------


def test_status_says_how_far_behind_and_why(run: Run, shop: str, warehouse: Warehouse) -> None:
    fresh = status(run, shop)["sales"]
    assert (fresh["freshness"], fresh["staleness_seconds"], fresh["why_behind"]) == ("up to date", 0.0, None)
    assert fresh["tier"] == "hot"
    warehouse.sql("INSERT INTO orders VALUES (9, 'west', 1.00)")
    warehouse.pause_scheduler("sales")
    behind = status(run, shop)
    assert behind["sales"]["freshness"] == "behind"
    assert behind["sales"]["staleness_seconds"] > 0
    assert "paused" in behind["sales"]["why_behind"]
    assert behind["orders"]["staleness_seconds"] is None
    text = run("status", "-w", shop).output
    assert "paused" in text
    assert "behind" in text


def test_timeline(run: Run, shop: str) -> None:
    lines = only(run, "timeline", "-w", shop)
    assert {line["name"] for line in lines} == {"sales", "large"}
    assert all(line["action"] == "INITIAL" for line in lines)
    assert len(only(run, "timeline", "--limit", "1", "-w", shop)) == 1
    assert "INITIAL" in run("timeline", "-w", shop).output
    assert run("timeline", "--limit", "0", "-w", shop).exit_code == 2


def test_dag(run: Run, shop: str) -> None:
    tree = run("dag", "-w", shop)
    assert tree.exit_code == 0
    assert {"orders", "sales", "large"} <= set(tree.output.replace("─", " ").split())
    assert run("dag", "sales", "-w", shop).output.count("large") == 0
    assert run("dag", "--format", "mermaid", "-w", shop).output.startswith("flowchart")
    assert run("dag", "--format", "dot", "-w", shop).output.startswith("digraph")
    document = only(run, "dag", "-w", shop)
    assert {n["name"] for n in document["nodes"]} == {"orders", "sales", "large"}
    assert only(run, "dag", "--format", "dot", "-w", shop)["text"].startswith("digraph")
    assert run("dag", "--format", "svg", "-w", shop).exit_code == 2
    assert run("dag", "sales", "--format", "dot", "-w", shop).exit_code == 2
    assert run("dag", "salez", "-w", shop).exit_code == 1


def test_health_is_1_if_something_is_in_error(run: Run, shop: str, warehouse: Warehouse) -> None:
    good = run("health", "-w", shop)
    assert good.exit_code == 0, good.output
    warehouse._catalog.set_stream_status(table_id(warehouse, "sales"), SUSPENDED, "it failed")
    bad = run("health", "-w", shop)
    assert bad.exit_code == 1
    assert "ERROR" in bad.output
    result = run("health", "--json", "-w", shop)
    assert result.exit_code == 1
    [checks] = [json.loads(line) for line in result.stdout.splitlines()]
    assert [c["check"] for c in checks if c["severity"] == "ERROR"] == ["suspended_tables"]


def test_events(run: Run, shop: str, warehouse: Warehouse) -> None:
    assert only(run, "events", "-w", shop) == []
    assert "Nothing was told" in run("events", "-w", shop).output
    told = [Event(EventKind.FUSE_BLOWN, 100.0 + i, "sales", {"pending": i, "why": "a [b]"}) for i in range(3)]
    warehouse._catalog.record_events(told)
    [newest, *_] = found = only(run, "events", "-w", shop)
    assert len(found) == 3
    assert (newest["event"], newest["table"], newest["data"]["pending"]) == ("fuse_blown", "sales", 2)
    assert len(only(run, "events", "--limit", "2", "-w", shop)) == 2
    assert "pending=2  why=a [b]" in run("events", "-w", shop).output


def test_events_are_followed_until_ctrl_c(
    run: Run, shop: str, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = Event(EventKind.FUSE_BLOWN, 100.0, "sales", {"pending": 1})
    warehouse._catalog.record_events([event])
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            raise KeyboardInterrupt
        if len(waited) == 1:
            warehouse._catalog.record_events([Event(EventKind.RESUMED, 200.0, "large")])

    monkeypatch.setattr("headwater.cli.commands_look.time.sleep", wait)
    result = run("events", "--follow", "--json", "-w", shop)
    assert result.exit_code == 130
    assert [json.loads(line)["event"] for line in result.stdout.splitlines()] == ["fuse_blown", "resumed"]


def test_buffers(run: Run, shop: str, warehouse: Warehouse) -> None:
    warehouse.sql("INSERT INTO orders VALUES (9, 'west', 1.00), (10, 'west', 1.00)")
    found = {b["stream_table"]: b for b in only(run, "buffers", "-w", shop)}
    assert {n: b["pending_rows"] for n, b in found.items()} == {"sales": 2, "large": 2}
    assert found["sales"]["source_table"] == "orders"
    assert "orders" in run("buffers", "-w", shop).output


def test_schedule_recommends(run: Run, shop: str) -> None:
    [one] = only(run, "schedule", "sales", "-w", shop)
    assert one["stream_table"] == "sales"
    assert one["reasoning"]
    assert [a["stream_table"] for a in only(run, "schedule", "-w", shop)] == ["large", "sales"]
    assert one["reasoning"] in run("schedule", "sales", "-w", shop).output
    assert run("schedule", "salez", "-w", shop).exit_code == 1


def test_workers(run: Run, shop: str, warehouse: Warehouse) -> None:
    assert only(run, "workers", "-w", shop) == {"schedulers": [], "allocation": [], "cluster": []}
    assert "No scheduler runs" in run("workers", "-w", shop).output
    entry = {"host": "here", "pid": 7, "warehouse": "shop", "workers": 4, "active": 1, "state": "running"}
    warehouse._catalog.show_scheduler("here:7", 0.0, 60.0, json.dumps(entry))
    document = only(run, "workers", "-w", shop)
    assert [(s["host"], s["pid"], s["active"]) for s in document["schedulers"]] == [("here", 7, 1)]
    assert document["cluster"][0]["workers"] == 4
    assert "running" in run("workers", "-w", shop).output


# -- steering ----------------------------------------------------------------------------------------------------------------


def test_pause_and_resume(run: Run, shop: str) -> None:
    assert only(run, "pause", "sales", "-w", shop)["paused"] == ["sales"]
    assert only(run, "resume", "sales", "large", "-w", shop)["resumed"] == ["sales"]
    assert "nothing was paused" in run("resume", "sales", "-w", shop).output
    assert set(only(run, "pause", "--all", "-w", shop)["paused"]) == {"sales", "large"}
    assert run("resume", "--all", "-w", shop).exit_code == 0
    assert "paused: large, sales" in run("pause", "sales", "large", "-w", shop).output


def test_pausing_what_is_not_there_pauses_nothing(run: Run, shop: str, warehouse: Warehouse) -> None:
    result = run("pause", "sales", "salez", "-w", shop)
    assert result.exit_code == 1
    assert '"sales"' in result.stderr
    assert only(run, "resume", "sales", "-w", shop)["resumed"] == []


@pytest.mark.parametrize("command", ["pause", "resume"])
@pytest.mark.parametrize("arguments", [[], ["sales", "--all"]])
def test_names_or_all(run: Run, shop: str, command: str, arguments: list[str]) -> None:
    result = run(command, *arguments, "-w", shop)
    assert result.exit_code == 2
    assert "--all" in result.output


def test_what_still_runs_after_a_pause_is_said(run: Run, shop: str, warehouse: Warehouse) -> None:
    from headwater.refresh.cycle import lease_name

    (Path(shop) / "headwater.toml").write_text("scheduler_drain_timeout = 0.2\n")
    held = warehouse._catalog.acquire(lease_name(table_id(warehouse, "sales")), "somebody", 60)
    assert held is not None
    result = run("pause", "sales", "--json", "-w", shop)
    assert result.exit_code == 3
    assert json.loads(result.stdout)["still_running"] == ["sales"]
    assert "sales" in json.loads(result.stderr)["note"]
    drained = run("drain", "--timeout", "0.2", "--json", "-w", shop)
    assert (drained.exit_code, json.loads(drained.stdout)["drained"]) == (3, False)


@pytest.mark.parametrize("which", ["sales", "--all"])
def test_resume_forgives(run: Run, shop: str, warehouse: Warehouse, which: str) -> None:
    sales = table_id(warehouse, "sales")
    warehouse._catalog.set_stream_status(sales, SUSPENDED, "it failed")
    warehouse._catalog.note([noted(sales, Trouble(3, ErrorKind.USER, 1.0, 2.0, "it failed", 3))])
    assert status(run, shop)["sales"]["status"] == SUSPENDED
    assert only(run, "resume", which, "-w", shop) == {
        "message": "failures forgotten: sales",
        "resumed": [],
        "forgiven": ["sales"],
    }
    assert status(run, shop)["sales"]["status"] == "ACTIVE"


def test_drain_and_undo(run: Run, shop: str, warehouse: Warehouse) -> None:
    assert only(run, "drain", "-w", shop)["drained"] is True
    assert warehouse.is_drained()
    assert only(run, "drain", "--undo", "-w", shop)["drained"] is False
    assert not warehouse.is_drained()
    assert "--undo" in run("drain", "--timeout", "1", "-w", shop).output


def test_gates(run: Run, shop: str, warehouse: Warehouse) -> None:
    assert "No gate" in run("gate", "-w", shop).output
    assert run("gate", "orders", "--reason", "night load", "-w", shop).exit_code == 0
    [gate] = only(run, "gate", "-w", shop)
    assert (gate["source"], gate["reason"], gate["waiting"]) == ("orders", "night load", ["large", "sales"])
    assert "night load" in run("gate", "-w", shop).output
    assert only(run, "ungate", "orders", "-w", shop)["was_gated"] is True
    assert only(run, "ungate", "orders", "-w", shop)["was_gated"] is False
    assert run("gate", "sales", "-w", shop).exit_code == 1


def blown(warehouse: Warehouse) -> None:
    warehouse.alter_stream_table("sales", fuse_mode="on", fuse_ceiling=1)
    warehouse.sql("INSERT INTO orders VALUES (9, 'west', 1.00), (10, 'west', 1.00)")
    warehouse._catalog.note([noted(table_id(warehouse, "sales"), Blown(100.0, 2, 1))])


def test_fuses_are_shown(run: Run, shop: str, warehouse: Warehouse) -> None:
    assert only(run, "fuse", "-w", shop) == []
    blown(warehouse)
    [fuse] = only(run, "fuse", "-w", shop)
    assert (fuse["stream_table"], fuse["ceiling"], fuse["pending"], fuse["blown_at"]) == ("sales", 1, 2, 100.0)
    assert "sales" in run("fuse", "-w", shop).output


@pytest.mark.parametrize(
    ("option", "action", "equal"),
    [("--apply", "DIFFERENTIAL", True), ("--reinitialize", "FULL", True), ("--skip", None, False)],
)
def test_a_fuse_is_mended(
    run: Run, shop: str, warehouse: Warehouse, option: str, action: str | None, equal: bool
) -> None:
    blown(warehouse)
    document = only(run, "fuse", "sales", option, "-w", shop)
    if action is not None:
        assert [(r["name"], r["action"]) for r in document] == [("sales", action)]
    else:
        assert "skipped" in document["message"]
    assert [f["blown_at"] for f in only(run, "fuse", "-w", shop)] == [None]
    assert warehouse.verify("sales").equal is equal


@pytest.mark.parametrize("arguments", [["sales"], ["--apply"], ["sales", "--apply", "--skip"]])
def test_a_fuse_needs_a_table_and_one_action(run: Run, shop: str, arguments: list[str]) -> None:
    assert run("fuse", *arguments, "-w", shop).exit_code == 2


def test_a_fuse_that_has_not_blown(run: Run, shop: str) -> None:
    result = run("fuse", "sales", "--apply", "-w", shop)
    assert result.exit_code == 1
    assert "has not blown" in result.stderr


def test_explain(run: Run, shop: str) -> None:
    assert "sum(amount)" in run("explain", "sales", "-w", shop).output
    assert only(run, "explain", "sales", "-w", shop)["name"] == "sales"
    assert run("explain", "orders", "-w", shop).exit_code == 1


# -- real processes ----------------------------------------------------------------------------------------------------------

SPARKLESS = (
    ["status"], ["history"], ["timeline"], ["dag"], ["dag", "--format", "mermaid"], ["health"], ["events"], ["buffers"],
    ["schedule", "sales"], ["workers"], ["pause", "sales"], ["resume", "--all"], ["gate", "orders"], ["ungate", "orders"],
    ["fuse"], ["drain"], ["drain", "--undo"], ["explain", "sales"],
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("command", SPARKLESS, ids=" ".join)
def test_what_needs_no_spark_starts_none(shop: str, tmp_path: Path, command: list[str]) -> None:
    ran = run_process(*command, "-w", shop, cwd=tmp_path, JAVA_HOME=str(tmp_path / "no-java"))
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    assert ran.stdout
