"""All walkthroughs, by the name that a scenario uses in `walkthrough.steps`."""

from __future__ import annotations

from typing import Final

from harness.walkthroughs import (
    delayed_endtxn,
    endtxn_control,
    late_init,
    late_marker,
    late_marker_packets,
    late_offset_commit,
    late_partition,
    late_position_marker,
    reused_sequence,
    skipped_marker,
)
from harness.walkthroughs import idempotent_steps as idempotent
from harness.walkthroughs import transactional_steps as transactional
from harness.walkthroughs.stage import Walkthrough

WALKTHROUGHS: Final[dict[str, Walkthrough]] = {
    "idempotent": idempotent.WALKTHROUGH,
    "transactional": transactional.WALKTHROUGH,
    "delayed_endtxn": delayed_endtxn.WALKTHROUGH,
    "endtxn_control": endtxn_control.WALKTHROUGH,
    "late_init": late_init.WALKTHROUGH,
    "late_init_control": late_init.CONTROL,
    "late_marker": late_marker.EVERY_VARIANT,
    "late_marker_packets": late_marker_packets.WALKTHROUGH,
    "late_marker_control": late_marker.CONTROL,
    "late_offset_commit": late_offset_commit.WALKTHROUGH,
    "late_offset_commit_control": late_offset_commit.CONTROL,
    "late_position_marker": late_position_marker.WALKTHROUGH,
    "late_partition": late_partition.WALKTHROUGH,
    "late_partition_control": late_partition.CONTROL,
    "reused_sequence": reused_sequence.WALKTHROUGH,
    "reused_sequence_control": reused_sequence.CONTROL,
    "skipped_marker": skipped_marker.ONE_LIBRARY,
    "skipped_marker_clients": skipped_marker.EVERY_LIBRARY,
}
