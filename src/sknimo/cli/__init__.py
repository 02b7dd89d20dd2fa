"""The command `sknimo`: from a table to a model, predictions and a report."""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; its arguments are those of the process unless given."""
    try:
        from sknimo.cli._app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich", "pyarrow"):
            raise
        sys.exit(
            f"sknimo: error: the command line needs {error.name}: "
            "pip install 'sknimo[cli]'."
        )
    app(args=arguments, prog_name="sknimo")


__all__ = ["main"]
