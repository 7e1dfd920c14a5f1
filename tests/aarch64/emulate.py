"""Run the gate on 64-bit Arm where there is none: an arm64 Python, its wheels, and qemu's user emulation.

    python tests/aarch64/emulate.py FOLDER [options of bench gate]

Everything lands in FOLDER. The packages come from the Debian that this runs on, are unpacked and never installed, and
apt keeps its lists there too: the machine is left as it was, and nobody needs to be root. What is gated is the wheel
of this checkout, against the committed goldens, which were made on another instruction set.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
MODEL = "synthetic:tiny"
#: What the wheels load beyond what Python itself does.
LIBRARIES = ("libgomp1", "libstdc++6")
#: Interpreters that the project takes, as Debian numbers them.
PYTHONS = ("3.11", "3.12", "3.13")


class Cpu(NamedTuple):
    """A CPU: its name for qemu, its part number, and its features as Linux lists them in /proc/cpuinfo."""

    name: str
    part: int
    features: str

    def info(self) -> str:
        """What /proc/cpuinfo of a machine with two of them says; 0x41 is Arm."""
        facts = {"BogoMIPS": "50.00", "Features": self.features, "CPU implementer": "0x41", "CPU architecture": "8"}
        facts |= {"CPU variant": "0x0", "CPU part": f"{self.part:#x}", "CPU revision": "0"}
        return "".join(
            "".join(f"{name}\t: {value}\n" for name, value in ({"processor": str(n)} | facts).items()) + "\n"
            for n in range(2)
        )


_ARMV8 = "fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid"
A53 = Cpu("cortex-a53", 0xD03, _ARMV8)
#: With dot products of bytes.
N1 = Cpu("neoverse-n1", 0xD0C, f"{_ARMV8} atomics fphp asimdhp asimdrdm lrcpc dcpop asimddp ssbs")

#: CPU, options of ``bench gate``, of which the last of a kind counts. Kernels are compiled once for each CPU.
RUNS = (
    (N1, ["--threads", "1"]),
    (N1, ["--threads", "2", "--variants", "kv_bf16,kv_q8_0,kv_q5_0,kv_q4_0"]),
    (N1, ["--threads", "2", "--variants", "kv_q6_k", "--model", "synthetic:tiny-wide"]),
    (A53, ["--threads", "1"]),
    (A53, ["--threads", "2", "--variants", "kv_bf16,kv_q8_0,kv_q5_0,kv_q4_0"]),
    (A53, ["--threads", "2", "--variants", "kv_q6_k", "--model", "synthetic:tiny-wide"]),
)

_took: list[tuple[str, float]] = []


@contextmanager
def _step(name: str) -> Iterator[None]:
    print(f"== {name}", flush=True)
    started = time.perf_counter()
    try:
        yield
    finally:
        _took.append((name, time.perf_counter() - started))


def _unpack(folder: Path, architecture: str, packages: tuple[str, ...]) -> None:
    """Download packages of an architecture with all that they depend on, and unpack them into a folder.

    Raises:
        SystemExit: the machine's package sources do not have them.
    """
    if folder.exists():
        return
    state = folder.with_name(f"{folder.name}.apt")
    for kept in ("lists", "archives"):
        (state / kept / "partial").mkdir(parents=True, exist_ok=True)
    (state / "status").touch()  # nothing is installed there, so that every dependency is fetched
    settings = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "",
        "Debug::NoLocking": "true",
        "Dir::State": state,
        "Dir::State::status": state / "status",
        "Dir::Cache": state,
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
    subprocess.run([*apt, "update"], check=False)  # some other source may be out of reach
    if subprocess.run([*apt, "--yes", "--download-only", "install", *packages], check=False).returncode:
        raise SystemExit(
            f"no {', '.join(packages)} for {architecture} in this machine's package sources; Debian has them"
        )
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    for package in sorted((state / "archives").glob("*.deb")):
        subprocess.run(["dpkg", "--extract", package, unfinished], check=True)
    for name in ("bin", "lib", "sbin"):  # Debian 13's packages take these links for granted
        if not (unfinished / name).exists():
            (unfinished / name).symlink_to(f"usr/{name}")
    unfinished.rename(folder)


def _interpreter(tools: Path, system: Path) -> tuple[Path, str]:
    """A script that is Python on emulated Arm, also to the processes that it starts; and Python's version."""
    emulators = [tools / "usr/bin" / name for name in ("qemu-aarch64-static", "qemu-aarch64")]
    emulator = next(path for path in emulators if path.exists())
    version = next(v for v in PYTHONS if (system / f"usr/bin/python{v}").exists())
    script = system / "usr/bin/emulated-python"
    # By argument 0 Python takes the script for itself; without site it sees nothing of the host's packages.
    real = system / f"usr/bin/python{version}"
    script.write_text(f'#!/bin/sh\nexec "{emulator}" -L "{system}" -0 "$0" "{real}" -S "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return script, version


def _install(site: Path, version: str) -> None:
    """The project and its dependencies as arm64 wheels."""
    shutil.rmtree(site, ignore_errors=True)
    platforms = ["manylinux2014_aarch64", *(f"manylinux_2_{minor}_aarch64" for minor in range(17, 37))]
    quiet = ["--quiet", "--disable-pip-version-check", "--no-warn-conflicts", "--root-user-action=ignore"]
    target = ["--target", str(site), "--only-binary=:all:", "--implementation", "cp", "--python-version", version]
    each = [f"--platform={name}" for name in platforms]
    subprocess.run([sys.executable, "-m", "pip", "install", *quiet, *target, *each, str(CHECKOUT)], check=True)


def _gate(python: Path, work: Path, cpu: Cpu, options: list[str]) -> bool:
    # qemu looks here before it looks at the host's; LLVM reads it.
    info = work / "system/proc/cpuinfo"
    info.parent.mkdir(exist_ok=True)
    info.write_text(cpu.info(), encoding="utf-8")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "PYTHON"))}
    environment = {
        "PYTHONPATH": str(work / "site"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CPLAB_CACHE": str(work / "cache"),
        "QEMU_CPU": cpu.name,
    }
    command = [str(python), "-m", "bench", "gate", "--model", MODEL, *options]
    # Elsewhere than in the checkout, so that the wheel is what runs.
    return subprocess.run(command, env=inherited | environment, cwd=work, check=False).returncode == 0


def main() -> int:
    """Set up what is missing, run everything, tell the times."""
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        raise SystemExit("which folder? python tests/aarch64/emulate.py FOLDER [options of bench gate]")
    for tool in ("apt-get", "dpkg"):
        if shutil.which(tool) is None:
            raise SystemExit(f"no {tool} here: the emulator and the arm64 Python come from Debian's packages")
    work = Path(sys.argv[1]).resolve()
    native = subprocess.run(["dpkg", "--print-architecture"], check=True, capture_output=True, text=True).stdout.strip()
    with _step("qemu"):
        _unpack(work / "tools", native, ("qemu-user-static",))
    with _step("an arm64 Python"):
        _unpack(work / "system", "arm64", ("python3", *LIBRARIES))
    python, version = _interpreter(work / "tools", work / "system")
    with _step(f"wheels for Python {version} on aarch64"):
        _install(work / "site", version)
    passed = []
    for cpu, options in RUNS:
        with _step(f"{cpu.name}: bench gate {' '.join(options)}"):
            passed.append(_gate(python, work, cpu, [*options, *sys.argv[2:]]))
    for name, seconds in _took:
        print(f"{seconds:7.0f} s  {name}")
    print(f"{sum(seconds for _, seconds in _took):7.0f} s in all; {sum(passed)} of {len(passed)} gates passed")
    return 0 if all(passed) else 2


if __name__ == "__main__":
    sys.exit(main())
