"""Steps that undo a fault, as data.

They are written to disk before the injection, so that any later process can carry them out. Each step calls
an undo verb, which is a function that a fault registers in its own module:

    @undo_verb
    def thaw(cluster: Cluster, node: str) -> None: ...

    thaw.step(node="kafka-1")          # {"do": "thaw", "node": "kafka-1"}, which is written to the intent

An undo verb must be harmless in three cases: if it is called a second time, if the injection was only partly
carried out, and if there was no injection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Concatenate, Generic, ParamSpec

from harness.base.errors import UsageError
from harness.cluster.cluster import Cluster
from harness.faults.catalogue import import_fault_modules

P = ParamSpec("P")
UndoStep = Mapping[str, Any]


class UndoVerb(Generic[P]):
    """A function that undoes a fault. The intents on disk refer to the function by its name."""

    def __init__(self, action: Callable[Concatenate[Cluster, P], None]) -> None:
        self.name = action.__name__
        self.action = action

    def step(self, *args: P.args, **arguments: P.kwargs) -> UndoStep:
        """Return an undo step: a dict with the name of this verb and its arguments.

        Only keyword arguments are allowed.
        """
        assert not args, "the arguments of an undo step are stored by name"
        return {"do": self.name, **arguments}


_VERBS: dict[str, UndoVerb[...]] = {}


def undo_verb(action: Callable[Concatenate[Cluster, P], None]) -> UndoVerb[P]:
    """Register a function as an undo verb under its own name."""
    known = _VERBS.get(action.__name__)
    assert known is None or known.action.__module__ == action.__module__, f"{action.__name__} exists twice"
    verb = UndoVerb(action)
    _VERBS[verb.name] = verb
    return verb


def undo_verbs() -> dict[str, UndoVerb[...]]:
    """Return the undo verbs that all faults have registered, by name."""
    import_fault_modules()
    return dict(_VERBS)


def undo(cluster: Cluster, steps: list[UndoStep]) -> None:
    """Carry out undo steps in order."""
    verbs = undo_verbs()
    for step in steps:
        arguments = dict(step)
        verb = verbs.get(arguments.pop("do"))
        if verb is None:
            raise UsageError(
                f"an intent contains the undo verb {step['do']!r}, which this version does not have",
                "heal with the version that injected the fault, or remove the cluster with `eos down`",
            )
        verb.action(cluster, **arguments)
