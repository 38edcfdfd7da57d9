"""The package `lycosa`: workers, the blocking one and the one for asyncio by the same rules."""

import asyncio
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

import lycosa
from lycosa import Bury, Outcome, Retry, State, aio
from lycosa.requests import Request
from lycosa.work import Job, Retries
from proxy import Proxy


class Blocking:
    """Runs the blocking worker; a handler is a function, of which this kind may block."""

    name = "blocking"

    def __init__(self, address):
        self.address = address
        self.worker = None

    def run(self, tube, handler, **options):
        with lycosa.Client(self.address, connect_timeout=30) as client:
            self.worker = lycosa.Worker(client.tube(tube), handler, **options)
            return self.worker.run()

    def finish(self):
        self.worker.finish()


class Asyncio:
    """Runs the asyncio worker with the same handlers: each in a thread, so that the loop goes on."""

    name = "asyncio"

    def __init__(self, address):
        self.address = address
        self.worker = self.loop = None

    def run(self, tube, handler, **options):
        async def work():
            self.loop = asyncio.get_running_loop()
            async with aio.Client(self.address, connect_timeout=30) as client:

                async def handle(job):
                    await asyncio.to_thread(handler, job)

                self.worker = aio.Worker(client.tube(tube), handle, **options)
                return await self.worker.run()

        return asyncio.run(work())

    def finish(self):
        self.loop.call_soon_threadsafe(self.worker.finish)


@pytest.fixture(params=[Blocking, Asyncio], ids=lambda kind: kind.name)
def kind(request):
    return request.param


@pytest.fixture
def client(server):
    with lycosa.Client(f"{server.host}:{server.port}", connect_timeout=30) as client:
        yield client


@pytest.fixture
def runner(kind, server):
    return kind(f"{server.host}:{server.port}")


def start(function, *arguments, **options):
    """Runs a function in a thread; what it returns or raises comes out of `result`."""
    results = []

    def run():
        try:
            results.append(function(*arguments, **options))
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def result():
        thread.join(60)
        assert results, "it did not end"
        if isinstance(results[0], BaseException):
            raise results[0]
        return results[0]

    return result


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "what the test waits for did not come"
        time.sleep(0.01)


def test_what_becomes_of_tasks(client, runner):
    tube = client.create_tube("mail", "fifottl")
    for data in ("done", "fails", "bad", "busy"):
        tube.put(data)
    events = []

    def handler(job):
        if job.data == "fails":
            raise ValueError("no")
        if job.data == "bad":
            raise Bury("never")
        if job.data == "busy" and job.attempt == 1:
            raise Retry("not now", delay=0.01)

    summary = runner.run("mail", handler, max_attempts=3, retry_delay=0.01, until_empty=0.2, on_event=events.append)
    assert summary == lycosa.Summary(done=2, failed=5, buried=2)
    of_failing = [(event.outcome, event.job.attempt, event.delay) for event in events if event.job.data == "fails"]
    assert of_failing == [
        (Outcome.RELEASED, 1, 0.01),
        (Outcome.RELEASED, 2, 0.02),
        (Outcome.BURIED, 3, None),
    ]
    buried = {task.data: task.info.last_error for task in tube.list_tasks(state=State.BURIED).tasks}
    assert buried == {"fails": "ValueError: no", "bad": "never"}


def test_delays_end_at_the_longest(client, runner):
    tube = client.create_tube("mail", "fifottl")
    tube.put(1)
    delays = []
    options = {"retry_delay": 0.01, "max_retry_delay": 0.03, "max_attempts": 5, "until_empty": 0.2}
    runner.run("mail", lambda job: 1 / 0, on_event=lambda event: delays.append(event.delay), **options)
    assert delays == [0.01, 0.02, 0.03, 0.03, None]


def test_jobs_run_at_the_same_time(client, runner):
    tube = client.create_tube("mail", "fifo")
    tube.put_many(range(4))
    meeting = threading.Barrier(4)
    summary = runner.run("mail", lambda job: meeting.wait(30), jobs=4, until_empty=0.2)
    assert summary.done == 4


def test_a_long_function_keeps_its_task(client, runner):
    """Its ttr is over before it ends."""
    tube = client.create_tube("mail", "fifottl")
    attempts = []

    def touches():
        return tube.statistics()["calls"]["touch"]

    def handler(job):
        attempts.append(job.attempt)
        wanted = touches() + 5
        # Each comes a third of the ttr after the one before.
        wait_for(lambda: touches() >= wanted)

    # Where the machine pauses for most of the ttr, the task is rightly taken away: then another one is tried.
    for _ in range(5):
        attempts.clear()
        tube.put(1, ttr=3)
        assert runner.run("mail", handler, jobs=2, until_empty=0.2).done == 1
        if attempts == [1]:
            break
    assert attempts == [1]


