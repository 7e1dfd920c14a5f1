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
