"""The doctor, on made-up machines given as facts."""

import copy
import importlib.metadata
import io

import pytest
from rich.console import Console

from bench import doctor_software
from bench.doctor import examine, render

GOOD_SERVER = {
    "cpu": {
        "model": "AMD EPYC 9555P 64-Core Processor",
        "isa": ["avx2", "fma", "f16c", "avx512f", "avx512_vnni"],
        "virtual": False,
        "physical": 64,
        "logical": 128,
        "smt": True,
        "p_cores": None,
        "e_cores": None,
        "allowed": 128,
        "physical_allowed": 64,
        "quota_cpus": None,
        "pinnable": True,
        "packages": 1,
        "revision": "26/2/1",
    },
    "memory": {
        "available_bytes": 200 * 10**9,
        "limit_bytes": None,
        "transparent_huge_pages": "madvise",
        "numa_nodes": 1,
        "swap_used_bytes": 0,
    },
    "frequency": {
        "governor": "performance",
        "driver": "amd-pstate",
        "preference": "performance",
        "boost": True,
        "max_mhz": 4400.0,
        "limit_mhz": 4400.0,
    },
    "load": {
        "loadavg_1m": 0.3,
        "busy_share_sample": 0.01,
        "steal_share_sample": 0.0,
        "steal_share_since_boot": 0.0,
        "nr_throttled": 0,
        "throttled_ms_sample": 0.0,
    },
    "temperature": {"cpu_celsius": 55.0, "throttle_count": 0, "brake_steps": 0, "speed_limit_percent": None},
    "energy": {"domains": ["package-0"], "reason": ""},
    "software": {"python": "3.12.4", "cxx": "g++", "numba": "0.68.1", "llvmlite": "0.50.0", "numpy": "2.4.0"},
    "git": {"commit": "0123456ab", "dirty": False},
    "environment": {},
    "cache": {"path": "~/.cache/cplab", "writable": True, "free_bytes": 50 * 10**9},
}
PHONE = {
    "cpu": {
        "isa": ["asimd", "fphp", "asimddp"],
        "virtual": None,
        "physical": 8,
        "logical": 8,
        "smt": False,
        "p_cores": 4,
        "e_cores": 4,
        "allowed": 8,
        "physical_allowed": 8,
        "pinnable": True,
    },
    "memory": {"available_bytes": 1_500_000_000, "transparent_huge_pages": "never"},
    "frequency": {"governor": "schedutil", "driver": "cpufreq-dt"},
    "load": {"loadavg_1m": 6.0, "busy_share_sample": 0.05},
    "temperature": {"cpu_celsius": 91.0},
    "software": {"python": "3.13.1", "cxx": None},
    "environment": {},
    "cache": {"path": "~/.cache/cplab", "writable": True, "free_bytes": 4 * 10**8},
}
MAC = {
    "cpu": {
        "isa": ["asimd", "fphp", "asimddp"],
        "virtual": False,
        "physical": 10,
        "logical": 10,
        "smt": False,
        "p_cores": 6,
        "e_cores": 4,
        "allowed": 10,
        "physical_allowed": 10,
        "pinnable": False,
    },
    "memory": {"available_bytes": 8 * 10**9},
    "load": {"loadavg_1m": 1.0},
    "software": {"python": "3.11.9", "cxx": "c++"},
    "environment": {},
    "cache": {"path": "~/Library/Caches/cplab", "writable": True, "free_bytes": 10**11},
}


def changed(**values):
    """The good server with facts replaced: ``changed(cpu__quota_cpus=2.5)``."""
    facts = copy.deepcopy(GOOD_SERVER)
    for path, value in values.items():
        group, _, name = path.partition("__")
        facts[group][name] = value
    return facts


def by_topic(facts, layer=None):
    return {finding.topic: finding for finding in examine(facts, layer)}


def grade(facts, topic, layer=None):
    return by_topic(facts, layer)[topic].grade


