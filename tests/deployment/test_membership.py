"""Hosts that may not join or leave a site alone: each refusal has the entry or the reason, and nothing is done."""

from typing import Any

import pytest
import yaml

from tests.deployment.conftest import SiteUnderTest

HOSTS = {
    "mgmt01": ["control_plane"], "etcd01": ["etcd"], "dgx01": ["gpu"], "cpu01": ["worker"], "cpu02": ["worker"],
}  # fmt: skip


def write(site: SiteUnderTest, **more: Any) -> None:
    hosts = {
        name: {"address": f"10.0.0.{number}", "os": "ubuntu-24.04", "model": "generic", "roles": roles}
        for number, (name, roles) in enumerate(HOSTS.items(), start=1)
    }
    hosts["cpu02"]["maintenance"] = "a new disk"
    versions = {"kubernetes": "1.35.4", "deepops": "26.07", "driver": "580", "container_toolkit": "1.20.0"}
    site.write(
        yaml.safe_dump(
            {"schema": 1, "name": "here", "hosts": hosts, "versions": versions, **more}, sort_keys=False
        )
    )


@pytest.mark.parametrize(
    ("host", "words"),
    [
        (
            "mgmt01",
            "mgmt01 has the role control_plane, and the other hosts have such a host in their",
        ),
        ("etcd01", "etcd01 has the role etcd, and the other hosts"),
        (
            "dgx01",
            "dgx01 is the last host with the role gpu in service, and a site without GPUs cannot be verified",
        ),
        ("dgx99", "dgx99: {file} has no such host; there are mgmt01, etcd01, dgx01, cpu01, cpu02"),
        ("dgx*", "dgx*: {file} has no such host"),
        ("gpu", "gpu: {file} has no such host"),
        ("cpu02", "every host of it is in maintenance"),
    ],
)
def test_a_host_that_cannot_leave_is_refused(site: SiteUnderTest, host: str, words: str) -> None:
    write(site)
    for more in (("--plan",), ("--yes",)):
        refused = site.call("node remove", host, *more)
        assert refused.returncode == 2
        assert words.format(file=site.file) in refused.stderr
    assert not (site.state / "here" / "journal.jsonl").exists()


def test_a_host_is_not_removed_from_a_cluster_of_others(site: SiteUnderTest) -> None:
    write(site, versions={"kubernetes": "1.35.4"})
    refused = site.call("node remove", "cpu01", "--yes")
    assert refused.returncode == 2
    assert (
        "muster has not installed Kubernetes at this site: remove the node cpu01 with the tools of"
        in refused.stderr
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--add", "cpu01"), "--add cpu01: the stage deepops is due on every host (never run on this site)"),
        (("--add", "mgmt01"), "mgmt01 has the role control_plane"),
        (("--add", "cpu01, etcd01"), "etcd01 has the role etcd"),
        (("--add", "dgx99"), "dgx99 names no host of"),
        (("--add", "dgx*"), "--add is a list of hosts"),
        (("--add", "worker"), "--add is a list of hosts"),
        (("--add", "cpu01,"), "--add is a list of hosts"),
        (("--add", "cpu01", "--limit", "dgx01"), "--add is a limit: leave out --limit"),
        (("--add", "cpu02"), "every host of it is in maintenance"),
    ],
)
def test_a_host_that_cannot_join_is_refused(site: SiteUnderTest, words: tuple[str, ...], said: str) -> None:
    write(site)
    for action in ("plan", "install"):
        refused = site.call(action, *words)
        assert refused.returncode == 2
        assert said in refused.stderr
    assert not (site.state / "here" / "journal.jsonl").exists()


def test_the_plan_of_a_removal_names_the_reset_and_the_control_plane(site: SiteUnderTest) -> None:
    write(site)
    planned = site.call("node remove", "cpu01", "--plan")
    assert planned.returncode == 0, planned.stderr
    assert "RESETS THE HOST: every container on it is lost" in planned.stdout
    assert "kubectl on mgmt01 deletes the node" in planned.stdout
    assert "on    cpu01" in planned.stdout
