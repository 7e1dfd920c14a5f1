"""Why variants that read other bytes give the same bits: a reason for each way in which those of a run differ."""

from __future__ import annotations

from collections.abc import Sequence

from bench.records import CellSummary

_CONTAINERS = {"f32": "F32", "bf16": "BF16", "f16": "F16"}
_PACKED = (
    "the exponents of a row's weights lie close together, so that sign and exponent fit into four bits beside the byte "
    "that holds the mantissa, and the few that do not fit are listed. Unpacking, in registers, gives back every bit."
)
_VERIFIED = (
    "Speculation guesses codes and verifies them: a pass over several tokens says of each what the plain decoder says, "
    "bit for bit, as a token's bits do not depend on what stands beside it. A guess that is something else is thrown "
    "away, so that it costs time and no code. The gate hands in guesses that are right, wrong, and wrong at each depth "
    "in turn."
)
_JUDGED = (
    "A variant is called exact where all its logits in the gate have the bits of the scalar oracle; the codes of every "
    "timed frame are checked as well."
)


def reasons(team: Sequence[CellSummary], *, guesses: bool) -> list[str]:
    """The reasons.

    Args:
        team: exact cells of one thread count.
        guesses: whether a cell of the run speculates.
    """
    formats = {cell.format for cell in team}
    found = []
    plain = [words for name, words in _CONTAINERS.items() if name in formats]
    if len(plain) > 1:
        found.append(
            f"{', '.join(plain[:-1])} and {plain[-1]} hold this model's weights without changing one, which the gate "
            "counts. Each weight is widened to the same float32 in a register, and the arithmetic from there on is one."
        )
    if "bf12" in formats:
        found.append(f"bf12 packs BF16 without loss{_bits(team)}: {_PACKED}")
    if guesses:
        found.append(_VERIFIED)
    return [*found, _JUDGED]


def _bits(team: Sequence[CellSummary]) -> str:
    """How many of 16 bits are left, from what the two variants read."""
    read = {cell.variant: cell.bytes_per_frame for cell in team}
    packed, plain = read.get("kv_bf12"), read.get("kv_bf16")
    return f" ({16 * packed / plain:.2f} bits for 16, by what the two read here)" if packed and plain else ""
