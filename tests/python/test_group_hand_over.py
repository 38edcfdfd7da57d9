"""Leaders that hand over under load: a client of another member loses nothing, and hears of no refusal."""

import threading

import pytest
import tarantool

from group import Group, connect

ROUNDS = 4
PUTS_BETWEEN = 30
OUTCOME_UNKNOWN = "outcome of this request is unknown"


@pytest.fixture
def group():
    group = Group()
    yield group
    group.remove()


class Producer:
    """Puts numbers through a member, one after the other, and notes what became of each."""

    def __init__(self, address):
        self.connection = connect(address)
        self.done, self.unknown, self.failures = [], [], []
        self.is_over = threading.Event()
        self.progress = threading.Condition()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        number = 0
        while not self.is_over.is_set():
            try:
                [task] = self.connection.call("queue.tube.mail:put", [number]).data
                # A queue that does not run, as a follower's, answers nil.
                (self.done if task else self.failures).append(number)
            except tarantool.error.DatabaseError as error:
                (self.unknown if OUTCOME_UNKNOWN in str(error) else self.failures).append((number, str(error)))
            number += 1
            with self.progress:
                self.progress.notify_all()

    def after(self, count):
        """Waits until that many further puts are acknowledged."""
        wanted = len(self.done) + count
        with self.progress:
            self.progress.wait_for(lambda: len(self.done) >= wanted or self.failures or not self.thread.is_alive())

    def end(self):
        self.is_over.set()
        self.thread.join()
        self.connection.close()


def terms(group):
    """The latest term that a member knows."""
    return max(status["term"] for status in map(group.status, range(3)) if status)


def hand_over_under_load(group):
    """Nothing is lost. Returns whether nobody but those who were ordered to has led."""
    leader = group.leader()
    wanted = terms(group)
    # Clients of members that pass requests on; each of these members leads for a while.
    producers = [Producer(group.listens[number]) for number in range(3) if number != leader]
    try:
        for _ in range(ROUNDS):
            for producer in producers:
                producer.after(PUTS_BETWEEN)
            successor = (leader + 1) % 3
            group.transfer(leader, successor)
            leader, wanted = successor, wanted + 1
        for producer in producers:
            producer.after(PUTS_BETWEEN)
    except AssertionError:
        if terms(group) == wanted:
            raise
    finally:
        for producer in producers:
            producer.end()
    is_as_ordered = terms(group) == wanted
    assert not is_as_ordered or [producer.failures for producer in producers] == [[], []]
    connection = group.connect(group.leader())
    found = []
    while tasks := connection.call("queue.tube.mail:take_many", [500, 0])[0]:
        found += [task[2] for task in tasks]
        connection.call("queue.tube.mail:ack_many", [[task[0] for task in tasks]])
    missing = [number for producer in producers for number in producer.done]
    unknown = [number for producer in producers for number, _ in producer.unknown]
    for number in found:
        if number in missing:
            missing.remove(number)
        else:
            assert number in unknown, f"{number} is there, and no put of it may have been done"
            unknown.remove(number)
    assert missing == []
    connection.close()
    return is_as_ordered


def test_hand_overs_under_load_lose_nothing(group):
    connection = group.connect(group.leader())
    connection.call("queue.create_tube", ["mail", "fifo"])
    connection.close()
    # A machine that stops a leader for long makes the others elect another one: then the rounds are run again.
    assert any(hand_over_under_load(group) for _ in range(10)), "others came to lead in each of ten runs"


def test_a_leader_that_ends_hands_over_first(group):
    leader = group.leader()
    other = (leader + 1) % 3
    connection = group.connect(leader)
    connection.call("queue.create_tube", ["mail", "fifo"])
    connection.close()
    producer = Producer(group.listens[other])
    try:
        producer.after(PUTS_BETWEEN)
        group.processes[leader].terminate()
        assert group.processes[leader].wait() == 0
        assert "the group is handed over to node" in group.log(leader)
        producer.after(PUTS_BETWEEN)
    finally:
        producer.end()
    assert producer.failures == []
