"""Devices by environment: what the role container_toolkit writes into the toolkit's configuration, and proves."""

import os
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from deployment import matrix, variables
from deployment import site as sites
from tests.deployment.running import ROOT, Result, play

KEY = "accept-nvidia-visible-devices-envvar-when-unprivileged"
# The beginning of the file that nvidia-container-toolkit 1.20 brings.
ORIGINAL = f"""#{KEY} = true
#accept-nvidia-visible-devices-as-volume-mounts = false
disable-require = false
supported-driver-capabilities = "compat32,compute,display,graphics,ngx,utility,video"

[nvidia-container-cli]
environment = []
load-kmods = true
"""


def _play(root: Path, part: str, text: str | None, **values: object) -> Result:
    """Run a part of the role on a configuration in a file of the test."""
    file = root / "nvidia-container-runtime" / "config.toml"
    if text is not None:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    tasks = [
        {"name": "Work", "ansible.builtin.include_role": {"name": "container_toolkit", "tasks_from": part}}
    ]
    playbook = root / "play.yml"
    playbook.write_text(
        yaml.safe_dump([{"name": "Work", "hosts": "all", "gather_facts": False, "tasks": tasks}])
    )
    extra = root / "extra.yml"
    extra.write_text(yaml.safe_dump(values | {"__container_toolkit_own_config": str(file)}))
    words = [
        "-i",
        "here,",
        "-c",
        "local",
        "-e",
        f"@{extra}",
        "-e",
        f"ansible_python_interpreter={sys.executable}",
    ]
    return play(playbook, root, *words)


@pytest.mark.lab
def test_the_variable_is_closed_once_and_the_rest_of_the_file_stays(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("the role writes files of root")
    file = tmp_path / "nvidia-container-runtime" / "config.toml"
    for before in (
        ORIGINAL,
        ORIGINAL.replace(f"#{KEY}", KEY),
        None,
        "[nvidia-container-cli]\nload-kmods = true\n",
    ):
        if before is None:
            file.unlink()
        first = _play(tmp_path, "variable", before)
        assert (first.code, first.failures) == (0, [])
        said = tomllib.loads(file.read_text())
        assert said.pop(KEY) is False
        assert said == {key: value for key, value in tomllib.loads(before or "").items() if key != KEY}
        assert _play(tmp_path, "variable", None).changes == []
    opened = _play(tmp_path, "variable", None, container_toolkit_envvar_when_unprivileged=True)
    assert len(opened.changes) == 1
    assert tomllib.loads(file.read_text())[KEY] is True


@pytest.mark.lab
def test_verify_refuses_what_is_open_and_names_the_fix(tmp_path: Path) -> None:
    problem = f"does not say {KEY} = false. Run `muster install --from container_toolkit`"
    for text in (ORIGINAL, f"{KEY} = true\n", ""):
        refused = _play(
            tmp_path, "verify", text, container_toolkit_cdi=False, container_toolkit_runtime="none"
        )
        assert any(problem in failure for failure in refused.failures), refused.failures
    closed = _play(tmp_path, "verify", f"{KEY} = false\n", container_toolkit_cdi=False)
    assert not any(problem in failure for failure in closed.failures)


@pytest.mark.parametrize(
    ("dra", "more", "open_"),
    [
        ("auto", "", False),
        ("off", "", True),
        ("off", "container_toolkit: {envvar_when_unprivileged: false}\n", False),
        ("auto", "container_toolkit: {envvar_when_unprivileged: true}\n", True),
    ],
)
def test_the_variable_stays_only_where_gpus_are_given_by_it(
    tmp_path: Path, dra: str, more: str, open_: bool
) -> None:
    text = (ROOT / "inventories" / "current" / "site.yml").read_text()
    (tmp_path / "site.yml").write_text(text.replace("dra: auto", f"dra: '{dra}'") + more)
    site = sites.load(tmp_path)
    assert matrix.devices_by_variable(site) is open_
    assert variables.of_roles(site)["container_toolkit_envvar_when_unprivileged"] is open_


def test_a_key_from_another_place_needs_its_digest(tmp_path: Path) -> None:
    text = (ROOT / "inventories" / "current" / "site.yml").read_text()
    (tmp_path / "site.yml").write_text(
        text + "container_toolkit: {key_url: 'https://mirror.example.com/gpgkey'}\n"
    )
    with pytest.raises(sites.SiteError) as refused:
        sites.load(tmp_path)
    assert "`key_sha256` is missing" in refused.value.problems[0]
