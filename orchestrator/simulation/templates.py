"""Reads the pods of a snapshot file that are written with Kubernetes' own types: a template, and the status of each
pod.

The code that reads the objects of a cluster also reads these pods.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET

from orchestrator.cluster.objects import FINISHED, Pod, PodStatus, PodTemplate, ResourceRequirements
from orchestrator.document import Document
from orchestrator.names import NAMESPACE_PREFIX
from orchestrator.observe.effective_request import effective_request, resize_state
from orchestrator.observe.field_rules import Rule, problems
from orchestrator.observe.pod_fields import POD_STATUS, POD_TEMPLATE
from orchestrator.observe.pod_status import ends_by_us, start_fields
from orchestrator.observe.pod_traits import pod_traits
from orchestrator.observe.request import pod_constraints, pod_request
from orchestrator.planner import model
from orchestrator.planner.traits import PodTraits
from orchestrator.simulation import forms
from orchestrator.simulation.extra_fields import camel, uncovered

Place = tuple[str | int, ...]
T = TypeVar("T")

_REPLACED: Final = (
    *forms.RequestForm.__struct_fields__,
    *(
        field.name
        for kind in (model.Request, model.Constraints)
        for field in uncovered(kind, forms.COVERED[kind])
    ),
    "traits",
    "max_runtime_seconds",
)
"""The fields of a workload or pod that a template replaces."""
_OF_STATUS: Final = ("never_started", "bound_at_us", "start_problem", "cannot_start", "ends_by_us")
"""The fields of a pod that its status replaces."""


class Templates:
    """The templates and statuses of one file."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._read: dict[Place, PodTemplate] = {}

    def pod(self, form: forms.WorkloadForm, pod: forms.PodForm, place: Place) -> Pod | None:
        """Return the pod as an API server would return it; None if the file has neither template nor status for it.

        Raises UsageError for a field or value that is not implemented.
        """
        if form.template is UNSET and pod.status is UNSET:
            return None
        template = PodTemplate() if form.template is UNSET else self._template(form, _workload(place))
        if form.template is not UNSET:
            self._refuse_replaced(pod, place, _REPLACED, "template")
        if pod.status is not UNSET:
            self._refuse_replaced(pod, place, _OF_STATUS, "status")
        status = PodStatus() if pod.status is UNSET else self._status(place)
        if form.template is not UNSET:
            self._check_containers(template, status, place)
        if status.phase == "Running" and pod.on is None:
            raise self._document.error(
                (*place, "status", "phase"), "phase: a pod that runs must be `on` a node"
            )
        if status.phase in FINISHED and pod.state is not None:
            raise self._document.error(
                (*place, "state"), f"state: the pod has ended, its phase is {status.phase}"
            )
        spec = msgspec.structs.replace(template.spec, node_name=pod.on or "")
        metadata = msgspec.structs.replace(template.metadata, namespace=namespace_of(form))
        observed = Pod(metadata=metadata, spec=spec, status=status)
        if form.template is UNSET and any(resize_state(observed)):
            raise self._document.error(
                (*place, "status"), "status: resources of containers need a `template` with these containers"
            )
        return observed

    def priority(self, form: forms.WorkloadForm, place: Place) -> int:
        """Return the priority of a workload without its own priority: the template's, or the default of the workload's
        type.
        """
        default = forms.INTERACTIVE_PRIORITY if form.interactive else forms.TRAIN_PRIORITY
        if form.template is UNSET:
            return default
        spec = self._template(form, place).spec
        return spec.priority if "priority" in self._document.at((*place, "template", "spec")) else default

    def requirements(self, pod: Pod, place: Place) -> tuple[model.Request, model.Constraints]:
        """Return the request and the constraints of a pod with a template."""
        return self._of_template(place, lambda: (pod_request(pod), pod_constraints(pod)))

    def traits(self, pod: Pod, place: Place) -> PodTraits:
        """Return the traits of a pod with a template."""
        return self._of_template(place, lambda: pod_traits(pod))

    def _of_template(self, place: Place, read: Callable[[], T]) -> T:
        try:
            return read()
        except ValueError as error:
            where = (*_workload(place), "template")
            for key in self._read[where].metadata.annotations if where in self._read else ():
                if key in str(error):
                    raise self._document.error(
                        (*where, "metadata", "annotations", key), str(error)
                    ) from error
            raise self._document.error((*where, "spec"), f"template.spec: {error}") from error

    def _template(self, form: forms.WorkloadForm, place: Place) -> PodTemplate:
        where = (*place, "template")
        if where not in self._read:
            self._refuse_replaced(form, place, _REPLACED, "template")
            self._check(POD_TEMPLATE, where)
            template = self._document.convert(PodTemplate, where)
            self._check_namespace(form, template, where)
            if not template.spec.containers:
                raise self._document.error(where, "template.spec.containers: there is no container")
            self._check_pod_level(template, (*where, "spec"))
            self._read[where] = template
        return self._read[where]

    def _status(self, where: Place) -> PodStatus:
        place = (*where, "status")
        self._check(POD_STATUS, place)
        return self._document.convert(PodStatus, place)

    def _check(self, rule: Rule, place: Place) -> None:
        first = next(problems(self._document.at(place), rule, place), None)
        if first is not None:
            at = ".".join(map(str, first[0]))
            raise self._document.error(first[0], f"{first[1]} (at {at})")

    def _check_namespace(self, form: forms.WorkloadForm, template: PodTemplate, where: Place) -> None:
        named, own = template.metadata.namespace, namespace_of(form)
        if named not in ("", own):
            raise self._document.error(
                (*where, "metadata", "namespace"), f"namespace: {named} is not that of the project: {own} is"
            )

    def _check_pod_level(self, template: PodTemplate, where: Place) -> None:
        """Raise UsageError if the containers request more than the pod as a whole."""
        change = msgspec.structs.replace
        spec = change(template.spec, overhead={})
        alone = Pod(spec=change(spec, resources=ResourceRequirements()))
        for name in {**spec.resources.limits, **spec.resources.requests}:
            field = "requests" if name in spec.resources.requests else "limits"
            whole = Pod(spec=change(spec, resources=ResourceRequirements(getattr(spec.resources, field))))
            if effective_request(whole, name) < effective_request(alone, name):
                raise self._document.error(
                    (*where, "resources", field, name),
                    f"{name}: the containers of the pod request more together",
                )

    def _check_containers(self, template: PodTemplate, status: PodStatus, place: Place) -> None:
        """Raise UsageError if the status names a container that the template does not have."""
        for key, listed, known in (
            ("containerStatuses", status.container_statuses, template.spec.containers),
            ("initContainerStatuses", status.init_container_statuses, template.spec.init_containers),
        ):
            names = {container.name for container in known}
            for index, container in enumerate(listed):
                if container.name not in names:
                    raise self._document.error(
                        (*place, "status", key, index, "name"),
                        f"name: the template has no container `{container.name}`",
                    )

    def _refuse_replaced(self, form: forms.RequestForm, place: Place, names: Sequence[str], by: str) -> None:
        for name in names:
            if getattr(form, name, UNSET) is not UNSET:
                key = camel(name)
                raise self._document.error((*place, key), f"`{key}` goes with no `{by}`, which replaces it")


def namespace_of(form: forms.WorkloadForm) -> str:
    """Return the name of the namespace that the operator creates for the workload's project."""
    return f"{NAMESPACE_PREFIX}{form.project}"


def of_status(pod: Pod) -> dict[str, Any]:
    """Return the fields of the snapshot's pod that follow from the spec and status of the pod."""
    seconds = pod.spec.active_deadline_seconds
    return {
        **start_fields(pod),
        **({} if seconds is None else {"max_runtime_seconds": seconds, "ends_by_us": ends_by_us(pod)}),
    }


def has_succeeded(form: forms.PodForm) -> bool:
    """Return whether the phase of the pod is Succeeded."""
    return form.status is not UNSET and form.status.get("phase") == "Succeeded"


def _workload(place: Place) -> Place:
    """Return the path of the workload that a pod at this path belongs to."""
    return place[:2]
