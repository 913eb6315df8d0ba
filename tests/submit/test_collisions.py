"""Which of two projects has a domain or directory that both ask for, and below which directories pods mount nothing."""

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cluster.objects import Project
from orchestrator.submit.collisions import granted
from tests.observe.objects import decoded


def project(name: str, created: str = "2026-01-01T00:00:00Z", **security: Any) -> Project:
    metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": created}
    return decoded(Project, metadata=metadata, spec={"gpu": {"quota": 1}, "security": security})


def directory(path: str, *, writable: bool = False, server: str | None = None) -> dict[str, Any]:
    return {"path": path, "writable": writable, **({"nfsServer": server} if server else {})}


@pytest.mark.parametrize(
    ("older", "younger", "problem"),
    [
        ({}, {"directories": [directory("/data", writable=True)]}, None),
        (
            {"directories": [directory("/data", writable=True)]},
            {"directories": [directory("/data", writable=True), directory("/data2")]},
            None,
        ),
        (
            {"directories": [directory("/data", writable=True)]},
            {"directories": [directory("/data/b")]},
            "the directory /data/b is below /data, where project a writes",
        ),
        (
            {"directories": [directory("/", writable=True)]},
            {"directories": [directory("/data")]},
            "the directory /data is below /, where project a writes",
        ),
        (
            {"directories": [directory("/data/b")]},
            {"directories": [directory("/data", writable=True)]},
            "the directory /data, to be written, is above /data/b of project a",
        ),
        ({"directories": [directory("/data")]}, {"directories": [directory("/data/b", writable=True)]}, None),
        (
            {"directories": [directory("/data", writable=True, server="nas")]},
            {"directories": [directory("/data/b"), directory("/data/b", server="other")]},
            None,
        ),
        (
            {"directories": [directory("/data", writable=True, server="nas")]},
            {"directories": [directory("/data/b", server="nas")]},
            "the directory nas:/data/b is below nas:/data, where project a writes",
        ),
        ({"ingressDomain": "example.com"}, {"ingressDomain": "other.com"}, None),
        ({"ingressDomain": "example.com"}, {"ingressDomain": "anexample.com"}, None),
        *(
            (
                {"ingressDomain": theirs},
                {"ingressDomain": mine},
                f"the domain {mine} collides with {theirs} of project a",
            )
            for theirs, mine in (
                ("example.com", "example.com"),
                ("example.com", "b.example.com"),
                ("b.example.com", "example.com"),
            )
        ),
    ],
)
def test_a_colliding_setting_belongs_to_the_older_project(
    older: dict[str, Any], younger: dict[str, Any], problem: str | None
) -> None:
    first, second = project("a", **older), project("b", "2026-01-01T00:00:01Z", **younger)
    everybody = [second, first]
    assert granted(first, everybody).spec == first.spec
    assert granted(first, everybody).problems == ()
    outcome = granted(second, everybody)
    assert outcome.problems == (() if problem is None else (problem,))
    assert (outcome.spec == second.spec) is (problem is None)


def test_of_two_that_were_made_in_one_second_the_first_by_name_has_it() -> None:
    both = [project(name, ingressDomain="example.com") for name in ("b", "a")]
    b, a = (granted(each, both).spec.security.ingress_domain for each in both)
    assert (a, b) == ("example.com", None)


def test_only_colliding_settings_are_kept_back() -> None:
    first = project("a", directories=[directory("/data", writable=True)], ingressDomain="a.example.com")
    second = project(
        "b",
        directories=[directory("/data/x"), directory("/raid")],
        ingressDomain="a.example.com",
        maxTerminationGraceSeconds=5,
    )
    security = granted(second, [first, second]).spec.security
    assert [each.path for each in security.directories] == ["/raid"]
    assert security.ingress_domain is None
    assert security.max_termination_grace_seconds == 5


