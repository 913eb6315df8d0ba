"""The catalogue: its errors. Each shipped check proves a requirement, and each check that it names is shipped."""

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from validation.catalogue.catalogue import PATH, Profile, Requirement, load_catalogue
from validation.errors import CatalogueError
from validation.plan.acceptance import open_acceptance, shipped_check_ids
from validation.scenario.loader import find, load
from validation.targets.kinds import CLUSTER, LAB

CATALOGUE = load_catalogue()


def test_every_check_that_ships_proves_a_requirement() -> None:
    assert [name for name in shipped_check_ids() if not CATALOGUE.proven_by(name)] == []


def test_every_check_that_a_requirement_names_is_there() -> None:
    patterns = [pattern for requirement in CATALOGUE.requirements for pattern in requirement.checks]
    ids = shipped_check_ids()
    assert [p for p in patterns if not any(fnmatchcase(name, p) for name in ids)] == []


STAND_INS_OF_A_REHEARSAL = (
    *("installation.storage-class", "training.resnet50", "training.two-mounts", "training.workload"),
    *("utilization.full", "results.equal", "witnesses.processes", "dra.driver", "dra.pod"),
)
"""Requirements that need a storage system, TensorFlow, GPUs that compute, or a DRA driver."""


def test_no_profile_excludes_a_proven_requirement() -> None:
    """A shipped check runs in each profile, except if it needs containers, hosts or an API server that the profile
    lacks.
    """
    needs_containers = ("devices", "processes"), ("resnet50", "two-mounts", "workload")
    names = zip(("witnesses", "training"), needs_containers, strict=True)
    simulated = {
        (profile, f"{part}.{name}") for part, ids in names for profile in ("lab", "planner") for name in ids
    }
    # the planner target has no API server that deletes objects
    simulated.add(("planner", "witnesses.evictions"))
    # the planner target has no operator that checks time limits
    simulated.add(("planner", "projects.interactive-limit"))
    simulated.add(("planner", "upkeep.operator"))  # the planner target has no operator to kill
    simulated |= {
        (profile, name) for name in ("utilization.full", "results.equal") for profile in ("lab", "planner")
    }  # these profiles have no GPUs that could be busy or compute
    simulated |= {("lab", "installation.storage-class"), ("tr4858", "dra.version"), ("tr4858", "dra.claim")}
    simulated.add(("lab", "installation.operator"))  # a process
    simulated |= {
        ("planner", name)
        for name in ("installation.operator", "installation.storage-class", "dra.version", "dra.claim")
    }  # the planner target has no API server that answers
    simulated |= {("planner", f"submission.{name}") for name in ("train", "build", "log", "shell")}
    simulated |= {
        ("planner", f"submission.{name}") for name in ("default-project", "other-clients")
    }  # the planner target has no command line and no API server
    volumes = ("volume-reused", "mount-shown", "clone", "workspace")
    of_containers = {"submission.ingress", *(f"storage.{name}" for name in volumes)}
    simulated |= {(profile, name) for name in of_containers for profile in ("lab", "planner")}
    of_services = ("submission.ingress", "storage.clone", "storage.workspace")
    simulated |= {("rehearsal", name) for name in of_services}  # no ingress controller, no ONTAP
    simulated |= {("lab", "submission.log"), ("lab", "submission.shell")}
    simulated |= {
        (profile, name) for profile in ("lab", "tr4858", "planner") for name in ("dra.driver", "dra.pod")
    }
    lists = (
        "installation.verified",
        "projects.manage",
        "views.analytics",
        "views.columns",
        "views.jobs",
        "views.nodes",
        "views.overview",
        "views.projects",
    )
    # the planner target has no command line that shows lists
    simulated |= {("planner", name) for name in lists}
    on_hosts = {r.id for r in CATALOGUE.requirements if any(name.startswith("hosts") for name in r.checks)}
    simulated |= {(profile, name) for profile in ("lab", "planner") for name in on_hosts}
    for profile, proven in (("rehearsal", set[str]()), ("lab-real", {"witnesses.processes"})):
        simulated |= {(profile, name) for name in {*on_hosts, *STAND_INS_OF_A_REHEARSAL} - proven}
    for kind in CATALOGUE.profiles:
        for requirement in CATALOGUE.requirements:
            excluded = bool(requirement.checks and kind.excludes(requirement))
            assert excluded == ((kind.id, requirement.id) in simulated), (kind.id, requirement.id)


def test_the_lab_names_the_option_that_proves_a_requirement_which_it_excludes() -> None:
    """The profile `lab` names the option `--real-nodes` for each requirement that only the lab's real nodes prove."""
    lab, real = CATALOGUE.profile("lab"), CATALOGUE.profile("lab-real")
    reasons = {r.id: lab.excludes(r) for r in CATALOGUE.requirements if r.checks and not real.excludes(r)}
    further = {name for name, reason in reasons.items() if reason}
    assert further == {
        *("installation.operator", "submission.log", "submission.shell", "submission.ingress"),
        *(f"storage.{name}" for name in ("volume-reused", "mount-shown", "clone", "workspace")),
        *("witnesses.devices", "witnesses.processes"),
    }
    assert all("--real-nodes 2 proves it" in reasons[name] for name in further)


