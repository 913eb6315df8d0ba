"""`make releases` names each kind of change in trees and files that the tests write from the facts."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.upstream import facts
from tests.upstream.kubernetes_sources import kubernetes_module
from tests.upstream.names import ROOT
from tests.upstream.releases import Comparison, Finding, exit_code

Facts = dict[str, Any]
pytestmark = pytest.mark.parametrize("source", ["facts"], indirect=True, scope="module")
GATES = """
\tDRAConsumableCapacity: {
\t\t{Version: version.MustParse("1.36"), Default: true, PreRelease: featuregate.Beta},
\t},

\tDRAExtendedResource: {
\t\t{Version: version.MustParse("1.36"), Default: false, PreRelease: featuregate.Alpha},
\t\t{Version: version.MustParse("1.38"), Default: true, PreRelease: featuregate.Beta},
\t},
"""


def releases(upstream: Path, known: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "tests.upstream.releases",
        f"--upstream={upstream}",
        f"--facts={known}",
        *options,
    ]
    without = {facts.FACTS_VARIABLE, facts.TREES_VARIABLE}
    environment = {name: value for name, value in os.environ.items() if name not in without}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False
    )


@pytest.fixture(scope="module")
def known(source: str, kubespray: Facts, trident: Facts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of facts with newer releases: a role, a variable and a field vanished, versions were added."""
    folder, given = tmp_path_factory.mktemp("known"), facts.folder(facts.FACTS_VARIABLE)
    assert given is not None
    for path in given.iterdir():
        if path.name not in ("trident.json", "jobset.json"):
            (folder / path.name).symlink_to(path)
    newer = json.loads(json.dumps(kubespray).replace("override_system_hostname", "set_system_hostname"))
    newer["release"] = "v2.32.0"
    newer["checksums"]["kubelet_checksums"]["amd64"]["1.35.9"] = "sha256:0"
    newer["kubernetes"]["versions"].append("1.36.2")
    (folder / "kubespray-v2.32.0.json").write_text(json.dumps(newer))
    changed = json.loads(json.dumps(trident))
    ((_, sources),) = trident["sources"].items()
    changed["sources"] = {"26.10.0": sources}
    changed["releases"]["26.10.0"] = trident["releases"]["26.06.0"]
    del changed["sources"]["26.10.0"]["fields"]["TridentOrchestratorSpec"]["wipeout"]
    (folder / "trident.json").write_text(json.dumps(changed))
    (folder / facts.RELEASES).write_text(json.dumps({"container_toolkit": "v1.16.1", "driver": "610.1.2"}))
    return folder


