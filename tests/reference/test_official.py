"""The official PyTorch code predictor is run as published: checked against the formulas written out in float64."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest

from cplab import official, official_import
from cplab.errors import BadInputError, CplabError, NonFiniteLogitsError, UnreadableModelError


@dataclass(frozen=True)
class TinySpec:
    hidden: int = 64
    intermediate: int = 192
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    vocab: int = 256
    groups: int = 3
    rope_theta: float = 1e6
    rms_eps: float = 1e-6
    talker_hidden: int = 64


SPECS = {
    "plain": TinySpec(),
    "projected": TinySpec(talker_hidden=96),
    "all 16 groups": TinySpec(groups=16),
    "16 groups, projected": TinySpec(groups=16, talker_hidden=96),
    "large eps": TinySpec(groups=5, rms_eps=0.5),
}


@pytest.fixture(scope="module")
def installed():
    reason = "the official code predictor is not installed: " + official.INSTALL
    pytest.importorskip("torch", reason=reason)
    pytest.importorskip("transformers", reason=reason)
    if importlib.util.find_spec("qwen_tts") is None:  # importing it would need torchaudio, sox, ...
        pytest.skip(reason)


def weights(spec, seed=1):
    rng = np.random.default_rng(seed)
    h, f, d, t = spec.hidden, spec.intermediate, spec.head_dim, spec.talker_hidden
    shapes = {}
    for layer in range(spec.layers):
        at = f"model.layers.{layer}."
        shapes[at + "self_attn.q_proj.weight"] = (spec.heads * d, h)
        shapes[at + "self_attn.k_proj.weight"] = (spec.kv_heads * d, h)
        shapes[at + "self_attn.v_proj.weight"] = (spec.kv_heads * d, h)
        shapes[at + "self_attn.o_proj.weight"] = (h, spec.heads * d)
        shapes[at + "self_attn.q_norm.weight"] = (d,)
        shapes[at + "self_attn.k_norm.weight"] = (d,)
        shapes[at + "mlp.gate_proj.weight"] = (f, h)
        shapes[at + "mlp.up_proj.weight"] = (f, h)
        shapes[at + "mlp.down_proj.weight"] = (h, f)
        shapes[at + "input_layernorm.weight"] = (h,)
        shapes[at + "post_attention_layernorm.weight"] = (h,)
    shapes["model.norm.weight"] = (h,)
    for group in range(spec.groups - 1):
        shapes[f"model.codec_embedding.{group}.weight"] = (spec.vocab, t)
        shapes[f"lm_head.{group}.weight"] = (spec.vocab, h)
    if t != h:
        shapes["small_to_mtp_projection.weight"] = (h, t)
        shapes["small_to_mtp_projection.bias"] = (h,)
    tensors = {}
    for name, shape in shapes.items():
        if "norm" in name:
            values = 1 + 0.5 * rng.standard_normal(shape)
        elif "codec_embedding" in name or name.endswith("bias"):
            values = rng.standard_normal(shape)
        else:
            values = rng.standard_normal(shape) * 2 / np.sqrt(shape[-1])
        tensors[name] = values.astype(np.float32)
    return tensors


def frames(spec, count=4, seed=2):
    rng = np.random.default_rng(seed)
    hidden = 6.6 * rng.standard_normal((count, spec.talker_hidden))
    return hidden.astype(np.float32), rng.standard_normal((count, spec.talker_hidden)).astype(np.float32)


def rms(x):
    return np.sqrt(np.mean(np.square(x, dtype=np.float64)))


class Float64Reference:
    """One frame in float64, every position recomputed from scratch for every code: no cache to get wrong."""

    def __init__(self, spec, tensors):
        self.spec = spec
        self.w = {name: array.astype(np.float64) for name, array in tensors.items()}

    def norm(self, x, name):
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.spec.rms_eps) * self.w[name]

    def rope(self, x):  # [T, heads, head_dim], position T along axis 0
        half = self.spec.head_dim // 2
        angle = np.arange(len(x))[:, None, None] / self.spec.rope_theta ** (np.arange(half) / half)
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], axis=-1)

    def attention(self, x, at):
        s, t = self.spec, len(x)
        q = (x @ self.w[at + "q_proj.weight"].T).reshape(t, s.heads, s.head_dim)
        k = (x @ self.w[at + "k_proj.weight"].T).reshape(t, s.kv_heads, s.head_dim)
        v = (x @ self.w[at + "v_proj.weight"].T).reshape(t, s.kv_heads, s.head_dim)
        q, k = self.rope(self.norm(q, at + "q_norm.weight")), self.rope(self.norm(k, at + "k_norm.weight"))
        out = np.empty_like(q)
        for head in range(s.heads):
            shared = head // (s.heads // s.kv_heads)
            for i in range(t):
                scores = k[: i + 1, shared] @ q[i, head] / np.sqrt(s.head_dim)
                p = np.exp(scores - scores.max())
                out[i, head] = (p / p.sum()) @ v[: i + 1, shared]
        return out.reshape(t, -1) @ self.w[at + "o_proj.weight"].T

    def last_state(self, x):
        for layer in range(self.spec.layers):
            at = f"model.layers.{layer}."
            x = x + self.attention(self.norm(x, at + "input_layernorm.weight"), at + "self_attn.")
            y = self.norm(x, at + "post_attention_layernorm.weight")
            gate, up = y @ self.w[at + "mlp.gate_proj.weight"].T, y @ self.w[at + "mlp.up_proj.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ self.w[at + "mlp.down_proj.weight"].T
        return self.norm(x[-1], "model.norm.weight")

    def mtp(self, x):
        if self.spec.talker_hidden == self.spec.hidden:
            return x
        return x @ self.w["small_to_mtp_projection.weight"].T + self.w["small_to_mtp_projection.bias"]

    def logits(self, hidden, cb0_embed, codes):
        """Logits [groups-1, vocab] of one frame with ``codes`` fed back."""
        rows, out = [hidden.astype(np.float64), cb0_embed.astype(np.float64)], []
        for step in range(self.spec.groups - 1):
            out.append(self.w[f"lm_head.{step}.weight"] @ self.last_state(self.mtp(np.stack(rows))))
            rows.append(self.w[f"model.codec_embedding.{step}.weight"][codes[step]])
        return np.stack(out)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
@pytest.mark.usefixtures("installed")
class TestOfficialIsTheWrittenFormula:
    def test_greedy_logits_equal_the_float64_formulas(self, spec):
        tensors = weights(spec)
        hidden, cb0 = frames(spec)
        codes, logits = official.greedy_codes(official.build(spec, tensors), hidden, cb0)
        assert codes.dtype == np.int32
        assert codes.shape == (4, spec.groups - 1)
        assert logits.dtype == np.float32
        assert logits.shape == (4, spec.groups - 1, spec.vocab)
        reference = Float64Reference(spec, tensors)
        expected = np.stack([reference.logits(*row) for row in zip(hidden, cb0, codes, strict=True)])
        assert np.abs(logits - expected).max() <= 1e-4 * rms(expected)
        assert np.array_equal(codes, expected.argmax(-1))

    def test_forced_logits_equal_the_float64_formulas(self, spec):
        tensors = weights(spec)
        hidden, cb0 = frames(spec)
        forced = np.random.default_rng(3).integers(0, spec.vocab, (4, spec.groups - 1), dtype=np.int32)
        logits = official.forced_logits(official.build(spec, tensors), hidden, cb0, forced)
        reference = Float64Reference(spec, tensors)
        expected = np.stack([reference.logits(*row) for row in zip(hidden, cb0, forced, strict=True)])
        assert np.abs(logits - expected).max() <= 1e-4 * rms(expected)

    def test_forcing_the_greedy_codes_changes_nothing(self, spec):
        module = official.build(spec, weights(spec))
        hidden, cb0 = frames(spec)
        codes, free = official.greedy_codes(module, hidden, cb0)
        forced = official.forced_logits(module, hidden, cb0, codes)
        assert np.abs(forced - free).max() <= 1e-5 * rms(free)

    def test_forward_finetune_is_the_same_in_one_pass(self, spec):
        import torch

        module = official.build(spec, weights(spec))
        hidden, cb0 = frames(spec)
        codes, free = official.greedy_codes(module, hidden, cb0)
        rows = [torch.from_numpy(hidden), torch.from_numpy(cb0)]
        tables = module.get_input_embeddings()
        rows += [tables[step](torch.from_numpy(codes[:, step])) for step in range(spec.groups - 2)]
        with torch.inference_mode():
            logits = module.forward_finetune(inputs_embeds=torch.stack(rows, dim=1)).logits.numpy()
        assert np.abs(logits - free).max() <= 1e-4 * rms(free)

    def test_sdpa_and_eager_agree(self, spec):
        tensors = weights(spec)
        hidden, cb0 = frames(spec)
        codes, eager = official.greedy_codes(official.build(spec, tensors), hidden, cb0)
        sdpa = official.forced_logits(official.build(spec, tensors, attention="sdpa"), hidden, cb0, codes)
        assert np.abs(sdpa - eager).max() <= 1e-4 * rms(eager)


@pytest.mark.usefixtures("installed")
class TestOfficial:
    def test_frames_do_not_see_each_other(self):
        spec = SPECS["all 16 groups"]
        module = official.build(spec, weights(spec))
        hidden, cb0 = frames(spec)
        codes, logits = official.greedy_codes(module, hidden, cb0)
        alone_codes, alone = official.greedy_codes(module, hidden[2:3], cb0[2:3])
        assert np.array_equal(alone_codes[0], codes[2])
        assert np.array_equal(alone[0], logits[2])

    def test_the_last_forced_code_is_never_fed_back(self):
        spec = SPECS["plain"]
        module = official.build(spec, weights(spec))
        hidden, cb0 = frames(spec, count=1)
        one, other, first = (np.array([codes], np.int32) for codes in ((3, 4), (3, 5), (2, 4)))
        base = official.forced_logits(module, hidden, cb0, one)
        assert np.array_equal(base, official.forced_logits(module, hidden, cb0, other))
        assert not np.array_equal(base, official.forced_logits(module, hidden, cb0, first))

    @pytest.mark.parametrize("other", [{"rope_theta": 1e4}, {"rms_eps": 0.1}], ids=str)
    def test_theta_and_eps_are_taken_from_the_spec(self, other):
        spec = SPECS["all 16 groups"]
        tensors = weights(spec)
        hidden, cb0 = frames(spec)
        codes, logits = official.greedy_codes(official.build(spec, tensors), hidden, cb0)
        changed = official.forced_logits(official.build(replace(spec, **other), tensors), hidden, cb0, codes)
        assert np.abs(changed - logits).max() > 1e-2 * rms(logits)

    @pytest.mark.parametrize("name", ["model.norm.weight", "lm_head.1.weight", "model.codec_embedding.1.weight"])
    def test_a_missing_tensor_is_refused(self, name):
        tensors = weights(SPECS["plain"])
        del tensors[name]
        with pytest.raises(UnreadableModelError, match=f"{name} is missing"):
            official.build(SPECS["plain"], tensors)

    def test_a_missing_projection_is_refused(self):
        tensors = weights(SPECS["projected"])
        del tensors["small_to_mtp_projection.bias"]
        with pytest.raises(UnreadableModelError, match=r"small_to_mtp_projection\.bias is missing"):
            official.build(SPECS["projected"], tensors)

    def test_a_projection_between_equal_widths_is_refused(self):
        spec = SPECS["plain"]
        tensors = weights(spec) | {"small_to_mtp_projection.weight": np.eye(spec.hidden, dtype=np.float32)}
        with pytest.raises(UnreadableModelError, match=r"small_to_mtp_projection\.weight is unexpected"):
            official.build(spec, tensors)

    def test_an_extra_head_is_refused(self):
        tensors = weights(TinySpec(groups=4))
        with pytest.raises(UnreadableModelError, match="is unexpected"):
            official.build(TinySpec(groups=3), tensors)

    @pytest.mark.parametrize("bad", [np.zeros(65, np.float32), np.zeros(64, np.float16)], ids=["shape", "type"])
    def test_a_tensor_of_the_wrong_shape_or_type_is_refused(self, bad):
        with pytest.raises(UnreadableModelError, match=r"model\.norm\.weight is"):
            official.build(SPECS["plain"], weights(SPECS["plain"]) | {"model.norm.weight": bad})

    def test_the_module_owns_float32_copies_of_the_weights(self):
        import torch

        spec = SPECS["plain"]
        tensors = weights(spec)
        for array in tensors.values():
            array.flags.writeable = False
        module = official.build(spec, tensors)
        assert not module.training
        assert {p.dtype for p in module.parameters()} == {torch.float32}
        assert not any(p.requires_grad for p in module.parameters())
        assert module.model.norm.weight.data_ptr() != tensors["model.norm.weight"].ctypes.data
        assert all(np.array_equal(module.state_dict()[name].numpy(), array) for name, array in tensors.items())

    def test_building_leaves_the_random_generator_alone(self):
        import torch

        before = torch.get_rng_state()
        official.build(SPECS["plain"], weights(SPECS["plain"]))
        assert torch.equal(before, torch.get_rng_state())

    def test_nan_is_an_error_and_never_a_code(self):
        spec = SPECS["plain"]
        tensors = weights(spec)
        tensors["lm_head.1.weight"][7, 0] = np.nan
        module = official.build(spec, tensors)
        hidden, cb0 = frames(spec, count=1)
        with pytest.raises(NonFiniteLogitsError, match="frame 0, pass 1"):
            official.greedy_codes(module, hidden, cb0)
        with pytest.raises(NonFiniteLogitsError, match="frame 0, pass 1"):
            official.forced_logits(module, hidden, cb0, np.zeros((1, 2), np.int32))

    def test_wrong_inputs_are_refused(self):
        spec = SPECS["projected"]
        module = official.build(spec, weights(spec))
        hidden, cb0 = frames(spec)
        for bad in (hidden[:, :64], hidden.astype(np.float64), hidden[0], hidden[:3]):
            with pytest.raises(BadInputError):
                official.greedy_codes(module, bad, cb0)
        with pytest.raises(BadInputError, match=r"within 0\.\.255"):
            official.forced_logits(module, hidden, cb0, np.full((4, 2), 256, np.int32))
        with pytest.raises(BadInputError, match=r"forced is int32 \[4, 3\]"):
            official.forced_logits(module, hidden, cb0, np.zeros((4, 3), np.int32))

    def test_the_ordinary_packages_are_left_alone(self):
        before = {name for name in sys.modules if name.split(".")[0] in {"qwen_tts", "librosa"}}
        official_import.official_modules.cache_clear()
        official.build(SPECS["plain"], weights(SPECS["plain"]))
        assert {name for name in sys.modules if name.split(".")[0] in {"qwen_tts", "librosa"}} == before

    def test_no_warning_is_raised(self, recwarn, capfd):
        spec = SPECS["plain"]
        official.greedy_codes(official.build(spec, weights(spec)), *frames(spec))
        assert [str(w.message) for w in recwarn] == []
        assert capfd.readouterr() == ("", "")

    def test_versions(self):
        found = official.versions()
        assert list(found) == ["torch", "transformers", "qwen-tts"]
        assert all(found.values())


@pytest.mark.parametrize("absent", ["torch", "transformers.modeling_utils", "qwen_tts"])
def test_what_is_not_installed_is_named_with_the_command(monkeypatch, absent):
    official_import.official_modules.cache_clear()
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(official.OfficialUnavailable) as caught:
        official.build(TinySpec(), {})
    assert official.INSTALL in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, CplabError)
    assert not [name for name in sys.modules if name.startswith("_cplab_qwen_tts")]
    official_import.official_modules.cache_clear()
