"""One command on a site with its options. The journal stores it, so that a later run can continue."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deployment import inventory, site_file
from deployment.journal import Journal

INSTALL, VERIFY, UPGRADE, TEARDOWN = "install", "verify", "upgrade", "teardown"
REMOVE = "node remove"


@dataclass(frozen=True)
class Request:
    """One command on a site, with its options."""

    inventory: Path
    action: str = INSTALL
    first: str | None = None
    last: str | None = None
    limit: str = ""
    check: bool = False
    state_dir: Path | None = None
    extra: tuple[str, ...] = ()
    bundle: Path | None = None
    bundle_sha256: str = ""
    bundle_key: Path | None = None
    accept_irreversible: bool = False
    accept_runtime_purge: bool = False
    continues: bool = False
    """Whether this run continues an earlier one. A continued run skips verified stages, even if that run had
    `--from`.
    """

    def command(self) -> str:
        """Return the command line that continues the run."""
        words = ["muster", VERIFY if self.action == VERIFY else "resume", "-i", str(self.inventory)]
        words += ["--state-dir", str(self.state_dir)] if self.state_dir else []
        words += ["--limit", self.limit] if self.limit and self.action == VERIFY else []
        return shlex.join(words)

    def options(self) -> dict[str, Any]:
        """Return the options that the journal needs to continue."""
        return {
            "first": self.first,
            "last": self.last,
            "limit": self.limit,
            "extra": list(self.extra),
            "bundle": str(self.bundle.absolute()) if self.bundle else None,
            "bundle_sha256": self.bundle_sha256,
            "bundle_key": str(self.bundle_key.absolute()) if self.bundle_key else None,
            "accept_irreversible": self.accept_irreversible,
            "accept_runtime_purge": self.accept_runtime_purge,
        }


def unfinished_request(path: Path, state_dir: Path | None) -> Request | None:
    """Return the request of the run on a site that was interrupted or failed; None if there is none."""
    journal = Journal(inventory.directory_of(site_file.load(path).name, state_dir))
    entry = journal.unfinished()
    if entry is None:
        return None
    options = entry.get("options", {})
    bundle, bundle_key = options.get("bundle"), options.get("bundle_key")
    return Request(
        path, entry["action"], options.get("first"), options.get("last"),
        limit=options.get("limit", ""), state_dir=state_dir,
        extra=tuple(options.get("extra", ())), bundle=Path(bundle) if bundle else None,
        bundle_sha256=options.get("bundle_sha256", ""), bundle_key=Path(bundle_key) if bundle_key else None,
        accept_irreversible=bool(options.get("accept_irreversible")),
        accept_runtime_purge=bool(options.get("accept_runtime_purge")), continues=True,
    )  # fmt: skip
