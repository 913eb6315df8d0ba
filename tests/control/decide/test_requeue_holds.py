"""An evicted job keeps its position in the queue until its next pod exists."""

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.cluster.objects import OwnerReference, Pod
from orchestrator.cluster.quantity import parse_time
from orchestrator.cluster.reflector import Change
from orchestrator.control.decide.requeue_holds import PATIENCE_SECONDS, RequeueHolds
from orchestrator.names import (
    EVICTION_REASON_ANNOTATION,
    GPU_DEVICES_ANNOTATION,
    SUCCESSOR_NOMINATION_ANNOTATION,
)
from orchestrator.observe.nominations import nomination_of
from orchestrator.observe.reader import Reader, read
from orchestrator.observe.snapshot import Observed
from orchestrator.planner import plan
from orchestrator.planner.model import Binding, Plan, PodState
from orchestrator.planner.placements import Placement
from tests.cluster.waiting import ManualClock
from tests.observe.assuming import assume
from tests.observe.objects import by_uid, decoded, job, namespace, node, pod, project

if TYPE_CHECKING:
    from collections.abc import Iterator

JOBS = by_uid(job("train", "2026-11-21T09:00:00Z"), job("young", "2026-11-21T10:30:00Z"))
DELETED = "2026-11-21T11:00:30Z"
PLACE = Placement("dgx1-2", (6, 7))


def running(name: str, owner: str = "train") -> Pod:
    return pod(
        name,
        owner=owner,
        gpus=2,
        node="dgx1-1",
        phase="Running",
        annotations={GPU_DEVICES_ANNOTATION: "0,1"},
    )


def annotated(each: Pod) -> Pod:
    annotations = {**each.metadata.annotations, EVICTION_REASON_ANNOTATION: "2 GPUs reclaimed for q"}
    return msgspec.structs.replace(
        each, metadata=msgspec.structs.replace(each.metadata, annotations=annotations)
    )


def deleted(each: Pod) -> Pod:
    return msgspec.structs.replace(
        each, metadata=msgspec.structs.replace(each.metadata, deletion_timestamp=DELETED)
    )


def ended(each: Pod, phase: str = "Failed") -> Pod:
    return msgspec.structs.replace(each, status=msgspec.structs.replace(each.status, phase=phase))


def disrupted(each: Pod) -> Pod:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    with_condition = decoded(Pod, status={"conditions": [condition]})
    status = msgspec.structs.replace(each.status, conditions=with_condition.status.conditions)
    return msgspec.structs.replace(each, status=status)


