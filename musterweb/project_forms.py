"""The form that creates, changes and deletes projects: it first shows the consequences, then saves the change."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from musterweb.computing import compute
from musterweb.page import Page, Visit
from musterweb.table import Table
from orchestrator.cli.outcome import blocks, closing
from orchestrator.cli.project import WIDE_HEADER, difference, row, spec_of
from orchestrator.cli.what_if import unsettled
from orchestrator.client.aio import AsyncClient
from orchestrator.cluster.errors import Forbidden
from orchestrator.cluster.objects import Metadata, Project, ProjectSpec
from orchestrator.errors import FieldProblem, MusterError, UsageError
from orchestrator.observe.project_reader import planner_project
from orchestrator.planner.model import Snapshot
from orchestrator.simulation.capture import capture
from orchestrator.simulation.change import delete_project, set_project
from orchestrator.simulation.outcome import compare
from orchestrator.submit.parsing import parse_project_name


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the form: its option of `muster project`, its title, and an example."""

    key: str
    flag: str
    label: str
    help: str
    read: Callable[[ProjectSpec], object]


FIELDS: Final = (
    Field("gpu", "-g/--gpu", "Quota", "GPUs that it is guaranteed: 4, 0.5", lambda spec: spec.gpu.quota),
    Field("limit", "--limit", "Limit", "maximum number of GPUs; empty: no limit", lambda spec: spec.gpu.limit),
    Field(
        "over_quota_weight", "--over-quota-weight", "Over-quota weight", "share of idle GPUs; empty: the quota",
        lambda spec: spec.gpu.over_quota_weight,
    ),
    Field("parent", "--parent", "Department", "the project above it, if any", lambda spec: spec.parent),
    Field("priority", "--priority", "Priority", "higher ones are served first", lambda spec: spec.priority),
    Field("cpu", "--cpu", "CPU quota", "CPUs that it is guaranteed; empty: not managed", lambda spec: spec.cpu.quota),
    Field("cpu_limit", "--cpu-limit", "CPU limit", "maximum number of CPUs", lambda spec: spec.cpu.limit),
    Field("memory", "--memory", "Memory quota", "such as 512Gi; empty: not managed", lambda spec: spec.memory.quota),
    Field("memory_limit", "--memory-limit", "Memory limit", "maximum amount", lambda spec: spec.memory.limit),
    Field(
        "interactive_time_limit", "--interactive-time-limit", "Time limit of interactive jobs", "such as 12h",
        lambda spec: spec.interactive_time_limit,
    ),
)  # fmt: skip
MEMBERS: Final = "members"
_ADDRESSES: Final = {"--member": "Members", **{field.flag: field.label for field in FIELDS}}


def version_of(project: Project) -> str:
    """Return a digest of the project's specification. It does not change with the project's status."""
    return hashlib.sha256(msgspec.json.encode(project.spec)).hexdigest()[:16]


def values_of(spec: ProjectSpec) -> dict[str, str]:
    """Return the values of a project for the form."""
    values = {field.key: _text(field.read(spec)) for field in FIELDS}
    return {**values, MEMBERS: "\n".join(f"{member.kind.lower()}:{member.name}" for member in spec.members)}


def spec_from(before: ProjectSpec, form: Mapping[str, str]) -> ProjectSpec:
    """Return the specification in a form. Fields that the form lacks keep their values. Raises UsageError."""
    shown = values_of(before)
    values: dict[str, Any] = {
        field.key: form[field.key].strip()
        for field in FIELDS
        if field.key in form and form[field.key].strip() != shown[field.key]
    }
    if "priority" in values:
        values["priority"] = _whole(values["priority"] or "0")
    members = form.get(MEMBERS, shown[MEMBERS]).split()
    if members != shown[MEMBERS].split():
        values["member"] = tuple(members)
    try:
        after = spec_of(before, values)
    except UsageError as error:
        raise UsageError(_with_labels(str(error))) from error
    return after if members else msgspec.structs.replace(after, members=[])


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise UsageError(f"Priority {text!r} is not possible: give a whole number") from error


def _with_labels(message: str) -> str:
    for flag in sorted(_ADDRESSES, key=len, reverse=True):
        if message.startswith(f"{flag} "):
            return _ADDRESSES[flag] + message.removeprefix(flag)
    return message


def _text(value: object) -> str:
    return "" if value is None else str(value)


