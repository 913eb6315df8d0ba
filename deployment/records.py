"""The records of the stages of a site: in its journal, with a copy in the cluster."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from deployment import cluster_record
from deployment.inputs import SiteInputs
from deployment.journal import Journal, StageRecord
from deployment.playbook import Stage
from orchestrator.progress import Reporter


class Records:
    """The records of one site. `cluster` is its kubeconfig and the context."""

    def __init__(self, journal: Journal, cluster: tuple[Path, str], site: str, progress: Reporter) -> None:
        self._journal = journal
        self._cluster = cluster
        self._site = site
        self._progress = progress

    def last(self) -> dict[str, StageRecord]:
        """Return the latest result of each stage from the journal.

        If the journal is empty, read the record in the cluster.
        """
        if self._journal.entries:
            return self._journal.last_records()
        return cluster_record.read(*self._cluster, self._site)

    def adopt(self) -> None:
        """Begin an empty journal with the records that another controller left in the cluster."""
        if self._journal.entries:
            return
        for record in self.last().values():
            self._progress(f"{record.stage}: the cluster knows it as {record.result} ({record.at})")
            self._write(record, "adopted")

    def forget(self, host: str, stages: Iterable[Stage], inputs: SiteInputs, run: str) -> None:
        """Write the records of the site without a removed host.

        Otherwise stages would be due because their hosts changed.
        """
        records = self.last()
        for stage in stages:
            record = inputs.without(host, stage, records.get(stage.name))
            if record:
                self._write(record, run)
        self._journal.write(event="removed", host=host)

    def store_in_cluster(self) -> None:
        """Store the records in the cluster. If there is a cluster and the write fails, report the reason."""
        problem = cluster_record.store(*self._cluster, self._site, self._journal.last_records())
        if problem and self._cluster[0].is_file():
            self._progress(f"the journal is not in the cluster: {problem}")

    def _write(self, record: StageRecord, run: str) -> None:
        self._journal.write(event="ended", **{**asdict(record), "run": run})
