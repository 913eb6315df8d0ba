from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.cluster.errors import Forbidden
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.reflector import FAILURES_BEFORE_LIST, Change, Reflector, State
from orchestrator.cluster.resources import PODS
from tests.cluster.fake_api_server import (
    CUT,
    END,
    SILENCE,
    Answer,
    FakeApiServer,
    Hang,
    Request,
    Watch,
    bookmark,
    error_answer,
    event,
    page,
    pod,
    status,
)
from tests.cluster.waiting import ManualClock, running, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orchestrator.cluster.transport import Transport

PATH = "/api/v1/pods"


class Recorder:
    """A reflector of pods, and its notifications."""

    def __init__(self, transport: Transport, clock: ManualClock, **options: Any) -> None:
        self.change_keys: list[tuple[str, str, str]] = []
        self.changes: list[Change[Pod]] = []
        options = {"clock": clock, "sleep": clock.sleep, "random": lambda: 0.5, **options}
        self.reflector = Reflector(transport, PODS, Pod, on_change=self._take, **options)

    def _take(self, change: Change[Pod]) -> None:
        cached = self.reflector.objects.get(change.object.metadata.uid)
        assert cached is (None if change.type == "deleted" else change.object)
        self.changes.append(change)
        metadata = change.object.metadata
        self.change_keys.append((change.type, metadata.uid, metadata.resource_version))

    @property
    def names(self) -> list[str]:
        return sorted(item.metadata.name for item in self.reflector.objects.values())


@pytest.fixture
def recorder(transport: Transport, clock: ManualClock) -> Recorder:
    return Recorder(transport, clock)


async def test_the_cache_is_the_list_and_then_the_changes_of_the_watch(
    server: FakeApiServer, recorder: Recorder
) -> None:
    server.on("GET", PATH, page(pod("a"), pod("b"), version="10"))
    server.on(
        "WATCH",
        PATH,
        Watch(
            event("ADDED", pod("c", version="11")),
            event("MODIFIED", pod("a", version="12", node="dgx-1")),
            event("DELETED", pod("b", version="13")),
            SILENCE,
        ),
    )
    reflector = recorder.reflector
    assert (reflector.state, reflector.is_synced) == (State.UNSYNCED, False)
    async with running(reflector.run()):
        await reflector.synced()
        await until(lambda: len(recorder.change_keys) == 5)
        assert reflector.state is State.WATCHING
    assert recorder.change_keys == [
        ("added", "uid-a", "1"),
        ("added", "uid-b", "1"),
        ("added", "uid-c", "11"),
        ("modified", "uid-a", "12"),
        ("deleted", "uid-b", "13"),
    ]
    assert recorder.names == ["a", "c"]
    assert reflector.resource_version == "13"
    modified = recorder.changes[3]
    assert modified.previous is not None
    assert (modified.previous.spec.node_name, modified.object.spec.node_name) == ("", "dgx-1")


async def test_a_namespace_and_parameters_narrow_both_the_list_and_the_watch(
    server: FakeApiServer, transport: Transport, clock: ManualClock
) -> None:
    path = "/api/v1/namespaces/team/pods"
    server.on("GET", path, page())
    recorder = Recorder(transport, clock, namespace="team", params={"labelSelector": "x=y"})
    async with running(recorder.reflector.run()):
        await until(lambda: server.requests_of("WATCH", path))
    assert [request.query["labelSelector"] for request in server.requests] == ["x=y", "x=y"]


@pytest.mark.parametrize(("random", "seconds"), [(0.0, "300"), (0.5, "450"), (0.999, "599")])
async def test_watches_last_five_to_ten_minutes_so_that_they_do_not_end_together(
    server: FakeApiServer, transport: Transport, clock: ManualClock, random: float, seconds: str
) -> None:
    server.on("GET", PATH, page())
    recorder = Recorder(transport, clock, random=lambda: random)
    async with running(recorder.reflector.run()):
        await until(lambda: server.requests_of("WATCH"))
    assert server.requests_of("WATCH")[0].query["timeoutSeconds"] == seconds


