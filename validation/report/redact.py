"""Makes a report that may be passed on: names of projects, hosts and people are replaced, each by one of its own."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from validation.errors import ReportError
from validation.judge.api import api_checks
from validation.judge.api.api_request import document_of
from validation.judge.events import (
    AnswerSeen,
    ImagePulled,
    NodeSeen,
    OutputSeen,
    PodSeen,
    ProjectSet,
    RequestAnswered,
    SamplesSeen,
)
from validation.judge.training.training_job import parse
from validation.judge.views.lists import is_container, only_judged
from validation.report import log, manifest, record
from validation.report.assemble import assemble
from validation.report.log import Closed, Observed, Opened
from validation.report.write import write
from validation.scenario.loader import find, load

_OURS: Final = {
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
"""Keys whose words are the format's own, whatever a project is called."""
_BY_NAME: Final = {"allocatedMilli", "quotasMilli", "fairShareGpus", "devices", "away"}
"""Keys of objects whose keys are names."""
UNKNOWN: Final = "its agent does not answer"
"""In place of what was said of it, which may have addresses in it."""
UNKNOWN_PULL: Final = "it was not pulled"
"""In place of why, which may have the registry in it."""
_NAMES: Final = {"project", "name", "node", "nodes"}
"""Keys of lists that are shown, whose values are names."""
_NODES: Final = {"nodeName", "pool"}
"""Keys of objects of the API server, whose values are names of nodes."""
_PATH: Final = re.compile(r"[~.]?/\S*")


def redact(directory: Path, out: Path) -> record.Report:
    """Write the report to the new directory `out` with other names, log included, and return it. Raises ReportError.

    Names keep their order, so that all verdicts stay; output of commands, paths and logs of programs are left out.
    """
    if out.exists() and any(out.iterdir()):
        raise ReportError(f"{out}: there is something in it: name a new directory")
    entries = log.read_log(directory).entries
    if not isinstance(entries[-1], Closed):
        raise ReportError(f"{directory}: the run was cut: there is no whole report to redact")
    replace = _replacement(entries)
    projects = _projects(entries)
    at_site = _images_at_site(entries)
    opened, *rest = [_renamed(_only_judged(entry, projects), replace) for entry in entries]
    if not isinstance(opened, Opened):
        raise ReportError(f"{directory}: is not a log of a run")
    opened.report.redacted = manifest.digest(directory)
    opened.report.volatile.run.argv = [_PATH.sub("PATH", word) for word in opened.report.volatile.run.argv]
    journal = log.open_log(out, opened)
    for entry in rest:
        if isinstance(entry, log.CheckEnded):
            for command in entry.commands:
                command.stdout = command.stderr = ""
                command.line = _with_printed_images(command.line, at_site)
            fault = _with_printed_images(entry.circumstances.fault, at_site)
            entry.circumstances = msgspec.structs.replace(entry.circumstances, fault=fault)
        elif isinstance(entry, log.Observed) and isinstance(entry.event, OutputSeen):
            entry.event = _without_addresses(entry.event)
        elif isinstance(entry, log.Observed) and isinstance(entry.event, PodSeen):
            entry.event = _without_message(entry.event)
        elif isinstance(entry, log.Observed) and isinstance(entry.event, ImagePulled):
            entry.event = _without_registry(entry.event)
        elif isinstance(entry, log.Observed) and isinstance(entry.event, SamplesSeen) and entry.event.problem:
            entry.event = msgspec.structs.replace(entry.event, problem=UNKNOWN)
        journal.append(entry)
    journal.close()
    report = assemble(log.read_log(out))
    write(report, out)
    return report


def _projects(entries: Iterable[log.Entry]) -> set[str]:
    """The projects of the run."""
    events = [entry.event for entry in entries if isinstance(entry, Observed)]
    return {event.project for event in events if isinstance(event, ProjectSet)}


def _only_judged(entry: log.Entry, projects: Collection[str]) -> log.Entry:
    """The entry; of a list that was shown, no more than what is judged of it."""
    if isinstance(entry, Observed) and isinstance(entry.event, AnswerSeen):
        entry.event = only_judged(entry.event, projects)
    if isinstance(entry, Observed) and isinstance(entry.event, RequestAnswered):
        entry.event = api_checks.only_judged(entry.event)
    return entry


def _is_api(entry: log.Entry) -> bool:
    """Whether it is an answer of the API server itself, and not about the container of a job."""
    event = entry.event if isinstance(entry, Observed) else None
    return isinstance(event, RequestAnswered) and not is_container(event.check)


def _images_at_site(entries: Iterable[log.Entry]) -> dict[str, str]:
    """By what the site calls an image, what scenarios call it; by why it was not pulled, no more than that."""
    events = [entry.event for entry in entries if isinstance(entry, Observed)]
    pulls = [event for event in events if isinstance(event, ImagePulled)]
    problems = {event.problem: UNKNOWN_PULL for event in pulls if event.problem}
    return problems | {event.image: event.name for event in pulls if event.image != event.name}


