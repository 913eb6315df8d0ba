"""Ansible accepts every playbook with its roles, and every playbook can be reached from the main ones."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deployment.conftest import SiteUnderTest
from tests.deployment.running import ROOT, program

PLAYBOOKS = sorted((ROOT / "playbooks").glob("*.yml"))


def test_a_task_that_never_fails_says_why() -> None:
    """An ignored error shows up later as another error, or never. So the reason must stand beside it."""
    swallowing = [
        (path.relative_to(ROOT), line.strip())
        for folder in ("roles", "playbooks")
        for path in sorted((ROOT / folder).rglob("*.yml"))
        for line in path.read_text().splitlines()
        if re.search(r"\b(failed_when: *(false|no)|ignore_errors: *(true|yes))\b", line, re.IGNORECASE)
    ]
    assert len(swallowing) > 10
    assert [entry for entry in swallowing if not re.search(r" # \S+ \S+ \S+", entry[1])] == []


def test_an_unreadable_value_is_never_taken_for_a_missing_one() -> None:
    """An unreadable file and an API server that does not answer are errors, not missing values."""
    modules = {"ansible.builtin.slurp", "kubernetes.core.k8s_info"}
    swallowing = [
        (path.relative_to(ROOT), task["name"])
        for path in sorted((ROOT / "roles").rglob("tasks/*.yml"))
        for task in tasks_of(yaml.safe_load(path.read_text()))
        if modules & set(task) and (task.get("failed_when") is False or task.get("ignore_errors"))
    ]
    assert swallowing == []


def tasks_of(tasks: list[dict[str, Any]] | None) -> Iterator[dict[str, Any]]:
    for task in tasks or []:
        yield task
        for part in ("block", "rescue", "always"):
            yield from tasks_of(task.get(part))


@pytest.mark.installer  # not `quick`: ansible-lint checks the syntax of each playbook on every commit
def test_ansible_understands_every_playbook_with_its_roles(site: SiteUnderTest, tmp_path: Path) -> None:
    site.directory = ROOT / "inventories" / "current"
    inventory = tmp_path / "inventory.json"
    inventory.write_text(site.call("inventory").stdout)
    checked = subprocess.run(
        [program("ansible-playbook"), "--syntax-check", "-i", inventory, *PLAYBOOKS],
        env=os.environ
        | {
            "ANSIBLE_CONFIG": str(ROOT / "deployment" / "data" / "ansible.cfg"),
            "ANSIBLE_ROLES_PATH": str(ROOT / "roles"),
            "ANSIBLE_LOCAL_TEMP": str(tmp_path / "ansible"),
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    checked_playbooks = [line.removeprefix("playbook: ") for line in checked.stdout.splitlines() if line]
    assert checked_playbooks == [str(each) for each in PLAYBOOKS]
