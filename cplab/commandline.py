"""What the lab's command lines share: one way to run, one way to fail.

Exit codes: 0 good; 1 wrong use or unreadable input, one line and no traceback; 2 a gate failed or a cell crashed.
"""

from __future__ import annotations

from collections.abc import Sequence

import typer
from rich.console import Console
from typer.exceptions import TyperException

from cplab.errors import CplabError

GOOD, WRONG_USE, GATE_FAILED = 0, 1, 2

console = Console()
errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)


def run(app: typer.Typer, arguments: Sequence[str] | None = None) -> int:
    """Run a typer application and return its exit code, with every expected failure as one line on standard error."""
    command = typer.main.get_command(app)
    try:
        result = command.main(args=list(arguments) if arguments is not None else None, standalone_mode=False)
    except typer.Exit as stop:
        return stop.exit_code
    except TyperException as error:
        return fail(error.format_message())
    except CplabError as error:
        return fail(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return fail(f"{where}{error.strerror or error}")
    except (KeyboardInterrupt, typer.Abort):
        return fail("interrupted")
    return result if isinstance(result, int) else GOOD


def fail(message: str) -> int:
    """Print one line on standard error and give the exit code for wrong use."""
    errors.print("error: " + " ".join(message.split()))
    return WRONG_USE


def positive_list(text: str, what: str = "threads") -> list[int]:
    """``1,2,4`` or ``1-8`` or a mixture, as ascending distinct numbers.

    Raises:
        CplabError: something else, or a number below 1.
    """
    found: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdigit() or (dash and not high.isdigit()):
            raise CplabError(f"--{what} {text}: positive numbers and ranges are wanted, such as 1,2,4 or 1-8")
        found.update(range(int(low), int(high or low) + 1))
    if not found or min(found) < 1:
        raise CplabError(f"--{what} {text}: {what} must be at least 1")
    return sorted(found)
