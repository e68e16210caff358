"""Strict reader of cluster files.

It rejects a file with any mistake, because the harness must not guess what it may do on an external cluster.
"""

from __future__ import annotations

import re
import shlex
import shutil
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.base.addresses import parse_address
from harness.base.errors import UsageError
from harness.base.secrets import ALLOWED as SECRETS
from harness.base.secrets import is_reference, placed
from harness.base.strict_toml import StrictFile, nearest, parse
from harness.cluster.backend import Capability
from harness.cluster.external.cluster_file import (
    LOGS,
    NODE_CAPABILITIES,
    NODE_LOGS,
    START,
    UNDONE_BY,
    VERBS,
    ClusterFile,
    NodesPart,
)
from harness.kafka.security import Security

_SHORTEST_PREFIX = 4
_FILES = ("ca", "certificate", "key")
_PASSWORDS = ("password", "key_password")


_NO_RUN: Final = {"deadline": "1s", "bytes_per_second": "1B/s", "storage": "1B", "abort_file": "none"}
"""Table [limits] for a command that makes no run, if the file has none. Nothing uses these values."""


def load_cluster_file(
    path: Path, faults: Mapping[str, Capability], *, only_reads: bool = False
) -> ClusterFile:
    """Read a cluster file. If it is invalid, raise UsageError with the line, the key and a hint.

    `faults` maps each fault that a cluster file may permit to the capability that the fault needs. The file
    of a command that makes no run and `only_reads` needs no [limits].
    """
    if not path.is_file():
        raise UsageError(f"there is no file {path}", "copy the example in docs/external-cluster.md")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not text in UTF-8: {error}", "write it again as UTF-8") from error
    except OSError as error:
        raise UsageError(f"{path} could not be read: {error.strerror}", "let this user read it") from error
    data = parse(path, text)
    return _Loader(path, text, faults).read({"limits": _NO_RUN} | data if only_reads else data)


