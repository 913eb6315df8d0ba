"""The options of `muster operator`, which `muster operator-yaml` and the Helm chart have too, and what they mean."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import click

from orchestrator.control.operator_config import (
    MAX_CHECKPOINT_GRACE_SECONDS,
    MAX_PROJECT_OBJECTS,
    MEMORY_GRACE_SECONDS,
    UNLIMITED,
    MemoryLimitsMode,
    OperatorConfig,
)
from orchestrator.errors import UsageError
from orchestrator.manifests.web import (
    DEFAULT_WEB_CERTIFICATE,
    OIDC_ISSUER,
    OIDC_WORD,
    PROMETHEUS_URL,
    PUBLIC_URL,
    WebDeployment,
)
from orchestrator.planner.settings import DEFAULT_SETTINGS, Settings
from orchestrator.submit.name_rules import MAX_DOMAIN_LENGTH, is_domain, is_object_name
from orchestrator.submit.network import DEFAULT_INGRESS_CLASS
from orchestrator.submit.protection import PolicyMode

TOPOLOGY_LABEL: Final = (
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)


class Duration(click.types.StringParamType):
    """A time such as 90s or 1h30m; with `never` also that. `config_of` reads it."""

    name = "duration"

    def __init__(self, *, never: bool = False) -> None:
        self.never = never


class Count(click.types.StringParamType):
    """A number from 1, or `unlimited`. `config_of` reads it."""

    name = "count"


def _duration(seconds: int | None) -> str:
    """Return seconds as an option takes them: `90s`, `2m`; None is `never`."""
    if seconds is None:
        return "never"
    return f"{seconds}s" if seconds % 60 else f"{seconds // 60}m"


CONFIG_OPTIONS: Final = (
    click.option(
        "--max-evictions",
        type=click.IntRange(min=0),
        default=None,
        metavar="N",
        help="Evict at most so many pods in one decision. Default: as many as are due.",
    ),
    click.option(
        "--not-ready-grace",
        type=Duration(),
        metavar="DURATION",
        default=_duration(DEFAULT_SETTINGS.not_ready_grace_seconds),
        show_default=True,
        help="So long a node may be not ready before its preemptible work is moved.",
    ),
    click.option(
        "--reservation-after",
        type=Duration(never=True),
        metavar="DURATION",
        default=_duration(DEFAULT_SETTINGS.reservation_after_seconds),
        show_default=True,
        help="Keep GPUs for a large job that has waited for so long; never: not at all.",
    ),
    click.option(
        "--stale-grace",
        type=Duration(),
        metavar="DURATION",
        default=_duration(DEFAULT_SETTINGS.stale_grace_seconds),
        show_default=True,
        help="So long what is left of a gang that lost a member may go on.",
    ),
    click.option(
        "--max-moves",
        type=click.IntRange(min=0),
        metavar="N",
        default=DEFAULT_SETTINGS.max_consolidation_victims,
        show_default=True,
        help="Move at most so many pods to make room for one job. 0: none.",
    ),
    click.option("--spread", is_flag=True, help="Start on the emptiest node instead of the fullest."),
    click.option(
        "--topology-level",
        multiple=True,
        metavar="LABEL",
        help="A node label that jobs may name as a level of topology; from the widest to the closest, repeatable.",
    ),
    click.option(
        "--max-checkpoint-grace",
        type=Duration(),
        metavar="DURATION",
        default=_duration(MAX_CHECKPOINT_GRACE_SECONDS),
        show_default=True,
        help="At most so much time an evicted pod may ask for to save its work.",
    ),
    click.option(
        "--policies",
        type=click.Choice([mode.value for mode in PolicyMode]),
        default=PolicyMode.DENY.value,
        show_default=True,
        help="What happens to objects in projects' namespaces that break a policy; off: there are none.",
    ),
    click.option(
        "--gpu-memory-limits",
        type=click.Choice([mode.value for mode in MemoryLimitsMode]),
        default=MemoryLimitsMode.OFF.value,
        show_default=True,
        help="Whether containers with a part of a GPU are held to it; enforce: by the library that agents put on "
        "their nodes, and by a watch over what their processes have.",
    ),
    click.option(
        "--gpu-memory-grace",
        type=Duration(never=True),
        metavar="DURATION",
        default=_duration(MEMORY_GRACE_SECONDS),
        show_default=True,
        help="So long a pod may have more memory of a GPU than its part before it is evicted; never: only warned.",
    ),
    click.option(
        "--reservation-image",
        metavar="IMAGE",
        default="",
        help="Image, with `sleep`, of the pods that hold GPUs of device plugins for pods with parts of them. "
        "Default: the operator's.",
    ),
    click.option(
        "--parts-wait-for-agent",
        is_flag=True,
        help="Let pods with parts of GPUs of a device plugin wait where no agent names the GPUs, instead of running "
        "without a device.",
    ),
    click.option(
        "--no-network-policy",
        is_flag=True,
        help="Leave the namespaces of projects without NetworkPolicies.",
    ),
    click.option(
        "--ingress-class",
        metavar="NAME",
        default=DEFAULT_INGRESS_CLASS,
        show_default=True,
        help="IngressClass of the Ingresses that `submit -s ingress` makes.",
    ),
    click.option(
        "--ingress-domain",
        metavar="DOMAIN",
        default="",
        help="Give each project the host PROJECT.DOMAIN for its jobs, where no other project can have an Ingress. DNS "
        "has to lead *.DOMAIN to the ingress controller. Default: Ingresses of jobs are without hosts.",
    ),
    click.option(
        "--max-project-pods",
        type=Count(),
        metavar="N",
        default=str(MAX_PROJECT_OBJECTS),
        show_default=True,
        help="At most so many pods may be in a project's namespace whose Project says nothing else; unlimited.",
    ),
    click.option(
        "--max-project-jobs",
        type=Count(),
        metavar="N",
        default=str(MAX_PROJECT_OBJECTS),
        show_default=True,
        help="The same for Jobs, those that have ended among them.",
    ),
)


def _count(option: str, text: str) -> int | None:
    """Return how many; None is `unlimited`."""
    if text == UNLIMITED:
        return None
    if not re.fullmatch("[0-9]{1,8}", text) or not int(text):
        raise UsageError(f"{option} {text!r} is not possible: give a number from 1, or {UNLIMITED}")
    return int(text)


def with_config_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with the options of the operator."""
    for option in reversed(CONFIG_OPTIONS):
        function = option(function)
    return function


