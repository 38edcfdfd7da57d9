"""The calls of the queue's functions, and what their answers mean: all that both clients have in common.

A `Request` is complete: which function, which arguments, how long the server may wait before it answers, and whether the
call may be made again when its connection breaks. Nothing here touches a socket.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .errors import Unavailable, UnexpectedAnswer
from .tasks import Span, State, seconds

#: The most seconds that one take waits at the server. A longer wait is several takes, so that a client notices a server
#: that is gone without a word.
LONGEST_TAKE = 30.0

#: The bytes of a reason that the server is sent at most; what stands before them is cut.
MAX_REASON = 1024


@dataclass(frozen=True)
class Request:
    """One call."""

    function: str
    arguments: list[Any] = field(default_factory=list)
    #: The call takes or settles tasks of the session.
    owned: bool = False
    #: The call changes nothing, or nothing more when it is made again.
    repeatable: bool = False
    #: Seconds for which the server may wait before it answers.
    wait: float = 0.0
    #: Of a take for the session: the position of its options among the arguments, behind the timeout.
    options_at: int | None = None
    #: The name of a take, with which a member of a group can make it again.
    name: bytes | None = None
    #: Greater with each repetition: a call that others have overtaken gets nothing. Members count the odd numbers.
    attempt: int = 0

    def named(self) -> Request:
        """A take with a name; any other call as it is."""
        return self if self.options_at is None else replace(self, name=uuid.uuid4().bytes)

    def again(self, elapsed: float, attempt: int) -> Request:
        """The take once more, for the rest of its time. The session gets the tasks of the lost answer, if it has one."""
        assert self.options_at is not None
        arguments, wait = list(self.arguments), max(self.wait - elapsed, 0.0)
        arguments[self.options_at - 1] = wait
        return replace(self, arguments=arguments, wait=wait, attempt=attempt)

    def sent(self, in_group: bool) -> list[Any]:
        """The arguments. Members of a group alone know the name of a take."""
        if self.name is None or self.options_at is None or not in_group:
            return self.arguments
        options = self.arguments[self.options_at] if len(self.arguments) > self.options_at else {}
        named = {**options, "request": self.name, **({"again": self.attempt} if self.attempt else {})}
        return [*self.arguments[: self.options_at], named]


def of_tube(tube: str, method: str, *arguments: Any, owned: bool = False, repeatable: bool = False) -> Request:
    """A call of a tube's method."""
    return Request(f"queue.tube.{tube}:{method}", list(arguments), owned, repeatable)


def create_tube(name: str, kind: str, if_not_exists: bool, temporary: bool, options: Mapping[str, Any]) -> Request:
    """`queue.create_tube`; `options` as the server names them, without the absent ones."""
    given = {option: _number(value) for option, value in options.items() if value is not None}
    given.update({"if_not_exists": True} if if_not_exists else {})
    given.update({"temporary": True} if temporary else {})
    return Request("queue.create_tube", [name, kind, given], repeatable=if_not_exists)


def put_options(
    ttl: Span | None,
    ttr: Span | None,
    delay: Span | None,
    timeout: Span | None,
    pri: int | None,
    utube: str | None,
    replicas: int | None,
) -> dict[str, Any]:
    """The options of a put that are given."""
    spans = {"ttl": ttl, "ttr": ttr, "delay": delay, "timeout": timeout}
    options: dict[str, Any] = {name: seconds(span) for name, span in spans.items() if span is not None}
    others = {"pri": pri, "utube": utube, "replicas": replicas}
    options.update({name: value for name, value in others.items() if value is not None})
    return options


def put(tube: str, method: str, data: Any, options: Mapping[str, Any]) -> Request:
    """`put` or `put_many`."""
    wait = float(options.get("timeout", 0))
    return Request(f"queue.tube.{tube}:{method}", [data, dict(options)], wait=max(wait, 0.0))


def take(tube: str, wait: float, extended: bool) -> Request:
    """`take`, for at most LONGEST_TAKE seconds."""
    arguments: list[Any] = [wait, {"extended": True}] if extended else [wait]
    return Request(f"queue.tube.{tube}:take", arguments, owned=True, wait=wait, options_at=1)


def take_many(tube: str, limit: int, wait: float, extended: bool) -> Request:
    """`take_many`, for at most LONGEST_TAKE seconds."""
    arguments: list[Any] = [limit, wait, {"extended": True}] if extended else [limit, wait]
    return Request(f"queue.tube.{tube}:take_many", arguments, owned=True, wait=wait, options_at=2)


