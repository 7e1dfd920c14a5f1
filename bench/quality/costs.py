"""What a recipe costs: bytes a frame, or milliseconds estimated from whole frames in each format."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Literal

from bench.quality.trials import Trials
from cplab.decoder import Decoder
from cplab.formats import format_named
from cplab.kernels.packing import row_bytes
from cplab.recipe import ALL, Recipe

#: Frames that a time is the median of, and those before that do not count.
_FRAMES, _WARMUP = 9, 2


class Costs:
    """What recipes cost; a sum over matrices, so that a search need not build each recipe to know.

    Args:
        trials: of the model.
        ms_of: milliseconds of a frame with every matrix in a format, "" for the model's own; None to count bytes. A
            matrix takes the share of them that it has of the bytes.
    """

    def __init__(self, trials: Trials, ms_of: Mapping[str, float] | None = None) -> None:
        self.unit: Literal["ms", "bytes"] = "bytes" if ms_of is None else "ms"
        self._trials = trials
        kinds = [""] if ms_of is None else list(ms_of)
        whole = {kind: sum(self._bytes(unit, kind) for unit in trials.units) for kind in kinds}
        self._rate = {kind: ms_of[kind] / whole[kind] for kind in kinds} if ms_of is not None else None

    def of(self, formats: Mapping[str, str]) -> float:
        """A recipe's cost, in ``unit``."""
        recipe = Recipe(formats)
        total = 0.0
        for unit, names in self._trials.units.items():
            kind = recipe.of(names[0])
            name = "" if kind is None else kind.name
            total += self._bytes(unit, name) * (1.0 if self._rate is None else self._rate[name])
        return total

    def _bytes(self, unit: str, kind: str) -> int:
        """Bytes that a frame streams of one matrix."""
        model = self._trials.model
        tensors = [model.tensors[name] for name in self._trials.units[unit]]
        times = 1 if unit.startswith("heads.") else model.spec.passes
        held = [format_named(kind) if kind else tensor.format for tensor in tensors]
        each = zip(tensors, held, strict=True)
        return times * sum(tensor.shape[0] * row_bytes(of, tensor.shape[1]) for tensor, of in each)


def frame_ms(decoders: Sequence[Decoder], trials: Trials) -> list[float]:
    """Median milliseconds of a frame with each, in turns, so that what the machine does meanwhile touches all."""
    truth = trials.truth
    samples: list[list[int]] = [[] for _ in decoders]
    for turn in range(_WARMUP + _FRAMES):
        part = slice(turn % len(truth), turn % len(truth) + 1)
        for decoder, times in zip(decoders, samples, strict=True):
            began = time.perf_counter_ns()
            decoder.predict(truth.hidden[part], truth.cb0_embed[part])
            times.append(time.perf_counter_ns() - began)
    return [statistics.median(times[_WARMUP:]) / 1e6 for times in samples]


def measured_costs(trials: Trials, formats: Sequence[str]) -> Costs:
    """Costs in milliseconds on this machine, on the trials' threads."""
    kinds = ["", *formats]
    decoders = [trials.decoder({ALL: kind} if kind else {}) for kind in kinds]
    return Costs(trials, dict(zip(kinds, frame_ms(decoders, trials), strict=True)))
