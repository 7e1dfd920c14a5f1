"""Validation tells a code that differs by rounding at a tie from a wrong one, and a NaN is never a match."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import faulty_variants as faulty
from checkpoint_files import Folder
from small_models import inputs, projected_model, with_tensors

from cplab import variant as registry
from cplab.__main__ import app
from cplab.commandline import run
from cplab.decoder import Decoder
from cplab.errors import BadInputError, NonFiniteLogitsError
from cplab.golden import find_golden
from cplab.golden_making import MARGIN_FACTOR, make_golden
from cplab.validation import Mismatch, tie_bound, validate
from cplab.variant import Trace, Variant

FRAME = 1
RECORD = "largest_difference_to_reference"


def recording(golden, difference):
    """The golden as if PyTorch's logits had been that far from the oracle's."""
    return replace(golden, provenance=golden.provenance | {RECORD: difference})


def tie_at(golden, frame, g):
    """The golden with a record that makes its margin there just a tie."""
    return recording(golden, float(golden.margins[frame, g]) * 1.01 / MARGIN_FACTOR)


def runner_up(logits):
    """Index of the second largest."""
    return int(np.argsort(logits)[-2])


class OneCode(faulty.Wrapped):
    """A right decoder that in one frame takes its second choice for one codebook, and goes on from there.

    Its logits say so: the two are swapped. ``choose`` picks another code than the second.
    """

    def __init__(self, model, golden, frame=FRAME, g=1, choose=runner_up):
        super().__init__(model)
        self.hidden, self.g, self.choose = golden.hidden[frame], g, choose

    def predict(self, hidden, cb0_embed, *, forced=None, trace=None, noise=None):
        mine = Trace()
        codes = super().predict(hidden, cb0_embed, forced=forced, trace=mine)
        for b in np.flatnonzero((hidden == self.hidden).all(axis=1)):
            best, other = codes[b, self.g], self.choose(mine.logits[b, self.g])
            fed = codes[b : b + 1].copy()
            fed[0, self.g] = other
            if forced is None:
                for later in range(self.g + 1, codes.shape[1]):
                    fed[0, later:] = super().predict(hidden[b : b + 1], cb0_embed[b : b + 1], forced=fed)[0, later:]
                again = Trace()
                super().predict(hidden[b : b + 1], cb0_embed[b : b + 1], forced=fed, trace=again)
                mine.logits[b] = again.logits[0]
            codes[b] = fed[0]
            row = mine.logits[b, self.g]
            row[[best, other]] = row[[other, best]]
        if trace is not None:
            trace.logits = mine.logits
        return codes


class Raises(faulty.Wrapped):
    """An error for one of the golden's frames, alone or in a batch."""

    def __init__(self, model, golden, error, frame=FRAME):
        super().__init__(model)
        self.hidden, self.error = golden.hidden[frame], error

    def predict(self, hidden, cb0_embed, **options):
        if (hidden == self.hidden).all(axis=1).any():
            raise self.error
        return super().predict(hidden, cb0_embed, **options)


@pytest.fixture(scope="module")
def model():
    """Four codebooks are predicted: room for codes that follow."""
    return projected_model()


@pytest.fixture(scope="module")
def golden(model):
    return make_golden(model, 4)


@pytest.fixture(scope="module")
def tinys():
    from cplab.sources import load_model

    return find_golden(load_model("synthetic:tiny"))


# -- what is found ----------------------------------------------------------------------------------------------------


def test_a_right_variant_matches_both_ways(model, golden):
    found = validate(Decoder(model, 1, format="bf16"), golden)
    assert found.all_match
    for run_ in (found.free_running, found.teacher_forced):
        assert run_.summary() == "16/16 codes match (4/4 frames)"
        assert run_.by_codebook == [4, 4, 4, 4]
        assert run_.share == 1.0
        assert (run_.mismatches, run_.failed) == ((), ())


