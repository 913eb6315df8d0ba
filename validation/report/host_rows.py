"""Makes the rows of the report's tables of hosts: the verdict of each layer on each host, and the facts of each GPU."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from validation.errors import LayerError
from validation.judge.check_verdict import Window
from validation.judge.events import ClusterSeen, Event, NodeSeen, ToolRan
from validation.judge.hosts.host_layer import DeclaredHost, HostScope
from validation.judge.verdict import Verdict, gravest
from validation.judge.waivers import sentences
from validation.layers.checks import judge_layer
from validation.layers.nvidia_smi import read_nvidia_smi
from validation.layers.readings import read_once
from validation.report.record import CheckResult, HostCell, HostRow, Report

_LAYER = "/layer/"
_PREFIX = re.compile(rf"({'|'.join(Verdict)}): ")


def host_rows(report: Report, events: Sequence[Event]) -> list[HostRow] | msgspec.UnsetType:
    """Return a row for each host of the site, in the order of its file; UNSET without a site."""
    scope = report.scope.hosts
    if scope is msgspec.UNSET:
        return msgspec.UNSET
    results = [result for result in report.steps if result.kind == "layer" and result.volatile.window]
    own = _by_host(events, [host.name for host in scope.site.hosts])
    return [_row(host, scope, results, own[host.name]) for host in scope.site.hosts]


def _by_host(events: Sequence[Event], hosts: Sequence[str]) -> dict[str, list[tuple[int, Event]]]:
    """Return the events that the judge of hosts needs, with their numbers: those of each host, and of the cluster."""
    own: dict[str, list[tuple[int, Event]]] = {host: [] for host in hosts}
    for number, event in enumerate(events):
        match event:
            case ToolRan():
                names: Sequence[str] = [event.host]
            case NodeSeen():
                names = [event.node]
            case ClusterSeen():
                names = hosts
            case _:
                continue
        for name in names:
            if name in own:
                own[name].append((number, event))
    return own


def _row(
    host: DeclaredHost,
    scope: HostScope,
    results: Sequence[CheckResult],
    events: Sequence[tuple[int, Event]],
) -> HostRow:
    tools = [event for _, event in events if isinstance(event, ToolRan)]
    alone = _alone(host, scope)
    row = HostRow(host.name, host.model)
    for result in results:
        row.layers[result.id.partition(_LAYER)[2]] = _cell(host, alone, result, events)
    for tool in reversed(tools):
        if tool.tool == "nvidia-smi" and not tool.problem:
            try:
                printed = read_once(read_nvidia_smi, tool.output)
            except LayerError:
                continue
            row.driver = printed.driver
            # The events have the elements already.
            gpus = [msgspec.structs.replace(gpu, elements=[]) for gpu in printed.gpus]
            row.gpus = [_facts(msgspec.to_builtins(gpu)) for gpu in gpus]
            break
    return row


def _alone(host: DeclaredHost, scope: HostScope) -> HostScope:
    """Return the scope of a run on this host alone.

    Only this host remains in the baseline, unless the baseline does not have it.
    """
    golden = host.name if scope.site.golden == host.name else ""
    site = msgspec.structs.replace(scope.site, hosts=[host], away={}, golden=golden)
    if not scope.baseline:
        return msgspec.structs.replace(scope, site=site)
    its = [one for one in scope.baseline.hosts if one.name == host.name]
    baseline = msgspec.structs.replace(scope.baseline, hosts=its or scope.baseline.hosts)
    return msgspec.structs.replace(scope, site=site, baseline=baseline)


def _cell(
    host: DeclaredHost, alone: HostScope, result: CheckResult, events: Sequence[tuple[int, Event]]
) -> HostCell:
    """Return the sentences about this host in the verdict on all hosts.

    If there is none, return the verdict on this host alone.

    The verdict on one host is at most as grave as the verdict on all hosts.
    """
    name = re.compile(rf"(?<![\w.-]){re.escape(host.name)}(?![\w-])")
    about = [sentence for sentence in sentences(result.reason) if name.search(sentence)]
    if about:
        prefix = _PREFIX.match(about[0])
        return HostCell(prefix[1] if prefix else result.verdict, "; ".join(about))
    window = result.volatile.window or Window(0, 0, 0, 0, 0)
    own = [event for number, event in events if window.from_event <= number < window.until_event]
    within = Window(0, 0, len(own), window.started_ms, window.ended_ms)
    judgement, _ = judge_layer(result.id.partition(_LAYER)[2], alone, result.circumstances, own, within)
    whole = Verdict(result.verdict)
    if judgement.required and gravest([judgement.verdict, whole]) != whole:
        # the fault is of no single host, for example a threshold for all hosts together
        return HostCell(whole, required=result.required)
    return HostCell(judgement.verdict, judgement.reason, judgement.required)


def _facts(gpu: dict[str, Any]) -> dict[str, str]:
    """Return the facts of a GPU in words, without the facts that nvidia-smi does not print."""
    words = {True: "yes", False: "no"}
    return {
        name: ", ".join(map(str, value))
        if isinstance(value, list)
        else words.get(value, str(value))
        if isinstance(value, bool)
        else str(value)
        for name, value in gpu.items()
        if value is not None and value not in ([], {})
    }
