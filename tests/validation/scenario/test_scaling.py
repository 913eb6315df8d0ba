"""Scenarios for sites of other sizes request the same portions of them; oracle and planner
reach the expected states.
"""

import re
from pathlib import Path

import pytest

from musterlab import profiles
from tests.validation.headlines import pass_headline
from tests.validation.replay import TR4858, VICTIM, run_command, settings
from validation.errors import ScenarioError
from validation.judge.scheduling.expectation import contradictions
from validation.plan.plan_document import document
from validation.planned_checks import plan
from validation.report import record
from validation.report.log import read_log
from validation.report.sources import compare
from validation.report.verify import verify
from validation.run.session import Settings, acceptance_of
from validation.scenario.commands import Submit
from validation.scenario.loader import find, load
from validation.scenario.scaling import Size, parse_size
from validation.scenario.schema import Cluster
from validation.targets.sized_profile import profile_of


def test_the_papers_own_size_is_as_printed() -> None:
    assert load(find(), Size(2, 8)) == load(find())
    assert all(not scenario.size for scenario in load(find()))


@pytest.mark.parametrize("text", ["1x8", "2x2", "2x4", "4x4", "4x8", "8x8"])
def test_quotas_and_expectations_are_the_same_parts_of_the_site(text: str) -> None:
    size = parse_size(text)
    for printed, scaled in zip(load(find()), load(find(), size), strict=True):
        assert {name: quota * 16 for name, quota in scaled.quotas_milli.items()} == {
            name: quota * size.gpus for name, quota in printed.quotas_milli.items()
        }
        for step in scaled.steps:
            assert contradictions(step.expectation, step.division, step.excused) == []
            assert step.least.gpus == size.gpus
            requests = [c.action.gpu_milli for c in step.commands if isinstance(c.action, Submit)]
            assert all(
                milli < 1000 or (milli % 1000 == 0 and milli <= size.gpus_per_node * 1000)
                for milli in requests
            )
        if not scaled.scenario.layers:
            assert scaled.size == text


def test_the_papers_last_state_on_eight_dgx() -> None:
    scenario = next(s for s in load(find(), Size(8, 8)) if s.id == "tr4858-4.10")
    expected = scenario.steps[-1].expectation
    assert expected.allocated_milli == {"team-a": 32_000, "team-b": 16_000, "team-c": 16_000, "team-d": 0}
    assert expected.gpus_in_use == 64
    lines = [command.line for command in scenario.steps[0].commands]
    assert lines[0].startswith("muster submit a-3-gg --parallelism 4 --completions 4 --min-member 4 ")
    assert "-g 2 " in lines[0]


@pytest.mark.parametrize("size", [Size(8, 8), Size(2, 4)], ids=str)
def test_the_planner_reaches_every_state_on_other_sites(size: Size, tmp_path: Path) -> None:
    chosen = Settings(out=tmp_path / "r", target="planner", size=size)
    code, report = run_command(find(), chosen)
    assert report is not None
    assert code == 0, report.summary
    assert report.headline == pass_headline(22, "all that apply to the profile planner")
    assert verify(tmp_path / "r").problems == []
    assert f"scaled to {size} GPUs" in (tmp_path / "r/report.html").read_text()
    opened = read_log(tmp_path / "r").opened.report
    assert compare(opened).problems == []
    opened.scenarios[-1].size = "1x8"
    assert compare(opened).problems
    opened.scenarios[-1].size = "eight"
    assert compare(opened).problems


def test_the_plan_to_sign_says_the_size() -> None:
    text = document(acceptance_of(settings(Path("r"))), plan(load([VICTIM], Size(8, 8))))
    assert "- scenarios are scaled to 8x8 GPUs (nodes, and GPUs of each)" in text


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (Size(3, 8), "cannot be scaled to 3x8 GPUs: 24 is neither a multiple nor a part of 16: cordon nodes"),
        (Size(1, 1), "cannot be scaled to 1x1 GPUs: .* no whole GPUs, nor thousandths"),
    ],
)
def test_a_scenario_that_cannot_be_scaled_is_refused_with_the_file(size: Size, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        load(find([TR4858]), size)


@pytest.mark.parametrize("text", ["8", "x8", "8x", "0x8", "8x-1", "8 x 8", ""])
def test_a_text_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size such as 8x8"):
        parse_size(text)


def test_a_lab_has_nodes_of_the_size(tmp_path: Path) -> None:
    profile = profiles.load(profile_of(Cluster("dgx1-v100-32g", 2, 4), tmp_path))
    assert (profile.capacity["nvidia.com/gpu"], profile.prefix) == ("4", "dgx1")
    assert profile_of(Cluster("dgx1-v100-32g", 8, 8), tmp_path) == "dgx1-v100-32g"


def test_the_record_of_a_run_as_printed_has_no_size(tmp_path: Path) -> None:
    run_command([VICTIM], Settings(out=tmp_path / "r", target="planner"))
    assert b'"size"' not in (tmp_path / "r/report.json").read_bytes()
    assert record.read(tmp_path / "r").verdict == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("size", "amounts"),
    [(None, ("13", "16 of 16")), ("1x8", ("6.5", "8 of 8")), ("8x8", ("52", "64 of 64"))],
)
def test_titles_have_the_amounts_of_the_size(size: str | None, amounts: tuple[str, str]) -> None:
    scenarios = load(find(), None if size is None else parse_size(size))
    titles = {f"{one.id}/{step.id}": step.title for one in scenarios for step in one.steps}
    idle, full = amounts
    assert (
        titles["muster-interactive/cap"]
        == f"A second interactive workload is pending although {idle} GPUs are idle"
    )
    assert titles["tr4858-4.8/full"] == f"The cluster is full, {full} GPUs; no workload is pending"
    assert not [title for title in titles.values() if "{" in title]


def test_no_title_has_an_amount_that_is_not_scaled() -> None:
    words = "two|three|four|six|eight|twelve|sixteen"
    amount = re.compile(
        rf"(?<![\w{{.-])(?:\d*\.?\d+|(?:{words}) (?:more |other )?(?:GPUs|nodes|pods))(?![\w}}])"
    )
    titles = [line for path in find() for line in path.read_text().splitlines() if "  title: " in line]
    assert len(titles) > 60
    assert [line for line in titles if amount.search(line)] == []
