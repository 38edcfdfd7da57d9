"""What workers of both kinds share: their settings, what a handler raises, what becomes of a task."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .tasks import Span, State, TaskFields, seconds

log = logging.getLogger("lycosa.worker")

#: Seconds of one take. A worker that is told to stop ends this much later at most.
TAKE_SECONDS = 1.0
#: Seconds between two takes that found nothing, at least.
MIN_WAIT = 0.1
#: Seconds after a request that failed for a reason that passes.
RETRY_PAUSE = 1.0
#: Seconds for which a task is settled anew while no server takes the word.
SETTLE_LIMIT = 600.0
#: Seconds until the first touch of a task whose ttr is not known.
FIRST_TOUCH = 0.25
#: Seconds between two touches, at least.
MIN_TOUCH = 0.01
#: The span of a touch that only asks whether the task is held.
PROBE = 1e-6
#: Released tasks that are remembered; beyond it those whose delay is over are forgotten.
MAX_RETRIES = 100_000


class Retry(Exception):
    """A handler raises it to have its task tried again: after `delay`, or after the worker's own growing delay."""

    def __init__(self, reason: str = "", delay: Span | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.delay = delay


class Bury(Exception):
    """A handler raises it to have its task buried: no attempt would go better."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Outcome(enum.Enum):
    """What became of a task, or of a request."""

    #: The task was acknowledged.
    DONE = "done"
    #: The attempt failed, and the task was released.
    RELEASED = "released"
    #: The attempt failed, and the task was buried.
    BURIED = "buried"
    #: The worker was told to abort; the task was given back, and this was no attempt.
    GIVEN_BACK = "given_back"
    #: The session does not hold the task any more. Another worker may run it.
    LOST = "lost"
    #: The handler has ended, but the server could not be told.
    UNSETTLED = "unsettled"
    #: A take failed for a reason that passes; the worker goes on.
    TROUBLE = "trouble"


Held = TypeVar("Held", bound=TaskFields[Any])


class Job(Generic[Held]):
    """A task in the hands of a handler. The worker settles it: a handler that does so itself makes it lost."""

    def __init__(self, task: Held, attempt: int, session_changes: int) -> None:
        self.task = task
        #: Which attempt this is, from 1.
        self.attempt = attempt
        self._session_changes = session_changes
        self._is_lost = False
        # The worker has taken the task again since: an acknowledgement of this job, with its answer lost, has not ended the task.
        self._is_superseded = False

    @property
    def id(self) -> int:
        """The task's number in the tube."""
        return self.task.id

    @property
    def data(self) -> Any:
        """The task's payload."""
        return self.task.data

    @property
    def lost(self) -> bool:
        """Whether the task is not this worker's any more, so that the rest of the work is in vain."""
        return self._is_lost

    def __repr__(self) -> str:
        return f"<Job {self.task!r} attempt {self.attempt}>"


@dataclass(frozen=True)
class Event:
    """Something that a worker tells of its work."""

    outcome: Outcome
    #: None for trouble with a take.
    job: Job[Any] | None = None
    #: Why the attempt failed.
    reason: str | None = None
    #: Seconds until a released task is ready again.
    delay: float | None = None
    #: What the server or the connection said.
    error: Exception | None = None


@dataclass
class Summary:
    """What a worker has done: tasks that the server says are settled."""

    done: int = 0
    #: Attempts that failed and whose tasks were released or buried.
    failed: int = 0
    #: Tasks that were buried; they count as failed, too.
    buried: int = 0
    #: Tasks that the session did not hold any more, or that could not be settled.
    lost: int = 0
    #: Tasks that were given back because the worker was told to abort.
    given_back: int = 0

    def count(self, outcome: Outcome) -> None:
        """Counts what became of a task."""
        if outcome is Outcome.DONE:
            self.done += 1
        elif outcome is Outcome.GIVEN_BACK:
            self.given_back += 1
        elif outcome in (Outcome.LOST, Outcome.UNSETTLED):
            self.lost += 1
        else:
            self.failed += 1
            self.buried += outcome is Outcome.BURIED


@dataclass(frozen=True)
class Settings:
    """The rules of a worker."""

    jobs: int
    max_attempts: int
    retry_delay: float
    max_retry_delay: float
    touch_interval: float
    until_empty: float | None
    handle_signals: bool
    observer: Callable[[Event], None] | None

    @classmethod
    def of(
        cls,
        jobs: int,
        max_attempts: int,
        retry_delay: Span,
        max_retry_delay: Span,
        touch_interval: Span,
        until_empty: Span | None,
        handle_signals: bool,
        observer: Callable[[Event], None] | None,
    ) -> Settings:
        """Checks what a program has given."""
        if jobs < 1:
            raise ValueError(f"jobs = {jobs}: a worker needs at least one")
        if max_attempts < 1:
            raise ValueError(f"max_attempts = {max_attempts}: a task gets at least one")
        return cls(
            jobs,
            max_attempts,
            max(seconds(retry_delay), 0.0),
            max(seconds(max_retry_delay), 0.0),
            max(seconds(touch_interval), MIN_TOUCH),
            None if until_empty is None else max(seconds(until_empty), 0.0),
            handle_signals,
            observer,
        )

    def wait(self) -> float:
        """Seconds of one take."""
        return TAKE_SECONDS if self.until_empty is None else min(self.until_empty, TAKE_SECONDS)

    def verdict(self, attempt: int, failure: BaseException | None) -> Verdict:
        """What becomes of a task whose handler has ended."""
        if failure is None:
            return Verdict(Outcome.DONE)
        reason = reason_of(failure)
        if isinstance(failure, Bury) or attempt >= self.max_attempts:
            return Verdict(Outcome.BURIED, reason)
        if isinstance(failure, Retry) and failure.delay is not None:
            return Verdict(Outcome.RELEASED, reason, max(seconds(failure.delay), 0.0))
        delay = min(self.retry_delay * 2.0 ** min(attempt - 1, 30), self.max_retry_delay)
        return Verdict(Outcome.RELEASED, reason, delay)

    def given_up(self, job: Job[Any]) -> Bury | None:
        """Why a task is not tried any more: its last attempt began, and no worker said how it ended."""
        if job.attempt <= self.max_attempts:
            return None
        reason = (
            f"attempt {job.attempt} of at most {self.max_attempts}: an attempt before it ended without a result, as the "
            "worker died or lost the task"
        )
        if job.task.info is not None and job.task.info.last_error is not None:
            reason += f"; the last reason: {job.task.info.last_error}"
        return Bury(reason)

    def touches(self, task: TaskFields[Any]) -> tuple[float, float] | None:
        """Seconds until the first touch of a task and from each to the next; None if nothing takes the task away."""
        if task.info is None:
            return min(FIRST_TOUCH, self.touch_interval), self.touch_interval
        if task.info.ttr is None:
            return None
        third = min(max(task.info.ttr / 3, MIN_TOUCH), self.touch_interval)
        return third, third

    def tell(self, event: Event) -> None:
        """Logs an event and hands it to the observer."""
        if event.outcome in (Outcome.RELEASED, Outcome.BURIED):
            then = f"again in {event.delay:g} s" if event.delay is not None else "buried"
            attempt = event.job.attempt if event.job is not None else 0
            log.warning("task %s, attempt %s failed, %s: %s", event.job and event.job.id, attempt, then, event.reason)
        elif event.outcome is Outcome.LOST:
            log.warning("task %s is lost: this worker does not hold it any more", event.job and event.job.id)
        elif event.outcome is Outcome.UNSETTLED:
            log.error("task %s could not be settled: %s", event.job and event.job.id, event.error)
        elif event.outcome is Outcome.TROUBLE:
            log.warning("a take failed, the worker tries again: %s", event.error)
        if self.observer is not None:
            self.observer(event)


@dataclass(frozen=True)
class Verdict:
    """What is to become of a task."""

    outcome: Outcome
    reason: str | None = None
    delay: float | None = None


class Retries:
    """Tasks that a worker has released after a failure: their attempts, for servers that do not count, and when they
    come back."""

    def __init__(self) -> None:
        self._tasks: dict[int, tuple[int, float]] = {}
        self._vain: float | None = None
        self._ready: set[int] = set()
        self._jobs: dict[int, list[Job[Any]]] = {}

    def attempt(self, task: TaskFields[Any]) -> int:
        """Which attempt a task that was just taken is at."""
        known, _ = self._tasks.pop(task.id, (0, 0.0))
        self._ready.discard(task.id)
        counted = task.info.attempts if task.info is not None else 0
        return counted if counted > 0 else known + 1

    def begin(self, job: Job[Any]) -> None:
        """Notes a job that was just taken. Earlier ones of the same task, which are being settled, are superseded."""
        jobs = self._jobs.setdefault(job.id, [])
        for earlier in jobs:
            earlier._is_superseded = True
        jobs.append(job)

    def end(self, job: Job[Any]) -> None:
        """Forgets a job that is settled, or not to be settled."""
        jobs = self._jobs[job.id]
        jobs.remove(job)
        if not jobs:
            del self._jobs[job.id]

    def remember(self, job: Job[Any], delay: float, now: float) -> None:
        """Notes a task that is about to be released."""
        if len(self._tasks) >= MAX_RETRIES:
            self._tasks = {task: entry for task, entry in self._tasks.items() if entry[1] > now}
        if len(self._tasks) < MAX_RETRIES:
            self._tasks[job.id] = (job.attempt, now + delay)

    def postpone(self, job: Job[Any], delay: float, now: float) -> None:
        """Notes that the server has heard of a release by now: the delay began no later."""
        attempts, _ = self._tasks.get(job.id, (0, 0.0))
        if attempts == job.attempt:
            self._tasks[job.id] = (attempts, now + delay)

    def forget(self, job: Job[Any]) -> None:
        """Takes back what `remember` has noted."""
        self._tasks.pop(job.id, None)

    def ended_by(self, moment: float) -> list[int]:
        """Tasks whose delay had ended by then, by the clock of this process."""
        return [task for task, (_, due) in self._tasks.items() if due <= moment]

    def still_waits(self, task: int, state: State, now: float) -> None:
        """Notes what the server says of such a task. The server decides when a delay is over, by its own clock: a task that is
        still delayed comes back, and one that has just become ready gets one more take. A task that stays ready is not for
        this worker: its tube is paused, say."""
        is_new = state is State.READY and task not in self._ready
        if state is State.READY:
            self._ready.add(task)
        if task in self._tasks and (state is State.DELAYED or is_new):
            self._tasks[task] = (self._tasks[task][0], now)

    def took_nothing(self, began: float) -> None:
        """Notes a take that began then and got no task: those whose delay had ended are with other workers."""
        self._vain = max(began, self._vain or began)

    def are_over(self) -> bool:
        """Whether a take has got nothing, and no task of this worker was delayed when that take began."""
        vain = self._vain
        return vain is not None and all(due <= vain for _, due in self._tasks.values())


def reason_of(failure: BaseException) -> str:
    """The text that is kept with a task."""
    if isinstance(failure, (Retry, Bury)):
        cause = failure.__cause__
        return failure.reason or (reason_of(cause) if cause is not None else type(failure).__name__)
    text = str(failure)
    return f"{type(failure).__name__}: {text}" if text else type(failure).__name__
