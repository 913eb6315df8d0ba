"""Images are pulled before the clock starts: the pods' states, the recorded events, and the
refusal without the images.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from deployment.errors import SiteError
from deployment.site_file import load as load_site
from tests.validation.fake_target import FakeTarget
from tests.validation.host_doubles import FakeHosts
from tests.validation.replay import VICTIM, assert_second_judge_agrees, run_command, settings
from validation.errors import HostError
from validation.judge.events import ImagePulled
from validation.plan.acceptance import open_acceptance
from validation.plan.plan_document import document
from validation.planned_checks import plan
from validation.report import log
from validation.report.record import ImageRecord
from validation.report.redact import UNKNOWN_PULL, redact
from validation.report.verify import verify
from validation.scenario.images import ImageMap, images_of, whole_name
from validation.scenario.loader import load
from validation.targets.pulling import Pull, digest_of, failure_of, is_on_node
from validation.targets.site_images import read_images

QUICKSTART = "gcr.io/run-ai-demo/quickstart"
AT_SITE = "registry.site.example/demo/quickstart:1"
MAP = ImageMap({f"{QUICKSTART}:latest": AT_SITE})
DIGEST = f"sha256:{'1' * 64}"
TR4858_SITE = Path(__file__).parents[3] / "inventories" / "tr4858" / "site.yml"


class Pulls(FakeTarget):
    """A cluster whose nodes pull the requested images."""

    kind = "cluster"
    pulls_images = True
    problem_of_n2 = ""

    def __init__(self) -> None:
        super().__init__()
        self.pulled: list[tuple[Sequence[str], Sequence[str]]] = []

    async def pull(self, nodes: Sequence[str], images: Sequence[str]) -> list[Pull]:
        self.pulled.append((nodes, images))
        problems = {"n2": self.problem_of_n2}
        return [
            Pull(node, image, DIGEST, 1_200, f"pulled {image}", problems.get(node, ""))
            for image in images
            for node in nodes
        ]


class CannotPull(Pulls):
    """Its second node does not reach the registry."""

    problem_of_n2 = "dial tcp: lookup registry.site.example: no such host"


def hosts() -> FakeHosts:
    """Return hosts of a site that has the image in another registry."""
    site = FakeHosts()
    site.images = MAP
    return site


def pod(state: dict[str, Any], image_id: str = "", phase: str = "Pending") -> dict[str, Any]:
    return {"status": {"phase": phase, "containerStatuses": [{"imageID": image_id, "state": state}]}}


@pytest.mark.parametrize(
    ("pod", "on_node", "reason"),
    [
        ({"status": {"phase": "Pending"}}, False, ""),
        (pod({"waiting": {"reason": "ContainerCreating"}}), False, ""),
        (pod({"waiting": {"reason": "ErrImagePull", "message": "no such host"}}), False, "ErrImagePull"),
        (pod({"waiting": {"reason": "ImagePullBackOff"}}), False, "ImagePullBackOff"),
        (pod({"waiting": {"reason": "CreateContainerConfigError"}}), True, ""),
        (pod({"terminated": {"reason": "StartError"}}, f"a/b@{DIGEST}", "Failed"), True, ""),
        (pod({"terminated": {"reason": "Completed"}}, f"a/b@{DIGEST}", "Succeeded"), True, ""),
        (pod({"running": {}}, "", "Running"), True, ""),
    ],
)
def test_the_image_of_a_pod(pod: dict[str, Any], on_node: bool, reason: str) -> None:
    assert (is_on_node(pod), failure_of(pod)[0]) == (on_node, reason)
    assert digest_of(pod) in {"", DIGEST}


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        (QUICKSTART, f"{QUICKSTART}:latest"),
        ("netapp/tensorflow-tf1-py3:20.01.0", "docker.io/netapp/tensorflow-tf1-py3:20.01.0"),
        ("busybox", "docker.io/library/busybox:latest"),
        ("localhost/a", "localhost/a:latest"),
        ("r:5000/a", "r:5000/a:latest"),
        (f"a/b@{DIGEST}", f"docker.io/a/b@{DIGEST}"),
    ],
)
def test_a_name_means_a_registry_and_a_tag(name: str, whole: str) -> None:
    assert whole_name(name) == whole


def test_a_command_is_run_with_the_image_of_the_site() -> None:
    line = f"muster submit a -i {QUICKSTART} -g 1 -p p --args '-i {QUICKSTART}x'"
    assert MAP.line(line) == line.replace(f"{QUICKSTART} ", f"{AT_SITE} ")
    assert MAP.line(f"muster submit a --image={QUICKSTART} -g 1 -p p").count(AT_SITE) == 1
    for other in (
        "muster delete a -p p",
        "muster submit a -i other -g 1 -p p",
        "muster project create p -g 1",
    ):
        assert MAP.line(other) == other


def test_the_site_file_says_where_images_are(tmp_path: Path) -> None:
    content = yaml.safe_load(TR4858_SITE.read_text())
    content["bundle"] = {"images": [QUICKSTART, "netapp/tensorflow-tf1-py3:20.01.0", f"nvcr.io/a/b@{DIGEST}"]}
    content["validation"] = {
        "registry": "registry.site.example:5000/muster",
        "images": {"netapp/tensorflow-tf1-py3:20.01.0": "registry.site.example/tf:1"},
    }
    (tmp_path / "site.yml").write_text(yaml.safe_dump(content))
    images = read_images(load_site(tmp_path))
    assert images.image(QUICKSTART) == "registry.site.example:5000/muster/run-ai-demo/quickstart:latest"
    assert images.image("netapp/tensorflow-tf1-py3:20.01.0") == "registry.site.example/tf:1"
    assert images.image(f"nvcr.io/a/b@{DIGEST}") == f"registry.site.example:5000/muster/a/b@{DIGEST}"
    assert images.image("somebody/else") == "somebody/else"

    content["bundle"] = {"images": ["No Name"]}
    (tmp_path / "site.yml").write_text(yaml.safe_dump(content))
    with pytest.raises(SiteError) as refused:
        load_site(tmp_path)
    assert "`No Name` is no image" in refused.value.problems[0]
    content["bundle"] = {"images": [f"nvcr.io/a/b@sha512:{'0' * 128}"]}
    (tmp_path / "site.yml").write_text(yaml.safe_dump(content))
    with pytest.raises(HostError, match="is no name of an image"):
        read_images(load_site(tmp_path))
    del content["validation"]
    (tmp_path / "site.yml").write_text(yaml.safe_dump(content))
    assert read_images(load_site(tmp_path)).image(QUICKSTART) == QUICKSTART


def test_every_node_pulls_before_the_first_command_and_it_is_in_the_record(tmp_path: Path) -> None:
    target = Pulls()
    chosen = settings(tmp_path / "r", lambda: target, profile="current", open_hosts=hosts)
    chosen.target = "cluster"
    _, report = run_command([VICTIM], chosen)
    assert report is not None
    assert {step.verdict for step in report.steps if step.required} == {"PASS"}
    assert target.pulled == [(["n1", "n2"], [AT_SITE])]
    assert report.volatile.images == [
        ImageRecord(node, QUICKSTART, AT_SITE, DIGEST, 1_200) for node in ("n1", "n2")
    ]
    commands = [command for step in report.steps for command in step.volatile.commands]
    submits = [command.line for command in commands if command.line.startswith("muster submit")]
    assert submits
    assert all(AT_SITE in line and QUICKSTART not in line for line in submits)
    events = log.read_log(tmp_path / "r").events
    pulled = [event.t_ms for event in events if isinstance(event, ImagePulled)]
    assert max(pulled) <= min(command.started_ms for command in commands)
    for page in ("report.html", "report.md"):
        text = (tmp_path / "r" / page).read_text()
        assert AT_SITE in text
        assert DIGEST in text
    assert verify(tmp_path / "r").problems == []
    assert_second_judge_agrees(tmp_path / "r")
    redacted = redact(tmp_path / "r", tmp_path / "public")
    assert "registry.site.example" not in (tmp_path / "public" / log.NAME).read_text()
    assert redacted.verdict == report.verdict


def test_without_an_image_nothing_runs_and_node_and_image_are_named(tmp_path: Path) -> None:
    chosen = settings(tmp_path / "r", CannotPull, profile="current", open_hosts=hosts)
    code, report = run_command([VICTIM], chosen)
    assert (code, report is not None) == (1, True)
    assert report is not None
    assert report.verdict == "ERROR"
    first, *others = [step for step in report.steps if "/invariant/" not in step.id]
    assert first.verdict == "ERROR"
    assert first.reason == f"image {AT_SITE} cannot be pulled on n2: {CannotPull.problem_of_n2}"
    assert {step.verdict for step in others} == {"BLOCKED"}
    assert not any(step.volatile.commands for step in report.steps)
    assert f"{AT_SITE} not pulled: {CannotPull.problem_of_n2}" in (tmp_path / "r/report.md").read_text()
    assert_second_judge_agrees(tmp_path / "r")
    redact(tmp_path / "r", tmp_path / "public")
    public = (tmp_path / "public" / log.NAME).read_text()
    assert "registry.site.example" not in public
    assert UNKNOWN_PULL in public


def test_a_record_of_a_run_that_pulled_nothing_says_nothing_of_images(tmp_path: Path) -> None:
    _, report = run_command([VICTIM], settings(tmp_path / "r"))
    assert report is not None
    assert report.volatile.images is msgspec.UNSET
    assert b'"images"' not in (tmp_path / "r/report.json").read_bytes()


def test_the_plan_to_sign_says_which_images_are_pulled() -> None:
    scenarios = load([VICTIM])
    assert images_of(scenarios) == [QUICKSTART]
    text = document(open_acceptance("", [], "cluster"), plan(scenarios), None, MAP)
    (line,) = re.findall(r"^- images: .*$", text, re.MULTILINE)
    assert line.startswith(f"- images: {AT_SITE} for {QUICKSTART}; on a cluster every node")
