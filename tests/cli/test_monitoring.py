"""The shipped dashboards and rules: every metric that they name exists, and promtool finds no fault."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from musterweb.prometheus import PROJECT_QUERIES
from orchestrator.agent import metrics as agent
from orchestrator.agent.host_health import HostReading
from orchestrator.agent.metrics import AgentFigures, render
from orchestrator.agent.model import Gpu, GpuReading, NodeReading, Sample
from orchestrator.cli.monitoring import monitoring_files
from orchestrator.control.report import metrics as operator
from tests.agent.test_metrics import full_reading
from tests.control.report.test_metrics import NOW, SECOND_US, leader, reading
from tests.planner.builders import project, workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Outcome

ROOT = Path(__file__).resolve().parents[2]
CASES_FILE = Path(__file__).parent / "monitoring_cases.yaml"
CASES = yaml.safe_load(CASES_FILE.read_text())
FILES = monitoring_files()
RULES = yaml.safe_load(FILES["muster-rules.yaml"])
DASHBOARDS = {name: json.loads(text) for name, text in FILES.items() if name.endswith(".json")}
NAME = re.compile(r"\b(?:[a-z_]+:)?(?:muster|process)_\w+(?::\w+)?")
STRING = re.compile(r'"[^"]*"')
promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="Debian's package prometheus is not installed"
)


def rules() -> list[dict[str, Any]]:
    return [rule for group in RULES["groups"] for rule in group["rules"]]


def known() -> set[str]:
    series = {series for metric in (*operator.METRICS, *agent.METRICS) for series in metric.series}
    return series | {rule["record"] for rule in rules() if "record" in rule}


def expressions() -> dict[str, str]:
    """Return every expression of panels and rules, by its location."""
    panels = {
        f"{name}: {panel['title']} {target['refId']}": target["expr"]
        for name, board in DASHBOARDS.items()
        for panel in board["panels"]
        for target in panel["targets"]
    }
    return panels | {f"rule {rule.get('record') or rule['alert']}": rule["expr"] for rule in rules()}


def labels() -> dict[str, set[str]]:
    return {
        series: set(metric.labels) | {"instance", "node", "le"}
        for metric in (*operator.METRICS, *agent.METRICS)
        for series in metric.series
    }


@pytest.mark.parametrize("where", expressions())
def test_every_metric_that_an_expression_names_exists(where: str) -> None:
    names = set(NAME.findall(STRING.sub('""', expressions()[where])))
    assert names, "an expression is about a metric"
    assert names <= known()


@pytest.mark.parametrize("where", expressions())
def test_every_label_that_an_expression_chooses_by_is_one_of_its_metric(where: str) -> None:
    for name, chosen in re.findall(r"(\w+)\{([^}]*)\}", expressions()[where]):
        of_metric = labels().get(name)
        if of_metric is not None:
            assert set(re.findall(r"(\w+)\s*[=!]", chosen)) <= of_metric


def test_variables_of_dashboards_exist_and_panels_have_numbers_of_their_own() -> None:
    for name, board in DASHBOARDS.items():
        variables = {variable["name"] for variable in board["templating"]["list"]}
        assert set(re.findall(r"\$\{?(\w+)", json.dumps(board["panels"]))) <= variables, name
        numbers = [panel["id"] for panel in board["panels"]]
        assert len(numbers) == len(set(numbers)), name
        for variable in board["templating"]["list"]:
            assert set(NAME.findall(variable["query"])) <= known()


def test_every_alert_says_how_bad_it_is_and_names_the_next_step() -> None:
    alerts = [rule for rule in rules() if "alert" in rule]
    assert len({rule["alert"] for rule in alerts}) == len(alerts)
    for rule in alerts:
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert set(rule["annotations"]) == {"summary", "description"}


def test_the_command_writes_them_and_says_where(muster: Callable[..., Outcome], tmp_path: Path) -> None:
    directory = tmp_path / "new" / "here"
    outcome = muster("monitoring", str(directory))
    assert {Path(line).name for line in outcome.lines} == set(FILES)
    assert {file.name: file.read_text() for file in directory.iterdir()} == FILES
    (tmp_path / "file").write_text("")
    refused = muster("monitoring", str(tmp_path / "file" / "below"))
    assert (refused.code, refused.err.count("\n")) == (2, 1)


def check(*words: str, given: str = "") -> None:
    done = subprocess.run(["promtool", *words], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.strip() == "", done.stderr


@promtool
def test_promtool_finds_nothing_to_say_of_the_rules(tmp_path: Path) -> None:
    file = tmp_path / "muster-rules.yaml"
    file.write_text(FILES["muster-rules.yaml"])
    check("check", "rules", "--lint=all", "--lint-fatal", str(file))


@promtool
def test_alerts_are_given_when_they_should_be(tmp_path: Path) -> None:
    (tmp_path / "muster-rules.yaml").write_text(FILES["muster-rules.yaml"])
    cases = tmp_path / "cases.yaml"
    cases.write_text(CASES_FILE.read_text())
    check("test", "rules", str(cases))


def test_every_alert_has_a_case_in_which_it_is_given_and_is_not_before_or_after() -> None:
    both: set[str] = set()
    for group in CASES["tests"]:
        given: dict[str, set[bool]] = {}
        for case in group.get("alert_rule_test", ()):
            given.setdefault(case["alertname"], set()).add(bool(case.get("exp_alerts")))
        both |= {name for name, outcomes in given.items() if len(outcomes) == 2}
    assert both == {rule["alert"] for rule in rules() if "alert" in rule}


def test_every_alert_names_commands_that_exist() -> None:
    named = [
        words
        for rule in rules()
        if "alert" in rule
        for words in re.findall(r"\bmuster( [a-z-]+(?: [a-z]+)?)", rule["annotations"]["description"])
    ]
    assert named
    reference = (ROOT / "docs" / "reference" / "cli.md").read_text()
    used = re.findall(r"^    muster( .+)$", reference, re.MULTILINE)
    assert " get [OPTIONS] [job|node|project|template] NAME" in used
    used += [" get node"]
    assert [words for words in named if not any(line.startswith(words) for line in used)] == []


def before_anything() -> set[str]:
    """Return the names of all series of a new operator and a new agent."""
    pages = [
        leader(reading((project("team-a", 3000),), ())).page().text,
        render(
            NodeReading((GpuReading(Gpu(0), Sample(), full_reading().gpus[0].upkeep),)),
            AgentFigures(),
            HostReading(counters={"mlx5_0/1 link_downed": 0}),
        ),
    ]
    return {re.split(r"[{ ]", line)[0] for page in pages for line in page.splitlines() if line[0] != "#"}


@pytest.mark.parametrize("where", [*expressions(), *PROJECT_QUERIES])
def test_shown_counters_exist_from_the_beginning(where: str) -> None:
    """The first value of a counter is no increase, so a counter that began at 1 would hide one event."""
    text = expressions().get(where) or PROJECT_QUERIES[where]
    counters = {metric.name for metric in (*operator.METRICS, *agent.METRICS) if metric.kind == "counter"}
    names = {name for name in NAME.findall(STRING.sub('""', text)) if name in counters}
    names |= set(re.findall(r"(?:increase|rate)\((\w+)", text))
    assert names <= before_anything()


def test_no_counter_but_that_of_xids_begins_later() -> None:
    counters = {
        series
        for metric in (*operator.METRICS, *agent.METRICS)
        if metric.kind != "gauge"
        for series in metric.series
    }
    assert counters - before_anything() == {agent.XID_ERRORS.name}, (
        "of which alerts and dashboards show the time"
    )


@promtool
def test_promtool_finds_nothing_to_say_of_the_pages() -> None:
    job = workload("a1", "team-a", 1000, age=(NOW - 100) * SECOND_US)
    department = (project("dep", 8000), project("team-a", 3000, parent="dep", limit_gpu_milli=4000))
    metrics = leader(reading(department, (job,)))
    metrics.bound("a1-0")
    check("check", "metrics", given=metrics.page().text)
    check("check", "metrics", given=render(full_reading(), AgentFigures(1, {("GpuNode", "ok"): 1})))


@promtool
def test_promtool_takes_the_scrape_configuration(tmp_path: Path) -> None:
    """Debian's build has no Kubernetes discovery: an address replaces that part."""
    document = yaml.safe_load(FILES["muster-scrape.yaml"])
    (job,) = document["scrape_configs"]
    assert list(job.pop("kubernetes_sd_configs")[0]) == ["role", "namespaces"]
    job["static_configs"] = [{"targets": ["127.0.0.1:8080"]}]
    file = tmp_path / "prometheus.yaml"
    file.write_text(yaml.safe_dump(document))
    check("check", "config", str(file))
