"""The doctor's checks of CPU, memory and of what else takes their time; each says None where it cannot be known."""

from __future__ import annotations

from bench.verdict import GB, Check, Facts, Grade, Verdict, by_limit, fact

MEMORY_NEEDED_BYTES = 2 * GB  # the 0.6b model in float32, a worker's buffers, and the page cache of one file
HOT_CELSIUS = 85


def _allowance(facts: Facts) -> Verdict | None:
    allowed, physical, quota = (fact(facts, f"cpu.{n}") for n in ("allowed", "physical", "quota_cpus"))
    if not allowed or not physical:
        return None
    found = f"{allowed} CPUs allowed, {physical} physical cores" + (f", quota {quota:g} CPUs" if quota else "")
    if quota and quota < 1:
        return "bad", found, "even one thread is stopped by the quota: raise it, no time measured here means anything"
    if quota and quota < (fact(facts, "cpu.logical") or physical):
        return "risky", found, f"a team above {allowed} threads is stopped in the middle of frames: stay at or below it"
    if allowed < physical:
        return "risky", found, "affinity hides cores: figures are those of a smaller machine with this cache and memory"
    return "good", found, ""


def _core_kinds(facts: Facts) -> Verdict | None:
    big, small = fact(facts, "cpu.p_cores"), fact(facts, "cpu.e_cores")
    if fact(facts, "cpu.physical") is None:
        return None
    if not small:
        return "good", "one kind of core, or the kernel does not tell", ""
    pins = "" if fact(facts, "cpu.pinnable") else "; this platform cannot pin"
    return "risky", f"{big} P-cores, {small} E-cores{pins}", f"above {big} threads every barrier waits for a slow core"


def _smt(facts: Facts) -> Verdict | None:
    smt, physical = fact(facts, "cpu.smt"), fact(facts, "cpu.physical_allowed")
    if smt is None:
        return None
    return "good", "on" if smt else "off or absent", f"read cells above {physical} threads as SMT cells" if smt else ""


def _governor(facts: Facts) -> Verdict | None:
    governor, driver = fact(facts, "frequency.governor"), fact(facts, "frequency.driver") or "unknown driver"
    if not governor:
        return None
    found = f"{governor} ({driver})"
    if governor == "performance":
        return "good", found, ""
    # In these drivers' active mode "powersave" still goes up to full speed under load.
    dynamic = governor != "powersave" or "pstate" in driver
    advice = "set the performance governor (cpupower frequency-set -g performance), or trust only long cells"
    return ("risky" if dynamic else "bad"), found, advice


def _temperature(facts: Facts) -> Verdict | None:
    celsius = fact(facts, "temperature.cpu_celsius")
    if celsius is None:
        return None
    hot = celsius >= HOT_CELSIUS
    return ("risky" if hot else "good"), f"{celsius:.0f} C", "let it cool: a warm CPU lowers its clock" if hot else ""


def _load(facts: Facts) -> Verdict | None:
    load, cpus, busy = (fact(facts, n) for n in ("load.loadavg_1m", "cpu.logical", "load.busy_share_sample"))
    if load is None or not cpus:
        return None
    grade = by_limit(load / cpus, 0.15, 0.5)
    if busy is not None:  # the average remembers the lab's own last minute; the sample tells what runs now
        now = by_limit(busy, 0.25, 0.5)
        grade = "bad" if grade == now == "bad" else "risky" if (grade, now) != ("good", "good") else "good"
    found = f"load {load:.2f} on {cpus} CPUs" + ("" if busy is None else f", {busy:.0%} busy just now")
    return grade, found, "" if grade == "good" else "stop what else runs: a loaded machine's times say nothing"


def _steal(facts: Facts) -> Verdict | None:
    boot, sample = fact(facts, "load.steal_share_since_boot"), fact(facts, "load.steal_share_sample") or 0.0
    if boot is None:
        return None
    grade = by_limit(boot, 0.01, 0.05)
    if grade == "good" and sample > 0.1:
        grade = "risky"
    found = f"{boot:.1%} of CPU time since boot, {sample:.0%} just now"
    return (
        grade,
        found,
        "" if grade == "good" else "other guests take this machine's CPUs: more rounds, or a quiet host",
    )


def _throttling(facts: Facts) -> Verdict | None:
    times, now_ms = fact(facts, "load.nr_throttled"), fact(facts, "load.throttled_ms_sample") or 0
    if times is None:
        return None
    grade: Grade = "bad" if now_ms else "risky" if times else "good"
    found = f"stopped {times} times by the CPU quota" if times else "never stopped by a CPU quota"
    return grade, found, "raise the quota or use fewer threads" if times else ""


def _memory(facts: Facts) -> Verdict | None:
    known = [n for n in (fact(facts, "memory.available_bytes"), fact(facts, "memory.limit_bytes")) if n is not None]
    if not known:
        return None
    usable = min(known)
    grade: Grade = "good" if usable >= MEMORY_NEEDED_BYTES else "risky" if usable >= GB else "bad"
    advice = f"float32 cells of the 0.6b model want {MEMORY_NEEDED_BYTES / GB:g} GB: free some, or leave them out"
    return grade, f"{usable / GB:.1f} GB usable", "" if grade == "good" else advice


def _huge_pages(facts: Facts) -> Verdict | None:
    chosen = fact(facts, "memory.transparent_huge_pages")
    if not chosen:
        return None
    if chosen in ("always", "madvise"):
        return "good", chosen, ""
    return "risky", chosen, "weights span many pages: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (root)"


def _fma(facts: Facts) -> Verdict | None:
    isa = fact(facts, "cpu.isa")
    if isa is None:
        return None
    if "fma" in isa or "asimd" in isa:
        return "good", "fused multiply-add present", ""
    return "bad", "no fused multiply-add", "the law is made of fma; in software it is right but many times slower"


def _vectors(facts: Facts) -> Verdict | None:
    isa = fact(facts, "cpu.isa")
    if isa is None:
        return None
    if "asimd" in isa:
        integer = "asimddp" in isa
        advice = "" if integer else "no integer dot product: expect little from q8_0 here"
        return ("good" if integer else "risky"), "NEON" + ", dot product" * integer, advice
    if "avx512f" in isa or "avx2" in isa:
        name = "AVX-512" if "avx512f" in isa else "AVX2"
        return "good", name + ", VNNI" * ("avx512_vnni" in isa or "avx_vnni" in isa), ""
    return "risky", "neither AVX2 nor NEON", "cells are still exact, but far from what memory allows"


def _amx(facts: Facts) -> Verdict | None:
    isa = fact(facts, "cpu.isa")
    if isa is None:
        return None
    if not any(name.startswith("amx") for name in isa):
        return "good", "not listed", ""
    advice = "may fault in a virtual machine and kill llama.cpp's default build: set use_extra_bufts=False"
    return "risky", "listed, not tried", advice


def _virtual(facts: Facts) -> Verdict | None:
    virtual = fact(facts, "cpu.virtual")
    if virtual is None:
        return None
    advice = "core count, siblings and caches may be fiction, neighbours come and go: compare within one run only"
    return ("risky", "virtual machine", advice) if virtual else ("good", "no sign of one", "")


HARDWARE_CHECKS: dict[str, Check] = {
    "CPU allowance": _allowance,
    "core kinds": _core_kinds,
    "SMT": _smt,
    "governor": _governor,
    "temperature": _temperature,
    "load": _load,
    "steal": _steal,
    "throttling": _throttling,
    "memory": _memory,
    "huge pages": _huge_pages,
    "FMA": _fma,
    "vector instructions": _vectors,
    "AMX": _amx,
    "virtual machine": _virtual,
}
