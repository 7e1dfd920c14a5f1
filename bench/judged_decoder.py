"""A decoder that is timed by itself instead of as a variant: judged first, as everything is that is timed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.errors import GateFailedError
from cplab.decoder import Decoder
from cplab.formats import format_named
from cplab.gating import gate_cell
from cplab.model import Model
from cplab.variant import CodePredictor, Variant

#: Frames that the gate looks at, with every check.
GATE_FRAMES = 2


def judged_decoder(
    kind: Callable[..., Decoder],
    prefix: str,
    format_name: str,
    model: Model,
    threads: int,
    suffix: str = "",
    **options: Any,
) -> CodePredictor:
    """A decoder that has passed its gate.

    Args:
        kind: a `Decoder` class.
        prefix: what it is called before the name of its format, as variants are.
        format_name: how it holds the weights.
        model: the weights.
        threads: team size.
        suffix: what it is called behind that.
        options: for ``kind``.

    Raises:
        GateFailedError: it is wrong, so that its times would mean nothing.
    """
    build = partial(kind, format=format_name, **options)
    law = format_name if format_named(format_name).blocks is not None else "f32"
    name = f"{prefix}_{format_name}{suffix}"
    cell = gate_cell(Variant(name, format_name, law, "exact", build, "", "", ""), model, threads, frames=GATE_FRAMES)
    if not cell.report.passed:
        raise GateFailedError(f"{name} x {threads}: {cell.report.detail()}; nothing was timed")
    return cell.predictor
