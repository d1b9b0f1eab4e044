"""Settings: precedence, unknown names, bad values, files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from headwater.errors import SettingError
from headwater.model.tables import WhenFull
from headwater.settings import FILE_NAME, SETTING_NAMES, FloatMode, LogLevel, Settings


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    path = tmp_path / "cwd"
    path.mkdir()
    return path


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    path = tmp_path / "shop"
    path.mkdir()
    return path


def test_defaults(cwd: Path) -> None:
    settings = Settings.read(environ={}, cwd=cwd)
    assert settings == Settings()
    assert settings.inline_max_bytes == 65_536
    assert settings.float_mode is FloatMode.BOUNDED
    assert settings.retention_hours == 168.0
    assert settings.when_full is WhenFull.WARN


def test_each_place_wins_over_the_one_before(cwd: Path, warehouse: Path) -> None:
    (cwd / FILE_NAME).write_text("tail_max_files = 2\nextremum_buffer = 2\nlease_seconds = 2\ninline_max_rows = 2\n")
    (warehouse / FILE_NAME).write_text("tail_max_files = 3\nextremum_buffer = 3\nlease_seconds = 3\n")
    environ = {"HEADWATER_TAIL_MAX_FILES": "4", "HEADWATER_EXTREMUM_BUFFER": "4", "UNRELATED": "x"}
    settings = Settings.read({"tail_max_files": 5}, directory=warehouse, environ=environ, cwd=cwd)
    assert settings.tail_max_files == 5
    assert settings.extremum_buffer == 4
    assert settings.lease_seconds == 3.0
    assert settings.inline_max_rows == 2
    assert settings.inline_max_bytes == 65_536


def test_the_environment_alone_does_not_reach_a_settings_object_made_by_keyword(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADWATER_TAIL_MAX_FILES", "4")
    monkeypatch.setenv("TAIL_MAX_FILES", "4")
    assert Settings().tail_max_files == 16


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch, cwd: Path) -> None:
    monkeypatch.setenv("HEADWATER_LOG_LEVEL", "DEBUG")
    assert Settings.read(cwd=cwd).log_level is LogLevel.DEBUG


def test_the_target_of_the_command_line_is_not_a_setting(cwd: Path) -> None:
    assert Settings.read(environ={"HEADWATER_WAREHOUSE": "shop"}, cwd=cwd) == Settings()


@pytest.mark.parametrize("place", ["arguments", "environment", "file"])
def test_an_unknown_name_is_refused_with_the_nearest(place: str, cwd: Path) -> None:
    environ = {"HEADWATER_TAIL_MAX_FILE": "3"} if place == "environment" else {}
    arguments = {"tail_max_file": 3} if place == "arguments" else None
    if place == "file":
        (cwd / FILE_NAME).write_text("tail_max_file = 3\n")
    with pytest.raises(SettingError) as caught:
        Settings.read(arguments, environ=environ, cwd=cwd)
    assert caught.value.code == "HW107"
    assert caught.value.message == 'unknown setting "tail_max_file"'
    assert place in (caught.value.detail or "")
    assert '"tail_max_files"' in (caught.value.hint or "")


def test_a_name_like_no_other_lists_them_all(cwd: Path) -> None:
    with pytest.raises(SettingError) as caught:
        Settings.read({"xyzzy": 1}, environ={}, cwd=cwd)
    assert all(name in (caught.value.hint or "") for name in SETTING_NAMES)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tail_max_files", 0),
        ("tail_max_files", "many"),
        ("inline_max_rows", -1),
        ("inline_max_rows", 1.5),
        ("lease_seconds", 0),
        ("lease_seconds", float("inf")),
        ("retention_hours", float("nan")),
        ("float_mode", "loose"),
        ("float_tolerance", 0),
        ("spark_memory", "lots"),
        ("spark_memory", "0g"),
        ("log_level", "LOUD"),
        ("when_full", "sometimes"),
    ],
)
def test_a_bad_value_says_which_and_why(name: str, value: object, cwd: Path) -> None:
    with pytest.raises(SettingError) as caught:
        Settings.read({name: value}, environ={}, cwd=cwd)
    assert caught.value.message == f'setting "{name}" cannot be {value!r}'
    assert "arguments" in (caught.value.detail or "")
    assert "The default is" in (caught.value.hint or "")


def test_a_bad_value_names_its_file(cwd: Path) -> None:
    (cwd / FILE_NAME).write_text('lease_seconds = "soon"\n')
    with pytest.raises(SettingError) as caught:
        Settings.read(environ={}, cwd=cwd)
    assert str(cwd / FILE_NAME) in (caught.value.detail or "")


@pytest.mark.parametrize("content", [b"lease_seconds = ", b"\xff\xfe"])
def test_a_file_that_is_not_toml(content: bytes, cwd: Path) -> None:
    (cwd / FILE_NAME).write_bytes(content)
    with pytest.raises(SettingError, match="cannot be read"):
        Settings.read(environ={}, cwd=cwd)


def test_a_directory_in_the_place_of_the_file(cwd: Path) -> None:
    (cwd / FILE_NAME).mkdir()
    with pytest.raises(SettingError, match="cannot be read"):
        Settings.read(environ={}, cwd=cwd)


def test_a_warehouse_directory_that_does_not_exist_yet(cwd: Path) -> None:
    assert Settings.read(environ={}, cwd=cwd, directory=cwd / "later") == Settings()


def test_settings_are_frozen() -> None:
    settings = Settings()
    with pytest.raises(ValidationError):
        settings.tail_max_files = 3  # type: ignore[misc]


def test_every_setting_is_described() -> None:
    undescribed = [name for name, field in Settings.model_fields.items() if not field.description]
    assert not undescribed


@pytest.mark.parametrize("name", Settings.model_fields)
def test_b80_every_setting_is_read_by_something_and_told_by_a_test(name: str) -> None:
    """A switch that nobody reads has no effect; what it changes is for the tests to say that give it a value."""
    root = Path(__file__).parents[1]
    code = [p.read_text() for p in (root / "src" / "headwater").rglob("*.py") if p.name != "settings.py"]
    assert any(re.search(rf"\.{name}\b", text) for text in code)
    tests = [p.read_text() for p in (root / "tests").rglob("*.py") if p != Path(__file__)]
    assert any(re.search(rf"""["']{name}["']|\b{name}=""", text) for text in tests)


def test_memory_sizes_are_normalised(cwd: Path) -> None:
    assert Settings.read({"spark_memory": "4G"}, environ={}, cwd=cwd).spark_memory == "4g"
