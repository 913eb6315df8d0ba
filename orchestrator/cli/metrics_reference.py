"""The list of all metrics, written from their declarations: `make docs` puts it into docs/reference/metrics.md."""

import re
import sys
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

import yaml

from orchestrator.agent import metrics as agent
from orchestrator.cli.monitoring import monitoring_files
from orchestrator.control.report import metrics as operator
from orchestrator.exposition import Metric


def reference() -> str:
    """Return docs/reference/metrics.md: `metrics.md.in` with the tables of metrics and alerts."""
    text = (resources.files("orchestrator.cli") / "metrics.md.in").read_text(encoding="utf-8")
    files = monitoring_files()
    for mark, content in {
        "{operator}": _table(operator.METRICS),
        "{agent}": _table(agent.METRICS),
        "{scrape}": files["muster-scrape.yaml"],
        "{alerts}": _alerts(files["muster-rules.yaml"]),
    }.items():
        text = text.replace(mark, content)
    return text


def _table(metrics: Iterable[Metric]) -> str:
    rows = [
        f"| `{metric.name}` | {metric.kind} | {', '.join(f'`{label}`' for label in metric.labels)} | {metric.text} |"
        for metric in metrics
    ]
    return "\n".join(["| metric | type | labels | meaning |", "|---|---|---|---|", *rows])


def _alerts(text: str) -> str:
    rules = [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"] if "alert" in rule]
    return "\n".join(
        f"| `{rule['alert']}` | {rule['labels']['severity']} | {_inert(rule['annotations']['summary'])} |"
        for rule in rules
    )


def _inert(summary: str) -> str:
    """Return a summary with words instead of Prometheus' variables.

    Example: `_inert("No decision on {{ $labels.instance }}")` returns `'No decision on INSTANCE'`.
    """
    return re.sub(r"\{\{ \$(labels\.)?(\w+)[^}]*\}\}", lambda match: match[2].upper(), summary)


def main() -> None:
    """Write the reference to the file that the first argument names."""
    Path(sys.argv[1]).write_text(reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
