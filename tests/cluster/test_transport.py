from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.cluster import errors
from orchestrator.cluster.objects import GpuSpec, Metadata, Pod, Project, ProjectSpec
from orchestrator.cluster.resources import PODS, PROJECTS
from orchestrator.cluster.timeouts import Limits
from orchestrator.cluster.transport import (
    JSON_PATCH,
    STRATEGIC_MERGE_PATCH,
    Transport,
    WatchEvent,
)
from tests.cluster.fake_api_server import (
    CUT,
    END,
    SILENCE,
    Answer,
    FakeApiServer,
    Hang,
    Request,
    Watch,
    access_to,
    bookmark,
    error_answer,
    event,
    page,
    pod,
    status,
)
from tests.cluster.waiting import DEADLINE_SECONDS

if TYPE_CHECKING:
    from tests.cluster.waiting import ManualClock

PATH = "/api/v1/namespaces/team/pods/a"
LIST = "/api/v1/pods"


async def watched(transport: Transport, **options: Any) -> list[WatchEvent]:
    options = {"resource_version": "1", "timeout_seconds": 300, **options}
    async with aclosing(transport.watch(LIST, **options)) as events:
        return [event async for event in events]


async def test_an_object_is_decoded_as_the_kind_that_was_asked_for(
    server: FakeApiServer, transport: Transport
) -> None:
    server.on("GET", PATH, Answer(pod("a", node="dgx-1")))
    answer = await transport.get(PATH, Pod)
    assert (answer.metadata.name, answer.spec.node_name) == ("a", "dgx-1")
    assert (await transport.get(PATH))["kind"] == "Pod"


async def test_requests_name_their_client_and_the_accepted_types(server: FakeApiServer) -> None:
    server.on("GET", PATH, Answer(pod("a")))
    async with Transport(access_to(server, token=lambda: "secret"), "muster-test") as transport:
        await transport.get(PATH, params={"pretty": True, "limit": 3})
    request = server.requests[0]
    assert request.headers["Authorization"] == "Bearer secret"
    assert request.headers["User-Agent"] == "muster-test"
    assert request.headers["Accept-Encoding"] == "identity"
    assert request.query == {"pretty": "true", "limit": "3"}


@pytest.mark.parametrize(
    ("code", "reason", "leaf"),
    [
        (400, "BadRequest", errors.Invalid),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (405, "MethodNotAllowed", errors.ClusterError),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (410, "Expired", errors.Gone),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.ServerFault),
        (503, "ServiceUnavailable", errors.ServerFault),
    ],
)
async def test_each_refusal_is_its_own_error(
    server: FakeApiServer, transport: Transport, code: int, reason: str, leaf: type[errors.ClusterError]
) -> None:
    server.on("GET", PATH, error_answer(code, reason, "no\nway"))
    with pytest.raises(errors.ClusterError) as caught:
        await transport.get(PATH)
    assert type(caught.value) is leaf
    assert (caught.value.status, caught.value.reason) == (code, reason)
    assert caught.value.message == f"GET {PATH}: {code} no way"
    assert len(server.requests) == 1


async def test_a_refusal_without_a_status_object_keeps_its_text(
    server: FakeApiServer, transport: Transport
) -> None:
    server.on("GET", PATH, Answer(b"upstream connect error", 502))
    with pytest.raises(errors.ServerFault, match="502 upstream connect error"):
        await transport.get(PATH)


@pytest.mark.parametrize(
    "answer", [b"<html>", b"[" * 50_000 + b"]" * 50_000], ids=["html", "nested-too-deep"]
)
async def test_an_answer_that_is_no_json_is_undecodable(
    server: FakeApiServer, transport: Transport, answer: bytes
) -> None:
    server.on("GET", PATH, Answer(answer))
    with pytest.raises(errors.Undecodable, match="another form than the requested one"):
        await transport.get(PATH, Pod)


async def test_a_server_that_is_not_there_is_unreachable(clock: ManualClock, server: FakeApiServer) -> None:
    access = access_to(server)
    object.__setattr__(access, "server", "http://127.0.0.1:1")
    async with Transport(access, sleep=clock.sleep) as transport:
        with pytest.raises(errors.Unreachable, match="check the server"):
            await transport.get(PATH)
    assert len(clock.slept) == 3


