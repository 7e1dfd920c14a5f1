"""The kernels of sampling give the bits of the law: log, noise, selection, order, and the code that is drawn."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite import ir
from numba import types
from small_models import same_bits

from cplab import arithmetic as basic
from cplab import arithmetic_sampling as law
from cplab.jit import intrinsic, jit
from cplab.kernels import plan as p
from cplab.kernels import sampling, vectors
from cplab.kernels.gumbel import gumbel

F = np.float32
U = np.uint64
RUNS = settings(max_examples=200, deadline=None, derandomize=True)


@intrinsic
def vector_log(typingctx, x, n):
    """``x = log(x)`` for n blocks of 16."""

    def generate(context, builder, signature, args):
        with vectors.counted(builder, args[1]) as k:
            at = builder.add(args[0], builder.mul(ir.Constant(vectors.I64, 64), k))
            vectors.store(builder, vectors.log(builder, vectors.load(builder, at)), at)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64), generate


@jit()
def logs(x, n):
    vector_log(x, n)


@jit()
def law_logs(x, y):
    for k in range(len(x)):
        y[k] = basic.log(x[k])


@jit()
def noise_of(seed, frame, codebook, codes, noise, n):
    gumbel(seed, frame, codebook, codes, noise, n)


@jit()
def edge_of(keys, count, k):
    return sampling.edge(keys, count, k)


def signed(word):
    return int(np.array(word, U).view(np.int64))


def at(array):
    return array.ctypes.data


def test_log_is_the_laws_for_patterns_over_the_whole_range():
    bits = np.arange(0, 2**32, 4099, dtype=np.uint64).astype(np.uint32)
    x = bits[: len(bits) // 16 * 16].view(F).copy()
    expected = np.empty_like(x)
    law_logs(x, expected)
    logs(at(x), len(x) // 16)
    assert same_bits(x, expected)
    assert np.isnan(x).any()
    assert np.isfinite(x).sum() > 500_000


@RUNS
@given(
    seed=st.integers(0, 2**64 - 1),
    frame=st.one_of(st.integers(0, 10), st.integers(0, 2**64 - 1)),
    codebook=st.integers(0, 31),
    start=st.integers(0, 4000),
)
def test_noise_is_the_laws(seed, frame, codebook, start):
    codes = np.random.default_rng(start).permutation(np.arange(start, start + 48)).astype(np.int32)
    noise = np.full(49, 5, F)
    noise_of(signed(seed), signed(frame), codebook, at(codes), at(noise), 3)
    expected = [law.gumbel(U(seed), U(frame), U(codebook), U(code)) for code in codes]
    assert same_bits(noise[:48], np.array(expected, F))
    assert noise[48] == 5


class Drawing:
    """`sampling.draw` on a plan that holds one frame's logits of two passes, with one word past the work space."""

    def __init__(self, logits, temperature=1.0, top_k=None, top_p=1.0, *, noise=None, seed=0, frame=0):
        vocab = logits.shape[-1]
        self.plan = np.zeros(p.SIZE, np.int64)
        self.logits = np.stack([np.full_like(logits, 9), logits])
        self.numbers = np.array([temperature, top_p], F)
        self.words = np.array([[seed], [frame]], U)
        size = sampling.work_bytes(vocab)
        self.work = np.full(64 + size + 64, 0xA5, np.uint8)
        self.noise = None if noise is None else np.stack([np.zeros_like(noise), noise])
        plan = self.plan
        plan[p.VOCAB], plan[p.PASSES] = vocab, 2
        plan[p.TOP_K] = vocab if top_k is None else top_k
        plan[p.LOGITS], plan[p.SAMPLING] = at(self.logits), at(self.numbers)
        plan[p.SEEDS], plan[p.FRAMES] = at(self.words[0]), at(self.words[1])
        plan[p.NOISE] = 0 if noise is None else at(self.noise)
        plan[p.PRIVATE], plan[p.PRIVATE_BYTES], plan[p.DRAWING_AT] = at(self.work), 1 << 40, 64

    def code(self):
        call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(sampling.draw.address)
        call(at(self.plan), 0, 1, 0)
        assert (self.work[:64] == 0xA5).all()
        assert (self.work[-64:] == 0xA5).all()
        return int(self.work[64:68].view(np.int32)[0])


