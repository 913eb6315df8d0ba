from collections.abc import Callable
from pathlib import Path

import pytest

from musterlab import binaries, build, components
from musterlab.build import CONTROL_PLANE, LOWEST_CONTROL_PLANE, REAL_NODES
from orchestrator.progress import Reporter
from tests.musterlab.conftest import World

Programs = Callable[..., Path]


@pytest.fixture(autouse=True)
def bare_machine(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    for name, value in world.environment.items():
        monkeypatch.setenv(name, value)


def find() -> binaries.Binaries:
    return binaries.find(Reporter(lambda _line: None))


def cache_of(world: World) -> Path:
    return world.cache / "muster" / "lab" / build.cache_key()


def test_kubebuilder_assets_come_before_all_others(
    world: World, programs_in: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    assets = programs_in(world.root / "assets")
    programs_in(world.tools)
    programs_in(cache_of(world))
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    found = find()
    assert found.source == "KUBEBUILDER_ASSETS"
    assert found.paths == {program: assets / program for program in CONTROL_PLANE.programs}


def test_path_comes_before_the_cache(world: World, programs_in: Programs) -> None:
    programs_in(world.tools)
    programs_in(cache_of(world))
    found = find()
    assert found.source == "PATH"
    assert found.kubectl_directory == world.tools


def test_the_cache_comes_before_a_build(world: World, programs_in: Programs) -> None:
    world.install_go()
    programs_in(cache_of(world))
    assert find().source == "cache"
    assert world.builds() == 0


def test_a_build_comes_last_and_fills_the_cache(world: World) -> None:
    world.install_go()
    assert find().source == "cache"
    assert world.builds() == 1
    assert find().source == "cache"
    assert world.builds() == 1


def test_sources_are_never_mixed(
    world: World, programs_in: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    assets = programs_in(world.root / "assets", ("etcd", "kube-apiserver", "kubectl"))
    programs_in(world.tools, ("kube-controller-manager", "kwok"))
    programs_in(cache_of(world))
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    found = find()
    assert found.source == "cache"
    assert {path.parent for path in found.paths.values()} == {cache_of(world)}


def test_a_program_that_cannot_be_executed_does_not_count(
    world: World, programs_in: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    assets = programs_in(world.root / "assets")
    (assets / "kwok").chmod(0o644)
    programs_in(cache_of(world))
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    assert find().source == "cache"


def test_programs_of_the_machine_do_not_stand_in_for_the_lowest_kubernetes(
    world: World, programs_in: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(programs_in(world.root / "assets")))
    programs_in(world.tools)
    cached = world.cache / "muster" / "lab" / build.cache_key(LOWEST_CONTROL_PLANE)
    programs_in(cached)
    lowest = binaries.find(Reporter(lambda _line: None), LOWEST_CONTROL_PLANE)
    assert (lowest.source, lowest.directory) == ("cache", cached)
    assert find().source == "KUBEBUILDER_ASSETS"


@pytest.mark.parametrize(
    ("script", "flags"),
    [
        ("echo Kubernetes v1.30.0", []),
        ("echo Kubernetes v1.31.14", []),
        ("echo Kubernetes v1.32.0", ["--runtime-config=resource.k8s.io/v1beta1=true"]),
        ("echo Kubernetes v1.36.3", ["--runtime-config=resource.k8s.io/v1beta1=true"]),
        ("echo nothing; exit 1", ["--runtime-config=resource.k8s.io/v1beta1=true"]),
    ],
)
def test_an_api_server_gets_no_flag_for_claims_that_it_does_not_know(
    tmp_path: Path, script: str, flags: list[str]
) -> None:
    program = tmp_path / "kube-apiserver"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    assert components.claim_flags(binaries.kubernetes_minor(program)) == flags


def test_a_containerd_that_is_too_old_does_not_count(world: World, programs_in: Programs) -> None:
    world.install_go()
    programs_in(world.tools, REAL_NODES.programs)
    (world.tools / "containerd").write_text("#!/bin/sh\necho containerd github.com/containerd 1.6.20~ds1\n")
    programs_in(world.cache / "muster" / "lab" / build.cache_key(REAL_NODES), REAL_NODES.programs)
    cached = world.cache / "muster" / "lab" / build.cache_key(REAL_NODES) / "containerd"
    cached.write_text("#!/bin/sh\necho containerd github.com/containerd/containerd/v2 v2.2.2\n")
    assert binaries.find(Reporter(lambda _line: None), REAL_NODES).source == "cache"
    (world.tools / "containerd").write_text(cached.read_text())
    assert binaries.find(Reporter(lambda _line: None), REAL_NODES).source == "PATH"


def test_without_any_source_one_error_names_all_four_and_the_fix(world: World) -> None:
    result = world.lab("up", KUBEBUILDER_ASSETS=str(world.root / "assets"))
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    for part in ("KUBEBUILDER_ASSETS", "PATH", "cache", "build", "kwok", "install Go 1.26"):
        assert part in line
    assert world.labs() == []