async def test_no_answer_in_time_is_unreachable(server: FakeApiServer) -> None:
    server.on("POST", LIST, Hang())
    async with Transport(access_to(server), limits=Limits(request_seconds=0.1)) as transport:
        with pytest.raises(errors.Unreachable, match="no answer in time"):
            await transport.create(LIST, {})


async def test_a_transport_outside_its_context_says_so(server: FakeApiServer) -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await Transport(access_to(server)).get(PATH)


# --- repeats ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_refusal_with_retry_after_is_repeated_when_it_says(
    server: FakeApiServer, transport: Transport, clock: ManualClock, method: str
) -> None:
    server.on(
        method,
        LIST,
        error_answer(429, retry_after="3"),
        error_answer(503, retry_after="1"),
        Answer({"ok": True}),
    )
    answer = await (transport.get(LIST) if method == "GET" else transport.create(LIST, {"a": 1}))
    assert answer == {"ok": True}
    assert clock.slept == [3.0, 1.0]
    assert [request.body for request in server.requests] == [{"a": 1} if method == "POST" else None] * 3


async def test_a_refusal_is_repeated_only_so_often(
    server: FakeApiServer, transport: Transport, clock: ManualClock
) -> None:
    server.on("GET", LIST, error_answer(429, "TooManyRequests", retry_after="1"))
    with pytest.raises(errors.TooManyRequests) as caught:
        await transport.get(LIST)
    assert len(server.requests) == 4
    assert caught.value.retry_after_seconds == 1


async def test_a_refusal_that_asks_for_too_long_a_wait_is_not_repeated(
    server: FakeApiServer, transport: Transport, clock: ManualClock
) -> None:
    server.on("GET", LIST, error_answer(429, retry_after="3600"))
    with pytest.raises(errors.TooManyRequests):
        await transport.get(LIST)
    assert clock.slept == []


OVERTAKEN = status(
    409,
    "Conflict",
    'Operation cannot be fulfilled on resourcequotas "muster-objects": the object has been modified',
    name="muster-objects",
    kind="resourcequotas",
)
"""The API server's answer if two requests change the use of one ResourceQuota at the same moment."""


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
async def test_a_write_whose_quota_was_overtaken_is_repeated(
    server: FakeApiServer, transport: Transport, clock: ManualClock, method: str
) -> None:
    call = {"POST": transport.create, "PUT": transport.replace, "PATCH": transport.patch}[method]
    server.on(method, PATH, Answer(OVERTAKEN, 409), Answer(OVERTAKEN, 409), Answer({"ok": True}))
    assert await call(PATH, {"a": 1}) == {"ok": True}
    assert [request.body for request in server.requests] == [{"a": 1}] * 3
    assert len(clock.slept) == 2
    server.on(method, LIST, Answer(OVERTAKEN, 409))
    with pytest.raises(errors.QuotaOvertaken, match="muster-objects"):
        await call(LIST, {"a": 1})
    assert len(server.requests_of(method, LIST)) == 4


async def test_a_conflict_of_another_object_is_not_repeated(
    server: FakeApiServer, transport: Transport
) -> None:
    for details in ({"kind": "pods"}, {}):
        server.on(
            "POST", LIST, Answer(status(409, "Conflict", "the object has been modified", **details), 409)
        )
        with pytest.raises(errors.Conflict) as caught:
            await transport.create(LIST, {})
        assert type(caught.value) is errors.Conflict
    assert len(server.requests) == 2


async def test_a_read_whose_connection_was_cut_is_repeated(
    server: FakeApiServer, transport: Transport, clock: ManualClock
) -> None:
    server.on("GET", PATH, CUT, CUT, Answer(pod("a")))
    assert (await transport.get(PATH, Pod)).metadata.name == "a"
    assert clock.slept


@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_a_write_whose_connection_was_cut_is_not_repeated(
    server: FakeApiServer, transport: Transport, method: str
) -> None:
    server.on(method, PATH, CUT)
    with pytest.raises(errors.Unreachable):
        await (transport.create(PATH, {}) if method == "POST" else transport.patch(PATH, {}))
    assert len(server.requests) == 1


