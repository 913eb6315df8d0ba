"""`muster report usage`: the GPU time of a history's file by month, project, user and model."""

import re
from calendar import monthrange
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final

import click

from musterweb.history_model import OTHERS
from musterweb.table import Table, csv_text
from musterweb.usage_store import UsageRecord, UsageRow, read_usage
from orchestrator.cli.message import say
from orchestrator.cli.options import Command
from orchestrator.cli.output import document, table
from orchestrator.errors import UsageError

GROUPINGS: Final = ("month", "project", "user", "model")
NOT_KNOWN: Final = "not known"
AMOUNTS: Final = ("GPU HOURS", "MEASURED", "USED", "IDLE", "BORROWED", "LOST BY PREEMPTION")
_HOUR_MILLI_SECONDS: Final = 3600 * 1000
_MONTH = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])", re.ASCII)


@dataclass(slots=True)
class Total:
    """Sums of one line, in thousandths of a GPU times seconds. None means unknown."""

    key: tuple[str, ...]
    gpu_milli_seconds: int = 0
    measured_milli_seconds: int = 0
    used_milli_percent_seconds: int = 0
    idle_milli_seconds: int = 0
    borrowed_milli_seconds: int | None = None
    months: set[str] = field(default_factory=set)
    projects: set[str] = field(default_factory=set)

    @property
    def used_milli_seconds(self) -> int | None:
        """The measured GPU time times its utilization. None if nothing was measured."""
        return self.used_milli_percent_seconds // 100 if self.measured_milli_seconds else None

    @property
    def idle(self) -> int | None:
        """The measured GPU time without any utilization. None if nothing was measured."""
        return self.idle_milli_seconds if self.measured_milli_seconds else None


def totals(record: UsageRecord, by: Sequence[str], month: str | None = None) -> list[Total]:
    """Return the sums of the rows for each combination of the groupings, in their order.

    Borrowed time is a property of projects: it is not known by user or model.
    """
    found: dict[tuple[str, ...], Total] = {}
    for row in record.rows:
        if month is None or row.month == month:
            key = tuple(_value(row, name) for name in by)
            _add(found.setdefault(key, Total(key)), row)
    for total in found.values():
        total.borrowed_milli_seconds = _borrowed(record, total, by)
    return [found[key] for key in sorted(found)]


def _borrowed(record: UsageRecord, total: Total, by: Sequence[str]) -> int | None:
    if {"user", "model"} & set(by) or ("project" in by and OTHERS in total.projects):
        return None
    return sum(
        amount
        for (month, project), amount in record.borrowed.items()
        if month in total.months and ("project" not in by or project in total.projects)
    )


def _value(row: UsageRow, name: str) -> str:
    return row.month if name == "month" else str(getattr(row.holder, name)) or NOT_KNOWN


def _add(total: Total, row: UsageRow) -> None:
    total.gpu_milli_seconds += row.gpu_milli_seconds
    total.measured_milli_seconds += row.measured_milli_seconds
    total.used_milli_percent_seconds += row.used_milli_percent_seconds
    total.idle_milli_seconds += row.idle_milli_seconds
    total.months.add(row.month)
    total.projects.add(row.holder.project)


def _groupings(ctx: click.Context, parameter: click.Parameter, text: str) -> tuple[str, ...]:  # noqa: ARG001
    names = tuple(text.split(","))
    if len(set(names)) != len(names) or not set(names) <= set(GROUPINGS):
        raise UsageError(f"--by {text} is not possible; give some of {','.join(GROUPINGS)}")
    return names


def _month(ctx: click.Context, parameter: click.Parameter, text: str | None) -> str | None:  # noqa: ARG001
    if text is not None and not _MONTH.fullmatch(text):
        raise UsageError(f"--month {text} is no month; give one such as 2026-11")
    return text


def _price(ctx: click.Context, parameter: click.Parameter, text: str | None) -> Decimal | None:  # noqa: ARG001
    if text is None:
        return None
    try:
        price = Decimal(text)
    except InvalidOperation:
        price = Decimal("NaN")
    if not price.is_finite() or not 0 <= price < 10**9:
        raise UsageError(f"--price {text} is no price; give one such as 2.50")
    return price


