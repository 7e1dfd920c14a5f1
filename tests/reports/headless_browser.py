"""A real headless browser over its debugging pipe: what a page logs, how wide it comes out, what keys do to it."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from contextlib import contextmanager

import pytest

FLAGS = (
    "--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync",
    "--disable-component-update", "--disable-dev-shm-usage", "--remote-debugging-pipe",
)  # fmt: skip


class Page:
    """One page. ``logged`` holds warnings, errors, exceptions and console messages of whatever it showed."""

    def __init__(self, write_fd, read_fd, deadline_s):
        self._write, self._read, self._deadline_s = write_fd, read_fd, deadline_s
        self._buffer, self._number, self._session, self._loaded = b"", 0, None, 0
        self.logged, self.requested = [], []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def show(self, path, width=1280, media=""):
        """Open a file at a width, as on a screen or in print, and wait until it is there."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", media=media)
        seen = self._loaded
        self.call("Page.navigate", url=path.as_uri())
        while self._loaded == seen:
            self._next()

    def value(self, expression):
        """What a JavaScript expression comes to."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key, code):
        """A key, down and up."""
        text = {"text": "\r"} if key == "Enter" else {}
        shared = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", **shared, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **shared)

    def pdf_bytes(self):
        """The page as it would be printed."""
        import base64

        return base64.b64decode(self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"])

    def _next(self):
        until = time.monotonic() + self._deadline_s
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            assert ready, "the browser does not answer"
            read = os.read(self._read, 1 << 20)
            assert read, "the browser is gone"
            self._buffer += read
        raw, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(raw)
        method, given = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded += 1
        elif method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.logged.append(given)
        elif method == "Network.requestWillBeSent":
            self.requested.append(given["request"]["url"])
        return message


@contextmanager
def open_browser(folder, deadline_s=90.0):
    """A page of a fresh browser; skips where there is none or it does not start."""
    binary = next((found for name in ("chromium", "google-chrome", "chrome") if (found := shutil.which(name))), None)
    if binary is None or os.name != "posix":
        pytest.skip("needs chromium or google-chrome on PATH")
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    command = [binary, *FLAGS, *root, f"--user-data-dir={folder / 'profile'}"]
    to_browser, from_browser = os.pipe(), os.pipe()

    def pipes_as_3_and_4():
        given = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (to_browser[0], from_browser[1])]
        os.dup2(given[0], 3)
        os.dup2(given[1], 4)

    process = subprocess.Popen(
        command, close_fds=False, preexec_fn=pipes_as_3_and_4, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(to_browser[0])
    os.close(from_browser[1])
    try:
        try:
            page = Page(to_browser[1], from_browser[0], deadline_s)
        except (AssertionError, OSError) as error:
            pytest.skip(f"the browser does not start here: {error}")
        yield page
    finally:
        process.terminate()
        process.wait(30)
        os.close(to_browser[1])
        os.close(from_browser[0])