@pytest.mark.parametrize("name", ["lab", "lab-real"])
def test_a_lab_can_end_green(name: str) -> None:
    """Each requirement that applies has a check: else a run of everything is INCONCLUSIVE."""
    profile = CATALOGUE.profile(name)
    assert [r.id for r in CATALOGUE.requirements if not r.checks and not profile.excludes(r)] == []


@pytest.mark.parametrize(
    "words",
    [
        "two DGX-1", "AFF A800", "Nexus 3232C", "9.6P4", "7.0(3)I6(1)", "4.0.4", "1.17", "20.04.0", "v2.1.13",
        "18.06.1-ce", "4 x 100 GbE", "nvidia-docker", "default of the cluster", "hyper1", "build1", "test-ingress",
        "netapp1", "97 %", "heavy-c-2", "16255", "volume test", "v1beta1", "pod1", "nvidia_container_t",
        "4/4, 4/2, 4/2, 4/8", "4/4, 2/2, 2/2, 8/8", "8/4, 4/2, 4/2, 0/8", "analytics", "dcgm", "nccl", "fio",
    ],
)  # fmt: skip
def test_the_requirements_of_the_documents_are_in_it(words: str) -> None:
    texts = [
        f"{requirement.id} {requirement.claim} {requirement.number}" for requirement in CATALOGUE.requirements
    ]
    assert any(words in text for text in texts)


def test_a_figure_of_utilization_stands_in_a_row_whose_check_measures_it() -> None:
    """A passed row prints its figure, so each row with a figure must have the check that measures this figure."""
    rows = [entry for entry in CATALOGUE.requirements if "% utilization" in entry.number and entry.checks]
    assert [entry.id for entry in rows] == ["utilization.full"]
    assert all(any(check.endswith("/utilization") for check in entry.checks) for entry in rows)


TOTAL = re.compile(r"\b(\d+(?:\.\d+)?)/(\d+)\b")


@pytest.mark.parametrize(
    "entry",
    [r for r in CATALOGUE.requirements if r.checks and TOTAL.search(r.number)],
    ids=lambda entry: entry.id,
)
def test_each_printed_total_is_asserted_by_a_step_of_the_row(entry: Requirement) -> None:
    """The title `4/2` means that a project with a quota of 2 holds 4."""
    quotas: dict[str, int] = {}
    asserted = set()
    for scenario in load(find()):
        quotas |= scenario.quotas_milli
        for step in scenario.steps:
            if any(fnmatchcase(f"{scenario.id}/{step.id}", pattern) for pattern in entry.checks):
                asserted |= {(held, quotas[name]) for name, held in step.expectation.allocated_milli.items()}
    printed = {(int(float(held) * 1000), int(quota) * 1000) for held, quota in TOTAL.findall(entry.number)}
    assert printed <= asserted


@pytest.mark.parametrize("profile", CATALOGUE.profiles, ids=lambda profile: profile.id)
def test_a_row_that_needs_no_hardware_is_not_excluded_for_the_lack_of_it(profile: Profile) -> None:
    for name in ("hosts.conformance", "hosts.accelerator-use", "hosts.metadata"):
        requirement = next(entry for entry in CATALOGUE.requirements if entry.id == name)
        assert "hardware" not in profile.excludes(requirement)


def test_every_section_of_the_scenarios_is_in_it() -> None:
    proven = {name for check in shipped_check_ids() for name in CATALOGUE.proven_by(check)}
    sections = " ".join(r.section for r in CATALOGUE.requirements if r.id in proven)
    assert all(f"§4.{number}" in sections for number in (8, 9, 10))
    assert len(load(find())) == 37


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("- id: hardware.gpus\n", "- id: hardware.systems\n", "`hardware.systems` is there twice"),
        ("- id: hardware.gpus\n", "- id: gpus\n", "`gpus`: write PART.NAME"),
        ("- requirements: [dra.selinux]", '- requirements: ["dra.*"]', r"`dra.*` is no requirement"),
        (
            "[hosts.accelerator-use, hosts.metadata]",
            "[hosts.conformance]",
            "`hosts.conformance` is there twice",
        ),
        ("reason: the lab has no hardware", 'reason: " "', "needs a reason"),
        ("  claim: The data is on one AFF A800.", "  clame: x", "unknown key `clame`"),
    ],
)
def test_an_error_names_file_and_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = PATH.read_text()
    assert old in text
    path = tmp_path / "catalogue.yaml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(CatalogueError, match=r"catalogue\.yaml:\d+: ") as error:
        load_catalogue(path)
    assert message in str(error.value)


def test_the_profile_of_the_lab_is_not_for_a_cluster() -> None:
    with pytest.raises(CatalogueError, match="the profile `lab` is not for the target cluster"):
        open_acceptance("lab", [], CLUSTER)
    with pytest.raises(CatalogueError, match="there is no profile `labs`; there are: lab, tr4858, current"):
        open_acceptance("labs", [], LAB)


def test_a_part_selects_the_scenarios_that_prove_it_and_those_they_continue() -> None:
    chosen = open_acceptance("", ["fairness"], LAB).select(load(find()))
    assert [scenario.id for scenario in chosen] == ["tr4858-4.8", "tr4858-4.9", "tr4858-4.10"]
