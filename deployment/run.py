"""One run on a site: makes the plan, runs the stages, writes the journal, and reports a failure with the command to
continue.
"""

import contextlib
import json
import os
import secrets
import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from deployment import (
    content,
    inventory,
    membership,
    playbook,
    proxy,
    reachability,
    readiness,
    site_file,
    stages,
    vault,
)
from deployment.bundle import use
from deployment.bundle.trust import Trust
from deployment.digest import sha256_of
from deployment.errors import HostsNotReached, InstallError, StageFailed
from deployment.fleet import KUBERNETES, Fleet
from deployment.inputs import SiteInputs
from deployment.installed import detect
from deployment.journal import FAILED, INTERRUPTED, REMOVED, VERIFIED, Journal, StageRecord
from deployment.plan import DONE, LEFT_OUT, NOT_APPLICABLE, RUN, Facts, StagePlan, decide, listed
from deployment.records import Records
from deployment.request import INSTALL, REMOVE, TEARDOWN, UPGRADE, VERIFY, Request
from deployment.runner import Outcome, Playbook, Runner
from deployment.site import Finding, site_error
from deployment.stage_report import StageReport
from deployment.stages.steps import Step
from orchestrator.errors import ConfigurationError, UsageError
from orchestrator.progress import Reporter

PLAYBOOKS: Final = {
    INSTALL: "site.yml",
    VERIFY: "site.yml",
    UPGRADE: "upgrade.yml",
    TEARDOWN: "teardown.yml",
    REMOVE: "remove_node.yml",
}
SNAPSHOT: Final = stages.snapshot.STAGE.name


