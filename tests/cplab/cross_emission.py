"""Emit the matrix kernels for any CPU, and find the innermost loops in the assembly that comes out.

The product's own emission is called, and LLVM optimises as numba has it do, but in a module of another target: what an
Arm machine would run is read on this one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import config

from cplab import jit
from cplab.kernels import peak_int8, tiles, units

_X86_V2 = "+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+cx16"
_X86_V3 = _X86_V2 + ",+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+movbe"
_X86_V4 = _X86_V3 + ",+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"
_ICE_LAKE = ",+avx512vnni,+avx512vbmi,+avx512vbmi2"
_ARM = "+neon,+fp-armv8"


@dataclass(frozen=True, slots=True)
class Target:
    """A CPU to emit for, as LLVM names it."""

    triple: str
    cpu: str
    features: str


TARGETS = {
    "avx512": Target("x86_64-unknown-linux-gnu", "skylake-avx512", _X86_V4 + ",-prefer-256-bit"),
    "vbmi2": Target("x86_64-unknown-linux-gnu", "icelake-server", _X86_V4 + _ICE_LAKE + ",-prefer-256-bit"),
    "zen5": Target("x86_64-unknown-linux-gnu", "znver5", _X86_V4 + _ICE_LAKE + ",-prefer-256-bit"),
    "vnni": Target("x86_64-unknown-linux-gnu", "icelake-server", _X86_V4 + ",+avx512vnni,-prefer-256-bit"),
    "avx-vnni": Target("x86_64-unknown-linux-gnu", "alderlake", _X86_V3 + ",+avxvnni"),
    "avx2": Target("x86_64-unknown-linux-gnu", "haswell", _X86_V3),
    "sse4": Target("x86_64-unknown-linux-gnu", "nehalem", _X86_V2),
    "neon": Target("aarch64-unknown-linux-gnu", "cortex-a72", _ARM),
    "neon-dotprod": Target("aarch64-unknown-linux-gnu", "neoverse-n1", _ARM + ",+aes,+crc,+lse,+sha2"),
}


@cache
def _machine(target: Target) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    # Relocation and code model are what numba's JIT asks for on each architecture.
    reloc = "static" if target.triple.startswith("x86") else "default"
    options = {"cpu": target.cpu, "features": target.features, "opt": config.OPT, "reloc": reloc, "jit": True}
    return llvm.Target.from_triple(target.triple).create_target_machine(**options)


def _unit(target: Target, code: int) -> tuple[Any, tiles.Shapes]:
    """A function of int64s that is a unit of a format and nothing else, and the tiles that it is made of."""
    word = ir.IntType(64)
    module = ir.Module("cross")
    module.triple = target.triple
    module.data_layout = str(_machine(target).target_data)
    kind = ir.FunctionType(ir.VoidType(), [word] * len(tiles.Unit._fields))
    function = ir.Function(module, kind, "unit")
    builder = ir.IRBuilder(function.append_basic_block("entry"))  # for stack slots alone, as in numba's functions
    body = function.append_basic_block("body")
    builder.branch(body)
    builder.position_at_end(body)
    with jit.targeting(target.cpu, target.features):
        units.emit_unit_of(builder, code, tiles.Unit(*function.args))
        shapes = units.shapes_of(builder, code)
    builder.ret_void()
    return module, shapes


@cache
def unit_assembly(target: Target, code: int) -> tuple[str, tiles.Shapes]:
    """The machine code of 16 rows of a format times any number of tokens, and the (tokens, rows) of its tiles."""
    emitted, shapes = _unit(target, code)
    return _optimised(target, emitted), shapes


def chains_assembly(target: Target) -> str:
    """The machine code of the int8 peak."""
    word = ir.IntType(64)
    module = ir.Module("cross")
    module.triple = target.triple
    module.data_layout = str(_machine(target).target_data)
    function = ir.Function(module, ir.FunctionType(word, [word] * 2), "chains")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    body = function.append_basic_block("body")
    builder.branch(body)
    builder.position_at_end(body)
    with jit.targeting(target.cpu, target.features):
        builder.ret(peak_int8.emit_chains(builder, *function.args))
    return _optimised(target, module)


def _optimised(target: Target, emitted: Any) -> str:
    machine = _machine(target)
    module = llvm.parse_assembly(str(emitted))
    module.verify()
    # numba's two rounds: a cheap one that rotates loops, then the full one.
    for level in (0, config.OPT):
        tuning = llvm.create_pipeline_tuning_options(speed_level=int(level))
        tuning.loop_vectorization = bool(level) and bool(config.LOOP_VECTORIZE)
        tuning.slp_vectorization = bool(level) and bool(config.SLP_VECTORIZE)
        passes = llvm.create_pass_builder(machine, tuning)
        manager = passes.getModulePassManager()
        if not level:
            manager.add_loop_rotate_pass()
            manager.add_instruction_combine_pass()
            manager.add_jump_threading_pass()
        manager.run(module, passes)
    return str(machine.emit_assembly(module))


def instructions(text: str) -> list[str]:
    """Lines of assembly without comments, their parts a space apart; labels end with a colon."""
    lines = (" ".join(re.split(r"# |//", line)[0].split()) for line in text.splitlines())
    return [line for line in lines if line.endswith(":") or (line and not line.startswith("."))]


#: A jump: what it does, and the label where it goes.
_JUMP = re.compile(r"(j\w+|b|b\.\w+|cbn?z|tbn?z)\s(?:.*,)?\s*([.\w$]+)$")
_NO_WAY_ON = re.compile(r"(jmpq?|b|br|retq?|ud2|brk)\b(?!\.)")


def innermost_loops(text: str, pattern: str = "") -> list[list[str]]:
    """Instructions of every innermost loop, in their order; of the loops that have a match of ``pattern``.

    Loops are those of the control flow, wherever blocks stand: a jump back to a block that every way to the jump leads
    through, and all blocks between the two.
    """
    lines = instructions(text)
    begins = sorted({0} | {i for i, line in enumerate(lines) if line.endswith(":")} | {
        i + 1 for i, line in enumerate(lines[:-1]) if _JUMP.match(line) or _NO_WAY_ON.match(line)
    })  # fmt: skip
    blocks = [range(a, b) for a, b in pairwise([*begins, len(lines)])]
    named = {lines[block[0]][:-1]: k for k, block in enumerate(blocks) if lines[block[0]].endswith(":")}
    after: list[set[int]] = []
    for k, block in enumerate(blocks):
        last = lines[block[-1]]
        jump = _JUMP.match(last)
        after.append({named[jump.group(2)]} if jump and jump.group(2) in named else set())
        if not _NO_WAY_ON.match(last) and k + 1 < len(blocks):
            after[-1].add(k + 1)
    bodies = _natural_loops(after)
    text_of = [[lines[i] for k in sorted(body) for i in blocks[k] if not lines[i].endswith(":")] for body in bodies]
    holding = [k for k, own in enumerate(text_of) if any(re.search(pattern, line) for line in own)]
    inner = [k for k in holding if not any(bodies[other] < bodies[k] for other in holding)]
    return [text_of[k] for k in sorted(inner, key=lambda k: min(bodies[k]))]


def _natural_loops(after: list[set[int]]) -> list[frozenset[int]]:
    """Blocks of the loops in a graph; a loop with two ways back is one.

    A block that nothing leads to begins a function, or is reached through a table of addresses.
    """
    before: list[set[int]] = [set() for _ in after]
    for k, ways in enumerate(after):
        for way in ways:
            before[way].add(k)
    everything = set(range(len(after)))
    through = [everything if ways else {k} for k, ways in enumerate(before)]  # blocks that every way to a block takes
    changed = True
    while changed:
        changed = False
        for k, ways in enumerate(before):
            common = {k}.union(set.intersection(*(through[way] for way in ways)) if ways else ())
            if common != through[k]:
                through[k], changed = common, True
    found: dict[int, set[int]] = {}
    for k, ways in enumerate(after):
        for head in ways & through[k]:
            body, left = found.setdefault(head, {head}), [k]
            while left:
                block = left.pop()
                if block not in body:
                    body.add(block)
                    left += before[block]
    return [frozenset(body) for body in found.values()]


def spills(text: str, loop: list[str]) -> list[str]:
    """Instructions of a loop in which a vector register meets the stack frame of the function in ``text``.

    An address that waits there is no spill in this sense: no sum waits for it.
    """
    lines = instructions(text)
    frame = [r"\(%rsp\b", r"\[sp\b"]
    # Frame and base pointers, where the function has them; otherwise these registers hold anything.
    frame += [rf"\(%{name}\b" for name in ("rbp", "rbx") if f"movq %rsp, %{name}" in lines]
    frame += [r"\[x29\b"] if any(re.match(r"(mov|add) x29, sp\b", line) for line in lines) else []
    frame += [r"\[x19\b"] if "mov x19, sp" in lines else []  # with an offset it is the address of a buffer
    vector = r"%[xyz]mm|\b[qdv]\d+\b"
    return [line for line in loop if re.search("|".join(frame), line) and re.search(vector, line)]
