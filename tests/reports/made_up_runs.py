"""Made-up runs for the report's tests. Every figure here is invented; none was measured."""

import json
from pathlib import Path

from bench.records import (
    CellRecord,
    CellSummary,
    CheckResult,
    Fidelity,
    GateOutcome,
    Interval,
    ModelFacts,
    Ratio,
    Reference,
    RunFacts,
    Summary,
    Talker,
)

CHECKS = [
    CheckResult(name=name, passed=True, detail=detail)
    for name, detail in (
        ("codes in range", "0..2047"),
        ("logits finite", ""),
        ("logits equal", "30 of 30 digests"),
        ("second frame is fresh", ""),
        ("teacher-forced codes", "30 of 30"),
        ("batch of 3", "same bits as one by one"),
    )
]


def interval(p50, spread=0.01):
    return Interval(p50=p50, lo=p50 * (1 - spread), hi=p50 * (1 + spread * 1.6), min=p50 * (1 - 1.7 * spread))


def cell(variant="kv_bf16", threads=2, p50=66.0, **changes):
    """A passing exact cell; ``changes`` override any field."""
    fields = {
        "variant": variant,
        "format": variant.rsplit("_", 1)[-1],
        "arithmetic": "f32",
        "tier": "exact",
        "threads": threads,
        "gate": "pass",
        "gate_detail": "30 of 30 codes, logits bit-equal",
        "exact": True,
        "rounds": 5,
        "frames": 20,
        "cp_ms": interval(p50),
        "round_medians_ms": [p50] * 5,
        "code_ms": [p50 / 15] * 15,
        "passes_per_frame": 15,
        "bytes_per_frame": 2_424_000_000,
        "gbps": 2424 / p50,
        "roof_ms": 60.0,
        "roof_fraction": min(0.97, 60 / p50),
        "speedup_vs_baseline": Ratio(ratio=180 / p50, lo=177 / p50, hi=183 / p50),
        "rtf_cp": p50 / 80,
        "first_call_ms": p50 * 3,
        "load_s": 1.234,
        "compile_s": 0.4567,
        "rss_mb": 812.3,
        "checks": CHECKS,
    }
    return CellSummary(**(fields | changes))


def broken(variant="kv_q4_0", threads=2, gate="crash", reason="worker died with SIGSEGV while packing", **changes):
    """A cell whose gate did not pass: no times."""
    fields = {
        "variant": variant,
        "format": "q4_0",
        "arithmetic": "q4_0",
        "tier": "exact",
        "threads": threads,
        "gate": gate,
        "gate_detail": "",
        "exact": False,
        "reason": reason,
    }
    return CellSummary(**(fields | changes))


def summary(cells, **changes):
    run_changes = changes.pop("run", {})
    model_changes = changes.pop("model", {})
    model = {
        "name": "made-up:0.6b",
        "spec": {"hidden": 1024, "layers": 5, "groups": 16, "rope_theta": 1e6, "projected": False},
        "digest": "0" * 64,
        "synthetic": False,
    }
    run = {
        "command": "python -m bench sweep --threads 1,2 --rounds 5",
        "seed": 7,
        "rounds": 5,
        "frames_per_round": 4,
        "started_utc": "2001-02-03T04:05:06Z",
        "elapsed_s": 123.4,
        "commit": "abcdef0",
        "dirty": False,
        "tool_version": "0.0-made-up",
        "golden": "golden/made-up.npz, 33 frames",
        "thread_list": [1, 2],
        "thread_list_reason": "1 and the CPUs of the affinity mask",
    }
    fields = {
        "model": ModelFacts(**(model | model_changes)),
        "machine": MACHINE,
        "run": RunFacts(**(run | run_changes)),
        "baseline": "recompute_f16",
        "cells": cells,
        "reference": Reference(name="Kazeia tablet, CPU 4 threads", talker_ms=29.3, cp_ms=267.0, rtf=3.61),
    }
    return Summary(**(fields | changes))


MACHINE = {
    "hostname_kept": False,
    "cpu": {
        "model": "Imaginary CPU 9000 (made up)",
        "architecture": "x86_64",
        "logical": 2,
        "allowed": 2,
        "physical": 2,
        "flags": ["avx2", "avx512f", "avx512_vnni", "fma", "f16c", "bmi2"],
        "cache": {"l1d_kib": 48, "l2_kib": 2048, "l3_mib": 32.0},
    },
    "memory": {"total_bytes": 15_600_000_000, "available_bytes": 12_345_600_000, "swap": None},
    "limits": {"affinity": [0, 1], "cgroup_cpus": 2.0, "governor": ""},
    "software": {"python": "3.11.7", "numba": "0.63.1", "threading_layer": "omp", "llvm_target": "rocketlake"},
    "load": {"before": [0.1, 0.2, 0.3], "after": [1.9, 1.1, 0.6]},
}

