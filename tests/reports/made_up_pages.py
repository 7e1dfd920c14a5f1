"""Pages over several runs, and a profile, of made-up figures. None was measured."""

from __future__ import annotations

from made_up_runs import cell, realistic, summary

from bench.records import PART_LABELS, PartTime, Profile, ProfileSamples, Ratio
from reports.beside import make_beside
from reports.figure_table import FigureTable, Heading
from reports.figures_page import FiguresPage, Section
from reports.history_chart import Line, Point, history_chart

OTHER_MACHINE = {"cpu": {"model": "Imaginary 10000", "allowed": 8}}


def beside_page():
    """Three runs: two machines, one of another baseline."""
    other = realistic().model_copy(update={"machine": OTHER_MACHINE})
    third = summary([cell("kv_bf16", 8, 12.0), cell("kv_new", 8, 10.0)], machine=OTHER_MACHINE, baseline="kv_bf16")
    return make_beside([("first-run", realistic()), ("second-run", other), ("third-run", third)], "python -m bench")


def history_page(runs=12):
    """Two variants, one of which became slower."""
    flags = {5: "slower"}
    lines = [
        Line("kv_bf16 × 2", True, [Point(at, 60 + (at > 4) * 6, 59, 68, flags.get(at, "")) for at in range(runs)]),
        Line("kv_q8_0 × 2", False, [Point(at, 30.0, 29.5, 31) for at in range(0, runs, 2)]),
    ]
    headings = (Heading("variant", is_text=True, names_row=True), Heading("ms"), Heading("flag", is_text=True))
    rows = [[line.label, str(point.ms), point.flag or "–"] for line in lines for point in line.points]
    headline = "12 runs, 2 variants: kv_bf16 × 2 slower from c5 on. " * 12
    return FiguresPage(
        "Run by run", "a machine", headline, ["A note."], "Over runs.",
        history_chart(lines, [f"c{number:08}+" for number in range(runs)]),
        [Section("figures", "Figures", FigureTable(headings, rows))], has_dots=True, command="python -m bench history",
    )  # fmt: skip


def made_up_profile(passes=15):
    """A profile of 40 ms a frame."""
    parts = [
        PartTime(name=name, ms=1.0 + number, share=0.02, bytes=10**7 * number, gbps=float(number) or None,
                 pass_ms=[(1.0 + number) / passes] * passes)
        for number, name in enumerate(PART_LABELS)
    ]  # fmt: skip
    samples = ProfileSamples(parts=[], part_bytes=[], traced_ns=[], untraced_ns=[], laps_ns=[])
    return Profile(
        variant="kv_bf16", format="bf16", threads=2, model="made-up", started_utc="2001-02-03T04:05:06Z", frames=20,
        passes=passes, frame_ms=67.0, untraced_ms=66.5, sum_share=0.99, tracing=Ratio(ratio=1.003, lo=1.001, hi=1.004),
        parts=parts, waiting_ms=[1.0, 2.0], counters={}, counters_reason="perf is not installed", oversubscribed=False,
        facts={}, samples=samples,
    )  # fmt: skip