def test_a_task_that_was_taken_away_is_lost(client, runner):
    tube = client.create_tube("mail", "fifottl")
    tube.put(1, ttr=0.5)
    seen = []

    def handler(job):
        tube.delete(job.id)
        wait_for(lambda: job.lost or seen)
        seen.append(job)

    result = start(runner.run, "mail", handler, until_empty=0.2, handle_signals=False)
    if runner.name == "asyncio":
        # The coroutine was cancelled; its thread goes on until it is told.
        wait_for(lambda: runner.worker is not None and runner.worker._summary.lost == 1)
        seen.append(None)
    assert result() == lycosa.Summary(lost=1)


def test_a_task_that_kills_its_workers_is_buried(client, runner):
    tube = client.create_tube("mail", "fifottl")
    tube.put(1)
    for _ in range(3):
        task = tube.take(0, extended=True)
        task.release(reason="it crashed")
    ran = []
    summary = runner.run("mail", ran.append, max_attempts=3, until_empty=0.2)
    assert (summary, ran) == (lycosa.Summary(failed=1, buried=1), [])
    assert "attempt 4 of at most 3" in tube.peek(0, extended=True).info.last_error
    assert "it crashed" in tube.peek(0, extended=True).info.last_error


def test_a_worker_of_no_tube_ends_with_the_error(client, runner):
    with pytest.raises(lycosa.NoSuchTube):
        runner.run("nope", lambda job: None, jobs=3)


def test_an_exit_in_a_handler_ends_the_worker_and_gives_the_task_back(client, server):
    tube = client.create_tube("mail", "fifottl")
    tube.put(1)
    with pytest.raises(SystemExit):
        lycosa.Worker(tube, lambda job: sys.exit(3)).run()
    task = tube.take(0, extended=True)
    assert task.info.attempts == 1


def test_a_worker_finishes_what_is_in_hand(client, runner):
    tube = client.create_tube("mail", "fifottl")
    tube.put_many([1, 2])
    began, go_on = threading.Event(), threading.Event()

    def handler(job):
        began.set()
        go_on.wait(60)

    result = start(runner.run, "mail", handler, handle_signals=False)
    began.wait(60)
    runner.finish()
    go_on.set()
    assert result().done == 1
    assert tube.statistics()["tasks"]["ready"] == 1


def test_a_server_that_is_killed_is_waited_for(client, server, runner):
    tube = client.create_tube("mail", "fifottl")
    tube.put_many(range(10))
    done, held, lock = [], threading.Event(), threading.Lock()

    def handler(job):
        with lock:
            done.append(job.data)
        held.set()
        time.sleep(0.05)

    result = start(runner.run, "mail", handler, jobs=2, handle_signals=False)
    held.wait(60)
    server.kill()
    server.start()
    wait_for(lambda: client.tube("mail").statistics()["tasks"]["total"] == 0)
    runner.finish()
    summary = result()
    assert sorted(set(done)) == list(range(10))
    # A task whose session went with the server runs again, and is not counted twice.
    assert summary.done <= 10 and summary.failed == 0


def test_with_a_ttr_of_sessions_a_broken_connection_loses_nothing(start_server, kind):
    server = start_server(queue={"ttr": 60})
    proxy = Proxy(server.port)
    runner = kind(f"127.0.0.1:{proxy.port}")
    with lycosa.Client(f"{server.host}:{server.port}") as client:
        tube = client.create_tube("mail", "fifottl")
        tube.put_many(range(5))
        ran = []

        def handler(job):
            ran.append(job.data)
            proxy.cut()

        summary = runner.run("mail", handler, until_empty=0.5)
        assert (summary, ran) == (lycosa.Summary(done=5), list(range(5)))
    proxy.close()


PROGRAM = """
import asyncio, os, sys, threading, time
import lycosa
from lycosa import aio

def say(text):
    os.write(1, (text + "\\n").encode())

def tell_when_stopping(worker):
    while not worker.stopping:
        time.sleep(0.01)
    say("stopping")

def watched(worker):
    threading.Thread(target=tell_when_stopping, args=(worker,), daemon=True).start()
    return worker

def handler(job):
    say("began")
    while not os.path.exists(sys.argv[2]):
        time.sleep(0.05)

async def handle(job):
    say("began")
    while not os.path.exists(sys.argv[2]):
        await asyncio.sleep(0.05)

async def work():
    async with aio.Client() as client:
        return await watched(aio.Worker(client.tube("mail"), handle)).run()

if sys.argv[1] == "blocking":
    summary = watched(lycosa.Worker(lycosa.Client().tube("mail"), handler)).run()
else:
    summary = asyncio.run(work())
say(f"done {summary.done} given_back {summary.given_back}")
"""


