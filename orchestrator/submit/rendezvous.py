"""Lets the processes of a distributed workload find each other, by DNS names and environment variables.

The pods belong to an Indexed Job. By a headless Service, the pod with index I has the stable DNS name
`<job>-<I>.<job>`. The pod with index 0 is the master. Every framework reads its own variables:

    pytorch   MASTER_ADDR MASTER_PORT WORLD_SIZE RANK LOCAL_RANK, and PET_* for torchrun
    tf        TF_CONFIG
    mpi       MPI_HOSTS (one name for each process), and those of pytorch, which Horovod and others read too
"""

import json
from typing import Any, Final

from orchestrator.cluster.resources import SERVICES
from orchestrator.names import WORKLOAD_LABEL
from orchestrator.submit.submission import Submission

Manifest = dict[str, Any]

INDEX_FIELD: Final = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_INDEX_VARIABLE: Final = "RANK"


def headless_service(submission: Submission, metadata: Manifest) -> Manifest | None:
    """Return the headless Service that gives the pods their DNS names, or None if the workload is not distributed."""
    if submission.rendezvous is None:
        return None
    return {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": metadata,
        "spec": {
            "clusterIP": "None",
            # Processes look each other up before any of them is ready.
            "publishNotReadyAddresses": True,
            "selector": {WORKLOAD_LABEL: submission.name},
        },
    }


def host(submission: Submission, index: int) -> str:
    """Return the DNS name of the pod with the index."""
    return f"{submission.name}-{index}.{submission.name}"


def variables(submission: Submission) -> list[Manifest]:
    """Return the variables by which the framework finds its processes. The first variable is the pod's index."""
    if submission.rendezvous is None:
        return []
    pods = submission.completions or 1
    rank = {"name": _INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": INDEX_FIELD}}}
    if submission.rendezvous.framework == "tf":
        return [
            rank,
            {"name": "TF_CONFIG", "value": _tf_config(submission, pods, submission.rendezvous.master_port)},
        ]
    port = str(submission.rendezvous.master_port)
    plain = {
        "MASTER_ADDR": host(submission, 0),
        "MASTER_PORT": port,
        "WORLD_SIZE": str(pods),
        "LOCAL_RANK": "0",
        "PET_NNODES": str(pods),
        "PET_MASTER_ADDR": host(submission, 0),
        "PET_MASTER_PORT": port,
    }
    devices = submission.gpu_devices or submission.gpu_milli // 1000
    if devices > 1:
        # torchrun starts one process for each GPU unless its arguments have another number.
        plain["PET_NPROC_PER_NODE"] = str(devices)
    if submission.rendezvous.framework == "mpi":
        plain["MPI_HOSTS"] = ",".join(host(submission, index) for index in range(pods))
    own_number = f"$({_INDEX_VARIABLE})"
    numbers = [{"name": name, "value": own_number} for name in ("NODE_RANK", "PET_NODE_RANK")]
    return [rank, *numbers, *({"name": name, "value": value} for name, value in plain.items())]


def _tf_config(submission: Submission, pods: int, port: int) -> str:
    """Return the value of TF_CONFIG. Kubernetes fills in the pod's index.

    All processes are workers; TensorFlow uses the first as chief.
    """
    hosts = [f"{host(submission, index)}:{port}" for index in range(pods)]
    text = json.dumps({"cluster": {"worker": hosts}, "task": {"type": "worker", "index": 0}})
    return text.replace('"index": 0', f'"index": $({_INDEX_VARIABLE})')
