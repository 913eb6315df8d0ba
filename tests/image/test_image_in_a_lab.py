"""The operator as shipped: the image of `make image`, deployed with the output of `operator-yaml`, on real nodes.

Covers `image.build` and `validation.targets.real_lab`.

The lab has no scheduler for other pods than muster's, so Kubernetes' own scheduler binds the operator's pods.
"""

import asyncio
import io
import json
import re
import ssl
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import pytest

import musterlab.kube_scheduler
from image import build
from musterbench.schedulers import kube_scheduler
from musterlab import oci
from musterlab.cluster import Lab
from orchestrator.client import Client, PythonDiffers, Submission
from orchestrator.names import LEASE_NAME, SYSTEM_NAMESPACE, WEB_ACCOUNT, WORKLOAD_LABEL
from orchestrator.progress import Reporter
from tests.cluster.certificates import Authority
from tests.control.operators import must, must_all, muster
from validation.judge.api.api_checks import judge_api
from validation.judge.check_verdict import Circumstances, Judgement
from validation.judge.evidence import NO_EVIDENCE
from validation.judge.timeline import Timeline
from validation.judge.verdict import Verdict
from validation.report.record import CheckResult
from validation.report.verify import verify
from validation.run.requesting import send_requests
from validation.targets.recorder import Recorder

pytestmark = [pytest.mark.lab, pytest.mark.real_nodes]

MAX_COMPRESSED_BYTES: Final = 100_000_000
MAX_SECONDS_TO_FIRST_BIND: Final = 30.0
IMAGE_OF_JOBS: Final = "gcr.io/run-ai-demo/quickstart"
BOUND_AT: Final = ".items[0].status.conditions[?(@.type=='PodScheduled')].lastTransitionTime"
SELECTOR: Final = "app.kubernetes.io/name=muster-operator"


@pytest.mark.rare
def test_two_builds_give_one_digest(archive: Path, tmp_path: Path) -> None:
    assert build.build(tmp_path).read_bytes() == archive.read_bytes()


def test_the_image_is_small_names_itself_and_is_not_for_root(archive: Path) -> None:
    assert archive.stat().st_size < MAX_COMPRESSED_BYTES
    with tarfile.open(archive) as layout:

        def read(name: str) -> dict[str, Any]:
            file = layout.extractfile(name)
            assert file is not None
            content: dict[str, Any] = json.loads(file.read())
            return content

        (described,) = read(oci.INDEX)["manifests"]
        manifest = read(blob(described["digest"]))
        config = read(blob(manifest["config"]["digest"]))["config"]
        layer = layout.extractfile(blob(manifest["layers"][0]["digest"]))
        assert layer is not None
        with tarfile.open(fileobj=io.BytesIO(layer.read())) as files:
            packages = {
                Path(name).name.partition("-")[0] for name in files.getnames() if name.endswith(".dist-info")
            }
            library = files.getmember(build.LIBRARY)
            authorities = files.extractfile(build.AUTHORITIES)
            assert authorities is not None
            assert authorities.read().count(b"BEGIN CERTIFICATE") > 100
            assert not [
                name for name in files.getnames() if "perl" in name or name.startswith("usr/share/ca-")
            ]
    assert described["annotations"][oci.NAME] == f"{build.REPOSITORY}:0.1.0"
    assert library.mode == 0o755
    assert library.size > 10_000
    assert config["User"] == "65532:65532"
    assert {"muster_gpu", "aiohttp", "msgspec", "starlette", "uvicorn"} <= packages
    assert {"joserfc", "cryptography"} <= packages, "the signatures of identity tokens, for the pages"
    assert not packages & {"pytest", "rich", "ansible", "kubernetes", "paramiko", "pip"}


def blob(digest: str) -> str:
    return f"{oci.BLOBS}/{digest.removeprefix('sha256:')}"


