"""The stages of a playbook, in the order of its imports; a stage has the name of its playbook and role."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from deployment.content import Content
from deployment.site import Site
from deployment.stages import stage as definition_of
from deployment.stages.definition import StageDefinition
from orchestrator.bounded_yaml import fast_yaml
from orchestrator.errors import ConfigurationError


@dataclass(frozen=True)
class Stage:
    """One stage. `title` says its purpose. `hosts` is its Ansible group.

    `tags` chooses the stage's own play if the playbook has others. `variables` are `name=value` for this run.
    """

    name: str
    title: str
    playbook: Path
    hosts: str
    tags: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()

    @property
    def definition(self) -> StageDefinition:
        """The definition of the stage beside its playbook."""
        return definition_of(self.name)


def read(content: Content, playbook: str = "site.yml") -> list[Stage]:
    """Return the stages of a playbook, in order. Raises ConfigurationError for any other entry."""
    path = content.playbooks / playbook
    return [_stage(path, entry) for entry in _read(path)]


def not_applicable(stage: Stage, site: Site, groups: dict[str, list[str]], *, bundle: bool = False) -> str:
    """Return the reason if a stage does not apply to a site, or an empty string."""
    definition = stage.definition
    reason = site.declared_not_applicable.get(stage.name) or definition.not_applicable(site, bundle=bundle)
    if reason:
        return reason
    missing = definition.missing_entry(site)
    if missing:
        return f"the site file has no {missing}"
    if not groups.get(stage.hosts):
        return f"no host of the site is in the group {stage.hosts}"
    return ""


def content_digest(stage: Stage, content: Content) -> str:
    """Return the SHA-256 of a stage's playbook and role, so that a changed task makes the stage due again.

    Bytecode is left out: Ansible writes it into the role while the stage runs.
    """
    digest = hashlib.sha256()
    role = content.roles / stage.name
    files = (file for file in role.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    for path in [stage.playbook, *sorted(files)]:
        digest.update(str(path.relative_to(content.root)).encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def _stage(path: Path, entry: dict[str, Any]) -> Stage:
    """Return the stage of one entry of a playbook: an import, or a play with the stage's name as its tag."""
    title = str(entry.get("name", ""))
    imported = entry.get("ansible.builtin.import_playbook")
    if imported:
        target = path.parent / imported
        variables = tuple(f"{name}={value}" for name, value in entry.get("vars", {}).items())
        return Stage(target.stem, title, target, _hosts(target), variables=variables)
    if "hosts" not in entry or not entry.get("tags"):
        raise ConfigurationError(
            f"{path}: {title or entry} is neither an import nor a play with a stage's name as tag"
        )
    name = str(entry["tags"][0])
    return Stage(name, title, path, str(entry["hosts"]), tags=(name,))


def _hosts(path: Path) -> str:
    """Return the group of hosts that a stage works on: the hosts of the play with the stage's role, else of the first
    play.
    """
    plays = _read(path)
    own = [play for play in plays if {"role": path.stem} in play.get("roles", [])]
    return str((own or plays)[0]["hosts"])


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        plays = fast_yaml(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{path}: the playbook cannot be read: {error}") from error
    if not isinstance(plays, list) or not plays:
        raise ConfigurationError(f"{path}: there is no play in it")
    return plays
