"""A stage is one module: every stage of the playbooks has one, and its statements match the roles."""

from pathlib import Path

import pytest

from deployment import playbook, site_file
from deployment.content import find, role_defaults
from deployment.stages import STAGES, device_plugin, dra, matrix_findings, ontap, orchestrator, stage, trident

ROOT = Path(__file__).parents[2]
TEXT = 'schema: 1\nname: here\nversions: {kubernetes: "1.35.4"}\n'


def write(directory: Path, text: str) -> Path:
    (directory / "site.yml").write_text(text)
    return directory


@pytest.mark.parametrize("book", ["site.yml", "upgrade.yml"])
def test_every_stage_of_the_playbooks_has_a_module_of_its_name(book: str) -> None:
    names = [entry.name for entry in playbook.read(find(), book)]
    assert set(names) <= {definition.name for definition in STAGES}
    assert all((ROOT / "deployment" / "stages" / f"{name}.py").is_file() for name in names)


def test_every_module_belongs_to_a_stage_of_a_playbook() -> None:
    names = {entry.name for book in ("site.yml", "upgrade.yml") for entry in playbook.read(find(), book)}
    assert {definition.name for definition in STAGES} == names


def test_a_stage_of_a_sites_own_is_known_by_its_playbook_alone(tmp_path: Path) -> None:
    site = site_file.load(write(tmp_path, TEXT))
    own = stage("of_our_own")
    assert own.variables(site) == own.host_variables({}) == {}
    assert own.sentence(site) == own.removal_sentence(site) == own.not_applicable(site, bundle=False) == ""
    assert [*own.problems(site), *own.matrix_findings(site), *own.steps(site, {"a": "1"})] == []


def test_the_plan_has_the_values_of_the_roles_when_vars_override_them(tmp_path: Path) -> None:
    text = TEXT + "vars: {orchestrator_replicas: 3, orchestrator_image: r.example.com/muster:1}\n"
    site = site_file.load(write(tmp_path, text))
    assert "3 replicas of r.example.com/muster:1" in orchestrator.STAGE.sentence(site)


def test_an_absent_value_of_the_site_file_has_the_default_of_the_role(tmp_path: Path) -> None:
    site = site_file.load(write(tmp_path, TEXT))
    assert (
        orchestrator.STAGE.value(site, "orchestrator_replicas")
        == role_defaults("orchestrator")["orchestrator_replicas"]
    )
    assert ontap.nfs_versions(site) == ["3", "4.1"]


def test_no_default_of_a_role_is_written_a_second_time() -> None:
    """`site.get(…, default=…)` in the modules is for empty entries, and never repeats a default of a role."""
    values = {"nvidia", "calico", "containerd", "trident", "auto", 9000, 9216}
    for path in (ROOT / "deployment" / "stages").glob("*.py"):
        for line in path.read_text().splitlines():
            _, mark, rest = line.partition("default=")
            literal = rest.split(")")[0].strip("\"' ")
            assert not mark or literal not in {str(value) for value in values}, f"{path.name}: {line.strip()}"


@pytest.mark.parametrize("directory", sorted((ROOT / "inventories").iterdir()), ids=lambda path: path.name)
def test_the_sites_that_come_with_muster_are_allowed_by_every_stage(directory: Path) -> None:
    assert [*matrix_findings(site_file.load(directory))] == []


def test_a_checksum_is_wanted_for_a_download_and_not_for_a_file_of_the_site(tmp_path: Path) -> None:
    site = site_file.load(write(tmp_path, TEXT))
    missing = trident.STAGE.missing_requirements
    assert [finding.place for finding in missing(site, {})] == [("versions", "trident")]
    assert [*missing(site, {"trident_archive": "/srv/trident.tar.gz"})] == []
    assert [*missing(site, {"trident_checksum": "sha256:0"})] == []


def test_helm_is_looked_for_where_the_site_says_it_is(tmp_path: Path) -> None:
    site = site_file.load(write(tmp_path, TEXT))
    helm = tmp_path / "helm"
    helm.touch(mode=0o755)
    for definition in (dra.STAGE, device_plugin.STAGE):
        missing = definition.missing_requirements
        assert [*missing(site, {"helm_program": str(helm)})] == []
        assert "needs /nowhere/helm" in next(missing(site, {"helm_program": "/nowhere/helm"})).message
        chart = f"{definition.name}_chart"
        bundled = {"bundle_path": "/b", "helm_archive": "/b/h", chart: str(helm), "helm_program": str(helm)}
        assert [*missing(site, bundled)] == []
        for name, words in ((chart, "the chart"), ("helm_archive", "the Helm")):
            left = {key: value for key, value in bundled.items() if key not in {name, "helm_program"}}
            assert [
                each.message.partition(":")[0] for each in missing(site, left) if "bundle" in each.message
            ] == [f"the bundle does not have {words} of the stage {definition.name}"]
        fetched = [finding.message for finding in missing(site, {})]
        assert fetched == [] or "for x86-64, and this machine is" in fetched[0]
