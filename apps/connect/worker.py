"""Run a worker of Kafka Connect, and create the connector in the first worker that answers.

    python worker.py CONNECTOR.JSON REST_PORT -- JAVA ...

The worker is a child of this program, which ends with it. When all tasks of the connector run, the program
prints "the tasks run". Connect does not restart a failed task: the program prints its error. Variables:

    CONNECT_WHEN     a file: the connector is created when it exists
    RESTART_FAILED   if set, the program restarts failed tasks
    STOP_WHEN        a file: after SIGHUP, the worker ends when it exists
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

CONNECTOR_FILE, PORT = sys.argv[1], int(sys.argv[2])
NAME = "copy"
CONNECT_WHEN = os.environ.get("CONNECT_WHEN", CONNECTOR_FILE)
STOP_WHEN = os.environ.get("STOP_WHEN", CONNECTOR_FILE)
RESTART_FAILED = os.environ.get("RESTART_FAILED")
RESTART_EVERY_S = 5.0


def ask(method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """Return the answer of the worker; None if it has no such object, or does not answer now."""
    data = json.dumps(body).encode() if body is not None else None
    headers = {"Content-Type": "application/json"}
    connection = HTTPConnection("127.0.0.1", PORT, timeout=10)
    try:
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        return json.load(answer) if answer.status < HTTPStatus.BAD_REQUEST else None
    except (HTTPException, OSError, ValueError):
        return None
    finally:
        connection.close()


def watch(worker: subprocess.Popen[bytes]) -> int:
    """Create the connector, and report the state of its tasks until the worker ends."""
    config = json.loads(Path(CONNECTOR_FILE).read_text())
    reported, answered, restarted = "", False, 0.0
    while worker.poll() is None:
        if stop_asked and Path(STOP_WHEN).exists():
            worker.terminate()
        status = ask("GET", f"/connectors/{NAME}/status")
        if status is None and ask("GET", "/connectors") == []:
            if not answered:
                print("the worker answers", flush=True)
            answered = True
            if Path(CONNECT_WHEN).exists():
                ask("PUT", f"/connectors/{NAME}/config", config)
        tasks = status["tasks"] if status else []
        failed = [task["trace"].partition("\n")[0] for task in tasks if task["state"] == "FAILED"]
        running = bool(tasks) and all(task["state"] == "RUNNING" for task in tasks)
        text = "the tasks run" if running else "; ".join(f"a task has failed: {line}" for line in failed)
        if text and text != reported:
            print(text, flush=True)
        reported = text
        if failed and RESTART_FAILED and time.monotonic() > restarted + RESTART_EVERY_S:
            ask("POST", f"/connectors/{NAME}/restart?includeTasks=true&onlyFailed=true")
            restarted = time.monotonic()
        time.sleep(0.5)
    return worker.returncode


stop_asked: list[int] = []
signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the worker inherits it: an ignored signal does not end a JVM
worker = subprocess.Popen(sys.argv[sys.argv.index("--") + 1 :])
signal.signal(signal.SIGTERM, lambda *_: worker.terminate())
signal.signal(signal.SIGHUP, lambda number, _: stop_asked.append(number))
sys.exit(watch(worker))
