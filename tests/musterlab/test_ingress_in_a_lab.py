"""A notebook behind a real ingress controller, Traefik: its SERVICE URL answers HTTP 200."""

from __future__ import annotations

import asyncio
import http.client
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

import musterlab.cluster
from musterlab import ingress
from musterlab.errors import LabError
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.transport import Transport
from orchestrator.progress import Reporter
from tests.cluster.waiting import DEADLINE_SECONDS
from tests.control.operators import must, operator, prepare

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.rare, pytest.mark.lab, pytest.mark.real_nodes]

DOMAIN = "gpus.example.com"


@contextmanager
def controller(lab: musterlab.cluster.Lab, folder: Path) -> Iterator[None]:
    """Traefik, for the class of muster's Ingresses."""
    program = asyncio.run(ingress.find(Reporter(print)))
    asyncio.run(permit(lab))
    command = ingress.configure(lab, folder, program, ingress_class="nginx", domain=DOMAIN)
    with (folder / "traefik.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


async def permit(lab: musterlab.cluster.Lab) -> None:
    async with Transport(load_access(lab.kubeconfig)) as transport:
        await ingress.permit(transport, "nginx")


def get(lab: musterlab.cluster.Lab, url: str) -> tuple[int, str]:
    """What a browser gets to which the domain leads here; redirects are followed."""
    for _ in range(3):
        address = urlsplit(url)
        connection = http.client.HTTPConnection(address.netloc)
        connection.sock = ingress.connect(lab)
        connection.request("GET", address.path)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        if answer.status not in (301, 302):
            return answer.status, text
        url = f"http://{address.netloc}{urlsplit(answer.headers['Location']).path}"
    raise AssertionError(f"{url} leads in a circle")


def until_served(lab: musterlab.cluster.Lab, url: str) -> str:
    """The page, once the controller has read of the pod."""
    deadline, last = time.monotonic() + DEADLINE_SECONDS, ""
    while time.monotonic() < deadline:
        try:
            status, text = get(lab, url)
        except (LabError, OSError, http.client.HTTPException) as error:
            last = str(error)
            continue
        if status == 200:
            return text
        last = f"{status}: {text}"
    raise AssertionError(f"{url}: {last}")


def test_the_service_url_of_a_notebook_answers(tmp_path: Path) -> None:
    lab = musterlab.cluster.start("ingress", nodes=0, real_nodes=1, detach=False, state_dir=tmp_path / "labs")
    try:
        own = asyncio.run(prepare(lab.kubeconfig, tmp_path / "operator-kubeconfig"))
        with operator(own, tmp_path / "operator.log"), controller(lab, tmp_path):
            config = lab.kubeconfig
            must(config, "project", "create", "team-a", "--gpu", "4")
            must(config, "submit", "note", "-p", "team-a", "--jupyter", "-g", "1", "-s", "ingress")
            must(config, "exec", "note", "-p", "team-a", "true")
            deadline = time.monotonic() + DEADLINE_SECONDS
            while f"http://{DOMAIN}/team-a-note" not in (listed := must(config, "list", "-p", "team-a")):
                assert time.monotonic() < deadline, listed
            assert "note-0" in until_served(lab, f"http://{DOMAIN}/team-a-note")
            assert get(lab, f"http://{DOMAIN}/team-b-note")[0] == 404
    finally:
        lab.stop()
