"""The HTML report as a document: complete, self-contained, safe. All figures are made up (made_up_runs.py)."""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from made_up_runs import OWN_TALKER, broken, cell, interval, realistic, records_of, summary, write_run

from bench.records import Fidelity, Talker, UnreadableRecordError
from reports import write_html, write_markdown
from reports.html import render_html
from reports.page import make_page

HOSTILE = '<script>alert("1")</script>&"\'|`\n]]>'


VOID = {"meta", "br", "wbr", "link"}


class Document(HTMLParser):
    """Ids, references, tags and text of a page; complains about tags that do not nest."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.references, self.tags, self.stack, self.rows = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags.append((tag, values))
        if "id" in values:
            self.ids.append(values["id"])
        for value in values.values():
            self.references += re.findall(r"url\(#([^)]+)\)", value or "")
        self.references += (values.get("aria-labelledby") or "").split()
        if (values.get("xlink:href") or "").startswith("#"):
            self.references.append(values["xlink:href"][1:])
        if tag == "tr":
            self.rows.append("")
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.stack.pop()

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data):
        if "tr" in self.stack and "table" in self.stack:
            self.rows[-1] += data


def render(run, records=None):
    return render_html(make_page(run, list(records_of(run)) if records is None else records))


def forty_cells():
    cells = [cell(f"a_rather_long_variant_name_{n}", threads, 30.0 + n) for n in range(13) for threads in (1, 2, 4)]
    return summary([*cells, broken(reason="x" * 30_000)], machine={"flags": "avx " * 20_000})


EDGES = {
    "realistic": realistic,
    "own talker": lambda: summary([cell()], talker=OWN_TALKER),
    "talker slower than real time": lambda: summary(
        [cell()], talker=Talker(backend="x", prefill_ms=None, step_ms=interval(200))
    ),
    "no cells, no facts": lambda: summary([], machine={}),
    "only broken": lambda: summary([broken(), broken("b", gate="skip"), broken("c", gate="fail", reason="")]),
    "passed but not timed": lambda: summary([cell(cp_ms=None, round_medians_ms=[], code_ms=[], gbps=None)]),
    "one bare cell": lambda: summary(
        [
            cell(
                code_ms=[],
                gbps=None,
                roof_fraction=None,
                speedup_vs_baseline=None,
                rtf_cp=None,
                bytes_per_frame=None,
                rss_mb=None,
                load_s=None,
                compile_s=None,
                checks=[],
                gate_detail="",
            )
        ]
    ),
    "tiny model": lambda: summary(
        [cell(p50=0.2, code_ms=[0.1, 0.1])], model={"spec": {"layers": 2, "hidden": 64, "groups": 3}}
    ),
    "forty cells": forty_cells,
    "odd machine": lambda: summary(
        [cell()], machine={"a": [{"b": [1, {"c": None}]}, []], "d": {}, "e": "", "f": {"g_bytes": 2**40, "h": True}}
    ),
    "zero times": lambda: summary([cell(p50=1.0, cp_ms=interval(0.0), code_ms=[0.0] * 15)]),
}


@pytest.mark.parametrize("make", EDGES.values(), ids=EDGES.keys())
def test_every_edge_gives_a_sound_document(make):
    text = render(make())
    document = Document(text)
    assert len(document.ids) == len(set(document.ids))
    assert set(document.references) <= set(document.ids)
    assert len(text.encode()) < 2_000_000
    assert "#0102" not in text, "a stand-in colour was left in a chart"
    for element in (values for tag, values in document.tags if tag == "th"):
        assert element.get("scope") in ("col", "row")


def test_nothing_is_loaded_from_anywhere():
    text = render(realistic())
    without_namespaces = re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)
    assert not re.search(r"https?://", without_namespaces)
    assert not re.search(r"<(link|img|iframe|object)\b|@import|@font-face", text)


def test_the_only_script_is_the_one_whose_digest_the_page_lets_run():
    text = render(realistic())
    (shown,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(shown.encode()).digest()).decode()
    policy = next(values["content"] for tag, values in Document(text).tags if "http-equiv" in values)
    assert policy.split("; ") == ["default-src 'none'", "style-src 'unsafe-inline'", f"script-src 'sha256-{digest}'"]


def test_charts_are_described_and_follow_the_theme():
    document = Document(render(realistic()))
    charts = [values for tag, values in document.tags if tag == "svg"]
    assert charts
    for chart in charts:
        assert chart["role"] == "img"
        assert chart["aria-labelledby"].split()[0] in document.ids
    assert "var(--exact)" in str(document.tags)


def test_the_same_run_gives_the_same_bytes():
    assert render(realistic()) == render(realistic())


def test_a_broken_cell_shows_its_reason_and_no_times():
    rows = [row.split() for row in Document(render(summary([cell(), broken()]))).rows]
    row = next(row for row in rows if row[:1] == ["kv_q4_0"])
    assert "SIGSEGV" in row
    assert "crash" in row
    assert not [word for word in row if re.fullmatch(r"\d+\.\d+.*", word)]


def test_failed_checks_and_first_difference_stand_in_the_gate_section():
    text = render(realistic())
    assert "the oracle says 0x3f8cccce" in text
    assert "✗ logits equal: 27 of 30 digests" in text


def test_exact_gate_and_fidelity_are_columns_of_their_own():
    quick = cell("q", 2, 30.0, exact=False, tier="codes", fidelity=Fidelity(teacher_forced=0.5, free_running=0.25))
    page = make_page(summary([quick]), [])
    entries = dict(zip([column.name for column in page.columns], page.rows[0].entries, strict=True))
    assert entries["exact"] == "no"
    assert entries["gate"] == "pass"
    assert entries["tier"] == "codes"
    assert entries["fidelity, teacher-forced"] == "50.0 %"
    assert entries["fidelity, free-running"] == "25.0 %"


def test_passing_cells_come_first_by_median():
    page = make_page(realistic(), [])
    statuses = [row.status for row in page.rows]
    assert statuses == sorted(statuses, key=["pass", "fail", "crash", "skip"].index)
    assert [row.entries[0] for row in page.rows[:3]] == ["kv_q8_0", "kv_bf16", "kv_f16"]


def test_codes_matched_come_from_the_gate_records():
    run = summary([cell()])
    names = [column.name for column in make_page(run, []).columns]
    at = names.index("codes equal")
    assert make_page(run, list(records_of(run))).rows[0].entries[at] == "30/30"
    assert make_page(run, []).rows[0].entries[at] == "–"


def test_hostile_text_is_escaped_everywhere():
    run = summary(
        [
            cell(HOSTILE, gate_detail=HOSTILE, format=HOSTILE),
            cell(HOSTILE, threads=4, oversubscribed=True),
            broken("bad", reason=HOSTILE),
        ],
        model={"name": HOSTILE, "synthetic": True, "spec": {HOSTILE: HOSTILE}},
        machine={HOSTILE: HOSTILE, "group": {HOSTILE: [HOSTILE]}},
        run={"command": HOSTILE, "commit": HOSTILE, "not_measured": [HOSTILE], "golden": HOSTILE},
        baseline=HOSTILE,
        talker=Talker(backend=HOSTILE, prefill_ms=1.0, step_ms=interval(5)),
    )
    text = render(run)
    assert text.lower().count("<script") == 1, "the page's own"
    assert "&lt;script&gt;" in text
    Document(text)


def test_another_machines_figures_are_marked():
    text = render(realistic())
    assert "Kazeia tablet, CPU 4 threads (another machine)" in text
    assert "267 ms: Kazeia tablet, another machine" in text


def test_unreadable_runs_pass_their_error_through(tmp_path):
    out = tmp_path / "report.html"
    for write in (write_html, write_markdown):
        with pytest.raises(UnreadableRecordError):
            write(tmp_path / "missing", out)
    run_dir = write_run(tmp_path / "run", realistic())
    (run_dir / "records.jsonl").write_text('{"schema": "no record"}\n', encoding="utf-8")
    with pytest.raises(UnreadableRecordError, match="line 1"):
        write_html(run_dir, out)
    (run_dir / "summary.json").write_text('{"schema": "cplab.sweep/99"}', encoding="utf-8")
    with pytest.raises(UnreadableRecordError, match="99"):
        write_html(run_dir, out)
    assert not out.exists()


def test_files_appear_whole_and_leave_nothing_behind(tmp_path):
    run_dir = write_run(tmp_path / "run", realistic())
    out = tmp_path / "new folder" / "report.html"
    write_html(run_dir, out)
    write_html(run_dir, out)
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")


PROBE = """<!doctype html><title>no answer</title><body><script>
const report = REPORT, found = [];
for (const width of WIDTHS) {
  const frame = document.createElement("iframe");
  frame.style.cssText = `width:${width}px;height:800px;border:0`;
  frame.srcdoc = report;
  frame.onload = () => {
    found.push(`${width}:${frame.contentDocument.documentElement.scrollWidth}`);
    if (found.length === WIDTHS.length) document.title = found.join(" ");
  };
  document.body.append(frame);
}
</script>"""
"""Puts the report into frames of several widths and writes how wide its content came out into the title."""


@pytest.mark.slow
@pytest.mark.parametrize("make", [realistic, forty_cells])
def test_a_browser_finds_no_overflow_at_any_width(make, tmp_path):
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("needs chromium or google-chrome on PATH")
    report = json.dumps(render(make())).replace("</", "<\\/")
    page = tmp_path / "probe.html"
    page.write_text(PROBE.replace("WIDTHS", "[1280, 720, 400, 320]").replace("REPORT", report), encoding="utf-8")
    command = [browser, "--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    command += ["--disable-sync", "--disable-component-update", f"--user-data-dir={tmp_path / 'profile'}"]
    command += ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    command += ["--virtual-time-budget=20000", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    title = re.search(r"<title>(.*?)</title>", done.stdout)
    if done.returncode or title is None:
        pytest.skip(f"the browser does not start here: {done.stderr[-200:]}")
    widths = dict(pair.split(":") for pair in title[1].split())
    assert {shown: int(content) <= int(shown) for shown, content in widths.items()} == dict.fromkeys(
        ("1280", "720", "400", "320"), True
    ), widths