async def test_a_request_refused_for_an_old_token_is_repeated_with_the_new_one(server: FakeApiServer) -> None:
    tokens = iter(["old", "new", "new"])
    server.on("POST", LIST, error_answer(401, "Unauthorized"), Answer({}))
    async with Transport(access_to(server, token=lambda: next(tokens))) as transport:
        await transport.create(LIST, {})
    assert [request.headers["Authorization"] for request in server.requests] == ["Bearer old", "Bearer new"]


async def test_a_request_refused_for_the_token_that_still_holds_is_not_repeated(
    server: FakeApiServer,
) -> None:
    server.on("GET", LIST, error_answer(401, "Unauthorized"))
    async with Transport(access_to(server, token=lambda: "same")) as transport:
        with pytest.raises(errors.Unauthorized):
            await transport.get(LIST)
    assert len(server.requests) == 1


# --- lists ------------------------------------------------------------------------------------------------


async def test_a_list_is_read_page_by_page(server: FakeApiServer, transport: Transport) -> None:
    server.on("GET", LIST, page(pod("a"), version="7", more="two"), page(pod("b"), version="7"))
    answer = await transport.list(LIST, Pod, params={"labelSelector": "a=b,c"})
    assert [item.metadata.name for item in answer.items] == ["a", "b"]
    assert answer.resource_version == "7"
    assert [request.query for request in server.requests] == [
        {"limit": "500", "labelSelector": "a=b,c"},
        {"limit": "500", "labelSelector": "a=b,c", "continue": "two"},
    ]


async def test_a_list_whose_pages_expire_starts_again_and_at_last_asks_for_all_at_once(
    server: FakeApiServer, transport: Transport
) -> None:
    def answer(request: Request) -> Answer:
        if "continue" in request.query:
            return error_answer(410, "Expired")
        return page(pod("a"), more="two" if "limit" in request.query else "")

    server.on("GET", LIST, answer)
    assert [item.metadata.name for item in (await transport.list(LIST, Pod)).items] == ["a"]
    assert [sorted(request.query) for request in server.requests] == [
        ["limit"],
        ["continue", "limit"],
        ["limit"],
        ["continue", "limit"],
        [],
    ]


async def test_a_list_without_items_is_empty(server: FakeApiServer, transport: Transport) -> None:
    server.on("GET", LIST, Answer({"metadata": {"resourceVersion": "3"}, "items": None}))
    assert (await transport.list(LIST, Pod)).items == []


# --- writes -----------------------------------------------------------------------------------------------


async def test_a_struct_is_sent_with_its_kind_and_without_its_defaults(
    server: FakeApiServer, transport: Transport
) -> None:
    path = PROJECTS.path()
    server.on("POST", path, lambda request: Answer(request.body, 201))
    project = Project(Metadata("team-a"), ProjectSpec(gpu=GpuSpec(quota=Decimal("0.5"))))
    assert await transport.create(path, project, Project) == project
    assert server.requests[0].body == {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "Project",
        "metadata": {"name": "team-a"},
        "spec": {"gpu": {"quota": 0.5}},
    }


@pytest.mark.parametrize("content_type", [STRATEGIC_MERGE_PATCH, JSON_PATCH])
async def test_a_patch_names_its_kind(server: FakeApiServer, transport: Transport, content_type: str) -> None:
    server.on("PATCH", PATH, Answer(pod("a")))
    await transport.patch(PATH, [{"op": "test"}], content_type=content_type)
    assert server.requests[0].headers["Content-Type"] == content_type


async def test_apply_names_its_field_manager(server: FakeApiServer, transport: Transport) -> None:
    server.on("PATCH", PATH, Answer(pod("a")))
    await transport.apply(PATH, {"kind": "Pod"}, field_manager="muster")
    request = server.requests[0]
    assert request.headers["Content-Type"] == "application/apply-patch+yaml"
    assert request.query == {"fieldManager": "muster", "force": "true"}


async def test_a_deletion_names_the_uid_that_it_means(server: FakeApiServer, transport: Transport) -> None:
    server.on("DELETE", PATH, Answer(status(200)))
    await transport.delete(PATH, uid="u1", propagation="Foreground", grace_seconds=0)
    assert server.requests[0].body == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Foreground",
        "preconditions": {"uid": "u1"},
        "gracePeriodSeconds": 0,
    }


