"""``bench profile``: how samples become a profile, what it says, and the command from end to end on the tiny model."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from bench_command import bench
from made_up_profiles import record, samples
from pydantic import ValidationError

from bench import profile_show
from bench.profile_record import digest, middle_half
from bench.profiling import profile_frames
from bench.records import PART_LABELS, PROFILE_SCHEMA, GateOutcome, Profile
from cplab.golden import find_golden
from cplab.laps import PARTS, Laps
from reports.profile_words import notes
from reports.profile_words import page as page_of

ODD = Path(__file__).parent / "odd_variants.py"


# -- samples to profile -----------------------------------------------------------------------------------------------


def test_every_part_has_a_name_in_the_fields_words():
    assert set(PART_LABELS) == set(PARTS)


def test_parts_are_means_over_members_with_bytes_and_bandwidth():
    profile = digest(record(), "bf16")
    assert profile.frame_ms == pytest.approx(21)
    assert profile.untraced_ms == pytest.approx(20)
    assert profile.passes == 2
    by_name = {part.name: part for part in profile.parts}
    assert list(by_name) == list(PART_LABELS)
    gate_up = by_name["gate_up"]  # 3 ms a pass on one member, 1.5 ms on the other
    assert gate_up.ms == pytest.approx(4.5)
    assert gate_up.pass_ms == pytest.approx([2.25, 2.25])
    assert gate_up.share == pytest.approx(4.5 / 21)
    assert gate_up.bytes == 90_000_000
    assert gate_up.gbps == pytest.approx(20)
    assert by_name["attention"].gbps is None
    assert by_name["quantise"].ms == 0
    assert profile.waiting_ms == pytest.approx([0, 10])
    assert profile.sum_share == pytest.approx(20 / 21)


def test_a_frame_that_was_held_up_is_not_in_the_means():
    profile = digest(record(samples(scales=(1, 1, 1, 50, 1))), "bf16")
    assert profile.frame_ms == pytest.approx(21)
    assert sum(part.ms for part in profile.parts) == pytest.approx(20)


@pytest.mark.parametrize(
    ("times", "middle"), [([5], [0]), ([5, 9], [0, 1]), ([9, 1, 5, 4], [0, 1, 2, 3]), ([9, 1, 5, 4, 6], [2, 3, 4])]
)
def test_the_middle_half(times, middle):
    assert middle_half(times).tolist() == middle


def test_tracing_cost_is_of_pairs():
    cost = digest(record(samples(scales=(1, 3, 9, 27))), "bf16").tracing  # drift that both of a pair share
    assert (cost.ratio, cost.lo, cost.hi) == pytest.approx((1.05, 1.05, 1.05))


def test_no_profile_without_a_passed_gate():
    with pytest.raises(ValidationError, match="gate says fail"):
        record(gate=GateOutcome(status="fail", detail="other codes"))


def test_a_record_without_a_profile_is_refused():
    bare = record().model_copy(update={"profile": None})
    with pytest.raises(ValueError, match="without a profile"):
        digest(bare, "bf16")


def test_json_round_trip():
    profile = digest(record(), "bf16")
    text = profile.model_dump_json(by_alias=True)
    assert json.loads(text)["schema"] == PROFILE_SCHEMA
    assert Profile.model_validate_json(text) == profile


# -- what it says -----------------------------------------------------------------------------------------------------


def test_notes_say_sum_cost_waiting_and_counters():
    counters = {"cycles": 2e8, "instructions": 3e8, "task-clock": 40.0}
    told = notes(digest(record(samples(counters=counters)), "bf16"))
    assert told[0].startswith("The parts sum to 95.2 % of the frame, 21.0 ms")
    assert told[1].startswith("Tracing costs 5.00 % [5.00, 5.00]")
    assert told[2] == "Waiting of each member: 0, 10.0 ms a frame."
    assert told[3].endswith("task-clock 40.0 ms, 1.50 instructions a cycle.")
    assert len(told) == 4


def test_notes_say_why_there_are_no_counters():
    told = notes(digest(record(samples(counters_reason="perf is not installed")), "bf16"))
    assert told[-1] == "Counters of the processor: perf is not installed."


def test_the_last_row_is_the_sum():
    page = page_of(digest(record(), "bf16"))
    assert page.rows[-1] == ["sum", "20.0", "95.2 %", "270", "13.5"]
    assert [row[0] for row in page.rows[:-1]] == list(PART_LABELS.values())


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_passes_fit_the_terminal(width, monkeypatch, capsys):
    from rich.console import Console

    monkeypatch.setattr(profile_show, "console", Console(width=width))
    made = [[[*member] * 8 for member in frame] for frame in samples().laps_ns]  # 16 passes
    profile_show.print_profile(digest(record(samples(laps_ns=made)), "bf16"))
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines) <= width
    headings = [line for line in lines if line.startswith("ms in pass")]
    assert [int(n) for line in headings for n in line.split()[3:]] == list(range(1, 17))
    assert not any("quantising" in line for line in lines[lines.index(headings[0]) :])


# -- the worker's half ------------------------------------------------------------------------------------------------


class Remembered:
    """Gives the codes of a golden in order, and wrong ones in the call ``wrong``."""

    def __init__(self, golden, wrong=-1):
        self.golden, self.wrong, self.calls = golden, wrong, []

    def predict(self, hidden, cb0_embed, traced=False):
        i = len(self.calls) % len(self.golden)
        assert hidden.tolist() == self.golden.hidden[i : i + 1].tolist()
        self.calls.append(traced)
        return self.golden.codes[i : i + 1] + (len(self.calls) == self.wrong)

    def profile(self, hidden, cb0_embed):
        codes = self.predict(hidden, cb0_embed, traced=True)
        return Laps(codes, np.ones((1, 2, len(PARTS)), np.int64), np.ones(2, np.int64), np.zeros(len(PARTS), np.int64))


@pytest.fixture
def no_perf(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("no_perf")
def test_traced_and_untraced_frames_take_turns(tiny):
    predictor = Remembered(find_golden(tiny))
    found, wrong = profile_frames(predictor, predictor.golden, 6)
    assert wrong == ""
    assert predictor.calls == [False, True] * 2 + [False, True, True, False] * 3
    assert len(found.traced_ns) == len(found.untraced_ns) == len(found.laps_ns) == 6
    assert found.counters_reason
    assert found.counters == {}


@pytest.mark.parametrize("call", [1, 6, 7])
@pytest.mark.usefixtures("no_perf")
def test_a_wrong_code_is_found_in_any_call(tiny, call):
    predictor = Remembered(find_golden(tiny), wrong=call)
    _, wrong = profile_frames(predictor, predictor.golden, 4)
    assert wrong.startswith(f"frame {call - 1}: other codes")


# -- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "threads"), [("kv_bf16", 1), ("kv_q8_0", 2), ("recompute_f16", 2)])
def test_a_profile_from_end_to_end(tmp_path, variant, threads):
    result = bench(
        "profile", variant, "-t", str(threads), "--model", "synthetic:tiny", "--frames", "4",
        "--json", "p.json", "--html", "p.html", "--svg", "p.svg", cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    profile = Profile.model_validate_json((tmp_path / "p.json").read_text())
    assert (profile.variant, profile.threads, profile.frames, profile.passes) == (variant, threads, 4, 2)
    assert np.shape(profile.samples.laps_ns) == (4, threads, 2, len(PARTS))
    assert 0 < profile.sum_share <= 1
    by_name = {part.name: part for part in profile.parts}
    assert (by_name["quantise"].ms > 0) == (variant == "kv_q8_0")
    for name, part in by_name.items():
        assert part.ms > 0 or name == "quantise"
        assert (part.gbps is not None) == (name in ("qkv", "o", "gate_up", "down", "head"))
        assert f"\n{PART_LABELS[name]} " in result.stdout
    assert "Tracing costs" in result.stdout
    assert ElementTree.parse(tmp_path / "p.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert f"{variant} on " in (tmp_path / "p.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["numpy_f32", "--model", "synthetic:tiny"], "numpy_f32 cannot tell where its time goes"),
        (["kv_bf61"], "did you mean kv_bf16?"),
        (["kv_bf16,kv_f32"], "one variant is wanted"),
        (["kv_bf16", "-t", "0"], "threads"),
        (["kv_bf16", "--frames", "0"], "frames"),
        (["kv_bf16", "--model", "nowhere.gguf"], "nowhere.gguf: no such file"),
        (["kv_bf16", "--json", "taken/p.json"], "cannot be written"),
        ([], "'variant'"),
    ],
)
def test_wrong_use_is_one_line_and_exit_1(tmp_path, arguments, expected):
    (tmp_path / "taken").write_text("a file where a folder is wanted")
    result = bench("profile", *arguments, cwd=tmp_path)
    assert result.returncode == 1, result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("error: ")
    assert expected in lines[0]


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "expected"), [("late", "other codes"), ("segfaults", "SIGSEGV")])
def test_a_wrong_or_dying_variant_has_no_profile(tmp_path, variant, expected):
    result = bench(
        "profile", variant, "--variant-file", str(ODD), "--model", "synthetic:tiny", "--frames", "20",
        "--json", "p.json", cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 2, result.stderr
    assert expected in result.stdout
    assert "ms a frame" not in result.stdout
    assert not (tmp_path / "p.json").exists()