OWN_TALKER = Talker(backend="llama.cpp F16, 2 threads", prefill_ms=101.0, step_ms=interval(12.0))


def passes(total, growing):
    weights = [1 + 0.16 * step if growing else 1.0 + (0.12 if step == 0 else 0) for step in range(15)]
    return [total * weight / sum(weights) for weight in weights]


def realistic():
    """About a dozen cells of the shape that a sweep gives."""
    recompute = {"code_ms": passes(170, growing=True), "roof_fraction": 0.34}
    cells = [
        cell("recompute_f32", 2, 170.2, bytes_per_frame=4_848_000_000, **recompute),
        cell("recompute_f16", 2, 180.4, **(recompute | {"code_ms": passes(180, growing=True)})),
        cell("kv_f32", 1, 251.3, bytes_per_frame=4_848_000_000, code_ms=passes(251, growing=False), roof_fraction=0.93),
        cell("kv_f32", 2, 130.6, bytes_per_frame=4_848_000_000, code_ms=passes(131, growing=False), roof_fraction=0.95),
        cell("kv_bf16", 1, 130.1, code_ms=passes(130, growing=False), roof_fraction=0.91),
        cell("kv_bf16", 2, 66.04, code_ms=passes(66, growing=False), roof_fraction=0.964),
        cell(
            "kv_bf16", 4, 80.3, code_ms=passes(80, growing=False), oversubscribed=True, roof_fraction=0.79, outliers=2
        ),
        cell("kv_f16", 1, 128.8, code_ms=passes(129, growing=False), roof_fraction=0.92),
        cell("kv_f16", 2, 67.1, code_ms=passes(67, growing=False), roof_fraction=1.013, roof_suspect=True),
        cell(
            "numpy_f32",
            2,
            169.0,
            tier="codes",
            exact=False,
            code_ms=passes(169, growing=True),
            fidelity=Fidelity(teacher_forced=1.0, free_running=1.0),
            roof_fraction=0.35,
        ),
        cell(
            "kv_q8_0",
            2,
            28.36,
            arithmetic="q8_0",
            exact=False,
            bytes_per_frame=1_290_000_000,
            code_ms=passes(28.4, growing=False),
            fidelity=Fidelity(teacher_forced=0.9812, free_running=0.437),
            roof_fraction=0.88,
        ),
        broken(),
        broken(
            "kv_bf16_stale",
            2,
            gate="fail",
            reason="",
            arithmetic="f32",
            gate_detail="frame 1, pass 3: logit 17 is 0x3f8ccccd, the oracle says 0x3f8cccce; code 5 for 1911",
            checks=[*CHECKS[:2], CheckResult(name="logits equal", passed=False, detail="27 of 30 digests")],
        ),
        broken(
            "llama_f16", 2, gate="skip", tier="quality", reason="needs llama-cpp-python: pip install 'cplab[llama]'"
        ),
    ]
    return summary(
        cells,
        model={"name": "synthetic:0.6b", "synthetic": True},
        roof={"threads": {"1": 16.8, "2": 37.4}},
        run={"not_measured": ["8 threads: this machine allows 2 CPUs", "the talker: --no-talker was given"]},
    )


def records_of(run):
    """A gate record and a timed record for each cell."""
    for one in run.cells:
        ok = one.gate == "pass"
        gate = GateOutcome(
            status=one.gate,
            detail=one.gate_detail,
            codes_matched=30 if ok else 0,
            codes_total=30 if one.gate in ("pass", "fail") else 0,
        )
        shared = {"variant": one.variant, "threads": one.threads, "model": run.model.name, "round": 0, "order": 0}
        yield CellRecord(phase="gate", gate=gate, **shared)
        if one.cp_ms:
            yield CellRecord(phase="timed", gate=gate, samples_ns=[int(one.cp_ms.p50 * 1e6)] * 4, **shared)


def write_run(folder: Path, run: Summary) -> Path:
    """A run folder as a sweep leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(json.dumps(run.model_dump(mode="json", by_alias=True)), encoding="utf-8")
    lines = (json.dumps(record.model_dump(mode="json", by_alias=True)) for record in records_of(run))
    (folder / "records.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder
