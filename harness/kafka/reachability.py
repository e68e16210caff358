"""Check whether a Kafka cluster can be reached, before a client library or Spark tries for minutes.

All addresses are tried at the same time, each in its own thread. So neither an address that never answers nor
a name server that never answers delays the result beyond LIMIT_S.
"""

from __future__ import annotations

import importlib
import os
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

from harness.base.addresses import Address, parse_bootstrap
from harness.base.errors import HarnessError, UsageError
from harness.kafka.admin import Admin, Metadata
from harness.kafka.connection import answers
from harness.kafka.security import PLAINTEXT, Security

LIMIT_S: Final = 3.0
"""Time limit for all addresses of one step. The name server and the connection may need most of it: a lost
packet that opens a connection is sent again after 1 s.
"""

ANSWER_S: Final = 0.9
"""Time from the connection to the answer, on a network without delay, if this machine is not busy.

On two cores with a load of 15 to 80, 2 of 9,325 answers of brokers took longer. With a load of 110 to 130,
half of them did.
"""

BUSY: Final = 20.0
"""Load per core above which this machine is busy. Its brokers may be slow then, so an address gets the whole
time limit.
"""

ROUND_TRIPS: Final = 10
"""Number of round trips for the answer, in addition to ANSWER_S. A connection takes one round trip; TLS, a
login and the request take up to seven.
"""

NOTICE_AFTER_S: Final = 1.0
"""Time without an answer after which the caller gets a progress line."""

REQUEST_LIMIT_S: Final = 10.0
"""Time limit of each request that is sent with the returned Admin."""

_CLOSED: Final = "it closes the connection: it may expect TLS or SASL, or is not a Kafka broker"

_CLOSED_WITH_SECURITY: Final = (
    "it closes the connection: it may expect other security, or is not a Kafka broker"
)
_SILENT: Final = (
    "it accepts connections but does not answer: it is not a Kafka broker, or it is frozen or starting"
)
_NO_TLS: Final = "its answer is not TLS: it may be a listener without TLS, or is not a Kafka broker"

_PLAIN_HINT: Final = ": it needs a listener without TLS and SASL, or use --command-config FILE"
_SECURE_HINT: Final = ": it needs a listener with the security that --command-config or --cluster names"

T = TypeVar("T")


def reach_cluster(
    bootstrap: str,
    security: Security = PLAINTEXT,
    limit_s: float = LIMIT_S,
    log: Callable[[str], None] = lambda _: None,
) -> Admin:
    """Return an Admin for the brokers of the cluster with these bootstrap servers.

    Raise UsageError if the text is not a list of addresses or a host is unknown. Raise HarnessError if no
    address answers as a Kafka broker, or if none of the addresses that the brokers advertise can be reached.
    Each of the two steps takes at most `limit_s` seconds. An address that accepts a connection and then does
    not answer takes less (answer_limit_s), unless this machine is busy. If a step takes longer than
    NOTICE_AFTER_S, `log` gets a line.
    """
    try:
        servers = parse_bootstrap(bootstrap)
    except ValueError as error:
        raise UsageError(
            f"--bootstrap {bootstrap!r}: {error}", "write host:port, such as localhost:9092"
        ) from error

    def metadata(server: Address) -> Metadata:
        try:
            return Admin({0: server}, limit_s, security).metadata()
        except ConnectionError as error:
            raise error.__cause__ or error from error

    # Import these now: the first import takes a while, which must not count as time without an answer.
    importlib.import_module("kafka.protocol.metadata")
    importlib.import_module("kafka.protocol.api_header")
    found, problems = _first_answer(servers, metadata, limit_s, log)
    if found is None:
        if all(isinstance(problems.get(server), socket.gaierror) for server in servers):
            hosts = ", ".join(sorted({host for host, _ in servers}))
            raise UsageError(f"--bootstrap {bootstrap}: unknown host {hosts}", "correct the host name")
        raise HarnessError(
            f"no Kafka broker answers at {_list_problems(servers, problems, limit_s, security)}",
            "correct the address (--bootstrap, or the file that names it)"
            + (_SECURE_HINT if security.tls or security.sasl else _PLAIN_HINT),
        )
    advertised = list(found.addresses.values())

    def connect(address: Address) -> bool:
        if answers(*address, limit_s, security):
            return True
        raise OSError("no answer")

    reached, problems = _first_answer(advertised, connect, limit_s, log)
    if not reached:
        raise HarnessError(
            f"a broker answers at {bootstrap}, but no broker answers at the addresses that the cluster "
            f"advertises: {_list_problems(advertised, problems, limit_s, security)}",
            "use a listener whose advertised addresses can be reached from this machine",
        )
    return Admin(found.addresses, REQUEST_LIMIT_S, security)


