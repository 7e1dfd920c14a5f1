"""Reading /proc, /sys and macOS's sysctl: text in, values out, None where a machine does not tell.

Every reader takes a path below a ``root`` that its caller was given, so that a made-up machine is a folder.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path("/")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def read_text(path: Path) -> str | None:
    """The file's text without surrounding white space, or None where it is missing, forbidden or unreadable."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip("\0 \t\r\n")
    except OSError:
        return None


def present(path: Path) -> bool:
    """Whether the path exists and may be looked at."""
    try:
        return path.exists()
    except OSError:
        return False


def read_int(path: Path) -> int | None:
    """The file's whole text as an integer, or None."""
    text = read_text(path)
    try:
        return int(text) if text else None
    except ValueError:
        return None


def parse_cpu_list(text: str | None) -> list[int]:
    """The kernel's list format, ``"0-3,8"`` -> ``[0, 1, 2, 3, 8]``; empty where there is none or it is malformed."""
    found: list[int] = []
    for part in (text or "").split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and (last.isdigit() or not last):
            found.extend(range(int(first), int(last or first) + 1))
    return found


def parse_size(text: str | None) -> int | None:
    """A size as /sys writes it, ``"2048K"`` -> bytes."""
    if not text:
        return None
    number, unit = (text[:-1], _UNITS[text[-1]]) if text[-1] in _UNITS else (text, 1)
    return int(number) * unit if number.isdigit() else None


def parse_pairs(text: str | None, separator: str | None = None) -> dict[str, str]:
    """Lines of ``name <separator> value`` (/proc/meminfo, cpu.stat, sysctl) as a dict; other lines are dropped."""
    pairs = (line.split(separator, 1) for line in (text or "").splitlines())
    return {pair[0].strip(): pair[1].strip() for pair in pairs if len(pair) == 2}


def command_output(*command: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> str | None:
    """What a short command printed, or None where it is missing, failed or took more than five seconds."""
    try:
        done = subprocess.run(
            command, cwd=cwd, env=env, capture_output=True, text=True, errors="replace", timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def sysctl() -> dict[str, str]:
    """MacOS's hardware facts by name (``hw.perflevel0.physicalcpu``); empty where there is no such command."""
    text = command_output("sysctl", "hw", "machdep.cpu", "kern.hv_vmm_present")
    if text is None:  # sysctl fails as a whole where one name is unknown
        text = command_output("sysctl", "hw")
    return parse_pairs(text, ":")