def test_a_good_server_is_good_throughout():
    assert {finding.grade for finding in examine(GOOD_SERVER, "omp")} == {"good"}


def test_every_doubt_comes_with_one_line_of_advice():
    for facts in (GOOD_SERVER, PHONE, MAC, {}):
        for finding in examine(facts, "workqueue"):
            assert finding.found
            assert finding.advice or finding.grade == "good", finding
            assert "\n" not in finding.advice


def test_examine_changes_nothing():
    before = copy.deepcopy(PHONE)
    examine(PHONE, "omp")
    assert before == PHONE


def test_phone():
    found = by_topic(PHONE, "omp")
    risky = {topic for topic, finding in found.items() if finding.grade == "risky"}
    wanted = {"core kinds", "governor", "temperature", "memory", "huge pages", "cache folder", "C++ compiler", "load"}
    assert risky == wanted | {"not checked"}
    assert "above 4 threads" in found["core kinds"].advice
    assert found["vector instructions"].grade == found["FMA"].grade == found["AMX"].grade == "good"


def test_mac_does_not_tell_everything_and_that_is_said():
    found = by_topic(MAC)
    assert "cannot pin" in found["core kinds"].found
    untold = found["not checked"].found
    for topic in ("governor", "steal", "throttling", "huge pages", "threading layer"):
        assert topic in untold
        assert topic not in found


def test_throttled_container():
    facts = changed(cpu__quota_cpus=2.5, cpu__allowed=2, load__nr_throttled=400, memory__limit_bytes=5 * 10**8)
    found = by_topic(facts)
    assert found["CPU allowance"].grade == "risky"
    assert "above 2 threads" in found["CPU allowance"].advice
    assert found["throttling"].grade == "risky"
    assert found["memory"].grade == "bad"
    assert grade(changed(load__nr_throttled=1, load__throttled_ms_sample=40.0), "throttling") == "bad"
    assert grade(changed(cpu__quota_cpus=0.5, cpu__allowed=1), "CPU allowance") == "bad"
    assert grade(changed(cpu__quota_cpus=200.0), "CPU allowance") == "good"


def test_nothing_told_is_never_called_good_or_bad():
    assert [finding.topic for finding in examine({})] == ["not checked"]


