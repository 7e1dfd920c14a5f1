"""Multi-token passes: what a pass over 1, 2, 4, 8 and 16 tokens takes beside one token, and of the multiply-add peak.

A batch of B frames runs B tokens a pass, and the last pass of a recomputed frame runs 16 tokens; with them stands the
machine's own multiply-add peak, measured in between. Both decoders are judged by the gate before anything is timed. A
pass over one token waits for memory; the question is how many tokens are almost free, and how near the peak a pass
comes once arithmetic is what is waited for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from rich.table import Table

from bench.frame_work import macs_per_pass
from bench.judged_decoder import judged_decoder
from bench.records import Interval, Ratio
from bench.stats import median_of_rounds, paired_ratio
from cplab.commandline import console
from cplab.decoder import Decoder
from cplab.errors import BadInputError
from cplab.kernels.peak import measured_peak
from cplab.model import Model
from cplab.sources import synthetic
from cplab.variant import CodePredictor, Trace

#: Frames that run at once.
BATCHES = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class PassRow:
    """Passes over so many tokens.

    Attributes:
        tokens: through the layers in one pass.
        ms: of one pass.
        to_one: time beside a pass over one token, paired by round.
        gmacs: thousand millions of multiply-adds a second.
        of_peak: share of the multiply-add peak of the same round.
    """

    tokens: int
    ms: Interval
    to_one: Ratio
    gmacs: float
    of_peak: Interval


def measured_passes(model: Model, format_name: str, threads: int, rounds: int) -> list[PassRow]:
    """Measure passes of a format; every round runs every token count and the peak, one after another.

    Raises:
        GateFailedError: a decoder is wrong, so that its times mean nothing.
        BadInputError: a model whose frames are one pass.
    """
    if model.spec.passes < 2:
        raise BadInputError(f"{model.name}: its frames are one pass over two tokens, and none over one")
    model.check_finite()
    cached = judged_decoder(Decoder, "kv", format_name, model, threads)
    recomputed = judged_decoder(Decoder, "recompute", format_name, model, threads, recompute=True)
    times: dict[int, dict[int, list[float]]] = defaultdict(dict)
    shares: dict[int, list[list[float]]] = defaultdict(list)
    for number in range(-1, rounds):  # the first is a warm-up
        peak = measured_peak(threads)
        for tokens, milliseconds in _round(model, cached, recomputed, number):
            if number >= 0:
                times[tokens][number] = milliseconds
                shares[tokens].append([_gmac(model, tokens) * 1e3 / ms / peak for ms in milliseconds])
    rows = []
    for tokens, of_rounds in times.items():
        ms = median_of_rounds(list(of_rounds.values()))
        to_one = paired_ratio(times[1], of_rounds)
        assert to_one is not None
        gmacs = _gmac(model, tokens) * 1e3 / ms.p50
        rows.append(PassRow(tokens, ms, to_one, gmacs, median_of_rounds(shares[tokens])))
    return rows


def _round(
    model: Model, cached: CodePredictor, recomputed: CodePredictor, number: int
) -> Iterator[tuple[int, list[float]]]:
    """Milliseconds of passes by tokens, on frames that come only once."""
    width, start = model.spec.talker_hidden, (number + 1) * max(BATCHES)
    hidden = synthetic.hidden_states(model.name, max(BATCHES), width, start)
    cb0 = synthetic.cb0_embeddings(model.name, max(BATCHES), width, start)
    for count in BATCHES:
        trace = Trace()
        cached.predict(hidden[:count], cb0[:count], trace=trace)
        yield count, [ns / 1e6 for ns in trace.pass_ns[1:]]
    if model.spec.positions in BATCHES:
        return  # its longest pass is as long as a batch's, and would be taken for it
    trace = Trace()
    recomputed.predict(hidden[:1], cb0[:1], trace=trace)
    yield model.spec.positions, [float(trace.pass_ns[-1]) / 1e6]


def _gmac(model: Model, tokens: int) -> float:
    """Thousand millions of multiply-adds of a pass: over a batch's frames, else the last one of a recomputed frame."""
    spec = model.spec
    if tokens in BATCHES:
        return tokens * macs_per_pass(spec, 1, recompute=False) / 1e9
    return macs_per_pass(spec, spec.passes - 1, recompute=True) / 1e9


def show(rows: list[PassRow], title: str) -> None:
    """Print a table of passes."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for heading in ("tokens", "ms a pass", "x one token", "GMAC/s", "of the peak"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            str(row.tokens),
            f"{row.ms.p50:.2f} [{row.ms.lo:.2f}, {row.ms.hi:.2f}]",
            f"{row.to_one.ratio:.2f} [{row.to_one.lo:.2f}, {row.to_one.hi:.2f}]",
            f"{row.gmacs:.1f}",
            f"{100 * row.of_peak.p50:.0f} % [{100 * row.of_peak.lo:.0f}, {100 * row.of_peak.hi:.0f}]",
        )
    console.print(table)