class Stream:
    """The watch of the pods, which tells `RequeueHolds` each change as the reflector does."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.evicting: set[str] = set()
        self.pods: dict[str, Pod] = {}
        self.requeue_holds = RequeueHolds(self.clock, self.evicting.__contains__)

    def show(self, *pods: Pod) -> None:
        for each in pods:
            before = self.pods.get(each.metadata.uid)
            self.pods[each.metadata.uid] = each
            self.requeue_holds.see(Change("modified" if before else "added", each, before))

    def drop(self, last: Pod) -> None:
        """Remove the pod. After a list, `last` is the state known before; after an event, it
        is the pod's last state.
        """
        self.requeue_holds.see(Change("deleted", last, self.pods.pop(last.metadata.uid)))

    def waited_for(self) -> list[str]:
        return [each.metadata.name for each in self.requeue_holds.placeholders(JOBS).values()]

    def places(self) -> list[Placement | None]:
        """Return the nominations that are kept for the expected pods."""
        return [nomination_of(each) for each in self.requeue_holds.placeholders(JOBS).values()]

    def decide(self, *nominations: Binding, bind: tuple[Binding, ...] = ()) -> None:
        """Take a decision with these nominations. Some of them can be for stand-ins."""
        nothing = Plan(bindings=bind, evictions=(), shares_gpu_milli={}, allocated_gpu_milli={}, pending={})
        inherited = self.requeue_holds.inherited
        self.requeue_holds.take(replace(nothing, nominations=nominations), inherited)


def leave(stream: Stream, each: Pod) -> None:
    """Show a whole eviction of a running pod, up to its last state in the caches."""
    stream.pods[each.metadata.uid] = each
    stream.show(annotated(each), deleted(annotated(each)), ended(deleted(annotated(each))))


def test_a_stand_in_waits_from_the_end_of_the_pod_to_its_successor() -> None:
    stream = Stream()
    going = annotated(running("train-1"))
    stream.show(running("train-1"), going, deleted(going))
    assert stream.waited_for() == [], "it goes on for its grace, and holds its GPUs"
    stream.show(ended(deleted(going)))
    assert stream.waited_for() == ["train-1"], (
        "its GPUs are free, although the Job controller has not counted it"
    )
    stream.drop(ended(deleted(going)))
    assert stream.waited_for() == ["train-1"]
    stream.show(pod("other-1", owner="young", gpus=2))
    assert stream.waited_for() == ["train-1"], "no successor yet"
    stream.show(pod("train-2", owner="train", gpus=2))
    assert stream.waited_for() == []


def test_a_successor_that_comes_before_the_end_is_one() -> None:
    stream = Stream()
    going = deleted(annotated(running("train-1")))
    stream.show(running("train-1"), going, pod("train-2", owner="train", gpus=2), ended(going))
    stream.drop(ended(going))
    assert stream.waited_for() == []


@pytest.mark.parametrize("known", ["annotation", "condition", "under way"])
def test_any_sign_that_a_pod_was_evicted_is_enough(known: str) -> None:
    stream = Stream()
    each = running("train-1")
    stream.show(each)
    if known == "annotation":
        stream.drop(deleted(annotated(each)))
    elif known == "condition":
        stream.drop(disrupted(deleted(each)))
    else:
        stream.evicting.add("uid-train-1")
        stream.drop(each)  # the watch was cut off: a list shows that the pod is gone
    assert stream.waited_for() == ["train-1"]


def test_a_pod_that_ends_by_itself_is_not_waited_for() -> None:
    stream = Stream()
    for phase in ("Failed", "Succeeded"):
        stream.show(running(phase), ended(running(phase), phase))
        stream.drop(ended(running(phase), phase))
    going = deleted(annotated(running("train-1")))
    stream.show(running("train-1"), going, ended(going, "Succeeded"))
    stream.drop(ended(going, "Succeeded"))
    assert stream.waited_for() == []


def test_a_stand_in_is_a_pending_pod_of_the_jobs_age() -> None:
    stream = Stream()
    leave(stream, running("train-1"))
    observed = Observed(
        nodes=by_uid(node("dgx1-1")),
        pods=stream.requeue_holds.placeholders(JOBS),
        namespaces=by_uid(namespace("muster-team-a", "team-a")),
        projects=by_uid(project("team-a", quota=4)),
        owners=(JOBS,),
    )
    (workload,) = read(observed).snapshot.workloads
    assert [(each.state, each.node, each.devices) for each in workload.pods] == [(PodState.PENDING, None, ())]
    assert workload.created_at_us == parse_time("2026-11-21T09:00:00Z")


def test_each_pod_of_a_gang_is_expected_once_and_by_its_index_where_it_has_one() -> None:
    stream = Stream()

    def member(name: str, index: str) -> Pod:
        return pod(name, owner="train", annotations={"batch.kubernetes.io/job-completion-index": index})

    for index in range(3):
        leave(stream, member(f"train-{index}", str(index)))
    stream.show(member("train-a", "1"))
    assert stream.waited_for() == ["train-0", "train-2"]
    stream.show(pod("train-b", owner="train"))
    assert stream.waited_for() == ["train-2"]


def test_no_successor_is_awaited_when_the_job_is_deleted_or_the_time_is_up() -> None:
    stream = Stream()
    leave(stream, running("train-1"))
    going = msgspec.structs.replace(JOBS["train"], metadata=deleted(running("x")).metadata)
    for jobs in ({}, {"train": going}):
        leave(stream := Stream(), running("train-1"))
        assert stream.requeue_holds.placeholders(jobs) == {}
        assert stream.waited_for() == [], "once given up, it stays so"
    leave(stream := Stream(), running("train-1"))
    stream.clock.now += PATIENCE_SECONDS
    assert stream.waited_for() == []


def test_the_time_counts_from_the_end_of_the_pod() -> None:
    stream = Stream()
    going = deleted(annotated(running("train-1")))
    stream.show(running("train-1"), going)
    stream.clock.now += 20 * PATIENCE_SECONDS
    stream.show(ended(going))
    stream.clock.now += PATIENCE_SECONDS / 2
    stream.drop(ended(going))
    assert stream.waited_for() == ["train-1"]
    stream.clock.now += PATIENCE_SECONDS / 2
    assert stream.waited_for() == []


def test_a_pod_without_an_owner_does_not_return() -> None:
    stream = Stream()
    leave(stream, pod("bare", node="dgx1-1", phase="Running"))
    assert stream.waited_for() == []


def test_a_new_leader_finds_the_nominations_that_the_caches_still_show() -> None:
    first, second = (deleted(annotated(running(f"train-{each}"))) for each in (1, 2))
    started = msgspec.structs.replace(first.status, start_time="2026-11-21T10:00:09Z")
    first = msgspec.structs.replace(first, status=started)
    sibling = running("train-3")
    successor = pod("train-4", owner="train", creationTimestamp="2026-11-21T11:00:31Z")
    for there, expected in (
        ((ended(first), sibling), ["train-1"]),
        ((sibling, successor, ended(first)), []),
        ((first, sibling, second), []),
    ):
        stream = Stream()
        stream.pods = by_uid(*there)
        stream.requeue_holds.recall(stream.pods.values())
        assert stream.waited_for() == expected
    stream.drop(ended(first))
    assert stream.waited_for() == ["train-1"], "it was going when the leader began"


def moved(name: str, place: str = "dgx1-2:6,7") -> Pod:
    """Return a pod that is being evicted, with a nomination for its successor."""
    each = deleted(disrupted(annotated(running(name))))
    annotations = {**each.metadata.annotations, SUCCESSOR_NOMINATION_ANNOTATION: place}
    return msgspec.structs.replace(
        each, metadata=msgspec.structs.replace(each.metadata, annotations=annotations)
    )


def place_for(uid: str, node: str, *devices: int) -> Binding:
    return Binding(uid, "train", node, devices)


def test_the_place_of_a_moved_pod_is_its_stand_ins_and_then_its_successors() -> None:
    stream = Stream()
    stream.show(running("train-1"), moved("train-1"), ended(moved("train-1")))
    assert stream.places() == [PLACE]
    stream.drop(ended(moved("train-1")))
    assert stream.places() == [PLACE]
    stream.show(pod("train-2", owner="train", gpus=2))
    assert stream.requeue_holds.inherited == {"uid-train-2": PLACE}
    stream.decide(place_for("uid-train-2", "dgx1-2", 6, 7))
    assert stream.requeue_holds.inherited == {}, "from now on it is on the pod itself"


def test_the_placement_is_inherited_by_the_pod_of_the_same_name_of_a_stateful_set() -> None:
    stream = Stream()
    owner = OwnerReference("apps/v1", "StatefulSet", "train", "train", controller=True)

    def member(each: Pod) -> Pod:
        metadata = msgspec.structs.replace(each.metadata, owner_references=[owner])
        return msgspec.structs.replace(each, metadata=metadata)

    for number in (0, 1):
        going = member(moved(f"train-{number}", f"dgx1-2:{number}"))
        stream.show(going, ended(going))
        stream.drop(ended(going))
    assert stream.places() == [Placement("dgx1-2", (0,)), Placement("dgx1-2", (1,))]
    stream.show(member(pod("train-1", uid="uid-again")))
    assert stream.requeue_holds.inherited == {"uid-again": Placement("dgx1-2", (1,))}
    assert stream.places() == [Placement("dgx1-2", (0,))]


def test_a_decision_changes_and_ends_the_place_of_a_pod_that_is_to_come() -> None:
    stream = Stream()
    stream.show(running("train-1"), moved("train-1"))
    stream.decide(place_for("uid-train-1", "dgx1-3", 1, 2))
    stream.show(ended(moved("train-1")))
    assert stream.places() == [Placement("dgx1-3", (1, 2))]
    placeholder = "uid-train-1/returning"
    stream.decide(bind=(place_for(placeholder, "dgx1-1", 4, 5),))
    assert stream.places() == [Placement("dgx1-1", (4, 5))], "what is free for it is kept for it too"
    before = stream.requeue_holds.placeholders(JOBS)[placeholder]
    stream.decide(place_for(placeholder, "dgx1-1", 4, 5))
    assert stream.requeue_holds.placeholders(JOBS)[placeholder] is before
    stream.decide()
    assert stream.places() == [None]
    stream.show(pod("train-2", owner="train", gpus=2))
    assert stream.requeue_holds.inherited == {}


def test_a_successor_inherits_nothing_from_a_pod_that_keeps_running() -> None:
    stream = Stream()
    stream.show(running("train-1"), moved("train-1"), pod("train-2", owner="train", gpus=2))
    assert stream.requeue_holds.inherited == {}, "the planner knows both, and whose the place is"


def test_a_decision_does_not_end_a_nomination_inherited_while_it_was_made() -> None:
    stream = Stream()
    stream.show(running("train-1"), moved("train-1"), ended(moved("train-1")))
    known = stream.requeue_holds.inherited
    stream.show(pod("train-2", owner="train", gpus=2))
    nothing = Plan(bindings=(), evictions=(), shares_gpu_milli={}, allocated_gpu_milli={}, pending={})
    stream.requeue_holds.take(nothing, known)
    assert stream.requeue_holds.inherited == {"uid-train-2": PLACE}


def test_a_new_leader_finds_the_place_that_is_kept() -> None:
    stream = Stream()
    stream.pods = by_uid(moved("train-1"), pod("other", owner="young"))
    stream.requeue_holds.recall(stream.pods.values())
    stream.show(ended(moved("train-1")))
    assert stream.places() == [PLACE]


@st.composite
def histories(draw: st.DrawFn) -> list[str]:
    """Return events in a possible order: two evicted pods one after the other, and all others at any time.

    A `list` shows all changes of the pods since the last event together. The answer to an eviction comes at any time
    after its beginning, and a younger job at any time.
    """
    lives = draw(
        st.sampled_from([["delete", "fail", "gone"], ["fail", "delete", "gone"], ["delete", "gone"]])
    )
    first = ["begin", "annotate", *lives, "successor"]
    others = [["answer"], ["young"], draw(st.lists(st.just("decide"), max_size=4))]
    cut = draw(st.booleans())
    order = draw(st.permutations([0] * len(first) + [1] + [2] + [3] * len(others[2])))
    tracks: list[Iterator[str]] = [iter(first), *map(iter, others)]
    steps = [next(tracks[each]) for each in order]
    if steps.index("answer") < steps.index("begin"):
        steps.remove("answer")
    return (["cut"] if cut else []) + [each for step in steps for each in (step, "decide")]


class Story:
    """One node with capacity for one job: `train` runs there, and is evicted for a job that does not stay."""

    def __init__(self) -> None:
        self.stream = Stream()
        self.reader = Reader()
        self.is_cut = False
        self.truth: Pod | None = running("train-1")
        for each in (
            node("dgx1-1", gpus=2),
            namespace("muster-team-a", "team-a"),
            project("team-a", quota=2),
        ):
            self.reader.note(Change("added", each))
        for each in JOBS.values():
            self.reader.note(Change("added", each))
        self.put(running("train-1"))

    def put(self, each: Pod) -> None:
        before = self.stream.pods.get(each.metadata.uid)
        self.stream.show(each)
        self.reader.note(Change("modified" if before else "added", each, before))

    def happen(self, step: str) -> None:
        if step == "cut":
            self.is_cut = True
        elif step == "begin":
            self.stream.evicting.add("uid-train-1")
        elif step == "young":
            self.put(pod("young-1", owner="young", gpus=2))
        elif step == "decide":
            self.decide()
        elif step == "successor":
            if self.is_cut:
                self.listed()
            self.put(pod("train-2", owner="train", gpus=2))
        elif step != "answer":  # an answer changes no cache
            self.change(step)

    def change(self, step: str) -> None:
        assert self.truth is not None
        made = {"annotate": annotated, "delete": deleted, "fail": ended}
        after = None if step == "gone" else made[step](self.truth)
        if not self.is_cut:
            if after is None:
                self.gone(self.truth)
            else:
                self.put(after)
        elif after is None:
            self.listed()
        self.truth = after

    def listed(self) -> None:
        """After a cut watch, let a list show that the pod is missing. It does not show how the pod ended."""
        if "uid-train-1" in self.stream.pods:
            self.gone(self.stream.pods["uid-train-1"])

    def gone(self, last: Pod) -> None:
        self.stream.drop(last)
        self.reader.note(Change("deleted", last, last))

    def decide(self) -> None:
        """Decide as `SchedulerLoop.decide` does. The executor forgets the requests whose effects the caches show."""
        shown = self.stream.pods.get("uid-train-1")
        if shown is None or shown.metadata.deletion_timestamp is not None:
            self.stream.evicting.clear()
        assume(self.reader.pods, evictions=self.stream.evicting)
        self.reader.pods.expect(self.stream.requeue_holds.placeholders(JOBS), {})
        reading = self.reader.read()
        by_id = {each.id: each for each in reading.snapshot.workloads}
        ours = by_id["train"]
        assert len(ours.pods) == 1, "it is in the queue, or holds what it has, once"
        assert ours.created_at_us == parse_time("2026-11-21T09:00:00Z")
        bound = {each.workload for each in plan(reading.snapshot).bindings}
        assert bound <= {"train"}, "the younger job got what the evicted one would have had"
        assert ("train" in bound) == (ours.pods[0].state is PodState.PENDING)


@given(histories())
@settings(max_examples=150, deadline=None)
def test_the_evicted_job_comes_before_a_younger_one_in_any_order_of_events(
    steps: list[str],
) -> None:
    story = Story()
    for step in steps:
        story.happen(step)