@pytest.mark.parametrize(
    ("values", "topic", "expected"),
    [
        ({"cpu__allowed": 4}, "CPU allowance", "risky"),
        ({"frequency__governor": "powersave", "frequency__driver": "acpi-cpufreq"}, "governor", "bad"),
        ({"frequency__governor": "powersave", "frequency__driver": "intel_pstate"}, "governor", "risky"),
        ({"load__loadavg_1m": 100.0, "load__busy_share_sample": 0.9}, "load", "bad"),
        ({"load__loadavg_1m": 100.0, "load__busy_share_sample": 0.0}, "load", "risky"),
        ({"load__loadavg_1m": 100.0, "load__busy_share_sample": None}, "load", "bad"),
        ({"load__busy_share_sample": 0.9}, "load", "risky"),
        ({"load__steal_share_since_boot": 0.03}, "steal", "risky"),
        ({"load__steal_share_since_boot": 0.2}, "steal", "bad"),
        ({"load__steal_share_sample": 0.2}, "steal", "risky"),
        ({"memory__transparent_huge_pages": "always"}, "huge pages", "good"),
        ({"memory__transparent_huge_pages": "never"}, "huge pages", "risky"),
        ({"cpu__isa": ["avx2"]}, "FMA", "bad"),
        ({"cpu__isa": []}, "vector instructions", "risky"),
        ({"cpu__isa": ["asimd"]}, "vector instructions", "risky"),
        ({"cpu__isa": ["avx2", "fma", "amx_tile"]}, "AMX", "risky"),
        ({"cpu__virtual": True}, "virtual machine", "risky"),
        ({"cache__writable": False}, "cache folder", "bad"),
        ({"cache__free_bytes": 10**8}, "cache folder", "risky"),
        ({"software__cxx": None}, "C++ compiler", "risky"),
        ({"software__numba": "0.61.0"}, "packages", "risky"),
        ({"cpu__model": "AMD EPYC", "cpu__virtual": True}, "CPU", "risky"),
        ({"cpu__model": "AMD EPYC", "cpu__virtual": False}, "CPU", "good"),
        ({"frequency__limit_mhz": 2000.0}, "clock", "risky"),
        ({"frequency__boost": False}, "boost", "good"),
        ({"frequency__preference": "power"}, "energy preference", "bad"),
        ({"frequency__preference": "balance_power"}, "energy preference", "risky"),
        ({"frequency__preference": "balance_performance"}, "energy preference", "risky"),
        ({"temperature__throttle_count": 12}, "heat throttling", "risky"),
        ({"temperature__brake_steps": 1}, "heat throttling", "bad"),
        ({"temperature__speed_limit_percent": 60}, "heat throttling", "bad"),
        ({"temperature__speed_limit_percent": 100}, "heat throttling", "good"),
        ({"memory__numa_nodes": 2}, "NUMA", "risky"),
        ({"memory__swap_used_bytes": 3 * 10**9}, "swap", "risky"),
        ({"git__dirty": True}, "working tree", "risky"),
        ({"git__commit": "nogit"}, "working tree", "risky"),
        ({"software__python": "3.14.0"}, "Python", "bad"),
        ({"software__python": "3.13.0rc1"}, "Python", "good"),
        ({"environment__OMP_THREAD_LIMIT": "2"}, "OpenMP environment", "bad"),
        ({"environment__OMP_THREAD_LIMIT": "128"}, "OpenMP environment", "good"),
        ({"environment__OMP_DYNAMIC": "TRUE"}, "OpenMP environment", "risky"),
        ({"environment__OMP_DYNAMIC": "false"}, "OpenMP environment", "good"),
        ({"environment__OMP_PROC_BIND": "close"}, "OpenMP environment", "risky"),
        ({"environment__NUMBA_DISABLE_JIT": "1"}, "environment", "bad"),
        ({"environment__LD_PRELOAD": "libjemalloc.so"}, "environment", "risky"),
    ],
)
def test_grades(values, topic, expected):
    assert grade(changed(**values), topic) == expected


def test_energy_that_only_root_may_read_comes_with_the_command():
    facts = changed(energy__domains=[], energy__reason="energy_uj is readable by root only: chmod a+r ...")
    assert by_topic(facts)["energy"].grade == "risky"
    assert "chmod a+r" in by_topic(facts)["energy"].advice


def test_a_machine_without_energy_counters_is_not_called_good():
    found = by_topic(changed(energy__domains=[], energy__reason="no energy counter: ..."))
    assert "energy" not in found
    assert "energy" in found["not checked"].found


def test_the_tested_range_of_numba_is_the_one_that_the_package_asks_for():
    wanted = doctor_software.tested_numba()
    assert wanted is not None
    assert wanted.contains(importlib.metadata.version("numba"))
    assert not wanted.contains("0.60.0")


def test_amx_advice_names_the_way_out():
    assert "use_extra_bufts=False" in by_topic(changed(cpu__isa=["amx_int8"]))["AMX"].advice


@pytest.mark.parametrize(("layer", "expected"), [("omp", "good"), ("tbb", "good"), ("workqueue", "risky")])
def test_threading_layer(layer, expected):
    assert grade(GOOD_SERVER, "threading layer", layer) == expected


def test_the_table_shows_every_finding_and_takes_brackets_literally():
    findings = examine(changed(environment__OMP_PROC_BIND="[red]x"), "omp")
    out = io.StringIO()
    Console(file=out, width=200).print(render(findings))
    assert "[red]x" in out.getvalue()
    for finding in findings:
        assert finding.topic in out.getvalue()
