"""Folders with the /proc and /sys files of machines that are not this one."""

CPU = "sys/devices/system/cpu"
SERVER_CPUINFO = "\n\n".join(
    f"processor\t: {n}\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 9555P 64-Core Processor\n"
    "flags\t\t: sse2 fma f16c avx2 avx512f avx512bw avx512vl avx512_vnni avx512_bf16"
    for n in range(2)
)
PHONE_CPUINFO = (
    "\n\n".join(
        f"processor\t: {n}\nFeatures\t: fp asimd fphp asimdhp asimddp\nCPU implementer\t: 0x41\nCPU part\t: {part}"
        for n, part in enumerate(["0xd05"] * 4 + ["0xd41"] * 3 + ["0xd44"])
    )
    + "\n\nHardware\t: Some SoC"
)
MAC_SYSCTL = {
    "hw.physicalcpu": "10",
    "hw.logicalcpu": "10",
    "hw.perflevel0.physicalcpu": "6",
    "hw.perflevel1.physicalcpu": "4",
    "hw.perflevel0.l2cachesize": "16777216",
    "hw.l1dcachesize": "65536",
    "hw.optional.arm.FEAT_DotProd": "1",
    "hw.optional.arm.FEAT_FP16": "1",
    "machdep.cpu.brand_string": "Apple M2 Pro",
    "kern.hv_vmm_present": "0",
}


def make(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(text) + "\n")
    return root


def phone(root):
    files = {f"{CPU}/online": "0-7", "proc/cpuinfo": PHONE_CPUINFO}
    for cpu, capacity in enumerate([250] * 4 + [870] * 3 + [1024]):
        files[f"{CPU}/cpu{cpu}/topology/thread_siblings_list"] = cpu
        files[f"{CPU}/cpu{cpu}/cpu_capacity"] = capacity
    return make(root, files)


def server(root):
    files = {f"{CPU}/online": "0-127", "proc/cpuinfo": SERVER_CPUINFO}
    files |= {f"{CPU}/cpu{n}/topology/thread_siblings_list": f"{n % 64},{n % 64 + 64}" for n in range(128)}
    return make(root, files)


def hybrid(root):
    files = {f"{CPU}/online": "0-19", "sys/devices/cpu_core/cpus": "0-15", "sys/devices/cpu_atom/cpus": "16-19"}
    files |= {f"{CPU}/cpu{n}/topology/thread_siblings_list": f"{n - n % 2}-{n - n % 2 + 1}" for n in range(16)}
    files |= {f"{CPU}/cpu{n}/topology/thread_siblings_list": n for n in range(16, 20)}
    return make(root, files)


def two_sockets(root):
    """24 cores and 48 CPUs a socket, a NUMA node each; CPUs are numbered across the sockets, siblings last."""
    files = {
        f"{CPU}/online": "0-95",
        "proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) Gold 6248R\n"
        "cpu family\t: 6\nmodel\t\t: 85\nstepping\t: 7\nmicrocode\t: 0x5003604\nflags\t: sse2 avx2 fma avx512f",
        "sys/devices/system/node/online": "0-1",
        "proc/sys/kernel/numa_balancing": 1,
    }
    for node in range(2):
        base = f"sys/devices/system/node/node{node}"
        files[f"{base}/cpulist"] = ",".join(str(n) for n in range(96) if n % 2 == node)
        files[f"{base}/meminfo"] = f"Node {node} MemTotal:       98304 kB"
    for n in range(96):
        files[f"{CPU}/cpu{n}/topology/thread_siblings_list"] = f"{n % 48},{n % 48 + 48}"
        files[f"{CPU}/cpu{n}/topology/physical_package_id"] = n % 2
        for name in ("core", "package"):
            files[f"{CPU}/cpu{n}/thermal_throttle/{name}_throttle_count"] = 3 if n == 5 else 0
    return make(root, files)


def hot_laptop(root):
    """The hybrid on battery: the clock capped, an energy preference for saving, turbo on, RAPL for root only."""
    hybrid(root)
    files = {
        "sys/class/thermal/cooling_device0/type": "Processor",
        "sys/class/thermal/cooling_device0/cur_state": 2,
        "sys/class/thermal/cooling_device1/type": "Fan",
        "sys/class/thermal/cooling_device1/cur_state": 9,
        "sys/class/thermal/thermal_zone0/type": "x86_pkg_temp",
        "sys/class/thermal/thermal_zone0/temp": 97000,
        f"{CPU}/intel_pstate/no_turbo": 0,
    }
    for n in range(20):
        policy = f"{CPU}/cpufreq/policy{n}"
        files |= {
            f"{policy}/scaling_cur_freq": 1800000 if n < 16 else 1200000,
            f"{policy}/scaling_max_freq": 2000000,
            f"{policy}/cpuinfo_min_freq": 400000,
            f"{policy}/cpuinfo_max_freq": 4800000,
            f"{policy}/scaling_governor": "powersave",
            f"{policy}/scaling_driver": "intel_pstate",
            f"{policy}/energy_performance_preference": "power",
            f"{CPU}/cpu{n}/cpufreq/scaling_cur_freq": 1800000 if n < 16 else 1200000,
        }
    return make(root, files)


def rapl(root, energies_uj, range_uj=262143328850):
    """Packages with their counters; core and DRAM domains and a second view of package 0 stand beside them."""
    base = "sys/class/powercap"
    files = {f"{base}/intel-rapl:0:0/name": "core", f"{base}/intel-rapl:0:0/energy_uj": 1}
    files |= {f"{base}/intel-rapl-mmio:0/name": "package-0", f"{base}/intel-rapl-mmio:0/energy_uj": 1}
    for number, energy in enumerate(energies_uj):
        zone = f"{base}/intel-rapl:{number}"
        files |= {f"{zone}/name": f"package-{number}", f"{zone}/energy_uj": energy}
        files[f"{zone}/max_energy_range_uj"] = range_uj
    return make(root, files | {"proc/cpuinfo": ""})


def container(root):
    """cgroup v2 with its own namespace: the limit sits one level above the process's group."""
    return make(
        root,
        {
            "proc/self/cgroup": "0::/work/job",
            "proc/self/mountinfo": "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
            "proc/stat": "cpu  100 0 100 700 50 0 0 50 30 0\ncpu0 1 1 1 1",
            "sys/fs/cgroup/work/job/cpu.max": "max 100000",
            "sys/fs/cgroup/work/job/cpu.stat": "usage_usec 5\nnr_throttled 3\nthrottled_usec 4000",
            "sys/fs/cgroup/work/cpu.max": "250000 100000",
            "sys/fs/cgroup/work/cpu.stat": "usage_usec 5\nnr_throttled 2\nthrottled_usec 1000",
            "sys/fs/cgroup/work/memory.max": "4294967296",
            "sys/fs/cgroup/work/job/memory.max": "max",
        },
    )
