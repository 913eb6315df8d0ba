"""Site and roles determine the contents of a bundle. Texts of the site are data; templates of
the roles are sandboxed.
"""

import re
from pathlib import Path

import pytest

from deployment import content, matrix, site_file, upstream
from deployment.bundle.contents import Chart, Contents, Derivation
from deployment.content import Content
from deployment.errors import BundleError, SiteError
from deployment.stages import served

HEAD = 'schema: 1\nname: here\nversions:\n  kubernetes: "1.34.2"\n  trident: "26.06.0"\n'
RUNS_A_COMMAND = "{{ cycler.__init__.__globals__.os.popen('touch MARK').read() }}"


def derive(root: Path, text: str, archive: str = "") -> list[str]:
    """Return the URLs that a bundle of the site fetches; `archive` is the URL of the archive in the role trident."""
    root.joinpath("site.yml").write_text(text)
    own = content.find().root
    if archive:
        (root / "content" / "roles" / "trident" / "defaults").mkdir(parents=True)
        (root / "content" / "playbooks").symlink_to(own / "playbooks")
        (root / "content" / "roles" / "trident" / "defaults" / "main.yml").write_text(
            f'trident_archive: "{archive}"\ntrident_checksum: ""\ntrident_version: ""\n'
        )
        (root / "content" / "uv.lock").symlink_to(own / "uv.lock")
        own = root / "content"
    derivation = Derivation(site_file.load(root), Content(own), own / "uv.lock")
    return [download.url for download in derivation.contents().files]


@pytest.mark.parametrize("place", ['vars: {{trident_archive: "{}"}}\n', 'deepops: {{repository: "{}"}}\n'])
def test_a_template_in_the_site_file_is_refused_and_runs_nothing(tmp_path: Path, place: str) -> None:
    mark = tmp_path / "ran"
    with pytest.raises(SiteError) as refused:
        derive(tmp_path, HEAD + place.format(RUNS_A_COMMAND.replace("MARK", str(mark))))
    assert "values are data, never templates" in refused.value.problems[0]
    assert not mark.exists()


def test_a_reference_to_the_vault_is_no_value_that_a_bundle_can_be_made_of(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="write the value itself"):
        derive(tmp_path, HEAD + "vars: {trident_archive: '{{ of_the_vault }}'}\n")


def test_the_text_of_a_role_is_rendered_once_and_in_a_sandbox(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    plain = tmp_path / "plain"
    plain.mkdir()
    assert derive(plain, HEAD, "https://example.com/{{ trident_version }}.tar.gz") == [
        "https://example.com/26.06.0.tar.gz"
    ]
    with pytest.raises(BundleError, match="cannot be known before the run"):
        derive(tmp_path, HEAD, RUNS_A_COMMAND.replace("MARK", str(mark)))
    assert not mark.exists()


def contents_of(site: str) -> Contents:
    own = content.find()
    return Derivation(site_file.load(own.root / "inventories" / site), own, own.lock).contents()


def test_the_bundle_of_a_site_without_internet_announces_its_gpus() -> None:
    found = contents_of("dgx-h100")
    row = matrix.tables()["device_plugin"][0]
    (chart,) = found.charts
    assert chart == Chart(
        "https://nvidia.github.io/k8s-device-plugin/stable", "nvidia-device-plugin", row["release"],
        "device_plugin_chart", row["sha256"],
    )  # fmt: skip
    assert set(matrix.images_of("device_plugin", row["release"])) <= set(found.images)
    assert any(file.variable == "helm_archive" and len(file.sha256) == 64 for file in found.files)
    assert not [gap for gap in found.gaps if "GPU" in gap or "plugin" in gap]


def test_a_bundle_names_the_missing_downloads_of_the_gpu_operator(tmp_path: Path) -> None:
    (tmp_path / "site.yml").write_text(
        'schema: 1\nname: here\nversions: {kubernetes: "1.35.4", deepops: "26.07"}\n'
        "deepops: {gpu_operator: true}\nhosts:\n"
        "  gpu01: {address: 10.0.0.1, os: ubuntu-24.04, model: generic, roles: [gpu, control_plane, etcd]}\n"
    )
    own = content.find()
    found = Derivation(site_file.load(tmp_path), own, own.lock).contents()
    assert [chart.name for chart in found.charts] == []
    (gap,) = (gap for gap in found.gaps if "GPU operator" in gap)
    (server,) = re.findall(r"\w+_helm_repo", gap)
    assert server in upstream.variables()


def test_the_registries_of_a_site_mirror_those_of_the_device_plugin() -> None:
    site = site_file.load(content.find().root / "inventories" / "dgx-h100")
    mirrored = {mirror["prefix"] for mirror in served.variables(site)["containerd_registries_mirrors"]}
    assert {"nvcr.io", "registry.k8s.io"} <= mirrored
