"""Values that ONTAP, a switch, Docker or kubespray does not take: each is refused or noted with its line."""

import pytest

from tests.deployment.conftest import SiteUnderTest
from tests.deployment.test_sites_at_the_edge import backend, changed, network
from tests.deployment.test_sites_that_cannot_work import (
    HEALTHY,
    Case,
    extra,
    judged,
)

STORED = """  backends:
    - {name: nas, driver: ontap-nas, data_lif: 192.168.11.11}
  classes:
    - {name: fast, backend: nas, default: true, mount_options: [nfsvers=4.1]}
"""
SWITCH = "switches: {n1: {address: 10.61.1.2, model: nexus-3232c"
ONE = "{name: s, copies: [{schedule: daily, count: 1}]}"
BOND = "b0: {members: [a, c], mtu: 9000}, b0.7: {parent: b0, vlan: 7, mtu: 9000}"


def ontap(text: str, says: str, *, refused: bool = True) -> Case:
    return Case("    nfs_versions", f"    {text}\n    nfs_versions", says, text if refused else "")


def port(name: str, says: str = "") -> Case:
    links = f"links: [{{to: x, ports: [{name}], vlans: [5]}}]"
    return network(f"vlans: [{{id: 5, name: a}}]\n  {SWITCH}, {links}}}}}", says, "switches:" if says else "")


def vlan(number: int, says: str, *, refused: bool) -> Case:
    vlans = f"vlans: [{{id: {number}, name: a}}]"
    return network(f"{vlans}\n  {SWITCH}}}}}", says, vlans if refused else "")


def interfaces(text: str, says: str = "", *, refused: bool = True) -> Case:
    entry = f"model: dgx-h100, roles: [gpu], interfaces: {{{text}}}}}"
    return Case("model: dgx-h100, roles: [gpu]}", entry, says, "dgx02:" if says and refused else "")


