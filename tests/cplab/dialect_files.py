"""Files as other engines' converters write them, by the gguf package alone; names and keys are written out here."""

from __future__ import annotations

import gguf
import numpy as np

from cplab.formats import FORMATS

Q = gguf.GGMLQuantizationType
SHORT = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
CLIP_SHORT = SHORT | {
    "input_layernorm": "ln1",
    "self_attn.o_proj": "attn_out",
    "post_attention_layernorm": "ln2",
}


class File:
    """What is to be written; tests take parts out or change them. ``tensors``: name -> (float32 values, type)."""

    def __init__(self, architecture):
        self.architecture = architecture
        self.keys = {}
        self.tensors = {}

    def write(self, path):
        writer = gguf.GGUFWriter(path, self.architecture)
        for key, value in self.keys.items():
            if isinstance(value, list):
                writer.add_array(key, value)
            elif isinstance(value, str):
                writer.add_string(key, value)
            elif isinstance(value, float):
                writer.add_float32(key, value)
            else:
                writer.add_uint32(key, value)
        for name, (values, kind) in self.tensors.items():
            if kind in FORMATS:
                packed = FORMATS[kind].pack(values)
                writer.add_tensor(name, packed, raw_shape=values.shape, raw_dtype=Q[kind.upper()])
            else:  # quantised bytes already, or quantised by the package
                packed = values if values.dtype == np.uint8 else gguf.quants.quantize(values, Q[kind])
                writer.add_tensor(name, packed, raw_dtype=Q[kind])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


def in_dialect(name, model, kind="bf16"):
    """``(the file, {file name: File or array} to lie beside it)`` that hold a model in a dialect."""
    return {
        "qwentts.cpp": qwentts,
        "predict-woo": predict_woo,
        "CrispASR": crispasr,
        "HaujetZhao": haujetzhao,
        "llama.cpp mmproj": llama_cpp,
        "Kazeia": kazeia,
    }[name](model, kind)


def write_all(path, file, beside):
    """Write a file and what lies beside it; the path is returned."""
    for name, part in beside.items():
        if isinstance(part, File):
            part.write(path.with_name(name))
        else:
            np.save(path.with_name(name), part)
    return file.write(path)


def _add(file, model, kind, mapping):
    for ours, theirs in mapping.items():
        values = model.f32(ours)
        file.tensors[theirs] = (values, "f32" if values.ndim == 1 else kind)


def layers(spec, at, short=SHORT):
    """Checkpoint name -> name in the file, of every layer's tensors."""
    return {
        f"model.layers.{n}.{ours}.weight": f"{at}.{n}.{theirs}.weight"
        for n in range(spec.layers)
        for ours, theirs in short.items()
    }


def each(spec, ours, theirs):
    """The same for one tensor a codebook."""
    return {f"{ours}.{i}.weight": f"{theirs}.{i}.weight" for i in range(spec.groups - 1)}


def _projection(spec, theirs):
    both = ("weight", "bias") if spec.projected else ()
    return {f"small_to_mtp_projection.{kind}": f"{theirs}.{kind}" for kind in both}


def _all(model, ours):
    return np.stack([model.f32(f"{ours}.{i}.weight") for i in range(model.spec.groups - 1)])


def qwentts(model, kind):
    """ServeurpersoCom/qwentts.cpp: talker, speaker encoder and code predictor in one file, all keys written."""
    spec, file = model.spec, File("qwen3-tts")
    at = "qwen3-tts.code_pred."
    file.keys = {
        "qwen3-tts.num_code_groups": spec.groups,
        "qwen3-tts.talker.embedding_length": spec.talker_hidden,
        "qwen3-tts.talker.rope.freq_base": 12345.0,
        "qwen3-tts.talker.attention.layer_norm_rms_epsilon": 0.5,
        "qwen3-tts.talker.attention.head_count": 64,
        at + "embedding_length": spec.hidden,
        at + "feed_forward_length": spec.intermediate,
        at + "block_count": spec.layers,
        at + "attention.head_count": spec.heads,
        at + "attention.head_count_kv": spec.kv_heads,
        at + "attention.key_length": spec.head_dim,
        at + "vocab_size": spec.vocab,
        at + "context_length": 65536,
        at + "rope.freq_base": spec.rope_theta,
        at + "attention.layer_norm_rms_epsilon": spec.rms_eps,
        "tokenizer.ggml.tokens": ["a", "b"],
        "tokenizer.ggml.token_type": [1, 1],
    }
    _woo_tensors(file, model, kind, "code_pred.mtp_proj")
    return file, {}


def _woo_tensors(file, model, kind, projection):
    spec = model.spec
    _add(
        file,
        model,
        kind,
        layers(spec, "code_pred.blk")
        | {"model.norm.weight": "code_pred.output_norm.weight"}
        | each(spec, "model.codec_embedding", "code_pred.codec_embd")
        | each(spec, "lm_head", "code_pred.lm_head")
        | _projection(spec, projection),
    )
    for name in ("talker.codec_embd.weight", "talker.blk.0.attn_q.weight", "spk_enc.conv0.weight"):
        file.tensors[name] = (np.full((4, 64), 7, np.float32), "Q8_0")


