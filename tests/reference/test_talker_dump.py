"""The official talker speaking: every array of its dump against the official model asked another way."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from cplab import official, official_talker, talker_dumping
from cplab.commandline import run
from cplab.golden import load_golden
from cplab.official_import import official_inference
from cplab.official_prompt import Text, text_call
from cplab.sources import load_model
from cplab.sources.checkpoint import open_checkpoint
from cplab.sources.talker import talker_digest, talker_of
from cplab.talker_dump import load_talker_dump
from cplab.talker_dumping import check_code_predictor

sys.path.insert(0, str(Path(__file__).parent))

from official_checkpoints import SPECS, TALKER_KEYS, TEXT_KEYS, saved, write_tokenizer

pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("torch", "transformers", "qwen_tts")), reason=f"needs {official.INSTALL}"
)

TEXT = "Bonjour je m'appelle Kazeia"
FRAMES = 5


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """Models this small are faster on one thread."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=list(SPECS))
def checkpoint(request, tmp_path_factory):
    """A whole seeded checkpoint with a tokenizer."""
    folder = tmp_path_factory.mktemp(request.param)
    saved(folder, SPECS[request.param])
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def model(checkpoint):
    """The official model on its weights, as the lab builds it."""
    return official_talker.build(open_checkpoint(checkpoint))


def spoken(folder, output, *arguments):
    """Exit code of ``cplab golden`` on a checkpoint."""
    from cplab.__main__ import app

    return run(app, ["golden", "--model", str(folder), "-o", str(output), *map(str, arguments)])


@pytest.fixture(scope="module")
def dump(checkpoint, tmp_path_factory):
    """What it says of TEXT in French, Serena's voice, streaming."""
    output = tmp_path_factory.mktemp("golden") / "golden.npz"
    arguments = ("--text", TEXT, "--language", "french", "--speaker", "Serena", "--frames", FRAMES)
    assert spoken(checkpoint, output, *arguments) == 0
    return load_talker_dump(output.with_suffix(".talker.npz")), load_golden(output)


def test_everything_is_said_of_what_was_spoken(checkpoint, dump):
    said, golden = dump
    spec = load_model(str(checkpoint)).spec
    assert said.codes.shape == (FRAMES, spec.groups)
    assert said.logits.shape == (FRAMES, 3072)
    assert said.hidden.shape == said.step_inputs.shape == (FRAMES, spec.talker_hidden)
    assert said.ended == "frames"
    assert said.rules["repetition_penalty"] == 1.05
    assert said.rules["min_new_tokens"] == 2
    assert said.rules["eos_token_id"] == said.config["codec_eos_token_id"] == 2150
    assert set(said.rules["suppress_tokens"]) == {*range(2048, 3072)} - {2150}
    assert not said.rules["do_sample"]
    assert said.provenance["text"] == TEXT
    assert said.provenance["official"] == official.versions()
    assert said.code_predictor_digest == golden.digest == load_model(str(checkpoint)).digest()
    assert said.talker_digest == talker_digest(talker_of(open_checkpoint(checkpoint))[1])
    assert golden.provenance["reference"] == "torch"
    assert golden.provenance["talker_digest"] == said.talker_digest


def test_the_golden_is_of_the_frames_that_were_spoken(dump):
    said, golden = dump
    kept = golden.provenance["inputs_kept"]
    assert len(kept) >= 2
    assert np.array_equal(golden.hidden, said.hidden[kept])
    assert np.array_equal(golden.cb0_embed, said.codec_embedding[said.codes[kept, 0]])
    assert np.array_equal(golden.codes, said.codes[kept, 1:])


def test_it_says_what_the_official_generate_says(checkpoint, model, dump):
    """The whole official way in one call, nothing caught and no hook."""
    said, _ = dump
    wrapper_class, processor_class = official_inference()
    wrapper = wrapper_class(model, processor_class.from_pretrained(checkpoint, fix_mistral_regex=True), {})
    codes, hidden = model.generate(
        input_ids=wrapper._tokenize_texts([wrapper._build_assistant_text(TEXT)]),
        languages=["french"],
        speakers=["Serena"],
        non_streaming_mode=False,
        max_new_tokens=FRAMES + 1,
        do_sample=False,
        subtalker_dosample=False,
    )
    assert np.array_equal(codes[0].numpy(), said.codes)
    assert np.array_equal(hidden[0].numpy(), said.hidden)


