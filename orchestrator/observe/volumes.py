"""The node constraints of a pod's PVCs, and the PVCs that a pod cannot mount yet. Pure.

The constraint of a PVC with a volume is the volume's node affinity. If a PVC has no volume and its StorageClass waits
for the first consumer, its constraint is the topologies that the class allows.

Only one pod can mount a PVC with the access mode ReadWriteOncePod. The kubelet does not start a second one.
"""

from collections.abc import Iterable
from typing import Final

from orchestrator.cluster.objects import PersistentVolume, PersistentVolumeClaim, Pod, StorageClass
from orchestrator.labels import LabelRequirement
from orchestrator.observe.dict_ops import discard, put
from orchestrator.observe.node_terms import Terms, both, terms_of

StorageObject = PersistentVolumeClaim | PersistentVolume | StorageClass
Key = tuple[str, str]
"""Namespace and name of a PVC."""

WAITS_FOR_CONSUMER: Final = "WaitForFirstConsumer"
ONE_POD: Final = "ReadWriteOncePod"


def claims_of(pod: Pod) -> list[Key]:
    """Return the PVCs that the pod mounts, by namespace and name."""
    metadata = pod.metadata
    claims = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            claims.append((metadata.namespace, volume.persistent_volume_claim.claim_name))
        elif volume.ephemeral is not None:
            claims.append((metadata.namespace, f"{metadata.name}-{volume.name}"))
    return claims


class Volumes:
    """The PVCs, PersistentVolumes and StorageClasses of the cluster by name, updated by `note`.

    `note_pod` updates the pods that mount the PVCs.
    """

    def __init__(self) -> None:
        self._claims: dict[Key, PersistentVolumeClaim] = {}
        self._volumes: dict[str, PersistentVolume] = {}
        self._classes: dict[str, StorageClass] = {}
        self._claim_of: dict[str, Key] = {}
        self._users: dict[Key, dict[str, Pod]] = {}

    def note(self, changed: StorageObject, *, is_there: bool) -> list[Key]:
        """Apply a change. Return the PVCs whose node terms can change by it."""
        name = changed.metadata.name
        if isinstance(changed, PersistentVolumeClaim):
            key = (changed.metadata.namespace, name)
            put(self._claims, key, changed if is_there else None)
            if changed.spec.volume_name:
                put(self._claim_of, changed.spec.volume_name, key if is_there else None)
            return [key]
        if isinstance(changed, PersistentVolume):
            put(self._volumes, name, changed if is_there else None)
            return [self._claim_of[name]] if name in self._claim_of else []
        put(self._classes, name, changed if is_there else None)
        return [key for key, claim in self._claims.items() if claim.spec.storage_class_name == name]

    def note_pod(self, pod: Pod, *, is_active: bool) -> list[Key]:
        """Store the pod while it is active. Return its PVCs that only one pod can mount."""
        keys = claims_of(pod) if pod.spec.volumes else []
        for key in keys:
            if is_active:
                self._users.setdefault(key, {})[pod.metadata.uid] = pod
            else:
                discard(self._users, key, pod.metadata.uid)
        return [key for key in keys if self._is_for_one_pod(key)]

    def _is_for_one_pod(self, key: Key) -> bool:
        claim = self._claims.get(key)
        return claim is not None and ONE_POD in claim.spec.access_modes

    def claim(self, key: Key) -> PersistentVolumeClaim | None:
        """Return the PVC, or None."""
        return self._claims.get(key)

    def volume(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        """Return the volume of a PVC; None if the PVC has no volume, or the volume is unknown."""
        return self._volumes.get(claim.spec.volume_name)

    def storage_class(self, claim: PersistentVolumeClaim) -> StorageClass | None:
        """Return the StorageClass of a PVC; None if the PVC names no class, or the class is unknown."""
        return self._classes.get(claim.spec.storage_class_name or "")

    def obstacle(self, pod: Pod) -> str:
        """Return the reason if the pod, which has no node, cannot mount one of its PVCs yet; else ""."""
        return self._unbound(pod) or self._in_use(pod)

    def _in_use(self, pod: Pod) -> str:
        """Return the reason if another pod mounts, or mounts first, a PVC that only one pod can mount; else "".

        A terminating pod with the same owner does not count: the pod is its successor and has its nomination.
        """
        for key in claims_of(pod) if pod.spec.volumes else ():
            if not self._is_for_one_pod(key):
                continue
            users = (user for user in self._users.get(key, {}).values() if not _is_succeeded_by(user, pod))
            first = min(users, key=_mounts_before, default=pod)
            if first.metadata.uid != pod.metadata.uid:
                use = "uses" if first.spec.node_name else "is older and waits for"
                other = f"the pod {first.metadata.name} {use} it"
                return f"only one pod can use the claim {key[1]} ({ONE_POD}), and {other}"
        return ""

    def _unbound(self, pod: Pod) -> str:
        """Return the reason if a PVC of the pod lacks a volume that must exist before the pod gets a node; else ""."""
        for key in claims_of(pod) if pod.spec.volumes else ():
            claim = self._claims.get(key)
            if (
                claim is None
                or claim.status.phase == "Bound"
                or claim.metadata.deletion_timestamp is not None
            ):
                continue
            storage_class = self.storage_class(claim)
            waits = storage_class is not None and storage_class.volume_binding_mode == WAITS_FOR_CONSUMER
            if not waits or claim.spec.volume_name:
                name = claim.spec.storage_class_name
                of_class = f" of class {name}" if name else ""
                return (
                    f"the claim {key[1]}{of_class} has no volume yet, and its volume does not wait for a pod: see the "
                    "events of the claim"
                )
        return ""

    def obstructed(self, pods: Iterable[Pod | None]) -> set[str]:
        """Return the uids of the pods for which `obstacle` returns a reason."""
        return {pod.metadata.uid for pod in pods if pod is not None and self.obstacle(pod)}

    def terms(self, pod: Pod) -> Terms:
        """Return the node terms of the pod's PVCs."""
        terms: Terms = ()
        for key in claims_of(pod) if pod.spec.volumes else ():
            terms = both(terms, self.claim_terms(key))
        return terms

    def claim_terms(self, key: Key) -> Terms:
        """Return the node terms of one PVC."""
        claim = self._claims.get(key)
        if claim is None:
            return ()
        if claim.spec.volume_name:
            volume = self.volume(claim)
            affinity = None if volume is None else volume.spec.node_affinity
            return terms_of(None if affinity is None else affinity.required)
        storage_class = self.storage_class(claim)
        if storage_class is None or storage_class.volume_binding_mode != WAITS_FOR_CONSUMER:
            return ()
        return tuple(
            tuple(
                LabelRequirement(expression.key, "In", tuple(expression.values))
                for expression in term.match_label_expressions
            )
            for term in storage_class.allowed_topologies
        )


def _mounts_before(pod: Pod) -> tuple[bool, str, str, str]:
    """Return the sort key of pods that mount the same PVC: pods with a node first, then the oldest."""
    metadata = pod.metadata
    return not pod.spec.node_name, metadata.creation_timestamp or "", metadata.name, metadata.uid


def _is_succeeded_by(pod: Pod, successor: Pod) -> bool:
    owners = {owner.uid for owner in pod.metadata.owner_references}
    return pod.metadata.deletion_timestamp is not None and any(
        owner.uid in owners for owner in successor.metadata.owner_references
    )
