"""Conversion of ResourceSlices, DeviceClasses and ResourceClaims to the planner's values, and of allocations back.

It reads all versions of `resource.k8s.io`: v1, v1beta2 and v1beta1. Maximum lengths of lists are well above the API's.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from orchestrator.cluster import device_objects as wire
from orchestrator.cluster.pods import NodeSelector, NodeSelectorRequirement
from orchestrator.devices.model import (
    Allocation,
    Amounts,
    Attribute,
    Capacity,
    Claim,
    ClaimSpec,
    Configuration,
    Constraint,
    CounterSet,
    Device,
    DeviceClass,
    DeviceResult,
    DeviceTaint,
    DeviceToleration,
    NodeChoice,
    NodeTerm,
    Request,
    RequestChoice,
    RequestPolicy,
    ResourceSlice,
    ResultConfiguration,
)
from orchestrator.devices.quantity import NotAQuantity, format_nano, parse_nano
from orchestrator.errors import MusterError
from orchestrator.labels import LabelRequirement, requirement_of

MAX_LISTED: Final = 64
"""Maximum number of requests, constraints, selectors or configurations of a claim or class: twice the API's."""
MAX_DEVICES: Final = 1024
"""Maximum number of devices of a slice; eight times the API's maximum."""
MAX_NAMES: Final = 256
"""Maximum number of attributes, capacities, counters and similar entries of one device or slice."""

T = TypeVar("T")


class UnreadableDevices(MusterError, ValueError):
    """A slice, class or claim is invalid, or unknown to this version; the message names the field."""


def decode(kind: type[T], data: bytes | str) -> T:
    """Return the API object that the JSON has. Raises UnreadableDevices."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableDevices(f"{kind.__name__}: {error}") from error


def read_slice(published: wire.ResourceSlice) -> ResourceSlice:
    """Return the slice in the planner's terms. Raises UnreadableDevices."""
    spec = published.spec
    _bounded(spec.devices, MAX_DEVICES, "spec.devices")
    return ResourceSlice(
        name=published.metadata.name,
        driver=spec.driver,
        pool=spec.pool.name,
        generation=spec.pool.generation,
        slice_count=spec.pool.resource_slice_count,
        nodes=_nodes(spec, "spec"),
        per_device_nodes=spec.per_device_node_selection,
        counter_sets=tuple(
            CounterSet(listed.name, _counters(listed.counters, f"spec.sharedCounters[{index}].counters"))
            for index, listed in enumerate(_bounded(spec.shared_counters, MAX_NAMES, "spec.sharedCounters"))
        ),
        devices=tuple(_device(device, f"spec.devices[{index}]") for index, device in enumerate(spec.devices)),
    )


def read_class(device_class: wire.DeviceClass) -> DeviceClass:
    """Return the class in the planner's terms. Raises UnreadableDevices."""
    spec = device_class.spec
    return DeviceClass(
        name=device_class.metadata.name,
        selectors=_selectors(spec.selectors, "spec.selectors"),
        config=_config(spec.config, "spec.config"),
    )


def read_claim(claim: wire.ResourceClaim) -> Claim:
    """Return the claim in the planner's terms, without its status. Raises UnreadableDevices."""
    devices = claim.spec.devices
    where = "spec.devices"
    return Claim(
        uid=claim.metadata.uid,
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        spec=ClaimSpec(
            requests=tuple(
                _choice(request, f"{where}.requests[{index}]")
                for index, request in enumerate(_bounded(devices.requests, MAX_LISTED, f"{where}.requests"))
            ),
            constraints=tuple(
                _constraint(constraint, f"{where}.constraints[{index}]")
                for index, constraint in enumerate(
                    _bounded(devices.constraints, MAX_LISTED, f"{where}.constraints")
                )
            ),
            config=_config(devices.config, f"{where}.config"),
        ),
    )


def read_allocation(claim: wire.ResourceClaim) -> Allocation | None:
    """Return the allocation of a claim, or None. The claim's specification is not read. Raises UnreadableDevices."""
    status = claim.status.allocation
    if status is None:
        return None
    where = "status.allocation"
    terms = _terms(status.node_selector, f"{where}.nodeSelector") or ()
    return Allocation(
        results=tuple(
            _result(result, f"{where}.devices.results[{index}]")
            for index, result in enumerate(status.devices.results)
        ),
        config=tuple(
            ResultConfiguration(listed.source == "FromClass", read)
            for listed, read in zip(
                status.devices.config, _config(status.devices.config, f"{where}.devices.config"), strict=True
            )
        ),
        nodes=terms[0] if len(terms) == 1 else None,
    )


def allocation_object(allocation: Allocation) -> dict[str, Any]:
    """Return the object for `status.allocation` of a claim, without the timestamp. It is equal in all API versions."""
    devices: dict[str, Any] = {"results": [_result_object(result) for result in allocation.results]}
    if allocation.config:
        devices["config"] = [
            {
                "source": "FromClass" if listed.from_class else "FromClaim",
                **({"requests": list(listed.config.requests)} if listed.config.requests else {}),
                "opaque": msgspec.json.decode(listed.config.opaque),
            }
            for listed in allocation.config
        ]
    written: dict[str, Any] = {"devices": devices}
    if allocation.nodes is not None:
        term = {
            "matchExpressions": _requirement_objects(allocation.nodes.expressions),
            "matchFields": _requirement_objects(allocation.nodes.fields),
        }
        written["nodeSelector"] = {
            "nodeSelectorTerms": [{name: listed for name, listed in term.items() if listed}]
        }
    return written


