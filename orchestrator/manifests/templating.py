"""Fills in the templates of the operator YAML: with values, or with expressions for a Helm chart.

For a chart a value that a site chooses is an `Expression`, and a condition on it becomes a condition of Go's templates.
All other values are filled in as for the operator YAML, so that chart and operator YAML cannot differ.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, nodes
from jinja2.utils import htmlsafe_json_dumps
from jinja2.visitor import NodeTransformer

_SUFFIX: Final = ".j2"
_AT_LINE_START: Final = re.compile(r"^\{\{ (if .*?|else|end) \}\}", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Expression:
    """A value that a site chooses, as an expression of Helm.

    `value` is an expression of Go's templates. `condition` is an expression that is true if Python would treat the
    value as true.
    """

    value: str
    condition: str = ""

    def __str__(self) -> str:
        return f"{{{{ {self.value} }}}}"

    def __bool__(self) -> bool:
        raise TypeError(f"{self.value} is only known to Helm: templates ask for it in an `if` of its own")


def template_names() -> Iterator[str]:
    """Yield the names of the templates' files, in the order of the operator YAML."""
    templates = resources.files("orchestrator.manifests") / "templates"
    yield from sorted(file.name for file in templates.iterdir() if file.name.endswith(f".yaml{_SUFFIX}"))


def fill_in(values: Mapping[str, Any]) -> dict[str, str]:
    """Return every template filled in, by its name without `.j2`.

    If a value is an `Expression`, the text has its expression, and each `if` on it becomes a condition for Helm.
    """
    environment = Environment(
        loader=PackageLoader("orchestrator.manifests", "templates"),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - this is YAML; values are quoted as JSON, which YAML contains
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"cel": _cel_list, "tojson": _to_json}
    expressions = {name: value for name, value in values.items() if isinstance(value, Expression)}
    filled_in = {}
    for name in template_names():
        source, path, _ = PackageLoader("orchestrator.manifests", "templates").get_source(environment, name)
        tree = environment.parse(source, name, path)
        if expressions:
            tree = _Conditions(expressions).visit(tree)
        template = environment.template_class.from_code(
            environment, environment.compile(tree, name, path), environment.make_globals(None)
        )
        text = template.render(values)
        filled_in[name.removesuffix(_SUFFIX)] = (
            _AT_LINE_START.sub(r"{{- \1 }}\n", text) if expressions else text
        )
    return filled_in


class _Conditions(NodeTransformer):
    """Turns every `if` about an `Expression` into an `if` of Go's templates."""

    def __init__(self, expressions: Mapping[str, Expression]) -> None:
        self._expressions = expressions

    def visit_If(self, node: nodes.If) -> nodes.Node | list[nodes.Node]:  # noqa: N802 - jinja2's name
        """Return the `if` unchanged.

        If its condition is an `Expression`, return its parts with Go's keywords between them.
        """
        self.generic_visit(node)
        if not self._is_about_expressions(node.test):
            return node
        if node.elif_:
            raise TypeError(f"line {node.lineno}: a condition for Helm has no elif")
        parts = [_text(f"{{{{ if {self._condition(node.test)} }}}}", node), *node.body]
        if node.else_:
            parts += [_text("{{ else }}", node), *node.else_]
        return [*parts, _text("{{ end }}", node)]

    def _is_about_expressions(self, test: nodes.Node) -> bool:
        names = [test] if isinstance(test, nodes.Name) else list(test.find_all(nodes.Name))
        return any(name.name in self._expressions for name in names)

    def _condition(self, test: nodes.Node) -> str:
        if isinstance(test, nodes.Name):
            return self._expressions[test.name].condition
        if isinstance(test, nodes.Not):
            return f"not ({self._condition(test.node)})"
        raise TypeError(f"line {test.lineno}: a condition for Helm is a name, or not a name")


def _text(text: str, beside: nodes.Node) -> nodes.Output:
    return nodes.Output([nodes.TemplateData(text, lineno=beside.lineno)], lineno=beside.lineno)


def _cel_list(values: Any) -> str:
    return "[" + ", ".join(f"'{value}'" for value in values) + "]"


def _to_json(value: Any) -> str:
    if isinstance(value, Expression):
        return f"{{{{ {value.value} | toJson }}}}"
    return str(htmlsafe_json_dumps(value, sort_keys=True))
