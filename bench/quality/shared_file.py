"""The file between workers: what the float32 law says, made once for all variants."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.quality.rollout import Said
from bench.quality.truth import Truth

_TRUTH = ("hidden", "cb0_embed", "codes", "logits")
_SAID = ("hidden", "cb0_embed", "codes", "kept")


@dataclass(frozen=True, slots=True)
class Shared:
    """What every variant is held against.

    Attributes:
        golden: the golden's frames, its own codes pinned.
        recorded: frames with recorded codes pinned, or None.
        loop: the float32 law's rollout, or None.
    """

    golden: Truth
    recorded: Truth | None = None
    loop: Said | None = None

    def save(self, path: Path) -> None:
        """Write a .npz."""
        arrays: dict[str, NDArray[Any]] = {}
        for prefix, part, names in (
            ("golden", self.golden, _TRUTH),
            ("recorded", self.recorded, _TRUTH),
            ("loop", self.loop, _SAID),
        ):
            if part is not None:
                arrays |= {f"{prefix}.{name}": getattr(part, name) for name in names}
        np.savez(path, **arrays)  # type: ignore[arg-type]


def load_shared(path: Path) -> Shared:
    """Read what `Shared.save` wrote."""
    with np.load(path, allow_pickle=False) as stored:

        def part(prefix: str, names: tuple[str, ...]) -> list[NDArray[Any]] | None:
            keys = [f"{prefix}.{name}" for name in names]
            return [stored[key] for key in keys] if keys[0] in stored else None

        golden, recorded, loop = part("golden", _TRUTH), part("recorded", _TRUTH), part("loop", _SAID)
    if golden is None:
        raise ValueError(f"{path}: no golden frames in it")
    return Shared(
        Truth(*golden),
        None if recorded is None else Truth(*recorded),
        None if loop is None else Said(loop[0], loop[1], loop[2], loop[3]),
    )
