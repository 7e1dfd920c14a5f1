"""The Markdown report: valid tables whatever the text, the same rows as the HTML. All figures are made up."""

import re

from made_up_runs import broken, cell, realistic, records_of, summary, write_run

from reports import verdict, write_markdown
from reports.markdown import SIZE_LIMIT_BYTES, escape, render_markdown
from reports.page import make_page


def render(run):
    return render_markdown(make_page(run, list(records_of(run))))


def table_lines(text):
    return [line for line in text.splitlines() if line.startswith("|")]


def columns_of(line):
    return len(re.findall(r"(?<!\\)\|", line)) - 1


def test_it_is_written_with_the_same_verdict(tmp_path):
    run_dir = write_run(tmp_path / "run", realistic())
    write_markdown(run_dir, tmp_path / "report.md")
    assert verdict(realistic()) in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_pipes_and_line_breaks_do_not_break_tables():
    run = summary([cell(), broken("a|b", reason="one | two\nthree\r\n| four |", gate_detail="x|y")])
    text = render(run)
    assert "a\\|b" in text
    assert "one \\| two three \\| four \\|" in text
    main = [line for line in table_lines(text) if columns_of(line) == 20]
    assert len(main) == 2 + 2
    assert {columns_of(line) for line in table_lines(text)} == {20, 4, 2, 5}


def test_markup_is_shown_literally():
    assert escape("<b> & [x](y) `c` *d* kv_bf16 _e_") == ("&lt;b&gt; &amp; [x\\](y) \\`c\\` \\*d\\* kv_bf16 \\_e\\_")
    assert "<script" not in render(summary([broken(reason="<script>alert(1)</script>")]))


def test_an_interval_stays_readable():
    assert escape("66.0 [65.4, 67.1]") == "66.0 [65.4, 67.1]"


def test_a_command_with_fences_stays_inside_its_block():
    text = render(summary([cell()], run={"command": "echo ```\n# not a heading"}))
    assert "````sh\necho ```\n# not a heading\n````" in text


def test_size_is_bounded():
    many = [broken(f"v{n}", reason="&" * 5000) for n in range(300)]
    text = render(summary(many, machine={f"k{n}": "v" * 500 for n in range(5000)}))
    assert len(text.encode()) < SIZE_LIMIT_BYTES + 1000
    assert text.rstrip().endswith("report.html has it.")


def test_a_broken_cell_has_a_reason_and_no_times():
    line = next(line for line in table_lines(render(realistic())) if line.startswith("| kv_q4_0 "))
    assert "SIGSEGV" in line
    assert not re.search(r"\d\.\d", line)


def test_empty_runs_say_so():
    text = render(summary([], machine={}))
    for sentence in ("This run has no cells.", "No gate was run.", "No machine facts", "Nothing was left out."):
        assert sentence in text
