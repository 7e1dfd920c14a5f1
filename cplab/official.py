"""The official code predictor: the class of qwen-tts 0.1.1 in float32, called as its own talker calls it.

This is the outside witness of the goldens: no line of the model is written here. ``greedy_codes`` repeats the call in
``Qwen3TTSTalkerForConditionalGeneration.forward`` (qwen_tts/core/models/modeling_qwen3_tts.py)::

    code_predictor.generate(inputs_embeds=cat((past_hidden, last_id_hidden), dim=1), max_new_tokens=num_code_groups - 1)

with ``do_sample=False``. The talker also passes top_k, top_p and temperature, which greedy search ignores (with a
warning), and asks for hidden states, which only costs time; both are left out.

``cplab.official_import`` tells how the class is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from cplab.errors import BadInputError, CplabError, NonFiniteLogitsError, UnreadableModelError
from cplab.official_import import INSTALL, OfficialUnavailable, official_modules, versions

if TYPE_CHECKING:
    from torch import nn

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]


class OfficialMismatchError(CplabError):
    """The official class did not do what the lab knows it to do, such as choosing the largest logit."""


class SpecLike(Protocol):
    """The dimensions that the official class is configured from (``cplab.spec.Spec`` has them all)."""

    @property
    def hidden(self) -> int:
        """Width of the residual stream."""

    @property
    def intermediate(self) -> int:
        """Width of the feed-forward layer."""

    @property
    def layers(self) -> int:
        """Transformer layers."""

    @property
    def heads(self) -> int:
        """Query heads."""

    @property
    def kv_heads(self) -> int:
        """Key/value heads."""

    @property
    def head_dim(self) -> int:
        """Width of a head."""

    @property
    def vocab(self) -> int:
        """Codes in a codebook."""

    @property
    def groups(self) -> int:
        """Codebooks of a frame, CB0 included."""

    @property
    def rope_theta(self) -> float:
        """Base of the rotary embedding."""

    @property
    def rms_eps(self) -> float:
        """Epsilon of every RMSNorm."""

    @property
    def talker_hidden(self) -> int:
        """Width of the talker, of the codec embeddings and of both inputs."""


def build(
    spec: SpecLike, tensors: Mapping[str, npt.NDArray[Any]], *, attention: Literal["eager", "sdpa"] = "eager"
) -> nn.Module:
    """The official code predictor in float32 evaluation mode, on copies of the given weights.

    Every configuration value comes from ``spec``: the classes' own defaults (rope theta 1e4, 32 groups) are not those
    of the published checkpoints. The official class has a ``small_to_mtp_projection`` exactly where the talker's width
    differs from ``spec.hidden``; where they are equal it is ``nn.Identity`` and a projection among the tensors is
    refused.

    Args:
        spec: dimensions.
        tensors: float32 arrays by checkpoint name without the ``talker.code_predictor.`` prefix.
        attention: ``eager``, the attention written out in the official file, so that the reference does not depend on
            which fused kernel torch picks for a CPU; ``sdpa`` is what ``from_pretrained`` picks by default,
            equal within float32 rounding and faster: take it where this class is timed.

    Raises:
        OfficialUnavailable: torch, transformers or qwen-tts cannot be imported.
        UnreadableModelError: a tensor is missing, unexpected, not float32, or of the wrong shape.
    """
    configuration, modeling = official_modules()
    import torch
    from transformers.modeling_utils import no_init_weights

    config = configuration.Qwen3TTSTalkerCodePredictorConfig(
        vocab_size=spec.vocab,
        hidden_size=spec.hidden,
        intermediate_size=spec.intermediate,
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads,
        num_key_value_heads=spec.kv_heads,
        head_dim=spec.head_dim,
        hidden_act="silu",
        max_position_embeddings=spec.groups,
        rms_norm_eps=spec.rms_eps,
        use_cache=True,
        tie_word_embeddings=False,
        rope_theta=spec.rope_theta,
        rope_scaling=None,
        attention_bias=False,
        use_sliding_window=False,
        sliding_window=None,
        layer_types=["full_attention"] * spec.layers,
        attention_dropout=0.0,
        num_code_groups=spec.groups,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
        attn_implementation=attention,
    )
    talker = configuration.Qwen3TTSTalkerConfig(hidden_size=spec.talker_hidden, num_code_groups=spec.groups)
    # Every parameter is replaced below; not drawing random ones first also leaves the caller's torch generator alone.
    with no_init_weights():
        module = modeling.Qwen3TTSTalkerCodePredictorModelForConditionalGeneration(config, talker)
    _check_tensors({name: tuple(value.shape) for name, value in module.state_dict().items()}, tensors)
    # torch.tensor copies into memory that torch aligns; its matrix products are slower on numpy's.
    copies = {name: torch.tensor(array) for name, array in tensors.items()}
    module.load_state_dict(copies, strict=True, assign=True)
    module.requires_grad_(False)
    return module.eval()


def greedy_codes(module: nn.Module, hidden: Float32, cb0_embed: Float32) -> tuple[Int32, Float32]:
    """Codes of whole frames from the official ``generate``, one frame a call, so with a fresh cache for each.

    Args:
        module: from ``build``.
        hidden: the talker's hidden states after its final norm, [F, talker_hidden] f32.
        cb0_embed: the talker's codec embedding of each CB0, [F, talker_hidden] f32.

    Returns:
        codes [F, groups-1] i32, and the heads' raw logits [F, groups-1, vocab] f32 (before any logits processor).

    Raises:
        BadInputError: an input has the wrong shape or type.
        NonFiniteLogitsError: a logit is NaN or infinite.
        OfficialMismatchError: ``generate`` gave a code that is not the first largest logit, or too few codes.
    """
    import torch

    steps, vocab = _sizes(module)
    frames = _check_inputs(module, hidden, cb0_embed)
    codes = np.empty((frames, steps), np.int32)
    logits = np.empty((frames, steps, vocab), np.float32)
    with torch.inference_mode():
        for frame in range(frames):
            result = module.generate(
                inputs_embeds=_prefill(hidden, cb0_embed, frame),
                max_new_tokens=steps,
                do_sample=False,
                output_logits=True,
                return_dict_in_generate=True,
            )
            if tuple(result.sequences.shape) != (1, steps):
                raise OfficialMismatchError(
                    f"frame {frame}: official generate returned {tuple(result.sequences.shape)} codes, not (1, {steps})"
                )
            codes[frame] = result.sequences[0].numpy()
            logits[frame] = torch.cat(result.logits).numpy()
    _check_finite(logits)
    wrong = np.argwhere(codes != logits.argmax(axis=-1))
    if len(wrong):
        frame, step = (int(index) for index in wrong[0])
        raise OfficialMismatchError(
            f"frame {frame}, pass {step}: official generate chose {codes[frame, step]}, "
            f"the first largest logit is {logits[frame, step].argmax()}"
        )
    return codes, logits


def forced_logits(module: nn.Module, hidden: Float32, cb0_embed: Float32, forced: Int32) -> Float32:
    """Teacher-forced logits: the codes that are fed back are given, not chosen.

    Drives the official ``forward`` step by step with its cache, so each matrix product has the shape that it has in
    ``generate``. (``forward_finetune`` gives the same logits from one 16-token pass, within float32 rounding: other
    shapes, other summation order.)

    Args:
        module: from ``build``.
        hidden: [F, talker_hidden] f32, as for ``greedy_codes``.
        cb0_embed: [F, talker_hidden] f32, as for ``greedy_codes``.
        forced: CB1..CB(groups-1), [F, groups-1] i32; the last column is never fed back and changes nothing.

    Returns:
        raw logits [F, groups-1, vocab] f32.

    Raises:
        BadInputError: an input has the wrong shape or type, or a forced code is out of range.
        NonFiniteLogitsError: a logit is NaN or infinite.
    """
    import torch
    from transformers.cache_utils import DynamicCache

    steps, vocab = _sizes(module)
    frames = _check_inputs(module, hidden, cb0_embed)
    if forced.shape != (frames, steps) or not np.issubdtype(forced.dtype, np.integer):
        raise BadInputError(f"forced is {forced.dtype} {list(forced.shape)}; it must be int32 [{frames}, {steps}]")
    if forced.size and not (forced.min() >= 0 and forced.max() < vocab):
        raise BadInputError(f"forced has codes {forced.min()}..{forced.max()}; they must be within 0..{vocab - 1}")
    logits = np.empty((frames, steps, vocab), np.float32)
    with torch.inference_mode():
        for frame in range(frames):
            kept = DynamicCache(config=module.config)
            output = module(inputs_embeds=_prefill(hidden, cb0_embed, frame), past_key_values=kept, use_cache=True)
            logits[frame, 0] = output.logits[0, -1].numpy()
            for step in range(1, steps):
                code = torch.tensor([[int(forced[frame, step - 1])]])
                output = module(input_ids=code, generation_steps=step, past_key_values=kept, use_cache=True)
                logits[frame, step] = output.logits[0, -1].numpy()
    _check_finite(logits)
    return logits


def _sizes(module: nn.Module) -> tuple[int, int]:
    config = module.config
    return int(config.num_code_groups) - 1, int(config.vocab_size)


def _prefill(hidden: Float32, cb0_embed: Float32, frame: int) -> Any:
    """Positions 0 and 1 of a frame, [1, 2, talker_hidden] f32, unprojected: the official ``forward`` projects."""
    import torch

    return torch.from_numpy(np.stack([hidden[frame], cb0_embed[frame]])[None])


def _check_inputs(module: nn.Module, hidden: Float32, cb0_embed: Float32) -> int:
    width = module.model.codec_embedding[0].weight.shape[1]
    for name, array in (("hidden", hidden), ("cb0_embed", cb0_embed)):
        if array.dtype != np.float32 or array.ndim != 2 or array.shape[1] != width:
            raise BadInputError(f"{name} is {array.dtype} {list(array.shape)}; it must be float32 [frames, {width}]")
    if len(hidden) != len(cb0_embed):
        raise BadInputError(f"hidden has {len(hidden)} frames and cb0_embed {len(cb0_embed)}")
    return len(hidden)


def _check_tensors(wanted: Mapping[str, tuple[int, ...]], tensors: Mapping[str, npt.NDArray[Any]]) -> None:
    """Nothing missing, nothing left over, every shape and type right; the names that are wrong are in the message."""
    faults = [f"{name} is missing" for name in wanted if name not in tensors]
    for name, array in tensors.items():
        if name not in wanted:
            faults.append(f"{name} is unexpected")
        elif tuple(array.shape) != wanted[name]:
            faults.append(f"{name} is {list(array.shape)}, not {list(wanted[name])}")
        elif array.dtype != np.float32:
            faults.append(f"{name} is {array.dtype}, not float32")
    if faults:
        more = f" (and {len(faults) - 3} more)" if len(faults) > 3 else ""
        raise UnreadableModelError(f"the official code predictor refuses these tensors: {'; '.join(faults[:3])}{more}")


def _check_finite(logits: Float32) -> None:
    bad = np.argwhere(~np.isfinite(logits).all(axis=-1))
    if len(bad):
        raise NonFiniteLogitsError(int(bad[0, 0]), int(bad[0, 1]), "official implementation")


__all__ = [
    "INSTALL",
    "OfficialMismatchError",
    "OfficialUnavailable",
    "build",
    "forced_logits",
    "greedy_codes",
    "versions",
]
