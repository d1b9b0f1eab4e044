"""Settings: read once, at the edge, from four places; below it everyone receives values.

Rising precedence: defaults, `headwater.toml` in the current directory, `headwater.toml` in the warehouse directory, `HEADWATER_*`
environment variables, arguments. The warehouse's own file wins over the current directory's, because it belongs to the data.
A name that is not a setting is an error everywhere, with the nearest names: a typing mistake must not silently mean the default.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from headwater.errors import SettingError
from headwater.model.tables import WhenFull

FILE_NAME = "headwater.toml"
ENV_PREFIX = "HEADWATER_"
NOT_SETTINGS = frozenset({"HEADWATER_WAREHOUSE", "HEADWATER_NO_SERVICE"})
"""Environment variables with the prefix that other parts read: defaults of the command line."""


class FloatMode(Enum):
    """How sums over FLOAT and DOUBLE are maintained."""

    BOUNDED = "bounded"
    """Algebraically, until the rounding bound exceeds `float_tolerance`; then the group is read again."""
    EXACT = "exact"
    """Always by reading the group again."""


class LogLevel(Enum):
    """The least severe log line that is written."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


def _memory_size(text: str) -> str:
    if text and not re.fullmatch(r"[1-9][0-9]*[mgMG]", text):
        raise ValueError("must be a number followed by m or g, for example 4g, or empty")
    return text.lower()


