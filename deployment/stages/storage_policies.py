"""The policies of the storage for QoS, snapshots and exports, and the policies that backends name."""

import ipaddress
from collections.abc import Iterator
from typing import Any, Final

from deployment.site import Finding, Place, Site
from deployment.stages import networks

_MAX_SCHEDULES: Final = 5
_MAX_SNAPSHOTS: Final = 1023
"""The limits of a snapshot policy, from ONTAP's command `volume snapshot policy create`."""

_ONTAP: Final[Place] = ("storage", "ontap")
_LIMITS: Final = ("max_iops", "max_mbps", "min_iops")
_OWN_ACCOUNT: Final = "vsadmin"
"""The account that each SVM has from its creation."""


def problems(ontap: dict[str, Any]) -> Iterator[Finding]:
    """Yield policies that ONTAP refuses, and an account that is not free."""
    yield from _of_qos(ontap)
    yield from _of_snapshots(ontap)
    for kind in ("qos_policies", "snapshot_policies"):
        names = [policy["name"] for policy in ontap.get(kind, [])]
        for index, name in enumerate(names):
            if name in names[:index]:
                yield Finding((*_ONTAP, kind, index), f"storage.ontap.{kind} has {name} twice: rename one")
    if ontap.get("trident_username") == _OWN_ACCOUNT:
        yield Finding(
            (*_ONTAP, "trident_username"),
            f"storage.ontap.trident_username: {_OWN_ACCOUNT} is the administrator of the SVM, with all its rights: "
            "take another name",
        )


def open_exports(site: Site) -> Iterator[Finding]:
    """Yield exports to every address."""
    for place, export in networks.exports(site):
        if not export.prefixlen:
            yield Finding(
                place,
                f"{'.'.join(map(str, place))}: any machine that reaches an interface of the SVM may mount all volumes: "
                "name the network of the hosts",
            )


def unmade(site: Site) -> Iterator[Finding]:
    """Yield the policies that a backend names and no entry of the site file makes."""
    ontap = site.get("storage", "ontap")
    policies = {
        "qosPolicy": ("qos_policies", [entry["name"] for entry in ontap.get("qos_policies", [])]),
        "snapshotPolicy": (
            "snapshot_policies",
            [entry["name"] for entry in ontap.get("snapshot_policies", [])],
        ),
    }
    for index, backend in enumerate(site.get("storage", "backends", default=[])):
        for key, (kind, names) in policies.items():
            policy = backend.get("defaults", {}).get(key)
            if policy and policy not in (*names, "none", "default", "default-1weekly"):
                yield Finding(
                    ("storage", "backends", index, "defaults", key),
                    f"backend {backend['name']}: storage.ontap.{kind} does not make {policy}: add it, or make it "
                    "on ONTAP",
                )


def without_answer(ontap: dict[str, Any]) -> Iterator[Finding]:
    """Yield DNS servers of the SVM at an address of the SVM itself."""
    for index, text in enumerate(ontap.get("dns", {}).get("servers", [])):
        try:
            number = ipaddress.ip_address(text)
        except ValueError:
            continue
        if number.is_loopback or number.is_unspecified or number.is_multicast:
            yield Finding(
                (*_ONTAP, "dns", "servers", index),
                f"storage.ontap.dns.servers: no DNS server answers the SVM at {text}: name one of the site",
            )


def _of_qos(ontap: dict[str, Any]) -> Iterator[Finding]:
    for index, policy in enumerate(ontap.get("qos_policies", [])):
        place: Place = (*_ONTAP, "qos_policies", index)
        if not set(_LIMITS) & set(policy):
            yield Finding(place, f"QoS policy {policy['name']} has no limit: add one of {', '.join(_LIMITS)}")
        low, high = policy.get("min_iops", 0), policy.get("max_iops")
        if high is not None and low > high:
            yield Finding(
                place,
                f"QoS policy {policy['name']}: min_iops {low} is above max_iops {high}: correct one of them",
            )


def _of_snapshots(ontap: dict[str, Any]) -> Iterator[Finding]:
    for index, policy in enumerate(ontap.get("snapshot_policies", [])):
        place: Place = (*_ONTAP, "snapshot_policies", index)
        schedules = [copy["schedule"] for copy in policy["copies"]]
        total = sum(copy["count"] for copy in policy["copies"])
        if len(schedules) > _MAX_SCHEDULES:
            yield Finding(
                place,
                f"snapshot policy {policy['name']} has {len(schedules)} schedules: ONTAP takes {_MAX_SCHEDULES}",
            )
        for schedule in sorted({name for name in schedules if schedules.count(name) > 1}):
            yield Finding(
                place, f"snapshot policy {policy['name']} has the schedule {schedule} twice: remove one"
            )
        if total > _MAX_SNAPSHOTS:
            yield Finding(
                place,
                f"snapshot policy {policy['name']} keeps {total} snapshots: ONTAP keeps {_MAX_SNAPSHOTS} of a volume, "
                "so lower a count",
            )
