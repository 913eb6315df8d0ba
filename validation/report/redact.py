"""Makes a report for sharing: pseudonyms replace the names of projects, hosts and people."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from validation.errors import ReportError
from validation.judge.api import api_checks
from validation.judge.api.api_request import document_of
from validation.judge.events import (
    AnswerSeen,
    ClusterSeen,
    Event,
    GpusSeen,
    ImagePulled,
    NodesDrained,
    NodeSeen,
    OutputSeen,
    PodSeen,
    ProjectSet,
    RequestAnswered,
    SamplesSeen,
)
from validation.judge.views.lists import is_container, only_judged
from validation.report import log, manifest, record
from validation.report.assemble import assemble
from validation.report.identity import token
from validation.report.log import Closed, Observed, Opened
from validation.report.redact_output import without_addresses
from validation.report.sources import compare
from validation.report.write import write
from validation.scenario.loader import find, load

_OURS: Final = {
    "model",
    "driver",
    "notApplicable",
    "profileTitle",
    "entry",
    "event",
    "kind",
    "change",
    "phase",
    "action",
    "result",
    "verdict",
    "acceptance",
    "catalogueSha256",
}
"""Keys whose values are words of the format. They are not replaced even if a project has such a name."""
_OF_DOCUMENTS: Final = {
    "title", "source", "description", "file", "section", "says", "contradictedBy", "asserted", "why",
}  # fmt: skip
"""Keys of a scenario and its checks. If the scenario ships, their texts are public."""
_OF_CATALOGUE: Final = {"claim": "checks", "defect": "killers"}
"""For each kind of entry in the catalogue, recognized by this key, the key with its checks.

Its other keys are public.
"""
_IDS: Final = {
    "id", "check", "checks", "requirements", "selected", "killers", "scenario", "continues", "parts", "profile",
    "view", "tool", "tests", "excused", "errata", "blockedBy", "deviations",
}  # fmt: skip
"""Keys whose values are names of checks. These can contain the name of a project, but not of a host or a person."""
BY_NAME: Final = frozenset({
    "allocatedMilli", "quotasMilli", "weightsMilli", "fairShareGpus", "devices", "away", "busy", "nodes", "pods",
})  # fmt: skip
"""Keys whose values are objects with names as keys."""
BY_WORD: Final = frozenset({"files", "timings", "byVerdict", "target", "layers", "gpus", "facts", "figures"})
"""Keys whose values are objects with words of the format as keys."""
_FIGURES: Final = {"systems", "thresholds", "limits"}
"""Keys in the file of figures."""
UNKNOWN: Final = "its agent does not answer"
"""Replaces the agent's message, which may contain addresses."""
UNKNOWN_PULL: Final = "it was not pulled"
"""Replaces the problem of a pull, which may contain the registry."""
_NAMES: Final = {"project", "name", "node", "nodes"}
"""Keys in lists of the orchestrator whose values are names."""
_NODES: Final = {"nodeName", "pool"}
"""Keys in objects of the API server whose values are names of nodes."""
_OF_NODES: Final = {"driver"}
"""The API checks whose objects, by `name`, are nodes and their pools of devices."""
_UIDS: Final = {"uid", "volumeName"}
"""Keys in objects of the API server whose values are or contain uids."""
_PATH: Final = re.compile(r"[~.]?/\S*")


def redact(directory: Path, out: Path) -> record.Report:
    """Write the report with pseudonyms to the new directory `out`, log included, and return it. Raises ReportError.

    Pseudonyms have the sort order of the names, so that no verdict changes. Output of commands, paths and logs of
    programs are left out.
    """
    if out.exists() and any(out.iterdir()):
        raise ReportError(f"{out}: there is something in it: name a new directory")
    entries = log.read_log(directory).entries
    if not isinstance(entries[-1], Closed):
        raise ReportError(f"{directory}: the run was cut: there is no whole report to redact")
    opened, *rest = _redacted(entries)
    if not isinstance(opened, Opened):
        raise ReportError(f"{directory}: is not a log of a run")
    opened.report.redacted = manifest.digest(directory)
    journal = log.open_log(out, opened)
    for entry in rest:
        journal.append(entry)
    journal.close()
    source = log.read_log(out)
    problems = [*compare(source.opened.report).problems, *clear_words(out)]
    report = assemble(source)
    if lost := _lost(record.read(directory), report) or next(iter(problems), ""):
        (out / log.NAME).unlink()
        raise ReportError(f"{out}: is not written: {lost}")
    write(report, out)
    return report


