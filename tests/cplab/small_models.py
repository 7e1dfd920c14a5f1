"""Small models, inputs and digests that the tests of the core use, in the test process and in fresh ones."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from cplab.formats import FORMATS, format_named
from cplab.model import Model, is_streamed
from cplab.oracle_quantised import oracle_for
from cplab.sampling import Sampling, checked_draws
from cplab.sources import load_model, synthetic
from cplab.spec import Spec

#: The 1.7B's way in, small: the talker is wider than the code predictor, and a matrix with a bias stands between.
PROJECTED = Spec(
    hidden=64,
    intermediate=160,
    layers=3,
    heads=6,
    kv_heads=2,
    head_dim=32,
    vocab=48,
    groups=5,
    rope_theta=1e6,
    rms_eps=1e-6,
    talker_hidden=96,
    projected=True,
)
#: A way to draw that goes through every kernel of sampling.
HOT = Sampling(seed=2**63 + 5, temperature=2.5, top_k=40, top_p=0.8, frame=2**33)


def projected_model() -> Model:
    """A seeded model of the PROJECTED shape."""
    return Model("projected", PROJECTED, {t.name: t for t in synthetic.tensors("synthetic:projected", PROJECTED)})


def small_model(name: str) -> Model:
    """``tiny``, ``wide``, whose rows are whole superblocks, or ``projected``."""
    if name == "projected":
        return projected_model()
    return load_model({"tiny": "synthetic:tiny", "wide": "synthetic:tiny-wide"}[name])


def formats_of(model: Model) -> list[str]:
    """The formats that a model can be held in: those of whose blocks its rows are made."""
    widths = {tensor.shape[-1] for name, tensor in model.tensors.items() if is_streamed(name)}
    return [name for name, kind in FORMATS.items() if not any(width % kind.block for width in widths)]


def arithmetics_of(model: Model) -> list[str]:
    """The rounding laws of those."""
    return list(dict.fromkeys(arithmetic_of(name) for name in formats_of(model)))


def model_of(kind: str) -> Model:
    """The smallest model that can be held in a format."""
    tiny = small_model("tiny")
    return tiny if kind in formats_of(tiny) else small_model("wide")


def with_tensors(model: Model, **changes) -> Model:
    """The model with some tensors' values replaced; names have ``__`` for dots."""
    tensors = dict(model.tensors)
    for key, values in changes.items():
        name = key.replace("__", ".")
        kind = format_named("f32")
        tensors[name] = replace(tensors[name], format=kind, data=kind.pack(values))
    return Model(model.name + " changed", model.spec, tensors)


def spiky(model: Model) -> Model:
    """The model with FFN channels 5 .. 12 of every layer beyond the F16 range; its weights are within it."""
    changes = {}
    for layer in range(model.spec.layers):
        at = f"model__layers__{layer}__mlp__"
        for name, factor in (("gate_proj", 2.0**12), ("up_proj", 2.0**12), ("down_proj", 2.0**-18)):
            values = model.f32(f"{at}{name}__weight".replace("__", ".")).copy()
            values[(slice(None), slice(5, 13)) if name == "down_proj" else slice(5, 13)] *= np.float32(factor)
            changes[f"{at}{name}__weight"] = values
    return with_tensors(model, **changes)


def inputs(model: Model, frames: int):
    """``hidden`` and ``cb0_embed``, ``[frames, talker_hidden]`` each."""
    width = model.spec.talker_hidden
    return synthetic.hidden_states(model.name, frames, width), synthetic.cb0_embeddings(model.name, frames, width)


def forced_codes(model: Model, frames: int):
    """Codes to feed back, ``[frames, passes]``, the lowest and the highest among them."""
    spec = model.spec
    codes = np.random.default_rng(5).integers(0, spec.vocab, (frames, spec.passes)).astype(np.int32)
    codes[0, 0], codes[-1, -1] = spec.vocab - 1, 0
    return codes


def arithmetic_of(format_name: str) -> str:
    """The rounding law that the lab's own kernels follow on a format."""
    return "f32" if FORMATS[format_name].blocks is None else format_name


def oracle_logits(model: Model, hidden, cb0, forced=None, arithmetic="f32", noise=None):
    """``(codes [B, passes], logits [B, passes, vocab])`` of the oracle of an arithmetic, on weights rounded for it."""
    oracle = oracle_for(model if arithmetic == "f32" else model.repacked(arithmetic)[0], arithmetic)
    draws = checked_draws(model.spec, noise, len(hidden))
    frames = [
        oracle.frame(
            hidden[b], cb0[b], None if forced is None else forced[b], None if draws is None else draws[b : b + 1]
        )
        for b in range(len(hidden))
    ]
    return np.stack([f.codes for f in frames]), np.stack([f.logits for f in frames])


def digest(*arrays) -> str:
    """A digest of the bits of arrays, their types and their shapes."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(f"{array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return total.hexdigest()[:16]


def same_bits(a, b) -> bool:
    """Whether two float32 arrays are equal bit for bit (so -0 is not +0), any NaN counting as any other."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.dtype == b.dtype == np.float32
    assert a.shape == b.shape
    return bool(((a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))).all())
