"""A member whose disk fails for good leaves the service of its group and says why; the others go on, and it is replaced."""

import pytest

from group import Group, put

# Nothing is kept free for the end of tasks: the log itself meets the full disk.
OPTIONS = ("--disk-reserve", "0")
DISK = 32 << 20


@pytest.fixture
def group():
    group = Group(options=OPTIONS, disk=DISK)
    yield group
    group.remove()


@pytest.mark.parametrize("who", ["leader", "follower"])
def test_a_member_whose_disk_fails_says_so_and_the_others_go_on(group, who):
    leader = group.leader()
    failing = leader if who == "leader" else (leader + 1) % 3
    witness = (failing + 1) % 3
    connection = group.connect(witness)
    connection.call("queue.create_tube", ["mail", "fifo"])
    put(connection, "before")
    group.fill(failing, 0)
    # Entries beyond what the log has allocated.
    for number in range(40):
        put(connection, "x" * 100_000)
    status = group.until(failing, lambda status: status["state"] == "failed")
    assert "No space left" in status["failure"]
    assert "this member has left the service of its group" in group.log(failing)
    put(connection, "after")
    group.unfill(failing)
    group.terminate(failing)
    group.start(failing)
    group.until(failing, lambda status: status["state"] == "running" and status["leader"] is not None)
    leader = group.leader()
    group.until(leader, lambda status: all(member["lag"] == 0 for member in status["members"]))
    [statistics] = connection.call("queue.statistics", ["mail"])
    assert statistics["tasks"]["ready"] >= 42