CASES = {
    "a QoS policy whose limits cross": ontap(
        "qos_policies: [{name: q, min_iops: 500, max_iops: 100}]", "min_iops 500 is above max_iops 100"),
    "a QoS policy without a limit": ontap("qos_policies: [{name: q, shared: true}]", "QoS policy q has no limit"),
    "two QoS policies of one name": ontap(
        "qos_policies: [{name: q, max_iops: 1}, {name: q, max_iops: 2}]", "storage.ontap.qos_policies has q twice"),
    "a QoS policy": ontap("qos_policies: [{name: q, min_iops: 100, max_iops: 100}]", "", refused=False),
    "two snapshot policies of one name": ontap(
        f"snapshot_policies: [{ONE}, {ONE}]",
        "storage.ontap.snapshot_policies has s twice"),
    "a schedule twice": ontap(
        "snapshot_policies: [{name: s, copies: [{schedule: daily, count: 1}, {schedule: daily, count: 2}]}]",
        "snapshot policy s has the schedule daily twice"),
    "six schedules": ontap(
        f"snapshot_policies: [{{name: s, copies: [{', '.join(f'{{schedule: s{n}, count: 1}}' for n in range(6))}]}}]",
        "snapshot policy s has 6 schedules: ONTAP takes 5"),
    "more snapshots than a volume keeps": ontap(
        "snapshot_policies: [{name: s, copies: [{schedule: daily, count: 1000}, {schedule: hourly, count: 24}]}]",
        "snapshot policy s keeps 1024 snapshots: ONTAP keeps 1023"),
    "as many snapshots as a volume keeps": ontap(
        "snapshot_policies: [{name: s, copies: [{schedule: daily, count: 1000}, {schedule: hourly, count: 23}]}]", "",
        refused=False),
    "the account of an SVM for Trident": ontap("trident_username: vsadmin", "vsadmin is the administrator of the SVM"),
    "a DNS server of the SVM at itself": ontap(
        "dns: {domains: [example.com], servers: [127.0.0.1]}", "no DNS server answers the SVM at 127.0.0.1"),
    "a backend with two QoS policies": backend(
        "qosPolicy: a, adaptiveQosPolicy: b", "Trident takes one of them"),
    "two interfaces of overlapping networks": Case(
        "10.61.1.11, netmask: 255.255.255.0", "192.168.11.12, netmask: 255.255.254.0",
        "svm is in 192.168.10.0/23, and nfs_01 in 192.168.11.0/24", "svm_management_lif"),
    "a port that the switch does not have": port("Ethernet1/35", "n1 has no Ethernet1/35"),
    "a module that the switch does not have": port("Ethernet2/1", "n1 has no Ethernet2/1"),
    "a fifth part of a port": port("Ethernet1/1/5", "n1 has no Ethernet1/1/5"),
    "a part of a port that is not split": port("Ethernet1/33/1", "n1 has no Ethernet1/33/1"),
    "the last ports of the switch": port("Ethernet1/34, Ethernet1/32/4"),
    "the default VLAN of a switch": vlan(1, "VLAN 1 is the default VLAN", refused=True),
    "a VLAN that NX-OS reserves": vlan(
        3968, "site.yml:42: VLAN 3968 is in the range that NX-OS reserves", refused=False),
    "the last VLAN before the reserved range": vlan(3967, "", refused=False),
    "a VLAN with another number in its name": interfaces(
        BOND.replace("vlan: 7", "vlan: 8"), "site.yml:9: b0.7 of dgx02 is VLAN 8, not 7: rename it", refused=False),
    "a VLAN with its number in its name": interfaces(BOND),
    "a domain of the cluster's own DNS": Case(
        "", "  ingress: {domain: jobs.cluster.local}\n", "jobs.cluster.local is in cluster.local", "ingress:"),
    "a domain that ends alike": Case("", "  ingress: {domain: mycluster.local}\n"),
    "a host at the name of another": Case(
        "10.61.1.31", "dgx02.example.com", "dgx01 has the address dgx02.example.com, the name of another", "dgx01:"),
    "a host at its own name": Case("10.61.1.31", "dgx01.example.com"),
    "services without kube-proxy": extra(
        "kube_proxy_remove: true", "calico does not route to services without kube-proxy"),
    "node ports without an end": extra(
        "kube_apiserver_node_port_range: 30000-65536", "30000-65536 is no range of ports"),
    "node ports in the wrong order": extra("kube_apiserver_node_port_range: 32767-30000", "is no range of ports"),
    "no pods on a node": extra("kubelet_max_pods: 0", "no node runs a pod"),
    "a relative directory": extra("kube_cert_dir: ssl", "should be a path from /, not `ssl`"),
    "an absolute directory": extra("kube_cert_dir: /etc/kubernetes/ssl", refused=False),
    "Trident without a class": Case(STORED, "", "site.yml:15: no claim gets a volume from Trident"),
}  # fmt: skip
TOGETHER = {
    "a VLAN of a host that the switches do not have": (
        vlan(5, "", refused=False),
        interfaces(BOND, "site.yml:9: b0.7 of dgx02 is in VLAN 7, which network.vlans does not have", refused=False)),
    "a VLAN of a host that the switches have": (vlan(7, "", refused=False), interfaces(BOND)),
    "lossless RoCE that the switches drop": (
        vlan(5, "", refused=False),
        interfaces("e1: {roce: true, mtu: 9000}", "site.yml:9: RoCE on e1 of dgx02 is lossless", refused=False)),
    "lossless RoCE over lossless switches": (
        network(f"roce: {{}}\n  {SWITCH}}}}}"), interfaces("e1: {roce: true, mtu: 9000}")),
    "a backend with a QoS policy that is not made": (
        backend("qosPolicy: gold", ""), ontap(
            "qos_policies: [{name: silver, max_iops: 1}]", "storage.ontap.qos_policies does not make gold",
            refused=False)),
    "a backend with a QoS policy that is made": (
        backend("qosPolicy: gold", ""), ontap("qos_policies: [{name: gold, max_iops: 1}]", "", refused=False)),
    "a host in the network of Docker's bridge": (
        Case("10.61.1.31", "172.17.1.31", "site.yml:8: dgx01 has 172.17.1.31, which is in 172.17.0.0/16"),
        Case("container_runtime: containerd", "container_runtime: docker")),
    "a host beside Docker's bridge": (
        Case("10.61.1.31", "172.17.1.31"),
        Case("container_runtime: containerd", "container_runtime: docker"),
        Case("", "docker: {daemon: {bip: 192.168.99.1/24}}\n")),
    "a host in that network without Docker": (Case("10.61.1.31", "172.17.1.31"),),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_value_that_a_device_does_not_take_is_refused_or_noted(site: SiteUnderTest, name: str) -> None:
    case = CASES[name]
    assert not case.before or HEALTHY.count(case.before) == 1
    judged(site, changed(HEALTHY, case), case.says, case.at)


@pytest.mark.parametrize("name", TOGETHER)
def test_two_values_that_a_device_does_not_take_are_noted(site: SiteUnderTest, name: str) -> None:
    text = HEALTHY
    for case in TOGETHER[name]:
        text = changed(text, case)
    judged(site, text, "".join(case.says for case in TOGETHER[name]))
