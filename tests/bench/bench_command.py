"""``python -m bench`` in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys


def bench(*arguments, cwd, timeout=400, **environment):
    """The finished process; ``environment`` adds variables to this one's."""
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
