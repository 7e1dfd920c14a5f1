"""From text, or from a recorded prefill, to the official model's call of its talker.

Text goes through the official classes: ``Qwen3TTSModel`` writes the chat template around it, ``Qwen3TTSProcessor``
holds the tokenizer of the checkpoint's folder, ``Qwen3TTSForConditionalGeneration.generate`` makes embeddings of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cplab.errors import BadInputError, UnreadableModelError
from cplab.official_import import official_inference
from cplab.official_talker import Call, caught_call
from cplab.recorded import Prompt
from cplab.sources.checkpoint import Checkpoint
from cplab.sources.safetensors_file import read_json

if TYPE_CHECKING:
    from torch import nn

#: Either of these makes a tokenizer.
_TOKENIZERS = (("tokenizer.json",), ("vocab.json", "merges.txt"))
#: Tokens that the official ``generate`` cuts off: the role before the text, and what closes and opens a turn after it.
_BEFORE, _AFTER = 3, 5


@dataclass(frozen=True, slots=True)
class Text:
    """What is to be said.

    Attributes:
        text: in plain words.
        language: as config.json names it, or ``auto``.
        speaker: as config.json names it; None for none.
        non_streaming: the whole text stands in the prefill, instead of a token a frame.
    """

    text: str
    language: str = "auto"
    speaker: str | None = None
    non_streaming: bool = False

    def check(self, checkpoint: Checkpoint) -> None:
        """Refuse what a checkpoint does not know, before its weights are read.

        Raises:
            BadInputError: no text, or an unknown language or speaker; the message lists those that are known.
            UnreadableModelError: the folder holds no tokenizer.
        """
        if not self.text.strip():
            raise BadInputError("--text: some text is wanted")
        values = checkpoint.talker.values
        languages = ["auto", *(name for name in values.get("codec_language_id") or {} if "dialect" not in name)]
        if self.language.lower() not in languages:
            raise BadInputError(f"--language {self.language}: {checkpoint.folder} knows {', '.join(languages)}")
        speakers = list(values.get("spk_id") or {})
        if self.speaker is not None and self.speaker.lower() not in speakers:
            raise BadInputError(
                f"--speaker {self.speaker}: {checkpoint.folder} knows {', '.join(speakers) or 'no speakers by name'}"
            )
        if self.speaker is not None and self.speaker.lower() not in (values.get("spk_is_dialect") or {}):
            raise UnreadableModelError(f"{checkpoint.talker.path}: spk_is_dialect lacks {self.speaker.lower()}")
        if not any(all((checkpoint.folder / name).exists() for name in names) for names in _TOKENIZERS):
            options = ", or ".join(" and ".join(names) for names in _TOKENIZERS)
            raise UnreadableModelError(f"{checkpoint.folder}: no tokenizer ({options}); download it for --text")

    def about(self) -> dict[str, Any]:
        """What a dump says of where its prefill came from."""
        mode = "non-streaming" if self.non_streaming else "streaming"
        return {"text": self.text, "language": self.language, "speaker": self.speaker, "mode": mode}


def text_call(model: nn.Module, checkpoint: Checkpoint, source: Text) -> tuple[Call, list[int]]:
    """The call for a text, and the text's tokens with the template around them.

    Args:
        model: from `cplab.official_talker.build`.
        checkpoint: whose folder holds the tokenizer.
        source: checked already.

    Raises:
        OfficialUnavailable: torch, transformers or qwen-tts cannot be imported.
        UnreadableModelError: the tokenizer cannot be read, or is another model's.
    """
    wrapper_class, processor_class = official_inference()
    try:
        # The argument is the official loader's; with it transformers splits text by another rule than without.
        processor = processor_class.from_pretrained(str(checkpoint.folder), fix_mistral_regex=True)
        wrapper = wrapper_class(model, processor, _defaults(checkpoint.folder))
        ids = wrapper._tokenize_texts([wrapper._build_assistant_text(source.text)])
    except Exception as error:
        raise UnreadableModelError(f"{checkpoint.folder}: the tokenizer cannot be read ({error})") from error
    tokens = [int(token) for token in ids[0][0]]
    vocab = checkpoint.talker.whole("text_vocab_size")
    if len(tokens) <= _BEFORE + _AFTER or tokens[:_BEFORE] != tokens[-_BEFORE:] or max(tokens) >= vocab:
        raise UnreadableModelError(
            f"{checkpoint.folder}: the tokenizer is not this model's: {len(tokens)} tokens up to {max(tokens)}, "
            f"the model has {vocab}, and a turn is to begin with {_BEFORE} of them"
        )
    named = {"speakers": [source.speaker]} if source.speaker is not None else {}
    call = caught_call(
        model,
        input_ids=ids,
        languages=[source.language],
        non_streaming_mode=source.non_streaming,
        **named,
        **wrapper._merge_generate_kwargs(),
    )
    return call, tokens


def prefill_call(model: nn.Module, checkpoint: Checkpoint, prompt: Prompt) -> Call:
    """The call for a recorded prefill: the rules and the pad of the official ``generate``, the prefill as given.

    Args:
        model: from `cplab.official_talker.build`.
        checkpoint: whose generation_config.json counts.
        prompt: what goes in. Without ``trailing`` the pad is added to every input, as in non-streaming mode.
    """
    import torch

    wrapper_class, _ = official_inference()
    wrapper = wrapper_class(model, None, _defaults(checkpoint.folder))
    call = caught_call(
        model,
        input_ids=[torch.zeros((1, _BEFORE + 1 + _AFTER), dtype=torch.long)],
        languages=["auto"],
        non_streaming_mode=True,
        **wrapper._merge_generate_kwargs(),
    )
    tensors = call.tensors | {
        "inputs_embeds": torch.tensor(prompt.prefill)[None],
        "attention_mask": torch.ones((1, len(prompt.prefill)), dtype=torch.long),
    }
    if prompt.tts_pad is not None:
        tensors["tts_pad_embed"] = torch.tensor(prompt.tts_pad)[None, None]
    tensors["trailing_text_hidden"] = (
        tensors["tts_pad_embed"] if prompt.trailing is None else torch.tensor(prompt.trailing)[None]
    )
    return Call(tensors, call.rules)


def _defaults(folder: Path) -> dict[str, Any]:
    """The checkpoint's own generation arguments; where it has none, the official class's defaults hold."""
    path = folder / "generation_config.json"
    return read_json(path) if path.exists() else {}
