"""Every command in TR-4858, with `muster` for `runai`: each line must have the paper's meaning."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import MemoryApiServer

from tests.cli.memory_api_server import claim_of, namespace_of

QUICKSTART = "gcr.io/run-ai-demo/quickstart"

JUPYTER = (
    "submit a-1-1-jupyter -i jupyter/base-notebook -g 1 --interactive --service-type=ingress --port 8888 "
    '--args="--NotebookApp.base_url=team-a-test-ingress" --command=start-notebook.sh -p team-a'
)
RESNET = (
    "submit netapp1 -i netapp/tensorflow-tf1-py3:20.01.0 --local-image --large-shm -v /mnt:/mnt -v /tmp:/tmp "
    '--command python --args "/netapp/scripts/run.py" '
    '--args "--dataset_dir=/mnt/mount_0/dataset/imagenet/imagenet_original/" '
    '--args "--num_mounts=2" --args "--dgx_version=dgx1" --args "--num_devices=1" -g 1'
)

TEST_INGRESS = (
    "submit test-ingress -i jupyter/base-notebook -g 1 --interactive --service-type=ingress --port 8888 "
    '--args="--NotebookApp.base_url=test-ingress" --command=start-notebook.sh'
)

SECTIONS_4_8_TO_4_10: list[tuple[str, str, str, str]] = [
    (JUPYTER, "team-a", "1", "interactive"),
    (f"submit a-1-g -i {QUICKSTART} -g 1 -p team-a", "team-a", "1", "train"),
    (f"submit a-2-gg -i {QUICKSTART} -g 2 -p team-a", "team-a", "2", "train"),
    (f"submit b-1-g06 -i {QUICKSTART} -g 0.6 --interactive -p team-b", "team-b", "0.6", "interactive"),
    (f"submit b-2-g04 -i {QUICKSTART} -g 0.4 --interactive -p team-b", "team-b", "0.4", "interactive"),
    (f"submit b-3-g -i {QUICKSTART} -g 1 -p team-b", "team-b", "1", "train"),
    (f"submit b-4-gg -i {QUICKSTART} -g 2 -p team-b", "team-b", "2", "train"),
    (f"submit c-1-g05 -i {QUICKSTART} -g 0.5 --interactive -p team-c", "team-c", "0.5", "interactive"),
    (f"submit c-2-g03 -i {QUICKSTART} -g 0.3 --interactive -p team-c", "team-c", "0.3", "interactive"),
    (f"submit c-3-g02 -i {QUICKSTART} -g 0.2 --interactive -p team-c", "team-c", "0.2", "interactive"),
    (f"submit c-4-gg -i {QUICKSTART} -g 2 -p team-c", "team-c", "2", "train"),
    (f"submit c-5-g -i {QUICKSTART} -g 1 -p team-c", "team-c", "1", "train"),
    (f"submit d-1-gggg -i {QUICKSTART} -g 4 -p team-d", "team-d", "4", "train"),
    (f"submit d-2-gg -i {QUICKSTART} -g 2 -p team-d", "team-d", "2", "train"),
    (f"submit d-3-gg -i {QUICKSTART} -g 2 -p team-d", "team-d", "2", "train"),
    (f"submit a-3-gg -i {QUICKSTART} -g 2 -p team-a", "team-a", "2", "train"),
    (f"submit a-4-gg -i {QUICKSTART} -g 2 -p team-a", "team-a", "2", "train"),
    (f"submit b-5-gg -i {QUICKSTART} -g 2 -p team-b", "team-b", "2", "train"),
    (f"submit c-6-gg -i {QUICKSTART} -g 2 -p team-c", "team-c", "2", "train"),
]


@pytest.fixture(autouse=True)
def teams_c_and_d(server: MemoryApiServer) -> None:
    server.add(namespace_of("team-c"), namespace_of("team-d"))
    server.add(claim_of("test", "muster-team-a"))


@pytest.mark.parametrize("printed", SECTIONS_4_8_TO_4_10, ids=lambda printed: printed[0].split()[1])
def test_a_printed_submission_has_the_meaning_of_the_paper(
    printed: tuple[str, str, str, str], muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    line, project, gpus, kind = printed
    outcome = muster(*shlex.split(line))
    assert (outcome.code, outcome.err) == (0, "")
    workload = _only(server, "statefulsets" if kind == "interactive" else "jobs")
    template = workload["spec"]["template"]
    assert workload["metadata"]["name"] == line.split()[1]
    assert workload["metadata"]["namespace"] == {"team-b": "people-of-b"}.get(project, f"muster-{project}")
    assert template["metadata"]["labels"]["muster.dev/type"] == kind
    limits = template["spec"]["containers"][0]["resources"].get("limits", {})
    fraction = template["metadata"]["annotations"].get("muster.dev/gpu-fraction")
    assert (limits.get("nvidia.com/gpu"), fraction) == ((None, gpus) if "." in gpus else (gpus, None))


def test_the_notebook_gets_its_base_url_and_an_ingress(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    assert muster(*shlex.split(JUPYTER)).code == 0
    container = _only(server, "statefulsets")["spec"]["template"]["spec"]["containers"][0]
    assert container["command"] == ["start-notebook.sh"]
    assert container["args"] == ["--NotebookApp.base_url=team-a-test-ingress"]
    paths = _only(server, "ingresses")["spec"]["rules"][0]["http"]["paths"]
    # the paper's figure shows the short path, later versions use the long one
    assert [path["path"] for path in paths] == ["/team-a-a-1-1-jupyter", "/a-1-1-jupyter"]
    for path in paths:
        assert path["backend"]["service"] == {"name": "a-1-1-jupyter", "port": {"number": 8888}}


def test_the_resnet_benchmark_keeps_arguments_that_begin_with_dashes(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    assert muster(*shlex.split(RESNET)).code == 0
    spec = _only(server, "jobs")["spec"]["template"]["spec"]
    container = spec["containers"][0]
    assert container["command"] == ["python"]
    assert container["args"] == [
        "/netapp/scripts/run.py",
        "--dataset_dir=/mnt/mount_0/dataset/imagenet/imagenet_original/",
        "--num_mounts=2",
        "--dgx_version=dgx1",
        "--num_devices=1",
    ]
    assert container["imagePullPolicy"] == "Never"
    assert [each["mountPath"] for each in container["volumeMounts"]] == ["/mnt", "/tmp", "/dev/shm"]  # noqa: S108
    assert spec["volumes"][2]["emptyDir"] == {"medium": "Memory"}


EXAMPLES: list[tuple[str, str, list[str] | None, list[str] | None]] = [
    (f"submit hyper1 -i {QUICKSTART} -g 1", "jobs", None, None),
    (
        "submit build1 -i python -g 1 --interactive --command sleep --args infinity",
        "statefulsets",
        ["sleep"],
        ["infinity"],
    ),
    (TEST_INGRESS, "statefulsets", ["start-notebook.sh"], ["--NotebookApp.base_url=test-ingress"]),
    (f"submit pvc-test -p team-a --pvc test:/tmp/pvc1mount -i {QUICKSTART} -g 1", "jobs", None, None),
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example[0].split()[1])
def test_the_examples_of_chapter_4(
    example: tuple[str, str, list[str] | None, list[str] | None],
    muster: Callable[..., Outcome],
    server: MemoryApiServer,
) -> None:
    line, plural, command, args = example
    assert muster(*shlex.split(line)).code == 0
    workload = _only(server, plural)
    container = workload["spec"]["template"]["spec"]["containers"][0]
    assert workload["metadata"]["name"] == line.split()[1]
    assert (container.get("command"), container.get("args")) == (command, args)


def test_an_existing_claim_is_mounted_where_the_paper_says(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    line = f"submit pvc-test -p team-a --pvc test:/tmp/pvc1mount -i {QUICKSTART} -g 1"
    assert muster(*shlex.split(line)).code == 0
    spec = _only(server, "jobs")["spec"]["template"]["spec"]
    assert spec["volumes"] == [{"name": "volume-0", "persistentVolumeClaim": {"claimName": "test"}}]
    assert spec["containers"][0]["volumeMounts"] == [{"name": "volume-0", "mountPath": "/tmp/pvc1mount"}]  # noqa: S108


def test_section_4_10_ends_with_the_jobs_of_team_d_deleted(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    for line, project, _, _ in SECTIONS_4_8_TO_4_10:
        if project == "team-d":
            assert muster(*shlex.split(line)).code == 0
    assert len(server.all("jobs")) == 3
    outcome = muster(*shlex.split("delete -p team-d d-1-gggg d-2-gg d-3-gg"))
    assert outcome.code == 0
    assert outcome.lines == [
        f"The job '{name}' has been deleted successfully" for name in ("d-1-gggg", "d-2-gg", "d-3-gg")
    ]
    assert server.all("jobs") == []


def test_the_read_commands_of_chapter_4(muster: Callable[..., Outcome], server: MemoryApiServer) -> None:
    assert muster("project", "set", "team-a").code == 0
    assert muster("submit", "hyper1", "-i", QUICKSTART, "-g", "1").code == 0
    assert muster("list").lines[0] == "Showing jobs for project team-a"
    assert muster("get", "hyper1").lines[0] == "NAME: hyper1"
    assert muster("get", "hyper1", "-p", "team-a").code == 0
    assert muster("delete", "hyper1").code == 0


def _only(server: MemoryApiServer, plural: str) -> dict[str, Any]:
    (found,) = server.all(plural)
    return found
