"""Recipes: what a text asks for is what a model and a file become, and a mix has the bits of its own law."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import exact_quantised
import numpy as np
import pytest
from checkpoint_files import Folder
from small_models import digest, forced_codes, inputs, oracle_logits, same_bits, small_model

from cplab.__main__ import app
from cplab.commandline import run
from cplab.decoder import Decoder
from cplab.errors import BadInputError
from cplab.export import planned
from cplab.formats import FORMATS
from cplab.gate import judge
from cplab.gating import gate_cell
from cplab.golden_making import make_golden
from cplab.model import Model, is_streamed
from cplab.oracle_quantised import in_arithmetic, oracle_for, stored_law
from cplab.recipe import Recipe, applied, parse, read_recipe, unit_of, units_of
from cplab.sources import load_model
from cplab.variant import Trace, get_variant

#: Every change of format that follows another within a layer, over two layers, and heads of each kind.
MIXED = """
all        bf16
qkv        q8_0
o.0        q4_0    # of the first layer
gate_up.1  q4_0
down.0     q8_0
down.1     q4_0
heads      q4_0
heads.0    q8_0
heads.1    f32
"""


@pytest.fixture(params=["tiny", "projected"])
def model(request):
    return small_model(request.param)


def mixed(model, text=MIXED):
    return applied(model, parse(text))[0]


# -- the text ---------------------------------------------------------------------------------------------------------


def test_the_narrower_line_wins_wherever_it_stands():
    recipe = parse("heads.0 f16\nheads q8_0\nall q4_0\ndown.1 bf16\n")
    assert recipe.of("lm_head.0.weight") is FORMATS["f16"]
    assert recipe.of("lm_head.1.weight") is FORMATS["q8_0"]
    assert recipe.of("model.layers.1.mlp.down_proj.weight") is FORMATS["bf16"]
    assert recipe.of("model.layers.0.mlp.down_proj.weight") is FORMATS["q4_0"]
    assert recipe.of("model.layers.0.self_attn.k_proj.weight") is FORMATS["q4_0"]
    for kept in ("model.norm.weight", "model.codec_embedding.0.weight", "model.layers.0.self_attn.q_norm.weight"):
        assert recipe.of(kept) is None


def test_what_no_line_names_stays(model):
    changed, count = applied(model, parse("o q4_0"))
    assert count > 0
    for name, tensor in changed.tensors.items():
        assert (tensor is model.tensors[name]) != name.endswith("o_proj.weight")


def test_a_recipe_reads_itself_again():
    recipe = parse(MIXED)
    assert parse(recipe.text()) == recipe


def test_every_matrix_is_in_one_unit(model):
    units = units_of(model.spec)
    assert sorted(name for names in units.values() for name in names) == sorted(filter(is_streamed, model.tensors))
    assert all(unit_of(name) == unit for unit, names in units.items() for name in names)
    assert [len(units[f"{of}.1"]) for of in ("qkv", "o", "gate_up", "down")] == [3, 1, 2, 1]
    assert ("projection" in units) == model.spec.projected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("all q8_0\nffn q4_0", "line 2: ffn: no class of matrices"),
        ("heads.x q4_0", "line 1: heads.x: no class"),
        ("all.1 q4_0", "line 1: all.1: no class"),
        ("projection.0 q4_0", "no class of matrices"),
        ("o q9_9", "line 1: no weight format 'q9_9'"),
        ("o", "a class and a format are wanted"),
        ("o q8_0 q4_0", "a class and a format are wanted"),
        ("o q8_0\n\no bf16", "line 3: o has a line already"),
        ("# nothing", "no line with a class and a format"),
    ],
)
def test_a_line_that_says_nothing_known_is_told(text, told):
    with pytest.raises(BadInputError) as error:
        parse(text)
    assert told in str(error.value)


@pytest.mark.parametrize("key", ["down.9", "heads.40", "projection"])
def test_what_the_model_does_not_have_is_refused(key):
    with pytest.raises(BadInputError, match=f"the recipe names {key}"):
        applied(small_model("tiny"), Recipe({key: "q8_0"}))


# -- the law of a mix -------------------------------------------------------------------------------------------------


def test_a_model_of_one_format_has_that_formats_law(tiny):
    assert stored_law(tiny) == "f32"
    assert stored_law(applied(tiny, parse("all f16\nheads bf16"))[0]) == "f32"
    assert stored_law(applied(tiny, parse("all q4_0"))[0]) == "q4_0"
    assert stored_law(mixed(tiny)) == "stored"


@pytest.mark.parametrize("kind", ["q8_0", "q5_0", "q4_0"])
def test_a_mix_of_one_is_that_law_bit_for_bit(model, kind):
    whole = in_arithmetic(model, kind)
    hidden, cb0 = inputs(model, 2)
    one = [oracle_for(whole, kind).frame(*pair).logits for pair in zip(hidden, cb0, strict=True)]
    other = [oracle_for(whole, "stored").frame(*pair).logits for pair in zip(hidden, cb0, strict=True)]
    assert same_bits(np.stack(one), np.stack(other))


def test_each_matrix_has_the_law_of_its_own_format(model):
    """One matrix at a time: a quantised one by rationals, a float one by its exact sum, to float32's own error."""
    oracle = oracle_for(mixed(model), "stored")
    x = np.random.default_rng(2).standard_normal(model.spec.hidden).astype(np.float32)
    seen = set()
    for name, tensor in oracle.model.tensors.items():
        if not is_streamed(name) or tensor.shape[1] != len(x):
            continue
        seen.add(tensor.format.name)
        y, W = oracle.linear(name, x), tensor.f32()
        if tensor.format.blocks is None:
            exact = [
                float(sum(Fraction(float(a)) * Fraction(float(b)) for a, b in zip(w, x, strict=True))) for w in W[:3]
            ]
            np.testing.assert_allclose(y[:3], exact, rtol=1e-4, atol=1e-6)
            continue
        q, d = exact_quantised.quantise(x)
        scales = tensor.data["d"].astype(np.float32)
        steps = np.repeat(scales, 32, -1)
        integers = np.divide(W, steps, out=np.zeros_like(W), where=steps != 0)
        rows = zip(integers[:5], scales[:5], strict=True)
        assert same_bits(y[:5], np.array([exact_quantised.dot(*row, q, d) for row in rows], np.float32))
    assert seen == {"bf16", "q8_0", "q4_0", "f32"}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("recompute", [False, True], ids=["kv", "recompute"])
