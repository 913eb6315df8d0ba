"""GPUs by environment variable: the role container_toolkit writes the toolkit's configuration and verifies it."""

import os
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from deployment import site_file, variables
from deployment.errors import SiteError
from deployment.stages.container_toolkit import devices_by_variable
from deployment.stages.orchestrator import STAGE as ORCHESTRATOR
from tests.deployment.running import ROOT, Result, play

KEY = "accept-nvidia-visible-devices-envvar-when-unprivileged"
# The beginning of the file in nvidia-container-toolkit 1.20.
ORIGINAL = f"""#{KEY} = true
#accept-nvidia-visible-devices-as-volume-mounts = false
disable-require = false
supported-driver-capabilities = "compat32,compute,display,graphics,ngx,utility,video"

[nvidia-container-cli]
environment = []
load-kmods = true
"""


def _play(root: Path, part: str, *runs: tuple[Path, bool], device: Path = Path("/nowhere")) -> Result:
    """Run a part of the role on each of these configuration files, with whether it may accept the variable.

    `device` is a device file of the driver. Its link and the rule of udev are beside it.
    """
    tasks = [
        {
            "name": "Work",
            "ansible.builtin.include_role": {"name": "container_toolkit", "tasks_from": part},
            "vars": {
                "__container_toolkit_own_config": str(file),
                "container_toolkit_envvar_when_unprivileged": may_keep_devices,
                "container_toolkit_runtime": "none",
                "container_toolkit_cdi": False,
                "__container_toolkit_device": str(device),
                "__container_toolkit_device_link": f"{device}.link",
                "__container_toolkit_udev_rule": f"{device}.rules",
            },
        }
        for file, may_keep_devices in runs
    ]
    playbook = root / "play.yml"
    playbook.write_text(
        yaml.safe_dump([{"name": "Work", "hosts": "all", "gather_facts": False, "tasks": tasks}])
    )
    words = ["-i", "here,", "-c", "local", "-e", f"ansible_python_interpreter={sys.executable}"]
    return play(playbook, root, *words)


