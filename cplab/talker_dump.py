"""Talker dumps: everything that went into and came out of a talker while it spoke, for replay without PyTorch.

One .npz a dump. The talker and the loop around it are held against it: the same prefill must give the same hidden
states, the same hidden states the same codes, and the same codes the same next inputs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.cachedir import replacing
from cplab.errors import BadInputError

SCHEMA = "cplab.talker_dump/1"

Float32 = NDArray[np.float32]

#: Array -> its shape in letters: Tokens, Length, Frames, Hidden, Vocabulary of the talker, Groups, Passes, Codes.
_ARRAYS = {
    "prefill": "TH",
    "trailing": "LH",
    "tts_pad": "H",
    "tts_bos": "H",
    "tts_eos": "H",
    "hidden": "FH",
    "logits": "FV",
    "codes": "FG",
    "step_inputs": "FH",
    "final_hidden": "H",
    "final_logits": "V",
    "codec_embedding": "VH",
    "code_predictor_tables": "PCH",
}


@dataclass(frozen=True, slots=True)
class TalkerDump:
    """What a talker of width H said in F frames.

    Attributes:
        prefill: embeddings that the talker was fed first, ``[T, H]`` f32.
        trailing: text embeddings added to the inputs after frame 0, 1, ..., ``[L, H]`` f32.
        tts_pad: what is added once ``trailing`` is used up, ``[H]`` f32.
        tts_bos: the projected embedding of the text's begin token, ``[H]`` f32.
        tts_eos: that of its end token, ``[H]`` f32.
        hidden: hidden state after the final norm from which frame f was made, ``[F, H]`` f32.
        logits: its CB0 logits before any rule changed them, ``[F, V]`` f32.
        codes: CB0..CB15, ``[F, groups]`` int32.
        step_inputs: the talker's input after frame f, ``[F, H]`` f32; see `next_input`.
        final_hidden: the hidden state after the last input, ``[H]`` f32, of which no frame was made.
        final_logits: its CB0 logits, ``[V]`` f32: the end code won here, or the frames asked for were full.
        codec_embedding: the talker's table of CB0, ``[V, H]`` f32.
        code_predictor_tables: the code predictor's tables of CB1..CB15, ``[groups-1, vocab, H]`` f32.
        ended: ``end code`` or ``frames``, whichever came first.
        talker_digest: of the talker's weights, `cplab.sources.talker.talker_digest`.
        code_predictor_digest: of the code predictor's, `cplab.model.Model.digest`.
        config: the dimensions and token numbers of the checkpoint.
        rules: the generation rules, as the official class passes them on: penalty, suppressed codes, end code.
        provenance: text or file, versions, command.
    """

    prefill: Float32
    trailing: Float32
    tts_pad: Float32
    tts_bos: Float32
    tts_eos: Float32
    hidden: Float32
    logits: Float32
    codes: NDArray[np.int32]
    step_inputs: Float32
    final_hidden: Float32
    final_logits: Float32
    codec_embedding: Float32
    code_predictor_tables: Float32
    ended: str
    talker_digest: str
    code_predictor_digest: str
    config: dict[str, Any]
    rules: dict[str, Any]
    provenance: dict[str, Any]

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def cb0_embed(self) -> Float32:
        """The code predictor's second input of every frame, ``[F, H]`` f32."""
        embedded: Float32 = self.codec_embedding[self.codes[:, 0]]
        return embedded

    def terms(self, frame: int) -> Float32:
        """What the input after a frame is the sum of: CB0, CB1, ..., text or pad, ``[groups + 1, H]`` f32."""
        passes = np.arange(len(self.code_predictor_tables))
        text = self.trailing[frame] if frame < len(self.trailing) else self.tts_pad
        tables = self.code_predictor_tables[passes, self.codes[frame, 1:]]
        return np.concatenate([self.codec_embedding[self.codes[frame, :1]], tables, text[None]])

    def next_input(self, frame: int) -> Float32:
        """The talker's input after a frame in the lab's order of sums: CB0, CB1, ... CB15, then text, ``[H]`` f32."""
        terms = self.terms(frame)
        total: Float32 = terms[0].copy()
        for term in terms[1:]:
            total += term
        return total

    def save(self, path: Path) -> None:
        """Write the file under a temporary name, then rename it."""
        wrong = _misfit({name: getattr(self, name) for name in _ARRAYS})
        if wrong:
            raise BadInputError(f"{path}: not written: {wrong}")
        about = {"schema": SCHEMA} | {name: getattr(self, name) for name in _ABOUT}
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        arrays["about"] = np.frombuffer(json.dumps(about, sort_keys=True, allow_nan=False).encode(), np.uint8)
        with replacing(path) as temporary, temporary.open("wb") as stream:
            np.savez_compressed(stream, **arrays)


_ABOUT: dict[str, type] = {
    "ended": str,
    "talker_digest": str,
    "code_predictor_digest": str,
    "config": dict,
    "rules": dict,
    "provenance": dict,
}


def load_talker_dump(path: Path) -> TalkerDump:
    """Read a talker dump.

    Raises:
        BadInputError: missing, damaged, of another schema, with arrays that do not fit together, or with NaN.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            about = json.loads(bytes(stored["about"]))
            if not isinstance(about, dict) or about.get("schema") != SCHEMA:
                raise BadInputError(f"{path}: not a talker dump of schema {SCHEMA!r}, which this version reads")
            arrays = {name: stored[name] for name in _ARRAYS}
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror or error}") from error
    except BadInputError:
        raise
    except Exception as error:
        raise BadInputError(f"{path}: not a talker dump or damaged ({error}); make it again") from error
    lacking = [name for name, kind in _ABOUT.items() if not isinstance(about.get(name), kind)]
    wrong = f"{', '.join(lacking)} is missing" if lacking else _misfit(arrays)
    if wrong:
        raise BadInputError(f"{path}: {wrong}; make it again")
    for array in arrays.values():
        array.flags.writeable = False
    return TalkerDump(**arrays, **{name: about[name] for name in _ABOUT})


def _misfit(arrays: dict[str, NDArray[Any]]) -> str:
    """What does not fit together, or ""."""
    sizes: dict[str, int] = {}
    for name, letters in _ARRAYS.items():
        array, kind = arrays[name], np.int32 if name == "codes" else np.float32
        if array.dtype != kind or array.ndim != len(letters):
            return f"{name} is {array.dtype} {list(array.shape)}, {np.dtype(kind)} [{', '.join(letters)}] is wanted"
        for letter, size in zip(letters, array.shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                return f"{name} is {list(array.shape)}, which does not fit the others ({letter} is {sizes[letter]})"
        if kind is np.float32 and not np.isfinite(array).all():
            return f"{name} holds NaN or infinite values"
    if min(sizes["F"], sizes["T"], sizes["P"]) < 1 or sizes["G"] != sizes["P"] + 1:
        return f"{sizes['F']} frames, {sizes['T']} positions, {sizes['G']} groups, {sizes['P']} tables"
    codes, highest = arrays["codes"], np.array([sizes["V"]] + [sizes["C"]] * sizes["P"])
    if (codes < 0).any() or (codes >= highest).any():
        return "codes outside their tables"
    return ""


__all__ = ["SCHEMA", "TalkerDump", "load_talker_dump"]