def test_a_wrong_code_at_a_clear_margin_is_wrong_and_the_rest_of_its_frame_follows(model, golden):
    clear = recording(golden, 1e-9)
    assert golden.margins.min() > 1e-7
    predictor = OneCode(model, golden)
    found = validate(predictor, clear)
    free, forced = found.free_running, found.teacher_forced
    assert not found.all_match
    first, *rest = free.mismatches
    margin = float(golden.margins[FRAME, 1])
    assert (first.frame, first.codebook, first.label) == (FRAME, 2, "wrong")
    assert first.expected == golden.codes[FRAME, 1] != first.got
    assert first.margin == margin
    assert first.gap == pytest.approx(margin, rel=1e-6)
    assert rest
    assert {m.label for m in rest} == {"follows"}
    assert {m.frame for m in rest} == {FRAME}
    assert all(m.codebook > 2 for m in rest)
    assert free.summary() == f"{16 - 1 - len(rest)}/16 codes match (3/4 frames)"
    assert free.by_codebook[:2] == [4, 3]
    # The golden's code is fed back, so every later code is right again and nothing follows.
    assert forced.mismatches == (first,)
    assert forced.by_codebook == [4, 3, 4, 4]
    assert forced.summary() == "15/16 codes match (3/4 frames)"


def test_the_same_code_at_a_tie_is_a_tie(model, golden):
    found = validate(OneCode(model, golden), tie_at(golden, FRAME, 1))
    assert [m.label for m in found.teacher_forced.mismatches] == ["tie"]
    labels = [m.label for m in found.free_running.mismatches]
    assert labels[0] == "tie"
    assert set(labels[1:]) == {"follows"}
    assert not found.all_match


def test_the_bound_is_100_times_the_recorded_difference_and_is_itself_no_tie(model, golden):
    margin = float(golden.margins[FRAME, 1])
    assert tie_bound(recording(golden, 0.5)) == 50.0
    at = replace(golden, margins=np.full_like(golden.margins, 0.25))
    for difference, label in ((0.0025, "wrong"), (0.00251, "tie")):
        assert margin < 0.25
        predictor = OneCode(model, golden)
        assert validate(predictor, recording(at, difference)).teacher_forced.mismatches[0].label == label


def test_a_far_code_is_no_tie_however_small_the_margin(model, golden):
    """Rounding chooses between the two that are close; it does not choose the last."""
    predictor = OneCode(model, golden, choose=lambda logits: int(np.argmin(logits)))
    (found,) = validate(predictor, tie_at(golden, FRAME, 1)).teacher_forced.mismatches
    assert found.gap is not None
    assert found.gap > found.margin * 1.01
    assert found.label == "wrong"


def test_a_code_that_its_own_logits_do_not_choose_is_no_tie(model, golden):
    class Unlike(OneCode):
        def predict(self, hidden, cb0_embed, *, forced=None, trace=None, noise=None):
            faulty.Wrapped.predict(self, hidden, cb0_embed, forced=forced, trace=trace)
            return super().predict(hidden, cb0_embed, forced=forced)

    (found,) = validate(Unlike(model, golden), tie_at(golden, FRAME, 1)).teacher_forced.mismatches
    assert found.gap is not None
    assert found.gap < 0
    assert found.label == "wrong"


def test_every_frame_starts_anew(model, golden):
    class Second(OneCode):
        def predict(self, hidden, cb0_embed, **options):
            self.hidden = hidden[0]
            return super().predict(hidden, cb0_embed, **options)

    found = validate(Second(model, golden), recording(golden, 1e-9)).free_running
    firsts = [m for m in found.mismatches if m.codebook == 2]
    assert [m.frame for m in firsts] == [0, 1, 2, 3]
    assert {m.label for m in firsts} == {"wrong"}
    assert found.frames_matched == 0


@pytest.mark.parametrize("fed", [True, False])
def test_both_ways_must_match(model, golden, fed):
    class OneWay(OneCode):
        def predict(self, hidden, cb0_embed, *, forced=None, **options):
            wrong = super() if (forced is not None) == fed else super(OneCode, self)
            return wrong.predict(hidden, cb0_embed, forced=forced, **options)

    found = validate(OneWay(model, golden), golden)
    assert (found.free_running.all_match, found.teacher_forced.all_match) == (fed, not fed)
    assert not found.all_match


@pytest.mark.parametrize("record", ["absent", None, True, "0.1", float("nan"), float("inf"), -1.0])
def test_without_a_recorded_difference_nothing_is_a_tie(model, golden, record):
    bare = {k: v for k, v in golden.provenance.items() if k != RECORD}
    without = replace(golden, provenance=bare if record == "absent" else bare | {RECORD: record})
    assert tie_bound(without) is None
    assert validate(OneCode(model, golden), without).teacher_forced.mismatches[0].label == "wrong"


