"""What can be set in llama.cpp without changing what is computed, and what is tried for each weight type."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, Literal

from cplab.variant import Tier

Buffers = Literal["all", "repack", "none"]

#: Weight types of the layers, and what the gate asks of each.
TIERS: dict[str, Tier] = {"f32": "codes", "f16": "quality", "bf16": "quality", "q8_0": "quality", "q4_0": "quality"}
_BUFFERS_TOLD = {
    "all": "llama.cpp's default buffers (use_extra_bufts=True)",
    "repack": "repacked weights without AMX",
    "none": "use_extra_bufts=False",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """One way to run a file.

    Attributes:
        flash: flash attention.
        buffers: where weights may be moved to: ``all`` extra buffer types of the build (llama.cpp's default: AMX and
            repacking where the CPU lists them), ``repack`` only its repacked layouts, ``none`` as in the file.
        cache: type of the K/V cache, ``f16`` (llama.cpp's default) or ``f32``.
    """

    flash: bool
    buffers: Buffers
    cache: Literal["f16", "f32"]

    def __str__(self) -> str:
        flash = "on" if self.flash else "off"
        return f"flash attention {flash}, {_BUFFERS_TOLD[self.buffers]}, K/V cache {self.cache.upper()}"

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON-able values."""
        return asdict(self)


def settings_for(kind: str) -> list[Settings]:
    """What is worth trying for weights of a type, llama.cpp's own defaults first.

    F32 is asked for the golden's every code, so its cache stays F32; only blocks of 4 and 8 bits have repacked layouts.
    """
    buffers: tuple[Buffers, ...] = ("all", "repack", "none") if kind.startswith("q") else ("all", "none")
    caches: tuple[Literal["f16", "f32"], ...] = ("f32",) if kind == "f32" else ("f16", "f32")
    return [Settings(flash, extra, cache) for extra, flash, cache in product(buffers, (True, False), caches)]