def config_parameters() -> list[click.Option]:
    """Return the options of the operator, in the order of `OperatorConfig.arguments`."""
    command = click.command()(with_config_options(lambda **_: None))
    return [parameter for parameter in command.params if isinstance(parameter, click.Option)]


def config_of(
    *,
    max_evictions: int | None,
    not_ready_grace: str,
    reservation_after: str,
    stale_grace: str,
    max_moves: int,
    spread: bool,
    topology_level: tuple[str, ...],
    max_checkpoint_grace: str,
    policies: str,
    gpu_memory_limits: str,
    gpu_memory_grace: str,
    reservation_image: str,
    parts_wait_for_agent: bool,
    no_network_policy: bool,
    ingress_class: str,
    ingress_domain: str,
    max_project_pods: str,
    max_project_jobs: str,
) -> OperatorConfig:
    """Return what the options say. Raises UsageError for what is not possible."""
    from orchestrator.durations import parse_duration_seconds

    def seconds(option: str, text: str) -> int:
        return parse_duration_seconds(option, text) or 0

    for level in topology_level:
        if not re.fullmatch(TOPOLOGY_LABEL, level) or topology_level.count(level) > 1:
            raise UsageError(
                f"--topology-level {level!r} is not possible: give the key of a node label, each once"
            )
    limits = MemoryLimitsMode(gpu_memory_limits)
    if limits is MemoryLimitsMode.ENFORCE and PolicyMode(policies) is PolicyMode.OFF:
        raise UsageError(
            "--gpu-memory-limits enforce needs policies: without them Pod Security refuses the library's directory, "
            "and whoever made a pod could change its limit; leave out --policies off"
        )
    if not is_object_name(ingress_class):
        raise UsageError(
            f"--ingress-class {ingress_class!r} is not possible: give the name of an IngressClass"
        )
    if ingress_domain and not is_domain(ingress_domain):
        raise UsageError(
            f"--ingress-domain {ingress_domain!r} is not possible: give a DNS name such as gpus.example.com, in lower "
            f"case, without a wildcard, a port or a final dot, of at most {MAX_DOMAIN_LENGTH} characters"
        )
    memory_grace = None if gpu_memory_grace == "never" else seconds("--gpu-memory-grace", gpu_memory_grace)
    never = reservation_after == "never"
    settings = Settings(
        max_consolidation_victims=max_moves,
        max_evictions=max_evictions,
        stale_grace_seconds=seconds("--stale-grace", stale_grace),
        spread=spread,
        not_ready_grace_seconds=seconds("--not-ready-grace", not_ready_grace),
        reservation_after_seconds=None if never else seconds("--reservation-after", reservation_after),
        topology_levels=topology_level,
    )
    max_grace_seconds = seconds("--max-checkpoint-grace", max_checkpoint_grace)
    return OperatorConfig(
        settings,
        max_checkpoint_grace_seconds=max_grace_seconds,
        policies=PolicyMode(policies),
        gpu_memory_limits=limits,
        gpu_memory_grace_seconds=memory_grace,
        reservation_image=reservation_image,
        parts_wait_for_agent=parts_wait_for_agent,
        network_policy=not no_network_policy,
        ingress_class=ingress_class,
        ingress_domain=ingress_domain,
        max_project_pods=_count("--max-project-pods", max_project_pods),
        max_project_jobs=_count("--max-project-jobs", max_project_jobs),
    )


