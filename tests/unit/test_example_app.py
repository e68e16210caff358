"""The watchdog of the example application ends a process whose client library does not return."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "orders"
NAMES = ("BOOTSTRAP", "GROUP", "ORDERS", "INVOICES", "INSTANCE")
HANGS = """
import time
from app import send_positions

class Client:
    def consumer_group_metadata(self):
        return None

    def send_offsets_to_transaction(self, positions, member, limit):
        time.sleep(600)

send_positions(Client(), [], Client())
"""
FAILS = """
import faulthandler
from app import send_positions

class Client:
    def consumer_group_metadata(self):
        return None

    def send_offsets_to_transaction(self, positions, member, limit):
        print("called")
        raise ValueError("refused")

faulthandler.dump_traceback_later = lambda seconds, exit: print("armed")
faulthandler.cancel_dump_traceback_later = lambda: print("disarmed")
send_positions(Client(), [], Client())
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in the folder of the example, in which a call hangs after 1 s."""
    env = os.environ | dict.fromkeys(NAMES, "x") | {"HANGS_S": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, cwd=EXAMPLE, env=env, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_process_ends_itself_in_a_call_that_hangs() -> None:
    done = run(HANGS)

    assert done.returncode == 1, done.stderr
    assert "Timeout (0:00:01)!" in done.stderr
    assert "in send_positions" in done.stderr


def test_the_watchdog_is_disarmed_after_a_call_that_fails() -> None:
    done = run(FAILS)

    assert done.stdout.split() == ["armed", "called", "disarmed"], done.stderr
    assert "ValueError: refused" in done.stderr
