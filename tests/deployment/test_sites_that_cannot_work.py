"""A site file that cannot work is refused with its line, a doubtful entry becomes a note in the plan, others pass.

Each case is a small change to one healthy site. The README of `cases/installer` names the kinds.
"""

import importlib.util
import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from deployment import upstream
from tests.deployment.conftest import SiteUnderTest
from tests.upstream.facts import FACTS_VARIABLE, folder

FACTS = folder(FACTS_VARIABLE)
CASES = FACTS.parent / "cases" / "installer" if FACTS else Path("none")
"""The complete site files beside the folder of facts, if it is available."""

HEALTHY = """\
schema: 1
name: healthy
access: {user: muster}
hosts:
  mgmt01: {address: 10.61.1.21, os: ubuntu-24.04, roles: [control_plane, etcd]}
  mgmt02: {address: 10.61.1.22, os: ubuntu-24.04, roles: [control_plane, etcd]}
  mgmt03: {address: 10.61.1.23, os: ubuntu-24.04, roles: [control_plane, etcd]}
  dgx01: {address: 10.61.1.31, os: dgx-os-6, model: dgx-a100, roles: [gpu]}
  dgx02: {address: 10.61.1.32, os: dgx-os-7, model: dgx-h100, roles: [gpu]}
versions:
  kubernetes: "1.35.4"
  deepops: "26.07"
  driver: "580"
  container_toolkit: "1.20.0"
  trident: "26.06.0"
  ontap: "9.16.1"
  dra: auto
kubernetes:
  container_runtime: containerd
  network_plugin: calico
storage:
  ontap:
    management_lif: 10.61.1.10
    username: admin
    password: {env: MUSTER_ONTAP_PASSWORD}
    svm: svm_ai
    aggregates: [aggr1]
    svm_management_lif: {name: svm, address: 10.61.1.11, netmask: 255.255.255.0, home_node: a800-01, home_port: e0M}
    data_lifs:
      - {name: nfs_01, address: 192.168.11.11, netmask: 255.255.255.0, home_node: a800-01, home_port: e5a}
    nfs_versions: ["4.1"]
    export_cidrs:
      - 192.168.11.0/24
    trident_password: {env: MUSTER_TRIDENT_PASSWORD}
  trident: {sha256: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}
  backends:
    - {name: nas, driver: ontap-nas, data_lif: 192.168.11.11}
  classes:
    - {name: fast, backend: nas, default: true, mount_options: [nfsvers=4.1]}
network:
  mtu: 9000
orchestrator:
  image: registry.example.com/muster:0.1.0
"""
DIGEST = "sha256:" + "0a" * 32
ENVIRONMENT = {"MUSTER_ONTAP_PASSWORD": "x", "MUSTER_TRIDENT_PASSWORD": "y"}


@dataclass(frozen=True)
class Case:
    """A change to the healthy site: `after` replaces `before`, or is appended if `before` is empty.

    `at` is a text on the line that is refused; it is empty if the site is accepted. `says` is a text in the refusal or
    in a note; if it is empty, there is no note.
    """

    before: str
    after: str
    says: str = ""
    at: str = ""


def host(name: str, says: str = "is a reserved name") -> Case:
    return Case("  dgx01:", f"  {name}:", says, f"  {name}: {{")


def address(text: str, says: str) -> Case:
    return Case("address: 10.61.1.21,", f"address: {text},", says, "mgmt01:" if says else "")


def image(text: str, says: str = "", *, refused: bool = True) -> Case:
    return Case("registry.example.com/muster:0.1.0", text, says, "image:" if refused else "")


def pods(text: str, says: str) -> Case:
    return Case("calico\n", f"calico\n  pod_subnet: {text}\n", says, "pod_subnet" if says else "")


def services(text: str, says: str) -> Case:
    return Case("calico\n", f"calico\n  service_subnet: {text}\n", says, "service_subnet")


def dns(text: str, says: str = "") -> Case:
    return Case("calico\n", f"calico\n  upstream_dns: {text}\n", says, "upstream_dns" if says else "")


