"""Specification of the application under test: the table [app] of a scenario file."""

from __future__ import annotations

import re
import signal
from typing import Final, Literal

import msgspec

from harness.base.units import Duration, Size, Span

SIGNALS: Final = ("SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP")


class StopRule(str):
    """The signal that asks an instance to stop, and the time that it then has, such as "SIGTERM 30s".

    When the time is over, the instance is ended by SIGKILL.
    """

    __slots__ = ("limit", "signal")
    signal: signal.Signals
    limit: Duration
    allowed = '"SIGTERM 30s"'

    @classmethod
    def parse(cls, text: object) -> StopRule:
        """Parse a rule; raise ValueError with the allowed format."""
        words = text.split() if isinstance(text, str) else []
        if len(words) != 2 or words[0] not in SIGNALS:
            raise ValueError(f"{text!r} is not {cls.allowed}; the signals are {', '.join(SIGNALS)}")
        rule = super().__new__(cls, " ".join(words))
        rule.signal, rule.limit = signal.Signals[words[0]], Duration.parse(words[1])
        return rule


class RestartLimit(str):
    """The largest number of restarts of an instance in a time, such as "10 in 60s"."""

    __slots__ = ("most", "within")
    most: int
    within: Duration
    allowed = '"10 in 60s"'

    @classmethod
    def parse(cls, text: object) -> RestartLimit:
        """Parse a limit; raise ValueError with the allowed format."""
        match = re.fullmatch(r"\s*(\d+)\s+in\s+(\S+)\s*", text) if isinstance(text, str) else None
        if match is None:
            raise ValueError(f"{text!r} is not {cls.allowed}")
        limit = super().__new__(cls, f"{match[1]} in {match[2]}")
        limit.most, limit.within = int(match[1]), Duration.parse(match[2])
        return limit


class ReadyCheck(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Condition under which an instance is ready. Exactly one field is set, or none for the default.

    `log` is a regular expression that a line of the output must match. `port` is the name of a port on which
    the instance must listen. `http` is an address that must answer with a status below 400. `command` must
    exit with 0. `group` waits until the consumer group is stable and has every partition of the inputs. It is
    the default if the application names a group. `fetch` waits until every partition of the inputs was
    fetched through the wire tap. Without any of them, an instance is ready as soon as it runs.
    """

    log: str = ""
    port: str = ""
    http: str = ""
    command: list[str] = []
    group: bool = False
    fetch: bool = False

    @property
    def used(self) -> list[str]:
        """Names of the fields that are set."""
        return [name for name in self.__struct_fields__ if getattr(self, name)]


class AppLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits of each instance: time until it is ready, memory and cores of its processes, size of its log.

    With `cores = 0`, an instance may use all cores. A Java program learns both limits from JAVA_TOOL_OPTIONS.
    """

    start: Duration = Duration(60)
    cores: int = 0
    memory: Size = Size(1_000_000_000)
    log: Size = Size(100_000_000)


class AppSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Table [app]: what starts the application, what its processes receive, and how they are supervised.

    `command` starts a process on this host. `image` starts a container of a Docker image, and `compose` a
    container of a service in a compose file; `command` then replaces the command of the image. `again` is the
    command of every start of an instance after the first one, if it differs. With `running`, the application
    runs already, and the harness starts and ends none of its processes.
    `command`, `again`, `env`, `files` and the fields of `ready` may contain placeholders.
    `files` maps the name of a file to its content; `{file:NAME}` is the path of the file. The command runs in
    `directory`, which is relative to the folder of the scenario file. `group` is the consumer group of the
    application, if it has one. `internal` are patterns for names of its own topics, which are neither inputs
    nor outputs. `guarantee` is what the application promises.
    """

    command: list[str] = []
    image: str = ""
    compose: str = ""
    running: bool = False
    again: list[str] = []
    name: str = "app"
    env: dict[str, str] = {}
    files: dict[str, str] = {}
    directory: str = "."
    group: str = ""
    internal: list[str] = []
    instances: int = 1
    ready: ReadyCheck = ReadyCheck()
    restart: Literal["always", "on-failure", "never"] = "always"
    backoff: Span = Span(0.5, 10)
    most_restarts: RestartLimit = RestartLimit.parse("10 in 60s")
    stop: StopRule = StopRule.parse("SIGTERM 30s")
    limits: AppLimits = AppLimits()
    guarantee: Literal["exactly once", "at least once", "at most once"] = "exactly once"

    @property
    def names(self) -> list[str]:
        """Names of the instances: `app-1`, `app-2`, and further ones."""
        return [f"{self.name}-{number}" for number in range(1, self.instances + 1)]

    @property
    def in_container(self) -> bool:
        """Whether the instances run in containers."""
        return bool(self.image or self.compose)

    @property
    def texts(self) -> dict[str, str]:
        """Every text that may contain placeholders, by the key under which the scenario file has it."""
        texts = {f"command[{i}]": text for i, text in enumerate(self.command)}
        texts |= {f"again[{i}]": text for i, text in enumerate(self.again)}
        texts |= {f"env.{name}": text for name, text in self.env.items()}
        texts |= {"ready.http": self.ready.http} if self.ready.http else {}
        texts |= {f"ready.command[{i}]": text for i, text in enumerate(self.ready.command)}
        return texts

    @property
    def all_texts(self) -> list[str]:
        """Every text that may contain placeholders, with those of the rendered files."""
        return [*self.texts.values(), *self.files.values()]
