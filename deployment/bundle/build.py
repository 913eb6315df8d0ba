"""Builds a bundle: fetches all its contents, continues after failures, and writes the manifest."""

import asyncio
import shutil
from collections.abc import Awaitable
from pathlib import Path
from typing import Final

from deployment.bundle import charts, git, manifest, packages, registry, sbom, wheels
from deployment.bundle.contents import Chart, Contents, Download, chart_reference, is_oci
from deployment.bundle.fetch import Fetcher
from deployment.bundle.manifest import WORK, Item, Manifest, Missing
from deployment.bundle.mirrors import Mirrors
from deployment.errors import BundleError, DiskFull, FetchFailed
from orchestrator.progress import Reporter

ARCHITECTURE: Final = "amd64"


class Builder:
    """One run of building into `root`. A second run fetches the files that the first one could not."""

    def __init__(self, root: Path, site: str, mirrors: Mirrors, progress: Reporter) -> None:
        self._root = root
        self._site = site
        self._mirrors = mirrors
        self._progress = progress
        self._before = (
            manifest.read(root) if (root / manifest.MANIFEST).exists() else Manifest(site, ARCHITECTURE)
        )
        self._items: list[Item] = []
        self._missing: list[Missing] = []

    async def run(self, contents: Contents) -> tuple[Manifest, str]:
        """Fetch everything. Return the manifest and its SHA-256. Raises DiskFull if the disk is full."""
        self._root.mkdir(parents=True, exist_ok=True)
        full: DiskFull | None = None
        async with Fetcher(self._root, self._mirrors, self._progress, self._before.files) as fetcher:
            try:
                await self._everything(fetcher, contents)
            except DiskFull as error:
                full = error
        if full is not None:
            # The earlier manifest stays: it still describes the files, and this disk has no space for
            # another one.
            raise full
        return self._write(contents)

    async def _everything(self, fetcher: Fetcher, contents: Contents) -> None:
        for package_set in contents.packages:
            self._progress(f"packages of {package_set.system}")
            await self._attempt(f"packages of {package_set.system}", self._packages(fetcher, package_set))
        for target, target_wheels in contents.wheels.items():
            self._progress(f"{len(target_wheels)} wheels for Python {target.python[0]}.{target.python[1]}")
            await self._all(
                {
                    f"{wheel.name} {wheel.version}": wheels.fetch(fetcher, wheel, target)
                    for wheel in target_wheels
                }
            )
        for checkout in contents.checkouts:
            self._progress(f"{checkout.name} {checkout.release}")
            await self._attempt(checkout.name, self._checkout(checkout))
        self._progress(f"{len(contents.files)} files, {len(contents.charts)} charts")
        await self._all({download.url: self._file(fetcher, download) for download in contents.files})
        await self._all({chart.name: self._chart(fetcher, chart) for chart in contents.charts})
        names = [*contents.images, *self._images_of_charts()]
        self._progress(f"{len(set(names))} images")
        await self._all({
            name: registry.image(fetcher, registry.parse_reference(name), ARCHITECTURE) for name in sorted(set(names))
        })  # fmt: skip

    async def _packages(self, fetcher: Fetcher, package_set: packages.PackageSet) -> list[Item]:
        items, failures = await packages.fetch(fetcher, package_set, ARCHITECTURE)
        self._missing += [Missing(f"packages of {package_set.system}", str(failure)) for failure in failures]
        return items

    async def _checkout(self, checkout: git.Checkout) -> list[Item]:
        known = {item.name: item for item in self._before.items if item.kind == "git"}
        return await asyncio.to_thread(git.fetch, self._root, self._mirrors, checkout, known)

    async def _file(self, fetcher: Fetcher, download: Download) -> list[Item]:
        if not download.sha256:
            raise FetchFailed(f"{download.url}: its SHA-256 is unknown: {download.fix}")
        name = download.url.rpartition("/")[2]
        path = f"files/{download.url.partition('://')[2].replace(':', '_')}"
        file = await fetcher.file(download.url, path, sha256=download.sha256)
        return [Item("file", name, "", (file,), variable=download.variable)]

    async def _chart(self, fetcher: Fetcher, chart: Chart) -> list[Item]:
        if is_oci(chart):
            return [await registry.chart(fetcher, chart_reference(chart), chart.variable)]
        return [
            await charts.chart(
                fetcher, chart.repository, chart.name, chart.version, chart.sha256, variable=chart.variable
            )
        ]

    def _images_of_charts(self) -> list[str]:
        return [
            image
            for item in self._items if item.kind == "chart"
            for image in charts.images(self._root / item.files[0].path)
        ]  # fmt: skip

    async def _all(self, tasks: dict[str, Awaitable[Item | list[Item]]]) -> None:
        await asyncio.gather(*(self._attempt(name, work) for name, work in tasks.items()))

    async def _attempt(self, name: str, work: Awaitable[Item | list[Item]]) -> None:
        try:
            result = await work
        except FetchFailed as error:
            self._missing.append(Missing(name, str(error)))
            self._progress(f"failed: {error}")
        else:
            self._items += result if isinstance(result, list) else [result]

    def _write(self, contents: Contents) -> tuple[Manifest, str]:
        if any(item.kind == "image" for item in self._items):
            layout = registry.write_layout(self._root, self._items)
            self._items.append(Item("image-layout", "oci-layout", "1.0.0", tuple(layout)))
        items = tuple(sorted(set(self._items)))
        bundle_manifest = Manifest(
            self._site, ARCHITECTURE, items, tuple(sorted(self._missing)), tuple(contents.gaps)
        )
        manifest.replace(self._root / manifest.SBOM, sbom.render(bundle_manifest))
        bundle_manifest = Manifest(
            bundle_manifest.site, bundle_manifest.architecture, items, bundle_manifest.missing, bundle_manifest.gaps,
            manifest.file_entry(self._root, self._root / manifest.SBOM),
        )  # fmt: skip
        if not self._missing:
            self._sweep(bundle_manifest)
        return bundle_manifest, bundle_manifest.write(self._root)

    def _sweep(self, bundle_manifest: Manifest) -> None:
        """Remove the files of the earlier manifest that the new one lacks. Files in neither manifest stay."""
        shutil.rmtree(self._root / WORK, ignore_errors=True)
        for path in set(self._before.files) - set(bundle_manifest.files):
            (self._root / path).unlink(missing_ok=True)


def build(
    root: Path, site: str, contents: Contents, mirrors: Mirrors, progress: Reporter
) -> tuple[Manifest, str]:
    """Build or complete the bundle at `root`. Raises BundleError."""
    if root.exists() and any(root.iterdir()) and not any(
        (root / name).exists() for name in (manifest.MANIFEST, WORK, "packages", "wheels")
    ):  # fmt: skip
        raise BundleError(f"{root}: the directory is not empty and holds no bundle: name another")
    try:
        (root / WORK).mkdir(parents=True, exist_ok=True)
        return asyncio.run(Builder(root, site, mirrors, progress).run(contents))
    except OSError as error:
        place = error.filename or root
        raise BundleError(f"{place}: {error.strerror}: name a directory that can be written") from error
