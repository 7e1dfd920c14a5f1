"""Which block formats earn a kernel: bytes a frame beside what is lost, every matrix in one format.

The naive implementation computes (`cplab.naive`), so that a format needs no kernel to be judged: weights through the
format, activations in blocks of 32 as `q8_0`, float32 sums.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bench.quality.block_formats import NAMES, bits_per_weight, through, unable
from bench.quality.kernels import kernels, only_read
from bench.quality.teacher_forced import measure
from bench.quality.truth import Truth
from bench.records.format_table import FormatRow, FormatTable
from bench.records.summarised import ModelFacts
from cplab.export import Energies
from cplab.formats import fitting, q4_0
from cplab.model import Model
from cplab.naive import Naive
from cplab.recipe import units_of

Array = NDArray[np.float32]

#: Q4_0 with other scales and integers in the same layout: `cplab.formats.fitting`.
FITTED = "q4_0 fitted"
#: Weights as they are, so that what the activations lose alone stands beside.
OWN = "own weights"


def format_table(
    model: Model,
    truth: Truth,
    energies: Energies,
    about: ModelFacts,
    warning: str,
    say: Callable[[str], None] = lambda what: None,
) -> FormatTable:
    """Every format on one model.

    Args:
        model: the original weights.
        truth: what the float32 law says of the frames.
        energies: mean square inputs by matrix, to which the fitted Q4_0 is fitted.
        about: the model.
        warning: goes into the record.
        say: told what is being tried.

    Raises:
        UnpackableError: a weight that a format cannot hold.
    """
    widths = {model.tensors[name].shape[1] for names in units_of(model.spec).values() for name in names}
    left_out: dict[str, str] = {}
    rows = [_row(OWN, _own_bits(model), model, _Through(model, OWN, energies), truth)]
    for name in (*NAMES, FITTED):
        held = name.partition(" ")[0]
        reason = unable(held, widths)
        if reason:
            left_out[name] = reason
            continue
        say(name)
        rows.append(_row(name, bits_per_weight(held), model, _Through(model, name, energies), truth))
    return FormatTable(
        warning=warning,
        model=about,
        frames=len(truth),
        rows=[_placed(row, rows) for row in rows],
        left_out=left_out,
        kernels=kernels(),
        only_read=only_read(),
    )


def _row(name: str, bits: float, model: Model, naive: Naive, truth: Truth) -> FormatRow:
    streamed = round(_weights_a_frame(model) * bits / 8)
    return FormatRow(format=name, bits_per_weight=bits, bytes_per_frame=streamed, lost=measure(naive.scored, truth))


class _Through(Naive):
    """A model whose matrices went through one format; nothing is kept, since each is used once."""

    def __init__(self, model: Model, name: str, energies: Energies) -> None:
        super().__init__(model, "q8_0")
        self._name, self._energies = name, energies

    def matrix(self, name: str) -> Array:
        """A matrix as it comes back from the format."""
        weights = self.model.f32(name)
        if self._name == OWN:
            return weights
        if self._name == FITTED:
            return q4_0.unpack(fitting.pack(weights, self._energies[name]))
        return through(self._name, weights)

    def times(self, X: Array, name: str) -> Array:
        """As in `Naive`."""
        y = super().times(X, name)
        self._kept.pop(name, None)
        return y


def _own_bits(model: Model) -> float:
    """Bits of a weight as the model holds its matrices, in the mean."""
    held = [model.tensors[name] for names in units_of(model.spec).values() for name in names]
    sizes = [int(np.prod(tensor.shape)) for tensor in held]
    return sum(n * tensor.format.bits_per_weight for n, tensor in zip(sizes, held, strict=True)) / sum(sizes)


def _weights_a_frame(model: Model) -> int:
    """Weights that a KV-cached frame streams: a head once, everything else in every pass."""
    spec, total = model.spec, 0
    for unit, names in units_of(spec).items():
        each = sum(int(np.prod(model.tensors[name].shape)) for name in names)
        total += each * (1 if unit.startswith("heads.") else spec.passes)
    return total


def _placed(row: FormatRow, rows: list[FormatRow]) -> FormatRow:
    """A row that knows whether another is no larger and loses less."""
    beaten = [
        other.format
        for other in rows
        if other is not row and other.bytes_per_frame <= row.bytes_per_frame and other.damage < row.damage
    ]
    return row.model_copy(update={"beaten_by": beaten})
