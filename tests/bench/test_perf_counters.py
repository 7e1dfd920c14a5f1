"""Counters by perf stat, with a made-up perf on the path: what is counted, and what is said where nothing is."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from bench import perf_counters
from bench.perf_counters import HARDWARE, SOFTWARE, count, parse

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="perf is a tool of Linux")

#: Obeys commands as perf does and counts those that came before it wrote; each mode is a machine.
PERF = """#!{python}
import os, signal, sys
mode = {mode!r}
if mode == "forbidden":
    sys.exit("Error:\\nAccess to counters is limited.\\nEnforced MAC policy")
if mode == "old":
    sys.exit(" Error: unknown option `control'")
if mode == "silent":
    sys.exit(255)
output = sys.argv[sys.argv.index("-o") + 1]
assert sys.argv[sys.argv.index("-p") + 1] == str(os.getppid())
commands, answers = map(int, sys.argv[sys.argv.index("--control") + 1].removeprefix("fd:").split(","))
told = []
def finish(*_):
    counted = "100" if told == ["enable", "disable"] else "0"
    with open(output, "w") as stream:
        stream.write("# started on a day\\n\\n")
        for event in sys.argv[sys.argv.index("-e") + 1].split(","):
            hardware = event in {hardware}
            value = "<not supported>" if hardware and mode == "guest" else counted
            suffix = ":u" if hardware and mode == "user" else ""
            stream.write(f"{{value}},,{{event}}{{suffix}},1000,100.00,,\\n")
    sys.exit(0)
signal.signal(signal.SIGINT, finish)
while line := os.read(commands, 64):
    told.append(line.decode().strip())
    if mode == "deaf" and told == ["enable", "disable"]:
        finish()
    os.write(answers, b"ack\\n")
signal.pause()
"""


@pytest.fixture
def perf_of(tmp_path, monkeypatch):
    """Put a perf of a mode on the path, and nothing else."""

    def make(mode):
        folder = tmp_path / "bin"
        folder.mkdir()
        perf = folder / "perf"
        perf.write_text(PERF.format(python=sys.executable, mode=mode, hardware=set(HARDWARE)))
        perf.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))

    return make


@pytest.fixture
def root(tmp_path):
    """A /proc of a virtual machine that forbids counting."""
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/perf_event_paranoid").write_text("4\n")
    (tmp_path / "proc/cpuinfo").write_text("flags\t\t: sse2 hypervisor avx2\n")
    return tmp_path


@pytest.mark.parametrize("mode", ["well", "user"])
def test_only_the_work_is_counted(perf_of, mode):
    perf_of(mode)
    calls = []
    found = count(lambda: calls.append(1))
    assert calls == [1]
    assert found.counts == dict.fromkeys((*HARDWARE, *SOFTWARE), 100.0)
    assert found.reason == ""


def test_a_virtual_machine_counts_what_its_kernel_counts(perf_of, root):
    perf_of("guest")
    found = count(lambda: None, root)
    assert found.counts == dict.fromkeys(SOFTWARE, 100.0)
    assert found.reason == "not supported by this virtual machine"
    (root / "proc/cpuinfo").write_text("flags\t\t: sse2 avx2\n")
    assert count(lambda: None, root).reason == "not supported by this processor or its kernel"


def test_where_it_is_forbidden_the_setting_is_named(perf_of, root, monkeypatch):
    perf_of("forbidden")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = count(lambda: pytest.fail("nothing counts this"), root)
    assert found.counts == {}
    assert found.reason == "kernel.perf_event_paranoid = 4; sysctl kernel.perf_event_paranoid=2 allows it"


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("forbidden", "perf cannot count here: Access to counters is limited."),
        ("old", "perf cannot count here: Error: unknown option `control'"),
        ("silent", "perf cannot count here, and does not say why"),
    ],
)  # fmt: skip
def test_otherwise_perf_is_quoted(perf_of, root, monkeypatch, mode, reason):
    perf_of(mode)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert count(lambda: None, root).reason == reason


def test_without_perf(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert count(lambda: pytest.fail("nothing counts this")).reason == "perf is not installed"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no program", "cannot be started: Exec format error"),
        ("#!/proc/none\n", "cannot be started: No such file or directory"),
        ("#!/bin/sh\n/bin/sleep 60 & exit 1\n", "perf cannot count here, and does not say why"),
    ],
)
def test_a_perf_that_is_none_costs_the_counters_and_no_time(monkeypatch, tmp_path, text, reason):
    (tmp_path / "perf").write_text(text)
    (tmp_path / "perf").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    before, started = len(list(Path("/proc/self/fd").iterdir())), time.monotonic()
    assert count(lambda: pytest.fail("nothing counts this")).reason.endswith(reason)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert time.monotonic() - started < 30


def test_counts_that_were_not_ended_in_time_are_none(perf_of):
    perf_of("deaf")
    assert count(lambda: None) == perf_counters.Counters(reason="perf gave up while it counted")


def test_elsewhere_than_on_linux(monkeypatch):
    monkeypatch.setattr(perf_counters.sys, "platform", "darwin")
    assert count(lambda: None).reason == "perf stat is a tool of Linux"


def test_an_error_in_the_work_ends_perf(perf_of):
    perf_of("well")
    with pytest.raises(ZeroDivisionError):
        count(lambda: 1 / 0)


def test_no_descriptor_is_left_open(perf_of):
    perf_of("well")
    before = len(list(Path("/proc/self/fd").iterdir()))
    count(lambda: None)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_parsing():
    text = "# started\n\n123,,cycles:u,9,1,,\n<not supported>,,instructions,0,1,,\n1.5,msec,task-clock,9,1,,\nx\n"
    assert parse(text) == {"cycles": 123.0, "task-clock": 1.5}


def test_two_kinds_of_cores_are_summed_and_no_number_is_no_count():
    text = "5,,cpu_core/cycles/,9,1,,\n2,,cpu_atom/cycles/u,9,1,,\nnan,,instructions,9,1,,\n1e999,,cache-misses,9,1,,\n"
    assert parse(text) == {"cycles": 7.0}
