"""The official talker: the whole model of qwen-tts 0.1.1 in float32, speaking greedily while everything is recorded.

As with the code predictor (`cplab.official`) no line of the model is written here. Both ways in end in the official
``Qwen3TTSForConditionalGeneration.generate``, which makes the prefill and hands it to its talker's ``generate`` with
the rules of the loop: the call is caught at that point, so that text, and a prefill from a file, are spoken by the same
official rules (codes beyond the codebook suppressed but for the end code, at least two tokens, the repetition penalty
of the checkpoint's generation_config.json or 1.05). Then the talker's own ``generate`` runs, with
``do_sample=False`` for talker and code predictor, and hooks on the modules take down what passes by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cplab.official import OfficialMismatchError
from cplab.official_import import official_modules
from cplab.sources.checkpoint import Checkpoint
from cplab.sources.config_section import Section
from cplab.sources.safetensors_file import read_json

if TYPE_CHECKING:
    from torch import nn

Float32 = NDArray[np.float32]

#: Numbers that the official class has defaults for, none of them the published checkpoints'.
TALKER_TOKENS = (
    "codec_eos_token_id",
    "codec_think_id",
    "codec_nothink_id",
    "codec_think_bos_id",
    "codec_think_eos_id",
    "codec_pad_id",
    "codec_bos_id",
)
TEXT_TOKENS = ("tts_bos_token_id", "tts_eos_token_id", "tts_pad_token_id")

_PREFIX = "talker."


def token_numbers(checkpoint: Checkpoint) -> dict[str, int]:
    """The special tokens by their keys in config.json.

    Raises:
        UnreadableModelError: one is missing there.
    """
    path = checkpoint.talker.path
    whole = Section(path, "", read_json(path))
    return {key: checkpoint.talker.whole(key) for key in TALKER_TOKENS} | {key: whole.whole(key) for key in TEXT_TOKENS}


def build(checkpoint: Checkpoint) -> nn.Module:
    """The official model in float32 evaluation mode, on copies of the checkpoint's talker and code predictor.

    Only parameters are widened: RoPE's frequencies are float32 buffers already. A Base checkpoint's speaker encoder,
    which needs recorded speech, is left out.

    Raises:
        OfficialUnavailable: torch, transformers or qwen-tts cannot be imported.
        UnreadableModelError: config.json lacks a number, or a tensor is missing, unexpected or of the wrong shape.
    """
    configuration, modeling = official_modules()
    import torch
    from transformers.modeling_utils import no_init_weights

    token_numbers(checkpoint)
    for key in ("text_hidden_size", "text_vocab_size"):
        checkpoint.talker.whole(key)
    told = read_json(checkpoint.talker.path)
    for key in ("spk_id", "codec_language_id", "spk_is_dialect"):
        told["talker_config"][key] = told["talker_config"].get(key) or {}
    config = configuration.Qwen3TTSConfig(**told)
    for part in (config, config.talker_config, config.talker_config.code_predictor_config):
        part._attn_implementation = "eager"
    with no_init_weights():
        model = modeling.Qwen3TTSForConditionalGeneration(config)
    model.speaker_encoder = None
    wanted = {_PREFIX + name: tuple(value.shape) for name, value in model.talker.state_dict().items()}
    tensors = checkpoint.taken(wanted, [name for name in checkpoint.stored if name.startswith(_PREFIX)])
    copies = {name.removeprefix(_PREFIX): torch.tensor(tensor.f32()) for name, tensor in tensors.items()}
    model.talker.load_state_dict(copies, strict=True, assign=True)
    model.requires_grad_(False)
    return model.eval()


@dataclass(frozen=True, slots=True)
class Call:
    """The official ``generate``'s call of its talker.

    Attributes:
        tensors: ``inputs_embeds [1, T, H]``, ``attention_mask [1, T]``, ``trailing_text_hidden [1, L, H]``,
            ``tts_pad_embed [1, 1, H]``.
        rules: everything else: lengths, penalty, suppressed codes, end code, sampling switched off.
    """

    tensors: dict[str, Any]
    rules: dict[str, Any]


class _CaughtError(Exception):
    """Carries the official call out of the official ``generate``."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        super().__init__()
        self.given = given