@click.command("usage", cls=Command)
@click.option(
    "--history",
    "file",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="File of `muster web --history`. It may be in use.",
)
@click.option(
    "--by",
    default="month,project",
    show_default=True,
    metavar="NAME,…",
    callback=_groupings,
    help="Columns to group by: some of month, project, user and model.",
)
@click.option("--month", metavar="YYYY-MM", callback=_month, help="This month alone (UTC).")
@click.option(
    "--price", metavar="PRICE", callback=_price, help="Price of a GPU hour; adds the cost of each line."
)
@click.option("-o", "--output", type=click.Choice(("csv", "json")), help="Output format.")
def usage(
    *, file: Path, by: tuple[str, ...], month: str | None, price: Decimal | None, output: str | None
) -> None:
    """Print the GPU hours by month, project, user and model: allocated, used, idle, borrowed.

    A value that the history does not hold is "not known". USED is the measured GPU time times its utilization, and
    MEASURED the percentage of GPU time that is measured.
    """
    record = read_usage(file)
    lines = totals(record, by, month)
    if output == "json":
        click.echo(document(_json(record, lines, by, month, price), "json"))
        return
    header = (*(name.upper() for name in by), *AMOUNTS, *(() if price is None else ("COST",)))
    rows = [_row(total, price) for total in lines]
    if output == "csv":
        click.echo(csv_text(Table("usage", "", header, rows)), nl=False)
    else:
        click.echo(table(header, rows))
    for note in _notes(record, month):
        say(note, err=True)


def _row(total: Total, price: Decimal | None) -> list[str]:
    amounts = (total.used_milli_seconds, total.idle, total.borrowed_milli_seconds, None)
    cost = () if price is None else (_cost(total, price),)
    return [*total.key, _hours(total.gpu_milli_seconds), _measured(total), *map(_hours, amounts), *cost]


def _hours(milli_seconds: int | None) -> str:
    if milli_seconds is None:
        return NOT_KNOWN
    return f"{Decimal(milli_seconds) / _HOUR_MILLI_SECONDS:.2f}"


def _measured(total: Total) -> str:
    if not total.gpu_milli_seconds:
        return NOT_KNOWN
    return f"{total.measured_milli_seconds * 100 // total.gpu_milli_seconds}%"


def _cost(total: Total, price: Decimal) -> str:
    return f"{Decimal(total.gpu_milli_seconds) * price / _HOUR_MILLI_SECONDS:.2f}"


def _json(
    record: UsageRecord, lines: Iterable[Total], by: Sequence[str], month: str | None, price: Decimal | None
) -> dict[str, Any]:
    items = []
    for total in lines:
        names = {name: None if key == NOT_KNOWN else key for name, key in zip(by, total.key, strict=True)}
        amounts = {
            "gpuMilliSeconds": total.gpu_milli_seconds,
            "measuredGpuMilliSeconds": total.measured_milli_seconds,
            "usedGpuMilliSeconds": total.used_milli_seconds,
            "idleGpuMilliSeconds": total.idle,
            "borrowedGpuMilliSeconds": total.borrowed_milli_seconds,
            "lostByPreemptionGpuMilliSeconds": None,
        }
        items.append(names | amounts | ({} if price is None else {"cost": _cost(total, price)}))
    recorded = {
        name: {"recordedSeconds": seconds, "seconds": month_seconds(name)}
        for name, seconds in _recorded(record, month)
    }
    return {"months": recorded, "usage": items}


def month_seconds(month: str) -> int:
    """Return the length of a month.

    Example: `month_seconds("2026-02")` returns `2419200`.
    """
    return monthrange(int(month[:4]), int(month[5:]))[1] * 86400


def _notes(record: UsageRecord, month: str | None) -> list[str]:
    months = _recorded(record, month)
    if not months:
        return ["Nothing is recorded for this time."]
    return [
        f"{name}: {Decimal(seconds) / 3600:.1f} of {month_seconds(name) // 3600} hours are recorded"
        for name, seconds in months
    ]


def _recorded(record: UsageRecord, month: str | None) -> list[tuple[str, int]]:
    """Return the months of the report with their recorded seconds, in their order."""
    return sorted(each for each in record.recorded_seconds.items() if month in (None, each[0]))