def exported(text: str, says: str = "", *, refused: bool = True) -> Case:
    return Case("- 192.168.11.0/24", f"- {text}", says, f"- {text}" if refused else "")


def variable(text: str, says: str = "", *, refused: bool = True) -> Case:
    return Case("", f"vars:\n  {text}\n", says, text if refused else "")


def extra(text: str, says: str = "", *, refused: bool = True) -> Case:
    return Case("", f"vars:\n  deepops_extra_variables:\n    {text}\n", says, text if refused else "")


def registry(text: str, says: str = "", more: str = "") -> Case:
    return Case("", f"bundle:\n  registry: {text}\n{more}", says, f"registry: {text}" if says else "")


def backend(driver: str) -> Case:
    return Case(
        "driver: ontap-nas, data_lif: 192.168.11.11",
        f"driver: {driver}",
        "needs iSCSI and multipath",
        "ontap-san",
    )


def model(system: str, name: str, says: str = "") -> Case:
    return Case("dgx-os-7, model: dgx-h100, roles: [gpu]}", f"{system}, model: {name}, roles: [gpu]}}", says)


def node(text: str, says: str = "", *, refused: bool = True) -> Case:
    return Case("model: dgx-h100", f"model: dgx-h100, {text}", says, "dgx02:" if refused else "")


