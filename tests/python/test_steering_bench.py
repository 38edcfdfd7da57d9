"""The measurement of what operators cost workers (bench/steering.py), on a server with few tasks: that it measures what it says."""

import json
import pathlib
import subprocess
import sys

from server import binary

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench" / "steering.py"


def test_cycles_go_on_beside_scrapes_pages_and_jobs():
    numbers = ["--tasks", "3000", "--large", "1000", "--tubes", "10", "--cycles", "3000", "--rounds", "1", "--pages", "3"]
    command = [sys.executable, str(SCRIPT), "--binary", binary(), "--wal-mode", "write", *numbers]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    for kind in ("alone", "pages", "beside"):
        [measured] = result["rounds"][kind]
        assert measured["run"]["rounds"] == 3000
        assert measured["run"]["latency_us"]["put"]["p99"] > 0
    assert result["pages"] > 0 and result["refreshes"]["count"] >= 3
    assert sum(changed for _, changed, _ in result["jobs"]) > 0
    kinds, longest = zip(*result["longest_turns_cpu_us"])
    assert kinds == ("alone", "pages", "beside") and all("jobs" in parts for parts in longest)
