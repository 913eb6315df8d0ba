"""The inputs of the stages of a site, and the hosts on which a stage is due because its inputs have changed."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deployment import inventory, playbook, stages
from deployment.bundle.use import Bundle
from deployment.content import Content
from deployment.journal import REMOVED, VERIFIED, StageRecord
from deployment.plan import digest_of, inputs_of
from deployment.playbook import Stage
from deployment.site import Site

_HOST = "host {}"
"""The name of the input with the variables of a host (`deployment.inventory.stage_variables`)."""


@dataclass(frozen=True)
class SiteInputs:
    """The inputs of the stages: variables, hosts, playbooks and roles."""

    site: Site
    content: Content
    state_dir: Path | None
    bundle: Bundle | None

    def inventory(self, hosts: Collection[str]) -> dict[str, Any]:
        """Return the inventory of the site with only these hosts. Files of a bundle replace values of the site file."""
        site = self.site.with_hosts(hosts)
        built = inventory.build(site, self.state_dir)
        if self.bundle:
            built["all"]["vars"] |= self.bundle.variables()
            for name, host in site.hosts.items():
                built["all"]["hosts"][name] |= self.bundle.of_host(host["os"])
        return built

    def of(self, stage: Stage, hosts: Collection[str], *, removal: bool = False) -> dict[str, str]:
        """Return the digest of each input of a stage, or of its removal, for the site with only these hosts."""
        roles = (stage.name, stages.teardown.STAGE.name) if removal else (stage.name,)
        values = inventory.stage_variables(self.inventory(hosts), *roles)
        return inputs_of(values, playbook.content_digest(stage, self.content))

    def due(
        self, stage: Stage, stage_hosts: Collection[str], record: StageRecord | None
    ) -> frozenset[str] | None:
        """Return the hosts on which a stage is due; None if it is due on all.

        If only hosts were added since the record, the stage is due on those. Example: after dgx09 was added to eight
        hosts, the stage driver is due on dgx09.
        """
        if record is None or record.result == REMOVED:
            return None
        every = frozenset(self.site.hosts)
        present, left = self.of(stage, every), frozenset(record.left) & every
        if digest_of(present) == record.digest:
            return left
        added = frozenset(host for host in every if _HOST.format(host) not in record.inputs)
        if not added or not record.inputs or digest_of(self.of(stage, every - added)) != record.digest:
            return None
        of_hosts = {"groups", *map(_HOST.format, added)}
        changed = {name for name, digest in present.items() if record.inputs.get(name) != digest}
        if not added & set(stage_hosts) and changed - of_hosts:
            return None  # a variable of the whole site depends on the added hosts
        return added | left

    def without(self, host: str, stage: Stage, record: StageRecord | None) -> StageRecord | None:
        """Return the record of a verified stage after a host has left the site; None if the stage has to run again."""
        if record is None or record.result != VERIFIED:
            return None
        known = frozenset(name for name in self.site.hosts if _HOST.format(name) in record.inputs)
        if digest_of(self.of(stage, known)) != record.digest:
            return None
        inputs = self.of(stage, known - {host})
        left = [name for name in record.left if name != host]
        return replace(record, inputs=inputs, digest=digest_of(inputs), left=left)
