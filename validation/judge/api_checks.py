"""Judges what the API server answers: to requests of the recorder's own, which share nothing with the orchestrator.

A check is a list of requests, sent one after the other until one fails; what they created is deleted in the end.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from validation.judge.check_verdict import Circumstances, Judgement, Window, judge_unrun
from validation.judge.events import RequestAnswered
from validation.judge.evidence import NO_EVIDENCE, Evidence, shortfall
from validation.judge.timeline import Timeline
from validation.judge.verdict import Verdict

Json = dict[str, Any]
OK: Final = 200
CREATED: Final = 201
ACCEPTED: Final = 202
CONFLICT: Final = 409
_REFUSED: Final = frozenset({401, 403, 429})
_SERVER_ERROR: Final = 500
MAX_SHOWN: Final = 200
"""Characters of what somebody else says that are said here."""
LEAST_VERSION: Final = (1, 33)
CLAIM_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
"""The versions of resource.k8s.io that have claims."""
TRIDENT: Final = "csi.trident.netapp.io"
DEFAULT_CLASS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_VERSION: Final = re.compile(r"v(\d{1,9})\.(\d{1,9})(?:\.|$)")


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the API server; `advice` is what helps where it is answered otherwise than it should be."""

    method: str
    path: str
    content: Mapping[str, Any] | None = None
    advice: str = ""

    @property
    def body(self) -> str:
        """What is sent with it, as JSON of one form; empty: nothing."""
        return json.dumps(self.content, sort_keys=True, separators=(",", ":")) if self.content else ""

    @property
    def created(self) -> str:
        """The path of what it creates; empty: nothing."""
        return f"{self.path}/{self.content['metadata']['name']}" if self.content else ""


@dataclass(frozen=True, slots=True)
class ApiCheck:
    """What is proven, by which source, by which requests, and the verdict on the objects that answer them."""

    title: str
    source: str
    requests: tuple[Request, ...]
    judge: Callable[[Sequence[Json]], Judgement]


@dataclass(frozen=True, slots=True)
class ApiResult:
    """The judgement on what was answered, and what it rests on."""

    judgement: Judgement
    evidence: Evidence = NO_EVIDENCE


def is_answered_well(request: Request, answered: RequestAnswered) -> bool:
    """Whether the requests after this one are worth sending."""
    return not answered.problem and answered.status == (CREATED if request.method == "POST" else OK)


def judge_api(
    name: str, circumstances: Circumstances, timeline: Timeline, window: Window | None, *, least: Evidence
) -> ApiResult:
    """The verdict on what the API server answered in the window to the requests of the check of this name."""
    unrun = judge_unrun(circumstances)
    if unrun is not None:
        return ApiResult(unrun)
    if window is None:
        return ApiResult(Judgement(Verdict.INCONCLUSIVE, "no request was sent"))
    evidence = timeline.evidence_before(window.until_event, ())
    missing = shortfall(least, evidence)
    if missing:
        return ApiResult(Judgement(Verdict.ERROR, missing), evidence)
    during = timeline.events[window.start_event : window.until_event]
    answers = [event for event in during if isinstance(event, RequestAnswered) and event.check == name]
    return ApiResult(_judge_answers(API_CHECKS[name], answers), evidence)


def _judge_answers(check: ApiCheck, answers: Sequence[RequestAnswered]) -> Judgement:
    documents: list[Json] = []
    for number, request in enumerate(check.requests):
        if number >= len(answers):
            return Judgement(Verdict.INCONCLUSIVE, f"{request.method} {request.path} was not sent")
        fault = _fault(request, answers[number])
        if fault is not None:
            return fault
        document = document_of(answers[number].answer)
        if document is None:
            return Judgement(Verdict.FAIL, f"{request.method} {request.path} is not answered with an object")
        documents.append(document)
    judgement = check.judge(documents)
    remaining = _not_deleted(check, answers[len(check.requests) :])
    if judgement.verdict == Verdict.PASS and remaining:
        return Judgement(Verdict.ERROR, f"{remaining} could not be deleted: delete it by hand")
    return judgement


def _fault(request: Request, answered: RequestAnswered) -> Judgement | None:
    """The verdict on a request that was answered otherwise than it should be; None if it was not."""
    line = f"{request.method} {request.path}"
    if (answered.method, answered.path, answered.body) != (request.method, request.path, request.body):
        return Judgement(Verdict.ERROR, f"{line} was to be sent, and another request was")
    if answered.problem:
        return Judgement(Verdict.ERROR, f"{line}: {answered.problem[:MAX_SHOWN]}")
    if is_answered_well(request, answered):
        return None
    reason = f"{line} is answered with {answered.status}{_message(answered.answer)}"
    if answered.status in _REFUSED or answered.status >= _SERVER_ERROR:
        return Judgement(Verdict.ERROR, reason)
    if request.method == "POST" and answered.status == CONFLICT:
        return Judgement(Verdict.ERROR, f"{reason}: delete {request.created}, then run again")
    return Judgement(Verdict.FAIL, f"{reason}; {request.advice}" if request.advice else reason)


