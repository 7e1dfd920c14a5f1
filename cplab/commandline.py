"""What the lab's command lines share: one way to run, one way to fail.

Exit codes: 0 good; 1 wrong use or unreadable input, one line and no traceback; 2 a gate failed or a cell crashed.
"""

from __future__ import annotations

import io
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import typer
from rich.console import Console, RenderableType
from typer.exceptions import TyperException

from cplab.errors import CplabError

GOOD, WRONG_USE, GATE_FAILED = 0, 1, 2
#: What typer returns after Ctrl-C.
_TYPERS_INTERRUPT = 130
MOST_THREADS = 1024
#: Widest that a line can get where nobody folds it.
_UNBOUNDED = 100_000

console = Console()
errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)


def run(app: typer.Typer, arguments: Sequence[str] | None = None) -> int:
    """Run a typer application and return its exit code, with every expected failure as one line on standard error.

    A polite request to end (SIGTERM, SIGHUP) is taken as Ctrl-C, so that what was measured is kept.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without our signs shows question marks
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _interrupt)
    command = typer.main.get_command(app)
    try:
        result = command.main(args=list(arguments) if arguments is not None else None, standalone_mode=False)
    except typer.Exit as stop:
        result = stop.exit_code
    except TyperException as error:
        return fail(error.format_message() or "a command is wanted; --help lists them")
    except CplabError as error:
        return fail(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return fail(f"{where}{error.strerror or error}")
    except (KeyboardInterrupt, typer.Abort):
        return fail("interrupted")
    if result == _TYPERS_INTERRUPT:
        return fail("interrupted")
    return result if isinstance(result, int) else GOOD


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def ticking(label: str, total: int) -> Iterator[Callable[[], None]]:
    """A progress bar on standard error, where that is a terminal; the value is called after each step."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    screen = Console(stderr=True)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)


def fail(message: str) -> int:
    """Print one line on standard error and give the exit code for wrong use."""
    errors.print("error: " + " ".join(message.split()))
    return WRONG_USE


def print_whole(everything: RenderableType, screen: Console) -> None:
    """Print tables: on a terminal folded to its width, into a pipe or file a line a row, however wide."""
    if screen.is_terminal:
        screen.print(everything)
        return
    width = whole_width(everything, screen)
    Console(file=screen.file, width=width + 1, color_system=None, highlight=False).print(everything)


def whole_width(everything: RenderableType, screen: Console) -> int:
    """Characters that tables are wide where nothing is folded."""
    return Console(file=screen.file, width=_UNBOUNDED, color_system=None).measure(everything).maximum


def size_pool(threads: int) -> None:
    """Let numba's thread pool, which is sized once, when numba is imported, be large enough for a team."""
    if "numba" not in sys.modules:
        os.environ.setdefault("NUMBA_NUM_THREADS", str(max(threads, os.cpu_count() or 1)))


def finite(value: float | None) -> float | None:
    """An option's number as it is, for a range without an end, which lets infinity through.

    Raises:
        typer.BadParameter: it is not finite.
    """
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is no finite number.")
    return value


def positive_list(text: str, what: str = "threads") -> list[int]:
    """``1,2,4`` or ``1-8`` or a mixture, as ascending distinct numbers.

    Raises:
        CplabError: something else, or a number below 1.
    """
    found: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not all(n.isascii() and n.isdecimal() and len(n) < 9 for n in (low, high if dash else low)):
            raise CplabError(f"--{what} {text}: positive numbers and ranges are wanted, such as 1,2,4 or 1-8")
        if max(int(low), int(high or low)) > MOST_THREADS:
            raise CplabError(f"--{what} {text}: at most {MOST_THREADS} make sense")
        found.update(range(int(low), int(high or low) + 1))
    if not found or min(found) < 1:
        raise CplabError(f"--{what} {text}: {what} must be at least 1")
    return sorted(found)
