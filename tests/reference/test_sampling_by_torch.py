"""Codes are drawn as often as the official code draws them, from the same logits that it keeps."""

from __future__ import annotations

import importlib.util
import math

import numpy as np
import pytest

from cplab import Sampling, arithmetic_sampling, official
from cplab.decoder import Decoder
from cplab.sources import load_model, synthetic

DRAWS = 20_000
F = np.float32
PARAMETERS = [
    (0.9, 50, 1.0),  # the official ones: qwen_tts.inference.qwen3_tts_model, subtalker_*
    (1.5, 256, 0.9),
    (1.2, 20, 0.7),
]


@pytest.fixture(scope="module", autouse=True)
def installed():
    reason = "the official code predictor is not installed: " + official.INSTALL
    pytest.importorskip("torch", reason=reason)
    pytest.importorskip("transformers", reason=reason)
    if importlib.util.find_spec("qwen_tts") is None:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def model():
    return load_model("synthetic:tiny")


@pytest.fixture(scope="module")
def frame(model):
    """One frame's inputs, ``[1, talker_hidden]`` each."""
    width = model.spec.talker_hidden
    return synthetic.hidden_states(model.name, 1, width), synthetic.cb0_embeddings(model.name, 1, width)


@pytest.fixture(scope="module")
def module(model):
    return official.build(model.spec, {name: tensor.f32() for name, tensor in model.tensors.items()})


def officially(module, frame, temperature, top_k, top_p, seed):
    """Codes ``[DRAWS, groups-1]`` of the official ``generate``, called as the talker calls it, on one frame."""
    import torch

    torch.manual_seed(seed)
    prefill = torch.from_numpy(np.stack([frame[0][0], frame[1][0]])[None]).repeat(DRAWS, 1, 1)
    with torch.inference_mode():
        result = module.generate(
            inputs_embeds=prefill,
            max_new_tokens=2,
            do_sample=True,
            top_p=top_p,
            top_k=top_k,
            temperature=temperature,
            return_dict_in_generate=True,
        )
    return result.sequences.numpy()


def ours(model, frame, temperature, top_k, top_p):
    hidden, cb0 = (np.repeat(x, DRAWS, axis=0) for x in frame)
    return Decoder(model, 1, format="bf16").predict(
        hidden, cb0, noise=Sampling(99, temperature=temperature, top_k=top_k, top_p=top_p)
    )


def unlike(a, b):
    """Chi-square of two samples of codes being of one distribution, over its 99.9 % point; rare codes are pooled."""
    counts = np.stack([np.bincount(x, minlength=256) for x in (a, b)]).astype(float)
    common = counts.sum(0) >= 20
    counts = np.concatenate([counts[:, common], counts[:, ~common].sum(1, keepdims=True)], axis=1)
    counts = counts[:, counts.sum(0) > 0]
    degrees = counts.shape[1] - 1
    assert degrees >= 5
    limit = degrees * (1 - 2 / (9 * degrees) + 3.09 * math.sqrt(2 / (9 * degrees))) ** 3
    return ((counts[0] - counts[1]) ** 2 / counts.sum(0)).sum() / limit


@pytest.mark.parametrize(("temperature", "top_k", "top_p"), PARAMETERS)
def test_codes_come_as_often_as_from_the_official_generate(model, module, frame, temperature, top_k, top_p):
    theirs = officially(module, frame, temperature, top_k, top_p, 7)
    mine = ours(model, frame, temperature, top_k, top_p)
    for g in range(2):
        assert unlike(theirs[:, g], mine[:, g]) < 1
    # The test can tell: the official sampler is no further from itself, and other parameters are.
    assert unlike(theirs[:, 0], officially(module, frame, temperature, top_k, top_p, 8)[:, 0]) < 1
    others = [
        (temperature * 1.5, top_k, top_p),
        (temperature, top_k * 4 // 5, top_p),
        (temperature, top_k, top_p - 0.1),
    ]
    for other in others:
        assert unlike(theirs[:, 0], ours(model, frame, *other)[:, 0]) > 1, other


def transformers_keeps(logits, temperature, top_k, top_p):
    """Scores ``[n, vocab]`` of transformers' own processors: what is removed is -inf."""
    import torch
    from transformers.generation import logits_process as theirs

    chain = theirs.LogitsProcessorList([theirs.TemperatureLogitsWarper(temperature), theirs.TopKLogitsWarper(top_k)])
    if top_p < 1:
        chain.append(theirs.TopPLogitsWarper(top_p))
    return chain(torch.zeros((len(logits), 0), dtype=torch.long), torch.tensor(logits)).numpy()


def law_keeps(row, temperature, top_k, top_p):
    s = np.empty_like(row)
    assert arithmetic_sampling.scaled(row, F(temperature), s)
    return s, np.sort(arithmetic_sampling.kept(s, min(top_k, len(row)), F(top_p)))


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(0.9, 50, 1.0), (1.0, 2048, 0.5), (0.7, 2048, 0.9), (2.0, 100, 0.3), (1.3, 1, 1.0), (0.9, 5000, 0.95)],
)
def test_what_is_kept_is_what_transformers_keeps(temperature, top_k, top_p):
    logits = np.random.default_rng(3).normal(0, 3, (20, 2048)).astype(F)
    for row, expected in zip(logits, transformers_keeps(logits, temperature, top_k, top_p), strict=True):
        s, kept = law_keeps(row, temperature, top_k, top_p)
        np.testing.assert_array_equal(kept, np.flatnonzero(np.isfinite(expected)))
        np.testing.assert_array_equal(s[kept], expected[kept])  # the same division, bit for bit


def test_where_the_two_sums_of_top_p_differ_it_is_by_codes_at_its_very_edge():
    """Summed from the largest down or from the smallest up: rounding decides where codes are as rare as it is fine."""
    logits = np.random.default_rng(3).normal(0, 3, (20, 2048)).astype(F)
    for row, scores in zip(logits, transformers_keeps(logits, 0.9, 2048, 0.999), strict=True):
        s, kept = law_keeps(row, 0.9, 2048, 0.999)
        order = np.argsort(-s, kind="stable")
        p = np.exp(s.astype(np.float64) - s.max())
        before = np.zeros(2048)
        before[order[1:]] = np.cumsum(p[order[:-1]] / p.sum())
        disputed = np.setxor1d(kept, np.flatnonzero(np.isfinite(scores)))
        assert (np.abs(before[disputed] - 0.999) < 2.0**-18).all()  # 64 roundings of a sum near 1
        assert len(disputed) <= 2
