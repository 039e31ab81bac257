#!/usr/bin/env python3
"""Opens pages in a real browser: report_browser.py PAGE.html... For the widths of a phone, a tablet and a desk, in
light, dark and print, each page must fit the width, write nothing to the console, give every figure a text
alternative, and show all its text with a contrast of 4.5 or more. Colours and widths do not depend on each other:
contrast is measured at one width for each of light, dark and print, and at all of them with DPE_TEST_LONG=1.

The browser is Chromium, headless, driven by the DevTools protocol through a pipe; it reaches this machine alone. Without
Chromium the exit status is 125, but 1 where CI is set. Standard library only.
"""
import fcntl
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile

WIDTHS = (390, 800, 1400)
# How the page is rendered: (name, media, preferred colours). Paper is white also where dark is preferred.
MODES = (("light", "screen", "light"), ("dark", "screen", "dark"), ("print", "print", "dark"))
CONTRAST = 4.5
# Pixels of a page in one picture, and those that the next one shows again, for texts at the edge. Chromium draws
# pictures of more than 65535 pixels black.
BAND, MARGIN = 30000, 500
LIMIT = 1800  # seconds after which the browser counts as hung

# Elements that make the page wider than the window, or whose content is cut off.
OVERFLOW = """(() => {
    const wide = document.documentElement.clientWidth, found = [];
    const name = e => e.tagName.toLowerCase() + (e.id ? '#' + e.id : '') + (e.className && e.className.baseVal === undefined
        ? '.' + e.className : '') + ' ' + JSON.stringify(e.textContent.trim().slice(0, 40));
    const scrolls = e => ['auto', 'scroll'].includes(getComputedStyle(e).overflowX);
    for (const e of document.querySelectorAll('body, body *:not(svg *)')) {
        const box = e.getBoundingClientRect(), style = getComputedStyle(e);
        let inner = false;
        for (let p = e.parentElement; p; p = p.parentElement) inner ||= scrolls(p);
        const out = b => b.width > 0 && (b.right > wide + 0.5 || b.left < -0.5);
        if (!inner && out(box) && !out(e.parentElement.getBoundingClientRect()))
            found.push(name(e) + ' goes from ' + box.left.toFixed(1) + ' to ' + box.right.toFixed(1));
        const cut = style.overflowX === 'hidden' || style.overflowX === 'clip' || (scrolls(e) && matchMedia('print').matches);
        if (cut && e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0)
            found.push(name(e) + ' cuts off ' + (e.scrollWidth - e.clientWidth) + ' pixels');
    }
    if (document.documentElement.scrollWidth > wide)
        found.push('the page is ' + document.documentElement.scrollWidth + ' pixels wide');
    return found;
})()"""

# Every line of every visible text: its colour, its characters and the box (in pixels of the page) that it is drawn in.
TEXTS = """(() => {
    const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode, e = node.parentElement;
        if (!node.data.trim() || ['STYLE', 'SCRIPT', 'title', 'desc'].includes(e.tagName) ||
            !e.checkVisibility({visibilityProperty: true, opacityProperty: true})) continue;
        const style = getComputedStyle(e), svg = e instanceof SVGElement;
        let alpha = svg ? +style.fillOpacity : 1;
        let clip = {left: 0, top: -1e9, right: 1e9, bottom: 1e9};
        for (let p = e; p; p = p.parentElement) {
            const own = getComputedStyle(p);
            alpha *= +own.opacity;
            if (own.overflowX !== 'visible' && p !== document.documentElement && !(p instanceof SVGElement)) {
                const box = p.getBoundingClientRect();
                clip = {left: Math.max(clip.left, box.left), top: Math.max(clip.top, box.top),
                        right: Math.min(clip.right, box.right), bottom: Math.min(clip.bottom, box.bottom)};
            }
        }
        const range = document.createRange();
        range.selectNodeContents(node);
        for (const r of range.getClientRects()) {
            const left = Math.max(r.left, clip.left), right = Math.min(r.right, clip.right);
            const top = Math.max(r.top, clip.top), bottom = Math.min(r.bottom, clip.bottom);
            if (right - left < 2 || bottom - top < 2) continue;
            found.push({color: svg ? style.fill : style.webkitTextFillColor, alpha, text: node.data.trim().slice(0, 50),
                        where: e.closest('[id]') ? e.closest('[id]').id : e.tagName,
                        box: [left + scrollX, top + scrollY, right - left, bottom - top]});
        }
    }
    return found;
})()"""