def logits_of(kind, rng, vocab):
    """Logits of a kind that selection could stumble over."""
    x = rng.normal(0, 3, vocab)
    if kind == "ties":
        x = np.round(x)
    elif kind == "zeros":
        x = rng.choice([0.0, -0.0, 1.0, -1.0], vocab, p=[0.4, 0.4, 0.1, 0.1])
    elif kind == "equal":
        x = np.full(vocab, -2.5)
    elif kind == "wide":
        x *= 2.0 ** rng.integers(-40, 40, vocab)
    elif kind == "subnormal":
        x *= 2.0**-140
    elif kind == "neighbours":
        return (np.full(vocab, 1.5, F).view(np.int32) + rng.integers(-2, 3, vocab).astype(np.int32)).view(F)
    elif kind == "peak":
        x[rng.integers(vocab)] = 60
    return x.astype(F)


KINDS = ["plain", "ties", "zeros", "equal", "wide", "subnormal", "neighbours", "peak"]


@settings(RUNS, max_examples=400)
@given(
    kind=st.sampled_from(KINDS),
    vocab=st.sampled_from([16, 48, 256, 2048]),
    temperature=st.sampled_from([0.1, 0.9, 1.0, 1.5, 30.0]),
    share=st.sampled_from([0.0, 0.001, 0.03, 0.5, 0.999, 1.0]),
    top_p=st.sampled_from([1e-9, 0.1, 0.5, 0.9, 0.999, 1.0]),
    given_noise=st.booleans(),
    seed=st.integers(0, 2**64 - 1),
)
def test_a_drawn_code_is_the_laws(kind, vocab, temperature, share, top_p, given_noise, seed):
    rng = np.random.default_rng(seed)
    logits = logits_of(kind, rng, vocab)
    top_k = max(1, int(share * vocab))
    if given_noise:
        noise = np.round(rng.gumbel(size=vocab), rng.integers(0, 8)).astype(F)
    else:
        noise = np.empty(vocab, F)
        law.gumbel_row(U(seed), U(41), U(2), noise)
    drawing = Drawing(logits, temperature, top_k, top_p, noise=noise if given_noise else None, seed=seed, frame=41)
    assert drawing.code() == law.sample(logits, F(temperature), top_k, F(top_p), noise)


@pytest.mark.parametrize("top_k", [1, 2, 50, 255, 256])
@pytest.mark.parametrize("kind", KINDS)
def test_every_code_that_is_kept_can_be_drawn_and_no_other(kind, top_k):
    logits = logits_of(kind, np.random.default_rng(top_k), 256)
    kept = set(law.kept(logits, top_k, F(1)).tolist())
    assert len(kept) == top_k
    drawn = set()
    for code in range(256):
        noise = np.zeros(256, F)
        noise[code] = 1e20
        drawn.add(Drawing(logits, 1.0, top_k, noise=noise).code())
    assert kept - {int(np.argmax(logits))} <= drawn <= kept


@pytest.mark.parametrize("top_p", [0.01, 0.3, 0.9, 0.9999])
@pytest.mark.parametrize("kind", KINDS)
def test_the_nucleus_is_the_laws_code_for_code(kind, top_p):
    logits = logits_of(kind, np.random.default_rng(7), 256)
    kept = set(law.kept(logits, 256, F(top_p)).tolist())
    drawn = set()
    for code in range(256):
        noise = np.zeros(256, F)
        noise[code] = 1e20
        drawn.add(Drawing(logits, 1.0, None, top_p, noise=noise).code())
    assert kept - {int(np.argmax(logits))} <= drawn <= kept


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 17, 255])
def test_what_is_not_finite_is_no_code(bad, place):
    logits = np.zeros(256, F)
    logits[place] = bad
    assert Drawing(logits).code() == -1
    assert Drawing(np.full(256, 1e30, F), 1e-20).code() == -1


@RUNS
@given(keys=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=16, max_size=16), k=st.integers(1, 16))
def test_the_edge_is_reached_by_k_keys_or_is_the_kth(keys, k):
    array = np.array(keys, np.int32)
    edge = edge_of(at(array), 16, k)
    reached = int((array >= edge).sum())
    assert reached == k or (reached > k and edge == sorted(keys)[-k])