@pytest.mark.parametrize("code", [-1, 10**6])
def test_a_code_out_of_range_is_wrong_and_has_no_gap(model, golden, code):
    class Outside(faulty.Wrapped):
        def predict(self, hidden, cb0_embed, **options):
            codes = super().predict(hidden, cb0_embed, **options)
            codes[:, 2] = code
            return codes

    found = validate(Outside(model), recording(golden, 1e9)).teacher_forced.mismatches
    expected = [int(c) for c in golden.codes[:, 2]]
    assert [(m.expected, m.got, m.gap, m.label) for m in found] == [(c, code, None, "wrong") for c in expected]


def test_without_logits_there_is_no_gap_and_the_margin_decides(model, golden):
    class Silent(OneCode):
        def predict(self, hidden, cb0_embed, *, forced=None, trace=None, noise=None):
            return super().predict(hidden, cb0_embed, forced=forced)

    for given, label in ((tie_at(golden, FRAME, 1), "tie"), (recording(golden, 1e-9), "wrong")):
        (found,) = validate(Silent(model, golden), given).teacher_forced.mismatches
        assert (found.gap, found.label) == (None, label)


# -- what is no number ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "reason"),
    [(NonFiniteLogitsError(0, 3), "non-finite logits in pass 3"), (BadInputError("no such luck"), "no such luck")],
)
def test_a_frame_that_fails_matches_nowhere_and_is_said(model, golden, error, reason):
    found = validate(Raises(model, golden, error), golden)
    for run_ in (found.free_running, found.teacher_forced):
        assert run_.summary() == "12/16 codes match (3/4 frames)"
        assert run_.by_codebook == [3, 3, 3, 3]
        assert [(f.frame, f.reason) for f in run_.failed] == [(FRAME, reason)]
        assert run_.mismatches == ()
    assert not found.all_match


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_codes_beside_logits_that_are_no_numbers_do_not_match(model, golden, value):
    """The codes are the golden's; they were chosen past a NaN."""

    class Says(faulty.Wrapped):
        def predict(self, hidden, cb0_embed, *, forced=None, trace=None, noise=None):
            mine = Trace()
            codes = super().predict(hidden, cb0_embed, forced=forced, trace=mine)
            mine.logits[:, 2, 5] = value
            trace.logits = mine.logits
            return codes

    found = validate(Says(model), golden).free_running
    assert found.summary() == "0/16 codes match (0/4 frames)"
    assert {f.reason for f in found.failed} == {"non-finite logits in pass 2"}
    assert found.share == 0


@pytest.mark.parametrize("made", ["nan", "float", "int64", "flat", "none"])
def test_codes_of_another_type_do_not_match(model, golden, made):
    class Odd(faulty.Wrapped):
        def predict(self, hidden, cb0_embed, **options):
            codes = super().predict(hidden, cb0_embed, **options)
            odd = {"float": codes.astype(np.float32), "int64": codes.astype(np.int64), "flat": codes[0], "none": None}
            return odd.get(made, np.full(codes.shape, np.nan))

    found = validate(Odd(model), golden)
    assert found.free_running.share == found.teacher_forced.share == 0
    assert found.free_running.failed[0].reason == "predict returned no int32[1, 4]"


def test_a_variant_that_writes_its_inputs_writes_to_copies(model, golden):
    for array in (golden.hidden, golden.cb0_embed, golden.codes):
        array.flags.writeable = False  # as in a golden that was loaded

    class Writes(faulty.Wrapped):
        def predict(self, hidden, cb0_embed, *, forced=None, **options):
            codes = super().predict(hidden, cb0_embed, forced=forced, **options)
            hidden *= 0
            cb0_embed *= 0
            if forced is not None:
                forced[:] = 0
            return codes

    assert validate(Writes(model), golden).all_match


# -- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def registered(monkeypatch):
    """Register a factory ``(model, threads) -> CodePredictor`` as variant ``tested`` for one test."""

    def register(build, format="f32", tier="exact", arithmetic="f32"):
        made = Variant("tested", format, arithmetic, tier, build, "", "", __file__)
        monkeypatch.setitem(registry._registry, "tested", made)

    return register


@pytest.fixture
def command(tmp_path, capsys):
    """Run ``cplab validate`` on a golden; gives the exit code, the output, and what it wrote as JSON."""

    def validated(golden, *more, model="synthetic:tiny", variant="tested"):
        file, told = tmp_path / "g.npz", tmp_path / "told.json"
        golden.save(file)
        arguments = ["validate", "--model", str(model), "--golden", str(file), "--variant", variant]
        code = run(app, [*arguments, "--json", str(told), *more])
        out, err = capsys.readouterr()
        return code, out, err, json.loads(told.read_text()) if told.exists() else None

    return validated


