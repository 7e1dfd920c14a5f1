"""The layer pipeline that the lab's own variants share, parameterised by weight format and by KV cache or recompute.

Set-up packs every matrix once, into one block of memory in the order in which a pass streams it (huge pages where the
system grants them), and fills the plan that compiled code runs by. ``predict`` then crosses into compiled code once a
frame.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from cplab.constants import attention_scale
from cplab.errors import BadInputError, ForkedTeamError, NonFiniteLogitsError, ThreadsUnavailableError
from cplab.formats import Format, format_named
from cplab.kernels import compiling as kernels
from cplab.kernels import plan as p
from cplab.kernels import rows, stages, team
from cplab.model import Model
from cplab.rope import rope_table
from cplab.spec import Spec
from cplab.variant import Trace, WeightStream, checked_inputs

#: Frames that one call into compiled code takes at most; a larger batch is cut.
MAX_BATCH = 8
_ALIGN = 64
_FORKED = (
    "this process is a fork of one that had its predictor or thread team already, and neither can be used here: "
    "load it in the child before the parent uses one, or start children with multiprocessing's 'spawn' method"
)
#: The process in which the thread pool was started, if any.
_team_started_in: int | None = None
_HUGE = 2 << 20


class Decoder:
    """A code predictor over the lab's kernels; see `cplab.variant.CodePredictor` for the contract.

    Args:
        model: the weights.
        threads: team size, 1 or more.
        format: a name of `cplab.formats`.
        recompute: run all positions through the layers in every pass, as an engine without a KV cache does.
        ahead_bytes: prefetch distance; changes times, never bits. Default: four rows of the residual's width, which
            is what a one-token tile reads next.
    """

    def __init__(
        self, model: Model, threads: int, *, format: str, recompute: bool = False, ahead_bytes: int | None = None
    ) -> None:
        require_threads(threads)
        kernels.compile_all()
        spec = model.spec
        if any(n % 32 for n in (spec.hidden, spec.intermediate, spec.head_dim, spec.talker_hidden)):
            raise BadInputError(f"the kernels need widths that are multiples of 32: {spec}")
        self.model, self.threads, self.recompute = model, threads, recompute
        self.format = format_named(format)
        self.passes_per_frame = spec.passes
        self._together = True
        self._pid = os.getpid()
        self._weights = _Weights(model, self.format)
        self.bytes_per_frame = sum(s.rows * s.row_bytes for s in self.streams())
        self._plan = np.zeros(p.SIZE, np.int64)
        self._arrays: dict[int, NDArray[Any]] = {}
        self._describe(spec, ahead_bytes or 4 * spec.hidden * self.format.storage.itemsize)
        self._batch = 0
        self._reserve(1)

    def predict(
        self,
        hidden: NDArray[np.float32],
        cb0_embed: NDArray[np.float32],
        *,
        forced: NDArray[np.int32] | None = None,
        trace: Trace | None = None,
        noise: NDArray[np.float32] | None = None,
    ) -> NDArray[np.int32]:
        """See `cplab.variant.CodePredictor.predict`.

        Raises:
            ForkedTeamError: this process is a fork of the one that made the predictor.
        """
        hidden, cb0_embed, forced = checked_inputs(self.model, hidden, cb0_embed, forced, noise)
        if os.getpid() != self._pid:
            raise ForkedTeamError(_FORKED)
        codes = np.empty((len(hidden), self.model.spec.passes), np.int32)
        logits = []
        pass_ns = np.zeros(self.model.spec.passes, np.int64)
        # A recomputing pass already fills the tiles with the positions of one frame.
        step = 1 if self.recompute else MAX_BATCH
        for at in range(0, len(hidden), step):
            part = slice(at, at + step)
            codes[part] = self._run(hidden[part], cb0_embed[part], None if forced is None else forced[part], at)
            if trace is not None:
                logits.append(self._arrays[p.LOGITS].copy())
                pass_ns += np.diff(self._arrays[p.TIMES])
        if trace is not None:
            trace.logits = np.concatenate(logits)
            trace.pass_ns = pass_ns
        return codes

    def streams(self) -> list[WeightStream]:
        """The matrices of one frame in reading order: layers, then a head, for every pass."""
        layers, heads = self._weights.layer_streams, self._weights.head_streams
        projection = self._weights.projection_stream
        return [s for head in heads for s in (*projection, *layers, head)]

    @property
    def runs_in_one_region(self) -> bool:
        """False once the threading layer has shown that it does not run a team's members at the same time."""
        return self._together

    def _run(
        self, hidden: NDArray[np.float32], cb0: NDArray[np.float32], forced: NDArray[np.int32] | None, first: int
    ) -> NDArray[np.int32]:
        self._reserve(len(hidden))
        plan = self._plan
        plan[p.HIDDEN_IN], plan[p.CB0_IN] = hidden.ctypes.data, cb0.ctypes.data
        plan[p.IS_FORCED] = forced is not None
        plan[p.FORCED] = 0 if forced is None else forced.ctypes.data
        self._arrays[p.STATUS][:] = -1
        self._launch()
        frame, pass_index = (int(n) for n in self._arrays[p.STATUS])
        if frame >= 0:
            raise NonFiniteLogitsError(first + frame, pass_index)
        return self._arrays[p.CODES].copy()

    def _launch(self) -> None:
        if self.threads == 1:
            team.frame_alone(self._plan)
            return
        global _team_started_in
        _team_started_in = os.getpid()
        before = numba.get_num_threads()
        numba.set_num_threads(self.threads)
        try:
            if self._together:
                words = self._arrays[p.TEAM]
                words[:] = 0
                team.frame_together(self._plan, self.threads)
                self._together = int(words[team.DECISION // 8]) == team.TOGETHER
            if not self._together:
                team.frame_apart(self._plan, self.threads)
        finally:
            numba.set_num_threads(before)

    def _describe(self, spec: Spec, ahead_bytes: int) -> None:
        plan = self._plan
        plan[p.HIDDEN], plan[p.INTERMEDIATE], plan[p.LAYERS] = spec.hidden, spec.intermediate, spec.layers
        plan[p.HEADS], plan[p.KV_HEADS], plan[p.HEAD_DIM] = spec.heads, spec.kv_heads, spec.head_dim
        plan[p.VOCAB], plan[p.PASSES], plan[p.POSITIONS] = spec.vocab, spec.passes, spec.positions
        plan[p.TALKER_HIDDEN], plan[p.PROJECTED] = spec.talker_hidden, spec.projected
        plan[p.RECOMPUTE], plan[p.AHEAD], plan[p.CLOCK] = self.recompute, ahead_bytes, time.CLOCK_MONOTONIC
        plan[p.UNIT_CODE], plan[p.STAGE_CODE] = rows.unit.address, stages.run_stage.address
        self._point(p.MATRICES, self._weights.matrices)
        self._point(p.NORMS, _norms(self.model))
        self._point(p.TABLES, self._weights.tables)
        self._point(p.ROPE, rope_table(spec))
        self._point(p.NUMBERS, np.array([spec.rms_eps, attention_scale(spec.head_dim)], np.float32))
        bias = "small_to_mtp_projection.bias"
        self._point(p.BIAS, self.model.f32(bias) if spec.projected else np.zeros(spec.hidden, np.float32))
        self._point(p.STATUS, np.zeros(2, np.int64))
        self._point(p.TIMES, np.zeros(spec.passes + 1, np.int64))
        self._point(p.TEAM, _aligned(8 * (5 + self.threads), np.int64))

    def _reserve(self, B: int) -> None:
        """Buffers for a batch of exactly B frames."""
        if self._batch == B:
            return
        self._batch = 0  # until all of them are there: an interruption must not leave some too small
        spec = self.model.spec
        T = B * (spec.positions if self.recompute else 2)
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
        # A member's own panel and two [T][16] blocks; a query head and its scores fit in the same space.
        panel = max(spec.hidden, spec.talker_hidden) * T + 2 * 16 * T
        scores = spec.head_dim + (spec.positions + 15) // 16 * 16
        private = (max(panel, scores) + 31) // 32 * 32
        self._point(p.PRIVATE, _aligned(private * self.threads, np.float32))
        self._plan[p.PRIVATE_BYTES] = 4 * private
        self._point(p.LOGITS, _aligned(B * spec.passes * spec.vocab, np.float32).reshape(B, spec.passes, spec.vocab))
        self._point(p.CODES, np.zeros((B, spec.passes), np.int32))
        self._plan[p.BATCH] = self._batch = B

    def _point(self, index: int, array: NDArray[Any]) -> None:
        self._arrays[index] = array
        self._plan[index] = array.ctypes.data


class _Weights:
    """All matrices packed into one block of memory, and the tables by which compiled code finds them."""

    def __init__(self, model: Model, kind: Format) -> None:
        spec = model.spec
        with ThreadPoolExecutor(2) as pool:  # numpy lets go of Python's lock while it converts
            parts = list(pool.map(lambda pack: pack(), _matrices_in_order(model, kind)))
        total = sum(_round_up(sum(a.nbytes for a in arrays)) for arrays in parts)
        self._memory, start = _huge_block(total)
        rows_of = []
        at = 0
        for arrays in parts:
            for array in arrays:
                raw = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
                self._memory[at : at + raw.size] = raw
                at += raw.size
            at = _round_up(at)
        streams = []
        offset = 0
        for arrays in parts:
            rows = sum(len(a) for a in arrays)
            row_bytes = arrays[0].strides[0] if arrays else 0
            streams.append(WeightStream(start + offset, rows, row_bytes))
            rows_of.append((start + offset, kind.code, row_bytes))
            offset += _round_up(sum(a.nbytes for a in arrays))
        count = spec.layers * p.MATRICES_PER_LAYER
        self.layer_streams = streams[:count]
        self.projection_stream = streams[count : count + 1] if spec.projected else []
        self.head_streams = streams[count + 1 :]
        self.matrices = np.array(rows_of, np.int64)
        self._embeddings = [model.tensors[f"model.codec_embedding.{g}.weight"] for g in range(spec.passes)]
        found = [(t.data.ctypes.data, t.format.code, t.data.strides[0]) for t in self._embeddings]
        self.tables = np.array(found, np.int64)


def _matrices_in_order(model: Model, kind: Format) -> Iterator[Callable[[], list[NDArray[Any]]]]:
    """What packs each matrix of `plan.MATRICES`, as one or several arrays of rows; none where a model has no such."""

    def packed(name: str) -> NDArray[Any]:
        return model.tensors[f"{name}.weight"].packed(kind)

    def together(*names: str) -> Callable[[], list[NDArray[Any]]]:
        return lambda: [packed(name) for name in names]

    def interleaved(*names: str) -> Callable[[], list[NDArray[Any]]]:
        """Units of 16 rows, in turn from each."""

        def pack() -> list[NDArray[Any]]:
            matrices = [packed(name) for name in names]
            columns = matrices[0].shape[1]
            return [np.stack([m.reshape(-1, 16, columns) for m in matrices], 1).reshape(-1, columns)]

        return pack

    for layer in range(model.spec.layers):
        at = f"model.layers.{layer}."
        yield together(*(f"{at}self_attn.{x}_proj" for x in "qkv"))
        yield together(f"{at}self_attn.o_proj")
        yield interleaved(f"{at}mlp.gate_proj", f"{at}mlp.up_proj")
        yield together(f"{at}mlp.down_proj")
    yield together(*(["small_to_mtp_projection"] if model.spec.projected else []))
    for g in range(model.spec.passes):
        yield together(f"lm_head.{g}")


def _norms(model: Model) -> NDArray[np.float32]:
    """Norm weights in the order of `plan.NORMS`."""
    names = ("input_layernorm", "self_attn.q_norm", "self_attn.k_norm", "post_attention_layernorm")
    parts = [model.f32(f"model.layers.{n}.{name}.weight") for n in range(model.spec.layers) for name in names]
    return np.concatenate([*parts, model.f32("model.norm.weight")])


def _round_up(size: int) -> int:
    return (size + _ALIGN - 1) // _ALIGN * _ALIGN


def _huge_block(size: int) -> tuple[NDArray[np.uint8], int]:
    """Memory on huge pages where the system grants them (Linux, ``madvise``), and its address."""
    block = mmap.mmap(-1, size + _HUGE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages: slower, never wrong
            block.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(block, np.uint8)
    skip = -whole.ctypes.data % _HUGE
    memory = whole[skip : skip + size]
    return memory, memory.ctypes.data


def _aligned(count: int, dtype: Any) -> NDArray[Any]:
    """Zeros that start on a cache line."""
    itemsize = np.dtype(dtype).itemsize
    raw = np.zeros(count * itemsize + _ALIGN, np.uint8)
    skip = -raw.ctypes.data % _ALIGN
    return raw[skip : skip + count * itemsize].view(dtype)


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