def take_leased(tube: str, wait: float, lease: Span) -> Request:
    """`take` for a lease, for at most LONGEST_TAKE seconds."""
    return Request(f"queue.tube.{tube}:take", [wait, {"lease": seconds(lease)}], wait=wait)


def take_many_leased(tube: str, limit: int, wait: float, lease: Span) -> Request:
    """`take_many` for leases, for at most LONGEST_TAKE seconds."""
    return Request(f"queue.tube.{tube}:take_many", [limit, wait, {"lease": seconds(lease)}], wait=wait)


def settle(tube: str, method: str, token: str, **options: Any) -> Request:
    """`ack`, `release` or `bury` of the task of a lease; `options` as the server names them, without the absent ones."""
    given = {name: value for name, value in options.items() if value is not None}
    return of_tube(tube, method, token, given) if given else of_tube(tube, method, token)


def release(tube: str, method: str, ids: Any, delay: Span | None, reason: str | None, attempted: bool) -> Request:
    """`release` or `release_many`."""
    options: dict[str, Any] = {}
    if delay is not None:
        options["delay"] = seconds(delay)
    if reason is not None:
        options["reason"] = tail(reason)
    if not attempted:
        options["attempted"] = False
    return of_tube(tube, method, ids, options, owned=True)


def bury(tube: str, method: str, ids: Any, reason: str | None) -> Request:
    """`bury` or `bury_many`."""
    options = {} if reason is None else {"reason": tail(reason)}
    return of_tube(tube, method, ids, options, owned=True)


def list_tasks(
    tube: str, state: State | None, utube: str | None, older_than: Span | None, limit: int, after: int | None
) -> Request:
    """`list`."""
    options: dict[str, Any] = {"limit": limit}
    if state is not None:
        options["state"] = state.value
    if utube is not None:
        options["utube"] = utube
    if older_than is not None:
        options["older_than"] = seconds(older_than)
    if after is not None:
        options["after"] = after
    return of_tube(tube, "list", options, repeatable=True)


def slices(timeout: Span | None) -> Iterable[float]:
    """The waits of the takes that make up a take with this timeout; without one they never end."""
    left = None if timeout is None else max(seconds(timeout), 0.0)
    while left is None or left > LONGEST_TAKE:
        yield LONGEST_TAKE
        left = None if left is None else left - LONGEST_TAKE
    yield left


def one(values: Sequence[Any]) -> Any:
    """The value of an answer that has one."""
    if len(values) < 1:
        raise UnexpectedAnswer("an answer without a value")
    return values[0]


def one_task(values: Sequence[Any]) -> Any:
    """The task of an answer that must have one; null stands for a full tube and a queue that does not run."""
    value = one(values)
    if value is None:
        raise Unavailable("the tube is full, or the queue is not running")
    return value


def perhaps_task(values: Sequence[Any]) -> Any:
    """The task of an answer that may have none."""
    return one_task(values) if values else None


def many_tasks(values: Sequence[Any]) -> Sequence[Any]:
    """The tasks of an answer to a batch."""
    tasks = one_task(values)
    if not isinstance(tasks, (list, tuple)):
        raise UnexpectedAnswer(f"no tasks, where some belong: {tasks!r}")
    return tasks


def name_of(row: Sequence[Any]) -> Any:
    """What settles the task of a row: the token of its lease, or its id."""
    info = row[3] if len(row) > 3 and isinstance(row[3], Mapping) else {}
    return info.get("lease") or row[0]


def check_state(values: Sequence[Any]) -> None:
    """Raises if the queue that has answered `queue.state` does not run."""
    state = one(values)
    if state != "RUNNING":
        raise Unavailable(f"the queue is in state {state}: the server takes no writes, or has just begun to")


def tail(text: str) -> str:
    """The end of a text: at most MAX_REASON bytes of it."""
    encoded = text.encode("utf-8", "replace")
    return encoded[-MAX_REASON:].decode("utf-8", "ignore")


def session_bytes(value: Any) -> bytes:
    """The 16 bytes of a session, which come as a string that is seldom UTF-8."""
    session = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    if not isinstance(session, bytes) or len(session) != 16:
        raise UnexpectedAnswer(f"no session, where one belongs: {value!r}")
    return session


def _number(value: Any) -> Any:
    return seconds(value) if hasattr(value, "total_seconds") else value
