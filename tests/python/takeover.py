"""How long a group is without a leader, as a client sees it: kills or freezes the leader again and again.

    python tests/python/takeover.py [ROUNDS]

The client is the plain connector `tarantool` at a follower. Each round measures from the signal to the first acknowledged put that was sent
after it. `LYCOSA_BIN` names the server, as for the tests; a release build is meant.
"""

import statistics
import sys
import time

from group import DEFAULT_ELECTION_TIMEOUT, Group, put

LIMIT = 1.0


def rounds(group, fault, remedy, count):
    """The seconds of each round."""
    took = []
    for number in range(count):
        leader = group.leader()
        follower = (leader + 1) % 3
        connection = group.connect(follower)
        connection.call("queue.create_tube", ["mail", "fifo", {"if_not_exists": True}])
        put(connection, f"before {number}")
        # The election is not to begin with an operator's order: the members are quiet.
        time.sleep(0.2)
        began = time.monotonic()
        getattr(group, fault)(leader)
        put(connection, f"after {number}")
        took.append(time.monotonic() - began)
        connection.close()
        getattr(group, remedy)(leader)
        group.until(leader, lambda status: status["leader"] is not None and status["state"] == "running")
    return took


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    group = Group(election_timeout=DEFAULT_ELECTION_TIMEOUT)
    try:
        for fault, remedy in (("kill", "start"), ("freeze", "thaw")):
            took = sorted(rounds(group, fault, remedy, count))
            below = sum(1 for seconds in took if seconds < LIMIT)
            median = statistics.median(took)
            print(
                f"{fault}: {below} of {count} below {LIMIT:g} s;"
                f" least {took[0]:.3f}, median {median:.3f}, greatest {took[-1]:.3f} s",
                flush=True,
            )
    finally:
        group.remove()


if __name__ == "__main__":
    main()
