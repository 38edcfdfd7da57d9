"""A group whose member has a disk that does not answer: two of three go on, and a leader with such a disk hands over."""

import pytest

from group import Group, put

TASKS = 100


@pytest.fixture
def group():
    group = Group()
    yield group
    group.remove()


def connect(group, number):
    connection = group.connect(number)
    connection.call("queue.create_tube", ["mail", "fifo", {"if_not_exists": True}])
    return connection


def drain(connection):
    """The payloads that are left, each taken and acknowledged."""
    found = []
    while (answer := connection.call("queue.tube.mail:take", [0])) and answer[0] is not None:
        found.append(answer[0][2])
        connection.call("queue.tube.mail:ack", [answer[0][0]])
    return found


def test_nobody_waits_for_the_disk_of_a_follower(group):
    leader = group.leader()
    slow = (leader + 1) % 3
    connection = connect(group, leader)
    group.until(leader, lambda status: all(member["lag"] == 0 for member in status["members"]))
    with group.slow_disk(slow):
        for number in range(TASKS):
            put(connection, number)
        lags = {member["node"]: member["lag"] for member in group.status(leader)["members"]}
        assert max(lags.values()) > 0, "the slow member has not confirmed them"
        assert group.leader() == leader
    group.until(leader, lambda status: all(member["lag"] == 0 for member in status["members"]))
    assert sorted(drain(connection)) == list(range(TASKS))


def test_a_leader_whose_disk_does_not_answer_hands_over(group):
    slow = group.leader()
    other = (slow + 1) % 3
    connection = connect(group, other)
    with group.slow_disk(slow):
        for number in range(TASKS):
            put(connection, number)
        group.until(other, lambda status: status["leader"] is not None and status["leader"] != slow + 1)
        put(connection, TASKS)
    group.until(slow, lambda status: not status["leads"] and status["leader"] is not None)
    assert set(drain(connect(group, slow))) == set(range(TASKS + 1))
