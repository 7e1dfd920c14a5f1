"""Energy counters, on made-up powercap folders."""

import made_up_machines
import pytest

from bench import energy
from bench.energy import EnergyMeter, consumed_uj, domains, energy_facts


def counter(root, number, value):
    made_up_machines.make(root, {f"sys/class/powercap/intel-rapl:{number}/energy_uj": value})


def test_packages_are_added_and_parts_of_them_are_not(tmp_path):
    root = made_up_machines.rapl(tmp_path, [1_000_000, 5_000_000])
    meter = EnergyMeter(root)
    for _ in range(2):
        with meter:
            for number in (0, 1):
                path = root / f"sys/class/powercap/intel-rapl:{number}/energy_uj"
                counter(root, number, int(path.read_text()) + 1_500_000)
            counter(root, "0:0", 99_000_000)
        counter(root, 0, 50_000_000)  # between frames: nobody's
    assert meter.per_stretch() == {"joules_per_frame": 3.0, "energy_reason": ""}
    assert energy_facts(root) == {"domains": ["package-0", "package-1"], "reason": ""}


def test_a_counter_that_starts_again_is_counted_on(tmp_path):
    root = made_up_machines.rapl(tmp_path, [900], range_uj=1000)
    meter = EnergyMeter(root)
    with meter:
        counter(root, 0, 150)
    assert meter.per_stretch()["joules_per_frame"] == pytest.approx(250e-6)
    assert consumed_uj(900, 150, 1000) == 250
    assert consumed_uj(5, 5, 1000) == 0


def test_a_counter_that_went_back_without_a_range_gives_no_figure(tmp_path):
    root = made_up_machines.rapl(tmp_path, [900], range_uj=0)
    meter = EnergyMeter(root)
    with meter:
        counter(root, 0, 150)
    found = meter.per_stretch()
    assert found["joules_per_frame"] is None
    assert "from 900 to 150" in found["energy_reason"]


def test_a_counter_that_stands_still_gives_no_figure(tmp_path):
    meter = EnergyMeter(made_up_machines.rapl(tmp_path, [900]))
    with meter:
        pass
    assert meter.per_stretch() == {"joules_per_frame": None, "energy_reason": "the energy counter did not move"}


def test_a_counter_that_disappears_gives_no_figure(tmp_path):
    root = made_up_machines.rapl(tmp_path, [900])
    meter = EnergyMeter(root)
    with meter:
        (root / "sys/class/powercap/intel-rapl:0/energy_uj").unlink()
    assert "could not be read any more" in meter.per_stretch()["energy_reason"]


def test_a_counter_for_root_only_is_null_with_the_command_that_opens_it(tmp_path, monkeypatch):
    root = made_up_machines.rapl(tmp_path, [900])
    monkeypatch.setattr(energy, "read_int", lambda path: None)
    found, reason = domains(root)
    assert found == []
    assert "chmod a+r" in reason
    meter = EnergyMeter(root)
    with meter:
        pass
    assert meter.per_stretch() == {"joules_per_frame": None, "energy_reason": reason}


def test_no_folder_no_package_and_no_linux_are_three_reasons(tmp_path):
    assert "only Linux" in domains(tmp_path)[1]
    linux = made_up_machines.make(tmp_path / "linux", {"proc/cpuinfo": ""})
    assert "powercap is missing" in domains(linux)[1]
    empty = made_up_machines.make(tmp_path / "empty", {"sys/class/powercap/intel-rapl:0/name": "psys"})
    assert "lists no CPU package" in domains(empty)[1]


def test_nothing_measured_is_no_figure(tmp_path):
    assert EnergyMeter(made_up_machines.rapl(tmp_path, [1])).per_stretch()["energy_reason"] == "nothing was measured"
