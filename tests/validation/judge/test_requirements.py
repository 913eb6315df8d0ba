"""The verdicts on requirements and on a run follow from the catalogue, not from the checks that happened to run."""

import pytest

from validation.judge.check_verdict import Judgement
from validation.judge.requirements import RequirementFacts, Scope, judge_requirement, judge_run
from validation.judge.verdict import Verdict

NO_SUBJECT = Judgement(Verdict.INCONCLUSIVE, "no subject", required=False)


def judgements(**verdicts: str | Judgement) -> dict[str, Judgement]:
    return {
        name: verdict if isinstance(verdict, Judgement) else Judgement(Verdict(verdict), "why")
        for name, verdict in verdicts.items()
    }


@pytest.mark.parametrize(
    ("checks", "ran", "verdict", "reason"),
    [
        (["a"], {"a": "PASS"}, "PASS", ""),
        (["a", "b"], {"a": "PASS", "b": NO_SUBJECT}, "PASS", ""),
        (["a"], {"a": NO_SUBJECT}, "INCONCLUSIVE", "no check of it had a subject"),
        ([], {}, "INCONCLUSIVE", "no check of it exists yet"),
        (["a", "b"], {"a": "PASS"}, "INCONCLUSIVE", "1 of 2 checks did not run, the first of them b"),
        (["a", "b"], {"a": "FAIL"}, "FAIL", "a is FAIL: why"),
        (["a", "b"], {"a": "PASS", "b": "BLOCKED"}, "BLOCKED", "b is BLOCKED: why"),
        (["a", "b"], {"a": "PASS", "b": "WAIVED"}, "WAIVED", "b is WAIVED: why"),
        (["a", "b"], {"a": "FAIL", "b": "ERROR"}, "ERROR", "b is ERROR: why"),
    ],
)
def test_a_requirement_is_proven_by_all_its_checks(
    checks: list[str], ran: dict[str, str | Judgement], verdict: str, reason: str
) -> None:
    assert judge_requirement(RequirementFacts("r", checks), judgements(**ran)) == Judgement(
        Verdict(verdict), reason
    )


def test_an_excluded_requirement_does_not_apply_for_any_result() -> None:
    facts = RequirementFacts("r", ["a"], not_applicable="no hardware")
    assert judge_requirement(facts, judgements(a="PASS")).verdict == "NOT_APPLICABLE"


A, B = RequirementFacts("x.a", ["a"]), RequirementFacts("y.b", ["b"], in_part=False)
EXCLUDED = RequirementFacts("z.c", [], not_applicable="no hardware")


@pytest.mark.parametrize(
    ("ran", "verdict", "acceptance"),
    [
        ({"a": "PASS"}, "PASS", "INCONCLUSIVE"),
        ({"a": "PASS", "b": "PASS"}, "PASS", "PASS"),
        ({"a": "PASS", "b": "FAIL"}, "FAIL", "FAIL"),
        ({"a": "PASS", "own": "FAIL"}, "FAIL", "FAIL"),
        ({"b": "PASS"}, "INCONCLUSIVE", "INCONCLUSIVE"),
        ({}, "INCONCLUSIVE", "INCONCLUSIVE"),
        ({"a": "WAIVED", "b": "PASS"}, "INCONCLUSIVE", "WAIVED"),
        ({"a": "WAIVED", "b": "WAIVED"}, "INCONCLUSIVE", "INCONCLUSIVE"),
    ],
)
def test_a_run_is_judged_by_its_part_and_accepted_by_the_whole(
    ran: dict[str, str], verdict: str, acceptance: str
) -> None:
    judged = judge_run(Scope("lab", ["x"]), [A, B, EXCLUDED], judgements(**ran))
    assert (judged.verdict, judged.acceptance) == (verdict, acceptance)


def test_no_headline_says_pass_without_saying_of_how_much() -> None:
    passed = judgements(a="PASS", b="PASS")
    part = judge_run(Scope("lab", ["x"]), [A, B, EXCLUDED], passed)
    assert part.headline == "PASS of 1 of 3 requirements: x"
    whole = judge_run(Scope("lab"), [A, RequirementFacts("y.b", ["b"]), EXCLUDED], passed)
    assert whole.headline == "PASS of 2 of 3 requirements: all that apply to the profile lab"


@pytest.mark.parametrize(("deviations", "interrupted"), [(["changed"], ""), ([], "interrupted by SIGTERM")])
def test_a_run_that_is_no_acceptance_passes_nothing(deviations: list[str], interrupted: str) -> None:
    judged = judge_run(Scope("lab", ["x"], deviations), [A], judgements(a="PASS"), interrupted)
    assert (judged.verdict, judged.acceptance) == ("INCONCLUSIVE", "INCONCLUSIVE")
    failed = judge_run(Scope("lab", ["x"], deviations), [A], judgements(a="FAIL"), interrupted)
    assert failed.verdict == "FAIL"


def test_a_run_of_which_nothing_applies_is_inconclusive() -> None:
    assert judge_run(Scope("lab"), [EXCLUDED], {}).verdict == "INCONCLUSIVE"
