"""The Helm chart of the operator YAML: one value for each option of `muster operator-yaml`, and the same templates.

Values have the names of the options, such as `notReadyGrace` for `--not-ready-grace`, and also their texts, types and
defaults.
"""

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final

import click

from orchestrator.cli.deployment_options import Duration, config_parameters, parameter_name
from orchestrator.control.operator_config import options
from orchestrator.distribution import installed_version
from orchestrator.durations import parse_duration_seconds
from orchestrator.errors import ConfigurationError, UsageError
from orchestrator.manifests.render import ACTIONS, CONSTANTS, OPERATOR_ARGUMENTS, WEB_OBJECTS, default_image
from orchestrator.manifests.templating import Expression, fill_in
from orchestrator.manifests.web import (
    ARGUMENTS,
    CHOSEN_ARGUMENTS,
    OIDC_ISSUER,
    OIDC_WORD,
    PROMETHEUS_URL,
    PUBLIC_URL,
    WebDeployment,
)
from orchestrator.names import LOWEST_KUBERNETES, SYSTEM_NAMESPACE
from orchestrator.submit.name_rules import LABEL_VALUE, OBJECT_NAME

NAME: Final = "muster"

_DURATION: Final = r"([0-9]{1,5}h)?([0-9]{1,7}m)?([0-9]{1,9}s)?"
_TEXTS: Final = {parameter_name(option): option.text for option in options() if option.text}
_PATTERNS: Final = {
    **{name: text.pattern for name, text in _TEXTS.items()},
    "cluster": LABEL_VALUE,
    "web_certificate": OBJECT_NAME,
    "web_history_claim": f"({OBJECT_NAME})?",
    "web_prometheus": f"({PROMETHEUS_URL})?",
    "web_public_url": f"({PUBLIC_URL})?",
    "web_oidc_issuer": f"({OIDC_ISSUER})?",
    "web_oidc_client_id": f"({OIDC_WORD})?",
    "web_oidc_client_secret": f"({OBJECT_NAME})?",
    "web_oidc_authority": f"({OBJECT_NAME})?",
    "web_oidc_scope": OIDC_WORD,
}
_ANNOTATION_WIDTH: Final = 118


def write_chart(directory: Path, parameters: Sequence[click.Option], values: Mapping[str, Any]) -> None:
    """Write the chart into a new or empty directory. `values` has the chart's value of each parameter, by its name.

    Raises UsageError if the directory is not empty, and ConfigurationError if it cannot be written.
    """
    files = chart_files(parameters, values)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise UsageError(f"--helm {directory}: the directory is not empty; give a new directory")
        (directory / "templates").mkdir()
        for name, text in files.items():
            (directory / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"--helm {directory} cannot be written: {error.strerror}") from error


def chart_files(parameters: Sequence[click.Option], values: Mapping[str, Any]) -> dict[str, str]:
    """Return the files of the chart by their paths in it."""
    fixed = {
        file.name: file.read_text(encoding="utf-8").replace("@namespace@", SYSTEM_NAMESPACE)
        for file in (resources.files("orchestrator.manifests") / "chart").iterdir()
    }
    fixed["_helpers.tpl"] += "\n" + _operator_arguments() + "\n" + _web_arguments()
    templates = fill_in({**CONSTANTS, **_expressions()}) | fixed
    return {
        "Chart.yaml": _chart_yaml(),
        "values.yaml": _values_yaml(parameters, values),
        "values.schema.json": json.dumps(_schema(parameters), indent=2) + "\n",
        **{f"templates/{name}": text for name, text in sorted(templates.items())},
    }


def value_name(parameter: click.Option) -> str:
    """Return the name of the value for an option."""
    return _camel_case(parameter.name or "")


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _chart_yaml() -> str:
    version = installed_version()
    return f"""\
apiVersion: v2
name: {NAME}
description: Shares the GPUs of a cluster between teams on Kubernetes
type: application
version: {version}
appVersion: "{version}"
kubeVersion: ">={LOWEST_KUBERNETES}-0"
"""


# --- values ---------------------------------------------------------------------------------------------


def _values_yaml(parameters: Sequence[click.Option], values: Mapping[str, Any]) -> str:
    lines = [
        "# Each value is the option of `muster operator-yaml` of the same name: notReadyGrace is --not-ready-grace.",
        "# Written by `muster operator-yaml --helm`; change values, not templates.",
    ]
    for parameter in parameters:
        text = textwrap.wrap(parameter.help or "", _ANNOTATION_WIDTH)
        value = _value(parameter, values[parameter.name or ""])
        lines += ["", *(f"# {line}" for line in text), f"{value_name(parameter)}: {json.dumps(value)}"]
    return "\n".join(lines) + "\n"


def _value(parameter: click.Option, given: Any) -> Any:
    """Return the value of an option for the chart: a duration in seconds, and "" for a missing text."""
    if isinstance(parameter.type, Duration):
        return given if given == "never" else f"{parse_duration_seconds(parameter.opts[0], given)}s"
    if parameter.multiple:
        return list(given)
    if given is None and isinstance(parameter.type, click.types.StringParamType):
        return ""
    return given


def _schema(parameters: Sequence[click.Option]) -> dict[str, Any]:
    properties = {
        value_name(parameter): {"description": parameter.help, **_type(parameter)} for parameter in parameters
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": f"Values of the chart {NAME}",
        "type": "object",
        "additionalProperties": False,
        "properties": {**properties, "global": {"type": "object", "description": "Helm's own; not used."}},
    }


