"""Faults: what can be done to links, nodes and clients, each with proof that it bit and that it healed."""

from harness.faults.client import CrashClient, EndedClient, RetireClient, Zombie
from harness.faults.feature import FeatureLevel
from harness.faults.frame import (
    CutAfterFrame,
    DelayFrame,
    DuplicateFrame,
    Expectation,
    HoldFrame,
    LoseRequestFrame,
    LoseResponseFrame,
    expect,
)
from harness.faults.injection import Fault, Injection, inject
from harness.faults.link import Down, Jitter, LoseResponse, Sever, Slice, Stall, Throttle
from harness.faults.node import Kill, Pause, Restart, Stop
from harness.faults.partition import Partition
from harness.faults.placement import Placement
from harness.faults.series import Series, TwoProxies
from harness.faults.some import SlowSome

__all__ = [
    "CrashClient",
    "CutAfterFrame",
    "DelayFrame",
    "Down",
    "DuplicateFrame",
    "EndedClient",
    "Expectation",
    "Fault",
    "FeatureLevel",
    "HoldFrame",
    "Injection",
    "Jitter",
    "Kill",
    "LoseRequestFrame",
    "LoseResponse",
    "LoseResponseFrame",
    "Partition",
    "Pause",
    "Placement",
    "Restart",
    "RetireClient",
    "Series",
    "Sever",
    "Slice",
    "SlowSome",
    "Stall",
    "Stop",
    "Throttle",
    "TwoProxies",
    "Zombie",
    "expect",
    "inject",
]
