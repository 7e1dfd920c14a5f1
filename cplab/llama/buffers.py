"""llama.cpp's repacked weight layouts alone, without the other extra buffer types of its build.

``use_extra_bufts`` is one switch for all of them: on a machine where AMX faults, turning it off takes the repacked
layouts (several rows interleaved for one vector) away too. They can still be asked for: a model's
``tensor_buft_overrides`` names a buffer type by tensor, and the CPU backend lists its extra types through ggml's
public ``ggml_backend_reg_get_proc_address``.

llama.cpp asks its buffer types what they can hold; an override is not asked. Where a CPU has no repacked layout for a
block type (Q8_0 with AVX2) loading ends in SIGSEGV, which is one reason why settings are tried in a child process.
"""

from __future__ import annotations

import ctypes
from typing import Any

from cplab.errors import EngineError

_WANTED = "CPU_REPACK"
_MATRICES = rb"blk\.\d+\.(attn_(q|k|v|output)|ffn_(gate|up|down))\.weight"
#: ``GGML_BACKEND_DEVICE_TYPE_CPU``.
_CPU_DEVICE = 0


class _Override(ctypes.Structure):
    """``llama_model_tensor_buft_override``."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p))


def repacked_matrices() -> Any:
    """Overrides that put the layers' matrices, and nothing else, into repacked layouts; keep them while loading.

    Raises:
        EngineError: this build of llama.cpp has none.
    """
    address = _extra_types().get(_WANTED)
    if address is None:
        raise EngineError(f"this build of llama.cpp has no buffer type {_WANTED}")
    return (_Override * 2)(_Override(_MATRICES, address), _Override(None, None))


def _extra_types() -> dict[str, int]:
    """Address of each extra buffer type of the CPU backend by its name."""
    from llama_cpp._ggml import libggml

    def function(name: str, result: Any, *arguments: Any) -> Any:
        try:
            return ctypes.CFUNCTYPE(result, *arguments)((name, libggml))
        except AttributeError as error:
            raise EngineError(f"this build of llama.cpp does not export {name}") from error

    pointer = ctypes.c_void_p
    device = function("ggml_backend_dev_by_type", pointer, ctypes.c_int)(_CPU_DEVICE)
    backend = function("ggml_backend_dev_backend_reg", pointer, pointer)(device)
    named = function("ggml_backend_reg_get_proc_address", pointer, pointer, ctypes.c_char_p)
    lister = named(backend, b"ggml_backend_dev_get_extra_bufts")
    if not lister:
        return {}
    found = ctypes.CFUNCTYPE(ctypes.POINTER(pointer), pointer)(lister)(device)
    name_of = function("ggml_backend_buft_name", ctypes.c_char_p, pointer)
    types: dict[str, int] = {}
    while found and found[len(types)]:
        types[name_of(found[len(types)]).decode()] = found[len(types)]
    return types
