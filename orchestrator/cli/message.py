"""What is said when something failed: one line on standard error, whatever was typed."""

import click


def say_error(message: str) -> None:
    """Print an error as one line of printable characters."""
    text = " ".join(message.split())
    shown = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
    click.echo(f"Error: {shown}", err=True)
