"""The role `bundle`: apt on a host uses only the bundle, and gets its own sources back at the removal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.deployment.bundle import servers
from tests.deployment.running import Result, play

PLAY = [{
    "name": "Bring the packages", "hosts": "all", "gather_facts": False,
    "tasks": [{"name": "Work", "ansible.builtin.include_role": {"name": "bundle", "tasks_from": "{{ part }}"}}],
}]  # fmt: skip


@pytest.mark.lab
@pytest.mark.rare
def test_apt_of_a_host_uses_the_bundle_and_nothing_else(tmp_path: Path) -> None:
    system = tmp_path / "bundle" / "packages" / "ubuntu-22.04"
    with servers.internet() as net:
        signer = servers.Signer(tmp_path / "gpg")
        servers.apt(net, "/example.com/ubuntu", {"nfs-common": ""}, tmp_path / "scratch", signer)
        net.files["/keys/key.asc"] = signer.key
        for path, content in net.files.items():
            file = system / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
    host = tmp_path / "host"
    empty = _apt_of_a_host(tmp_path)
    values = {
        "bundle_path": str(tmp_path / "bundle"), "bundle_system": "ubuntu-22.04", "bundle_directory": str(host),
        "bundle_sources": f"deb [signed-by={host}/keys/key.asc] file:{host}/example.com/ubuntu jammy main\n",
        "bundle_configuration": str(tmp_path / "apt.conf.d" / "99-muster-bundle"),
        "bundle_list": str(tmp_path / "muster-bundle.list"),
    }  # fmt: skip
    assert _targets(empty) == {"http://nowhere.invalid/ubuntu/"}
    foretold = _play(tmp_path, "main", values, "--check")
    assert foretold.code == 0, foretold.output
    assert not host.exists()
    first = _play(tmp_path, "main", values)
    assert first.code == 0, first.output
    assert foretold.changes == first.changes
    assert _targets(empty) == {f"file:{host}/example.com/ubuntu/"}
    again = _play(tmp_path, "main", values)
    assert (again.code, again.changed) == (0, 0), again.output
    refused = _play(tmp_path, "main", values | {"bundle_sources": ""})
    assert any("has no packages for here" in each for each in refused.failures)
    removed = _play(tmp_path, "uninstall", values)
    assert removed.code == 0, removed.output
    assert _targets(empty) == {"http://nowhere.invalid/ubuntu/"}
    assert not host.exists()


def _apt_of_a_host(root: Path) -> Path:
    """Return a configuration of apt whose sources, lists and settings are under `root`, apart from those of this
    machine.
    """
    for each in ("apt.conf.d", "lists/partial", "cache/archives/partial", "parts"):
        (root / each).mkdir(parents=True)
    (root / "status").touch()
    (root / "sources.list").write_text("deb http://nowhere.invalid/ubuntu jammy main\n")
    configuration = root / "apt.conf"
    configuration.write_text(
        f'Dir::Etc::Parts "{root}/apt.conf.d";\nDir::Etc::SourceList "{root}/sources.list";\n'
        f'Dir::Etc::SourceParts "{root}/parts";\nDir::State "{root}";\nDir::State::Lists "{root}/lists";\n'
        f'Dir::State::Status "{root}/status";\nDir::Cache "{root}/cache";\nAPT::Architecture "amd64";\n'
        'APT::Architectures "amd64";\nAPT::Sandbox::User "";\n'
    )
    return configuration


def _targets(configuration: Path) -> set[str]:
    words = ["apt-get", "update", "--print-uris"]
    environment = {**os.environ, "APT_CONFIG": str(configuration)}
    done = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
    return {line.split("'")[1].partition("dists/")[0] for line in done.stdout.splitlines()}


def _play(root: Path, part: str, values: dict[str, str], *more: str) -> Result:
    playbook = root / "play.yml"
    playbook.write_text(yaml.safe_dump(PLAY))
    extra = root / "extra.yml"
    extra.write_text(yaml.safe_dump(values | {"part": part}))
    words = [
        "-i",
        "here,",
        "-c",
        "local",
        "-e",
        f"@{extra}",
        "-e",
        f"ansible_python_interpreter={sys.executable}",
        *more,
    ]
    return play(playbook, root, *words, environment={"APT_CONFIG": str(root / "apt.conf")})