async def test_a_watch_that_ended_in_time_continues_from_the_last_bookmark(
    server: FakeApiServer, recorder: Recorder, clock: ManualClock
) -> None:
    server.on("GET", PATH, page(version="10"))
    server.on("WATCH", PATH, Watch(event("ADDED", pod("a", version="11")), bookmark("99"), END))
    async with running(recorder.reflector.run()):
        await until(lambda: len(server.requests_of("WATCH")) == 2)
    assert [request.query["resourceVersion"] for request in server.requests_of("WATCH")] == ["10", "99"]
    assert (recorder.reflector.counters.bookmarks, recorder.reflector.counters.relists) == (1, 0)
    assert clock.slept == []


async def test_a_watch_that_was_cut_continues_from_the_last_event_after_a_pause(
    server: FakeApiServer, recorder: Recorder, clock: ManualClock
) -> None:
    server.on("GET", PATH, page(version="10"))
    server.on("WATCH", PATH, Watch(event("ADDED", pod("a", version="11")), CUT))
    async with running(recorder.reflector.run()):
        await until(lambda: len(server.requests_of("WATCH")) == 2)
    assert server.requests_of("WATCH")[1].query["resourceVersion"] == "11"
    assert clock.slept == [0.375]
    assert recorder.reflector.counters.relists == 0


@pytest.mark.parametrize("in_an_event", [True, False])
async def test_a_watch_that_expired_lists_again(
    server: FakeApiServer, recorder: Recorder, clock: ManualClock, in_an_event: bool
) -> None:
    server.on("GET", PATH, page(pod("a"), version="10"), page(pod("b"), version="20"))
    expired = status(410, "Expired", "too old resource version: 10 (20)")
    server.on("WATCH", PATH, Watch(event("ERROR", expired), END) if in_an_event else Answer(expired, 410))
    async with running(recorder.reflector.run()):
        await until(lambda: len(server.requests_of("WATCH")) == 2)
    assert recorder.names == ["b"]
    assert server.requests_of("WATCH")[1].query["resourceVersion"] == "20"
    assert recorder.reflector.counters.relists == 1
    assert clock.slept == []


async def test_a_watch_that_expires_every_time_is_not_a_storm_of_lists(
    server: FakeApiServer, recorder: Recorder, clock: ManualClock
) -> None:
    server.on("GET", PATH, page())
    server.on("WATCH", PATH, *[error_answer(410, "Expired")] * 5)
    async with running(recorder.reflector.run()):
        await until(lambda: len(server.requests_of("WATCH")) == 6)
    assert clock.slept == [0.75, 1.5, 3.0, 6.0]


async def test_a_second_list_tells_only_the_differences(server: FakeApiServer, recorder: Recorder) -> None:
    server.on(
        "GET",
        PATH,
        page(pod("same"), pod("changed"), pod("gone"), pod("reused", uid="first")),
        page(pod("same"), pod("changed", version="5"), pod("reused", uid="second"), pod("new")),
    )
    server.on("WATCH", PATH, error_answer(410, "Expired"))
    async with running(recorder.reflector.run()):
        await recorder.reflector.synced()
        before = recorder.reflector.objects["uid-same"]
        await until(lambda: len(server.requests_of("WATCH")) == 2)
    assert recorder.change_keys[4:] == [
        ("deleted", "uid-gone", "1"),
        ("deleted", "first", "1"),
        ("modified", "uid-changed", "5"),
        ("added", "second", "1"),
        ("added", "uid-new", "1"),
    ]
    assert recorder.reflector.objects["uid-same"] is before


async def test_the_view_of_the_objects_is_the_same_through_a_second_list(
    server: FakeApiServer, recorder: Recorder
) -> None:
    server.on("GET", PATH, page(pod("a")), page(pod("b")))
    server.on("WATCH", PATH, error_answer(410, "Expired"))
    view = recorder.reflector.objects
    async with running(recorder.reflector.run()):
        await until(lambda: len(server.requests_of("WATCH")) == 2)
    assert list(view) == ["uid-b"]
    with pytest.raises(TypeError):
        view["x"] = "y"  # type: ignore[index]


