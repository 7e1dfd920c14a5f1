"""``python -m bench quality-report``: pages of what is on disk, with records of the same weights and no others."""

from __future__ import annotations

import pytest

from bench.cli import app
from bench.records import UnreadableRecordError
from bench.records.quality import Quality, QualityFacts
from bench.records.quality_reading import read_found_recipe, read_sensitivity
from cplab.commandline import run


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """A quality.json without variants, and a sensitivity and a search of the same weights."""
    folder = tmp_path_factory.mktemp("records")
    tiny = ["--model", "synthetic:tiny", "-t", "1", "--frames", "2"]
    assert run(app, ["quality", "--sensitivity", *tiny, "--out", str(folder)]) == 0
    (classes,) = folder.rglob("sensitivity.json")
    searched = folder / "found.json"
    asked = ["recipe", *tiny, "--budget-mb", "0.45", "--least-agreement", "0", "--json", str(searched)]
    assert run(app, asked) == 0
    facts = QualityFacts(
        command="", started_utc="", elapsed_s=1.0, commit="", dirty=False, tool_version="0", threads=1, golden="g",
        golden_reference="oracle", golden_frames=2, golden_distinct=2,
    )  # fmt: skip
    found = Quality(warning="", model=read_sensitivity(classes).model, facts=facts, cells=[])
    file = folder / "quality.json"
    file.write_text(found.model_dump_json(by_alias=True), encoding="utf-8")
    return file, classes, searched


def test_a_sensitivity_and_a_recipe_go_onto_the_page(records, tmp_path):
    file, classes, searched = records
    html, markdown = tmp_path / "page.html", tmp_path / "page.md"
    asked = ["quality-report", str(file), "--sensitivity", str(classes), "--recipe", str(searched)]
    assert run(app, [*asked, "--html", str(html), "--markdown", str(markdown)]) == 0
    for text in (html.read_text(encoding="utf-8"), markdown.read_text(encoding="utf-8")):
        for title in ("Which matrices bear to be quantised", "Recipe", "How the recipe was found"):
            assert title in text
    without = tmp_path / "without.md"
    assert run(app, ["quality-report", str(file), "--markdown", str(without)]) == 0
    assert "How the recipe was found" not in without.read_text(encoding="utf-8")


@pytest.mark.parametrize("option", ["--sensitivity", "--recipe"])
def test_records_of_other_weights_are_refused(records, option, tmp_path, capsys):
    file, classes, searched = records
    own = (classes if option == "--sensitivity" else searched).read_text(encoding="utf-8")
    other = tmp_path / "other.json"
    other.write_text(own.replace(read_sensitivity(classes).model.digest, "f" * 16), encoding="utf-8")
    assert run(app, ["quality-report", str(file), option, str(other), "--html", str(tmp_path / "page.html")]) == 1
    assert "whose weights are not those of synthetic:tiny" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("read", [read_sensitivity, read_found_recipe])
@pytest.mark.parametrize("text", ["", "[]", '{"schema": "cplab.quality/1"}', None])
def test_what_is_no_such_record_is_refused_in_a_line(read, text, tmp_path):
    file = tmp_path / "record.json"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(UnreadableRecordError, match=r"record\.json"):
        read(file)
