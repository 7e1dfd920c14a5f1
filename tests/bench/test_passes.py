"""Passes over several tokens: every count is there, and shares are of the peak that was measured beside them."""

from __future__ import annotations

import numpy as np
import pytest

from bench import passes
from cplab.commandline import GOOD, WRONG_USE, run


def test_every_token_count_stands_beside_one_token_and_the_peak(tiny, monkeypatch):
    peaks = iter([1.0, 2.0, 4.0, 8.0])
    monkeypatch.setattr(passes, "measured_peak", lambda threads: next(peaks))
    rows = passes.measured_passes(tiny, "bf16", 1, 3)
    assert [row.tokens for row in rows] == [1, 2, 4, 8, tiny.spec.positions]
    assert rows[0].to_one.ratio == 1
    for row in rows:
        assert row.gmacs == pytest.approx(passes._gmac(tiny, row.tokens) * 1e3 / row.ms.p50)
        assert 0 < row.of_peak.lo <= row.of_peak.p50 <= row.of_peak.hi


def test_a_pass_counts_the_layers_for_every_token_and_a_head_for_every_frame(tiny):
    head = tiny.spec.vocab * tiny.spec.hidden
    layers = tiny.spec.weights_per_pass - head
    assert passes._gmac(tiny, 1) == pytest.approx((layers + head) / 1e9)
    assert passes._gmac(tiny, 8) == pytest.approx(8 * (layers + head) / 1e9)
    assert passes._gmac(tiny, 16) == pytest.approx((16 * layers + head) / 1e9)


def test_the_command_prints_a_row_for_each(capsys):
    from bench.cli import app

    assert run(app, ["passes", "--model", "synthetic:tiny", "-t", "1", "--rounds", "3", "--format", "q4_0"]) == GOOD
    out = capsys.readouterr().out
    assert "passes of q4_0 on 1 threads" in out
    assert [line.split()[0] for line in out.splitlines()[2:] if line.strip()] == ["1", "2", "4", "8", "3"]


def test_an_unknown_format_is_one_line(capsys):
    from bench.cli import app

    assert run(app, ["passes", "--model", "synthetic:tiny", "--format", "q9"]) == WRONG_USE
    assert capsys.readouterr().err.count("\n") == 1


def test_the_peak_is_a_number_of_multiply_adds():
    from cplab.kernels.peak import measured_peak

    assert np.isfinite(measured_peak(1))
    assert measured_peak(1) > 0