def clear_words(directory: Path) -> list[str]:
    """Return a line for the first entry of a redacted log that still contains words to redact. Raises ReportError."""
    with (directory / log.NAME).open("rb") as lines:
        for number, (line, entry) in enumerate(
            zip(lines, _redacted(log.read_log(directory).entries), strict=True), 1
        ):
            if log.encode(entry) != line:
                return [f"{log.NAME}: line {number} has names in a record that is called redacted"]
    return []


def _redacted(entries: Sequence[log.Entry]) -> Iterator[log.Entry]:
    """Yield each entry with pseudonyms. The given entries are changed in place."""
    names = _names(entries)
    projects = _projects(entries)
    at_site = _images_at_site(entries)
    for entry in entries:
        yield _without_particulars(_renamed(_only_judged(entry, projects), names), at_site)


def _lost(before: record.Report, after: record.Report) -> str:
    """Return a line about the first verdict that the pseudonyms change, or an empty string."""
    pairs = [
        (f"check {one.id}", (one.verdict, one.required), (other.verdict, other.required))
        for one, other in zip(before.steps, after.steps, strict=True)
    ]
    pairs += [
        (f"requirement {one.id}", (one.verdict, one.in_part), (other.verdict, other.in_part))
        for one, other in zip(before.requirements, after.requirements, strict=True)
    ]
    pairs.append(("the run", (before.verdict, True), (after.verdict, True)))
    pairs.append(("the acceptance", (before.acceptance, True), (after.acceptance, True)))
    for subject, old, new in pairs:
        if old != new:
            return f"with other names {subject} would be {new[0]}, and is {old[0]}"
    return ""


def _without_particulars(entry: log.Entry, at_site: Mapping[str, str]) -> log.Entry:
    """Return the entry without addresses, registries and messages. No verdict follows from these."""
    if isinstance(entry, log.CheckEnded):
        for command in entry.commands:
            command.stdout = command.stderr = ""
            command.line = _with_printed_images(command.line, at_site)
        fault = _with_printed_images(entry.circumstances.fault, at_site)
        entry.circumstances = msgspec.structs.replace(entry.circumstances, fault=fault)
    elif isinstance(entry, log.Observed):
        entry.event = _without_words(_with_tokens(entry.event))
    elif isinstance(entry, log.Opened):
        run = entry.report.volatile.run
        run.argv = [_PATH.sub("PATH", word) for word in run.argv]
        _hide_baseline(entry.report.scope)
    elif isinstance(entry, log.Closed):
        entry.files = {}
    return entry


def _hide_baseline(scope: record.Scope) -> None:
    """Put a token in place of the uid of the baseline's cluster."""
    if scope.hosts and scope.hosts.baseline:
        uid = token(scope.hosts.baseline.kube_system_uid)
        baseline = msgspec.structs.replace(scope.hosts.baseline, kube_system_uid=uid)
        scope.hosts = msgspec.structs.replace(scope.hosts, baseline=baseline)


def _with_tokens(event: Event) -> Event:
    """Return the event with a token in place of each uid and UUID of the API server."""
    match event:
        case ClusterSeen():
            event = msgspec.structs.replace(event, kube_system_uid=token(event.kube_system_uid))
        case NodeSeen():
            event = msgspec.structs.replace(event, uid=token(event.uid), system_uuid=token(event.system_uuid))
        case PodSeen() | OutputSeen():
            event = msgspec.structs.replace(event, uid=token(event.uid))
        case NodesDrained():
            event = msgspec.structs.replace(event, uids=tuple(map(token, event.uids)))
        case GpusSeen():
            gpus = tuple(
                msgspec.structs.replace(gpu, uuid=token(gpu.uuid), users=tuple(map(token, gpu.users)))
                for gpu in event.gpus
            )
            event = msgspec.structs.replace(event, gpus=gpus)
        case RequestAnswered():
            answer, body = (_document_with_tokens(words) for words in (event.answer, event.body))
            event = msgspec.structs.replace(event, answer=answer, body=body)
    return event


