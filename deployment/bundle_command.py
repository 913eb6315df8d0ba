"""`muster bundle build`, `verify` and `push`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.distribution import require_extra
from orchestrator.progress import terminal_reporter

if TYPE_CHECKING:
    from deployment.bundle.manifest import Manifest

_MIB = 1 << 20


@click.group()
def bundle() -> None:
    """Everything that an installation without the internet needs, in one directory."""


@bundle.command()
@click.option(
    "-i", "--inventory", required=True, type=click.Path(path_type=Path, exists=True), metavar="SITE",
    help="Directory of the site, with its site.yml.",
)  # fmt: skip
@click.option(
    "--mirrors", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
    help="YAML file of `URL: URL` that is used instead of the site's `mirrors`.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
def build(inventory: Path, mirrors: Path | None, directory: Path, *, as_json: bool) -> None:
    """Fetch what the site needs into DIRECTORY; go on where a run before stopped."""
    require_extra("deployment")
    from deployment import content, matrix
    from deployment import site as sites
    from deployment.bundle import build as building
    from deployment.bundle import mirrors as maps
    from deployment.bundle.wanted import Derivation
    from deployment.command import shown
    from deployment.errors import BundleError

    site = shown(sites.load, inventory)
    findings = [site.problem(each.place, each.message) for each in matrix.check(site)]
    if findings:
        raise sites.refusal(site.document.path, findings)
    progress = terminal_reporter()
    try:
        where = content.find()
        wanted = Derivation(site, where, where.lock).wanted()
        table = maps.read(mirrors) if mirrors else maps.Mirrors(site.get("mirrors", default={}))
        found, digest = building.build(directory, site.name, wanted, table, progress)
    finally:
        progress.close()
    for gap in found.gaps:
        click.echo(f"not in the bundle: {gap}", err=True)
    for each in found.missing:
        click.echo(f"{each.name}: {each.why}", err=True)
    if as_json:
        click.echo(json.dumps({**_summary(found), "manifest_sha256": digest}, indent=1))
    elif not found.missing:
        click.echo(f"{directory}: {_counted(found)}; manifest sha256 {digest}")
    if found.missing:
        raise BundleError(
            f"{directory}: {len(found.missing)} things are missing; what came is kept, the same command goes on"
        )


@bundle.command()
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--sha256", default="", help="The digest of the manifest that `build` printed.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def verify(directory: Path, sha256: str, *, as_json: bool) -> None:
    """Prove that every byte of DIRECTORY is what was fetched; needs no network."""
    require_extra("deployment")
    from deployment.bundle import manifest
    from deployment.digest import sha256_of
    from deployment.errors import BundleError

    progress = terminal_reporter()
    try:
        found = manifest.read(directory)
        problems = manifest.verify(directory, progress)
    finally:
        progress.close()
    digest = sha256_of(directory / manifest.MANIFEST)
    if sha256 and digest != sha256.removeprefix("sha256:"):
        problems.insert(0, f"{manifest.MANIFEST}: changed: sha256 {digest}, it should be {sha256}")
    if as_json:
        click.echo(json.dumps({**_summary(found), "manifest_sha256": digest, "problems": problems}, indent=1))
    else:
        for problem in problems:
            click.echo(problem)
    if problems:
        raise BundleError(f"{directory}: {len(problems)} problems: run `muster bundle build` again")
    if not as_json:
        click.echo(f"{directory}: {_counted(found)}: every byte is as the manifest says")


@bundle.command()
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("registry")
def push(directory: Path, registry: str) -> None:
    """Push the images of DIRECTORY into REGISTRY, HOST[:PORT][/PREFIX]."""
    require_extra("deployment")
    import asyncio

    from deployment.bundle import manifest
    from deployment.bundle import registry as registries
    from deployment.bundle.fetch import Fetcher
    from deployment.bundle.mirrors import Mirrors
    from deployment.errors import BundleError

    progress = terminal_reporter()

    async def work() -> list[str]:
        async with Fetcher(directory, Mirrors(), progress) as fetcher:
            return await registries.push(fetcher, directory, registry, progress)

    try:
        problems = manifest.verify(directory, progress)
        if problems:
            raise BundleError(f"{directory}: {problems[0]}: nothing was pushed")
        if not (directory / registries.LAYOUT).is_dir():
            raise BundleError(f"{directory}: there are no images in this bundle")
        names = asyncio.run(work())
    finally:
        progress.close()
    for name in names:
        click.echo(name)


def _summary(found: "Manifest") -> dict[str, Any]:
    kinds = sorted({each.kind for each in found.items})
    return {
        "site": found.site,
        "complete": not found.missing,
        "items": {kind: sum(each.kind == kind for each in found.items) for kind in kinds},
        "files": len(found.files),
        "size_bytes": sum(each.size_bytes for each in found.files.values()),
        "missing": [{"name": each.name, "why": each.why} for each in found.missing],
        "gaps": list(found.gaps),
    }


def _counted(found: "Manifest") -> str:
    size = sum(each.size_bytes for each in found.files.values())
    return f"{len(found.items)} things, {len(found.files)} files, {size / _MIB:.1f} MiB"
