"""What the rivals are made of besides llama.cpp: the derived file, the heads, the registry, the missing extra."""

from __future__ import annotations

import builtins
import os
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "cplab"))
from small_models import inputs, projected_model

from cplab.errors import VariantUnavailableError
from cplab.llama import engine
from cplab.llama.derived import derived_file, derived_path, layer_bytes
from cplab.llama.heads import Matrix
from cplab.llama.settings import TIERS
from cplab.variant import get_variant

RIVALS = [f"llama_{how}_{kind}" for how in ("kv", "recompute") for kind in TIERS]


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CPLAB_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", RIVALS)
def test_each_rival_is_registered_with_its_tier(name):
    item = get_variant(name)
    how, kind = name.removeprefix("llama_").split("_", 1)
    assert (item.format, item.tier, item.extra) == (kind, TIERS[kind], "llama")
    assert item.tier == ("codes" if kind == "f32" else "quality")
    assert item.arithmetic == name
    assert Path(item.source).name == f"llama_{how}.py"
    assert "llama.cpp" in item.summary


@pytest.mark.parametrize("name", ["llama_kv_q8_0", "llama_recompute_f32"])
def test_a_missing_extra_is_told_with_the_command(tiny, name, monkeypatch):
    real = builtins.__import__

    def without(wanted, *rest):
        if wanted.startswith("llama_cpp"):
            raise ModuleNotFoundError("No module named 'llama_cpp'")
        return real(wanted, *rest)

    engine.bindings.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(VariantUnavailableError, match=r"python -m pip install 'cplab\[llama\]'"):
        get_variant(name).build(tiny, 1)


@pytest.mark.parametrize("kind", list(TIERS))
def test_the_derived_file_is_a_qwen3_of_the_layers(tiny, kind, own_cache):
    path = derived_file(tiny, kind)
    reader = gguf.GGUFReader(path)
    known = gguf.GGMLQuantizationType[kind.upper()]
    stored = {t.name: t for t in reader.tensors}
    assert reader.fields["general.architecture"].contents() == "qwen3"
    assert reader.fields["qwen3.attention.key_length"].contents() == tiny.spec.head_dim
    assert reader.fields["qwen3.rope.freq_base"].contents() == 1e6
    assert len(stored) == 2 + 11 * tiny.spec.layers
    down = stored["blk.1.ffn_down.weight"]
    assert down.tensor_type == known
    expected = gguf.quants.dequantize(
        gguf.quants.quantize(tiny.f32("model.layers.1.mlp.down_proj.weight"), known), known
    )
    np.testing.assert_array_equal(gguf.quants.dequantize(down.data, down.tensor_type), expected)
    assert stored["output_norm.weight"].tensor_type == gguf.GGMLQuantizationType.F32
    matrices = [t for t in reader.tensors if t.name.startswith("blk.") and len(t.shape) == 2]
    assert sum(t.n_bytes for t in matrices) == layer_bytes(tiny, kind)


def test_the_derived_file_is_written_once_and_whole(tiny, own_cache):
    first = derived_file(tiny, "q8_0")
    stamp = first.stat().st_mtime_ns
    assert derived_file(tiny, "q8_0") == first == derived_path(tiny, "q8_0")
    assert first.stat().st_mtime_ns == stamp
    assert [path.name for path in first.parent.iterdir()] == [first.name]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", list(TIERS))
def test_heads_have_the_bits_of_the_labs_own_variant(kind, threads, fresh_process):
    """Given the same hidden state; B = 3 at once, as one at a time."""
    source = (
        "import json, numpy as np\nfrom cplab.llama.heads import Matrix\n"
        "from cplab.oracle_quantised import oracle_for\nfrom cplab.sources import load_model\n"
        f"model = load_model('synthetic:tiny').repacked('{kind}')[0]\n"
        f"oracle = oracle_for(model, '{kind}' if '{kind}'[0] == 'q' else 'f32')\n"
        "x = np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)\n"
        f"matrix = Matrix(model.tensors['lm_head.1.weight'], '{kind}', {threads})\n"
        "truth = np.stack([oracle.head(1, row) for row in x])\n"
        "alone = np.concatenate([matrix.times(row[None]) for row in x])\n"
        "print(json.dumps([matrix.times(x).tobytes() == truth.tobytes(), alone.tobytes() == truth.tobytes()]))"
    )
    assert fresh_process(source, NUMBA_NUM_THREADS=2) == [True, True]


def test_the_projection_is_a_matrix_like_a_head():
    model = projected_model()
    hidden, _ = inputs(model, 2)
    y = Matrix(model.tensors["small_to_mtp_projection.weight"], "f32", 1).times(hidden)
    from cplab.oracle import Oracle

    oracle = Oracle(model)
    assert np.array_equal(y + model.f32("small_to_mtp_projection.bias"), np.stack([oracle.project(h) for h in hidden]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_fork_of_a_process_whose_heads_had_a_team_is_refused_one(fresh_process):
    said = fresh_process(
        """
import json, os
from small_models import inputs, small_model
from cplab.decoder import Decoder
from cplab.llama.heads import Matrix
model = small_model("tiny")
hidden, cb0 = inputs(model, 2)
Matrix(model.tensors["lm_head.1.weight"], "f32", 2).times(hidden)
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    try:
        Decoder(model, 2, format="f32").predict(hidden, cb0)
    except BaseException as error:
        os.write(writer, type(error).__name__.encode())
    os._exit(0)
os.close(writer)
print(json.dumps([os.read(reader, 4096).decode(), os.waitpid(child, 0)[1]]))
""",
        NUMBA_NUM_THREADS=2,
    )
    assert said == ["ForkedTeamError", 0]
