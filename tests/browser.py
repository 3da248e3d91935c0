"""A real browser for tests: Chromium without a window, spoken to over its DevTools pipe; no driver is
needed."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import selectors
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)

_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # as root, as in most containers, there is none to be had
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39, " ": 32}


class Page:
    """One page of the browser.

    Attributes:
        requests: The addresses that it asked for.
        complaints: What its console shows: exceptions, errors, warnings, breaches of its security policy.
        dialogs: What it said by `alert` and the like.
    """

    def __init__(self, incoming: int, outgoing: int) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.dialogs: list[str] = []
        self._incoming, self._outgoing = incoming, outgoing
        self._session: str | None = None
        self._sent = 0
        self._buffer = b""
        self._loaded = False
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def open(
        self, place: Path | str, *, width: int = 1200, height: int = 900, dark: bool = False
    ) -> None:
        """Load a file, or an address, and wait until it is there."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.send(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        self._loaded = False
        self.send(
            "Page.navigate", url=place if isinstance(place, str) else place.resolve().as_uri()
        )
        deadline = time.monotonic() + 60
        while not self._loaded:
            self._take(self._receive(deadline))

    def run(self, expression: str) -> Any:
        """The value of an expression in the page; what it throws is raised."""
        answer = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Wait until an expression is true in the page."""
        deadline = time.monotonic() + 60
        while not self.run(f"Boolean({expression})"):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"never true: {expression}; the page: {self.run('document.body.innerText')}"
                )
            time.sleep(0.02)

    def click(self, selector: str) -> None:
        """Click the middle of the first element that the selector finds, as a hand would."""
        self.move_to(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.send(
                "Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **self._place
            )

    def move_to(self, selector: str, across: float = 0.5, down: float = 0.5) -> None:
        """Move the mouse over an element; `across` and `down` are shares of its width and height."""
        box = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            " return [b.left, b.top, b.width, b.height]; })()"
        )
        self._place = {"x": box[0] + box[2] * across, "y": box[1] + box[3] * down}
        self.send("Input.dispatchMouseEvent", type="mouseMoved", **self._place)

    def press(self, key: str) -> None:
        """Press a key: "Tab", "Enter", "Escape", "ArrowLeft", "ArrowRight" or " "."""
        text = {"Enter": "\r", " ": " "}.get(key, "")
        common = {
            "key": key,
            "code": "Space" if key == " " else key,
            "windowsVirtualKeyCode": _KEYS[key],
        }
        self.send(
            "Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **common
        )
        self.send("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, selector: str, text: str) -> None:
        """Put the cursor into a field and type."""
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        self.send("Input.insertText", text=text)

    def screenshot(self, file: Path, *, whole: bool = True) -> None:
        """Save what the page looks like as PNG; `whole`: not just what is in sight."""
        image = self.send("Page.captureScreenshot", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(image["data"]))

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a DevTools command and wait for its answer."""
        self._sent += 1
        number = self._sent
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._outgoing, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 60
        while True:
            received = self._receive(deadline)
            if received.get("id") != number:
                self._take(received)
            elif "error" in received:
                raise RuntimeError(f"{method}: {received['error']['message']}")
            else:
                return received["result"]  # type: ignore[no-any-return]

    def _receive(self, deadline: float) -> dict[str, Any]:
        with selectors.DefaultSelector() as watched:
            watched.register(self._incoming, selectors.EVENT_READ)
            while b"\0" not in self._buffer:
                ready = watched.select(max(0.0, deadline - time.monotonic()))
                read = os.read(self._incoming, 1 << 20) if ready else b""
                if not read:
                    raise TimeoutError(
                        "the browser did not answer" if not ready else "the browser has ended"
                    )
                self._buffer += read
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)  # type: ignore[no-any-return]

    def _take(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Page.javascriptDialogOpening":
                self.dialogs.append(params["message"])
                self._sent += 1
                close = {
                    "id": self._sent,
                    "method": "Page.handleJavaScriptDialog",
                    "params": {"accept": True},
                }
                os.write(
                    self._outgoing,
                    json.dumps({**close, "sessionId": self._session}).encode() + b"\0",
                )
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.complaints.append(json.dumps(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.complaints.append(params["entry"]["text"])


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """Start Chromium with a profile folder of its own; it ends with the block."""
    assert CHROMIUM is not None
    to_browser, to_page = os.pipe(), os.pipe()
    # Chromium reads from 3 and writes to 4: get ours out of the way of these two first.
    reads, writes = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_browser[0], to_page[1]))
    ours = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (to_page[0], to_browser[1])]
    for end in (*to_browser, *to_page):
        os.close(end)

    def as_chromium_wants() -> None:
        os.dup2(reads, 3)
        os.dup2(writes, 4)

    process = subprocess.Popen(
        [CHROMIUM, *_FLAGS, f"--user-data-dir={profile}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(3, 4),
        preexec_fn=as_chromium_wants,
    )
    os.close(reads)
    os.close(writes)
    try:
        yield Page(*ours)
    finally:
        for end in ours:
            os.close(end)  # with its pipe gone, Chromium ends
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
