"""llama.cpp itself, on the tiny model: every rival passes its gate, and F16 fails where F16 must."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="needs the extra llama: python -m pip install 'cplab[llama]'")

sys.path.insert(0, str(Path(__file__).parent.parent / "cplab"))
from small_models import inputs, projected_model, spiky

from cplab import Sampling, Trace
from cplab.errors import EngineError, ForkedTeamError, NonFiniteLogitsError
from cplab.gating import gate_cell
from cplab.golden_making import make_golden
from cplab.llama import predictor, probing
from cplab.llama.derived import derived_file
from cplab.llama.engine import Engine, run_frame
from cplab.llama.settings import TIERS, Settings
from cplab.sampling import checked_draws
from cplab.variant import CodePredictor, get_variant

PLAIN = Settings(False, "none", "f32")


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    """Settings found here are of no use to anybody."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CPLAB_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.parametrize("how", ["kv", "recompute"])
@pytest.mark.parametrize("kind", list(TIERS))
def test_every_rival_passes_its_gate(tiny, kind, how):
    cell = gate_cell(get_variant(f"llama_{how}_{kind}"), tiny, 1, frames=5)
    assert cell.report.passed, cell.report.detail()
    assert isinstance(cell.predictor, CodePredictor)
    assert "flash attention o" in cell.predictor.engine_note
    assert cell.predictor.streams() == []
    if kind == "f32":
        assert cell.report.codes_matched == 10


def test_cached_and_recomputed_passes_say_nearly_the_same(tiny):
    X = np.random.default_rng(0).standard_normal((3, tiny.spec.hidden)).astype(np.float32)
    engine = Engine(derived_file(tiny, "f32"), PLAIN, 1, tiny.spec.positions)
    kept, again = run_frame(engine, X, False), run_frame(engine, X, True)
    assert np.abs(kept - again).max() < 1e-4
    assert run_frame(engine, X, False).tobytes() == kept.tobytes()
    engine.close()
    engine.close()


def test_f16_activations_out_of_range_fail_the_gate_with_the_place_named(tiny, monkeypatch):
    """llama.cpp makes activations F16 beside F16 weights, unless a buffer type of its build keeps them wider."""
    spikes = spiky(tiny)
    golden = make_golden(spikes, 2)
    cell = gate_cell(get_variant("llama_kv_f16"), spikes, 1, golden=golden)
    assert not cell.report.passed
    assert "frame 0, pass 0" in cell.report.detail()
    assert "non-finite" in cell.report.detail()
    assert "non-finite hidden states with" in cell.predictor.engine_note
    monkeypatch.setattr(predictor, "chosen_settings", lambda *_, **__: probing.Choice(PLAIN, "as pinned"))
    cell = gate_cell(get_variant("llama_kv_f16"), spikes, 1, golden=golden)
    assert "finite: frame 0, pass 0: non-finite logits" in cell.report.detail()
    with pytest.raises(NonFiniteLogitsError) as error:
        cell.predictor.predict(golden.hidden, golden.cb0_embed)
    assert (error.value.frame, error.value.pass_index) == (0, 0)
    assert gate_cell(get_variant("llama_kv_bf16"), spikes, 1, golden=golden).report.passed


def test_a_talker_wider_than_the_code_predictor_is_projected():
    model = projected_model()
    cell = gate_cell(get_variant("llama_kv_f32"), model, 1, golden=make_golden(model, 4))
    assert cell.report.passed, cell.report.detail()


def test_the_trace_holds_logits_and_a_time_for_each_pass(tiny):
    rival = get_variant("llama_kv_q8_0").build(tiny, 1)
    hidden, cb0 = inputs(tiny, 3)
    trace = Trace()
    codes = rival.predict(hidden, cb0, trace=trace)
    assert np.array_equal(trace.logits.argmax(-1), codes)
    assert (trace.pass_ns > 0).all()
    assert len(trace.pass_ns) == tiny.spec.passes
    sampling = Sampling(5, temperature=2.5)
    drawn = rival.predict(hidden, cb0, trace=trace, noise=sampling)
    draws = checked_draws(tiny.spec, sampling, 3)
    assert [[draws.code(b, g, trace.logits[b, g]) for g in range(2)] for b in range(3)] == drawn.tolist()
    assert not np.array_equal(drawn, codes)


def test_settings_are_tried_once(tiny, monkeypatch):
    get_variant("llama_kv_bf16").build(tiny, 1)

    def never(*arguments, **options):
        raise AssertionError("tried again")

    monkeypatch.setattr(probing, "try_all", never)
    get_variant("llama_kv_bf16").build(tiny, 1)
    with pytest.raises(AssertionError):
        get_variant("llama_recompute_bf16").build(tiny, 2)


def test_a_fork_is_refused(tiny, monkeypatch):
    predictor = get_variant("llama_kv_f32").build(tiny, 1)
    monkeypatch.setattr("os.getpid", lambda: -1)
    with pytest.raises(ForkedTeamError):
        predictor.predict(*inputs(tiny, 1))


def test_a_file_that_llama_cpp_cannot_load_is_an_error_not_a_crash(tmp_path):
    path = tmp_path / "no.gguf"
    path.write_bytes(b"GGUF")
    with pytest.raises(EngineError, match="cannot load it"):
        Engine(path, PLAIN, 1, 16)
