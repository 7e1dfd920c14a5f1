"""What the float32 law says of frames whose codes are pinned: what every implementation is held against."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cplab.errors import BadInputError

Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Truth:
    """Frames, the codes that are fed back in them, and the float32 law's logits.

    Attributes:
        hidden: ``[F, talker_hidden]`` f32.
        cb0_embed: ``[F, talker_hidden]`` f32.
        codes: ``[F, groups-1]`` int32, fed back whatever is chosen; the model's own, or recorded ones.
        logits: ``[F, groups-1, vocab]`` f32.
    """

    hidden: Float32
    cb0_embed: Float32
    codes: Int32
    logits: Float32

    def __post_init__(self) -> None:
        if self.logits.ndim != 3 or self.logits.shape[:2] != self.codes.shape or not len(self.codes):
            raise BadInputError(f"logits {list(self.logits.shape)} do not fit codes {list(self.codes.shape)}")
        if len(self.hidden) != len(self.codes) or self.cb0_embed.shape != self.hidden.shape:
            raise BadInputError(f"hidden {list(self.hidden.shape)} does not fit codes {list(self.codes.shape)}")
        if not np.isfinite(self.logits).all():
            raise BadInputError("the float32 logits are not all finite: nothing can be held against them")

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def chosen(self) -> Int32:
        """The code of each row's largest logit, the lowest of equals, ``[F, groups-1]``."""
        chosen: Int32 = np.argmax(self.logits, axis=-1).astype(np.int32)
        return chosen

    @property
    def margins(self) -> Float32:
        """Each row's largest logit less its second, ``[F, groups-1]``."""
        two = np.partition(self.logits, -2, axis=-1)[..., -2:]
        margins: Float32 = two[..., 1] - two[..., 0]
        return margins
