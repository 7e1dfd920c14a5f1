"""What kind of CPU this is: name, maker, instruction sets, caches; from /proc/cpuinfo, /sys, or macOS's sysctl."""

from __future__ import annotations

import platform
import re
from pathlib import Path
from typing import Any

from cplab.sysfiles import parse_cpu_list, parse_pairs, parse_size, present, read_int, read_text

# What the kernels, or the engines that they are compared with, choose their code by.
RELEVANT_ISA = (
    *("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx_vnni", "avx512_bf16"),
    *("avx512_fp16", "amx_tile", "amx_int8", "amx_bf16"),
    *("asimd", "fphp", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2"),
)
_MACOS_ISA = {"FEAT_DotProd": "asimddp", "FEAT_BF16": "bf16", "FEAT_I8MM": "i8mm"}
_ARM_MAKERS = {
    0x41: "ARM",
    0x48: "HiSilicon",
    0x4E: "NVIDIA",
    0x51: "Qualcomm",
    0x53: "Samsung",
    0x61: "Apple",
    0xC0: "Ampere",
}
# Arm's own part numbers (as in util-linux's lscpu); 64-bit kernels print no name.
_ARM_PARTS = {
    **{0xD03: "Cortex-A53", 0xD04: "Cortex-A35", 0xD05: "Cortex-A55", 0xD07: "Cortex-A57", 0xD08: "Cortex-A72"},
    **{0xD09: "Cortex-A73", 0xD0A: "Cortex-A75", 0xD0B: "Cortex-A76", 0xD0C: "Neoverse-N1", 0xD0D: "Cortex-A77"},
    **{0xD40: "Neoverse-V1", 0xD41: "Cortex-A78", 0xD44: "Cortex-X1", 0xD46: "Cortex-A510", 0xD47: "Cortex-A710"},
    **{0xD48: "Cortex-X2", 0xD49: "Neoverse-N2", 0xD4B: "Cortex-A78C", 0xD4D: "Cortex-A715", 0xD4E: "Cortex-X3"},
    **{0xD4F: "Neoverse-V2", 0xD80: "Cortex-A520", 0xD81: "Cortex-A720", 0xD82: "Cortex-X4"},
    **{0xD84: "Neoverse-V3", 0xD85: "Cortex-X925", 0xD87: "Cortex-A725", 0xD8E: "Neoverse-N3"},
}
_GUEST_MAKERS = re.compile(
    r"qemu|kvm|vmware|virtualbox|xen|amazon ec2(?!.*metal)|google compute|virtual machine|parallels|openstack", re.I
)


def parse_cpuinfo(text: str | None) -> list[dict[str, str]]:
    """/proc/cpuinfo as one dict for each paragraph (a processor, or ARM's closing ``Hardware`` paragraph)."""
    return [pairs for part in re.split(r"\n\s*\n", text or "") if (pairs := parse_pairs(part, ":"))]


def _arm_id(block: dict[str, str], name: str) -> int | None:
    text = block.get(name, "")
    return int(text, 16) if re.fullmatch(r"0x[0-9a-fA-F]+", text) else None


def model_name(blocks: list[dict[str, str]]) -> str | None:
    """The CPU's name; on ARM its kinds of core with their counts, the last listed (the biggest) first."""
    kinds: dict[str, int] = {}
    for block in blocks:
        part = _arm_id(block, "CPU part")
        if part is not None:
            maker = _arm_id(block, "CPU implementer")
            own = _ARM_PARTS.get(part) if maker == 0x41 else None
            name = own or f"{_ARM_MAKERS.get(maker or 0, 'ARM')} part {part:#x}"
            kinds[name] = kinds.get(name, 0) + 1
    if kinds:
        return " + ".join(f"{count}x {name}" for name, count in reversed(kinds.items()))
    return next((block["model name"] for block in blocks if block.get("model name")), None)


def vendor(blocks: list[dict[str, str]]) -> str | None:
    """Who made the CPU: x86's vendor id, or the maker behind ARM's implementer number."""
    for block in blocks:
        if block.get("vendor_id"):
            return block["vendor_id"]
        maker = _arm_id(block, "CPU implementer")
        if maker is not None:
            return _ARM_MAKERS.get(maker, f"{maker:#x}")
    return None


def flags(blocks: list[dict[str, str]]) -> set[str] | None:
    """The features that all processors list, or None where none does."""
    lists = [set(text.split()) for block in blocks if (text := block.get("flags") or block.get("Features"))]
    return set.intersection(*lists) if lists else None


def _board(blocks: list[dict[str, str]], root: Path) -> str | None:
    hardware = next((block["Hardware"] for block in blocks if block.get("Hardware")), None)
    return hardware or read_text(root / "sys/firmware/devicetree/base/model")


def _virtual(listed: set[str] | None, root: Path) -> bool | None:
    """Whether this is a virtual machine; x86 says so in a flag, elsewhere the firmware's maker is a hint."""
    if listed and "sse2" in listed:
        return "hypervisor" in listed
    if present(root / "sys/firmware/devicetree/base/hypervisor"):
        return True
    maker = " ".join(filter(None, (read_text(root / f"sys/class/dmi/id/{n}") for n in ("sys_vendor", "product_name"))))
    return bool(_GUEST_MAKERS.search(maker)) if maker else None


def caches(root: Path) -> dict[str, dict[str, int]] | None:
    """Data caches by level: bytes of the largest instance, bytes of all together, and how many there are."""
    instances: dict[str, dict[tuple[int, ...], int]] = {}
    for folder in root.glob("sys/devices/system/cpu/cpu[0-9]*/cache/index*"):
        level, size = read_int(folder / "level"), parse_size(read_text(folder / "size"))
        if level and size and read_text(folder / "type") in ("Data", "Unified"):
            shared = tuple(parse_cpu_list(read_text(folder / "shared_cpu_list"))) or (int(folder.parents[1].name[3:]),)
            instances.setdefault("l1d" if level == 1 else f"l{level}", {})[shared] = size
    found = {
        name: {"bytes": max(sizes.values()), "total_bytes": sum(sizes.values()), "instances": len(sizes)}
        for name, sizes in sorted(instances.items())
    }
    return found or None


def _revision(blocks: list[dict[str, str]]) -> dict[str, str | None]:
    """What tells CPUs of one name apart, as the kernel writes it: a virtual machine's name may be its maker's only.

    ``revision`` is x86's family/model/stepping (25/1/1: Zen 3 "Milan"), or Arm's variant and revision.
    """
    block = next(iter(blocks), {})
    x86 = [block.get(name) for name in ("cpu family", "model", "stepping")]
    arm = [block.get(name) for name in ("CPU variant", "CPU revision")]
    parts = next((parts for parts in (x86, arm) if all(parts)), None)
    return {"revision": "/".join(filter(None, parts)) if parts else None, "microcode": block.get("microcode")}


def linux_cpu(root: Path) -> dict[str, Any]:
    """The CPU's identity as a Linux kernel shows it below ``root``."""
    blocks = parse_cpuinfo(read_text(root / "proc/cpuinfo"))
    listed = flags(blocks)
    return {
        "model": model_name(blocks),
        "vendor": vendor(blocks),
        **_revision(blocks),
        "board": _board(blocks, root),
        "virtual": _virtual(listed, root),
        "isa": None if listed is None else [name for name in RELEVANT_ISA if name in listed],
        "caches": caches(root),
    }


def macos_cpu(values: dict[str, str]) -> dict[str, Any]:
    """The CPU's identity from the output of ``sysctl hw machdep.cpu``."""
    x86 = f"{values.get('machdep.cpu.features', '')} {values.get('machdep.cpu.leaf7_features', '')}".lower().split()
    listed = set(x86) | {ours for theirs, ours in _MACOS_ISA.items() if values.get(f"hw.optional.arm.{theirs}") == "1"}
    if not x86:
        listed.add("asimd")  # every 64-bit ARM has it
    if values.get("hw.optional.arm.FEAT_FP16") == "1":
        listed |= {"fphp", "asimdhp"}
    found = {}
    for name, key in (("l1d", "l1dcachesize"), ("l2", "l2cachesize"), ("l3", "l3cachesize")):
        size = parse_size(values.get(f"hw.perflevel0.{key}")) or parse_size(values.get(f"hw.{key}"))
        if size:
            found[name] = {"bytes": size}
    guest = values.get("kern.hv_vmm_present")
    return {
        "model": values.get("machdep.cpu.brand_string"),
        "vendor": values.get("machdep.cpu.vendor", None if x86 else "Apple"),
        "revision": values.get("hw.cpufamily"),
        "microcode": values.get("machdep.cpu.microcode_version"),
        "board": values.get("hw.model"),
        "virtual": None if guest is None else guest == "1",
        "isa": [name for name in RELEVANT_ISA if name in listed],
        "caches": found or None,
    }


def cpu_identity(root: Path, sysctl_values: dict[str, str]) -> dict[str, Any]:
    """Model, vendor, board, virtual, isa and caches, from whichever source this machine has."""
    found = macos_cpu(sysctl_values) if "hw.physicalcpu" in sysctl_values else linux_cpu(root)
    return {"arch": platform.machine() or None, **found}
