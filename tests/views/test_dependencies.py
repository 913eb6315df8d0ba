"""Why a job with dependencies has not started, or never starts."""

from typing import Any

import pytest

from orchestrator.cluster.objects import Job
from orchestrator.views.dependencies import Delays
from tests.observe.objects import decoded

COMPLETE = [{"type": "Complete", "status": "True"}]
FAILED = [{"type": "Failed", "status": "True"}]


def job(name: str, after: str | None = None, *, suspend: bool = True, **more: Any) -> Job:
    annotations = {} if after is None else {"muster.dev/after": after}
    metadata = {"name": name, "namespace": "muster-team-a", "uid": f"uid-{name}", "annotations": annotations}
    conditions = more.pop("conditions", [])
    return decoded(
        Job, metadata={**metadata, **more}, spec={"suspend": suspend}, status={"conditions": conditions}
    )


@pytest.mark.parametrize(
    ("conditions", "after", "code", "words"),
    [
        ([], "a:succeeded:uid-a", "WaitsForJob", "it starts after a has succeeded"),
        ([], "a:failed:uid-a", "WaitsForJob", "it starts after a has failed"),
        ([], "a:ended:uid-a,b:ended:uid-b", "WaitsForJob", "it starts after a has ended and b has ended"),
        (COMPLETE, "a:ended:uid-a", "WaitsForJob", "its dependencies are met"),
        (COMPLETE, "a:failed:uid-a", "DependencyFailed", "the job a has succeeded and not failed"),
        (FAILED, "a:succeeded:uid-a", "DependencyFailed", "the job a has failed and not succeeded"),
        (FAILED, "b:ended:uid-b,a:succeeded:uid-a", "DependencyFailed", "the job a has failed"),
        ([], "a:ended:uid-old", "DependencyFailed", "the job a was deleted before it had ended"),
        ([], "c:ended:uid-c", "DependencyFailed", "the job c was deleted before it had ended"),
        ([], "a:ended", "DependencyFailed", "'a:ended', which is not JOB:STATE:UID"),
        ([], "a:done:uid-a", "DependencyFailed", "'a:done:uid-a', which is not JOB:STATE:UID"),
        ([], "", "DependencyFailed", "which is not JOB:STATE:UID"),
    ],
)
def test_a_delayed_job_names_its_dependencies(
    conditions: list[dict[str, str]], after: str, code: str, words: str
) -> None:
    others = job("a", suspend=False, conditions=conditions), job("b", suspend=False)
    elsewhere = job("c", suspend=False, namespace="muster-team-b")
    delay = Delays([*others, elsewhere, job("train", after)]).of("uid-train")
    assert delay is not None
    assert delay.code == code
    assert words in delay.message


@pytest.mark.parametrize(
    "more",
    [
        {"suspend": False},
        {"conditions": COMPLETE},
        {"deletionTimestamp": "2026-11-21T10:00:00Z"},
        {"annotations": {}},
    ],
)
def test_no_other_job_is_delayed(more: dict[str, Any]) -> None:
    assert Delays([job("a", suspend=False), job("train", "a:ended:uid-a", **more)]).of("uid-train") is None


def test_a_failed_dependency_reaches_the_end_of_a_long_chain_of_jobs_in_any_order() -> None:
    count = 3000
    jobs = [job(f"j{i}", f"j{i - 1}:ended:uid-j{i - 1}") for i in range(1, count)]
    failed = [job("j0", "gone:ended:uid-gone"), *jobs]
    for order in (failed, failed[::-1]):
        last = Delays(order).of(f"uid-j{count - 1}")
        assert last is not None
        assert (last.status, last.message.split(";")[0]) == (
            "DependencyFailed",
            f"the job j{count - 2} does not start either",
        )
    waiting = Delays([job("j0", suspend=False), *jobs]).of(f"uid-j{count - 1}")
    assert waiting is not None
    assert waiting.status == "Pending"


def test_jobs_that_depend_on_each_other_by_hand_are_read_all_the_same() -> None:
    delays = Delays([job("a", "b:ended:uid-b"), job("b", "a:ended:uid-a")])
    assert {delay.code for uid in ("uid-a", "uid-b") if (delay := delays.of(uid))} == {"WaitsForJob"}
