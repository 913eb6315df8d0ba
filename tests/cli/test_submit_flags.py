"""Every flag of submit: the resulting objects, the refused values, and the objects that must exist."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.cli.submit_options import OLD_FLAGS
from tests.cli.memory_api_server import claim_of, namespace_of, node, project_of, secret_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import MemoryApiServer

    Muster = Callable[..., Outcome]

IMAGE = ("-i", "gcr.io/run-ai-demo/quickstart")
NAMESPACE = "muster-team-a"
HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"

JOB_KIND = {"apiVersion": "batch/v1", "kind": "Job"}
C = ("spec", "template", "spec", "containers", 0)
S = ("spec", "template", "spec")
A = ("spec", "template", "metadata", "annotations")

EQUAL = {"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}
EXISTS = {"key": "a", "operator": "Exists", "effect": "NoExecute"}
IDS = {"runAsUser": 7, "runAsGroup": 8, "supplementalGroups": [9, 10]}

FLAGS: list[tuple[str, tuple[Any, ...], Any]] = [
    ("--gpu-memory 4G", (*A, "muster.dev/gpu-memory"), "4G"),
    ("-g 0.5 --gpu-devices 2", (*A, "muster.dev/gpu-fraction-devices"), "2"),
    ("-g 0.5 --gpu-devices 2", (*C, "resources", "requests", "cpu"), "1"),
    ("-g 0.5", (*C, "resources", "limits"), {"muster.dev/gpu-part": "1"}),
    ("--gpu-memory 4G", (*C, "resources", "limits"), {"muster.dev/gpu-part": "1"}),
    ("-g 2", (*C, "resources", "limits"), {"nvidia.com/gpu": "2"}),
    ("--gpu-memory 500M", (*C, "resources", "requests"), {"cpu": "1", "memory": "100Mi"}),
    ("--extended-resource rdma/hca=2", (*C, "resources", "limits", "rdma/hca"), "2"),
    ("--always-pull-image", (*C, "imagePullPolicy"), "Always"),
    ("--working-dir /work", (*C, "workingDir"), "/work"),
    ("--python 3.12 --command -- a b", (*C, "command"), ["uv", "run", "--python", "3.12", "--", "a", "b"]),
    ("--python 3.12.1 -- a b", (*C, "command"), ["uv", "run", "--python", "3.12.1", "--"]),
    ("--create-home-dir", (*C, "volumeMounts", 0, "mountPath"), "/home/runai-home"),
    ("-v /a:/b --mount-propagation", (*C, "volumeMounts", 0, "mountPropagation"), "HostToContainer"),
    ("-v /a:/b:ro:nas", (*S, "volumes", 0, "nfs"), {"server": "nas", "path": "/a"}),
    ("-v /a:/b --nfs-server nas", (*S, "volumes", 0, "nfs"), {"server": "nas", "path": "/a"}),
    ("--toleration a=b:NoSchedule", (*S, "tolerations", 0), EQUAL),
    ("--toleration a", (*S, "tolerations", 0), {"key": "a", "operator": "Exists"}),
    ("--toleration operator=Exists,key=a,effect=NoExecute", (*S, "tolerations", 0), EXISTS),
    ("--required-pod-topology-key example.com/rack", (*A, "muster.dev/topology-required"), "example.com/rack"),
    ("--run-as-uid 7 --run-as-gid 8 --supplemental-groups 9,10", (*S, "securityContext"), IDS),
    ("--prevent-privilege-escalation", (*C, "securityContext"), {"allowPrivilegeEscalation": False}),
    ("--allow-privilege-escalation=false", (*C, "securityContext"), {"allowPrivilegeEscalation": False}),
    ("--add-capability CAP_NET_ADMIN", (*C, "securityContext", "capabilities"), {"add": ["NET_ADMIN"]}),
    ("-l team=red", ("spec", "template", "metadata", "labels", "team"), "red"),
    ("-l team=red", ("metadata", "labels", "team"), "red"),
    ("-a example.com/x=y=z", ("metadata", "annotations", "example.com/x"), "y=z"),
    ("-a x=", (*A, "x"), ""),
    ("-a muster.dev/lab-run-seconds=0.5", (*A, "muster.dev/lab-run-seconds"), "0.5"),
    ("-a muster.dev/lab-stop-seconds=20", (*A, "muster.dev/lab-stop-seconds"), "20"),
    ("-a muster.dev/lab-exit-code=3", (*A, "muster.dev/lab-exit-code"), "3"),
    ("--stdin -t", (*C, "tty"), True),
    ("--time-limit 90m", (*S, "activeDeadlineSeconds"), 5400),
    ("--ttl-after-finish 2m", ("spec", "ttlSecondsAfterFinished"), 120),
    ("--auto-deletion-time-after-completion 1h", ("spec", "ttlSecondsAfterFinished"), 3600),
    ("--git-sync source=https://example.com/a.git", (*S, "initContainers", 0, "name"), "git-sync"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "path", "value"), FLAGS, ids=lambda each: each if isinstance(each, str) else ""
)
def test_a_flag_reaches_its_field(
    words: str, path: tuple[Any, ...], value: object, muster: Muster, server: MemoryApiServer
) -> None:
    outcome = muster("submit", "x", *IMAGE, *words.split())
    assert (outcome.code, outcome.err) == (0, "")
    (found,) = server.all("jobs")
    for step in path:
        found = found[step]
    assert found == value


def test_run_as_user_means_the_submitter(muster: Muster, server: MemoryApiServer) -> None:
    assert muster("submit", "x", *IMAGE, "--run-as-user").code == 0
    context = server.all("jobs")[0]["spec"]["template"]["spec"]["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"]) == (os.getuid(), os.getgid())


REFUSED = [
    ("--gpu-memory 99M", "at least 100M"),
    ("--gpu-memory much", "--gpu-memory"),
    ("--gpu-memory 4G -g 1", "give one of them"),
    ("--gpu-devices 2", "--gpu-devices"),
    ("--gpu-devices 2 -g 1", "--gpu-devices"),
    ("--extended-resource nvidia.com/gpu=1", "use -g/--gpu"),
    ("--extended-resource rdma=1", "rdma/hca=1"),
    ("--extended-resource rdma/hca=0", "whole number from 1 up"),
    ("--always-pull-image --local-image", "--always-pull-image"),
    ("-v /a:/b:zz", "/HOST/PATH"),
    ("--pvc a:1Gi:b", "[STORAGE-CLASS]:SIZE"),
    ("--pvc-exists path=/x", "claimname=NAME"),
    ("--pvc-new size=1Gi", "size=SIZE"),
    ("--pvc-new size=1Gi,path=/x,claimname=y", "named after it"),
    ("--pvc-new size=1Gi,path=/x,frob", "unknown field"),
    ("--toleration a=b:Never", "NoExecute"),
    ("--run-as-uid root", "number from 0"),
    ("--run-as-uid 4294967296", "number from 0"),
    ("--supplemental-groups 1,x", "--supplemental-groups"),
    ("--run-as-user --run-as-uid 1", "--run-as-user"),
    ("--prevent-privilege-escalation --allow-privilege-escalation", "give one of them"),
    ("--add-capability net", "NET_ADMIN"),
    ("-l a", "KEY=VALUE"),
    ("-l a=b/c", "63 letters"),
    ("-l muster.dev/type=x", "not yours"),
    ("-a kubernetes.io/x=y", "not yours"),
    ("-a muster.dev/admitted=x", "not yours"),
    ("-a muster.dev/lab-frob=1", "not yours"),
    ("-a muster.dev/lab-run-seconds=30s", "give a number"),
    ("-a muster.dev/lab-exit-code=-1", "give a number"),
    ("-a muster.dev/lab-exit-code", "give a number"),
    ("-a =x", "KEY=VALUE"),
    ("-t", "--stdin"),
    ("--env-file /nowhere/at/all", "--env-file"),
    ("--git-sync branch=x", "source"),
    ("--create-home-dir -v /a:/home/runai-home", "/home/runai-home"),
    ("--dry-run=maybe", "--dry-run"),
    ("-o wide", "--output"),
    ("--job-name-prefix A", "--job-name-prefix"),
    ("--jupyter --interactive=false", "--jupyter"),
    ("--wait-timeout soon", "--wait-timeout"),
    ("--time-limit 0s", "--time-limit"),
    ("--time-limit 1h --interactive", "--time-limit does not go with --interactive"),
    ("--address here", "--address"),
    ("--python 2 -- a", "--python '2' is not possible: give a version such as 3.12"),
    ("--python=--with -- a", "--python '--with' is not possible"),
    ("--python 3.12", "--python needs a command"),
    ("--required-pod-topology-key a/b/c", "--required-pod-topology-key"),
    ("--mig-profile 1g.5gb", "--mig-profile"),
    ("--inference", "Deployment"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED, ids=lambda each: each)
def test_a_wrong_value_is_refused_in_one_line_and_nothing_is_created(
    words: str, message: str, muster: Muster, server: MemoryApiServer
) -> None:
    outcome = muster("submit", "x", *IMAGE, *words.split())
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("Error: ")
    assert outcome.err.count("\n") == 1
    assert message in outcome.err
    assert server.writes() == []


@pytest.mark.parametrize("flag", sorted(OLD_FLAGS))
def test_an_old_flag_is_refused_or_has_no_effect_and_says_why(
    flag: str, muster: Muster, server: MemoryApiServer
) -> None:
    old = OLD_FLAGS[flag]
    outcome = muster("submit", "x", *IMAGE, flag, *(["1"] if old.takes_value else []))
    assert outcome.code == (2 if old.refused else 0)
    assert outcome.err.count("\n") == 1
    assert f"{flag} " in outcome.err
    assert old.reason in outcome.err
    assert bool(server.all("jobs")) != old.refused


def test_every_old_flag_is_in_the_documentation() -> None:
    text = (HOW_TO / "from-runai.md").read_text(encoding="utf-8")
    assert [flag for flag in OLD_FLAGS if f"`{flag}`" not in text] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--pvc data:/data", "--pvc data: project team-a has no volume claim of that name; there are: other"),
        ("--pvc-exists claimname=data,path=/x", "--pvc data"),
        ("-e A=SECRET:vault,key", "project team-a has no secret 'vault'"),
        ("-e A=SECRET:robot,nothing", "secret 'robot' has no key 'nothing'; it has: password"),
        ("--git-sync source=a,secret=vault", "--git-sync: project team-a has no secret 'vault'"),
        (
            "--image-pull-secret vault",
            "--image-pull-secret: project team-a has no secret 'vault'; create it with",
        ),
        (
            "--image-pull-secret robot",
            "secret 'robot' has no credentials of a registry; it needs the key .docker",
        ),
        ("--pvc fast:1Gi:/data", "there is no storage class 'fast'; there are none"),
        ("--node-type dgx2", "no node has the label run.ai/type=dgx2; there are: dgx1, old"),
        ("--node-type old", "train jobs of project team-a may only use nodes of type dgx1"),
    ],
)
def test_missing_objects_are_named_and_nothing_is_created(
    words: str, message: str, muster: Muster, server: MemoryApiServer
) -> None:
    server.add(claim_of("other", NAMESPACE), secret_of("robot", NAMESPACE, password=""))
    server.add(project_of("team-a", 4, nodeAffinity={"train": ["dgx1"]}))
    for name, kind in (("n1", "dgx1"), ("n2", "old")):
        made = node(name, 8)
        made["metadata"]["labels"] = {"run.ai/type": kind}
        server.add(made)
    writes = len(server.writes())
    outcome = muster("submit", "x", *IMAGE, *words.split())
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.count("\n") == 1
    assert message in outcome.err
    assert len(server.writes()) == writes


def test_unreadable_objects_are_not_checked_and_that_is_said(muster: Muster, server: MemoryApiServer) -> None:
    server.refuse("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/vault", 403, "Forbidden")
    outcome = muster("submit", "x", *IMAGE, "-e", "A=SECRET:vault,key")
    assert outcome.code == 0
    assert outcome.err == "Warning: secrets could not be checked, because you may not read them\n"


def test_new_claims_belong_to_the_job(muster: Muster, server: MemoryApiServer) -> None:
    server.add({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"}})
    words = ("--pvc", ":10Gi:/a:ro", "--pvc-new", "size=1T,path=/b,storageclass=fast,accessmode-rwm")
    assert muster("submit", "x", *IMAGE, *words).code == 0
    (job,) = server.all("jobs")
    claims = {each["metadata"]["name"]: each for each in server.all("persistentvolumeclaims")}
    first, second = claims["pvc-x-0"], claims["pvc-x-1"]
    for claim in (first, second):
        assert claim["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
    assert first["spec"]["resources"] == {"requests": {"storage": "10Gi"}}
    assert "storageClassName" not in first["spec"]
    assert (second["spec"]["storageClassName"], second["spec"]["accessModes"]) == ("fast", ["ReadWriteMany"])
    spec = job["spec"]["template"]["spec"]
    assert [each["persistentVolumeClaim"]["claimName"] for each in spec["volumes"]] == ["pvc-x-0", "pvc-x-1"]
    assert [each.get("readOnly") for each in spec["containers"][0]["volumeMounts"]] == [True, None]


def test_nothing_is_left_when_the_last_of_many_objects_is_refused(
    muster: Muster, server: MemoryApiServer
) -> None:
    server.refuse("POST", f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/ingresses", 422, "Invalid")
    words = ("--interactive", "-s", "ingress", "--port", "80", "--pvc", ":1Gi:/a")
    git = ("--git-sync", "source=a,password=b")
    assert muster("submit", "x", *IMAGE, *words, *git).code == 1
    kinds = ("statefulsets", "services", "ingresses", "persistentvolumeclaims", "secrets")
    assert [each for kind in kinds for each in server.all(kind)] == []


def test_jobs_without_a_name_are_numbered_from_the_smallest_that_is_free(
    muster: Muster, server: MemoryApiServer
) -> None:
    assert muster("submit", "job-1", *IMAGE).code == 0
    for name in ("job-0", "job-2"):
        assert muster("submit", *IMAGE).lines[0] == f"The job '{name}' has been submitted successfully"
    made = muster("submit", *IMAGE, "--job-name-prefix", "night", "--interactive", "-o", "name")
    assert made.lines == ["night-0"]
    assert server.find("statefulsets", "night-0", NAMESPACE) is not None


@pytest.mark.parametrize("form", [(), ("=client",), ("=true",)])
def test_a_dry_run_prints_the_objects_to_create(
    form: tuple[str, ...], muster: Muster, server: MemoryApiServer
) -> None:
    flag = f"--dry-run{''.join(form)}"
    outcome = muster("submit", "--pvc", ":1Gi:/a", flag, "x", *IMAGE, "-o", "json")
    assert [each["kind"] for each in outcome.json["items"]] == ["Job", "PersistentVolumeClaim"]
    assert server.writes() == []


def test_the_short_path_of_an_ingress_belongs_to_its_first_job(
    muster: Muster, server: MemoryApiServer
) -> None:
    server.add(namespace_of("team-c"))
    words = ("x", *IMAGE, "--interactive", "-s", "ingress", "--port", "80")
    for project in ("team-a", "team-c"):
        assert muster("submit", *words, "-p", project).code == 0
    paths = {
        each["metadata"]["namespace"]: [path["path"] for path in each["spec"]["rules"][0]["http"]["paths"]]
        for each in server.all("ingresses")
    }
    assert paths == {"muster-team-a": ["/team-a-x", "/x"], "muster-team-c": ["/team-c-x"]}


def test_an_ingress_has_the_class_and_the_host_that_stand_on_the_namespace(
    muster: Muster, server: MemoryApiServer
) -> None:
    """Each project has its own host, so equal names of jobs do not collide. An old Ingress occupies its path."""
    for project in ("team-c", "team-d"):
        space = namespace_of(project)
        space["metadata"]["annotations"] = {
            "muster.dev/ingress-class": "traefik",
            "muster.dev/ingress-host": f"{project}.gpus.example.com",
        }
        server.add(space)
    server.refuse("GET", "/apis/networking.k8s.io/v1/ingresses", 403, "Forbidden")
    words = (*IMAGE, "--interactive", "-s", "ingress", "--port", "80")
    for project, name in (("team-c", "x"), ("team-d", "x"), ("team-d", "team-d-x")):
        assert muster("submit", name, *words, "-p", project).code == 0
    made = {}
    for ingress in server.all("ingresses"):
        (rule,) = ingress["spec"]["rules"]
        assert ingress["spec"]["ingressClassName"] == "traefik"
        made[rule["host"], ingress["metadata"]["name"]] = [path["path"] for path in rule["http"]["paths"]]
    assert made == {
        ("team-c.gpus.example.com", "x"): ["/team-c-x", "/x"],
        ("team-d.gpus.example.com", "x"): ["/team-d-x", "/x"],
        ("team-d.gpus.example.com", "team-d-x"): ["/team-d-team-d-x"],
    }


@pytest.mark.parametrize(
    ("words", "counts"),
    [
        ("0-99%10", [100, 10, 6]),
        ("0-0", [1, 1, 6]),
        ("0-999", [1000, 1000, 6]),
        ("0-4%9 --backoff-limit 0", [5, 5, 0]),
    ],
)
def test_a_sweep_is_one_indexed_job_with_retries_for_each_index(
    words: str, counts: list[int], muster: Muster, server: MemoryApiServer
) -> None:
    assert muster("submit", "x", *IMAGE, "--array", *words.split()).code == 0
    (job,) = server.all("jobs")
    spec = job["spec"]
    assert spec["completionMode"] == "Indexed"
    assert [spec[field] for field in ("completions", "parallelism", "backoffLimitPerIndex")] == counts
    assert "backoffLimit" not in spec
    assert "muster.dev/min-member" not in spec["template"]["metadata"]["annotations"]
    assert muster("get", "x", "-o", "json").json["indexes"] == {
        "count": counts[0],
        "succeededCount": 0,
        "succeededIndexes": "",
        "failedIndexes": "",
    }


@pytest.mark.parametrize(
    "text", ["1-3", "5", "0-", "0-9:2", "0,3", "0-9%0", "0-9%", "0-٣", "-0", "", "0-100000"]
)
def test_an_array_that_kubernetes_cannot_number_is_refused(
    text: str, muster: Muster, server: MemoryApiServer
) -> None:
    outcome = muster("submit", "x", *IMAGE, f"--array={text}")
    assert (outcome.code, server.requests) == (2, [])
    assert f"--array {text!r} is not possible: give 0-LAST" in outcome.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--completions 3", "--array excludes --completions"),
        ("--parallelism 2", "--array excludes --completions"),
        ("--min-member 2", "--array does not go with --min-member"),
        ("--interactive", "--interactive"),
    ],
)
def test_an_array_excludes_other_counts(
    words: str, message: str, muster: Muster, server: MemoryApiServer
) -> None:
    outcome = muster("submit", "x", *IMAGE, "--array", "0-9", *words.split())
    assert (outcome.code, server.writes()) == (2, [])
    assert message in outcome.err


def test_a_dry_run_prints_the_ingress_that_would_be_made(muster: Muster, server: MemoryApiServer) -> None:
    space = namespace_of("team-c")
    space["metadata"]["annotations"] = {"muster.dev/ingress-host": "team-c.gpus.example.com"}
    server.add(space)
    words = ("submit", "x", *IMAGE, "--interactive", "-s", "ingress", "--port", "80", "-p", "team-c")
    printed = muster(*words, "--dry-run", "-o", "json").json["items"]
    (rule,) = next(body for body in printed if body["kind"] == "Ingress")["spec"]["rules"]
    assert rule["host"] == "team-c.gpus.example.com"


def test_a_notebook_behind_an_ingress_knows_its_path(muster: Muster, server: MemoryApiServer) -> None:
    outcome = muster(
        "submit", "note", "--jupyter", "-s", "ingress", "--dry-run", "-p", "team-b", "-o", "json"
    )
    container = outcome.json["items"][0]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "jupyter/scipy-notebook"
    assert container["command"] == ["start-notebook.sh"]
    assert container["args"] == ["--NotebookApp.base_url=/team-b-note"]
    assert container["ports"] == [{"containerPort": 8888}]


@pytest.mark.parametrize(
    ("words", "pods"),
    [
        ("submit-mpi x --processes 4", 4),
        ("submit-mpi x", 1),
        ("submit-dist mpi x --workers 3", 3),
        ("submit-dist pytorch x --workers 3", 4),
        ("submit-dist pytorch x --workers 3 --no-master", 3),
        ("submit-dist pytorch --name x --processes 3", 3),
        ("submit-dist tf x --workers 1", 2),
        ("submit x --nodes 4", 4),
        ("submit --nodes=1 x", 1),
    ],
)
def test_a_distributed_job_is_a_gang_with_an_index(
    words: str, pods: int, muster: Muster, server: MemoryApiServer
) -> None:
    assert muster(*words.split(), *IMAGE, "-g", "2").code == 0
    (job,) = server.all("jobs")
    spec, template = job["spec"], job["spec"]["template"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", pods, pods)
    assert template["metadata"]["annotations"]["muster.dev/min-member"] == str(pods)
    assert template["spec"]["subdomain"] == "x"
    (service,) = server.all("services")
    assert (service["metadata"]["name"], service["spec"]["clusterIP"]) == ("x", "None")
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    variables = {each["name"]: each.get("value") for each in template["spec"]["containers"][0]["env"]}
    if "tf" in words:
        assert variables["TF_CONFIG"] is not None
        config = json.loads(variables["TF_CONFIG"].replace("$(RANK)", "1"))
        assert config["cluster"]["worker"] == [f"x-{index}.x:29500" for index in range(pods)]
        assert config["task"] == {"type": "worker", "index": 1}
    else:
        assert (variables["WORLD_SIZE"], variables["MASTER_ADDR"]) == (str(pods), "x-0.x")
        assert (variables["PET_NODE_RANK"], variables["PET_NPROC_PER_NODE"]) == ("$(RANK)", "2")
        names = list(variables)
        assert names.index("RANK") < names.index("PET_NODE_RANK")  # a variable must precede its uses


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("submit-mpi x --processes 0", "--processes"),
        ("submit-mpi x --processes 2 --workers 2", "give one of them"),
        ("submit-dist pytorch x --master-port 70000", "--master-port"),
        ("submit-dist horovod x", "pytorch"),
        ("submit-dist pytorch x --port 80", "--port"),
    ],
)
def test_a_distributed_job_that_cannot_be_meant_is_refused(
    words: str, message: str, muster: Muster, server: MemoryApiServer
) -> None:
    outcome = muster(*words.split(), *IMAGE)
    assert outcome.code == 2
    assert message in outcome.err
    assert server.requests == []


def test_the_examples_of_the_documentation_can_be_meant(muster: Muster, server: MemoryApiServer) -> None:
    import shlex

    server.add(
        claim_of("datasets", NAMESPACE),
        secret_of("s3", NAMESPACE, key=""),
        secret_of("robot", NAMESPACE, password=""),
        *({**JOB_KIND, "metadata": {"name": name, "namespace": NAMESPACE}} for name in ("prepare", "train")),
    )
    text = (HOW_TO / "submit.md").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = re.findall(r"^muster (submit[^\n]*)$", text, flags=re.MULTILINE)
    assert len(lines) > 6
    for line in lines:
        outcome = (
            muster(*shlex.split(line, comments=True), "--dry-run")
            if " -- " not in line
            else muster(*shlex.split(line.replace(" -- ", " --dry-run -- ", 1), comments=True))
        )
        assert outcome.code == 0, f"{line}: {outcome.err}"


@pytest.mark.parametrize(
    ("gpus", "processes"),
    [("8", "8"), ("1", None), ("0.5", None), ("0.5 --gpu-devices 3", "3"), (None, None)],
)
def test_nodes_are_pods_of_one_torchrun_with_shared_memory(
    gpus: str | None, processes: str | None, muster: Muster, server: MemoryApiServer
) -> None:
    """Both command lines make the same objects; torchrun starts a process for each GPU if it is told no number."""
    words = [] if gpus is None else ["--gpus-per-node", *gpus.split()]
    tail = ("--", "torchrun", "train.py")
    made = []
    for line in (
        ("submit", "x", "--nodes", "4"),
        ("submit-dist", "pytorch", "x", "--no-master", "--large-shm"),
    ):
        more = () if "--nodes" in line else ("--workers", "4")
        outcome = muster(*line, *more, *IMAGE, *words, "--dry-run", "-o", "json", *tail)
        assert (outcome.code, outcome.err) == (0, "")
        made.append([_without_times(each) for each in outcome.json["items"]])
    assert made[0] == made[1]
    job, service = made[0]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert [each["mountPath"] for each in container["volumeMounts"]] == ["/dev/shm"]  # noqa: S108
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables.get("PET_NPROC_PER_NODE") == processes
    assert (variables["PET_NNODES"], container["args"]) == ("4", ["torchrun", "train.py"])
    assert service["kind"] == "Service"


def _without_times(body: Any) -> Any:
    """The object without what differs between two submissions: their times and command lines."""
    text = json.dumps(body)
    text = re.sub(r'"muster.dev/(submitted-at|command-line)": "(\\.|[^"\\])*"', '"x": ""', text)
    return json.loads(text)


@pytest.mark.parametrize(
    "words", ["--array 0-3", "--completions 2", "--parallelism 2", "--min-member 1", "--interactive"]
)
def test_nodes_exclude_other_counts(words: str, muster: Muster, server: MemoryApiServer) -> None:
    outcome = muster("submit", "x", *IMAGE, "--nodes", "2", *words.split())
    assert (outcome.code, server.writes()) == (2, [])
    assert words.split(maxsplit=1)[0] in outcome.err


def test_variables_of_the_site_reach_every_node_by_the_template_of_the_cluster(
    muster: Muster, server: MemoryApiServer
) -> None:
    site = (
        "--of-cluster",
        "--default",
        "--set",
        "environment=NCCL_IB_HCA=mlx5",
        "--set",
        "extended-resource=rdma/hca=8",
    )
    assert muster("template", "create", "fabric", *site).code == 0
    assert muster("submit", "x", *IMAGE, "--nodes", "2", "--gpus-per-node", "8").code == 0
    (job,) = server.all("jobs")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert {"name": "NCCL_IB_HCA", "value": "mlx5"} in container["env"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "8", "rdma/hca": "8"}
