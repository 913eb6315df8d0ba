"""One run on a site: plan, stage after stage, a journal line for each, and a failure that says how to go on."""

import contextlib
import os
import secrets
import shlex
import signal
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from installer import cluster_record, content, inventory, matrix, reachability, site, stages
from installer.bundle import use
from installer.errors import StageFailed
from installer.journal import FAILED, INTERRUPTED, REMOVED, VERIFIED, Journal, Past, directory_of
from installer.plan import RUN, Decision, Facts, decide, inputs_of
from installer.runner import Outcome, Playbook, Runner
from lab.progress import Reporter
from orchestrator.errors import ConfigurationError, UsageError

INSTALL, VERIFY, UPGRADE, TEARDOWN = "install", "verify", "upgrade", "teardown"
PLAYBOOKS: Final = {INSTALL: "site.yml", VERIFY: "site.yml", UPGRADE: "upgrade.yml", TEARDOWN: "teardown.yml"}
VAULT_PASSWORD: Final = "ANSIBLE_VAULT_PASSWORD_FILE"  # noqa: S105 - the name of a variable


@dataclass(frozen=True)
class Request:
    """What was asked for."""

    inventory: Path
    action: str = INSTALL
    first: str | None = None
    last: str | None = None
    check: bool = False
    state_dir: Path | None = None
    extra: tuple[str, ...] = ()
    bundle: Path | None = None

    def command(self) -> str:
        """The command line that goes on with it; what is verified is not done again, so `--from` is left out."""
        words = ["muster", self.action, "-i", str(self.inventory)]
        words += ["--until", self.last] if self.last else []
        words += ["--state-dir", str(self.state_dir)] if self.state_dir else []
        words += ["--bundle", str(self.bundle)] if self.bundle else []
        return shlex.join(words)


