"""How large the inputs of each matrix are: mean squares by column, over frames that the model runs in float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cplab.decoder import Decoder
from cplab.errors import BadInputError
from cplab.export import Energies
from cplab.formats import STORED
from cplab.golden import load_golden
from cplab.model import Model
from cplab.naive import Naive
from cplab.sources import synthetic

#: In a file's place: frames that are made, at the scale of real ones.
SEEDED = "seeded"
FRAMES = 32


def input_energies(model: Model, frames: str = SEEDED) -> Energies:
    """Mean squares ``[columns]`` of what each matrix reads, by its name.

    The figures are only as good as the frames: of a trained model real ones are wanted, and others than those by which
    the result is judged.

    Args:
        model: the weights.
        frames: a golden file of any weights of that shape, whose codes are fed back, or `SEEDED`: made hidden states,
            and the codes that the model says itself.

    Raises:
        GoldenError: the file cannot be read.
        BadInputError: the file is of another shape.
    """
    hidden, cb0_embed, codes = _seeded(model) if frames == SEEDED else _recorded(model, Path(frames))
    listening = _Listening(model)
    listening.scored(hidden, cb0_embed, codes)
    return {name: total / listening.counts[name] for name, total in listening.totals.items()}


class _Listening(Naive):
    """Float32, taking down what goes into each matrix."""

    def __init__(self, model: Model) -> None:
        super().__init__(model, "f32")
        self.totals: Energies = {}
        self.counts: dict[str, int] = {}

    def times(self, X: NDArray[np.float32], name: str) -> NDArray[np.float32]:
        rows = X.reshape(-1, X.shape[-1]).astype(np.float64)
        self.totals[name] = self.totals.get(name, 0.0) + np.square(rows).sum(axis=0)
        self.counts[name] = self.counts.get(name, 0) + len(rows)
        y = super().times(X, name)
        self._kept.pop(name, None)  # each is used once or a few times, and all of them in float32 are half a gigabyte
        return y


_Frames = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int32]]


def _seeded(model: Model) -> _Frames:
    seed, width = f"{model.name} input energy", model.spec.talker_hidden
    hidden, cb0_embed = synthetic.hidden_states(seed, FRAMES, width), synthetic.cb0_embeddings(seed, FRAMES, width)
    return hidden, cb0_embed, Decoder(model, 1, format=STORED).predict(hidden, cb0_embed)


def _recorded(model: Model, path: Path) -> _Frames:
    golden = load_golden(path)
    spec = model.spec
    if golden.hidden.shape[1] != spec.talker_hidden or golden.codes.shape[1] != spec.passes:
        raise BadInputError(
            f"{path}: hidden states {list(golden.hidden.shape)} and codes {list(golden.codes.shape)}; the model takes "
            f"[F, {spec.talker_hidden}] and gives [F, {spec.passes}]"
        )
    if golden.codes.max() >= spec.vocab:
        raise BadInputError(f"{path}: codes up to {golden.codes.max()}, the model has {spec.vocab}")
    return golden.hidden, golden.cb0_embed, golden.codes
