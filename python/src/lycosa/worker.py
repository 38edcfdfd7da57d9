"""The blocking worker: takes tasks, runs a function for each in a thread, and settles them by how the function ends.

A function that returns has its task acknowledged. One that raises has its task released, with a delay that doubles at
each attempt, and buried after `max_attempts`; `Bury` buries at once, and `Retry` names a delay.

Invariants:
- A running task is touched at a third of its ttr at the latest. Each touch adds the time since the one before, so the
  whole ttr is left from there: a short ttr notices a dead worker and not a slow function.
- A task is settled by one party: the thread that ran its function, or the abort.
- Counters count tasks that the server says are settled.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from .client import Task, Tube
from .errors import LycosaError, NoSuchTask, NotTaken, TouchUnsupported
from .tasks import Span
from .work import MIN_WAIT, PROBE, RETRY_PAUSE, SETTLE_LIMIT, Event, Job, Outcome, Retries, Settings, Summary, Verdict, log

#: Seconds between two looks of the keeper at a session without deadlines.
_KEEPER_PAUSE = 1.0


class _Running:
    """A job in progress."""

    def __init__(self, job: Job[Task], touches: tuple[float, float] | None, now: float) -> None:
        self.job = job
        self.touched = now
        self.period = touches[1] if touches is not None else _KEEPER_PAUSE
        self.next_touch = now + touches[0] if touches is not None else None
        self._lock = threading.Lock()
        self._is_claimed = False

    def claim(self) -> bool:
        """Whether the caller is the one who settles the task."""
        with self._lock:
            is_first = not self._is_claimed
            self._is_claimed = True
            return is_first


class Worker:
    """Runs a function for each task of a tube, in threads. See the module."""

    def __init__(
        self,
        tube: Tube,
        handler: Callable[[Job[Task]], Any],
        *,
        jobs: int = 1,
        max_attempts: int = 10,
        retry_delay: Span = 1.0,
        max_retry_delay: Span = 300.0,
        touch_interval: Span = 10.0,
        until_empty: Span | None = None,
        handle_signals: bool = True,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        """A worker that has not begun yet.

        `jobs` functions run at a time. A task that failed waits for `retry_delay`, doubled at each attempt up to
        `max_retry_delay` (ttl types; in others it is ready at once). With `until_empty` the worker ends when no task has
        come for that long, none is running and none that it has released waits for its next attempt. `handle_signals`
        makes SIGTERM and SIGINT stop a worker that runs in the main thread. `on_event` is called from any thread.
        """
        self.tube = tube
        self._handler = handler
        self._settings = Settings.of(
            jobs, max_attempts, retry_delay, max_retry_delay, touch_interval, until_empty, handle_signals, on_event
        )
        self._finish = threading.Event()
        self._abort = threading.Event()
        self._condition = threading.Condition()
        self._running: dict[int, _Running] = {}
        self._retries = Retries()
        self._summary = Summary()
        self._last_task = 0.0
        self._failure: BaseException | None = None
        self._is_over = False

    def finish(self) -> None:
        """Takes no more tasks; functions that run end, and their tasks are settled. From any thread or signal handler."""
        self._finish.set()

    def abort(self) -> None:
        """Takes no more tasks, and gives back those that run, for which this is no attempt.

        Python cannot end a thread: the functions go on as daemon threads, so the program should end soon.
        """
        self._finish.set()
        self._abort.set()

    @property
    def stopping(self) -> bool:
        """Whether the worker was told to stop, by a call or a signal."""
        return self._finish.is_set()

    def run(self) -> Summary:
        """Works until it is stopped, or until the tube is empty if `until_empty` says so.

        Raises what no new attempt mends: there is no such tube, the user may not take from it. Functions that run end
        before.
        """
        self._last_task = time.monotonic()
        threads = [
            threading.Thread(target=self._loop, name=f"lycosa {self.tube.name} {number}", daemon=True)
            for number in range(self._settings.jobs)
        ]
        keeper = threading.Thread(target=self._keep, name=f"lycosa {self.tube.name} keeper", daemon=True)
        with self._signals():
            for thread in [keeper, *threads]:
                thread.start()
            # A wait without a limit would keep the main thread from running its signal handlers on some systems.
            while any(thread.is_alive() for thread in threads) and not self._abort.is_set():
                for thread in threads:
                    thread.join(0.05)
            if self._abort.is_set():
                self._give_back()
            with self._condition:
                self._is_over = True
                self._condition.notify_all()
            keeper.join(1.0)
        if self._failure is not None:
            raise self._failure
        return self._summary

    def _loop(self) -> None:
        try:
            while not self._finish.is_set() and not self._is_done():
                self._take_and_run()
        except BaseException as failure:
            self._failure = self._failure or failure
            self._finish.set()

    def _take_and_run(self) -> None:
        wait = self._settings.wait()
        began = time.monotonic()
        try:
            task = self.tube.take(wait, extended=True)
        except LycosaError as error:
            if not error.passes:
                raise
            if not self._finish.is_set():
                self._settings.tell(Event(Outcome.TROUBLE, error=error))
                self._finish.wait(RETRY_PAUSE)
            return
        if task is not None:
            self._run(task)
            return
        self._ask_for_delays(began)
        with self._condition:
            self._retries.took_nothing(began)
        if time.monotonic() - began < MIN_WAIT:
            # Without a wait at the server there is one here.
            self._finish.wait(MIN_WAIT)

    def _ask_for_delays(self, began: float) -> None:
        if self._settings.until_empty is None:
            return
        with self._condition:
            ended = self._retries.ended_by(began)
        for task in ended:
            with contextlib.suppress(LycosaError):
                state = self.tube.peek(task).state
                with self._condition:
                    self._retries.still_waits(task, state, time.monotonic())

    def _is_done(self) -> bool:
        until_empty = self._settings.until_empty
        if until_empty is None:
            return False
        now = time.monotonic()
        with self._condition:
            is_quiet = not self._running and now - self._last_task >= until_empty
            return is_quiet and self._retries.are_over()

    def _run(self, task: Task) -> None:
        now = time.monotonic()
        with self._condition:
            self._last_task = now
            job = Job(task, self._retries.attempt(task), self.tube.client.session_changes)
            self._retries.begin(job)
            running = _Running(job, self._settings.touches(task), now)
            self._running[id(running)] = running
            self._condition.notify_all()
        try:
            failure: BaseException | None = self._settings.given_up(job)
            if failure is None:
                failure = self._call(job)
            if not running.claim():
                return
            if failure is not None and not isinstance(failure, Exception):
                # SystemExit and its like end the worker; the task was not at fault.
                self._settle(running, Verdict(Outcome.GIVEN_BACK))
                raise failure
            self._settle(running, self._settings.verdict(job.attempt, failure))
        finally:
            with self._condition:
                self._retries.end(job)
                del self._running[id(running)]
                self._last_task = time.monotonic()

    def _call(self, job: Job[Task]) -> BaseException | None:
        try:
            self._handler(job)
        except BaseException as failure:
            if isinstance(failure, Exception):
                log.debug("task %s failed", job.id, exc_info=failure)
            return failure
        return None

    def _settle(self, running: _Running, verdict: Verdict) -> None:
        job = running.job
        if job.lost:
            self._count(Event(Outcome.LOST, job))
            return
        if verdict.outcome is Outcome.RELEASED:
            # Before the server is told: another job of this worker may take the task at once.
            with self._condition:
                self._retries.remember(job, verdict.delay or 0.0, time.monotonic())
        try:
            self._tell(job, verdict)
        except LycosaError as error:
            with self._condition:
                self._retries.forget(job)
            is_lost = isinstance(error, NotTaken)
            job._is_lost = True
            self._count(Event(Outcome.LOST if is_lost else Outcome.UNSETTLED, job, error=error))
            return
        if verdict.outcome is Outcome.RELEASED:
            with self._condition:
                self._retries.postpone(job, verdict.delay or 0.0, time.monotonic())
        self._count(Event(verdict.outcome, job, verdict.reason, verdict.delay))

    def _tell(self, job: Job[Task], verdict: Verdict) -> None:
        """Tells the server, and again if the connection breaks over it or the server takes no writes for a time."""
        began = time.monotonic()
        attempt = 0
        while True:
            attempt += 1
            try:
                self._tell_once(job, verdict)
                return
            except NotTaken:
                if attempt > 1 and verdict.outcome is Outcome.DONE and self._is_gone(job) and not job._is_superseded:
                    # An attempt before this one has done it, and its answer was lost.
                    return
                raise
            except LycosaError as error:
                is_late = time.monotonic() - began > SETTLE_LIMIT
                if not error.passes or is_late or verdict.outcome is Outcome.GIVEN_BACK:
                    raise
            if self._abort.wait(RETRY_PAUSE):
                raise LycosaError("the worker was aborted before the server could be told")

    def _tell_once(self, job: Job[Task], verdict: Verdict) -> None:
        tube = self.tube
        if verdict.outcome is Outcome.DONE:
            tube.ack(job.id)
        elif verdict.outcome is Outcome.RELEASED:
            has_deadlines = job.task.info is None or job.task.info.created is not None
            tube.release(job.id, verdict.delay if has_deadlines else None, verdict.reason)
        elif verdict.outcome is Outcome.BURIED:
            # The server lets anybody bury a task; a touch asks whether this session holds it.
            with contextlib.suppress(TouchUnsupported):
                tube.touch(job.id, PROBE)
            tube.bury(job.id, verdict.reason)
        else:
            tube.release(job.id, attempted=False)

    def _is_gone(self, job: Job[Task]) -> bool:
        try:
            self.tube.peek(job.id)
        except NoSuchTask:
            return True
        except LycosaError:
            return False
        return False

    def _count(self, event: Event) -> None:
        with self._condition:
            self._summary.count(event.outcome)
        self._settings.tell(event)

    def _give_back(self) -> None:
        with self._condition:
            running = list(self._running.values())
        for each in running:
            if each.claim():
                self._settle(each, Verdict(Outcome.GIVEN_BACK))
                each.job._is_lost = True

    def _keep(self) -> None:
        """Touches running tasks when it is time, and notices sessions that are gone."""
        while True:
            with self._condition:
                if self._is_over:
                    return
                now = time.monotonic()
                times = [each.next_touch for each in self._running.values() if each.next_touch is not None]
                pause = min([_KEEPER_PAUSE, *(at - now for at in times)])
                if pause > 0:
                    self._condition.wait(pause)
                running = list(self._running.values())
            now = time.monotonic()
            for each in running:
                if each.job._session_changes != self.tube.client.session_changes:
                    each.job._is_lost = True
                elif each.next_touch is not None and each.next_touch <= now and not each.job.lost:
                    self._touch(each)

    def _touch(self, running: _Running) -> None:
        now = time.monotonic()
        is_known = running.job.task.info is not None
        try:
            self.tube.touch(running.job.id, now - running.touched if is_known else running.period)
        except (NotTaken, NoSuchTask):
            running.job._is_lost = True
        except TouchUnsupported:
            running.next_touch = None
        except LycosaError as error:
            log.warning("task %s could not be touched, the worker tries again: %s", running.job.id, error)
            running.next_touch = time.monotonic() + min(RETRY_PAUSE, running.period)
        else:
            running.touched, running.next_touch = now, now + running.period

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """The first SIGTERM or SIGINT lets the worker finish, the second aborts it."""
        if not self._settings.handle_signals or threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, _: Any) -> None:
            if self._finish.is_set():
                self.abort()
            self.finish()

        before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