def _message(answer: str) -> str:
    """What the API server says of its refusal."""
    message = (document_of(answer) or {}).get("message")
    return f": {message[:MAX_SHOWN]}" if isinstance(message, str) and message else ""


def _not_deleted(check: ApiCheck, answers: Sequence[RequestAnswered]) -> str:
    """The path of something that the check created and that was not deleted; empty if all was."""
    deleted = {a.path for a in answers if a.method == "DELETE" and a.status in {OK, ACCEPTED}}
    paths = [request.created for request in check.requests if request.created]
    return next((path for path in paths if path not in deleted), "")


def document_of(answer: str) -> Json | None:
    """The object of a JSON text; None if it is none."""
    try:
        document = json.loads(answer)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _at(value: object, *path: str) -> Any:
    """What is at the path of keys; None where there is nothing."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _objects(value: object) -> list[Json]:
    """Those of a list that are objects."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _judge_version(documents: Sequence[Json]) -> Judgement:
    version, group = documents
    release = version.get("gitVersion")
    match = _VERSION.match(release) if isinstance(release, str) else None
    if not isinstance(release, str) or match is None:
        return Judgement(Verdict.FAIL, "the API server does not say of which version it is")
    release = release[:MAX_SHOWN]
    if (int(match[1]), int(match[2])) < LEAST_VERSION:
        return Judgement(Verdict.FAIL, f"the cluster is of {release}, which is older than 1.33")
    served = [entry.get("version") for entry in _objects(group.get("versions"))]
    with_claims = [name for name in CLAIM_VERSIONS if name in served]
    if not with_claims:
        return Judgement(Verdict.FAIL, f"{GROUP} is served in no version that has claims")
    return Judgement(Verdict.PASS, f"{release}, {GROUP} in {', '.join(with_claims)}")


def _judge_claim(documents: Sequence[Json]) -> Judgement:
    """Each claim is read in the other version than it was created in: that is the same object, whoever wrote it."""
    _, _, as_v1, _, as_v1beta1 = documents
    for version, claim, path in (("v1", as_v1, ("exactly",)), ("v1beta1", as_v1beta1, ())):
        requests = _objects(_at(claim, "spec", "devices", "requests"))
        one = _at(requests[0], *path) if len(requests) == 1 else None
        asks = (_at(one, "deviceClassName"), _at(one, "allocationMode"), _at(one, "count"))
        if asks != (DEVICE_CLASS, "ExactCount", 1) or requests[0].get("name") != "gpu":
            return Judgement(
                Verdict.FAIL, f"a claim that is read in {version} does not ask for one {DEVICE_CLASS}"
            )
        if _at(claim, "metadata", "namespace") != DRA_NAMESPACE:
            return Judgement(Verdict.FAIL, f"a claim that is read in {version} is of another namespace")
    return Judgement(Verdict.PASS)


def _judge_operator(documents: Sequence[Json]) -> Judgement:
    deployment, pods, lease = documents
    replicas = _at(deployment, "spec", "replicas")
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        return Judgement(Verdict.FAIL, "the Deployment muster-operator does not say how many replicas it has")
    if not replicas:
        return Judgement(
            Verdict.INCONCLUSIVE,
            "the Deployment muster-operator has no replicas: the operator runs beside the cluster, "
            "in a lab unless it is validated with --operator image",
        )
    counts = [_at(deployment, "status", name) for name in ("updatedReplicas", "availableReplicas")]
    generations = _at(deployment, "status", "observedGeneration"), _at(deployment, "metadata", "generation")
    if counts != [replicas] * 2 or generations[0] != generations[1]:
        return Judgement(
            Verdict.FAIL,
            f"not all of {replicas} replicas of muster-operator are of this version and available",
        )
    holder = _at(lease, "spec", "holderIdentity")
    leader = holder.partition("_")[0] if isinstance(holder, str) else ""
    ready = [_at(pod, "metadata", "name") for pod in _objects(pods.get("items")) if _is_ready(pod)]
    if not leader or leader not in ready:
        return Judgement(Verdict.FAIL, "the operator's lease is not held by one of its pods that is ready")
    return Judgement(Verdict.PASS)


def _is_ready(pod: Json) -> bool:
    """Whether it runs, passes its probe, and nobody has deleted it."""
    conditions = _objects(_at(pod, "status", "conditions"))
    is_ready = any((one.get("type"), one.get("status")) == ("Ready", "True") for one in conditions)
    runs = _at(pod, "status", "phase") == "Running" and is_ready
    return runs and _at(pod, "metadata", "deletionTimestamp") is None


