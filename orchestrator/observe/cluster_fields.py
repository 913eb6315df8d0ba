"""The rules for each field of a PodSpec in a cluster: implemented, irrelevant (with a reason), or refused.

A test compares them with the OpenAPI document of the API server, so that no field of a newer Kubernetes is ignored.
"""

from typing import Final

from orchestrator.cluster.objects import Pod
from orchestrator.cluster.quantity import shortened
from orchestrator.observe.field_rules import READ, Each, Irrelevant, Refused, Rule
from orchestrator.observe.pod_fields import CONTAINER, POD_SPEC, RESOURCES, STORAGE, VOLUME
from orchestrator.observe.unreadable import UnreadableRequest

REFUSED_VOLUME: Final = Refused(
    "the scheduler does not know on which nodes it can be attached, nor how often"
)
_DISKS: Final = (
    *("awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "fc", "flexVolume", "flocker"),
    *("gcePersistentDisk", "gitRepo", "glusterfs", "iscsi", "photonPersistentDisk", "portworxVolume"),
    *("quobyte", "rbd", "scaleIO", "storageos", "vsphereVolume"),
)

_CONTAINER: Final[Rule] = {
    **CONTAINER,
    "resources": {
        **RESOURCES,
        "claims": Irrelevant("it names the containers that see the devices of a claim of the pod"),
    },
}

POD_SPEC_IN_A_CLUSTER: Final[Rule] = {
    **POD_SPEC,
    "containers": Each(_CONTAINER),
    "initContainers": Each(_CONTAINER),
    "resources": {**RESOURCES, "claims": Irrelevant("the API server allows none at pod level")},
    "nodeName": READ,
    "priorityClassName": READ,
    "schedulerName": READ,
    "schedulingGates": Each({"name": READ}),
    "schedulingGroup": Refused(
        "muster's gangs have annotations of their own, and two kinds could contradict"
    ),
    "preemptionPolicy": Irrelevant("it is for kube-scheduler; muster preempts by quotas and priorities"),
    "resourceClaims": Each(dict.fromkeys(("name", "resourceClaimName", "resourceClaimTemplateName"), READ)),
    "volumes": Each(
        {
            **VOLUME,
            "persistentVolumeClaim": {
                "claimName": READ,
                "readOnly": Irrelevant("the kubelet mounts the volume so"),
            },
            "ephemeral": READ,
            "csi": STORAGE,
            **dict.fromkeys(_DISKS, REFUSED_VOLUME),
        }
    ),
}


def refuse_unimplemented(pod: Pod) -> None:
    """Raise UnreadableRequest if the pod has a refused field."""
    if pod.spec.scheduling_group is not None:
        raise UnreadableRequest(
            "it has a schedulingGroup, which is not implemented: use the annotation muster.dev/min-member"
        )
    for volume in pod.spec.volumes:
        if not volume.is_implemented:
            raise UnreadableRequest(
                f"its volume {shortened(volume.name)} is of a kind that is not implemented: use a PersistentVolumeClaim"
            )