Count = Annotated[int, Field(ge=0)]
PositiveCount = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Settings(BaseSettings):
    """Every setting, with its default. Frozen; made by `Settings.read` or, in tests, by keyword."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    inline_max_bytes: Count = 65_536
    """A change batch of at most this many Arrow bytes is kept in the catalog instead of in a file."""
    inline_max_rows: Count = 1_000
    """A change batch of at most this many rows may be kept in the catalog."""
    arrow_max_rows: Count = 500_000
    """Results of at most this many rows come back to the driver and are written there; larger ones are written by Spark."""
    local_relation_max_rows: Count = 16_000
    """Changes of at most this many rows are given to Spark as a local relation; more become a Parquet file first."""
    index_max_bytes: Count = 8 << 30
    """Disk space for decoded and sorted columns, by which a refresh finds the rows that a change meets; 0 lets Spark scan for them."""
    tail_max_files: PositiveCount = 16
    """Spark never sees more tail files of one table than this; more are merged on the driver first."""
    fold_tail_fraction: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.1
    """A tail is folded into the base when it exceeds this share of the base's rows."""
    retention_hours: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 168.0
    """How long old versions stay readable (time travel)."""
    vacuum_grace_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 3_600.0
    """How long a file that nothing needs any more stays on disk, for readers that opened it before."""
    template_cache_max_entries: PositiveCount = 256
    """How many parsed definitions, and how many planned refreshes, a process keeps; the least recently used one goes first."""
    write_seconds: Seconds = 21_600.0
    """How long files may be written before vacuum may take an abandoned write for dead."""
    lease_seconds: Seconds = 30.0
    """How long a refresh may go without a sign of life before another process may take over."""
    busy_timeout_seconds: Seconds = 10.0
    """How long to wait for another writer of the catalog before giving up as busy."""
    extremum_buffer: PositiveCount = 16
    """How many best values are kept per group for MIN and MAX, so that deleting the best needs no rescan."""
    float_mode: FloatMode = FloatMode.BOUNDED
    """`bounded`: sums over floats are maintained within `float_tolerance`; `exact`: their groups are always read again."""
    float_tolerance: Annotated[float, Field(gt=0, lt=1)] = 1e-9
    """The relative rounding error that a maintained sum over floats may reach before its group is read again."""
    when_full: WhenFull = WhenFull.WARN
    """What new stream tables do where changes do not suffice: `refuse`, `warn` and compute in full, or `allow` it silently."""
    scheduler_interval_seconds: Seconds = 0.5
    """How long the scheduler waits between two looks at the catalog."""
    default_schedule_seconds: Seconds = 1.0
    """How often a stream table with a calculated schedule is due where nobody reads it."""
    worker_pool_size: Annotated[int, Field(ge=0, le=64)] = 0
    """Threads that stay and refresh what is due; 0 makes a thread for each unit of work, up to `max_concurrent_refreshes`."""
    max_concurrent_refreshes: Annotated[int, Field(ge=1, le=64)] = 4
    """How many units of work a scheduler process runs at once, where `worker_pool_size` does not say."""
    per_warehouse_worker_quota: Count = 0
    """How many of them one warehouse may use where a process serves several; half as many more while others are idle. 0: a fair share."""
    enable_change_buffer_fanout: bool = True
    """Whether the changes of a source are read once for all stream tables that are refreshed at a time, or by each for itself."""
    adaptive_batch_coalescing: bool = True
    """Whether quick refreshes of stream tables that read the same changes are committed together."""
    tiered_scheduling: bool = True
    """Whether the tier of a stream table (hot, warm, cold, frozen) stretches its schedule."""
    auto_backoff: bool = True
    """Whether a stream table whose refreshes take as long as its schedule is refreshed less often, up to an eighth."""
    schedule_jitter: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    """By which share of their length schedules are spread, so that not all tables are due at once; the same for a table every time."""
    refresh_timeout_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """A scheduled refresh that takes longer is cancelled, with its Spark jobs; 0 means never."""
    scheduler_drain_timeout: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 30.0
    """How long pausing waits for refreshes that are running."""
    scheduler_heartbeat_seconds: Seconds = 5.0
    """How often a running scheduler says in the catalog that it lives, and how it fares."""
    max_consecutive_errors: PositiveCount = 3
    """After so many failures in a row a stream table is suspended, until somebody resumes it."""
    fuse_default_ceiling: Count = 0
    """More changed rows than that stop a stream table whose fuse is `auto`, until somebody looks at it; 0 means never."""
    fuse_reminder_seconds: Seconds = 60.0
    """How often a fuse that has blown is spoken of again."""
    buffer_alert_threshold: PositiveCount = 1_000_000
    """A warning is given when more change rows than that wait for a stream table."""
    backpressure_consecutive_limit: PositiveCount = 3
    """After so many looks in a row above `buffer_alert_threshold` the event `change_buffer_backpressure` is raised."""
    buffer_check_seconds: Seconds = 5.0
    """How often the scheduler looks how many change rows wait."""
    watermark_holdback_timeout: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """A watermark that did not move for so long is called stuck; 0 means never."""
    history_days: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 90.0
    """How long the history of refreshes and events is kept."""
    shuffle_partitions: Count = 0
    """Shuffle partitions of the embedded Spark session; 0 means twice the cores, at least 8."""
    consumer_limit_rows: Count = 0
    """Change rows kept for a consumer that does not read them; beyond, it must re-read. 0 means no limit."""
    spark_memory: Annotated[str, AfterValidator(_memory_size)] = ""
    """Memory of the embedded Spark session, for example `4g`; empty means half of the machine's, at most 8g."""
    log_level: LogLevel = LogLevel.WARNING
    """The least severe log line that is written."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take values from the constructor alone: `read` merges the places itself, so that it can say which one is wrong."""
        return (init_settings,)

    @classmethod
    def read(
        cls,
        arguments: Mapping[str, Any] | None = None,
        *,
        directory: Path | None = None,
        environ: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Settings:
        """Merge all places; `directory` is the warehouse's, if it has one."""
        here = Path.cwd() if cwd is None else cwd
        values: dict[str, Any] = {}
        places: dict[str, str] = {}
        files = [here / FILE_NAME]
        if directory is not None and directory.resolve() != here.resolve():
            files.append(directory / FILE_NAME)
        for file in files:
            _merge(values, places, _read_toml(file), f"file {file}")
        _merge(values, places, _from_environment(os.environ if environ is None else environ), "environment")
        _merge(values, places, dict(arguments or {}), "arguments")
        try:
            return cls(**values)
        except ValidationError as error:
            raise _bad_value(error, places) from error


SETTING_NAMES: tuple[str, ...] = tuple(Settings.model_fields)


def _merge(values: dict[str, Any], places: dict[str, str], found: Mapping[str, Any], place: str) -> None:
    for name, value in found.items():
        if name not in Settings.model_fields:
            raise _unknown(name, place)
        values[name] = value
        places[name] = place


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            return tomllib.load(stream)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(
            f'settings file "{file}" cannot be read',
            detail=str(error),
            hint='It must be TOML: one `name = value` per line, texts in "quotes".',
        ) from error
    except OSError as error:
        raise SettingError(
            f'settings file "{file}" cannot be read',
            detail=f"{error.strerror or error}.",
            hint="Make it a readable file, or remove it.",
        ) from error


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name[len(ENV_PREFIX) :].lower(): value
        for name, value in environ.items()
        if name.startswith(ENV_PREFIX) and name not in NOT_SETTINGS
    }


def _unknown(name: str, place: str) -> SettingError:
    near = get_close_matches(name.lower(), SETTING_NAMES, n=3, cutoff=0.6)
    known = " or ".join(f'"{n}"' for n in near)
    return SettingError(
        f'unknown setting "{name}"',
        detail=f"It stands in the {place}.",
        hint=f"Did you mean {known}?" if near else f"The settings are: {', '.join(SETTING_NAMES)}.",
    )


def _bad_value(error: ValidationError, places: Mapping[str, str]) -> SettingError:
    first = error.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else "?"
    field = Settings.model_fields.get(name)
    reason = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return SettingError(
        f'setting "{name}" cannot be {first["input"]!r}',
        detail=f"It {reason} (from the {places.get(name, 'arguments')}).",
        hint=f"{field.description} The default is {_shown(field.default)}." if field is not None else None,
    )


def _shown(value: object) -> str:
    return repr(value.value if isinstance(value, Enum) else value)
