"""A site on the controller: its own directory and cluster, and the Ansible that it names."""

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.main import main
from tests.deployment.conftest import SiteUnderTest

DEEPOPS = '  deepops: "26.07"\nhosts:\n  a: {address: n1, os: ubuntu-24.04, roles: [control_plane, etcd]}\n'


def variables(site: SiteUnderTest) -> dict[str, Any]:
    printed = json.loads(site.call("inventory").stdout)
    values: dict[str, Any] = printed["all"]["vars"]
    return values


def test_two_sites_share_nothing_on_the_controller(site: SiteUnderTest) -> None:
    site.environment["KUBECONFIG"] = "/elsewhere/config"
    own: list[dict[str, Any]] = []
    for name in ("first", "second"):
        site.write(f'schema: 1\nname: {name}\nversions:\n  kubernetes: "1.35.4"\n{DEEPOPS}')
        own.append(variables(site))
        directory = site.state / name
        assert own[-1]["muster_directory"] == str(directory)
        assert own[-1]["muster_kubeconfig"] == str(directory / "artifacts" / "admin.conf")
    paths = [
        {value for value in each.values() if isinstance(value, str) and value[:1] == "/"} for each in own
    ]
    assert paths[0] & paths[1] == set()


def test_the_access_to_the_cluster_outlives_a_release_of_deepops(site: SiteUnderTest) -> None:
    site.write(site.file.read_text().replace("1.34.2", "1.35.4") + DEEPOPS)
    before = variables(site)["muster_kubeconfig"]
    site.write(site.file.read_text().replace("26.07", "26.05"))
    assert variables(site)["muster_kubeconfig"] == before


def test_a_cluster_that_others_made_is_that_of_the_environment(site: SiteUnderTest) -> None:
    site.environment["KUBECONFIG"] = "/elsewhere/config"
    assert variables(site)["muster_kubeconfig"] == "/elsewhere/config"
    site.write(site.file.read_text() + "kubernetes:\n  kubeconfig: mine.conf\n")
    assert variables(site)["muster_kubeconfig"] == str(site.directory / "mine.conf")


def test_an_ansible_that_is_not_there_is_refused_before_the_run(site: SiteUnderTest, tmp_path: Path) -> None:
    site.write(site.file.read_text() + "controller:\n  ansible_bin: ../old/bin\n")
    site.environment["KUBECONFIG"] = str(site.file)
    programs = site.directory / ".." / "old" / "bin"
    for action in (["install"], ["install", "--check"], ["verify"], ["teardown", "--yes"]):
        refused = site.call(*action)
        assert refused.returncode == 2, refused.stderr
        message = f"{site.file}:6: controller.ansible_bin: there is no ansible-playbook in {programs}: "
        assert message in refused.stderr
        assert (
            f"`python3.11 -m venv {programs.parent} && {programs.parent}/bin/pip install " in refused.stderr
        )
    assert not site.state.exists()
    planned = site.call("plan")
    assert planned.returncode == 0
    assert "NOTE  controller.ansible_bin: there is no ansible-playbook in" in planned.stdout
    (tmp_path / "old" / "bin").mkdir(parents=True)
    (tmp_path / "old" / "bin" / "ansible-playbook").write_text("#!/bin/sh\n")
    assert "NOTE  controller" in site.call("plan").stdout, "it cannot be executed"
    (tmp_path / "old" / "bin" / "ansible-playbook").chmod(0o755)
    assert "NOTE  controller" not in site.call("plan").stdout


def test_a_new_site_has_a_name_of_its_own_and_can_be_planned(site: SiteUnderTest, tmp_path: Path) -> None:
    for like in ("example", "current", "tr4858", "dgx-h100", "dgx-b200"):
        site.directory = tmp_path / "sites" / f"after-{like}"
        assert main(["new-site", str(site.directory), "--like", like]) == 0
        assert f"\nname: after-{like}\n" in site.file.read_text()
        planned = site.call("plan")
        assert planned.returncode == 0, planned.stderr
        assert variables(site)["muster_site"] == f"after-{like}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["here"], "site.yml is there already; nothing was written"),
        (["Here"], "a site cannot be called Here"),
        (
            ["other", "--like", "none"],
            "--like none: there is no such site; there are current, dgx-b200, dgx-h100, example, lab, lab-real-nodes,",
        ),
        (["full/other"], "cannot be written: Not a directory"),
    ],
)
def test_a_new_site_that_cannot_be_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["new-site", str(tmp_path / "here")]) == 0
    (tmp_path / "full").touch()
    before = (tmp_path / "here" / "site.yml").read_bytes()
    capsys.readouterr()
    assert main(["new-site", str(tmp_path / words[0]), *words[1:]]) == 2
    assert message in capsys.readouterr().err
    assert (tmp_path / "here" / "site.yml").read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["full", "here"]


def test_a_directory_of_journals_without_a_site_is_refused(
    site: SiteUnderTest, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["resume", "--state-dir", str(site.state), "--all"]) == 2
    assert "--state-dir needs a site: give the site with -i" in capsys.readouterr().err
