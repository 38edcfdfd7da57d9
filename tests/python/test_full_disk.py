"""`lycosa put --lines` on a disk that gets full: what is stored is told, and the rest can be put once there is room."""

import os
import random
import re
import subprocess
import time

import pytest

from server import ENVIRONMENT, binary

LINES, LENGTH = 1600, 12_000


def lycosa(*arguments, **options):
    return subprocess.run([binary(), *arguments], capture_output=True, text=True, env=ENVIRONMENT, timeout=300, check=False, **options)


@pytest.fixture
def small_disk(start_server):
    """A server whose data folder is a disk of 24 MB in memory."""
    server = start_server(options=['disk_reserve = "8MiB"'])
    server.stop()
    data = server.folder / "data"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(data)], capture_output=True, check=False)
    if os.geteuid() != 0 or mounted.returncode:
        pytest.skip("no right to mount a disk")
    try:
        server.start()
        yield server
        server.stop()
    finally:
        server.kill()
        subprocess.run(["umount", str(data)], check=True)


def test_lines_on_a_full_disk_are_told_and_put_again(small_disk):
    server = small_disk
    address = ("--address", f"{server.host}:{server.port}")
    noise = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/"
    path = server.folder / "lines"
    path.write_text("".join(f"{number} {''.join(noise.choices(letters, k=LENGTH))}\n" for number in range(1, LINES + 1)))
    first = lycosa("put", "mail", "--lines", "--create", "-f", str(path), *address)
    assert first.returncode == 1, first
    stored = int(re.search(r"stored: line 1-(\d+); not read", first.stderr)[1])
    assert first.stdout == f"put {stored} tasks\n"
    assert 0 < stored < LINES
    # One text for all that were under way, and the command that puts the rest.
    refused = re.findall(r"line (\d+)-(\d+) was refused: (.*)", first.stderr)
    assert len(refused) == 1 and int(refused[0][0]) == stored + 1, first.stderr
    assert "disk_reserve" in refused[0][2]
    assert f"`tail -n +{stored + 1} {path} | lycosa put mail --lines`" in first.stderr

    # Draining makes room: the journal of what is done goes with the next snapshot. While the rest of the disk is for that snapshot,
    # a command is refused and given again.
    while not re.search(r'"total": ?0\b', lycosa("stats", "mail", "--json", *address).stdout):
        taken = lycosa("take", "mail", "--limit", "500", *address)
        ids = [line.split("\t")[0] for line in taken.stdout.splitlines()]
        # The tasks went back to the tube when the command ended: they are deleted by their ids.
        done = lycosa("delete", "mail", *ids, *address) if ids else taken
        assert done.returncode == 0 or "disk_reserve" in done.stderr, done
    for _ in range(100):
        rest = subprocess.run(
            f"tail -n +{stored + 1} {path} | {binary()} put mail --lines --address {server.host}:{server.port}",
            shell=True,
            capture_output=True,
            text=True,
            env=ENVIRONMENT,
            timeout=300,
            check=False,
        )
        if rest.returncode == 0:
            break
        # The snapshot that makes room may not be done yet.
        again = re.search(r"stored: line 1-(\d+);", rest.stderr)
        stored += int(again[1]) if again else 0
        assert "disk_reserve" in rest.stderr, rest
        time.sleep(0.2)
    assert rest.returncode == 0, rest
    left = lycosa("stats", "mail", "--json", *address)
    assert left.returncode == 0, left
