"""Which variants a command line means, and what the thread pool of this machine is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bench.sources import OWN_TREE, source_digest
from cplab.errors import UnknownVariantError
from cplab.variant import Variant, get_variant, load_variant_file, variants

if TYPE_CHECKING:
    from bench.options import Contender


def chosen_variants(names: str, files: list[Path] | None) -> list[Variant]:
    """The variants of a comma-separated list, or all; those of ``files`` are registered first.

    Raises:
        UnknownVariantError: a name nobody registered, or a file that cannot be imported.
    """
    for path in files or []:
        load_variant_file(path)
    if not names.strip():
        return list(variants().values())
    chosen = [get_variant(name) for name in dict.fromkeys(part.strip() for part in names.split(",")) if name]
    if not chosen:
        raise UnknownVariantError(f"--variants {names}: no name in it; there are {', '.join(variants())}")
    return chosen


def contenders_of(variants: list[Variant]) -> list[Contender]:
    """The variants of our own tree as a sweep takes them, each with the digest of what it is made of."""
    from bench.options import Contender  # with it comes scipy, which takes a second that `bench list` has no use for

    return [Contender(one.name, one, source_digest=source_digest(Path(one.source), OWN_TREE)) for one in variants]


_PROBE = """
import numba
@numba.njit(parallel=True)
def probe(n):
    total = 0
    for i in numba.prange(n):
        total += i
    return total
probe(8)
print(numba.threading_layer())
"""


def threading_layer() -> str | None:
    """The threading layer that numba takes here, found in a process of its own; None where it cannot run."""
    result = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=120, check=False)
    return result.stdout.strip() or None if result.returncode == 0 else None
