"""Cores, thread counts and pinning, on made-up machines."""

import made_up_machines
import pytest

from bench import cpu_topology, machine
from bench.cpu_topology import counted_topology, linux_topology, macos_topology, pin_order, sweep_threads
from cplab.sysfiles import parse_cpu_list, parse_size


def test_kernel_formats_are_read():
    assert parse_cpu_list("0-3,8, 10-11") == [0, 1, 2, 3, 8, 10, 11]
    assert parse_cpu_list(None) == parse_cpu_list("") == parse_cpu_list("garbage") == []
    assert (parse_size("48K"), parse_size("1024"), parse_size("2M"), parse_size("?")) == (49152, 1024, 2 << 20, None)


def test_phone_puts_big_cores_first(tmp_path):
    root = made_up_machines.phone(tmp_path)
    found = linux_topology(root)
    assert (found.count("P"), found.count("E"), found.smt) == (4, 4, False)
    assert pin_order(found) == [7, 4, 5, 6, 0, 1, 2, 3]
    counts, reason = sweep_threads(found, 8)
    assert counts == [1, 2, 4, 8, 16]
    assert "4 P, then 4 E" in reason


def test_server_sweeps_cores_then_siblings(tmp_path):
    root = made_up_machines.server(tmp_path)
    found = linux_topology(root)
    assert (len(found.cores), found.logical, found.smt, found.count("P")) == (64, 128, True, None)
    assert sweep_threads(found, 128)[0] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert pin_order(found) == list(range(128))
    assert machine.machine_id(root) == "amd-epyc-9555p-64c"


def test_hybrid_pins_p_cores_then_e_cores_then_siblings(tmp_path):
    root = made_up_machines.hybrid(tmp_path)
    found = linux_topology(root)
    assert pin_order(found) == [*range(0, 16, 2), 16, 17, 18, 19, *range(1, 16, 2)]
    assert sweep_threads(found, 20)[0] == [1, 2, 4, 8, 12, 20, 40]


def test_two_sockets_fill_one_node_before_the_other(tmp_path):
    found = linux_topology(made_up_machines.two_sockets(tmp_path))
    assert (len(found.cores), found.logical, found.packages) == (48, 96, 2)
    assert pin_order(found)[:48] == [*range(0, 48, 2), *range(1, 48, 2)]
    assert pin_order(found)[48:72] == list(range(48, 96, 2))
    counts, reason = sweep_threads(found, 96)
    assert counts == [1, 2, 4, 8, 16, 24, 32, 48, 96, 192]
    assert "24 on one NUMA node; 24 on one socket" in reason


def test_the_list_ends_with_one_oversubscribed_point_and_says_so(tmp_path):
    for make in (
        made_up_machines.phone,
        made_up_machines.server,
        made_up_machines.hybrid,
        made_up_machines.two_sockets,
    ):
        found = linux_topology(make(tmp_path / make.__name__))
        counts, reason = sweep_threads(found, found.logical)
        assert [count for count in counts if count > found.logical] == [2 * found.logical]
        assert reason.endswith(f"{2 * found.logical} is oversubscribed on purpose")


def test_a_process_bound_to_one_socket_has_no_second_one(tmp_path):
    found = linux_topology(made_up_machines.two_sockets(tmp_path)).restricted(set(range(0, 96, 2)))
    counts, reason = sweep_threads(found, 48)
    assert counts == [1, 2, 4, 8, 16, 24, 48, 96]
    assert "socket" not in reason


def test_a_core_that_affinity_hides_is_not_pinned_to(tmp_path):
    root = made_up_machines.hybrid(tmp_path)
    assert pin_order(linux_topology(root).restricted({1, 3, 16})) == [1, 3, 16]


@pytest.mark.parametrize(
    ("cores", "logical", "allowed", "counts"),
    [
        (2, 2, 2, [1, 2, 4]),
        (1, 1, 1, [1, 2]),
        (2, 4, 4, [1, 2, 4, 8]),
        (6, 6, 6, [1, 2, 4, 6, 12]),
        (6, 12, 12, [1, 2, 4, 6, 12, 24]),
        (64, 128, 3, [1, 2, 3, 6]),
    ],
)
def test_thread_counts(cores, logical, allowed, counts):
    assert sweep_threads(counted_topology(cores, logical), allowed)[0] == counts


def test_sixteen_siblings_under_a_quota_are_not_all_swept():
    counts, reason = sweep_threads(counted_topology(8, 16), 12)
    assert counts == [1, 2, 4, 8, 12, 24]
    assert "quota of 12 of 16" in reason


def test_mac_counts_but_cannot_pin(monkeypatch):
    found = macos_topology(made_up_machines.MAC_SYSCTL)
    assert (len(found.cores), found.count("P"), found.count("E"), found.pinnable) == (10, 6, 4, False)
    assert sweep_threads(found, 10)[0] == [1, 2, 4, 6, 8, 10, 20]
    monkeypatch.setattr(cpu_topology, "topology", lambda root: found)
    monkeypatch.setattr(cpu_topology, "affinity", lambda: None)
    assert machine.pinning(4) is None
    assert macos_topology({}) is None


def test_pinning_gives_all_cpus_when_oversubscribed(tmp_path, monkeypatch):
    root = made_up_machines.phone(tmp_path)
    monkeypatch.setattr(cpu_topology, "affinity", lambda: set(range(8)))
    assert machine.pinning(1, root) == [7]
    assert machine.pinning(4, root) == [7, 4, 5, 6]
    assert sorted(machine.pinning(16, root)) == list(range(8))


def test_thread_list_and_pinning_here():
    counts, reason = machine.thread_list()
    assert counts == sorted(set(counts))
    assert counts[0] == 1
    assert reason
    assert "\n" not in reason
    pins = machine.pinning(counts[-1])
    assert pins is None or len(pins) == len(set(pins)) <= counts[-1]