async def test_a_list_that_fails_is_tried_again_with_growing_pauses(
    server: FakeApiServer, recorder: Recorder, clock: ManualClock
) -> None:
    server.on("GET", PATH, *[error_answer(500)] * 8, page(pod("a")))
    async with running(recorder.reflector.run()):
        await recorder.reflector.synced()
        await until(lambda: server.requests_of("WATCH"))
    assert clock.slept == [0.375, 0.75, 1.5, 3.0, 6.0, 12.0, 22.5, 22.5]
    assert recorder.reflector.counters.failures == 8


@pytest.mark.parametrize("code", [401, 429, 500, 503])
async def test_a_watch_that_is_refused_is_tried_again_without_a_list(
    server: FakeApiServer, recorder: Recorder, clock: ManualClock, code: int
) -> None:
    server.on("GET", PATH, page(version="10"))
    server.on("WATCH", PATH, error_answer(code))
    async with running(recorder.reflector.run()):
        await until(lambda: len(server.requests_of("WATCH")) == 2)
    assert recorder.reflector.counters.relists == 0
    assert clock.slept == [0.375]


async def test_a_server_that_asks_for_time_is_given_it(
    server: FakeApiServer, recorder: Recorder, clock: ManualClock
) -> None:
    server.on("GET", PATH, page(version="10"))
    server.on("WATCH", PATH, error_answer(429, retry_after="45"))
    async with running(recorder.reflector.run()):
        await until(lambda: len(server.requests_of("WATCH")) == 2)
    assert clock.slept == [45.0]


async def test_an_error_event_of_the_server_is_waited_out(
    server: FakeApiServer, recorder: Recorder, clock: ManualClock
) -> None:
    server.on("GET", PATH, page(version="10"))
    server.on("WATCH", PATH, Watch(event("ERROR", status(500, "InternalError")), END))
    async with running(recorder.reflector.run()):
        await until(lambda: len(server.requests_of("WATCH")) == 2)
    assert (clock.slept, recorder.reflector.counters.relists) == ([0.375], 0)


async def test_watches_that_fail_again_and_again_lead_to_a_list(
    server: FakeApiServer, recorder: Recorder
) -> None:
    server.on("GET", PATH, page(version="1000"), page(version="20"))
    server.on("WATCH", PATH, *[error_answer(504, "Timeout")] * FAILURES_BEFORE_LIST)
    async with running(recorder.reflector.run()):
        await until(lambda: len(server.requests_of("WATCH")) == FAILURES_BEFORE_LIST + 1)
    assert server.requests_of("WATCH")[-1].query["resourceVersion"] == "20"


async def test_watches_that_fail_now_and_then_lead_to_no_list(
    server: FakeApiServer, recorder: Recorder
) -> None:
    server.on("GET", PATH, page())
    good = Watch(event("ADDED", pod("a", version="11")), CUT)
    for _ in range(FAILURES_BEFORE_LIST):
        server.on("WATCH", PATH, good, error_answer(500))
    async with running(recorder.reflector.run()):
        await until(lambda: len(server.requests_of("WATCH")) == 2 * FAILURES_BEFORE_LIST + 1)
    assert recorder.reflector.counters.lists == 1


async def test_a_watch_that_was_silent_to_its_end_leads_to_a_list(
    server: FakeApiServer, recorder: Recorder, clock: ManualClock
) -> None:
    """After a restore of etcd from a backup, the version can be in the future: then there is
    no error and no bookmark.
    """

    def silent(_: Request) -> Answer:
        clock.now += 400
        return Answer(b"")

    server.on("GET", PATH, page(version="1000"), page(version="20"))
    server.on("WATCH", PATH, silent)
    async with running(recorder.reflector.run()):
        await until(lambda: len(server.requests_of("WATCH")) == 2)
    assert server.requests_of("WATCH")[1].query["resourceVersion"] == "20"
    assert clock.slept == []


