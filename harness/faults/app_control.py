"""What a fault can ask of the application under test: the interface of the run's supervisor."""

from __future__ import annotations

from typing import Final, Protocol

GIVEN_UP_S: Final = 15.0
"""Seconds after the application's own time limit in which a coordinator must have given up a client."""


class AppControl(Protocol):
    """The application of a run, as the faults see it. Names are those of instances."""

    @property
    def running(self) -> list[str]:
        """Names of the instances that are wanted to run."""
        ...

    @property
    def instances(self) -> int:
        """Number of instances that the scenario asks for."""
        ...

    def restart(self, name: str) -> str:
        """Stop an instance cleanly and start it again; return what was wrong with the stop, or ""."""
        ...

    def scale(self, count: int) -> None:
        """Start or stop instances until this number runs."""
        ...

    def wait_ready(self, limit: float) -> None:
        """Wait until all instances are ready."""
        ...

    def start_number(self, name: str) -> int:
        """Return how often an instance was started."""
        ...

    def wipe_state(self, name: str) -> int:
        """Empty the state directory of an instance, and return the number of files that it had."""
        ...

    def members(self) -> dict[str, str]:
        """Return the members of the group: the client id by member id. It is empty without a group."""
        ...

    def members_of(self, name: str) -> dict[str, str]:
        """Return those members of the group that belong to an instance."""
        ...

    def transactional_ids_of(self, name: str) -> set[str]:
        """Return the transactional ids that an instance has sent."""
        ...

    def session_timeout_ms(self) -> int:
        """Return the longest session time-out that the group's members have sent; 0 if none was seen."""
        ...

    def transaction_timeout_ms(self, transactional_id: str) -> int:
        """Return the transaction time-out that was sent for a transactional id; 0 if none was seen."""
        ...

    def aborts_sent(self, transactional_id: str) -> int:
        """Return how often the application has asked to abort a transaction of this id."""
        ...
