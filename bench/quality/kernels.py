"""Which formats of files have a kernel here, by which variants, and which are only read and expanded."""

from __future__ import annotations

import gguf

from cplab.formats import FORMATS
from cplab.sources.gguf_reading import expanded
from cplab.variant import variants


def kernels() -> dict[str, list[str]]:
    """Format -> the lab's own variants that run on matrices as a file has them in it, plain ones; widest first."""
    own = [one for one in variants().values() if one.tier == "exact" and not one.extra and not one.drafter]
    return {
        name: sorted(one.name for one in own if one.format == name) for name, kind in FORMATS.items() if kind.in_files
    }


def only_read() -> list[str]:
    """Formats of GGUF that are decoded to float32 when a file is read: no kernel runs on them."""
    return [kind.name.lower() for kind in gguf.GGMLQuantizationType if expanded(kind)]
