"""A transactional producer in a process of its own, which can be frozen.

`python -m harness.clients.scripted.producer_process SPEC.json` reads one call per line from standard input,
such as ["send", 0, 3], and prints the answer to each call.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
from pathlib import Path
from typing import Final

from harness.clients.client_spec import TransactionalSpec, load_spec
from harness.clients.scripted.transactional_producer import LIMIT_S, Answer, TransactionalProducer

ANSWER_LIMIT_S: Final = 3 * LIMIT_S
"""Time limit for an answer. A call may take LIMIT_S, and no test freezes a producer for longer than LIMIT_S.
The third LIMIT_S is a reserve.
"""


class ProducerProcess:
    """A transactional producer in another process; calls and answers use its standard input and output."""

    def __init__(self, spec: TransactionalSpec, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.mark = str(folder / "spec.json")
        """Command-line argument by which the process can be identified."""
        self.name = spec.client
        spec.save(Path(self.mark))
        self._log = (folder / "log").open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, self.mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            bufsize=1,
        )
        self.pid = self._process.pid

    def call(self, name: str, *arguments: object) -> Answer:
        """Make one call in the process and wait for its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, *arguments]) + "\n")
        # The process prints exactly one line per call, and each call reads its whole line. So the buffer of
        # `stdout` is empty here, and `select`, which cannot see that buffer, does not miss an answer.
        ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_LIMIT_S)
        assert ready, f"no answer from the producer for {ANSWER_LIMIT_S:g} s: see {self._log.name}"
        line = self._process.stdout.readline()
        assert line, f"the producer has ended: see {self._log.name}"
        return Answer(*json.loads(line))

    def close(self) -> None:
        """Kill the process; closing twice is harmless."""
        self._process.kill()
        self._process.communicate()
        self._log.close()


def main(path: str) -> None:
    """Carry out the calls that arrive on standard input."""
    spec = load_spec(Path(path))
    assert isinstance(spec, TransactionalSpec)
    producer = TransactionalProducer(spec)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(getattr(producer, name)(*arguments)), flush=True)
    producer.close()


if __name__ == "__main__":
    main(sys.argv[1])