def follower(model, golden):
    """A frame of the tiny golden in which another CB1 is followed by another CB2."""
    for frame in range(len(golden)):
        found = validate(OneCode(model, golden, frame, 0), golden, frames=frame + 1)
        if len(found.free_running.mismatches) == 2:
            return frame
    raise AssertionError("no such frame")


def test_a_right_variant_exits_with_0_at_every_thread_count(tinys, command):
    code, out, err, told = command(tinys, "--threads", "1,2", variant="kv_bf16")
    assert (code, err) == (0, "")
    for count in (1, 2):
        assert f"kv_bf16 x {count}\n" in out
    assert out.count("  free-running:   66/66 codes match (33/33 frames)\n") == 2
    assert out.count("  teacher-forced: 66/66 codes match (33/33 frames)\n") == 2
    assert out.count("  gate:           passed 15 checks\n") == 2
    rows = [line.split() for line in out.splitlines() if line.startswith("CB")]
    assert rows == [["CB1", "33/33", "33/33"], ["CB2", "33/33", "33/33"]] * 2
    assert "tie" not in out
    assert [(c["threads"], c["passed"]) for c in told["cells"]] == [(1, True), (2, True)]


def test_the_golden_of_the_weights_is_taken_where_none_is_given(capsys):
    assert run(app, ["validate", "--model", "synthetic:tiny"]) == 0
    assert "66/66 codes match (33/33 frames)" in capsys.readouterr().out


def test_a_wrong_code_is_shown_with_what_follows_and_exits_with_2(tiny, tinys, registered, command):
    frame = follower(tiny, tinys)
    registered(lambda model, threads: OneCode(model, tinys, frame, 0))
    code, out, _, told = command(tinys)
    assert code == 2
    assert "free-running:   64/66 codes match (32/33 frames)" in out
    assert "teacher-forced: 65/66 codes match (32/33 frames)" in out
    assert "    codes: frame" in out  # the gate's failing checks, as ever
    assert "    logits: frame" in out
    free, forced = (told["cells"][0][name] for name in ("free_running", "teacher_forced"))
    rows = [line.split() for line in out.splitlines() if line.split()[:1] == [str(frame)]]
    wanted = [*free["mismatches"], *forced["mismatches"]]
    assert [row[1:4] + row[-1:] for row in rows] == [
        [f"CB{m['codebook']}", str(m["expected"]), str(m["got"]), m["label"]] for m in wanted
    ]
    assert [m["label"] for m in wanted] == ["wrong", "follows", "wrong"]
    assert rows[0][4] == f"{tinys.margins[frame, 0]:.3g}"
    bound = MARGIN_FACTOR * tinys.provenance[RECORD]
    assert f"tie: both are below {bound:.3g}, which is 100 x" in out
    rows = [line.split() for line in out.splitlines() if line.startswith("CB")]
    assert rows == [["CB1", "32/33", "32/33"], ["CB2", "32/33", "33/33"]]


def test_a_tie_is_named_and_still_exits_with_2(tinys, registered, command):
    registered(lambda model, threads: OneCode(model, tinys, FRAME, 1), tier="codes")
    code, out, _, told = command(tie_at(tinys, FRAME, 1))
    assert code == 2
    assert [line.split()[-1] for line in out.splitlines() if line.split()[:1] == [str(FRAME)]] == ["tie", "tie"]
    (found,) = told["cells"][0]["free_running"]["mismatches"]
    assert found["label"] == "tie"
    assert found["margin"] < told["tie_below"]


def test_the_output_says_why_nothing_is_called_a_tie(tinys, registered, command):
    registered(lambda model, threads: OneCode(model, tinys, FRAME, 1))
    bare = replace(tinys, provenance={"reference": "oracle"})
    code, out, _, told = command(bare)
    assert code == 2
    (line,) = [line for line in out.splitlines() if "no mismatch is called a tie" in line]
    assert "--reference torch" in line
    assert told["tie_below"] is None
    assert told["golden"]["reference"] == "oracle"