@pytest.mark.parametrize("signals", [1, 2])
def test_signals(client, server, kind, tmp_path, signals):
    """The first SIGTERM waits for the function, the second gives its task back."""
    tube = client.create_tube("mail", "fifottl")
    tube.put(1)
    go_on = tmp_path / "go-on"
    environment = {**os.environ, "LYCOSA_ADDRESS": f"{server.host}:{server.port}"}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, kind.name, str(go_on)], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stdout.readline() == "began\n"
        process.send_signal(signal.SIGTERM)
        # Two signals that come at once are one to the system.
        assert process.stdout.readline() == "stopping\n"
        if signals == 2:
            process.send_signal(signal.SIGTERM)
            expected, state = "done 0 given_back 1\n", State.READY
        else:
            go_on.touch()
            expected, state = "done 1 given_back 0\n", None
        assert process.stdout.readline() == expected
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    if state is not None:
        task = tube.take(0, extended=True)
        assert task.info.attempts == 1, "what was given back was no attempt"
    else:
        assert tube.take(0) is None


def test_a_coroutine_that_takes_too_long_is_cancelled(server, client):
    tube = client.create_tube("mail", "fifottl")
    tube.put(1)
    cancelled = []

    async def handle(job):
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            cancelled.append(job.attempt)
            raise

    async def work():
        async with aio.Client(f"{server.host}:{server.port}") as other:
            worker = aio.Worker(
                other.tube("mail"), handle, timeout=0.05, max_attempts=2, retry_delay=0.01, until_empty=0.2
            )
            return await worker.run()

    assert asyncio.run(work()) == lycosa.Summary(failed=2, buried=1)
    assert cancelled == [1, 2]
    assert tube.peek(0, extended=True).info.last_error == "timed out after 0.05 s"


def test_a_worker_that_is_cancelled_gives_its_tasks_back(server, client):
    tube = client.create_tube("mail", "fifottl")
    tube.put(1)

    async def work():
        began = asyncio.Event()

        async def handle(job):
            began.set()
            await asyncio.sleep(600)

        async with aio.Client(f"{server.host}:{server.port}") as other:
            running = asyncio.ensure_future(aio.Worker(other.tube("mail"), handle).run())
            await began.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            # While the session is still there: the task is ready because it was given back.
            assert tube.take(0, extended=True).info.attempts == 1

    asyncio.run(work())


def test_a_worker_waits_on_a_server_that_takes_no_writes(start_server):
    server = start_server()
    with lycosa.Client(f"{server.host}:{server.port}") as client:
        tube = client.create_tube("mail", "fifo")
        trouble = threading.Event()
        worker = lycosa.Worker(tube, lambda job: None, on_event=lambda event: trouble.set(), handle_signals=False)
        client.call(Request("box.cfg", [{"read_only": True}]))
        result = start(worker.run)
        trouble.wait(60)
        client.call(Request("box.cfg", [{"read_only": False}]))
        wait_for(lambda: client.call(Request("queue.state"))[0] == "RUNNING")
        tube.put(1)
        wait_for(lambda: tube.statistics()["tasks"]["done"] == 1)
        worker.finish()
        assert result().done == 1


@pytest.mark.parametrize("options", [{"jobs": 0}, {"max_attempts": 0}])
def test_settings_that_make_no_sense_are_refused(client, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        lycosa.Worker(client.tube("mail"), print, **options)


def test_the_package_is_typed():
    top = pathlib.Path(__file__).resolve().parents[2] / "python"
    check = [sys.executable, "-m", "mypy", "--cache-dir", os.devnull, "src"]
    result = subprocess.run(check, cwd=top, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
    assert (pathlib.Path(lycosa.__file__).parent / "py.typed").exists()


def test_the_server_says_whether_a_delay_is_over():
    retries = Retries()
    retries.remember(Job(SimpleNamespace(id=7), 1, SimpleNamespace()), 0.0, 10.0)
    assert retries.ended_by(9.0) == []
    assert retries.ended_by(11.0) == [7]
    retries.took_nothing(11.0)
    assert retries.are_over()
    # Still delayed: it comes back. Just ready: one more take. Ready again: for others.
    for state, now, over in [(State.DELAYED, 12.0, False), (State.READY, 14.0, False), (State.READY, 16.0, True)]:
        retries.still_waits(7, state, now)
        retries.took_nothing(now - 1.0)
        assert retries.are_over() is over
        retries.took_nothing(now + 1.0)
        assert retries.are_over()


def test_a_task_that_runs_again_was_not_ended_by_its_earlier_job():
    retries = Retries()
    task = SimpleNamespace(id=7, info=None)
    first, other, second = Job(task, 1, 0), Job(SimpleNamespace(id=8), 1, 0), Job(task, 2, 0)
    for job in (first, other, second):
        retries.begin(job)
    assert [job._is_superseded for job in (first, other, second)] == [True, False, False]
    for job in (first, other, second):
        retries.end(job)
    assert not retries._jobs