class Run:
    """One run of the stages of a site. Raises SiteError for versions that do not run together."""

    def __init__(self, request: Request, progress: Reporter) -> None:
        self.request = request
        self.site = site_file.load(request.inventory)
        self.refuse(stages.matrix_findings(self.site))
        self._progress = progress
        self._content = content.find()
        self._bundle = self._open_bundle()
        self._inputs = SiteInputs(self.site, self._content, request.state_dir, self._bundle)
        self.inventory = self._inputs.inventory(self.site.hosts)
        self.groups = inventory.groups(self.inventory)
        self.stages = playbook.read(self._content, PLAYBOOKS[request.action])
        self._check_names()
        self.fleet = Fleet(self.site, self.groups, request.limit)
        self.journal = Journal(inventory.directory_of(self.site.name, request.state_dir))
        self._records = Records(self.journal, self.cluster, self.site.name, progress)
        self.refuse(membership.still_named(self.site, self.journal.removed_hosts(), request.limit))
        self._stop = False
        self.proved: dict[str, list[str]] = {}
        self.kept_objects: dict[str, list[str]] = {}
        self._vault: vault.Vault | None = None

    def refuse(self, findings: Iterable[Finding]) -> None:
        """Raise SiteError if there is a finding."""
        problems = self.site.lines(findings)
        if problems:
            raise site_error(self.site.document.path, problems)

    def _open_bundle(self) -> use.Bundle | None:
        """Open the requested bundle. Returns None if the request names no bundle. Raises UsageError or BundleError."""
        trust = Trust(self.request.bundle_sha256, self.request.bundle_key)
        if self.request.bundle is None:
            if trust != Trust():
                raise UsageError("--bundle-sha256 and --bundle-key are about a bundle: name it with --bundle")
            return None
        return use.open_bundle(self.request.bundle, self.site.name, trust, self._progress)

    def plan(self) -> list[StagePlan]:
        """Decide on each stage whether it would run, and why."""
        removes = self.request.action == TEARDOWN
        records = self._records.last() if removes or self.request.action in {INSTALL, UPGRADE} else {}
        decisions = decide(
            [self._facts(stage, None if removes else records.get(stage.name)) for stage in self.stages],
            records,
            first=self.request.first,
            last=self.request.last,
            continues=self.request.continues,
            goal=REMOVED if removes else VERIFIED,
        )
        return [self._decide_snapshot(decision, decisions) for decision in decisions]

    def _decide_snapshot(self, decision: StagePlan, decisions: Sequence[StagePlan]) -> StagePlan:
        """Return the decision on the snapshot of etcd.

        It runs before the first stage that changes the cluster, and once for each upgrade.
        """
        if (
            decision.stage.name != SNAPSHOT
            or decision.verb == NOT_APPLICABLE
            or (self.request.first == SNAPSHOT and not self.request.continues)
        ):
            return decision
        work = any(other.verb == RUN and other.stage.definition.changes_cluster for other in decisions)
        if decision.verb == LEFT_OUT or not work:
            return replace(decision, verb=LEFT_OUT, reason="no stage that runs changes the cluster")
        files = self.journal.intact_files(SNAPSHOT)
        if files:
            return replace(decision, verb=DONE, reason=f"of before this upgrade: {', '.join(sorted(files))}")
        return replace(decision, verb=RUN, reason="before the cluster is changed")

    def steps(self, decisions: Sequence[StagePlan]) -> tuple[list[Step], str]:
        """Return the changes of releases by the stages that run.

        If the installed releases cannot be read, also return the reason.
        """
        upgrades = self.request.action == UPGRADE
        mine = [
            decision.stage.definition
            for decision in decisions
            if decision.verb == RUN
            and decision.stage.definition.has_steps
            and (upgrades or decision.stage.definition.is_upgraded_by_install)
        ]
        if not mine or self.request.action not in {INSTALL, UPGRADE}:
            return [], ""
        versions = self._records.last().get("ontap", StageRecord("ontap", "")).versions
        recorded = {"ontap": {"ontap": versions["ontap"]}} if "ontap" in versions else {}
        installed = detect(*self.cluster, self.site, recorded)
        steps = [step for stage in mine for step in stage.steps(self.site, installed.of(stage.name))]
        return steps, installed.problem

    def sentence(self, decision: StagePlan) -> str:
        """Return the effect of a running stage on the site, or of its removal, in a sentence."""
        definition = decision.stage.definition
        if decision.verb != RUN:
            return ""
        if self.request.action == TEARDOWN:
            return definition.removal_sentence(self.site)
        joining = self._joining(decision)
        return definition.joining_sentence(self.site, joining) if joining else definition.sentence(self.site)

    def _joining(self, decision: StagePlan) -> list[str]:
        """Return the hosts that join the running cluster in a stage; empty if the stage installs or upgrades the
        cluster.
        """
        return self.fleet.joining(decision.stage, decision.due) if self.request.action == INSTALL else []

    def _check_steps(self, decisions: Sequence[StagePlan]) -> None:
        """Raise SiteError for a change that skips a release or goes to an older one.

        Raise UsageError for an irreversible change without `--accept-irreversible`.
        """
        steps, problem = self.steps(decisions)
        if problem and self.request.action == UPGRADE:
            raise ConfigurationError(
                f"the running releases of {self.site.name} cannot be read ({problem}), so nothing was changed. "
                "Make the API server answer, or use `muster install` for a new site"
            )
        if self.request.action == INSTALL:
            self.refuse(
                Finding(
                    step.place,
                    f"{step.subject} {step.before} runs, the site file names {step.after}: that is an upgrade, "
                    "run `muster upgrade`",
                )
                for step in steps
                if step.irreversible or step.problem
            )
        else:
            self.refuse(Finding(step.place, step.problem) for step in steps if step.problem)
        for step in steps:
            self._progress(f"{step.stage}: {step.line()}")
        final = [step for step in steps if step.irreversible]
        if final and not self.request.accept_irreversible and not self.request.check:
            names = ", ".join(f"{step.subject} {step.before} -> {step.after}" for step in final)
            raise UsageError(
                f"there is no way back from {names}: give --accept-irreversible when that is meant; nothing was done"
            )

    def execute(self) -> list[StagePlan]:
        """Run the stages and write the journal. Raises StageFailed, Locked, JournalError or ConfigurationError."""
        self._prepare()
        with self.journal.exclusive(self.request.action), self._signals():
            if self.journal.torn:
                self._progress(self.journal.torn)
            if not self.request.check:
                self._records.adopt()
            decisions = self._decisions()
            self._report_skipped(decisions)
            self._check_steps(decisions)
            if self.request.action == REMOVE:
                host, lost = self.request.limit, membership.LOST in self.request.extra
                membership.check_reached(
                    host, self.inventory["all"]["hosts"][host], self._progress, lost=lost
                )
            run_id = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{self.request.action.replace(' ', '-')}-{secrets.token_hex(2)}"
            mine = [decision for decision in decisions if decision.verb == RUN]
            for decision in mine:
                self._check_indispensable(decision.stage, "nothing was done; --until stops before it")
            if not self.request.check:
                self.journal.write(
                    event="run", run=run_id, action=self.request.action, options=self.request.options()
                )
            if any(decision.stage.name == "preflight" for decision in mine):
                self._reach_hosts(mine)
            for number, decision in enumerate(mine, 1):
                if self._stop:
                    raise StageFailed(
                        f"interrupted before the stage {decision.stage.name}; continue with: {self.request.command()}"
                    )
                self._run_stage(run_id, decision, f"[{number}/{len(mine)}] {decision.stage.name}")
            if self.request.action == REMOVE:
                installed = playbook.read(self._content, PLAYBOOKS[INSTALL])
                self._records.forget(self.request.limit, installed, self._inputs, run_id)
            if not self.request.check and not self.fleet.unreached:
                self.journal.write(event="finished", run=run_id, result=VERIFIED)
            if not self.request.check:
                self._records.store_in_cluster()
        return decisions

    def refuse_unreached(self) -> None:
        """Raise HostsNotReached if the completed run left out hosts that it should have worked on."""
        if self.fleet.unreached:
            done = "checked" if self.request.check else "done"
            raise HostsNotReached(
                f"{', '.join(self.fleet.unreached)} not reached, and left out; the rest is {done}. "
                f"After you have removed the cause, continue with: {self.request.command()}"
            )

    def _reach_hosts(self, decisions: Sequence[StagePlan]) -> None:
        """Leave out the hosts that are not ready. Raises InstallError if the run cannot do without them."""
        hosts = self.inventory["all"]["hosts"]
        present = {name: hosts[name] for name in self.fleet.present}
        causes = {problem.host: problem.cause for problem in reachability.problems(present, self._progress)}
        kubernetes = any(decision.stage.name == KUBERNETES for decision in decisions)
        needed = self.fleet.indispensable(causes) if kubernetes else []
        if causes and (needed or len(causes) == len(present)):
            why = f" ({', '.join(needed)}: of the control plane or of etcd)" if needed else ""
            raise InstallError(
                f"{', '.join(sorted(causes))}: not ready{why}; nothing was changed. "
                f"When that is fixed: {self.request.command()}"
            )
        self.fleet.lose(causes)

    @property
    def cluster(self) -> tuple[Path, str]:
        """The kubeconfig and its context."""
        values = self.inventory["all"]["vars"]
        return Path(values["muster_kubeconfig"]), values["muster_context"]

    def _run_stage(self, run_id: str, decision: StagePlan, label: str) -> None:
        stage = decision.stage
        left_out = self.fleet.left_out_of(stage)
        if left_out and len(left_out) == len(self.fleet.hosts_of(stage)):
            self._progress(f"{label}: left out: {listed(left_out)}")
            return
        self._check_indispensable(
            stage, f"after you have removed the cause, continue with: {self.request.command()}"
        )
        log = self.journal.log_path(run_id, stage.name)
        common = {"run": run_id, "stage": stage.name, "action": self.request.action, "log": str(log)}
        self._progress(f"{label}: {stage.title}" + (f", without {listed(left_out)}" if left_out else ""))
        due = self.site.hosts if decision.due is None else decision.due
        hosts = self._joining(decision) or [
            host for host in self.fleet.hosts_of(stage) if host not in left_out
        ]
        inputs = {"digest": decision.digest, "inputs": dict(decision.inputs)}
        unfinished = [host for host in self.fleet.hosts_of(stage) if host in due or host in hosts]
        if not self.request.check:
            self.journal.write(event="started", left=unfinished, **inputs, **common)
        directory = self.journal.run_directory(run_id) if stage.name == SNAPSHOT else None
        try:
            outcome = self._runner().run(self._playbook(decision, label, directory), log)
        except InstallError as error:
            message = (
                f"stage {stage.name} was cut short ({error}); after you have removed the cause, continue with"
            )
            raise StageFailed(f"{message}: {self.request.command()}") from error
        # An upgrade does not continue without a lost host: it stops at the batch of that host.
        continues = not outcome.ok and not outcome.interrupted and self.request.action in {INSTALL, VERIFY}
        lost = self.fleet.lost(stage, outcome) if continues else {}
        result = VERIFIED if lost else self._result(outcome)
        self.proved[stage.name] = outcome.proved
        self.kept_objects[stage.name] = outcome.kept_objects
        left = [*self.fleet.due(stage, due, left_out), *lost] if result == VERIFIED else unfinished
        if not self.request.check:
            self.journal.write(
                event="ended", result=result, left=left, **inputs,
                changed=outcome.changed, hosts=outcome.hosts, proved=outcome.proved,
                versions=self.site.versions, files=self._files(directory),
                failures=[failure.record() for failure in outcome.failures], **common,
            )  # fmt: skip
        report = StageReport(self.request, self._progress, outcome, log)
        report.say_end(label, result)
        self._report_snapshot(stage.name, result)
        if lost:
            report.say_failures()
            self.fleet.lose(lost)
        if result in {FAILED, INTERRUPTED}:
            if not self.request.check:
                self._records.store_in_cluster()
            raise report.error(stage.name, result)

    def _check_indispensable(self, stage: playbook.Stage, fix: str) -> None:
        """Raise StageFailed if a stage would leave out hosts that it requires."""
        left_out = self.fleet.left_out_of(stage)
        needed = self.fleet.indispensable(left_out) if stage.name == KUBERNETES else []
        if needed:
            raise StageFailed(
                f"the stage {stage.name} needs every host of the control plane and of etcd, and not all are there: "
                f"{listed({host: left_out[host] for host in needed})}; {fix}"
            )

    def _files(self, directory: Path | None) -> dict[str, str]:
        """Return the digests of the files that a stage left, by their paths below the site's directory."""
        paths = sorted(path for path in directory.rglob("*") if path.is_file()) if directory else []
        return {str(path.relative_to(self.journal.directory)): sha256_of(path) for path in paths}

    def _report_snapshot(self, stage: str, result: str) -> None:
        """Name the snapshot files after they are made, and after the failure of a stage that changes the cluster."""
        is_due = stage == SNAPSHOT or (result == FAILED and stages.stage(stage).changes_cluster)
        if self.request.action != UPGRADE or not is_due:
            return
        for name, digest in sorted(self.journal.intact_files(SNAPSHOT).items()):
            subject = "restore" if name.endswith(".txt") else "kept   "
            self._progress(f"  {subject} {self.journal.directory / name} (sha256 {digest})")

    def _playbook(self, decision: StagePlan, label: str, directory: Path | None) -> Playbook:
        stage = decision.stage
        tags = ("verify",) if self.request.action == VERIFY else stage.tags
        extra = (
            *stage.variables,
            *self.request.extra,
            *([f"snapshot_directory={directory}"] if directory else []),
            *(["preflight_accept_runtime_purge=true"] if self.request.accept_runtime_purge else []),
            *(
                [f"drain_batch={stages.deepops.upgrade_batch(self.site)}"]
                if self.request.action == UPGRADE
                else []
            ),
        )
        joining = self._joining(decision)
        extra += (json.dumps({"deepops_joining": joining}),) if joining else ()
        limit, variables = self.fleet.arguments(stage, self.inventory)
        return Playbook(stage.playbook, label, tags, self.request.check, limit, (*extra, *variables))

    def _result(self, outcome: Outcome) -> str:
        if outcome.interrupted:
            return INTERRUPTED
        if not outcome.ok:
            return FAILED
        return REMOVED if self.request.action == TEARDOWN else VERIFIED

    def _runner(self) -> Runner:
        hidden = {
            secret["env"]: os.environ[secret["env"]]
            for _, secret in self.site.secrets()
            if os.environ.get(secret.get("env", ""))
        }
        texts = self._vault.texts if self._vault else ()
        return Runner(
            self._content, self.inventory, self._progress, lock=self.journal.ansible_lock,
            vault=self.site.vault, ansible_bin=self.site.ansible_bin,
            secrets=[*hidden.values(), *texts], hidden={**hidden, **(self._vault.environment if self._vault else {})},
            interrupted=lambda: self._stop,
            environment=proxy.environment(self.site) | (self._bundle.environment() if self._bundle else {}),
        )  # fmt: skip

    def _due(self, stage: playbook.Stage, record: StageRecord | None) -> frozenset[str] | None:
        """Return the hosts on which a stage is due; None for all. Kubernetes with a new control plane is due on all."""
        due = self._inputs.due(stage, self.fleet.hosts_of(stage), record)
        return None if due and stage.name == KUBERNETES and self.fleet.indispensable(due) else due

    def _facts(self, stage: playbook.Stage, record: StageRecord | None) -> Facts:
        bundled = self._bundle is not None or self.request.action == TEARDOWN
        due = self._due(stage, record)
        repeats = stage.definition.looks_only or (self.request.first and not self.request.continues)
        self.fleet.settle(stage, None if repeats or self.request.action != INSTALL else due)
        left_out = self.fleet.left_out_of(stage)
        return Facts(
            stage, tuple(host for host in self.groups.get(stage.hosts, ()) if host not in left_out),
            self._inputs.of(stage, self.site.hosts, removal=self.request.action == TEARDOWN),
            playbook.not_applicable(stage, self.site, self.groups, bundle=bundled),
            left_out, self.fleet.of_whole_site(stage, upgrade=self.request.action == UPGRADE),
            self.fleet.hosts_of(stage), due,
        )  # fmt: skip

    def _report_skipped(self, decisions: Sequence[StagePlan]) -> None:
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

    def missing_requirements(self, decisions: Sequence[StagePlan]) -> list[Finding]:
        """Return the programs and files that the planned stages need and the controller lacks, each with its entry of
        the site file.
        """
        values = self.inventory["all"]["vars"]
        installs = self.request.action in {INSTALL, UPGRADE}
        return readiness.missing_requirements(self.site, values, decisions, installs=installs)

    def _prepare(self) -> None:
        """Open the vault. Raises SiteError with every missing requirement."""
        self.refuse(self.missing_requirements(self._decisions()))
        self._vault = vault.open_vault(self.site.vault) if self.site.vault else None

    def _decisions(self) -> list[StagePlan]:
        """Return the plan. If the cluster does not exist yet, `--check` leaves out the stages that need it."""
        decisions = self.plan()
        if not self.request.check:
            return decisions
        return readiness.without_cluster(self.inventory["all"]["vars"], decisions)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Let a signal end the present stage in order: Ansible is stopped, and the journal records the stage as
        interrupted.
        """

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
