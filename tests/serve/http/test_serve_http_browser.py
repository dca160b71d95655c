"""The chat page in a real browser without a window: it streams, remembers, speaks two languages, and asks nobody else.

``TRANSPECT_CHROMIUM`` names the browser, a Chromium or its headless shell; it is spoken to through its debugging pipe.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
NAMES = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome", "chrome-headless-shell")


class Browser:
    """A page of a browser.

    Args:
        program: the browser.
        profile: where it keeps what it remembers.
    """

    def __init__(self, program: str, profile: Path) -> None:
        to_read, self._out = os.pipe()
        self._in, to_write = os.pipe()

        def plug() -> None:  # the browser reads from 3 and writes to 4
            os.dup2(to_read, 3)
            os.dup2(to_write, 4)

        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-zygote", "--single-process", "--no-first-run"]
        self._process = subprocess.Popen(
            [program, *flags, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=plug,  # noqa: PLW1509 # it does nothing but dup2
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._number, self._held, self.told = 0, b"", list[dict[str, Any]]()
        self._session: str | None = None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for part in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{part}.enable")

    def ask(self, method: str, **params: Any) -> Any:
        """Ask the browser something; what it tells meanwhile is kept."""
        self._number += 1
        session = {} if self._session is None else {"sessionId": self._session}
        os.write(
            self._out, json.dumps({"id": self._number, "method": method, "params": params, **session}).encode() + b"\0"
        )
        while True:
            while b"\0" not in self._held:
                part = os.read(self._in, 65536)
                assert part, "the browser has gone"
                self._held += part
            line, _, self._held = self._held.partition(b"\0")
            message = json.loads(line)
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]
            self.told.append(message)

    def run(self, script: str) -> Any:
        """The value of an expression."""
        result = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, script: str, seconds: float = 30.0) -> None:
        """Wait until an expression holds."""
        end = time.monotonic() + seconds
        while not self.run(script):
            assert time.monotonic() < end, script
            time.sleep(0.05)

    def press(self, key: str, modifiers: int = 0) -> None:
        """Press a key."""
        code = {"Enter": 13, "Escape": 27}.get(key, ord(key[0].upper()))
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            more = text if kind == "keyDown" else {}
            self.ask(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, modifiers=modifiers, **more
            )

    def close(self) -> None:
        """End the browser."""
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    found = os.environ.get("TRANSPECT_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium; TRANSPECT_CHROMIUM names one")
    made = Browser(found, tmp_path)
    yield made
    made.close()


def test_a_conversation_by_keyboard(browser: Browser, build: Any, listen: Any) -> None:
    with listen(build("writer")) as server:
        browser.ask("Page.navigate", url=f"{server.url}/")
        browser.until("document.querySelectorAll('#model option').length == 2")
        browser.run("document.getElementById('text').focus()")
        browser.ask("Input.insertText", text="小猫爱吃")
        browser.press("Enter")
        browser.until("document.querySelector('article.assistant footer') !== null")
        answer = browser.run("document.querySelector('article.assistant div').textContent")
        assert answer, "it streams into the page"
        assert browser.run("document.querySelector('article.user div').textContent") == "小猫爱吃"

        browser.ask("Page.reload")
        browser.until("document.querySelectorAll('#chats li').length == 1")
        browser.run("document.querySelector('#chats li button').click()")
        assert browser.run("document.querySelector('article.assistant div').textContent") == answer, "it remembers"
        for word in ("Send", "发送"):
            if browser.run("document.getElementById('send').textContent") != word:
                browser.run("document.getElementById('lang').click()")
            assert browser.run("document.getElementById('send').textContent") == word
        browser.press("k", modifiers=2)
        browser.until("document.querySelectorAll('article').length == 0")
        browser.press(",", modifiers=2)
        browser.until("document.getElementById('settings').open")
        browser.press("Escape")
        browser.until("!document.getElementById('settings').open")

        asked = [
            own["params"]["request"]["url"] for own in browser.told if own["method"] == "Network.requestWillBeSent"
        ]
        assert asked and all(url.startswith((server.url, "data:", "about:")) for url in asked)
        wrong = [own for own in browser.told if own["method"] == "Runtime.exceptionThrown"]
        wrong += [
            own
            for own in browser.told
            if own["method"] == "Log.entryAdded" and own["params"]["entry"]["level"] == "error"
        ]
        assert not wrong
