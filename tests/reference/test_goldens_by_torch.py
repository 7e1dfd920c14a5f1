"""The committed goldens against the official PyTorch class: every code of every frame."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from cplab import official
from cplab.golden import find_golden
from cplab.golden_choosing import MARGIN_FACTOR
from cplab.oracle import Oracle
from cplab.sources import load_model

pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("torch", "transformers", "qwen_tts")), reason=f"needs {official.INSTALL}"
)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "frames"), [("synthetic:tiny", 33), ("synthetic:0.6b", 33)])
def test_torch_gives_every_code_of_the_golden(name, frames):
    model = load_model(name)
    golden = find_golden(model)
    assert golden is not None
    assert len(golden) == golden.distinct_frames == frames
    module = official.build(model.spec, {n: t.f32() for n, t in model.tensors.items()})
    codes, logits = official.greedy_codes(module, golden.hidden, golden.cb0_embed)
    assert np.array_equal(codes, golden.codes)
    top = np.partition(logits, -2, axis=-1)[..., -2:]
    # PyTorch's margins are the oracle's, up to a rounding that no margin is near.
    assert np.abs((top[..., 1] - top[..., 0]) - golden.margins).max() < golden.margins.min() / MARGIN_FACTOR * 4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["synthetic:0.6b", "synthetic:1.7b", "synthetic:0.6b-spikes", "synthetic:0.6b-tails"])
def test_torch_and_the_oracle_differ_by_rounding_only(name):
    model = load_model(name)
    golden = find_golden(model)
    assert golden is not None
    module = official.build(model.spec, {n: t.f32() for n, t in model.tensors.items()})
    forced = golden.codes[:1]
    torch_logits = official.forced_logits(module, golden.hidden[:1], golden.cb0_embed[:1], forced)[0]
    ours = Oracle(model).scored(golden.hidden[0], golden.cb0_embed[0], forced[0]).logits
    rms = np.sqrt(np.mean(np.square(ours, dtype=np.float64), axis=-1))
    assert (np.abs(torch_logits - ours).max(axis=-1) / rms).max() <= 1e-4
