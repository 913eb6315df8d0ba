"""Files, objects, fields, images and rights of Trident that muster uses exist in each release of the matrix.

The names are read from the roles `trident` and `ontap`, the stage, the matrix and the site files.
"""

import json
import re
from typing import Any

import pytest

from deployment import site_file
from deployment.matrix import tables, within
from deployment.stages import trident as stage
from musterlab.programs import TRIDENT
from tests.deployment import trident_double
from tests.upstream import facts
from tests.upstream.names import ROLES, ROOT, found, role_file, task_text, tasks

Facts = dict[str, Any]
ROWS = [str(row["release"]) for row in tables()["trident"]]
TASKS = task_text("trident")
DEFAULTS = role_file("trident", "defaults/main.yml")
SCHEMA = json.loads((ROOT / "deployment" / "data" / "site.schema.json").read_text())
TEMPLATES = {path.name: path.read_text() for path in (ROLES / "trident" / "templates").glob("*.j2")}
FILES = sorted(set(re.findall(r"trident-installer/(deploy/[\w./-]+\.yaml)", TASKS)))
KINDS = sorted(found(r"\bTrident(?:Orchestrator|BackendConfig|Provisioner)\b"))
DEFINITIONS = sorted(found(r"\btrident\w+\.trident\.netapp\.io\b"))
GROUPS = sorted(found(r"(?<![\w.])trident\.netapp\.io/\w+"))
DRIVERS = sorted(SCHEMA["$defs"]["backend"]["properties"]["driver"]["enum"])
RELEASES = sorted(found(r"trident(?:_version)?: \"(\d\d\.\d\d\.\d)\""))
RESOURCES = (stage._ORCHESTRATORS, stage._PROVISIONERS, trident_double.ORCHESTRATORS, trident_double.BACKENDS)


def _specification_fields() -> set[str]:
    """Return the fields of TridentOrchestrator that the role sets."""
    fields = set()
    for task in tasks("trident"):
        definition = task.get("kubernetes.core.k8s", {}).get("definition")
        if isinstance(definition, dict) and definition.get("kind") == "TridentOrchestrator":
            specification = definition["spec"]
            text = isinstance(specification, str)
            fields |= set(re.findall(r"'(\w+)':", specification)) if text else set(specification)
    return fields


def _backend_fields() -> set[str]:
    template = TEMPLATES["backend.yml.j2"].partition("spec:\n")[2]
    return set(re.findall(r"(?m)^  (\w+):", template)) | set(re.findall(r'"(\w+)":', template))


def _status_fields() -> set[str]:
    """Return the status fields that the role reads."""
    direct = set(re.findall(r"(?:_status|_state)\.(\w+)", TASKS))
    return direct | set(re.findall(r"status\.(\w+)\"", TASKS)) - {"status"}


def _parameters() -> dict[str, str]:
    return dict(re.findall(r"(?m)^  (\w+): (.+)$", TEMPLATES["class.yml.j2"].partition("parameters:\n")[2]))


def _published(trident: Facts, row: str) -> list[str]:
    releases = [release for release in trident["releases"] if within(release, row)]
    assert releases, f"no release of {row} has been published"
    return releases


def _sources(trident: Facts) -> Facts:
    ((_, sources),) = trident["sources"].items()
    return dict(sources)


def _definitions(trident: Facts) -> list[Facts]:
    """Return each custom resource definition, including those that only old releases have."""
    found = [each for group in _sources(trident)["objects"].values() for each in group]
    found += [
        each
        for release in trident["releases"].values()
        for group in release["manifests"].values()
        for each in group
    ]
    return [each["definition"] for each in found if "definition" in each]


def _all_fields(trident: Facts) -> set[str]:
    return {field for kind in _sources(trident)["fields"].values() for field in kind}


def test_the_names_are_found() -> None:
    assert len(FILES) > 1
    assert TASKS.count("trident-installer/deploy/") == len(FILES), (
        "a name that is put together cannot be checked"
    )
    assert len(_backend_fields()) > 10
    assert {"debug", "namespace", "imageRegistry", "uninstall", "wipeout"} <= _specification_fields()
    assert {"status", "version", "message", "phase", "lastOperationStatus"} <= _status_fields()
    assert len(KINDS) == 3


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("name", FILES)
def test_a_file_of_the_archive_is_in_every_release_of_the_row(trident: Facts, row: str, name: str) -> None:
    for release in _published(trident, row):
        assert f"trident-installer/{name}" in trident["releases"][release]["archive"], release