@dataclass
class Cluster:
    lab: Lab

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        command = [
            str(self.lab.kubectl_directory / "kubectl"),
            f"--kubeconfig={self.lab.kubeconfig}",
            *arguments,
        ]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def muster(self, *arguments: str) -> str:
        return must(self.lab.kubeconfig, *arguments)

    def operators(self) -> list[dict[str, Any]]:
        pods = self.kubectl("get", "pods", "-n", SYSTEM_NAMESPACE, "-l", SELECTOR, "-o", "json")
        items: list[dict[str, Any]] = json.loads(pods)["items"]
        return items

    def leader(self) -> str:
        """Return the pod that leads: its name is the identity without the unique part."""
        holder = self.kubectl(
            "get", "lease", LEASE_NAME, "-n", SYSTEM_NAMESPACE, "-o", "jsonpath={.spec.holderIdentity}"
        )
        return holder.partition("_")[0]

    def seconds_to_first_bind(self) -> float:
        """Return the seconds, by the API server's clock, from the Deployment to the binding of the only job."""
        times = [
            self.kubectl("get", *what, "-o", f"jsonpath={{{path}}}")
            for what, path in (
                (("deployment/muster-operator", "-n", SYSTEM_NAMESPACE), ".metadata.creationTimestamp"),
                (("pods", "-n", "muster-team-a"), BOUND_AT),
            )
        ]
        created, bound = (datetime.fromisoformat(text) for text in times)
        return (bound - created).total_seconds()

    def list_jobs(self) -> list[dict[str, Any]]:
        jobs: list[dict[str, Any]] = json.loads(self.muster("list", "-A", "-o", "json"))
        return jobs

    @contextmanager
    def forwarded(self, target: str, port: str) -> Iterator[int]:
        """Yield a port of loopback that leads to a port of a pod in muster-system."""
        command = [
            str(self.lab.kubectl_directory / "kubectl"), f"--kubeconfig={self.lab.kubeconfig}", "port-forward",
            "-n", SYSTEM_NAMESPACE, "--address=127.0.0.1", target, f":{port}",
        ]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()  # the line is: Forwarding from 127.0.0.1:PORT -> 8443
                yield int(line.partition("->")[0].rpartition(":")[2])
            finally:
                process.terminate()

    def wait_until_bound(self, job: str) -> None:
        pods = ("pods", "-n", "muster-team-a", "-l", f"{WORKLOAD_LABEL}={job}", "--timeout=120s")
        self.kubectl("wait", *pods, "--for=create")
        self.kubectl("wait", *pods, "--for=condition=PodScheduled")


@asynccontextmanager
async def cluster(archive: Path, directory: Path) -> AsyncIterator[Cluster]:
    """Yield two real nodes that can pull the image, and Kubernetes' own scheduler."""
    program = await musterlab.kube_scheduler.find(Reporter(print))
    async with Lab.attached(
        state_dir=directory / "labs", name="image", nodes=[("dgx1-v100-32g", 0)], real_nodes=2,
        image_archives=[archive],
    ) as lab:  # fmt: skip
        scheduler = await kube_scheduler(lab, directory, program)
        async with scheduler.running():
            yield Cluster(lab)


async def test_the_deployment_that_is_shipped_binds_jobs_and_survives_its_leader(
    archive: Path, tmp_path: Path
) -> None:
    async with cluster(archive, tmp_path) as site:
        await asyncio.to_thread(operate, site)
        assert await verdict_on_the_operator(site.lab.kubeconfig) == Judgement(Verdict.PASS)
        await asyncio.to_thread(call_functions, site)
        await asyncio.to_thread(look_at_pages, site)


