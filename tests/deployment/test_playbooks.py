"""Every playbook, with the roles that it imports, is what Ansible understands; none is out of reach of the others."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.deployment.conftest import SiteUnderTest
from tests.deployment.running import ROOT, program

pytestmark = [pytest.mark.installer, pytest.mark.quick]
PLAYBOOKS = sorted((ROOT / "playbooks").glob("*.yml"))


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