def caught_call(model: nn.Module, **arguments: Any) -> Call:
    """What the official ``generate`` would have its talker do; the talker does not run.

    Args:
        model: from `build`.
        arguments: of the official ``generate``: ``input_ids``, ``languages``, ``speakers``, ``non_streaming_mode``,
            and the generation arguments. Sampling is switched off here.

    Raises:
        OfficialMismatchError: it did not come to its talker's ``generate``.
    """

    def catch(**given: Any) -> None:
        raise _CaughtError(given)

    model.talker.generate = catch
    try:
        model.generate(**(arguments | {"do_sample": False, "subtalker_dosample": False}))
    except _CaughtError as caught:
        names = ("inputs_embeds", "attention_mask", "trailing_text_hidden", "tts_pad_embed")
        rules = {name: value for name, value in caught.given.items() if name not in names}
        return Call({name: caught.given[name] for name in names}, rules)
    finally:
        del model.talker.generate  # the class's own is seen again
    raise OfficialMismatchError("the official generate ended without its talker")


@dataclass(slots=True)
class Spoken:
    """What a talker took in and gave, call by call; call 0 is the prefill, call f + 1 follows frame f.

    Attributes:
        prefill: ``[T, H]`` f32.
        inputs: the talker's input of each call but the first, ``[H]`` f32.
        hidden: hidden state after the final norm at the last position of each call, ``[H]`` f32.
        logits: its CB0 logits, ``[V]`` f32.
        codes: the frame before each call but the first, ``[groups]`` int32.
        ended: whether the end code was chosen.
        rules: as in `Call`, with the length that was asked for.
    """

    prefill: Float32
    rules: dict[str, Any]
    inputs: list[Float32] = field(default_factory=list)
    hidden: list[Float32] = field(default_factory=list)
    logits: list[Float32] = field(default_factory=list)
    codes: list[NDArray[np.int32]] = field(default_factory=list)
    ended: bool = False


def speak(model: nn.Module, call: Call, frames: int, progress: Callable[[], None] | None = None) -> Spoken:
    """Run the official talker's greedy loop.

    Args:
        model: from `build`.
        call: from `caught_call`, its tensors replaced where a prefill is given.
        frames: how many at most.
        progress: called after each frame.

    Returns:
        what passed by.

    Raises:
        OfficialMismatchError: the loop did not do what the lab knows it to do.
    """
    import torch

    rules = call.rules | {"max_new_tokens": frames + 1}  # a token's other codes are made when the next is asked for
    spoken = Spoken(call.tensors["inputs_embeds"][0].numpy().copy(), rules)
    with torch.inference_mode(), _recorded(model.talker, spoken, progress), _quiet():
        result = model.talker.generate(**call.tensors, **rules)
    chosen = result.sequences[0].numpy()
    spoken.ended = bool(chosen[-1] == rules["eos_token_id"])
    made = len(spoken.codes)
    if len(chosen) != made + 1 or not (spoken.ended or made == frames):
        raise OfficialMismatchError(f"the official talker chose {len(chosen)} codes and made {made} frames")
    if not np.array_equal(chosen[:-1], [codes[0] for codes in spoken.codes]):
        raise OfficialMismatchError("the official talker's frames do not start with the codes that it chose")
    return spoken


@contextmanager
def _recorded(talker: nn.Module, spoken: Spoken, progress: Callable[[], None] | None) -> Iterator[None]:
    """Hooks that fill ``spoken`` while the talker runs."""

    def entering(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        if spoken.hidden:  # the prefill is known
            spoken.inputs.append(named["inputs_embeds"][0, -1].numpy().copy())

    def leaving(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
        codes = output.hidden_states[1]
        spoken.hidden.append(output.past_hidden[0, -1].numpy().copy())
        spoken.logits.append(output.logits[0, -1].numpy().copy())
        if codes is not None:
            spoken.codes.append(codes[0].numpy().astype(np.int32))
            if progress is not None:
                progress()

    hooks = (
        talker.model.register_forward_pre_hook(entering, with_kwargs=True),
        talker.register_forward_hook(leaving, with_kwargs=True),
    )
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' warning, at every frame, that greedy search ignores top_k, top_p and temperature."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def text_embeddings(model: nn.Module, tokens: list[int]) -> Float32:
    """Text tokens through the official text table and ``text_projection``, ``[tokens, talker_hidden]`` f32."""
    import torch

    with torch.inference_mode():
        embedded = model.talker.get_text_embeddings()(torch.tensor([tokens]))
        projected: Float32 = model.talker.text_projection(embedded)[0].numpy()
    return projected
