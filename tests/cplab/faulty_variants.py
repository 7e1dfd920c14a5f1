"""Implementations that are wrong, each in one way that the field knows. The gate must find every one.

Most are the lab's own decoder with one number changed, so that everything else about them is right.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numba import njit, prange

from cplab import arithmetic as law
from cplab import arithmetic_sampling as sampling_law
from cplab.decoder import Decoder
from cplab.errors import NonFiniteLogitsError
from cplab.kernels import machine, stages, team
from cplab.kernels import plan as p
from cplab.model import Model
from cplab.oracle import Oracle
from cplab.sampling import Sampling, checked_draws
from cplab.variant import Trace, checked_inputs
from variants.numpy_f32 import NumpyPredictor


def wrong_theta(model: Model) -> Decoder:
    """RoPE base 1e4, the Python class's default, for the checkpoint's 1e6."""
    wrong = Model(model.name, replace(model.spec, rope_theta=1e4), model.tensors)
    return Decoder(wrong, 1, format="f32")


def position_off_by_one(model: Model) -> Decoder:
    """Positions after the two of the prefill are counted from one too low."""
    decoder = Decoder(model, 1, format="f32")
    table = decoder._arrays[p.ROPE]
    table[:, 2:] = table[:, 1:-1].copy()
    return decoder


def wrong_head(model: Model) -> Decoder:
    """Pass 1 uses the head of pass 0."""
    decoder = Decoder(model, 1, format="f32")
    first = model.spec.layers * p.MATRICES_PER_LAYER + 1
    decoder._arrays[p.MATRICES][first + 1] = decoder._arrays[p.MATRICES][first]
    return decoder


def embedding_off_by_one(model: Model) -> Decoder:
    """CB1 is looked up in the table of CB2."""
    decoder = Decoder(model, 1, format="f32")
    decoder._arrays[p.TABLES][0] = decoder._arrays[p.TABLES][1]
    return decoder


class Wrapped:
    """A right decoder with something done around it."""

    def __init__(self, model: Model) -> None:
        self.inner = Decoder(model, 1, format="f32")
        self.passes_per_frame = self.inner.passes_per_frame
        self.bytes_per_frame = self.inner.bytes_per_frame
        self.streams = self.inner.streams

    def predict(self, hidden, cb0_embed, *, forced=None, trace=None, noise=None):
        return self.inner.predict(hidden, cb0_embed, forced=forced, trace=trace, noise=noise)


class StaleCache(Wrapped):
    """Position 0 keeps the keys and values of the call before: the same as running it on that call's hidden state."""

    before = None

    def predict(self, hidden, cb0_embed, **options):
        stale = hidden if self.before is None or self.before.shape != hidden.shape else self.before
        self.before = hidden.copy()
        return super().predict(stale, cb0_embed, **options)


class PreviousResult(Wrapped):
    """Double-buffered the wrong way round: a call returns what the call before computed."""

    before = None

    def predict(self, hidden, cb0_embed, *, forced=None, trace=None, noise=None):
        mine = Trace()
        codes = super().predict(hidden, cb0_embed, forced=forced, trace=mine, noise=noise)
        result = (codes, mine.logits)
        given = result if self.before is None or self.before[0].shape != codes.shape else self.before
        self.before = result
        if trace is not None:
            trace.logits = given[1]
        return given[0]


class SaysNaN(Wrapped):
    """One logit of pass 1 is NaN, and argmax happens to pass it by."""

    def predict(self, hidden, cb0_embed, *, forced=None, trace=None, noise=None):
        mine = Trace()
        codes = super().predict(hidden, cb0_embed, forced=forced, trace=mine, noise=noise)
        mine.logits[:, 1, 5] = np.nan
        if trace is not None:
            trace.logits = mine.logits
        return codes


class WritesInputs(Wrapped):
    """Normalises its argument in place."""

    def predict(self, hidden, cb0_embed, **options):
        codes = super().predict(hidden, cb0_embed, **options)
        hidden *= np.float32(0.5)
        return codes