def _bounded(listed: Sequence[T], most: int, where: str) -> Sequence[T]:
    if len(listed) > most:
        raise UnreadableDevices(f"{where}: {len(listed)} entries, at most {most} are read")
    return listed


def _nano(text: wire.QuantityText, where: str) -> int:
    try:
        return parse_nano(str(text))
    except NotAQuantity as error:
        raise UnreadableDevices(f"{where}: {error}") from error


def _amounts(quantities: Mapping[str, wire.QuantityText], where: str) -> Amounts:
    if len(quantities) > MAX_NAMES:
        raise UnreadableDevices(f"{where}: {len(quantities)} entries, at most {MAX_NAMES} are read")
    return tuple((name, _nano(text, f"{where}[{name}]")) for name, text in sorted(quantities.items()))


def _counters(counters: Mapping[str, wire.Counter], where: str) -> Amounts:
    return _amounts({name: counter.value for name, counter in counters.items()}, where)


def _nodes(spec: wire.ResourceSliceSpec | wire.BasicDevice, where: str) -> NodeChoice:
    return NodeChoice(
        node_name=spec.node_name,
        all_nodes=bool(spec.all_nodes),
        terms=_terms(spec.node_selector, f"{where}.nodeSelector"),
    )


def _terms(selector: NodeSelector | None, where: str) -> tuple[NodeTerm, ...] | None:
    if selector is None:
        return None
    return tuple(
        NodeTerm(
            expressions=_requirements(term.match_expressions, where),
            fields=_requirements(term.match_fields, where),
        )
        for term in _bounded(selector.node_selector_terms, MAX_LISTED, where)
    )


def _requirements(listed: Sequence[NodeSelectorRequirement], where: str) -> tuple[LabelRequirement, ...]:
    bounded = _bounded(listed, MAX_NAMES, where)
    try:
        return tuple(requirement_of(each.key, each.operator, each.values) for each in bounded)
    except ValueError as error:
        raise UnreadableDevices(f"{where}: {error}") from error


def _requirement_objects(listed: Sequence[LabelRequirement]) -> list[dict[str, Any]]:
    return [
        {
            "key": requirement.key,
            "operator": requirement.operator,
            **({"values": list(requirement.values)} if requirement.values else {}),
        }
        for requirement in listed
    ]


def _device(device: wire.SliceDevice, where: str) -> Device:
    fields: wire.BasicDevice = device.basic or device
    if max(len(fields.attributes), len(fields.capacity), len(fields.taints)) > MAX_NAMES:
        raise UnreadableDevices(f"{where}: more than {MAX_NAMES} attributes, capacities or taints")
    return Device(
        name=device.name,
        attributes={name: _attribute(attribute) for name, attribute in fields.attributes.items()},
        capacity={
            name: _capacity(capacity, f"{where}.capacity[{name}]")
            for name, capacity in fields.capacity.items()
        },
        taints=tuple(DeviceTaint(taint.key, taint.value, taint.effect) for taint in fields.taints),
        counters=tuple(
            CounterSet(amounts.counter_set, _counters(amounts.counters, f"{where}.consumesCounters[{index}]"))
            for index, amounts in enumerate(
                _bounded(fields.consumes_counters, MAX_NAMES, f"{where}.consumesCounters")
            )
        ),
        shareable=bool(fields.allow_multiple_allocations),
        nodes=_nodes(fields, where),
        binds_to_node=bool(fields.binds_to_node),
        binding_conditions=tuple(fields.binding_conditions),
        binding_failure_conditions=tuple(fields.binding_failure_conditions),
    )


def _attribute(attribute: wire.DeviceAttribute) -> Attribute:
    for kind, values in (
        ("int", attribute.int_values),
        ("bool", attribute.bool_values),
        ("string", attribute.string_values),
        ("version", attribute.version_values),
    ):
        if values is not None:
            return Attribute(kind, tuple(values), is_list=True)
    for kind, value in (
        ("int", attribute.int_value),
        ("bool", attribute.bool_value),
        ("string", attribute.string_value),
        ("version", attribute.version_value),
    ):
        if value is not None:
            return Attribute(kind, (value,))
    return Attribute("")


def _capacity(capacity: wire.DeviceCapacity, where: str) -> Capacity:
    policy = capacity.request_policy
    return Capacity(
        _nano(capacity.value, f"{where}.value"), _policy(policy, f"{where}.requestPolicy") if policy else None
    )


