"""The changes of ResourceClaims when a plan is carried out and when pods end. Pure.

A claim is reserved for the bound pods that use it, and is allocated until the last of them has ended. The claim that is
created for a pod's whole GPUs is deleted with the pod.
"""

from collections.abc import Iterable
from dataclasses import replace

from orchestrator.devices.model import DynamicResources, ObservedClaim
from orchestrator.planner.model import Binding, Plan, Pod, Snapshot

_EXTENDED = "-extended-resources"


def carry_out_grants(snapshot: Snapshot, plan: Plan) -> DynamicResources:
    """Return the ResourceClaims after the allocations and deallocations of the plan."""
    dynamic = snapshot.dynamic
    bindings = {binding.pod: binding for binding in plan.bindings}
    if not dynamic.claims and not any(binding.grants for binding in plan.bindings):
        return dynamic
    claims = {listed.claim.key: listed for listed in dynamic.claims}
    before = dict(claims)
    for key in plan.deallocations:
        claims[key] = ObservedClaim(claims[key].claim)
    for workload in snapshot.workloads:
        for pod in workload.pods:
            if pod.id not in bindings:
                continue
            for grant in bindings[pod.id].grants:
                claim = grant.claim
                if grant.extended:
                    claim = replace(claim, uid=extended_name(pod), name=extended_name(pod))
                claims[claim.key] = replace(
                    claims.get(claim.key, ObservedClaim(claim)), allocation=grant.allocation
                )
            for key in claims_after(pod, bindings[pod.id]):
                claims[key] = replace(claims[key], reserved_for=(*claims[key].reserved_for, pod.id))
    return dynamic if claims == before else replace(dynamic, claims=tuple(claims.values()))


def claims_after(pod: Pod, binding: Binding) -> tuple[str, ...]:
    """Return the keys of the pod's ResourceClaims after the binding."""
    extended = (f"{grant.claim.namespace}/{extended_name(pod)}" for grant in binding.grants if grant.extended)
    return (*pod.claims, *extended)


def extended_name(pod: Pod) -> str:
    """Return the name of the ResourceClaim for the pod's whole GPUs."""
    return f"{pod.id}{_EXTENDED}"


def own_claims(pod: Pod) -> tuple[str, ...]:
    """Return the keys of the ResourceClaims that the pod's successor uses too: all but the claim for whole GPUs."""
    return tuple(key for key in pod.claims if not key.endswith(f"/{extended_name(pod)}"))


def release_claims(dynamic: DynamicResources, removed: Iterable[str]) -> DynamicResources:
    """Return the ResourceClaims after the end of these pods."""
    pods = frozenset(removed)
    claims = []
    for listed in dynamic.claims:
        if pods.isdisjoint(listed.reserved_for):
            claims.append(listed)
            continue
        users = tuple(user for user in listed.reserved_for if user not in pods)
        if users:
            claims.append(replace(listed, reserved_for=users))
        elif not listed.claim.name.endswith(_EXTENDED):
            claims.append(ObservedClaim(listed.claim))
    return (
        dynamic
        if len(claims) == len(dynamic.claims)
        and all(new is old for new, old in zip(claims, dynamic.claims, strict=True))
        else replace(dynamic, claims=tuple(claims))
    )