@pytest.mark.parametrize("row", ROWS)
def test_the_operator_obeys_the_kind_and_is_of_the_release(trident: Facts, row: str) -> None:
    for release in _published(trident, row):
        manifests = trident["releases"][release]["manifests"]
        (definition,) = manifests["crds/trident.netapp.io_tridentorchestrators_crd_post1.16.yaml"]
        assert definition["name"] in TASKS
        assert definition["definition"]["names"]["kind"] == "TridentOrchestrator"
        assert definition["definition"]["scope"] == "Cluster"
        assert [version["name"] for version in definition["definition"]["versions"]] == ["v1"]
        (operator,) = (each for each in manifests["bundle.yaml"] if each["kind"] == "Deployment")
        assert operator["namespace"] == DEFAULTS["trident_namespace"]
        assert operator["name"] in TASKS
        (container,) = operator["containers"]
        assert container["image"].endswith(f":{release}")


@pytest.mark.versions
def test_every_release_since_the_first_of_the_matrix_is_in_a_row(trident: Facts) -> None:
    first = min(re.findall(r">=([\d.]+)", " ".join(ROWS)))
    left_out = [
        release
        for release in trident["releases"]
        if within(release, f">={first}") and not any(within(release, row) for row in ROWS)
    ]
    assert left_out == []


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_that_a_role_or_site_names_was_published(trident: Facts, release: str) -> None:
    assert release in trident["releases"]


def test_the_archive_is_where_releases_are_published(trident: Facts) -> None:
    assert (
        re.sub(r"\{\{ trident_version \}\}", "{release}", DEFAULTS["trident_archive"])
        == trident["release_archive"]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_defined(trident: Facts, kind: str) -> None:
    assert kind in {definition["names"]["kind"] for definition in _definitions(trident)}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_definition_has_the_name_of_its_kind(trident: Facts, name: str) -> None:
    assert name in {f"{each['names']['plural']}.{each['group']}" for each in _definitions(trident)}


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_is_served_in_the_version(trident: Facts, group: str) -> None:
    served = {
        f"{each['group']}/{version['name']}" for each in _definitions(trident) for version in each["versions"]
    }
    assert group in served


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: str(resource.plural))
def test_a_resource_of_the_stage_or_the_double_is_one_of_trident(trident: Facts, resource: Any) -> None:
    matching = [
        each
        for each in _definitions(trident)
        if (each["group"], each["names"]["plural"], each["names"]["kind"])
        == (resource.group, resource.plural, resource.kind)
    ]
    assert {each["scope"] for each in matching} == {"Namespaced" if resource.namespaced else "Cluster"}
    assert resource.version in {version["name"] for each in matching for version in each["versions"]}


@pytest.mark.parametrize("field", sorted(_specification_fields()))
def test_a_field_of_the_orchestrator_exists(trident: Facts, field: str) -> None:
    assert field in _sources(trident)["fields"]["TridentOrchestratorSpec"]


@pytest.mark.parametrize("field", sorted(_status_fields()))
def test_a_field_of_a_status_exists(trident: Facts, field: str) -> None:
    kinds = _sources(trident)["fields"]
    assert field in {**kinds["TridentOrchestratorStatus"], **kinds["TridentBackendConfigStatus"]}


