"""The options of `muster project create` and `update` for the security of a project's pods."""

import re
from collections.abc import Mapping
from typing import Any, Final

import click
import msgspec

from orchestrator.cluster.objects import Directory, SecuritySpec
from orchestrator.durations import parse_duration_seconds
from orchestrator.errors import UsageError

LEVELS: Final = ("privileged", "baseline", "restricted")
_PATH = re.compile(r"/([-A-Za-z0-9_.@+]+(/[-A-Za-z0-9_.@+]+)*)?")

OPTIONS: Final = (
    click.option(
        "--pod-security",
        type=click.Choice(LEVELS),
        help="The level of the Pod Security Standards that pods must meet; default: baseline.",
    ),
    click.option(
        "--directory",
        multiple=True,
        metavar="PATH[:ro|rw][:NFS-SERVER]",
        help="A directory of the nodes, or of an NFS server, that jobs may mount. ro: with its "
        "subdirectories, read-only. rw: this directory alone. Repeatable.",
    ),
    click.option(
        "--priority-class",
        multiple=True,
        metavar="NAME",
        help="A PriorityClass that pods may have besides those of muster. Repeatable.",
    ),
    click.option(
        "--max-termination-grace",
        metavar="DURATION",
        help="Maximum termination grace period of pods.",
    ),
    click.option("--ingress-domain", metavar="DOMAIN", help="Domain of the hosts that Ingresses may have."),
)


def security(before: SecuritySpec, options: Mapping[str, Any]) -> SecuritySpec:
    """Return the specification with the given values. An empty text removes a value.

    Raises UsageError.
    """
    changes: dict[str, Any] = {}
    for key in ("pod_security", "ingress_domain"):
        if key in options:
            changes[key] = options[key] or None
    if "directory" in options:
        changes["directories"] = [_directory(text) for text in options["directory"] if text]
    if "priority_class" in options:
        changes["priority_classes"] = [name for name in options["priority_class"] if name]
    if "max_termination_grace" in options:
        changes["max_termination_grace_seconds"] = parse_duration_seconds(
            "--max-termination-grace", options["max_termination_grace"] or None
        )
    return msgspec.structs.replace(before, **changes) if changes else before


def shown(spec: SecuritySpec) -> dict[str, str]:
    """Return the settings that `get project` shows, by title."""
    directories = [f"{one.source} ({'rw' if one.writable else 'ro'})" for one in spec.directories]
    return {
        "POD SECURITY": spec.pod_security or "baseline",
        "DIRECTORIES": ",".join(directories) or "-",
        "INGRESS DOMAIN": spec.ingress_domain or "-",
    }


def _directory(text: str) -> Directory:
    path, _, rest = text.partition(":")
    mode, _, server = rest.partition(":")
    if not _PATH.fullmatch(path) or mode not in ("", "ro", "rw") or ".." in path.split("/"):
        raise UsageError(f"--directory {text!r} is not possible: give /PATH[:ro|rw][:NFS-SERVER]")
    return Directory(path=path, nfs_server=server or None, writable=mode == "rw")
