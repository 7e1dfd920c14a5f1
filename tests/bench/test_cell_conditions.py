"""What happened while a cell was timed, when it is marked, and when it is repeated."""

import made_up_machines
import pytest

from bench.cell_conditions import between, disturbance, snapshot
from bench.records import CellRecord, GateOutcome
from bench.repeating import IN_VAIN, Repeats, disturbed_rounds

QUIET = {"wall_s": 2.0, "steal_share": 0.0, "throttled_ms": 0.0, "others_cpus": 0.1, "heat_throttles": 0}


def record(disturbed="", status="pass", number=0, phase="timed", **facts):
    return CellRecord(
        variant="kv",
        threads=2,
        model="m",
        round=number,
        order=0,
        phase=phase,
        gate=GateOutcome(status=status, detail=""),
        samples_ns=[1] if status == "pass" else [],
        facts={"disturbed": disturbed, **facts},
    )


def test_two_snapshots_tell_steal_throttling_clock_and_heat(tmp_path):
    root = made_up_machines.container(made_up_machines.hot_laptop(tmp_path))
    made_up_machines.make(root, {f"{made_up_machines.CPU}/cpu0/thermal_throttle/core_throttle_count": 7})
    before = snapshot([0, 1], 20, root)
    made_up_machines.make(
        root,
        {
            "proc/stat": "cpu  130 0 110 740 50 0 0 70 30 0",
            "sys/fs/cgroup/work/job/cpu.stat": "nr_throttled 4\nthrottled_usec 6500",
            f"{made_up_machines.CPU}/cpu0/cpufreq/scaling_cur_freq": 1000000,
            f"{made_up_machines.CPU}/cpu1/cpufreq/scaling_cur_freq": 1000000,
            f"{made_up_machines.CPU}/cpu0/thermal_throttle/core_throttle_count": 9,
            "sys/class/thermal/thermal_zone0/temp": 99000,
            "proc/self/smaps_rollup": "AnonHugePages: 2048 kB",
        },
    )
    found = between(before, snapshot([0, 1], 20, root), root)
    assert found["steal_share"] == pytest.approx(0.2)
    assert (found["nr_throttled"], found["throttled_ms"]) == (1, 2.5)
    assert found["clock_mhz"] == [1800.0, 1000.0]
    assert found["celsius"] == [97.0, 99.0]
    assert (found["heat_throttles"], found["brake_steps"], found["huge_bytes"]) == (2, 2, 2048 << 10)
    # 60 % of 20 CPUs were busy, a third of that stolen; this process had next to none of it.
    assert found["others_cpus"] <= 8.0


def test_a_machine_that_tells_nothing_marks_nothing(tmp_path):
    found = between(snapshot(None, 2, tmp_path), snapshot(None, 2, tmp_path), tmp_path)
    assert found["steal_share"] is None
    assert found["others_cpus"] is None
    assert found["clock_mhz"] == [None, None]
    assert disturbance(found, 2, 2) == ""
    assert disturbance({}, 2, 2) == ""


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({}, ""),
        ({"steal_share": 0.04}, ""),
        ({"steal_share": 0.12}, "12% of CPU time stolen"),
        ({"steal_share": 0.12, "wall_s": 0.05}, ""),  # a jiffy
        ({"throttled_ms": 10.0}, ""),
        ({"throttled_ms": 400.0}, "stopped 400 ms by the CPU quota"),
        ({"heat_throttles": 3}, "clock lowered 3 times by heat"),
        ({"brake_steps": 2}, "clock capped by heat"),
        ({"speed_limit_percent": 60}, "speed limited to 60 %"),
        ({"speed_limit_percent": 100}, ""),
        ({"others_cpus": 1.2}, "other processes took 1.2 of the 2 CPUs"),
    ],
)
def test_what_marks_a_measurement(facts, told):
    found = disturbance(QUIET | facts, threads=2, cpus=2)
    assert found.startswith(told) if told else found == ""


def test_others_on_cpus_that_the_team_does_not_need_mark_nothing():
    busy = QUIET | {"others_cpus": 2.0}
    assert disturbance(busy, threads=2, cpus=4) == ""
    assert "1.0 of the 3" in disturbance(busy, threads=3, cpus=4)
    assert "2.0 of the 4" in disturbance(busy, threads=8, cpus=4)


def test_only_a_right_and_disturbed_timing_is_repeated():
    repeats = Repeats()
    assert repeats.wanted(record("steal"))
    assert not repeats.wanted(record(""))
    assert not repeats.wanted(record("steal", status="crash"))
    assert not repeats.wanted(record("steal", phase="gate"))


def test_repeating_ends_where_it_does_not_help_and_goes_on_where_it_does():
    repeats = Repeats()
    for _ in range(IN_VAIN):
        assert repeats.wanted(record("steal"))
        repeats.made(record("steal"), record("steal"))
    assert not repeats.wanted(record("steal"))
    again = Repeats(in_vain=IN_VAIN - 1)
    again.made(record("steal"), record(""))
    assert again.in_vain == 0


def test_a_repeat_says_what_it_repeats_and_both_stand_in_the_summary():
    first = record("12% stolen", number=3)
    second = Repeats().made(first, record("8% stolen", number=3))
    assert second.facts["again_for"] == "12% stolen"
    clean = Repeats().made(record("heat", number=4), record("", number=4))
    assert disturbed_rounds([record(number=0), first, second, clean]) == [
        "round 4: 12% stolen",
        "round 4 again: 8% stolen",
    ]
