"""Contract of an application under test: its outputs contain each input as often as the contract demands.

The inputs that count are those that the witness itself read with read_committed. The other properties verify
them against the histories, so a lost input is not blamed on the application. Anomalies:

    an input that was passed over has too few outputs            never_processed
    an input that was never passed over has too few outputs      stalled
    an input has too many outputs                                processed_twice
    an output contains an input of an aborted transaction        aborted_read
    an output contains a token that no client sent, or none      phantom
    outputs of a lane are not in the order of its inputs         reordered
    outputs of a key are in several partitions                   reordered

An input was passed over if it is before the committed position of the application's group. If the application
has no group, it was passed over if a later input of its lane has outputs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, Final

import numpy as np

from harness.evidence.bit_words import (
    EXAMPLES,
    WORD_SEQS,
    Ints,
    group_starts,
    lane_key,
    lowest_and_highest,
    merge,
    popcount,
    split_lane_key,
)
from harness.evidence.checkers.app_statements import check_statements, is_permitted, not_reached
from harness.evidence.checkers.bitsets import WORDS, BitSet
from harness.evidence.checkers.client_ends import skipped_phases
from harness.evidence.checkers.distinct import Grouped, Items, RecordSet, Tally
from harness.evidence.checkers.model import (
    MOST_TOKENS,
    AppContract,
    Collector,
    Evidence,
    Example,
    HistoryRef,
    OffsetRef,
    OutputContract,
    Result,
    place,
)
from harness.evidence.checkers.positions import consumed_by
from harness.evidence.checkers.starvation import unjudged_wait
from harness.evidence.checkers.visibility_index import group_lines, ranges
from harness.evidence.checkers.witness_agreement import missing_part, undecided_parts
from harness.evidence.ledger import ABORTED, COMMITTED, NEVER, UNKNOWN
from harness.evidence.observation import Observation, Rows
from harness.evidence.token import NO_TOKEN, token_of

MARK: Final = "-output-"
"""Text between the name of a witness and the name of a topic, in the name of an observation of outputs."""

REQUIRED: Final = "-required-"
"""Text between the name of a witness and the name of a topic, in the name of an observation of `each`."""

READERS: Final = ("reader", "spark", "spark-batch")
"""Witnesses that read outputs. The raw log contains values only, and a token may be in a key or header."""
ROW_READERS: Final = ("reader", "spark-batch")
"""Witnesses that read outputs that are no topic."""


def output_witness(witness: str, topic: str) -> str:
    """Return the name of the observation in which a witness describes one output topic."""
    return f"{witness}{MARK}{topic}"


def witness_of(view: Observation) -> str:
    """Return the name of the witness that made an observation of outputs."""
    return view.meta.witness.partition(MARK)[0]


def check(evidence: Evidence) -> Result:
    """Compare the outputs of each topic with the inputs, and the witnesses with each other."""
    out = Collector("contract", "inputs")
    contract = evidence.expect.contract
    if contract is None:
        out.reasons.append("the run has no contract")
        return out.result()
    inputs = _inputs_of(evidence, contract, "")
    if inputs is None:
        out.reasons.append(f"no witness read the inputs {', '.join(contract.inputs)} completely")
    if contract.group and not consumed_by(evidence, contract.group):
        out.reasons.append(f"no witness read the inputs up to the position of group {contract.group}")
    out.reasons += dict.fromkeys(
        reason
        for view in evidence.observations
        if view.meta.purpose in ("outputs", "statements")
        for reason in undecided_parts(view.meta)
    )
    check_statements(evidence, contract, inputs, out)
    for output in contract.outputs:
        if not output.tokens:
            continue
        views = [view for view in evidence.observations if _is_of(view, output.topic)]
        _check_promises(evidence, views, output, out)
        whole = [view for view in views if not missing_part(view.meta)]
        for view in whole:
            _Outputs(evidence, contract, output, view, out).check()
        out.reasons += _required_differences(evidence, output.topic)
        out.reasons += [reason for i, view in enumerate(whole) for reason in _differences(whole[:i], view)]
    return out.result()


def _is_of(view: Observation, topic: str) -> bool:
    topics = {window.topic for window in view.meta.windows}
    return view.meta.purpose == "outputs" and topics == {topic}


def _check_promises(
    evidence: Evidence, views: list[Observation], output: OutputContract, out: Collector
) -> None:
    """Check that every promised witness left a complete observation of the topic."""
    readers = READERS if output.source == "topic" else ROW_READERS
    promised = [name for name in evidence.expect.witnesses if name in readers]
    if not promised and not views:
        out.reasons.append(f"no witness read {output.topic}")
    for name in promised:
        mine = [view.meta for view in views if witness_of(view) == name]
        if not mine:
            out.reasons.append(f"witness {name} left no observation of {output.topic}")
        elif detail := missing_part(mine[0]):
            out.reasons.append(f"witness {name} did not read {output.topic} completely: {detail}")
    whole = [view for view in views if view.meta.complete and len(view.words)]
    if output.is_counted and whole and not any(len(view.origins) for view in whole):
        out.reasons.append(f"no witness counted the outputs of each input in {output.topic}")


class _Outputs:
    """The outputs in one topic, as one witness read them, compared with the inputs that it read."""

    def __init__(
        self,
        evidence: Evidence,
        contract: AppContract,
        output: OutputContract,
        view: Observation,
        out: Collector,
    ) -> None:
        self.evidence = evidence
        self.contract = contract
        self.output = output
        self.view = view
        self.out = out
        self.witness = witness_of(view)
        tokens = view.words["producer"] != NO_TOKEN
        self.words: Rows = view.words[tokens]
        self.strange: Rows = view.words[~tokens]
        self.seen = BitSet.of(self.words)
        self.is_counted = len(view.origins) > 0
        self.required = self._required_view() if output.required else None

    def check(self) -> None:
        """Find all anomalies of this topic."""
        inputs = self._inputs()
        if inputs is None:
            self.out.reasons.append(f"no witness read the inputs of {self.output.topic} completely")
            return
        self.out.compared = max(self.out.compared, len(inputs))
        if self.view.meta.clashes.count:
            spot = self.view.meta.clashes.examples[0]
            self.out.reasons.append(
                f"{self.view.meta.clashes.count} records of {self.output.topic} contain different tokens, "
                f"such as offset {spot.offset} of partition {spot.partition}, so it is not known to which "
                "input each of them belongs"
            )
            return
        if self.output.required and self.required is None:
            self.out.reasons.append(
                f"it is not known how many outputs each input must have in {self.output.topic}: "
                f"{self._why_not_required()}"
            )
        else:
            known = self._numbered(inputs)
            self._few(known)
            self._many(known)
        self._unknown(self.seen.minus(inputs))
        self._without_token()
        if self.output.order != "none":
            self._late()
        if self.output.order == "key":
            self._split_keys()

    def _numbered(self, inputs: BitSet) -> BitSet:
        """Return the inputs of which it is known how many outputs they must have; report the others."""
        if self.required is None:
            return inputs
        topic = self.output.topic
        must_list = any(query.numbered for query in self.contract.required if query.topic == topic)
        known = inputs
        if must_list or not len(self.required.origins):
            known = both(inputs, BitSet.of(self.required.words))
        if unknown := len(inputs.minus(known)):
            self.out.reasons.append(
                f"it is not known how many outputs {unknown} inputs must have in {topic}: the query returned "
                "no number for them"
            )
        elif not len(self.required.origins):
            self.out.reasons.append(
                f"no input must have an output in {topic}, so a missing output would not be noticed"
            )
        return known

    def _inputs(self) -> BitSet | None:
        """Return the inputs that the same witness read; of another complete witness if it read none."""
        return _inputs_of(self.evidence, self.contract, self.witness)

    def _few(self, inputs: BitSet) -> None:
        """Find inputs with too few outputs, by the number of outputs that they have."""
        least = self.output.least if self.required is None else _ranks_of(self.required)
        for rank in range(least if self.is_counted else min(1, least)):
            wanted = inputs if self.required is None else both(self._required_more_than(rank), inputs)
            missing = wanted.minus(self._with_more_than(rank))
            if not len(missing):
                continue
            passed, rule = self._passed(missing)
            left = missing.minus(passed)
            self._report_missing("never_processed", passed, rank, rule)
            if not len(left):
                continue
            if obstacle := self._unjudged():
                self.out.reasons.append(
                    f"{len(left)} inputs have too few outputs in {self.output.topic}, but {obstacle}"
                )
            else:
                self._report_missing("stalled", left, rank, self._why_stalled())

    def _unjudged(self) -> str:
        """Return why an input that was not passed over cannot be called stalled; empty if it can."""
        if skipped := skipped_phases(self.evidence.ledger):
            return f"the run did not wait for them: {skipped[0]}"
        if self.contract.group and not consumed_by(self.evidence, self.contract.group):
            return f"no witness read the inputs up to the position of group {self.contract.group}"
        return unjudged_wait(self.evidence)

    def _required_more_than(self, rank: int) -> BitSet:
        """Return the inputs that must have more than `rank` outputs."""
        assert self.required is not None
        return BitSet.of(self.required.origins[self.required.origins["part"] == rank])

    def _required_view(self) -> Observation | None:
        """Return how many outputs each input must have, according to the same witness or another one."""
        views = [
            view
            for view in self.evidence.observations
            if view.meta.purpose == "required"
            and not missing_part(view.meta)
            and view.meta.witness.endswith(f"{REQUIRED}{self.output.topic}")
        ]
        mine = [view for view in views if view.meta.witness.startswith(f"{self.witness}-")]
        return next(iter([*mine, *views]), None)

    def _more_than_required(self, inputs: BitSet) -> None:
        """Find inputs with more outputs than they must have."""
        for rank in range(_ranks_of(self.view) if self.is_counted else 1):
            extra = both(self._with_more_than(rank).minus(self._required_more_than(rank)), inputs)
            examples = self._examples(
                extra,
                f"have output {rank + 1} in {self.output.topic}, but must have {self._required_text(rank)}",
            )
            found = Grouped({(self.output.topic, rank): RecordSet(extra.keys, extra.bits)})
            self._add("processed_twice", "outputs too many", found, examples)

    def _required_text(self, rank: int) -> str:
        return f"at most {rank}" if rank else "none"

    def _add(self, name: str, unit: str, found: Items, examples: list[Example]) -> None:
        permitted = is_permitted(self.contract, name)
        self.out.add(name, unit, found, examples, witness=self.witness, permitted=permitted)

    def _with_more_than(self, rank: int) -> BitSet:
        if rank == 0:
            return self.seen
        return BitSet.of(self.view.origins[self.view.origins["part"] == rank])

    def _passed(self, missing: BitSet) -> tuple[BitSet, str]:
        """Return the missing inputs that were passed over, and the rule in words."""
        if self.contract.group:
            for view in consumed_by(self.evidence, self.contract.group)[:1]:
                text = f"before the committed position of group {self.contract.group}"
                return missing.minus(missing.minus(BitSet.of(view.words))), text
        passed = missing.minus(self._behind_later_ones(missing))
        return passed, "before a later input of their lane that has outputs"

    def _behind_later_ones(self, missing: BitSet) -> BitSet:
        """Return the missing inputs behind which no later input of their lane has outputs."""
        lanes = self.seen.keys // WORDS
        starts = group_starts(lanes)
        highest: dict[int, int] = {}
        if len(starts):
            ends = np.append(starts[1:], len(lanes)) - 1
            _, high = lowest_and_highest(self.seen.bits[ends])
            last = (self.seen.keys[ends] % WORDS) * WORD_SEQS + high
            highest = dict(zip(lanes[ends].tolist(), last.tolist(), strict=True))
        bits = missing.bits.copy()
        for i, key in enumerate(missing.keys.tolist()):
            lane, word = divmod(key, WORDS)
            bits[i] &= ~_below(highest.get(lane, -1) - word * WORD_SEQS)
        kept = bits.any(axis=1)
        return BitSet(missing.keys[kept], bits[kept])

    def _why_stalled(self) -> str:
        app = self.evidence.app
        if app is not None and app.gave_up:
            return f"not reached, because {next(iter(sorted(app.gave_up.values())))}"
        if self.contract.group:
            return not_reached(self.evidence, self.contract.group)
        return "not followed by an input that has outputs, and the outputs stopped to grow"

    def _report_missing(self, name: str, missing: BitSet, rank: int, why: str) -> None:
        wanted = f"{self.output.least} outputs" if self.output.least > 1 else "an output"
        having = f"only {rank} of {wanted}" if self.output.least > 1 else "no output"
        examples = self._examples(missing, f"have {having} in {self.output.topic}, and are {why}")
        found = Grouped({self.output.topic: RecordSet(missing.keys, missing.bits)})
        self._add(name, "inputs", found, examples)

    def _examples(self, inputs: BitSet, what: str) -> list[Example]:
        """Return examples of inputs; `what` is the part of the sentence behind them."""
        return [
            Example(
                what=f"{_inputs_text(producer, lane, sequences)} {what}",
                weight=len(sequences),
                witness=self.witness,
                lines=self._input_lines(producer, lane, sequences[0]),
                offsets=self._input_offsets(producer, lane, sequences),
                tokens=self._tokens(producer, lane, sequences),
            )
            for producer, lane, sequences in inputs.first(EXAMPLES)
        ]

    def _tokens(self, producer: int, lane: int, sequences: list[int]) -> list[str]:
        """Return the tokens of the first inputs. There are none if the witness stored no id of the run."""
        run = self.view.meta.run
        return [token_of(run, producer, lane, seq) for seq in sequences[:MOST_TOKENS]] if run else []

    def _input_lines(self, producer: int, lane: int, seq: int) -> list[HistoryRef]:
        """Return the history lines of the transaction or send that wrote an input."""
        ledger = self.evidence.ledger
        index, declared = ledger.lane_index(np.array([lane_key(producer, lane)], np.int64))
        if not declared[0] or not len(ledger.intervals.lane):
            return []
        at, sent = ledger.interval_at(index, np.array([seq], np.int64))
        return group_lines(ledger, int(ledger.intervals.group[at[0]])) if sent[0] else []

    def _acked_offsets(self, producer: int, lane: int, sequences: list[int]) -> list[OffsetRef]:
        """Return the offsets of the first and the last of the inputs, as their producer recorded them."""
        ledger = self.evidence.ledger
        index, declared = ledger.lane_index(np.array([lane_key(producer, lane)], np.int64))
        acks = ledger.acks[ledger.acks[:, 0] == index[0]]
        offsets = [
            int(row[3]) + seq - int(row[1])
            for seq in (sequences[0], sequences[-1])
            for row in acks[(acks[:, 1] <= seq) & (acks[:, 2] >= seq)][:1]
        ]
        if not declared[0] or len(offsets) < 2:
            return []
        return [OffsetRef(*ledger.places[int(index[0])], min(offsets), max(offsets))]

    def _input_offsets(self, producer: int, lane: int, sequences: list[int]) -> list[OffsetRef]:
        """Return the offsets of the inputs, or those of the words that contain the first ones."""
        if acked := self._acked_offsets(producer, lane, sequences):
            return acked
        refs = {}
        for view in self.evidence.committed_views():
            words = view.words
            word = sequences[0] // WORD_SEQS
            rows = words[(words["producer"] == producer) & (words["lane"] == lane) & (words["word"] == word)]
            for row in rows[:1]:
                window = view.window(int(row["partition"]))
                at = (window.topic, window.partition, int(row["lo"]), int(row["hi"]))
                refs[at] = OffsetRef(*at)
        return list(refs.values())

    def _why_not_required(self) -> str:
        details = [
            missing_part(view.meta)
            for view in self.evidence.observations
            if view.meta.purpose == "required"
            and view.meta.witness.endswith(f"{REQUIRED}{self.output.topic}")
        ]
        return next(filter(None, details), "no witness computed it")

    def _many(self, inputs: BitSet) -> None:
        """Find inputs with too many outputs."""
        if self.required is not None:
            self._more_than_required(inputs)
            return
        most = self.output.most
        if most is None or (most > 1 and not self.is_counted):
            return
        extra = self._extra_of_words() if most == 1 else self._extra_of_ranks(most)
        extra = {key: count for key, count in extra.items() if count}
        spots = [s for s in self.view.meta.repeats.examples if s.producer != NO_TOKEN] if most == 1 else []
        named: dict[Hashable, frozenset[Hashable]] = {}
        for spot in spots:
            word = (self.output.topic, spot.producer, spot.lane, spot.seq // WORD_SEQS)
            named[word] = named.get(word, frozenset()) | {(spot.topic, spot.partition, spot.offset)}
        examples = [
            Example(
                what=f"input {spot.seq} of producer {spot.producer} lane {spot.lane} has more than {most} "
                f"outputs in {self.output.topic}",
                witness=self.witness,
                lines=self._input_lines(spot.producer, spot.lane, spot.seq),
                offsets=place(spot),
                tokens=self._tokens(spot.producer, spot.lane, [spot.seq]),
            )
            for spot in spots
        ] or [
            Example(
                what=f"the inputs {word * WORD_SEQS}-{word * WORD_SEQS + WORD_SEQS - 1} of producer "
                f"{producer} lane {lane} have {count} outputs too many in {topic}",
                weight=count,
                witness=self.witness,
            )
            for (topic, producer, lane, word), count in sorted(extra.items(), key=lambda item: -item[1])[
                :EXAMPLES
            ]
        ]
        found = Tally(dict(extra), named)
        self._add("processed_twice", "outputs", found, examples)

    def _extra_of_words(self) -> dict[Any, int]:
        names = ("producer", "lane", "word")
        columns = merge([{name: self.words[name] for name in (*names, "bits", "n")}], names)
        counts = (columns["n"] - popcount(columns["bits"])).tolist()
        words = zip(*(columns[name].tolist() for name in names), strict=True)
        return {(self.output.topic, *word): count for word, count in zip(words, counts, strict=True)}

    def _extra_of_ranks(self, most: int) -> dict[Any, int]:
        extra: dict[Any, int] = {}
        for row in self.view.origins[self.view.origins["part"] >= most]:
            key = (self.output.topic, int(row["producer"]), int(row["lane"]), int(row["word"]))
            extra[key] = extra.get(key, 0) + int(row["n"])
        return extra

    def _unknown(self, extra: BitSet) -> None:
        """Find outputs of inputs that cannot be read: aborted ones, and tokens that no client sent."""
        if not len(extra):
            return
        ledger = self.evidence.ledger
        rows = [(lane, seq) for lane, seqs in _sequences(extra) for seq in seqs]
        key, seq = np.array(rows, np.int64).reshape(-1, 2).T
        lane, known = ledger.lane_index(key)
        fate = np.full(len(seq), NEVER, np.uint8)
        group = np.full(len(seq), -1, np.int64)
        if len(ledger.intervals.lane):
            at, sent = ledger.interval_at(lane, seq)
            known &= sent
            fate[known] = ledger.intervals.fate[at[known]]
            group[known] = ledger.intervals.group[at[known]]
        text = "was aborted, but has an output in"
        tokens = np.column_stack([key, seq, group])
        self._report_tokens("aborted_read", tokens[fate == ABORTED], text)
        self._report_tokens("phantom", tokens[fate == NEVER], "was never sent, but is in")
        unclear = int(np.isin(fate, (COMMITTED, UNKNOWN)).sum())
        if unclear:
            self.out.reasons.append(
                f"{unclear} inputs have outputs in {self.output.topic}, but cannot be read, and no history "
                "shows that they were aborted"
            )

    def _report_tokens(self, name: str, tokens: Ints, text: str) -> None:
        """Report inputs; the columns of `tokens` are: lane key, sequence, and group in the ledger or -1."""
        examples = []
        for lane_number, seq, group in tokens[:EXAMPLES].tolist():
            producer, lane = split_lane_key(lane_number)
            examples.append(
                Example(
                    what=f"input {seq} of producer {producer} lane {lane} {text} {self.output.topic}",
                    witness=self.witness,
                    lines=group_lines(self.evidence.ledger, group) if group >= 0 else [],
                    offsets=self._output_offsets(producer, lane, seq),
                    tokens=self._tokens(producer, lane, [seq]),
                )
            )
        found = Grouped({self.output.topic: RecordSet.of_intervals(tokens[:, 0], tokens[:, 1], tokens[:, 1])})
        self.out.add(name, "inputs", found, examples, witness=self.witness)

    def _output_offsets(self, producer: int, lane: int, seq: int) -> list[OffsetRef]:
        words, word = self.words, seq // WORD_SEQS
        rows = words[(words["producer"] == producer) & (words["lane"] == lane) & (words["word"] == word)]
        windows = [self.view.window(int(row["partition"])) for row in rows]
        return [
            OffsetRef(window.topic, window.partition, int(row["lo"]), int(row["hi"]))
            for window, row in zip(windows, rows, strict=True)
        ]

    def _without_token(self) -> None:
        """Find outputs without a token. Their sequences are their offsets."""
        if not len(self.strange):
            return
        sets: dict[Hashable, RecordSet] = {}
        examples = []
        for partition in np.unique(self.strange["partition"]).tolist():
            rows = self.strange[self.strange["partition"] == partition]
            offsets = RecordSet(rows["word"].astype(np.int64), rows["bits"])
            window = self.view.window(partition)
            sets[window.topic, window.partition] = offsets
            for _, found in offsets.first(1):
                examples.append(
                    Example(
                        what=f"offsets {ranges(found)} of {window.topic}-{window.partition} contain no token "
                        "of this run, so they were made from no input",
                        weight=len(found),
                        witness=self.witness,
                        offsets=[OffsetRef(window.topic, window.partition, found[0], found[-1])],
                    )
                )
        self.out.add("phantom", "records", Grouped(sets), examples, witness=self.witness)

    def _late(self) -> None:
        """Find outputs that are behind the output of a later input of their lane."""
        late = self.view.meta.late
        counts: dict[Hashable, int] = {
            (self.output.topic, producer): count
            for producer, count in late.by_producer
            if producer != NO_TOKEN
        }
        spots = [spot for spot in late.examples if spot.producer != NO_TOKEN]
        named: dict[Hashable, frozenset[Hashable]] = {}
        for spot in spots:
            key = (self.output.topic, spot.producer)
            named[key] = named.get(key, frozenset()) | {(spot.topic, spot.partition, spot.offset)}
        examples = [
            Example(
                what=f"input {spot.seq} of producer {spot.producer} lane {spot.lane} is at offset "
                f"{spot.offset} of {spot.topic}-{spot.partition}, behind the later input {spot.other_seq} at "
                f"offset {spot.other_offset}",
                weight=abs(spot.other_seq - spot.seq),
                witness=self.witness,
                lines=self._input_lines(spot.producer, spot.lane, spot.seq),
                offsets=place(spot),
                tokens=self._tokens(spot.producer, spot.lane, [spot.seq, spot.other_seq]),
            )
            for spot in spots
        ]
        self.out.add("reordered", "outputs", Tally(counts, named), examples, witness=self.witness)

    def _split_keys(self) -> None:
        """Find keys with outputs in several partitions: these outputs have no order."""
        pairs = np.unique(
            np.column_stack(
                [self.words[name].astype(np.int64) for name in ("producer", "lane", "partition")]
            ),
            axis=0,
        )
        partitions: dict[tuple[int, int], list[int]] = {}
        for producer, lane, index in pairs.tolist():
            partitions.setdefault((producer, lane), []).append(self.view.window(index).partition)
        split = {key: found for key, found in partitions.items() if len(found) > 1}
        examples = [
            Example(
                what=f"key {lane} of producer {producer} has outputs in partitions "
                f"{', '.join(map(str, found))} of {self.output.topic}, so they have no order",
                witness=self.witness,
            )
            for (producer, lane), found in sorted(split.items())[:EXAMPLES]
        ]
        keys: dict[Hashable, int] = {(self.output.topic, *key): 1 for key in split}
        self.out.add("reordered", "keys", Tally(keys, {}), examples, witness=self.witness)


def _inputs_of(evidence: Evidence, contract: AppContract, witness: str) -> BitSet | None:
    """Return the inputs that a witness read; those of another complete witness if it read none."""
    whole = [view for view in evidence.committed_views() if view.meta.complete]
    views = [view for view in whole if view.meta.witness == witness] or whole
    for view in views:
        topics = [window.topic for window in view.meta.windows]
        if set(contract.inputs) <= set(topics):
            mine = [i for i, topic in enumerate(topics) if topic in contract.inputs]
            return BitSet.of(view.words[np.isin(view.words["partition"], mine)])
    return None


def _ranks_of(view: Observation) -> int:
    return int(view.origins["part"].max()) + 1 if len(view.origins) else 0


def both(first: BitSet, second: BitSet) -> BitSet:
    """Return the records that are in both sets."""
    return first.minus(first.minus(second))


def _required_differences(evidence: Evidence, topic: str) -> Iterator[str]:
    """Yield how witnesses differ about the number of outputs that inputs must have."""
    views = [
        view
        for view in evidence.observations
        if view.meta.purpose == "required"
        and view.meta.complete
        and view.meta.witness.endswith(f"{REQUIRED}{topic}")
    ]
    for view in views[1:]:
        if not _same_counts(views[0], view):
            yield f"witnesses disagree about the number of outputs that inputs must have in {topic}"


def _differences(others: list[Observation], view: Observation) -> Iterator[str]:
    """Yield how the outputs that a witness read differ from those that other witnesses read."""
    for other in others:
        names = f"{witness_of(other)} and {witness_of(view)}"
        ends = [[(w.partition, w.start, w.read_to) for w in v.meta.windows] for v in (other, view)]
        topic = view.meta.windows[0].topic
        if sorted(ends[0]) != sorted(ends[1]):
            yield f"{names} read {topic} with different ends"
            continue
        tables = [_sorted_words(each) for each in (other, view)]
        if len(tables[0]) != len(tables[1]) or bool(np.any(tables[0] != tables[1])):
            yield f"{names} disagree about the outputs in {topic}"
        elif bool(other.meta.late.count) != bool(view.meta.late.count):
            yield f"{names} disagree about the order of the outputs in {topic}"
        elif len(other.origins) and len(view.origins) and not _same_counts(other, view):
            yield f"{names} disagree about the number of outputs of each input in {topic}"


def _sorted_words(view: Observation) -> Rows:
    rows = view.words.copy()
    rows["partition"] = [view.window(index).partition for index in rows["partition"].tolist()]
    ordered: Rows = rows[np.lexsort(tuple(rows[name] for name in ("word", "lane", "producer", "partition")))]
    return ordered


def _same_counts(first: Observation, second: Observation) -> bool:
    keys = ("producer", "lane", "part", "word")
    tables = [merge([{n: v.origins[n] for n in (*keys, "bits", "n")}], keys) for v in (first, second)]
    return all(np.array_equal(tables[0][name], tables[1][name]) for name in (*keys, "bits", "n"))


def _sequences(found: BitSet) -> Iterator[tuple[int, list[int]]]:
    """Yield each lane key with the sequences of one word."""
    for producer, lane, sequences in found.first(len(found.keys)):
        yield lane_key(producer, lane), sequences


def _below(index: int) -> Any:
    """Return a word in which the bits below an index are set; the index may lie outside of the word."""
    bits = np.zeros(4, np.uint64)
    for quarter in range(4):
        count = min(64, max(0, index - 64 * quarter))
        bits[quarter] = np.uint64((1 << count) - 1)
    return bits


def _inputs_text(producer: int, lane: int, sequences: list[int]) -> str:
    return f"inputs {ranges(sequences)} of producer {producer} lane {lane}"
