"""The site: its own modules on the path; for browser tests the built pages, served from here."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from turbo_lab.core import host

from ..browsers import FLAGS, absent, browser_path

SITE = host.repository_root() / "site"
HTML = SITE / "_build" / "html"
sys.path.insert(0, str(SITE))


@pytest.fixture(scope="session")
def html() -> Path:
    """Folder of the built site."""
    if not (HTML / "index.html").exists():
        absent("the site was not built: make site")
    return HTML


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a log line for each."""

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(scope="session")
def address(html: Path) -> Iterator[str]:
    """Where the built site is served on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(html))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """One headless Chromium for all tests of a process."""
    found = browser_path()
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


class Visit:
    """An open page, with what it asked for and complained about."""

    def __init__(self, page: Any, address: str) -> None:
        self.page, self.address = page, address
        self.problems: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("response", self._response)
        page.route("**/*", self._route)

    def _console(self, message: Any) -> None:
        if message.type == "error":
            self.problems.append(f"console: {message.text}")

    def _response(self, response: Any) -> None:
        if response.status >= 400:
            self.problems.append(f"{response.status}: {response.url}")

    def _route(self, route: Any) -> None:
        if route.request.url.startswith((self.address, "data:", "blob:")):
            route.continue_()
        else:
            self.problems.append(f"leaves the machine: {route.request.url}")
            route.abort()

    def open(self, path: str) -> None:
        """Load one page, with all that it asks for."""
        self.page.goto(f"{self.address}/{path}", wait_until="networkidle", timeout=60_000)


@pytest.fixture(scope="session")
def axe() -> Any:
    """axe-core, the accessibility checker, from its package: nothing is fetched."""
    try:
        from axe_playwright_python.sync_playwright import Axe
    except ImportError:
        absent("axe-playwright-python is not installed: make env-test")
    return Axe()


@pytest.fixture
def visit(chromium: Any, address: str) -> Iterator[Visit]:
    """A new visitor with a wide screen."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    yield Visit(context.new_page(), address)
    context.close()
