"""A policy of a site by which the API server permanently refuses the bindings of some pods."""

import asyncio

from orchestrator.cluster.errors import Forbidden, Invalid
from orchestrator.cluster.resources import ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS, PODS
from orchestrator.cluster.transport import Transport


async def refuse_bindings(transport: Transport) -> None:
    """Deny the bindings of pods named doomed, and wait until the policy is in force."""
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods/binding"],
    }
    check = {
        "expression": "!object.metadata.name.startsWith('doomed')",
        "message": "site policy says no",
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "deny-doomed"}}
    await transport.create(
        ADMISSION_POLICIES.path(),
        {
            **kind,
            "kind": "ValidatingAdmissionPolicy",
            "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [check]},
        },
    )
    await transport.create(
        ADMISSION_POLICY_BINDINGS.path(),
        {
            **kind,
            "kind": "ValidatingAdmissionPolicyBinding",
            "spec": {"policyName": "deny-doomed", "validationActions": ["Deny"]},
        },
    )
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "doomed-probe"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "dgx1-1"},
    }
    container = {"name": "c", "image": "none"}
    probe = {
        "metadata": {"name": "doomed-probe"},
        "spec": {"schedulerName": "none", "containers": [container]},
    }
    await transport.create(PODS.path("default"), {"apiVersion": "v1", "kind": "Pod", **probe})
    dry_run = {"dryRun": "All"}
    async with asyncio.timeout(60):
        while True:
            try:
                await transport.create(PODS.path("default", "doomed-probe", "binding"), body, params=dry_run)
            except (Invalid, Forbidden):
                return
            await asyncio.sleep(0.2)
