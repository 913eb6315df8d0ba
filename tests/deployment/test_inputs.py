"""The hosts on which a stage is due: those that were added, those that are left, or all."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployment import content, playbook, site_file
from deployment.content import Content
from deployment.inputs import SiteInputs
from deployment.journal import FAILED, INTERRUPTED, REMOVED, VERIFIED, Journal, StageRecord
from deployment.plan import digest_of
from deployment.playbook import Stage
from deployment.records import Records
from orchestrator.progress import as_reporter

HOSTS = ("mgmt01", "dgx01", "dgx02")
CONTENT = content.find()
STAGES = {stage.name: stage for stage in playbook.read(CONTENT)}


def inputs(directory: Path, hosts: tuple[str, ...], **more: Any) -> SiteInputs:
    """Return the inputs of a site with these hosts: mgmt01 is the control plane, the others have GPUs."""
    document = {
        "schema": 1, "name": "here",
        "versions": {"kubernetes": "1.35.4", "deepops": "26.07", "driver": "580", "container_toolkit": "1.20.0"},
        "hosts": {
            name: {
                "address": f"10.0.0.{number}", "os": "ubuntu-24.04", "model": "generic",
                "roles": ["control_plane", "etcd"] if name == "mgmt01" else ["gpu"],
            } for number, name in enumerate(hosts, start=1)
        }, **more,
    }  # fmt: skip
    (directory / "site.yml").write_text(yaml.safe_dump(document))
    return SiteInputs(site_file.load(directory), CONTENT, directory / "state", None)


def record(made: SiteInputs, stage: Stage, result: str = VERIFIED, left: tuple[str, ...] = ()) -> StageRecord:
    """Return the record of a stage that ended with these inputs."""
    found = made.of(stage, made.site.hosts)
    return StageRecord(stage.name, result, "then", "install", digest_of(found), found, left=list(left))


@pytest.mark.parametrize(
    ("stage", "works_on", "due"),
    [("driver", ("dgx01", "dgx02", "new01"), frozenset({"new01"})),
     ("deepops", (*HOSTS, "new01"), frozenset({"new01"})),
     ("orchestrator", (), frozenset({"new01"})), ("verify", (), None)],
)  # fmt: skip
@pytest.mark.parametrize("proxy", [{}, {"network": {"proxy": {"http": "http://proxy.example.com:3128"}}}])
def test_a_stage_is_due_on_the_hosts_that_were_added(
    tmp_path: Path, stage: str, works_on: tuple[str, ...], due: frozenset[str] | None, proxy: dict[str, Any]
) -> None:
    before = record(inputs(tmp_path, HOSTS, **proxy), STAGES[stage])
    assert inputs(tmp_path, HOSTS, **proxy).due(STAGES[stage], works_on, before) == frozenset()
    assert inputs(tmp_path, (*HOSTS, "new01"), **proxy).due(STAGES[stage], works_on, before) == due


def test_it_is_due_on_all_where_more_has_changed(tmp_path: Path) -> None:
    driver, bigger = STAGES["driver"], (*HOSTS, "new01")
    before = record(inputs(tmp_path, HOSTS), driver)
    versions = {"kubernetes": "1.35.4", "deepops": "26.07", "driver": "590"}
    assert inputs(tmp_path, bigger, versions=versions).due(driver, bigger, before) is None
    assert inputs(tmp_path, ("mgmt01", "dgx01", "new01")).due(driver, bigger, before) is None, (
        "dgx02 is not there"
    )
    assert inputs(tmp_path, bigger).due(driver, bigger, None) is None
    assert inputs(tmp_path, bigger).due(driver, bigger, replace(before, result=REMOVED)) is None
    assert inputs(tmp_path, bigger).due(driver, bigger, StageRecord("driver", FAILED)) is None


def test_a_host_that_was_left_out_is_due(tmp_path: Path) -> None:
    driver, bigger = STAGES["driver"], (*HOSTS, "new01")
    before = record(inputs(tmp_path, HOSTS), driver, left=("dgx02",))
    assert inputs(tmp_path, HOSTS).due(driver, HOSTS, before) == frozenset({"dgx02"})
    assert inputs(tmp_path, bigger).due(driver, bigger, before) == frozenset({"dgx02", "new01"})
    failed = record(inputs(tmp_path, bigger), driver, FAILED, left=("new01",))
    assert inputs(tmp_path, bigger).due(driver, bigger, failed) == frozenset({"new01"})


@pytest.mark.parametrize("stage", ["driver", "deepops", "orchestrator", "verify"])
def test_no_stage_is_due_because_a_host_has_left(tmp_path: Path, stage: str) -> None:
    made = inputs(tmp_path, HOSTS)
    before = record(made, STAGES[stage], left=("dgx01", "dgx02"))
    after = made.without("dgx02", STAGES[stage], before)
    assert after is not None
    assert inputs(tmp_path, ("mgmt01", "dgx01")).due(STAGES[stage], HOSTS, after) == frozenset({"dgx01"})
    assert made.without("dgx02", STAGES[stage], replace(before, digest="0")) is None
    assert made.without("dgx02", STAGES[stage], replace(before, result=FAILED)) is None


def test_a_stage_is_not_due_because_ansible_has_compiled_a_plugin_of_its_role(tmp_path: Path) -> None:
    own = Content(tmp_path)
    (own.roles / "driver" / "files").mkdir(parents=True)
    stage = replace(STAGES["driver"], playbook=tmp_path / "driver.yml")
    stage.playbook.write_text("---\n")
    digests = [playbook.content_digest(stage, own)]
    for name in ("__pycache__/events.cpython-312.pyc", "events.py"):
        path = own.roles / "driver" / "files" / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
        digests.append(playbook.content_digest(stage, own))
    assert digests[0] == digests[1] != digests[2]


def test_the_journal_has_the_smaller_site_after_a_host_has_left(tmp_path: Path) -> None:
    made = inputs(tmp_path, HOSTS)
    with Journal(tmp_path / "state").exclusive("node remove"):
        journal = Journal(tmp_path / "state")
        records = Records(journal, (tmp_path / "none", ""), "here", as_reporter(print))
        for name in ("driver", "deepops"):
            journal.write(event="ended", **asdict(record(made, STAGES[name])))
        journal.write(event="started", stage="orchestrator", action="install")
        records.forget("dgx02", STAGES.values(), made, "a run")
    journal = Journal(tmp_path / "state")
    assert list(journal.removed_hosts()) == ["dgx02"]
    smaller, last = inputs(tmp_path, ("mgmt01", "dgx01")), journal.last_records()
    for name in ("driver", "deepops"):
        assert (last[name].at, smaller.due(STAGES[name], HOSTS, last[name])) == ("then", frozenset())
    assert last["orchestrator"].result == INTERRUPTED
    journal.write(event="run", run="another", action="install", options={"limit": "dgx02"})
    assert Journal(tmp_path / "state").removed_hosts() == {}
