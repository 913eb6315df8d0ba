"""Errors of scenario files and their positions, and the agreement of shipped scenarios with the oracle."""

from pathlib import Path

import pytest

from validation.errors import ScenarioError
from validation.judge.scheduling.expectation import contradictions
from validation.scenario.builder import load_errata
from validation.scenario.loaded import SHIPPED
from validation.scenario.loader import chains, find, load, select
from validation.scenario.scaling import Size

GOOD = """\
apiVersion: muster.dev/v1alpha1
kind: Scenario
metadata: {id: one, title: One, source: here}
cluster: {profile: dgx1-v100-32g, nodes: 1, gpusPerNode: 8}
projects:
  p: {quota: 0.3}
  q: {quota: 4}
steps:
- id: first
  title: First
  source: here
  run:
  - muster submit a -g 0.3 --interactive -p p
  expect:
    allocated: {p: 0.3, q: 0}
    pending: []
"""


def written(directory: Path, text: str, name: str = "one") -> Path:
    path = directory / f"{name}.scenario.yaml"
    path.write_text(text)
    return path


def test_fractions_of_a_file_are_exact(tmp_path: Path) -> None:
    (scenario,) = load([written(tmp_path, GOOD)])
    assert scenario.quotas_milli == {"p": 300, "q": 4000}
    assert scenario.steps[0].expectation.allocated_milli == {"p": 300, "q": 0}
    assert (scenario.steps[0].within_ms, scenario.steps[0].hold_ms) == (60_000, 3000)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("  title: First", "  titel: First", 10, "unknown key `titel` (at steps.0.titel)"),
        ("    pending: []", "    pendng: []", 16, "unknown key `pendng`"),
        ("nodes: 1", "nodes: one", 4, "Expected `int`, got `str` (at cluster.nodes)"),
        ("  q: {quota: 4}", "  q: {quota: much}", 5, "(at projects)"),
        ("  q: {quota: 4}", "  q: {quota: 9}", 5, "the quotas sum to 9.3 GPUs, the cluster has 8"),
        ("  q: {quota: 4}", "  q: {quota: 0.1234}", 7, "at most three places"),
        ("  q: {quota: 4}", "  p: {quota: 4}", 7, "key `p` is there twice"),
        ("{p: 0.3, q: 0}", "{p: 0.3, r: 0}", 15, "unknown project `r` in expect"),
        ("pending: []", "pending: [b]", 16, "unknown workload `b` in expect"),
        ("pending: []", "evicted: [b]", 16, "unknown workload `b` in expect"),
        ("pending: []", "orElse: [{pending: [b]}]", 16, "unknown workload `b` in expect"),
        ("pending: []", "orElse: [{ended: [a]}]", 16, "another state has no `ended`"),
        (
            "pending: []",
            "orElse: [{orElse: [{pending: [a]}]}]",
            16,
            "another state has no `ended` and no `orElse`",
        ),
        ("-p p\n", "-p r\n", 13, "unknown project `r`"),
        ("-p p\n", "\n", 13, "names no project"),
        ("  title: First", "  title: First\n  defaultProject: r", 11, "unknown project `r`"),
        ("--interactive", "--interactiv", 13, "option --interactiv is not known"),
        ("-g 0.3 --i", "-g x --i", 13, "-g x is not a number"),
        ("muster submit a", "rm -rf a", 13, "a step runs `muster submit"),
        (
            "muster submit a -g 0.3 --interactive",
            "muster delete a",
            13,
            "deletes `a`, which no earlier line submits",
        ),
        ("  title: First", "  title: First\n  within: soon", 11, "`soon` is not a duration"),
        ("kind: Scenario", "kind: Story", 2, "Invalid enum value 'Story' (at kind)"),
        ("source: here}", "source: here, errata: [E1]}", 3, "unknown erratum `E1`"),
        ("kind: Scenario", "kind: Scenario\ncontinues: two", 3, "cannot continue `two`"),
        ("kind: Scenario", "kind: Scenario\nviews: [jobs/p/b]", 3, "no step leaves a job `b` in `p`"),
        (
            "kind: Scenario",
            "kind: Scenario\nviews: [job]",
            3,
            "unknown or repeated view `job`; there are: ",
        ),
        ("kind: Scenario", "kind: [", 4, "expected"),
        ("nodes: 1", "nodes: 09", 4, "Expected `int`, got `str`"),
    ],
)
def test_an_error_names_file_and_line(tmp_path: Path, old: str, new: str, line: int, message: str) -> None:
    assert old in GOOD
    path = written(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(ScenarioError) as error:
        load([path])
    assert str(error.value).startswith(f"{path}:{line}: ")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[version]", "[version, version]", "unknown or repeated `version`; there are: version, claim"),
        ("[version]", "[versions]", "unknown or repeated `versions`"),
        ("api:", "projects: {p: {quota: 1}}\napi:", "has a `cluster`, and nothing else"),
        ("api:", "views: [jobs]\napi:", "has a `cluster`, and nothing else"),
        ("cluster: {profile: dgx1-v100-32g, nodes: 1, gpusPerNode: 8}\n", "", "has a `cluster`, and nothing else"),
        ("api:", "layers: [gpus]\napi:", "a scenario with `layers` has nothing else"),
    ],
)  # fmt: skip
def test_requests_have_a_cluster_and_nothing_else(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = GOOD[: GOOD.index("projects:")] + "api: [version]\n"
    assert old in text
    (scenario,) = load([written(tmp_path, text)], Size(8, 8))
    assert (scenario.cluster.nodes, scenario.size, scenario.least.gpus) == (8, "8x8", 64)
    with pytest.raises(ScenarioError) as error:
        load([written(tmp_path, text.replace(old, new, 1))])
    assert message in str(error.value)


def test_two_steps_of_one_name_are_refused(tmp_path: Path) -> None:
    step = GOOD[GOOD.index("- id: first") :].replace("submit a ", "submit b ")
    with pytest.raises(ScenarioError, match=r":17: duplicate or reserved step id `first`"):
        load([written(tmp_path, GOOD + step)])


def test_two_scenarios_of_one_name_are_refused(tmp_path: Path) -> None:
    paths = [written(tmp_path, GOOD), written(tmp_path, GOOD, "two")]
    with pytest.raises(ScenarioError, match=r"two\.scenario\.yaml:3: duplicate scenario id `one`"):
        load(paths)


def test_a_circle_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD.replace("kind: Scenario", "kind: Scenario\ncontinues: one"))
    with pytest.raises(ScenarioError, match="cannot continue `one`"):
        load([path])


