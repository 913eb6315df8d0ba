"""The layers of GPUs, NVLinks and PCIe, judged by the words of the driver."""

from collections.abc import Mapping

from hostfacts.kernel_log import read_log
from validation.judge.check_verdict import Judgement
from validation.judge.hosts.gpu_elements import Aspect
from validation.judge.hosts.gpu_readings import judge_memory_errors, judge_pcie, judge_throttles
from validation.judge.hosts.gpu_state import judge_alike, judge_elements, judge_silence
from validation.judge.hosts.host_facts import HostGpus, judge_driver, judge_equality, judge_inventory
from validation.judge.hosts.host_layer import system_of
from validation.judge.hosts.host_links import (
    judge_fabric,
    judge_fabric_states,
    judge_link_errors,
    judge_nvlinks,
    judge_topology,
)
from validation.judge.hosts.host_log import judge_logs
from validation.judge.hosts.host_runs import judge_models, judge_named, judge_owners, judge_power
from validation.judge.verdict import Verdict
from validation.layers.nvlink import read_link_errors, read_links, read_service, read_topology
from validation.layers.readings import Readings


def inventory(readings: Readings) -> list[Judgement]:
    """Judge the number of GPUs of each host, and whether no two hosts show the same GPU."""
    hosts, declared = readings.gpus(), {host.name: host.gpus for host in readings.scope.site.hosts}
    known = {name: host for name, host in hosts.items() if declared[name]}
    judgements = [
        judge_inventory({name: host}, gpus_per_host=declared[name]) for name, host in sorted(known.items())
    ]
    unknown = sorted(hosts.keys() - known.keys())
    if unknown:
        reason = f"the site file does not say how many GPUs they have: {', '.join(unknown)}"
        judgements.append(Judgement(Verdict.INCONCLUSIVE, reason))
    return [*judgements, *judge_owners(hosts)]


def _by_model(readings: Readings, hosts: Mapping[str, HostGpus]) -> list[dict[str, HostGpus]]:
    models: dict[str, dict[str, HostGpus]] = {}
    for host in readings.scope.site.hosts:
        if host.name in hosts:
            models.setdefault(host.model, {})[host.name] = hosts[host.name]
    return list(models.values())


def equality(readings: Readings) -> list[Judgement]:
    """Judge whether the GPUs have the product name and the power limit of their host's model, and equal settings."""
    hosts, site = readings.gpus(), readings.scope.site
    judgements = [
        judge_equality(of_model, of_model.get(site.golden)) for of_model in _by_model(readings, hosts)
    ]
    return [
        *judgements,
        judge_driver({name: host.driver for name, host in hosts.items()}, site.driver),
        judge_named(hosts),
        judge_models(hosts, site.hosts, readings.scope.systems),
        *judge_power(hosts, site.hosts, readings.scope.systems),
    ]


def state(readings: Readings) -> list[Judgement]:
    """Judge the state of each GPU, and elements that muster does not know."""
    hosts, scope = readings.gpus(), readings.scope
    silence = judge_silence(hosts, scope.site.hosts, scope.systems, Aspect.STATE)
    return [judge_elements(hosts, Aspect.STATE), judge_alike(hosts), silence] if hosts else []


def memory(readings: Readings) -> list[Judgement]:
    """Judge errors of memory and pending repairs."""
    hosts, scope = readings.gpus(), readings.scope
    silence = judge_silence(hosts, scope.site.hosts, scope.systems, Aspect.MEMORY)
    return [judge_memory_errors(hosts), judge_elements(hosts, Aspect.MEMORY), silence] if hosts else []


def faults(readings: Readings) -> list[Judgement]:
    """Judge the kernel's logs and throttling."""
    hosts, logs = readings.gpus(), readings.read("kernel-log", read_log)
    return [*judge_logs(logs), judge_throttles(hosts)] if hosts or logs else []


def nvlink(readings: Readings) -> list[Judgement]:
    """Judge the NVLinks, and the topology of GPUs and adapters."""
    scope = readings.scope
    links, joined = readings.read("nvlink", read_links), readings.read("topology", read_topology)
    return [
        judge_nvlinks(links, scope.site.hosts, scope.systems),
        judge_topology(joined, scope.site.hosts, scope.site.golden, scope.systems),
    ]


def nvlink_errors(readings: Readings) -> list[Judgement]:
    """Judge the error counters of NVLinks."""
    scope = readings.scope
    return judge_link_errors(
        readings.read("nvlink-errors", read_link_errors), scope.site.hosts, scope.systems
    )


def fabric(readings: Readings) -> list[Judgement]:
    """Judge the fabric manager, and whether each GPU reports its state in the fabric."""
    states, hosts, scope = readings.read("fabric-manager", read_service), readings.gpus(), readings.scope
    said = [judge_elements(hosts, Aspect.FABRIC), judge_fabric_states(hosts, scope.site.hosts, scope.systems)]
    return [
        judge_fabric(states, scope.site.hosts, scope.systems),
        *(judgement for judgement in said if judgement.verdict != Verdict.PASS),
    ]


def pcie(readings: Readings) -> list[Judgement]:
    """Judge the PCIe links of GPUs, at rest and under the loads of the run."""
    hosts, samples = readings.gpus(), readings.samples()
    judgements = [judge_elements(hosts, Aspect.PCIE)] if hosts else []
    loaded = [judge_elements({name: of_host[-1]}, Aspect.PCIE) for name, of_host in samples.items()]
    judgements += [judgement for judgement in loaded if judgement.verdict != Verdict.PASS]
    for declared in readings.scope.site.hosts:
        system = system_of(declared, readings.scope.systems)
        if declared.name not in hosts:
            continue
        if system is None:
            reason = f"no figure says which PCIe links {declared.name} has, a {declared.model}"
            judgements.append(Judgement(Verdict.INCONCLUSIVE, reason))
            continue
        host = {declared.name: hosts[declared.name]}
        under_load = {declared.name: samples.get(declared.name, [])}
        generation, width = system.pcie_generation, system.pcie_width
        judgements.append(judge_pcie(host, generation=generation, width=width, samples=under_load))
    return judgements
