"""Impossible networks: each wrong site file is refused with its line and a fix, before any host is changed."""

import pytest

from tests.deployment.conftest import SiteUnderTest

TEXT = """\
schema: 1
name: here
versions:
  kubernetes: "1.35.4"
  deepops: "26.07"
  trident: "26.06.0"
  dra: "off"
hosts:
  mgmt01: {address: 192.0.2.10, os: ubuntu-24.04, roles: [control_plane, etcd]}
  dgx01: {address: 192.0.2.11, os: dgx-os-7, model: dgx-h100, roles: [gpu]}
kubernetes:
  network_plugin: calico
  pod_subnet: 10.244.0.0/16
  service_subnet: 10.96.0.0/16
storage:
  ontap:
    management_lif: 192.0.2.20
    username: admin
    password: {env: X}
    trident_password: {env: Y}
    interface_groups:
      - {node: a800-01, ports: [e5a, e5b]}
    vlans:
      - {node: a800-01, parent: a0a, id: 3111}
    svm: svm_ai
    aggregates: [aggr1]
    svm_management_lif: {name: svm, address: 192.0.2.21, netmask: 255.255.255.0, home_node: a800-01, home_port: e0M}
    data_lifs:
      - {name: nfs_01, address: 198.51.100.11, netmask: 255.255.255.0, home_node: a800-01, home_port: a0a-3111}
    routes: [{destination: 0.0.0.0/0, gateway: 192.0.2.1}]
    dns: {domains: [example.com], servers: [192.0.2.2]}
    export_cidrs: [198.51.100.0/24]
  backends:
    - {name: nas, driver: ontap-nas, data_lif: 198.51.100.11}
  classes:
    - {name: fast, backend: nas, default: true}
network:
  mtu: 9000
  vlans:
    - {id: 3111, name: nfs}
  switches:
    nexus-1: {address: 192.0.2.30, model: nexus-3232c}
"""
REFUSED = {
    "a host at no address": (
        "192.0.2.10,",
        "192.0.2.999,",
        9,
        "hosts.mgmt01.address: 192.0.2.999 is no address",
    ),
    "a host at three numbers": ("192.0.2.11,", "192.0.2,", 10, "hosts.dgx01.address: 192.0.2 is no address"),
    "a host at a broken IPv6 address": (
        "192.0.2.11,",
        "'fe80::1::2',",
        10,
        "hosts.dgx01.address: fe80::1::2 is no",
    ),
    "a switch at no address": ("192.0.2.30,", "192.0.2.300,", 42, "is no address"),
    "a management LIF at no address": ("lif: 192.0.2.20", "lif: 192.0.2.256", 17, "is no address"),
    "a data LIF at no address": ("address: 198.51.100.11", "address: 198.51.100.1111", 29, "is no address"),
    "a backend at no address": ("data_lif: 198.51.100.11", "data_lif: 198.51.100", 34, "is no address"),
    "a gateway at no address": ("gateway: 192.0.2.1}", "gateway: 192.0.2.1.1}", 30, "is no address"),
    "a name server at no address": ("servers: [192.0.2.2]", "servers: [192.0.2.2.2]", 31, "dns.servers"),
    "pods in a network of /33": (
        "10.244.0.0/16",
        "10.244.0.0/33",
        13,
        "kubernetes.pod_subnet: 10.244.0.0/33 is no",
    ),
    "services in no network": (
        "10.96.0.0/16",
        "10.96.0.0.0/16",
        14,
        "kubernetes.service_subnet: 10.96.0.0.0/16 is no",
    ),
    "a network with bits of a host": (
        "10.244.0.0/16",
        "10.244.3.0/16",
        13,
        "write 10.244.0.0/16 for the network",
    ),
    "exports to no network": (
        "[198.51.100.0/24]",
        "[198.51.100.0/64]",
        32,
        "export_cidrs.0: 198.51.100.0/64 is no",
    ),
    "a route to no network": (
        "destination: 0.0.0.0/0",
        "destination: 0.0.0.0/40",
        30,
        "destination: 0.0.0.0/40 is no",
    ),
    "a mask with a hole": (
        "address: 198.51.100.11, netmask: 255.255.255.0",
        "address: 198.51.100.11, netmask: 255.0.255.0",
        29,
        "netmask: 255.0.255.0 is no",
    ),
    "services among the pods": ("10.96.0.0/16", "10.244.128.0/20", 14, "share addresses"),
    "services that are the pods": ("10.96.0.0/16", "10.244.0.0/16", 14, "share addresses"),
    "pods among the hosts": (
        "10.244.0.0/16",
        "192.0.2.0/24",
        13,
        "mgmt01 has 192.0.2.10, which is in the network of the pods",
    ),
    "services among the hosts": (
        "10.96.0.0/16",
        "192.0.2.0/28",
        14,
        "dgx01 has 192.0.2.11, which is in the network of the",
    ),
    "pods among the storage": (
        "10.244.0.0/16",
        "198.51.100.0/24",
        13,
        "nfs_01 has 198.51.100.11, which is in",
    ),
    "a backend on an interface that nobody makes": (
        "data_lif: 198.51.100.11",
        "data_lif: 198.51.100.12",
        34,
        "no entry of storage.ontap.data_lifs has it",
    ),
    "an interface on a VLAN that nobody makes": (
        "home_port: a0a-3111",
        "home_port: a0a-3112",
        29,
        "storage.ontap.vlans makes no such port",
    ),
    "an interface on another node's VLAN": (
        "255.255.255.0, home_node: a800-01, home_port: a0a",
        "255.255.255.0, home_node: a800-02, home_port: a0a",
        29,
        "a0a-3111 of a800-02",
    ),
    "a VLAN on a node without a group": (
        "{node: a800-01, parent: a0a, id: 3111}",
        "{node: a800-02, parent: a0a, id: 3111}",
        24,
        "has none for this node",
    ),
    "packets that the switches drop": (
        "mtu: 9000\n",
        "mtu: 9200\n  switch_mtu: 9100\n",
        38,
        "do not go through switches",
    ),
    "a VLAN of the switches twice": (
        "- {id: 3111, name: nfs}",
        "- {id: 3111, name: nfs}\n    - {id: 3111, name: roce}",
        41,
        "VLAN 3111 is there twice",
    ),
    "a backend twice": (
        "- {name: nas, driver: ontap-nas, data_lif: 198.51.100.11}",
        "- {name: nas, driver: ontap-nas}\n    - {name: nas, driver: ontap-san}",
        35,
        "storage.backends has nas twice",
    ),
    "a class twice": (
        "default: true}",
        "default: true}\n    - {name: fast, backend: nas}",
        37,
        "storage.classes has fast twice",
    ),
    "a patch release that kubespray does not know": (
        'kubernetes: "1.35.4"',
        'kubernetes: "1.35.9"',
        4,
        "does not install Kubernetes 1.35.9",
    ),
    "a Kubernetes that is too old for the orchestrator": (
        'kubernetes: "1.35.4"',
        'kubernetes: "1.29.4"',
        4,
        "the orchestrator needs Kubernetes >=1.30",
    ),
    "a DeepOps that no tree proves": (
        'deepops: "26.07"',
        'deepops: "20.06"',
        5,
        "is not in the matrix: take one of 26.07",
    ),
    "a Trident that no tree proves": (
        'trident: "26.06.0"',
        'trident: "21.01.0"',
        6,
        "Trident 21.01.0 is not in the matrix",
    ),
    "a batch of no host": (
        "network:\n",
        "upgrade: {batch: 0}\nnetwork:\n",
        37,
        "upgrade.batch: this should be: How many hosts at once",
    ),
    "a batch that is no part": (
        "network:\n",
        "upgrade: {batch: '120%'}\nnetwork:\n",
        37,
        "upgrade.batch: this should be: How many hosts at once",
    ),
    "pods of two hosts in the room of one": (
        "calico\n  pod_subnet: 10.244.0.0/16",
        "flannel\n  pod_subnet: 10.244.0.0/24",
        13,
        "is large enough for 1 hosts with flannel",
    ),
    "no control plane": (
        "roles: [control_plane, etcd]",
        "roles: [etcd]",
        8,
        "no host has the role control_plane",
    ),
    "no etcd": ("roles: [control_plane, etcd]", "roles: [control_plane]", 8, "no host has the role etcd"),
    "a model that DeepOps' system does not run on": (
        "os: dgx-os-7, model: dgx-h100",
        "os: dgx-os-7, model: dgx-2",
        10,
        "dgx-os-7 does not run on dgx-2",
    ),
}


