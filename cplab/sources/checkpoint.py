"""A published checkpoint: a folder with config.json and one safetensors file, or several with their index.

Every dimension comes from config.json. A key that is not there is refused by its name: the official classes would put
in a default, and their defaults are wrong for the published checkpoints (rope theta 1e4, 32 code groups). What
config.json asks for and the lab does not compute (biases, sliding windows, another RoPE) is refused too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cplab.errors import UnreadableModelError
from cplab.model import Model, Tensor
from cplab.sources.config_section import Section
from cplab.sources.safetensors_file import Stored, read_json, read_safetensors
from cplab.spec import Spec

PREFIX = "talker.code_predictor."

_CONFIG, _SINGLE, _INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
_MODEL_TYPE, _TOKENIZER = "qwen3_tts", "qwen3_tts_tokenizer_12hz"
_WANTED = "the folder of a Qwen3-TTS-12Hz checkpoint is wanted"

#: Spec field -> key of talker_config.code_predictor_config; rope_theta stands in one of two places (`Section`).
_KEYS = {
    "hidden": "hidden_size",
    "intermediate": "intermediate_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "vocab": "vocab_size",
    "groups": "num_code_groups",
    "rms_eps": "rms_norm_eps",
}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint's config and the headers of its weights.

    Attributes:
        folder: where it lies.
        talker: ``talker_config``.
        code_predictor: ``talker_config.code_predictor_config``.
        stored: every tensor of every file, by full name.
    """

    folder: Path
    talker: Section
    code_predictor: Section
    stored: Mapping[str, Stored]

    def spec(self) -> Spec:
        """Dimensions of the code predictor.

        The official class has a ``small_to_mtp_projection`` exactly where the two widths differ, and so has the spec.

        Raises:
            UnreadableModelError: a key is missing or makes no sense.
        """
        section = self.code_predictor
        section.must_be_plain()
        values: dict[str, Any] = {
            field: section.real(key) if field == "rms_eps" else section.whole(key) for field, key in _KEYS.items()
        }
        values["rope_theta"] = section.rope_theta()
        width = self.talker.whole("hidden_size")
        groups = self.talker.whole("num_code_groups")
        if groups != values["groups"]:
            raise UnreadableModelError(
                f"{section.path}: talker_config.num_code_groups is {groups}, its code predictor's {values['groups']}"
            )
        try:
            return Spec(**values, talker_hidden=width, projected=width != values["hidden"])
        except UnreadableModelError as error:
            raise UnreadableModelError(f"{section.path}: {error}") from error

    def taken(self, wanted: Mapping[str, tuple[int, ...]], given: list[str]) -> dict[str, Tensor]:
        """Tensors by full name: each of ``wanted`` once, in that order, and nothing of ``given`` left over.

        Raises:
            UnreadableModelError: with every tensor that is missing, left over, or of another shape than wanted.
        """
        missing = [name for name in wanted if name not in self.stored]
        extra = [name for name in given if name not in wanted]
        other = [
            f"{name} is {list(self.stored[name].shape)}, by config.json {list(shape)}"
            for name, shape in wanted.items()
            if name in self.stored and self.stored[name].shape != shape
        ]
        faults = [
            f"{what}: {', '.join(some)}"
            for what, some in (("missing", missing), ("left over", extra), ("other shapes", other))
            if some
        ]
        if faults:
            raise UnreadableModelError(f"{self.folder}: config.json and weights disagree; {'; '.join(faults)}")
        return {name: self.stored[name].tensor(name) for name in wanted}


def read(folder: Path) -> Model:
    """The code predictor of a checkpoint, mapped; BF16 stays BF16, bit for bit.

    Raises:
        UnreadableModelError: naming what is wrong.
    """
    return code_predictor(open_checkpoint(folder))


def code_predictor(checkpoint: Checkpoint) -> Model:
    """The code predictor of an open checkpoint.

    Raises:
        UnreadableModelError: config.json lacks a key, or the weights are not what it says.
    """
    spec = checkpoint.spec()
    given = [name for name in checkpoint.stored if name.startswith(PREFIX)]
    if not given:
        raise UnreadableModelError(f"{checkpoint.folder}: no tensor is called {PREFIX}*; {_WANTED}")
    tensors = checkpoint.taken({PREFIX + name: shape for name, shape in spec.shapes().items()}, given)
    short = {name.removeprefix(PREFIX): tensor for name, tensor in tensors.items()}
    return Model(
        str(checkpoint.folder), spec, {name: Tensor(name, tensor.format, tensor.data) for name, tensor in short.items()}
    )


def open_checkpoint(folder: Path) -> Checkpoint:
    """Read config.json and the headers of the weights.

    Raises:
        UnreadableModelError: not a folder, not a Qwen3-TTS-12Hz checkpoint, a file missing or damaged.
    """
    if not folder.is_dir():
        raise UnreadableModelError(f"{folder}: not a folder; {_WANTED}")
    path = folder / _CONFIG
    if not path.exists():
        raise UnreadableModelError(f"{folder}: no config.json; {_WANTED}")
    config = read_json(path)
    kind = config.get("model_type")
    if kind != _MODEL_TYPE:
        what = "a speech tokenizer" if str(kind).startswith("qwen3_tts_tokenizer") else "no Qwen3-TTS"
        raise UnreadableModelError(f"{path}: model_type is {kind!r}, {what}; {_WANTED}")
    tokenizer = config.get("tokenizer_type", _TOKENIZER)
    if tokenizer != _TOKENIZER:
        raise UnreadableModelError(f"{path}: tokenizer_type is {tokenizer!r}, which has no code predictor; {_WANTED}")
    talker = Section(path, "", config).section("talker_config")
    return Checkpoint(folder, talker, talker.section("code_predictor_config"), stored_tensors(folder))


def stored_tensors(folder: Path) -> dict[str, Stored]:
    """Every tensor by name, from the single file or, where there is none, from all that the index names.

    Raises:
        UnreadableModelError: a file is missing or damaged.
    """
    if (folder / _SINGLE).exists():
        return {stored.name: stored for stored in read_safetensors(folder / _SINGLE)}
    index = folder / _INDEX
    if not index.exists():
        raise UnreadableModelError(f"{folder}: neither {_SINGLE} nor {_INDEX}; download the weights")
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(p, str) and Path(p).name == p for p in places.values()):
        raise UnreadableModelError(f"{index}: weight_map must give each tensor the name of a file beside it")
    shards = sorted(set(places.values()))
    absent = [shard for shard in shards if not (folder / shard).exists()]
    if absent:
        raise UnreadableModelError(f"{folder}: {', '.join(absent)} missing; the index names it, download it")
    found: dict[str, Stored] = {}
    for shard in shards:
        for stored in read_safetensors(folder / shard):
            if places.get(stored.name) != shard:
                where = places.get(stored.name, "nowhere")
                raise UnreadableModelError(f"{folder}: {stored.name} is in {shard}, the index says {where}")
            found[stored.name] = stored
    gone = [name for name in places if name not in found]
    if gone:
        raise UnreadableModelError(f"{folder}: the index names tensors that no file has: {', '.join(gone)}")
    return found


__all__ = ["PREFIX", "Checkpoint", "code_predictor", "open_checkpoint", "read", "stored_tensors"]