def test_below_a_directory_that_others_write_and_one_reads_nothing_is_mounted() -> None:
    reads = project("a", directories=[directory("/data"), directory("/exports", server="nas")])
    others = [
        project("b", directories=[directory("/data/b", writable=True), directory("/data/sets")]),
        project("c", directories=[directory("/data", writable=True), directory("/exports", writable=True)]),
        project("d", directories=[directory("/exports/d", writable=True, server="nas")]),
    ]
    assert granted(reads, [reads, *others]).closed == ("/data", "/data/b", "nas:/exports/d")
    assert granted(others[0], [reads, others[0]]).closed == ()


def test_a_project_with_neither_directories_nor_a_domain_has_its_own_settings() -> None:
    plain = project("a", podSecurity="restricted")
    writes = project("b", directories=[directory("/", writable=True)])
    outcome = granted(plain, [plain, writes])
    assert outcome.spec is plain.spec
    assert (outcome.closed, outcome.problems) == ((), ())


SITE = "gpus.example.com"


@pytest.mark.parametrize(
    ("mine", "has", "problem"),
    [
        (None, "b.gpus.example.com", False),
        ("", "b.gpus.example.com", False),
        ("ml.example.com", "ml.example.com", False),
        ("agpus.example.com", "agpus.example.com", False),
        ("b.gpus.example.com", "b.gpus.example.com", False),
        ("x.b.gpus.example.com", "x.b.gpus.example.com", False),
        ("a.gpus.example.com", "b.gpus.example.com", True),
        ("x.a.gpus.example.com", "b.gpus.example.com", True),
        ("free.gpus.example.com", "b.gpus.example.com", True),
        ("ab.gpus.example.com", "b.gpus.example.com", True),
        ("gpus.example.com", "b.gpus.example.com", True),
        ("example.com", "b.gpus.example.com", True),
        ("com", "b.gpus.example.com", True),
    ],
)
def test_below_the_domain_of_the_site_each_project_has_that_of_its_name_and_no_other(
    mine: str | None, has: str, problem: bool
) -> None:
    """Below the site's domain, age gives a project no right to the domain of another project's name."""
    first, second = project("b", ingressDomain=mine), project("a", "2026-01-01T00:00:01Z")
    outcome = granted(first, [first, second], SITE)
    assert outcome.spec.security.ingress_domain == has
    words = f"the domain {mine} collides with {SITE}, where each project has that of its name"
    assert outcome.problems == ((words,) if problem else ())
    assert granted(second, [first, second], SITE).spec.security.ingress_domain == f"a.{SITE}"


def test_a_domain_of_an_older_project_leaves_a_younger_one_that_of_the_site() -> None:
    first = project("a", ingressDomain="ml.example.com")
    second = project("b", "2026-01-01T00:00:01Z", ingressDomain="ml.example.com")
    outcome = granted(second, [first, second], SITE)
    assert outcome.spec.security.ingress_domain == f"b.{SITE}"
    assert outcome.problems == ("the domain ml.example.com collides with ml.example.com of project a",)


@given(
    names=st.sets(st.from_regex(r"[a-z]([-a-z0-9]{0,54}[a-z0-9])?", fullmatch=True), min_size=2, max_size=6),
    wanted=st.lists(
        st.sampled_from([None, SITE, "example.com", "x.gpus.example.com"]), min_size=6, max_size=6
    ),
)
def test_no_two_projects_can_have_one_host(names: set[str], wanted: list[str | None]) -> None:
    projects = [
        project(name, f"2026-01-01T00:00:0{number}Z", ingressDomain=domain)
        for number, (name, domain) in enumerate(zip(sorted(names), wanted, strict=False))
    ]
    domains = [granted(one, projects, SITE).spec.security.ingress_domain or "" for one in projects]
    for one, other in permutations(domains, 2):
        assert not f".{one}".endswith(f".{other}")
    assert all(max(map(len, domain.split("."))) <= 63 for domain in domains)
