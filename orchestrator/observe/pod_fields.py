"""Rules for the fields of a PodTemplateSpec and a PodStatus: read, or irrelevant with a reason.

All other fields are refused.

The names are those of Kubernetes 1.36. A field of a later version is refused until it has a rule here.
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
from orchestrator.observe.field_checks import (
    ADDRESS,
    INT32,
    LABEL_KEY,
    TIME,
    between,
    expression,
    label_keys,
    labels,
    namespaces,
    one_of,
    toleration,
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
from orchestrator.observe.resource_checks import named_quantities, of_container, of_pod

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


def _labels(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    yield from _muster_keys(value, place)
    yield from labels(value, place)


def _priority(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    if not isinstance(value, int):
        yield place, f"priority: {shortened(str(value))} is no whole number"
    yield from between(-INT32 - 1).problems(value, place)


METADATA: Final[Rule] = {
    "name": _IDENTITY,
    "generateName": _IDENTITY,
    "namespace": _IDENTITY,
    "uid": _IDENTITY,
    "creationTimestamp": TIME,
    "resourceVersion": _IDENTITY,
    "generation": _IDENTITY,
    "managedFields": _IDENTITY,
    "finalizers": _DURATION,
    "labels": Checked(_labels),
    "annotations": Checked(_muster_keys),
}

_MAX_PORT: Final = 65535

_NAMED: Final = Checked(named_quantities)
RESOURCES: Final[Mapping[str, Rule]] = {"requests": _NAMED, "limits": _NAMED}

_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle")
_INSIDE_A_CONTAINER: Final = (
    *("image", "imagePullPolicy", "command", "args", "workingDir", "env", "envFrom", "securityContext"),
    *("stdin", "stdinOnce", "tty", "terminationMessagePath", "terminationMessagePolicy"),
    *("volumeMounts", "volumeDevices", "resizePolicy", "restartPolicyRules", *_PROBES),
)

CONTAINER: Final[Mapping[str, Rule]] = {
    "name": READ,
    "restartPolicy": Only(("Always", "OnFailure", "Never")),
    "resources": Complete(RESOURCES, whole=of_container),
    "ports": Each(
        {
            "name": _NETWORK,
            "containerPort": between(1, _MAX_PORT),
            "protocol": Only(("TCP", "UDP", "SCTP")),
            "hostIP": ADDRESS,
            "hostPort": between(0, _MAX_PORT),
        }
    ),
    **dict.fromkeys(_INSIDE_A_CONTAINER, _INSIDE),
}


def _expressions(operators: tuple[str, ...]) -> Rule:
    fields: Mapping[str, Rule] = {"key": READ, "operator": Only(operators), "values": READ}
    return Each(Complete(fields, ("key", "operator"), expression))


_REQUIREMENTS: Final = _expressions(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))


def _one_value(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    values = value.get("values")
    if not isinstance(values, list) or len(values) != 1:
        yield place, "values: a field is compared with one value"


_FIELDS: Final = Each(
    Complete(
        {"key": Only(("metadata.name",)), "operator": Only(("In", "NotIn")), "values": READ},
        ("key", "operator"),
        _one_value,
    )
)

_LABEL_SELECTOR: Final[Rule] = {
    "matchLabels": Checked(labels),
    "matchExpressions": _expressions(POD_OPERATORS),
}


def _namespaces(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    yield from problems(value, _LABEL_SELECTOR, place)
    try:
        names_of(msgspec.convert(value, LabelSelector))
    except (ValueError, msgspec.ValidationError) as error:
        yield place, f"{place[-1]}: {error}"


_WEIGHT: Final = between(1, 100)
_POSITIVE: Final = between(1)

_POD_TERM: Final = Complete(
    {
        "labelSelector": _LABEL_SELECTOR,
        "topologyKey": LABEL_KEY,
        "namespaces": Checked(namespaces),
        "namespaceSelector": Checked(_namespaces),
        "matchLabelKeys": READ,
        "mismatchLabelKeys": READ,
    },
    ("topologyKey",),
    label_keys,
)
_POD_TERMS: Final = {
    "requiredDuringSchedulingIgnoredDuringExecution": Each(_POD_TERM),
    "preferredDuringSchedulingIgnoredDuringExecution": Each(
        Complete({"weight": _WEIGHT, "podAffinityTerm": _POD_TERM}, ("weight", "podAffinityTerm"))
    ),
}
_NODE_TERM: Final = {"matchExpressions": _REQUIREMENTS, "matchFields": _FIELDS}

AFFINITY: Final[Rule] = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": Complete(
            {"nodeSelectorTerms": Each(_NODE_TERM)}, ("nodeSelectorTerms",)
        ),
        "preferredDuringSchedulingIgnoredDuringExecution": Each(
            Complete({"weight": _WEIGHT, "preference": _NODE_TERM}, ("weight",))
        ),
    },
    "podAffinity": _POD_TERMS,
    "podAntiAffinity": _POD_TERMS,
}

_POLICY: Final = Only(("Honor", "Ignore"))


def _whole_spread(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    yield from label_keys(value, place)
    if value.get("minDomains") and value.get("whenUnsatisfiable") == "ScheduleAnyway":
        yield (*place, "minDomains"), "minDomains: it goes with whenUnsatisfiable DoNotSchedule"


SPREAD: Final = Complete(
    {
        "maxSkew": _POSITIVE,
        "topologyKey": LABEL_KEY,
        "whenUnsatisfiable": Only(("DoNotSchedule", "ScheduleAnyway")),
        "labelSelector": _LABEL_SELECTOR,
        "matchLabelKeys": READ,
        "minDomains": _POSITIVE,
        "nodeAffinityPolicy": _POLICY,
        "nodeTaintsPolicy": _POLICY,
    },
    ("maxSkew", "topologyKey", "whenUnsatisfiable"),
    _whole_spread,
)

VOLUME: Final[Mapping[str, Rule]] = {
    "name": READ,
    **dict.fromkeys(
        ("configMap", "downwardAPI", "emptyDir", "hostPath", "image", "nfs", "projected", "secret"), STORAGE
    ),
}

POD_SPEC: Final[Mapping[str, Rule]] = {
    "containers": Each(CONTAINER, "name"),
    "initContainers": Each(CONTAINER, "name"),
    "ephemeralContainers": Irrelevant("they have no resources"),
    "resources": Complete(RESOURCES, whole=of_pod),
    "overhead": _NAMED,
    "nodeSelector": Checked(labels),
    "affinity": AFFINITY,
    "topologySpreadConstraints": Each(SPREAD),
    "tolerations": Each(
        Complete(
            {
                "key": READ,
                "operator": Only(("Equal", "Exists")),
                "value": READ,
                "effect": Only(("NoSchedule", "PreferNoSchedule", "NoExecute")),
                "tolerationSeconds": _DURATION,
            },
            whole=toleration,
        )
    ),
    "priority": Checked(_priority),
    "preemptionPolicy": Only(("PreemptLowerPriority",)),
    "schedulerName": Only((SCHEDULER_NAME,)),
    "activeDeadlineSeconds": _POSITIVE,
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


def _whole_pod(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    """Check the fields of a pod that must fit together."""
    yield from _host_ports(value, place)
    for key, fields in (
        ("initContainers", ("name",)),
        ("topologySpreadConstraints", ("topologyKey", "whenUnsatisfiable")),
    ):
        others = value.get("containers") if key == "initContainers" else ()
        taken = [[each.get(field) for field in fields] for _, each in _objects(others)]
        for index, each in _objects(value.get(key)):
            own = [each.get(field) for field in fields]
            if own in taken:
                yield (*place, key, index), f"{' and '.join(fields)}: {shortened(str(own[0]))} is there twice"
            taken.append(own)


def _host_ports(value: Mapping[str, Any], place: Place) -> Iterator[tuple[Place, str]]:
    """Yield place and message of each host port that containers use twice and, with host network, of each port without
    its host port.
    """
    taken: list[tuple[Any, ...]] = []
    for where, port, is_sidecar in _ports(value, place):
        number = port.get("hostPort")
        if value.get("hostNetwork") and not number:
            yield where, "hostPort is missing: with hostNetwork it is the containerPort"
        elif value.get("hostNetwork") and number != port.get("containerPort") and not is_sidecar:
            yield (*where, "hostPort"), "hostPort: with hostNetwork it is the containerPort"
        own = (number, port.get("protocol") or "TCP", port.get("hostIP") or "")
        if number and own in taken and not is_sidecar:
            yield (*where, "hostPort"), f"hostPort: {number} is there twice"
        elif not is_sidecar:
            taken.append(own)


def _ports(spec: Mapping[str, Any], place: Place) -> Iterator[tuple[Place, Mapping[str, Any], bool]]:
    """Yield the ports of containers and sidecars, with path, and whether it is a sidecar.

    Other init containers do not run at the same time as other containers.
    """
    for key in ("containers", "initContainers"):
        is_sidecar = key == "initContainers"
        for number, container in _objects(spec.get(key)):
            if not is_sidecar or container.get("restartPolicy") == "Always":
                for index, port in _objects(container.get("ports")):
                    yield (*place, key, number, "ports", index), port, is_sidecar


def _objects(value: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    return (
        (i, each) for i, each in enumerate(value if isinstance(value, list) else ()) if isinstance(each, dict)
    )


POD_TEMPLATE: Final[Rule] = {"metadata": METADATA, "spec": Complete(POD_SPEC, whole=_whole_pod)}

_STATE: Final = Complete(
    {
        "waiting": {"reason": READ, "message": _REPORT},
        "running": {"startedAt": TIME},
        "terminated": {
            "exitCode": between(-INT32 - 1),
            "reason": READ,
            "startedAt": TIME,
            "finishedAt": TIME,
            **dict.fromkeys(("message", "signal", "containerID"), _REPORT),
        },
    },
    whole=one_of,
)

_CONTAINER_STATUS: Final[Rule] = {
    "name": READ,
    "state": _STATE,
    "lastState": _STATE,
    "restartCount": between(0),
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
            "lastProbeTime": TIME,
            "lastTransitionTime": TIME,
            **dict.fromkeys(("message", "observedGeneration"), _REPORT),
        },
        "type",
    ),
    "containerStatuses": Each(_CONTAINER_STATUS, "name"),
    "initContainerStatuses": Each(_CONTAINER_STATUS, "name"),
    "startTime": TIME,
    "resources": RESOURCES,
    "allocatedResources": QUANTITIES,
    **dict.fromkeys(("message", "hostIP", "hostIPs", "podIP", "podIPs", "qosClass"), _REPORT),
    **dict.fromkeys(("observedGeneration", "ephemeralContainerStatuses"), _REPORT),
}
