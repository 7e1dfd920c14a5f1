"""What the tests of the lab share: a fresh Python process, and the tiny seeded model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
#: Variables that decide how compiled code is made and run; a fresh process starts without them.
_CLEARED = ("NUMBA_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_")


@pytest.fixture(scope="session")
def fresh_process():
    """Run Python source in a process of its own; what it prints last is JSON and is returned.

    ``may_fail=True`` returns the whole result instead. Keyword arguments are environment variables.
    """

    def run(source, *, timeout=300, may_fail=False, **environment):
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(_CLEARED)}
        path = os.pathsep.join([str(_HERE / "cplab"), inherited.pop("PYTHONPATH", "")]).rstrip(os.pathsep)
        result = subprocess.run(
            [sys.executable, "-c", source],
            env={**inherited, "PYTHONPATH": path, **{k: str(v) for k, v in environment.items()}},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if may_fail:
            return result
        assert result.returncode == 0, f"exit {result.returncode}\n{result.stdout}\n{result.stderr}"
        return json.loads(result.stdout.splitlines()[-1])

    return run


@pytest.fixture(scope="session")
def tiny():
    """``synthetic:tiny``, mapped from the cache."""
    from cplab.sources import load_model

    return load_model("synthetic:tiny")
