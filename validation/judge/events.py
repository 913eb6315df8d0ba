"""The events of a run, as data: the only observations that the judge knows.

Every event carries `t_ms`, milliseconds of a monotonic clock since the run began. The list of events is
the evidence: it is stored whole in events.jsonl, and every verdict can be derived from it again.
"""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

INTERACTIVE_PRIORITY: Final = 100
"""Priority of interactive jobs. Non-preemptible training jobs have a lower priority."""
ENDED: Final = frozenset({"Succeeded", "Failed"})
"""The phases of a pod whose containers do not run any more."""


class Eviction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The eviction that the scheduler wrote on a pod before it deleted the pod."""

    reason: str
    message: str


class Cause(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The reason of Kubernetes why a pod does not run.

    `source` is the condition `PodScheduled`, the `pod` itself, or one of its containers (`container NAME`).
    """

    source: str
    reason: str
    message: str = ""


class NodeSeen(
    msgspec.Struct, frozen=True, tag="node", tag_field="event", rename="camel", forbid_unknown_fields=True
):
    """A node in its state from this event on. `gpus` counts whole devices; a deleted node has none.

    The API server gives the `uid`, the kubelet reads the `system_uuid`. `node_type` is the group of the node, empty
    without a group; projects can be limited to groups. A `cordoned` node takes no new pods.
    """

    t_ms: int
    node: str
    gpus: int
    ready: bool = True
    node_type: str = ""
    cordoned: bool = False
    uid: str = ""
    system_uuid: str = ""


class OutsidersSeen(
    msgspec.Struct,
    frozen=True,
    tag="outsiders",
    tag_field="event",
    rename="camel",
    forbid_unknown_fields=True,
):
    """The pods on a node that hold GPUs of the device plugin and belong to no project.

    `gpu_milli` are the GPUs of all of them. Reservations of the operator do not count.
    """

    t_ms: int
    node: str
    pods: int
    gpu_milli: int


class ClusterSeen(
    msgspec.Struct, frozen=True, tag="cluster", tag_field="event", rename="camel", forbid_unknown_fields=True
):
    """The identity of the cluster: the uid of its namespace kube-system, and the SHA-256 of its certificate authority.

    `ca_sha256` is empty if the recorder verifies the API server by the certificates of its own system.
    """

    t_ms: int
    kube_system_uid: str
    ca_sha256: str = ""


class ProjectSet(
    msgspec.Struct, frozen=True, tag="project", tag_field="event", rename="camel", forbid_unknown_fields=True
):
    """A project with its guaranteed quota, as a scenario creates or changes it.

    Its interactive jobs end after `interactive_limit_ms`; 0: no limit. Its jobs may be only on nodes of the given
    types; without types, they may be on all nodes.
    """

    t_ms: int
    project: str
    quota_milli: int
    interactive_limit_ms: int = 0
    train_node_types: tuple[str, ...] = ()
    interactive_node_types: tuple[str, ...] = ()


class ProjectDeleted(
    msgspec.Struct,
    frozen=True,
    tag="projectDeleted",
    tag_field="event",
    rename="camel",
    forbid_unknown_fields=True,
):
    """A project is about to be deleted."""

    t_ms: int
    project: str


class CommandRun(
    msgspec.Struct, frozen=True, tag="command", tag_field="event", rename="camel", forbid_unknown_fields=True
):
    """A command of the scenario is about to run; `workloads` are the workloads that it submits or deletes."""

    t_ms: int
    action: str
    project: str
    workloads: tuple[str, ...]


class NodesDrained(
    msgspec.Struct,
    frozen=True,
    tag="nodesDrained",
    tag_field="event",
    rename="camel",
    forbid_unknown_fields=True,
):
    """The pods with these uids are about to be evicted, because an administrator drains the nodes."""

    t_ms: int
    nodes: tuple[str, ...]
    uids: tuple[str, ...]


class NodesOpened(
    msgspec.Struct,
    frozen=True,
    tag="nodesOpened",
    tag_field="event",
    rename="camel",
    forbid_unknown_fields=True,
):
    """The nodes are about to take new pods again."""

    t_ms: int
    nodes: tuple[str, ...]


class OperatorKilled(
    msgspec.Struct,
    frozen=True,
    tag="operatorKilled",
    tag_field="event",
    rename="camel",
    forbid_unknown_fields=True,
):
    """The leading operator was killed, so it could not finish its work."""

    t_ms: int


class ImagePulled(
    msgspec.Struct, frozen=True, tag="image", tag_field="event", rename="camel", forbid_unknown_fields=True
):
    """Before the first measurement, a node pulled an image in `took_ms`, or failed with a `problem`.

    `name` is the image's name in scenarios, `image` its name at the site. `message` is the message of the kubelet.
    """

    t_ms: int
    node: str
    name: str
    image: str
    digest: str = ""
    took_ms: int = 0
    message: str = ""
    problem: str = ""


