"""What can go wrong with a request, one class for each thing that a program can decide on."""

from __future__ import annotations

import re


class LycosaError(Exception):
    """Base of all errors of this package."""

    #: Whether the same request may go well a little later, without anybody changing the program or its rights.
    passes = False
    #: Whether the server may have done what was asked, although no answer says so.
    outcome_unknown = False


class ConnectionFailed(LycosaError):
    """No connection could be made. Nothing was asked."""

    passes = True


class NoMaster(ConnectionFailed):
    """None of the client's addresses leads to a server that takes writes."""


class Disconnected(LycosaError):
    """The connection ended before the answer came."""

    passes = True
    outcome_unknown = True


class RequestTimeout(LycosaError):
    """No answer came within `request_timeout`. The client has given the connection up."""

    passes = True
    outcome_unknown = True


class Unavailable(LycosaError):
    """The tube is full (limfifottl), or the queue is not running. Nothing was done."""

    passes = True


class UnexpectedAnswer(LycosaError):
    """The answer is not of the form that belongs to the request: another kind of server, or another version."""


class ServerError(LycosaError):
    """The server refused the request, and changed nothing."""

    def __init__(self, code: int, message: str, name: str | None = None) -> None:
        super().__init__(message)
        #: The code of the protocol, for example 7 (read-only) or 32 (an error of a function).
        self.code = code
        self.message = message
        #: The name that Lycosa gives to an error of code 32 or 33, for example `TASK_NOT_TAKEN`.
        self.name = name

    def __reduce__(self) -> tuple[type[ServerError], tuple[int, str, str | None]]:
        return type(self), (self.code, self.message, self.name)


class NotTaken(ServerError):
    """This client's session does not hold the task (any more)."""


class StaleLease(ServerError):
    """The lease ended, or its task was settled."""


class NotBuried(ServerError):
    """The task is not buried, so it cannot be kicked."""


class NoSuchTask(ServerError):
    """No task has this id."""


class NoSuchTube(ServerError):
    """No tube has this name."""


class TubeExists(ServerError):
    """The tube exists already, or a space has its name."""


class TubeInUse(ServerError):
    """The tube holds taken tasks or has waiting calls, so it cannot be dropped."""


class UnknownTubeType(ServerError):
    """No tube has this type."""


class TouchUnsupported(ServerError):
    """Tubes of this type have no deadlines that a touch could prolong."""


class NoSuchSession(ServerError):
    """The server does not know the session (any more)."""


class NoSuchProcedure(ServerError):
    """The server has no such function; a Lua module without batches, for example."""


class AccessDenied(ServerError):
    """The user lacks the right."""


class WrongCredentials(ServerError):
    """No user has this name, or the password is wrong."""


class MemoryLimit(ServerError):
    """The server's `memory_limit` is reached."""

    passes = True


class TaskTooLarge(ServerError):
    """The task is larger than the server's `max_tuple_size`."""


class RequestTooLarge(ServerError):
    """The request is longer than the server's `max_frame_size`."""


class ReadOnly(ServerError):
    """The server takes no writes; the text names its master if the server knows it."""

    passes = True


class ReplicasMissing(ServerError):
    """Too few replicas are connected. Nothing was done."""

    passes = True


class DiskFailure(ServerError):
    """The server cannot write its journal: the disk is full or broken. Nothing was done."""

    passes = True


class OutcomeUnknown(ServerError):
    """The server's journal has lost the rows of the request, or has failed: the request may have been done or not."""

    passes = True
    outcome_unknown = True


class Loading(ServerError):
    """The server is starting. Nothing was done."""

    passes = True


_BY_NAME: dict[str, type[ServerError]] = {
    "TASK_NOT_TAKEN": NotTaken,
    "STALE_LEASE": StaleLease,
    "TASK_NOT_BURIED": NotBuried,
    "NO_SUCH_TASK": NoSuchTask,
    "NO_SUCH_TUBE": NoSuchTube,
    "TUBE_EXISTS": TubeExists,
    "TUBE_IN_USE": TubeInUse,
    "UNKNOWN_TUBE_TYPE": UnknownTubeType,
    "TOUCH_UNSUPPORTED": TouchUnsupported,
    "NO_SUCH_SESSION": NoSuchSession,
    "FRAME_TOO_LARGE": RequestTooLarge,
    "OUTCOME_UNKNOWN": OutcomeUnknown,
    "READ_ONLY": ReadOnly,
}

_BY_CODE: dict[int, type[ServerError]] = {
    2: MemoryLimit,
    7: ReadOnly,
    33: NoSuchProcedure,
    40: DiskFailure,
    42: AccessDenied,
    45: WrongCredentials,
    47: WrongCredentials,
    110: TaskTooLarge,
    116: Loading,
    216: ReplicasMissing,
}

# Every tube has these methods, so what is missing is the tube.
_METHOD_OF_TUBE = re.compile(
    r"'queue\.tube\..*:(put|take|ack|release|touch|bury|kick|peek|delete|truncate|drop|release_all)'"
)

# The Lua module of Tarantool names no kinds: its texts are all there is.
_BY_TEXT: tuple[tuple[str, type[ServerError]], ...] = (
    ("Task was not taken", NotTaken),
    ("Tube not found", NoSuchTube),
    ("attempt to index a nil value", NoSuchTube),
    (" queue does not support touch", TouchUnsupported),
    ("There are consumers connected the tube", TubeInUse),
    ("There are taken tasks in the tube", TubeInUse),
    ("Please configure box.cfg{} in read/write mode first", ReadOnly),
)


def server_error(code: int, message: str, name: str | None) -> ServerError:
    """The error of the most specific class for what a server has answered."""
    return _kind(code, message, name)(code, message, name)


def _kind(code: int, message: str, name: str | None) -> type[ServerError]:
    if name in _BY_NAME:
        return _BY_NAME[name]
    if code == 32:
        return _kind_of_text(message)
    if code == 33 and _METHOD_OF_TUBE.search(message):
        return NoSuchTube
    if code == 20 and "too big packet size" in message:
        return RequestTooLarge
    return _BY_CODE.get(code, ServerError)


def _kind_of_text(message: str) -> type[ServerError]:
    for end, kind in _BY_TEXT:
        if message.endswith(end):
            return kind
    if "Task " in message and message.endswith(" not found"):
        return NoSuchTask
    if "Space '" in message and message.endswith("' already exists"):
        return TubeExists
    if "Unknown tube type " in message:
        return UnknownTubeType
    if "The UUID " in message and message.endswith(" is unknown."):
        return NoSuchSession
    return ServerError