def _document_with_tokens(words: str) -> str:
    """Return the object of the API server with tokens for uids and for names of volumes, which contain the uid of a
    PVC.

    Any other text does not change.
    """
    document = document_of(words)
    changed = _value_with_tokens(document, "")
    return words if changed == document else json.dumps(changed)


def _value_with_tokens(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return {one: _value_with_tokens(it, one) for one, it in value.items()}
    if isinstance(value, list):
        return [_value_with_tokens(one, key) for one in value]
    return token(value) if isinstance(value, str) and key in _UIDS else value


def _without_words(event: Event) -> Event:
    match event:
        case OutputSeen():
            event = without_addresses(event)
        case PodSeen():
            event = _without_message(event)
        case ImagePulled():
            event = _without_registry(event)
        case SamplesSeen() if event.problem:
            event = msgspec.structs.replace(event, problem=UNKNOWN)
    return event


def _projects(entries: Iterable[log.Entry]) -> set[str]:
    """Return the projects of the run."""
    events = [entry.event for entry in entries if isinstance(entry, Observed)]
    return {event.project for event in events if isinstance(event, ProjectSet)}


def _only_judged(entry: log.Entry, projects: Collection[str]) -> log.Entry:
    """Return the entry. An answer has only its judged part."""
    if isinstance(entry, Observed) and isinstance(entry.event, AnswerSeen):
        entry.event = only_judged(entry.event, projects)
    if isinstance(entry, Observed) and isinstance(entry.event, RequestAnswered):
        entry.event = api_checks.only_judged(entry.event)
    return entry


def _is_api(entry: log.Entry) -> bool:
    """Return whether the entry is an answer of the API server, and not about the container of a job."""
    event = entry.event if isinstance(entry, Observed) else None
    return isinstance(event, RequestAnswered) and not is_container(event.check)


def _images_at_site(entries: Iterable[log.Entry]) -> dict[str, str]:
    """Return the replacements.

    The site's name of an image maps to its name in scenarios, and the problem of a pull to a fixed text.
    """
    events = [entry.event for entry in entries if isinstance(entry, Observed)]
    pulls = [event for event in events if isinstance(event, ImagePulled)]
    problems = {event.problem: UNKNOWN_PULL for event in pulls if event.problem}
    return problems | {event.image: event.name for event in pulls if event.image != event.name}


def _with_printed_images(words: str, at_site: Mapping[str, str]) -> str:
    """Return the words with the scenarios' names of images, because a site's names contain its registry."""
    for image, name in at_site.items():
        words = words.replace(image, name)
    return words


def _without_registry(pulled: ImagePulled) -> ImagePulled:
    """Return the pull without its registry and without the message of the kubelet."""
    problem = UNKNOWN_PULL if pulled.problem else ""
    return msgspec.structs.replace(pulled, image=pulled.name, message="", problem=problem)


def _without_message(pod: PodSeen) -> PodSeen:
    """Return the pod without the message of its cause, which may contain addresses."""
    if pod.cause is None:
        return pod
    return msgspec.structs.replace(pod, cause=msgspec.structs.replace(pod.cause, message=""))


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of a run and their pseudonyms, which have the same sort order. `public` are the scenarios that ship."""

    every: Callable[[str], str]
    """Replaces each name that is a word of the text."""
    projects: Callable[[str], str]
    """Replaces only the names of the run's own projects. The ids of checks have no others."""
    public: frozenset[str]


def _names(entries: Sequence[log.Entry]) -> _Names:
    events = [entry.event for entry in entries if isinstance(entry, Observed)]
    reports = [entry.report for entry in entries if isinstance(entry, Opened)]
    scenarios = [scenario for report in reports for scenario in report.scenarios]
    own = _projects(entries) | {name for scenario in scenarios for name in scenario.quotas_milli}
    projects = (own | {event.project for event in events if isinstance(event, PodSeen)}) - {""}
    nodes = {event.node for event in events if isinstance(event, NodeSeen)}
    sites = [report.scope.hosts.site for report in reports if report.scope.hosts is not msgspec.UNSET]
    nodes |= {
        name
        for site in sites
        for name in (*(host.name for host in site.hosts), *site.away, *(site.busy or ()))
    }
    scopes = [report.scope.hosts for report in reports if report.scope.hosts]
    nodes |= {host.name for scope in scopes if scope.baseline for host in scope.baseline.hosts}
    owners = {waiver.owner for report in reports for waiver in report.scope.waivers}
    new: dict[str, str] = {}
    for kind, names in (
        ("site", {site.name for site in sites}), ("host", nodes), ("person", owners), ("project", projects)
    ):  # fmt: skip
        width = len(str(len(names)))
        for number, name in enumerate(sorted(names - {""}), start=1):
            new[name] = f"{kind}-{number:0{width}}"
    new |= {f"muster-{name}": f"muster-{new[name]}" for name in projects}
    of_projects = {name: new[name] for name in new if name.removeprefix("muster-") in own}
    return _Names(
        _replacer(new),
        _replacer(of_projects),
        frozenset(scenario.id for scenario in scenarios if scenario.shipped),
    )


def _replacer(new: Mapping[str, str]) -> Callable[[str], str]:
    if not new:
        return lambda words: words
    shipped = {f"{scenario.id}/{step.id}" for scenario in load(find()) for step in scenario.steps}
    by_length = sorted(new, key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, by_length))})(?![\w-])")
    # public ids in the catalogue stay, although some contain the name of a team of the paper
    return lambda words: words if words in shipped else pattern.sub(lambda match: new[match[1]], words)