class OutOfRange(Wrapped):
    """Returns the index into a padded vocabulary."""

    def predict(self, hidden, cb0_embed, **options):
        return super().predict(hidden, cb0_embed, **options) + self.inner.model.spec.vocab


class Samples(Wrapped):
    """Changes how it is asked to draw; noise in an array stays as it is."""

    def predict(self, hidden, cb0_embed, *, noise=None, **options):
        if isinstance(noise, Sampling) and noise.seed is not None:
            noise = self.changed(noise, len(hidden))
        return super().predict(hidden, cb0_embed, noise=noise, **options)


class IgnoresSeed(Samples):
    """Draws from a generator of its own."""

    def changed(self, noise, frames):
        return replace(noise, seed=12345)


class SameSampleEachFrame(Samples):
    """Starts its generator anew in every frame."""

    def changed(self, noise, frames):
        return replace(noise, frame=[0] * frames)


class SameNoiseEachPass(Samples):
    """Draws all codebooks of a frame with the noise of the first."""

    def changed(self, noise, frames):
        spec = self.inner.model.spec
        draws = checked_draws(spec, noise, frames)
        rows = np.stack([[draws.row(b, 0, spec.vocab)] * spec.passes for b in range(frames)])
        return replace(noise, seed=None, noise=rows)


class IgnoresParameter(Samples):
    """Draws with one parameter's default, whatever is asked for."""

    def __init__(self, model: Model, name: str) -> None:
        super().__init__(model)
        self.changes = {name: getattr(Sampling(0), name)}

    def changed(self, noise, frames):
        return replace(noise, **self.changes)


class SampledGreedily(Samples):
    """Takes the arguments of sampling and the largest logit."""

    def changed(self, noise, frames):
        return None


class FeedsTheLargest(Samples):
    """Draws right codes, and feeds back the largest logit's."""

    def predict(self, hidden, cb0_embed, *, forced=None, noise=None, **options):
        if noise is not None and forced is None:
            forced = self.inner.predict(hidden, cb0_embed)
        return Wrapped.predict(self, hidden, cb0_embed, forced=forced, noise=noise, **options)


class HalfPrecisionFeedForward(NumpyPredictor):
    """Activations before down_proj are F16, as engines with F16 weights make them."""

    def _times(self, X, name):
        if name.endswith("down_proj.weight"):
            with np.errstate(over="ignore", invalid="ignore"):
                return super()._times(X.astype(np.float16).astype(np.float32), name)
        return super()._times(X, name)

    def predict(self, *arguments, **options):
        with np.errstate(invalid="ignore"):
            return super().predict(*arguments, **options)


@njit
def _get_mode() -> int:
    return machine.get_float_mode()


@njit
def _set_mode(mode: int) -> None:
    machine.set_float_mode(mode)


_DEFAULT = _get_mode()


class SplitReduction(Oracle):
    """Dot products are summed in as many parts as there are threads."""

    passes_per_frame = 2
    bytes_per_frame = 0

    def __init__(self, model: Model, threads: int) -> None:
        super().__init__(model)
        self.threads = threads

    def linear(self, name, x):
        if self.threads == 1:
            return super().linear(name, x)
        W = self.weights[name]
        cut = len(x) // 2 // 16 * 16
        return np.array([law.dot(row[:cut], x[:cut]) + law.dot(row[cut:], x[cut:]) for row in W], np.float32)

    def streams(self):
        return []

    def frames(self, hidden, cb0_embed, forced, noise):
        hidden, cb0_embed, forced = checked_inputs(self.model, hidden, cb0_embed, forced)
        draws = checked_draws(self.model.spec, noise, len(hidden))
        fed = [None] * len(hidden) if forced is None else forced
        drawn = [None if draws is None else draws[b : b + 1] for b in range(len(hidden))]
        return [self.frame(*one) for one in zip(hidden, cb0_embed, fed, drawn, strict=True)]

    def predict(self, hidden, cb0_embed, *, forced=None, trace=None, noise=None):
        before = _get_mode()
        _set_mode(_DEFAULT)
        try:
            frames = self.frames(hidden, cb0_embed, forced, noise)
        except NonFiniteLogitsError as error:
            raise error from None
        finally:
            _set_mode(before)
        if trace is not None:
            trace.logits = np.stack([f.logits for f in frames])
        return np.stack([f.codes for f in frames])


