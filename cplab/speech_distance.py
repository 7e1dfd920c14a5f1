"""How far two pieces of sound are apart: cosine and rmse of samples, and a distance of mel spectra.

Samples say whether two decoders do the same; spectra are nearer to what is heard, since a shift of phase that nobody
hears takes all of the cosine. The spectra are transformers' (extra ``torch``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cplab.errors import BadInputError

_WINDOW, _HOP, _MELS = 1024, 256, 80
#: Powers below this are silence, or the decibels of digital zeros would be all that counts.
_FLOOR = 1e-10


@dataclass(frozen=True, slots=True)
class SpeechDistance:
    """Two pieces of sound.

    Attributes:
        cosine: of the angle between the samples; NaN where one is silence.
        rmse: root mean square difference of samples, full scale being 1.
        mel_db: mean difference of 80 mel bands in decibels, windows of 1024 samples every 256.
    """

    cosine: float
    rmse: float
    mel_db: float


def speech_distance(a: NDArray[np.float32], b: NDArray[np.float32], rate_hz: int) -> SpeechDistance:
    """Compare ``a [samples]`` and ``b [samples]`` at a sample rate; sums are in float64.

    Raises:
        BadInputError: other lengths, or shorter than a window.
    """
    if a.shape != b.shape or a.ndim != 1 or len(a) < _WINDOW:
        raise BadInputError(
            f"sounds of {list(a.shape)} and {list(b.shape)} samples; equal lengths from {_WINDOW} on are wanted"
        )
    x, y = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine = float(x @ y / np.sqrt((x @ x) * (y @ y)))
    rmse = float(np.sqrt(np.mean(np.square(x - y))))
    difference = np.abs(_mel_db(x, rate_hz) - _mel_db(y, rate_hz))
    return SpeechDistance(cosine, rmse, float(difference.mean()))


def _mel_db(x: NDArray[np.float64], rate_hz: int) -> NDArray[np.float64]:
    """Mel spectrum in decibels, ``[mels, windows]``."""
    from transformers.audio_utils import mel_filter_bank, spectrogram, window_function

    filters = mel_filter_bank(_WINDOW // 2 + 1, _MELS, 0.0, rate_hz / 2, rate_hz, norm="slaney", mel_scale="slaney")
    power: NDArray[np.float64] = spectrogram(
        x,
        window_function(_WINDOW, "hann"),
        _WINDOW,
        _HOP,
        power=2.0,
        mel_filters=filters,
        mel_floor=_FLOOR,
        dtype=np.float64,
    )
    return 10 * np.log10(power)