NUMBER = "should be a whole number"
NEVER_VERIFIED = "no host has the role gpu, so verify finds no GPU and fails"
OF_README = {
    "ipv6-pods": pods("'fd85:ee78:d8a6:8600::/56'", "is IPv6"),
    "ipv6-hosts": address("'fd00:61::10'", "IPv6 address fd00:61::10"),
    "host-named-controller": host("controller"),
    "host-named-localhost": host("localhost"),
    "host-named-all": host("all"),
    "host-named-etcd": host("etcd"),
    "host-named-gpu": host("gpu"),
    "k8s-minor-only": Case('"1.35.4"', '"1.35"', "write three numbers", "kubernetes: \"1"),
    "typo-var": variable("deepops_extra_variabels: {}", "is deepops_extra_variables meant?"),
    "typo-extra": extra("kube_vip_enabeld: true", "is kube_vip_enabled meant?"),
    "wrong-type-var": variable("preflight_free_gib: forty", NUMBER),
    "extra-overrides": extra("kube_version: 1.34.1", "write it as versions.kubernetes"),
    "image-http": image("https://registry.example.com/muster:0.1.0", "has no scheme"),
    "image-upper": image("registry.example.com/Muster:0.1.0", "no upper case"),
    "ontap-san-nfs-mount-options": backend("ontap-san"),
    "ontap-san": Case(
        "driver: ontap-nas, data_lif: 192.168.11.11}\n  classes:\n    - {name: fast, backend: nas, default: true, "
        "mount_options: [nfsvers=4.1]}",
        "driver: ontap-san}\n  classes:\n    - {name: fast, backend: nas, default: true}", "needs iSCSI", "ontap-san"),
    "operator-and-plugin": Case(
        "dra: auto", 'dra: auto\n  device_plugin: "0.19.3"\ndeepops:\n  gpu_operator: true',
        "the GPU operator would announce them again", "device_plugin"),
    "localhost-addr": address("localhost", "the machine that muster runs on"),
    "pod-subnet-tiny": pods("10.233.64.0/28", "smaller than the /24 of one node's pods"),
    "pods-overlap-export": exported("10.233.64.0/24", "hosts mount, not pods"),
    "export-misses-hosts": exported(
        "192.168.99.0/24", "the exports (192.168.99.0/24) hold neither mgmt01", refused=False),
    "mtu-vlan": Case("mtu: 9000", "mtu: 9216", "network.mtu 9216 goes to the broadcast domain of ONTAP"),
    "image-latest": image("registry.example.com/muster:latest", "the tag latest moves", refused=False),
    "dra-explicit-135": Case("dra: auto", 'dra: "0.5.0"', "jobs with -g wait for ever"),
    "b200-dgxos7": model("dgx-os-7", "dgx-b200", "needs nvlsm beside it"),
    "hgx-generic-ubuntu": model("ubuntu-24.04", "generic", "does not say whether the board has NVSwitch"),
    "node-ip": node("connection_vars: {ip: 10.61.2.32}", "hosts.dgx02.node_address"),
    "h200-ubuntu": model("ubuntu-24.04", "dgx-h200"),
    "docker-runtime": Case("container_runtime: containerd", "container_runtime: docker"),
    "rhel9": model("rhel-9", "dgx-h100"),
    "even-etcd": Case(
        "ubuntu-24.04, roles: [control_plane, etcd]}\n  dgx01",
        "ubuntu-24.04, roles: [control_plane]}\n  dgx01",
        "etcd has 2 members", "mgmt02:"),
    "same-address": Case("10.61.1.31", "10.61.1.32", "dgx02 has the address of dgx01", "dgx02:"),
    "secret-in-file": Case("{env: MUSTER_ONTAP_PASSWORD}", "netapp1!", "a secret is never written here", "netapp1!"),
    "two-defaults": Case("[nfsvers=4.1]}", "[nfsvers=4.1]}\n    - {name: b, backend: nas, default: true}",
        "2 of the classes are the default", "name: b,"),
    "proxy-password": Case("mtu: 9000", "mtu: 9000\n  proxy: {http: 'http://u:p@proxy.example.com:3128'}",
        "it has a user or a password", "proxy:"),
}  # fmt: skip
OWN = {
    "hgx-b200-ubuntu": model("ubuntu-24.04", "hgx-b200", "needs nvlsm beside it"),
    "hgx-h100-ubuntu": model("ubuntu-24.04", "hgx-h100"),
    "hgx-h200-rhel": model("rhel-9", "hgx-h200"),
    "gb200": Case(
        "dgx-os-7, model: dgx-h100", "ubuntu-24.04, model: gb200", "does not install the driver of gb200", "dgx02:"),
    "gb200-validated": Case(
        "dgx-os-7, model: dgx-h100, roles: [gpu]}\n", "ubuntu-24.04, model: gb200, roles: [gpu]}\n"
        "not_applicable: {driver: the vendor installs it}\n"),
    "services in IPv6": services("'fd85::/112'", "the network of the services (fd85::/112) is IPv6"),
    "a node in IPv6": node("node_address: 'fd00::1'", "has the IPv6 address fd00::1"),
    "the stack of IPv6 for kubespray": extra("ipv6_stack: true", "muster sets up IPv4 alone"),
    "an old name of the stack of IPv6": extra("enable_dual_stack_networks: true", "neither kubespray nor DeepOps"),
    "a host with the name of all hosts of the site": host("cluster"),
    "a host with the name of a role of two words": host("control-plane"),
    "a host with the name of the role worker": host("worker"),
    "a host with the name of a group of kubespray": host("kube-node"),
    "a host with the name of a group of DeepOps": host("slurm-master"),
    "a host with the name of a host of kubespray": host("bastion"),
    "a host with the name of the hosts without a group": host("ungrouped"),
    "a switch with the name of the controller": Case(
        "mtu: 9000", "mtu: 9000\n  switches: {controller: {address: 10.61.1.2, model: nexus-3232c}}",
        "controller is a reserved name", "controller:"),
    "a switch with the name of a host": Case(
        "mtu: 9000", "mtu: 9000\n  switches: {dgx01: {address: 10.61.1.2, model: nexus-3232c}}",
        "dgx01 is also the name of a host", "switches:"),
    "a host whose name begins as one that is reserved": Case("  dgx01:", "  gpu01:"),
    "a Kubernetes with a zero in front": Case('"1.35.4"', '"1.35.04"', "write three numbers", "kubernetes: \"1"),
    "a Trident without its patch release": Case('"26.06.0"', '"26.06"', "three numbers with points", "trident: \""),
    "a toolkit without its patch release": Case(
        '"1.20.0"', '"1.20"', "three numbers with points", "container_toolkit:"),
    "an unknown variable of the role verify": variable("verify_storge: true", "is verify_storage meant?"),
    "a variable like none": variable("ontap_colour: blue", "no role has this variable"),
    "a list that is a text": variable("snapshot_endpoint: [a, b]", "should be a text, not a list"),
    "a truth that is none": variable("driver_reboot: sometimes", "should be true or false"),
    "a number with a fraction": variable("verify_volume_seconds: 1.5", NUMBER),
    "nothing where a number is": variable("verify_volume_seconds:", NUMBER),
    "a number without an end": variable("verify_volume_seconds: .inf", NUMBER),
    "keys where a list is": variable("ontap_routes: {a: 1}", "should be a list, not keys with values"),
    "an unknown key in an entry": variable("ontap_routes: [{destination: 0.0.0.0/0, gatway: 10.61.1.1}]",
        "unknown key `gatway`"),
    "a text in a list of keys": variable("ontap_routes: [here]", "vars.ontap_routes.0: should be keys with values"),
    "a release under vars": variable("deepops_kubernetes: '1.34.1'", "it is checked as versions.kubernetes"),
    "a driver under vars": variable("driver_branch: '470'", "it is checked as versions.driver"),
    "a number as a text": variable("verify_volume_seconds: '240'", refused=False),
    "a yes": variable("driver_reboot: 'yes'", refused=False),
    "a type of the vault": variable("verify_volume_seconds: '{{ seconds }}'", refused=False),
    "another network of pods for kubespray": extra("kube_pods_subnet: 10.0.0.0/8", "write it as kubernetes.pod_subnet"),
    "DNS servers of the site": dns("[10.61.1.53, 10.61.1.54]"),
    "a DNS server in IPv6": dns("['fd00::53']"),
    "a DNS server that is the host itself": dns("[127.0.0.53]", "the cluster's DNS asks 127.0.0.53"),
    "a DNS server that is the cluster's": dns("[10.61.1.53, 10.233.0.3]", "the cluster's DNS asks 10.233.0.3"),
    "a DNS server that is no address": dns("[10.61.1.530]", "10.61.1.530 is no address"),
    "a DNS server by its name": dns("[dns.example.com]", "does not have the form"),
    "DNS servers for kubespray": extra("upstream_dns_servers: [10.61.1.53]", "write it as kubernetes.upstream_dns"),
    "another plugin for kubespray": extra("kube_network_plugin: flannel", "write it as kubernetes.network_plugin"),
    "another deployment of etcd": extra("etcd_deployment_type: kubeadm", "muster sets it"),
    "a virtual address": extra("kube_vip_enabled: true", refused=False),
    "a virtual address as a word": extra("kube_vip_enabled: 'yes'", refused=False),
    "a misspelt truth for kubespray": extra("kube_vip_enabled: ture", "should be true or false, not `ture`"),
    "a number of pods in words": extra("kubelet_max_pods: lots", "should be a whole number, not `lots`"),
    "a number below 0 that kubespray takes": extra("kubelet_pod_pids_limit: -1", refused=False),
    "a misspelt mode of kube-proxy": extra("kube_proxy_mode: iptabels", "iptabels is none of iptables, ipvs, nftables"),
    "a mode of kube-proxy": extra("kube_proxy_mode: nftables", refused=False),
    "a truth of the vault": extra("kube_vip_enabled: '{{ vip }}'", refused=False),
    "a containerd with holes": extra("containerd_version: 1.7.0", "containerd 1.7.0 has CVE-", refused=False),
    "another Calico": extra("calico_version: 3.30.1", "replaces the release of kubespray", refused=False),
    "a table of holes under vars": variable(
        "preflight_refused: []", "vars.preflight_refused replaces a value that muster takes from", refused=False),
    "a batch under vars": variable("deepops_batch: '150%'", "vars.deepops_batch replaces a value", refused=False),
    "less than no seconds": variable("driver_reboot_seconds: -1", "-1 is less than 0"),
    "a host at a link-local address": address("169.254.7.1", "169.254.7.1 is link-local"),
    "a host at a group of hosts": address("224.0.0.5", "224.0.0.5 is multicast"),
    "a host at the broadcast address": address("255.255.255.255", "255.255.255.255 is reserved"),
    "pods in a multicast range": pods("224.0.0.0/8", "is multicast"),
    "pods at loopback": pods("127.0.0.0/8", "is loopback"),
    "pods over a link-local range": pods("168.0.0.0/7", "is link-local"),
    "services in the reserved range": services("250.0.0.0/16", "is reserved"),
    "a host at the storage": Case(
        "address: 10.61.1.21,", "address: 192.168.11.11,", "nfs_01 has the address of mgmt01, 192.168.11.11", "nfs_01"),
    "a node at another host": node("node_address: 10.61.1.31", "the node dgx02 has the address of dgx01"),
    "a node at its own address": node("node_address: 10.61.1.32", refused=False),
    "a registry at no port": image("registry.example.com:99999/muster:1", "a port is between 1 and 65535"),
    "mirrors of containerd": extra("containerd_registries_mirrors: []", refused=False),
    "mirrors of containerd beside a registry of the bundle": Case(
        "", "bundle: {registry: r.example.com}\n"
        "vars:\n  deepops_extra_variables:\n    containerd_registries_mirrors: []\n",
        "bundle.registry sets it: remove one", "containerd_registries_mirrors: []"),
    "a proxy of GitHub": extra("github_url: https://proxy.example.com", refused=False),
    "a proxy of GitHub beside a server of the bundle": Case(
        "", "bundle: {files_url: 'http://f.example.com/'}\nvars:\n  deepops_extra_variables:\n    github_url: http://f\n",
        "bundle.files_url sets it: remove one", "github_url: http://f"),
    "a registry of the bundle": registry("registry.example.com:5000/dgx"),
    "a registry of the bundle without TLS": registry("http://10.61.1.9:5000"),
    "a registry of the bundle in capitals": registry("Registry.example.com", "does not have the form"),
    "a registry of the bundle with a tag": registry("r.example.com/dgx:1", "does not have the form"),
    "a registry of the bundle for Docker": Case(
        "containerd\n  network_plugin: calico\n",
        "docker\n  network_plugin: calico\nbundle: {registry: r.example.com}\n",
        "Docker takes a mirror of docker.io alone", "registry: r.example.com"),
    "a server of the bundle without a scheme": Case(
        "", "bundle: {files_url: files.example.com}\n", "does not have the form", "files_url: files"),
    "a name of kubespray in capitals": extra("Kube_Vip_Enabled: true", "neither kubespray nor DeepOps"),
    "a number as a name": extra("1: true", "neither kubespray nor DeepOps"),
    "extra variables that are a list": variable(
        "deepops_extra_variables: [a]", "should be keys with values, not a list"),
    "an image with a space": image("'registry.example.com/muster :0.1.0'", "not the form"),
    "an image with two tags": image("muster:1:2", "not the form"),
    "an image with an empty tag": image("'registry.example.com/muster:'", "not the form"),
    "an image that is nothing": image("''", "not the form"),
    "an image with a digest of nothing": image("muster@sha256:abc", "not the form"),
    "an image with a tag of capitals": image("registry.example.com/muster:RC1", refused=False),
    "an image with a longer name than there may be": image(f"r.example.com/{'a' * 256}:1", "longer than 255"),
    "an image without a tag": image("registry.example.com:5000/muster", "without a tag it is latest", refused=False),
    "an image with a tag that moves and a digest": image(f"r.example.com/muster:latest@{DIGEST}", refused=False),
    "an image of the branch main": image("r.example.com/muster:main", "the tag main moves", refused=False),
    "an image for the bundle with a scheme": Case("", "bundle:\n  images:\n    - docker://busybox:1\n", "no scheme", "docker://"),
    "an image for the bundle that moves": Case(
        "", "bundle:\n  images: [busybox]\n", "bundle.images.0: busybox: without"),
    "an image of the validation in capitals": Case(
        "", "validation:\n  images: {busybox: r.example.com/BusyBox}\n", "no upper case", "BusyBox"),
    "an image under vars": variable("verify_job_image: 'http://busybox'", "has no scheme"),
    "a flexgroup over iSCSI no, over NFS yes": Case("driver: ontap-nas,", "driver: ontap-nas-flexgroup,"),
    "the operator alone": Case("", "deepops: {gpu_operator: true}\n"),
    "a host at 127.0.0.1": address("127.0.0.1", "the machine that muster runs on"),
    "a host at another loopback": address("127.8.0.1", "the machine that muster runs on"),
    "a host at the loopback of IPv6": address("'::1'", "the machine that muster runs on"),
    "a host at no address in particular": address("0.0.0.0", "the machine that muster runs on"),  # noqa: S104
    "a host at a name of loopback": address("ip6-localhost", "the machine that muster runs on"),
    "a host that is this machine": address("localhost, connection: local", ""),
    "a host behind a port of this machine": address("127.0.0.1, port: 2222", ""),
    "pods for four of five hosts": pods("10.244.0.0/24", "is large enough for 4 hosts with calico, there are 5"),
    "pods for eight hosts": pods("10.244.0.0/23", ""),
    "services for nobody": services("10.96.0.0/29", "no network for services"),
    "services of more than a /12": services("10.0.0.0/11", "no network for services"),
    "an export to the services": exported("10.233.0.0/18", "shares addresses with the services"),
    "an export to pods and services": exported("10.233.0.0/16", "hosts mount, not pods"),
    "an export to everybody": exported(
        "0.0.0.0/0", "site.yml:33: storage.ontap.export_cidrs.0: any machine that reaches", refused=False),
    "an export to the hosts": exported("10.61.1.0/24", refused=False),
    "an export to some hosts": exported("10.61.1.16/29", "hold neither dgx01, dgx02 nor", refused=False),
    "an export by rules to others": Case(
        "export_cidrs:\n      - 192.168.11.0/24", "export_rules:\n      - {clients: [192.168.99.0/24]}",
        "the exports (192.168.99.0/24)"),
    "an MTU of 1500": Case("mtu: 9000", "mtu: 1500"),
    "an MTU above what the switches carry": Case(
        "mtu: 9000", "mtu: 9100\n  switch_mtu: 9000\n  switches: {n1: {address: 10.61.1.2, model: nexus-3232c}}",
        "do not go through switches", "mtu: 9100"),
    "a node with an address of its own": node("node_address: 10.61.2.32", refused=False),
    "a node at a name": node("node_address: dgx02.example.com", "is no address of a node"),
    "a node at loopback": node("node_address: 127.0.0.1", "is no address of a node"),
    "a node at no address": node("node_address: 10.61.2.320", "is no address"),
    "a node among the pods": Case("model: dgx-h100", "model: dgx-h100, node_address: 10.233.64.9",
        "the node dgx02 has 10.233.64.9, which is in the network of the pods", "kubernetes:\n"),
    "another address for the others": node("connection_vars: {access_ip: 10.61.2.32}", "hosts.dgx02.node_address"),
    "a variable of kubespray as one of the connection": node("connection_vars: {kube_vip: 1}", "begin with ansible_"),
    "a misspelt variable of the connection": node(
        "connection_vars: {ansible_pyton_interpreter: /usr/bin/python3}", "is ansible_python_interpreter meant?"),
    "a variable of the connection": node("connection_vars: {ansible_ssh_retries: 3}", refused=False),
    "a site without GPUs": Case(
        "dgx-a100, roles: [gpu]}\n  dgx02: {address: 10.61.1.32, os: dgx-os-7, model: dgx-h100, roles: [gpu]}",
        "dgx-a100, roles: [worker]}", NEVER_VERIFIED),
}  # fmt: skip


