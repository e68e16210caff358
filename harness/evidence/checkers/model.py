"""Types that checkers share: their input (Evidence) and their output (Result, Anomaly, Example)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

import msgspec

from harness.evidence.app_list import AppList
from harness.evidence.bit_words import EXAMPLES
from harness.evidence.checkers.distinct import Items
from harness.evidence.client_list import ClientList
from harness.evidence.contract_statement import ContractTable, RequiredQuery, Statement
from harness.evidence.ledger import Ledger
from harness.evidence.log_audit import Audit
from harness.evidence.observation import Observation, Spot
from harness.evidence.step_report import WalkthroughStep
from harness.evidence.stored_logs import StoredLogs

ANOMALIES: Final = {
    "lost": "a committed record cannot be read",
    "log_truncated": "a partition's end went back: offsets that were readable are gone",
    "torn_transaction": "a transaction can be read in part",
    "fate_mismatch": "a marker in the log contradicts what the client of the transaction recorded",
    "undecided_marker": "a marker ended records, but the coordinator had not decided so",
    "wrong_transaction": "a record is in a transaction to which it does not belong",
    "zombie_write": "a write of a fenced producer was accepted",
    "aborted_read": "a record of an aborted transaction can be read, or an application processed it",
    "duplicate": "a record can be read more than once",
    "reused_sequence": "two batches of a partition have the same producer id, epoch and sequence",
    "poll_skip": "a poll passed over a readable record",
    "unseen": "a reader read to the end but was not given a readable record",
    "never_processed": "an input that was passed over has no output",
    "processed_twice": "an input has more outputs than the pipeline or application makes of it",
    "corrupted_output": "an output carries the checksum of another value than that of its input",
    "wrong_output": "an output contradicts its input, or nothing demands it",
    "aggregate_drift": "a key's count or sum differs from its inputs",
    "offset_drift": "a group's position disagrees with its committed transactions or outputs",
    "position_went_back": "a group's position went back within one transaction",
    "phantom": "a record can be read that no client of the run sent, or that was made from no input",
    "inconsistent_offset": "one offset is reported with two different records",
    "early_read": "a record was read before its send, or the commit of its transaction, was requested",
    "g1c": "clients read each other's records in a cycle",
    "g1c_realtime": "clients read each other's records in a cycle, given the order of each clock",
    "reordered": "records of a partition are not in the order in which they, or their inputs, were sent",
    "nonmonotonic_poll": "a poll returned an offset again, or offsets out of order",
    "hanging_transaction": "a partition's last stable offset stopped behind its high watermark",
    "stalled": "an operation got no answer, or an input no output, in time after the last fault was healed",
}
"""Every anomaly name that a verdict may use, with its meaning; the worst anomaly is first.

The order depends on the name alone, not on the count: counts of records, transactions and positions cannot be
compared. Missing data is worse than late data. docs/anomalies.md explains every anomaly.
"""

SEVERITY: Final = {name: rank for rank, name in enumerate(ANOMALIES)}
"""Rank of each anomaly for sorting; 0 is the worst anomaly."""


class Verdict(StrEnum):
    """The verdict on a property or a run: valid, unknown or invalid. Invalid is the worst."""

    VALID = "valid"
    UNKNOWN = "unknown"
    INVALID = "invalid"


_BADNESS: Final = {Verdict.VALID: 0, Verdict.UNKNOWN: 1, Verdict.INVALID: 2}


def worst(verdicts: list[Verdict]) -> Verdict:
    """Return the worst of the verdicts; unknown if the list is empty."""
    return max(verdicts, key=lambda verdict: _BADNESS[verdict], default=Verdict.UNKNOWN)


# The checkers iterate over these numbers, so limit what a damaged file can contain.
_MOST_OUTPUTS: Final = 1_000
_MOST_STEPS: Final = 10_000

MOST_TOKENS: Final = 3
"""Most tokens of inputs that an example contains."""


class HistoryRef(msgspec.Struct, frozen=True):
    """Reference to one line of one client's history file."""

    client: str
    line: int


class OffsetRef(msgspec.Struct, frozen=True):
    """Reference to a range of offsets of one partition; the offset `last` is included."""

    topic: str
    partition: int
    first: int
    last: int

    @property
    def text(self) -> str:
        """The range as text, such as "orders-0 offsets 3-7" or "orders-0 offset 3"."""
        offsets = f"offset {self.first}" if self.first == self.last else f"offsets {self.first}-{self.last}"
        return f"{self.topic}-{self.partition} {offsets}"


class Example(msgspec.Struct, kw_only=True):
    """One case of an anomaly, described in a sentence, with the history lines and offsets that prove it.

    `witness` names the witnesses that found the case, such as "reader and spark". `tokens` are those of the
    inputs that an anomaly of an application concerns, at most MOST_TOKENS.
    """

    what: str
    weight: int = 1
    witness: str = ""
    lines: list[HistoryRef] = []
    offsets: list[OffsetRef] = []
    tokens: list[str] = []


