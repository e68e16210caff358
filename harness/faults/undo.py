"""Steps that undo a fault, as data. They are written before the injection; any later process can run them.

A fault registers its verbs in its own module:

    @undo_verb
    def thaw(cluster: Cluster, node: str) -> None: ...

    thaw.step(node="kafka-1")          # {"do": "thaw", "node": "kafka-1"}, which is written to the intent

Carrying out a verb must be harmless in three cases: a second time, after an injection that was only partly
made, and without any injection.
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
    """A function that undoes a fault. The intents on disk refer to it by name."""

    def __init__(self, action: Callable[Concatenate[Cluster, P], None]) -> None:
        self.name = action.__name__
        self.action = action

    def step(self, *args: P.args, **arguments: P.kwargs) -> UndoStep:
        """Return an undo step: the name of this verb with its arguments, which must be keyword arguments."""
        assert not args, "the arguments of an undo step are stored by name"
        return {"do": self.name, **arguments}


_VERBS: dict[str, UndoVerb[...]] = {}


def undo_verb(action: Callable[Concatenate[Cluster, P], None]) -> UndoVerb[P]:
    """Register a function, under its own name, as a verb of undo steps."""
    known = _VERBS.get(action.__name__)
    assert known is None or known.action.__module__ == action.__module__, f"{action.__name__} exists twice"
    verb = UndoVerb(action)
    _VERBS[verb.name] = verb
    return verb


def undo_verbs() -> dict[str, UndoVerb[...]]:
    """Return the undo verbs of all faults by name."""
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
