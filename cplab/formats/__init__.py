"""Weight formats: how weights are held. One file each; the arithmetic that runs on them is told elsewhere."""

from __future__ import annotations

from cplab.errors import BadInputError
from cplab.formats import bf12, bf16, f16, f32, q4_0, q5_0, q6_k, q8_0
from cplab.formats.format import Format

FORMATS: dict[str, Format] = {item.FORMAT.name: item.FORMAT for item in (f32, bf16, f16, bf12, q8_0, q6_k, q5_0, q4_0)}
#: In a format's place: each matrix in the format that the model has it in.
STORED = "stored"
#: Those that store an item a weight, on which float32 arithmetic runs.
FLOAT_FORMATS = {name: item for name, item in FORMATS.items() if item.blocks is None}


def format_named(name: str) -> Format:
    """The format of that name.

    Raises:
        BadInputError: there is none; the message lists those there are.
    """
    if name not in FORMATS:
        raise BadInputError(f"no weight format {name!r}; there are {', '.join(FORMATS)}")
    return FORMATS[name]


__all__ = ["FLOAT_FORMATS", "FORMATS", "STORED", "Format", "format_named"]
