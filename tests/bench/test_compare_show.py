"""A comparison on the terminal: every word whole, however narrow it is, and a line a cell where nobody folds."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from bench import compare_show
from bench.compare_show import print_comparison
from bench.compared import Compared, ComparedCell
from bench.comparison import compare
from bench.records import Interval

NAME = "kv_bf16@HEAD~3 x 2"


def compared(noise):
    logs = np.random.default_rng(1).normal(0.02, 0.04, 12)
    found = compare("kv_f16 x 2", NAME, logs, noise=noise)
    ms = Interval(p50=65.83, lo=65.12, hi=66.91, min=64.0)
    return Compared("kv_f16 x 2", NAME, "ms a frame", [ComparedCell(NAME, ms, ms, found)], ["a note"])


def printed(monkeypatch, found, **how):
    screen = Console(file=io.StringIO(), color_system=None, **how)
    monkeypatch.setattr(compare_show, "console", screen)
    print_comparison(found)
    return screen.file.getvalue()


@pytest.mark.parametrize("noise", [None, 0.01, 15.9])
def test_a_terminal_of_80_columns_shows_every_word_within_its_width(monkeypatch, noise):
    found = compared(noise)
    out = printed(monkeypatch, found, width=80, force_terminal=True)
    block = out[: out.index("A: kv_f16")]
    assert max(map(len, block.splitlines())) <= 80
    assert "…" not in block
    told = compare_show.in_words(found.cells[0].found)
    for part in (NAME, "65.8 [65.1, 66.9]", "B / A [95 %]", told):
        assert part in " ".join(block.split())


@pytest.mark.parametrize("how", [{"force_terminal": False, "width": 80}, {"force_terminal": True, "width": 200}])
def test_into_a_pipe_and_on_a_wide_terminal_a_cell_is_one_line(monkeypatch, how):
    found = compared(0.01)
    lines = printed(monkeypatch, found, **how).splitlines()
    assert lines[0].split()[0] == "cell"
    assert lines[1].startswith(NAME)
    assert lines[1].rstrip().endswith(compare_show.in_words(found.cells[0].found))


def test_noise_that_hides_everything_is_called_that(monkeypatch):
    out = printed(monkeypatch, compared(15.9), width=200, force_terminal=False)
    assert "1590" not in out
    assert "a change counts beyond a factor of 16.9" in out
    assert "this machine is too noisy to tell" in out
    assert "too noisy" not in printed(monkeypatch, compared(0.01), width=200, force_terminal=False)