class Anomaly(msgspec.Struct, kw_only=True):
    """All cases of one anomaly: how many there are, the unit of this count, and the worst examples.

    The count is of distinct records, transactions or positions, whatever the number of witnesses that found
    them. `witnesses` are the names of these witnesses.
    """

    name: str
    count: int
    unit: str
    examples: list[Example]
    witnesses: list[str] = []

    @property
    def counted(self) -> str:
        """The count with its unit and the witnesses, such as "50 records, seen by reader and spark"."""
        seen_by = f", seen by {join_names(self.witnesses)}" if self.witnesses else ""
        return f"{self.count} {self.unit}{seen_by}"


class Result(msgspec.Struct, kw_only=True):
    """The result of the checker of one property.

    `compared` is the number of items that the checker compared, and `unit` is the kind of these items.
    `not_counted` are anomalies in damaged evidence: the damage may have caused them.
    """

    property: str
    verdict: Verdict
    compared: int
    unit: str
    anomalies: list[Anomaly] = []
    permitted: list[Anomaly] = []
    reasons: list[str] = []
    not_counted: list[Anomaly] = []


class Pipeline(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A consume-transform-produce application: its consumer group reads inputs, and it produces outputs.

    `outputs` is the number of outputs per input. A stateful pipeline also has a changelog. For each key, it
    contains the number of inputs and the sum of their sequences.
    """

    group: str
    inputs: list[str]
    outputs: Annotated[int, msgspec.Meta(ge=1, le=_MOST_OUTPUTS)] = 1
    changelog: str = ""


Source = Literal["topic", "command", "http", "jdbc"]
"""Where the outputs of an application are: in a topic, or rows that are read from somewhere else."""
UNORDERED: Final = ("command", "jdbc")
"""Sources whose rows have no order."""


class OutputContract(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What the application must write to one output topic, or to another output, which `topic` then names.

    Each input has from `least` to `most` outputs; without `most`, any number from `least` up. With `order`,
    the outputs of a lane are in the order of its inputs. For "key" the lanes are the keys, and all outputs of
    a key are in one partition. For "partition" the lanes are the partitions of the input. If `required` is
    true, witnesses compute from each input how many outputs it must have. Without `tokens`, only statements
    apply.
    """

    topic: str
    least: Annotated[int, msgspec.Meta(ge=0, le=_MOST_OUTPUTS)] = 1
    most: Annotated[int, msgspec.Meta(ge=1, le=_MOST_OUTPUTS)] | None = 1
    order: Literal["key", "partition", "none"] = "none"
    tokens: bool = True
    required: bool = False
    source: Source = "topic"

    @property
    def is_counted(self) -> bool:
        """Whether a witness must count the outputs of each input beyond the first one."""
        return self.required or self.least > 1 or (self.most is not None and self.most > 1)


class AppContract(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What the application under test must do with its inputs. `group` is empty if it has no group.

    `statements` and `required` are queries over `tables`. What `guarantee` permits is listed, but no anomaly.
    """

    inputs: list[str]
    outputs: list[OutputContract]
    group: str = ""
    tables: list[ContractTable] = []
    required: list[RequiredQuery] = []
    statements: list[Statement] = []
    guarantee: Literal["exactly once", "at least once", "at most once"] = "exactly once"


STALL_MS: Final = 60_000
"""How long an operation may wait for its answer after the last heal: the delivery time-out of a client."""


class Expect(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The properties to check, and limits for them. The run writes them to expect.json before it starts.

    If `properties` is empty, the run's producers and its pipeline determine which properties are checked.
    Kafka permits some deviations for some producer settings, such as duplicates without idempotence. If
    `hold_to` is "settings", these deviations are not anomalies; if it is "exactly_once", they are.
    """

    hold_to: Literal["settings", "exactly_once"] = "settings"

    properties: list[str] = []
    witnesses: list[str] = []
    pipeline: Pipeline | None = None
    contract: AppContract | None = None
    stall_ms: int = STALL_MS
    transaction_timeout_ms: int = 60_000
    faults: int = 0
    walkthrough_steps: Annotated[int, msgspec.Meta(ge=0, le=_MOST_STEPS)] = msgspec.field(
        name="flow_steps", default=0
    )
    # Topics from which brokers may have removed records, because a later record has the same key.
    compacted: list[str] = []
    # Whether the run writes clients.json. Runs of earlier releases did not.
    clients: bool = False
    # Whether the run stores audit.json. Runs of earlier releases did not.
    audit: bool = False
    # Whether closing lines of histories count the lines. Those of earlier releases did not.
    counted: bool = False
    # Whether the run and its clients record how late their threads wake. Earlier releases did not.
    lateness: bool = False
    # Whether the run starts an application, and writes app.json.
    app: bool = False
    # Reasons why the verdict cannot be valid. They are known before the run starts.
    caveats: list[str] = msgspec.field(name="doubts", default_factory=list)


@dataclass
class Evidence:
    """All data that a checker gets as input.

    `damage` lists evidence that is missing, changed, or from another run. If there is any, the verdict is
    unknown. `files` is the number of files in the run's manifest; it is None for evidence without files.
    """

    ledger: Ledger
    observations: list[Observation]
    expect: Expect = field(default_factory=Expect)
    walkthrough: list[WalkthroughStep] = field(default_factory=list)
    clients: ClientList | None = None
    app: AppList | None = None
    logs: StoredLogs | None = None
    damage: list[str] = field(default_factory=list)
    files: int | None = None
    cache: dict[Hashable, Any] = field(default_factory=dict, init=False)

    def committed_views(self) -> list[Observation]:
        """Return the observations that read whole topics with read_committed."""
        return [
            view
            for view in self.observations
            if view.meta.purpose == "all" and view.meta.isolation == "read_committed"
        ]

    def audit(self) -> Audit:
        """Return the result of the search for damage in the stored logs."""
        if "audit" not in self.cache:
            self.cache["audit"] = self.logs.search() if self.logs else Audit()
        found: Audit = self.cache["audit"]
        return found


@dataclass
class _Cases:
    """The cases of one anomaly that a Collector has got so far."""

    count: int = 0
    items: dict[type, Any] = field(default_factory=dict)
    examples: dict[Hashable, Example] = field(default_factory=dict)
    witnesses: dict[Hashable, set[str]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def add_example(self, key: Hashable, example: Example, witness: str) -> None:
        """Keep the heaviest example of a case, and of equal ones the longest: it names the cause."""
        known = self.examples.get(key)
        if known is None or _rank(example) > _rank(known):
            self.examples[key] = example
        self.witnesses.setdefault(key, set()).update(filter(None, (example.witness, witness)))

    def anomaly(self, name: str, unit: str) -> Anomaly:
        examples = [
            msgspec.structs.replace(example, witness=join_names(sorted(self.witnesses[key])))
            for key, example in self.examples.items()
        ]
        examples.sort(key=lambda example: (-example.weight, example.witness, example.what))
        count = self.count + sum(map(len, self.items.values()))
        witnesses = sorted(self.names.union(*self.witnesses.values()))
        return Anomaly(name=name, count=count, unit=unit, examples=examples[:EXAMPLES], witnesses=witnesses)


def _rank(example: Example) -> tuple[int, int, str]:
    return example.weight, len(example.what), example.what


class Collector:
    """Collector of one property's anomalies: counts all their cases and keeps the worst examples."""

    def __init__(self, name: str, unit: str) -> None:
        self.name = name
        self.unit = unit
        self.compared = 0
        self.reasons: list[str] = []
        self._cases: dict[tuple[bool, str, str], _Cases] = {}

    def add(
        self,
        name: str,
        unit: str,
        found: int | Items,
        examples: list[Example] | Mapping[Hashable, Example],
        *,
        permitted: bool = False,
        witness: str = "",
    ) -> None:
        """Add cases of one anomaly. `permitted` means that Kafka allows them with the producer's settings.

        `found` is the set of cases; it is united with sets of the same class of other witnesses. Or it is a
        number of cases that no other witness reports; it is added. Examples with the same key are one case.
        Without keys, examples with the same text are one case.
        """
        assert name in ANOMALIES
        number = found if isinstance(found, int) else len(found)
        if not number:
            return
        cases = self._cases.setdefault((permitted, name, unit), _Cases())
        if isinstance(found, int):
            cases.count += found
        else:
            kind = type(found)
            cases.items[kind] = cases.items[kind] | found if kind in cases.items else found
        if witness:
            cases.names.add(witness)
        keyed = examples if isinstance(examples, Mapping) else {e.what: e for e in examples}
        for key, example in keyed.items():
            cases.add_example(key, example, witness)

    def result(self) -> Result:
        """Return the result of the property.

        It is invalid if there are anomalies. Otherwise it is unknown if the checker gave reasons against a
        valid result, or if it compared nothing.
        """
        cases = sorted(self._cases.items(), key=lambda item: SEVERITY[item[0][1]])
        lists: dict[bool, list[Anomaly]] = {False: [], True: []}
        for (permitted, name, unit), found in cases:
            lists[permitted].append(found.anomaly(name, unit))
        reasons = list(self.reasons)
        if not self.compared:
            reasons.append(nothing_compared(self.unit))
        verdict = Verdict.INVALID if lists[False] else Verdict.UNKNOWN if reasons else Verdict.VALID
        return Result(
            property=self.name,
            verdict=verdict,
            compared=self.compared,
            unit=self.unit,
            anomalies=lists[False],
            permitted=lists[True],
            reasons=reasons,
        )


def nothing_compared(unit: str) -> str:
    """Return the reason for an unknown result of a checker that compared nothing."""
    return f"nothing was compared: no {unit}"


def join_names(names: Sequence[str]) -> str:
    """Return the names as text: "a", "a and b", or "a, b and c"."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def place(spot: Spot) -> list[OffsetRef]:
    """Return a reference to the offset of an example.

    If the example compares two records, return a reference to the offset of the other record as well.
    """
    refs = [OffsetRef(spot.topic, spot.partition, spot.offset, spot.offset)]
    if spot.other_offset >= 0:
        refs.append(OffsetRef(spot.topic, spot.partition, spot.other_offset, spot.other_offset))
    return refs
