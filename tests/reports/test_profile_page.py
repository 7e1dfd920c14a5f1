"""A profile's page and plot as documents: complete, self-contained, safe. All figures are made up."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest
from test_report_html import HOSTILE, Document

from reports.profile_page import ProfilePage, render_profile, write_profile_svg
from reports.stacked import Layer, stacked_chart
from reports.svg import PARTS

SVG = "{http://www.w3.org/2000/svg}"


def layers(passes=15):
    return [
        Layer(name, name.upper(), [0.1 * number + 0.01 * (g + 1) for g in range(passes)])
        for number, name in enumerate(PARTS)
    ]


def page(**changes):
    made = ProfilePage(
        title="Where a frame's time goes: kv_bf16 on 2 threads",
        subtitle="synthetic:0.6b",
        headline="40.0 ms a frame in 15 passes, 38.0 % of it gate/up.",
        notes=["The parts sum to 99.9 % of the frame."],
        columns=["part", "ms a frame"],
        rows=[["q/k/v", "12.0"], ["sum", "12.0"]],
        layers=layers(),
    )
    return replace(made, **changes)


def test_the_page_is_whole_and_loads_nothing():
    text = render_profile(page())
    document = Document(text)
    assert len(document.ids) == len(set(document.ids))
    assert set(document.references) <= set(document.ids)
    assert not {tag for tag, _ in document.tags} & {"script", "link", "img", "iframe"}
    assert "https://" not in text
    assert document.rows[-1].split() == ["sum", "12.0"]
    for number in range(1, 16):
        assert f">{number}<" in text


def test_foreign_text_stays_text():
    text = render_profile(page(title=HOSTILE, notes=[HOSTILE], layers=[Layer("unheard of", HOSTILE, [1.0, 2.0])]))
    assert not any(tag == "script" for tag, _ in Document(text).tags)


@pytest.mark.parametrize("passes", [1, 2, 15, 31, 200])
def test_any_number_of_passes(passes):
    chart = stacked_chart("parts", layers(passes), "ms", "title")
    for drawn in (chart.wide, chart.narrow):
        root = ElementTree.fromstring(drawn)
        assert root.find(f"{SVG}title").text == "title"
        assert "QKV" in "".join(root.itertext())


def test_parts_that_take_no_time_are_not_drawn():
    assert stacked_chart("parts", [Layer("qkv", "q", [0.0, 0.0])], "ms", "title") is None
    chart = stacked_chart("parts", [Layer("qkv", "shown", [1.0]), Layer("o", "absent", [0.0])], "ms", "title")
    assert "absent" not in chart.wide
    assert "shown" in chart.wide


def test_a_page_without_times_has_no_plot(tmp_path):
    empty = page(layers=[])
    assert "<svg" not in render_profile(empty)
    with pytest.raises(ValueError, match="cannot be drawn"):
        write_profile_svg(empty, tmp_path / "p.svg")


def test_the_plot_alone_has_its_colours_for_light_and_dark(tmp_path):
    write_profile_svg(page(), tmp_path / "p.svg")
    text = (tmp_path / "p.svg").read_text()
    root = ElementTree.fromstring(text)
    style = root.find(f"{SVG}style").text
    assert "prefers-color-scheme: dark" in style
    for name in PARTS:
        assert style.count(f"--part-{name}:") == 2
        assert f"var(--part-{name})" in text
    assert "#0103" not in text
