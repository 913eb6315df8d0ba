"""The dashboards and rules that ship: every metric that they name exists, and promtool finds nothing to say of them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from orchestrator.agent import metrics as agent
from orchestrator.agent.metrics import AgentFigures, render
from orchestrator.cli.monitoring import monitoring_files
from orchestrator.control import metrics as operator
from tests.agent.test_metrics import full_reading
from tests.control.test_metrics import NOW, SECOND_US, leader, reading
from tests.planner.builders import project, workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Outcome

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
    """Every expression of panels and rules, by where it stands."""
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


def test_every_alert_says_how_bad_it_is_and_what_to_do() -> None:
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
    cases.write_text((Path(__file__).parent / "monitoring_cases.yaml").read_text())
    check("test", "rules", str(cases))


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
    """Debian's build knows no Kubernetes: that part is put in place of by an address."""
    document = yaml.safe_load(FILES["muster-scrape.yaml"])
    (job,) = document["scrape_configs"]
    assert list(job.pop("kubernetes_sd_configs")[0]) == ["role", "namespaces"]
    job["static_configs"] = [{"targets": ["127.0.0.1:8080"]}]
    file = tmp_path / "prometheus.yaml"
    file.write_text(yaml.safe_dump(document))
    check("check", "config", str(file))