async def test_watches_that_end_at_once_do_not_spin(
    server: FakeApiServer, recorder: Recorder, clock: ManualClock
) -> None:
    server.on("GET", PATH, page())
    server.on("WATCH", PATH, Watch(END), Watch(END), Watch(END))
    async with running(recorder.reflector.run()):
        await until(lambda: len(server.requests_of("WATCH")) == 4)
    assert clock.slept == [0.375, 0.75, 1.5]


async def test_pauses_start_small_again_once_a_watch_has_worked(
    server: FakeApiServer, recorder: Recorder, clock: ManualClock
) -> None:
    server.on("GET", PATH, page())
    good = Watch(event("ADDED", pod("a", version="11")), CUT)
    server.on("WATCH", PATH, error_answer(500), error_answer(500), good, error_answer(500))
    async with running(recorder.reflector.run()):
        await until(lambda: len(server.requests_of("WATCH")) == 5)
    assert clock.slept == [0.375, 0.75, 0.375, 0.75]


async def test_unknown_events_are_counted_and_ignored(server: FakeApiServer, recorder: Recorder) -> None:
    server.on("GET", PATH, page())
    server.on(
        "WATCH", PATH, Watch(event("SHINY", {"new": 1}), event("ADDED", pod("a", version="2")), SILENCE)
    )
    async with running(recorder.reflector.run()):
        await until(lambda: recorder.change_keys)
    assert recorder.names == ["a"]
    assert (recorder.reflector.counters.unknown_events, recorder.reflector.counters.events) == (1, 1)


async def test_an_object_that_cannot_be_read_is_kept_as_it_was(
    server: FakeApiServer, recorder: Recorder
) -> None:
    broken = {**pod("a", version="11"), "spec": {"nodeName": 5}}
    server.on("GET", PATH, page(pod("a")), page(broken, {**pod("x"), "spec": []}, pod("b")))
    server.on("WATCH", PATH, Watch(event("MODIFIED", broken), END), error_answer(410))
    async with running(recorder.reflector.run()):
        await until(lambda: len(server.requests_of("WATCH")) == 3)
    assert [request.query["resourceVersion"] for request in server.requests_of("WATCH")] == ["10", "11", "10"]
    assert recorder.names == ["a", "b"]
    assert recorder.change_keys == [("added", "uid-a", "1"), ("added", "uid-b", "1")]
    assert recorder.reflector.counters.decode_errors == 3


async def test_a_deleted_object_that_could_not_be_read_is_removed(
    server: FakeApiServer, recorder: Recorder
) -> None:
    server.on("GET", PATH, page(pod("a")))
    server.on("WATCH", PATH, Watch(event("DELETED", {**pod("a", version="11"), "spec": []}), SILENCE))
    async with running(recorder.reflector.run()):
        await until(lambda: len(recorder.change_keys) == 2)
    assert recorder.change_keys[-1] == ("deleted", "uid-a", "1")
    assert recorder.names == []


@pytest.mark.parametrize(
    "line",
    [
        b"not json\n",
        b'{"type":"BOOKMARK","object":7}\n',
        b'{"type":"ADDED","object":7}\n',
        b'{"type":"ADDED","object":{"spec":%s%s}}\n' % (b"[" * 50_000, b"]" * 50_000),
    ],
    ids=["no-json", "no-bookmark", "no-object", "nested-too-deep"],
)
async def test_garbage_in_a_watch_is_waited_out(
    server: FakeApiServer, recorder: Recorder, clock: ManualClock, line: bytes
) -> None:
    server.on("GET", PATH, page())
    server.on("WATCH", PATH, Watch(line, END), Watch(event("ADDED", pod("a", version="2")), SILENCE))
    async with running(recorder.reflector.run()):
        await until(lambda: recorder.change_keys)
    assert len(clock.slept) == 1


