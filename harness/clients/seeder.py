"""The seeder: a transactional producer that writes the inputs of an application under test."""

from __future__ import annotations

from typing import Final

from harness.clients.client import Deadline
from harness.clients.client_spec import SeederSpec
from harness.clients.input_encoder import check_encoded, close_encoder, encoder_of
from harness.clients.input_template import InputTemplate, InputValues
from harness.clients.progress import ClientProgress
from harness.clients.transactional import TransactionalClient
from harness.evidence.history import HistoryWriter
from harness.evidence.token import token_of

TURNS_A_SECOND: Final = 1000
"""Up to this rate, each input follows one of another lane, so the keys of a partition are mixed."""


class SeederClient(TransactionalClient):
    """A transactional client whose records are made from templates. It aborts some of its transactions.

    The inputs of an aborted transaction are decoys: an application that processes one reads uncommitted
    records.
    """

    def __init__(
        self, spec: SeederSpec, history: HistoryWriter, progress: ClientProgress, stop: Deadline
    ) -> None:
        super().__init__(spec, history, progress, stop)
        self._turn = max(1, spec.rate // TURNS_A_SECOND)
        self._input = spec
        self._value = InputTemplate(spec.value)
        self._headers = [(name, InputTemplate(text, f"header.{name}")) for name, text in spec.headers.items()]
        self._encode = encoder_of(spec.encoder, spec.encoder_command, spec.folder)
        self._key = InputTemplate(spec.key or ("{key}" if spec.keys else ""), "key")

    def run(self) -> None:
        """Write inputs until the client is stopped, then end the encoder."""
        try:
            super().run()
        finally:
            close_encoder(self._encode)

    def _send_to(self, lane: int, count: int, outcome: str) -> None:  # noqa: ARG002 - inputs do not carry it
        first = self._transactor.next_of(lane)
        inputs = [self._values(lane, seq) for seq in range(first, first + count)]
        values = [self._value.fill(each).encode() for each in inputs]
        if self._encode is not None:
            values = [
                check_encoded(self._encode, value.decode(), each.token)
                for value, each in zip(values, inputs, strict=True)
            ]
        headers: list[list[tuple[str, str | bytes | None]]] = [
            [(name, template.fill(each).encode()) for name, template in self._headers] for each in inputs
        ]
        has_key = bool(self._input.key or self._input.keys)
        keys = [self._key.fill(each).encode() for each in inputs] if has_key else None
        self._transactor.send(lane, values, keys, headers if self._headers else None)

    def _values(self, lane: int, seq: int) -> InputValues:
        spec = self._input
        return InputValues(spec.seed, token_of(spec.run, spec.number, lane, seq), seq, lane)
