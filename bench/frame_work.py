"""How many multiply-adds a frame takes: with the bytes it reads, the arithmetic intensity of a variant.

Counted are the products with weights and of attention; norms, RoPE and softmax are thousandths of that. A
multiply-add is two floating-point operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cplab.spec import Spec
    from cplab.variant import CodePredictor


def macs_per_frame(spec: Spec, *, recompute: bool) -> int:
    """Multiply-adds of a frame.

    Args:
        spec: of the model.
        recompute: every pass runs all positions so far, instead of those that are new.
    """
    return sum(macs_per_pass(spec, index, recompute=recompute) for index in range(spec.passes))


def macs_per_pass(spec: Spec, index: int, *, recompute: bool) -> int:
    """Multiply-adds of a frame's pass number ``index``, as `macs_per_frame`."""
    head = spec.vocab * spec.hidden
    layer = (spec.weights_per_pass - head) // spec.layers
    keys_and_values = 2 * spec.kv_rows * spec.hidden
    projection = spec.talker_hidden * spec.hidden if spec.projected else 0
    positions = index + 2  # the first pass takes in the hidden state and CB0
    first = 0 if recompute or index == 0 else positions - 1
    count = positions - first
    seen = sum(position + 1 for position in range(first, positions))
    layers = (spec.layers - 1) * (count * layer + 2 * spec.q_rows * seen)
    # In the last layer all positions give keys and values, and only the last one goes on.
    last_layer = count * keys_and_values + layer - keys_and_values + 2 * spec.q_rows * positions
    return layers + last_layer + (2 if index == 0 else 1) * projection + head


def macs_of(predictor: CodePredictor) -> int | None:
    """`macs_per_frame` of a predictor: what it says itself, or what its kind takes; None where that is not known.

    A predictor with fewer passes than codes does something else than either kind, and must say it itself.
    """
    told = getattr(predictor, "macs_per_frame", None)
    if isinstance(told, int):
        return told
    spec = getattr(getattr(predictor, "model", None), "spec", None)
    if spec is None or predictor.passes_per_frame != spec.passes:
        return None
    return macs_per_frame(spec, recompute=bool(getattr(predictor, "recompute", False)))
