#!/usr/bin/env python3
"""How heavy is the web page, and how soon can it be used?

    target/venv/bin/python perf/page.py [--loads N]

Loads it in a fresh profile of Chromium (Debian: chromium-headless-shell) on this machine. It can be used when its
script has run, which is before the browser's event DOMContentLoaded.
"""

import argparse
import shutil

from playwright.sync_api import sync_playwright
from server import Server, machine
from spread import shown, spread

ENTRIES = """() => {
    const [page] = performance.getEntriesByType("navigation");
    const files = [page, ...performance.getEntriesByType("resource").filter((file) => file.name.includes("/ui/"))];
    return {
        usable_ms: page.domContentLoadedEventStart,
        wire: files.reduce((sum, file) => sum + file.transferSize, 0),
        plain: files.reduce((sum, file) => sum + file.decodedBodySize, 0),
    };
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", type=int, default=20)
    options = parser.parse_args()
    found = []
    with Server() as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium-headless-shell"))
        for _ in range(options.loads):
            context = browser.new_context()
            page = context.new_page()
            page.goto(server.url, wait_until="load")
            assert page.evaluate("document.activeElement.id") == "prompt", "the script has run"
            found.append(page.evaluate(ENTRIES))
            context.close()
        browser.close()
    print(f"bytes on the wire, heads included: {found[0]['wire']}; unpacked: {found[0]['plain']}")
    print(f"usable after: {shown(spread([one['usable_ms'] for one in found]), '.0f')} ms")
    print(f"machine: {machine()}")


if __name__ == "__main__":
    main()
