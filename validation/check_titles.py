"""The titles of checks that no scenario defines, by id. They are independent of docstrings."""

from typing import Final

from validation.judge.api.api_checks import API_CHECKS
from validation.judge.training.training_job import DIGESTS, MOUNTS, RESNET50
from validation.judge.views.lists import view_of
from validation.layers.checks import LAYERS

UTILIZATION: Final = "utilization"
_FIXED: Final = {
    "invariant/node-capacity": "No node ever holds more GPUs than it has.",
    "invariant/gpu-capacity": (
        "No GPU is ever held twice: whole devices by one pod, shared ones up to 1 in all; every holder says which."
    ),
    "invariant/in-quota-never-evicted": (
        "Only borrowed GPUs are reclaimed: an evicted workload was not within its project's quota at its eviction."
    ),
    "invariant/interactive-within-quota": (
        "Workloads that cannot be preempted never hold more than their project's quota."
    ),
    "invariant/interactive-never-evicted": "A workload that cannot be preempted is never evicted.",
    "invariant/gang-all-or-none": (
        "A gang has all the pods it needs bound, or none, except for a moment while it starts or ends."
    ),
    "invariant/nothing-vanishes": (
        "A pod with GPUs ends only because it finished, was evicted, reached its time limit, or its workload was"
        " deleted."
    ),
    "invariant/kubelet-agrees": (
        "The GPUs that a pod holds, by the scheduler's word, are those that the kubelet of its node gave it."
    ),
    "invariant/processes-on-own-gpus": (
        "The processes of a pod run on the GPUs that it holds, and on no other, as the driver reports them."
    ),
    "invariant/interactive-time-limit": (
        "An interactive job runs no longer than its project allows, but for the moment that it takes to end it."
    ),
    "invariant/node-affinity": "A job of a project that is limited to groups of nodes runs only there.",
    "invariant/cordoned-node": "No pod is placed on a node that is cordoned.",
    "invariant/nominations-last": (
        "Nominations of a killed operator outlive it: each nominated pod gets its node, and no workload is evicted"
        " twice for it."
    ),
    f"training/{RESNET50}": "ResNet-50 is trained to the end, and its loss falls",
    f"training/{MOUNTS}": "The images come over every mount, over each a fair part of them",
    f"training/{DIGESTS}": "All GPUs of a model have equal results of exact computations, in every repeat",
    UTILIZATION: "All GPUs are held, and used to the full",
}


def title_of(name: str) -> str:
    """Return the title of a check by its id without the scenario; empty for a step, and for an unknown check.

    Example: `title_of("invariant/cordoned-node")` returns `'No pod is placed on a node that is cordoned.'`.
    """
    kind, _, one = name.partition("/")
    if kind == "api" and one in API_CHECKS:
        return API_CHECKS[one].title
    if kind == "layer" and one in LAYERS:
        return LAYERS[one].title
    if kind != "view":
        return _FIXED.get(name, "")
    try:
        return view_of(one).title
    except KeyError:
        return ""
