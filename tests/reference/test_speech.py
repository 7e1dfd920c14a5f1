"""Codes as sound: the official class's own samples, bit for bit; what is refused; how sound is compared."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from scipy.io import wavfile

from cplab import official
from cplab.commandline import run
from cplab.errors import BadInputError, UnreadableModelError

sys.path.insert(0, str(Path(__file__).parent))

from speech_tokenizers import saved

pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("torch", "transformers", "qwen_tts")), reason=f"needs {official.INSTALL}"
)

DATA = Path(__file__).parents[2].parent / "shared" / "data"


def some_codes(frames, seed=3):
    return np.random.default_rng(seed).integers(0, 2048, (frames, 16), np.int32)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("speech")
    return folder, saved(folder)


def official_sound(module, codes):
    import torch

    with torch.inference_mode():
        return module.decode(torch.from_numpy(codes.astype(np.int64))[None]).audio_values[0].numpy()


def speech(folder):
    from cplab.speech import SpeechDecoder

    return SpeechDecoder(folder)


@pytest.mark.parametrize("frames", [1, 7, 340], ids=["one", "some", "more than a chunk"])
def test_sound_is_the_official_class_s_bit_for_bit(tokenizer, frames):
    folder, module = tokenizer
    codes = some_codes(frames)
    heard = speech(folder).decode(codes)
    assert heard.shape == (1920 * frames,)
    assert heard.std() > 0.01  # neither silence nor the limits
    assert np.abs(heard).max() < 1
    np.testing.assert_array_equal(heard.view(np.uint32), official_sound(module, codes).view(np.uint32))


@pytest.mark.skipif(not DATA.exists(), reason="recorded codes are not there")
def test_recorded_codes_make_the_official_sound(tokenizer):
    folder, module = tokenizer
    codes = np.load(DATA / "icl_ref_codes.npy")
    np.testing.assert_array_equal(speech(folder).decode(codes), official_sound(module, codes))


def test_a_checkpoint_with_the_tokenizer_inside_and_in_shards(tmp_path, tokenizer):
    module = saved(tmp_path / "speech_tokenizer", shards=True)
    assert (tmp_path / "speech_tokenizer" / "model.safetensors.index.json").exists()
    codes = some_codes(3)
    np.testing.assert_array_equal(speech(tmp_path).decode(codes), official_sound(module, codes))


def test_wav_writes_what_the_decoder_says(tmp_path, tokenizer, capsys):
    folder, module = tokenizer
    codes = some_codes(5)
    np.save(tmp_path / "codes.npy", codes)
    from cplab.__main__ import app

    out = tmp_path / "out.wav"
    assert run(app, ["wav", "--codes", str(tmp_path / "codes.npy"), "--decoder", str(folder), "-o", str(out)]) == 0
    rate, samples = wavfile.read(out)
    assert (rate, samples.dtype, samples.shape) == (24000, np.int16, (9600,))
    np.testing.assert_array_equal(samples, np.rint(official_sound(module, codes) * 32767).astype(np.int16))
    assert "0.40 s at 24000 Hz, 5 frames" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("codes", "what"),
    [
        (np.zeros((3, 15), np.int32), "integers [N, 16] are wanted"),
        (np.zeros((0, 16), np.int32), "integers [N, 16] are wanted"),
        (np.zeros((3, 16), np.float32), "integers [N, 16] are wanted"),
        (np.full((3, 16), 2048), "frame 0: CB0 is 2048"),
        (np.full((3, 16), -1), "frame 0: CB0 is -1"),
    ],
)
def test_what_makes_no_sound_is_refused(tokenizer, codes, what):
    with pytest.raises(BadInputError) as told:
        speech(tokenizer[0]).decode(codes)
    assert what in str(told.value)


@pytest.mark.parametrize(
    "key", ["codebook_dim", "sliding_window", "rope_theta", "upsample_rates", "num_attention_heads"]
)
def test_a_missing_key_is_named_and_no_default_is_taken(tmp_path, key):
    saved(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["decoder_config"][key]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnreadableModelError, match=f"decoder_config.{key}"):
        speech(tmp_path)


def test_weights_that_are_not_what_the_config_says_are_refused(tmp_path):
    saved(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["decoder_config"]["num_hidden_layers"] = 3
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnreadableModelError, match=r"pre_transformer\.layers\.2"):
        speech(tmp_path)


def test_another_folder_is_told_what_is_wanted(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "qwen3_tts"}')
    with pytest.raises(UnreadableModelError, match="qwen3_tts_tokenizer_12hz is wanted"):
        speech(tmp_path)


def test_a_sound_is_no_distance_from_itself_and_far_from_another(tokenizer):
    from cplab.speech_distance import speech_distance

    decoder = speech(tokenizer[0])
    codes = some_codes(12)
    one_code_off = codes.copy()
    one_code_off[6, 15] ^= 1
    sound, near, far = (decoder.decode(x) for x in (codes, one_code_off, some_codes(12, seed=4)))
    same = speech_distance(sound, sound, decoder.rate_hz)
    assert (same.cosine, same.rmse, same.mel_db) == (pytest.approx(1, abs=1e-12), 0, 0)
    a, b = speech_distance(sound, near, decoder.rate_hz), speech_distance(sound, far, decoder.rate_hz)
    assert b.cosine < a.cosine < 1
    assert 0 < a.rmse < b.rmse
    assert 0 < a.mel_db < b.mel_db


def test_twice_as_loud_is_6_decibels_in_every_band():
    from cplab.speech_distance import speech_distance

    noise = (0.1 * np.random.default_rng(1).standard_normal(24000)).astype(np.float32)
    found = speech_distance(noise, 2 * noise, 24000)
    assert found.cosine == pytest.approx(1, abs=1e-9)
    assert found.rmse == pytest.approx(float(noise.std()), rel=1e-3)
    assert found.mel_db == pytest.approx(20 * np.log10(2), rel=1e-6)


def test_sounds_of_other_lengths_are_refused():
    from cplab.speech_distance import speech_distance

    with pytest.raises(BadInputError, match="equal lengths"):
        speech_distance(np.zeros(4000, np.float32), np.zeros(4001, np.float32), 24000)


def test_quality_compares_the_sound_of_recorded_codes(tmp_path, tokenizer, capsys):
    """Speech decoder and code predictor agree on 16 codebooks; the model is small and has the real ones' count."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "cplab"))
    from official_checkpoints import SPECS
    from official_checkpoints import saved as saved_checkpoint

    from bench.cli import app
    from bench.records.quality import Quality

    saved_checkpoint(tmp_path / "m", SPECS["0.6B-like"])
    np.save(tmp_path / "codes.npy", some_codes(6))
    asked = ["quality", "--model", str(tmp_path / "m"), "-t", "1", "--rollout", "0", "--frames", "6"]
    asked += ["--codes", str(tmp_path / "codes.npy"), "--out", str(tmp_path / "out")]
    assert run(app, [*asked, "--variants", "kv_bf16,kv_q4_0", "--decoder", str(tokenizer[0])]) == 0
    (file,) = (tmp_path / "out").rglob("quality.json")
    same, other = (cell.audio for cell in Quality.model_validate_json(file.read_text()).cells)
    assert (same.seconds, same.rmse, same.mel_db) == (pytest.approx(0.48), 0, 0)
    assert same.cosine == pytest.approx(1, abs=1e-12)
    assert other.cosine < 1
    assert other.rmse > 0
    assert other.mel_db > 0
    words = " ".join(capsys.readouterr().out.split())  # a long path has the title take several lines
    assert "pinned, as sound, beside float32's" in words


def test_a_decoder_without_recorded_codes_is_refused(tmp_path, tokenizer, capsys):
    from bench.cli import app

    assert run(app, ["quality", "--model", "synthetic:tiny", "--decoder", str(tokenizer[0])]) == 1
    assert "--decoder goes with --codes" in capsys.readouterr().err
