"""Where a pass finds its positions, weights and private space in a plan, and where it writes what went wrong.

A pass is a word: the first code that it gives, and with it the number of drafts that it takes in. A draft is a code
that is not known yet: it is fed back as if it were, and the pass gives one code more for each draft that turns out
right. A pass without drafts is the number of its code.

The pass of code 0 runs two positions. Where each is to have a pass of its own, `prefill` has their words: an engine may
have the talker's hidden state before it has the first code, and no bit depends on when it runs.
"""

from __future__ import annotations

from typing import Any

from cplab.jit import jit
from cplab.kernels import machine
from cplab.kernels import plan as p
from cplab.kernels.memory import read_i64
from cplab.kernels.quantised_lines import KINDS

#: What was not finite, for `trouble`.
ACTIVATION, LOGIT = 0, 1

#: By format code; 0 for formats that take activations in float32.
_OFFSETS = tuple(KINDS[code].offset if code in KINDS else 0 for code in range(max(KINDS) + 1))


_DRAFTS_FROM = 16
#: Set in the word of a pass of code 0 whose position 0 has been run.
_PREFILLED = 1 << 15


@jit()
def prefill(position: int) -> int:
    """The pass over one of positions 0 and 1 alone; the first gives no code: no head is to be run."""
    return with_drafts(0, -1) if position == 0 else _PREFILLED


@jit()
def with_drafts(g: int, drafts: int) -> int:
    """The pass whose first code is ``g`` and that takes in so many drafts."""
    return g | drafts << _DRAFTS_FROM


@jit()
def first_code(word: int) -> int:
    """The first code that a pass gives."""
    return word & (_PREFILLED - 1)


@jit()
def drafts_of(word: int) -> int:
    """How many drafts a pass takes in."""
    return word >> _DRAFTS_FROM


@jit()
def tokens_of(plan: Any, word: int) -> tuple[int, int]:
    """First position and number of positions (for each sequence) that a pass runs through the layers."""
    g = first_code(word)
    if plan[p.RECOMPUTE]:
        return 0, g + 2
    return new_tokens_of(word)


@jit()
def new_tokens_of(word: int) -> tuple[int, int]:
    """First position and number of positions (for each sequence) that no earlier pass has seen."""
    g = first_code(word)
    together = g == 0 and not word & _PREFILLED
    return (0, 2 + drafts_of(word)) if together else (g + 1, 1 + drafts_of(word))


@jit()
def going_of(plan: Any, layer: int, word: int) -> int:
    """How many of a pass's tokens, of each sequence, go on once a layer has all their keys and values: its last ones.

    After the last layer's attention only tokens that give a code are read: of a model that drafts, the last one.
    """
    if layer < plan[p.LAYERS] - 1:
        return tokens_of(plan, word)[1]
    return 1 if plan[p.FED] else max(1, 1 + drafts_of(word))


@jit()
def token_of(plan: Any, word: int, code: int) -> int:
    """Which token of a pass, of each sequence, gives a code."""
    if plan[p.RECOMPUTE]:
        return first_code(word) + 1
    return code + 1 - new_tokens_of(word)[0]


@jit()
def code_of(plan: Any, word: int, token: int) -> int:
    """The code that cannot be told where a token of a pass is not finite; the inverse of `token_of`."""
    g = first_code(word)
    if plan[p.RECOMPUTE]:
        return g
    return max(g, new_tokens_of(word)[0] + token - 1)


@jit()
def private(plan: Any, m: int) -> int:
    """Address of member m's own panel; a query head and its scores fit there too (see `cplab.decoder`)."""
    return plan[p.PRIVATE] + m * plan[p.PRIVATE_BYTES]


@jit()
def matrix(plan: Any, layer: int, which: int) -> int:
    """Address of a layer's entry in MATRICES; ``which`` is `plan.QKV_MATRIX` and so on."""
    return plan[p.MATRICES] + 24 * (p.MATRICES_PER_LAYER * layer + which)


@jit()
def head(plan: Any, g: int) -> int:
    """Address of a head's entry in MATRICES."""
    return plan[p.MATRICES] + 24 * (p.MATRICES_PER_LAYER * plan[p.LAYERS] + 1 + g)


@jit()
def projection(plan: Any) -> int:
    """Address of the projection's entry in MATRICES."""
    return plan[p.MATRICES] + 24 * p.MATRICES_PER_LAYER * plan[p.LAYERS]


@jit()
def offset_of(matrix: int) -> int:
    """What stands on top of a weight that is kept unsigned; 0 where a matrix takes its input in float32.

    ``matrix`` is the address of an entry in MATRICES: each has a format of its own.
    """
    return _OFFSETS[read_i64(matrix + 8)]


@jit()
def layer_norms(plan: Any, layer: int) -> int:
    """Address of a layer's norm weights; of the final norm's where ``layer`` is the number of layers."""
    return plan[p.NORMS] + 8 * layer * (plan[p.HIDDEN] + plan[p.HEAD_DIM])


@jit()
def trouble(plan: Any, g: int, b: int, kind: int) -> None:
    """Keep the first value that is not finite: by code, then by frame, then activations before logits."""
    machine.atomic_min(plan[p.STATUS], (g << 32) | (b << 1) | kind)
