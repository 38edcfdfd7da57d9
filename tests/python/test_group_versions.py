"""Members of two versions: a group is upgraded member by member while clients work, goes back, and rises once no member holds it."""

import os
import random

import lycosa
import pytest

from group import Group
from histories import Progress
from history import History, Worker, drain, violations
from server import START_SECONDS, binary

# A program of before the newest level: the tested one that is held there, or a real one.
OLDER = (os.environ["LYCOSA_TEST_OLDER"],) if "LYCOSA_TEST_OLDER" in os.environ else (binary(), "--cluster-level", "1")
NEWER = (binary(),)
CLIENTS = 4
STEP = 40


@pytest.fixture
def group():
    group = Group(programs={number: OLDER for number in range(3)})
    yield group
    group.remove()


def replace(group, number, program, progress):
    """Starts another program on the folder of a member, as an operator does: a member that leads hands over first."""
    group.terminate(number)
    group.programs[number] = program
    progress.operations(STEP)
    group.start(number)
    leader = group.leader()
    group.until(leader, lambda status: status["leads"] and all(member.get("lag") == 0 for member in status["members"]) or not status["leads"])
    group.until(number, lambda status: status["state"] == "running" and status["leader"] is not None)
    progress.puts()


def level(group):
    return group.status(group.leader())["level"]


def test_a_group_is_upgraded_while_clients_work_and_goes_back(group):
    assert level(group) == 1
    history, workers = History(), []
    with lycosa.Client(group.listens) as client:
        client.create_tube("mail", "fifo")
    for number in range(CLIENTS):
        client = lycosa.Client(group.listens, request_timeout=5, connect_timeout=5)
        workers.append(Worker(number, client, history, random.random()))
    try:
        for worker in workers:
            worker.start()
        progress = Progress(history, workers)
        leader = group.leader()
        first, second = (number for number in range(3) if number != leader)
        replace(group, first, NEWER, progress)
        replace(group, second, NEWER, progress)
        # The new program does not suit: back.
        replace(group, first, OLDER, progress)
        assert level(group) == 1, "a member of the older program holds the group"
        replace(group, first, NEWER, progress)
        replace(group, leader, NEWER, progress)
        for number in range(3):
            group.until(number, lambda status: status["level"] == 2)
        progress.operations(STEP)
        # There is no way back from here.
        group.terminate(second)
        group.programs[second] = OLDER
        group.start(second)
        assert group.processes[second].wait(START_SECONDS) != 0
        # Programs from before level 2 refuse the folder in other words.
        assert OLDER[0] != binary() or "start a newer version" in group.log(second)
        progress.puts()
        group.programs[second] = NEWER
        group.start(second)
        group.until(second, lambda status: status["state"] == "running" and status["leader"] is not None)
        progress.operations(STEP)
        for worker in workers:
            worker.stop()
    finally:
        for worker in workers:
            worker.ends.set()
    drain(group.listens, history)
    assert violations(history.operations) == []
    assert history.count("put") and history.count("ack") and history.count("read")