async def test_replace_puts_the_whole_object(server: FakeApiServer, transport: Transport) -> None:
    server.on("PUT", PATH, lambda request: Answer(request.body))
    assert (await transport.replace(PATH, pod("a", version="9"), Pod)).metadata.resource_version == "9"


# --- watches ----------------------------------------------------------------------------------------------


async def test_a_watch_asks_for_bookmarks_and_a_bounded_time(
    server: FakeApiServer, transport: Transport
) -> None:
    server.on("WATCH", LIST, Watch(event("ADDED", pod("a")), bookmark("12"), END))
    assert [event.type for event in await watched(transport, params={"fieldSelector": "x=y"})] == [
        "ADDED",
        "BOOKMARK",
    ]
    assert server.requests[0].query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "1",
        "timeoutSeconds": "300",
        "fieldSelector": "x=y",
    }


async def test_a_line_of_a_watch_may_be_very_long_and_come_in_parts(
    server: FakeApiServer, transport: Transport
) -> None:
    long = pod("a", annotations={"big": "x" * 3_000_000})
    server.on("WATCH", LIST, Watch(b'{"type":"ADD', b'ED","object":{}}\n\n', event("MODIFIED", long), END))
    first, second = await watched(transport)
    assert (first.type, bytes(first.object)) == ("ADDED", b"{}")
    assert len(bytes(second.object)) > 3_000_000


async def test_an_error_event_is_raised_as_the_error_of_its_code(
    server: FakeApiServer, transport: Transport
) -> None:
    server.on("WATCH", LIST, Watch(event("ERROR", status(410, "Expired", "too old resource version"))))
    with pytest.raises(errors.Gone, match="too old resource version"):
        await watched(transport)


async def test_a_watch_that_is_cut_is_unreachable(server: FakeApiServer, transport: Transport) -> None:
    server.on("WATCH", LIST, Watch(event("ADDED", pod("a")), CUT))
    with pytest.raises(errors.Unreachable):
        await watched(transport)


async def test_a_watch_that_is_refused_is_its_own_error(server: FakeApiServer, transport: Transport) -> None:
    server.on("WATCH", LIST, error_answer(403, "Forbidden", "pods is forbidden"))
    with pytest.raises(errors.Forbidden, match="pods is forbidden"):
        await watched(transport)


async def test_a_half_open_watch_is_noticed_after_the_servers_own_time_has_passed(
    server: FakeApiServer,
) -> None:
    server.on("WATCH", LIST, Watch(event("ADDED", pod("a")), SILENCE))
    async with Transport(access_to(server), limits=Limits(watch_grace_seconds=0.2)) as transport:
        started = time.monotonic()
        async with asyncio.timeout(DEADLINE_SECONDS):
            with pytest.raises(errors.Unreachable, match="no answer in time"):
                await watched(transport, timeout_seconds=0)
        assert time.monotonic() - started >= 0.2


async def test_other_tasks_run_during_a_burst_of_events(server: FakeApiServer, transport: Transport) -> None:
    lines = b'{"type":"ADDED","object":{}}\n' * 20_000
    server.on("WATCH", LIST, Watch(lines, END))
    seen, other_runs = 0, 0

    async def other_work() -> None:
        nonlocal other_runs
        while True:
            other_runs += 0 < seen < 20_000
            await asyncio.sleep(0)

    other = asyncio.ensure_future(other_work())
    async with aclosing(transport.watch(LIST, resource_version="1", timeout_seconds=300)) as events:
        async for _ in events:
            seen += 1
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)
    assert seen == 20_000
    assert other_runs > 1


async def test_a_log_is_read_as_text(server: FakeApiServer, transport: Transport) -> None:
    path = PODS.path("team", "a", "log")
    server.on("GET", path, Answer("Zürich\n".encode() + b"\xff"))
    assert await transport.text(path, params={"tailLines": 2}) == "Zürich\n\ufffd"
    async with aclosing(transport.stream(path)) as chunks:
        assert b"".join([chunk async for chunk in chunks]).endswith(b"\xff")