# Takes the text away and leaves what it is drawn on.
HIDE = """(() => {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync('* { -webkit-text-fill-color: transparent !important; text-shadow: none !important; } ' +
        'svg text, svg tspan { fill: transparent !important; stroke: transparent !important; }');
    document.adoptedStyleSheets = [sheet];
    return 0;
})()"""
SHOW = "(() => { document.adoptedStyleSheets = []; return 0; })()"

# In an empty page: the texts whose contrast with what is below them is too low. Below are all colours that take a
# fifth of the box or more; a thin line through a text is none of them.
MEASURE = """async (texts, shot, least) => {
    const image = await createImageBitmap(await (await fetch('data:image/png;base64,' + shot)).blob());
    const canvas = new OffscreenCanvas(image.width, image.height);
    const pixels = canvas.getContext('2d', {willReadFrequently: true});
    pixels.drawImage(image, 0, 0);
    const dot = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true}), known = {};
    const rgba = color => {
        if (!known[color]) {
            dot.clearRect(0, 0, 1, 1);
            dot.fillStyle = '#000';
            dot.fillStyle = color;
            dot.fillRect(0, 0, 1, 1);
            known[color] = [...dot.getImageData(0, 0, 1, 1).data];
        }
        return known[color];
    };
    const part = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const light = c => 0.2126 * part(c[0]) + 0.7152 * part(c[1]) + 0.0722 * part(c[2]);
    const bad = [];
    for (const t of texts) {
        const x = Math.floor(t.box[0]), y = Math.floor(t.box[1]);
        const w = Math.min(Math.ceil(t.box[2]), image.width - x), h = Math.min(Math.ceil(t.box[3]), image.height - y);
        if (w < 1 || h < 1) { bad.push({...t, ratio: 0, below: 'outside of the page'}); continue; }
        const data = pixels.getImageData(x, y, w, h).data, count = new Map();
        for (let i = 0; i < data.length; i += 4) {
            const key = (data[i] << 16) | (data[i + 1] << 8) | data[i + 2];
            count.set(key, (count.get(key) || 0) + 1);
        }
        const ink = rgba(t.color), alpha = ink[3] / 255 * t.alpha;
        const most = Math.max(...count.values());
        for (const [key, n] of count) {
            if (n * 5 < w * h && n < most) continue;
            const below = [key >> 16, (key >> 8) & 255, key & 255];
            const a = light(below), b = light(below.map((v, i) => v + (ink[i] - v) * alpha));
            const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            if (ratio < least - 0.005) { bad.push({...t, ratio, below: 'rgb(' + below + ')'}); break; }
        }
    }
    return bad;
}"""