def _with_printed_images(words: str, at_site: Mapping[str, str]) -> str:
    """The words with the names of images that scenarios have: those of a site have its registry in them."""
    for image, name in at_site.items():
        words = words.replace(image, name)
    return words


def _without_registry(pulled: ImagePulled) -> ImagePulled:
    """How a node got an image, without the registry that it is from, and without what was said of it."""
    problem = UNKNOWN_PULL if pulled.problem else ""
    return msgspec.structs.replace(pulled, image=pulled.name, message="", problem=problem)


def _without_message(pod: PodSeen) -> PodSeen:
    """The pod without the message why it does not run, which may have addresses in it."""
    if pod.cause is None:
        return pod
    return msgspec.structs.replace(pod, cause=msgspec.structs.replace(pod.cause, message=""))


def _without_addresses(output: OutputSeen) -> OutputSeen:
    """What a job left, without its command line, the servers of its data, and the registry of its image."""
    result = parse(output.line)
    line = ""
    if result is not None:
        mounts = [msgspec.structs.replace(mount, source="") for mount in result.data.mounts]
        data = msgspec.structs.replace(result.data, mounts=mounts)
        line = msgspec.json.encode(msgspec.structs.replace(result, argv=[], data=data)).decode()
    return msgspec.structs.replace(output, line=line, image=output.image.rpartition("@")[2])


def _replacement(entries: Sequence[log.Entry]) -> Callable[[str], str]:
    """Replaces each name, where it stands as a word, by another that sorts as it does."""
    events = [entry.event for entry in entries if isinstance(entry, Observed)]
    reports = [entry.report for entry in entries if isinstance(entry, Opened)]
    projects = _projects(entries) | {
        name for report in reports for scenario in report.scenarios for name in scenario.quotas_milli
    }
    nodes = {event.node for event in events if isinstance(event, NodeSeen)}
    sites = [report.scope.hosts.site for report in reports if report.scope.hosts is not msgspec.UNSET]
    nodes |= {name for site in sites for name in (*(host.name for host in site.hosts), *site.away)}
    owners = {waiver.owner for report in reports for waiver in report.scope.waivers}
    new: dict[str, str] = {}
    for kind, names in (("host", nodes), ("person", owners), ("project", projects)):
        width = len(str(len(names)))
        for number, name in enumerate(sorted(names), start=1):
            new[name] = f"{kind}-{number:0{width}}"
    new |= {f"muster-{name}": f"muster-{new[name]}" for name in projects}
    if not new:
        return lambda words: words
    shipped = {f"{scenario.id}/{step.id}" for scenario in load(find()) for step in scenario.steps}
    by_length = sorted(new, key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, by_length))})(?![\w-])")
    # the catalogue names its checks, some of which are called as teams of the paper
    return lambda words: words if words in shipped else pattern.sub(lambda match: new[match[1]], words)


def _shown_names(
    value: Any, key: str, replace: Callable[[str], str], keys: Collection[str] = frozenset(_NAMES)
) -> Any:
    """What a list shows, with other names: not of what is no name, even where a project is called like it."""
    if isinstance(value, dict):
        return {one: _shown_names(value[one], one, replace, keys) for one in value}
    if isinstance(value, list):
        return [_shown_names(one, key, replace, keys) for one in value]
    return replace(value) if isinstance(value, str) and key in keys else value


def _with_other_nodes(event: RequestAnswered, replace: Callable[[str], str]) -> RequestAnswered:
    """The answer with other names of nodes; the pool of a device is called as its node."""
    document = document_of(event.answer)
    if document is None:
        return event
    answer = json.dumps(_shown_names(document, "", replace, _NODES))
    return msgspec.structs.replace(event, answer=answer)


def _renamed(entry: log.Entry, replace: Callable[[str], str]) -> log.Entry:
    if isinstance(entry, Observed) and isinstance(entry.event, RequestAnswered) and _is_api(entry):
        entry.event = _with_other_nodes(entry.event, replace)
        return entry  # what is left of it has no other name of a host, and none of a project or a person
    is_answer = (
        isinstance(entry, Observed)
        and isinstance(entry.event, AnswerSeen)
        and not is_container(entry.event.view)
    )

    def renamed(value: Any, key: str) -> Any:
        if is_answer and key == "output" and value:
            return json.dumps(_shown_names(json.loads(value), "", replace))
        if isinstance(value, str):
            return value if key in _OURS else replace(value)
        if isinstance(value, dict):
            return {replace(one) if key in _BY_NAME else one: renamed(value[one], one) for one in value}
        return [renamed(one, key) for one in value] if isinstance(value, list | tuple) else value

    changed: log.Entry = msgspec.convert(renamed(msgspec.to_builtins(entry), ""), log.Entry)
    return changed
