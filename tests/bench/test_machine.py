"""Machine facts as a whole: plain data, and nothing is an error."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import made_up_machines
import pytest

from bench import machine


@pytest.mark.parametrize(
    ("model", "arch", "cores", "slug"),
    [
        ("Intel(R) Xeon(R) Processor", "x86_64", 2, "intel-xeon-2c"),
        ("12th Gen Intel(R) Core(TM) i7-12700K", "x86_64", 12, "intel-core-i7-12700k-12c"),
        ("Intel(R) Xeon(R) Platinum 8488C CPU @ 2.40GHz", "x86_64", 48, "intel-xeon-platinum-8488c-48c"),
        ("AMD Ryzen 7 7840U w/ Radeon 780M Graphics with more words", "x86_64", 8, None),
        (None, "aarch64", 4, "aarch64-4c"),
        (None, None, 1, "machine-1c"),
        ("(R)", None, 1, "machine-1c"),
    ],
)
def test_machine_slug(model, arch, cores, slug):
    found = machine.slug(model, arch, cores)
    assert slug is None or found == slug
    assert len(found) <= 40
    assert set(found) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert found.endswith(f"-{cores}c")


def test_environment_keeps_what_matters_and_hides_the_home_folder():
    home = str(Path.home())
    found = machine.environment(
        {
            "OMP_NUM_THREADS": "2",
            "HOME": home,
            "TOKEN": "x",
            "LD_PRELOAD": f"{home}/lib.so",
            "NUMBA_CPU_NAME": "haswell",
        }
    )
    assert list(found) == ["LD_PRELOAD", "NUMBA_CPU_NAME", "OMP_NUM_THREADS"]
    assert home == "/" or found["LD_PRELOAD"] == "~/lib.so"


def test_cache_folder_is_looked_at_not_made(tmp_path):
    wanted = tmp_path / "not" / "there"
    found = machine.cache_facts(wanted)
    assert found["writable"] is True
    assert found["free_bytes"] >= 0
    assert not wanted.exists()
    (tmp_path / "file").write_text("")
    assert machine.cache_facts(tmp_path / "file" / "below")["writable"] is False


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_state_before_after_and_outside(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert machine.git_state(tmp_path) == ("nogit", False)

    def git(*words):
        who = ("-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    assert machine.git_state(tmp_path) == ("nogit", False)
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-m", "first")
    commit, dirty = machine.git_state(tmp_path)
    assert len(commit) == 9
    assert not dirty
    (tmp_path / "new").write_text("1")
    assert machine.git_state(tmp_path) == (commit, True)


def test_git_state_of_a_missing_folder(tmp_path):
    assert machine.git_state(tmp_path / "none") == ("nogit", False)


def test_frequency_memory_and_sensors_of_a_laptop(tmp_path, monkeypatch):
    policy = f"{made_up_machines.CPU}/cpufreq/policy0"
    made_up_machines.make(
        tmp_path,
        {
            f"{policy}/scaling_cur_freq": 2400000,
            f"{policy}/cpuinfo_min_freq": 800000,
            f"{policy}/cpuinfo_max_freq": 4200000,
            f"{policy}/scaling_governor": "powersave",
            f"{policy}/scaling_driver": "intel_pstate",
            f"{made_up_machines.CPU}/intel_pstate/no_turbo": 0,
            "proc/meminfo": "MemTotal: 2000 kB\nMemAvailable: 1000 kB\nHugePages_Total: 0",
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
            "sys/devices/system/node/online": "0-1",
            "sys/class/thermal/thermal_zone0/type": "battery",
            "sys/class/thermal/thermal_zone0/temp": 90000,
            "sys/class/thermal/thermal_zone1/type": "x86_pkg_temp",
            "sys/class/thermal/thermal_zone1/temp": 61000,
            "sys/class/hwmon/hwmon0/name": "coretemp",
            "sys/class/hwmon/hwmon0/temp1_input": 64000,
        },
    )
    found = machine.facts(tmp_path, tmp_path)
    assert found["frequency"] == {
        "current_mhz": 2400.0,
        "min_mhz": 800.0,
        "max_mhz": 4200.0,
        "limit_mhz": None,
        "preference": None,
        "governor": "powersave",
        "driver": "intel_pstate",
        "boost": True,
    }
    assert found["memory"]["available_bytes"] == 1000 << 10
    assert (found["memory"]["numa_nodes"], found["memory"]["transparent_huge_pages"]) == (2, "madvise")
    assert found["temperature"]["cpu_celsius"] == 64.0


def test_a_machine_that_tells_nothing_is_no_error(tmp_path):
    found = machine.facts(tmp_path, tmp_path)
    json.dumps(found, allow_nan=False)
    assert found["frequency"] == dict.fromkeys(found["frequency"])
    assert found["temperature"] == dict.fromkeys(found["temperature"])
    assert found["energy"]["domains"] == []
    assert found["energy"]["reason"]
    assert found["load"]["steal_share_since_boot"] is None


def test_facts_here_are_plain_and_in_range(tmp_path):
    found = machine.facts(tmp_path)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    cpu = found["cpu"]
    assert cpu["allowed"] >= 1
    assert 1 <= cpu["physical"] <= cpu["logical"]
    assert found["memory"]["total_bytes"] > found["memory"]["available_bytes"] > 0
    assert found["software"]["numpy"]


def test_facts_do_not_import_numba():
    code = "import sys, pathlib, bench.machine as m; m.facts(pathlib.Path('.')); sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2]).returncode == 0