class _Loader:
    def __init__(self, path: Path, text: str, faults: Mapping[str, Capability]) -> None:
        self._allowed_faults = faults
        self._folder = path.resolve().parent
        self._file = StrictFile(path, text, "docs/external-cluster.md shows a file with every key")
        self._fail = self._file.fail

    def read(self, data: dict[str, Any]) -> ClusterFile:
        self._secrets(data.get("security"))
        found = self._file.convert(data, ClusterFile)
        self._cluster(found)
        self._numbers(found)
        self._links(found)
        if found.nodes is not None:
            self._nodes(found.nodes)
        self._faults(found)
        self._evidence(found)
        abort_file = str(self._folder / found.limits.abort_file)
        limits = msgspec.structs.replace(found.limits, abort_file=abort_file)
        return msgspec.structs.replace(found, security=self._security(found), limits=limits)

    def _secrets(self, table: object) -> None:
        """Raise an error if the table [security] contains a password instead of a reference to its source.

        This check runs first, so that no later error can print the password.
        """
        for name in _PASSWORDS:
            if isinstance(table, dict) and name in table and not is_reference(str(table[name])):
                raise self._fail(
                    f"security.{name}",
                    "a secret is in the file (not shown here)",
                    f"give its source instead: {SECRETS}",
                )

    def _cluster(self, found: ClusterFile) -> None:
        cluster = found.cluster
        if not cluster.id.strip():
            raise self._fail("cluster.id", "it is empty", "`kafka-cluster.sh cluster-id` prints it")
        if not cluster.bootstrap:
            raise self._fail("cluster.bootstrap", "there is none", 'write bootstrap = ["host:9092"]')
        for server in cluster.bootstrap:
            self._address("cluster.bootstrap", server)
        if len(cluster.prefix) < _SHORTEST_PREFIX or not re.fullmatch(
            r"[A-Za-z0-9][A-Za-z0-9._-]*", cluster.prefix
        ):
            raise self._fail(
                "cluster.prefix",
                f"{cluster.prefix!r} is not allowed",
                f"{_SHORTEST_PREFIX} or more letters, digits, ., _ and - that begin no foreign name; "
                "a whole name is a prefix too",
            )

    def _numbers(self, found: ClusterFile) -> None:
        for key, wrong, allowed in (
            ("topics.replication", found.topics.replication < 1, "1 or more"),
            (
                "topics.min_insync",
                not 1 <= found.topics.min_insync <= found.topics.replication,
                "from 1 to replication",
            ),
            ("faults.most_targets", found.faults.most_targets < 1, "1 or more nodes"),
            ("limits.deadline", found.limits.deadline <= 0, "above 0s"),
            ("limits.bytes_per_second", found.limits.bytes_per_second <= 0, "above 0B/s"),
            ("limits.storage", found.limits.storage <= 0, "above 0B"),
            ("limits.abort_file", not found.limits.abort_file, "a path; creating that file ends the run"),
            ("limits.foreign_under_replicated", found.limits.foreign_under_replicated < 0, "0 or more"),
        ):
            if wrong:
                table, name = key.split(".")
                raise self._fail(
                    key, f"{getattr(getattr(found, table), name)!s} is not allowed", f"allowed: {allowed}"
                )

    def _security(self, found: ClusterFile) -> Security:
        security = found.security
        for name in ("username", "password"):
            if security.sasl != bool(getattr(security, name)):
                problem = "is missing" if security.sasl else "is not used"
                raise self._fail(
                    f"security.{name}",
                    f'it {problem} with protocol = "{security.protocol}"',
                    "SASL_PLAINTEXT and SASL_SSL have a username and a password, the others have none",
                )
        self._token(security)
        paths = {name: placed(getattr(security, name), self._folder) for name in _PASSWORDS}
        for name in _FILES:
            written = getattr(security, name)
            if written and not security.tls:
                raise self._fail(f"security.{name}", f"{security.protocol} has no TLS", "remove it")
            paths[name] = str(self._folder / written) if written else ""
            if written and not Path(paths[name]).is_file():
                raise self._fail(f"security.{name}", f"there is no file {paths[name]}", "a PEM file")
        if bool(security.certificate) != bool(security.key):
            raise self._fail(
                "security.certificate", "certificate and key must be given together", "name both"
            )
        resolved: Security = msgspec.structs.replace(security, **paths)
        if resolved.key and b"ENCRYPTED" in resolved.key_bytes() and not resolved.key_password:
            raise self._fail(
                "security.key",
                "the key is encrypted, and key_password is missing",
                f"give the source of its password: {SECRETS}",
            )
        if resolved.converts_key and shutil.which("openssl") is None:
            raise self._fail(
                "security.key",
                "Spark cannot read this key format, and openssl is not installed to convert it",
                "install openssl, or write the key as PKCS#8 without a password",
            )
        return resolved

    def _token(self, security: Security) -> None:
        """Raise an error if the keys of a token endpoint are missing, or are not used."""
        if security.oauth and not security.token_url.startswith(("http://", "https://")):
            hint = "OAUTHBEARER needs the http or https address that issues tokens for username and password"
            raise self._fail("security.token_url", f"{security.token_url!r} is not an address", hint)
        for name in ("token_url", "scope"):
            if getattr(security, name) and not security.oauth:
                raise self._fail(f"security.{name}", "only OAUTHBEARER uses it", "remove it")

    def _links(self, found: ClusterFile) -> None:
        if (found.links is None) != (not found.proxy):
            raise self._fail(
                "links",
                "[links] and [[proxy]] need each other",
                "name the Toxiproxy in [links], and add one [[proxy]] per broker",
            )
        if found.links is None:
            return
        started = found.links.toxiproxy == START
        if not started:
            self._address("links.toxiproxy", found.links.toxiproxy, ' or "start"')
        for index, proxy in enumerate(found.proxy):
            place = f"proxy[{index}]"
            self._address(f"{place}.listen", proxy.listen)
            given, other = ("upstream", "name") if started else ("name", "upstream")
            if not getattr(proxy, given) or getattr(proxy, other):
                raise self._fail(
                    f"{place}.{given}",
                    f'with toxiproxy = "{found.links.toxiproxy}" it needs {given}, not {other}',
                    "upstream: target of a proxy that the harness starts; name: name of your own proxy",
                )
            if started:
                self._address(f"{place}.upstream", proxy.upstream)
        if len(found.proxies) < len(found.proxy):
            raise self._fail("proxy", "two entries for one broker", "write one [[proxy]] per broker")

    def _nodes(self, nodes: NodesPart) -> None:
        commands = [verb for verb in (*VERBS, "log") if getattr(nodes, verb)]
        if bool(nodes.docker_label) == bool(commands):
            raise self._fail(
                "nodes", "set docker_label or commands, not both", f"commands are {', '.join(VERBS)}, log"
            )
        for name in ["docker_label", *commands]:
            text = getattr(nodes, name)
            try:
                fields = {field for _, field, _, _ in string.Formatter().parse(text) if field is not None}
                shlex.split(text)
            except ValueError as error:
                raise self._fail(f"nodes.{name}", f"{text!r}: {error}", "close quotes and braces") from None
            if fields - {"host", "id"}:
                raise self._fail(
                    f"nodes.{name}",
                    f"{{{', '.join(fields - {'host', 'id'})}}} is not known",
                    "use {host} or {id}",
                )
        for verb, undo in UNDONE_BY.items():
            if getattr(nodes, verb) and not getattr(nodes, undo):
                raise self._fail(
                    f"nodes.{verb}", f"there is no {undo} command to undo it", f"add {undo} = ..."
                )
        for key in nodes.hosts:
            if not key.isdigit():
                raise self._fail("nodes.hosts", f"{key!r} is not a broker id", 'write hosts = { 1 = "host" }')

    def _faults(self, found: ClusterFile) -> None:
        for fault in found.faults.allowed:
            needed = self._allowed_faults.get(fault)
            if needed is None:
                raise self._fail(
                    "faults.allowed",
                    f"{fault!r} is not allowed on an external cluster",
                    nearest(fault, list(self._allowed_faults), "allowed are"),
                )
            if needed is Capability.LINK and found.links is None:
                raise self._fail("faults.allowed", f"{fault} needs a Toxiproxy", "add [links] and [[proxy]]")
            if needed in NODE_CAPABILITIES and not reaches(found.nodes, needed):
                hint = f"add [nodes] with docker_label, or with {needed} and {UNDONE_BY[needed]}"
                raise self._fail("faults.allowed", f"no command to {needed} a node", hint)

    def _evidence(self, found: ClusterFile) -> None:
        for log in found.evidence.logs:
            if log not in LOGS:
                hint = nearest(log, list(LOGS), "allowed are")
                raise self._fail("evidence.logs", f"{log!r} is not a readable log", hint)
        if NODE_LOGS in found.evidence.logs and not reaches(found.nodes, "log"):
            hint = "add [nodes] with docker_label, or with log"
            raise self._fail("evidence.logs", "no command to read a node's log", hint)

    def _address(self, key: str, text: str, more: str = "") -> None:
        try:
            parse_address(text)
        except ValueError as error:
            raise self._fail(key, f"{error}{more}", 'such as "broker-1.example:9092"') from None


def reaches(nodes: NodesPart | None, verb: str) -> bool:
    """Return whether the table [nodes] gives the harness a means to carry out `verb` on a broker.

    An example of `verb` is kill.
    """
    return nodes is not None and bool(nodes.docker_label or getattr(nodes, verb))
