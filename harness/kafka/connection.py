"""One blocking connection to one broker: a request, its answer, a finite time limit.

The harness asks brokers while it breaks them. A client library would retry, refresh metadata and hide what
it saw; here every call goes to the broker that was named and either answers in time or raises.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

from harness.base.closing import Closing
from harness.kafka.security import PLAINTEXT, Security

CLIENT_ID = "eos-harness"
_API_VERSIONS_KEY = 18
_MAX_FRAME = 100 * 1024 * 1024  # a broker's own limit for a request; a larger answer is not Kafka


def error_name(code: int) -> str:
    """The name of an error code as Kafka writes it; NONE for 0."""
    from kafka.errors import for_code

    return str(for_code(code).message) if code else "NONE"


class KafkaAnswerError(OSError):
    """A broker answered with an error code; an OSError, so that waits take it for not yet."""

    def __init__(self, what: str, code: int) -> None:
        from kafka.errors import for_code  # heavy, and needed on the unhappy path only

        super().__init__(f"{what}: {for_code(code).__name__} ({code})")
        self.code = code

    @property
    def denied(self) -> bool:
        """Whether this user may not have it, by rights or by a policy: waiting does not help."""
        name = error_name(self.code)
        return name.endswith("_AUTHORIZATION_FAILED") or name == "POLICY_VIOLATION"


class RawConnection(Closing):
    """A TCP connection that speaks length-prefixed Kafka frames, closed by `with`."""

    def __init__(self, host: str, port: int, timeout: float, security: Security = PLAINTEXT) -> None:
        self._correlation_id = 0
        self._socket = socket.create_connection((host, port), timeout=timeout)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = security.wrap(self._socket, host)
            security.log_in(self)
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        """Close the connection; a second time is harmless."""
        self._socket.close()

    def fileno(self) -> int:
        """The socket's descriptor, for select."""
        return self._socket.fileno()

    def call(self, request: Any) -> Any:
        """Send a request of kafka-python's protocol classes, return the decoded answer."""
        from kafka.protocol.api_header import ResponseClassRegistry

        self._correlation_id += 1
        request.with_header(correlation_id=self._correlation_id, client_id=CLIENT_ID)
        self._socket.sendall(request.encode(header=True, framed=True))
        response_class = ResponseClassRegistry.get_response_class(request.header)
        answer = response_class.decode(self.read_frame(), version=request.API_VERSION, header=True)
        if answer.header.correlation_id != self._correlation_id:
            raise OSError(f"answer {answer.header.correlation_id} to request {self._correlation_id}")
        return answer

    def send_api_versions(self, client_id: str = CLIENT_ID) -> None:
        """Send the smallest request that every broker answers; a long client id makes it a large one."""
        self._correlation_id += 1
        name = client_id.encode()
        body = struct.pack(f">hhih{len(name)}s", _API_VERSIONS_KEY, 0, self._correlation_id, len(name), name)
        self._socket.sendall(struct.pack(">i", len(body)) + body)

    def read_frame(self) -> bytes:
        """The next frame without its length; EOFError if the peer closed first."""
        (size,) = struct.unpack(">i", self._read_exactly(4))
        if not 0 < size <= _MAX_FRAME:
            raise OSError(f"a frame of {size} bytes is not Kafka's")
        return self._read_exactly(size)

    def read_some(self, most: int = 65536) -> bytes:
        """What one read of the socket gives; empty if the peer closed."""
        return self._socket.recv(most)

    def _read_exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self._socket.recv(count - len(parts))
            if not part:
                raise EOFError(f"the peer closed after {len(parts)} of {count} bytes")
            parts += part
        return bytes(parts)


def answers(host: str, port: int, timeout: float = 1.0, security: Security = PLAINTEXT) -> bool:
    """Whether something that speaks Kafka answers at this address within the time limit."""
    try:
        with RawConnection(host, port, timeout, security) as connection:
            connection.send_api_versions()
            return bool(connection.read_frame())
    except (OSError, EOFError):
        return False
