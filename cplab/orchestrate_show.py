"""A run of the loop on the terminal, its figures beside the tablet's, and in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from cplab.cachedir import replacing
from cplab.finite_json import finite_json
from cplab.orchestrate import FRAMES_A_SECOND, Run
from cplab.orchestrate_compare import Compared
from cplab.orchestrate_prepare import Asked, Ready
from cplab.tablet import TABLET
from cplab.thread_pools import MOST, Pools

SCHEMA = "cplab.orchestrate/1"
#: What the loop itself may take of a frame.
OTHER_MS = 0.5
CODES, PREDICTED, TIMES = "codes.npy", "predicted.npy", "times.json"


def figures(run: Run, positions: int) -> list[tuple[str, str, str]]:
    """What is told of a run: name, this machine, the tablet."""
    times, frames = run.times, len(run.codes)
    talker_s, cp_s, loop_s = (float(ns.sum()) / 1e9 for ns in (times.talker, times.cp, times.frame))
    prefill_s, audio_s = times.prefill / 1e9, frames / FRAMES_A_SECOND
    passes = run.codes.shape[1] - 1
    total_s = prefill_s + loop_s
    t = TABLET
    return [
        (
            "talker prefill",
            f"{prefill_s:.3f} s (T={positions})",
            f"{t.prefill_s:.3f} s (T={t.positions})",
        ),
        (
            "loop",
            f"{loop_s:.3f} s (talker {talker_s:.3f}, CP {cp_s:.3f}), {frames} steps",
            f"{t.loop_s:.3f} s (talker {t.talker_s:.3f}, CP {t.cp_s:.3f}), {t.steps} steps",
        ),
        ("talker per step", _per_step(times.talker), f"{t.talker_ms:.1f} ms"),
        (f"CP per step ({passes} passes)", _per_step(times.cp), f"{t.cp_ms:.1f} ms"),
        ("the loop's own, per step", _per_step(times.other, 3), ""),
        (
            "talker + CP",
            f"{total_s:.3f} s, RTF {total_s / audio_s:.2f} ({audio_s:.2f} s of audio)",
            f"{t.total_s:.3f} s, RTF {t.rtf:.2f} ({t.audio_s:.2f} s of audio)",
        ),
    ]


def _per_step(ns: NDArray[np.int64], digits: int = 1) -> str:
    mean, median = float(ns.mean()) / 1e6, float(np.median(ns)) / 1e6
    return f"{mean:.{digits}f} ms (median {median:.{digits}f})"


def show(run: Run, ready: Ready, asked: Asked, against: Compared | None, console: Console) -> None:
    """Print the block of figures and, where there is one, the comparison with the dump."""
    for note in ready.notes:
        _line(console, note)
    table = Table(title=f"{asked.talker} + {asked.variant} of {asked.cp}, {_threads(asked.threads)}")
    for heading in ("", "this machine", TABLET.name):
        table.add_column(heading)
    for row in figures(run, len(ready.speech.prompt.prefill)):
        table.add_row(*row)
    console.print(table)
    other = float(np.median(run.times.other)) / 1e6
    if other > OTHER_MS:
        _line(console, f"the loop's own share, {other:.3f} ms a frame, is above {OTHER_MS} ms")
    distinct = len(np.unique(run.codes, axis=0))
    _line(console, f"{len(run.codes)} frames, {distinct} distinct, {_ending(run, ready, asked)}")
    if ready.speech.teacher is not None:
        taught = run.predicted == run.codes
        _line(console, f"teacher's codes fed back; predicted alike: {_by_codebook(taught.sum(axis=0), len(taught))}")
    if against is not None:
        _show_against(against, console)


def _show_against(against: Compared, console: Console) -> None:
    total = against.frames * len(against.equal)
    _line(
        console,
        f"dump: {against.equal.sum()}/{total} codes equal in {against.frames} frames: "
        f"{_by_codebook(against.equal, against.frames)}",
    )
    if not len(against.steps):
        _line(console, "dump: no frame has all codes equal, so that no next input can be compared")
        return
    _line(
        console,
        f"dump: next input where codes agree, {len(against.steps)} steps: rmse at most {against.rmse.max():.3g}, "
        f"cosine at least {against.cosine.min():.3f}; {against.exact} have the bits of the sum in order"
        + ("" if against.sums_are_right else ": THE SUM IS WRONG"),
    )


def show_pools(pools: Pools, console: Console) -> None:
    """Print both alone and in the loop, and why one takes longer there."""
    for name, measured in (("talker", pools.talker), ("CP", pools.cp)):
        alone, cold, within = (np.median(ns) / 1e6 for ns in (measured.alone, measured.cold, measured.in_loop))
        _line(
            console,
            f"{name}: {alone:.2f} ms alone, {cold:.2f} ms alone with cold caches, {within:.2f} ms in the loop: "
            f"{measured.ratio:.2f}x" + (f", above {MOST:g}x: {measured.cause}" if measured.cause else ""),
        )
    if pools.disturbed:
        _line(console, f"its threads had a CPU for {pools.cpu_share:.0%} of their time: other processes were busy")
    runtimes = pools.runtimes
    one = "one OpenMP runtime serves both" if len(runtimes) == 1 else f"{len(runtimes)} OpenMP runtimes"
    _line(console, f"{one}{': ' + ', '.join(runtimes) if runtimes else ''}")


def write_files(folder: Path, run: Run, asked: Asked, against: Compared | None, pools: Pools | None) -> None:
    """Write codes and times, each under a temporary name first."""
    for name, codes in ((CODES, run.codes), (PREDICTED, run.predicted)):
        with replacing(folder / name) as temporary, temporary.open("wb") as stream:
            np.save(stream, codes)
    times = run.times
    about: dict[str, Any] = {
        "schema": SCHEMA,
        "talker": asked.talker,
        "cp": asked.cp,
        "variant": asked.variant,
        "threads": asked.threads,
        "frames": len(run.codes),
        "ended": "end code" if run.ended else "frames",
        "prefill_ns": times.prefill,
        "talker_ns": times.talker.tolist(),
        "cp_ns": times.cp.tolist(),
        "frame_ns": times.frame.tolist(),
        "dump": None if against is None else against.as_dict(),
        "pools": None if pools is None else pools.as_dict(),
    }
    with replacing(folder / TIMES) as temporary:
        temporary.write_text(finite_json(about, indent=1), encoding="utf-8")


def _by_codebook(equal: NDArray[np.int64], frames: int) -> str:
    return " ".join(f"CB{g} {count}/{frames}" for g, count in enumerate(equal))


def _ending(run: Run, ready: Ready, asked: Asked) -> str:
    if run.ended:
        return "ended by the end code"
    teacher = ready.speech.teacher
    if teacher is not None and len(teacher) < asked.frames:
        return "ended with the teacher's codes"
    return f"stopped by --frames {asked.frames}"


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _line(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
