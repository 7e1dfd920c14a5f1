"""A model whose later codes can be told ahead, as often as it says."""

from __future__ import annotations

import json
from importlib.resources import files

import numpy as np
import pytest
from small_models import inputs

from cplab.model import Model
from cplab.naive import Naive
from cplab.sources import load_model, synthetic
from cplab.sources.synthetic_predictable import SHARE, keyed
from cplab.spec import PRESETS

NAME = "synthetic:tiny-predictable"


@pytest.fixture(scope="module")
def model():
    return load_model(NAME)


def keys_of(model, table):
    """Which key each row is of, found by its direction: ``[vocab]``."""
    keys = synthetic.gaussian("tiny-predictable/keys", model.spec.vocab * model.spec.hidden, -20)
    keys = keys.reshape(model.spec.vocab, -1)
    return np.argmax(model.f32(table) @ keys.T, axis=1)


def with_share(model, share):
    """The model made anew with another share of codes that can be told ahead."""
    tensors = dict(model.tensors)
    for name, tensor in model.tensors.items():
        if name.startswith(("lm_head.", "model.codec_embedding.")):
            values = keyed("tiny-predictable", name, tensor.shape, synthetic.gaussian, synthetic._order, share)
            tensors[name] = type(tensor)(name, tensor.format, tensor.format.pack(values))
    return Model(f"predictable {share}", model.spec, tensors)


def held(model, frames=200):
    """Share of codes that their heads read from an earlier hidden state, one and two codes before their own."""
    naive, spec = Naive(model, "f32"), model.spec
    hidden, cb0 = inputs(model, frames)
    codes = np.zeros((frames, spec.passes), np.int32)
    for g in range(spec.passes):
        states = naive.states(naive.inputs(hidden, cb0, codes))
        codes[:, g] = naive.times(states[:, g + 1], f"lm_head.{g}.weight").argmax(-1)
    found = []
    for depth in (1, 2):
        drafts = [
            naive.times(states[:, g + 1], f"lm_head.{g + depth}.weight").argmax(-1) for g in range(spec.passes - depth)
        ]
        found.append(float((np.stack(drafts, 1) == codes[:, depth:]).mean()))
    return found


def test_the_shape_is_the_bases_with_sixteen_codes():
    tiny = PRESETS["tiny"]
    spec = synthetic.spec_of(NAME)
    assert (spec.hidden, spec.layers, spec.vocab, spec.groups) == (tiny.hidden, tiny.layers, tiny.vocab, 16)
    assert synthetic.spec_of("synthetic:0.6b-predictable") == PRESETS["0.6b"]


def test_its_digests_are_the_committed_ones_and_its_layers_the_bases(model):
    digests = json.loads(files("cplab.sources").joinpath("synthetic_digests.json").read_text())
    assert {n: synthetic.short_digest(t) for n, t in model.tensors.items()} == digests[NAME]["tensors"]
    for base, name in (("synthetic:tiny", NAME), ("synthetic:0.6b", "synthetic:0.6b-predictable")):
        layers = [key for key in digests[base]["tensors"] if key.startswith("model.layers.")]
        assert layers
        assert all(digests[base]["tensors"][key] == digests[name]["tensors"][key] for key in layers)


def test_every_codebook_has_each_key_once_and_moves_the_share_that_it_says(model):
    for group in range(model.spec.passes):
        heads = keys_of(model, f"lm_head.{group}.weight")
        embeddings = keys_of(model, f"model.codec_embedding.{group}.weight")
        assert sorted(heads) == sorted(embeddings) == list(range(model.spec.vocab))
        assert (heads == embeddings).mean() == SHARE
    assert not np.array_equal(heads, keys_of(model, "lm_head.0.weight"))


@pytest.mark.parametrize("share", [0.25, 0.5, SHARE, 1.0])
def test_so_many_drafts_hold(model, share):
    at_one, at_two = held(with_share(model, share))
    assert at_one == pytest.approx(share, abs=0.04)
    assert at_two == pytest.approx(share**2, abs=0.05)


def test_in_a_plain_seeded_model_hardly_one_does():
    from dataclasses import replace

    spec = replace(PRESETS["tiny"], groups=16)
    plain = Model("plain", spec, {t.name: t for t in synthetic.tensors("synthetic:tiny", spec)})
    assert held(plain)[0] < 0.03