def test_only_teacher_forced_codes_that_differ_exit_with_2(tinys, registered, command):
    class WhenFed(OneCode):
        def predict(self, hidden, cb0_embed, *, forced=None, **options):
            if forced is None:
                return faulty.Wrapped.predict(self, hidden, cb0_embed, **options)
            return super().predict(hidden, cb0_embed, forced=forced, **options)

    registered(lambda model, threads: WhenFed(model, tinys))
    code, out, _, _ = command(tinys)
    assert code == 2
    assert "free-running:   66/66 codes match (33/33 frames)" in out
    assert "teacher-forced: 65/66 codes match (32/33 frames)" in out
    assert "free-running, other codes" not in out


def test_right_codes_and_a_failed_gate_exit_with_2(tinys, registered, command):
    registered(lambda model, threads: faulty.WritesInputs(model))
    code, out, _, told = command(tinys)
    assert code == 2
    assert out.count("66/66 codes match (33/33 frames)") == 2
    assert "gate:           failed 1 of 15 checks\n    inputs: hidden was changed by the call\n" in out
    assert told["cells"][0]["passed"] is False
    assert told["cells"][0]["gate"]["passed"] is False


def test_one_thread_count_that_is_wrong_is_enough(tinys, registered, command):
    registered(lambda model, threads: OneCode(model, tinys) if threads == 1 else faulty.Wrapped(model))
    code, _, _, told = command(tinys, "--threads", "1,2")
    assert [c["passed"] for c in told["cells"]] == [False, True]
    assert code == 2


def test_a_frame_without_finite_logits_is_said_and_exits_with_2(tinys, registered, command):
    registered(lambda model, threads: Raises(model, tinys, NonFiniteLogitsError(0, 1), frame=7))
    code, out, err, told = command(tinys)
    assert (code, err) == (2, "")
    assert "free-running:   64/66 codes match (32/33 frames)" in out
    assert "free-running, failed frames, none of whose codes count:\n  frame 7: non-finite logits in pass 1\n" in out
    assert "teacher-forced, failed frames, none of whose codes count:\n  frame 7: non-finite logits in pass 1\n" in out
    assert told["cells"][0]["free_running"]["failed_frames"] == [{"frame": 7, "reason": "non-finite logits in pass 1"}]


def test_twenty_are_shown_and_json_has_all(tinys, registered, command):
    registered(lambda model, threads: faulty.OutOfRange(model))
    code, out, _, told = command(tinys)
    cell = told["cells"][0]
    assert code == 2
    assert len(cell["free_running"]["mismatches"]) == len(cell["teacher_forced"]["mismatches"]) == 66
    assert {m["label"] for m in cell["teacher_forced"]["mismatches"]} == {"wrong"}  # nothing wrong was fed back
    assert [m["label"] for m in cell["free_running"]["mismatches"]] == ["wrong", "follows"] * 33
    assert out.count("  and 46 more\n") == 2
    assert sum(line.rstrip().endswith((" wrong", " follows")) for line in out.splitlines()) == 40


def test_json_has_every_count_and_every_field(tiny, tinys, registered, command):
    registered(lambda model, threads: OneCode(model, tinys, FRAME, 1))
    _, _, _, told = command(tinys)
    assert told["schema"] == "cplab.validation/1"
    assert told["model"] == "synthetic:tiny"
    assert told["golden"] == {
        "model": "synthetic:tiny",
        "digest": tiny.digest(),
        "arithmetic": "f32",
        "reference": "torch",
        RECORD: tinys.provenance[RECORD],
    }
    assert told["tie_below"] == MARGIN_FACTOR * tinys.provenance[RECORD]
    (cell,) = told["cells"]
    about = {name: cell[name] for name in ("variant", "format", "tier", "threads", "passed", "lossy_weights")}
    assert about == {
        "variant": "tested", "format": "f32", "tier": "exact", "threads": 1, "passed": False, "lossy_weights": 0,
    }  # fmt: skip
    assert {c["name"] for c in cell["gate"]["checks"] if not c["passed"]} >= {"codes", "logits"}
    forced = cell["teacher_forced"]
    counts = {k: v for k, v in forced.items() if k != "mismatches"}
    assert counts == {
        "codes": 66, "codes_matched": 65, "frames": 33, "frames_matched": 32, "by_codebook": [33, 32],
        "failed_frames": [],
    }  # fmt: skip
    (found,) = forced["mismatches"]
    again = validate(OneCode(tiny, tinys, FRAME, 1), tinys).teacher_forced.mismatches[0]
    assert Mismatch(**found) == again


