"""Settings are tried in a child that may die of them; here a child of the tests' own plays llama.cpp."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time

import psutil
import pytest

from cplab.errors import EngineError
from cplab.llama import probing
from cplab.llama.probing import Choice, Tried, choose, try_all
from cplab.llama.settings import TIERS, Settings, settings_for

#: A program with the trial's contract. It answers as the job's ``script`` says for the kind of extra buffers.
CHILD = """
import json, os, signal, sys, time
job = json.load(open(sys.argv[1]))
results = open(sys.argv[2], "a")
open(job["log"], "a").write(",".join(job["settings"]) + "\\n")
for number, chosen in job["settings"].items():
    does = job["script"][chosen["buffers"]]
    if does == "dies":
        os.kill(os.getpid(), signal.SIGSEGV)
    if does == "hangs":
        time.sleep(600)
    if does == "raises":
        raise RuntimeError("a bug of its author")
    if does == "refuses":
        told = {"refused": "llama.cpp refuses that"}
    else:
        share = does.get("share", 1)
        told = {"frame_ms": does["ms"] + chosen["flash"], "distance": does["distance"], "cpu_share": share}
    results.write(json.dumps({"number": int(number), **told}) + "\\n")
    results.flush()
"""
GOOD = {"ms": 50.0, "distance": 0.1}
LIMIT = 0.2


@pytest.fixture
def tried(tmp_path):
    child = tmp_path / "child.py"
    child.write_text(CHILD)

    def run(kind="q8_0", patience_s=60.0, **script):
        job = {"script": script, "log": str(tmp_path / "log")}
        found = try_all(job, settings_for(kind), tmp_path, command=(sys.executable, str(child)), patience_s=patience_s)
        return found, (tmp_path / "log").read_text().splitlines()

    return run


def test_one_child_tries_all_where_none_dies(tried):
    found, children = tried(all=GOOD, repack=GOOD, none=GOOD)
    assert len(children) == 1
    assert [t.settings for t in found] == settings_for("q8_0")
    assert all(t.right(LIMIT) for t in found)


def test_a_setting_that_kills_its_child_costs_itself_only(tried):
    found, children = tried(all="dies", repack=GOOD, none={"ms": 40.0, "distance": 0.1})
    assert len(children) == 5  # four settings died, and one child went on to the end
    assert {t.failed for t in found if t.settings.buffers == "all"} == {"killed by SIGSEGV"}
    choice = choose(found, LIMIT)
    assert choice.settings == Settings(False, "none", "f16")
    assert "the fastest of 8 that work, of 12 tried" in choice.note
    assert "killed by SIGSEGV with extra buffers 'all'" in choice.note


def test_a_setting_that_hangs_is_ended(tried):
    found, _ = tried(kind="f32", patience_s=1.0, all=GOOD, none="hangs")
    assert [t.failed for t in found] == ["", "", "no answer within 1 s", "no answer within 1 s"]


def test_a_child_that_breaks_tells_its_last_line(tried):
    found, _ = tried(kind="f32", all="raises", none=GOOD)
    assert found[0].failed == "exited with 1: RuntimeError: a bug of its author"


def test_a_refusal_is_told_as_it_is(tried):
    found, children = tried(all=GOOD, repack="refuses", none=GOOD)
    assert len(children) == 1
    assert "llama.cpp refuses that with extra buffers 'repack'" in choose(found, LIMIT).note


def test_the_fastest_that_is_wrong_is_passed_over(tried):
    found, _ = tried(all={"ms": 10.0, "distance": 5.0}, repack={"ms": 20.0, "distance": None}, none=GOOD)
    assert choose(found, LIMIT).settings.buffers == "none"


@pytest.mark.parametrize(("distance", "word"), [(None, "non-finite"), (9.0, "wrong")])
def test_where_all_are_wrong_one_is_left_for_the_gate_to_say_so(tried, distance, word):
    found, _ = tried(all="dies", repack={"ms": 20.0, "distance": distance}, none={"ms": 30.0, "distance": distance})
    choice = choose(found, LIMIT)
    assert choice.settings == Settings(False, "repack", "f16")
    assert f"{word} hidden states with every setting" in choice.note


def test_where_every_setting_dies_the_error_names_each(tried):
    found, _ = tried(all="dies", repack="dies", none="dies")
    with pytest.raises(EngineError, match="no answer with any settings") as error:
        choose(found, LIMIT)
    assert str(error.value).count("SIGSEGV") == 12


@pytest.mark.parametrize(("share", "disturbed"), [(0.95, False), (0.5, True)])
def test_times_from_a_busy_machine_are_told_so(tried, share, disturbed):
    found, _ = tried(kind="f32", all=GOOD, none={**GOOD, "share": share})
    choice = choose(found, LIMIT)
    assert choice.disturbed is disturbed
    assert ("busy processes" in choice.note) is disturbed


@pytest.mark.parametrize(("disturbed", "age_s", "known"), [(False, 1e6, True), (True, 60, True), (True, 4000, False)])
def test_a_disturbed_choice_is_kept_for_an_hour(tmp_path, disturbed, age_s, known):
    path = tmp_path / "settings.json"
    settings = settings_for("f32")[0]
    path.write_text(json.dumps({"settings": settings.as_dict(), "note": "n", "disturbed": disturbed}))
    then = time.time() - age_s
    os.utime(path, (then, then))
    assert probing._read(path, "f32") == (Choice(settings, "n", disturbed) if known else None)
    assert probing._read(tmp_path / "none.json", "f32") is None


@pytest.mark.parametrize("limit", [float("nan"), float("inf")])
def test_a_limit_that_overflowed_lets_no_nan_through(limit):
    assert not Tried(settings_for("f16")[0], 1.0, None).right(limit)
    assert Tried(settings_for("f16")[0], 1.0, 1e3).right(limit)


def test_settings_that_overflow_are_named_where_others_do_not(tried):
    found, _ = tried(kind="f16", all=GOOD, none={"ms": 1.0, "distance": None})
    choice = choose(found, float("nan"))
    assert choice.settings.buffers == "all"
    assert "non-finite hidden states with extra buffers 'none'" in choice.note


@pytest.mark.parametrize("kind", list(TIERS))
def test_what_is_tried_begins_with_the_engines_own_defaults(kind):
    settings = settings_for(kind)
    assert len(set(settings)) == len(settings)
    assert settings[0].buffers == "all"
    assert settings[0].flash
    assert {s.cache for s in settings} == ({"f32"} if kind == "f32" else {"f16", "f32"})
    assert [Settings(**json.loads(json.dumps(s.as_dict()))) for s in settings] == settings


DAMAGED = [
    "",
    "{}",
    '{"settings": {"flash": true}, "note": "", "disturbed": false}',
    '{"settings": {"flash": true, "buffers": "all", "cache": "f64"}, "note": "", "disturbed": false}',
    '{"settings": [1]}',
    "[]",
    "{",
]


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_choice_counts_as_none(tmp_path, text):
    kept = tmp_path / "settings.json"
    kept.write_text(text)
    assert probing._read(kept, "q8_0") is None
    kept.write_text(json.dumps({"settings": settings_for("q8_0")[0].as_dict(), "note": "why", "disturbed": False}))
    assert probing._read(kept, "q8_0") == Choice(settings_for("q8_0")[0], "why", False)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux ends a child with its parent on request")
def test_a_trial_does_not_outlive_whoever_started_it(tmp_path):
    """Killed, the starter cannot end it; the trial waits for a job that never comes."""
    pytest.importorskip("llama_cpp")
    job = tmp_path / "job.json"
    os.mkfifo(job)
    starter = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys\n"
            "child = subprocess.Popen([sys.executable, '-m', 'cplab.llama.trial', *sys.argv[1:]])\n"
            "print(child.pid, flush=True)\nchild.wait()",
            str(job),
            str(tmp_path / "results"),
        ],
        stdout=subprocess.PIPE,
    )
    assert starter.stdout is not None
    with starter.stdout:
        child = psutil.Process(int(starter.stdout.readline()))
    writer = os.open(job, os.O_WRONLY)  # waits until the trial reads
    starter.kill()
    starter.wait()
    with contextlib.suppress(psutil.NoSuchProcess):
        child.wait(10)
    os.close(writer)