async def test_the_same_version_told_twice_is_told_once(server: FakeApiServer, recorder: Recorder) -> None:
    server.on("GET", PATH, page(pod("a", version="9")))
    again = [event(kind, pod("a", version="9")) for kind in ("ADDED", "MODIFIED")]
    server.on("WATCH", PATH, Watch(*again, event("DELETED", pod("other")), bookmark("12"), SILENCE))
    async with running(recorder.reflector.run()):
        await until(lambda: recorder.reflector.counters.bookmarks)
    assert recorder.change_keys == [("added", "uid-a", "9")]


async def test_an_error_of_the_consumer_ends_the_reflector(
    server: FakeApiServer, transport: Transport, clock: ManualClock
) -> None:
    def fail(_: Change[Pod]) -> None:
        raise LookupError("a mistake of the consumer")

    server.on("GET", PATH, page(pod("a")))
    with pytest.raises(LookupError):
        await Reflector(transport, PODS, Pod, on_change=fail, sleep=clock.sleep).run()


async def test_the_reflector_says_when_it_last_heard(
    server: FakeApiServer, recorder: Recorder, clock: ManualClock
) -> None:
    server.on("GET", PATH, error_answer(500), page())
    assert recorder.reflector.last_heard is None
    async with running(recorder.reflector.run()):
        await recorder.reflector.synced()
    assert recorder.reflector.last_heard == 1000.375


def beginning_with(other: Reflector[Pod]) -> Any:
    """Return a function that gives the other cache as the initial one."""

    @asynccontextmanager
    async def beginning(_cache: Reflector[Pod]) -> AsyncIterator[Reflector[Pod]]:
        yield other

    return beginning


async def test_a_cache_begins_as_another_one_and_continues_by_its_own_watch(
    server: FakeApiServer, transport: Transport, recorder: Recorder, clock: ManualClock
) -> None:
    server.on("GET", PATH, page(pod("a"), version="10"))
    server.on("WATCH", PATH, Watch(SILENCE), Watch(event("ADDED", pod("b", version="11")), SILENCE))
    async with running(recorder.reflector.run()):
        await recorder.reflector.synced()
        await until(lambda: len(server.requests_of("WATCH")) == 1)
        second = Recorder(transport, clock, beginning=beginning_with(recorder.reflector))
        async with running(second.reflector.run()):
            await second.reflector.synced()
            assert "a" in second.names
            await until(lambda: second.names == ["a", "b"])
    assert len(server.requests_of("GET")) == 1
    assert server.requests_of("WATCH")[1].query["resourceVersion"] == "10"
    assert [change for change, _, _ in second.change_keys] == ["added", "added"]
    assert recorder.names == ["a"]


async def test_objects_of_another_cache_are_not_there_before_the_own_watch_is_accepted(
    server: FakeApiServer, transport: Transport, recorder: Recorder, clock: ManualClock
) -> None:
    server.on("GET", PATH, page(pod("a"), version="10"), Hang())
    server.on("WATCH", PATH, Watch(SILENCE), error_answer(403, "Forbidden"))
    async with running(recorder.reflector.run()):
        await until(lambda: len(server.requests_of("WATCH")) == 1)
        second = Recorder(transport, clock, beginning=beginning_with(recorder.reflector))
        async with running(second.reflector.run()):
            await until(lambda: len(server.requests_of("GET")) == 2)
            assert not second.reflector.is_synced
            assert isinstance(second.reflector.problem, Forbidden)
    server.stop()


async def test_a_version_of_another_cache_that_expired_leads_to_a_list(
    server: FakeApiServer, transport: Transport, recorder: Recorder, clock: ManualClock
) -> None:
    server.on("GET", PATH, page(pod("a"), version="10"), page(pod("b"), version="20"))
    server.on("WATCH", PATH, Watch(SILENCE), error_answer(410, "Expired"))
    async with running(recorder.reflector.run()):
        await until(lambda: len(server.requests_of("WATCH")) == 1)
        second = Recorder(transport, clock, beginning=beginning_with(recorder.reflector))
        async with running(second.reflector.run()):
            await second.reflector.synced()
            assert second.names == ["b"]
    assert clock.slept == []
