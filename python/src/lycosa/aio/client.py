"""The asyncio client: one connection, over which any number of calls go at a time, and its queue session."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any

import asynctnt
from asynctnt.exceptions import TarantoolDatabaseError, TarantoolError

from .. import _standing, requests
from .._standing import Choice, Standing
from ..address import Address, Options, pauses
from ..errors import (
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
    RequestTimeout,
    UnexpectedAnswer,
    server_error,
)
from ..requests import Request
from ..tasks import Page, Span, State, TaskFields, TubeType, seconds


class Task(TaskFields["Tube"]):
    """A task of a tube, and what can be done with it."""

    async def ack(self) -> None:
        """Removes the task: it is done. Raises NotTaken if this client does not hold it (any more)."""
        await self.tube.ack(self.id)

    async def release(self, delay: Span | None = None, reason: str | None = None) -> None:
        """Gives the task back, to be taken again at once or after `delay` (ttl types)."""
        await self.tube.release(self.id, delay, reason)

    async def bury(self, reason: str | None = None) -> None:
        """Puts the task aside until `Tube.kick`."""
        await self.tube.bury(self.id, reason)

    async def touch(self, span: Span) -> None:
        """Prolongs the time that the task may be held, and its life (ttl types)."""
        await self.tube.touch(self.id, span)

    async def delete(self) -> None:
        """Removes the task, in any state."""
        await self.tube.delete(self.id)


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

    async def ack(self) -> None:
        """Removes the task: it is done."""
        await self.tube.client.call(requests.settle(self.tube.name, "ack", self.token))

    async def release(self, delay: Span | None = None, reason: str | None = None) -> None:
        """Gives the task back, to be taken again at once or after `delay` (ttl types)."""
        given = {"delay": None if delay is None else seconds(delay), "reason": reason and requests.tail(reason)}
        await self.tube.client.call(requests.settle(self.tube.name, "release", self.token, **given))

    async def bury(self, reason: str | None = None) -> None:
        """Puts the task aside until `Tube.kick`."""
        given = {"reason": reason and requests.tail(reason)}
        await self.tube.client.call(requests.settle(self.tube.name, "bury", self.token, **given))

    async def renew(self, span: Span) -> datetime | None:
        """Lets the lease end `span` from now, unless it ends later already; returns when it ends. May be repeated."""
        request = requests.of_tube(self.tube.name, "touch", self.token, seconds(span), repeatable=True)
        row = requests.one_task(await self.tube.client.call(request))
        info = Task.read(self.tube, row).info
        return None if info is None else info.lease_ends


class Client:
    """A client of a server, of the members of a group, or of servers of which one takes writes, for one event loop.

    The connection is replaced when it breaks. The queue session outlives it for the server's `queue.ttr`; otherwise the
    server releases the session's tasks. There is no TLS: `asynctnt` speaks none.
    """

    def __init__(
        self,
        address: str | Iterable[str] | None = None,
        *,
        user: str | None = None,
        password: str | None = None,
        request_timeout: float = 30.0,
        connect_timeout: float = 10.0,
    ) -> None:
        """Connects at the first call.

        `address` is `HOST:PORT`, or several of these: then the client looks for the leader of the group or for the server
        that takes writes, and looks again when that has changed or says nothing while another one serves. What is left out comes from `LYCOSA_ADDRESS`, `LYCOSA_USER` and `LYCOSA_PASSWORD`, and
        the default address is 127.0.0.1:3301.
        """
        self._options = Options.of(address, user, password, request_timeout, connect_timeout)
        for each in self._options.addresses:
            if each.tls:
                raise ValueError(f"{each}: the connector asynctnt speaks no TLS; lycosa.Client does")
        self._connection: asynctnt.Connection | None = None
        self._connecting: asyncio.Lock = asyncio.Lock()
        self._joining: asyncio.Lock = asyncio.Lock()
        self._session: bytes | None = None
        #: The connection that has joined the session.
        self._joined: asynctnt.Connection | None = None
        self._session_changes = 0
        #: The address and the standing of the connected server, if there are several addresses.
        self._chosen: tuple[Address, Standing] | None = None
        #: When the calls in progress began, and the task that looks at them.
        self._calls: dict[object, float] = {}
        self._lookout: asyncio.Task[None] | None = None
        self._is_closed = False
        #: Takes whose caller has gone; they give their tasks back.
        self._orphans: set[asyncio.Future[Any]] = set()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection; the server releases the tasks that are held."""
        self._is_closed = True
        connection, self._connection = self._connection, None
        if self._lookout is not None:
            self._lookout.cancel()
        if connection is not None:
            await connection.disconnect()

    def tube(self, name: str) -> Tube:
        """A tube. Nothing is asked; a tube that does not exist shows at the first call."""
        return Tube(self, name)

    async def create_tube(
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
            values = await self.call(requests.create_tube(name, kind, if_not_exists, temporary, given))
            if not values:
                # A queue that does not run says nothing, and has done nothing.
                requests.check_state(await self.call(Request("queue.state", repeatable=True)))
        except LycosaError as error:
            # The Lua module makes the tube and then fails to say so: its answer would hold functions.
            if not str(error).endswith("unsupported Lua type 'function'"):
                raise
        return Tube(self, name)

    async def tubes(self) -> list[str]:
        """The names of the tubes that the user may use."""
        return sorted(requests.one(await self.call(Request("queue.tube", repeatable=True))))

    async def statistics(self, tube: str | None = None) -> dict[str, Any]:
        """Numbers of tasks by state and of calls by kind: of a tube, or of all by their names."""
        arguments = [] if tube is None else [tube]
        return dict(requests.one(await self.call(Request("queue.statistics", arguments, repeatable=True))))

    async def ping(self) -> float:
        """Asks the server for its state; returns the seconds until it answered."""
        began = time.monotonic()
        await self.call(Request("queue.state", repeatable=True))
        return time.monotonic() - began

    @property
    def session_changes(self) -> int:
        """How often the server has forgotten the session of this client, and released its tasks."""
        return self._session_changes

    async def check_session(self) -> None:
        """Connects anew if the connection is gone, and so notices a session that is gone with it."""
        if not self._is_connected() or self._joined is not self._connection:
            await self._join_session(await self._connected())

    async def call(self, request: Request) -> list[Any]:
        """Makes a call.

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
                return await self._call_once(request)
            except ReadOnly:
                if len(self._options.addresses) < 2 or time.monotonic() + pause > deadline:
                    raise
                await self._leave_master()
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
            await asyncio.sleep(pause)
        raise AssertionError("the pauses never end")

    async def take(self, request: Request, give_back: Request) -> list[Any]:
        """Makes a call that takes tasks. If the caller is cancelled meanwhile, tasks that come after all are given back:
        by `give_back`, whose first argument becomes the id or the ids, or the tokens of leases."""
        taken = asyncio.ensure_future(self.call(request))
        try:
            return await asyncio.shield(taken)
        except asyncio.CancelledError:
            orphan = asyncio.ensure_future(self._give_back(taken, give_back))
            self._orphans.add(orphan)
            orphan.add_done_callback(self._orphans.discard)
            raise

    async def _give_back(self, taken: asyncio.Future[list[Any]], give_back: Request) -> None:
        try:
            values = await taken
            rows = values[0] if values and give_back.function.endswith("_many") else values
            ids = [requests.name_of(row) for row in rows or () if row is not None]
            if ids:
                first = ids if give_back.function.endswith("_many") else ids[0]
                await self.call(
                    Request(give_back.function, [first, *give_back.arguments[1:]], owned=True)
                )
        except LycosaError:
            # The session is gone, and with it the hold on the tasks.
            pass

    async def _call_once(self, request: Request) -> list[Any]:
        connection = await self._connected()
        if request.owned:
            await self._join_session(connection)
        return await self._ask(connection, request.function, request.sent(self._is_in_group()), request.wait)

    async def _ask(
        self, connection: asynctnt.Connection, function: str, arguments: list[Any], wait: float
    ) -> list[Any]:
        limit = self._options.request_timeout
        call = object()
        self._calls[call] = time.monotonic()
        if self._chosen is not None and (self._lookout is None or self._lookout.done()):
            self._lookout = asyncio.ensure_future(self._look_out())
        try:
            answer = await connection.call(function, arguments, timeout=limit + wait)
        except asyncio.TimeoutError:
            # The answer may still come, and with it a task: the connection's end gives it back.
            connection.close()
            raise RequestTimeout(f"{connection.host}: no answer to {function} within {limit:g} s") from None
        except TarantoolDatabaseError as error:
            raise _refusal(error) from error
        except (TarantoolError, OSError) as error:
            where = f"{connection.host}:{connection.port}"
            raise Disconnected(f"{where}: the connection ended before {function} was answered") from error
        finally:
            del self._calls[call]
        return list(answer.body or ())

    def _is_connected(self) -> bool:
        return self._connection is not None and bool(self._connection.is_connected)

    async def _connected(self) -> asynctnt.Connection:
        async with self._connecting:
            if self._is_closed:
                raise ConnectionFailed("the client is closed")
            if not self._is_connected():
                self._connection = await self._connect()
            return self._connection

    async def _connect(self) -> asynctnt.Connection:
        addresses = self._options.addresses
        if len(addresses) == 1:
            return await self._connect_to(addresses[0])
        address, standing = await self._choose()
        connection = await self._connect_to(address)
        if standing.takes_writes is None and not await self._takes_writes(connection):
            await connection.disconnect()
            raise NoMaster(f"no server takes writes: {address} takes none")
        self._chosen = address, standing
        return connection

    def _is_in_group(self) -> bool:
        return self._chosen is not None and self._chosen[1].forwards is not None

    async def _choose(self) -> tuple[Address, Standing]:
        """The server that takes writes; of a group its leader, or after a short time a member that passes requests on."""
        choice = Choice()
        async with _Votes(self._options.addresses, self._options.connect_timeout) as votes:
            while votes.left and choice.is_open(time.monotonic()):
                answer = await votes.next(choice.deadline)
                if answer is not None:
                    choice.note(*answer, time.monotonic())
        return choice.best()

    async def _look_out(self) -> None:
        """Looks at the calls in progress while there are any, and leaves a server that says nothing while another one serves."""
        asked = 0.0
        while self._calls and not self._is_closed:
            await asyncio.sleep(_standing.TICK)
            chosen, connection, now = self._chosen, self._connection, time.monotonic()
            if chosen is None or connection is None or not _standing.is_due(self._calls.values(), asked, now):
                continue
            asked = now
            address, known = chosen
            try:
                await _ask_standing(address, known.patience)
                continue
            except LycosaError:
                pass
            if await self._is_replaced(address, known):
                # Calls in progress on it raise Disconnected; a newer connection has calls of its own.
                connection.close()

    async def _is_replaced(self, address: Address, known: Standing) -> bool:
        """Whether the server says nothing to a new client either, while another one serves."""
        patient_until = time.monotonic() + known.patience
        ends = patient_until + _standing.ROUND
        serves = False
        async with _Votes(self._options.addresses, known.patience + _standing.ROUND) as votes:
            while votes.left and time.monotonic() < ends:
                answer = await votes.next(patient_until if serves else ends)
                if answer is not None and isinstance(answer[1], Standing):
                    if answer[0] == address:
                        return False
                    serves = serves or answer[1].replaces(known)
                if serves and time.monotonic() >= patient_until:
                    return True
        return serves

    async def _connect_to(self, address: Address) -> asynctnt.Connection:
        connection = asynctnt.Connection(
            host=address.host,
            port=address.port,
            username=self._options.user,
            password=self._options.password or ("" if self._options.user else None),
            fetch_schema=False,
            auto_refetch_schema=False,
            connect_timeout=self._options.attempt_timeout,
            reconnect_timeout=0,
            ping_timeout=0,
        )
        try:
            await connection.connect()
        except TarantoolDatabaseError as error:
            raise _refusal(error) from error
        except (TarantoolError, OSError, asyncio.TimeoutError) as error:
            raise ConnectionFailed(f"cannot connect to {address}: {error or type(error).__name__}") from error
        return connection

    async def _takes_writes(self, connection: asynctnt.Connection) -> bool:
        try:
            info = requests.one(await self._ask(connection, "box.info", [], 0))
        except (AccessDenied, NoSuchProcedure):
            # It does not say; the first write will.
            return True
        except (Disconnected, OutcomeUnknown) as error:
            await connection.disconnect()
            raise ConnectionFailed(f"the server has not said whether it takes writes: {error}") from error
        return not (isinstance(info, Mapping) and info.get("ro"))

    async def _leave_master(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect()

    async def _join_session(self, connection: asynctnt.Connection) -> None:
        async with self._joining:
            if self._joined is connection:
                return
            if self._session is not None:
                try:
                    await self._ask(connection, "queue.identify", [self._session], 0)
                    self._joined = connection
                    return
                except (NoSuchSession, AccessDenied):
                    # Released by the server; or, after a change of the server, the session of somebody else.
                    self._session = None
                    self._session_changes += 1
            try:
                answer = requests.one(await self._ask(connection, "queue.identify", [], 0))
            except NoSuchProcedure:
                raise UnexpectedAnswer(f"{connection.host} has no queue: queue.identify does not exist") from None
            self._session, self._joined = requests.session_bytes(answer), connection


async def _ask_standing(address: Address, timeout: float) -> Standing:
    """The standing of a server, asked on a connection of its own."""
    try:
        return await asyncio.wait_for(_vote(address), timeout)
    except (OSError, EOFError, asyncio.TimeoutError) as error:
        raise ConnectionFailed(f"cannot connect to {address}: {str(error) or 'it says nothing'}") from error


async def _vote(address: Address) -> Standing:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        greeting = await reader.readexactly(_standing.GREETING_SIZE)
        writer.write(_standing.VOTE)
        length = _standing.length_of(await reader.readexactly(_standing.LENGTH_SIZE))
        return _standing.read(greeting, await reader.readexactly(length))
    finally:
        writer.close()


class _Votes:
    """Asks several servers at once. Open requests are given up at the end."""

    def __init__(self, addresses: Sequence[Address], timeout: float) -> None:
        self._tasks = {asyncio.ensure_future(_ask_standing(each, timeout)): each for each in addresses}

    async def __aenter__(self) -> _Votes:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def left(self) -> int:
        """How many have not answered."""
        return len(self._tasks)

    async def next(self, deadline: float | None) -> tuple[Address, Standing | LycosaError] | None:
        """The next answer; None if there is none by the deadline."""
        wait = None if deadline is None else max(deadline - time.monotonic(), 0)
        done, _ = await asyncio.wait(self._tasks, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            address = self._tasks.pop(task)
            try:
                return address, task.result()
            except LycosaError as error:
                return address, error
        return None


class Tube:
    """A tube: where tasks are put and taken."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name

    def __repr__(self) -> str:
        return f"<Tube {self.name}>"

    async def put(
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
        return self._task(requests.one_task(await self.client.call(requests.put(self.name, "put", data, options))))

    async def put_many(
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
        return self._tasks(await self.client.call(requests.put(self.name, "put_many", list(data), options)))

    async def take(self, timeout: Span | None = None, *, extended: bool = False) -> Task | None:
        """Takes the next task, and waits for one until `timeout` is over; without a timeout for ever.

        The task is this client's until it is acknowledged, released, buried or deleted, or its ttr is over. With
        `extended` the take counts as an attempt, and `Task.info` is there.
        """
        for wait in requests.slices(timeout):
            give_back = requests.release(self.name, "release", None, None, None, attempted=not extended)
            row = requests.perhaps_task(await self.client.take(requests.take(self.name, wait, extended), give_back))
            if row is not None:
                return self._task(row)
        return None

    async def take_many(self, limit: int, timeout: Span | None = None, *, extended: bool = False) -> list[Task]:
        """Takes up to `limit` tasks with one call, and waits for the first of them only."""
        for wait in requests.slices(timeout):
            give_back = requests.release(self.name, "release_many", None, None, None, attempted=not extended)
            request = requests.take_many(self.name, limit, wait, extended)
            tasks = self._tasks(await self.client.take(request, give_back))
            if tasks:
                return tasks
        return []

    async def take_leased(self, timeout: Span | None = None, *, lease: Span) -> tuple[Task, Lease] | None:
        """Takes the next task for a lease, in place of this client's session.

        The task stays taken when the connection ends, and is ready again when the lease ends. The take counts as an
        attempt, and `Task.info` is there.
        """
        for wait in requests.slices(timeout):
            request = requests.take_leased(self.name, wait, lease)
            give_back = requests.release(self.name, "release", None, None, None, attempted=False)
            row = requests.perhaps_task(await self.client.take(request, give_back))
            if row is not None:
                return self._leased(self._task(row))
        return None

    async def take_many_leased(
        self, limit: int, timeout: Span | None = None, *, lease: Span
    ) -> list[tuple[Task, Lease]]:
        """Takes up to `limit` tasks with one call, each for a lease of its own."""
        for wait in requests.slices(timeout):
            request = requests.take_many_leased(self.name, limit, wait, lease)
            give_back = requests.release(self.name, "release_many", None, None, None, attempted=False)
            tasks = self._tasks(await self.client.take(request, give_back))
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

    async def ack(self, task_id: int) -> Task:
        """Removes a task that this client holds: it is done."""
        return await self._one("ack", task_id, owned=True)

    async def ack_many(self, ids: Iterable[int]) -> list[Task]:
        """Acknowledges tasks: all of them or none."""
        return await self._many("ack_many", ids, owned=True)

    async def release(
        self, task_id: int, delay: Span | None = None, reason: str | None = None, *, attempted: bool = True
    ) -> Task:
        """Gives a task back. With `attempted=False` its take does not count as an attempt."""
        request = requests.release(self.name, "release", task_id, delay, reason, attempted)
        return self._task(requests.one_task(await self.client.call(request)))

    async def release_many(
        self, ids: Iterable[int], delay: Span | None = None, reason: str | None = None, *, attempted: bool = True
    ) -> list[Task]:
        """Gives tasks back: all of them or none."""
        request = requests.release(self.name, "release_many", list(ids), delay, reason, attempted)
        return self._tasks(await self.client.call(request))

    async def bury(self, task_id: int, reason: str | None = None) -> Task:
        """Puts a task aside, in any state, also if another session holds it."""
        return self._task(requests.one_task(await self.client.call(requests.bury(self.name, "bury", task_id, reason))))

    async def bury_many(self, ids: Iterable[int], reason: str | None = None) -> list[Task]:
        """Puts tasks aside: all of them or none."""
        return self._tasks(await self.client.call(requests.bury(self.name, "bury_many", list(ids), reason)))

    async def kick(self, count: int = 1) -> int:
        """Makes at most `count` buried tasks ready; returns how many there were."""
        return int(requests.one(await self.client.call(requests.of_tube(self.name, "kick", count))))

    async def kick_many(self, ids: Iterable[int]) -> list[Task]:
        """Makes these buried tasks ready: all of them or none."""
        return await self._many("kick_many", ids)

    async def touch(self, task_id: int, span: Span) -> None:
        """Prolongs the time that a task may be held, and its life (ttl types)."""
        await self.client.call(requests.of_tube(self.name, "touch", task_id, seconds(span), owned=True))

    async def delete(self, task_id: int) -> Task:
        """Removes a task, in any state."""
        return await self._one("delete", task_id)

    async def delete_many(self, ids: Iterable[int]) -> list[Task]:
        """Removes tasks: all of them or none."""
        return await self._many("delete_many", ids)

    async def peek(self, task_id: int, *, extended: bool = False) -> Task:
        """A task, in any state. Raises NoSuchTask."""
        arguments = (task_id, {"extended": True}) if extended else (task_id,)
        request = requests.of_tube(self.name, "peek", *arguments, repeatable=True)
        return self._task(requests.one_task(await self.client.call(request)))

    async def list_tasks(
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
        values = await self.client.call(request)
        tasks = [self._task(row) for row in requests.one(values)]
        return Page(tasks, values[1] if len(values) > 1 else None)

    async def statistics(self) -> dict[str, Any]:
        """Numbers of tasks by state and of calls by kind."""
        return await self.client.statistics(self.name)

    async def truncate(self) -> None:
        """Removes all tasks."""
        await self.client.call(requests.of_tube(self.name, "truncate"))

    async def drop(self) -> None:
        """Removes the tube and its tasks. Raises TubeInUse while tasks are taken or calls wait."""
        await self.client.call(requests.of_tube(self.name, "drop"))

    async def _one(self, method: str, task_id: int, *, owned: bool = False) -> Task:
        request = requests.of_tube(self.name, method, task_id, owned=owned)
        return self._task(requests.one_task(await self.client.call(request)))

    async def _many(self, method: str, ids: Iterable[int], *, owned: bool = False) -> list[Task]:
        return self._tasks(await self.client.call(requests.of_tube(self.name, method, [*ids], owned=owned)))

    def _task(self, row: Any) -> Task:
        task: Task = Task.read(self, row)
        return task

    def _tasks(self, values: Sequence[Any]) -> list[Task]:
        return [self._task(row) for row in requests.many_tasks(values)]


def _refusal(error: TarantoolDatabaseError) -> LycosaError:
    trace = getattr(error.error, "trace", None) or ()
    fields = next((frame.fields for frame in trace if getattr(frame, "fields", None)), None) or {}
    return server_error(int(error.code), str(error.message), fields.get("name"))
