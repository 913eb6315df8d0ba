"""Derives the verdicts on requirements and on the whole run from the catalogue.

So checks that did not run count too.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from validation.judge.check_verdict import Judgement
from validation.judge.verdict import Verdict, gravest


@dataclass(frozen=True, slots=True)
class RequirementFacts:
    """A requirement, the ids of all checks that prove it, and why the profile says that it does not apply.

    `in_part`: the requirement belongs to a part of the catalogue that the run has chosen.
    """

    id: str
    checks: Sequence[str]
    not_applicable: str = ""
    in_part: bool = True


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of a run: a profile of the catalogue, and the chosen parts; no parts mean the whole catalogue.

    `deviations` are the reasons why the run is not an acceptance even if all checks pass, such as a changed operator or
    own scenarios.
    """

    profile: str
    parts: Sequence[str] = ()
    deviations: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class RunJudgement:
    """The verdict on the chosen parts of the catalogue, and the acceptance: the verdict on all requirements that apply.

    A `headline` with PASS always has the number of requirements that passed.
    """

    verdict: Verdict
    acceptance: Verdict
    headline: str
    summary: str


WITHOUT_CHECK: Final = Judgement(Verdict.INCONCLUSIVE, "no check of it exists yet")
"""The judgement on a requirement that applies and has no check."""


def judge_requirement(facts: RequirementFacts, judgements: Mapping[str, Judgement]) -> Judgement:
    """Return the verdict on a requirement from the judgements on its checks.

    A check without a judgement did not run.
    """
    if facts.not_applicable:
        return Judgement(Verdict.NOT_APPLICABLE, facts.not_applicable)
    if not facts.checks:
        return WITHOUT_CHECK
    ran = {check: judgements[check] for check in facts.checks if check in judgements}
    counted = {check: judgement for check, judgement in ran.items() if judgement.required}
    missing = [check for check in facts.checks if check not in ran]
    verdicts = [judgement.verdict for judgement in counted.values()]
    verdict = gravest([*verdicts, Verdict.INCONCLUSIVE] if missing else verdicts)
    if verdict == Verdict.PASS:
        return Judgement(verdict)
    first = next((check for check, judgement in counted.items() if judgement.verdict == verdict), "")
    if first:
        return Judgement(verdict, f"{first} is {verdict}: {counted[first].reason}".removesuffix(": "))
    if missing:
        number = f"{len(missing)} of {len(facts.checks)} checks did not run"
        return Judgement(verdict, f"{number}, the first of them {missing[0]}")
    return Judgement(verdict, "no check of it had a subject")


def judge_run(
    scope: Scope,
    requirements: Sequence[RequirementFacts],
    judgements: Mapping[str, Judgement],
    interrupted: str = "",
) -> RunJudgement:
    """Return the verdicts on a run; `judgements` has the judgement on each check by the check's id."""
    results = {facts.id: judge_requirement(facts, judgements) for facts in requirements}
    proven = {check for facts in requirements for check in facts.checks}
    beside = [
        judgement.verdict
        for check, judgement in judgements.items()
        if check not in proven and judgement.required
    ]
    applying = [results[facts.id].verdict for facts in requirements if not facts.not_applicable]
    part = [results[facts.id].verdict for facts in requirements if facts.in_part and not facts.not_applicable]
    stopped = [Verdict.INCONCLUSIVE] if interrupted or scope.deviations else []
    failed = [verdict for verdict in [*beside, *applying] if verdict in {Verdict.ERROR, Verdict.FAIL}]
    verdict = _of_run(part, [*stopped, *failed])
    acceptance = _of_run(applying, [*stopped, *failed])
    counts = Counter(result.verdict for result in results.values())
    return RunJudgement(
        verdict=verdict,
        acceptance=acceptance,
        headline=_headline(verdict, part, len(requirements), scope),
        summary=_summary(counts, acceptance, scope, results, interrupted),
    )


def _of_run(verdicts: Sequence[Verdict], beside: Sequence[Verdict]) -> Verdict:
    """Return the gravest verdict. Without any PASS it is at least INCONCLUSIVE, because waivers alone prove nothing."""
    if Verdict.PASS not in verdicts:
        return gravest([*verdicts, *beside, Verdict.INCONCLUSIVE])
    return gravest([*verdicts, *beside])


def _headline(verdict: Verdict, part: Sequence[Verdict], total: int, scope: Scope) -> str:
    passed = sum(result == Verdict.PASS for result in part)
    waived = sum(result == Verdict.WAIVED for result in part)
    about = ", ".join(scope.parts) or f"all that apply to the profile {scope.profile}"
    if verdict == Verdict.PASS:
        return f"PASS of {passed} of {total} requirements: {about}"
    also = f", {waived} WAIVED" if waived else ""
    return f"{verdict}: {passed} of the {len(part)} requirements asked for passed{also} ({about})"


def _summary(
    counts: Mapping[Verdict, int],
    acceptance: Verdict,
    scope: Scope,
    results: Mapping[str, Judgement],
    interrupted: str,
) -> str:
    numbers = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts.get(verdict))
    sentences = [
        f"Of {len(results)} requirements {numbers}.",
        f"Acceptance by the profile {scope.profile}: {acceptance}.",
    ]
    first = next((verdict for verdict in (Verdict.ERROR, Verdict.FAIL) if counts.get(verdict)), None)
    if first is not None:
        name = next(name for name, result in results.items() if result.verdict == first)
        sentences.append(f"First {first}: {name}: {results[name].reason}.")
    sentences += [f"Not an acceptance: {deviation}." for deviation in scope.deviations]
    if interrupted:
        sentences.append(f"{interrupted[0].upper()}{interrupted[1:]}.")
    return " ".join(sentences)