def operate(site: Cluster) -> None:
    rendered = site.muster("operator-yaml", "--cluster", "lab")
    site.kubectl("apply", "-f", "-", given=rendered)
    site.kubectl("wait", "--for=condition=Established", "crd/projects.muster.dev", "--timeout=60s")
    submit = f"submit first -p team-a -g 1 -i {IMAGE_OF_JOBS}"
    must_all(site.lab.kubeconfig, "project create team-a -g 4", submit)
    site.wait_until_bound("first")
    seconds = site.seconds_to_first_bind()
    print(f"{seconds:.0f} s from `kubectl apply` to the first bind")
    assert seconds < MAX_SECONDS_TO_FIRST_BIND

    site.kubectl("rollout", "status", "deployment/muster-operator", "-n", SYSTEM_NAMESPACE, "--timeout=120s")
    pods = site.operators()
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    names = {pod["metadata"]["name"] for pod in pods}
    leader = site.leader()
    assert leader in names
    script = "import os; print(os.getuid(), os.access('/usr', os.W_OK), os.access('/tmp', os.W_OK))"
    who = site.kubectl("exec", "-n", SYSTEM_NAMESPACE, leader, "--", "python3", "-c", script)
    assert who.split() == ["65532", "False", "False"]

    site.kubectl("delete", "pod", leader, "-n", SYSTEM_NAMESPACE)
    site.muster("submit", "second", "-p", "team-a", "-g", "1", "-i", IMAGE_OF_JOBS)
    site.wait_until_bound("second")
    assert site.leader() != leader
    site.kubectl("rollout", "status", "deployment/muster-operator", "-n", SYSTEM_NAMESPACE, "--timeout=120s")
    assert all(
        status["restartCount"] == 0
        for pod in site.operators()
        for status in pod["status"]["containerStatuses"]
    )


def call_functions(site: Cluster) -> None:
    """Run `Client.map` in pods of the operator's image, whose user is not root, and whose Python is 3.11."""
    job = Submission(name="squares", image=f"{build.REPOSITORY}:0.1.0", user="ann", gpu_milli=1000)
    with Client(site.lab.kubeconfig, project="team-a") as client:
        if sys.version_info[:2] != (3, 11):
            with pytest.raises(PythonDiffers, match=r"the image has Python 3\.11,"):
                client.map(lambda number: number * number, [2, 3], job, timeout_seconds=300)
            return
        assert client.map(lambda number: number * number, [2, 3], job, timeout_seconds=300) == [4, 9]
    assert {each["name"] for each in site.list_jobs()} == {"first", "second"}


async def verdict_on_the_operator(kubeconfig: Path) -> Judgement:
    """Return the acceptance test's judgement on the operator. The doubles of its tests only have a real API server's
    answers.
    """
    recorder = Recorder()
    result = CheckResult("installation/api/operator", "installation", "api", "", "", "")
    async with recorder.watching(kubeconfig):
        await send_requests(recorder, "operator", result, 0)
    timeline, window = Timeline(recorder.events), result.volatile.window
    return judge_api("operator", Circumstances(), timeline, window, least=NO_EVIDENCE).judgement


def look_at_pages(site: Cluster) -> None:
    """Deploy the pages beside the operator, sign in with a user's token, and find the cluster's numbers."""
    authority = Authority()
    certificate, key = authority.issue("web", host="localhost")
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": "muster-web-tls", "namespace": SYSTEM_NAMESPACE},
        "stringData": {"tls.crt": certificate.decode(), "tls.key": key.decode()},
    }
    site.kubectl("apply", "-f", "-", given=json.dumps(secret))
    rendered = site.muster("operator-yaml", "--cluster", "lab", "--web", "--web-history")
    site.kubectl("apply", "-f", "-", given=rendered)
    deployment = ("-n", SYSTEM_NAMESPACE, f"deployment/{WEB_ACCOUNT}")
    site.kubectl("rollout", "status", *deployment, "--timeout=120s")

    site.kubectl("create", "serviceaccount", "sue", "-n", "default")
    site.kubectl("create", "serviceaccount", "nobody", "-n", "default")
    role = "--clusterrole=muster-viewer"
    site.kubectl("create", "clusterrolebinding", "sue", role, "--serviceaccount=default:sue")
    tokens = {
        name: site.kubectl("create", "token", name, "-n", "default").strip() for name in ("sue", "nobody")
    }
    with site.forwarded(deployment[-1], "8443") as port:
        browser = SecureBrowser(port, authority)
        assert browser.get("/healthz") == (200, "ok\n")
        status, page = browser.sign_in(tokens["sue"])
        assert status == 200
        (job,) = [job for job in site.list_jobs() if job["name"] == "first"]
        assert all(word in page for word in ("first", job["node"], "team-a")), page
        # a page shows the rights of its user, not those of the pages' own account, which is a viewer
        _, page = SecureBrowser(port, authority).sign_in(tokens["nobody"])
        assert "first" not in page

    inside = site.kubectl("exec", *deployment, "--", "python3", "-c", INSIDE)
    assert inside.split() == ["65532", "False", "['ca.crt']", "True"]
    selector = f"app.kubernetes.io/name={WEB_ACCOUNT}"
    pods = site.kubectl("get", "pods", "-n", SYSTEM_NAMESPACE, "-l", selector, "-o", "json")
    (pod,) = json.loads(pods)["items"]
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0


