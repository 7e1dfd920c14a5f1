"""The official classes of qwen-tts 0.1.1, imported without what its packages ask for and the lab does not use.

``qwen_tts/__init__.py`` and ``qwen_tts/core/__init__.py`` pull in torchaudio, sox, onnxruntime and more for the audio
tokenizers, none of which the talker, the code predictor or the 12 Hz decoder touches. So the files that matter are
executed under a private package name, ``_cplab_qwen_tts``, made of bare packages with the real folders as ``__path__``:
the package imports its own files relatively, so no ``__init__`` runs and ``sys.modules`` never holds a half-made
``qwen_tts``; an ordinary ``import qwen_tts`` later behaves as if this module did not exist (its classes are then other
objects than the ones here). Names that those files import at their top and use elsewhere are stood in for:

* ``qwen_tts.inference.qwen3_tts_tokenizer.Qwen3TTSTokenizer`` (turns codes into sound): always, in the private package;
* ``librosa`` and ``soundfile`` (speech as input): only while a file is imported, and only where not installed.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any, NoReturn

from cplab.errors import VariantUnavailableError

INSTALL = "python -m pip install 'cplab[torch]' && python -m pip install --no-deps qwen-tts==0.1.1"
_ALIAS = "_cplab_qwen_tts"
_import_lock = threading.RLock()


class OfficialUnavailable(VariantUnavailableError):  # noqa: N818 - reads as the state that it reports
    """torch, transformers or qwen-tts cannot be imported; the message holds the command that installs them."""


def versions() -> dict[str, str]:
    """Installed versions of what computes the reference: keys ``torch``, ``transformers``, ``qwen-tts``.

    Imports none of them.

    Raises:
        OfficialUnavailable: one of them is not installed.
    """
    try:
        return {name: importlib.metadata.version(name) for name in ("torch", "transformers", "qwen-tts")}
    except importlib.metadata.PackageNotFoundError as error:
        raise OfficialUnavailable(f"the official classes need {error.name}: {INSTALL}") from error


@cache
def official_modules() -> tuple[ModuleType, ModuleType]:
    """The official configuration and modeling modules.

    Raises:
        OfficialUnavailable: torch, transformers or qwen-tts cannot be imported.
    """
    with _import_lock, _told():
        # Imported before the stand-ins exist, because transformers looks once for what is installed.
        importlib.import_module("torch")
        importlib.import_module("transformers.modeling_utils")
        importlib.import_module("transformers.generation")
        spec = importlib.util.find_spec("qwen_tts")
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError("No module named 'qwen_tts'")
        _bare_packages(list(spec.submodule_search_locations))
        with _stand_ins("librosa", "librosa.filters"):
            configuration = importlib.import_module(f"{_ALIAS}.core.models.configuration_qwen3_tts")
            modeling = importlib.import_module(f"{_ALIAS}.core.models.modeling_qwen3_tts")
    return configuration, modeling


@cache
def official_inference() -> tuple[Any, Any]:
    """``Qwen3TTSModel``, which turns text into the model's input, and ``Qwen3TTSProcessor``, which holds a tokenizer.

    Raises:
        OfficialUnavailable: torch, transformers or qwen-tts cannot be imported.
    """
    configuration, modeling = official_modules()
    with _import_lock, _told():
        importlib.import_module("transformers.processing_utils")
        processing = importlib.import_module(f"{_ALIAS}.core.models.processing_qwen3_tts")
        # The names that its own ``__init__`` gives this package.
        sys.modules[f"{_ALIAS}.core.models"].__dict__.update(
            Qwen3TTSConfig=configuration.Qwen3TTSConfig,
            Qwen3TTSForConditionalGeneration=modeling.Qwen3TTSForConditionalGeneration,
            Qwen3TTSProcessor=processing.Qwen3TTSProcessor,
        )
        with _stand_ins("librosa", "librosa.filters"), _stand_ins("soundfile"):
            inference = importlib.import_module(f"{_ALIAS}.inference.qwen3_tts_model")
    return inference.Qwen3TTSModel, processing.Qwen3TTSProcessor


@cache
def official_speech_tokenizer() -> tuple[ModuleType, ModuleType]:
    """The configuration and modeling modules of the 12 Hz speech tokenizer, whose decoder turns codes into sound.

    Raises:
        OfficialUnavailable: torch, transformers or qwen-tts cannot be imported.
    """
    official_modules()  # makes the private package
    at = f"{_ALIAS}.core.tokenizer_12hz"
    with _import_lock, _told():
        configuration = importlib.import_module(f"{at}.configuration_qwen3_tts_tokenizer_v2")
        modeling = importlib.import_module(f"{at}.modeling_qwen3_tts_tokenizer_v2")
    return configuration, modeling


@contextmanager
def _told() -> Iterator[None]:
    """Turn an ImportError into one line with what to install; nothing half-made stays behind."""
    try:
        yield
    except ImportError as error:
        for name in [name for name in sys.modules if name.split(".")[0] == _ALIAS]:
            del sys.modules[name]
        official_modules.cache_clear()
        reason = " ".join(str(error).split())
        raise OfficialUnavailable(f"the official classes cannot be imported ({reason}): {INSTALL}") from error


def _bare_packages(folders: list[str]) -> None:
    """Packages over the official folders, without their ``__init__`` files, and the speech tokenizer's stand-in."""
    for tail in ("", ".core", ".core.models", ".core.tokenizer_12hz", ".inference"):
        package = ModuleType(_ALIAS + tail)
        package.__path__ = [folder + tail.replace(".", "/") for folder in folders]
        sys.modules[package.__name__] = package
    tokenizer = ModuleType(f"{_ALIAS}.inference.qwen3_tts_tokenizer")
    tokenizer.__dict__["Qwen3TTSTokenizer"] = type("Qwen3TTSTokenizer", (), {"from_pretrained": _absent})
    sys.modules[tokenizer.__name__] = tokenizer


def _absent(*_: object, **__: object) -> NoReturn:
    raise OfficialUnavailable("speech input and output of qwen-tts are not loaded; codes are all that the lab makes")


@contextmanager
def _stand_ins(package: str, *inner: str) -> Iterator[None]:
    """A package that is imported but not used, for as long as the import takes, where it is not installed."""
    if package in sys.modules or importlib.util.find_spec(package) is not None:
        yield
        return
    names = (package, *inner)
    for name in names:
        module = ModuleType(name)
        module.__dict__["mel"] = _absent
        sys.modules[name] = module
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]
