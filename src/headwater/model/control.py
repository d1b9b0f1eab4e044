"""What operators say about running stream tables, and what schedulers note about them.

A *note* is a small record under a kind and a name: a pause, a gate, a fuse that has blown, errors in a row. Notes are kept in the
catalog outside of commits, so that they hold for every process and survive a restart. Names are ids of tables, or names of groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, TypeVar, get_type_hints

EVERYTHING = "*"
"""The name under which a pause or a drain means the whole warehouse."""


class ErrorKind(Enum):
    """Who can do something about a failure."""

    USER = "user"
    """Rows on which the query fails: it fails again until they, or the query, change."""
    SCHEMA = "schema"
    """The definition does not fit its sources any more."""
    SYSTEM = "system"
    """Something around: a lost lease, a full disk, a timeout. Trying again may help."""
    INTERNAL = "internal"
    """A check of ours failed, or our code did."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Refreshes of a stream table, or of all, are not started."""

    at: float
    by: str = ""


@dataclass(frozen=True, slots=True)
class Drain:
    """Schedulers start nothing, and say when nothing runs any more."""

    at: float
    by: str = ""


@dataclass(frozen=True, slots=True)
class Gate:
    """A source is being loaded: stream tables that read it wait, unless somebody refreshes them by hand."""

    at: float
    by: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Blown:
    """The fuse of a stream table has blown: more rows changed than its ceiling allows."""

    at: float
    pending: int
    ceiling: int


@dataclass(frozen=True, slots=True)
class Trouble:
    """Refreshes of a stream table failed `errors` times in a row; the next try is not before `retry_at`.

    `version` is the version that the last try read: what depends on rows is not tried again before they change.
    """

    errors: int
    kind: ErrorKind
    at: float
    retry_at: float
    message: str
    version: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """Changes between two versions were left out of a stream table on request: it is not equal to its query until rebuilt."""

    at: float
    after: int
    upto: int


@dataclass(frozen=True, slots=True)
class Watermark:
    """The data of a source are complete up to `value` (epoch seconds), said at `at`."""

    value: float
    at: float


@dataclass(frozen=True, slots=True)
class WatermarkGroup:
    """Sources that are only read together once their watermarks are no further apart than the tolerance."""

    sources: tuple[str, ...]
    tolerance_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RefreshGroup:
    """Stream tables that users want to appear together."""

    members: tuple[str, ...]


Note = Pause | Drain | Gate | Blown | Trouble | Skipped | Watermark | WatermarkGroup | RefreshGroup

KINDS: Mapping[type[Note], str] = MappingProxyType(
    {
        Pause: "pause",
        Drain: "drain",
        Gate: "gate",
        Blown: "blown",
        Trouble: "trouble",
        Skipped: "skipped",
        Watermark: "watermark",
        WatermarkGroup: "watermark_group",
        RefreshGroup: "refresh_group",
    }
)
_HINTS: Mapping[type[Note], Mapping[str, Any]] = MappingProxyType({type_: get_type_hints(type_) for type_ in KINDS})
_TYPES: Mapping[str, type[Note]] = MappingProxyType({kind: type_ for type_, kind in KINDS.items()})

N = TypeVar("N", bound=Note)


@dataclass(frozen=True, slots=True)
class Noted:
    """A note to be written under a name, or with `note` None to be withdrawn."""

    kind: type[Note]
    name: str
    note: Note | None


def noted(name: str, note: Note) -> Noted:
    """Return a note to be written."""
    return Noted(type(note), name, note)


def withdrawn(kind: type[Note], name: str) -> Noted:
    """Return a note to be withdrawn."""
    return Noted(kind, name, None)


@dataclass(frozen=True, slots=True)
class Notes:
    """All notes of a warehouse, by kind and name."""

    values: Mapping[type[Note], Mapping[str, Note]] = field(default_factory=lambda: MappingProxyType({}))

    def of(self, kind: type[N]) -> Mapping[str, N]:
        """Return the notes of one kind by their names."""
        by_kind: Mapping[Any, Mapping[str, Any]] = self.values
        found: Mapping[str, Any] = by_kind.get(kind, MappingProxyType({}))
        return found

    def get(self, kind: type[N], name: str) -> N | None:
        """Return one note."""
        return self.of(kind).get(name)

    def with_changes(self, changes: Mapping[tuple[type[Note], str], Note | None]) -> Notes:
        """Return the notes with some written and some withdrawn."""
        if not changes:
            return self
        values = {kind: dict(notes) for kind, notes in self.values.items()}
        for (kind, name), note in changes.items():
            if note is None:
                values.get(kind, {}).pop(name, None)
            else:
                values.setdefault(kind, {})[name] = note
        return Notes(MappingProxyType({kind: MappingProxyType(notes) for kind, notes in values.items()}))


NO_NOTES = Notes()


def note_value(note: Note) -> dict[str, Any]:
    """Return a note as JSON values."""
    return {name: value.value if isinstance(value, Enum) else value for name, value in asdict(note).items()}


def note_of(kind: str, value: Mapping[str, Any]) -> Note:
    """Make a note from JSON values; fields that another version wrote and this one does not know are left out."""
    type_ = _TYPES[kind]
    hints = _HINTS[type_]
    given: dict[str, Any] = {}
    for name, raw in value.items():
        if name not in hints:
            continue
        if hints[name] is ErrorKind:
            given[name] = next((k for k in ErrorKind if k.value == raw), ErrorKind.INTERNAL)
        else:
            given[name] = tuple(raw) if isinstance(raw, list) else raw
    return type_(**given)


def kind_of(kind: str) -> type[Note] | None:
    """Return the type of note that is stored under a word; None for one that a newer process wrote."""
    return _TYPES.get(kind)