def test_the_kernels_give_the_bits_of_the_mix(model, threads, recompute):
    model = mixed(model)
    hidden, cb0 = inputs(model, 3)
    decoder = Decoder(model, threads, format="stored", recompute=recompute)
    for forced in (None, forced_codes(model, 3)):
        trace = Trace()
        codes = decoder.predict(hidden, cb0, forced=forced, trace=trace)
        assert digest(codes, trace.logits) == digest(*oracle_logits(model, hidden, cb0, forced, "stored"))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_mix_of_every_format_has_the_bits_of_its_laws(threads):
    recipe = (
        "heads q6_k\nheads.0 q5_0\nqkv q5_0\nqkv.1 f16\no q6_k\ngate_up q4_0\ngate_up.1 q6_k\ndown q8_0\ndown.1 q5_0"
    )
    held, _ = applied(small_model("wide"), parse(recipe))
    hidden, cb0 = inputs(held, 3)
    trace = Trace()
    codes = Decoder(held, threads, format="stored").predict(hidden, cb0, trace=trace)
    assert digest(codes, trace.logits) == digest(*oracle_logits(held, hidden, cb0, None, "stored"))


def test_stored_in_one_format_is_the_variant_of_that_format():
    wide = small_model("wide")
    hidden, cb0 = inputs(wide, 2)
    for kind in ("bf16", "q8_0", "q6_k", "q5_0", "q4_0"):
        held = applied(wide, Recipe({"all": kind}))[0]
        logits = []
        for variant in (f"kv_{kind}", "kv_stored"):
            trace = Trace()
            get_variant(variant).build(held, 1).predict(hidden, cb0, trace=trace)
            logits.append(trace.logits)
        assert same_bits(*logits)


