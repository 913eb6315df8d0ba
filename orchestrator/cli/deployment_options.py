"""The click options of `muster operator`, made from one table, and the click options of the pages."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, Final

import click

from orchestrator.control.operator_config import (
    NEVER,
    MemoryLimitsMode,
    OperatorConfig,
    Option,
    options,
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
from orchestrator.submit.name_rules import is_object_name
from orchestrator.submit.protection import PolicyMode


class Duration(click.types.StringParamType):
    """A time such as 90s or 1h30m. If the attribute `never` is set, the word `never` is allowed too. `config_of`
    reads it.
    """

    name = "duration"

    def __init__(self, *, never: bool = False) -> None:
        self.never = never


def _duration(seconds: int | None) -> str:
    """Return seconds as an option takes them: `90s`, `2m`; None is `never`."""
    if seconds is None:
        return NEVER
    return f"{seconds}s" if seconds % 60 else f"{seconds // 60}m"


def parameter_name(option: Option) -> str:
    """Return the name that click gives to the value of an option: `--max-moves` is `max_moves`."""
    return option.flag.removeprefix("--").replace("-", "_")


def _click_option(option: Option) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the decorator that adds the option to a command."""
    default, extra = option.default, dict[str, Any]()
    if option.is_duration:
        never = option.allows_none
        extra = {"type": Duration(never=never), "metavar": "DURATION", "default": _duration(default)}
    elif isinstance(default, bool):
        return click.option(option.flag, is_flag=True, help=option.help)
    elif isinstance(default, Enum):
        extra = {"type": click.Choice([mode.value for mode in type(default)]), "default": default.value}
    elif isinstance(default, tuple):
        extra = {"multiple": True}
    elif isinstance(default, str):
        extra = {"default": default}
    else:
        extra = {"type": click.IntRange(min=0), "default": default}
    if option.metavar:
        extra["metavar"] = option.metavar
    return click.option(option.flag, help=option.help, show_default=default not in (None, "", ()), **extra)


CONFIG_OPTIONS: Final = tuple(_click_option(option) for option in options())


def with_config_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with the options of the operator."""
    for option in reversed(CONFIG_OPTIONS):
        function = option(function)
    return function


def config_parameters() -> list[click.Option]:
    """Return the options of the operator, in the order of `OperatorConfig.arguments`."""
    command = click.command()(with_config_options(lambda **_: None))
    return [parameter for parameter in command.params if isinstance(parameter, click.Option)]


def config_of(**values: Any) -> OperatorConfig:
    """Return the configuration for the values of `CONFIG_OPTIONS`. Raises UsageError for an impossible value."""
    config = OperatorConfig(
        **{option.field: _read(option, values[parameter_name(option)]) for option in options()}
    )
    if config.gpu_memory_limits is MemoryLimitsMode.ENFORCE and config.policies is PolicyMode.OFF:
        raise UsageError(
            "--gpu-memory-limits enforce needs policies: without them Pod Security refuses the library's "
            "directory, and users could change the limits of their pods; remove --policies off"
        )
    return config


def _read(option: Option, value: Any) -> Any:
    """Return the value of the field for the value of an option. Raises UsageError."""
    from orchestrator.durations import parse_duration_seconds

    if option.is_duration:
        if value == NEVER and option.allows_none:
            return None
        return parse_duration_seconds(option.flag, value) or 0
    if isinstance(option.default, bool):
        return option.default ^ value
    if isinstance(option.default, Enum):
        return type(option.default)(value)
    if option.text is not None:
        _check_text(option, value if isinstance(value, tuple) else (value,))
    return value


def _check_text(option: Option, texts: Sequence[str]) -> None:
    form = option.text
    for text in texts:
        if form and (
            not re.fullmatch(form.pattern, text) or len(text) > form.max_length or texts.count(text) > 1
        ):
            raise UsageError(f"{option.flag} {text!r} is not possible: give {form.description}")


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
    """Return the deployment of the pages for the values of `WEB_OPTIONS`; None without `web`. Raises UsageError."""
    pages = WebDeployment(**{name.removeprefix("web_"): value for name, value in choices.items()})
    if not web:
        if replace(pages, certificate=DEFAULT_WEB_CERTIFICATE) != WebDeployment():
            raise UsageError("options --web-… need --web: give it too")
        return None
    if pages.history and pages.prometheus:
        raise UsageError("--web-prometheus and --web-history exclude each other: give one of them")
    if pages.history_claim and not pages.history:
        raise UsageError("--web-history-claim needs --web-history: give both")
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
    """Raise UsageError if the options of the OpenID Connect provider do not allow people to sign in."""
    needed = {"--web-oidc-client-id": pages.oidc_client_id, "--web-public-url": pages.public_url}
    if not pages.oidc_issuer:
        if any((*needed.values(), pages.oidc_client_secret, pages.oidc_authority, pages.oidc_scope)):
            raise UsageError(
                "--web-oidc-… and --web-public-url need an OpenID Connect provider: give --web-oidc-issuer "
                "too"
            )
        return
    if missing := [option for option, value in needed.items() if not value]:
        raise UsageError(
            f"--web-oidc-issuer needs {' and '.join(missing)}, which identifies the pages at the provider"
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
