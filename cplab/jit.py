"""Compiled functions, cached on disk so that a fresh process starts at once and never runs a stale kernel.

numba's own cache index looks at the file a function stands in, not at what the file imports: a changed intrinsic in
another module would go unnoticed. So the cache folder is keyed by a digest of every source file that can end up in
compiled code, of the versions of numba and llvmlite, and of the CPU that code is made for. Nothing here is global:
numba's cache setting is restored after each decoration, and a user's own numba code keeps its own cache.
"""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba import types
from numba.core import config
from numba.extending import intrinsic as _intrinsic

from cplab.cachedir import cache_dir

#: ``numba.extending.intrinsic``, under a type that lets annotated code use it.
intrinsic: Any = _intrinsic

#: Sources whose text becomes machine code.
_COMPILED = ("jit.py", "constants.py", "arithmetic*.py", "oracle.py", "formats/*.py", "kernels/*.py")


#: The CPU of `targeting`; None where code is made for numba's own target.
_emitted_for: ContextVar[tuple[str, str] | None] = ContextVar("_emitted_for", default=None)


@contextmanager
def targeting(name: str, features: str) -> Iterator[None]:
    """Let `target_cpu` and `has_feature` speak of another CPU: to emit code that is looked at, not run.

    Args:
        name: LLVM's name of the CPU, e.g. ``neoverse-n1``.
        features: LLVM's feature string, e.g. ``+neon,+dotprod``.
    """
    token = _emitted_for.set((name, features))
    try:
        yield
    finally:
        _emitted_for.reset(token)


def target_cpu() -> tuple[str, str]:
    """CPU name and feature string that code is emitted for: numba's target, or that of `targeting`."""
    return _emitted_for.get() or numba_cpu()


def numba_cpu() -> tuple[str, str]:
    """CPU name and feature string that numba compiles for (not the host's, where the variables say otherwise)."""
    name = config.CPU_NAME or llvm.get_host_cpu_name()
    features = config.CPU_FEATURES
    if features is None:
        features = llvm.get_host_cpu_features().flatten() if not config.CPU_NAME else ""
    return name, features


def has_feature(*names: str) -> bool:
    """Whether the target has every one of these LLVM features, e.g. ``avx512f``.

    LLVM lists what it reads of the machine; on Linux for Arm that leaves ``dotprod`` out, which it knows from the
    CPU's name alone.
    """
    name, features = target_cpu()
    present = {item[1:] for item in features.split(",") if item.startswith("+")}
    absent = set(names) - present
    if absent == {"dotprod"} and "sse2" not in present:
        return _emits_sdot(name, features)
    return not absent


#: A sum of products of bytes: one instruction where there is one for it.
_BYTE_PRODUCTS = """
target triple = "aarch64-unknown-linux-gnu"
declare i32 @llvm.vector.reduce.add.v16i32(<16 x i32>)
define i32 @products(<16 x i8> %a, <16 x i8> %b) {
  %x = sext <16 x i8> %a to <16 x i32>
  %y = sext <16 x i8> %b to <16 x i32>
  %z = mul <16 x i32> %x, %y
  %sum = call i32 @llvm.vector.reduce.add.v16i32(<16 x i32> %z)
  ret i32 %sum
}
"""


@cache
def _emits_sdot(name: str, features: str) -> bool:
    """Whether LLVM takes dot products of bytes for granted on an Arm CPU."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("aarch64-unknown-linux-gnu")
    machine = target.create_target_machine(cpu=name, features=features, opt=2)
    return "sdot" in machine.emit_assembly(llvm.parse_assembly(_BYTE_PRODUCTS))


@cache
def code_digest() -> str:
    """Sixteen hex digits over everything that decides which machine code comes out."""
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for pattern in _COMPILED:
        for path in sorted(here.glob(pattern)):
            digest.update(path.relative_to(here).as_posix().encode() + b"\0" + path.read_bytes())
    facts = (numba.__version__, llvmlite.__version__, platform.machine(), platform.python_version(), *numba_cpu())
    digest.update("\0".join(facts).encode())
    return digest.hexdigest()[:16]


@cache
def compiled_dir() -> Path | None:
    """The folder of this code's compiled kernels, or None where nothing can be written there."""
    path = cache_dir() / "compiled" / code_digest()
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError:
        return None
    return path


@contextmanager
def _keyed_cache() -> Iterator[bool]:
    """Point numba's cache at this code's own folder while a function is decorated; yields whether there is one."""
    folder = compiled_dir()
    before = config.CACHE_DIR
    if folder is not None:
        config.CACHE_DIR = os.fspath(folder)
    try:
        yield folder is not None
    finally:
        config.CACHE_DIR = before


def jit(*, parallel: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """``numba.njit`` as the lab uses it: IEEE arithmetic (no fast-math), numpy's division, cached on disk.

    Args:
        parallel: the function holds a ``prange``.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        with _keyed_cache() as cached:
            return numba.njit(
                function, cache=cached, parallel=parallel, error_model="numpy", fastmath=False, nogil=True
            )

    return decorate


class Entry:
    """A function with a C address, compiled (or loaded from the cache) when the address is first asked for."""

    def __init__(self, function: Callable[..., Any], signature: Any) -> None:
        self.function, self.signature = function, signature
        self._compiled: Any = None

    @property
    def compiled(self) -> Any:
        """Numba's own object, for looking at the machine code."""
        if self._compiled is None:
            with _keyed_cache() as cached:
                self._compiled = numba.cfunc(self.signature, cache=cached, error_model="numpy")(self.function)
        return self._compiled

    @property
    def address(self) -> int:
        """Address of the machine code."""
        return int(self.compiled.address)


def entry(signature: Any) -> Callable[[Callable[..., Any]], Entry]:
    """Compile a function by itself and give it a C address, cached on disk.

    A jitted function that calls another is compiled with all of it inlined, again at every level of a call tree;
    calling heavy code by its address instead keeps compiling to seconds.
    """
    return lambda function: Entry(function, signature)


@intrinsic  # type: ignore[untyped-decorator]
def call_address(typingctx: Any, address: Any, arguments: Any) -> Any:
    """Call compiled code of an `entry` at an int64 address with a tuple of int64 arguments; returns nothing."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        values = [builder.extract_value(args[1], i) for i in range(arguments.count)]
        kind = ir.FunctionType(ir.VoidType(), [word] * arguments.count)
        builder.call(builder.inttoptr(args[0], ir.PointerType(kind)), values)
        return context.get_dummy_value()

    return types.none(types.int64, arguments), generate
