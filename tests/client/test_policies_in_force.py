"""The client reports plainly whether the policies are in force, whichever object is missing."""

from typing import Any

import pytest

from orchestrator.client.policies_in_force import PolicyReport, policies_in_force
from orchestrator.cluster.resources import ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS
from orchestrator.cluster.transport import Transport
from tests.cluster.fake_api_server import Answer, access_to, error_answer, page, serving

SHIPPED = ("muster-pods", "muster-services")


def policy(name: str, failure: str = "Fail") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"failurePolicy": failure}}


def binding(name: str, *actions: str) -> dict[str, Any]:
    spec = {"policyName": name, "validationActions": list(actions or ("Deny",))}
    return {"metadata": {"name": f"{name}-here"}, "spec": spec}


BOTH = [policy(name) for name in SHIPPED]
BOUND = [binding(name) for name in SHIPPED]


@pytest.mark.parametrize(
    ("policies", "bindings", "sentence"),
    [
        (page(*BOTH), page(*BOUND), "The policies are in force."),
        (
            error_answer(404),
            error_answer(404),
            (
                "The policies are NOT in force: this API server has no ValidatingAdmissionPolicies: "
                "Kubernetes has them from 1.30 on."
            ),
        ),
        (
            page(),
            page(*BOUND),
            (
                "The policies are NOT in force: this cluster has none of them: apply the output of 'muster "
                "operator-yaml'."
            ),
        ),
        (
            page(BOTH[0]),
            page(*BOUND),
            "The policies are NOT in force: the policy muster-services is not there.",
        ),
        (
            page(*BOTH),
            page(BOUND[0]),
            "The policies are NOT in force: the policy muster-services has no binding.",
        ),
        (
            page(policy("muster-pods", "Ignore"), BOTH[1]),
            page(BOUND[0], binding("muster-services", "Warn", "Audit")),
            (
                "The policies are NOT in force: the policy muster-pods accepts objects that it cannot "
                "judge; "
                "the policy muster-services only warns or records, it denies nothing."
            ),
        ),
        (
            page(*BOTH),
            page(binding("muster-pods", "Audit"), *BOUND),
            "The policies are in force.",
        ),
    ],
)
async def test_missing_policies_are_named(policies: Answer, bindings: Answer, sentence: str) -> None:
    report = await report_of(policies, bindings)
    assert report.sentence() == sentence


async def test_a_user_without_a_right_to_policies_is_told_that_they_are_unknown() -> None:
    report = await report_of(error_answer(403), page(*BOUND))
    assert report.in_force is None
    assert report.sentence().startswith("Whether the policies are in force is unknown: ")


async def report_of(policies: Answer, bindings: Answer) -> PolicyReport:
    async with serving() as server, Transport(access_to(server)) as transport:
        server.on("GET", ADMISSION_POLICIES.path(), policies)
        server.on("GET", ADMISSION_POLICY_BINDINGS.path(), bindings)
        return await policies_in_force(transport, SHIPPED)
