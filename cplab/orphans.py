"""A child that shall not outlive its parent: what it goes on computing would be in the next cell's times.

``python -m cplab.orphans COMMAND ...`` becomes a command that ends with whoever started it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask Linux to end this process when the one that started it is gone, however that ended."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was gone before it was asked for
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    """Become the command that stands in the arguments; 127 and a line on standard error where it cannot be run."""
    die_with_parent()
    command = sys.argv[1:]
    try:
        os.execv(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror or error}\n")
    return 127


if __name__ == "__main__":
    sys.exit(main())
