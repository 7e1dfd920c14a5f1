"""Block formats beside each other before any has a kernel: what each holds, and which are worth one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cplab"))

from small_models import small_model

from bench.cli import app
from bench.cli_formats import kernel_words
from bench.quality import block_formats
from bench.quality.block_formats import NAMES, bits_per_weight, through, unable
from bench.quality.float_law import FloatLaw
from bench.quality.format_table import FITTED, OWN, format_table
from bench.quality.naive_distance import naive_distance
from bench.quality.trials import Trials
from bench.records.format_table import FormatTable
from bench.records.summarised import ModelFacts
from cplab.commandline import run
from cplab.errors import BadInputError, UnpackableError
from cplab.formats import FORMATS, format_named
from cplab.golden import find_golden
from cplab.golden_making import make_golden
from cplab.input_energy import input_energies
from cplab.naive import Naive
from cplab.variant import get_variant

ABOUT = ModelFacts(name="tiny", spec={}, digest="", synthetic=True)
BY_GGML = [name for name in NAMES if name not in FORMATS]


@pytest.fixture(scope="module")
def subject():
    model = small_model("tiny")
    return model, FloatLaw(model, find_golden(model), 1).of_golden(8)


@pytest.fixture(scope="module")
def table(subject):
    model, truth = subject
    return format_table(model, truth, input_energies(model), ABOUT, "a warning")


def gaussian(rows=8, n=512):
    return np.random.default_rng(7).standard_normal((rows, n)).astype(np.float32)


@pytest.mark.parametrize("name", ["q8_0", "q6_k", "q5_0", "q4_0"])
def test_what_the_lab_has_a_format_for_comes_back_as_from_that(name):
    own = format_named(name)
    assert np.array_equal(through(name, gaussian()), own.unpack(own.pack(gaussian())))
    assert bits_per_weight(name) == FORMATS[name].bits_per_weight


@pytest.mark.parametrize("name", BY_GGML)
def test_ggmls_own_blocks_are_near_and_more_bits_are_nearer(name):
    pytest.importorskip("llama_cpp")
    weights = gaussian()
    away = {one: float(np.square(through(one, weights) - weights).mean()) for one in (name, "q4_0", "q8_0")}
    assert away["q8_0"] < away[name] < away["q4_0"]


def test_blocks_that_a_file_holds_are_what_is_judged():
    pytest.importorskip("llama_cpp")
    packed = block_formats._by_ggml(gguf.GGMLQuantizationType.Q4_K, gaussian())
    assert packed.shape == (8, 512 // 256 * 144)
    assert np.array_equal(gguf.quants.dequantize(packed, gguf.GGMLQuantizationType.Q4_K), through("q4_k", gaussian()))


def test_what_cannot_be_had_says_why(monkeypatch):
    assert unable("q6_k", {1024, 64}) == "rows of 64 weights are not made of whole blocks of 256"
    assert unable("q5_0", {1024, 64}) == ""
    monkeypatch.setattr(block_formats, "_ggml", lambda: None)
    assert "pip install" in unable("q4_k", {1024})
    assert unable("q6_k", {1024}) == unable("q4_0", {1024}) == ""
    with pytest.raises(BadInputError, match="pip install"):
        through("iq4_nl", gaussian())
    with pytest.raises(BadInputError, match="no block format 'q9'"):
        bits_per_weight("q9")


def test_a_weight_beyond_the_scales_is_refused():
    with pytest.raises(UnpackableError, match="float16 scales of q5_0"):
        through("q5_0", np.full((1, 32), 3e38, np.float32))


def test_a_row_is_what_the_naive_implementation_of_that_format_loses(subject, table):
    model, truth = subject
    for name in ("q8_0", "q4_0"):
        (row,) = (row for row in table.rows if row.format == name)
        logits = Naive(model, name).scored(truth.hidden, truth.cb0_embed, truth.codes)
        assert row.lost.rmse.value == pytest.approx(float(np.sqrt(np.square(logits - truth.logits).mean())), rel=1e-5)
        own = Trials(model, truth, 1)
        assert naive_distance(own.logits({"all": name}), truth, Naive(model, name), name).passed


def test_the_first_row_is_what_activations_lose_alone(table):
    first = table.rows[0]
    assert first.bits_per_weight == 16
    assert 0 < first.damage < table.rows[1].damage


def test_bytes_are_what_a_frame_of_whole_lines_streams():
    model = small_model("projected")
    truth = FloatLaw(model, make_golden(model, 2), 1).of_golden()
    table = format_table(model, truth, input_energies(model), ABOUT, "")
    wide = {row.format: row.bytes_per_frame for row in table.rows}["q8_0"]
    spec = model.spec
    heads = spec.passes * spec.vocab * spec.hidden
    per_pass = sum(
        tensor.shape[0] * tensor.shape[1]
        for name, tensor in model.tensors.items()
        if name.endswith("_proj.weight") or name == "small_to_mtp_projection.weight"
    )
    assert wide == (heads + spec.passes * per_pass) * 34 // 32


def test_the_front_is_what_nothing_that_is_no_larger_beats(table):
    by = {row.format: row for row in table.rows}
    assert by["q8_0"].beaten_by == by["q5_0"].beaten_by == []
    assert by["q8_0"].damage < by["q5_0"].damage < by["q4_0"].damage
    assert FITTED in by["q4_0"].beaten_by
    for row in table.rows:
        for name in row.beaten_by:
            assert by[name].bytes_per_frame <= row.bytes_per_frame
            assert by[name].damage < row.damage


def test_formats_of_wider_blocks_are_left_out_of_a_narrow_model(table):
    assert set(table.left_out) == {"q6_k", "q4_k"} | (set() if block_formats._ggml() else {"iq4_nl"})
    assert [row.format for row in table.rows if row.format != "iq4_nl"] == [OWN, "q8_0", "q5_0", "q4_0", FITTED]


def test_the_command_prints_the_table_and_writes_it(tmp_path, capsys):
    file = tmp_path / "formats.json"
    asked = ["formats", "--model", "synthetic:tiny", "-t", "1", "--frames", "4", "--json", str(file)]
    assert run(app, asked) == 0
    told = capsys.readouterr().out
    found = FormatTable.model_validate(json.loads(file.read_text(encoding="utf-8")))
    assert found.frames == 4
    assert all(f"{row.lost.kl.value:.3g}" in told for row in found.rows)
    assert "q6_k: rows of 64 weights" in told
    assert found.warning in " ".join(told.split())


# -- kernels ----------------------------------------------------------------------------------------------------------


def test_what_has_a_kernel_names_variants_that_hold_that_format(table):
    assert list(table.kernels) == [name for name, kind in FORMATS.items() if kind.in_files]
    for name, by in table.kernels.items():
        assert by, "each format of the lab's has a variant"
        assert {get_variant(one).format for one in by} == {name}
    assert "kv_q6_k" in table.kernels["q6_k"]
    assert "bf12" not in table.kernels


def test_what_is_only_read_is_what_reading_expands(table):
    assert set(BY_GGML) <= set(table.only_read)
    assert not set(table.only_read) & set(table.kernels)
    for name in table.only_read:
        kind = gguf.GGMLQuantizationType[name.upper()]
        block, nbytes = gguf.GGML_QUANT_SIZES[kind]
        assert gguf.quants.dequantize(np.zeros((1, nbytes), np.uint8), kind).shape == (1, block)


def test_both_are_told_and_older_records_tell_neither(table):
    run_here, read_only = kernel_words(table)
    assert "q6_k: kv_q6_k" in run_here
    assert "q4_k" not in run_here
    assert "q4_k" in read_only
    older = table.model_dump(by_alias=True, exclude={"kernels", "only_read"})
    assert kernel_words(FormatTable.model_validate(older)) == []
