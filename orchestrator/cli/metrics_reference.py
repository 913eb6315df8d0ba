"""The list of all metrics, written from their declarations: `make docs` puts it into docs/metrics.md."""

import sys
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from orchestrator.agent import metrics as agent
from orchestrator.control import metrics as operator
from orchestrator.exposition import Metric


def reference() -> str:
    """Return docs/metrics.md: what stands in `metrics.md.in` with the tables of metrics in their places."""
    text = (resources.files("orchestrator.cli") / "metrics.md.in").read_text(encoding="utf-8")
    return text.replace("{operator}", _table(operator.METRICS)).replace("{agent}", _table(agent.METRICS))


def _table(metrics: Iterable[Metric]) -> str:
    rows = [
        f"| `{metric.name}` | {metric.kind} | {', '.join(f'`{label}`' for label in metric.labels)} | {metric.text} |"
        for metric in metrics
    ]
    return "\n".join(["| metric | type | labels | meaning |", "|---|---|---|---|", *rows])


def main() -> None:
    """Write the list to the file that is named."""
    Path(sys.argv[1]).write_text(reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