class Program:
    """A site, its stages and its journal. Raises SiteError when the site cannot be meant."""

    def __init__(self, request: Request, progress: Reporter) -> None:
        self.request = request
        self.site = site.load(request.inventory)
        findings = matrix.check(self.site)
        if findings:
            problems = [self.site.problem(each.place, each.message) for each in findings]
            raise site.refusal(self.site.document.path, problems)
        self._progress = progress
        self._content = content.find()
        self.inventory = inventory.build(self.site)
        self._bundle = use.opened(request.bundle, self.site.name, progress) if request.bundle else None
        if self._bundle:
            self._overlay(self._bundle)
        self.groups = inventory.groups(self.inventory)
        self.stages = stages.read(self._content, PLAYBOOKS[request.action])
        self._check_names()
        self.journal = Journal(directory_of(self.site.name, request.state_dir))
        self.inventory["all"]["vars"]["muster_run"] = str(self.journal.directory)
        self._stop = False

    def _overlay(self, bundle: use.Bundle) -> None:
        """Let the variables of the roles name what the bundle holds, whatever the site file says."""
        self.inventory["all"]["vars"] |= bundle.variables()
        for name, host in self.site.hosts.items():
            self.inventory["all"]["hosts"][name] |= bundle.of_host(host["os"])

    def plan(self) -> list[Decision]:
        """What would be done with each stage, and why."""
        past = {} if self.request.action in {VERIFY, TEARDOWN} else self._past()
        return decide(
            [self._facts(stage) for stage in self.stages],
            past,
            first=self.request.first,
            last=self.request.last,
        )

    def run(self) -> list[Decision]:
        """Do it. Raises StageFailed, Locked, JournalError or ConfigurationError; the journal knows how far it came."""
        self._check_secrets()
        with self.journal.exclusive(self.request.action), self._signals():
            if self.journal.torn:
                self._progress(self.journal.torn)
            if not self.request.check:
                self._adopt()
            decisions = self.plan()
            self._tell(decisions)
            run = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{self.request.action}-{secrets.token_hex(2)}"
            mine = [decision for decision in decisions if decision.verb == RUN]
            if not self.request.check:
                self.journal.write(event="run", run=run, action=self.request.action)
            if any(decision.stage.name == "preflight" for decision in mine):
                reachability.check(self.inventory, self._progress, self.request.command())
            for number, decision in enumerate(mine, 1):
                self._stage(run, decision, f"[{number}/{len(mine)}] {decision.stage.name}")
            if not self.request.check:
                self.journal.write(event="finished", run=run, result=VERIFIED)
                self._tell_cluster()
        return decisions

    def _past(self) -> dict[str, Past]:
        """How the stages ended last: by the journal, or where there is none, by what the cluster was told."""
        if self.journal.entries:
            return self.journal.past()
        return cluster_record.read(*self._cluster, self.site.name)

    def _adopt(self) -> None:
        """Begin a journal with what the cluster knows of runs from another controller."""
        if self.journal.entries:
            return
        for past in self._past().values():
            self._progress(f"{past.stage}: the cluster knows it as {past.result} ({past.at})")
            self.journal.write(
                event="ended", **{**asdict(past), "inputs": dict(past.inputs), "run": "adopted"}
            )

    @property
    def _cluster(self) -> tuple[Path, str]:
        values = self.inventory["all"]["vars"]
        return Path(values["muster_kubeconfig"]), values["muster_context"]

    def _tell_cluster(self) -> None:
        trouble = cluster_record.store(*self._cluster, self.site.name, self.journal.past())
        if trouble and self._cluster[0].is_file():
            self._progress(f"the journal is not in the cluster: {trouble}")

    def _stage(self, run: str, decision: Decision, label: str) -> None:
        log = self.journal.log_path(run, decision.stage.name)
        common = {"run": run, "stage": decision.stage.name, "action": self.request.action, "log": str(log)}
        self._progress(f"{label}: {decision.stage.title}")
        if not self.request.check:
            self.journal.write(event="started", **common)
        outcome = self._runner().run(self._playbook(decision, label), log)
        result = self._result(outcome)
        if not self.request.check:
            self.journal.write(
                event="ended", result=result, digest=decision.digest, inputs=dict(decision.inputs),
                changed=outcome.changed, hosts=outcome.hosts,
                failures=[failure.record() for failure in outcome.failures], **common,
            )  # fmt: skip
        self._report(label, outcome, result)
        if result in {FAILED, INTERRUPTED}:
            if not self.request.check:
                self._tell_cluster()
            raise self._failed(decision, outcome, result, log)

    def _playbook(self, decision: Decision, label: str) -> Playbook:
        stage = decision.stage
        tags = ("verify",) if self.request.action == VERIFY else stage.tags
        extra = (*stage.variables, *self.request.extra)
        return Playbook(stage.playbook, label, tags, self.request.check, extra=extra)

    def _result(self, outcome: Outcome) -> str:
        if outcome.interrupted:
            return INTERRUPTED
        if not outcome.ok:
            return FAILED
        return REMOVED if self.request.action == TEARDOWN else VERIFIED

    def _report(self, label: str, outcome: Outcome, result: str) -> None:
        for host, counts in sorted(outcome.hosts.items()):
            bad = counts["failures"] + counts["dark"]
            would = "would change" if self.request.check else "changed"
            told = f"{counts['ok']} ok, {counts['changed']} {would}" + (f", {bad} failed" if bad else "")
            self._progress(f"{label}: {host}: {told}")
        self._progress(f"{label}: {result if not self.request.check or result == FAILED else 'checked'}")

    def _failed(self, decision: Decision, outcome: Outcome, result: str, log: Path) -> StageFailed:
        name = decision.stage.name
        resume = self.request.command()
        if result == INTERRUPTED:
            return StageFailed(f"stage {name} was interrupted; go on with: {resume}")
        for failure in outcome.failures:
            for line in failure.lines():
                self._progress(f"  {line}")
        if outcome.trouble:
            self._progress(f"  error   {outcome.trouble}")
        self._progress(f"  log     {log}")
        hosts = sorted({failure.host for failure in outcome.failures})
        where = f" on {', '.join(hosts)}" if hosts else ""
        if self.request.check:
            return StageFailed(f"the check of stage {name} failed{where}; nothing was changed")
        return StageFailed(f"stage {name} failed{where}; when the cause is gone, go on with: {resume}")

    def _runner(self) -> Runner:
        given = self.site.get("controller", "ansible_bin")
        return Runner(
            self._content, self.inventory, self._progress,
            vault=self.site.vault, ansible_bin=Path(given).expanduser() if given else None,
            secrets=[os.environ.get(each["env"], "") for _, each in self.site.secrets() if "env" in each],
            interrupted=lambda: self._stop,
            environment=self._bundle.environment() if self._bundle else {},
        )  # fmt: skip

    def _facts(self, stage: stages.Stage) -> Facts:
        values = inventory.stage_variables(self.inventory, stage.name)
        bundled = self._bundle is not None or self.request.action == TEARDOWN
        return Facts(
            stage, tuple(self.groups.get(stage.hosts, ())),
            inputs_of(values, stages.content_digest(stage, self._content)),
            stages.not_applicable(stage, self.site, self.groups, bundle=bundled),
        )  # fmt: skip

    def _tell(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            if decision.verb != RUN:
                self._progress(f"{decision.stage.name}: {decision.verb}: {decision.reason}")

    def _check_names(self) -> None:
        names = [stage.name for stage in self.stages]
        for option, name in (("--from", self.request.first), ("--until", self.request.last)):
            if name and name not in names:
                raise UsageError(f"{option} {name}: there is no such stage; there are {', '.join(names)}")
        first, last = self.request.first, self.request.last
        if first and last and names.index(first) > names.index(last):
            raise UsageError(f"--from {first} comes after --until {last}")

    def _check_secrets(self) -> None:
        """Every secret must be there before the first stage, not at night in the seventh."""
        missing = [
            self.site.problem(
                place, f"{'.'.join(map(str, place))}: the environment variable {each['env']} is not set"
            )
            for place, each in self.site.secrets()
            if "env" in each and not os.environ.get(each["env"])
        ]
        if missing:
            raise site.refusal(self.site.document.path, missing)
        if self.site.vault and not os.environ.get(VAULT_PASSWORD):
            raise ConfigurationError(
                f"{self.site.vault} is encrypted: set {VAULT_PASSWORD} to a file that holds its password"
            )

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Let a signal end the present stage in order: Ansible is stopped, the journal says interrupted."""

        def stop(_number: int, _frame: object) -> None:
            self._stop = True

        before = {
            number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
