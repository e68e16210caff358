"""Faults: what can be done to links, nodes and clients, each with proof that it bit and that it healed."""

from harness.faults.client_faults import CrashClient, EndedClient, RetireClient, Zombie
from harness.faults.feature_level import FeatureLevel
from harness.faults.frame_faults import (
    ArmedFrameFault,
    CutAfterFrame,
    DelayFrame,
    DuplicateFrame,
    HoldFrame,
    LoseRequestFrame,
    LoseResponseFrame,
    arm,
)
from harness.faults.injection import Fault, Injection, inject
from harness.faults.link_faults import Down, Jitter, LoseResponse, Sever, Slice, Stall, Throttle
from harness.faults.network_partition import Partition
from harness.faults.node_faults import Kill, Pause, Restart, Stop
from harness.faults.partial_latency import SlowShare
from harness.faults.proxy_chain import ProxyChain, TwoProxies
from harness.faults.replica_placement import Placement

__all__ = [
    "ArmedFrameFault",
    "CrashClient",
    "CutAfterFrame",
    "DelayFrame",
    "Down",
    "DuplicateFrame",
    "EndedClient",
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
    "ProxyChain",
    "Restart",
    "RetireClient",
    "Sever",
    "Slice",
    "SlowShare",
    "Stall",
    "Stop",
    "Throttle",
    "TwoProxies",
    "Zombie",
    "arm",
    "inject",
]
