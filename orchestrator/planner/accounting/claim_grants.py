"""What a decision gives to claims: with each binding the devices of its pod's claims, and what to deallocate."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from orchestrator.planner.accounting.ledger import Ledger
from orchestrator.planner.model import Binding, PodState, Workload


def grant_claims(
    ledger: Ledger, bindings: Mapping[str, Binding], workload_of: Callable[[str], Workload]
) -> dict[str, Binding]:
    """The bindings, by pod id, with what claims get.

    A workload of which one pod lacks its devices, as another part of the decision has them, is left out as a whole.
    """
    names = dict.fromkeys(binding.workload for binding in bindings.values())
    pods = {pod.id: pod for name in names for pod in workload_of(name).pods if pod.id in bindings}
    complete: dict[str, Binding] = {}
    short: set[str] = set()
    for name, binding in bindings.items():
        node, pod = ledger.by_name[binding.node].node, pods[name]
        if not ledger.claims.concern(node, pod):
            complete[name] = binding
            continue
        granted = ledger.claims.granted(node, pod)
        if granted is None:
            short.add(binding.workload)
        else:
            grants, devices = granted
            if not node.published_gpus:
                devices = binding.devices  # claims give none there
            complete[name] = replace(binding, devices=devices, grants=grants)
    return {name: binding for name, binding in complete.items() if binding.workload not in short}


def claims_to_deallocate(
    ledger: Ledger, waiting: Iterable[Workload], bindings: Mapping[str, Binding]
) -> tuple[str, ...]:
    """Keys of claims that hold devices for nobody but pods that wait on: with them elsewhere, these could start."""
    pods = [
        pod
        for workload in waiting
        for pod in workload.pods
        if pod.claims and pod.state is PodState.PENDING and pod.id not in bindings
    ]
    return tuple(sorted(ledger.claims.allocated_only_to(pods))) if pods else ()
