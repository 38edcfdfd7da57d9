"""A group whose members' clocks are put forward while they run: no delay and no ttr takes part in that, and it is told."""

import glob

import pytest

from group import Group

HOUR = 3600
#: In microseconds.
SECOND = 1_000_000
FAR = 24 * HOUR * SECOND
LIBRARIES = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")


@pytest.fixture
def group():
    if not LIBRARIES:
        pytest.skip("libfaketime is not installed")
    group = Group(clocks=LIBRARIES[0])
    yield group
    group.remove()


def counts(connection):
    [statistics] = connection.call("queue.statistics", ["mail"])
    return {state: statistics["tasks"][state] for state in ("ready", "taken", "delayed")}


def test_no_deadline_notices_that_clocks_are_put_forward(group):
    leader = group.leader()
    connection = group.connect(leader)
    connection.call("queue.create_tube", ["mail", "fifottl"])
    connection.call("queue.tube.mail:put", ["taken", {"ttr": HOUR}])
    connection.call("queue.tube.mail:put", ["later", {"delay": HOUR}])
    connection.call("queue.tube.mail:take", [0])
    before = {"ready": 0, "taken": 1, "delayed": 1}
    assert counts(connection) == before

    group.set_clock(leader, 24 * HOUR)
    group.until_log(leader, "clock")
    assert counts(connection) == before, "at the leader whose clock was put forward"

    # The next one has the right clock, and goes on with the time of the leader before it.
    successor = (leader + 1) % 3
    group.transfer(leader, successor)
    assert counts(group.connect(successor)) == before, "after the change of the leader"

    # The third one starts with a clock that is a day ahead, hears of no change, and leads then.
    third = (leader + 2) % 3
    group.kill(third)
    group.set_clock(third, 24 * HOUR)
    group.start(third)
    group.until(third, lambda status: (status["leader_ahead_us"] or 0) < -20 * HOUR * SECOND)
    group.until(successor, lambda status: all(member["lag"] == 0 for member in status["members"]))
    group.transfer(successor, third)
    assert counts(group.connect(third)) == before, "at a leader whose clock is a day ahead of the group's"
    group.until_log(third, "the time of the leader before differs from this machine's by -86")

    # Its time is the group's, and stays so.
    group.transfer(third, successor)
    group.until(third, lambda status: abs(status["leader_ahead_us"] or FAR) < HOUR * SECOND)
    group.transfer(successor, third)
    assert counts(group.connect(third)) == before, "at a leader that has led with the group's time before"


def test_a_group_that_was_down_goes_on_with_the_time_of_day(group):
    leader = group.leader()
    connection = group.connect(leader)
    connection.call("queue.create_tube", ["mail", "fifottl"])
    connection.call("queue.tube.mail:put", ["later", {"delay": HOUR}])
    for number in range(3):
        group.kill(number)
        # What the machine's clock says after two hours.
        group.set_clock(number, 2 * HOUR)
    for number in range(3):
        group.start(number)
    leader = group.leader()
    [task] = group.connect(leader).call("queue.tube.mail:take", [60])
    assert task == [0, "t", "later"]
    assert "the time of the leader before" not in group.log(leader)
