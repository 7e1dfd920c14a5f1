"""A 12 Hz speech tokenizer with seeded weights at small width, saved by the official class."""

from __future__ import annotations

import json

from cplab.official_import import official_speech_tokenizer

DECODER = {
    "codebook_dim": 32,
    "codebook_size": 2048,
    "decoder_dim": 32,
    "head_dim": 16,
    "hidden_size": 32,
    "intermediate_size": 64,
    "latent_dim": 32,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "num_quantizers": 16,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000,
    "sliding_window": 72,
    "upsample_rates": [8, 5, 4, 3],
    "upsampling_ratios": [2, 2],
}
#: The encoder is in every published file; one layer of it, to be passed over.
ENCODER = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 64,
    "num_filters": 4,
    "upsample_groups": 32,
    "codebook_dim": 16,
    "vector_quantization_hidden_dimension": 16,
}
TOP = {
    "model_type": "qwen3_tts_tokenizer_12hz",
    "input_sample_rate": 24000,
    "output_sample_rate": 24000,
    "decode_upsample_rate": 1920,
    "encode_downsample_rate": 1920,
    "encoder_valid_num_quantizers": 16,
}


def saved(folder, *, seed=1, shards=False):
    """Save a tokenizer; returns the official model, as the official class loads it again."""
    import torch

    configuration, modeling = official_speech_tokenizer()
    config = configuration.Qwen3TTSTokenizerV2Config(
        ENCODER, dict(DECODER), **{k: v for k, v in TOP.items() if k != "model_type"}
    )
    torch.manual_seed(seed)
    with torch.no_grad():
        module = modeling.Qwen3TTSTokenizerV2Model(config)
        for name, weight in module.decoder.named_parameters():
            if name.endswith(("cluster_usage", "gamma")) or "norm" in name or "scale" in name:
                weight.add_(0.2 * torch.rand(weight.shape))
            else:
                fan_in = max(1, weight[0].numel()) if weight.ndim > 1 else 16
                weight.copy_(torch.randn(weight.shape) * fan_in**-0.5)
        for weight in module.decoder.decoder[-1].parameters():
            weight.mul_(0.004)  # so that nothing reaches full scale, where all is alike
    module.save_pretrained(folder, max_shard_size="100KB" if shards else "4GB")
    (folder / "config.json").write_text(json.dumps(TOP | {"decoder_config": DECODER, "encoder_config": ENCODER}))
    loaded = modeling.Qwen3TTSTokenizerV2Model.from_pretrained(folder).eval()
    for weight in loaded.parameters():
        weight.data = weight.data.clone()  # off the mapped file: PyTorch's last bits depend on how weights are aligned
    return loaded
