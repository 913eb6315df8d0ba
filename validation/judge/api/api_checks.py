"""The checks of the API server: the recorder's own requests, independent of the orchestrator, and the verdicts.

A check is a list of requests. They are sent one after the other until one fails. The objects that they created are
deleted at the end.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from validation.judge.api import claim_pod, driver_slices, other_client
from validation.judge.api.api_request import (
    ACCEPTED,
    CLAIM_VERSION,
    CLAIMS,
    CONFLICT,
    CREATED,
    DEVICE_CLASS,
    DRA_NAMESPACE,
    GROUP,
    OK,
    ApiCheck,
    Json,
    Request,
    at,
    claim_of,
    document_of,
    objects,
)
from validation.judge.check_verdict import Circumstances, Judgement, Window, judge_unrun
from validation.judge.events import Event, GpusSeen, RequestAnswered
from validation.judge.evidence import NO_EVIDENCE, Evidence, shortfall
from validation.judge.timeline import Timeline
from validation.judge.verdict import Verdict

_REFUSED: Final = frozenset({401, 403, 429})
_SERVER_ERROR: Final = 500
MAX_SHOWN: Final = 200
"""Maximum number of characters that a reason quotes from another program."""
LEAST_VERSION: Final = (1, 33)
CLAIM_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
"""The versions of resource.k8s.io that have ResourceClaims."""
TRIDENT: Final = "csi.trident.netapp.io"
DEFAULT_CLASS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_VERSION: Final = re.compile(r"v(\d{1,9})\.(\d{1,9})(?:\.|$)")


@dataclass(frozen=True, slots=True)
class ApiResult:
    """The judgement of a check of the API server, and its evidence."""

    judgement: Judgement
    evidence: Evidence = NO_EVIDENCE


def is_answered_well(request: Request, answered: RequestAnswered) -> bool:
    """Return whether the request succeeded. If it did not, the next request is not sent."""
    return not answered.problem and answered.status == (CREATED if request.method == "POST" else OK)


def judge_api(
    name: str, circumstances: Circumstances, timeline: Timeline, window: Window | None, *, least: Evidence
) -> ApiResult:
    """Return the verdict on the check `name`, from the answers to its requests in the window."""
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
    return ApiResult(_judge_answers(name, API_CHECKS[name], during), evidence)


def _judge_answers(name: str, check: ApiCheck, during: Sequence[Event]) -> Judgement:
    answers = [event for event in during if isinstance(event, RequestAnswered) and event.check == name]
    documents: list[Json] = []
    for number, request in enumerate(check.requests):
        if number >= len(answers):
            return Judgement(Verdict.INCONCLUSIVE, f"{request.method} {request.path} was not sent")
        fault = _fault(request, answers[number])
        if fault is not None:
            return fault
        answer = answers[number].answer
        document = document_of(answer) if request.lines is None else {"lines": answer}
        if document is None:
            return Judgement(Verdict.FAIL, f"{request.method} {request.path} is not answered with an object")
        documents.append(document)
    judgement = check.judge(documents)
    if judgement.verdict == Verdict.PASS and check.contradicts is not None:
        otherwise = check.contradicts(documents, [event for event in during if isinstance(event, GpusSeen)])
        judgement = Judgement(Verdict.FAIL, otherwise) if otherwise else judgement
    remaining = _not_deleted(check, answers[len(check.requests) :])
    if judgement.verdict == Verdict.PASS and remaining:
        return Judgement(Verdict.ERROR, f"{remaining} could not be deleted: delete it by hand")
    return judgement


def _fault(request: Request, answered: RequestAnswered) -> Judgement | None:
    """Return the verdict on a request without the expected answer; None if the answer is the expected one."""
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
    """Return the message of the API server in a refusal."""
    message = (document_of(answer) or {}).get("message")
    return f": {message[:MAX_SHOWN]}" if isinstance(message, str) and message else ""


def _not_deleted(check: ApiCheck, answers: Sequence[RequestAnswered]) -> str:
    """Return the path of an object that the check created and did not delete; empty if all were deleted."""
    deleted = {a.path for a in answers if a.method == "DELETE" and a.status in {OK, ACCEPTED}}
    paths = [request.created for request in check.requests if request.created]
    return next((path for path in paths if path not in deleted), "")


def _judge_version(documents: Sequence[Json]) -> Judgement:
    version, group = documents
    release = version.get("gitVersion")
    match = _VERSION.match(release) if isinstance(release, str) else None
    if not isinstance(release, str) or match is None:
        return Judgement(Verdict.FAIL, "the API server does not say of which version it is")
    release = release[:MAX_SHOWN]
    if (int(match[1]), int(match[2])) < LEAST_VERSION:
        return Judgement(Verdict.FAIL, f"the cluster is of {release}, which is older than 1.33")
    served = [entry.get("version") for entry in objects(group.get("versions"))]
    with_claims = [name for name in CLAIM_VERSIONS if name in served]
    if not with_claims:
        return Judgement(Verdict.FAIL, f"{GROUP} is served in no version that has claims")
    return Judgement(Verdict.PASS, f"{release}, {GROUP} in {', '.join(with_claims)}")


def _judge_claim(documents: Sequence[Json]) -> Judgement:
    """Judge whether the ResourceClaim that was read has the content of the one that was created."""
    claim = documents[-1]
    requests = objects(at(claim, "spec", "devices", "requests"))
    one = at(requests[0], "exactly") if len(requests) == 1 else None
    asks = (at(one, "deviceClassName"), at(one, "allocationMode"), at(one, "count"))
    if asks != (DEVICE_CLASS, "ExactCount", 1) or requests[0].get("name") != "gpu":
        return Judgement(Verdict.FAIL, f"the claim that is read does not ask for one {DEVICE_CLASS}")
    if at(claim, "metadata", "namespace") != DRA_NAMESPACE:
        return Judgement(Verdict.FAIL, "the claim that is read is of another namespace")
    return Judgement(Verdict.PASS)


def _judge_operator(documents: Sequence[Json]) -> Judgement:
    deployment, pods, lease = documents
    replicas = at(deployment, "spec", "replicas")
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        return Judgement(Verdict.FAIL, "the Deployment muster-operator does not say how many replicas it has")
    if not replicas:
        return Judgement(
            Verdict.INCONCLUSIVE,
            "the Deployment muster-operator has no replicas: the operator runs beside the cluster, "
            "in a lab unless it is validated with --real-nodes",
        )
    counts = [at(deployment, "status", name) for name in ("updatedReplicas", "availableReplicas")]
    generations = at(deployment, "status", "observedGeneration"), at(deployment, "metadata", "generation")
    if counts != [replicas] * 2 or generations[0] != generations[1]:
        return Judgement(
            Verdict.FAIL,
            f"not all of {replicas} replicas of muster-operator are of this version and available",
        )
    holder = at(lease, "spec", "holderIdentity")
    leader = holder.partition("_")[0] if isinstance(holder, str) else ""
    ready = [at(pod, "metadata", "name") for pod in objects(pods.get("items")) if _is_ready(pod)]
    if not leader or leader not in ready:
        return Judgement(Verdict.FAIL, "the operator's lease is not held by one of its pods that is ready")
    return Judgement(Verdict.PASS)


def _is_ready(pod: Json) -> bool:
    """Return whether the pod runs, passes its probe, and is not being deleted."""
    conditions = objects(at(pod, "status", "conditions"))
    is_ready = any((one.get("type"), one.get("status")) == ("Ready", "True") for one in conditions)
    runs = at(pod, "status", "phase") == "Running" and is_ready
    return runs and at(pod, "metadata", "deletionTimestamp") is None


def _judge_storage_class(documents: Sequence[Json]) -> Judgement:
    (classes,) = documents
    default = [entry for entry in objects(classes.get("items")) if _is_default(entry)]
    if len(default) != 1:
        names = ", ".join(sorted(str(at(entry, "metadata", "name"))[:MAX_SHOWN] for entry in default))
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
    return any(at(entry, "metadata", "annotations", name) == "true" for name in DEFAULT_CLASS)


_SYSTEM: Final = "muster-system"
_ENABLE: Final = "dynamic resource allocation is not enabled"


API_CHECKS: Final[Mapping[str, ApiCheck]] = {
    "version": ApiCheck(
        "The API server is of a version that has dynamic resource allocation, and serves it",
        "Google Distributed Cloud, GPU workloads with DRA, before you begin",
        (Request("GET", "/version"), Request("GET", f"/apis/{GROUP}", advice=_ENABLE)),
        _judge_version,
    ),
    "claim": ApiCheck(
        f"A ResourceClaim is created in {CLAIM_VERSION}, and read again",
        "Google Distributed Cloud, GPU workloads with DRA, manifest of the page",
        (
            Request(
                "POST",
                "/api/v1/namespaces",
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": DRA_NAMESPACE}},
            ),
            Request(
                "POST",
                CLAIMS,
                claim_of("gpu-claim"),
                advice=f"{GROUP}/{CLAIM_VERSION} is served from Kubernetes 1.34 on",
            ),
            Request("GET", f"{CLAIMS}/gpu-claim"),
        ),
        _judge_claim,
    ),
    "driver": driver_slices.CHECK,
    "pod": claim_pod.CHECK,
    "client": other_client.CHECK,
    "operator": ApiCheck(
        "All replicas of the operator's Deployment are available, and one of its pods leads",
        "TR-4858, Run:AI Installation, step 3",
        (
            Request(
                "GET",
                f"/apis/apps/v1/namespaces/{_SYSTEM}/deployments/muster-operator",
                advice="run `muster operator-yaml`, and apply its output",
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
    "phase conditions type deletionTimestamp holderIdentity provisioner "
    "uid containers resources claims resourceClaims resourceClaimName nodeName containerStatuses state terminated "
    "exitCode waiting reason allocation results driver request pool device reservedFor resource "
    "labels generation resourceSliceCount attributes string ownerReferences schedulerName".split()
) | {*DEFAULT_CLASS, driver_slices.COUNT, other_client.DEVICES}
_POD: Final = "muster-operator-"


def only_judged(event: RequestAnswered) -> RequestAnswered:
    """Return the answer with only the fields that the verdict uses, without addresses and names of machines.

    Logs do not change, because they are already digests of lines.
    """
    document = document_of(event.answer)
    if document is not None and event.check == "driver":
        document = driver_slices.only_judged(document)
    answer = "" if document is None else json.dumps(_judged(document))
    if "/log?" in event.path:  # the recorder has already reduced a log to the judged lines
        answer = event.answer
    answer = answer if event.check in API_CHECKS else event.answer
    return msgspec.structs.replace(event, answer=answer, problem="unknown" if event.problem else "")


def _judged(value: object, key: str = "") -> object:
    if isinstance(value, dict):
        return {one: _judged(value[one], one) for one in value if one in _JUDGED}
    if isinstance(value, list):
        return [_judged(one) for one in value]
    # If the operator runs outside the cluster, its holder identity contains the name of a machine.
    if key == "holderIdentity":
        return value if isinstance(value, str) and value.startswith(_POD) else ""
    return value