class Browser:
    """Chromium that reads commands from its file 3 and answers on file 4, each ended by a zero byte."""

    def __init__(self, program, folder):
        self.next, self.buffer, self.events = 0, b"", []
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for pipe in (os.pipe(), os.pipe()) for end in pipe]
        commands_out, self.commands, self.answers, answers_in = ends
        self.child = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{commands_out} 4>&{answers_in}', "bash", program, "--headless", "--no-sandbox",
             "--remote-debugging-pipe", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-extensions", "--disable-component-update",
             "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--hide-scrollbars", f"--user-data-dir={folder}",
             "about:blank"],
            pass_fds=(commands_out, answers_in), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=open(f"{folder}/stderr", "wb"))
        os.close(commands_out)
        os.close(answers_in)

    def message(self):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.answers], [], [], LIMIT)
            part = os.read(self.answers, 1 << 20) if ready else b""
            if not part:
                raise SystemExit("Chromium ended, or it hangs")
            self.buffer += part
        line, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(line)

    def call(self, method, session=None, **parameters):
        self.next += 1
        request = {"id": self.next, "method": method, "params": parameters}
        if session:
            request["sessionId"] = session
        data = json.dumps(request).encode() + b"\0"
        while data:
            data = data[os.write(self.commands, data):]
        while True:
            answer = self.message()
            if answer.get("id") == self.next:
                if "error" in answer:
                    raise SystemExit(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, method, session):
        while not any(e.get("method") == method and e.get("sessionId") == session for e in self.events):
            self.events.append(self.message())

    def tab(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        return self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def evaluate(self, session, expression):
        answer = self.call("Runtime.evaluate", session, expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise SystemExit(f"JavaScript: {answer['exceptionDetails']}")
        return answer["result"]["value"]

    def close(self):
        self.call("Browser.close")
        self.child.wait(LIMIT)


def console(events):
    """What the page wrote to the console, and what the browser reported about it."""
    for event in events:
        parameters = event.get("params", {})
        if event.get("method") == "Runtime.consoleAPICalled":
            yield " ".join(str(a.get("value", a.get("description"))) for a in parameters["args"])
        elif event.get("method") == "Runtime.exceptionThrown":
            yield parameters["exceptionDetails"]["text"]
        elif event.get("method") == "Log.entryAdded":
            yield parameters["entry"]["text"]


def alternatives(browser, page):
    """Figures without a text alternative, and how many figures there are."""
    document = browser.call("DOM.getDocument", page, depth=0)["root"]["nodeId"]
    pictures = browser.call("DOM.querySelectorAll", page, nodeId=document, selector="svg:not(svg svg), img, canvas")["nodeIds"]
    missing = []
    for picture in pictures:
        node = browser.call("Accessibility.getPartialAXTree", page, nodeId=picture, fetchRelatives=False)["nodes"][0]
        name = node.get("name", {}).get("value", "")
        if node["ignored"] or node["role"]["value"] not in ("image", "img") or not name.strip():
            markup = browser.call("DOM.getOuterHTML", page, nodeId=picture)["outerHTML"]
            missing.append(f"no text alternative: {markup[:160]}")
    return missing, len(pictures)


def look(browser, page, paper, path):
    browser.events.clear()
    for domain in ("Page", "Runtime", "Log", "DOM", "Accessibility"):
        browser.call(domain + ".enable", page)
    problems, texts_seen, pictures = [], 0, 0
    browser.call("Page.navigate", page, url=pathlib.Path(path).resolve().as_uri())
    browser.wait_for("Page.loadEventFired", page)
    browser.evaluate(page, "(() => { for (const d of document.querySelectorAll('details')) d.open = true; return 0; })()")
    missing, pictures = alternatives(browser, page)
    problems += missing
    # What keeps the accessibility tree up to date slows each change of the page.
    for domain in ("Accessibility", "DOM"):
        browser.call(domain + ".disable", page)
    for mode, (name, media, colours) in enumerate(MODES):
        browser.call("Emulation.setEmulatedMedia", page, media=media,
                     features=[{"name": "prefers-color-scheme", "value": colours}])
        for width in WIDTHS:
            browser.call("Emulation.setDeviceMetricsOverride", page, width=width, height=900, deviceScaleFactor=1,
                         mobile=False)
            where = f"{name}, {width} pixels: "
            problems += [where + text for text in browser.evaluate(page, OVERFLOW)]
            if width != WIDTHS[mode] and "DPE_TEST_LONG" not in os.environ:
                continue
            texts = browser.evaluate(page, TEXTS)
            size = browser.call("Page.getLayoutMetrics", page)["cssContentSize"]
            browser.evaluate(page, HIDE)
            bad = []
            for top, own in bands(texts):
                shot = browser.call("Page.captureScreenshot", page, format="png", captureBeyondViewport=True,
                                    clip={"x": 0, "y": top, "width": max(width, size["width"]),
                                          "height": min(BAND + MARGIN, size["height"] - top), "scale": 1})["data"]
                bad += browser.evaluate(paper, f"({MEASURE})({json.dumps(own)}, '{shot}', {CONTRAST})")
            browser.evaluate(page, SHOW)
            problems += [f"{where}contrast {t['ratio']:.2f} of {t['text']!r} ({t['color']} on {t['below']}, in {t['where']})"
                         for t in bad]
            texts_seen += len(texts)
    problems += ["console: " + text for text in console(browser.events)]
    if not texts_seen:
        problems.append("no text was seen")
    return problems, texts_seen, pictures


def bands(texts):
    """The texts by the picture that they are in: (its top, the texts with boxes from there)."""
    found = {}
    for text in texts:
        x, y, width, height = text["box"]
        top = max(0, int(y // BAND) * BAND)
        found.setdefault(top, []).append({**text, "box": [x, y - top, width, height]})
    return sorted(found.items())


def main():
    program = shutil.which("chromium")
    if program is None:
        print("chromium is missing (package chromium): pages were not opened in a browser")
        sys.exit(1 if os.environ.get("CI") else 125)
    failed = False
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(program, folder)
        paper, page = browser.tab(), browser.tab()  # screenshots need the page in front
        for path in sys.argv[1:]:
            problems, texts, pictures = look(browser, page, paper, path)
            print(f"{os.path.basename(path)}: {pictures} figures, {texts} texts, {len(problems)} problems")
            for problem in problems[:40]:
                print("  " + problem)
            failed = failed or bool(problems)
        browser.close()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
