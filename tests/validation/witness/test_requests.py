"""Single requests to the API server: the bytes that are sent, and the result of each kind of answer."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.fake_api_server import CUT, Answer, serving
from tests.cluster.fake_api_server import Request as Received
from tests.validation.witness.test_reader import kubeconfig
from validation.targets.recorder import Recorder
from validation.witness import requests
from validation.witness.reader import ReadFailed, connect

PATH = "/api/v1/namespaces"


async def send(
    directory: Path, method: str, path: str, body: str, *answers: Any
) -> tuple[Received, int, str]:
    async with serving() as server:
        server.on(method, path.partition("?")[0], *answers)
        client = connect(kubeconfig(directory, server.url))
        status, text = await asyncio.to_thread(requests.send, client, method, path, body)
        (request,) = server.requests
        return request, status, text


async def test_a_request_is_sent_once_with_the_user_s_access(tmp_path: Path) -> None:
    body = '{"metadata":{"name":"dra-test"}}'
    request, status, text = await send(tmp_path, "POST", PATH, body, Answer({"kind": "Namespace"}, 201))
    assert (request.method, request.path, request.body) == ("POST", PATH, json.loads(body))
    assert request.headers["Authorization"] == "Bearer secret"
    assert request.headers["Content-Type"] == "application/json"
    assert (status, json.loads(text)) == (201, {"kind": "Namespace"})


async def test_text_after_a_question_mark_is_the_query(tmp_path: Path) -> None:
    request, _, _ = await send(tmp_path, "GET", f"{PATH}?labelSelector=a.b/c=d", "", Answer({}))
    assert (request.path, request.query, request.body) == (PATH, {"labelSelector": "a.b/c=d"}, None)


@pytest.mark.parametrize("status", [200, 201, 400, 401, 403, 404, 409, 422, 429, 500, 503])
async def test_every_status_is_an_answer(status: int, tmp_path: Path) -> None:
    assert (await send(tmp_path, "GET", PATH, "", Answer({"message": "x"}, status)))[1] == status


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"[1]", b"[" * 100_000, b'{"items": 3}', b'{"metadata": []}']
)
async def test_a_text_that_is_no_object_is_handed_on(content: bytes, tmp_path: Path) -> None:
    _, status, text = await send(tmp_path, "GET", PATH, "", Answer(content))
    assert (status, text.replace(" ", "")) == (200, content.decode(errors="replace").replace(" ", ""))


async def test_managed_fields_are_left_out(tmp_path: Path) -> None:
    entry = {"metadata": {"name": "a", "managedFields": [{"manager": "kubectl"}]}}
    _, _, text = await send(tmp_path, "GET", PATH, "", Answer({**entry, "items": [entry, 3]}))
    assert json.loads(text) == {"metadata": {"name": "a"}, "items": [{"metadata": {"name": "a"}}, 3]}


async def test_no_answer_and_one_without_an_end_are_not_read(tmp_path: Path) -> None:
    with pytest.raises(ReadFailed):
        await send(tmp_path, "GET", PATH, "", CUT)
    with pytest.raises(ReadFailed, match="is longer than 4194304 bytes"):
        await send(tmp_path, "GET", PATH, "", Answer(b"x" * (requests.MAX_BYTES + 1)))


async def test_the_recorder_says_so_if_the_cluster_is_not_watched() -> None:
    answered = await Recorder().request("version", "GET", "/version")
    assert (answered.status, answered.problem) == (0, "the cluster is not watched")