def test_bytes_are_those_of_the_formats(tiny):
    held = mixed(tiny)
    decoder = Decoder(held, 1, format="stored")
    passes = tiny.spec.passes
    matrices = {n: t for n, t in held.tensors.items() if is_streamed(n)}
    bits = {n: t.format.bits_per_weight * np.prod(t.shape) for n, t in matrices.items()}
    # A row of 64 or 160 columns of Q4_0 is filled up to whole lines of 128.
    padded = {
        n: bits[n] * (-(-t.shape[1] // 128) * 128 / t.shape[1] if t.format.name == "q4_0" else 1)
        for n, t in matrices.items()
    }
    padded |= {
        n: padded[n] * (-(-t.shape[1] // 64) * 64 / t.shape[1]) for n, t in matrices.items() if t.format.name == "q8_0"
    }
    wanted = sum(count * (1 if n.startswith("lm_head") else passes) for n, count in padded.items()) / 8
    assert decoder.bytes_per_frame == wanted
    assert sum(s.rows * s.row_bytes for s in decoder.streams()) == wanted


def test_what_streams_as_one_must_be_stored_alike(tiny):
    name = "model.layers.0.mlp.up_proj.weight"
    tensor = tiny.tensors[name]
    other = replace(tensor, format=FORMATS["q8_0"], data=tensor.packed(FORMATS["q8_0"]))
    with pytest.raises(BadInputError, match=r"gate_proj\.weight bf16, .*up_proj\.weight q8_0"):
        Decoder(Model("m", tiny.spec, {**tiny.tensors, name: other}), 1, format="stored")


# -- the gate ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path, monkeypatch, tiny):
    monkeypatch.setenv("CPLAB_CACHE", str(tmp_path / "cache"))


def test_the_gate_holds_a_mix_to_its_own_oracle(tiny, cache):
    cell = gate_cell(get_variant("kv_stored"), mixed(tiny), 1, frames=2)
    assert cell.report.passed, cell.report.detail()
    assert (cell.golden.arithmetic, cell.lossy_weights) == ("stored", 0)
    assert 0.3 < cell.teacher_forced <= 1


def test_a_model_in_one_format_is_gated_by_the_golden_that_there_is(tiny):
    cell = gate_cell(get_variant("kv_stored"), tiny, 1, frames=2)
    assert cell.report.passed, cell.report.detail()
    assert cell.golden.arithmetic == "f32"


@pytest.mark.parametrize("unit", ["qkv.1", "o.0", "gate_up.1", "down.0", "heads.0"])
def test_one_matrix_by_another_law_is_found(tiny, unit):
    """Its values are the same to the last bit: only what its input is rounded to differs."""
    model = mixed(tiny)
    (name, *_) = names = units_of(tiny.spec)[unit]
    assert model.tensors[name].format.blocks is not None
    golden = make_golden(model, 2, arithmetic="stored")
    floats = {n: replace(model.tensors[n], format=FORMATS["f32"], data=model.f32(n)) for n in names}
    other = Model("other", tiny.spec, {**model.tensors, **floats})
    report = judge(Decoder(other, 1, format="stored"), model, golden, arithmetic="stored")
    assert "logits" in report.failed()


# -- export -----------------------------------------------------------------------------------------------------------


def test_an_exported_mix_loads_as_the_mix(tmp_path, model):
    folder = Folder(model).write(tmp_path / "m")
    (part,) = planned(folder, tmp_path / "cp.gguf", recipe=parse(MIXED))
    done = {told.name: told for told in part.write()}
    loaded, wanted = load_model(str(tmp_path / "cp.gguf")), mixed(model)
    assert loaded.digest() == wanted.digest()
    for name in filter(is_streamed, wanted.tensors):
        assert loaded.tensors[name].format is wanted.tensors[name].format is FORMATS[done[name].after]
        assert np.array_equal(loaded.tensors[name].data, wanted.tensors[name].data)
    assert loaded.tensors["model.codec_embedding.0.weight"].format is FORMATS["bf16"]


def test_format_is_for_what_the_recipe_leaves(tmp_path, tiny):
    folder = Folder(tiny).write(tmp_path / "m")
    (part,) = planned(folder, tmp_path / "cp.gguf", matrices="q8_0", recipe=parse("down q4_0"))
    part.write()
    loaded = load_model(str(tmp_path / "cp.gguf"))
    for name in filter(is_streamed, loaded.tensors):
        assert loaded.tensors[name].format.name == ("q4_0" if "down_proj" in name else "q8_0")


def test_the_command_takes_a_recipe_and_the_gate_takes_the_file(tmp_path, tiny, cache, capsys):
    folder = Folder(tiny).write(tmp_path / "m")
    (tmp_path / "mix.txt").write_text(MIXED)
    out = tmp_path / "cp.gguf"
    assert run(app, ["export", str(folder), "--recipe", str(tmp_path / "mix.txt"), "-o", str(out)]) == 0
    said = capsys.readouterr().out
    assert "model.layers.0.self_attn.o_proj.weight [64, 128] bf16 -> q4_0: rounded" in said
    assert "model.layers.1.self_attn.o_proj.weight [64, 128] bf16 -> bf16: copied" in said
    assert gate_cell(get_variant("kv_stored"), load_model(str(out)), 1, frames=2).report.passed


@pytest.mark.parametrize(
    ("text", "told"),
    [("down.9 q4_0", "the recipe names down.9"), ("down q5", "mix.txt, line 1: no weight format 'q5'")],
)
def test_a_recipe_that_does_not_fit_writes_nothing(tmp_path, tiny, capsys, text, told):
    folder = Folder(tiny).write(tmp_path / "m")
    (tmp_path / "mix.txt").write_text(text)
    out = tmp_path / "cp.gguf"
    assert run(app, ["export", str(folder), "--recipe", str(tmp_path / "mix.txt"), "-o", str(out)]) == 1
    assert told in capsys.readouterr().err
    assert not out.exists()


def test_a_missing_recipe_is_one_line(tmp_path):
    with pytest.raises(BadInputError, match="cannot be read as a recipe"):
        read_recipe(tmp_path / "none.txt")
