"""The hosts that a run leaves out: in maintenance, outside of `--limit`, or not reached."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from deployment.playbook import Stage
from deployment.runner import Outcome
from deployment.site import Site
from deployment.stages import deepops
from orchestrator.errors import UsageError

KUBERNETES: Final = deepops.STAGE.name
"""The stage that cannot leave out the hosts of `INDISPENSABLE`."""

INDISPENSABLE: Final = ("control_plane", "etcd")
"""Roles of hosts that kubespray must configure together: the configuration of each host names the others."""

_OUTSIDE: Final = "not in --limit"
_DONE: Final = "verified before"
_OF_WHOLE_SITE: Final = "it is of the whole site, and --limit names a part of it"


class Fleet:
    """The hosts of a site in one run. `left_out` maps each omitted host to the reason.

    `unreached` are the hosts of the run that could not be reached. Raises UsageError if the limit names no host, or
    only hosts in maintenance.
    """

    def __init__(self, site: Site, groups: Mapping[str, Sequence[str]], limit: str) -> None:
        self._site = site
        self._groups = groups
        self._limit = limit
        self.left_out = {name: f"in maintenance: {reason}" for name, reason in site.maintenance.items()}
        self.unreached: dict[str, str] = {}
        self._done: dict[str, dict[str, str]] = {}
        if limit:
            named = self._named()
            if not named - self.left_out.keys():
                line = site.document.line(("hosts", min(named), "maintenance"))
                raise UsageError(
                    f"{site.document.path}:{line}: {limit}: every host of it is in maintenance: remove "
                    "`maintenance` of the hosts of this run"
                )
            self.left_out |= dict.fromkeys((name for name in site.hosts if name not in named), _OUTSIDE)

    @property
    def present(self) -> list[str]:
        """The hosts that are not left out."""
        return [name for name in self._site.hosts if name not in self.left_out]

    def lose(self, causes: Mapping[str, str]) -> None:
        """Leave out, from now on, hosts that could not be reached, with these causes."""
        self.unreached |= causes
        self.left_out |= dict.fromkeys(causes, "not reached")

    def settle(self, stage: Stage, due: Collection[str] | None) -> None:
        """If a stage must run only on some of its hosts, leave out the others. `due` has these hosts; None means all
        hosts.
        """
        hosts = self.hosts_of(stage)
        is_part = due is not None and any(host in due and host not in self.left_out for host in hosts)
        self._done[stage.name] = {host: _DONE for host in hosts if is_part and due and host not in due}

    def joining(self, stage: Stage, due: Collection[str] | None) -> list[str]:
        """Return the hosts that join a running cluster in a stage; empty if Kubernetes is due on all hosts."""
        if stage.name != KUBERNETES or due is None:
            return []
        return [host for host in self.hosts_of(stage) if host in due and host not in self.left_out]

    def hosts_of(self, stage: Stage) -> tuple[str, ...]:
        """Return the hosts on which a stage works; empty if the stage works only on the cluster or the storage."""
        group = stage.definition.host_group or stage.hosts
        return tuple(name for name in self._groups.get(group, ()) if name in self._site.hosts)

    def left_out_of(self, stage: Stage) -> dict[str, str]:
        """Return the hosts that a stage leaves out, with the reasons.

        Kubernetes includes the control plane and etcd for every `--limit`, and for hosts that join.
        """
        hosts = self.hosts_of(stage)
        always = self.indispensable(hosts) if stage.name == KUBERNETES else []
        reasons = self._done.get(stage.name, {}) | self.left_out
        return {
            host: reasons[host]
            for host in hosts
            if host in reasons and not (host in always and reasons[host] in {_OUTSIDE, _DONE})
        }

    def indispensable(self, hosts: Iterable[str]) -> list[str]:
        """Return the hosts of `hosts` that the stage of Kubernetes cannot leave out."""
        roles = self._site.hosts
        return [name for name in hosts if set(INDISPENSABLE) & set(roles[name]["roles"])]

    def of_whole_site(self, stage: Stage, *, upgrade: bool) -> str:
        """Return the reason if the limit leaves out the whole stage, or an empty string."""
        if not self._limit or stage.definition.looks_only:
            return ""
        if self.hosts_of(stage) and not (upgrade and stage.definition.host_group):
            return ""
        return _OF_WHOLE_SITE

    def lost(self, stage: Stage, outcome: Outcome) -> dict[str, str]:
        """Return the hosts that became unreachable during a stage, with their messages.

        Empty if the stage did not end on other hosts.
        """
        away = [host for host, counts in outcome.hosts.items() if counts["dark"]]
        rest = set(self.hosts_of(stage)) - set(away) - self.left_out.keys()
        failed = any(counts["failures"] for counts in outcome.hosts.values())
        if failed or not rest or not set(away) <= set(self.hosts_of(stage)):
            return {}
        messages = {failure.host: failure.message for failure in outcome.failures if failure.unreachable}
        return {host: messages.get(host, "the connection was lost") for host in away}

    def due(self, stage: Stage, before: Collection[str], left_out: Collection[str]) -> list[str]:
        """Return the hosts of `before` that the run left out. The stage stays due on them."""
        return [host for host in self.hosts_of(stage) if host in before and host in left_out]

    def arguments(self, stage: Stage, inventory: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        """Return the arguments of `ansible-playbook` that leave hosts out: its `--limit`, and a variable for the
        roles.
        """
        left_out = self.left_out_of(stage) if self.hosts_of(stage) else self.left_out
        if not left_out:
            return "", ()
        names = [name for name in inventory["all"]["hosts"] if name not in left_out]
        return ",".join(names), (json.dumps({"muster_hosts_left_out": sorted(left_out)}),)

    def _named(self) -> set[str]:
        named: set[str] = set()
        for word in filter(None, (part.strip() for part in self._limit.split(","))):
            members = {name for name in self._groups.get(word, ()) if name in self._site.hosts}
            members |= {name for name in self._site.hosts if fnmatchcase(name, word)}
            if not members:
                raise UsageError(
                    f"{word} names no host of {self._site.document.path}; there are "
                    f"{', '.join(self._site.hosts) or 'none'}, and the groups control_plane, etcd, gpu and worker"
                )
            named |= members
        if not named:
            raise UsageError("--limit has no host: give hosts or groups, separated by commas, or remove it")
        return named
