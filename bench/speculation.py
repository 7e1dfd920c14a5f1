"""What exact speculation is worth: speed beside the plain decoder as a curve over the share of drafts that hold.

On seeded weights nothing is learnt, so drafts are handed in of which a set share is right; everything else is real: the
passes over several tokens, the drafter (run for its cost alone), verifying, and the controller, which has a state of
its own for each share and some frames to learn before anything is timed. A last row has the drafter's own drafts. How
often those hold on a trained checkpoint is for its owner to measure: give it as the model.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from bench.errors import GateFailedError
from bench.judged_decoder import judged_decoder
from bench.records import CurvePoint, Interval
from bench.stats import median_of_rounds, paired_ratio
from cplab.commandline import console
from cplab.decoder import Decoder
from cplab.model import Model
from cplab.sources import synthetic
from cplab.speculation.acceptance import Acceptance
from cplab.speculation.decoder import SpeculativeDecoder
from cplab.speculation.draft_length import DraftLength
from cplab.variant import HEADS, CodePredictor

#: Shares of drafts that hold.
SHARES = (0.0, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
#: Frames before the first that is timed, in which draft lengths are learnt.
LEARNING = 16


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve.

    Attributes:
        variant: whose it is.
        plain_ms: milliseconds of a frame of the plain decoder.
        points: shares that were set, then the drafter's own drafts.
        draft: what a draft took, in passes over the layers with one token: one pays where it holds more often.
        draft_timed: whether that was timed; else it is what its bytes say.
    """

    variant: str
    plain_ms: Interval
    points: list[CurvePoint]
    draft: float
    draft_timed: bool


@dataclass(slots=True)
class _Point:
    """What one share's frames have taught and taken."""

    length: DraftLength
    acceptance: Acceptance
    ms: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))


def measured_curve(
    model: Model,
    format_name: str,
    threads: int,
    rounds: int,
    shares: Sequence[float] = SHARES,
    drafter: str = HEADS,
) -> Curve:
    """Time a frame of the plain decoder, and of the speculative one for each share, in turn in every round.

    Args:
        model: the weights.
        format_name: how the decoders hold them.
        threads: team size.
        rounds: of timed frames.
        shares: of drafts that hold.
        drafter: `HEADS`, or the format of the model that drafts.

    Raises:
        GateFailedError: a decoder is wrong, before anything is timed or in a timed frame.
    """
    model.check_finite()
    plain = judged_decoder(Decoder, "kv", format_name, model, threads)
    suffix = "" if drafter == HEADS else f"_{drafter}"
    speculative = judged_decoder(SpeculativeDecoder, "spec", format_name, model, threads, suffix, drafter=drafter)
    assert isinstance(speculative, SpeculativeDecoder)
    variant, passes = f"spec_{format_name}{suffix}", model.spec.passes
    points = {share: _Point(speculative.new_length(), Acceptance(passes)) for share in (*shares, None)}
    plain_ms: dict[int, list[float]] = {}
    random = np.random.default_rng(0)
    for number in range(-LEARNING, rounds):
        hidden = synthetic.hidden_states(model.name, 1, model.spec.talker_hidden, number + LEARNING)
        cb0 = synthetic.cb0_embeddings(model.name, 1, model.spec.talker_hidden, number + LEARNING)
        codes, ms = _timed(plain, hidden, cb0)
        if number >= 0:
            plain_ms[number] = [ms]
        for share, point in points.items():
            if number == 0:
                point.acceptance = Acceptance(passes)
            speculative.length, speculative.acceptance = point.length, point.acceptance
            with _drafts(speculative, codes, share, random):
                found, ms = _timed(speculative, hidden, cb0)
            if not np.array_equal(found, codes):
                raise GateFailedError(f"{variant}: other codes than kv_{format_name}; its times mean nothing")
            if number >= 0:
                point.ms[number] = [ms]
    costs = [point.length.drafts for point in points.values()]
    timed = [cost for cost in costs if cost.timed]
    return Curve(
        variant,
        median_of_rounds(list(plain_ms.values())),
        [_told(share, point, plain_ms) for share, point in points.items()],
        float(np.median([cost.draft() for cost in timed or costs])),
        bool(timed),
    )


def _timed(
    predictor: CodePredictor, hidden: NDArray[np.float32], cb0: NDArray[np.float32]
) -> tuple[NDArray[np.int32], float]:
    """One call as a user would make it: its codes, and milliseconds."""
    started = time.perf_counter_ns()
    codes = predictor.predict(hidden, cb0)
    return codes, (time.perf_counter_ns() - started) / 1e6


def _drafts(
    predictor: SpeculativeDecoder, codes: NDArray[np.int32], share: float | None, random: np.random.Generator
) -> AbstractContextManager[None]:
    """Drafts of which a share is right; the predictor's own where that is None."""
    if share is None:
        return nullcontext()
    wrong = random.random(codes.shape) >= share
    return predictor.drafting(np.where(wrong, (codes + 1) % predictor.model.spec.vocab, codes), controlled=True)


def _told(share: float | None, point: _Point, plain_ms: dict[int, list[float]]) -> CurvePoint:
    counts = point.acceptance
    asked = int(counts.asked.sum())
    speedup = paired_ratio(point.ms, plain_ms)
    assert speedup is not None
    return CurvePoint(
        share=share,
        held=int(counts.held.sum()) / asked if asked else None,
        codes_per_pass=counts.frames * len(counts.asked) / counts.passes,
        passes_per_frame=counts.passes / counts.frames,
        ms=median_of_rounds(list(point.ms.values())),
        speedup=speedup,
    )


def show(curve: Curve, format_name: str, title: str) -> None:
    """Print the curve as a table."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for heading in ("right", "held", "codes a pass", "passes", "ms a frame", f"x kv_{format_name}"):
        table.add_column(heading, justify="right", no_wrap=True)
    for point in curve.points:
        table.add_row(
            "own" if point.share is None else f"{point.share:.2f}",
            "-" if point.held is None else f"{point.held:.2f}",
            f"{point.codes_per_pass:.2f}",
            f"{point.passes_per_frame:.1f}",
            f"{_ms(point.ms.p50)} [{_ms(point.ms.lo)}, {_ms(point.ms.hi)}]",
            f"{point.speedup.ratio:.2f} [{point.speedup.lo:.2f}, {point.speedup.hi:.2f}]",
        )
    console.print(table)
    plain_ms = curve.plain_ms
    told = f"{_ms(plain_ms.p50)} ms a frame [{_ms(plain_ms.lo)}, {_ms(plain_ms.hi)}]"
    console.print(f"kv_{format_name}: {told}", highlight=False, markup=False)
    by = "here" if curve.draft_timed else "by its bytes"
    told = (
        f"A draft takes {curve.draft:.2f} passes over the layers {by}: one pays where more than {curve.draft:.0%} "
        "hold. right: share of drafts that are right, as set; own: the drafter's own drafts. How often those of a "
        "trained checkpoint hold is for its owner to measure; seeded weights have learnt nothing."
    )
    if any(point.held is None for point in curve.points):
        told += " held -: no draft was asked for, since none was worth its price."
    console.print(told, style="dim", highlight=False, markup=False, soft_wrap=True)


def _ms(value: float) -> str:
    """Tenths count in frames that take less than 100 ms."""
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