def test_an_empty_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"no \.scenario\.yaml file below"):
        find([tmp_path])


def test_selecting_a_scenario_pulls_those_it_continues() -> None:
    scenarios = load(find())
    assert [scenario.id for scenario in select(scenarios, ["*-4.10"])] == [
        "tr4858-4.8",
        "tr4858-4.9",
        "tr4858-4.10",
    ]
    both = select(scenarios, ["muster-victim", "*-4.9", "muster-*im", "muster-gang"])
    assert [scenario.id for scenario in both] == ["tr4858-4.8", "tr4858-4.9", "muster-gang", "muster-victim"]
    assert select(scenarios, []) == scenarios
    with pytest.raises(ScenarioError, match=r"no scenario matches `x`; there are: hosts, dra, "):
        select(scenarios, ["muster-gang", "x"])


def test_the_shipped_scenarios_are_a_chain_of_the_paper_one_of_projects_and_isolated_ones() -> None:
    groups = [[scenario.id for scenario in group] for group in chains(load(find()))]
    assert groups[0] == ["hosts"]
    assert groups[1:4] == [["dra"], ["installation"], ["other-client"]]
    assert groups[4] == ["tr4858-4.8", "tr4858-4.9", "tr4858-4.10"]
    projects = ["muster-projects", "muster-projects-changed", "muster-projects-deleted"]
    assert [group for group in groups[5:] if len(group) > 1] == [
        ["build1", "build1-deleted"],
        ["hyper1", "hyper1-deleted"],
        ["pvc-test", "pvc-test-deleted", "pvc-test-cloned"],
        projects,
    ]
    assert groups[-1] == ["hosts-after"]
    assert len(groups) == 29


def test_every_shipped_expectation_follows_from_quotas_alone() -> None:
    for scenario in load(find()):
        for step in scenario.steps:
            assert contradictions(step.expectation, step.division) == [], f"{scenario.id}/{step.id}"


def test_no_scenario_of_ours_needs_an_image_that_is_on_the_nodes_already() -> None:
    ours = [scenario for scenario in load(find([])) if "muster" in scenario.path.parts[-2:]]
    lines = [command.line for scenario in ours for step in scenario.steps for command in step.commands]
    assert len(lines) > 10
    assert not [line for line in lines if "--local-image" in line]


def test_the_commands_of_the_paper_are_all_there() -> None:
    steps = [step for scenario in load(find()) if scenario.id.startswith("tr4858") for step in scenario.steps]
    submitted = [
        command.line.split()[2]
        for step in steps
        for command in step.commands
        if command.line.startswith("muster submit")
    ]
    assert submitted == [
        "a-1-1-jupyter",
        "a-1-g",
        "a-2-gg",
        "b-1-g06",
        "b-2-g04",
        "b-3-g",
        "b-4-gg",
        "c-1-g05",
        "c-2-g03",
        "c-3-g02",
        "c-4-gg",
        "c-5-g",
        "d-1-gggg",
        "d-2-gg",
        "d-3-gg",
        "a-3-gg",
        "a-4-gg",
        "b-5-gg",
        "c-6-gg",
    ]
    assert [command.line for command in steps[-1].commands] == [
        "muster delete -p team-d d-1-gggg d-2-gg d-3-gg"
    ]