def test_the_prefill_is_laid_out_as_the_official_package_lays_it_out(model, dump):
    """Role, then think marks, language, speaker and pad under text pads, then the first token of the text."""
    import torch

    said, _ = dump
    tokens, keys = said.provenance["tokens"], TALKER_KEYS
    assert said.prefill.shape[0] == 10
    with torch.inference_mode():

        def text(*ids):
            return official_talker.text_embeddings(model, list(ids))

        def codec(*ids):
            return said.codec_embedding[list(ids)]

        pads = np.repeat(text(TEXT_KEYS["tts_pad_token_id"]), 5, axis=0)
        marks = codec(
            keys["codec_think_id"],
            keys["codec_think_bos_id"],
            keys["codec_language_id"]["french"],
            keys["codec_think_eos_id"],
            keys["spk_id"]["serena"],
            keys["codec_pad_id"],
        )
        expected = np.concatenate(
            [
                text(*tokens[:3]),
                np.concatenate([pads, text(TEXT_KEYS["tts_bos_token_id"])]) + marks,
                text(tokens[3]) + codec(keys["codec_bos_id"]),
            ]
        )
    assert np.abs(expected - said.prefill).max() < 1e-5
    assert np.abs(text(*tokens[4:-5], TEXT_KEYS["tts_eos_token_id"]) - said.trailing).max() < 1e-5
    assert np.abs(text(TEXT_KEYS["tts_pad_token_id"])[0] - said.tts_pad).max() < 1e-5
    assert np.abs(text(TEXT_KEYS["tts_bos_token_id"])[0] - said.tts_bos).max() < 1e-5
    assert np.abs(text(TEXT_KEYS["tts_eos_token_id"])[0] - said.tts_eos).max() < 1e-5


def test_replayed_without_a_cache_it_gives_the_same_hidden_states_and_logits(model, dump):
    """All inputs at once through the official talker: what a replay of the dump is held against."""
    import torch

    said, _ = dump
    inputs = torch.tensor(np.concatenate([said.prefill, said.step_inputs]))[None]
    with torch.inference_mode():
        hidden = model.talker.model(inputs_embeds=inputs, use_cache=False).last_hidden_state
        logits = model.talker.codec_head(hidden)[0].numpy()
    hidden, first = hidden[0].numpy(), len(said.prefill) - 1
    scale = np.sqrt(np.mean(np.square(said.hidden)))
    assert np.abs(hidden[first:-1] - said.hidden).max() <= 1e-4 * scale
    assert np.abs(hidden[-1] - said.final_hidden).max() <= 1e-4 * scale
    assert np.abs(logits[first:-1] - said.logits).max() <= 1e-4 * np.sqrt(np.mean(np.square(said.logits)))


def ruled(said, frame, raw):
    """CB0's logits before a frame once the recorded rules are applied, written out here in numpy."""
    scores, penalty = raw.copy(), said.rules["repetition_penalty"]
    for code in set(said.codes[:frame, 0].tolist()):
        scores[code] *= penalty if scores[code] < 0 else 1 / penalty
    scores[said.rules["suppress_tokens"]] = -np.inf
    if frame < said.rules["min_new_tokens"]:
        scores[said.rules["eos_token_id"]] = -np.inf
    return scores


def test_cb0_follows_the_recorded_rules(dump):
    said, _ = dump
    for frame, row in enumerate(said.logits):
        assert ruled(said, frame, row).argmax() == said.codes[frame, 0]


def test_a_dump_spoken_again_is_itself(checkpoint, dump, tmp_path, capsys):
    said, _ = dump
    said.save(tmp_path / "d.npz")
    output = tmp_path / "again.npz"
    arguments = ("--from-talker", tmp_path / "d.npz", "--frames", FRAMES, "--dump", tmp_path / "e.npz")
    assert spoken(checkpoint, output, *arguments) == 0
    again = load_talker_dump(tmp_path / "e.npz")
    for name in ("prefill", "trailing", "tts_pad", "hidden", "logits", "codes", "step_inputs", "final_logits"):
        assert np.array_equal(getattr(again, name), getattr(said, name)), name
    assert again.provenance["prefill"] == "d.npz"
    assert f"{tmp_path / 'e.npz'}: {FRAMES} frames, stopped by --frames {FRAMES}" in capsys.readouterr().out
    assert not output.with_suffix(".talker.npz").exists()


def test_a_prefill_alone_is_spoken_with_pads(checkpoint, dump, tmp_path):
    said, _ = dump
    np.savez(tmp_path / "prefill.npz", prefill=said.prefill)
    assert spoken(checkpoint, tmp_path / "g.npz", "--from-talker", tmp_path / "prefill.npz", "--frames", 3) == 0
    alone = load_talker_dump(tmp_path / "g.talker.npz")
    assert np.array_equal(alone.codes[0], said.codes[0])
    assert np.array_equal(alone.hidden[0], said.hidden[0])
    assert np.abs(alone.trailing - said.tts_pad).max() < 1e-6
    assert not np.array_equal(alone.step_inputs[0], said.step_inputs[0])


