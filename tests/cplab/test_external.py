"""Anybody's engine as a variant: what its name says, which file it gets, and that nothing wrong passes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from engine_building import library, needs_compiler, program
from small_models import HOT, forced_codes, inputs, projected_model

from cplab import Trace, cp_load
from cplab.errors import BadInputError, EngineError, NonFiniteLogitsError, UnknownVariantError
from cplab.external.model_file import engine_file
from cplab.external.naming import STORED, parsed
from cplab.gating import gate_cell, validate_cell
from cplab.golden import find_golden
from cplab.golden_making import make_golden
from cplab.sources import load_model
from cplab.variant import CodePredictor, get_variant

# ---- names ----


def test_a_name_says_library_or_program_and_options(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("libx.so", "libx.so.1.2", "x.dylib", "what?.so"):
        (tmp_path / name).touch()
    found = parsed("external:./libx.so")
    assert (found.kind, found.words) == ("library", (str(tmp_path / "libx.so"),))
    assert (found.tier, found.format, found.file) == ("codes", "", STORED)
    found = parsed("external:libx.so.1.2?format=q8_0&tier=quality")
    assert (found.kind, found.tier, found.format, found.file) == ("library", "quality", "q8_0", "q8_0")
    found = parsed("external:x.dylib?file=bf16&format=f32")
    assert (found.kind, found.format, found.file) == ("library", "f32", "bf16")
    assert parsed("external:what?.so").words == (str(tmp_path / "what?.so"),)
    found = parsed(f"external:{sys.executable} -c 'print(1)' --fast?tier=exact")
    assert (found.kind, found.words[1:], found.tier) == ("program", ("-c", "print(1)", "--fast"), "exact")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("external:", "a library or a command is wanted"),
        ("external:?tier=codes", "a library or a command is wanted"),
        ("external:./nowhere.so", "nowhere.so: no such library"),
        ("external:./nowhere --fast", "./nowhere: no such program"),
        ("external:./plain", "may not be executed (chmod +x)"),
        ("external:./lib.so?tier=best", "tier=best; exact, codes, quality are known"),
        ("external:./lib.so?format=q5_k", "format=q5_k; "),
        ("external:./lib.so?threads=3", "no option 'threads'; there are tier, format, file"),
        ("external:'./unclosed", "not a command"),
    ],
)
def test_a_name_that_means_nothing_is_one_line(tmp_path, monkeypatch, name, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lib.so").touch()
    (tmp_path / "plain").touch()
    with pytest.raises(UnknownVariantError) as error:
        get_variant(name)
    assert told in str(error.value)
    assert str(error.value).startswith(name.rstrip())


def test_what_the_variant_is_called(tmp_path):
    path = tmp_path / "libx.so"
    path.touch()
    plain = get_variant(f"external:{path}")
    assert (plain.format, plain.arithmetic, plain.tier, plain.extra) == ("f32", "libx.so", "codes", "")
    assert get_variant(f"external:{path}?tier=exact").arithmetic == "f32"
    assert get_variant(f"external:{path}?tier=exact&format=q8_0").arithmetic == "q8_0"
    assert get_variant(f"external:{path}?tier=quality&format=q8_0").arithmetic == "libx.so"


# ---- files ----


def test_an_engine_gets_the_users_own_file_and_no_other(tiny, tmp_path):
    from cplab.export import model_part

    own = tmp_path / "own.gguf"
    model_part(tiny, own, "own").write()
    model = load_model(str(own))
    assert engine_file(model, STORED) == (own, "the user's file")
    file, what = engine_file(model, "f16")
    assert file != own
    assert what == "a GGUF of the lab's dialect, matrices F16"
    rounded, changed = model.repacked("q8_0")
    assert changed
    assert engine_file(rounded, STORED)[0] != own


@pytest.mark.parametrize("matrices", [STORED, "f32", "f16", "bf16", "q8_0", "q5_0", "q4_0"])
def test_the_file_in_the_cache_holds_the_models_weights(tiny, matrices):
    file, _ = engine_file(tiny, matrices)
    back = load_model(str(file))
    assert back.synthetic
    kinds = {tensor.format.name for name, tensor in back.tensors.items() if "_proj" in name or "lm_head" in name}
    assert kinds == {"bf16" if matrices == STORED else matrices}
    rounded = tiny if matrices == STORED else tiny.repacked(matrices)[0]
    assert back.digest() == rounded.digest()
    stamp = file.stat().st_mtime_ns
    assert engine_file(tiny, matrices)[0].stat().st_mtime_ns == stamp


# ---- right ones ----


@needs_compiler
@pytest.mark.parametrize("options", ["", "?format=bf16", "?format=f16", "?tier=quality&format=f32", "?file=f32"])
def test_an_engine_in_plain_c_passes_every_check(tiny, tmp_path, options):
    cell = gate_cell(get_variant(f"external:{library(tmp_path)}{options}"), tiny, 1)
    assert cell.report.passed, cell.report.detail()
    assert cell.report.codes_matched == 66
    assert cell.teacher_forced == 1
    assert {"teacher-forced", "batch", "order", "contract"} <= {check.name for check in cell.report.checks}
    assert isinstance(cell.predictor, CodePredictor)
    assert "plain C" in cell.predictor.engine_note
    told = "format=" in options
    assert cell.predictor.bytes_per_frame == (
        0 if not told else 2 * tiny.spec.weights_per_pass * (4 if "f32" in options else 2)
    )


@needs_compiler
def test_the_same_as_a_program(tiny, tmp_path):
    name = f"external:{program(tmp_path)}"
    cell = gate_cell(get_variant(name), tiny, 1)
    assert cell.report.passed, cell.report.detail()
    assert cell.teacher_forced == 1
    hidden, cb0 = inputs(tiny, 3)
    by_program, by_library = Trace(), Trace()
    codes = cell.predictor.predict(hidden, cb0, trace=by_program)
    again = get_variant(f"external:{library(tmp_path)}").build(tiny, 1).predict(hidden, cb0, trace=by_library)
    assert codes.tobytes() == again.tobytes()
    assert by_program.logits.tobytes() == by_library.logits.tobytes()
    cell.predictor.close()
    cell.predictor.close()


@needs_compiler
def test_a_projected_model(tmp_path):
    model = projected_model()
    cell = gate_cell(get_variant(f"external:{library(tmp_path)}"), model, 1, golden=make_golden(model, 4))
    assert cell.report.passed, cell.report.detail()


@needs_compiler
def test_codes_are_drawn_from_the_engines_logits_by_the_law(tmp_path, tiny):
    hidden, cb0 = inputs(tiny, 3)
    engine = get_variant(f"external:{library(tmp_path)}").build(tiny, 1)
    right = get_variant("kv_f32").build(tiny, 1)
    for forced in (None, forced_codes(tiny, 3)):
        codes = engine.predict(hidden, cb0, forced=forced, noise=HOT)
        assert np.array_equal(codes, right.predict(hidden, cb0, forced=forced, noise=HOT))
        assert not np.array_equal(codes, engine.predict(hidden, cb0, forced=forced))


@needs_compiler
def test_cp_load_takes_the_name_too(tmp_path, tiny):
    hidden, cb0 = inputs(tiny, 2)
    codes = cp_load("synthetic:tiny", f"external:{library(tmp_path)}", 1).predict(hidden, cb0)
    assert np.array_equal(codes, cp_load("synthetic:tiny", "kv_f32", 1).predict(hidden, cb0))


@needs_compiler
def test_right_codes_are_not_yet_the_bits_of_the_law(tiny, tmp_path):
    report = gate_cell(get_variant(f"external:{library(tmp_path)}?tier=exact"), tiny, 1, frames=2).report
    assert report.codes_matched == 4
    assert {"logits", "forced logits"} <= set(report.failed())
    assert report.first_difference is not None


@needs_compiler
def test_without_logits_an_engine_is_judged_by_its_codes_and_that_is_said(tiny, tmp_path):
    variant = get_variant(f"external:{library(tmp_path, 'no_logits')}")
    cell = gate_cell(variant, tiny, 1, frames=5)
    assert cell.report.passed, cell.report.detail()
    assert "teacher-forced" not in {check.name for check in cell.report.checks}
    assert cell.teacher_forced is None
    assert "free-running codes only" in cell.report.detail()
    assert "it has no cp_predict_logits" in cell.predictor.engine_note
    for refused in ({"forced": np.zeros((1, 2), np.int32)}, {"noise": HOT}):
        with pytest.raises(BadInputError, match="takes no forced codes and no noise"):
            cell.predictor.predict(*inputs(tiny, 1), **refused)
    found = validate_cell(variant, tiny, 1, find_golden(tiny)).found
    assert found.teacher_forced is None
    assert found.all_match


# ---- wrong ones ----


@needs_compiler
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("no_predict", "has no function cp_predict; python -m bench engine-header"),
        ("null_load", "cp_load returned NULL for .*gguf: no memory for 1 threads"),
    ],
)
def test_a_library_that_cannot_be_used_is_one_line(tiny, tmp_path, fault, told):
    with pytest.raises(EngineError, match=told) as error:
        get_variant(f"external:{library(tmp_path, fault)}").build(tiny, 1)
    assert f"lib{fault}.so" in str(error.value)


def test_a_file_that_is_no_library(tiny, tmp_path):
    (tmp_path / "lib.so").write_text("no library")
    with pytest.raises(EngineError, match=r"lib\.so: cannot be loaded: "):
        get_variant(f"external:{tmp_path}/lib.so").build(tiny, 1)


@needs_compiler
@pytest.mark.parametrize("tier", ["exact", "quality"])
def test_a_tier_that_compares_logits_needs_them(tiny, tmp_path, tier):
    name = f"external:{library(tmp_path, 'no_logits')}?tier={tier}"
    with pytest.raises(EngineError, match=f"tier {tier} compares logits and it has no cp_predict_logits"):
        get_variant(name).build(tiny, 1)


@needs_compiler
@pytest.mark.parametrize(
    ("fault", "check", "told"),
    [
        ("returns_7", "codes", "frame 0: external:{path}: cp_predict_logits returned 7: out of cheese"),
        ("wrong", "codes", "frame 0, pass 1: code"),
        ("out_of_range", "range", "frame 0, pass 1: code 256"),
        ("one_more", "codes", "cp_predict_logits wrote more than the 2 codes CB1, CB2, ..."),
        ("more_logits", "codes", "cp_predict_logits wrote more than 2 x 256 logits"),
        ("nothing", "range", "frame 0, pass 0: code -"),
        ("stale", "order", "frame"),
        ("not_finite", "finite", "frame 0, pass 1"),
    ],
)
def test_no_fault_passes_the_gate(tiny, tmp_path, fault, check, told):
    path = library(tmp_path, fault)
    report = gate_cell(get_variant(f"external:{path}"), tiny, 1, frames=4).report
    failed = {c.name: c.detail for c in report.checks if not c.passed}
    assert told.format(path=path) in failed[check]


@needs_compiler
def test_non_finite_logits_name_their_place(tiny, tmp_path):
    predictor = get_variant(f"external:{library(tmp_path, 'not_finite')}").build(tiny, 1)
    with pytest.raises(NonFiniteLogitsError) as error:
        predictor.predict(*inputs(tiny, 3), trace=Trace())
    assert (error.value.frame, error.value.pass_index) == (0, 1)


# ---- programs ----

PROGRAM = """
import struct, sys, os, time
out, read = sys.stdout.buffer, sys.stdin.buffer.read
def say(form, *values):
    out.write(struct.pack("<" + form, *values)); out.flush()
