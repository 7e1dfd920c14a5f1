"""Quotas, limits, throttling and stolen time, on made-up control groups."""

import made_up_machines
import pytest

from bench.host_load import load_between, parse_proc_stat, steal_and_throttle
from cplab import cpus
from cplab.cgroup import cpu_quota, memory_limit_bytes, throttling


def test_quota_of_an_ancestor_counts(tmp_path, monkeypatch):
    root = made_up_machines.container(tmp_path)
    assert cpu_quota(root) == 2.5
    assert memory_limit_bytes(root) == 4 << 30
    monkeypatch.setattr(cpus, "affinity", lambda: set(range(16)))
    assert cpus.allowed_cpus(root) == 2


def test_quota_below_one_cpu_still_allows_one(tmp_path, monkeypatch):
    root = made_up_machines.container(tmp_path)
    made_up_machines.make(root, {"sys/fs/cgroup/work/job/cpu.max": "50000 100000"})
    monkeypatch.setattr(cpus, "affinity", lambda: set(range(16)))
    assert cpus.allowed_cpus(root) == 1


def test_cgroup_v1_whose_mount_shows_only_the_container(tmp_path):
    root = made_up_machines.make(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc",
            "proc/self/mountinfo": (
                "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
                "33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"
            ),
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "150000",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/cpu,cpuacct/cpu.stat": "nr_periods 9\nnr_throttled 7\nthrottled_time 5000000",
            "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": "1073741824",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        },
    )
    assert cpu_quota(root) == 1.5
    assert throttling(root) == (7, 5000)
    assert memory_limit_bytes(root) == 1 << 30


def test_cgroup_path_outside_of_the_namespace_means_the_mount_point(tmp_path):
    root = made_up_machines.make(
        tmp_path,
        {
            "proc/self/cgroup": "0::/../other",
            "proc/self/mountinfo": "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
            "sys/fs/cgroup/cpu.max": "300000 100000",
        },
    )
    assert cpu_quota(root) == 3.0


def test_no_quota_is_none(tmp_path):
    assert cpu_quota(tmp_path) is None
    assert memory_limit_bytes(tmp_path) is None
    assert throttling(tmp_path) == (None, None)


def test_load_between_two_snapshots(tmp_path):
    root = made_up_machines.container(tmp_path)
    before = steal_and_throttle(root)
    assert before == {
        "steal_jiffies": 50,
        "total_jiffies": 1000,
        "idle_jiffies": 750,
        "nr_throttled": 5,
        "throttled_usec": 5000,
    }
    made_up_machines.make(
        root,
        {
            "proc/stat": "cpu  130 0 110 740 50 0 0 70 30 0",
            "sys/fs/cgroup/work/job/cpu.stat": "nr_throttled 4\nthrottled_usec 6500",
        },
    )
    assert load_between(before, steal_and_throttle(root)) == {
        "steal_share": pytest.approx(0.2),
        "busy_share": pytest.approx(0.6),
        "nr_throttled": 1,
        "throttled_ms": 2.5,
    }


def test_load_between_without_counters_or_without_time_is_none(tmp_path):
    nothing = steal_and_throttle(tmp_path)
    assert set(load_between(nothing, nothing).values()) == {None}
    standing = parse_proc_stat("cpu 1 2 3 4 5 6 7 8 9 0")
    assert load_between(standing, standing)["steal_share"] is None
    assert parse_proc_stat("intr 5")["total_jiffies"] is None