def predict_woo(model, kind):
    """predict-woo/qwen3-tts.cpp: the talker's keys without a prefix, two of the code predictor's own."""
    spec, file = model.spec, File("qwen3-tts")
    file.keys = {
        "qwen3-tts.embedding_length": spec.talker_hidden,
        "qwen3-tts.feed_forward_length": 3 * spec.talker_hidden,
        "qwen3-tts.block_count": 28,
        "qwen3-tts.attention.head_count": spec.heads,
        "qwen3-tts.attention.head_count_kv": spec.kv_heads,
        "qwen3-tts.attention.key_length": spec.head_dim,
        "qwen3-tts.rope.freq_base": spec.rope_theta,
        "qwen3-tts.attention.layer_norm_rms_epsilon": spec.rms_eps,
        "qwen3-tts.vocab_size": 3072,
        "qwen3-tts.num_code_groups": spec.groups,
        "qwen3-tts.code_predictor.layer_count": spec.layers,
        "qwen3-tts.code_predictor.vocab_size": spec.vocab,
    }
    _woo_tensors(file, model, kind, "code_pred.small_to_mtp")
    return file, {}


def crispasr(model, kind):
    """CrispStrobe/CrispASR."""
    spec, file = model.spec, File("qwen3tts")
    file.keys = {
        "qwen3tts.talker.d_model": spec.talker_hidden,
        "qwen3tts.talker.n_heads": 64,
        "qwen3tts.talker.head_dim": spec.head_dim,
        "qwen3tts.talker.ff_dim": 6144,
        "qwen3tts.talker.rope_theta": spec.rope_theta,
        "qwen3tts.talker.rms_norm_eps": spec.rms_eps,
        "qwen3tts.code_pred.n_layers": spec.layers,
        "qwen3tts.code_pred.d_model": spec.hidden,
        "qwen3tts.code_pred.n_heads": spec.heads,
        "qwen3tts.code_pred.n_kv_heads": spec.kv_heads,
        "qwen3tts.code_pred.n_code_groups": spec.groups,
        "qwen3tts.code_pred.vocab_size": spec.vocab,
        "qwen3tts.code_pred.max_length": 20,
    }
    _add(
        file,
        model,
        kind,
        layers(spec, "code_pred.blk")
        | {"model.norm.weight": "code_pred.output_norm.weight"}
        | each(spec, "model.codec_embedding", "code_pred.token_embd")
        | each(spec, "lm_head", "code_pred.output")
        | _projection(spec, "code_pred.small_to_mtp"),
    )
    file.tensors["talker.token_embd.weight"] = (np.ones((8, 64), np.float32), "f16")
    file.tensors["speaker.fc.bias"] = (np.ones(8, np.float32), "f32")
    return file, {}


def _qwen3(model, kind):
    spec, file = model.spec, File("qwen3")
    file.keys = {
        "qwen3.embedding_length": spec.hidden,
        "qwen3.feed_forward_length": spec.intermediate,
        "qwen3.block_count": spec.layers,
        "qwen3.attention.head_count": spec.heads,
        "qwen3.attention.head_count_kv": spec.kv_heads,
        "qwen3.attention.key_length": spec.head_dim,
        "qwen3.attention.value_length": spec.head_dim,
        "qwen3.rope.freq_base": spec.rope_theta,
        "qwen3.attention.layer_norm_rms_epsilon": spec.rms_eps,
    }
    _add(file, model, kind, layers(spec, "blk") | {"model.norm.weight": "output_norm.weight"})
    return file


def haujetzhao(model, kind):
    """HaujetZhao/Qwen3-TTS-GGUF: a plain Qwen3 file; the group count is the lab's addition."""
    file = _qwen3(model, kind)
    file.keys["qwen3.num_code_groups"] = model.spec.groups
    for ours, theirs in (("model.codec_embedding", "token_embd"), ("lm_head", "output")):
        file.tensors[f"{theirs}.weight"] = (np.concatenate(list(_all(model, ours))), kind)
    return file, {}


def llama_cpp(model, kind):
    """ggml-org/llama.cpp, ``conversion/qwen3tts.py``; its converter writes no theta: that key is the lab's addition."""
    spec, file = model.spec, File("clip")
    at = "clip.gen.audio."
    file.keys = {
        at + "projector_type": "qwen3tts_gen",
        at + "projection_dim": spec.talker_hidden,
        at + "embedding_length": spec.hidden,
        at + "feed_forward_length": spec.intermediate,
        at + "block_count": spec.layers,
        at + "attention.head_count": spec.heads,
        at + "attention.head_count_kv": spec.kv_heads,
        at + "attention.layer_norm_epsilon": spec.rms_eps,
        at + "rope.freq_base": spec.rope_theta,
    }
    _add(
        file,
        model,
        kind,
        layers(spec, "a.gen.code.blk", CLIP_SHORT)
        | {"model.norm.weight": "a.gen.code.output_norm.weight"}
        | _projection(spec, "a.gen.code.proj_in"),
    )
    file.tensors["a.gen.code.embd.weight"] = (_all(model, "model.codec_embedding"), kind)
    file.tensors["a.gen.code.head.weight"] = (_all(model, "lm_head"), kind)
    file.tensors["a.gen.code.out_embd.weight"] = (np.ones((8, spec.talker_hidden), np.float32), kind)
    file.tensors["a.gen.wav.pre_conv.weight"] = (np.ones((4, 8, 3), np.float32), "f16")
    file.tensors["a.conv1d.0.bias"] = (np.ones(8, np.float32), "f32")
    return file, {}


def kazeia(model, kind):
    """The layers as a qwen3 file, heads and tables as GGUF files beside it."""
    spec, file, heads, tables = model.spec, _qwen3(model, kind), File("qwen3-tts"), File("qwen3-tts")
    heads.keys["qwen3-tts.num_code_groups"] = spec.groups
    _add(heads, model, kind, each(spec, "lm_head", "code_pred.lm_head"))
    _add(
        tables,
        model,
        kind,
        each(spec, "model.codec_embedding", "code_pred.codec_embd") | _projection(spec, "code_pred.mtp_proj"),
    )
    return file, {"cp_heads.gguf": heads, "cp_codec_embd.gguf": tables}
