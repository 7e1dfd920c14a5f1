"""Several utterances at once, on the terminal."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from bench.records import Streams
from cplab.commandline import console
from reports.streams import stream_notes
from reports.wording import milliseconds, significant


def print_streams(streams: Streams) -> None:
    """A row for each cell and number of frames at once, and what went wrong."""
    table = Table(box=None, pad_edge=False)
    table.add_column("variant", overflow="fold")
    for heading in ("threads", "at once", "ms a frame", "frames/s", "gain", "ms a call"):
        table.add_column(heading, justify="right", no_wrap=True)
    for point in streams.points:
        head = (escape(point.variant), str(point.threads), str(point.batch))
        if point.frames_per_s is None:
            table.add_row(*head, point.gate, "-", "-", "-")
            continue
        gain = "-" if point.gain is None else f"{point.gain.ratio:.2f}"
        call = "-" if point.call_ms is None else significant(point.call_ms.p50)
        table.add_row(*head, milliseconds(point.frame_ms), significant(point.frames_per_s.p50), gain, call)
    console.print()
    console.print(table)
    told = "frames of different utterances at once; gain: frames a second beside one at a time"
    console.print(told, style="dim", highlight=False, markup=False)
    for note in stream_notes(streams):
        console.print(note, highlight=False, markup=False, soft_wrap=True)