def test_the_site_of_this_test_is_right(site: SiteUnderTest) -> None:
    site.write(TEXT)
    done = site.call("plan")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("case", REFUSED)
def test_an_entry_that_cannot_be_is_refused_with_its_line_before_any_host_is_asked(
    site: SiteUnderTest, case: str
) -> None:
    before, after, line, message = REFUSED[case]
    assert TEXT.count(before) == 1
    site.write(TEXT.replace(before, after))
    done = site.call("install")
    assert done.returncode == 2
    (printed,) = [problem for problem in done.stderr.splitlines() if message in problem]
    assert printed.startswith(f"{site.file}:{line}: "), printed
    assert not site.state.exists()


def test_hosts_among_kubesprays_own_pods_are_refused(site: SiteUnderTest) -> None:
    text = TEXT.replace("  pod_subnet: 10.244.0.0/16\n", "").replace("192.0.2.11", "10.233.70.11")
    site.write(text)
    assert (
        f"{site.file}:11: dgx01 has 10.233.70.11, which is in the network of the pods"
        in site.call("plan").stderr
    )


def test_a_name_is_no_address_and_is_left_to_the_run(site: SiteUnderTest) -> None:
    site.write(TEXT.replace("192.0.2.11", "dgx01.example.com").replace("lif: 192.0.2.20", "lif: a800"))
    assert site.call("plan").returncode == 0
