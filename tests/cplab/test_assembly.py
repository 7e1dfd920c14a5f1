"""The machine code of the matrix kernels, for CPUs that are here and CPUs that are not: the right instruction in every
inner loop, and no vector that goes through the stack.

A tile that does not fit the registers is slow, not wrong, so nothing but a look at the assembly tells.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from itertools import chain
from typing import NamedTuple

import llvmlite.binding as llvm
import pytest
from cross_emission import TARGETS, Target, chains_assembly, innermost_loops, spills, unit_assembly

from cplab import jit
from cplab.formats import FORMATS

#: (tokens, rows) of the tiles, widest first, by the registers that 16 float32 take; what decodes into more has fewer.
WIDE, MIDDLE, NARROW = ((8, 2), (4, 4), (2, 4), (1, 4)), ((4, 1), (2, 2), (1, 4)), ((2, 1), (1, 2))
REGISTERS = {"vbmi2": 1, "avx512": 1, "vnni": 1, "avx-vnni": 2, "avx2": 2, "neon": 4, "neon-dotprod": 4}
#: Vectors that a step multiplies for each row and token: two of 16 weights, or 64 quants.
VECTORS_A_STEP = {"f32": 2, "bf16": 2, "f16": 2, "q8_0": 1, "q6_k": 1, "q5_0": 1, "q4_0": 1}
#: Cache lines that a turn asks for: of each row's weights, and of scales (a lone token's are made ready before).
LINES_A_TURN = {"f32": (2, 0), "bf16": (1, 0), "f16": (1, 0)}
#: Bytes of a step of weights.
STEP_BYTES = {"q8_0": 64, "q6_k": 48, "q5_0": 40, "q4_0": 32}


def lines_of(bytes_of):
    return -(-bytes_of // 64)


def steps_a_turn(row, lone):
    """How many steps a turn of the loop has.

    As many as a line for a lone token, two where a product takes several registers; Q4_0's two also for several tokens
    where there are registers for more; else one.
    """
    if lone and row.format in ("q6_k", "q5_0"):
        return 2 if row.target == "neon" else 4
    return 2 if row.format == "q4_0" and (lone or REGISTERS[row.target] == 1) else 1


def lines_a_turn(row, lone):
    """Cache lines that a turn asks for: of each row's weights, and of scales (a lone token's are made ready before)."""
    steps = steps_a_turn(row, lone)
    if row.format not in STEP_BYTES:
        return LINES_A_TURN[row.format]
    return lines_of(steps * STEP_BYTES[row.format]), 0 if lone else steps


FMA = {
    "vbmi2": r"vfmadd\d+ps\s.*%zmm",
    "avx512": r"vfmadd\d+ps\s.*%zmm",
    "vnni": r"vfmadd\d+ps\s.*%zmm",
    "avx-vnni": r"vfmadd\d+ps\s.*%ymm",
    "avx2": r"vfmadd\d+ps\s.*%ymm",
    "neon": r"fmla\s+v\d+\.4s",
    "neon-dotprod": r"fmla\s+v\d+\.4s",
}
PREFETCH = r"prefetch|prfm"
WIDEN_SCALE = r"vcvtph2ps|fcvtl"
CALL = r"\b(?:callq?|bl|blr)\s"


class Row(NamedTuple):
    """What the inner loops of a format on a target hold beside the multiply-adds, and what they do not."""

    target: str
    format: str
    holds: tuple[str, ...]
    never: tuple[str, ...] = ()


ROWS = (
    Row("avx512", "q8_0", (r"vpmaddubsw\s.*%ymm", r"vpmaddwd\s.*%zmm", r"vcvtdq2ps\s.*%zmm"), (r"vpdp",)),
    Row("avx512", "q6_k", (r"vpmaddubsw\s", r"vpmaddwd\s.*%zmm", r"vcvtdq2ps\s.*%zmm"), (r"vpdp", r"vpsign")),
    Row("avx512", "q5_0", (r"vpmaddubsw\s", r"vpmaddwd\s.*%zmm", r"vcvtdq2ps\s.*%zmm"), (r"vpdp", r"vpsign")),
    Row("avx512", "q4_0", (r"vpmaddubsw\s", r"vpmaddwd\s.*%zmm", r"vcvtdq2ps\s.*%zmm"), (r"vpdp", r"vpsign")),
    *(
        Row(wide, *floats)
        for wide in ("avx512", "vnni", "vbmi2")
        for floats in (
            ("f32", (), (r"%[xy]mm",)),
            ("bf16", (r"vpslld\s.*%zmm", r"vpand[dq]\s.*%zmm"), (r"vdpbf16ps", r"%[xy]mm")),
            ("f16", (r"vcvtph2ps\s.*%zmm",), (r"%xmm",)),
        )
    ),
    *(
        Row(wide, quantised, (r"vpdpbusd\s.*%zmm", r"vcvtdq2ps\s.*%zmm"), (r"vpmadd",))
        for wide in ("vnni", "vbmi2")
        for quantised in STEP_BYTES
    ),
    *(
        Row(narrow, *floats)
        for narrow in ("avx-vnni", "avx2")
        for floats in (
            ("f32", (), (r"%zmm",)),
            ("bf16", (r"vpslld\s.*%ymm", r"vp(?:blendw|and)\s.*%ymm"), (r"%zmm",)),
            ("f16", (r"vcvtph2ps\s.*%ymm",), (r"%zmm",)),
        )
    ),
    Row("avx-vnni", "q8_0", (r"\{vex\}\s+vpdpbusd\s.*%ymm", r"vcvtdq2ps\s.*%ymm"), (r"vpmadd", r"%zmm")),
    Row("avx-vnni", "q6_k", (r"\{vex\}\s+vpdpbusd\s.*%ymm", r"vcvtdq2ps\s.*%ymm"), (r"vpmadd", r"%zmm")),
    Row("avx-vnni", "q5_0", (r"\{vex\}\s+vpdpbusd\s.*%ymm", r"vcvtdq2ps\s.*%ymm"), (r"vpmadd", r"%zmm")),
    Row("avx-vnni", "q4_0", (r"\{vex\}\s+vpdpbusd\s.*%ymm", r"vcvtdq2ps\s.*%ymm"), (r"vpmadd", r"%zmm")),
    Row("avx2", "q8_0", (r"vpsignb\s.*%ymm", r"vpmaddubsw\s.*%ymm", r"vpmaddwd\s.*%ymm"), (r"vpdp", r"%zmm")),
    Row("avx2", "q6_k", (r"vpmaddubsw\s.*%ymm", r"vpmaddwd\s.*%ymm"), (r"vpdp", r"vpsign", r"%zmm")),
    Row("avx2", "q5_0", (r"vpmaddubsw\s.*%ymm", r"vpmaddwd\s.*%ymm"), (r"vpdp", r"vpsign", r"%zmm")),
    Row("avx2", "q4_0", (r"vpmaddubsw\s.*%ymm", r"vpmaddwd\s.*%ymm"), (r"vpdp", r"vpsign", r"%zmm")),
    *(
        Row(arm, *floats)
        for arm in ("neon", "neon-dotprod")
        for floats in (
            ("f32", ()),
            ("bf16", (r"shl\s", r"and\s"), (r"bfdot", r"bfmlal")),
            ("f16", (r"fcvtl\s", r"fcvtl2\s"), (r"fmla\s+v\d+\.8h",)),
        )
    ),
    Row("neon", "q8_0", (r"smull\s", r"smull2\s", r"addp\s", r"scvtf\s"), (r"[su]dot",)),
    Row("neon", "q6_k", (r"smull\s", r"smull2\s", r"addp\s", r"scvtf\s"), (r"[su]dot",)),
    Row("neon", "q5_0", (r"smull\s", r"smull2\s", r"addp\s", r"scvtf\s"), (r"[su]dot",)),
    Row("neon", "q4_0", (r"smull\s", r"smull2\s", r"addp\s", r"scvtf\s"), (r"[su]dot",)),
    Row("neon-dotprod", "q8_0", (r"sdot\s", r"scvtf\s"), (r"smull",)),
    Row("neon-dotprod", "q6_k", (r"sdot\s", r"scvtf\s"), (r"smull",)),
    Row("neon-dotprod", "q5_0", (r"sdot\s", r"scvtf\s"), (r"smull",)),
    Row("neon-dotprod", "q4_0", (r"sdot\s", r"scvtf\s"), (r"smull",)),
)


def tiles_of(row):
    if REGISTERS[row.target] == 1:
        if row.format == "q4_0":
            return (4, 2), (2, 4), (1, 4)
        if row.format in ("q6_k", "q5_0"):
            return (4, 2), (2, 2), (1, 2)
        return ((8, 2), (4, 2), (2, 4), (1, 4)) if (row.target, row.format) == ("avx512", "q8_0") else WIDE
    if row.format.startswith("q"):
        return (2, 1), (1, 2 if row.format == "q8_0" else 1)
    return MIDDLE if row.format == "f32" else (*MIDDLE[:2], (1, 2))


def matches(pattern, lines):
    return [line for line in lines if re.search(pattern, line)]


def multiplying(text, fma):
    """The innermost loops that multiply."""
    return innermost_loops(text, fma)


def loops_by_tile(row):
    """The assembly of a row, and the inner loops of each of its tiles: (tokens, rows) from what a turn does."""
    text, _ = unit_assembly(TARGETS[row.target], FORMATS[row.format].code)
    found = defaultdict(list)
    for loop in multiplying(text, FMA[row.target]):
        lone = not matches(WIDEN_SCALE, loop)
        steps = steps_a_turn(row, lone)
        of_weights, of_scales = lines_a_turn(row, lone)
        rows, rest = divmod(len(matches(PREFETCH, loop)) - of_scales, of_weights)
        a_row = rows * steps * VECTORS_A_STEP[row.format] * REGISTERS[row.target]
        tokens, more = divmod(len(matches(FMA[row.target], loop)), a_row)
        assert (rest, more) == (0, 0)
        found[tokens, rows].append(loop)
    return text, found


TILE_CASES = [
    pytest.param(row, tile, id=f"{row.target}-{row.format}-{tile[0]}x{tile[1]}")
    for row in ROWS
    for tile in tiles_of(row)
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.target}-{row.format}")
def test_every_tile_is_a_loop_of_the_targets_own_instructions(row):
    _, shapes = unit_assembly(TARGETS[row.target], FORMATS[row.format].code)
    _, loops = loops_by_tile(row)
    assert set(loops) == set(shapes) == set(tiles_of(row))
    for loop in chain(*loops.values()):
        assert [pattern for pattern in row.holds if not matches(pattern, loop)] == []
        assert [line for pattern in (*row.never, CALL) for line in matches(pattern, loop)] == []


@pytest.mark.parametrize(("row", "tile"), TILE_CASES)
def test_no_vector_of_an_inner_loop_goes_through_the_stack(row, tile):
    text, loops = loops_by_tile(row)
    assert loops[tile]
    assert [line for loop in loops[tile] for line in spills(text, loop)] == []


@pytest.mark.parametrize("format_name", list(LINES_A_TURN))
def test_zen_5_reads_the_weights_of_a_lone_token_row_after_row(format_name):
    """Its loops of several rows are unrolled by LLVM, and so not looked at tile by tile."""
    text, shapes = unit_assembly(TARGETS["zen5"], FORMATS[format_name].code)
    assert shapes == (*WIDE, (1, 1))
    loops = multiplying(text, FMA["vbmi2"])
    turns = [(len(matches(PREFETCH, loop)), len(matches(FMA["vbmi2"], loop))) for loop in loops]
    assert (LINES_A_TURN[format_name][0], 2) in turns
    assert [line for loop in loops for line in spills(text, loop)] == []


@pytest.mark.parametrize("format_name", ["f32", "f16", "bf12", "q8_0", "q6_k", "q5_0"])
def test_a_cpu_without_fma_calls_the_library_for_it_and_uses_no_wider_register(format_name):
    text, shapes = unit_assembly(TARGETS["sse4"], FORMATS[format_name].code)
    assert shapes == (NARROW if not format_name.startswith("q") else ((1, 1),))
    assert "fmaf" in text
    assert matches(r"vfmadd|%[yz]mm|vcvtph2ps", text.splitlines()) == []
    assert matches(r"__extendhfsf2|__gnu_h2f_ieee", text.splitlines()) == []  # a library that is not there


# -- packed BF16: decoded in registers where there are enough, else into a buffer that products read -------------------

#: How bytes are looked up and interleaved, by target; and what is too wide there.
DECODE = {
    "vbmi2": ((r"vpermb\s.*%zmm", r"vpunpcklbw\s.*%zmm", r"vpunpckhbw\s.*%zmm"), r"%[xy]mm|vpshufb"),
    "avx512": ((r"vpshufb\s.*%zmm", r"vpunpcklbw\s.*%zmm", r"vpunpckhbw\s.*%zmm"), r"%ymm"),
    "vnni": ((r"vpshufb\s.*%zmm", r"vpunpcklbw\s.*%zmm", r"vpunpckhbw\s.*%zmm"), r"%ymm"),
    "avx-vnni": ((r"vpshufb\s.*%ymm", r"vpunpcklbw\s.*%ymm", r"vpunpckhbw\s.*%ymm"), r"%zmm"),
    "avx2": ((r"vpshufb\s.*%ymm", r"vpunpcklbw\s.*%ymm", r"vpunpckhbw\s.*%ymm"), r"%zmm"),
    "neon": ((r"tbl\s", r"zip1\s", r"zip2\s"), r"bfdot|bfmlal"),
    "neon-dotprod": ((r"tbl\s", r"zip1\s", r"zip2\s"), r"bfdot|bfmlal"),
}
IN_REGISTERS = ("vbmi2", "avx512", "vnni")
IN_A_BUFFER = tuple(target for target in DECODE if target not in IN_REGISTERS)


def decoding(target):
    """The innermost loops that look bytes up."""
    text, shapes = unit_assembly(TARGETS[target], FORMATS["bf12"].code)
    return text, shapes, innermost_loops(text, DECODE[target][0][0])


def through_the_stack(text, loop):
    """Spills of a loop, but for a table or mask that is read from where nothing ever writes."""
    return [line for line in spills(text, loop) if re.search(r"^v?mov\w+ %[xyz]mm\d+, .*\(|^st[rp]\s", line)]


@pytest.mark.parametrize("target", list(DECODE))
def test_packed_rows_are_looked_up_and_interleaved_by_the_targets_own_instructions(target):
    text, shapes, loops = decoding(target)
    holds, too_wide = DECODE[target]
    assert len(loops) == len(shapes) + (target in IN_A_BUFFER)  # there one for every tile's rows, and one with products
    for loop in loops:
        assert [pattern for pattern in holds if not matches(pattern, loop)] == []
        assert [line for pattern in (too_wide, CALL) for line in matches(pattern, loop)] == []
        multiplies = matches(FMA[target], loop)
        assert (through_the_stack if multiplies else spills)(text, loop) == []


@pytest.mark.parametrize("target", IN_REGISTERS)
def test_where_registers_are_many_a_tile_decodes_mends_and_multiplies_in_them(target):
    text, shapes, loops = decoding(target)
    found = {(len(matches(PREFETCH, loop)), len(matches(FMA[target], loop))): loop for loop in loops}
    # Four vectors of 16 for each row, and two lines asked for: one for each half of 48 bytes, so that none is left out.
    assert set(found) == {(2 * rows, 4 * rows * tokens) for tokens, rows in shapes}
    assert sorted(found.values()) == sorted(innermost_loops(text, FMA[target]))
    for (asked, _), loop in found.items():
        assert matches(r"^vmov\w+ %[xyz]mm\d+, .*\(", loop) == []  # nothing is stored
        expanded, branches = matches(r"vpexpandb\s.*%zmm", loop), matches(r"^j\w+", loop)
        if target == "vbmi2":
            assert (len(expanded), len(branches)) == (asked // 2, 1)  # whatever the weights, there is one way
        else:
            assert expanded == []
            assert len(matches(r"blsr|blsi", loop)) == asked // 2


@pytest.mark.parametrize("target", IN_A_BUFFER)
def test_a_token_alone_is_multiplied_while_rows_are_decoded(target):
    _, shapes, loops = decoding(target)
    rows = dict(shapes)[1]
    (loop,) = (loop for loop in loops if matches(FMA[target], loop))
    assert len(matches(FMA[target], loop)) == 4 * rows * REGISTERS[target]
    assert len(matches(PREFETCH, loop)) == 2 * rows


@pytest.mark.parametrize("target", IN_A_BUFFER)
def test_products_of_decoded_rows_are_those_of_bf16(target):
    text, shapes, loops = decoding(target)
    only = [loop for loop in innermost_loops(text, FMA[target]) if loop not in loops]
    counts = sorted((len(matches(PREFETCH, loop)), len(matches(FMA[target], loop))) for loop in only)
    shared = [(rows, 2 * tokens * rows * REGISTERS[target]) for tokens, rows in shapes]
    assert counts == sorted(shared)
    for loop in only:
        assert [line for pattern in (DECODE[target][1], CALL) for line in matches(pattern, loop)] == []
        assert spills(text, loop) == []


# -- another target than numba's --------------------------------------------------------------------------------------


def test_another_target_holds_within_its_block_only():
    before, digest = jit.target_cpu(), jit.code_digest()
    with jit.targeting("neoverse-n1", "+neon,+dotprod,-sve"):
        assert jit.target_cpu() == ("neoverse-n1", "+neon,+dotprod,-sve")
        assert jit.has_feature("neon", "dotprod")
        assert not jit.has_feature("sve")
        assert not jit.has_feature("avx512f")
        jit.code_digest.cache_clear()
        assert jit.code_digest() == digest  # what is cached is for numba's target, whatever is being looked at
    assert jit.target_cpu() == before


#: What LLVM reads on Linux on a Neoverse N1, which has dot products.
READ_ON_N1 = "+aes,+crc,+fp-armv8,+lse,+neon,-rand,+sha2,-sve"


@pytest.mark.parametrize(
    ("cpu", "features", "has"),
    [
        ("neoverse-n1", READ_ON_N1, True),
        ("neoverse-n1", READ_ON_N1 + ",-dotprod", False),
        ("cortex-a53", "+neon,+fp-armv8", False),
        ("generic", "+neon,+dotprod", True),
        ("generic", "+neon", False),
        ("skylake-avx512", "+sse2,+avx512f", False),
    ],
)
def test_dot_products_that_a_cpus_name_implies_are_known(cpu, features, has):
    with jit.targeting(cpu, features):
        assert jit.has_feature("dotprod") is has
        assert jit.has_feature("neon", "dotprod") is (has and "+neon" in features)


def shape_of(text, loop):
    fma = matches("|".join(FMA.values()), loop)
    return len(matches(PREFETCH, loop)), len(fma), bool(spills(text, loop))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="assembly has another syntax")
@pytest.mark.skipif(not (jit.has_feature("fma") or jit.has_feature("neon")), reason="this CPU has no fma")
def test_what_is_read_here_is_what_numba_makes(fresh_process, tmp_path):
    made, cpu, features = fresh_process(
        """
