"""The gate of tier quality: no further from the oracle than twice the naive implementation, whatever codes come out."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from naive_engines import NaiveEngine, Refusing
from small_models import small_model, spiky, with_tensors

from cplab.errors import GoldenError
from cplab.gate import judge
from cplab.gate_quality import Distance
from cplab.gating import gate_cell
from cplab.golden import find_golden
from cplab.golden_making import make_golden
from cplab.naive import rounded
from cplab.scoring import scored_logits
from cplab.variant import Variant

FRAMES = 4


@pytest.fixture(scope="module")
def golden(tiny):
    return find_golden(tiny)


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CPLAB_CACHE", str(tmp_path))
    return tmp_path


def failed(report):
    return set(report.failed())


def quality(predictor, model, golden, kind):
    return judge(predictor, model, golden, tier="quality", frames=FRAMES, format=kind)


@pytest.mark.parametrize("kind", ["f16", "bf16", "q8_0", "q5_0", "q4_0"])
def test_the_naive_implementation_itself_passes_at_a_ratio_of_one(tiny, golden, kind):
    report = quality(NaiveEngine(tiny, kind), tiny, golden, kind)
    assert report.passed, report.detail()
    assert "at most 1.00 x the naive implementation's" in report.detail()
    assert [c.name for c in report.checks][-1] == "quality"


def test_the_naive_implementation_of_superblocks_passes_on_rows_that_are_made_of_them():
    wide = small_model("wide")
    report = quality(NaiveEngine(wide, "q6_k"), wide, find_golden(wide), "q6_k")
    assert report.passed, report.detail()
    assert failed(quality(NaiveEngine(wide, "q4_0"), wide, find_golden(wide), "q6_k")) == {"quality"}


def test_other_codes_than_the_goldens_are_counted_not_failed(tiny, golden):
    report = judge(NaiveEngine(tiny, "q4_0"), tiny, golden, tier="quality", format="q4_0")
    assert report.passed
    assert report.codes_matched < report.frames * report.passes
    assert report.teacher_forced < 1


@pytest.mark.parametrize(("error", "passes"), [(0.9, True), (1.2, False)])
def test_twice_the_naive_distance_is_the_limit(tiny, golden, error, passes):
    report = quality(NaiveEngine(tiny, "bf16", error=error), tiny, golden, "bf16")
    assert report.passed is passes
    assert failed(report) == (set() if passes else {"quality"})
    if not passes:
        assert "frame 0: logits are" in report.detail()
        assert "ratio 2.20, 2 allowed" in report.detail()


def test_an_engine_of_fewer_bits_than_it_says_fails(tiny, golden):
    assert failed(quality(NaiveEngine(tiny, "q4_0"), tiny, golden, "q8_0")) == {"quality"}


def test_one_bad_frame_is_enough(tiny, golden):
    class Once(NaiveEngine):
        def logits(self, hidden, *rest):
            right = super().logits(hidden, *rest)
            return right + 1 if np.array_equal(hidden[0], golden.hidden[2]) else right

    report = quality(Once(tiny, "f16"), tiny, golden, "f16")
    assert failed(report) == {"quality"}
    assert "frame 2" in report.detail()


def test_non_finite_logits_are_named_and_nothing_else_hides_them(tiny):
    name = "model.layers.1.mlp.up_proj.weight"
    model = with_tensors(tiny, **{name.replace(".", "__"): tiny.f32(name) * np.float32(2.0**20)})
    report = quality(NaiveEngine(model, "f16"), model, make_golden(model, 2), "f16")
    assert "finite" in failed(report)
    assert "quality" in failed(report)
    assert "frame 0, pass 0: non-finite logits" in report.detail()


def test_an_engine_that_keeps_what_the_naive_one_loses_has_no_measure(tiny):
    """Finite logits on a model beyond the format's range: nothing says how far away they may be."""
    model = spiky(tiny)
    assert np.isfinite(rounded(model.f32("model.layers.0.mlp.up_proj.weight"), "f16")).all()
    report = quality(NaiveEngine(model, "bf16"), model, make_golden(model, 2), "f16")
    assert failed(report) == {"quality"}
    assert "frame 0, pass 0: 256 non-finite logits from the naive f16 implementation" in report.detail()


def test_an_engine_that_gives_up_fails(tiny, golden):
    report = quality(Refusing(tiny, "f16"), tiny, golden, "f16")
    assert {"codes", "teacher-forced", "quality"} <= failed(report)
    assert "the engine gave up" in report.detail()


def test_without_logits_there_is_nothing_to_measure(tiny, golden):
    class Silent(NaiveEngine):
        def predict(self, *arguments, trace=None, **options):
            return super().predict(*arguments, **options)

    report = quality(Silent(tiny, "f16"), tiny, golden, "f16")
    assert failed(report) == {"quality"}
    assert "gives no logits" in report.detail()


@pytest.mark.parametrize(
    ("engine", "naive", "passed"),
    [(1.0, 0.5, True), (1.01, 0.5, False), (0, 0, True), (1, 0, False), (np.nan, 1, False), (1, np.nan, False),
     (np.inf, np.inf, False), (np.nan, np.nan, False)],
)  # fmt: skip
def test_nan_never_passes(engine, naive, passed):
    assert Distance(0, engine, naive).passed is passed
    assert str(Distance(0, engine, naive))


def test_a_cell_of_tier_quality_is_judged_by_the_original_weights(tiny, golden):
    """A lossy format of tier exact is judged by its rounded weights; a rival's rounding is its own affair."""
    item = Variant("mine", "q4_0", "mine", "quality", lambda model, threads: NaiveEngine(model, "q4_0"), "", "", "")
    cell = gate_cell(item, tiny, 1)
    assert cell.report.passed
    assert cell.golden.digest == golden.digest
    assert cell.lossy_weights == 0
    assert cell.teacher_forced == cell.report.teacher_forced < 1


def test_scored_logits_are_made_once_and_believed_by_their_digest(tiny, golden, own_cache, monkeypatch):
    first = scored_logits(tiny, golden, 3)
    path = own_cache / "scored" / f"{golden.digest}.npz"
    assert path.exists()

    def no_oracle(model):
        raise AssertionError("made again")

    with monkeypatch.context() as patched:
        patched.setattr("cplab.scoring.Oracle", no_oracle)
        assert scored_logits(tiny, golden, 2).tobytes() == first[:2].tobytes()
    with np.load(path) as stored:
        damaged = {name: rows + 1 for name, rows in stored.items()}
    np.savez(path, **damaged)
    assert scored_logits(tiny, golden, 3).tobytes() == first.tobytes()
    path.write_bytes(b"no zip")
    assert scored_logits(tiny, golden, 3).tobytes() == first.tobytes()


def test_logits_of_another_model_are_never_scored(golden):
    from small_models import projected_model

    with pytest.raises(GoldenError):
        scored_logits(projected_model(), golden, 2)