def _judge_storage_class(documents: Sequence[Json]) -> Judgement:
    (classes,) = documents
    default = [entry for entry in _objects(classes.get("items")) if _is_default(entry)]
    if len(default) != 1:
        names = ", ".join(sorted(str(_at(entry, "metadata", "name"))[:MAX_SHOWN] for entry in default))
        return Judgement(
            Verdict.FAIL,
            f"{len(default)} storage classes are the default, not 1{f': {names}' if names else ''}",
        )
    provisioner = default[0].get("provisioner")
    if provisioner != TRIDENT:
        return Judgement(
            Verdict.FAIL, f"the default storage class is of {str(provisioner)[:MAX_SHOWN]}, not of {TRIDENT}"
        )
    return Judgement(Verdict.PASS)


def _is_default(entry: Json) -> bool:
    return any(_at(entry, "metadata", "annotations", name) == "true" for name in DEFAULT_CLASS)


GROUP: Final = "resource.k8s.io"
DEVICE_CLASS: Final = "gpu.nvidia.com"
DRA_NAMESPACE: Final = "dra-test"
"""The names that the page gives in its examples."""
_V1BETA1, _V1 = (
    f"/apis/{GROUP}/{version}/namespaces/{DRA_NAMESPACE}/resourceclaims" for version in ("v1beta1", "v1")
)
_SYSTEM: Final = "muster-system"
_ENABLE: Final = "dynamic resource allocation is not enabled"


def _claim(version: str, name: str, device: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "ResourceClaim",
        "metadata": {"namespace": DRA_NAMESPACE, "name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", **device}]}},
    }


API_CHECKS: Final[Mapping[str, ApiCheck]] = {
    "version": ApiCheck(
        "The API server is of a version that has dynamic resource allocation, and serves it",
        "Google Distributed Cloud, GPU workloads with DRA, before you begin",
        (Request("GET", "/version"), Request("GET", f"/apis/{GROUP}", advice=_ENABLE)),
        _judge_version,
    ),
    "claim": ApiCheck(
        "A ResourceClaim is created as printed, in v1beta1 and in v1, and read in the other version",
        "Google Distributed Cloud, GPU workloads with DRA, manifest of the page",
        (
            Request(
                "POST",
                "/api/v1/namespaces",
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": DRA_NAMESPACE}},
            ),
            Request(
                "POST",
                _V1BETA1,
                _claim("v1beta1", "gpu-claim", {"deviceClassName": DEVICE_CLASS}),
                advice=f"kube-apiserver serves it with --runtime-config={GROUP}/v1beta1=true",
            ),
            Request("GET", f"{_V1}/gpu-claim", advice="v1 is served from Kubernetes 1.34 on"),
            Request(
                "POST",
                _V1,
                _claim("v1", "gpu-claim-v1", {"exactly": {"deviceClassName": DEVICE_CLASS}}),
            ),
            Request("GET", f"{_V1BETA1}/gpu-claim-v1"),
        ),
        _judge_claim,
    ),
    "operator": ApiCheck(
        "All replicas of the operator's Deployment are available, and one of its pods leads",
        "TR-4858, Run:AI Installation, step 3",
        (
            Request(
                "GET",
                f"/apis/apps/v1/namespaces/{_SYSTEM}/deployments/muster-operator",
                advice="run `muster operator-yaml`, and apply what it prints",
            ),
            Request(
                "GET",
                f"/api/v1/namespaces/{_SYSTEM}/pods?labelSelector=app.kubernetes.io/name=muster-operator",
            ),
            Request(
                "GET",
                f"/apis/coordination.k8s.io/v1/namespaces/{_SYSTEM}/leases/muster-operator",
                advice="no operator has ever led",
            ),
        ),
        _judge_operator,
    ),
    "storage-class": ApiCheck(
        "One storage class is the cluster's default, and it is Trident's",
        "TR-4858, Run:AI Installation, step 1",
        (Request("GET", "/apis/storage.k8s.io/v1/storageclasses"),),
        _judge_storage_class,
    ),
}

_JUDGED: Final = frozenset(
    "gitVersion versions version metadata spec status name namespace annotations generation observedGeneration "  # noqa: SIM905
    "devices requests exactly deviceClassName allocationMode count replicas updatedReplicas availableReplicas items "
    "phase conditions type deletionTimestamp holderIdentity provisioner".split()
) | set(DEFAULT_CLASS)
_POD: Final = "muster-operator-"


def only_judged(event: RequestAnswered) -> RequestAnswered:
    """The answer with no more than what a verdict follows from: no address, and no name of a machine.

    Of a log there are digests alone, which stay.
    """
    document = document_of(event.answer)
    answer = "" if document is None else json.dumps(_judged(document))
    answer = answer if event.check in API_CHECKS else event.answer
    return msgspec.structs.replace(event, answer=answer, problem="unknown" if event.problem else "")


def _judged(value: object, key: str = "") -> object:
    if isinstance(value, dict):
        return {one: _judged(value[one], one) for one in value if one in _JUDGED}
    if isinstance(value, list):
        return [_judged(one) for one in value]
    if key == "holderIdentity":  # of an operator beside the cluster it is the name of a machine
        return value if isinstance(value, str) and value.startswith(_POD) else ""
    return value
