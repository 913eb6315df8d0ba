"""Builds a bundle: fetches everything that is wanted, goes on past what fails, and writes down what there is."""

import asyncio
import shutil
from collections.abc import Awaitable
from pathlib import Path
from typing import Final

from deployment.bundle import charts, git, manifest, packages, registry, sbom, wheels
from deployment.bundle.fetch import Fetcher
from deployment.bundle.manifest import WORK, Item, Manifest, Missing
from deployment.bundle.mirrors import Mirrors
from deployment.bundle.wanted import Chart, Download, Wanted, chart_reference, is_oci
from deployment.errors import BundleError, DiskFull, FetchFailed
from orchestrator.progress import Reporter

ARCHITECTURE: Final = "amd64"


class Builder:
    """One run of building into `root`. A second run fetches what the first one could not."""

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

    async def run(self, wanted: Wanted) -> tuple[Manifest, str]:
        """Fetch everything. Returns the manifest and its SHA-256; raises DiskFull when there is no room."""
        self._root.mkdir(parents=True, exist_ok=True)
        full: DiskFull | None = None
        async with Fetcher(self._root, self._mirrors, self._progress, self._before.files) as fetcher:
            try:
                await self._everything(fetcher, wanted)
            except DiskFull as error:
                full = error
        if full is not None:
            # The manifest of before stays: it still says what is there, and this disk has no room for another.
            raise full
        return self._written(wanted)

    async def _everything(self, fetcher: Fetcher, wanted: Wanted) -> None:
        for wish in wanted.packages:
            self._progress(f"packages of {wish.system}")
            await self._attempt(f"packages of {wish.system}", self._packages(fetcher, wish))
        for target, each in wanted.wheels.items():
            self._progress(f"{len(each)} wheels for Python {target.python[0]}.{target.python[1]}")
            await self._all({f"{one.name} {one.version}": wheels.fetch(fetcher, one, target) for one in each})
        for checkout in wanted.checkouts:
            self._progress(f"{checkout.name} {checkout.release}")
            await self._attempt(checkout.name, self._checkout(checkout))
        self._progress(f"{len(wanted.files)} files, {len(wanted.charts)} charts")
        await self._all({each.url: self._file(fetcher, each) for each in wanted.files})
        await self._all({each.name: self._chart(fetcher, each) for each in wanted.charts})
        names = [*wanted.images, *self._images_of_charts()]
        self._progress(f"{len(set(names))} images")
        await self._all({
            name: registry.image(fetcher, registry.reference(name), ARCHITECTURE) for name in sorted(set(names))
        })  # fmt: skip

    async def _packages(self, fetcher: Fetcher, wish: packages.Wish) -> list[Item]:
        items, failures = await packages.fetch(fetcher, wish, ARCHITECTURE)
        self._missing += [Missing(f"packages of {wish.system}", str(each)) for each in failures]
        return items

    async def _checkout(self, checkout: git.Checkout) -> list[Item]:
        known = {each.name: each for each in self._before.items if each.kind == "git"}
        return await asyncio.to_thread(git.fetch, self._root, self._mirrors, checkout, known)

    async def _file(self, fetcher: Fetcher, each: Download) -> list[Item]:
        name = each.url.rpartition("/")[2]
        path = f"files/{each.url.partition('://')[2].replace(':', '_')}"
        file = await fetcher.file(each.url, path, sha256=each.sha256)
        return [Item("file", name, "", (file,), variable=each.variable)]

    async def _chart(self, fetcher: Fetcher, each: Chart) -> list[Item]:
        if is_oci(each):
            return [await registry.chart(fetcher, chart_reference(each), each.variable)]
        return [await charts.chart(fetcher, each.repository, each.name, each.version)]

    def _images_of_charts(self) -> list[str]:
        return [
            image
            for item in self._items if item.kind == "chart"
            for image in charts.images(self._root / item.files[0].path)
        ]  # fmt: skip

    async def _all(self, wanted: dict[str, Awaitable[Item | list[Item]]]) -> None:
        await asyncio.gather(*(self._attempt(name, work) for name, work in wanted.items()))

    async def _attempt(self, name: str, work: Awaitable[Item | list[Item]]) -> None:
        try:
            found = await work
        except FetchFailed as error:
            self._missing.append(Missing(name, str(error)))
            self._progress(f"failed: {error}")
        else:
            self._items += found if isinstance(found, list) else [found]

    def _written(self, wanted: Wanted) -> tuple[Manifest, str]:
        if any(each.kind == "image" for each in self._items):
            layout = registry.write_layout(self._root, self._items)
            self._items.append(Item("image-layout", "oci-layout", "1.0.0", tuple(layout)))
        items = tuple(sorted(set(self._items)))
        found = Manifest(self._site, ARCHITECTURE, items, tuple(sorted(self._missing)), tuple(wanted.gaps))
        manifest.replace(self._root / manifest.SBOM, sbom.render(found))
        found = Manifest(
            found.site, found.architecture, items, found.missing, found.gaps,
            manifest.described(self._root, self._root / manifest.SBOM),
        )  # fmt: skip
        if not self._missing:
            self._sweep(found)
        return found, found.write(self._root)

    def _sweep(self, found: Manifest) -> None:
        """Remove what an earlier run fetched, for another version, and nothing that muster did not make."""
        shutil.rmtree(self._root / WORK, ignore_errors=True)
        for path in set(self._before.files) - set(found.files):
            (self._root / path).unlink(missing_ok=True)


def build(
    root: Path, site: str, wanted: Wanted, mirrors: Mirrors, progress: Reporter
) -> tuple[Manifest, str]:
    """Build or complete the bundle at `root`. Raises BundleError."""
    if root.exists() and any(root.iterdir()) and not any(
        (root / each).exists() for each in (manifest.MANIFEST, WORK, "packages", "wheels")
    ):  # fmt: skip
        raise BundleError(f"{root}: the directory is not empty and holds no bundle: name another")
    (root / WORK).mkdir(parents=True, exist_ok=True)
    return asyncio.run(Builder(root, site, mirrors, progress).run(wanted))
