"""`muster bundle build`, `verify` and `push`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from orchestrator.distribution import require_extra
from orchestrator.progress import printable, terminal_reporter

if TYPE_CHECKING:
    from deployment.bundle.manifest import Manifest

_MIB = 1 << 20
_Command = TypeVar("_Command", bound=Callable[..., Any])


@click.group()
def bundle() -> None:
    """Build and use a directory with everything that an installation without the internet needs."""


@bundle.command()
@click.option(
    "-i", "--inventory", required=True, type=click.Path(path_type=Path, exists=True), metavar="SITE",
    help="Directory of the site, with its site.yml.",
)  # fmt: skip
@click.option(
    "--mirrors", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
    help="YAML file of `URL: URL` that is used instead of the site's `mirrors`.",
)  # fmt: skip
@click.option(
    "--sign", "key", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="KEY",
    help="Sign the manifest with this private key (Ed25519, PEM), for `install --bundle-key`.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
def build(inventory: Path, mirrors: Path | None, key: Path | None, directory: Path, *, as_json: bool) -> None:
    """Fetch the artifacts of a site into DIRECTORY, or continue an interrupted run."""
    require_extra("deployment")
    from deployment import content, site_file, stages
    from deployment.bundle import build as building
    from deployment.bundle import mirrors as maps
    from deployment.bundle import trust
    from deployment.bundle.contents import Derivation
    from deployment.command import call_showing_problems
    from deployment.errors import BundleError
    from deployment.site import site_error

    site = call_showing_problems(site_file.load, inventory)
    problems = site.lines(stages.matrix_findings(site))
    if problems:
        raise site_error(site.document.path, problems)
    if key:
        trust.read_private_key(key)  # refused now, not after hours of fetching
    progress = terminal_reporter()
    try:
        where = content.find()
        contents = Derivation(site, where, where.lock).contents()
        table = maps.read(mirrors) if mirrors else maps.Mirrors(site.get("mirrors", default={}))
        manifest, digest = building.build(directory, site.name, contents, table, progress)
    finally:
        progress.close()
    if key and not manifest.missing:
        trust.sign(directory, key)
    for gap in manifest.gaps:
        click.echo(printable(f"not in the bundle: {gap}"), err=True)
    for missing in manifest.missing:
        click.echo(printable(f"{missing.name}: {missing.why}"), err=True)
    if as_json:
        click.echo(json.dumps({**_summary(manifest), "manifest_sha256": digest}, indent=1))
    elif not manifest.missing:
        signed = f", signed with {key}" if key else ""
        click.echo(f"{directory}: {_counted(manifest)}; manifest sha256 {digest}{signed}")
        click.echo(f"to use it: --bundle {directory} --bundle-sha256 {digest}", err=True)
    if manifest.missing:
        raise BundleError(
            f"{directory}: {len(manifest.missing)} artifacts are missing; fetched files are kept, and the "
            f"same command continues"
        )


def _trusted(function: _Command) -> _Command:
    for option in (
        click.option(
            "--key", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
            help="Public key of the signature.",
        ),
        click.option("--sha256", default="", help="Digest of the manifest, as `build` printed it."),
    ):  # fmt: skip
        function = option(function)
    return function


@bundle.command()
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@_trusted
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def verify(directory: Path, sha256: str, key: Path | None, *, as_json: bool) -> None:
    """Verify every file of DIRECTORY against its manifest, without a network."""
    require_extra("deployment")
    from deployment.bundle import manifest
    from deployment.bundle.trust import Trust
    from deployment.digest import sha256_of
    from deployment.errors import BundleError

    progress = terminal_reporter()
    try:
        bundle_manifest = Trust(sha256, key).read(directory) if sha256 or key else manifest.read(directory)
        problems = manifest.verify(directory, bundle_manifest, progress)
    finally:
        progress.close()
    if as_json:
        digest = sha256_of(directory / manifest.MANIFEST)
        click.echo(
            json.dumps(
                {**_summary(bundle_manifest), "manifest_sha256": digest, "problems": problems}, indent=1
            )
        )
    else:
        for problem in problems:
            click.echo(printable(problem))
    if problems:
        raise BundleError(f"{directory}: {len(problems)} problems: run `muster bundle build` again")
    if not as_json:
        vouched = "" if sha256 or key else "; nothing vouches for the manifest itself: give --sha256 or --key"
        click.echo(f"{directory}: {_counted(bundle_manifest)}: every byte is as the manifest says{vouched}")


@bundle.command()
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("registry")
@_trusted
def push(directory: Path, registry: str, sha256: str, key: Path | None) -> None:
    """Push the images of DIRECTORY into REGISTRY, HOST[:PORT][/PREFIX]."""
    require_extra("deployment")
    import asyncio

    from deployment.bundle import manifest
    from deployment.bundle import registry as registries
    from deployment.bundle.fetch import Fetcher
    from deployment.bundle.mirrors import Mirrors
    from deployment.bundle.trust import Trust
    from deployment.errors import BundleError

    progress = terminal_reporter()

    async def work() -> list[str]:
        async with Fetcher(directory, Mirrors(), progress) as fetcher:
            return await registries.push(fetcher, directory, registry, progress)

    try:
        problems = manifest.verify(directory, Trust(sha256, key).read(directory), progress)
        if problems:
            raise BundleError(f"{directory}: {problems[0]}: nothing was pushed")
        if not (directory / registries.LAYOUT).is_dir():
            raise BundleError(f"{directory}: there are no images in this bundle")
        names = asyncio.run(work())
    finally:
        progress.close()
    for name in names:
        click.echo(printable(name))


def _summary(manifest: "Manifest") -> dict[str, Any]:
    kinds = sorted({item.kind for item in manifest.items})
    return {
        "site": manifest.site,
        "complete": not manifest.missing,
        "items": {kind: sum(item.kind == kind for item in manifest.items) for kind in kinds},
        "files": len(manifest.files),
        "size_bytes": sum(file.size_bytes for file in manifest.files.values()),
        "missing": [{"name": missing.name, "why": missing.why} for missing in manifest.missing],
        "gaps": list(manifest.gaps),
    }


def _counted(manifest: "Manifest") -> str:
    size = sum(file.size_bytes for file in manifest.files.values())
    return f"{len(manifest.items)} things, {len(manifest.files)} files, {size / _MIB:.1f} MiB"