@pytest.mark.lab
@pytest.mark.rare
def test_the_variable_is_closed_once_and_the_rest_of_the_file_is_unchanged(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("the role writes files of root")
    texts = {
        "as it comes": ORIGINAL,
        "said to be open": ORIGINAL.replace(f"#{KEY}", KEY),
        "a table alone": "[nvidia-container-cli]\nload-kmods = true\n",
        "none": "",
    }
    files = {name: tmp_path / name / "config.toml" for name in texts}
    for name, file in files.items():
        if texts[name]:
            file.parent.mkdir()
            file.write_text(texts[name])
    closed = [(file, False) for file in files.values()]
    first = _play(tmp_path, "variable", *closed, *closed)
    assert (first.code, first.failures) == (0, [])
    assert len(first.changes) == len(files) + 1, (
        "one line in each file, once, and the directory that was not there"
    )
    for name, file in files.items():
        said = tomllib.loads(file.read_text())
        assert said.pop(KEY) is False
        assert said == {key: value for key, value in tomllib.loads(texts[name]).items() if key != KEY}
    opened = _play(tmp_path, "variable", (files["as it comes"], True))
    assert opened.code == 0, opened.failures
    assert files["as it comes"].read_text() == ORIGINAL.replace(f"#{KEY}", KEY)


@pytest.mark.lab
def test_device_files_are_linked_for_systemd_once_the_driver_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, program = tmp_path / "nvidiactl", tmp_path / "bin" / "nvidia-ctk"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\n[ "$*" = "system create-dev-char-symlinks --create-all" ] && touch {device}.link\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    closed = tmp_path / "config.toml"
    closed.write_text(f"{KEY} = false\n")
    before = _play(tmp_path, "dev_char", (closed, False), device=device)
    assert before.code == 0, before.failures
    assert not Path(f"{device}.link").exists()
    rule = Path(f"{device}.rules").read_text()
    assert 'RUN+="/usr/bin/nvidia-ctk system create-dev-char-symlinks --create-all"' in rule

    device.touch()
    unlinked = _play(tmp_path, "verify", (closed, False), device=device)
    assert any("lose their GPUs when systemd reloads" in failure for failure in unlinked.failures)
    twice = _play(tmp_path, "dev_char", (closed, False), (closed, False), device=device)
    assert (twice.code, len(twice.changes)) == (0, 1), twice.failures
    linked = _play(tmp_path, "verify", (closed, False), device=device)
    assert not any("lose their GPUs" in failure for failure in linked.failures)


@pytest.mark.lab
def test_verify_refuses_an_open_variable_and_names_the_fix(tmp_path: Path) -> None:
    problem = f"does not say {KEY} = false. Run `muster install --from container_toolkit`"
    file = tmp_path / "config.toml"
    file.write_text(ORIGINAL)
    refused = _play(tmp_path, "verify", (file, False))
    assert any(problem in failure for failure in refused.failures), refused.failures
    file.write_text(f"{KEY} = false\n")
    closed = _play(tmp_path, "verify", (file, False))
    assert not any(problem in failure for failure in closed.failures)


@pytest.mark.parametrize(
    ("dra", "more", "open_"),
    [
        ("0.5.0", "", False),
        ("auto", "", True),
        ("off", "", True),
        ("off", "container_toolkit: {envvar_when_unprivileged: false}\n", False),
        ("0.5.0", "container_toolkit: {envvar_when_unprivileged: true}\n", True),
    ],
)
def test_the_variable_remains_only_where_gpus_are_given_by_it(
    tmp_path: Path, dra: str, more: str, open_: bool
) -> None:
    text = (ROOT / "inventories" / "current" / "site.yml").read_text()
    (tmp_path / "site.yml").write_text(text.replace("dra: auto", f"dra: '{dra}'") + more)
    site = site_file.load(tmp_path)
    assert devices_by_variable(site) is open_
    assert variables.of_roles(site)["container_toolkit_envvar_when_unprivileged"] is open_


@pytest.mark.parametrize(
    ("dra", "toolkit", "more", "is_required"),
    [
        ("0.5.0", True, "", False),
        ("0.5.0", False, "", True),
        ("off", True, "", True),
        ("off", True, "container_toolkit: {envvar_when_unprivileged: false}\n", False),
        ("0.5.0", True, "vars: {container_toolkit_envvar_when_unprivileged: true}\n", True),
        ("off", True, "vars: {orchestrator_devices_by_variable: false}\n", False),
    ],
)
def test_a_policy_closes_the_variable_where_the_nodes_do_not(
    tmp_path: Path, dra: str, toolkit: bool, more: str, is_required: bool
) -> None:
    """A toolkit that muster does not install may accept the variable; a site can declare that its nodes do not."""
    text = (ROOT / "inventories" / "current" / "site.yml").read_text()
    document = yaml.safe_load(text)
    document["versions"]["dra"] = dra
    if not toolkit:
        del document["versions"]["container_toolkit"]
    (tmp_path / "site.yml").write_text(yaml.safe_dump(document) + more)
    site = site_file.load(tmp_path)
    assert ORCHESTRATOR.value(site, "orchestrator_devices_by_variable") is is_required
    assert (
        "containers of projects must set NVIDIA_VISIBLE_DEVICES" in ORCHESTRATOR.sentence(site)
    ) is is_required


def test_a_key_from_another_place_needs_its_digest(tmp_path: Path) -> None:
    text = (ROOT / "inventories" / "current" / "site.yml").read_text()
    (tmp_path / "site.yml").write_text(
        text + "container_toolkit: {key_url: 'https://mirror.example.com/gpgkey'}\n"
    )
    with pytest.raises(SiteError) as refused:
        site_file.load(tmp_path)
    assert "`key_sha256` is missing" in refused.value.problems[0]