def _shown_names(
    value: Any, key: str, replace: Callable[[str], str], keys: Collection[str] = frozenset(_NAMES)
) -> Any:
    """Return the content of a list with replaced names.

    Other values do not change, even if a project has the same name.
    """
    if isinstance(value, dict):
        return {one: _shown_names(value[one], one, replace, keys) for one in value}
    if isinstance(value, list):
        return [_shown_names(one, key, replace, keys) for one in value]
    return replace(value) if isinstance(value, str) and key in keys else value


def _with_other_nodes(event: RequestAnswered, replace: Callable[[str], str]) -> RequestAnswered:
    """Return the answer with pseudonyms of nodes. The pool of a device has the name of its node."""
    document = document_of(event.answer)
    if document is None:
        return event
    keys = _NODES | ({"name"} if event.check in _OF_NODES else set())
    answer = json.dumps(_shown_names(document, "", replace, keys))
    return msgspec.structs.replace(event, answer=answer)


def _renamed(entry: log.Entry, names: _Names) -> log.Entry:
    if isinstance(entry, Observed) and isinstance(entry.event, RequestAnswered) and _is_api(entry):
        entry.event = _with_other_nodes(entry.event, names.every)
        return entry  # the rest of the answer has no names of hosts, projects or people
    is_answer = (
        isinstance(entry, Observed)
        and isinstance(entry.event, AnswerSeen)
        and not is_container(entry.event.view)
    )

    def renamed(value: Any, key: str) -> Any:
        if is_answer and key == "output" and value:
            return json.dumps(_shown_names(json.loads(value), "", names.every))
        if isinstance(value, str):
            return value if key in _OURS else names.projects(value) if key in _IDS else names.every(value)
        if isinstance(value, list | tuple):
            return [renamed(one, "" if isinstance(one, dict) else key) for one in value]
        return renamed_object(value, key) if isinstance(value, dict) else value

    def renamed_object(value: dict[str, Any], key: str) -> dict[str, Any]:
        checks = next((checks for one, checks in _OF_CATALOGUE.items() if one in value), "")
        if checks:
            return value | {checks: renamed(value[checks], checks)}
        is_public = value.get("shipped") is True or value.get("scenario") in names.public
        unchanged = _FIGURES | _OF_DOCUMENTS if is_public else _FIGURES
        return {
            names.every(one) if key in BY_NAME else one: it if one in unchanged else renamed(it, one)
            for one, it in value.items()
        }

    changed: log.Entry = msgspec.convert(renamed(msgspec.to_builtins(entry), ""), log.Entry)
    return changed