def notes(plan: str) -> list[str]:
    """Return the notes of a plan, except those on missing programs of this machine and on the releases that DeepOps
    brings.
    """
    found = re.findall(r"NOTE +(.*)", plan)
    return [line for line in found if "on this machine" not in line and not line.endswith(" brings it")]


def judged(site: SiteUnderTest, text: str, says: str = "", at: str = "") -> None:
    site.environment |= ENVIRONMENT
    site.write(text)
    done = site.call("plan")
    if at:
        line = text[: text.index(at)].count("\n") + 1
        assert done.returncode == 2, done.stdout
        assert any(f"{site.file}:{line}: " in each and says in each for each in done.stderr.splitlines()), (
            done.stderr
        )
        assert len(done.stderr.splitlines()) == 2, "one cause, one problem"
        return
    assert done.returncode == 0, done.stderr
    assert [says in note for note in notes(done.stdout)] == [True] * bool(says), done.stdout


def test_the_healthy_site_has_no_note(site: SiteUnderTest) -> None:
    judged(site, HEALTHY)


@pytest.mark.parametrize("name", [*OF_README, *OWN])
def test_a_change_is_refused_noted_or_accepted(site: SiteUnderTest, name: str) -> None:
    case = (OF_README | OWN)[name]
    assert not case.before or HEALTHY.count(case.before) == 1
    judged(
        site,
        HEALTHY.replace(case.before, case.after) if case.before else HEALTHY + case.after,
        case.says,
        case.at,
    )


