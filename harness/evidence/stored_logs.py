"""The logs of a run's partitions and coordinators, stored so that they can be searched for damage offline.

The run writes audit.json if the raw log is one of its witnesses. The checker `audit` searches it with the
same code as `eos audit` (log_audit.py).
"""

from __future__ import annotations

from typing import Final

import msgspec

from harness.evidence.log_audit import Audit, CoordinatorLog, PartitionLog, audit

FILE: Final = "audit.json"
FORMAT: Final = 1


class StoredLogs(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Batches and markers of a run's partitions, positions of its groups, states of its transactions."""

    format: int = FORMAT
    run: str
    clock_skew_ms: int = 0
    """Largest difference between the clocks of two brokers."""
    partitions: list[PartitionLog] = []
    coordinators: list[CoordinatorLog] = []
    unread: list[str] = []
    """Descriptions of the logs, or parts of them, that could not be read."""

    @property
    def has_producers(self) -> bool:
        """Whether any batch has a producer id, so that there is something to search."""
        return any(batch.producer_id >= 0 for log in self.partitions for batch in log.batches)

    @property
    def ids_of_transactions(self) -> set[int]:
        """The producer ids that wrote transactions into the run's partitions."""
        return {b.producer_id for log in self.partitions for b in log.batches if b.transactional}

    @property
    def ids_with_states(self) -> set[int]:
        """The producer ids of which a coordinator's log has a state."""
        return {state.producer_id for log in self.coordinators for state in log.states}

    @property
    def states_are_whole(self) -> bool:
        """Whether the coordinators' logs were read to their ends and have all states of the run."""
        return bool(self.coordinators) and all(
            log.is_whole and all(state.offset >= log.complete_from for state in log.states)
            for log in self.coordinators
        )

    def search(self) -> Audit:
        """Search the logs for damage."""
        return audit(self.partitions, self.coordinators, self.clock_skew_ms)
