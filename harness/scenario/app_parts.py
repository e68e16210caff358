"""Tables [[input]] and [[output]] of a scenario file: what an application reads, and what it must write."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from harness.base.units import Duration
from harness.evidence.checkers.model import Source

MOST_EACH = 1000


class EachRule(str):
    """Number of outputs of each input: "1", "0..1" (at most one), "2..3", "1.." (at least one), or SQL."""

    __slots__ = ("least", "most", "sql")
    sql: str
    """Expression over the fields of the input; empty for a number or a range."""
    least: int
    most: int | None
    allowed = '1, "0..1", "1.." or SQL over the fields of the input'

    @classmethod
    def parse(cls, written: object) -> EachRule:
        """Parse a number or a range; raise ValueError with the allowed formats."""
        text = str(written) if isinstance(written, int | str) and not isinstance(written, bool) else ""
        match = re.fullmatch(r"\s*(\d{1,4})(?:(\.\.)(\d{1,4})?)?\s*", text)
        if match is None and not re.search(r"[A-Za-z_]", text):
            raise ValueError(f"{written!r} is not {cls.allowed}")
        rule = super().__new__(cls, text.strip())
        rule.sql = "" if match else text.strip()
        if match is None:
            rule.least, rule.most = 0, None
            return rule
        rule.least = int(match[1])
        rule.most = int(match[3]) if match[3] else None if match[2] else rule.least
        if rule.least > MOST_EACH or not (rule.most is None or max(1, rule.least) <= rule.most <= MOST_EACH):
            raise ValueError(
                f"{written!r} is not a number or range from 1 to {MOST_EACH}, such as {cls.allowed}"
            )
        return rule


class InputPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Table [[input]]: a topic that the application reads, and the inputs that the harness writes to it.

    `value` and `key` are templates. With `keys`, each key is a lane. `aborted` is the share of transactions
    that are aborted; their inputs are decoys. `table` is the name of the topic in SQL, by default the topic
    itself. If the value is CSV, `columns` names its columns. `headers` are templates by the name of the
    header. `encoder` is a function "FILE.py:NAME" that turns the text of a value into bytes.
    `encoder_command` is a command that does the same line by line (harness/clients/input_encoder.py).
    """

    topic: str
    table: str = ""
    columns: list[str] = []
    value: str
    key: str = ""
    headers: dict[str, str] = {}
    encoder: str = ""
    encoder_command: list[str] = []
    keys: int = 0
    partitions: int = 3
    rate: int = 500
    aborted: float = 0.1
    transaction: tuple[int, int] = (5, 50)
    transaction_timeout: Duration = Duration(20)


class TimeWindow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Tumbling windows: the time of an input, the size of a window, and the start of an output's window."""

    field: str
    size: Duration
    start: str


class ConserveRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An aggregate over all outputs, and the aggregate over all inputs that it must equal."""

    outputs: str
    inputs: str


class OutputPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Table [[output]]: what the application writes, and what it must contain.

    An output is a topic, or it consists of rows: JSON lines that `command` prints, calls of an HTTP sink of
    the harness, or the result of the `query` to the database `jdbc`, with the jars of `driver`. `table` is
    the name in SQL; rows have no other name.

    `each`, `order` and `holds` are about outputs that contain the token of an input. The other keys compare
    aggregates or rows, without tokens (contract_sql.py). If outputs contain several tokens, `ids` maps each
    field with one to the table of its inputs, and `each` applies to each of these tables. `reference` is SQL
    over outputs whose values must be those of a run without faults, input by input. `unique` is SQL over
    outputs: no two of them have the same values, except those for which `repeatable` is true.
    """

    topic: str = ""
    command: list[str] = []
    http: bool = False
    jdbc: str = ""
    query: str = ""
    driver: str = ""
    user: str = ""
    password: str = ""
    table: str = ""
    columns: list[str] = []
    each: EachRule | None = None
    ids: dict[str, str] = {}
    holds: str = ""
    per: str = ""
    key: str = ""
    aggregates: dict[str, str] = msgspec.field(name="is", default_factory=dict)
    seen: Literal["last", "every"] = "last"
    window: TimeWindow | None = None
    conserve: ConserveRule | None = None
    unique: list[str] = []
    repeatable: str = ""
    expect: str = ""
    reference: list[str] = []
    last_by: str = ""
    order: Literal["key", "partition", "none"] = "none"
    partitions: int = 3

    @property
    def name(self) -> str:
        """Name of the topic; name of the table if the output consists of rows."""
        return self.topic or self.table

    @property
    def sources(self) -> list[Source]:
        """Sources that the scenario gives; exactly one is right."""
        given: dict[Source, object] = {
            "topic": self.topic,
            "command": self.command,
            "http": self.http,
            "jdbc": self.jdbc,
        }
        return [source for source, value in given.items() if value]

    @property
    def is_topic(self) -> bool:
        """Whether the output is a topic."""
        return bool(self.topic)

    @property
    def has_tokens(self) -> bool:
        """Whether the outputs contain tokens: if `each`, `order` or `holds` is given, or nothing else is."""
        if self.ids:
            return False
        by_value = bool(self.aggregates or self.conserve or self.expect or self.unique)
        return self.each is not None or self.order != "none" or bool(self.holds) or not by_value

    @property
    def each_rule(self) -> EachRule:
        """The number of outputs of each input; one if the scenario does not give it."""
        return self.each or EachRule.parse("1")

    @property
    def is_counted(self) -> bool:
        """Whether a witness must count the outputs of each input beyond the first one."""
        each = self.each_rule
        several = each.least > 1 or (each.most is not None and each.most > 1)
        return self.has_tokens and (several or bool(each.sql))