@pytest.mark.parametrize(
    ("before", "after", "more"),
    [
        ("dra: auto", 'dra: "0.5.0"',
         "vars: {deepops_extra_variables: {kube_feature_gates: [DRAExtendedResource=true]}}"),
        ("model: dgx-h100", "model: dgx-b200", "driver: {extra_packages: [nvlsm]}"),
        ("model: dgx-h100", "model: generic", "driver: {extra_packages: [nvidia-fabricmanager-580]}"),
        ("roles: [gpu]", "roles: [worker]", "vars: {verify_gpus: false, verify_job_gpus: 0}"),
    ],
)  # fmt: skip
def test_the_fix_that_a_note_names_ends_the_note(
    site: SiteUnderTest, before: str, after: str, more: str
) -> None:
    text = HEALTHY.replace("dgx-os-7", "ubuntu-24.04") if "generic" in after else HEALTHY
    judged(site, text.replace(before, after) + more + "\n")


@pytest.mark.skipif(not CASES.is_dir(), reason="the folder of cases is not at hand")
@pytest.mark.parametrize("name", OF_README)
def test_the_whole_files_are_judged_alike(site: SiteUnderTest, name: str) -> None:
    case = OF_README[name]
    site.write((CASES / name / "site.yml").read_text())
    site.environment |= ENVIRONMENT
    done = site.call("plan")
    assert done.returncode == (2 if case.at else 0)
    if case.at:
        assert re.search(rf"(?m)^{re.escape(str(site.file))}:[0-9]+: ", done.stderr)
    else:
        assert bool(notes(done.stdout)) == bool(case.says), done.stdout