def test_every_erratum_is_complete_and_most_are_cited() -> None:
    errata = load_errata(SHIPPED / "tr4858")
    assert [erratum.id for erratum in errata] == [f"E{number}" for number in range(1, 10)]
    cited = {erratum.id for scenario in load(find()) for erratum in scenario.errata}
    assert cited == {erratum.id for erratum in errata} - {"E5"}


NEXT = """\
apiVersion: muster.dev/v1alpha1
kind: Scenario
metadata: {id: two, title: Two, source: here}
continues: one
projects:
  q: {quota: 2}
steps:
- id: second
  title: Second
  source: here
  run: []
  expect: {allocated: {p: 0.3}}
"""


def test_a_scenario_that_continues_another_changes_and_deletes_its_projects(tmp_path: Path) -> None:
    changed = load([written(tmp_path, GOOD), written(tmp_path, NEXT, "two")])[-1]
    assert changed.quotas_milli == {"p": 300, "q": 2000}
    deleting = NEXT.replace("{quota: 2}", "{quota: null}")
    deleted = load([written(tmp_path, GOOD), written(tmp_path, deleting, "two")])[-1]
    assert deleted.quotas_milli == {"p": 300}
    assert deleted.steps[0].expectation.allocated_milli == {"p": 300}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{quota: 2}", "{quota: 4}", "project `q` has that quota already in the scenario before"),
        ("  q: {quota: 2}", "  r: {quota: null}", "there is no project `r` to delete in the scenario before"),
        ("  q: {quota: 2}", "  p: {quota: null}", "project `p` has jobs, `a` first: delete them before"),
        ("{quota: 2}", "{quota: 8}", "the quotas sum to 8.3 GPUs, the cluster has 8"),
        (
            "{quota: 2}",
            "{quota: 2, interactiveTimeLimit: 1m}",
            "`q` is there already: only its quota can change",
        ),
        ("projects:", "nodeTypes: [blue]\nprojects:", "`nodeTypes` are those of the scenario before"),
    ],
)
def test_projects_that_cannot_be_changed_so_are_named(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in NEXT
    paths = [written(tmp_path, GOOD), written(tmp_path, NEXT.replace(old, new), "two")]
    with pytest.raises(ScenarioError, match=r"two\.scenario\.yaml:\d+: ") as error:
        load(paths)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("project", "message"),
    [
        ("{quota: 4, interactiveTimeLimit: soon}", "`soon` is not a duration such as 500ms, 30s or 2m"),
        ("{quota: 4, interactiveTimeLimit: 0s}", "`0s` is no time in whole seconds"),
        ("{quota: 4, interactiveTimeLimit: 500ms}", "`500ms` is no time in whole seconds"),
        ("{quota: 4, trainNodeTypes: [red]}", "unknown group `red`"),
        ("{quota: 4, interactiveNodeTypes: [blue, red]}", "unknown group `red`"),
    ],
)
def test_limits_that_cannot_be_are_named(tmp_path: Path, project: str, message: str) -> None:
    text = GOOD.replace("q: {quota: 4}", f"q: {project}").replace("projects:", "nodeTypes: [blue]\nprojects:")
    with pytest.raises(ScenarioError, match=r"scenario\.yaml:\d+: ") as error:
        load([written(tmp_path, text)])
    assert message in str(error.value)
    with pytest.raises(ScenarioError, match="a group is there twice"):
        load([written(tmp_path, GOOD.replace("projects:", "nodeTypes: [blue, blue]\nprojects:"))])


LIMITED = """\
apiVersion: muster.dev/v1alpha1
kind: Scenario
metadata: {id: limited, title: Limited, source: here}
cluster: {profile: dgx1-v100-32g, nodes: 1, gpusPerNode: 8}
projects:
  p: {quota: 2, interactiveTimeLimit: 2m, trainNodeTypes: [blue], interactiveNodeTypes: [blue]}
nodeTypes: [blue]
steps:
- {id: a, title: A, source: here, run: [muster submit n -g 2 --interactive -p p], expect: {}}
- {id: b, title: B, source: here, run: [], expect: {ended: [n]}}
- {id: c, title: C, source: here, run: [muster submit m -g 2 --interactive -p p], expect: {ended: [n]}}
- {id: d, title: D, source: here, run: [muster delete n -p p], expect: {}}
"""