WEB_OPTIONS: Final = (
    click.option("--web", is_flag=True, help="Deploy the web pages of `muster web` beside the operator."),
    click.option(
        "--web-certificate",
        metavar="NAME",
        default=DEFAULT_WEB_CERTIFICATE,
        show_default=True,
        help="Secret of the type kubernetes.io/tls in muster-system with the certificate of the pages.",
    ),
    click.option(
        "--web-prometheus",
        metavar="URL",
        default="",
        help="Prometheus with the rules of `muster monitoring`. The page Analytics reads the history "
        "from it.",
    ),
    click.option(
        "--web-history",
        is_flag=True,
        help="Record the history without a Prometheus. The recorder has the role muster-viewer in the "
        "whole cluster.",
    ),
    click.option(
        "--web-history-claim",
        metavar="NAME",
        default="",
        help="PersistentVolumeClaim of 2Gi in muster-system that keeps the history. Default: the "
        "history ends with the pod.",
    ),
    click.option(
        "--web-public-url",
        metavar="URL",
        default="",
        help="URL of the pages for browsers, as it is registered with the OpenID Connect provider.",
    ),
    click.option(
        "--web-oidc-issuer",
        metavar="URL",
        default="",
        help="OpenID Connect provider for signing in. The API server must accept its ID tokens.",
    ),
    click.option(
        "--web-oidc-client-id",
        metavar="ID",
        default="",
        help="Client id of the pages at the provider; the same as that of the API server.",
    ),
    click.option(
        "--web-oidc-client-secret",
        metavar="NAME",
        default="",
        help="Secret in muster-system with the client secret under the key client-secret. Default: a "
        "public client.",
    ),
    click.option(
        "--web-oidc-authority",
        metavar="NAME",
        default="",
        help="ConfigMap in muster-system with the CA certificate of the provider under the key "
        "ca.crt. Default: the CA certificates of the image.",
    ),
    click.option(
        "--web-oidc-scope",
        metavar="SCOPE",
        multiple=True,
        help="Scope to request; repeatable. Default: openid, and of profile, email, groups and "
        "offline_access those that the provider offers.",
    ),
)


def with_web_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with the options of the pages."""
    for option in reversed(WEB_OPTIONS):
        function = option(function)
    return function


def web_of(*, web: bool, **choices: Any) -> WebDeployment | None:
    """Return how the pages are deployed, by the values of `WEB_OPTIONS`; None: not at all. Raises UsageError."""
    pages = WebDeployment(**{name.removeprefix("web_"): value for name, value in choices.items()})
    if not web:
        if replace(pages, certificate=DEFAULT_WEB_CERTIFICATE) != WebDeployment():
            raise UsageError("--web-… is for the pages: give --web too")
        return None
    if pages.history and pages.prometheus:
        raise UsageError("--web-prometheus and --web-history are two places for the same: give one")
    if pages.history_claim and not pages.history:
        raise UsageError("--web-history-claim keeps what --web-history records: give both")
    _check_web_url("--web-prometheus", pages.prometheus, PROMETHEUS_URL, "http://prometheus.monitoring:9090")
    _check_web_provider(pages)
    for option, name in (
        ("--web-certificate", pages.certificate),
        ("--web-history-claim", pages.history_claim),
        ("--web-oidc-client-secret", pages.oidc_client_secret),
        ("--web-oidc-authority", pages.oidc_authority),
    ):
        if not is_object_name(name) and (name or option == "--web-certificate"):
            raise UsageError(
                f"{option} {name!r} is not possible: give the name of an object in muster-system"
            )
    return pages


def _check_web_provider(pages: WebDeployment) -> None:
    """Raise UsageError where people could not sign in at the provider."""
    needed = {"--web-oidc-client-id": pages.oidc_client_id, "--web-public-url": pages.public_url}
    if not pages.oidc_issuer:
        if any((*needed.values(), pages.oidc_client_secret, pages.oidc_authority, pages.oidc_scope)):
            raise UsageError(
                "--web-oidc-… and --web-public-url are for people who sign in at a provider: give --web-oidc-issuer too"
            )
        return
    if missing := [option for option, value in needed.items() if not value]:
        raise UsageError(
            f"--web-oidc-issuer needs {' and '.join(missing)}: the provider knows the pages by it"
        )
    _check_web_url("--web-oidc-issuer", pages.oidc_issuer, OIDC_ISSUER, "https://sso.example.com/realms/gpu")
    _check_web_url("--web-public-url", pages.public_url, PUBLIC_URL, "https://muster.example.com")
    for option, word in (
        ("--web-oidc-client-id", pages.oidc_client_id),
        *(("--web-oidc-scope", scope) for scope in pages.oidc_scope),
    ):
        if not re.fullmatch(OIDC_WORD, word):
            raise UsageError(f"{option} {word!r} is not possible: give one word, such as muster")
    if pages.oidc_scope and "openid" not in pages.oidc_scope:
        raise UsageError("--web-oidc-scope: without openid a provider gives no ID token")


def _check_web_url(option: str, url: str, pattern: str, example: str) -> None:
    if url and not re.fullmatch(pattern, url):
        raise UsageError(f"{option} {url!r} is not possible: give a URL such as {example}")
