"""Pods whose effective request is computed by Kubernetes' own code: named cases, and any number of random pods."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Final

from orchestrator.cluster.quantity import thousandths

SOURCES: Final = Path(__file__).parent
RECORDED: Final = SOURCES / "answers.json"
MODULE: Final = "k8s.io/component-helpers v0.36.3"
RECORDED_DRAWN: Final = 60

Plain = dict[str, Any]

LONG_NAME: Final = f"{'a' * 253}/{'b' * 63}"
_RESOURCES: Final = (
    "cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "nvidia.com/gpu", "rdma/hca", "example.com/bandwidth",
)  # fmt: skip
_QUANTITIES: Final = (
    "0",
    "1",
    "2",
    "3",
    "1500m",
    "999m",
    "0.1",
    "250m",
    "1k",
    "1Ki",
    "1Mi",
    "4Gi",
    "1e3",
    "1.5",
    "1E",
)


def container(name: str, *, sidecar: bool = False, **requests: str) -> Plain:
    """Return a container with these requests; `_` in a name stands for `/`."""
    resources = {"requests": {key.replace("_", "/"): value for key, value in requests.items()}}
    return {"name": name, "resources": resources, **({"restartPolicy": "Always"} if sidecar else {})}


def status(name: str, actual: Plain, allocated: Plain) -> Plain:
    """Return the status of a container: the requests in force, and those that the kubelet has allocated."""
    return {"name": name, "resources": {"requests": actual}, "allocatedResources": allocated}


INFEASIBLE: Final = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
DEFERRED: Final = [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]

NAMED: Final[dict[str, Plain]] = {
    "nothing": {"spec": {"containers": [container("c")]}},
    "sidecar before an init container": {
        "spec": {
            "initContainers": [container("side", sidecar=True, cpu="40"), container("init", cpu="60")],
            "containers": [container("c", cpu="1")],
        }
    },
    "sidecar after an init container": {
        "spec": {
            "initContainers": [container("init", cpu="60"), container("side", sidecar=True, cpu="40")],
            "containers": [container("c", cpu="1")],
        }
    },
    "init container between two sidecars": {
        "spec": {
            "initContainers": [
                container("first", sidecar=True, cpu="10", rdma_hca="1"),
                container("init", cpu="30", rdma_hca="1"),
                container("second", sidecar=True, cpu="15"),
                container("last", cpu="10", memory="1Gi"),
            ],
            "containers": [container("c", cpu="2")],
        }
    },
    "overhead beside an init container": {
        "spec": {
            "initContainers": [container("init", cpu="3")],
            "containers": [container("c", cpu="2", memory="1Gi")],
            "overhead": {"cpu": "250m", "memory": "120Mi", "ephemeral-storage": "1Gi"},
        }
    },
    "pod level instead of containers": {
        "spec": {
            "resources": {"requests": {"cpu": "6", "hugepages-2Mi": "4Mi", "rdma/hca": "3"}},
            "containers": [container("c", cpu="2", memory="1Gi", rdma_hca="1")],
            "overhead": {"cpu": "1"},
        }
    },
    "parts of a byte": {
        "spec": {"containers": [container("a", memory="500m"), container("b", memory="500m", cpu="1m")]}
    },
    "a name of 317 characters": {
        "spec": {"containers": [{"name": "c", "resources": {"requests": {LONG_NAME: "2"}}}]}
    },
    "resize up in progress": {
        "spec": {"containers": [container("c", cpu="4", memory="1Gi")]},
        "status": {"containerStatuses": [status("c", {"cpu": "1", "memory": "2Gi"}, {"cpu": "2"})]},
    },
    "resize down in progress": {
        "spec": {"containers": [container("c", cpu="1")]},
        "status": {"containerStatuses": [status("c", {"cpu": "4"}, {"cpu": "1"})]},
    },
    "resize that is deferred": {
        "spec": {"containers": [container("c", cpu="8")]},
        "status": {
            "conditions": DEFERRED,
            "containerStatuses": [status("c", {"cpu": "4"}, {"cpu": "4"})],
        },
    },
    "resize that is infeasible": {
        "spec": {"containers": [container("c", cpu="8"), container("d", cpu="1")]},
        "status": {
            "conditions": INFEASIBLE,
            "containerStatuses": [status("c", {"cpu": "4"}, {"cpu": "5"})],
        },
    },
    "resize of a sidecar": {
        "spec": {
            "initContainers": [container("side", sidecar=True, cpu="1"), container("init", cpu="1")],
            "containers": [container("c", cpu="1")],
        },
        "status": {
            "initContainerStatuses": [
                status("side", {"cpu": "3"}, {"cpu": "2"}),
                status("init", {"cpu": "9"}, {"cpu": "9"}),
            ]
        },
    },
    "resize of the pod as a whole": {
        "spec": {
            "resources": {"requests": {"cpu": "2", "memory": "1Gi"}},
            "containers": [container("c", cpu="1")],
        },
        "status": {
            "resources": {"requests": {"cpu": "5"}},
            "allocatedResources": {"cpu": "3", "memory": "2Gi"},
        },
    },
    "allocated without actual resources": {
        "spec": {"containers": [container("c", cpu="1")]},
        "status": {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "6"}}]},
    },
}


def drawn(count: int, seed: int) -> list[Plain]:
    """Return random pods with containers, init containers, sidecars, pod-level resources, overhead and resizes."""
    draw = random.Random(seed)  # noqa: S311 - the same pods each time
    return [_pod(draw) for _ in range(count)]


def _pod(draw: random.Random) -> Plain:
    containers = [_container(draw, f"c{index}") for index in range(draw.randint(1, 3))]
    starters = [_container(draw, f"i{index}") for index in range(draw.choice((0, 0, 1, 2, 4)))]
    for starter in starters:
        if draw.random() < 0.5:
            starter["restartPolicy"] = "Always"
    spec: Plain = {"containers": containers, "initContainers": starters}
    if draw.random() < 0.3:
        spec["overhead"] = _amounts(draw)
    if draw.random() < 0.3:
        spec["resources"] = {"requests": _amounts(draw)}
    state: Plain = {}
    if draw.random() < 0.4:
        for key, listed in (("containerStatuses", containers), ("initContainerStatuses", starters)):
            state[key] = [_status(draw, one["name"]) for one in listed if draw.random() < 0.8]
        state["conditions"] = draw.choice(([], INFEASIBLE, DEFERRED))
    if draw.random() < 0.2:
        state |= {"resources": {"requests": _amounts(draw)}, "allocatedResources": _amounts(draw)}
    return {"spec": spec, "status": state}


def _container(draw: random.Random, name: str) -> Plain:
    return {"name": name, "resources": {"requests": _amounts(draw)}}


def _status(draw: random.Random, name: str) -> Plain:
    whole = status(name, _amounts(draw), _amounts(draw))
    return whole if draw.random() < 0.8 else {key: whole[key] for key in ("name", "allocatedResources")}


def _amounts(draw: random.Random) -> Plain:
    names = draw.sample(_RESOURCES, draw.randint(0, 4))
    return {name: draw.choice(_QUANTITIES) for name in names}


def recorded_pods() -> list[Plain]:
    """Return the pods of the recorded file, in its order."""
    return [*NAMED.values(), *drawn(RECORDED_DRAWN, seed=753)]


def amounts(answer: dict[str, str]) -> dict[str, int]:
    """Return the program's answer in thousandths, without resources of amount 0."""
    exact = {name: thousandths(quantity) for name, quantity in answer.items()}
    return {name: amount for name, amount in exact.items() if amount}


def write(answers: list[dict[str, str]]) -> None:
    """Write the recorded file anew with these answers."""
    cases = [{"pod": pod, "requests": answer} for pod, answer in zip(recorded_pods(), answers, strict=True)]
    lines = ",\n".join(json.dumps(case, sort_keys=True) for case in cases)
    RECORDED.write_text(f'{{"module": "{MODULE}", "cases": [\n{lines}\n]}}\n', encoding="utf-8")
