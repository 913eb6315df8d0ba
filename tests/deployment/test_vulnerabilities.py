"""Releases with published vulnerabilities are refused or reported: by the plan, and by the role preflight on hosts."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.version import Version

from deployment import matrix, vulnerabilities
from tests.deployment.conftest import SiteUnderTest
from tests.deployment.test_sites_that_cannot_work import ENVIRONMENT, HEALTHY

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "roles" / "preflight" / "filter_plugins" / "vulnerable.py"
ROLE = {"container_toolkit": "container_toolkit_version"}


def plugin() -> Any:
    spec = importlib.util.spec_from_file_location("vulnerable", PLUGIN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plan(site: SiteUnderTest, text: str) -> tuple[int, str, list[str]]:
    site.environment |= ENVIRONMENT
    site.write(text)
    done = site.call("plan")
    return done.returncode, done.stderr, re.findall(r"NOTE +(.*CVE-.*)", done.stdout)


@pytest.mark.parametrize(
    ("release", "cves", "take"),
    [
        ("1.16.1", ["CVE-2024-0132", "CVE-2025-23266", "CVE-2026-24260"], "1.19.1"),
        ("1.16.2", ["CVE-2025-23359", "CVE-2025-23266"], "1.19.1"),
        ("1.17.7", ["CVE-2025-23266", "CVE-2025-23267", "CVE-2026-24260"], "1.19.1"),
        ("1.17.8", ["CVE-2026-24260"], "1.19.1"),
        ("1.19.0", ["CVE-2026-24260"], "1.19.1"),
    ],
)
def test_a_container_toolkit_with_holes_is_refused_with_its_line(
    site: SiteUnderTest, release: str, cves: list[str], take: str
) -> None:
    code, errors, _ = plan(site, HEALTHY.replace('"1.20.0"', f'"{release}"'))
    line = HEALTHY[: HEALTHY.index("container_toolkit:")].count("\n") + 1
    assert code == 2
    assert f"{site.file}:{line}: NVIDIA's container toolkit {release} has " in errors
    assert f"take {take} or newer (NVIDIA security bulletin " in errors
    assert [cve for cve in cves if cve not in errors] == []


@pytest.mark.parametrize(
    ("kubernetes", "refused"),
    [("1.33.0", True), ("1.33.1", True), ("1.33.2", False), ("1.34.0", False), ("1.35.4", False)],
)
def test_kubernetes_with_holes_is_refused(site: SiteUnderTest, kubernetes: str, refused: bool) -> None:
    code, errors, _ = plan(site, HEALTHY.replace('"1.35.4"', f'"{kubernetes}"'))
    assert ("CVE-2025-4563" in errors, code == 2) == (refused, refused)


def test_a_minor_release_of_a_running_cluster_says_nothing_of_its_patch(site: SiteUnderTest) -> None:
    site.write('schema: 1\nname: here\nversions:\n  kubernetes: "1.33"\n')
    assert site.call("plan").returncode == 0
    site.write('schema: 1\nname: here\nversions:\n  kubernetes: "1.33.1"\n')
    assert "site.yml:4: Kubernetes 1.33.1 has CVE-2025-4563: take 1.33.2 or newer" in site.call("plan").stderr


@pytest.mark.parametrize(("branch", "warned"), [("535", False), ("570", True), ("580", False), ("590", True)])
def test_a_driver_branch_without_a_fixed_release_is_named(
    site: SiteUnderTest, branch: str, warned: bool
) -> None:
    text = HEALTHY.replace("os: dgx-os-6, model: dgx-a100", "os: ubuntu-22.04, model: dgx-a100")
    text = text.replace("os: dgx-os-7, model: dgx-h100", "os: ubuntu-22.04, model: dgx-h100")
    code, errors, notes = plan(site, text.replace('driver: "580"', f'driver: "{branch}"'))
    assert code == 0, errors
    named = [note for note in notes if note.startswith(f"driver branch {branch} has CVE-2026-24187")]
    assert len(named) == warned


def test_vulnerable_releases_that_kubespray_brings_are_named(site: SiteUnderTest) -> None:
    """kubespray v2.31.0 has no newer containerd. With Docker, it installs no containerd."""
    _, _, notes = plan(site, HEALTHY)
    assert [note.partition(":")[0] for note in notes] == [
        "containerd 2.2.3 has CVE-2026-53489, CVE-2026-53492, CVE-2026-95837"
    ]
    assert notes[0].endswith(". DeepOps 26.07 brings it")
    _, _, notes = plan(site, HEALTHY.replace("container_runtime: containerd", "container_runtime: docker"))
    assert notes == []


def test_no_default_and_no_shipped_site_has_a_refused_release() -> None:
    """Checks the defaults of the roles, the releases of the shipped sites, and those that DeepOps brings."""
    chosen = [("container_toolkit", default("container_toolkit", "container_toolkit_version"))]
    for path in (ROOT / "inventories").glob("*/site.yml"):
        versions = yaml.safe_load(path.read_text())["versions"]
        chosen += [(name, str(versions[name])) for name in vulnerabilities.NAMES if name in versions]
    for row in matrix.tables()["deepops"]:
        chosen += row["brings"].items()
        chosen += [("kubernetes", newest.rpartition("<=")[2]) for newest in row["kubernetes"]]
    assert len(chosen) > 10
    assert [each for each in chosen if vulnerabilities.affecting("refused", *each)] == []
    named = {each for each in chosen if vulnerabilities.affecting("warned", *each) and each[0] != "driver"}
    assert named == {("containerd", "2.2.3")}, "kubespray v2.31.0 has checksums of no newer one"


def default(role: str, variable: str) -> str:
    return str(yaml.safe_load((ROOT / "roles" / role / "defaults" / "main.yml").read_text())[variable])


@pytest.mark.parametrize(
    ("software", "answer", "release"),
    [
        ("container_toolkit", "NVIDIA Container Toolkit CLI version 1.17.7\ncommit: 5b8b1d5\n", "1.17.7"),
        ("containerd", "containerd github.com/containerd/containerd/v2 v2.2.3 9ae2a09\n", "2.2.3"),
        ("containerd", "containerd github.com/containerd/containerd 1.7.28 \n", "1.7.28"),
        ("runc", "runc version 1.3.0-0ubuntu2~24.04.1\nspec: 1.2.1\ngo: go1.24.4\n", "1.3.0"),
        ("driver", "580.126.20\n", "580.126.20"),
        ("kubernetes", "Kubernetes v1.33.1\n", "1.33.1"),
        ("containerd", "containerd github.com/containerd/containerd/v2 v2.2.5-rc.1 9ae2a09\n", "2.2.5-rc.1"),
        ("runc", "runc version 1.3.3~rc1+dev\n", "1.3.3-rc1"),
        ("kubernetes", "Kubernetes v1.33.2-alpha.3.12+9ae2a09\n", "1.33.2-alpha.3"),
        ("driver", "\n", None),
        ("containerd", "containerd github.com/containerd/containerd/v2 dev\n", None),
    ],
)
def test_releases_are_read_from_the_answers_of_programs(
    software: str, answer: str, release: str | None
) -> None:
    result = {"rc": 0, "stdout": answer, "item": {"software": software, "argv": [software, "--version"]}}
    absent = [{**result, "rc": 127}, {"item": {"software": software}, "msg": "No such file"}]
    assert plugin().releases_of([result]).get(software) == release
    assert plugin().releases_of(absent) == {}
    assert (plugin().unread([result, *absent]) == []) == (release is not None)


@pytest.mark.parametrize("table", ["refused", "warned"])
def test_the_role_and_the_plan_judge_alike(table: str) -> None:
    """Compares them at each bound of each row, just below it, and with zeros at the end."""
    rows = vulnerabilities.rows(table)
    tried = 0
    for row in rows:
        for bound in (row["from"], row["below"]):
            head, _, last = bound.rpartition(".")
            below = [f"{head}.{int(last) - 1}"] if head and int(last) else []
            for release in (bound, f"{bound}.0", f"{bound}.1", f"{bound}-rc.1", *below):
                found = vulnerabilities.affecting(table, row["software"], release)
                expected = [vulnerabilities.sentence(found, release)] if found else []
                assert plugin().vulnerable({row["software"]: release}, rows) == expected
                tried += 1
    assert tried > 40


def test_a_candidate_of_a_release_is_before_its_fix_and_within_its_branch() -> None:
    for release in ("2.2.5-rc.1", "2.2.0-rc.1", "2.3.0-beta.0", "2.3.2-rc.0"):
        assert vulnerabilities.affecting("warned", "containerd", release)
    assert not vulnerabilities.affecting("warned", "containerd", "2.3.5-rc.1")


def test_every_row_names_its_vulnerabilities_and_a_fixed_release() -> None:
    for table in ("refused", "warned"):
        for row in matrix.tables()[table]:
            assert row["software"] in vulnerabilities.NAMES
            assert all(re.fullmatch(r"CVE-20[0-9]{2}-[0-9]{4,}", cve) for cve in row["cve"])
            assert Version(row.get("from", "0")) < Version(row["below"])
            newest = max(
                (each for each in vulnerabilities.rows(table) if each["software"] == row["software"]),
                key=below,
            )
            assert not vulnerabilities.affecting(table, row["software"], newest["below"])


def below(row: dict[str, Any]) -> Version:
    return Version(row["below"])


def test_preflight_gets_the_rows_and_spares_software_that_is_replaced(site: SiteUnderTest) -> None:
    site.environment |= ENVIRONMENT
    site.write(HEALTHY)
    hosts = json.loads(site.call("inventory").stdout)["all"]["vars"]
    assert hosts["preflight_refused"] == vulnerabilities.rows("refused")
    assert sorted(hosts["preflight_installed"]) == [
        "container_toolkit", "containerd", "driver", "kubernetes", "runc",
    ]  # fmt: skip