def _policy(policy: wire.CapacityPolicy, where: str) -> RequestPolicy:
    valid = policy.valid_range

    def optional(text: wire.QuantityText | None, field: str) -> int | None:
        return None if text is None else _nano(text, f"{where}.{field}")

    return RequestPolicy(
        default_nano=optional(policy.default, "default"),
        min_nano=optional(valid.min, "validRange.min") if valid else None,
        max_nano=optional(valid.max, "validRange.max") if valid else None,
        step_nano=optional(valid.step, "validRange.step") if valid else None,
        has_range=valid is not None,
        values_nano=tuple(
            _nano(text, f"{where}.validValues[{index}]")
            for index, text in enumerate(_bounded(policy.valid_values, MAX_NAMES, f"{where}.validValues"))
        ),
    )


def _selectors(selectors: Sequence[wire.DeviceSelector], where: str) -> tuple[str, ...]:
    expressions = []
    for index, selector in enumerate(_bounded(selectors, MAX_LISTED, where)):
        if selector.cel is None:
            raise UnreadableDevices(f"{where}[{index}]: a kind of selector that is not known")
        expressions.append(selector.cel.expression)
    return tuple(expressions)


def _config(config: Sequence[wire.DeviceConfiguration], where: str) -> tuple[Configuration, ...]:
    return tuple(
        Configuration(
            opaque=msgspec.json.encode(listed.opaque).decode(),
            requests=tuple(listed.requests),
        )
        for listed in _bounded(config, 2 * MAX_LISTED, where)
    )


def _choice(request: wire.DeviceRequest, where: str) -> RequestChoice:
    if request.first_available:
        return RequestChoice(
            request.name,
            tuple(
                _request(
                    listed, f"{request.name}/{listed.name}", request.name, f"{where}.firstAvailable[{index}]"
                )
                for index, listed in enumerate(
                    _bounded(request.first_available, MAX_LISTED, f"{where}.firstAvailable")
                )
            ),
            is_prioritized=True,
        )
    exactly: wire.ExactRequest = request.exactly or request
    if not exactly.device_class_name:
        raise UnreadableDevices(f"{where}: neither exactly nor firstAvailable, or no device class")
    return RequestChoice(request.name, (_request(exactly, request.name, request.name, where),))


def _request(request: wire.ExactRequest, name: str, parent: str, where: str) -> Request:
    mode = request.allocation_mode or "ExactCount"
    if mode not in {"ExactCount", "All"}:
        raise UnreadableDevices(f"{where}.allocationMode: {mode!r} is not known")
    if request.count < 0:
        raise UnreadableDevices(f"{where}.count: {request.count} is negative")
    if not request.device_class_name:
        raise UnreadableDevices(f"{where}.deviceClassName: missing")
    capacity = request.capacity
    return Request(
        name=name,
        parent=parent,
        class_name=request.device_class_name,
        selectors=_selectors(request.selectors, f"{where}.selectors"),
        mode=mode,
        count=request.count or 1,
        admin_access=request.admin_access,
        tolerations=tuple(
            _toleration(toleration)
            for toleration in _bounded(request.tolerations, MAX_LISTED, f"{where}.tolerations")
        ),
        capacity=_amounts(capacity.requests, f"{where}.capacity.requests") if capacity else None,
    )


def _toleration(toleration: wire.DeviceToleration) -> DeviceToleration:
    return DeviceToleration(
        toleration.key,
        toleration.operator,
        toleration.value,
        toleration.effect,
        toleration.toleration_seconds,
    )


def _toleration_object(toleration: DeviceToleration) -> dict[str, Any]:
    written = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
        "tolerationSeconds": toleration.seconds,
    }
    return {name: value for name, value in written.items() if value is not None}


def _constraint(constraint: wire.DeviceConstraint, where: str) -> Constraint:
    attribute = constraint.match_attribute or constraint.distinct_attribute
    if not attribute:
        raise UnreadableDevices(f"{where}: a kind of constraint that is not known")
    return Constraint(attribute, not constraint.match_attribute, tuple(constraint.requests))


def _result(result: wire.DeviceRequestResult, where: str) -> DeviceResult:
    return DeviceResult(
        request=result.request,
        device_id=(result.driver, result.pool, result.device),
        admin_access=bool(result.admin_access),
        tolerations=tuple(_toleration(toleration) for toleration in result.tolerations),
        share_id=result.share_id,
        consumed=_amounts(result.consumed_capacity, f"{where}.consumedCapacity"),
        binding_conditions=tuple(result.binding_conditions),
        binding_failure_conditions=tuple(result.binding_failure_conditions),
    )


def _result_object(result: DeviceResult) -> dict[str, Any]:
    driver, pool, device = result.device_id
    written: dict[str, Any] = {"request": result.request, "driver": driver, "pool": pool, "device": device}
    if result.admin_access:
        written["adminAccess"] = True
    if result.tolerations:
        written["tolerations"] = [_toleration_object(toleration) for toleration in result.tolerations]
    if result.share_id:
        written["shareID"] = result.share_id
    if result.consumed:
        written["consumedCapacity"] = {name: format_nano(nano) for name, nano in result.consumed}
    if result.binding_conditions:
        written["bindingConditions"] = list(result.binding_conditions)
    if result.binding_failure_conditions:
        written["bindingFailureConditions"] = list(result.binding_failure_conditions)
    return written
