"""serve_page.py BIN ROOT [MODEL [SERVER OPTION...]]: the page of dpe-serve in a real browser: a long document is pasted, a
question asked, the answer stopped, refused, and asked for with the curl command that the page shows; with a chat template
further questions go on. With another MODEL only
the question about README.md is asked, and the answer printed. Exits with 125 where Chromium is not installed."""

import json
import os
import shutil
import shlex
import subprocess
import sys
import tempfile
import time

sys.path += [os.path.dirname(__file__), os.path.join(os.path.dirname(__file__), "../../outputs/report")]
from report_browser import Browser  # noqa: E402
from serve_case import Server  # noqa: E402

bin_folder, root = sys.argv[1:3]
others = sys.argv[3:]
program = shutil.which("chromium")
if program is None:
    print("chromium is missing (package chromium)")
    sys.exit(125 if "CI" not in os.environ else 1)
text = open(os.path.join(root, "README.md"), encoding="utf-8").read()
FILL = """(() => { for (const [id, value] of Object.entries(%s)) {
    document.getElementById(id).value = value;
    document.getElementById(id).dispatchEvent(new Event("input", {bubbles: true}));
} return true; })()"""


class Page:
    def __init__(self, browser, server):
        self.browser, self.session = browser, browser.tab()
        browser.call("Page.enable", self.session)
        browser.call("Page.navigate", self.session, url=f"http://127.0.0.1:{server.port}/")
        self.wait("document.getElementById('model') && document.getElementById('model').textContent")

    def run(self, expression):
        return self.browser.evaluate(self.session, expression)

    def wait(self, condition):
        while not self.run(f"Boolean({condition})"):
            time.sleep(0.1)

    def text(self, name):
        return self.run(f"document.getElementById('{name}').textContent")

    def fill(self, **values):
        self.run(FILL % json.dumps(values))

    def ask(self):
        self.run("document.getElementById('ask').click(), true")

    def finished(self):
        self.wait("!document.getElementById('ask').disabled")
        return self.text("answer"), self.text("note")


def test_question(page, server):
    assert page.text("model") == "reference" and "2048 tokens" in page.text("length") and "self-extend" in page.text("plans")
    page.fill(document=text[:2500], question="What is it?", tokens=12)
    page.ask()
    answer, note = page.finished()
    wanted = server.ask("/v1/completions", {"prompt": text[:2500] + "\n\nWhat is it?", "max_tokens": 12, "temperature": 0})
    assert answer == wanted["choices"][0]["text"] and len(answer) > 5, (answer, wanted)
    assert note.startswith("Plan self-extend") and "made for 2048 tokens" in note, note
    assert note.endswith("Evidence: nothing was measured."), note
    done = subprocess.run(shlex.split(page.text("curl").replace("\\\n", " ")) + ["-sS", "--noproxy", "*"], check=True,
                          capture_output=True, text=True).stdout
    pieces = [json.loads(line[6:]) for line in done.split("\n") if line.startswith("data: {")]
    assert "".join(piece["choices"][0]["text"] for piece in pieces) == answer, done


def test_stop(page, server):
    page.fill(document="", question="It's said: <b>", tokens=1900)
    page.ask()
    page.wait("document.getElementById('answer').textContent.length > 20")
    page.run("document.getElementById('stop').click(), true")
    assert page.finished()[1] == "Stopped."
    while server.metric("dpe_running") > 0:
        time.sleep(0.05)


def test_link(page, server):
    """A link fills in the form; what it asks is sent when Ask is pressed."""
    before = server.metric("dpe_requests_total")
    page.browser.call("Page.navigate", page.session, url="about:blank")
    page.browser.call("Page.navigate", page.session,
                      url=f"http://127.0.0.1:{server.port}/#document=Once&question=Why&tokens=3&ask")
    page.wait("document.getElementById('note') && document.getElementById('note').textContent")
    assert "Press Ask" in page.text("note") and server.metric("dpe_requests_total") == before
    page.ask()
    page.finished()
    assert server.metric("dpe_requests_total") == before + 1


def test_refusal(page, _):
    page.fill(document="word " * 3000, question="?", tokens=5)
    page.ask()
    note = page.finished()[1]
    assert note.startswith("Refused: This model's maximum context length") and "2048" in note, note


def converse(page, server):
    """A further question goes on with what was said, until the document is another one or the conversation begins anew."""
    first = {"role": "user", "content": text[:900] + "\n\nWhat is it?"}
    page.fill(document=text[:900], question="What is it?", tokens=8)
    page.ask()
    said = page.finished()[0]
    page.fill(question="And what else?")
    page.ask()
    shown = page.finished()[0]
    messages = [first, {"role": "assistant", "content": said}, {"role": "user", "content": "And what else?"}]
    wanted = server.ask("/v1/chat/completions", {"messages": messages, "max_tokens": 8, "temperature": 0})
    assert shown == said + "\n\n> And what else?\n" + wanted["choices"][0]["message"]["content"], (shown, wanted)
    page.run("document.getElementById('anew').click(), true")
    page.fill(question="What is it?")
    page.ask()
    assert page.finished()[0] == said


folder = tempfile.mkdtemp()
one_browser = Browser(program, folder)
try:
    options = others or [os.path.join(root, "data/reference"), "--method", "self-extend", "-l", 2048]
    with Server(f"{bin_folder}/dpe-serve", "-m", *options, "--threads", 2) as one_server:
        one_page = Page(one_browser, one_server)
        if others:
            begin = time.monotonic()
            one_page.fill(document=text[:9000], question="What does dpe-detect write? Answer in one sentence.", tokens=40)
            one_page.ask()
            print(*one_page.finished(), f"{time.monotonic() - begin:.1f} s", sep="\n")
        else:
            for name, test in list(globals().items()):
                if name.startswith("test_"):
                    test(one_page, one_server)
                    print("passed", name, flush=True)
    if not others:
        template = os.path.join(folder, "chat.jinja")
        with open(template, "w", encoding="utf-8") as file:
            file.write("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:")
        with Server(f"{bin_folder}/dpe-serve", "-m", *options, "--threads", 2, "--chat-template", template) as one_server:
            converse(Page(one_browser, one_server), one_server)
            print("passed converse")
finally:
    one_browser.close()
    shutil.rmtree(folder, ignore_errors=True)
