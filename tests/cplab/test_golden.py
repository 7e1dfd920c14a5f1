"""Goldens of every arithmetic: made by its oracle, found again, refused for any other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_models import model_of

from cplab.__main__ import app
from cplab.commandline import run
from cplab.errors import GoldenError
from cplab.golden import cached_path, committed_goldens, committed_stem, find_golden, find_golden_path, load_golden
from cplab.golden import row_digests as digests
from cplab.golden_making import golden_for, make_golden
from cplab.model import Model
from cplab.oracle_quantised import in_arithmetic, oracle_for

KINDS = ["q8_0", "q6_k", "q5_0", "q4_0"]


@pytest.fixture
def cache(tmp_path, monkeypatch, tiny):
    monkeypatch.setenv("CPLAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("kind", KINDS)
def test_the_committed_golden_of_the_rounded_model_is_what_its_oracle_says(kind):
    model = in_arithmetic(model_of(kind), kind)
    golden = find_golden(model, kind)
    assert golden is not None
    assert find_golden_path(model, kind).name == f"synthetic-tiny{'-wide' if kind == 'q6_k' else ''}.{kind}.npz"
    assert (len(golden), golden.distinct_frames, golden.arithmetic) == (33, 33, kind)
    golden.require(model, kind)
    oracle = oracle_for(model, kind)
    for i in (0, 32):
        frame = oracle.frame(golden.hidden[i], golden.cb0_embed[i])
        np.testing.assert_array_equal(frame.codes, golden.codes[i])
        np.testing.assert_array_equal(digests(frame.logits), golden.digests[i])
        scored = oracle.scored(golden.hidden[i], golden.cb0_embed[i], golden.forced[i])
        np.testing.assert_array_equal(digests(scored.logits), golden.forced_digests[i])


def test_committed_goldens_say_their_arithmetic():
    found = {path.stem: load_golden(path) for path in committed_goldens()}
    assert found.keys() >= {
        "synthetic-0.6b",
        "synthetic-0.6b.q8_0",
        "synthetic-0.6b.q6_k",
        "synthetic-0.6b.q5_0",
        "synthetic-0.6b.q4_0",
        "synthetic-0.6b-spikes.q8_0",
    }
    for stem, golden in found.items():
        assert committed_stem(golden.model) == stem
        assert golden.arithmetic == (stem.rpartition(".")[2] if stem.endswith(tuple(KINDS)) else "f32")
        assert golden.distinct_frames == len(golden) >= 2


def test_a_golden_of_another_arithmetic_is_no_golden(tiny, cache):
    model = in_arithmetic(tiny, "q8_0")
    golden = find_golden(model, "q8_0")
    assert find_golden(model) is None
    with pytest.raises(GoldenError, match=r"in arithmetic q8_0, not f32; .*--arithmetic f32"):
        golden.require(model)
    with pytest.raises(GoldenError, match="weights"):
        golden.require(tiny, "q8_0")
    # The same weights in two arithmetics are two files in the cache.
    f32 = golden_for(model, 2)
    assert f32.arithmetic == "f32"
    assert f32.digest == golden.digest
    assert find_golden_path(model) == cached_path(model)
    assert cached_path(model, "q8_0").name == f"{model.digest()}.q8_0.npz"
    assert not (f32.digests[0] == golden.digests[0]).all()
    cached_path(model).rename(cached_path(model, "q8_0"))
    other = Model("elsewhere", model.spec, model.tensors)
    assert find_golden(other, "q8_0") is None  # whatever its file is called


def test_the_arithmetic_survives_a_file_and_its_absence_means_f32(tmp_path, tiny):
    golden = find_golden(in_arithmetic(tiny, "q4_0"), "q4_0")
    golden.save(tmp_path / "g.npz")
    assert load_golden(tmp_path / "g.npz").arithmetic == "q4_0"
    plain = find_golden(tiny)
    assert plain.arithmetic == "f32"
    plain.save(tmp_path / "f32.npz")
    with np.load(tmp_path / "f32.npz") as stored:
        assert b"arithmetic" not in bytes(stored["about"])


@pytest.mark.parametrize("arithmetic", [None, 3, ["f32"]])
def test_an_arithmetic_that_is_no_name_is_refused(tmp_path, tiny, arithmetic):
    replace(find_golden(tiny), arithmetic=arithmetic).save(tmp_path / "g.npz")
    with pytest.raises(GoldenError, match="arithmetic is no name"):
        load_golden(tmp_path / "g.npz")


def test_pytorch_is_not_asked_about_integers(tiny):
    with pytest.raises(GoldenError, match="PyTorch computes in float32"):
        make_golden(in_arithmetic(tiny, "q8_0"), 2, reference="torch", arithmetic="q8_0")


def test_the_command_rounds_the_model_first(tmp_path, tiny, capsys):
    path = tmp_path / "g.npz"
    command = ["golden", "--model", "synthetic:tiny", "--arithmetic", "q8_0", "--frames", "2", "-o", str(path)]
    assert run(app, command) == 0
    made, committed = load_golden(path), find_golden(in_arithmetic(tiny, "q8_0"), "q8_0")
    assert made.model == "synthetic:tiny rounded to q8_0"
    np.testing.assert_array_equal(made.digests, committed.digests[:2])
    assert run(app, [*command[:4], "q9", *command[5:]]) == 1
    assert "there are f32, q8_0, q6_k, q5_0, q4_0" in capsys.readouterr().err
