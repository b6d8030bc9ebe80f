"""How heavy is the web page, and how soon can it be used?

Loads it in a fresh profile of Chromium (Debian: chromium-headless-shell) on this machine. It can be used when its
script has run, which is before the browser's event DOMContentLoaded. It needs Playwright: target/venv/bin/python
perf/study page.
"""

import shutil
import sys

from shared.report import add, add_server, needed
from shared.server import Server
from shared.statistics import shown, spread

ENTRIES = """() => {
    const [page] = performance.getEntriesByType("navigation");
    const files = [page, ...performance.getEntriesByType("resource").filter((file) => file.name.includes("/ui/"))];
    return {
        usable_ms: page.domContentLoadedEventStart,
        wire: files.reduce((sum, file) => sum + file.transferSize, 0),
        plain: files.reduce((sum, file) => sum + file.decodedBodySize, 0),
    };
}"""


def arguments(parser) -> None:
    add_server(parser)
    add(parser, loads=20)


def run(args) -> dict:
    sync_playwright = needed("playwright.sync_api", "Playwright").sync_playwright
    chromium = shutil.which("chromium-headless-shell") or sys.exit("chromium-headless-shell is missing; Debian has it")
    found = []
    with Server(model=args.model, binary=args.binary) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        for _ in range(args.loads):
            context = browser.new_context()
            page = context.new_page()
            page.goto(server.url, wait_until="load")
            assert page.evaluate("document.activeElement.id") == "prompt", "the script has run"
            found.append(page.evaluate(ENTRIES))
            context.close()
        browser.close()
    print(f"bytes on the wire, heads included: {found[0]['wire']}; unpacked: {found[0]['plain']}")
    print(f"usable after: {shown(spread(one['usable_ms'] for one in found), '.0f')} ms")
    return {"loads": found}