INSIDE: Final = """
import os, pathlib
account = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
files = sorted(file.name for file in account.iterdir() if not file.name.startswith(".."))
print(os.getuid(), os.access("/usr", os.W_OK), files, os.path.exists("/history/history.db"))
"""
"""Prints the user of the pages' process, whether its root is writable, its account's files, and whether it records."""


class SecureBrowser:
    """A browser that trusts one authority, keeps cookies, and follows the redirect after a form."""

    def __init__(self, port: int, authority: Authority) -> None:
        context = ssl.create_default_context(cadata=authority.pem.decode())
        self._origin = f"https://localhost:{port}"
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=context), urllib.request.HTTPCookieProcessor()
        )

    def get(self, path: str, fields: dict[str, str] | None = None) -> tuple[int, str]:
        """Open a page, or send a form with these fields; return status and text."""
        body = None if fields is None else urlencode(fields).encode()
        request = urllib.request.Request(  # noqa: S310 - its origin is https
            self._origin + path, body, {"Origin": self._origin}
        )
        with self._opener.open(request, timeout=60) as answer:
            return answer.status, answer.read().decode()

    def sign_in(self, token: str) -> tuple[int, str]:
        """Sign in; return status and text of the next page."""
        _, form = self.get("/sign-in")
        found = re.search('name="form_token" value="([^"]*)"', form)
        assert found
        return self.get("/sign-in", {"token": token, "project": "", "form_token": found[1]})


@pytest.mark.rare  # two minutes and a half
def test_a_lab_of_real_nodes_is_validated_with_volumes_witnesses_and_the_image(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, state = tmp_path / "report", tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    parts = ("--part", "victims", "--part", "storage", "--part", "installation", "--part", "views")
    options = ("--real-nodes", "2", "--image", str(archive), *parts, "--out", str(out))
    done = muster(tmp_path / "no-kubeconfig", "validate", *options, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((out / "report.json").read_text())
    unproven = {check["id"] for check in report["steps"] if check["required"] and check["verdict"] != "PASS"}
    assert unproven == {"installation/api/storage-class"}, "no ONTAP: it does not apply"
    digest = oci.read_index(archive)[f"{build.REPOSITORY}:0.1.0"]["digest"]
    assert report["target"]["operator"].startswith(
        f"the image {build.REPOSITORY}:0.1.0@{digest} as a Deployment"
    )
    assert report["target"]["nodes are"].startswith("real")
    assert (report["target"]["kind"], report["scope"]["profile"]) == ("lab-real", "lab-real")
    judged = {check["id"]: check["verdict"] for check in report["steps"]}
    assert judged["pvc-test/invariant/kubelet-agrees"] == "PASS"
    assert judged["pvc-test/invariant/processes-on-own-gpus"] == "PASS"
    assert (out / "operator.log").read_text().count("--- muster-operator-") == 2
    assert verify(out).problems == []
    assert list((state / "muster/labs").iterdir()) == []