@pytest.mark.parametrize("field", sorted(_backend_fields() - {"defaults", "name"}))
def test_a_field_of_a_backend_exists(trident: Facts, field: str) -> None:
    assert field in _all_fields(trident)


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_driver_of_the_site_file_exists(trident: Facts, driver: str) -> None:
    constants = _sources(trident)["constants"]
    assert driver in {constants[name] for name in constants if name.endswith("StorageDriverName")}
    options = role_file("trident", "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    assert options["trident_backends"]["options"]["driver"]["choices"] == DRIVERS


@pytest.mark.parametrize("name", ["current", "dgx-b200", "dgx-h100", "tr4858", "example"])
def test_a_backend_of_a_site_has_a_driver_that_exists(trident: Facts, name: str) -> None:
    site = site_file.load(ROOT / "inventories" / name)
    constants = _sources(trident)["constants"]
    assert {each["driver"] for each in site.get("storage", "backends")} <= set(constants.values())


@pytest.mark.parametrize("parameter", sorted(_parameters()))
def test_a_parameter_of_a_class_exists(trident: Facts, parameter: str) -> None:
    assert parameter in _sources(trident)["storage_class_attributes"].values()


@pytest.mark.versions
@pytest.mark.parametrize("row", ROWS)
def test_the_row_has_the_kubernetes_that_the_newest_release_takes(trident: Facts, row: str) -> None:
    promised = next(each["kubernetes"] for each in tables()["trident"] if each["release"] == row)
    low, high = re.findall(r"\d+\.(\d+)", promised)
    constants = _sources(trident)["constants"]
    first, last = (int(constants[f"KubernetesVersion{end}"].rpartition(".")[2]) for end in ("Min", "Max"))
    assert int(low) == first
    # each release supports one more Kubernetes than the last; the sources are those of the newest release
    assert int(high) == last + 1 - (len(ROWS) - 1 - ROWS.index(row))


def _images() -> list[tuple[str, str]]:
    rows = [row for row in tables()["images"] if row["of"] == "trident"]
    return [(str(row["release"]), image) for row in rows for image in row["images"]]


@pytest.mark.versions
@pytest.mark.parametrize(("row", "image"), _images())
def test_an_image_of_the_matrix_is_one_of_the_release(trident: Facts, row: str, image: str) -> None:
    ((release, sources),) = trident["sources"].items()
    assert within(release, row)
    constants = sources["constants"]
    registry = constants["KubernetesCSISidecarRegistry"]
    known = {f"{registry}/{value}" for name, value in constants.items() if name.endswith("ImageTag")}
    known |= {each.removeprefix("docker.io/") for each in trident["releases"][release]["images"]}
    support = sources["autosupport_image"][0].removeprefix("docker.io/") % constants["DefaultAutosupportName"]
    main = f"{TRIDENT.origin.removeprefix('image docker.io/').partition(',')[0]}:{release}"
    minor = ".".join(release.split(".")[:2])
    assert image.format(release=release, minor=minor) in known | {support, main}


@pytest.mark.versions
def test_every_sidecar_is_in_the_matrix(trident: Facts) -> None:
    constants = _sources(trident)["constants"]
    registry = constants["KubernetesCSISidecarRegistry"]
    sidecars = {f"{registry}/{value}" for name, value in constants.items() if name.endswith("ImageTag")}
    assert sidecars == {image for _, image in _images() if image.startswith(registry)}


# Values that the facts leave out. They are in the checkout of the newest release.

VALUES = sorted(
    {
        value
        for pattern in (
            r'== "(\w+)"',
            r'equalto", "([\w.]+)"',
            r"wipeout: \[(\w+)\]",
            r'in \["(\w+)", "(\w+)"\]',
        )
        for match in re.findall(pattern, TASKS)
        for value in (match if isinstance(match, tuple) else (match,))
    }
)
VALUES_OF_TRIDENT = {
    "Bound": "persistent_store/crd/apis/netapp/v1/backendconfig.go",
    "Error": "operator/crd/apis/netapp/v1/tridentorchestrator.go",
    "Failed": "frontend/crd/controller/crd_controller.go",
    "Installed": "operator/crd/apis/netapp/v1/tridentorchestrator.go",
    "Success": "frontend/crd/controller/crd_controller.go",
    "Uninstalled": "operator/crd/apis/netapp/v1/tridentorchestrator.go",
    "crds": "operator/controllers/orchestrator/controller.go",
    "csi.trident.netapp.io": "frontend/csi/config.go",
}


@pytest.mark.parametrize("name", sorted({*found(r"\bcsi\.trident\.[\w.]*\w"), *VALUES}))
def test_a_value_that_the_facts_leave_out_was_looked_up(name: str) -> None:
    assert name in VALUES_OF_TRIDENT


@pytest.mark.parametrize("source", ["trees"], indirect=True, scope="session")
@pytest.mark.parametrize("name", sorted(VALUES_OF_TRIDENT))
def test_a_value_that_the_facts_leave_out_stands_in_the_sources(trident: Facts, name: str) -> None:
    assert f'"{name}"' in (facts.checkout("trident") / VALUES_OF_TRIDENT[name]).read_text()
