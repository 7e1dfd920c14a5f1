"""Names, instruction sets and caches, on made-up machines."""

import made_up_machines

from bench import machine
from bench.cpu_model import caches, cpu_identity, flags, macos_cpu, model_name, parse_cpuinfo, vendor


def test_phone_is_named_by_its_biggest_core(tmp_path):
    root = made_up_machines.phone(tmp_path)
    found = cpu_identity(root, {})
    assert found["model"] == "1x Cortex-X1 + 3x Cortex-A78 + 4x Cortex-A55"
    assert (found["vendor"], found["board"], found["virtual"]) == ("ARM", "Some SoC", None)
    assert found["isa"] == ["asimd", "fphp", "asimdhp", "asimddp"]
    assert machine.machine_id(root) == "cortex-x1-8c"


def test_mac_identity():
    found = macos_cpu(made_up_machines.MAC_SYSCTL)
    assert (found["model"], found["vendor"], found["virtual"]) == ("Apple M2 Pro", "Apple", False)
    assert found["isa"] == ["asimd", "fphp", "asimdhp", "asimddp"]
    assert found["caches"] == {"l1d": {"bytes": 65536}, "l2": {"bytes": 16 << 20}}
    assert machine.slug(found["model"], "arm64", 10) == "apple-m2-pro-10c"


def test_instruction_sets_are_those_that_all_cpus_have():
    blocks = parse_cpuinfo("processor : 0\nflags : avx2 fma amx_tile\n\nprocessor : 1\nflags : avx2 fma")
    assert flags(blocks) == {"avx2", "fma"}
    assert flags([]) is None
    assert model_name([]) is None
    assert vendor([]) is None


def test_virtual_machine_is_told_by_flag_or_firmware(tmp_path):
    assert (
        cpu_identity(made_up_machines.make(tmp_path, {"proc/cpuinfo": "flags : sse2 hypervisor"}), {})["virtual"]
        is True
    )
    made_up_machines.make(tmp_path, {"proc/cpuinfo": "flags : sse2", "sys/class/dmi/id/sys_vendor": "Google"})
    assert cpu_identity(tmp_path, {})["virtual"] is False
    made_up_machines.make(tmp_path, {"proc/cpuinfo": "Features : asimd", "sys/class/dmi/id/sys_vendor": "QEMU"})
    assert cpu_identity(tmp_path, {})["virtual"] is True


def test_caches_count_instances_not_cpus(tmp_path):
    files = {}
    for cpu in range(4):
        for index, (level, kind, size, shared) in enumerate(
            [(1, "Data", "32K", cpu), (1, "Instruction", "32K", cpu), (3, "Unified", "8192K", "0-3")]
        ):
            base = f"{made_up_machines.CPU}/cpu{cpu}/cache/index{index}"
            files |= {f"{base}/level": level, f"{base}/type": kind, f"{base}/size": size}
            files[f"{base}/shared_cpu_list"] = shared
    assert caches(made_up_machines.make(tmp_path, files)) == {
        "l1d": {"bytes": 32768, "total_bytes": 131072, "instances": 4},
        "l3": {"bytes": 8 << 20, "total_bytes": 8 << 20, "instances": 1},
    }
