"""Checks that the admission policies of the operator YAML are in force.

Without them, the API server accepts violations.

The expected policies are those of `muster operator-yaml`, so there is no second list of names.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

import msgspec

from orchestrator.cluster.admission_objects import ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding
from orchestrator.cluster.errors import Forbidden, NotFound
from orchestrator.cluster.resources import ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS
from orchestrator.cluster.transport import Transport
from orchestrator.manifests.render import documents, render

_OURS: Final = {"labelSelector": "app.kubernetes.io/part-of=muster"}
_TOO_OLD: Final = "this API server has no ValidatingAdmissionPolicies: Kubernetes has them from 1.30 on"
_NONE: Final = "this cluster has none of them: apply the output of 'muster operator-yaml'"


class PolicyReport(msgspec.Struct, frozen=True, rename="camel"):
    """Whether the policies are in force; None if the user may not read them.

    `problems` has one line for each missing part.
    """

    in_force: bool | None
    problems: tuple[str, ...] = ()

    def sentence(self) -> str:
        """Return the report as a sentence for people."""
        if self.in_force:
            return "The policies are in force."
        subject = (
            "The policies are NOT in force"
            if self.in_force is False
            else "Whether the policies are in force is unknown"
        )
        return f"{subject}: {'; '.join(self.problems)}."


async def policies_in_force(transport: Transport, shipped: Iterable[str] | None = None) -> PolicyReport:
    """Check that every policy in `shipped` exists and denies violations. Raises subclasses of ClusterError.

    If `shipped` is None, the policies are those of the operator YAML.
    """
    try:
        policies, bindings = await asyncio.gather(
            transport.list(ADMISSION_POLICIES.path(), ValidatingAdmissionPolicy, params=_OURS),
            transport.list(ADMISSION_POLICY_BINDINGS.path(), ValidatingAdmissionPolicyBinding, params=_OURS),
        )
    except NotFound:
        return PolicyReport(in_force=False, problems=(_TOO_OLD,))
    except Forbidden as error:
        return PolicyReport(in_force=None, problems=(error.message,))
    problems = tuple(_problems(_shipped() if shipped is None else shipped, policies.items, bindings.items))
    return PolicyReport(in_force=not problems, problems=problems)


def _shipped() -> list[str]:
    return [
        body["metadata"]["name"]
        for body in documents(render("any"))
        if body["kind"] == ADMISSION_POLICIES.kind
    ]


def _problems(
    shipped: Iterable[str],
    policies: Iterable[ValidatingAdmissionPolicy],
    bindings: Iterable[ValidatingAdmissionPolicyBinding],
) -> list[str]:
    rules = {policy.metadata.name: policy for policy in policies}
    denying: set[str] = set()
    bound: set[str] = set()
    for binding in bindings:
        bound.add(binding.spec.policy_name)
        if "Deny" in binding.spec.validation_actions:
            denying.add(binding.spec.policy_name)
    if not rules or not bound:
        return [_NONE]
    answer = []
    for name in shipped:
        if name not in rules:
            answer.append(f"the policy {name} is not there")
        elif name not in bound:
            answer.append(f"the policy {name} has no binding")
        elif name not in denying:
            answer.append(f"the policy {name} only warns or records, it denies nothing")
        elif rules[name].spec.failure_policy != "Fail":
            answer.append(f"the policy {name} accepts objects that it cannot judge")
    return answer
