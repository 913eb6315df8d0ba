"""The file server and the registry of the rehearsal have the files and images of kubespray under kubespray's names."""

import re
from pathlib import Path
from typing import Any

import pytest

from musterlab import oci
from tests.rehearsal import downloads, images, recipes
from tests.upstream.ansible_names import defaults

Facts = dict[str, Any]
FILES = ("etcd", "cni", "kubeadm", "kubelet", "kubectl", "crictl", "runc", "containerd", "nerdctl")
IMAGES = ("pod_infra", "flannel", "flannel_init", "coredns")


def resolved(kubespray: Facts) -> Facts:
    """Return the downloads of the rehearsal's Kubernetes, which facts have and checkouts do not."""
    if "resolved" not in kubespray:
        pytest.skip("a checkout does not say what its variables become")
    return dict(kubespray["resolved"][recipes.KUBERNETES])


def url(kubespray: Facts, name: str) -> str:
    """Return the address of a file. The facts have none for etcd on hosts, so kubespray's sample gives its address."""
    known = resolved(kubespray)[name]
    if "url" in known:
        return str(known["url"])
    sample = kubespray["group_vars"]["all/offline.yml"]["commented"][f"{name}_download_url"]
    filled = re.sub(r"{{ \w+_version }}", "0.0.0", sample.strip(chr(34)).replace("{{ image_arch }}", "amd64"))
    return filled.removeprefix("{{ files_repo }}/")


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, Path]:
    """Return a file for each program of the recipes."""
    program = tmp_path / "program"
    program.write_bytes(b"a program")
    return {
        f"{recipe}/{name}": program
        for recipe, built in (recipes.RECIPES | recipes.OLDER).items()
        for name in built.programs
    }


def without_versions(path: str) -> str:
    return re.sub(r"\d+\.\d+\.\d+", "VERSION", path)


def test_each_file_lies_where_kubespray_looks_for_it(
    kubespray: Facts, programs: dict[str, Path], tmp_path: Path
) -> None:
    resolved(kubespray)
    checksums = downloads.write(tmp_path / "files", programs, programs["etcd/etcd"])
    for recipe, release in recipes.RELEASES.items():
        checksums |= downloads.write_kubernetes(tmp_path / "files", programs, recipe, release)
    written = {
        without_versions(str(file.relative_to(tmp_path / "files")))
        for file in (tmp_path / "files").rglob("*")
        if file.is_file()
    }
    assert written == {without_versions(url(kubespray, name).removeprefix("https://")) for name in FILES}
    assert len(checksums) == len(FILES)


def test_each_variable_is_one_of_kubespray(deepops: Facts, kubespray: Facts) -> None:
    checksums = dict.fromkeys(
        f"{name}_binary_checksum" for name in ("kubelet", "etcd", "cni", "crictl", "runc")
    )
    checksums |= dict.fromkeys(f"{name}_archive_checksum" for name in ("containerd", "nerdctl"))
    names = downloads.variables(dict.fromkeys(checksums, ""))
    assert names.keys() <= defaults(deepops, kubespray).keys()


def test_each_image_has_the_name_by_which_kubespray_pulls_it(
    kubespray: Facts, programs: dict[str, Path], tmp_path: Path
) -> None:
    known = resolved(kubespray)
    layout = oci.Layout(tmp_path / "images")
    described = images.add(layout, programs, b"tools", programs["etcd/etcd"])
    assert {known[name]["image"] for name in IMAGES} <= described.keys()