def test_every_case_of_the_folder_has_its_kind_here() -> None:
    folders = {each.parent.name for each in CASES.glob("*/site.yml")}
    assert folders <= OF_README.keys()


def test_each_variable_of_a_connection_is_one_of_the_ansible_at_hand() -> None:
    found = importlib.util.find_spec("ansible")
    assert found
    root = Path(str(found.origin)).parent
    collection = (
        root.parent / "ansible_collections" / "community" / "docker" / "plugins" / "connection" / "nsenter.py"
    )
    sources = [*root.glob("plugins/**/*.py"), root / "config" / "base.yml", collection]
    documented = {name for path in sources for name in re.findall(r"\bname: (ansible_\w+)", path.read_text())}
    general = {"become", "become_method", "connection", "shell_type", "shell_executable", "timeout"}
    known = set(upstream.names()["connection"].split()) - {f"ansible_{name}" for name in general}
    assert known <= documented


def test_kubespray_gets_the_address_of_a_node(site: SiteUnderTest) -> None:
    case = OWN["a node with an address of its own"]
    site.write(HEALTHY.replace(case.before, case.after))
    hosts = json.loads(site.call("inventory").stdout)["all"]["hosts"]
    assert hosts["dgx02"]["deepops_node_address"] == "10.61.2.32"
    assert "deepops_node_address" not in hosts["dgx01"]
