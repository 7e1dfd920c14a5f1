"""Codes as sound, by the decoder of the official 12 Hz speech tokenizer (extra ``torch`` and qwen-tts).

Only the decoder is built: the encoder, which is in the same file, hears and does not speak. Every number that shapes
the sound comes from config.json; a key that is missing is refused by its name, as in `cplab.sources.checkpoint`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.cachedir import replacing
from cplab.errors import BadInputError, UnreadableModelError
from cplab.official_import import official_speech_tokenizer
from cplab.recorded import read_npy
from cplab.sources.checkpoint import stored_tensors
from cplab.sources.config_section import Section
from cplab.sources.safetensors_file import read_json

Audio = NDArray[np.float32]

_MODEL_TYPE = "qwen3_tts_tokenizer_12hz"
#: Where a checkpoint's folder has its speech tokenizer.
_INSIDE = "speech_tokenizer"
_PREFIX = "decoder."
#: Whole numbers of decoder_config that a wrong default of would change what is heard, or what is loaded.
_WHOLE = (
    "codebook_dim",
    "codebook_size",
    "decoder_dim",
    "hidden_size",
    "intermediate_size",
    "latent_dim",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "num_quantizers",
    "sliding_window",
)
_REAL = ("rms_norm_eps", "rope_theta")
_LISTS = ("upsample_rates", "upsampling_ratios")
_LARGEST_SAMPLE = 32767


def tokenizer_config(folder: Path) -> Section:
    """``config.json`` of a speech tokenizer: of that folder, or of the one in a checkpoint's folder.

    Raises:
        UnreadableModelError: there is none, or it is another model's.
    """
    path = (folder / _INSIDE if (folder / _INSIDE).is_dir() else folder) / "config.json"
    if not path.is_file():
        raise UnreadableModelError(f"{path.parent}: no config.json; the folder of a 12 Hz speech tokenizer is wanted")
    top = Section(path, "", read_json(path))
    kind = top.values.get("model_type")
    if kind != _MODEL_TYPE:
        raise UnreadableModelError(f"{path}: model_type is {kind!r}; {_MODEL_TYPE} is wanted")
    return top


class SpeechDecoder:
    """The official decoder with a speech tokenizer's weights, in float32, on the CPU.

    Args:
        folder: of the speech tokenizer (config.json, safetensors), or of a checkpoint that has one in it.

    Attributes:
        codebooks: codes of a frame.
        codebook_size: codes of a codebook.
        samples_per_frame: of sound.
        rate_hz: samples a second.

    Raises:
        OfficialUnavailable: torch, transformers or qwen-tts is not installed.
        UnreadableModelError: no such tokenizer, a key of config.json or a tensor is missing, left over, or misshapen.
    """

    def __init__(self, folder: Path) -> None:
        top = tokenizer_config(folder)
        path, folder = top.path, top.path.parent
        section = top.section("decoder_config")
        _require(section)
        self.rate_hz, self.samples_per_frame = top.whole("output_sample_rate"), top.whole("decode_upsample_rate")
        self.codebooks, self.codebook_size = section.whole("num_quantizers"), section.whole("codebook_size")
        made = int(np.prod(section.values["upsample_rates"] + section.values["upsampling_ratios"]))
        if made != self.samples_per_frame:
            raise UnreadableModelError(
                f"{path}: decode_upsample_rate is {self.samples_per_frame}, the decoder makes {made} samples a frame"
            )
        self._module = _built(folder, section)

    def decode(self, codes: NDArray[Any], where: str = "") -> Audio:
        """``codes [N, codebooks]`` -> sound ``[N * samples_per_frame]`` f32 within -1..1.

        Args:
            codes: integers, N at least 1.
            where: they come from, for an error.

        Raises:
            BadInputError: another shape, no frame, or a code that no codebook has.
        """
        self._require(codes, f"{where}: " if where else "")
        import torch

        with torch.inference_mode():
            given = torch.from_numpy(codes.astype(np.int64))[None].transpose(1, 2)
            heard: Audio = self._module.chunked_decode(given)[0, 0].numpy()
        return heard

    def _require(self, codes: NDArray[Any], at: str) -> None:
        if codes.ndim != 2 or codes.shape[1] != self.codebooks or not len(codes) or codes.dtype.kind not in "iu":
            raise BadInputError(
                f"{at}codes are {codes.dtype}{list(codes.shape)}; integers [N, {self.codebooks}] are wanted"
            )
        outside = np.argwhere((codes < 0) | (codes >= self.codebook_size))
        if len(outside):
            frame, book = (int(n) for n in outside[0])
            raise BadInputError(
                f"{at}frame {frame}: CB{book} is {codes[frame, book]}, which makes no sound; "
                f"0..{self.codebook_size - 1} do"
            )


def load_codes(path: Path) -> NDArray[Any]:
    """Frames of codes ``[N, codebooks]`` out of an ``.npy`` file; `SpeechDecoder.decode` knows how many are wanted.

    Raises:
        BadInputError: naming the file: it is damaged or missing, or holds no integers, no frames, or a negative one.
    """
    codes = read_npy(path)
    if codes.ndim != 2 or codes.dtype.kind not in "iu" or not codes.size:
        raise BadInputError(f"{path}: codes are {codes.dtype}{list(codes.shape)}; integers [N, 16] are wanted")
    if codes.min() < 0:
        raise BadInputError(f"{path}: a code is {codes.min()}, which makes no sound")
    return codes


def write_wav(path: Path, audio: Audio, rate_hz: int) -> None:
    """Write mono sound ``[samples]`` f32 within -1..1 as 16-bit PCM, under a temporary name until it is whole."""
    from scipy.io import wavfile

    with replacing(path) as temporary:
        wavfile.write(temporary, rate_hz, np.rint(np.clip(audio, -1, 1) * _LARGEST_SAMPLE).astype(np.int16))


def _require(section: Section) -> None:
    """Refuse a decoder_config for which the official class would take a default."""
    for key in _WHOLE:
        section.whole(key)
    for key in _REAL:
        section.real(key)
    for key in _LISTS:
        found = section.values.get(key)
        if not isinstance(found, list) or not found or any(type(n) is not int or n < 1 for n in found):
            raise UnreadableModelError(f"{section.path}: {section.at}{key} is {found!r}; a list of factors is wanted")


def _built(folder: Path, section: Section) -> Any:
    """The official decoder, its weights loaded, none missing and none left over."""
    import torch

    configuration, modeling = official_speech_tokenizer()
    # The class writes into what it is given.
    config = configuration.Qwen3TTSTokenizerV2DecoderConfig(**json.loads(json.dumps(dict(section.values))))
    module = modeling.Qwen3TTSTokenizerV2Decoder._from_config(config).float()
    weights = {
        name.removeprefix(_PREFIX): torch.from_numpy(np.array(stored.tensor(name).f32()))
        for name, stored in stored_tensors(folder).items()
        if name.startswith(_PREFIX)
    }
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        raise UnreadableModelError(f"{folder}: config.json and weights disagree: {error}") from error
    return module.eval()