def test_text_all_at_once_stands_in_the_prefill(checkpoint, dump, tmp_path):
    said, _ = dump
    arguments = ("--text", TEXT, "--non-streaming", "--frames", 6, "--language", "auto")
    assert spoken(checkpoint, tmp_path / "g.npz", *arguments) == 0
    whole = load_talker_dump(tmp_path / "g.talker.npz")
    text = len(said.provenance["tokens"]) - 8
    # auto: three marks and no language; no speaker; pad. Then the text with its end, and the begin of speech.
    assert len(whole.prefill) == 3 + 3 + 1 + text + 1 + 1
    assert whole.trailing.shape[0] == 1
    assert whole.provenance["mode"] == "non-streaming"


def test_a_dialect_speaker_speaks_chinese_in_dialect(checkpoint, model):
    """The official model gives Dylan the Beijing dialect's mark; it is in the prefill and nothing of it is ours."""
    source = Text("abc", "chinese", "dylan")
    call, _ = text_call(model, open_checkpoint(checkpoint), source)
    marks = call.tensors["inputs_embeds"][0, 5].numpy() - call.tensors["tts_pad_embed"][0, 0].numpy()
    table = model.talker.get_input_embeddings().weight.numpy()
    assert np.abs(table[TALKER_KEYS["codec_language_id"]["beijing_dialect"]] - marks).max() < 1e-6


def test_the_end_code_ends_it(checkpoint, dump, tmp_path, capsys):
    """A code that was spoken is made the end code: two tokens must come first, then it may end."""
    said, _ = dump
    folder = tmp_path / "m"
    shutil.copytree(checkpoint, folder)
    told = json.loads((folder / "config.json").read_text())
    end = told["talker_config"]["codec_eos_token_id"] = int(said.codes[2, 0])
    (folder / "config.json").write_text(json.dumps(told))
    arguments = ("--text", TEXT, "--language", "french", "--speaker", "serena", "--frames", 20)
    assert spoken(folder, tmp_path / "g.npz", *arguments) == 0
    ended = load_talker_dump(tmp_path / "g.talker.npz")
    assert ended.ended == "end code"
    assert 2 <= len(ended) < 20
    assert end not in ended.codes[:, 0]
    assert ruled(ended, len(ended), ended.final_logits).argmax() == end
    assert f"{len(ended)} frames, ended by the end code" in capsys.readouterr().out


def test_a_code_predictor_that_differs_from_the_loops_is_told(checkpoint, dump, model):
    said, _ = dump
    codes = said.codes.copy()
    codes[1, 4] = (codes[1, 4] + 1) % 2048
    with pytest.raises(official.OfficialMismatchError, match="frame 1: alone"):
        check_code_predictor(model.talker.code_predictor, dataclasses.replace(said, codes=codes))


def test_parameters_alone_are_widened(model):
    """RoPE's frequencies are what float32 gives, not what BF16 leaves of them."""
    import torch

    rope = model.talker.model.rotary_emb
    exact = 1e6 ** (-np.arange(24) / 24)
    assert np.abs(rope.inv_freq.numpy() / exact - 1).max() < 1e-6
    assert {p.dtype for p in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("files", [["vocab.json"], ["merges.txt"], ["vocab.json", "merges.txt"]])
def test_a_folder_without_its_tokenizer_is_one_line(checkpoint, tmp_path, capsys, files):
    folder = tmp_path / "m"
    shutil.copytree(checkpoint, folder)
    for name in files:
        (folder / name).unlink()
    assert spoken(folder, tmp_path / "g.npz", "--text", TEXT) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "no tokenizer" in error


def test_another_models_tokenizer_is_one_line(checkpoint, tmp_path, capsys):
    folder = tmp_path / "m"
    shutil.copytree(checkpoint, folder)
    (folder / "merges.txt").write_text("#version: 0.2\n")  # "assistant" becomes nine tokens
    assert spoken(folder, tmp_path / "g.npz", "--text", TEXT) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "the tokenizer is not this model's" in error


def test_what_is_not_installed_is_named_with_the_command(checkpoint, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(talker_dumping, "versions", absent)
    assert spoken(checkpoint, tmp_path / "g.npz", "--text", TEXT) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert official.INSTALL in error


def absent():
    raise official.OfficialUnavailable(f"the official classes need torch: {official.INSTALL}")
