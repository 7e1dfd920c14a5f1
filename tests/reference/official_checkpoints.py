"""Whole checkpoints with seeded weights, saved by the official classes; with a tokenizer where one is wanted."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "cplab"))

from checkpoint_files import config_of

from cplab.official_import import official_modules
from cplab.spec import Spec


def small(talker_hidden):
    return Spec(
        hidden=64,
        intermediate=160,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=32,
        vocab=2048,
        groups=16,
        rope_theta=1e6,
        rms_eps=1e-6,
        talker_hidden=talker_hidden,
        projected=talker_hidden != 64,
    )


SPECS = {"0.6B-like": small(64), "1.7B-like": small(128)}

#: As in the published CustomVoice checkpoints; the text tokens fit `write_tokenizer`.
TALKER_KEYS = {
    "codec_bos_id": 2149,
    "codec_eos_token_id": 2150,
    "codec_think_id": 2154,
    "codec_language_id": {"english": 2050, "french": 2061, "chinese": 2055, "beijing_dialect": 2074},
    "codec_nothink_id": 2155,
    "codec_pad_id": 2148,
    "codec_think_bos_id": 2156,
    "codec_think_eos_id": 2157,
    "spk_id": {"serena": 3066, "dylan": 2878},
    "spk_is_dialect": {"serena": False, "dylan": "beijing_dialect"},
    "pad_token_id": 2148,
    "text_vocab_size": 320,
    "text_hidden_size": 32,
}
TEXT_KEYS = {"tts_pad_token_id": 300, "tts_bos_token_id": 301, "tts_eos_token_id": 302}
_SPECIAL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
_MERGES = ("a s", "as s", "i s", "ass is", "t a", "n t", "ta nt", "assis tant")


def saved(folder, spec, *, shards=False, seed=1, dtype="bfloat16", **talker_numbers):
    """A whole checkpoint saved by the official class; returns the official model in float32.

    ``talker_numbers`` are those of `checkpoint_files.TALKER`: layers, heads, intermediate, ...
    """
    import torch

    config = config_of(spec, **({"layers": 1, "vocab": 3072} | talker_numbers)) | TEXT_KEYS
    config["talker_config"] |= TALKER_KEYS
    configuration, modeling = official_modules()
    torch.manual_seed(seed)
    with torch.no_grad():
        # The classes write into what they are given.
        module = modeling.Qwen3TTSForConditionalGeneration(
            configuration.Qwen3TTSConfig(**json.loads(json.dumps(config)))
        )
        for name, weight in module.named_parameters():
            if "norm" in name or name.endswith(".bias"):
                weight.add_(0.2 * torch.randn(weight.shape))
            elif "embedding" in name:
                weight.mul_(25)  # std 0.5, so that what was said is heard in what follows
            else:
                weight.mul_(50 * weight.shape[-1] ** -0.5)  # std 1 / sqrt(inputs), whatever the width
        for weight in module.parameters():  # not the module as a whole, which would round RoPE's frequencies too
            weight.data = weight.data.to(getattr(torch, dtype))
    module.save_pretrained(folder, max_shard_size="1MB" if shards else "4GB")
    (folder / "config.json").write_text(json.dumps(config))
    for weight in module.parameters():
        weight.data = weight.data.float()
    return module.eval()


def write_tokenizer(folder):
    """A Qwen2 tokenizer beside the weights: single bytes, ``assistant`` as one token, three special tokens."""
    from transformers.models.qwen2.tokenization_qwen2 import bytes_to_unicode

    units = [*bytes_to_unicode().values(), *(merge.replace(" ", "") for merge in _MERGES)]
    (folder / "vocab.json").write_text(json.dumps({unit: number for number, unit in enumerate(units)}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(_MERGES) + "\n")
    added = {
        str(len(units) + k): {"content": name, "special": True, "lstrip": False, "rstrip": False, "normalized": False}
        for k, name in enumerate(_SPECIAL)
    }
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "added_tokens_decoder": added,
                "tokenizer_class": "Qwen2Tokenizer",
                "pad_token": "<|endoftext|>",
                "eos_token": "<|im_end|>",
                "unk_token": None,
                "bos_token": None,
            }
        )
    )
