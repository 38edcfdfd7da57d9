"""Tasks, what is known of them, and the words for their states."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Generic, Literal, TypeVar

from .errors import UnexpectedAnswer

#: A span of time: seconds, or a timedelta.
Span = float | timedelta

#: The types of tubes that every server has. A server with a Lua program may have more.
TubeType = Literal["fifo", "fifottl", "limfifottl", "utube", "utubettl"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class State(enum.Enum):
    """What a task is doing."""

    READY = "r"
    TAKEN = "t"
    DELAYED = "~"
    BURIED = "!"
    #: It is acknowledged or deleted, and no longer in the tube.
    DONE = "-"
    #: A state that only a tube type of the server's own program knows.
    OTHER = "?"


@dataclass(frozen=True)
class TaskInfo:
    """What a server says of a task beside its payload. Times are in UTC; a ttl or ttr without an end is None."""

    #: Takes since the task was put or kicked, the present one included; only takes in extended form count.
    attempts: int = 0
    #: The reason of the last release or bury that had one, and when it came.
    last_error: str | None = None
    failed_at: datetime | None = None
    pri: int | None = None
    #: Seconds that the task lives, and seconds that it may be held.
    ttl: float | None = None
    ttr: float | None = None
    created: datetime | None = None
    #: When the state changes without a request: the end of a delay, of the ttr, of the ttl.
    due: datetime | None = None
    #: The sub-queue (utube, utubettl).
    utube: str | None = None
    #: Who holds the task.
    user: str | None = None
    connection: int | None = None
    taken_at: datetime | None = None
    #: The token of the task's lease, which only its holder is told, and when the lease ends.
    lease: str | None = None
    lease_ends: datetime | None = None

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> TaskInfo:
        """Reads the map behind a task in extended form."""
        return cls(
            attempts=int(fields.get("attempts") or 0),
            last_error=_text(fields.get("last_error")),
            failed_at=_moment(fields.get("failed_at")),
            pri=fields.get("pri"),
            ttl=fields.get("ttl"),
            ttr=fields.get("ttr"),
            created=_moment(fields.get("created")),
            due=_moment(fields.get("due")),
            utube=_text(fields.get("utube")),
            user=_text(fields.get("user")),
            connection=fields.get("connection"),
            taken_at=_moment(fields.get("taken_at")),
            lease=_text(fields.get("lease")),
            lease_ends=_moment(fields.get("lease_ends")),
        )


Owner = TypeVar("Owner")


@dataclass(frozen=True, repr=False)
class TaskFields(Generic[Owner]):
    """A task as it was when the server sent it."""

    id: int
    state: State
    #: The payload.
    data: Any
    #: What else is known of it, if the server was asked.
    info: TaskInfo | None
    tube: Owner

    @classmethod
    def read(cls, tube: Owner, row: Any) -> Any:
        """Reads `[id, state, data]` or `[id, state, data, {…}]`."""
        fields = tuple(row) if isinstance(row, (list, tuple)) or hasattr(row, "__iter__") else ()
        if len(fields) < 3 or not isinstance(fields[0], int):
            raise UnexpectedAnswer(f"no task, where one belongs: {row!r}")
        try:
            state = State(fields[1])
        except ValueError:
            state = State.OTHER
        info = TaskInfo.read(fields[3]) if len(fields) > 3 and isinstance(fields[3], Mapping) else None
        return cls(fields[0], state, fields[2], info, tube)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.state.name.lower()} {self.data!r}>"


Item = TypeVar("Item")


@dataclass(frozen=True)
class Page(Generic[Item]):
    """Tasks of a tube in the order of their ids, and where the next page begins: None at the end."""

    tasks: list[Item]
    after: int | None


def seconds(span: Span) -> float:
    """A span in seconds."""
    return span.total_seconds() if isinstance(span, timedelta) else float(span)


def _moment(value: Any) -> datetime | None:
    # A task without an end has a deadline in a year that datetime does not reach.
    try:
        return None if value is None else _EPOCH + timedelta(seconds=value)
    except OverflowError:
        return None


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return None if value is None else str(value)