def _type(parameter: click.Option) -> dict[str, Any]:
    kind = parameter.type
    if isinstance(kind, click.types.BoolParamType):
        return (
            {"type": "boolean"} if parameter.is_flag and not parameter.secondary_opts else _or_null("boolean")
        )
    if isinstance(kind, click.IntRange):
        return {**_or_null("integer"), "minimum": kind.min, "maximum": 2**31 - 1}
    if isinstance(kind, click.Choice):
        return {"enum": list(kind.choices)}
    if isinstance(kind, Duration):
        never = "never|" if kind.never else ""
        return {"type": "string", "minLength": 1, "pattern": f"^({never}{_DURATION})$"}
    pattern = _PATTERNS.get(parameter.name or "")
    text: dict[str, Any] = {"type": "string"} | ({"pattern": f"^({pattern})$"} if pattern else {})
    if form := _TEXTS.get(parameter.name or ""):
        text["maxLength"] = form.max_length
    return {"type": "array", "uniqueItems": True, "items": text} if parameter.multiple else text


def _or_null(kind: str) -> dict[str, Any]:
    return {"type": [kind, "null"]}


# --- templates ------------------------------------------------------------------------------------------


def _expressions() -> dict[str, Expression]:
    """Return the Helm expressions for the values that a site can choose, by their names in the templates."""
    agent = 'include "muster.agent" .'
    actions = " ".join(
        f"{json.dumps(mode.value)} (list {' '.join(json.dumps(action) for action in actions)})"
        for mode, actions in ACTIONS.items()
    )
    choice = f"get (dict {actions}) .Values.policies"
    plain = {
        "require_devices_variable": "requireDevicesVariable",
        "runtime_class": "agentRuntimeClass",
        "driver_root": "agentDriverRoot",
        "web": "web",
        **{f"web_{name}": _camel_case(f"web_{name}") for name in WEB_OBJECTS},
    }
    return {
        "cluster": Expression(".Values.cluster"),
        "image": Expression(f".Values.image | default {json.dumps(default_image())}"),
        "replicas": Expression(".Values.replicas | int64"),
        "operator_arguments": Expression('include "muster.operatorArguments" . | fromJsonArray'),
        "web_arguments": Expression('include "muster.webArguments" . | fromJsonArray'),
        "actions": Expression(choice, choice),
        "max_grace_seconds": Expression('include "muster.seconds" .Values.maxCheckpointGrace'),
        "agent": Expression(agent, agent),
        "reads_hosts": Expression("", 'eq .Values.hostHealth "agent"'),
        "limits_gpu_memory": Expression("", 'eq .Values.gpuMemoryLimits "enforce"'),
        "taints_nodes": Expression("", 'ne .Values.outOfServiceAfter "never"'),
        **{name: Expression(f".Values.{value}", f".Values.{value}") for name, value in plain.items()},
    }


def _operator_arguments() -> str:
    """Return the Helm template of `OperatorConfig.arguments`: a JSON list of options."""
    appended = [line for parameter in config_parameters() for line in _argument(parameter)]
    return _arguments_template("operator", OPERATOR_ARGUMENTS, appended)


def _web_arguments() -> str:
    """Return the Helm template of `WebDeployment.arguments`."""
    appended = []
    for name, texts in CHOSEN_ARGUMENTS.items():
        chosen = f".Values.{_camel_case(f'web_{name}')}"
        is_list = isinstance(getattr(WebDeployment(), name), tuple)
        for text in texts:
            when, value = (f"range {chosen}", ".") if is_list else (f"if {chosen}", chosen)
            argument = f"(printf {json.dumps(text)} {value})" if "%s" in text else json.dumps(text)
            appended.append(_append(when, argument))
    return _arguments_template("web", ARGUMENTS, appended)


def _arguments_template(name: str, words: Sequence[str], appended: Sequence[str]) -> str:
    """Return the Helm template of a container's arguments: `words`, then the arguments that the lines `appended`
    add.
    """
    lines = [
        f"{{{{- /* The arguments of `muster {words[0]}`: what is not its default. */ -}}}}",
        f'{{{{- define "muster.{name}Arguments" -}}}}',
        f"{{{{- $arguments := list {' '.join(json.dumps(word) for word in words)} -}}}}",
        *appended,
    ]
    return "\n".join([*lines, "{{- $arguments | toJson -}}", "{{- end -}}"]) + "\n"


def _argument(parameter: click.Option) -> Iterator[str]:
    """Yield the template lines that append an option to the arguments if its value is not the default."""
    option, kind = parameter.opts[0], parameter.type
    chosen = value = f".Values.{value_name(parameter)}"
    if parameter.multiple:
        yield _append(f"range {chosen}", f'(printf "{option}=%s" .)')
        return
    if isinstance(kind, click.types.BoolParamType):
        yield _append(f"if {chosen}", f'"{option}"')
        return
    if isinstance(kind, Duration):
        value = f'(include "muster.duration" {chosen})'
    elif isinstance(kind, click.IntRange):
        value = f"({chosen} | int64)"
    default = _value(parameter, parameter.get_default(click.Context(click.Command("chart"))))
    is_chosen = f'not (kindIs "invalid" {chosen})' if default is None else f"ne {value} {json.dumps(default)}"
    yield _append(f"if {is_chosen}", f'(printf "{option}=%v" {value})')


def _append(when: str, argument: str) -> str:
    return f"{{{{- {when} }}}}{{{{ $arguments = append $arguments {argument} }}}}{{{{ end -}}}}"