import json
from cplab import jit
from cplab.kernels import units
print(json.dumps([units.unit.compiled._library.get_asm_str(), *jit.numba_cpu()]))
""",
        CPLAB_CACHE=tmp_path,  # what comes out of the cache cannot be looked at
    )
    here = Target(llvm.get_process_triple(), cpu, features)
    pattern = "|".join(FMA.values())
    emitted = [unit_assembly(here, kind.code) for kind in FORMATS.values()]
    read = [text for text, _ in emitted]
    assert len(multiplying(made, pattern)) >= sum(len(shapes) for _, shapes in emitted)
    assert [line for loop in multiplying(made, pattern) for line in through_the_stack(made, loop)] == []
    loops = Counter(shape_of(made, loop) for loop in multiplying(made, pattern))
    looked_at = Counter(shape_of(text, loop) for text in read for loop in multiplying(text, pattern))
    assert loops.keys() == looked_at.keys()
    assert looked_at <= loops  # in one function of all formats LLVM may have made a loop twice


@pytest.mark.parametrize(
    ("target", "holds", "never"),
    [
        ("vnni", r"vpdpbusd\s.*%zmm", r"vpmadd"),
        ("avx-vnni", r"vpdpbusd\s.*%ymm", r"vpmadd|%zmm"),
        ("avx512", r"vpmaddubsw\s.*%ymm", r"vpdp"),
        ("avx2", r"vpmaddubsw\s.*%ymm", r"vpdp|%zmm"),
        ("sse4", r"pmaddubsw\s.*%xmm", r"%[yz]mm"),
        ("neon", r"smull\s", r"[su]dot"),
        ("neon-dotprod", r"sdot\s", r"smull"),
    ],
)
def test_the_int8_peak_multiplies_in_its_loop_and_no_sum_goes_through_the_stack(target, holds, never):
    text = chains_assembly(TARGETS[target])
    loops = [loop for loop in innermost_loops(text) if any(re.search(holds, line) for line in loop)]
    assert loops
    for loop in loops:
        assert not any(re.search(never, line) for line in loop)
        stored = r"%[xyz]mm\d+, [^,]*\(%rsp|^st[rp] .*\[sp"
        assert not [line for line in spills(text, loop) if re.search(stored, line)]
