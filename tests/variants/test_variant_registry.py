"""Variants are found by entry point or by file, each name once, and a wrong name is answered with the nearest."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points

import pytest

from cplab import cp_load
from cplab import variant as registry
from cplab.errors import UnknownVariantError
from cplab.formats import FORMATS
from cplab.sources import load_model
from cplab.variant import CodePredictor, get_variant, load_variant_file, variants

OURS = {
    "recompute_f32": ("f32", "f32", "exact"),
    "recompute_f16": ("f16", "f32", "exact"),
    "kv_f32": ("f32", "f32", "exact"),
    "kv_bf16": ("bf16", "f32", "exact"),
    "kv_bf12": ("bf12", "f32", "exact"),
    "kv_f16": ("f16", "f32", "exact"),
    "kv_q8_0": ("q8_0", "q8_0", "exact"),
    "kv_q6_k": ("q6_k", "q6_k", "exact"),
    "kv_q5_0": ("q5_0", "q5_0", "exact"),
    "kv_q4_0": ("q4_0", "q4_0", "exact"),
    "spec_bf16": ("bf16", "f32", "exact"),
    "spec_bf12": ("bf12", "f32", "exact"),
    "spec_f16": ("f16", "f32", "exact"),
    "spec_bf16_q4_0": ("bf16", "f32", "exact"),
    "spec_bf16_q8_0": ("bf16", "f32", "exact"),
    "spec_bf12_q4_0": ("bf12", "f32", "exact"),
    "numpy_f32": ("f32", "blas_f32", "codes"),
}

MINE = '''"""My variant: it is the best."""
from cplab import cp_load
from cplab.variant import variant

@variant("{name}", format="f32", arithmetic="f32", tier="exact")
def build(model, threads):
    return cp_load("synthetic:tiny", "kv_f32", threads)
'''


@pytest.fixture
def own_registry(monkeypatch):
    """A copy of the registry that a test may add to."""
    variants()
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    yield
    for name in [n for n in sys.modules if n.startswith("cplab_variant_")]:
        del sys.modules[name]


def file_with(tmp_path, text, name="mine.py"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_the_labs_variants_are_entry_points_like_anybodys():
    found = variants()
    assert {p.name for p in entry_points(group="cplab.variants")} <= found.keys()
    for name, facts in OURS.items():
        item = found[name]
        assert (item.format, item.arithmetic, item.tier) == facts
        assert item.name == name
        assert item.extra == ""
        assert item.source.endswith(f"{name}.py")
        assert item.summary
        assert not item.summary.endswith("\n")


@pytest.mark.parametrize("name", list(OURS))
def test_every_variant_builds_a_code_predictor_that_says_what_a_frame_costs(tiny, name):
    packed = "bf12" in name
    if OURS[name][1].startswith("q") or packed:  # rows of whole lines, beside which a row's list of exceptions is small
        tiny = load_model("synthetic:tiny-wide")
    predictor = get_variant(name).build(tiny, 1)
    assert isinstance(predictor, CodePredictor)
    bits = FORMATS[OURS[name][0]].bits_per_weight
    share = 8 * predictor.bytes_per_frame / (2 * tiny.spec.weights_per_pass * bits)
    assert predictor.passes_per_frame == 2
    assert 1 < share < 1.05 if packed else share == 1  # lists of exceptions, and whole lines
    assert sum(s.rows * s.row_bytes for s in predictor.streams()) == predictor.bytes_per_frame


def test_a_variants_factory_is_still_a_function():
    from variants import kv_bf16

    assert get_variant("kv_bf16").build is kv_bf16.build


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [("kv_bf", "kv_bf16"), ("numpy", "numpy_f32"), ("kvf32", "kv_f32"), ("recompute", "recompute")],
)
def test_an_unknown_variant_is_answered_with_the_nearest(wrong, nearest):
    with pytest.raises(UnknownVariantError, match=f"did you mean {nearest}"):
        get_variant(wrong)
    with pytest.raises(UnknownVariantError, match=f"did you mean {nearest}"):
        cp_load("synthetic:tiny", wrong, 1)


def test_a_name_like_no_other_is_answered_with_all():
    with pytest.raises(UnknownVariantError) as error:
        get_variant("zzz")
    assert all(name in str(error.value) for name in OURS)
    assert "\n" not in str(error.value)


@pytest.mark.usefixtures("own_registry")
def test_a_file_brings_its_variant(tmp_path):
    path = file_with(tmp_path, MINE.format(name="mine_is_best"))
    load_variant_file(path)
    item = get_variant("mine_is_best")
    assert item.source == str(path)
    assert item.summary == "My variant: it is the best."
    assert cp_load("synthetic:tiny", "mine_is_best", 1).passes_per_frame == 2


@pytest.mark.usefixtures("own_registry")
def test_a_name_clash_is_refused(tmp_path):
    before = get_variant("kv_f32")
    path = file_with(tmp_path, MINE.format(name="kv_f32"))
    with pytest.raises(UnknownVariantError, match=r"registered by .*kv_f32\.py already") as error:
        load_variant_file(path)
    assert str(path) in str(error.value)
    assert get_variant("kv_f32") is before


@pytest.mark.usefixtures("own_registry")
def test_a_clash_is_a_value_error_where_it_is_decorated():
    with pytest.raises(ValueError, match="registered by"):

        @registry.variant("kv_f32", format="f32")
        def build(model, threads): ...


def test_what_the_package_names_is_what_it_gives(fresh_process):
    source = (
        "import json, cplab\nprint(json.dumps([callable(getattr(cplab, n)) for n in cplab.__all__ if n[0] != '_']))"
    )
    assert fresh_process(source) == [True, True, True, True]


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("x = 1\n", "registers no variant"),
        ("import a_module_that_is_nowhere\n", "a_module_that_is_nowhere"),
        ("def broken(:\n", "SyntaxError"),
        ("x = y\n", "NameError"),
    ],
)
def test_a_file_without_a_variant(tmp_path, text, word):
    path = file_with(tmp_path, text)
    with pytest.raises(UnknownVariantError, match=word) as error:
        load_variant_file(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("name", ["none.py", "mine.txt", ""])
def test_what_is_not_a_python_file(tmp_path, name):
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(UnknownVariantError, match="not a Python file"):
        load_variant_file(tmp_path / name)


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("which", ["installed", "twice"])
def test_a_file_that_was_loaded_before_is_no_error(tmp_path, which):
    if which == "installed":
        from pathlib import Path

        path = Path(get_variant("kv_f32").source)
    else:
        path = file_with(tmp_path, MINE.format(name="mine_again"))
        load_variant_file(path)
    load_variant_file(path)


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("text", ["1 / 0\n", "raise RuntimeError('no')\n", "open('/nowhere/at/all')\n", "{}['key']\n"])
def test_a_file_that_fails_in_any_way_is_named(tmp_path, text):
    with pytest.raises(UnknownVariantError, match=r"mine\.py"):
        load_variant_file(file_with(tmp_path, text))
