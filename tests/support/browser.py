"""A headless Chromium for tests, driven over its debugging pipe: no driver program, no sockets.

Messages of the DevTools protocol are JSON, ended by a NUL byte; Chromium reads them from file
descriptor 3 and answers on 4.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-quic",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
_SECONDS = 30.0
_KEYS = {"Enter": "\r", " ": " "}


def find() -> str | None:
    """The browser's path, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One tab. `events` has all that the browser has reported: (method, parameters)."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._ids = itertools.count(1)
        self._buffer = b""
        self._session: str | None = None
        self.events: list[tuple[str, dict[str, Any]]] = []

    def attach(self) -> None:
        """Opens the tab and asks for everything that it reports."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Sends a command and waits for its answer."""
        message = {"id": next(self._ids), "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        answer = self._until(lambda m: m.get("id") == message["id"])
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _until(self, wanted: Any) -> dict[str, Any]:
        end = time.monotonic() + _SECONDS
        while True:
            while b"\0" in self._buffer:
                raw, _, self._buffer = self._buffer.partition(b"\0")
                message: dict[str, Any] = json.loads(raw)
                if "method" in message:
                    self.events.append((message["method"], message["params"]))
                if wanted(message):
                    return message
            ready, _, _ = select.select([self._from], [], [], max(0.0, end - time.monotonic()))
            data = os.read(self._from, 1 << 16) if ready else b""
            if not data:
                raise TimeoutError("the browser does not answer")
            self._buffer += data

    def open(self, file: Path) -> None:
        """Loads a file from disk."""
        self.events.clear()
        self.call("Page.navigate", url=file.resolve().as_uri())
        self._until(lambda m: m.get("method") == "Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression. Raises RuntimeError where it throws."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """A key, pressed and released."""
        text = {"text": _KEYS[key]} if key in _KEYS else {}
        code = {"key": key, "code": "Space" if key == " " else key}
        code["windowsVirtualKeyCode"] = {"Tab": 9, "Enter": 13, " ": 32}[key]  # type: ignore[assignment]
        self.call("Input.dispatchKeyEvent", type="keyDown", **code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    def click(self, selector: str) -> None:
        """The left button in the middle of an element."""
        box = self.evaluate(
            f"(e => {{ e.scrollIntoView({{block: 'center', behavior: 'instant'}});"
            "const b = e.getBoundingClientRect();"
            f"return [b.x + b.width / 2, b.y + b.height / 2] }})"
            f"(document.querySelector({json.dumps(selector)}))"
        )
        at = {"x": box[0], "y": box[1], "button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type="mousePressed", **at)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", **at)

    def show(self, width: int = 1280, height: int = 800, dark: bool = False) -> None:
        """The window's size, and the reader's theme."""
        phone = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=phone,
        )  # fmt: skip
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[theme])

    def screenshot(self, file: Path, whole: bool = False) -> None:
        """A PNG of what is visible, or of the whole page."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        file.write_bytes(base64.b64decode(data))

    @property
    def requests(self) -> list[str]:
        """The addresses that were asked for."""
        found = (p["request"]["url"] for m, p in self.events if m == "Network.requestWillBeSent")
        return [url for url in found if not url.startswith("data:")]

    @property
    def errors(self) -> list[dict[str, Any]]:
        """Exceptions, errors on the console, and what the browser itself complains about."""
        return [
            params
            for method, params in self.events
            if method == "Runtime.exceptionThrown"
            or (method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"))
            or (method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"))
        ]


@contextmanager
def chromium(path: str) -> Iterator[Page]:
    """Starts the browser with an empty profile; ends it afterwards."""
    read_commands, to_browser = os.pipe()
    from_browser, write_answers = os.pipe()
    pipes = (read_commands, write_answers)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # The shell gives the pipes the numbers that Chromium expects.
        script = f'exec "$0" "$@" 3<&{read_commands} 4>&{write_answers}'
        command = ["bash", "-c", script, path, *_FLAGS, f"--user-data-dir={profile}"]
        process = subprocess.Popen(
            command, pass_fds=pipes, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            for pipe in pipes:
                os.close(pipe)
            page = Page(to_browser, from_browser)
            page.attach()
            yield page
        finally:
            for pipe in (to_browser, from_browser):
                os.close(pipe)
            process.terminate()
            process.wait()
