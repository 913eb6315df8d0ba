"""The fields of a PodTemplateSpec and of a PodStatus: read, irrelevant with a reason, or refused as they are absent.

The names are those of Kubernetes 1.36. A field that a later version adds is refused until it stands here.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from orchestrator.cluster.objects import LabelSelector
from orchestrator.cluster.quantity import shortened
from orchestrator.labels import POD_OPERATORS
from orchestrator.names import (
    GPU_FRACTION_ANNOTATION,
    GPU_FRACTION_DEVICES_ANNOTATION,
    GPU_MEMORY_ANNOTATION,
    GROUP,
    SCHEDULER_NAME,
)
from orchestrator.observe.field_rules import (
    QUANTITIES,
    READ,
    Checked,
    Complete,
    Each,
    Irrelevant,
    Only,
    Place,
    Rule,
    problems,
)
from orchestrator.observe.pod_traits import names_of

_INSIDE: Final = Irrelevant("it takes effect inside the pod, after the kubelet has admitted it")
_NETWORK: Final = Irrelevant("it configures the network of a pod that has its node")
_IDENTITY: Final = Irrelevant("it names or describes the object and changes no placement")
_DURATION: Final = Irrelevant("it takes effect while the pod ends, and no time passes between decisions")
STORAGE: Final = Irrelevant("the kubelet provides it on any node")
_ADMITTED: Final = Irrelevant("admission writes its effect on placement into other fields")
_REPORT: Final = Irrelevant("it reports a state on which no decision depends")

READ_ANNOTATIONS: Final = frozenset(
    (GPU_FRACTION_ANNOTATION, GPU_FRACTION_DEVICES_ANNOTATION, GPU_MEMORY_ANNOTATION)
)


def _muster_keys(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    for key in value if isinstance(value, dict) else ():
        if key.startswith(f"{GROUP}/") and key not in READ_ANNOTATIONS:
            yield (*place, key), f"{key} is not implemented in a template"


def _priority(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    if not isinstance(value, int):
        yield place, f"priority: {shortened(str(value))} is no whole number"


METADATA: Final[Rule] = {
    "name": _IDENTITY,
    "generateName": _IDENTITY,
    "namespace": _IDENTITY,
    "uid": _IDENTITY,
    "creationTimestamp": _IDENTITY,
    "resourceVersion": _IDENTITY,
    "generation": _IDENTITY,
    "managedFields": _IDENTITY,
    "finalizers": _DURATION,
    "labels": Checked(_muster_keys),
    "annotations": Checked(_muster_keys),
}

RESOURCES: Final[Mapping[str, Rule]] = {"requests": QUANTITIES, "limits": QUANTITIES}

_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle")
_INSIDE_A_CONTAINER: Final = (
    *("image", "imagePullPolicy", "command", "args", "workingDir", "env", "envFrom", "securityContext"),
    *("stdin", "stdinOnce", "tty", "terminationMessagePath", "terminationMessagePolicy"),
    *("volumeMounts", "volumeDevices", "resizePolicy", "restartPolicyRules", *_PROBES),
)

CONTAINER: Final[Mapping[str, Rule]] = {
    "name": READ,
    "restartPolicy": READ,
    "resources": RESOURCES,
    "ports": Each(
        {
            "name": _NETWORK,
            "containerPort": _NETWORK,
            "protocol": Only(("TCP", "UDP", "SCTP")),
            "hostIP": READ,
            "hostPort": READ,
        }
    ),
    **dict.fromkeys(_INSIDE_A_CONTAINER, _INSIDE),
}

_REQUIREMENTS: Final = Each(
    {
        "key": READ,
        "operator": Only(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")),
        "values": READ,
    }
)

_LABEL_SELECTOR: Final[Rule] = {
    "matchLabels": READ,
    "matchExpressions": Each({"key": READ, "operator": Only(POD_OPERATORS), "values": READ}),
}


def _namespaces(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    yield from problems(value, _LABEL_SELECTOR, place)
    try:
        names_of(msgspec.convert(value, LabelSelector))
    except (ValueError, msgspec.ValidationError) as error:
        yield place, f"{place[-1]}: {error}"


def _positive(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    if isinstance(value, int) and value < 1:
        yield place, f"{place[-1]}: {value} is not implemented: 1 or more is"


_POD_TERM: Final = Complete(
    {
        "labelSelector": _LABEL_SELECTOR,
        "topologyKey": READ,
        "namespaces": READ,
        "namespaceSelector": Checked(_namespaces),
        "matchLabelKeys": READ,
        "mismatchLabelKeys": READ,
    },
    ("topologyKey",),
)
_POD_TERMS: Final = {
    "requiredDuringSchedulingIgnoredDuringExecution": Each(_POD_TERM),
    "preferredDuringSchedulingIgnoredDuringExecution": Each(
        Complete({"weight": READ, "podAffinityTerm": _POD_TERM}, ("weight", "podAffinityTerm"))
    ),
}
_NODE_TERM: Final = {"matchExpressions": _REQUIREMENTS, "matchFields": _REQUIREMENTS}

AFFINITY: Final[Rule] = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": Each(_NODE_TERM)},
        "preferredDuringSchedulingIgnoredDuringExecution": Each(
            Complete({"weight": READ, "preference": _NODE_TERM}, ("weight",))
        ),
    },
    "podAffinity": _POD_TERMS,
    "podAntiAffinity": _POD_TERMS,
}

_POLICY: Final = Only(("Honor", "Ignore"))

SPREAD: Final = Complete(
    {
        "maxSkew": Checked(_positive),
        "topologyKey": READ,
        "whenUnsatisfiable": Only(("DoNotSchedule", "ScheduleAnyway")),
        "labelSelector": _LABEL_SELECTOR,
        "matchLabelKeys": READ,
        "minDomains": Checked(_positive),
        "nodeAffinityPolicy": _POLICY,
        "nodeTaintsPolicy": _POLICY,
    },
    ("maxSkew", "topologyKey", "whenUnsatisfiable"),
)

VOLUME: Final[Mapping[str, Rule]] = {
    "name": READ,
    **dict.fromkeys(
        ("configMap", "downwardAPI", "emptyDir", "hostPath", "image", "nfs", "projected", "secret"), STORAGE
    ),
}

POD_SPEC: Final[Mapping[str, Rule]] = {
    "containers": Each(CONTAINER),
    "initContainers": Each(CONTAINER),
    "ephemeralContainers": Irrelevant("they have no resources"),
    "resources": RESOURCES,
    "overhead": QUANTITIES,
    "nodeSelector": READ,
    "affinity": AFFINITY,
    "topologySpreadConstraints": Each(SPREAD),
    "tolerations": Each(
        {
            "key": READ,
            "operator": Only(("Equal", "Exists")),
            "value": READ,
            "effect": Only(("NoSchedule", "PreferNoSchedule", "NoExecute")),
            "tolerationSeconds": _DURATION,
        }
    ),
    "priority": Checked(_priority),
    "preemptionPolicy": Only(("PreemptLowerPriority",)),
    "schedulerName": Only((SCHEDULER_NAME,)),
    "activeDeadlineSeconds": READ,
    "terminationGracePeriodSeconds": _DURATION,
    "volumes": Each(VOLUME),
    "runtimeClassName": _ADMITTED,
    "os": Irrelevant("the label of the node decides, by a node selector"),
    **dict.fromkeys(("serviceAccount", "serviceAccountName", "automountServiceAccountToken"), _INSIDE),
    **dict.fromkeys(("securityContext", "shareProcessNamespace", "hostIPC", "hostPID", "hostUsers"), _INSIDE),
    **dict.fromkeys(("restartPolicy", "imagePullSecrets", "readinessGates", "enableServiceLinks"), _INSIDE),
    **dict.fromkeys(("dnsPolicy", "dnsConfig", "hostAliases", "hostNetwork", "hostname"), _NETWORK),
    **dict.fromkeys(("hostnameOverride", "setHostnameAsFQDN", "subdomain"), _NETWORK),
}

POD_TEMPLATE: Final[Rule] = {"metadata": METADATA, "spec": POD_SPEC}

_STATE: Final[Rule] = {
    "waiting": {"reason": READ, "message": _REPORT},
    "running": {"startedAt": READ},
    "terminated": {
        "exitCode": READ,
        "reason": READ,
        **dict.fromkeys(("message", "startedAt", "finishedAt", "signal", "containerID"), _REPORT),
    },
}

_CONTAINER_STATUS: Final[Rule] = {
    "name": READ,
    "state": _STATE,
    "lastState": _STATE,
    "restartCount": READ,
    "resources": RESOURCES,
    "allocatedResources": QUANTITIES,
    **dict.fromkeys(("ready", "started", "image", "imageID", "containerID"), _REPORT),
    **dict.fromkeys(("volumeMounts", "user", "allocatedResourcesStatus", "stopSignal"), _REPORT),
}

_CONDITIONS: Final = (
    *("PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"),
    *("DisruptionTarget", "PodResizePending", "PodResizeInProgress"),
)

POD_STATUS: Final[Rule] = {
    "phase": Only(("Pending", "Running", "Succeeded", "Failed")),
    "reason": READ,
    "conditions": Each(
        {
            "type": Only(_CONDITIONS),
            "status": Only(("True", "False", "Unknown")),
            "reason": READ,
            **dict.fromkeys(
                ("message", "lastProbeTime", "lastTransitionTime", "observedGeneration"), _REPORT
            ),
        }
    ),
    "containerStatuses": Each(_CONTAINER_STATUS),
    "initContainerStatuses": Each(_CONTAINER_STATUS),
    "startTime": READ,
    "resources": RESOURCES,
    "allocatedResources": QUANTITIES,
    **dict.fromkeys(("message", "hostIP", "hostIPs", "podIP", "podIPs", "qosClass"), _REPORT),
    **dict.fromkeys(("observedGeneration", "ephemeralContainerStatuses"), _REPORT),
}
