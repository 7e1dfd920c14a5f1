"""Checkpoint folders in the published layout, written by hand: any key or tensor of them can be made wrong."""

from __future__ import annotations

import json
import struct

import numpy as np

from cplab.formats import FORMATS

PREFIX = "talker.code_predictor."
DTYPES = {"bf16": "BF16", "f16": "F16", "f32": "F32"}
#: A talker as narrow as the small models, its own head width included.
TALKER = {"layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 48, "intermediate": 96, "vocab": 112}


def safetensors(tensors, *, pad=8, metadata=True):
    """Bytes of a safetensors file; ``tensors``: name -> (dtype, shape, bytes). ``pad`` is the header's alignment."""
    header, at = {"__metadata__": {"format": "pt"}} if metadata else {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % pad)
    return struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values())


def stored(values, kind="bf16"):
    """An array as a safetensors entry, in one of the lab's formats."""
    return DTYPES[kind], values.shape, FORMATS[kind].pack(np.asarray(values, np.float32)).tobytes()


def config_of(spec, **talker):
    """config.json in the published layout; ``talker`` overrides numbers of the talker."""
    t = TALKER | talker
    return {
        "architectures": ["Qwen3TTSForConditionalGeneration"],
        "model_type": "qwen3_tts",
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "tts_model_type": "custom_voice",
        "talker_config": {
            "model_type": "qwen3_tts_talker",
            "attention_bias": False,
            "code_predictor_config": {
                "model_type": "qwen3_tts_talker_code_predictor",
                "attention_bias": False,
                "head_dim": spec.head_dim,
                "hidden_act": "silu",
                "hidden_size": spec.hidden,
                "intermediate_size": spec.intermediate,
                "layer_types": ["full_attention"] * spec.layers,
                "max_position_embeddings": 65536,
                "num_attention_heads": spec.heads,
                "num_code_groups": spec.groups,
                "num_hidden_layers": spec.layers,
                "num_key_value_heads": spec.kv_heads,
                "rms_norm_eps": spec.rms_eps,
                "rope_scaling": None,
                "rope_theta": int(spec.rope_theta),
                "sliding_window": None,
                "tie_word_embeddings": False,
                "use_sliding_window": False,
                "vocab_size": spec.vocab,
            },
            "head_dim": t["head_dim"],
            "hidden_act": "silu",
            "hidden_size": spec.talker_hidden,
            "intermediate_size": t["intermediate"],
            "max_position_embeddings": 32768,
            "num_attention_heads": t["heads"],
            "num_code_groups": spec.groups,
            "num_hidden_layers": t["layers"],
            "num_key_value_heads": t["kv_heads"],
            "rms_norm_eps": 1e-6,
            "rope_scaling": {
                "interleaved": True,
                "mrope_section": [8, 8, 8],
                "rope_type": "default",
                "type": "default",
            },
            "rope_theta": 1000000,
            "use_sliding_window": False,
            "vocab_size": t["vocab"],
        },
    }


def talker_tensors(spec, seed=3):
    """A talker's tensors, those that are not exported among them."""
    rng = np.random.default_rng(seed)
    t, h = TALKER, spec.talker_hidden
    shapes = {"model.codec_embedding": (t["vocab"], h), "codec_head": (t["vocab"], h), "model.norm": (h,)}
    shapes |= {"model.text_embedding": (32, 16), "text_projection.linear_fc1": (16, 16)}
    for layer in range(t["layers"]):
        shapes |= {
            f"model.layers.{layer}.{part}": shape
            for part, shape in {
                "input_layernorm": (h,),
                "self_attn.q_proj": (t["heads"] * t["head_dim"], h),
                "self_attn.k_proj": (t["kv_heads"] * t["head_dim"], h),
                "self_attn.v_proj": (t["kv_heads"] * t["head_dim"], h),
                "self_attn.o_proj": (h, t["heads"] * t["head_dim"]),
                "self_attn.q_norm": (t["head_dim"],),
                "self_attn.k_norm": (t["head_dim"],),
                "post_attention_layernorm": (h,),
                "mlp.gate_proj": (t["intermediate"], h),
                "mlp.up_proj": (t["intermediate"], h),
                "mlp.down_proj": (h, t["intermediate"]),
            }.items()
        }
    return {f"talker.{name}.weight": rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


class Folder:
    """A checkpoint that is about to be written: ``config`` and ``tensors`` may be changed first."""

    def __init__(self, model, kind="bf16"):
        self.config = config_of(model.spec)
        self.tensors = {PREFIX + name: stored(t.f32(), kind) for name, t in model.tensors.items()}
        self.tensors |= {name: stored(values) for name, values in talker_tensors(model.spec).items()}
        self.tensors["speaker_encoder.fc.weight"] = stored(np.zeros((4, 8, 1), np.float32))

    @property
    def code_predictor(self):
        """Its part of config.json."""
        return self.config["talker_config"]["code_predictor_config"]

    def write(self, folder, shards=1, **how):
        """Write it as one file, or as several with their index."""
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config, indent=2))
        if shards == 1:
            (folder / "model.safetensors").write_bytes(safetensors(self.tensors, **how))
            return folder
        names = list(self.tensors)
        places = {name: f"model-{k % shards + 1:05d}-of-{shards:05d}.safetensors" for k, name in enumerate(names)}
        for shard in set(places.values()):
            (folder / shard).write_bytes(safetensors({n: self.tensors[n] for n in names if places[n] == shard}, **how))
        index = {"metadata": {"total_size": 0}, "weight_map": places}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        return folder
