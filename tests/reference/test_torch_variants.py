"""PyTorch as variants: the golden's codes, the threads that were asked for, the weights once."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "cplab"))
from small_models import inputs, projected_model

from cplab import Trace, official, official_import, torch_frames
from cplab.errors import BadInputError, ForkedTeamError, NonFiniteLogitsError, VariantUnavailableError
from cplab.gating import gate_cell
from cplab.golden_making import make_golden
from cplab.model import Model
from cplab.sources import load_model
from cplab.variant import get_variant

NAMES = ["torch_f32", "torch_manual"]
installed = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("torch", "transformers", "qwen_tts")), reason=f"needs {official.INSTALL}"
)


@installed
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_every_check_of_the_gate_on_tiny(tiny, name, threads):
    cell = gate_cell(get_variant(name), tiny, threads)
    assert cell.report.passed, cell.report.detail()
    assert cell.report.codes_matched == 66
    assert cell.teacher_forced == 1
    assert cell.predictor.engine_note.startswith("torch ")


@installed
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_check_of_the_gate_at_the_published_shape(name):
    report = gate_cell(get_variant(name), load_model("synthetic:0.6b"), 1, frames=4).report
    assert report.passed, report.detail()
    assert report.codes_matched == 60


@installed
@pytest.mark.parametrize("name", NAMES)
def test_a_talker_wider_than_the_code_predictor_is_projected(name):
    model = projected_model()
    report = gate_cell(get_variant(name), model, 1, golden=make_golden(model, 4)).report
    assert report.passed, report.detail()


@installed
def test_both_ways_give_nearly_the_same_logits(tiny):
    hidden, cb0 = inputs(tiny, 3)
    forced = np.random.default_rng(0).integers(0, tiny.spec.vocab, (3, tiny.spec.passes)).astype(np.int32)
    traces = {name: Trace() for name in NAMES}
    for name, trace in traces.items():
        get_variant(name).build(tiny, 1).predict(hidden, cb0, forced=forced, trace=trace)
    by_class, by_hand = (traces[name].logits for name in NAMES)
    assert np.abs(by_class - by_hand).max() < 1e-4
    assert len(traces["torch_f32"].pass_ns) == 0  # generate does not tell
    assert (traces["torch_manual"].pass_ns > 0).all()


@installed
@pytest.mark.parametrize("name", NAMES)
def test_a_call_runs_on_the_threads_that_were_asked_for_and_leaves_the_callers_setting(tiny, name, monkeypatch):
    import torch

    predictor = get_variant(name).build(tiny, 3)
    before = torch.get_num_threads()
    seen = []
    inner = torch.nn.functional.linear

    def watched(*arguments, **options):
        seen.append(torch.get_num_threads())
        return inner(*arguments, **options)

    monkeypatch.setattr(torch.nn.functional, "linear", watched)
    predictor.predict(*inputs(tiny, 1))
    assert set(seen) == {3}
    assert torch.get_num_threads() == before
    assert torch.is_grad_enabled()


@installed
@pytest.mark.parametrize("name", NAMES)
def test_weights_are_held_once_and_streamed_from_where_they_lie(tiny, name):
    predictor = get_variant(name).build(tiny, 1)
    assert predictor.bytes_per_frame == 2 * tiny.spec.weights_per_pass * 4
    held = predictor.weights if name == "torch_manual" else predictor.module.state_dict()
    assert sum(w.numel() for w in held.values()) == sum(np.prod(s) for s in tiny.spec.shapes().values())
    first = predictor.streams()[0]
    assert first.address == held["model.layers.0.self_attn.q_proj.weight"].data_ptr()
    assert (first.rows, first.row_bytes) == (tiny.spec.q_rows, tiny.spec.hidden * 4)


@installed
@pytest.mark.parametrize("name", NAMES)
def test_non_finite_logits_name_the_frame_and_the_pass(tiny, name):
    from dataclasses import replace

    head = "lm_head.1.weight"
    data = tiny.tensors[head].data.copy()
    data[7] = 0x7F00  # 1.7e38, in every column
    model = Model("m", tiny.spec, {**tiny.tensors, head: replace(tiny.tensors[head], data=data)})
    with pytest.raises(NonFiniteLogitsError) as error:
        get_variant(name).build(model, 1).predict(*inputs(tiny, 1))
    assert (error.value.frame, error.value.pass_index) == (0, 1)


@installed
@pytest.mark.parametrize("name", NAMES)
def test_no_threads_noise_and_forks_are_refused(tiny, name, monkeypatch):
    with pytest.raises(BadInputError, match="at least 1"):
        get_variant(name).build(tiny, 0)
    predictor = get_variant(name).build(tiny, 1)
    with pytest.raises(BadInputError, match="greedily"):
        predictor.predict(*inputs(tiny, 1), noise=np.zeros((1, 2, 256), np.float32))
    monkeypatch.setattr("os.getpid", lambda: -1)
    with pytest.raises(ForkedTeamError):
        predictor.predict(*inputs(tiny, 1))


@pytest.mark.parametrize("name", NAMES)
def test_without_torch_the_variant_is_there_and_tells_what_to_install(tiny, name, monkeypatch):
    variant = get_variant(name)
    assert (variant.extra, variant.tier, variant.format) == ("torch", "codes", "f32")
    torch_frames.torch_module.cache_clear()
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(VariantUnavailableError) as error:
        variant.build(tiny, 1)
    assert official_import.INSTALL in str(error.value)
    torch_frames.torch_module.cache_clear()


@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
def test_without_qwen_tts_the_plain_loop_runs_and_the_official_class_tells_what_to_install(tiny, monkeypatch):
    official_import.official_modules.cache_clear()
    monkeypatch.setitem(sys.modules, "qwen_tts", None)
    with pytest.raises(VariantUnavailableError) as error:
        get_variant("torch_f32").build(tiny, 1)
    assert official_import.INSTALL in str(error.value)
    get_variant("torch_manual").build(tiny, 1).predict(*inputs(tiny, 1))
    official_import.official_modules.cache_clear()
