"""The layer pipeline that the lab's own variants share, parameterised by weight format and by KV cache or recompute.

Set-up packs every matrix once, into one block of memory in the order in which a pass streams it (huge pages where the
system grants them), and fills the plan that compiled code runs by. ``predict`` then crosses into compiled code once a
frame.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from cplab.constants import attention_scale
from cplab.errors import (
    BadInputError,
    ForkedTeamError,
    NonFiniteActivationError,
    NonFiniteLogitsError,
    ThreadsUnavailableError,
)
from cplab.formats import STORED, format_named
from cplab.kernels import compiling as kernels
from cplab.kernels import plan as p
from cplab.kernels import sampling, stages, team, units
from cplab.kernels.packing import columns_padded, row_bytes
from cplab.kernels.quantised_lines import KINDS, STEP
from cplab.kernels.quantised_scales import RECORD_BYTES
from cplab.laps import PARTS, Laps
from cplab.model import Model
from cplab.rope import rope_table
from cplab.sampling import Draws, Noise, checked_draws
from cplab.spec import Spec
from cplab.streamed_weights import StreamedWeights, norms
from cplab.tuning import found_distance, tuning_key
from cplab.variant import Trace, WeightStream, checked_inputs

#: Frames that share the weights of a pass.
MAX_BATCH = 8
_ALIGN = 64
_FORKED = (
    "this process is a fork of one that had its predictor or thread team already, and neither can be used here: "
    "load it in the child before the parent uses one, or start children with multiprocessing's 'spawn' method"
)
#: The process in which the thread pool was started, if any.
_team_started_in: int | None = None


class Decoder:
    """A code predictor over the lab's kernels; see `cplab.variant.CodePredictor` for the contract.

    Args:
        model: the weights.
        threads: team size, 1 or more.
        format: a name of `cplab.formats`, or ``stored``: each matrix in the format that the model has it in.
        recompute: run all positions through the layers in every pass, as an engine without a KV cache does.
        ahead_bytes: prefetch distance; changes times, never bits. Default: what `cplab.tuning` found on this machine,
            or four rows of the residual's width, which is what a one-token tile reads next.
    """

    #: Tokens of each frame that the first pass of a KV-cached frame runs at most.
    most_tokens = 2
    #: Frames that one call into compiled code takes at most; a larger batch is cut.
    frames_at_once = MAX_BATCH

    def __init__(
        self, model: Model, threads: int, *, format: str, recompute: bool = False, ahead_bytes: int | None = None
    ) -> None:
        require_threads(threads)
        kernels.compile_all()
        spec = model.spec
        if any(n % 32 for n in (spec.hidden, spec.intermediate, spec.head_dim, spec.talker_hidden)):
            raise BadInputError(f"the kernels need widths that are multiples of 32: {spec}")
        self.model, self.threads, self.recompute = model, threads, recompute
        chosen = None if format == STORED else format_named(format)
        self.passes_per_frame = spec.passes
        self._together = True
        self._pid = os.getpid()
        self._weights = StreamedWeights(model, chosen)
        self.engine_note = self._weights.note
        self.bytes_per_frame = sum(s.rows * s.row_bytes for s in self.streams())
        self._codes = {kind.code for kind in self._weights.kinds}
        self._plan = np.zeros(p.SIZE, np.int64)
        self._arrays: dict[int, NDArray[Any]] = {}
        self._describe(spec)
        held = format if chosen else f"{format} ({self.bytes_per_frame} bytes a frame)"
        self.tuning_key = tuning_key(held, threads, spec)
        widest = max(row_bytes(kind, spec.hidden) for kind in self._weights.kinds)
        self.ahead_bytes = ahead_bytes or found_distance(self.tuning_key) or 4 * widest
        self._batch = 0
        self._reserve(1)

    def predict(
        self,
        hidden: NDArray[np.float32],
        cb0_embed: NDArray[np.float32],
        *,
        forced: NDArray[np.int32] | None = None,
        trace: Trace | None = None,
        noise: Noise | None = None,
    ) -> NDArray[np.int32]:
        """See `cplab.variant.CodePredictor.predict`.

        Raises:
            ForkedTeamError: this process is a fork of the one that made the predictor.
        """
        hidden, cb0_embed, forced = checked_inputs(self.model, hidden, cb0_embed, forced)
        draws = checked_draws(self.model.spec, noise, len(hidden))
        require_process(self._pid)
        codes = np.empty((len(hidden), self.model.spec.passes), np.int32)
        logits = []
        pass_ns = np.zeros(self.model.spec.passes, np.int64)
        # A recomputing pass already fills the tiles with the positions of one frame.
        step = 1 if self.recompute else self.frames_at_once
        for at in range(0, len(hidden), step):
            part = slice(at, at + step)
            fed = None if forced is None else forced[part]
            codes[part] = self._run(hidden[part], cb0_embed[part], fed, None if draws is None else draws[part], at)
            if trace is not None:
                logits.append(self._arrays[p.LOGITS].copy())
                pass_ns += np.diff(self._arrays[p.TIMES])
        if trace is not None:
            trace.logits = np.concatenate(logits)
            trace.pass_ns = pass_ns
        return codes

    def profile(self, hidden: NDArray[np.float32], cb0_embed: NDArray[np.float32]) -> Laps:
        """``predict`` of one frame with the lap timer on; see `cplab.laps.TellsLaps`."""
        if len(hidden) > 1:
            raise BadInputError(f"one frame is profiled at a time; hidden has {len(hidden)}")
        ns = np.zeros((self.threads, self.model.spec.passes, len(PARTS)), np.int64)
        self._plan[p.TRACE] = ns.ctypes.data
        try:
            codes = self.predict(hidden, cb0_embed)
        finally:
            self._plan[p.TRACE] = 0
        return Laps(codes, ns, np.diff(self._arrays[p.TIMES]), self._part_bytes())

    def streams(self) -> list[WeightStream]:
        """The matrices of one frame in reading order: layers, then a head, for every pass."""
        layers, heads = self._weights.layer_streams, self._weights.head_streams
        projection = self._weights.projection_stream
        return [s for head in heads for s in (*projection, *layers, head)]

    @property
    def ahead_bytes(self) -> int:
        """Prefetch distance of the weight streams, bytes; may be set between calls."""
        return int(self._plan[p.AHEAD])

    @ahead_bytes.setter
    def ahead_bytes(self, distance: int) -> None:
        self._plan[p.AHEAD] = distance

    @property
    def runs_in_one_region(self) -> bool:
        """False once the threading layer has shown that it does not run a team's members at the same time."""
        return self._together

    def _run(
        self,
        hidden: NDArray[np.float32],
        cb0: NDArray[np.float32],
        forced: NDArray[np.int32] | None,
        draws: Draws | None,
        first: int,
    ) -> NDArray[np.int32]:
        self._prepare(hidden, cb0, forced, draws)
        self._launch()
        self._raise_trouble(first)
        return self._arrays[p.CODES].copy()

    def _prepare(
        self,
        hidden: NDArray[np.float32],
        cb0: NDArray[np.float32],
        forced: NDArray[np.int32] | None,
        draws: Draws | None,
    ) -> None:
        """Say in the plan what the next call's frames are; the arrays outlive the call."""
        self._reserve(len(hidden))
        plan = self._plan
        plan[p.HIDDEN_IN], plan[p.CB0_IN] = hidden.ctypes.data, cb0.ctypes.data
        plan[p.IS_FORCED] = forced is not None
        plan[p.FORCED] = 0 if forced is None else forced.ctypes.data
        plan[p.SAMPLED] = draws is not None
        if draws is not None:
            self._point_at_draws(draws)
        self._arrays[p.STATUS][:] = p.NO_TROUBLE

    def _point_at_draws(self, draws: Draws) -> None:
        """Say in the plan how codes are drawn; ``draws`` outlives the call."""
        plan = self._plan
        plan[p.TOP_K] = draws.top_k
        self._arrays[p.SAMPLING][:] = draws.temperature, draws.top_p
        plan[p.SEEDS], plan[p.FRAMES] = draws.seeds.ctypes.data, draws.frames.ctypes.data
        plan[p.NOISE] = 0 if draws.noise is None else draws.noise.ctypes.data

    def _raise_trouble(self, first: int) -> None:
        """Raise for the first value of the call that was not finite, if there was one."""
        found = int(self._arrays[p.STATUS][0])
        if found != p.NO_TROUBLE:
            pass_index, frame, kind = found >> 32, (found & 0xFFFFFFFF) >> 1, found & 1
            raise (NonFiniteLogitsError if kind else NonFiniteActivationError)(first + frame, pass_index)

    def _launch(self) -> None:
        if self.threads == 1:
            team.frame_alone(self._plan)
            return
        with team_of(self.threads):
            if self._together:
                words = self._arrays[p.TEAM]
                words[:] = 0
                team.frame_together(self._plan, self.threads)
                self._together = int(words[team.DECISION // 8]) == team.TOGETHER
            if not self._together:
                team.frame_apart(self._plan, self.threads)

    def _describe(self, spec: Spec) -> None:
        plan = self._plan
        plan[p.HIDDEN], plan[p.INTERMEDIATE], plan[p.LAYERS] = spec.hidden, spec.intermediate, spec.layers
        plan[p.HEADS], plan[p.KV_HEADS], plan[p.HEAD_DIM] = spec.heads, spec.kv_heads, spec.head_dim
        plan[p.VOCAB], plan[p.PASSES], plan[p.POSITIONS] = spec.vocab, spec.passes, spec.positions
        plan[p.TALKER_HIDDEN], plan[p.PROJECTED] = spec.talker_hidden, spec.projected
        plan[p.RECOMPUTE], plan[p.CLOCK] = self.recompute, time.CLOCK_MONOTONIC
        plan[p.UNIT_CODE], plan[p.STAGE_CODE] = units.unit.address, stages.run_stage.address
        plan[p.DRAW_CODE] = sampling.draw.address
        self._point(p.MATRICES, self._weights.matrices)
        self._point(p.NORMS, norms(self.model))
        self._point(p.TABLES, self._weights.tables)
        self._point(p.ROPE, rope_table(spec))
        self._point(p.NUMBERS, np.array([spec.rms_eps, attention_scale(spec.head_dim)], np.float32))
        bias = "small_to_mtp_projection.bias"
        self._point(p.BIAS, self.model.f32(bias) if spec.projected else np.zeros(spec.hidden, np.float32))
        self._point(p.SAMPLING, np.zeros(2, np.float32))
        self._point(p.STATUS, np.zeros(1, np.int64))
        self._point(p.TIMES, np.zeros(spec.passes + 1, np.int64))
        self._point(p.LAYER_TIMES, np.zeros((spec.passes, 2), np.int64))
        self._point(p.DRAFTED, np.zeros((4, spec.passes), np.int64))
        self._point(p.DRAFT_TIMES, np.zeros((spec.passes, 3), np.int64))
        self._point(p.DRAFTS, np.zeros((spec.passes, spec.passes), np.int32))
        self._point(p.OFFSETS, np.zeros((spec.passes, 0, spec.hidden), np.float32))
        self._point(p.TEAM, _aligned(8 * (5 + self.threads), np.int64))

    def _part_bytes(self) -> NDArray[np.int64]:
        """``[parts]``: bytes that each part of the latest frame streamed."""
        return self._weights.part_bytes(self.model.spec.passes)

    def _reserve(self, B: int) -> None:
        """Buffers for a batch of exactly B frames."""
        if self._batch == B:
            return
        self._batch = 0  # until all of them are there: an interruption must not leave some too small
        spec = self.model.spec
        T = B * (spec.positions if self.recompute else self.most_tokens)
        cache = spec.layers * B * spec.kv_heads * spec.positions * spec.head_dim
        sizes = {
            p.INPUTS: B * spec.positions * spec.hidden,
            p.RESIDUAL: spec.hidden * T,
            p.QKV: (spec.q_rows + 2 * spec.kv_rows) * T,
            p.ATTENDED: spec.q_rows * T,
            p.GATED: spec.intermediate * T,
            p.KEYS: cache,
            p.VALUES: cache,
        }
        for index, size in sizes.items():
            self._point(index, _aligned(size, np.float32))
        for index, n in ((p.ATTENDED_QUANTS, spec.q_rows), (p.GATED_QUANTS, spec.intermediate)):
            self._point(index, _aligned(self._records_bytes(n, T), np.uint8))
        # A query head and its scores fit in the space of a member's own panel.
        widest = max(spec.hidden, spec.talker_hidden)
        scores = spec.head_dim + (spec.positions + 15) // 16 * 16
        panel, scratch = 4 * max(widest * T, scores), 4 * 2 * 16 * T
        drawing = sampling.work_bytes(spec.vocab)
        parts = [_round_up(size) for size in (panel, scratch, self._records_bytes(widest, T), drawing)]
        self._point(p.PRIVATE, _aligned(sum(parts) * self.threads, np.uint8))
        self._plan[p.SCRATCH_AT], self._plan[p.QUANTS_AT] = parts[0], parts[0] + parts[1]
        self._plan[p.DRAWING_AT] = sum(parts[:3])
        self._plan[p.PRIVATE_BYTES] = sum(parts)
        self._point(p.LOGITS, _aligned(B * spec.passes * spec.vocab, np.float32).reshape(B, spec.passes, spec.vocab))
        self._point(p.CODES, np.zeros((B, spec.passes), np.int32))
        self._plan[p.BATCH] = self._batch = B

    def _records_bytes(self, n: int, T: int) -> int:
        """Bytes of a panel of n quantised activations; 0 where no matrix takes any."""
        columns = max((columns_padded(code, n) for code in self._codes if code in KINDS), default=0)
        return columns // STEP * T * RECORD_BYTES

    def _point(self, index: int, array: NDArray[Any]) -> None:
        self._arrays[index] = array
        self._plan[index] = array.ctypes.data


def _aligned(count: int, dtype: Any) -> NDArray[Any]:
    """Zeros that start on a cache line."""
    itemsize = np.dtype(dtype).itemsize
    raw = np.zeros(count * itemsize + _ALIGN, np.uint8)
    skip = -raw.ctypes.data % _ALIGN
    return raw[skip : skip + count * itemsize].view(dtype)


def _round_up(size: int) -> int:
    return (size + _ALIGN - 1) // _ALIGN * _ALIGN


@contextmanager
def team_of(threads: int) -> Iterator[None]:
    """A thread pool of that size for a parallel region; from then on no fork of this process can have one."""
    global _team_started_in
    _team_started_in = os.getpid()
    before = numba.get_num_threads()
    numba.set_num_threads(threads)
    try:
        yield
    finally:
        numba.set_num_threads(before)


def require_process(made_in: int) -> None:
    """Raise ForkedTeamError where this process is a fork of the one, by its id, in which a predictor was made."""
    if os.getpid() != made_in:
        raise ForkedTeamError(_FORKED)


def require_threads(threads: int) -> None:
    """Raise unless this process can have a team of that size.

    Raises:
        BadInputError: fewer than one.
        ThreadsUnavailableError: more than numba's pool, which is sized once, before numba is imported.
        ForkedTeamError: the pool belongs to the process that this one was forked from.
    """
    if threads < 1:
        raise BadInputError(f"threads is {threads}; at least 1 is wanted")
    if threads > 1 and _team_started_in not in (None, os.getpid()):
        raise ForkedTeamError(_FORKED)
    limit = numba.config.NUMBA_NUM_THREADS
    if threads > limit:
        raise ThreadsUnavailableError(
            f"{threads} threads wanted, this process's pool has {limit}: set NUMBA_NUM_THREADS={threads} "
            "before Python starts"
        )
