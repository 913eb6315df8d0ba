"""Who a workload runs as, and what it may do on its node."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.workloads.submission import Submission

Manifest = dict[str, Any]

LARGEST_ID: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Identity:
    """The numbers of a user, a group and further groups; None: as the image says."""

    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] = ()


def caller() -> Identity:
    """Return the numbers of the user of this machine."""
    return Identity(os.getuid(), os.getgid(), tuple(sorted(set(os.getgroups()) - {os.getgid()})))


def parse_id(flag: str, text: str | None) -> int | None:
    """Return the number of a user or group."""
    if text is None:
        return None
    if text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) <= LARGEST_ID:
        return int(text)
    raise UsageError(f"{flag} {text!r} is not possible: give a number from 0 to {LARGEST_ID}")


def parse_groups(text: str | None) -> tuple[int, ...]:
    """Return the numbers of `10,20`."""
    if text is None:
        return ()
    return tuple(parse_id("--supplemental-groups", part.strip()) or 0 for part in text.split(","))


def pod_security_context(asked: "Submission") -> Manifest:
    """Return the pod's security context, empty where nothing was asked for."""
    identity = asked.identity or Identity()
    fields = {
        "runAsUser": identity.uid,
        "runAsGroup": identity.gid,
        "supplementalGroups": list(identity.groups) or None,
    }
    return {key: value for key, value in fields.items() if value is not None}


def container_security_context(asked: "Submission") -> Manifest:
    """Return the container's security context, empty where nothing was asked for."""
    context: Manifest = {}
    if asked.privilege_escalation is not None:
        context["allowPrivilegeEscalation"] = asked.privilege_escalation
    if asked.capabilities:
        context["capabilities"] = {"add": list(asked.capabilities)}
    return context
