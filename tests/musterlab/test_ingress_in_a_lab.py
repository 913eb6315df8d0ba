"""Notebooks behind a real ingress controller, Traefik: their SERVICE URLs answer HTTP 200.

Once with a site's class and domain, with a host for each project, and once without a domain, with one host for all.
"""

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
from musterlab.errors import BinariesError, LabError
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.transport import Transport
from orchestrator.progress import Reporter
from tests.cluster.waiting import DEADLINE_SECONDS, poll
from tests.control.operators import must, operator, prepare

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.lab, pytest.mark.real_nodes]

DOMAIN = "gpus.example.com"
CLASS = "traefik"
OPTIONS = (f"--ingress-class={CLASS}", f"--ingress-domain={DOMAIN}")


@contextmanager
def controller(lab: musterlab.cluster.Lab, program: Path, folder: Path, ingress_class: str) -> Iterator[None]:
    """Run Traefik for one class of Ingresses."""
    asyncio.run(permit(lab, ingress_class))
    command = ingress.configure(lab, folder, program, ingress_class=ingress_class, domain=DOMAIN)
    with (folder / "traefik.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


async def permit(lab: musterlab.cluster.Lab, ingress_class: str) -> None:
    async with Transport(load_access(lab.kubeconfig)) as transport:
        await ingress.permit(transport, ingress_class)


def get(lab: musterlab.cluster.Lab, url: str) -> tuple[int, str]:
    """Return status and text that a browser gets if the domain leads to the controller. Redirects are followed."""
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
    """Return the page once the controller knows the pod."""
    deadline, last = time.monotonic() + DEADLINE_SECONDS, ""
    while time.monotonic() < deadline:
        if last:
            time.sleep(0.05)
        try:
            status, text = get(lab, url)
        except (LabError, OSError, http.client.HTTPException) as error:
            last = str(error)
            continue
        if status == 200:
            return text
        last = f"{status}: {text}"
    raise AssertionError(f"{url}: {last}")


def until_listed(config: Path, project: str, url: str) -> None:
    """Wait until the URL is the SERVICE URL of a job, after the controller has accepted its Ingress."""
    poll(lambda: url in must(config, "list", "-p", project), f"{url} is listed")


@pytest.fixture(scope="module")
def traefik() -> Path:
    """Return the program. It is built once, which needs a network."""
    try:
        return asyncio.run(ingress.find(Reporter(print)))
    except BinariesError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[musterlab.cluster.Lab]:
    labs = tmp_path_factory.mktemp("ingress")
    running = musterlab.cluster.start("ingress", nodes=0, real_nodes=1, detach=False, state_dir=labs)
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def account(lab: musterlab.cluster.Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a kubeconfig for the operator's own account."""
    return asyncio.run(prepare(lab.kubeconfig, tmp_path_factory.mktemp("account") / "kubeconfig"))


def test_the_service_url_of_a_notebook_answers(
    lab: musterlab.cluster.Lab, account: Path, traefik: Path, tmp_path: Path
) -> None:
    config = lab.kubeconfig
    with operator(account, tmp_path / "operator.log"), controller(lab, traefik, tmp_path, "nginx"):
        must(config, "project", "create", "team-a", "--gpu", "2")
        must(config, "submit", "note", "-p", "team-a", "--jupyter", "-g", "1", "-s", "ingress")
        must(config, "exec", "note", "-p", "team-a", "true")
        until_listed(config, "team-a", f"http://{DOMAIN}/team-a-note")
        assert "note-0" in until_served(lab, f"http://{DOMAIN}/team-a-note")
        assert get(lab, f"http://{DOMAIN}/team-b-note")[0] == 404


def test_with_a_domain_notebooks_of_one_name_answer_at_the_hosts_of_their_projects(
    lab: musterlab.cluster.Lab, account: Path, traefik: Path, tmp_path: Path
) -> None:
    config = lab.kubeconfig
    with (
        operator(account, tmp_path / "operator.log", "operator-1", *OPTIONS),
        controller(lab, traefik, tmp_path, CLASS),
    ):
        for project in ("team-c", "team-d"):
            must(config, "project", "create", project, "--gpu", "1")
            must(config, "submit", "same", "-p", project, "--jupyter", "-g", "1", "-s", "ingress")
        for project in ("team-c", "team-d"):
            url = f"http://{project}.{DOMAIN}/{project}-same"
            must(config, "exec", "same", "-p", project, "true")
            until_listed(config, project, url)
            assert "same-0" in until_served(lab, url)
        assert get(lab, f"http://team-c.{DOMAIN}/team-d-same")[0] == 404
        assert get(lab, f"http://{DOMAIN}/team-c-same")[0] == 404
