"""Every page in a real headless browser: renders, sorts, logs nothing, fits, prints. All figures are made up."""

from __future__ import annotations

import re

import pytest
from headless_browser import open_browser
from made_up_evidence import evident
from made_up_pages import beside_page, history_page, made_up_profile
from made_up_speculation import compared, curves, exact_records, exact_run
from test_beside_engines import HOSTILE, cells_of_engines, engine, engine_run
from test_streams_report import STREAMS

from reports.figures_page import render_figures
from reports.html import render_html
from reports.page import make_page

pytestmark = pytest.mark.slow


def same_bits_page():
    run = exact_run()
    return render_html(make_page(run, exact_records(run), speculation=curves(run), streams=STREAMS))


def engines_page():
    run = engine_run([*cells_of_engines(), engine(HOSTILE, 2, 300.0, format="bf16")])
    return render_html(
        make_page(
            run.model_copy(update={"engines": [*run.engines, compared(HOSTILE, "kv_bf12", 6.0)]}), exact_records(run)
        )
    )


PAGES = {
    "report": lambda: render_html(make_page(*evident(), made_up_profile())),
    "same bits": same_bits_page,
    "beside engines": engines_page,
    "side by side": lambda: render_figures(beside_page()),
    "history": lambda: render_figures(history_page()),
}
NAMES = "[...document.querySelector('table[data-sortable]').tBodies[0].rows].map((row) => row.cells[0].textContent)"
SPILLS = """[...document.querySelectorAll("main *")].filter((one) => {
  if (one.closest("svg") || one.closest(".scroll") !== null && !one.matches(".scroll")) return false;
  const box = one.getBoundingClientRect();
  return box.width > 0 && box.right > document.documentElement.clientWidth + 1;
}).map((one) => one.outerHTML.slice(0, 120))"""
"""What lies beyond the right edge; tables may, inside the box that scrolls them."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with open_browser(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture(params=PAGES)
def shown(request, tmp_path, browser):
    path = tmp_path / "page.html"
    path.write_text(PAGES[request.param](), encoding="utf-8")
    browser.logged.clear()
    browser.requested.clear()
    return path


def test_what_a_page_logs_is_noticed(browser, tmp_path):
    """The control of the tests below: an error, and something that is loaded, are both seen."""
    path = tmp_path / "wrong.html"
    path.write_text("<!doctype html><script>undefined.wrong</script><img src='nowhere.png'>", encoding="utf-8")
    browser.logged.clear()
    browser.requested.clear()
    browser.show(path)
    assert "TypeError" in str(browser.logged)
    assert any("nowhere.png" in url for url in browser.requested)


@pytest.mark.parametrize("width", [1280, 400])
def test_a_page_renders_fits_and_logs_nothing(browser, shown, width):
    browser.show(shown, width)
    assert browser.value(SPILLS) == []
    assert browser.value("document.documentElement.scrollWidth") <= width
    drawn = browser.value("[...document.querySelectorAll('svg')].filter((one) => one.getClientRects().length).length")
    assert drawn >= 1
    assert browser.value("document.querySelector('main').innerText.length") > 500
    assert browser.logged == []
    assert browser.requested == [shown.as_uri()]


def test_print_shows_everything_on_white(browser, shown):
    browser.show(shown, 1040, "print")  # the width of A4 on its side
    assert browser.value(SPILLS) == []
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    pdf = browser.pdf_bytes()
    assert pdf.startswith(b"%PDF")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 40
    assert browser.logged == []


def test_a_table_sorts_by_keyboard_and_says_so(browser, shown):
    browser.show(shown)
    before = browser.value(NAMES)
    assert len(set(before)) > 1
    browser.value("document.querySelector('table[data-sortable] th button').focus()")
    browser.press("Enter", 13)
    up = browser.value(NAMES)
    assert browser.value("document.querySelector('table[data-sortable] th').getAttribute('aria-sort')") == "ascending"
    said = browser.value("document.querySelector('[role=status]').textContent")
    assert said.startswith("Sorted by ")
    assert said.endswith(", ascending.")
    browser.press("Enter", 13)
    down = browser.value(NAMES)
    assert sorted(up) == sorted(down) == sorted(before)
    assert up[0] != down[0]
    assert up[0].casefold() < up[-1].casefold()
    assert down[0].casefold() > down[-1].casefold()
    assert browser.logged == []


def test_tab_reaches_every_box_that_scrolls(browser, shown):
    browser.show(shown, 400)
    boxes = browser.value("document.querySelectorAll('.scroll').length")
    for _ in range(400):
        browser.press("Tab", 9)
        browser.value("document.activeElement.closest('.scroll')?.setAttribute('data-reached', '1')")
        if browser.value("document.querySelectorAll('[data-reached]').length") == boxes:
            break
    assert browser.value("document.querySelectorAll('[data-reached]').length") == boxes
    assert browser.value("document.querySelectorAll('.scroll:not([aria-labelledby])').length") == 0