def request():
    head = read(16)
    if len(head) < 16:
        sys.exit(0)
    B, width, passes, flags = struct.unpack("<4I", head)
    read(8 * B * width)
    return B, passes
"""


def script(tmp_path, text):
    path = tmp_path / "engine.py"
    path.write_text(PROGRAM + textwrap.dedent(text))
    return f"external:{sys.executable} {path}"


def test_a_program_may_be_a_script_and_gets_file_and_threads(tiny, tmp_path):
    name = script(
        tmp_path,
        """
        assert open(sys.argv[1], "rb").read(4) == b"GGUF"
        say("4sI", b"CPE1", 0)
        while True:
            B, passes = request()
            say(f"{1 + B * passes}I", 0, *[int(sys.argv[2])] * (B * passes))
        """,
    )
    predictor = get_variant(name).build(tiny, 3)
    assert predictor.predict(*inputs(tiny, 2)).tolist() == [[3, 3], [3, 3]]
    assert not predictor.takes_forced
    assert "it says that it gives no logits" in predictor.engine_note
    report = gate_cell(get_variant(name), tiny, 1, frames=2).report
    assert report.failed()[0] == "codes"


@pytest.mark.parametrize(
    ("options", "variant"), [("", "kv_f32"), ("format=bf16", "kv_bf16"), ("format=q8_0", "kv_q8_0")]
)
def test_an_engine_with_the_bits_of_the_law_is_exact(tiny, tmp_path, options, variant):
    name = script(
        tmp_path,
        f"""
        import numpy as np
        from cplab import Trace, cp_load
        cp = cp_load(sys.argv[1], {variant!r}, 1)
        say("4sI", b"CPE1", 1)
        while head := read(16):
            B, width, passes, flags = struct.unpack("<4I", head)
            hidden, cb0 = (np.frombuffer(read(4 * B * width), "<f4").reshape(B, width) for _ in range(2))
            forced = np.frombuffer(read(4 * B * passes), "<i4").reshape(B, passes) if flags & 1 else None
            trace = Trace()
            codes = cp.predict(hidden, cb0, forced=forced, trace=trace)
            out.write(bytes(4) + codes.tobytes() + (trace.logits.tobytes() if flags & 2 else b""))
            out.flush()
        """,
    )
    cell = gate_cell(get_variant(f"{name}?tier=exact&{options}".rstrip("&")), tiny, 1, frames=4)
    assert cell.report.passed, cell.report.detail()
    assert {"logits", "forced logits", "sampling"} <= {check.name for check in cell.report.checks}
    assert cell.golden.arithmetic == ("q8_0" if "q8_0" in options else "f32")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sys.exit(3)", "ended with exit code 3 before it was ready"),
        ("sys.stderr.write('no such\\nformat'); sys.exit(1)", "before it was ready: no such | format"),
        ("os.abort()", "was killed by SIGABRT before it was ready"),
        ("print('loading the model ...', flush=True); time.sleep(9)", "began with b'load' instead of b'CPE1'"),
    ],
)
def test_a_program_that_does_not_get_ready_is_one_line(tiny, tmp_path, text, told):
    with pytest.raises(EngineError) as error:
        get_variant(script(tmp_path, text)).build(tiny, 1)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("request(); os.kill(os.getpid(), 11)", "was killed by SIGSEGV during a frame"),
        ("request(); say('II4s', 5, 4, b'full'); request()", "answered 5: full"),
        ("request(); say('II', 0, 1)", "ended with exit code 0 during a frame"),
        ("sys.exit(4)", "ended with exit code 4"),
    ],
)
def test_a_program_that_fails_in_a_frame_is_one_line(tiny, tmp_path, text, told):
    predictor = get_variant(script(tmp_path, f"say('4sI', b'CPE1', 0)\n{text}")).build(tiny, 1)
    with pytest.raises(EngineError) as error:
        predictor.predict(*inputs(tiny, 1))
    assert told in str(error.value)
    if "answered" not in told:
        with pytest.raises(EngineError, match=r"ended|killed"):
            predictor.predict(*inputs(tiny, 1))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_a_program_that_hangs_ends_with_the_process_that_started_it(tiny, tmp_path):
    name = script(
        tmp_path, "say('4sI', b'CPE1', 0)\nopen(sys.argv[0] + '.pid', 'w').write(str(os.getpid()))\ntime.sleep(600)"
    )
    source = f"from cplab import cp_load; import time; cp_load('synthetic:tiny', {name!r}, 1); time.sleep(600)"
    parent = subprocess.Popen([sys.executable, "-c", source], env=os.environ)
    noted = tmp_path / "engine.py.pid"
    deadline = time.monotonic() + 60
    while not (noted.exists() and noted.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    child = psutil.Process(int(noted.read_text()))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    gone, _ = psutil.wait_procs([child], timeout=20)
    assert gone
