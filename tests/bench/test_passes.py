"""Passes over several tokens: every count is there, and shares are of the peak that was measured beside them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench import passes
from cplab.commandline import GATE_FAILED, GOOD, WRONG_USE, run
from cplab.decoder import Decoder
from cplab.errors import BadInputError
from cplab.model import Model


def test_every_token_count_stands_beside_one_token_and_the_peak(tiny, monkeypatch):
    peaks = iter([1.0, 2.0, 4.0, 8.0])
    monkeypatch.setattr(passes, "measured_peak", lambda threads: next(peaks))
    rows = passes.measured_passes(tiny, "bf16", 1, 3)
    assert [row.tokens for row in rows] == [1, 2, 4, 8, tiny.spec.positions]
    assert rows[0].to_one.ratio == 1
    for row in rows:
        assert row.gmacs == pytest.approx(passes._gmac(tiny, row.tokens) * 1e3 / row.ms.p50)
        assert 0 < row.of_peak.lo <= row.of_peak.p50 <= row.of_peak.hi


def test_a_pass_counts_what_it_runs(tiny):
    spec = tiny.spec
    head, keys_and_values = spec.vocab * spec.hidden, 2 * spec.kv_rows * spec.hidden
    layer = (spec.weights_per_pass - head) // spec.layers
    attention = 2 * spec.q_rows  # for each position that is seen
    one = spec.layers * (layer + 3 * attention) + head  # the second pass: its token sees three positions
    assert passes._gmac(tiny, 1) == pytest.approx(one / 1e9, rel=1e-12)
    assert passes._gmac(tiny, 8) == pytest.approx(8 * one / 1e9, rel=1e-12)
    # The last pass of a recomputed frame: three tokens, of which one goes on after the last layer's keys and values.
    again = (spec.layers - 1) * (3 * layer + (1 + 2 + 3) * attention)
    again += 2 * keys_and_values + layer + 3 * attention + head
    assert passes._gmac(tiny, spec.positions) == pytest.approx(again / 1e9, rel=1e-12)


def test_the_command_prints_a_row_for_each(capsys):
    from bench.cli import app

    assert run(app, ["passes", "--model", "synthetic:tiny", "-t", "1", "--rounds", "3", "--format", "q4_0"]) == GOOD
    out = capsys.readouterr().out
    assert "passes of q4_0 on 1 threads" in out
    assert [line.split()[0] for line in out.splitlines()[2:] if line.strip()] == ["1", "2", "4", "8", "3"]


def test_nothing_is_timed_that_is_wrong(capsys, monkeypatch):
    from bench.cli import app

    class Wrong(Decoder):
        def predict(self, *arguments, **options):
            codes = super().predict(*arguments, **options)
            return (codes + self.recompute).astype(np.int32)

    monkeypatch.setattr(passes, "Decoder", Wrong)
    monkeypatch.setattr(passes, "measured_peak", lambda threads: pytest.fail("timed"))
    assert run(app, ["passes", "--model", "synthetic:tiny", "-t", "1", "--rounds", "3"]) == GATE_FAILED
    out, err = capsys.readouterr()
    assert out == ""
    assert "recompute_bf16 x 1: codes: frame 0, pass 0" in err


@pytest.mark.parametrize("groups", [4, 8])
def test_a_longest_pass_is_not_taken_for_a_batch_of_as_many(tiny, groups):
    from cplab.sources import synthetic

    spec = replace(tiny.spec, groups=groups)
    model = Model("groups", spec, {t.name: t for t in synthetic.tensors("synthetic:groups", spec)})
    cached, recomputed = (Decoder(model, 1, format="bf16", recompute=recompute) for recompute in (False, True))
    assert [tokens for tokens, _ in passes._round(model, cached, recomputed, 0)] == [1, 2, 4, 8]


def test_a_model_of_one_pass_has_no_pass_over_one_token(tiny):
    from cplab.sources import synthetic

    spec = replace(tiny.spec, groups=2)
    model = Model("groups", spec, {t.name: t for t in synthetic.tensors("synthetic:groups", spec)})
    with pytest.raises(BadInputError, match="one pass"):
        passes.measured_passes(model, "bf16", 1, 3)


def test_an_unknown_format_is_one_line(capsys):
    from bench.cli import app

    assert run(app, ["passes", "--model", "synthetic:tiny", "--format", "q9"]) == WRONG_USE
    assert capsys.readouterr().err.count("\n") == 1


def test_the_peak_is_a_number_of_multiply_adds():
    from cplab.kernels.peak import measured_peak

    assert np.isfinite(measured_peak(1))
    assert measured_peak(1) > 0


def test_the_int8_peak_is_measured_for_a_team_too():
    import numba

    from cplab.kernels.peak_int8 import measured_int8_peak

    assert 0.1 < measured_int8_peak(1) < 100_000
    if numba.config.NUMBA_NUM_THREADS > 1:
        assert 0.1 < measured_int8_peak(2) < 100_000


def test_the_int8_peak_really_multiplies_bytes():
    import numpy as np

    from cplab.jit import has_feature
    from cplab.kernels import peak_int8

    data = np.random.default_rng(1).integers(-127, 128, (peak_int8._LINES, 64)).astype(np.int8)
    chains = peak_int8._width() // 64
    weights = data[:chains].astype(np.int64)
    if has_feature("avx512vnni", "avx512f") or has_feature("avxvnni"):
        weights = weights + 128
    turns = peak_int8._LINES + 3
    wanted = sum(int((weights @ data[turn % peak_int8._LINES].astype(np.int64)).sum()) for turn in range(turns))
    assert peak_int8._alone(data.ctypes.data, turns) == wanted