def test_a_job_that_had_its_time_requests_nothing_and_exists_until_it_is_deleted(tmp_path: Path) -> None:
    (scenario,) = load([written(tmp_path, LIMITED)])
    project = scenario.projects["p"]
    assert project.options == (
        "-g 2 --interactive-time-limit 120s --train-node-type blue --interactive-node-type blue"
    )
    expected = [
        (sorted(s.expectation.ended_jobs), s.expectation.running, len(s.demands)) for s in scenario.steps
    ]
    assert expected == [([], 1, 1), (["n"], 0, 0), (["n"], 1, 1), ([], 1, 1)]
    with pytest.raises(ScenarioError, match="unknown workload `x`"):
        load([written(tmp_path, LIMITED.replace("ended: [n]", "ended: [x]", 1))])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("muster project update q -g 9", ""),
        ("muster project update x -g 9", "unknown project `x`"),
        ("muster project create x -g 9", "a refused command must be `muster project update NAME -g QUOTA`"),
        (
            "muster project update q -g 9 --limit 10",
            "a refused command must be `muster project update NAME -g QUOTA`",
        ),
        ("muster delete a -p p", "a refused command must be `muster project update NAME -g QUOTA`"),
    ],
)
def test_a_refused_command_sets_a_quota_of_an_existing_project(
    tmp_path: Path, line: str, message: str
) -> None:
    path = written(tmp_path, GOOD.replace("  run:\n", f"  refused: [{line}]\n  run:\n", 1))
    if not message:
        (scenario,) = load([path])
        assert scenario.steps[0].refused == (line,)
        return
    with pytest.raises(ScenarioError, match=r"scenario\.yaml:\d+: ") as error:
        load([path])
    assert message in str(error.value)


def test_a_weight_is_given_to_the_command_and_to_the_oracle(tmp_path: Path) -> None:
    (scenario,) = load([written(tmp_path, GOOD.replace("{quota: 4}", "{quota: 4, weight: 1.5}"))])
    assert {name: project.options for name, project in scenario.projects.items()} == {
        "p": "-g 0.3",
        "q": "-g 4 --over-quota-weight 1.5",
    }
    assert scenario.projects["q"].claim("q").share_weight == 1500
    assert scenario.projects["p"].claim("p").share_weight == 300
    with pytest.raises(ScenarioError, match="is not a number of GPUs"):
        load([written(tmp_path, GOOD.replace("{quota: 4}", "{quota: 4, weight: 0.0001}"))])


def test_the_first_scenario_deletes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="there is no project `q` to delete"):
        load([written(tmp_path, GOOD.replace("q: {quota: 4}", "q: {quota: null}"))])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("drain: {nodesOf: [a], gpus: 1}", "the last step leaves nodes cordoned: `uncordon` them"),
        ("drain: {nodesOf: [b], gpus: 1}", "`drain`: there is no job `b`"),
        ("drain: {nodesOf: [], gpus: 1}", "`drain`: there is no job"),
        ("drain: {nodesOf: [a], gpus: 0.5}", "`drain`: 0.5 is no whole number of GPUs"),
        ("drain: {nodesOf: [a], gpus: 4}", "the nodes that stay have fewer GPUs than the quotas"),
        ("uncordon: true", "`uncordon`: no node is cordoned"),
        ("uncordon: true\n  restartOperator: true", "one of `drain`, `uncordon` and `restartOperator`"),
    ],
)
def test_impossible_work_of_an_administrator_is_refused(tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=r"scenario\.yaml:\d+: ") as error:
        load([written(tmp_path, GOOD.replace("  expect:", f"  {more}\n  expect:"))])
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("  restartOperator: true\n", "without commands no pod is evicted"),
        ("  drain: {nodesOf: [a], gpus: 1}\n", "nodes are cordoned already"),
    ],
)
def test_a_second_step_of_an_administrator_is_checked_by_the_first(
    tmp_path: Path, more: str, message: str
) -> None:
    drained = GOOD.replace("  expect:", "  drain: {nodesOf: [a], gpus: 1}\n  expect:")
    second = "- id: second\n  title: Second\n  source: here\n" + more + "  expect: {allocated: {p: 0.3}}\n"
    with pytest.raises(ScenarioError) as error:
        load([written(tmp_path, drained + second)])
    assert message in str(error.value)


def test_the_oracle_has_the_remaining_nodes_and_then_all_again(tmp_path: Path) -> None:
    drained = GOOD.replace("  expect:", "  drain: {nodesOf: [a], gpus: 1}\n  expect:")
    second = (
        "- id: second\n  title: Second\n  source: here\n  uncordon: true\n  expect: {allocated: {p: 0.3}}\n"
    )
    (scenario,) = load([written(tmp_path, drained + second)])
    assert [step.capacity_milli for step in scenario.steps] == [7000, 8000]
