"""The history of a machine's runs: what is flagged, what is told, what is left out. All runs are made up."""

from __future__ import annotations

import pytest
from made_up_runs_on_disk import finished, records
from rich.console import Console

from bench import history_show
from bench.errors import HistoryError
from bench.history import history_of
from bench.history_show import headline, page, print_history
from reports.figures_page import figures_markdown, render_figures

NAMES = ("recompute_f16", "kv_bf16")


@pytest.fixture
def history(tmp_path):
    """Runs one after another, in which ``kv_bf16`` takes so many times its first time."""

    def make(*factors, **changes):
        for number, factor in enumerate(factors):
            made = records(NAMES, seed=number + 1, factors={"kv_bf16": factor})
            finished(
                tmp_path / "box" / f"20010203T04{number:02}00Z-c{number:08}", made,
                started_utc=f"2001-02-03T04:{number:02}:00Z", commit=f"c{number:08}", **changes,
            )  # fmt: skip
        return tmp_path / "box"

    return make


def course(found, variant="kv_bf16"):
    return next(one for one in found.courses if one.variant == variant)


def flags(found):
    return [moment.flag for moment in course(found).moments]


def test_a_change_that_the_next_run_confirms_is_flagged_where_it_began(history):
    found = history_of(history(1, 1, 1.1, 1.1))
    assert flags(found) == ["", "", "slower", ""]
    assert "kv_bf16 × 2 slower from c00000002 on" in headline(found)


def test_one_run_alone_flags_nothing(history):
    found = history_of(history(1, 1, 1.3, 1))
    assert [moment.verdict for moment in course(found).moments][2] == "slower"
    assert flags(found) == [""] * 4
    assert "no change" in headline(found)


def test_the_newest_run_alone_flags_nothing(history):
    assert flags(history_of(history(1, 1, 1.3))) == [""] * 3


def test_after_a_flag_later_runs_are_held_against_the_changed_one(history):
    assert flags(history_of(history(1, 1.2, 1.2, 1.2, 1.0, 1.0))) == ["", "slower", "", "", "faster", ""]


def test_a_creep_of_small_steps_is_found(history):
    """Of 1.5 % each, none of which counts alone."""
    found = flags(history_of(history(*(1.015**number for number in range(8)))))
    assert "slower" in found


def test_two_runs_that_disagree_flag_nothing(history):
    assert flags(history_of(history(1, 1.2, 0.8, 1.0))) == [""] * 4


def test_the_terminal_has_a_line_a_run_within_its_width(history, monkeypatch, capsys):
    found = history_of(history(1, 1.2, 1.2))
    monkeypatch.setattr(history_show, "console", Console(width=80))
    print_history(found, page(found, "box"))
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if line.startswith("2001-02-03 04:0")]) == 3 * 2
    assert any("c00000001" in line and "slower, flagged" in line for line in lines)
    assert all(len(line) <= 80 for line in lines if line.startswith("2001"))


def test_page_and_markdown_tell_the_same(history):
    found = history_of(history(1, 1.2, 1.2))
    shown = page(found, "box", "python -m bench history")
    html, markdown = render_figures(shown), figures_markdown(shown)
    for text in (html, markdown):
        assert "slower from c00000001 on" in text
        assert "python -m bench history" in text
    assert "▲ slower" in html
    assert len([line for line in markdown.splitlines() if line.startswith("| kv_bf16 × 2 |")]) == 3


def test_what_is_left_out_is_said(history, tmp_path):
    folder = history(1, 1)
    (folder / "20010203T050000Z-broken").mkdir()
    other = {"spec": {}, "digest": "f" * 16, "synthetic": True, "golden_frames": 2, "golden_reference": "oracle"}
    finished(folder / "20010203T030000Z-other", records(NAMES), prepared=other, started_utc="2001-02-03T03:00:00Z")
    found = history_of(folder)
    assert len(found.runs) == 2
    assert any("20010203T050000Z-broken" in text for text in found.passed_over)
    assert any(text.startswith("20010203T030000Z-other: another model or other weights") for text in found.passed_over)


def test_nothing_to_tell_is_one_line(history, tmp_path):
    for wrong in (
        lambda: history_of(tmp_path / "nowhere"),
        lambda: history_of(history(1), model="synthetic:1.7b"),
        lambda: history_of(history(), variants=["unheard_of"]),
    ):
        with pytest.raises(HistoryError) as caught:
            wrong()
        assert "\n" not in str(caught.value)
