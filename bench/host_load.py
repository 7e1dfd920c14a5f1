"""What else takes time from this machine: load, stolen time, quota throttling, and how to measure it around work."""

from __future__ import annotations

import os
import time
from pathlib import Path

from cplab.cgroup import throttling
from cplab.sysfiles import ROOT, read_text

SAMPLE_S = 0.1

Counters = dict[str, int | None]


def parse_proc_stat(text: str | None) -> Counters:
    """The first line of /proc/stat: jiffies of all CPUs, in total, idle (with I/O wait) and stolen; None unknown."""
    first = (text or "").split("\n", 1)[0].split()
    if len(first) < 5 or first[0] != "cpu" or not all(word.isdigit() for word in first[1:]):
        return {"steal_jiffies": None, "total_jiffies": None, "idle_jiffies": None}
    values = [int(word) for word in first[1:9]]  # the two guest columns are part of user and nice already
    return {
        "steal_jiffies": values[7] if len(values) > 7 else None,
        "total_jiffies": sum(values),
        "idle_jiffies": sum(values[3:5]),
    }


def steal_and_throttle(root: Path = ROOT) -> Counters:
    """A snapshot of counters, to be taken before and after some work and given to `load_between`.

    Returns:
        steal_jiffies, total_jiffies and idle_jiffies of the whole machine since boot; nr_throttled and
        throttled_usec of this control group and its ancestors since their start. None where it cannot be read.
    """
    times, waits_usec = throttling(root)
    return {**parse_proc_stat(read_text(root / "proc/stat")), "nr_throttled": times, "throttled_usec": waits_usec}


def load_between(before: Counters, after: Counters) -> dict[str, float | int | None]:
    """What two snapshots tell of the time between them.

    Returns:
        steal_share and busy_share (0..1 of all CPUs; busy counts one's own work too), nr_throttled and
        throttled_ms. None where a counter is missing or no jiffy (10 ms as a rule) has passed.
    """

    def gone(name: str) -> int | None:
        first, last = before.get(name), after.get(name)
        return None if first is None or last is None else max(0, last - first)

    def share(part: int | None, whole: int | None) -> float | None:
        return None if part is None or not whole else min(1.0, part / whole)

    idle_share = share(gone("idle_jiffies"), gone("total_jiffies"))
    waits_usec = gone("throttled_usec")
    return {
        "steal_share": share(gone("steal_jiffies"), gone("total_jiffies")),
        "busy_share": None if idle_share is None else 1.0 - idle_share,
        "nr_throttled": gone("nr_throttled"),
        "throttled_ms": None if waits_usec is None else waits_usec / 1000,
    }


def load_facts(root: Path = ROOT, sample_s: float = SAMPLE_S) -> dict[str, float | int | None]:
    """The load average, counters since boot, and a sample of ``sample_s`` seconds in which this process sleeps.

    The sample says what runs beside the lab right now, which the load average, a minute's memory, does not.
    """
    try:
        loadavg = os.getloadavg()[0]
    except OSError:
        loadavg = None
    before = steal_and_throttle(root)
    time.sleep(sample_s)
    sample = load_between(before, steal_and_throttle(root))
    boot = load_between({name: None if value is None else 0 for name, value in before.items()}, before)
    return {
        "loadavg_1m": loadavg,
        "busy_share_sample": _rounded(sample["busy_share"]),
        "steal_share_sample": _rounded(sample["steal_share"]),
        "steal_share_since_boot": _rounded(boot["steal_share"]),
        "nr_throttled": before["nr_throttled"],
        "throttled_ms": boot["throttled_ms"],
        "throttled_ms_sample": sample["throttled_ms"],
    }


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)