class SilentAddressError(TimeoutError):
    """Error for an address that accepted a connection and then did not answer."""


def answer_limit_s(connected_in_s: float) -> float:
    """Return how long to wait for the answer of an address that accepted a connection in this time."""
    return ANSWER_S + ROUND_TRIPS * connected_in_s


def is_busy() -> bool:
    """Return whether more processes want to run on this machine than it can run without long waits."""
    return os.getloadavg()[0] > BUSY * (os.cpu_count() or 1)


def _time_connection(address: Address, limit_s: float) -> float:
    """Open a connection, close it again, and return how many seconds that took."""
    try:
        address[0].encode("idna")
    except UnicodeError as error:  # the text cannot be a host name, such as ".."
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from error
    began = time.monotonic()
    with socket.create_connection(address, limit_s):
        return time.monotonic() - began


class _Connected(NamedTuple):
    seconds: float


def _first_answer(
    addresses: Iterable[Address], ask: Callable[[Address], T], limit_s: float, log: Callable[[str], None]
) -> tuple[T | None, dict[Address, Exception]]:
    """Return the first result of `ask`, or None and the error of each address that failed in time."""
    results: queue.Queue[tuple[Address, T | Exception | _Connected]] = queue.Queue()

    def try_one(address: Address) -> None:
        try:
            results.put((address, _Connected(_time_connection(address, limit_s))))
            results.put((address, ask(address)))
        except Exception as error:  # noqa: BLE001 - bytes of another protocol can break the decoder anywhere
            results.put((address, error))

    began = time.monotonic()
    deadlines = dict.fromkeys(addresses, began + limit_s)
    for address in deadlines:
        threading.Thread(target=try_one, args=(address,), daemon=True).start()
    notice: float | None = began + NOTICE_AFTER_S
    problems: dict[Address, Exception] = {}
    while deadlines:
        last = max(deadlines.values())
        until = last if notice is None else min(notice, last)
        try:
            address, result = results.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            if until == last:
                break
            silent = ", ".join(f"{host}:{port}" for host, port in sorted(deadlines))
            log(f"no answer yet from {silent}; waiting up to {last - began:.1f} s")
            notice = None
            continue
        if isinstance(result, _Connected):
            answer_by = time.monotonic() + answer_limit_s(result.seconds)
            if answer_by < deadlines[address] and not is_busy():
                deadlines[address] = answer_by
                problems[address] = SilentAddressError()
        elif isinstance(result, Exception):
            problems[address] = result
            del deadlines[address]
        else:
            return result, {}
    return None, problems


def _list_problems(
    addresses: Iterable[Address], problems: dict[Address, Exception], limit_s: float, security: Security
) -> str:
    texts = []
    for address in dict.fromkeys(addresses):
        problem = problems.get(address, TimeoutError())
        texts.append(f"{address[0]}:{address[1]} ({_describe(problem, limit_s, security)})")
    return ", ".join(texts)


_CLOSING: Final = (EOFError, ConnectionResetError, BrokenPipeError, ssl.SSLEOFError, ssl.SSLZeroReturnError)


def _describe(problem: Exception, limit_s: float, security: Security) -> str:
    is_plain = not (security.tls or security.sasl)
    certificate = getattr(problem, "verify_message", "")
    texts: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...] = (
        (ConnectionRefusedError, "connection refused"),
        (socket.gaierror, "unknown host"),
        (_CLOSING, _CLOSED if is_plain else _CLOSED_WITH_SECURITY),
        (SilentAddressError, _SILENT),
        (TimeoutError, f"no answer within {limit_s:g} s"),
        (ssl.SSLCertVerificationError, f"its certificate is not accepted: {certificate}"),
        (ssl.SSLError, _NO_TLS),
        (OSError, getattr(problem, "strerror", None) or str(problem)),
    )
    unknown = "its answer is not that of a Kafka broker"
    return next((text for kind, text in texts if isinstance(problem, kind)), unknown)
