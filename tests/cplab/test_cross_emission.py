"""Innermost loops and spills are found in assembly, of x86 and of Arm."""

from __future__ import annotations

from cross_emission import innermost_loops, spills

X86_LOOPS = """
unit:
	subq	$136, %rsp
.LBB0_1:                                # =>This Loop Header
	movq	%rsp, %rdi
.LBB0_2:                                #   Parent Loop BB0_1 Depth=1
	vmovups	(%rsi,%rbp), %zmm1              # not the frame
	vmovaps	%zmm1, 64(%rsp)                 # 64-byte Spill
	addq	48(%rsp), %r13
	leaq	64(%rsp), %rdi
	vfmadd231ps	(%rdi), %zmm1, %zmm2
	decq	%rax
	jne	.LBB0_2
	jmp	.LBB0_1
"""
ARM_LOOPS = """
unit:
.LBB0_1:                                // %loop
	ldr	q0, [x1, #16]
	str	q0, [sp, #176]                  // 16-byte Spill
	ldp	q1, q2, [x29, #-32]
	ldr	x9, [sp, #8]
	fmla	v1.4s, v0.4s, v2.4s
	subs	x8, x8, #1
	b.ne	.LBB0_1
	cbz	x8, .LBB0_3
.LBB0_3:
	ret
"""


def test_innermost_loops_and_their_spills_are_found_on_x86():
    (loop,) = innermost_loops(X86_LOOPS)
    assert (len(loop), loop[0], loop[-1]) == (7, "vmovups (%rsi,%rbp), %zmm1", "jne .LBB0_2")
    assert spills(X86_LOOPS, loop) == ["vmovaps %zmm1, 64(%rsp)"]
    framed = X86_LOOPS.replace("subq", "movq %rsp, %rbp\nsubq").replace("(%rsi,%rbp)", "-64(%rbp)")
    assert len(spills(framed, innermost_loops(framed)[0])) == 2


def test_innermost_loops_and_their_spills_are_found_on_arm():
    (loop,) = innermost_loops(ARM_LOOPS)
    assert len(loop) == 7
    assert spills(ARM_LOOPS, loop) == ["str q0, [sp, #176]"]
    framed = ARM_LOOPS.replace("unit:", "unit:\n mov x29, sp")
    assert spills(framed, innermost_loops(framed)[0]) == ["str q0, [sp, #176]", "ldp q1, q2, [x29, #-32]"]