# -- lossy formats and wrong use --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def between(tiny, tmp_path_factory):
    """A checkpoint of F32 weights and its golden, some of whose codes BF16 cannot tell from others.

    For CB2 of frame 0 the last code's row of the head becomes that of the golden's code and a thousandth more: it wins
    where F32 holds it, and rounds to the same row, later in the vocabulary, where BF16 does.
    """
    from cplab.sources import load_model

    head = tiny.f32("lm_head.1.weight").copy()
    named = with_tensors(tiny)  # inputs are drawn by a model's name, and a folder's is another in each run
    code = Decoder(named, 1, format="f32").predict(*inputs(named, 1))[0, 1]
    head[-1] = head[code] * np.float32(1 + 2**-10)
    fine = with_tensors(tiny, lm_head__1__weight=head)
    folder = Folder(fine, "f32").write(tmp_path_factory.mktemp("fine") / "m")
    return folder, load_model(str(folder)), make_golden(fine, 6)


def test_a_lossy_format_is_gated_on_its_own_weights_and_compared_with_the_originals(between, command):
    folder, model, golden = between
    rounded, changed = model.repacked("bf16")
    assert changed > 0
    kept = Decoder(rounded, 1, format="bf16").predict(golden.hidden, golden.cb0_embed) == golden.codes
    assert not kept.all()  # or this would show nothing
    code, out, _, told = command(golden, model=folder, variant="kv_bf16")
    assert code == 2
    assert f"free-running:   {kept.sum()}/12 codes match ({kept.all(axis=1).sum()}/6 frames)" in out
    assert "gate:           passed 15 checks, against the weights rounded to bf16" in out
    assert f"{changed} weights changed by bf16" in out
    (cell,) = told["cells"]
    assert (cell["gate"]["passed"], cell["passed"], cell["lossy_weights"]) == (True, False, changed)
    assert cell["free_running"]["by_codebook"] == list(kept.sum(axis=0))
    labels = {mismatch["label"] for mismatch in cell["teacher_forced"]["mismatches"]}
    assert labels <= {"differs"}  # another model's codes are not wrong ones
    code, out, _, _ = command(golden, model=folder, variant="kv_f32")
    assert code == 0
    assert "weights changed" not in out


def test_beside_a_golden_of_rounded_weights_nothing_is_said_of_the_original(tiny, registered, command):
    golden = find_golden(tiny.repacked("q8_0")[0], "q8_0")
    code, out, _, told = command(golden, variant="kv_q8_0")
    assert code == 0
    assert "codes are beside those of the rounded weights in q8_0, not the original's" in out
    assert told["golden"]["arithmetic"] == "q8_0"
    registered(lambda model, threads: OneCode(model, golden, FRAME, 1), format="q8_0", arithmetic="q8_0")
    code, _, _, told = command(golden)
    assert code == 2
    labels = {mismatch["label"] for mismatch in told["cells"][0]["teacher_forced"]["mismatches"]}
    assert labels == {"wrong"}  # it is the same model


def test_a_lossy_variant_that_fails_on_the_originals_frames_exits_with_2(between, registered, command):
    folder, _, golden = between
    registered(lambda model, threads: Raises(model, golden, NonFiniteLogitsError(0, 0)), format="bf16")
    code, out, err, _ = command(golden, model=folder)
    assert code == 2
    assert "error" not in err
    assert f"frame {FRAME}: non-finite logits in pass 0" in out


@pytest.mark.parametrize("variant", ["kv_bf16", "kv_f32"])
def test_a_golden_of_other_weights_is_one_line_and_exits_with_1(between, tinys, command, variant):
    folder, _, _ = between
    code, out, err, told = command(tinys, model=folder, variant=variant)
    assert (code, out, told) == (1, "", None)
    assert err.startswith("error: the golden was made from synthetic:tiny")
    assert err.count("\n") == 1


def test_what_cannot_be_read_or_written_is_one_line_and_exits_with_1(tmp_path, tinys, command, capsys):
    (tmp_path / "file").write_text("")
    for more in (["--golden", str(tmp_path / "none.npz")], ["--json", str(tmp_path / "file" / "told.json")]):
        code, out, err, told = command(tinys, *more, variant="kv_bf16")
        assert (code, out, told) == (1, "", None)
        assert err.startswith("error: ")
        assert err.count("\n") == 1
