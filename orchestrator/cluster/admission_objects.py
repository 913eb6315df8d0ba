"""Admission policies, with the fields that muster reads; see `objects`."""

from __future__ import annotations

from orchestrator.cluster import resources
from orchestrator.cluster.wire import Object, Wire


class AdmissionPolicySpec(Wire, frozen=True):
    """`failure_policy` Ignore admits requests for which the rules cannot be evaluated."""

    failure_policy: str = "Fail"


class ValidatingAdmissionPolicy(Object, frozen=True):
    """A ValidatingAdmissionPolicy: rules, without effect until a binding puts them in force."""

    resource = resources.ADMISSION_POLICIES

    spec: AdmissionPolicySpec = AdmissionPolicySpec()


class AdmissionPolicyBindingSpec(Wire, frozen=True):
    """The policy, and the action for a request that violates it: Deny, Warn, Audit."""

    policy_name: str = ""
    validation_actions: list[str] = []


class ValidatingAdmissionPolicyBinding(Object, frozen=True):
    """A ValidatingAdmissionPolicyBinding."""

    resource = resources.ADMISSION_POLICY_BINDINGS

    spec: AdmissionPolicyBindingSpec = AdmissionPolicyBindingSpec()