@pytest.fixture(scope="module")
def compared(known: Path, tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """Compare these facts and three checkouts, of which that of DeepOps cannot be read."""
    upstream = tmp_path_factory.mktemp("upstream")
    (upstream / "deepops-27.01").mkdir()
    (upstream / "deepops-26.07").mkdir()
    chart = upstream / "gpu-operator-v26.7.0" / "deployments" / "gpu-operator"
    chart.mkdir(parents=True)
    (chart / "values.yaml").write_text('driver: {version: "595.91.07"}\ntoolkit: {version: v1.20.9}\n')
    for release in ("v1.38.1", "v1.9.0", "main"):
        features = upstream / f"kubernetes-{release}" / "pkg" / "features"
        features.mkdir(parents=True)
        (features / "kube_features.go").write_text(GATES if release == "v1.38.1" else "")
    return releases(upstream, known, "-o", "json")


@pytest.fixture(scope="module")
def result(compared: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    return dict(json.loads(compared.stdout))


def found(result: dict[str, Any], kind: str, project: str) -> set[tuple[str, str]]:
    """Return subject and text of each finding."""
    return {
        (each["subject"] or ", ".join(each["differing"]), each["text"].removeprefix("no longer true: "))
        for each in result["findings"]
        if each["kind"] == kind and project in each["projects"]
    }


def test_the_newest_releases_are_read(
    result: dict[str, Any], compared: subprocess.CompletedProcess[str]
) -> None:
    assert compared.returncode == 1
    read = {project: Path(path).name for project, path in result["releases"].items()}
    assert read == {
        "kubespray": "kubespray-v2.32.0.json", "trident": "trident.json", "kubernetes": "kubernetes-v1.38.1",
        "dra_driver": "nvidia.json", "device_plugin": "nvidia.json", "mock_nvml": "nvidia.json",
        "driver": facts.RELEASES, "container_toolkit": "values.yaml", "gpu_operator": "gpu-operator-v26.7.0",
    }  # fmt: skip
    assert result["releases"]["driver"].startswith("610.1.2, ")
    assert result["releases"]["container_toolkit"].startswith("1.20.9, ")


def test_a_name_that_vanished_is_named(result: dict[str, Any]) -> None:
    assert found(result, "name", "trident") == {("wipeout", "a field of the orchestrator exists")}


def test_a_version_outside_of_the_matrix_is_named(result: dict[str, Any]) -> None:
    patches = "patch releases of kubernetes are those that kubespray has checksums of"
    assert ("1.35", patches) in found(result, "version", "kubespray")
    assert ("1.36", "no minor release of kubernetes is left out") in found(result, "version", "kubespray")
    assert ("26.10.0", "every release since the first of the matrix is in a row") in found(
        result, "version", "trident"
    )
    since = "claims for jobs are enabled in the kubernetes of the row"
    kubernetes = found(result, "version", "kubernetes")
    assert {text for subject, text in kubernetes if subject == "whole-DRAExtendedResource"} == {since}
    for words in ("no row of deepops has it", "no row of trident has it", "the lab has 1."):
        assert any(subject == "1.38.1" and text.startswith(words) for subject, text in kubernetes), words
    ((subject, text),) = found(result, "version", "driver")
    assert (subject, text.partition(";")[0]) == ("610.1.2", "no row of hosts has its branch")
    ((subject, text),) = found(result, "version", "container_toolkit")
    assert (subject, text) == ("1.20.9", "files of muster name 1.20.0")


def test_a_known_fault_is_named_with_its_source(result: dict[str, Any]) -> None:
    (fault,) = (each for each in result["findings"] if each["source"].startswith("NetApp/trident#1161"))
    assert (fault["kind"], fault["subject"]) == ("fault", "26.10.0")
    assert fault["text"].startswith("with ontap-san since 26.06.0, no fix is known: ")


def test_an_unreadable_source_is_named(result: dict[str, Any]) -> None:
    """The newest checkout counts even if it cannot be read; the known one does not replace it."""
    reasons = list(result["not_read"])
    assert any(each.startswith("deepops: ") and "deepops-27.01" in each for each in reasons), reasons
    assert any(each.startswith("jobset: not at hand: ") for each in reasons), reasons
    missing = [each for each in reasons if each.startswith("kubernetes: not at hand: ")]
    assert [Path(each).name for each in missing] == ["api"]


def test_known_releases_are_no_change_and_missing_sources_are_named(
    source: str, kubespray: Facts, tmp_path: Path
) -> None:
    given = facts.folder(facts.FACTS_VARIABLE)
    assert given is not None
    ended = releases(tmp_path, given)
    *lines, last = ended.stdout.splitlines()
    assert last.startswith("0 names and 0 versions to follow, ")
    assert {line.partition(":")[0] for line in lines} == {"read", "fault", "not read"}
    for software in ("kubernetes", "driver", "container_toolkit", "gpu_operator"):
        assert any(line.startswith(f"not read: {software}: not at hand: ") for line in lines)
    assert ended.returncode == 2, ended.stderr


def test_releases_of_the_matrix_alone_leave_nothing_to_do(
    source: str, deepops: Facts, tmp_path: Path
) -> None:
    """Each release is one of the matrix. Without a newer one, only the comparisons that need a checkout are left."""
    given = facts.folder(facts.FACTS_VARIABLE)
    assert given is not None
    known = tmp_path / "known"
    known.mkdir()
    for path in given.iterdir():
        (known / path.name).symlink_to(path)
    operator = deepops["roles"]["nvidia-gpu-operator"]["variables"]["defaults/main.yml"]
    listed = {
        "driver": "580.159.03",
        "container_toolkit": "1.20.0",
        "gpu_operator": operator["gpu_operator_chart_version"],
    }
    (known / facts.RELEASES).write_text(json.dumps(listed))
    checkout = tmp_path / "kubernetes-v1.35.4"
    (checkout / "staging" / "src" / "k8s.io").mkdir(parents=True)
    for part in ("pkg", "cmd"):
        (checkout / part).symlink_to(kubernetes_module("k8s.io/kubernetes") / part)
    (checkout / "staging" / "src" / "k8s.io" / "api").symlink_to(kubernetes_module("k8s.io/api"))
    ended = releases(tmp_path, known)
    *lines, last = ended.stdout.splitlines()
    assert last.startswith("0 names and 0 versions to follow, "), ended.stdout
    unread = {line.split()[2].rstrip(":") for line in lines if line.startswith("not read: ")}
    assert unread == {"kubespray", "trident", "dra_driver"}, ended.stdout
    assert ended.returncode == 2, ended.stderr
    (known / facts.RELEASES).write_text(json.dumps(listed | {"driver": "610.1.2"}))
    assert releases(tmp_path, known).returncode == 1


@pytest.mark.parametrize(
    ("kinds", "not_read", "code"),
    [((), {}, 0), (("fault",), {}, 0), ((), {"x: not at hand": 1}, 2), (("fault", "name"), {}, 1),
     (("version",), {"x: not at hand": 1}, 1)],
)  # fmt: skip
def test_the_exit_code_is_0_if_all_was_read_and_nothing_is_to_follow(
    source: str, kinds: tuple[str, ...], not_read: dict[str, int], code: int
) -> None:
    found_here = [Finding(kind, ("trident",), "26.06.0", (), "", "") for kind in kinds]
    assert exit_code(Comparison({}, found_here, not_read)) == code


@pytest.mark.parametrize(
    ("listed", "chart", "named"),
    [
        ('{"kubernetes": 1.36', ": [", ("releases.json: it is no mapping", "values.yaml: it is no mapping")),
        ('["1.36.0"]', "driver: 580", ("releases.json: it is no mapping",)),
        ('{"kubernetes": "latest", "driver": null}', "toolkit: {version: next}",
         ("`latest` is no release", "`None` is no release", "`next` is no release")),
    ],
)  # fmt: skip
def test_a_file_without_releases_is_named(
    source: str, tmp_path: Path, listed: str, chart: str, named: tuple[str, ...]
) -> None:
    folder = tmp_path / "gpu-operator-v26.7.0" / "deployments" / "gpu-operator"
    folder.mkdir(parents=True)
    (folder / "values.yaml").write_text(chart)
    (tmp_path / facts.RELEASES).write_text(listed)
    ended = releases(tmp_path, tmp_path)
    assert not ended.stderr
    unread = [line for line in ended.stdout.splitlines() if line.startswith("not read: ")]
    for each in named:
        assert any(each in line for line in unread), ended.stdout
