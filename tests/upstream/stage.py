"""The stage deepops of `muster install`, with an ansible-playbook that records how it was called.

This program changes nothing, so the stage fails when it looks for the cluster.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.deployment.conftest import SiteUnderTest
from tests.upstream import environments
from tests.upstream.names import ROOT
from tests.upstream.repository import Tree

INVENTORIES = ROOT / "inventories"
SITES = ("current", "tr4858")
PROXY = {"http": "http://proxy.example.com:3128"}
KNOWN_HOSTS = "known hosts"
KEY_FILE = "it's"
LOCAL_GIT = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "protocol.file.allow",
    "GIT_CONFIG_VALUE_0": "always",
}
_PROGRAM = """#!/bin/sh
number=$(ls {calls} | grep -c words)
env > {calls}/$number.env
echo "$@" > {calls}/$number.words
"""


@dataclass
class Done:
    """The results of the stage deepops: the folder of its configuration, and each call of ansible-playbook.

    `keys` is the folder with KNOWN_HOSTS and KEY_FILE.
    """

    name: str
    output: str
    config: Path
    keys: Path
    environments: list[dict[str, str]] = field(default_factory=list)
    words: list[list[str]] = field(default_factory=list)

    def variables(self, group: str) -> dict[str, Any]:
        """Return the variables of a group of hosts."""
        return dict(yaml.safe_load((self.config / "group_vars" / f"{group}.yml").read_text()) or {})


def run(name: str, tree: Tree, base: Path) -> Done:
    """Run the stage for an inventory in the repository, with a proxy and a jump host added."""
    site, calls = SiteUnderTest(base / "site", base / "state"), base / "calls"
    site.directory.mkdir()
    calls.mkdir()
    document = yaml.safe_load((INVENTORIES / name / "site.yml").read_text())
    document["deepops"] = {
        "repository": str(tree.path), "commit": tree.commit, "gpu_operator": name == "tr4858",
    }  # fmt: skip
    document["storage"]["trident"] = {"sha256": "0" * 64}
    if name == "current":
        # One inventory has the DRA driver, the other the GPU operator.
        document["versions"]["dra"] = "0.4.1"
    document["network"]["proxy"] = PROXY
    for file in (KNOWN_HOSTS, KEY_FILE):
        (base / file).touch()
    document["access"] = document.get("access", {}) | {
        "user": "admin",
        "known_hosts": str(base / KNOWN_HOSTS),
        "jump": {"address": "bastion.example.com", "key_file": str(base / KEY_FILE)},
    }
    site.write(yaml.safe_dump(document))
    checkout = site.state / name / f"deepops-{tree.release}"
    write_program(checkout, tree.release, _PROGRAM.format(calls=calls))
    names = [secret["env"] for secret in _secrets(document)]
    site.environment |= {secret: f"canary-{secret}" for secret in names}
    site.environment |= LOCAL_GIT
    site.environment |= {
        "ANSIBLE_FORKS": "7",
        "MUSTER_SECRET": "canary",
        "MUSTER_INSTALLER_CONTENT": str(ROOT),
    }
    ended = site.muster("install", "--from", "deepops", "--until", "deepops", "--accept-runtime-purge")
    result = Done(name, ended.stderr, checkout / "config", base)
    for number in range(len(list(calls.glob("*.words")))):
        lines = (calls / f"{number}.env").read_text().splitlines()
        result.environments.append(dict(line.split("=", 1) for line in lines if "=" in line))
        result.words.append((calls / f"{number}.words").read_text().split())
    return result


def write_program(checkout: Path, release: str, text: str) -> None:
    """Write an environment beside a checkout as an earlier run would have made it, with this ansible-playbook."""
    environment = Path(f"{checkout}-venv")
    (environment / "bin").mkdir(parents=True)
    program = environment / "bin" / "ansible-playbook"
    program.write_text(text)
    program.chmod(0o755)
    (environment / "requirements.txt").write_bytes(environments.lock(release).read_bytes())


def _secrets(value: Any) -> Iterator[dict[str, str]]:
    if isinstance(value, dict):
        if set(value) == {"env"}:
            yield value
        for nested in value.values():
            yield from _secrets(nested)
    elif isinstance(value, list):
        for nested in value:
            yield from _secrets(nested)
