"""Variants that die, hang or go wrong late: what a sweep must survive. Loaded with --variant-file."""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

from cplab.decoder import Decoder
from cplab.errors import VariantUnavailableError
from cplab.variant import variant


class _Late(Decoder):
    """Right for ten single calls without a trace, which is more than the gate makes; wrong afterwards."""

    calls = 0

    def predict(self, *arguments, trace=None, **options):
        codes = super().predict(*arguments, trace=trace, **options)
        if trace is None and len(codes) == 1:
            self.calls += 1
        return codes if self.calls <= 10 else codes[:, ::-1].copy()


class _Dies(_Late):
    """Right as long as the gate looks; the process gets a signal in the eleventh call, which is a timed one."""

    signal_number = signal.SIGKILL

    def predict(self, *arguments, trace=None, **options):
        if trace is None and self.calls == 10:
            os.kill(os.getpid(), self.signal_number)
        return super().predict(*arguments, trace=trace, **options)


@variant("good", format="bf16")
def good(model, threads):
    return Decoder(model, threads, format="bf16")


@variant("segfaults", format="bf16")
def segfaults(model, threads):
    ctypes.string_at(0)


@variant("hangs", format="bf16")
def hangs(model, threads):
    time.sleep(3600)


@variant("raises", format="bf16")
def raises(model, threads):
    raise RuntimeError("a bug of its author")


@variant("unavailable", format="bf16", extra="nothing")
def unavailable(model, threads):
    raise VariantUnavailableError("needs the extra nothing: python -m pip install 'cplab[nothing]'")


@variant("wrong", format="bf16")
def wrong(model, threads):
    decoder = Decoder(model, threads, format="bf16")
    decoder.predict, inner = (lambda *a, **k: inner(*a, **k)[:, ::-1].copy()), decoder.predict
    return decoder


@variant("late", format="bf16")
def late(model, threads):
    return _Late(model, threads, format="bf16")


@variant("mixes_fours", format="bf16")
def mixes_fours(model, threads):
    """Right alone, and in a batch of four as long as it is traced; else the first frame's codes for all of the four."""
    decoder = Decoder(model, threads, format="bf16")
    inner = decoder.predict

    def predict(*arguments, trace=None, **options):
        codes = inner(*arguments, trace=trace, **options)
        return codes[[0, 0, 0, 0]] if trace is None and len(codes) == 4 else codes

    decoder.predict = predict
    return decoder


@variant("killed_late", format="bf16")
def killed_late(model, threads):
    return _Dies(model, threads, format="bf16")


@variant("segfaults_late", format="bf16")
def segfaults_late(model, threads):
    decoder = _Dies(model, threads, format="bf16")
    decoder.signal_number = signal.SIGSEGV
    return decoder


@variant("quantised", format="q8_0", arithmetic="q8_0")
def quantised(model, threads):
    sys.path.append(str(Path(__file__).parent.parent / "cplab"))
    from oracle_predictor import OraclePredictor

    return OraclePredictor(model, "q8_0")
