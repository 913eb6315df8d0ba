"""Policies by which the API server judges what is written, as muster reads them; see `objects`."""

from __future__ import annotations

from orchestrator.cluster import resources
from orchestrator.cluster.wire import Object, Wire


class AdmissionPolicySpec(Wire, frozen=True):
    """`failure_policy` Ignore lets pass what the rules cannot be applied to."""

    failure_policy: str = "Fail"


class ValidatingAdmissionPolicy(Object, frozen=True):
    """A ValidatingAdmissionPolicy: rules, without effect until a binding puts them in force."""

    resource = resources.ADMISSION_POLICIES

    spec: AdmissionPolicySpec = AdmissionPolicySpec()


class AdmissionPolicyBindingSpec(Wire, frozen=True):
    """Which policy, and what becomes of a request that violates it: Deny, Warn, Audit."""

    policy_name: str = ""
    validation_actions: list[str] = []


class ValidatingAdmissionPolicyBinding(Object, frozen=True):
    """A ValidatingAdmissionPolicyBinding."""

    resource = resources.ADMISSION_POLICY_BINDINGS

    spec: AdmissionPolicyBindingSpec = AdmissionPolicyBindingSpec()
