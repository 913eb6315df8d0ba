"""The matrix is data: every row has its source and date, and is printed unchanged."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployment import site_file, variables
from deployment.bundle.wheels import Target, of_requirements
from deployment.matrix import tables
from musterlab import build
from orchestrator.names import LOWEST_KUBERNETES
from tests.deployment.conftest import SiteUnderTest

ROOT = Path(__file__).parents[2]


def test_every_row_says_where_it_is_from_and_when(site: SiteUnderTest) -> None:
    rows = [row for rows in tables().values() for row in rows]
    assert len(rows) > 20
    assert [row for row in rows if not row["source"] or not row["date"]] == []


def test_the_lowest_kubernetes_is_that_of_the_matrix_and_of_the_api_server_in_the_lab() -> None:
    (row,) = tables()["orchestrator"]
    major, minor, patch = LOWEST_KUBERNETES.split(".")
    assert (row["kubernetes"], patch) == (f">={major}.{minor}", "0")
    modules = (ROOT / "musterlab" / "lowest" / "go.mod").read_text()
    assert re.findall(r"\tk8s.io/kubernetes v(\S+)", modules) == [LOWEST_KUBERNETES]
    staged = set(re.findall(r"^\tk8s.io/\S+ => k8s.io/\S+ (\S+)$", modules, re.MULTILINE))
    assert staged == {f"v0.{minor}.{patch}"}
    flags = str(build.LOWEST_CONTROL_PLANE.parts[0])
    assert all(text in flags for text in (f"gitVersion=v{LOWEST_KUBERNETES}", f"gitMinor={minor}"))


def test_no_driver_after_580_is_allowed_on_volta() -> None:
    volta = [row for row in tables()["hosts"] if {"dgx-1", "dgx-2"} & set(row["models"])]
    assert volta
    assert max(int(branch) for row in volta for branch in row["driver"]) == 580


def test_the_matrix_is_printed_for_people_and_machines(site: SiteUnderTest) -> None:
    from orchestrator.cli.main import main

    assert main(["matrix", "--json"]) == 0
    assert main(["matrix"]) == 0


@pytest.mark.parametrize(
    ("kubernetes", "reason"),
    [
        ("1.33.11", "DRA driver 0.4.1 needs Kubernetes >=1.34.2, this is 1.33.11"),
        (
            "1.35.4",
            "jobs get GPUs by claims with Kubernetes >=1.36, this is 1.35.4, where that is alpha and off",
        ),
    ],
)
def test_dra_is_left_out_where_it_cannot_be_and_the_plan_says_why(
    site: SiteUnderTest, kubernetes: str, reason: str
) -> None:
    site.write(f'schema: 1\nname: here\nversions:\n  kubernetes: "{kubernetes}"\n')
    stages = json.loads(site.call("plan", "--json").stdout)["stages"]
    dra = next(each for each in stages if each["stage"] == "dra")
    assert dra["decision"] == "not applicable"
    assert dra["reason"] == reason


@pytest.mark.parametrize(
    ("kubernetes", "dra", "shares"),
    [
        ("1.36.3", "auto", "memory"),
        ("1.36.3", '"0.4.1"', "disabled"),
        ("1.35.4", "auto", "disabled"),
        ("1.35.4", '"0.5.0"', "disabled"),
    ],
)
def test_memory_of_gpus_is_shared_out_where_driver_and_kubernetes_do_so_by_default(
    tmp_path: Path, kubernetes: str, dra: str, shares: str
) -> None:
    text = f'schema: 1\nname: here\nversions:\n  kubernetes: "{kubernetes}"\n  dra: {dra}\n'
    (tmp_path / "site.yml").write_text(text)
    assert variables.of_roles(site_file.load(tmp_path))["dra_consumable_shares"] == shares


@pytest.mark.parametrize("row", tables()["deepops"], ids=lambda row: str(row["release"]))
def test_the_environment_of_every_deepops_is_locked_by_hashes(row: dict[str, Any]) -> None:
    lock = Path(__file__).parents[2] / "roles" / "deepops" / "files" / f"requirements-{row['release']}.txt"
    for python in row["python"]:
        wanted = of_requirements(lock, Target((3, int(python.partition(".")[2]))))
        assert next(each.version for each in wanted if each.name == "ansible") == row["ansible"]
        assert all(each.sha256 for each in wanted)


def test_every_host_of_the_matrix_is_one_that_the_role_of_the_driver_knows() -> None:
    values = yaml.safe_load((ROOT / "roles" / "driver" / "vars" / "main.yml").read_text())
    systems, models = values["__driver_table"], values["__driver_models"]
    for row in tables()["hosts"]:
        assert set(row["driver"]) <= set(systems[row["os"]]["branches"]), row
        for model in row["models"]:
            assert model == "generic" or row["os"] in models[model]["systems"], (model, row["os"])
            if models[model]["nvswitch"]:
                assert systems[row["os"]]["nvswitch"], (
                    "GPUs that NVSwitch joins do not start without its manager"
                )


@pytest.mark.parametrize("system", ["ubuntu-22.04", "ubuntu-24.04", "dgx-os-7"])
def test_a_dgx_h100_runs_on_plain_ubuntu_too(site: SiteUnderTest, system: str) -> None:
    site.write(
        'schema: 1\nname: here\nversions: {kubernetes: "1.35.4", driver: "580"}\nhosts:\n'
        f"  dgx01: {{address: n1, os: {system}, model: dgx-h100, roles: [gpu]}}\n"
    )
    planned = site.call("plan")
    assert planned.returncode == 0, planned.stderr


@pytest.mark.parametrize(
    ("operator", "plugin", "line", "said"),
    [
        ("true", "auto", 4, "deepops.gpu_operator announces the GPUs"),
        ("false", '"0.19.3"', 8, "versions.device_plugin announces the GPUs, and the DRA driver would"),
    ],
)
def test_nothing_announces_gpus_beside_the_dra_driver(
    site: SiteUnderTest, operator: str, plugin: str, line: int, said: str
) -> None:
    text = (
        f"schema: 1\nname: here\ndeepops:\n  gpu_operator: {operator}\nversions:\n"
        f'  kubernetes: "1.36.3"\n  dra: auto\n  device_plugin: {plugin}\n'
    )
    site.write(text)
    refused = site.call("plan")
    assert refused.returncode == 2
    assert f"{site.file}:{line}: {said}" in refused.stderr
    site.write(text.replace("dra: auto", 'dra: "off"'))
    assert site.call("plan").returncode == 0
