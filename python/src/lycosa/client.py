"""The blocking client: a pool of connections that share one queue session."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any

from . import requests
from ._connection import Connection
from ._lookout import Lookout, choose
from ._standing import Standing
from .address import Address, Options, pauses
from .errors import (
    AccessDenied,
    ConnectionFailed,
    Disconnected,
    Loading,
    LycosaError,
    NoMaster,
    NoSuchProcedure,
    NoSuchSession,
    OutcomeUnknown,
    ReadOnly,
    UnexpectedAnswer,
)
from .requests import Request
from .tasks import Page, Span, State, TaskFields, TubeType, seconds

#: Connections that are kept while no call uses them.
_IDLE_LIMIT = 8


class Task(TaskFields["Tube"]):
    """A task of a tube, and what can be done with it."""

    def ack(self) -> None:
        """Removes the task: it is done. Raises NotTaken if this client does not hold it (any more)."""
        self.tube.ack(self.id)

    def release(self, delay: Span | None = None, reason: str | None = None) -> None:
        """Gives the task back, to be taken again at once or after `delay` (ttl types)."""
        self.tube.release(self.id, delay, reason)

    def bury(self, reason: str | None = None) -> None:
        """Puts the task aside until `Tube.kick`."""
        self.tube.bury(self.id, reason)

    def touch(self, span: Span) -> None:
        """Prolongs the time that the task may be held, and its life (ttl types)."""
        self.tube.touch(self.id, span)

    def delete(self) -> None:
        """Removes the task, in any state."""
        self.tube.delete(self.id)


class Lease:
    """A lease of one task: its token settles the task until the lease ends, over any connection of any process.

    Every method raises StaleLease if the lease ended, or if the task was settled.
    """

    def __init__(self, tube: Tube, token: str) -> None:
        self.tube = tube
        #: A secret like a password: who has it may settle the task.
        self.token = token

    def __repr__(self) -> str:
        return f"<Lease of {self.tube.name}>"

    def ack(self) -> None:
        """Removes the task: it is done."""
        self.tube.client.call(requests.settle(self.tube.name, "ack", self.token))

    def release(self, delay: Span | None = None, reason: str | None = None) -> None:
        """Gives the task back, to be taken again at once or after `delay` (ttl types)."""
        given = {"delay": None if delay is None else seconds(delay), "reason": reason and requests.tail(reason)}
        self.tube.client.call(requests.settle(self.tube.name, "release", self.token, **given))

    def bury(self, reason: str | None = None) -> None:
        """Puts the task aside until `Tube.kick`."""
        given = {"reason": reason and requests.tail(reason)}
        self.tube.client.call(requests.settle(self.tube.name, "bury", self.token, **given))

    def renew(self, span: Span) -> datetime | None:
        """Lets the lease end `span` from now, unless it ends later already; returns when it ends. May be repeated."""
        request = requests.of_tube(self.tube.name, "touch", self.token, seconds(span), repeatable=True)
        row = requests.one_task(self.tube.client.call(request))
        info = Task.read(self.tube, row).info
        return None if info is None else info.lease_ends


class Client:
    """A client of a server, of the members of a group, or of servers of which one takes writes. Threads may share it.

    Each call in progress has a connection of its own; all of them belong to one queue session, so a task that one thread
    has taken can be acknowledged by another. A connection that breaks is replaced. The session outlives it while another
    connection is open, or for the server's `queue.ttr`; otherwise the server releases the session's tasks.
    """

    def __init__(
        self,
        address: str | Iterable[str] | None = None,
        *,
        user: str | None = None,
        password: str | None = None,
        request_timeout: float = 30.0,
        connect_timeout: float = 10.0,
        tls_ca: str | None = None,
        tls_certificate: str | None = None,
        tls_key: str | None = None,
    ) -> None:
        """Connects at the first call.

        `address` is `HOST:PORT`, `tls://HOST:PORT`, or several of these: then the client looks for the leader of the group or
        for the server that takes writes, and looks again when that has changed or says nothing while another one serves. What is left out comes from `LYCOSA_ADDRESS`, `LYCOSA_USER`,
        `LYCOSA_PASSWORD` and `LYCOSA_TLS_CA`, `_CERTIFICATE`, `_KEY`, and the default address is 127.0.0.1:3301.
        """
        self._options = Options.of(
            address, user, password, request_timeout, connect_timeout, tls_ca, tls_certificate, tls_key
        )
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._used: set[Connection] = set()
        self._session: bytes | None = None
        self._session_changes = 0
        # Held while the session is begun or given up.
        self._session_lock = threading.Lock()
        #: The standings of the servers that were connected to.
        self._standings: dict[Address, Standing] = {}
        self._lookout: Lookout | None = None
        self._is_closed = False

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends all connections, those of calls in progress included; the server releases the tasks that are held."""
        with self._lock:
            self._is_closed = True
            connections = [*self._idle, *self._used]
            self._idle.clear()
            lookout = self._lookout
        for connection in connections:
            connection.close()
        if lookout is not None:
            lookout.note_call()

    def tube(self, name: str) -> Tube:
        """A tube. Nothing is asked; a tube that does not exist shows at the first call."""
        return Tube(self, name)

    def create_tube(
        self,
        name: str,
        kind: TubeType | str = "fifottl",
        *,
        if_not_exists: bool = False,
        temporary: bool = False,
        ttl: Span | None = None,
        ttr: Span | None = None,
        pri: int | None = None,
        capacity: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Tube:
        """Creates a tube. `options` are those of tube types that the server's own program knows."""
        given = {"ttl": ttl, "ttr": ttr, "pri": pri, "capacity": capacity, **(options or {})}
        try:
            values = self.call(requests.create_tube(name, kind, if_not_exists, temporary, given))
            if not values:
                # A queue that does not run says nothing, and has done nothing.
                requests.check_state(self.call(Request("queue.state", repeatable=True)))
        except LycosaError as error:
            # The Lua module makes the tube and then fails to say so: its answer would hold functions.
            if not str(error).endswith("unsupported Lua type 'function'"):
                raise
        return Tube(self, name)

    def tubes(self) -> list[str]:
        """The names of the tubes that the user may use."""
        return sorted(requests.one(self.call(Request("queue.tube", repeatable=True))))

    def statistics(self, tube: str | None = None) -> dict[str, Any]:
        """Numbers of tasks by state and of calls by kind: of a tube, or of all by their names."""
        arguments = [] if tube is None else [tube]
        return dict(requests.one(self.call(Request("queue.statistics", arguments, repeatable=True))))

    def ping(self) -> float:
        """Asks the server for its state; returns the seconds until it answered."""
        began = time.monotonic()
        self.call(Request("queue.state", repeatable=True))
        return time.monotonic() - began

    @property
    def session_changes(self) -> int:
        """How often the server has forgotten the session of this client, and released its tasks."""
        return self._session_changes

    def call(self, request: Request) -> list[Any]:
        """Makes a call, over a connection of its own.

        A call for which no connection can be made is tried for `connect_timeout`. A call that a server without the right
        to write refuses is made again at the one that took its place, if the client has several addresses.
        """
        began = time.monotonic()
        deadline = began + self._options.connect_timeout
        if len(self._options.addresses) > 1:
            request = request.named()
        first = request
        for pause in pauses():
            try:
                return self._call_once(request)
            except ReadOnly:
                if len(self._options.addresses) < 2 or time.monotonic() + pause > deadline:
                    raise
                self._leave_master()
            except (ConnectionFailed, Loading):
                if self._is_closed or time.monotonic() + pause > deadline:
                    raise
            except (Disconnected, OutcomeUnknown):
                if self._is_closed:
                    raise
                if request.name is not None and self._is_in_group():
                    # A member answers with the tasks that the lost answer had.
                    request = first.again(time.monotonic() - began, request.attempt + 2)
                    deadline = time.monotonic() + self._options.connect_timeout
                elif not request.repeatable or time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
        raise AssertionError("the pauses never end")

    def _call_once(self, request: Request) -> list[Any]:
        connection = self._checkout()
        if self._lookout is not None:
            self._lookout.note_call()
        try:
            if request.owned:
                self._join_session(connection)
            return connection.call(request.function, request.sent(self._is_in_group()), request.wait)
        finally:
            self._checkin(connection)

    def _checkout(self) -> Connection:
        while True:
            with self._lock:
                if self._is_closed:
                    raise ConnectionFailed("the client is closed")
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                connection = self._connect()
            elif not connection.is_usable():
                connection.close()
                continue
            with self._lock:
                if not self._is_closed:
                    self._used.add(connection)
                    return connection
            connection.close()

    def _checkin(self, connection: Connection) -> None:
        usable = connection.is_usable()
        with self._lock:
            self._used.discard(connection)
            if usable and not self._is_closed and len(self._idle) < _IDLE_LIMIT:
                self._idle.append(connection)
                return
        connection.close()

    def _connect(self) -> Connection:
        addresses = self._options.addresses
        if len(addresses) == 1:
            return Connection(addresses[0], self._options)
        address, standing = choose(self._options)
        connection = Connection(address, self._options)
        if standing.takes_writes is None and not _takes_writes(connection):
            connection.close()
            raise NoMaster(f"no server takes writes: {address} takes none")
        with self._lock:
            self._standings[address] = standing
            if self._lookout is None and not self._is_closed:
                self._lookout = Lookout(self)
        return connection

    def _busy(self) -> dict[Address, list[float]]:
        """When the calls in progress began at each server."""
        busy: dict[Address, list[float]] = {}
        with self._lock:
            for connection in self._used:
                busy.setdefault(connection.address, []).append(connection.began)
        return busy

    def _is_in_group(self) -> bool:
        return any(standing.forwards is not None for standing in self._standings.values())

    def _leave(self, address: Address) -> None:
        """Leaves a server that says nothing: its calls in progress raise Disconnected."""
        with self._lock:
            idle = [connection for connection in self._idle if connection.address == address]
            self._idle = [connection for connection in self._idle if connection.address != address]
            used = [connection for connection in self._used if connection.address == address]
        for connection in idle:
            connection.close()
        for connection in used:
            connection.abort()

    def _leave_master(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _join_session(self, connection: Connection) -> None:
        session = self._session
        if session is not None and connection.session == session:
            return
        with self._session_lock:
            if self._session is not None:
                try:
                    connection.call("queue.identify", [self._session], 0)
                    connection.session = self._session
                    return
                except (NoSuchSession, AccessDenied):
                    # Released by the server; or, after a change of the server, the session of somebody else.
                    self._session = None
                    self._session_changes += 1
            try:
                answer = requests.one(connection.call("queue.identify", [], 0))
            except NoSuchProcedure:
                raise UnexpectedAnswer(f"{connection.address} has no queue: queue.identify does not exist") from None
            self._session = connection.session = requests.session_bytes(answer)


class Tube:
    """A tube: where tasks are put and taken."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name

    def __repr__(self) -> str:
        return f"<Tube {self.name}>"

    def put(
        self,
        data: Any,
        *,
        ttl: Span | None = None,
        ttr: Span | None = None,
        delay: Span | None = None,
        pri: int | None = None,
        utube: str | None = None,
        timeout: Span | None = None,
        replicas: int | None = None,
    ) -> Task:
        """Puts a task. Raises Unavailable if the tube (limfifottl) stays full for `timeout`.

        `data` is whatever MessagePack has a form for: None, bool, int, float, str, bytes, list, dict, Decimal, UUID.
        """
        options = requests.put_options(ttl, ttr, delay, timeout, pri, utube, replicas)
        return self._task(requests.one_task(self.client.call(requests.put(self.name, "put", data, options))))

    def put_many(
        self,
        data: Iterable[Any],
        *,
        ttl: Span | None = None,
        ttr: Span | None = None,
        delay: Span | None = None,
        pri: int | None = None,
        utube: str | None = None,
        timeout: Span | None = None,
        replicas: int | None = None,
    ) -> list[Task]:
        """Puts at most 10 000 tasks with one call: all of them or none."""
        options = requests.put_options(ttl, ttr, delay, timeout, pri, utube, replicas)
        return self._tasks(self.client.call(requests.put(self.name, "put_many", list(data), options)))

    def take(self, timeout: Span | None = None, *, extended: bool = False) -> Task | None:
        """Takes the next task, and waits for one until `timeout` is over; without a timeout for ever.

        The task is this client's until it is acknowledged, released, buried or deleted, or its ttr is over. With
        `extended` the take counts as an attempt, and `Task.info` is there.
        """
        for wait in requests.slices(timeout):
            row = requests.perhaps_task(self.client.call(requests.take(self.name, wait, extended)))
            if row is not None:
                return self._task(row)
        return None

    def take_many(self, limit: int, timeout: Span | None = None, *, extended: bool = False) -> list[Task]:
        """Takes up to `limit` tasks with one call, and waits for the first of them only."""
        for wait in requests.slices(timeout):
            tasks = self._tasks(self.client.call(requests.take_many(self.name, limit, wait, extended)))
            if tasks:
                return tasks
        return []

    def take_leased(self, timeout: Span | None = None, *, lease: Span) -> tuple[Task, Lease] | None:
        """Takes the next task for a lease, in place of this client's session.

        The task stays taken when the connection ends, and is ready again when the lease ends. The take counts as an
        attempt, and `Task.info` is there.
        """
        for wait in requests.slices(timeout):
            row = requests.perhaps_task(self.client.call(requests.take_leased(self.name, wait, lease)))
            if row is not None:
                return self._leased(self._task(row))
        return None

    def take_many_leased(
        self, limit: int, timeout: Span | None = None, *, lease: Span
    ) -> list[tuple[Task, Lease]]:
        """Takes up to `limit` tasks with one call, each for a lease of its own."""
        for wait in requests.slices(timeout):
            tasks = self._tasks(self.client.call(requests.take_many_leased(self.name, limit, wait, lease)))
            if tasks:
                return [self._leased(task) for task in tasks]
        return []

    def lease(self, token: str) -> Lease:
        """The lease with this token. Nothing is asked."""
        return Lease(self, token)

    def _leased(self, task: Task) -> tuple[Task, Lease]:
        token = None if task.info is None else task.info.lease
        if token is None:
            raise UnexpectedAnswer("a task without the lease that was asked for: the server has no leases")
        return task, Lease(self, token)

    def ack(self, task_id: int) -> Task:
        """Removes a task that this client holds: it is done."""
        return self._one("ack", task_id, owned=True)

    def ack_many(self, ids: Iterable[int]) -> list[Task]:
        """Acknowledges tasks: all of them or none."""
        return self._many("ack_many", ids, owned=True)

    def release(
        self, task_id: int, delay: Span | None = None, reason: str | None = None, *, attempted: bool = True
    ) -> Task:
        """Gives a task back. With `attempted=False` its take does not count as an attempt."""
        request = requests.release(self.name, "release", task_id, delay, reason, attempted)
        return self._task(requests.one_task(self.client.call(request)))

    def release_many(
        self, ids: Iterable[int], delay: Span | None = None, reason: str | None = None, *, attempted: bool = True
    ) -> list[Task]:
        """Gives tasks back: all of them or none."""
        request = requests.release(self.name, "release_many", list(ids), delay, reason, attempted)
        return self._tasks(self.client.call(request))

    def bury(self, task_id: int, reason: str | None = None) -> Task:
        """Puts a task aside, in any state, also if another session holds it."""
        return self._task(requests.one_task(self.client.call(requests.bury(self.name, "bury", task_id, reason))))

    def bury_many(self, ids: Iterable[int], reason: str | None = None) -> list[Task]:
        """Puts tasks aside: all of them or none."""
        return self._tasks(self.client.call(requests.bury(self.name, "bury_many", list(ids), reason)))

    def kick(self, count: int = 1) -> int:
        """Makes at most `count` buried tasks ready; returns how many there were."""
        return int(requests.one(self.client.call(requests.of_tube(self.name, "kick", count))))

    def kick_many(self, ids: Iterable[int]) -> list[Task]:
        """Makes these buried tasks ready: all of them or none."""
        return self._many("kick_many", ids)

    def touch(self, task_id: int, span: Span) -> None:
        """Prolongs the time that a task may be held, and its life (ttl types)."""
        self.client.call(requests.of_tube(self.name, "touch", task_id, seconds(span), owned=True))

    def delete(self, task_id: int) -> Task:
        """Removes a task, in any state."""
        return self._one("delete", task_id)

    def delete_many(self, ids: Iterable[int]) -> list[Task]:
        """Removes tasks: all of them or none."""
        return self._many("delete_many", ids)

    def peek(self, task_id: int, *, extended: bool = False) -> Task:
        """A task, in any state. Raises NoSuchTask."""
        arguments = (task_id, {"extended": True}) if extended else (task_id,)
        request = requests.of_tube(self.name, "peek", *arguments, repeatable=True)
        return self._task(requests.one_task(self.client.call(request)))

    def list_tasks(
        self,
        *,
        state: State | None = None,
        utube: str | None = None,
        older_than: Span | None = None,
        limit: int = 100,
        after: int | None = None,
    ) -> Page[Task]:
        """Tasks in the order of their ids. With a filter a page may be short or empty and yet not the last one."""
        request = requests.list_tasks(self.name, state, utube, older_than, limit, after)
        values = self.client.call(request)
        tasks = [self._task(row) for row in requests.one(values)]
        return Page(tasks, values[1] if len(values) > 1 else None)

    def statistics(self) -> dict[str, Any]:
        """Numbers of tasks by state and of calls by kind."""
        return self.client.statistics(self.name)

    def truncate(self) -> None:
        """Removes all tasks."""
        self.client.call(requests.of_tube(self.name, "truncate"))

    def drop(self) -> None:
        """Removes the tube and its tasks. Raises TubeInUse while tasks are taken or calls wait."""
        self.client.call(requests.of_tube(self.name, "drop"))

    def _one(self, method: str, task_id: int, *, owned: bool = False) -> Task:
        request = requests.of_tube(self.name, method, task_id, owned=owned)
        return self._task(requests.one_task(self.client.call(request)))

    def _many(self, method: str, ids: Iterable[int], *, owned: bool = False) -> list[Task]:
        return self._tasks(self.client.call(requests.of_tube(self.name, method, [*ids], owned=owned)))

    def _task(self, row: Any) -> Task:
        task: Task = Task.read(self, row)
        return task

    def _tasks(self, values: Sequence[Any]) -> list[Task]:
        return [self._task(row) for row in requests.many_tasks(values)]


def _takes_writes(connection: Connection) -> bool:
    try:
        info = requests.one(connection.call("box.info", [], 0))
    except (AccessDenied, NoSuchProcedure):
        # It does not say; the first write will.
        return True
    except (Disconnected, OutcomeUnknown) as error:
        connection.close()
        raise ConnectionFailed(f"the server has not said whether it takes writes: {error}") from error
    return not (isinstance(info, Mapping) and info.get("ro"))
