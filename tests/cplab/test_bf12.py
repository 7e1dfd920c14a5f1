"""BF16 packed to 12 bits: every pattern comes back, a row's window is the best there is, and the kernel has the law's
bits whatever rows hold."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from instruction_sets import TARGETS, X86
from rich.console import Console
from small_models import same_bits, with_tensors

from cplab import arithmetic as law
from cplab.__main__ import app
from cplab.commandline import run
from cplab.errors import BadInputError
from cplab.formats import FORMATS, bf12, bf12_packing
from cplab.gating import gate_cell
from cplab.jit import has_feature
from cplab.kernels import bf12_units, packing, units
from cplab.kernels.vectors import BF12_CODE, BF16_CODE
from cplab.packing_report import exponent_entropy, narrower_bits, packings
from cplab.sources import load_model
from cplab.variant import get_variant

F = np.float32
BF12, BF16 = FORMATS["bf12"], FORMATS["bf16"]
EVERY = np.arange(1 << 16, dtype=np.uint16)
RUNS = settings(max_examples=80, deadline=None, derandomize=True)


def gaussian(rng, n):
    return BF16.pack(rng.normal(0, 0.02, n).astype(F))


#: Rows of BF16 words: what weights look like, and what they never should.
ROWS = {
    "gaussian": gaussian,
    "any bits": lambda rng, n: rng.integers(0, 1 << 16, n, dtype=np.uint16),
    "zeros of both signs": lambda rng, n: rng.choice(np.array([0, 0x8000], np.uint16), n),
    "denormals": lambda rng, n: (
        rng.integers(0, 0x80, n, dtype=np.uint16) | rng.choice([0, 0x8000], n).astype(np.uint16)
    ),
    "nan and infinity": lambda rng, n: rng.integers(0x7F80, 0x8000, n, dtype=np.uint16),
    "half zeros": lambda rng, n: np.where(rng.random(n) < 0.5, gaussian(rng, n), 0).astype(np.uint16),
    "two sizes": lambda rng, n: np.where(rng.random(n) < 0.5, gaussian(rng, n), gaussian(rng, n) - (40 << 7)),
    "tails": lambda rng, n: np.where(rng.random(n) < 0.99, gaussian(rng, n), rng.integers(0, 0x3C00, n)),
    "largest": lambda rng, n: rng.integers(0x7F00, 0x7F80, n, dtype=np.uint16),
}
#: Those whose products and sums stay numbers.
FINITE = ["gaussian", "zeros of both signs", "denormals", "half zeros", "two sizes", "tails"]


def rows_of(kinds, seed, n):
    rng = np.random.default_rng(seed)
    return np.stack([np.asarray(ROWS[kind](rng, n), np.uint16) for kind in kinds])


# -- the format -------------------------------------------------------------------------------------------------------


def test_every_pattern_survives_with_its_payload():
    back = BF12.pack(BF16.unpack(EVERY))
    np.testing.assert_array_equal(back, EVERY)
    np.testing.assert_array_equal(BF12.unpack(back).view(np.uint32), EVERY.astype(np.uint32) << 16)
    among_others = np.append(BF16.unpack(EVERY), F(1 / 3))  # one that must be rounded
    np.testing.assert_array_equal(BF12.pack(among_others)[:-1], EVERY)


def test_what_bf16_rounds_is_rounded_alike():
    x = np.random.default_rng(1).integers(0, 2**32, 20000, dtype=np.uint32).view(F)
    x = x[~np.isnan(x)]
    np.testing.assert_array_equal(BF12.pack(x), BF16.pack(x))
    nan = np.array([0x7F800001, 0xFF80FFFF], np.uint32).view(F)  # payloads that BF16 has no place for
    assert np.isnan(BF12.unpack(BF12.pack(nan))).all()


@pytest.mark.parametrize("order", [bf12.IN_TURN, bf12_units.ORDER], ids=["in turn", "as kernels want it"])
@pytest.mark.parametrize("n", [64, 1024, 65536])
def test_every_pattern_survives_the_planes(order, n):
    words = np.random.default_rng(n).permutation(EVERY).reshape(-1, n)
    np.testing.assert_array_equal(bf12_packing.words(bf12_packing.planes(words, order), n, order), words)


def test_an_exception_can_stand_in_the_last_column_that_has_a_number_and_no_further():
    words = np.full((1, bf12.PLACES), 0x3F80, np.uint16)
    words[0, -1] = 0x8000
    packed = bf12_packing.planes(words)
    np.testing.assert_array_equal(bf12_packing.words(packed, bf12.PLACES), words)
    with pytest.raises(ValueError, match="rows of 65537 columns"):
        bf12_packing.planes(np.zeros((1, bf12.PLACES + 1), np.uint16))


@RUNS
@given(
    kinds=st.lists(st.sampled_from(list(ROWS)), min_size=1, max_size=5),
    n=st.sampled_from([1, 32, 63, 64, 96, 160, 1024]),
    seed=st.integers(0, 2**32 - 1),
    in_turn=st.booleans(),
)
@example(kinds=list(ROWS), n=1024, seed=1, in_turn=True)
def test_planes_hold_any_mixture_of_rows(kinds, n, seed, in_turn):
    words, order = rows_of(kinds, seed, n), bf12.IN_TURN if in_turn else bf12_units.ORDER
    packed = bf12_packing.planes(words, order)
    np.testing.assert_array_equal(bf12_packing.words(packed, n, order), words)
    pairs = (words >> 8 & 0x7F).astype(int)
    pairs[words < 0x100] = -1  # zeros have a code of their own
    fewest = [
        min(np.count_nonzero((row >= 0) & ((row <= base) | (row > base + 7))) for base in range(121)) for row in pairs
    ]
    np.testing.assert_array_equal(packed.counts, fewest)
    assert packed.bases.max() <= 120


def test_fourteen_binades_under_a_rows_largest_cost_nothing_and_zeros_neither():
    exponents = np.arange(114, 128, dtype=np.uint16)  # begins with a pair
    words = np.append(np.repeat(exponents << 7 | 0x55, 4), np.zeros(8, np.uint16)).reshape(1, 64)
    assert bf12_packing.planes(words).counts.tolist() == [0]
    later = words + np.uint16(1 << 7) * (words > 0)  # begins within a pair: 13
    assert bf12_packing.planes(later).counts.tolist() == [4]
    assert bf12_packing.planes(words | np.uint16(0x8000)).counts.tolist() == [8]  # zeros of the other sign


def test_columns_that_a_row_does_not_have_are_zeros():
    packed = bf12_packing.planes(np.full((1, 40), 0x3F80, np.uint16), bf12_units.ORDER)
    assert packed.counts.tolist() == [0]
    filled = bf12_packing.words(packed, 64, bf12_units.ORDER)
    np.testing.assert_array_equal(filled, [[0x3F80] * 40 + [0] * 24])


# -- units ------------------------------------------------------------------------------------------------------------


def test_the_order_of_bytes_is_that_of_words_after_interleaving():
    """Registers of 16, 32 and 64 bytes all store whole runs of the words that they interleave."""
    word_at = np.empty(64, int)
    word_at[bf12_units.ORDER] = bf12_units.WORD_OF
    for width in (16, 32, 64):
        for register in word_at.reshape(-1, width):
            lanes = register.reshape(-1, 2, 8)  # 16 bytes each: those that the lower and the upper instruction takes
            for taken in (lanes[:, 0].reshape(-1), lanes[:, 1].reshape(-1)):
                assert (np.diff(taken) == 1).all()
    halves = np.arange(32).reshape(2, 16).T.reshape(-1)  # column 0, 16, 1, 17, ...
    np.testing.assert_array_equal(np.argsort(bf12_units.WORD_OF), np.concatenate([halves, 32 + halves]))


def test_units_are_whole_lines_with_room_for_the_worst():
    kinds = ["gaussian"] * 31 + ["tails"]
    laid, apart = bf12_units.packed_units(rows_of(kinds, 1, 1024))
    counts = bf12_packing.planes(rows_of(kinds, 1, 1024)).counts
    assert apart == counts.sum()
    assert counts[-1] > counts[:-1].max()
    head = laid.shape[1] - 16 * 1536
    assert (head % 64, laid.shape[0]) == (0, 2)
    assert 0 <= head - (64 + 3 * counts.reshape(2, 16).sum(1).max()) < 64


def test_what_would_not_shrink_is_plain_bf16():
    awful = rows_of(["any bits"] * 16, 1, 1024)
    laid = packing.streamed(BF12, awful)
    assert laid.code == BF16_CODE
    np.testing.assert_array_equal(laid.units, packing.streamed(BF16, awful).units)
    good = packing.streamed(BF12, rows_of(["gaussian"] * 16, 1, 1024))
    assert (good.code, good.weights) == (BF12_CODE, 16 * 1024)
    longest = bf12_units.MOST_COLUMNS
    assert packing.streamed(BF12, rows_of(["gaussian"] * 16, 1, longest)).code == BF12_CODE
    assert packing.streamed(BF12, rows_of(["gaussian"] * 16, 1, longest + 64)).code == BF16_CODE


# -- the kernel -------------------------------------------------------------------------------------------------------


def placed(array, by=0):
    """A copy that starts ``by`` bytes past a cache line, and what keeps it alive."""
    raw = np.zeros(array.nbytes + 256, np.uint8)
    start = -raw.ctypes.data % 64 + 64 + by
    view = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def run_unit(words, x, *, by=0, ahead=4096):
    """The packed kernel, also where packing would not pay: ``words [16, n]``, ``x [T, n]`` -> ``[T, 16]``."""
    T, n = x.shape
    unit, _ = bf12_units.packed_units(words)
    W, panel = placed(unit, by), placed(np.ascontiguousarray(x.reshape(T, n // 16, 16).swapaxes(0, 1)), 4)
    y = placed(np.full((T, 16), np.nan, F), 4)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 9)(units.unit.address)
    places = (W.ctypes.data, W.shape[1] // 16, n, panel.ctypes.data, T, y.ctypes.data, 64, ahead)
    call(BF12_CODE, *places)
    return y


def by_law(words, x):
    W, y = BF16.unpack(words), np.empty((len(x), 16), F)
    for t in range(len(x)):
        law.matvec(W, np.ascontiguousarray(x[t]), y[t])
    return y


@RUNS
@given(
    kinds=st.lists(st.sampled_from(FINITE), min_size=16, max_size=16),
    T=st.integers(1, 17),
    n=st.sampled_from([32, 64, 96, 160, 1024]),
    seed=st.integers(0, 2**32 - 1),
    by=st.sampled_from([0, 2, 4, 60]),
    ahead=st.sampled_from([0, 64, 8192, 1 << 40]),
)
def test_rows_times_tokens_is_the_laws_dot(kinds, T, n, seed, by, ahead):
    words = rows_of(kinds, seed, n)
    x = np.random.default_rng(seed).normal(0, 1, (T, n)).astype(F)
    assert same_bits(run_unit(words, x, by=by, ahead=ahead), by_law(words, x))


@RUNS
@given(
    places=st.lists(st.tuples(st.integers(0, 15), st.floats(0, 1, exclude_max=True)), max_size=24),
    cluster=st.integers(1, 3),
    n=st.sampled_from([32, 64, 96, 1024, 1056]),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_token_alone_meets_rare_exceptions_wherever_they_are(places, cluster, n, seed):
    rng = np.random.default_rng(seed)
    words = BF16.pack(rng.uniform(1, 2, (16, n)).astype(F))
    for row, where in places:
        column = int(where * n)
        words[row, column : column + cluster] = rng.choice(np.array([0, 0x8000, 0x0001, 0x1E37], np.uint16))
    x = rng.normal(0, 1, (1, n)).astype(F)
    assert same_bits(run_unit(words, x), by_law(words, x))


@pytest.mark.parametrize("T", [1, 2, 3, 4, 5, 8, 16, 17, 33])
@pytest.mark.parametrize("n", [2080, bf12_units.MOST_COLUMNS])
def test_long_rows_are_the_laws_dot(T, n):
    words = rows_of(["tails", "gaussian"] * 8, T, n)
    x = np.random.default_rng(T).normal(0, 1, (T, n)).astype(F)
    assert same_bits(run_unit(words, x), by_law(words, x))


@pytest.mark.parametrize("T", [1, 3, 9])
def test_every_finite_pattern_is_decoded(T):
    """A row of one weight and zeros, times one, is the weight; by its own base, or as an exception."""
    finite = EVERY[(EVERY & 0x7F80) != 0x7F80]
    for others in (0, 0x3F80):
        x = np.zeros((T, 64), F)
        x[:, 37] = 1
        W = np.full((len(finite), 64), others, np.uint16)
        W[:, 37] = finite
        got = np.concatenate([run_unit(W[first : first + 16], x)[T - 1] for first in range(0, len(W), 16)])
        assert same_bits(got, BF16.unpack(finite) + F(0))  # an accumulator from +0 makes -0 +0


def test_infinite_weights_are_infinite_products():
    words = rows_of(["gaussian"] * 16, 1, 64)
    words[3, 5], words[4, 63], words[5, 0] = 0x7F80, 0xFF80, 0x7FC1
    got = run_unit(words, np.ones((1, 64), F))[0]
    assert got[3] == np.inf
    assert got[4] == -np.inf
    assert np.isnan(got[5])
    assert np.isfinite(np.delete(got, [3, 4, 5])).all()


KERNEL = (
    test_rows_times_tokens_is_the_laws_dot,
    test_a_token_alone_meets_rare_exceptions_wherever_they_are,
    test_long_rows_are_the_laws_dot,
    test_every_finite_pattern_is_decoded,
    test_infinite_weights_are_infinite_products,
)


@pytest.mark.slow
@pytest.mark.skipif(not X86, reason="x86 instruction sets")
@pytest.mark.parametrize("name", list(TARGETS))
def test_the_kernel_of_another_instruction_set_passes_these_tests_too(fresh_process, name):
    """In a process whose code is made for it: what this CPU has need not be what decodes into a buffer."""
    target = TARGETS[name]
    if not has_feature(*(feature[1:] for feature in target.features.split(","))):
        pytest.skip(f"this CPU cannot run code for {name}")
    asked = ["-q", "-p", "no:cacheprovider", *(f"{__file__}::{one.__name__}" for one in KERNEL)]
    done = fresh_process(
        f"import sys, pytest\nsys.exit(pytest.main({asked!r}))", timeout=500, may_fail=True, **target.environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " skipped" not in done.stdout.splitlines()[-1]


# -- models -----------------------------------------------------------------------------------------------------------


def test_a_model_that_bf16_cannot_hold_is_labelled_with_what_was_rounded(tiny):
    third = np.full((256, 64), F(1 / 3))
    wide = with_tensors(tiny, lm_head__1__weight=third)
    gated = gate_cell(get_variant("kv_bf12"), wide, 1, frames=1)
    assert gated.report.passed
    assert gated.lossy_weights == third.size


def test_it_is_a_form_of_memory_that_no_file_holds(tmp_path):
    from cplab.export import planned

    with pytest.raises(BadInputError, match="--format bf12: a form of memory"):
        planned(tmp_path, tmp_path / "a.gguf", matrices="bf12", talker=None, kazeia=None)


def test_the_report_counts_what_the_kernels_stream(tiny):
    predictor = get_variant("kv_bf12").build(tiny, 1)
    found = list(packings(tiny))
    assert all(one.packed and one.changed == 0 for one in found)
    assert sum(one.weights for one in found) == 155648
    # Matrices that are laid out together have room for the worst unit of them all.
    layers, heads = (sum(one.nbytes for one in found if one.name.startswith(at)) for at in ("model", "lm_head"))
    assert 2 * layers + heads <= predictor.bytes_per_frame < 1.03 * (2 * layers + heads)
    assert "bits a weight" in predictor.engine_note
    head = tiny.tensors["lm_head.0.weight"]
    outlier = replace(head, data=rows_of(["any bits"] * 256, 1, 64) & 0x7EFF)
    tensors = {**tiny.tensors, head.name: outlier}
    worse = list(packings(replace(tiny, tensors=tensors, known_digest=None)))
    assert [one.name for one in worse if not one.packed] == [head.name]


def test_the_command_prints_a_line_for_every_matrix(capsys, monkeypatch):
    monkeypatch.setattr("cplab.__main__.console", Console(file=sys.stdout))
    assert run(app, ["packing", "--model", "synthetic:tiny"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].split()[0] == "matrix"
    assert [line.split()[0] for line in told[1:-1]] == [one.name for one in packings(load_model("synthetic:tiny"))]
    assert told[-1].startswith("155,648 weights, 12.")
    assert told[-1].endswith("nothing is lost")


def test_half_a_window_costs_a_bit_less_and_more_exceptions():
    whole = np.repeat(np.arange(116, 128, dtype=np.uint16) << 7, 4).reshape(1, 48)  # 12 binades, 4 weights each
    assert narrower_bits(whole[:, 24:].copy()) == 11
    assert narrower_bits(whole) == 11 + 24 / 2


def test_exponents_tell_their_entropy():
    assert exponent_entropy(np.full(64, 0x3F80, np.uint16)) == 0
    assert exponent_entropy(np.arange(256, dtype=np.uint16) << 7) == 8
    assert exponent_entropy(np.array([0, 0x8000, 0x3F80, 0xBFFF], np.uint16)) == 1  # neither sign nor mantissa count
