"""Jobs selected by status, label, user, node and age, and the order of the selected jobs."""

from typing import Any

import msgspec
import pytest

from orchestrator.cluster.objects import Job
from orchestrator.errors import UsageError
from orchestrator.names import USER_ANNOTATION
from orchestrator.views.jobs import Listing, WorkloadView, workload_views
from orchestrator.views.selection import Selection, parse_order, parse_selector, parse_statuses


def view(
    name: str, *, labels: dict[str, str] | None = None, user: str = "", suspend: bool = False, day: int = 1
) -> WorkloadView:
    body: dict[str, Any] = {
        "metadata": {
            "name": name,
            "namespace": "muster-a",
            "uid": name,
            "labels": labels or {},
            "annotations": {USER_ANNOTATION: user},
            "creationTimestamp": f"2026-01-{day:02}T00:00:00Z",
        },
        "spec": {"suspend": suspend},
    }
    (found,) = workload_views(Listing({"muster-a": "a"}, jobs=[msgspec.convert(body, Job)]))
    return found


JOBS = (
    view("bert", labels={"model": "bert", "size": "large"}, user="ann", day=1),
    view("gpt", labels={"model": "gpt"}, user="bob", suspend=True, day=3),
    view("plain", user="ann", day=2),
)


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("model=bert", ["bert"]),
        ("model==bert", ["bert"]),
        ("model!=bert", ["gpt", "plain"]),
        ("model", ["bert", "gpt"]),
        ("!model", ["plain"]),
        (" ! model ", ["plain"]),
        ("model in (gpt,bert),size=large", ["bert"]),
        ("model in (gpt, bert)", ["bert", "gpt"]),
        ("model notin (gpt)", ["bert", "plain"]),
        ("model=", []),
        ("size=large,model!=gpt", ["bert"]),
    ],
)
def test_labels_choose_jobs_as_kubectl_does(selector: str, names: list[str]) -> None:
    chosen = Selection(requirements=parse_selector(selector)).of(JOBS)
    assert [each.name for each in chosen] == names


@pytest.mark.parametrize("selector", ["", "a=b,", "=b", "a in b", "a in (b", "a=b=c", "a b", "!a=b"])
def test_a_selector_that_is_none_is_refused(selector: str) -> None:
    with pytest.raises(UsageError, match="is no label selector"):
        parse_selector(selector)


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        (Selection(), ["bert", "gpt", "plain"]),
        (Selection(statuses=parse_statuses(["suspended"])), ["gpt"]),
        (Selection(statuses=parse_statuses(["Pending", "Suspended"])), ["bert", "gpt", "plain"]),
        (Selection(statuses=parse_statuses(["ImagePullBackOff"])), []),
        (Selection(users=frozenset({"ann"})), ["bert", "plain"]),
        (Selection(nodes=frozenset({"dgx1-1"})), []),
        (Selection(since_us=JOBS[2].created_us), ["gpt", "plain"]),
        (
            Selection(
                statuses=parse_statuses(["Pending"]), users=frozenset({"ann"}), since_us=JOBS[2].created_us
            ),
            ["plain"],
        ),
    ],
)
def test_every_condition_must_hold(selection: Selection, names: list[str]) -> None:
    assert [each.name for each in selection.of(JOBS)] == names


@pytest.mark.parametrize(
    ("word", "meant"), [("Runing", "Running"), ("suceeded", "Succeeded"), ("fail", "Failed")]
)
def test_a_status_that_is_misspelt_is_refused_with_the_one_that_was_meant(word: str, meant: str) -> None:
    with pytest.raises(UsageError, match=f"did you mean {meant}"):
        parse_statuses([word])


@pytest.mark.parametrize(
    ("key", "names"),
    [
        ("name", ["bert", "gpt", "plain"]),
        ("-name", ["plain", "gpt", "bert"]),
        ("age", ["gpt", "plain", "bert"]),
        ("-age", ["bert", "plain", "gpt"]),
        ("user", ["bert", "plain", "gpt"]),
        ("gpus", ["bert", "gpt", "plain"]),
    ],
)
def test_jobs_are_put_in_order_and_equal_ones_keep_theirs(key: str, names: list[str]) -> None:
    assert [each.name for each in parse_order(key)(JOBS)] == names


def test_an_order_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match="--sort 'color'"):
        parse_order("color")
