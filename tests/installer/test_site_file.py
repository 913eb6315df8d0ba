"""A site file that cannot be meant is refused before anything is touched: every problem, with its line."""

from pathlib import Path

import pytest

from tests.installer.conftest import SiteUnderTest

INVENTORIES = Path(__file__).parents[2] / "inventories"
HOST = "  {name}: {{address: {address}, os: {os}, model: {model}, roles: [{roles}]}}\n"
ON = "schema: 1\nname: here\nversions:\n  kubernetes: "
HEAD = ON + '"1.34.2"\n'


def host(
    name: str, address: str, os: str = "ubuntu-24.04", model: str = "generic", roles: str = "gpu"
) -> str:
    return HOST.format(name=name, address=address, os=os, model=model, roles=roles)


NEVER = "a secret is never written here"
REFUSED = {
    "an unknown key": (HEAD + "hostz: {}\n", 5, "unknown key `hostz`"),
    "a key that is missing": ("schema: 1\nname: here\n", 1, "`versions` is missing"),
    "a version without quotes": ("schema: 1\nname: here\nversions:\n  kubernetes: 1.30\n", 4, "write it in quotes"),
    "a secret in clear": (
        HEAD + "network:\n  switches:\n    nexus-1: {address: n1, model: nexus-3232c,\n      password: hunter2}\n",
        8,
        NEVER,
    ),
    "a secret among the variables": (HEAD + "vars:\n  trident_password: hunter2\n", 6, NEVER),
    "an empty reason": (HEAD + "not_applicable:\n  driver: because\n", 6, "not_applicable.driver"),
    "a stage that cannot be left out": (HEAD + "not_applicable:\n  verify: we trust it all\n", 5, "verify"),
    "a variable of no role": (HEAD + "vars:\n  colour: blue\n", 5, "colour"),
    "two hosts at one address": (
        HEAD + "hosts:\n" + host("a", "n1") + host("b", "n1"), 7, "b has the address of a"),
    "an even etcd": (
        HEAD + "hosts:\n" + host("a", "n1", roles="etcd") + host("b", "n2", roles="etcd"), 7, "even number"),
    "a GPU host without a model": (HEAD + "hosts:\n  a: {address: a, os: ubuntu-24.04, roles: [gpu]}\n", 6, "`model`"),
    "a class without its backend": (
        HEAD + "storage:\n  classes:\n  - {name: fast, backend: a800,\n     default: true}\n", 7, "no backend a800"),
    "two default classes": (
        HEAD + "storage:\n  backends: [{name: b, driver: ontap-nas}]\n  classes:\n"
        "  - {name: one, backend: b, default: true}\n  - {name: two, backend: b, default: true}\n",
        9, "exactly one must be"),
    "a vault that is not there": (
        HEAD + "network:\n  switches:\n    n1: {address: n1, model: nexus-3232c, password: {vault: x}}\n", 7, "vault"),
    "a DGX-1 with DGX OS 7": (
        HEAD + "hosts:\n" + host("dgx01", "n1", os="dgx-os-7", model="dgx-1"), 6, "does not run on dgx-1"),
    "a driver branch after Volta": (
        ON + '"1.34.2"\n  driver: "590"\nhosts:\n'
        + host("dgx01", "n1", os="dgx-os-6", model="dgx-1"), 5, "no driver branch 590"),
    "a Kubernetes that DeepOps does not bring": (
        ON + '"1.30.1"\n  deepops: "26.07"\n', 4, "does not install"),
    "a Trident that is too old": (
        ON + '"1.34.2"\n  trident: "20.04.0"\n', 5, "does not run on"),
    "an ONTAP without REST": (
        ON + '"1.34.2"\n  trident: "26.06.0"\n  ontap: "9.6P4"\n', 6,
        "needs ONTAP >=9.12.1"),
    "a DRA driver on an old Kubernetes": (
        ON + '"1.33.1"\n  dra: "0.4.1"\n', 5, "needs Kubernetes"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_says_what_is_wrong_and_where(site: SiteUnderTest, case: str) -> None:
    text, line, message = REFUSED[case]
    site.write(text)
    done = site.call("plan")
    assert done.returncode == 2
    assert f"{site.file}:{line}: " in done.stderr, done.stderr
    assert message in done.stderr
    assert not site.state.exists()


def test_tells_every_problem_at_once(site: SiteUnderTest) -> None:
    site.write("schema: 1\nname: Here\nversions: {kubernetes: 1.30}\nhostz: {}\n")
    done = site.call("install")
    assert done.returncode == 2
    assert [line.split(":")[1] for line in done.stderr.splitlines()[:-1]] == ["2", "3", "4"]
    assert "3 problems" in done.stderr.splitlines()[-1]


def test_a_vault_in_clear_is_refused(site: SiteUnderTest) -> None:
    (site.directory / "vault.yml").write_text("password: hunter2\n")
    done = site.call("plan")
    assert done.returncode == 2
    assert "ansible-vault encrypt" in done.stderr
    assert "hunter2" not in done.stderr + done.stdout


@pytest.mark.parametrize("name", sorted(each.name for each in INVENTORIES.iterdir()))
def test_the_sites_that_come_with_muster_can_be_planned(site: SiteUnderTest, name: str) -> None:
    site.directory = INVENTORIES / name
    done = site.call("plan")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("preflight")
