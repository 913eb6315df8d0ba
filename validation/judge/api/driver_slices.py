"""Judges whether NVIDIA's DRA driver publishes all GPUs of every node with GPUs."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from validation.judge.api.api_request import (
    CLAIM_VERSION,
    DEVICE_CLASS,
    GROUP,
    ApiCheck,
    Json,
    Request,
    at,
    objects,
)
from validation.judge.check_verdict import Judgement
from validation.judge.verdict import Verdict

PRESENT: Final = "nvidia.com/gpu.present"
"""The label of a node with GPUs."""
COUNT: Final = "nvidia.com/gpu.count"
"""The label with the number of GPUs of a node."""
DRIVER: Final = DEVICE_CLASS
"""NVIDIA's driver has the name of its class of devices."""
KINDS: Final = ("gpu", "mig", "vfio")
"""The types of NVIDIA's devices."""


def judge_slices(documents: Sequence[Json]) -> Judgement:
    """Return PASS if the newest slices of each node are complete, have all GPUs of the node, and no device of an
    unknown type.
    """
    nodes, slices = (objects(document.get("items")) for document in documents)
    if not nodes:
        return Judgement(Verdict.INCONCLUSIVE, f"no node has the label {PRESENT}=true")
    published = [
        one
        for one in slices
        if at(one, "spec", "driver") == DRIVER and at(one, "spec", "nodeName") is not None
    ]
    gpus, unknown = 0, list[str]()
    for node in nodes:
        name = at(node, "metadata", "name")
        pools = _newest_pools(one for one in published if at(one, "spec", "nodeName") == name)
        kinds = [at(device, "attributes", "type", "string") for one in pools for device in _devices(one)]
        problem = _problem(pools, kinds, at(node, "metadata", "labels", COUNT))
        if problem:
            return Judgement(Verdict.FAIL, f"{name}: {problem}")
        gpus += kinds.count("gpu")
        unknown += [f"{name} has {str(kind)[:20]!r}" for kind in kinds if kind not in KINDS]
    if unknown:
        return Judgement(Verdict.INCONCLUSIVE, f"muster does not know this type of device: {unknown[0]}")
    return Judgement(Verdict.PASS, f"{len(nodes)} nodes, {gpus} GPUs")


def only_judged(document: Json) -> Json:
    """Return the list without the names of slices, which begin with the names of nodes."""
    items = objects(document.get("items"))
    return {
        "items": [{"spec": one["spec"]} if at(one, "spec", "driver") is not None else one for one in items]
    }


def _newest_pools(slices: Iterable[Json]) -> list[list[Json]]:
    """Return the slices of the newest generation of each pool."""
    pools: dict[str, dict[int, list[Json]]] = defaultdict(lambda: defaultdict(list))
    for one in slices:
        name, generation = at(one, "spec", "pool", "name"), at(one, "spec", "pool", "generation")
        if isinstance(name, str) and isinstance(generation, int):
            pools[name][generation].append(one)
    return [generations[max(generations)] for generations in pools.values()]


def _devices(slices: Iterable[Json]) -> list[Json]:
    return [device for one in slices for device in objects(at(one, "spec", "devices"))]


def _problem(pools: Sequence[Sequence[Json]], kinds: Sequence[object], labelled: object) -> str:
    """Return why the slices of a node do not have all its GPUs; empty if they have them.

    If a node has other devices, such as MIG devices, the number of its GPUs is not compared.
    """
    if not kinds:
        return f"{DRIVER} publishes no device of it: install NVIDIA's DRA driver on it"
    if any(len(slices) != at(slices[0], "spec", "pool", "resourceSliceCount") for slices in pools):
        return f"not all slices of {DRIVER} are there"
    is_whole = all(kind == "gpu" for kind in kinds)
    if is_whole and isinstance(labelled, str) and labelled != str(len(kinds)):
        return f"{DRIVER} publishes {len(kinds)} GPUs, the label {COUNT} says {labelled[:20]}"
    return ""


CHECK: Final = ApiCheck(
    "NVIDIA's DRA driver publishes all GPUs of every node with GPUs",
    "Google Distributed Cloud, GPU workloads with DRA, before you begin",
    (
        Request("GET", f"/api/v1/nodes?labelSelector={PRESENT}%3Dtrue"),
        Request(
            "GET",
            f"/apis/{GROUP}/{CLAIM_VERSION}/resourceslices",
            advice=f"{GROUP}/{CLAIM_VERSION} is served from Kubernetes 1.34 on",
        ),
    ),
    judge_slices,
)
