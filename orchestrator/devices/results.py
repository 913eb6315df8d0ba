"""The allocation of a claim from the chosen devices: driver parameters, node selector, and ids of shares."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from orchestrator.devices.ledger import DeviceLedger
from orchestrator.devices.model import (
    Allocation,
    Claim,
    Configuration,
    DeviceClass,
    DeviceResult,
    Features,
    NodeTerm,
    Request,
    ResultConfiguration,
)
from orchestrator.devices.search import CannotAllocate, Choice
from orchestrator.labels import LabelRequirement


def allocation(
    claim: Claim,
    choices: Sequence[Choice],
    requests: Sequence[Request],
    *,
    classes: Mapping[str, DeviceClass],
    features: Features,
    node_name: str,
    ledger: DeviceLedger,
) -> Allocation:
    """Return the allocation of the claim; `requests` are the chosen alternatives. Raises CannotAllocate."""
    return Allocation(
        results=tuple(
            _result(choice, _share_id(claim, choice, index, ledger), features)
            for index, choice in enumerate(choices)
        ),
        config=(*_of_classes(requests, classes), *_of_claim(claim, requests)),
        nodes=_nodes(choices, node_name),
    )


def _result(choice: Choice, share_id: str, features: Features) -> DeviceResult:
    device = choice.candidate.device
    return DeviceResult(
        request=choice.request.name,
        device_id=choice.candidate.device_id,
        admin_access=choice.request.is_admin,
        tolerations=choice.request.tolerations,
        share_id=share_id,
        consumed=tuple(sorted((choice.consumed or {}).items())),
        binding_conditions=device.binding_conditions if features.binding_conditions else (),
        binding_failure_conditions=device.binding_failure_conditions if features.binding_conditions else (),
    )


def _share_id(claim: Claim, choice: Choice, index: int, ledger: DeviceLedger) -> str:
    """Return an unused id for a share of the device; "" if it is not shared. Equal input gives an equal id.

    The id is a UUID of version 8, which RFC 9562 leaves to applications.
    """
    if choice.consumed is None:
        return ""
    device_id = choice.candidate.device_id
    attempt = 0
    while True:
        text = "\0".join((claim.uid, claim.namespace, claim.name, str(index), str(attempt), *device_id))
        digest = hashlib.sha256(text.encode()).hexdigest()
        share_id = f"{digest[:8]}-{digest[8:12]}-8{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"
        if not ledger.has_share(device_id, share_id):
            return share_id
        attempt += 1


def _of_classes(
    requests: Iterable[Request], classes: Mapping[str, DeviceClass]
) -> Iterable[ResultConfiguration]:
    by_class: dict[str, list[str]] = {}
    for request in requests:
        by_class.setdefault(request.class_name, []).append(request.name)
    return (
        ResultConfiguration(from_class=True, config=Configuration(config.opaque, tuple(names)))
        for class_name, names in by_class.items()
        for config in classes[class_name].config
    )


def _of_claim(claim: Claim, requests: Sequence[Request]) -> Iterable[ResultConfiguration]:
    names = {name for request in requests for name in (request.parent, request.name)}
    return (
        ResultConfiguration(from_class=False, config=config)
        for config in claim.spec.config
        if not config.requests or not names.isdisjoint(config.requests)
    )


def _nodes(choices: Iterable[Choice], node_name: str) -> NodeTerm | None:
    """Return the nodes that can use all devices: this node if a device is local, else the common requirements."""
    expressions: dict[LabelRequirement, None] = {}
    fields: dict[LabelRequirement, None] = {}
    for choice in choices:
        candidate = choice.candidate
        nodes = candidate.device.nodes if candidate.published.per_device_nodes else candidate.published.nodes
        if nodes.node_name is not None or candidate.device.binds_to_node:
            return NodeTerm(fields=(LabelRequirement("metadata.name", "In", (node_name,)),))
        terms = nodes.terms or ()
        if len(terms) > 1:
            raise CannotAllocate(
                f"slice {candidate.published.name}: its node selector has {len(terms)} terms, one is supported"
            )
        for term in terms:
            expressions.update(dict.fromkeys(term.expressions))
            fields.update(dict.fromkeys(term.fields))
    return NodeTerm(tuple(expressions), tuple(fields)) if expressions or fields else None