@dataclass(frozen=True, slots=True)
class Form:
    """A form as it is shown: its values, its errors, and the consequences of saving them."""

    name: str
    is_new: bool
    values: Mapping[str, str]
    version: str = ""
    problem: str = ""
    preview: Mapping[str, Any] | None = None
    is_deletion: bool = False

    def page(self, project: Project | None, *, edits: bool) -> Page:
        """Return the page of the form."""
        facts = dict(zip(WIDE_HEADER, row(project, "", wide=True), strict=True)) if project else {}
        content = {"form": self, "fields": FIELDS, "facts": facts, "edits": edits}
        return Page("New project" if self.is_new else f"Project {self.name}", "project.html.j2", content)


async def show_form(visit: Visit) -> Page:
    """Return the empty form, or the form with the values of a project."""
    name = visit.path.get("name", "")
    rights = visit.person.rights
    edits = rights is not None and rights.edits_projects
    if not name:
        return Form("", True, values_of(ProjectSpec()) | {"gpu": ""}).page(None, edits=edits)
    project = await visit.person.client.get_project(name)
    version = version_of(project)
    return Form(name, False, values_of(project.spec), version).page(project, edits=edits)


async def take_form(visit: Visit, form: Mapping[str, str]) -> Page | str:
    """Preview or save a submitted form. Return the page to show, or the address to redirect to after saving."""
    client = visit.person.client
    name, step = visit.path.get("name", ""), form.get("step", "")
    is_new = not name
    before = None if is_new else await client.get_project(name)
    name = name or form.get("name", "").strip()
    shown = Form(
        name, is_new, form, form.get("version", ""), is_deletion=step in ("preview-deletion", "delete")
    )
    try:
        if before is not None and version_of(before) != shown.version:
            raise UsageError("the project was changed meanwhile: open the form again")
        if step == "delete":
            await client.delete_project(name)
            return "/projects"
        if step == "preview-deletion":
            return _with(shown, await _preview(client, lambda old: delete_project(old, name), [])).page(
                before, edits=True
            )
        parse_project_name(name)
        old = ProjectSpec() if before is None else before.spec
        spec = spec_from(old, form)
        if step == "save":
            if before is None:
                await client.create_project(name, spec, wait=False)
            else:
                await client.update_project(name, difference(old, spec), spec)
            return "/projects"
        wanted_project = planner_project(Project(metadata=Metadata(name=name), spec=spec))
        changes = _changes(old, spec)
        if before is not None and not changes:
            raise UsageError("nothing is different")
        preview = await _preview(client, lambda old: set_project(old, wanted_project), changes)
        return _with(shown, preview).page(before, edits=True)
    except (MusterError, ValueError) as error:
        return replace(shown, problem=_problem(client, error)).page(before, edits=True)


def _problem(client: AsyncClient, error: Exception) -> str:
    if isinstance(error, FieldProblem):
        error = error.with_names({"force": "'muster project delete --force'"})
    return str(client.with_hint(error) if isinstance(error, MusterError) else error)


def _with(form: Form, preview: Mapping[str, Any]) -> Form:
    return replace(form, preview=preview)


def _changes(old: ProjectSpec, new: ProjectSpec) -> list[str]:
    before, after = values_of(old), values_of(new)
    labels = {field.key: field.label for field in FIELDS} | {MEMBERS: "Members"}
    return [
        f"{labels[key]}: {_one_line(before[key])} → {_one_line(after[key])}"
        for key in labels
        if before[key] != after[key]
    ]


def _one_line(text: str) -> str:
    return ", ".join(text.split()) or "none"


async def _preview(
    client: AsyncClient, change: Callable[[Snapshot], Snapshot], changes: list[str]
) -> dict[str, Any]:
    """Return the consequences of a change that the person's rights allow to compute."""
    try:
        captured = await capture(client.transport)
    except Forbidden as error:
        note = f"The effect of the change is unknown: {client.with_hint(error)}"
        return {"changes": changes, "tables": [], "notes": [note]}
    result, decisions_before = await compute(lambda: compare(captured.snapshot, change))
    tables = [
        Table(f"what-if-{place}", block.title, block.header, block.rows)
        for place, block in enumerate(blocks(result))
    ]
    notes = [
        closing(result),
        *([unsettled(decisions_before)] if decisions_before else []),
        *([captured.doubt] if captured.doubt else []),
        *(f"Left out: {line}" for line in captured.left_out),
    ]
    return {"changes": changes, "tables": tables, "notes": notes}