class TemperatureLast(SplitReduction):
    """Right in all else, top_k and top_p look at the logits before the temperature divides them."""

    def __init__(self, model: Model) -> None:
        super().__init__(model, 1)

    def code(self, g, logits, draws):
        if draws is None:
            return super().code(g, logits, draws)
        codes = sampling_law.kept(logits, draws.top_k, draws.top_p)
        return self.best(codes, logits / draws.temperature + draws.row(0, g, len(logits)))

    def best(self, codes, noisy):
        return min(codes, key=lambda code: (-noisy[code], code))


class TopPFirst(TemperatureLast):
    """top_p before top_k."""

    def code(self, g, logits, draws):
        if draws is None:
            return super().code(g, logits, draws)
        s = logits / draws.temperature
        codes = sampling_law.kept(s, len(s), draws.top_p)[: draws.top_k]
        return self.best(codes, s + draws.row(0, g, len(logits)))


class TemperedNoise(TemperatureLast):
    """The temperature divides the noise too."""

    def code(self, g, logits, draws):
        if draws is None:
            return super().code(g, logits, draws)
        codes = sampling_law.kept(logits / draws.temperature, draws.top_k, draws.top_p)
        return self.best(codes, (logits + draws.row(0, g, len(logits))) / draws.temperature)


@njit
def _racing_member(plan, m, members, keep_barrier, delay_ns):
    area = plan[p.TEAM]
    passed = 0
    clock = area + (5 + m) * 64
    if not team.all_here(plan, members, clock):
        return
    for g in range(plan[p.PASSES]):
        team.run_stage(plan, stages.INPUT, 0, g, m, members)
        passed = team.barrier(area, members, passed)
        for layer in range(plan[p.LAYERS]):
            for stage in range(stages.QKV, stages.HEAD):
                if stage == stages.QKV and m == 1:
                    until = machine.now_ns(plan[p.CLOCK], clock) + delay_ns
                    while machine.now_ns(plan[p.CLOCK], clock) < until:
                        machine.pause()
                team.run_stage(plan, stage, layer, g, m, members)
                if stage != stages.QKV or keep_barrier:
                    passed = team.barrier(area, members, passed)
        team.run_stage(plan, stages.HEAD, 0, g, m, members)
        passed = team.barrier(area, members, passed)
    team.run_stage(plan, stages.FINISH, 0, 0, m, members)


@njit(parallel=True)
def _racing_frame(plan, members, keep_barrier, delay_ns):
    for m in prange(members):
        mode = machine.get_float_mode()  # a member's thread may have been born under a caller's flush-to-zero
        machine.set_float_mode(machine.default_float_mode())
        _racing_member(plan, m, members, keep_barrier, delay_ns)
        machine.set_float_mode(mode)


class Race(Decoder):
    """Two members; the barrier between q/k/v and attention is gone, and member 1 is late with its share of q/k/v."""

    def __init__(self, model: Model, *, keep_barrier: bool, delay_ns: int = 300_000) -> None:
        super().__init__(model, 2, format="f32")
        self.keep_barrier, self.delay_ns = keep_barrier, delay_ns

    def _launch(self) -> None:
        self._arrays[p.QKV][:] = 0
        words = self._arrays[p.TEAM]
        for _ in range(50):  # on a busy machine a member may come too late, and then nothing was done
            words[:] = 0
            _racing_frame(self._plan, 2, self.keep_barrier, self.delay_ns)
            if words[team.DECISION // 8] == team.TOGETHER:
                return
        raise AssertionError("two threads never met in fifty tries")
