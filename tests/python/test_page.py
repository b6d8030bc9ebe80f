"""The web page in a real browser: Debian's chromium-headless-shell, driven by Playwright."""

import contextlib
import hashlib
import json
import re
import shutil
import socket
import subprocess
import time
import urllib.request

import pytest
from conftest import BINARY, KEY, ROOT, address, running
from playwright.sync_api import Page, expect, sync_playwright

SOURCES = ROOT / "tools" / "page"
QUESTION = "Tell me a story about a robot."
CHAT = "**/v1/chat/completions"


# Not for the whole session: while Playwright runs, no test can use asyncio.
@pytest.fixture(scope="module")
def browser():
    path = shutil.which("chromium-headless-shell")
    assert path, "install the browser of these tests: apt-get install chromium-headless-shell"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def page_server():
    with running() as banner:
        yield address(banner)


@pytest.fixture(scope="session")
def slow_server(slow_model):
    with running(f"--model={slow_model}") as banner:
        yield address(banner)


@pytest.fixture
def open_page(browser):
    """Opens the page in a browser of its own. In the end, no page may have had an error."""
    problems = []

    def open_page(server, key=KEY, **options) -> Page:
        context = browser.new_context(**({"viewport": {"width": 1440, "height": 900}} | options))
        contexts.append(context)
        context.set_default_timeout(10_000)
        page = context.new_page()
        # A violation of the content security policy is an error on the console.
        page.on("console", lambda message: message.type == "error" and problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        if key:
            page.add_init_script(f"try {{ sessionStorage.setItem('corelane.key', '{key}') }} catch {{}}")
        page.goto(server)
        return page

    contexts = []
    yield open_page
    for context in contexts:
        context.close()
    # Requests that fail are part of some tests.
    assert [text for text in problems if "Failed to load resource" not in text] == []


@pytest.fixture
def page(open_page, page_server):
    return open_page(page_server)


@pytest.fixture
def slow_page(open_page, slow_server):
    return open_page(slow_server)


def ask(page, text=QUESTION):
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def answers(page):
    return page.get_by_role("article", name="Answer")


def ended(page, count=1):
    """The last answer, which is the one with this number, once it is complete."""
    expect(answers(page)).to_have_count(count)
    expect(answers(page).last).to_have_attribute("aria-busy", "false", timeout=30_000)
    return answers(page).last


def text_of(answer):
    return answer.locator("> .text").inner_text()


def go_on_for_long(page):
    """Lets answers run to the end of the context: 1,024 tokens, which take more than a second with the slow model."""
    page.route(CHAT, lambda route: route.continue_(post_data=json.dumps(route.request.post_data_json | {"ignore_eos": True})))


def answer_with(page, text, **finish):
    """Lets the page's next answers be this text, in pieces."""
    deltas = [{"content": text[at : at + 7]} for at in range(0, len(text), 7)]
    events = [{"choices": [{"delta": delta, "finish_reason": None}]} for delta in deltas]
    events.append({"choices": [{"delta": {}, "finish_reason": "stop"}]} | finish)
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    page.route(CHAT, lambda route: route.fulfill(content_type="text/event-stream", body=body))


def get(server, path):
    request = urllib.request.Request(server + path, headers={"authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def test_the_built_files_are_current():
    names = ["app.css", "icon.svg", "index.html", *sorted(f"src/{path.name}" for path in SOURCES.glob("src/*.ts"))]
    digest = hashlib.sha256(b"".join((SOURCES / name).read_bytes() for name in names)).hexdigest()
    built = (ROOT / "src" / "page" / "app.js").read_text().splitlines()[0]
    assert built == f"// Built by tools/page/build.sh from sources with SHA-256 {digest}", "run tools/page/build.sh"


def test_the_policy_lets_the_page_reach_only_its_own_server(page_server):
    with urllib.request.urlopen(page_server) as response:
        policy = response.headers["content-security-policy"]
    for rule in ["default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"]:
        assert rule in policy


def test_an_answer_streams_to_its_end_and_shows_its_figures(slow_page):
    page = slow_page
    page.evaluate(
        """() => {
            const messages = document.querySelector('#messages');
            window.lengths = [];
            new MutationObserver(() => lengths.push(messages.textContent.length))
                .observe(messages, { childList: true, characterData: true, subtree: true });
        }"""
    )
    go_on_for_long(page)
    ask(page)
    answer = ended(page)
    assert len(set(page.evaluate("lengths"))) > 4, "the text should grow while it streams"
    assert len(text_of(answer)) > 100
    figures = answer.locator(".numbers summary").inner_text()
    assert re.fullmatch(r"TTFT [\d.,]+ ms · [\d.,]+ tokens/s · [\d,]+ tokens", figures)
    expect(page.locator("#announce")).to_have_text(re.compile(r"Answer complete, \d+ tokens"))
    answer.locator(".numbers summary").click()
    expect(answer.locator(".numbers dl")).to_contain_text("First token, on the server")


def test_an_answer_tells_how_many_tokens_came_from_files(open_page, tmp_path):
    question = QUESTION * 20
    for shown in [False, True]:
        with running(f"--cache-disk={tmp_path}") as banner:
            page = open_page(address(banner))
            ask(page, question)
            answer = ended(page)
            answer.locator(".numbers summary").click()
            names = answer.locator(".numbers dt").all_inner_texts()
            numbers = dict(zip(names, answer.locator(".numbers dd").all_inner_texts(), strict=True))
            assert ("of these, from files" in numbers) == shown
            if shown:
                cached, stored = numbers["of these, cached"], numbers["of these, from the prefix store"]
                assert numbers["of these, from files"] == stored == cached != "0"


def test_the_models_name_is_shown_without_a_key(open_page, page_server):
    page = open_page(page_server, key=None)
    expect(page.get_by_role("banner")).to_contain_text("corelane built-in")


def test_stop_ends_the_answer_and_frees_its_slot(slow_page, slow_server):
    page = slow_page
    go_on_for_long(page)
    ask(page)
    expect(answers(page).last.locator("> .text")).not_to_be_empty()
    page.get_by_role("button", name="Stop").click()
    answer = ended(page)
    expect(answer).to_contain_text("Stopped.")
    figures = answer.locator(".numbers summary").inner_text().replace(",", "")
    tokens = int(re.search(r"(\d+) tokens?$", figures)[1])
    assert tokens < 900, "it should have ended before the context was full"
    deadline = time.monotonic() + 5
    while any(slot["is_processing"] for slot in get(slow_server, "/slots")):
        assert time.monotonic() < deadline, "the slot still works on an answer that nobody reads"

    before = text_of(answer)
    answer.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("button", name="Send")).to_be_visible(timeout=30_000)
    assert text_of(ended(page)).startswith(before.rstrip())
    assert len(text_of(ended(page))) > len(before)


def test_a_reload_keeps_the_conversation(page):
    ask(page)
    before = text_of(ended(page))
    page.reload()
    expect(page.get_by_role("article", name="You")).to_contain_text(QUESTION)
    assert text_of(ended(page)) == before


def test_conversations_are_kept_apart_and_can_be_deleted(page):
    ask(page, "The first question")
    first = text_of(ended(page))
    page.keyboard.press("Control+k")
    expect(answers(page)).to_have_count(0)
    ask(page, "The second question")
    ended(page)
    conversations = page.get_by_role("navigation", name="Conversations")
    expect(conversations.get_by_role("listitem")).to_have_count(2)
    conversations.get_by_role("button", name="The first question", exact=True).click()
    assert text_of(ended(page)) == first

    conversations.get_by_role("button", name="Delete “The first question”").click()
    expect(conversations.get_by_role("listitem")).to_have_count(1)
    expect(page.get_by_role("article", name="You")).to_have_text(re.compile("The second question"))
    page.get_by_role("button", name="Undo").click()
    expect(conversations.get_by_role("listitem")).to_have_count(2)
    conversations.get_by_role("button", name="Delete “The second question”").click()
    page.reload()
    expect(conversations.get_by_role("listitem")).to_have_count(1)


def test_an_edited_question_and_a_regenerated_answer_replace_the_old_ones(page):
    bodies = []
    page.on("request", lambda request: request.method == "POST" and bodies.append(request.post_data_json))
    ask(page, "First")
    ended(page)
    ask(page, "Second")
    ended(page, 2)
    assert [message["role"] for message in bodies[1]["messages"]] == ["user", "assistant", "user"]

    answers(page).last.get_by_role("button", name="Regenerate").click()
    ended(page, 2)
    assert bodies[2]["messages"] == bodies[1]["messages"]

    page.get_by_role("article", name="You").first.get_by_role("button", name="Edit").click()
    page.get_by_label("Edit the message").fill("Changed")
    page.get_by_role("button", name="Ask again").click()
    ended(page, 1)
    assert bodies[3]["messages"] == [{"role": "user", "content": "Changed"}]
    expect(page.get_by_role("navigation").get_by_role("listitem")).to_contain_text("Changed")


def test_settings_reach_the_request_and_stay(page):
    settings = page.get_by_role("dialog", name="Settings")
    given = {"Temperature": "0", "Top p": "0.5", "Top k": "7", "Min p": "0.1", "Max tokens": "5", "Seed": "42"}
    page.get_by_role("button", name="Settings").click()
    settings.get_by_label("System prompt").fill("Be brief.")
    for label, value in given.items():
        settings.get_by_label(label, exact=True).fill(value)
    settings.get_by_role("button", name="Save").click()
    page.reload()
    with page.expect_request(CHAT) as request:
        ask(page, "Hello")
    body = request.value.post_data_json
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    sampling = {"temperature": 0, "top_p": 0.5, "top_k": 7, "min_p": 0.1, "max_tokens": 5, "seed": 42}
    assert {name: body.get(name) for name in sampling} == sampling
    expect(ended(page)).to_contain_text("Ended at the limit of tokens.")

    page.get_by_role("button", name="Settings").click()
    for label in given:
        settings.get_by_label(label, exact=True).fill("")
    settings.get_by_role("button", name="Save").click()
    with page.expect_request(CHAT) as request:
        ask(page, "Hello again")
    assert not sampling.keys() & request.value.post_data_json.keys()
    ended(page, 2)


def test_a_wrong_key_is_named_and_the_right_one_repeats_the_request(open_page, page_server):
    page = open_page(page_server, key=None)
    dialog = page.get_by_role("dialog", name="API key")
    ask(page)
    expect(dialog).to_contain_text("This server needs an API key.")
    dialog.get_by_label("Key", exact=True).fill("wrong")
    page.keyboard.press("Enter")
    expect(dialog).to_contain_text("The server refused this key.")
    dialog.get_by_label("Key", exact=True).fill(KEY)
    dialog.get_by_label("Remember").check()
    dialog.get_by_role("button", name="Use this key").click()
    assert len(text_of(ended(page))) > 10

    second = page.context.new_page()
    second.goto(page_server)
    ask(second, "Once more")
    ended(second, 2)
    expect(second.get_by_role("dialog", name="API key")).to_be_hidden()


def test_without_a_key_the_servers_words_are_shown(open_page, page_server):
    page = open_page(page_server, key=None)
    ask(page)
    expect(page.get_by_role("dialog", name="API key")).to_be_visible()
    page.keyboard.press("Escape")
    expect(ended(page)).to_contain_text("key")
    expect(answers(page).last.get_by_role("button", name="Try again")).to_be_visible()


@contextlib.contextmanager
def on_port(port, model):
    command = [BINARY, "serve", f"--port={port}", f"--model={model}", "--ops-addr=none", "--log=warn"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        while "lanes" not in (line := process.stdout.readline()):
            assert line, "the server ended before it was ready"
        yield process
    finally:
        process.terminate()
        process.wait(timeout=30)
        process.stdout.close()


def test_the_page_recovers_when_the_server_comes_back(open_page, slow_model):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with on_port(port, slow_model) as process:
        page = open_page(f"http://127.0.0.1:{port}", key=None)
        go_on_for_long(page)
        ask(page)
        expect(answers(page).last.locator("> .text")).not_to_be_empty()
        process.kill()
        answer = ended(page)
        expect(page.locator("#banner")).to_have_text(re.compile("The server does not answer"))
        half = text_of(answer)
        assert half, "the part that arrived should stay"
        expect(answer.get_by_role("button", name="Continue")).to_be_visible()
    with on_port(port, slow_model):
        expect(page.locator("#banner")).to_be_hidden(timeout=30_000)
        page.unroute(CHAT)
        answers(page).last.get_by_role("button", name="Try again").click()
        assert text_of(ended(page)) not in ("", half), "a new answer, as long as the model likes"
        page.close()


def test_a_server_that_is_loading_is_asked_again(page):
    refused = []

    def refuse_once(route):
        if refused:
            return route.continue_()
        refused.append(route)
        error = {"error": {"message": "the model is being loaded"}}
        return route.fulfill(status=503, content_type="application/json", body=json.dumps(error))

    page.route(CHAT, refuse_once)
    page.route("**/health", lambda route: route.fulfill(status=503, json={"error": {"message": "the model is being loaded"}}))
    ask(page)
    expect(page.locator("#banner")).to_contain_text("The model is being loaded.")
    expect(answers(page).last).to_contain_text("The model is being loaded.")
    page.unroute("**/health")
    assert text_of(ended(page)), "an answer, as long as the model likes"
    expect(page.locator("#banner")).to_be_hidden()


def test_an_error_is_shown_in_the_servers_words(page):
    ask(page, "word " * 2000)
    expect(ended(page).locator(".state")).to_contain_text("1024")
    page.get_by_role("article", name="You").get_by_role("button", name="Edit").click()
    page.get_by_label("Edit the message").fill("Hello")
    page.keyboard.press("Enter")
    assert len(text_of(ended(page))) > 0


MARKDOWN = """# Title

Some **bold**, *slanted*, ~~struck~~ and `code` text with a [link](https://example.com/a_b).

```python
print("<b>hello</b>")
```

| a | b |
|--|--:|
| 1 | 2 |

1. one
   - inner
2. two

- [x] done

> quoted

---
line  \nbroken
"""


def test_markdown_becomes_elements(page):
    answer_with(page, MARKDOWN)
    ask(page)
    text = ended(page).locator("> .text")
    counts = {"h3": 1, "strong": 1, "em": 1, "del": 1, "p code": 1, "pre code": 1, "th": 2, "td": 2, "td[data-align=right]": 1, "ol > li": 2, "ol ul li": 1, "blockquote": 1, "hr": 1, "br": 1}
    assert {tag: text.locator(tag).count() for tag in counts} == counts
    expect(text.locator("pre")).to_have_text('print("<b>hello</b>")')
    expect(text.locator(".language")).to_have_text("python")
    expect(text.get_by_role("checkbox", name="done")).to_be_checked()
    link = text.get_by_role("link", name="link")
    expect(link).to_have_attribute("href", "https://example.com/a_b")
    expect(link).to_have_attribute("rel", "noopener noreferrer")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    text.get_by_role("button", name="Copy code").click()
    expect(text.get_by_role("button", name="Copy code")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == 'print("<b>hello</b>")'


HOSTILE = """<script>window.hacked = 1</script>

<img src="http://127.0.0.1:9/a.png" onerror="window.hacked = 2">

[x](javascript:window.hacked=3) [y](data:text/html,<script>window.hacked=4</script>) <javascript:window.hacked=5>

![picture](http://127.0.0.1:9/b.png) <iframe src="http://127.0.0.1:9/c"></iframe>

[![inner](http://127.0.0.1:9/d.png)](https://example.com) &lt;script&gt;
"""


def test_a_hostile_answer_stays_text_and_fetches_nothing(page, page_server):
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    answer_with(page, HOSTILE)
    ask(page, HOSTILE)
    text = ended(page).locator("> .text")
    page.wait_for_timeout(200)
    for shown in ["<script>window.hacked = 1</script>", "onerror", "[x](javascript:window.hacked=3)", "<iframe", "<script>"]:
        expect(text).to_contain_text(shown)
    assert page.evaluate("window.hacked") is None
    assert page.locator("img, iframe, article script").count() == 0
    targets = page.evaluate("Array.from(document.querySelectorAll('article a'), (link) => link.protocol)")
    assert set(targets) <= {"http:", "https:"} and targets
    assert [url for url in requests if not url.startswith(page_server)] == []


def test_hostile_markdown_takes_linear_time(page):
    for piece in ["*a ", "**a", "[", "![a](", "`" * 3 + " ", "> " * 40 + "\n", "- " * 40 + "\n", "_a_b", "| a ", "<http://a", "http://a)))", "*" * 20_000 + "a"]:
        answer_with(page, piece * (60_000 // len(piece)))
        began = time.monotonic()
        ask(page)
        ended(page)
        page.keyboard.press("Control+k")
        assert time.monotonic() - began < 10, f"{piece!r} many times"
        page.unroute(CHAT)


def test_the_keyboard_alone_is_enough(slow_page):
    page = slow_page
    focused = page.locator("*:focus")

    def tab_to(name, key="Tab"):
        for _ in range(40):
            page.keyboard.press(key)
            if (focused.get_attribute("aria-label") or focused.text_content()) == name:
                return
        raise AssertionError(f"Tab does not reach {name}")

    go_on_for_long(page)
    page.keyboard.type("One")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("Two")
    page.keyboard.press("Enter")
    expect(page.get_by_role("article", name="You").locator(".text")).to_have_text("One\nTwo")
    expect(answers(page).last.locator("> .text")).not_to_be_empty()
    page.keyboard.press("Escape")
    expect(ended(page)).to_contain_text("Stopped.")
    page.unroute(CHAT)

    tab_to("Edit", "Shift+Tab")
    page.keyboard.press("Enter")
    expect(focused).to_have_attribute("aria-label", "Edit the message")
    page.keyboard.press("Control+a")
    page.keyboard.type("Three")
    page.keyboard.press("Enter")
    expect(page.get_by_role("article", name="You")).to_contain_text("Three")
    ended(page)
    tab_to("Regenerate", "Shift+Tab")
    page.keyboard.press("Enter")
    ended(page)

    tab_to("Settings", "Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Settings")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Settings")).to_be_hidden()
    expect(focused).to_have_attribute("aria-label", "Settings")

    page.keyboard.press("Control+k")
    expect(focused).to_have_id("prompt")
    expect(answers(page)).to_have_count(0)
    tab_to("Delete “Three”", "Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("navigation").get_by_role("listitem")).to_have_count(0)


PIXELS_OF_DECODE = """(canvas) => {
    const colour = getComputedStyle(document.querySelector('[data-kind=decode]')).backgroundColor;
    const wanted = colour.match(/\\d+/g).map(Number);
    const { data } = canvas.getContext('2d').getImageData(0, 64, canvas.width, 44); // the row of the decode lane
    let found = 0;
    for (let at = 0; at < data.length; at += 4) found += wanted.every((value, i) => data[at + i] === value);
    return found;
}"""


def test_the_lanes_are_shown_while_they_run(slow_page):
    page = slow_page
    polls = []
    page.on("request", lambda request: "/lanes" in request.url and polls.append(request.url))
    go_on_for_long(page)
    page.wait_for_timeout(300)
    assert polls == [], "a closed panel asks nothing"
    page.get_by_role("button", name="Lanes").click()
    panel = page.get_by_role("complementary", name="Lanes")
    ask(page)
    expect(panel.locator(".slots tr[data-state=decode]")).to_have_count(1)
    expect(panel.locator("dd").first).to_have_text("1")
    ended(page)
    expect(panel.locator(".slots tbody tr")).to_have_count(8)
    expect(panel.locator(".histogram").first).to_contain_text(re.compile(r"p50 [\d.]+ ms · p99 [\d.]+ ms"))
    expect(panel).to_contain_text(re.compile(r"\d+ in use · [\d,]+ kept · [\d,]+ free"))

    chart = panel.get_by_role("slider")
    chart.focus()
    page.keyboard.press("ArrowLeft")
    expect(chart).to_have_attribute("aria-valuetext", re.compile(r"^step [\d,]+, prefill rows \d+, decode rows \d+"))
    expect(panel.locator("#readout")).to_contain_text("model")
    last = int(chart.get_attribute("aria-valuenow"))
    page.keyboard.press("ArrowLeft")
    expect(chart).to_have_attribute("aria-valuenow", str(last - 1))
    assert chart.evaluate(PIXELS_OF_DECODE) > 100, "steps should be drawn"

    assert len(polls) >= 3 and all("since=" in url for url in polls[1:])
    page.get_by_role("button", name="Lanes").click()
    page.wait_for_timeout(300)
    seen = len(polls)
    page.wait_for_timeout(700)
    assert len(polls) == seen, "a closed panel asks nothing"


def test_a_refusal_of_the_lanes_is_shown_in_the_panel(page):
    error = {"error": {"message": "only one key may look"}}
    page.route("**/lanes*", lambda route: route.fulfill(status=403, json=error))
    page.get_by_role("button", name="Lanes").click()
    panel = page.get_by_role("complementary", name="Lanes")
    expect(panel).to_contain_text("only one key may look")
    page.unroute("**/lanes*")
    panel.get_by_role("button", name="Try again").click()
    expect(panel.locator(".slots tbody tr")).to_have_count(8)


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_screen(open_page, page_server, tmp_path, width, scheme):
    page = open_page(page_server, viewport={"width": width, "height": 860}, color_scheme=scheme)
    wide = "| " + " | ".join(["a long column"] * 12) + " |\n" + "|--" * 12 + "|\n\n```\n" + "x" * 300 + "\n```\n\n" + "y" * 300
    answer_with(page, wide)
    ask(page, "z" * 300)
    ended(page)

    def check(name):
        page.screenshot(path=tmp_path / f"{name}.png")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name

    check("chat")
    background = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    light = sum(map(int, re.findall(r"\d+", background)[:3])) > 384
    assert light == (scheme == "light")
    page.get_by_role("button", name="Dark theme").click()
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") != background
    page.get_by_role("button", name="Settings").click()
    check("settings")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Lanes").click()
    expect(page.locator(".slots tbody tr")).to_have_count(8)
    check("lanes")
