"""Clock, heat and memory, on made-up machines, and those machines as a whole through the doctor."""

import made_up_machines
import pytest

from bench import clock_and_heat, cpu_topology, machine
from bench.clock_and_heat import clock_mhz, frequency_facts, heat_facts
from bench.doctor import examine
from bench.memory_facts import memory_facts, own_huge_bytes
from cplab import cpus


def seen(root, monkeypatch, count):
    """Facts of a made-up machine all of whose CPUs this process may use."""
    for module in (machine, cpu_topology, cpus):
        monkeypatch.setattr(module, "affinity", lambda: set(range(count)))
    return machine.facts(root, root)


def grades(facts):
    return {finding.topic: finding.grade for finding in examine(facts, "omp")}


def test_a_laptop_on_battery_is_slow_for_three_reasons(tmp_path, monkeypatch):
    root = made_up_machines.hot_laptop(tmp_path)
    found = seen(root, monkeypatch, 20)
    assert found["frequency"]["limit_mhz"] == 2000.0
    assert found["frequency"]["max_mhz"] == 4800.0
    assert (found["frequency"]["preference"], found["frequency"]["boost"]) == ("power", True)
    assert found["temperature"]["brake_steps"] == 2  # the fan's nine steps are no brake
    graded = grades(found)
    assert (graded["clock"], graded["energy preference"], graded["heat throttling"]) == ("risky", "bad", "bad")
    assert (graded["temperature"], graded["core kinds"], graded["governor"]) == ("risky", "risky", "risky")


def test_two_sockets_show_nodes_sockets_and_heat_since_boot(tmp_path, monkeypatch):
    found = seen(made_up_machines.two_sockets(tmp_path), monkeypatch, 96)
    assert found["cpu"]["packages"] == 2
    assert (found["cpu"]["revision"], found["cpu"]["microcode"]) == ("6/85/7", "0x5003604")
    assert [node["node"] for node in found["memory"]["numa"]] == [0, 1]
    assert found["memory"]["numa"][1]["total_bytes"] == 98304 << 10
    assert found["memory"]["numa"][1]["cpus"].startswith("1,3,5,")
    assert found["memory"]["numa_balancing"] is True
    assert found["temperature"]["throttle_count"] == 6
    assert (grades(found)["NUMA"], grades(found)["heat throttling"]) == ("risky", "risky")


def test_a_phone_is_graded_by_its_kinds_of_core(tmp_path, monkeypatch):
    root = made_up_machines.phone(tmp_path)
    made_up_machines.make(
        root,
        {
            "sys/class/thermal/cooling_device3/type": "thermal-cpufreq-2",
            "sys/class/thermal/cooling_device3/cur_state": 4,
        },
    )
    found = seen(root, monkeypatch, 8)
    assert (found["cpu"]["p_cores"], found["cpu"]["e_cores"]) == (4, 4)
    assert found["temperature"]["brake_steps"] == 4
    assert (grades(found)["core kinds"], grades(found)["heat throttling"]) == ("risky", "bad")


def test_a_container_has_its_limits_and_not_the_hosts(tmp_path, monkeypatch):
    root = made_up_machines.container(made_up_machines.server(tmp_path))
    found = seen(root, monkeypatch, 128)
    assert (found["cpu"]["quota_cpus"], found["cpu"]["allowed"]) == (2.5, 2)
    assert found["memory"]["limit_bytes"] == 4 << 30
    assert (grades(found)["CPU allowance"], grades(found)["throttling"]) == ("risky", "risky")
    assert machine.thread_list(root)[0] == [1, 2, 4]


def test_a_mac_is_told_by_sysctl(tmp_path, monkeypatch):
    for module in (machine, cpu_topology):
        monkeypatch.setattr(module, "sysctl", lambda: made_up_machines.MAC_SYSCTL)
        monkeypatch.setattr(module, "affinity", lambda: None)
    monkeypatch.setattr(clock_and_heat, "command_output", lambda *command: "CPU_Speed_Limit \t= 70\n")
    found = machine.facts(tmp_path, tmp_path)
    cpu = found["cpu"]
    assert (cpu["model"], cpu["physical"], cpu["p_cores"], cpu["e_cores"]) == ("Apple M2 Pro", 10, 6, 4)
    assert (cpu["affinity"], cpu["affinity_cpus"], cpu["packages"], cpu["pinnable"]) == (None, None, None, False)
    assert found["temperature"]["speed_limit_percent"] == 70
    assert found["memory"]["total_bytes"] > 0
    assert found["energy"]["reason"].startswith("no energy counter: only Linux")
    assert grades(found)["heat throttling"] == "bad"


@pytest.mark.parametrize("told", [None, "Note: No thermal warning level has been recorded", ""])
def test_apples_own_chips_print_no_limit_until_there_was_one(tmp_path, monkeypatch, told):
    monkeypatch.setattr(clock_and_heat, "command_output", lambda *command: told)
    assert heat_facts(tmp_path)["speed_limit_percent"] is None


def test_the_clock_of_a_team_is_that_of_its_own_cpus(tmp_path):
    root = made_up_machines.hot_laptop(tmp_path)
    assert clock_mhz([0, 1], root) == 1800.0
    assert clock_mhz([16, 17], root) == 1200.0
    assert clock_mhz([0, 16], root) == 1500.0


def test_the_clock_without_cpufreq_is_what_cpuinfo_shows(tmp_path):
    text = "\n\n".join(f"processor\t: {n}\ncpu MHz\t\t: {2000 + n}.5" for n in range(4))
    root = made_up_machines.make(tmp_path, {"proc/cpuinfo": text})
    assert clock_mhz([1, 3], root) == 2002.5
    assert frequency_facts(root)["current_mhz"] == 2000.5
    assert clock_mhz([9], root) is None


def test_pages_and_swap(tmp_path):
    root = made_up_machines.make(
        tmp_path,
        {
            "proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 8 kB\nSwapTotal: 7 kB\nSwapFree: 5 kB\nHugePages_Total: 3",
            "sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]",
            "sys/kernel/mm/transparent_hugepage/defrag": "always defer [defer+madvise] madvise never",
            "proc/self/smaps_rollup": "00-ff ---p 00 00:00 0 [rollup]\nRss: 30 kB\nAnonHugePages:  2048 kB",
        },
    )
    found = memory_facts(root)
    assert (found["swap_used_bytes"], found["reserved_huge_pages"]) == (2048, 3)
    assert (found["transparent_huge_pages"], found["huge_page_defrag"]) == ("never", "defer+madvise")
    assert own_huge_bytes(root) == 2048 << 10
    assert own_huge_bytes(tmp_path / "none") is None
