"""Detects, from the Lease of the leader election, whether an operator leads."""

from typing import TYPE_CHECKING, Final

from orchestrator.cluster.errors import NotFound
from orchestrator.cluster.objects import Lease
from orchestrator.cluster.quantity import time_us
from orchestrator.cluster.resources import LEASES
from orchestrator.names import LEASE_NAME, SYSTEM_NAMESPACE

if TYPE_CHECKING:
    from orchestrator.cluster.transport import Transport

SILENT_US: Final = 60_000_000
"""If the lease was not renewed for this time, no operator leads.

The operator renews it every few seconds, and the clocks of two machines may differ.
"""


async def silence(transport: "Transport", now_us: int) -> str:
    """Return the problem if no operator leads, or an empty string. Raises Forbidden."""
    try:
        lease = await transport.get(LEASES.path(SYSTEM_NAMESPACE, LEASE_NAME), Lease)
    except NotFound:
        return "operator: none has led this cluster; start one ('muster operator-yaml')"
    silent_us = now_us - time_us(lease.spec.renew_time or "")
    if lease.spec.holder_identity and silent_us < SILENT_US:
        return ""
    return (
        f"operator: none leads for {silent_us // 1_000_000} s; see 'kubectl -n {SYSTEM_NAMESPACE} get pods'"
    )
