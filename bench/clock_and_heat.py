"""Clock, governor, boost, temperature, and whether heat holds the CPU back; from /sys, /proc/cpuinfo or macOS's pmset.

A virtual machine tells none of it as a rule, and its "cpu MHz" is the nominal clock: it never changes.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from cplab.sysfiles import ROOT, command_output, present, read_int, read_text

_CPU = "sys/devices/system/cpu"
_FREQUENCIES = {
    "current_mhz": "scaling_cur_freq",
    "min_mhz": "cpuinfo_min_freq",
    "max_mhz": "cpuinfo_max_freq",
    "limit_mhz": "scaling_max_freq",
}
_WORDS = {
    "governor": "scaling_governor",
    "driver": "scaling_driver",
    "preference": "energy_performance_preference",
}
_SENSORS = re.compile(r"cpu|x86_pkg|coretemp|k10temp|zenpower|soc", re.I)
#: Cooling devices of the kernel that slow a CPU down: ACPI's, and the clock as Arm's kernels cap it.
_BRAKES = re.compile(r"processor|cpufreq", re.I)


def frequency_facts(root: Path = ROOT) -> dict[str, Any]:
    """Clocks in MHz, governor, driver, energy preference and boost; None where the machine does not tell.

    ``limit_mhz`` is the most that the clock may be set to now, ``max_mhz`` the most that the CPU can do.
    """
    base = root / _CPU
    policies = sorted(base.glob("cpufreq/policy*"), key=lambda path: (len(path.name), path.name))
    # Some drivers wake a CPU to answer; eight policies tell enough, and every kind of core has one on hybrids.
    found: dict[str, Any] = {}
    for ours, theirs in _FREQUENCIES.items():
        values_khz = [value for policy in policies[:8] if (value := read_int(policy / theirs))]
        found[ours] = (min if ours == "min_mhz" else max)(values_khz) / 1000 if values_khz else None
    if found["current_mhz"] is None:
        shown = _shown_mhz(root).values()
        found["current_mhz"] = next(iter(shown), None)
    for ours, theirs in _WORDS.items():
        kinds = {text for policy in policies if (text := read_text(policy / theirs))}
        found[ours] = "+".join(sorted(kinds)) or None
    boost, no_turbo = read_int(base / "cpufreq/boost"), read_int(base / "intel_pstate/no_turbo")
    found["boost"] = bool(boost) if boost is not None else None if no_turbo is None else not no_turbo
    return found


def clock_mhz(cpus: Collection[int], root: Path = ROOT) -> float | None:
    """The mean clock of some logical CPUs right now, MHz, or None where it is not told."""
    khz = [value for cpu in cpus if (value := read_int(root / _CPU / f"cpu{cpu}/cpufreq/scaling_cur_freq"))]
    if khz:
        return round(sum(khz) / len(khz) / 1000, 1)
    shown = _shown_mhz(root)
    mhz = [shown[cpu] for cpu in cpus if cpu in shown]
    return round(sum(mhz) / len(mhz), 1) if mhz else None


def _shown_mhz(root: Path) -> dict[int, float]:
    """MHz by logical CPU as /proc/cpuinfo shows it."""
    text = read_text(root / "proc/cpuinfo") or ""
    found = re.findall(r"^processor\s*:\s*(\d+)$|^cpu MHz\s*:\s*([\d.]+)$", text, re.M)
    shown, cpu = {}, 0
    for number, mhz in found:
        if number:
            cpu = int(number)
        else:
            shown[cpu] = float(mhz)
    return shown


def heat_facts(root: Path = ROOT) -> dict[str, float | int | None]:
    """How warm the CPU is, and what heat has cost it.

    Returns:
        ``cpu_celsius``: the hottest of the sensors whose name is a CPU's. ``throttle_count``: how often heat lowered a
        core's clock since boot (Intel). ``brake_steps``: how far the kernel's cooling devices slow the CPU down now,
        0 not at all. ``speed_limit_percent``: the share of its speed that macOS grants. None where it is not told.
    """
    return {
        "cpu_celsius": _celsius(root),
        "throttle_count": _throttle_count(root),
        "brake_steps": _brake_steps(root),
        "speed_limit_percent": None if present(root / "proc") else _speed_limit(command_output("pmset", "-g", "therm")),
    }


def _celsius(root: Path) -> float | None:
    readings = [
        value
        for zone in root.glob("sys/class/thermal/thermal_zone*")
        if _SENSORS.search(read_text(zone / "type") or "") and (value := read_int(zone / "temp"))
    ]
    for monitor in root.glob("sys/class/hwmon/hwmon*"):
        if _SENSORS.search(read_text(monitor / "name") or ""):
            readings += [value for sensor in monitor.glob("temp*_input") if (value := read_int(sensor))]
    plausible = [value / 1000 for value in readings if 0 < value < 150_000]
    return max(plausible, default=None)


def _throttle_count(root: Path) -> int | None:
    counts = [
        count
        for name in ("core_throttle_count", "package_throttle_count")
        for file in root.glob(f"{_CPU}/cpu[0-9]*/thermal_throttle/{name}")
        if (count := read_int(file)) is not None
    ]
    return sum(counts) if counts else None


def _brake_steps(root: Path) -> int | None:
    states = [
        state
        for device in root.glob("sys/class/thermal/cooling_device*")
        if _BRAKES.search(read_text(device / "type") or "") and (state := read_int(device / "cur_state")) is not None
    ]
    return max(states) if states else None


def _speed_limit(pmset: str | None) -> int | None:
    """``CPU_Speed_Limit = 100`` of ``pmset -g therm``; Apple's own chips print it only once they were limited."""
    found = re.search(r"CPU_Speed_Limit\s*=\s*(\d+)", pmset or "")
    return int(found.group(1)) if found else None
