"""Recipes tried on a model: each is packed, run on the truth's frames, and held against the float32 law."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bench.quality.teacher_forced import measure
from bench.quality.truth import Float32, Int32, Truth
from bench.records.recipe import Trial
from cplab.decoder import Decoder
from cplab.errors import NonFiniteLogitsError
from cplab.export import Energies, quantised
from cplab.formats import STORED, format_named
from cplab.model import Model, Tensor
from cplab.recipe import Recipe, units_of
from cplab.variant import Trace

Formats = Mapping[str, str]


class Trials:
    """Recipes on one model; what was measured, and what was packed, is kept.

    Args:
        model: the original weights.
        truth: what the float32 law says of them.
        threads: of the kernels.
        energies: mean square inputs by matrix, to which Q4_0 blocks are fitted; None for the gguf package's.
    """

    def __init__(self, model: Model, truth: Truth, threads: int, energies: Energies | None = None) -> None:
        self.model, self.truth, self.threads = model, truth, threads
        self._energies = energies or {}
        self.units = units_of(model.spec)
        self._packed: dict[tuple[str, str], Tensor] = {}
        self._done: dict[tuple[tuple[str, str], ...], Trial] = {}

    def __len__(self) -> int:
        return len(self._done)

    def measured(self) -> list[Trial]:
        """Every recipe that was measured so far, in that order."""
        return list(self._done.values())

    def of(self, formats: Formats) -> Trial:
        """A recipe's figures.

        Raises:
            BadInputError: a class or format that there is not.
            UnpackableError: a weight that a format cannot hold.
        """
        key = tuple(sorted(formats.items()))
        if key not in self._done:
            decoder = self.decoder(formats)

            def logits(hidden: Float32, cb0_embed: Float32, forced: Int32) -> Float32:
                return _logits(decoder, hidden, cb0_embed, forced)

            lost = measure(logits, self.truth)
            self._done[key] = Trial(formats=dict(formats), bytes_per_frame=decoder.bytes_per_frame, lost=lost)
        return self._done[key]

    def logits(self, formats: Formats) -> Float32:
        """A recipe's logits on the truth's frames, ``[F, groups-1, vocab]``, run anew; NaN in frames that failed."""
        return _logits(self.decoder(formats), self.truth.hidden, self.truth.cb0_embed, self.truth.codes)

    def decoder(self, formats: Formats) -> Decoder:
        """A predictor of the model with a recipe."""
        recipe = Recipe(formats)
        recipe.require(self.model.spec)
        tensors = dict(self.model.tensors)
        for names in self.units.values():
            for name in names:
                kind = recipe.of(name)
                if kind is not None and kind is not tensors[name].format:
                    tensors[name] = self._in_format(name, kind.name)
        return Decoder(Model(self.model.name, self.model.spec, tensors), self.threads, format=STORED)

    def _in_format(self, name: str, kind: str) -> Tensor:
        if (name, kind) not in self._packed:
            tensor, target = self.model.tensors[name], format_named(kind)
            data = quantised(tensor, target, tensor.f32(), self._energies.get(name))
            self._packed[name, kind] = Tensor(name, target, data)
        return self._packed[name, kind]


def _logits(decoder: Decoder, hidden: Float32, cb0_embed: Float32, forced: Int32) -> Float32:
    """Teacher-forced logits of all frames, several at once; NaN in frames that end in an error."""
    trace = Trace()
    try:
        decoder.predict(hidden, cb0_embed, forced=forced, trace=trace)
    except NonFiniteLogitsError:
        spec = decoder.model.spec
        if len(hidden) == 1:
            return np.full((1, spec.passes, spec.vocab), np.nan, np.float32)
        parts = (slice(i, i + 1) for i in range(len(hidden)))
        return np.concatenate([_logits(decoder, hidden[part], cb0_embed[part], forced[part]) for part in parts])
    assert trace.logits is not None
    return trace.logits
