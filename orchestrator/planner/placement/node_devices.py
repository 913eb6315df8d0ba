"""Chooses a pod's devices on a node, by the node's account or by ResourceClaims."""

from orchestrator.planner.accounting.claim_ledger import ClaimLedger
from orchestrator.planner.accounting.ledger import NodeAccount
from orchestrator.planner.model import DEVICE_MILLI, Pod, Request


def devices_on(
    claims: ClaimLedger,
    account: NodeAccount,
    project: str,
    pod: Pod,
    *,
    later: bool,
    preferred: tuple[int, ...] = (),
    only_preferred: bool = False,
) -> tuple[int, ...] | None:
    """Return the indices of the GPUs that a pod with ResourceClaims gets on this node; None if devices are missing.

    Claims get the preferred devices if possible. With `only_preferred`, they get no other devices.
    """
    by_plugin: tuple[int, ...] | None = ()
    if has_plugin_gpus(account, pod.request):
        by_plugin = devices_for(account, pod.request, project, later=later)
    if by_plugin is None:
        return None
    devices = _claimed_devices(
        claims, account, project, pod, later=later, preferred=preferred, only_preferred=only_preferred
    )
    return devices if devices is None else by_plugin or devices


def _claimed_devices(
    claims: ClaimLedger,
    account: NodeAccount,
    project: str,
    pod: Pod,
    *,
    later: bool,
    preferred: tuple[int, ...],
    only_preferred: bool,
) -> tuple[int, ...] | None:
    """Return the devices for the pod's ResourceClaims among the GPUs with enough free on the node's account.

    The account counts thousandths, rounded up. So fractions that fit a GPU's memory exactly can exceed it on the
    account.
    """
    request = pod.request
    if not request.is_shared and not request.gpu_count:
        return claims.devices(account.node, pod, later=later)
    open_devices = _open_devices(account, request, project, later=later)
    if not preferred and not (request.is_shared and pod.extended_claim is not None):
        # First try without a restriction of devices. Its result nearly always has enough free, and only its
        # failures are cached.
        devices = claims.devices(account.node, pod, later=later)
        if devices is None or set(devices) <= set(open_devices):
            return devices
    among = sorted(open_devices, key=lambda device: device not in preferred)
    if only_preferred:
        among = [device for device in among if device in preferred]
    return claims.devices(account.node, pod, later=later, among=among)


def has_plugin_gpus(account: NodeAccount, request: Request) -> bool:
    """Return whether the pod gets its GPUs on this node from a device plugin and not by ResourceClaims."""
    return bool((request.gpu_count or request.is_shared) and not account.node.published_gpus)


def _open_devices(account: NodeAccount, request: Request, project: str, *, later: bool) -> list[int]:
    """Return the devices of the node that have enough left for the request, best first."""
    if not request.is_shared:
        return account.whole_devices(later=later)
    return [device for _, _, device in ranked_devices(account, request, project, later=later)]


def devices_for(
    account: NodeAccount, request: Request, project: str, *, later: bool
) -> tuple[int, ...] | None:
    """Return the devices (indices) on this node for the request; () if it requests no GPU; None if too few are free."""
    if request.is_shared:
        choice = best_devices(account, request, project, later=later)
        return None if choice is None else tuple(device for _, _, device in choice)
    if request.gpu_count == 0:
        return ()
    whole = account.whole_devices(later=later)
    return tuple(whole[: request.gpu_count]) if len(whole) >= request.gpu_count else None


def best_devices(
    account: NodeAccount, request: Request, project: str, *, later: bool
) -> list[tuple[bool, int, int]] | None:
    """Return the first `shared_devices` entries of `ranked_devices`; None if fewer devices fit."""
    choices = ranked_devices(account, request, project, later=later)
    return choices[: request.shared_devices] if len(choices) >= request.shared_devices else None


def ranked_devices(
    account: NodeAccount, request: Request, project: str, *, later: bool
) -> list[tuple[bool, int, int]]:
    """Return (is not shared by the project, free `gpu_milli`, index) of devices that fit the fraction, best first."""
    choices: list[tuple[bool, int, int]] = []
    if not later and account.is_short_of_lost():
        return choices
    portion = account.share_milli(request)
    whole = account.whole_devices(later=later) if account.lost else ()
    for device in range(account.node.gpu_count):
        free = account.free_milli(device, later=later)
        if free < portion:
            continue
        if account.lost and free == DEVICE_MILLI and device not in whole:
            continue
        shared_by_us = free < DEVICE_MILLI and project in account.tenants[device]
        choices.append((not shared_by_us, free, device))
    choices.sort()
    return choices
