"""The rotary table is the committed one, and no other theta passes for it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from small_models import same_bits

from cplab import rope
from cplab.spec import PRESETS

PUBLISHED = PRESETS["0.6b"]


def test_the_committed_table_is_what_compute_gives():
    table = rope.rope_table(PUBLISHED)
    assert table.shape == (2, 16, 64)
    assert table.dtype == np.float32
    assert same_bits(table, rope.compute(1e6, 128, 16))


def test_the_table_is_cos_and_sin_of_position_times_frequency():
    table = rope.rope_table(PUBLISHED)
    for position in range(16):
        for k in range(64):
            angle = position * 1e6 ** (-2 * k / 128)
            assert table[0, position, k] == pytest.approx(math.cos(angle), abs=1e-7)
            assert table[1, position, k] == pytest.approx(math.sin(angle), abs=1e-7)


def test_position_zero_turns_nothing():
    table = rope.rope_table(PUBLISHED)
    assert (table[0, 0] == 1).all()
    assert (table[1, 0] == 0).all()


def test_a_damaged_table_is_refused(tmp_path, monkeypatch):
    source = rope.files("cplab").joinpath(rope._PUBLISHED_FILE).read_bytes()
    monkeypatch.setattr(rope, "files", lambda package: tmp_path)
    (tmp_path / rope._PUBLISHED_FILE).write_bytes(source)
    rope.rope_table(PUBLISHED)
    damaged = bytearray(source)
    damaged[-1] ^= 1
    (tmp_path / rope._PUBLISHED_FILE).write_bytes(damaged)
    with pytest.raises(RuntimeError, match="damaged"):
        rope.rope_table(PUBLISHED)


def test_another_theta_gives_another_table():
    other = rope.rope_table(replace(PUBLISHED, rope_theta=1e4))
    assert same_bits(other, rope.compute(1e4, 128, 16))
    assert same_bits(other[:, 0], rope.rope_table(PUBLISHED)[:, 0])  # position 0 hides it
    assert not same_bits(other[:, 1], rope.rope_table(PUBLISHED)[:, 1])


def test_fewer_positions_are_a_part_of_the_table_and_more_are_computed():
    assert same_bits(rope.rope_table(replace(PUBLISHED, groups=4)), rope.rope_table(PUBLISHED)[:, :4])
    longer = rope.rope_table(replace(PUBLISHED, groups=20))
    assert longer.shape == (2, 20, 64)
    assert same_bits(longer[:, :16], rope.rope_table(PUBLISHED))


def test_another_head_width_is_computed():
    assert same_bits(rope.rope_table(PRESETS["tiny"]), rope.compute(1e6, 32, 3))
