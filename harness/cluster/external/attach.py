"""Connection to an external cluster, after a check that the cluster has the id in the cluster file."""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness.base.addresses import Address, parse_address
from harness.base.errors import RefusedError
from harness.cluster.external.cluster_file import ClusterFile
from harness.cluster.external.external_cluster import REQUEST_S, ExternalCluster
from harness.cluster.state_directory import State
from harness.kafka.admin import Admin, Metadata
from harness.kafka.errors import KafkaAnswerError
from harness.kafka.security import Security
from harness.provision.paths import state_dir


def external_state(file: ClusterFile) -> State:
    """Return the state directory of an external cluster. The cluster id is part of the directory's name.

    The directory contains the intents of faults that earlier runs injected and did not heal.
    """
    return State(state_dir("eos-external") / re.sub(r"[^\w-]", "_", file.cluster.id))


def attach(file: ClusterFile, state: State) -> ExternalCluster:
    """Connect to the cluster described in the cluster file.

    Raise RefusedError if the brokers at the address in the file report another cluster id than the file.
    """
    file.security.check_passwords()
    view = _first_view(file.cluster.bootstrap, file.security)
    if view.cluster_id != file.cluster.id:
        raise RefusedError(
            f"wrong cluster: {file.cluster.bootstrap[0]} belongs to {view.cluster_id}, "
            f"cluster.id is {file.cluster.id}",
            "correct cluster.id, or cluster.bootstrap, whichever is wrong",
        )
    state.claim()
    return ExternalCluster(file, state, view)


def _first_view(servers: Sequence[str], security: Security) -> Metadata:
    failures = []
    for server in servers:
        where: Address = parse_address(server)
        try:
            return Admin({-1: where}, REQUEST_S, security).metadata((), broker=-1)
        except KafkaAnswerError as error:
            raise RefusedError(
                f"{server} refused the login: {error}", "check [security] in the cluster file"
            ) from error
        except (OSError, EOFError) as error:
            failures.append(f"{server}: {error}")
    raise RefusedError("no broker answered: " + "; ".join(failures), "check cluster.bootstrap and [security]")