class GpuSeen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One GPU of a node: the pods to which the kubelet gave it, as `namespace/name`, and the uids of those that use it.

    The uid of processes that belong to no pod is empty.
    """

    index: int
    holders: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    uuid: str = ""


class GpusSeen(
    msgspec.Struct, frozen=True, tag="gpus", tag_field="event", rename="camel", forbid_unknown_fields=True
):
    """The GPUs of a node in the reports of its kubelet and its driver, which are independent of the scheduler.

    `observed_at` is the node's own time. Without `gpus` the node no longer reports.
    """

    t_ms: int
    node: str
    observed_at: str
    gpus: tuple[GpuSeen, ...] = ()


class WatchSeen(
    msgspec.Struct, frozen=True, tag="watch", tag_field="event", rename="camel", forbid_unknown_fields=True
):
    """The state of the watch of `kind`: `listed` for the first time, `lost`, `resumed` from its last version, or
    `relisted`.

    After `relisted`, the events in between are unknown. `absent`: the cluster does not serve the kind.
    """

    t_ms: int
    kind: str
    change: str
    resource_version: str = ""


class PodSeen(
    msgspec.Struct, frozen=True, tag="pod", tag_field="event", rename="camel", forbid_unknown_fields=True
):
    """A pod in its state from this event on. `change` is `added`, `modified` or `deleted`.

    - `devices`: the indices of its GPUs on `node`.
    - `gpu_milli`: the requested amount in thousandths of a GPU: a multiple of 1000, or a fraction of one device.
    - `submitted_us`: orders the workloads of a project.
    - `min_member`: the number of pods of the workload that must run for any of them to run.
    - `cause`: the reason of Kubernetes why it does not run. No verdict uses it; a report may show it.
    - `nominated_node`: the node to which it is nominated, while it has no node.
    """

    t_ms: int
    change: str
    uid: str
    namespace: str
    project: str
    workload: str
    pod: str
    phase: str
    node: str = ""
    devices: tuple[int, ...] = ()
    gpu_milli: int = 0
    preemptible: bool = True
    priority: int = 0
    submitted_us: int = 0
    min_member: int = 1
    terminating: bool = False
    eviction: Eviction | None = None
    cause: Cause | None = None
    nominated_node: str = ""

    @property
    def finished(self) -> bool:
        """Whether the pod ended by itself and holds nothing any more."""
        return self.phase in ENDED

    @property
    def holds(self) -> bool:
        """Whether the pod occupies GPUs of a node: it is bound and has not finished.

        A terminating pod still occupies them.
        """
        return self.node != "" and self.change != "deleted" and self.phase not in ENDED

    @property
    def interactive(self) -> bool:
        """Whether the pod belongs to an interactive job, which is not preempted.

        A non-preemptible job of lower priority is a training job.
        """
        return not self.preemptible and self.priority >= INTERACTIVE_PRIORITY


class OutputSeen(
    msgspec.Struct, frozen=True, tag="output", tag_field="event", rename="camel", forbid_unknown_fields=True
):
    """The main `container` of a pod ended; `line` is its last line of output.

    The node's kubelet reported all values.

    `ran_ms` is the time between its start and its end; the kubelet has both in whole seconds. `image` is the digest
    of its image. `problem` is the reason why the line could not be read.
    """

    t_ms: int
    uid: str
    project: str
    workload: str
    pod: str
    node: str
    exit_code: int
    ran_ms: int
    image: str
    line: str
    problem: str = ""
    container: str = ""


class ToolRan(
    msgspec.Struct, frozen=True, tag="tool", tag_field="event", rename="camel", forbid_unknown_fields=True
):
    """A tool ended on a host: the command as the host ran it, and its whole output.

    `problem` is the reason for a missing result: the host was not reached, or the tool did not end in time. `exit_code`
    is -1 then. It is 127 if the host does not have the tool, as in every shell.

    `boot_id` is the boot id of the host's kernel when the tool began. `ran_ms` is the time until it ended, by the clock
    of the machine that examined the host.
    """

    t_ms: int
    host: str
    tool: str
    command: str
    exit_code: int
    output: str = ""
    error_output: str = ""
    problem: str = ""
    boot_id: str = ""
    ran_ms: int = 0


class AnswerSeen(
    msgspec.Struct, frozen=True, tag="answer", tag_field="event", rename="camel", forbid_unknown_fields=True
):
    """The output of the orchestrator's command line for `view`: everything that it printed, run as an administrator.

    `problem` is the last line of its error output.
    """

    t_ms: int
    view: str
    line: str
    exit_code: int
    output: str
    problem: str = ""


class RequestAnswered(
    msgspec.Struct, frozen=True, tag="request", tag_field="event", rename="camel", forbid_unknown_fields=True
):
    """The answer of the API server to a request of the recorder, sent for the check of this name.

    `body` is the content of the request. `status` is the HTTP status. It is 0 without an answer, and `problem` is then
    the reason. The `managedFields` of the answer are left out.
    """

    t_ms: int
    check: str
    method: str
    path: str
    status: int
    answer: str = ""
    body: str = ""
    problem: str = ""


class GpuSampled(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The utilization of a GPU: the percentage of its last sample period in which a kernel ran; null if not reported.

    `holders` are the pods to which the kubelet gave the GPU, as `namespace/name`.
    """

    index: int
    percent: Annotated[int, msgspec.Meta(ge=0, le=100)] | None = None
    holders: tuple[str, ...] = ()


class SamplesSeen(
    msgspec.Struct, frozen=True, tag="samples", tag_field="event", rename="camel", forbid_unknown_fields=True
):
    """The GPUs of a node from a new page of its agent.

    `problem` is the reason why the node has no values. The event is written only once until the agent answers again.
    """

    t_ms: int
    node: str
    gpus: tuple[GpuSampled, ...] = ()
    problem: str = ""


Event = (
    NodeSeen
    | OutsidersSeen
    | ClusterSeen
    | ProjectSet
    | ProjectDeleted
    | CommandRun
    | NodesDrained
    | NodesOpened
    | OperatorKilled
    | ImagePulled
    | PodSeen
    | GpusSeen
    | WatchSeen
    | OutputSeen
    | ToolRan
    | AnswerSeen
    | RequestAnswered
    | SamplesSeen
)
Events = Sequence[Event]
