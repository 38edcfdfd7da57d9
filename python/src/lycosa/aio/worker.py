"""The asyncio worker: takes tasks, runs a coroutine for each, and settles them by how the coroutine ends.

The rules and invariants are those of the blocking worker (`lycosa.worker`). What asyncio adds: a coroutine whose task is
lost, whose time is over or whose worker is aborted is cancelled before its task is settled, so no task runs twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from ..errors import LycosaError, NoSuchTask, NotTaken, TouchUnsupported
from ..tasks import Span, seconds
from ..work import (
    MIN_WAIT,
    PROBE,
    RETRY_PAUSE,
    SETTLE_LIMIT,
    Event,
    Job,
    Outcome,
    Retries,
    Retry,
    Settings,
    Summary,
    Verdict,
    log,
)
from .client import Task, Tube

#: Seconds between two looks at the session of a task without deadlines.
_SESSION_PAUSE = 1.0


class Worker:
    """Runs a coroutine for each task of a tube. See the module."""

    def __init__(
        self,
        tube: Tube,
        handler: Callable[[Job[Task]], Awaitable[Any]],
        *,
        jobs: int = 1,
        max_attempts: int = 10,
        retry_delay: Span = 1.0,
        max_retry_delay: Span = 300.0,
        touch_interval: Span = 10.0,
        timeout: Span | None = None,
        until_empty: Span | None = None,
        handle_signals: bool = True,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        """A worker that has not begun yet.

        `jobs` coroutines run at a time, each for at most `timeout`. A task that failed waits for `retry_delay`, doubled at
        each attempt up to `max_retry_delay` (ttl types; in others it is ready at once). With `until_empty` the worker ends
        when no task has come for that long, none is running and none that it has released waits for its next attempt.
        `handle_signals` makes SIGTERM and SIGINT stop a worker whose loop runs in the main thread. `on_event` is called
        for all that happens and must not block.
        """
        self.tube = tube
        self._handler = handler
        self._settings = Settings.of(
            jobs, max_attempts, retry_delay, max_retry_delay, touch_interval, until_empty, handle_signals, on_event
        )
        self._timeout = None if timeout is None else seconds(timeout)
        self._finish = asyncio.Event()
        self._abort = asyncio.Event()
        self._running = 0
        self._retries = Retries()
        self._summary = Summary()
        self._last_task = 0.0

    def finish(self) -> None:
        """Takes no more tasks; coroutines that run end, and their tasks are settled. From the loop's thread."""
        self._finish.set()

    def abort(self) -> None:
        """Takes no more tasks, cancels the coroutines that run and gives their tasks back: for these it was no attempt."""
        self._finish.set()
        self._abort.set()

    @property
    def stopping(self) -> bool:
        """Whether the worker was told to stop, by a call or a signal."""
        return self._finish.is_set()

    async def run(self) -> Summary:
        """Works until it is stopped, or until the tube is empty if `until_empty` says so.

        Raises what no new attempt mends: there is no such tube, the user may not take from it. Coroutines that run end
        before. A worker that is cancelled cancels its coroutines and gives their tasks back.
        """
        self._last_task = time.monotonic()
        async with self._signals():
            loops = [asyncio.ensure_future(self._loop()) for _ in range(self._settings.jobs)]
            try:
                ended = await asyncio.shield(asyncio.gather(*loops, return_exceptions=True))
            except asyncio.CancelledError:
                self.abort()
                await asyncio.gather(*loops, return_exceptions=True)
                raise
        for failure in ended:
            if isinstance(failure, BaseException):
                raise failure
        return self._summary

    async def _loop(self) -> None:
        try:
            while not self._finish.is_set() and not self._is_done():
                await self._take_and_run()
        except BaseException:
            self._finish.set()
            raise

    async def _take_and_run(self) -> None:
        began = time.monotonic()
        taking = asyncio.ensure_future(self.tube.take(self._settings.wait(), extended=True))
        await self._until(taking, self._finish)
        try:
            # A take that is given up gives its task back, should one have come after all.
            task = await taking
        except asyncio.CancelledError:
            if not self._finish.is_set():
                raise
            return
        except LycosaError as error:
            if not error.passes:
                raise
            if not self._finish.is_set():
                self._settings.tell(Event(Outcome.TROUBLE, error=error))
                await self._pause(RETRY_PAUSE)
            return
        if task is not None:
            await self._run(task)
            return
        await self._ask_for_delays(began)
        self._retries.took_nothing(began)
        if time.monotonic() - began < MIN_WAIT:
            # Without a wait at the server there is one here.
            await self._pause(MIN_WAIT)

    async def _ask_for_delays(self, began: float) -> None:
        if self._settings.until_empty is None:
            return
        for task in self._retries.ended_by(began):
            with contextlib.suppress(LycosaError):
                state = (await self.tube.peek(task)).state
                self._retries.still_waits(task, state, time.monotonic())

    def _is_done(self) -> bool:
        until_empty = self._settings.until_empty
        if until_empty is None:
            return False
        now = time.monotonic()
        is_quiet = self._running == 0 and now - self._last_task >= until_empty
        return is_quiet and self._retries.are_over()

    async def _run(self, task: Task) -> None:
        self._running += 1
        job = Job(task, self._retries.attempt(task), self.tube.client.session_changes)
        self._retries.begin(job)
        try:
            given_up = self._settings.given_up(job)
            verdict = self._settings.verdict(job.attempt, given_up) if given_up else await self._execute(job)
            await self._settle(job, verdict)
        finally:
            self._retries.end(job)
            self._running -= 1
            self._last_task = time.monotonic()

    async def _execute(self, job: Job[Task]) -> Verdict:
        """Runs the handler and keeps the task meanwhile."""
        running = asyncio.ensure_future(self._handler(job))
        keeping = asyncio.ensure_future(self._keep(job))
        aborting = asyncio.ensure_future(self._abort.wait())
        watchers = (keeping, aborting)
        try:
            await asyncio.wait({running, *watchers}, timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                running.cancel()
                # Until it has ended the task is not settled: no other worker may run it beside this one.
                await asyncio.wait({running})
                failure = _failure_of(running)
                if failure is not None:
                    if keeping.done():
                        job._is_lost = True
                        return Verdict(Outcome.LOST)
                    if aborting.done():
                        return Verdict(Outcome.GIVEN_BACK)
                    failure = Retry(f"timed out after {self._timeout:g} s")
                return self._settings.verdict(job.attempt, failure)
        finally:
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)
        failure = _failure_of(running)
        if failure is not None:
            log.debug("task %s failed", job.id, exc_info=failure)
        return self._settings.verdict(job.attempt, failure)

    async def _keep(self, job: Job[Task]) -> None:
        """Touches a task when it is time. Ends when the task is lost."""
        touches = self._settings.touches(job.task)
        touched = time.monotonic()
        pause, period = touches if touches is not None else (_SESSION_PAUSE, _SESSION_PAUSE)
        while True:
            await asyncio.sleep(pause)
            now = time.monotonic()
            try:
                if touches is None:
                    await self.tube.client.check_session()
                else:
                    await self.tube.touch(job.id, now - touched if job.task.info is not None else period)
            except (NotTaken, NoSuchTask):
                return
            except TouchUnsupported:
                touches, pause = None, _SESSION_PAUSE
            except LycosaError as error:
                log.warning("task %s could not be kept, the worker tries again: %s", job.id, error)
                pause = min(RETRY_PAUSE, period)
            else:
                touched, pause = now, period
            if job._session_changes != self.tube.client.session_changes:
                return

    async def _settle(self, job: Job[Task], verdict: Verdict) -> None:
        if verdict.outcome is Outcome.LOST:
            self._count(Event(Outcome.LOST, job))
            return
        if verdict.outcome is Outcome.RELEASED:
            # Before the server is told: another job of this worker may take the task at once.
            self._retries.remember(job, verdict.delay or 0.0, time.monotonic())
        try:
            await self._tell(job, verdict)
        except LycosaError as error:
            self._retries.forget(job)
            job._is_lost = True
            is_lost = isinstance(error, NotTaken)
            self._count(Event(Outcome.LOST if is_lost else Outcome.UNSETTLED, job, error=error))
            return
        if verdict.outcome is Outcome.RELEASED:
            self._retries.postpone(job, verdict.delay or 0.0, time.monotonic())
        self._count(Event(verdict.outcome, job, verdict.reason, verdict.delay))

    async def _tell(self, job: Job[Task], verdict: Verdict) -> None:
        """Tells the server, and again if the connection breaks over it or the server takes no writes for a time."""
        began = time.monotonic()
        attempt = 0
        while True:
            attempt += 1
            try:
                await self._tell_once(job, verdict)
                return
            except NotTaken:
                if attempt > 1 and verdict.outcome is Outcome.DONE and await self._is_gone(job) and not job._is_superseded:
                    # An attempt before this one has done it, and its answer was lost.
                    return
                raise
            except LycosaError as error:
                is_late = time.monotonic() - began > SETTLE_LIMIT
                if not error.passes or is_late or verdict.outcome is Outcome.GIVEN_BACK or self._abort.is_set():
                    raise
            await self._wait(self._abort, RETRY_PAUSE)

    async def _tell_once(self, job: Job[Task], verdict: Verdict) -> None:
        tube = self.tube
        if verdict.outcome is Outcome.DONE:
            await tube.ack(job.id)
        elif verdict.outcome is Outcome.RELEASED:
            has_deadlines = job.task.info is None or job.task.info.created is not None
            await tube.release(job.id, verdict.delay if has_deadlines else None, verdict.reason)
        elif verdict.outcome is Outcome.BURIED:
            # The server lets anybody bury a task; a touch asks whether this session holds it.
            with contextlib.suppress(TouchUnsupported):
                await tube.touch(job.id, PROBE)
            await tube.bury(job.id, verdict.reason)
        else:
            await tube.release(job.id, attempted=False)

    async def _is_gone(self, job: Job[Task]) -> bool:
        try:
            await self.tube.peek(job.id)
        except NoSuchTask:
            return True
        except LycosaError:
            return False
        return False

    def _count(self, event: Event) -> None:
        self._summary.count(event.outcome)
        self._settings.tell(event)

    async def _pause(self, pause: float) -> None:
        await self._wait(self._finish, pause)

    @staticmethod
    async def _wait(event: asyncio.Event, pause: float) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(event.wait(), pause)

    @staticmethod
    async def _until(future: asyncio.Future[Any], event: asyncio.Event) -> None:
        """Waits for a future, and cancels it when the event comes first."""
        waiting = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({future, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            if not future.done():
                future.cancel()

    @contextlib.asynccontextmanager
    async def _signals(self) -> AsyncIterator[None]:
        """The first SIGTERM or SIGINT lets the worker finish, the second aborts it."""
        if not self._settings.handle_signals or threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop() -> None:
            if self._finish.is_set():
                self.abort()
            self.finish()

        loop = asyncio.get_running_loop()
        numbers = (signal.SIGTERM, signal.SIGINT)
        before = [signal.getsignal(number) for number in numbers]
        for number in numbers:
            loop.add_signal_handler(number, stop)
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                loop.remove_signal_handler(number)
                signal.signal(number, handler)


def _failure_of(running: asyncio.Future[Any]) -> BaseException | None:
    if running.cancelled():
        return Retry("the handler was cancelled")
    return running.exception()
