"""The identity of a run's cluster, from the events alone. A redacted record has digests instead of uids."""

import hashlib
import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

import msgspec
import rfc8785

from validation.judge.events import ClusterSeen, Event, GpusSeen, NodeSeen, ToolRan
from validation.report.record import GpuIdentity, Identity, NodeIdentity

TOKEN = "sha256:"  # noqa: S105 - what a digest begins with
IS_TOKEN = re.compile(TOKEN + "[0-9a-f]{64}")
_MAX_BYTES = 16 << 20


def token(name: str) -> str:
    """Return the digest of a uid or UUID. A digest is returned unchanged."""
    if not name or IS_TOKEN.fullmatch(name):
        return name
    return TOKEN + hashlib.sha256(name.encode()).hexdigest()


def identity_of(events: Sequence[Event]) -> Identity | msgspec.UnsetType:
    """Return the identity of the cluster that was seen last, and of its nodes and hosts.

    UNSET if no API server and no nvidia-smi answered.
    """
    clusters = [number for number, event in enumerate(events) if isinstance(event, ClusterSeen)]
    tools = [event for event in events if isinstance(event, ToolRan) and event.tool == "nvidia-smi"]
    if not clusters and not tools:
        return msgspec.UNSET
    cluster = events[clusters[-1]] if clusters else None
    uid, ca_sha256 = (
        (cluster.kube_system_uid, cluster.ca_sha256) if isinstance(cluster, ClusterSeen) else ("", "")
    )
    nodes = _nodes(events, tools)
    return Identity(_digest(uid, ca_sha256, nodes), uid, ca_sha256, nodes)


def _nodes(events: Sequence[Event], tools: Sequence[ToolRan]) -> list[NodeIdentity]:
    """Return the nodes with GPUs and the hosts of the site, sorted by name."""
    last: dict[str, NodeSeen] = {}
    gpus: dict[str, list[GpuIdentity]] = {}
    for event in events:
        if isinstance(event, NodeSeen):
            last[event.node] = event
        elif isinstance(event, GpusSeen) and any(gpu.uuid for gpu in event.gpus):
            gpus[event.node] = [GpuIdentity(gpu.uuid) for gpu in event.gpus if gpu.uuid]
    printed: dict[str, list[GpuIdentity]] = {}
    for tool in reversed(tools):
        if tool.host not in printed and (found := _printed(tool.output)):
            printed[tool.host] = found
    gpus |= printed  # prefer nvidia-smi, which has serial numbers; agents have none
    names = {name for name, node in last.items() if node.gpus} | gpus.keys()
    nodes = []
    for name in sorted(names):
        node = last.get(name)
        uid, system = (node.uid, node.system_uuid) if node is not None else ("", "")
        nodes.append(NodeIdentity(name, uid, system, sorted(gpus.get(name, []), key=lambda gpu: gpu.uuid)))
    return nodes


def _printed(output: str) -> list[GpuIdentity]:
    """Return the GPUs for which `nvidia-smi -q -x` printed a UUID; the list is empty if the output is not XML."""
    if len(output) > _MAX_BYTES or "<!ENTITY" in output:
        return []
    try:
        root = ET.fromstring(output)  # noqa: S314 - no entities, and expat bounds what it expands
    except (ET.ParseError, ValueError):
        return []
    texts = [
        [(gpu.findtext(name) or "").strip() for name in ("uuid", "serial")] for gpu in root.findall("gpu")
    ]
    return [GpuIdentity(uuid, "" if serial == "N/A" else serial) for uuid, serial in texts if uuid]


def _digest(uid: str, ca_sha256: str, nodes: Sequence[NodeIdentity]) -> str:
    """Return the digest of the identity.

    The names of nodes are not part of it, so a redacted record has the same digest.
    """
    content = {
        "caSha256": ca_sha256,
        "kubeSystemUid": token(uid),
        "nodes": sorted(
            [
                token(node.uid),
                token(node.system_uuid),
                *(f"{token(gpu.uuid)} {gpu.serial}" for gpu in node.gpus),
            ]
            for node in nodes
        ),
    }
    return hashlib.sha256(rfc8785.dumps(content)).hexdigest()
