#!/usr/bin/env python3
"""hostile_http.py BIN [--runs N] [--seed S] [--classes form,who,body] [--log FILE] [--only I]

Sends dpe-serve requests that are made from a seed, and judges what it answers. Run I of a seed is the same
request every time. Three classes:
  form  heads and chunks of which a proxy may read another end: each is followed by a second request on the same
        connection, and has a third one in its body. What is not written as RFC 9112 has it is refused, and nothing
        behind it is run; what is hidden in a body is never run.
  who   every Host, Origin, Sec-Fetch-Site and Content-Type: only names of this machine and its own pages are answered.
  body  JSON that takes far more memory or time than it has bytes, cut off, slow, in chunks, several at once: the
        server's memory stays within --max-memory and what it needs itself, and it answers what is good meanwhile.
One line a run goes to the log (default: standard output), in the form of hostile.py, whose --sum prints a table:

    VERDICT <tab> CLASS <tab> SEED:I <tab> REQUEST <tab> STATUS <tab> ANSWER <tab> SECONDS

Runs that the log has already are not made again. Exit status 1 when something was wrong. Standard library only."""

import argparse
import json
import os
import random
import re
import socket
import sys
import threading
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, ROOT + "/tests/eval/serve")
from serve_case import Server  # noqa: E402

LIMIT = 64 << 20       # --max-memory of the server
BODY = b'{"prompt": "The fox"}'
HIDDEN = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"  # in a body; its answer has a word that no other has
HIDDEN_WORD = b'"owned_by"'
NEXT = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
NEXT_WORD = b'"status"'


# ------------------------------------------------------------------------------------------ answers

def send(port, data, pieces=1, wait=20.0):
    """What comes back for these bytes until the server closes the connection; None: nothing for so long. A server that closes
    with bytes unread makes the system forget what was not yet read here: b"RESET"."""
    got = b""
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.settimeout(wait)
        try:
            step = max(1, len(data) // pieces)
            for at in range(0, len(data), step):
                client.sendall(data[at:at + step])
            client.shutdown(socket.SHUT_WR)
            while piece := client.recv(65536):
                got += piece
        except TimeoutError:
            return None
        except OSError:
            got = got or b"RESET"
    return got


def answers(got):
    """(status, body) of each answer in a stream of them; none is read behind one that closes the connection (for a wrong
    Content-Length libmicrohttpd 0.9.75 sends its head twice)."""
    found = []
    while got.startswith(b"HTTP/1."):
        head, _, rest = got.partition(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.I)
        n = int(length.group(1)) if length else len(rest)
        found.append((int(head.split(b" ")[1]), rest[:n]))
        got = rest[n:] if not re.search(rb"\r\nconnection: close", head, re.I) else b""
    return found if not got else [*found, (0, got)]


# ------------------------------------------------------------------------------------------ classes

def chunked(draw, body):
    """(a body in chunks, whether it is written as it should be, whether it has LF where CR LF should be, which libmicrohttpd
    takes and dpe therefore closes the connection)"""
    good, loose, out, at = True, False, b"", 0
    while at < len(body):
        n = draw.choice([1, 7, len(body)])
        part = body[at:at + n]
        at += n
        size, end = b"%x" % len(part), b"\r\n"
        odd = draw.randrange(14)
        if odd == 0:
            size += b";a=b"
        elif odd == 1:
            size = b"0" * draw.choice([1, 20]) + size
        elif odd == 2:
            size = size.upper()
        elif odd == 3:
            size, good = draw.choice([b"0x" + size, b"-" + size, b"+" + size, size + b"g", b" " + size, b"", b"f" * 17, b"1" + b"0" * 16 + size]), False
        elif odd == 4:
            end = draw.choice([b"\n", b"\r", b"", b"\n\r"])
            good, loose = good and end == b"\n", True
        elif odd == 5:
            part, good = part + draw.choice([b"x", b"\n", HIDDEN]), False
        out += size + end + part + b"\r\n"
    return out + b"0\r\n" + draw.choice([b"", b"", b"X: y\r\n"]) + b"\r\n", good, loose


BAD_LINES = [b"X : y", b"X\t: y", b" X: y", b"\tX: y", b"X: a\0b", b"X\0: y", b": y", b"X", b"X(: y", b"X y: z", b"X: \x01", b"X: \x7f",
             b"Content-Length : 5", b"Transfer-Encoding : chunked", b"Content-Length\0: 5", b" Content-Length: 5"]
GOOD_LINES = [b"Connection: keep-alive", b"X: y", b"X:y", b"X:  y \t", b"X:", b"Accept: */*", b"X: \xff\xfe", b"x-a_b.c!: 1", b"Cookie: a=b; c=d"]


def length_lines(draw, n):
    """(lines that say how long a body of n bytes is, whether they say it in one way)"""
    good = [[b"Content-Length: %d" % n], [b"content-length:%d" % n], [b"CONTENT-LENGTH:   %d" % n], [b"Content-Length: 00%d" % n]]
    bad = [[b"Content-Length: %d" % n] * 2, [b"Content-Length: %d" % n, b"Content-Length: 3"], [b"Content-Length: %d, %d" % (n, n)],
           [b"Content-Length: +%d" % n], [b"Content-Length: 0x%x" % n], [b"Content-Length: %d " % n + b"1"], [b"Content-Length: -%d" % n],
           [b"Content-Length: %d" % (n + 2 ** 64)], [b"Content-Length: %d" % (n + 2 ** 32)], [b"Content-Length:"], [b"Content-Length: %d\x0b" % n],
           [b"Content-Length: %d" % n, b"Transfer-Encoding: chunked"], [b"Transfer-Encoding: chunked", b"Content-Length: %d" % n],
           [b"Content-Length: %d" % n, b"Transfer-Encoding: identity"], [], [b"Transfer-Encoding: gzip"], [b"Transfer-Encoding: identity"],
           [b"Content-Length: %d;" % n], [b"Content-Length: %d.0" % n]]
    return (draw.choice(good), True) if draw.random() < 0.5 else (draw.choice(bad), False)


def make_form(draw):
    """(bytes of a request and of the one behind it, what must be answered: "both", "first", "none", or with "loose" both or
    none)"""
    body = BODY + b" " * draw.choice([0, 0, 5]) + (b"" if draw.random() < 0.5 else b"\r\n\r\n" + b" " * 3)
    body = json.dumps({"prompt": "The fox " + HIDDEN.decode() * draw.choice([0, 1, 3])}).encode() if draw.random() < 0.5 else body
    body = body if draw.random() < 0.6 else body + b"\r\n" * draw.choice([1, 2])
    in_chunks = draw.random() < 0.3
    lines, good = length_lines(draw, len(body))
    if in_chunks:
        lines = draw.choice([[b"Transfer-Encoding: chunked"]] * 3 + [[b"transfer-encoding:Chunked"], [b"Transfer-Encoding: chunked, chunked"],
                            [b"Transfer-Encoding: gzip, chunked"], [b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"],
                            [b"Transfer-Encoding: xchunked"], [b"Transfer-Encoding: chunked;q=1"], [b"Transfer-Encoding: \x0bchunked"]])
        good = lines in ([b"Transfer-Encoding: chunked"], [b"transfer-encoding:Chunked"])
        data, whole, bare = chunked(draw, body)
    else:
        data, whole, bare = body, True, False
    hosts = draw.choice([[b"Host: localhost"]] * 6 + [[b"host:127.0.0.1"], [], [b"Host: localhost"] * 2, [b"Host: localhost", b"Host: other"]])
    version = draw.choice([b"HTTP/1.1"] * 8 + [b"HTTP/1.0", b"HTTP/2.0", b"HTTP/1.2", b"HTTP/11", b"http/1.1", b"HTTP/1.1 "])
    old, loose = version == b"HTTP/1.0", bare or version == b"HTTP/1.2"
    good = good and (version in (b"HTTP/1.1", b"HTTP/1.2") and len(hosts) == 1 or old and len(hosts) < 2 and not in_chunks)
    lines = hosts + lines
    for _ in range(draw.choice([0, 0, 1, 2])):
        line = draw.choice(GOOD_LINES[old:]) if draw.random() < 0.6 else draw.choice(BAD_LINES)
        good = good and line in GOOD_LINES
        lines.insert(draw.randrange(len(lines) + 1), line)
    draw.shuffle(lines)
    first = draw.choice([b"POST /tokenize "] * 6 + [b"POST  /tokenize ", b" POST /tokenize ", b"POST\t/tokenize ", b"post /tokenize ", b"POST /tokenize\t"]) + version
    good, loose = good and first.startswith((b"POST /tokenize ", b"POST  ")), loose or first.startswith(b"POST  ")
    ends = [b"\r\n"] * (len(lines) + 2)
    if draw.random() < 0.15:
        ends[draw.randrange(len(ends))], good = draw.choice([b"\n", b"\r", b"\n\r", b"\r\r\n", b" \r\n\n"]), False
    head = b"".join(line + end for line, end in zip([first, *lines, b""], ends))
    wanted = "none" if not good or not whole else "first" if in_chunks or old else "both"
    return head + data + NEXT, "loose " + wanted if loose and wanted != "none" else wanted


def judge_form(got, wanted):
    if got is None:
        return "HANG"
    found = answers(got) if got != b"RESET" else []
    statuses = [status for status, _ in found]
    if 0 in statuses:
        return "NO ANSWER OF HTTP"
    if HIDDEN_WORD in got:
        return "THE HIDDEN REQUEST WAS RUN"
    refused = not statuses or statuses[0] >= 400 and len(statuses) == 1 and NEXT_WORD not in got
    if wanted == "none" or refused and wanted.startswith("loose"):
        return "ok" if refused else f"WRONG ACCEPTED {statuses}"
    if got == b"RESET" and wanted.endswith("first"):
        return "ok"
    right = [200, 200] if wanted.endswith("both") else [200]  # after chunks and HTTP/1.0 the connection ends
    return "ok" if statuses == right and (NEXT_WORD in got) == (len(right) == 2) else f"GOOD REFUSED {statuses}"


HOSTS = {name: True for name in ("localhost", "LocalHost", "127.0.0.1", "127.9.8.7", "[::1]", "localhost:1", "127.0.0.1:65535", "[::1]:80")}
HOSTS.update({name: False for name in (
    "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example:80", "[::1].evil", "[::2]", "0.0.0.0", "10.0.0.1", "0x7f.1",
    "2130706433", "127.1", "127.0.0.256", "127.0.0.1@evil.example", "localhost@evil", "localhost/", "localhost:x", ":80", "[::1", "::1]", "128.0.0.1",
    "127.0.0.1.", "evil#localhost", "a" * 3000, "\xe9vil", "localhost,evil")})
TYPES = {None: False, "application/json": True, "application/json; charset=utf-8": True, "text/plain": False, "application/jsonx": False,
         "application/x-www-form-urlencoded": False, "multipart/form-data; boundary=x": False, "APPLICATION/JSON": True, "text/plain; application/json": False}


def make_who(draw):
    """(bytes, the status)"""
    host = draw.choice(list(HOSTS))
    origins = {None: True, "http://" + host: True, "https://" + host: True, "http://evil.example": False, "null": False, "http://" + host + ".evil": False,
               "http://localhost:9": host == "localhost:9", "file://": False, "http://" + host.upper(): True, "evil": False, "chrome-extension://x": False}
    origin = draw.choice(list(origins))
    site, kind = draw.choice([None, None, "none", "same-origin", "same-site", "cross-site", "Cross-Site"]), draw.choice(list(TYPES))
    own = origins[origin] if origin is not None else site is None or site.lower() not in ("cross-site", "same-site")
    status = 200 if HOSTS[host] and own else 403
    if status == 200 and (origin is not None or site is not None) and not TYPES[kind]:
        status = 415
    lines = {"Host": host, "Origin": origin, "Sec-Fetch-Site": site, "Content-Type": kind, "Content-Length": len(BODY), "Connection": "close"}
    head = "".join(f"{name}: {value}\r\n" for name, value in draw.sample(list(lines.items()), len(lines)) if value is not None)
    return f"POST /tokenize HTTP/1.1\r\n{head}\r\n".encode("latin-1") + BODY, status


def make_text(draw):
    """A JSON text that takes more than its bytes to read."""
    n = draw.choice([1, 30, 30, 1000, 1000, 1000, 30000, 30000, 100000 if draw.random() < 0.7 else 1000000])
    piece = draw.choice(["{},", "[],", '"",', "[[[{}]]],", "1,", '{"a":1},', "1e300,", "null,", '"\\u0000",', '"\\ud83d\\ude00",', "-0.0,", '{"":{"":{}}},'])
    text = "x" * n
    value = draw.choice([
        f'[{piece * (n // 2)}1]', "[" * n + "]" * n, '{"a":' * n + "1" + "}" * n, "{" + "".join(f'"{i}":{i},' for i in range(n)) + '"z":1}', f'"{text}"',
        '"' + "\\u00e9" * n + '"', "1" * n, "1." + "0" * n + "1", f"1e{'9' * min(n, 1000)}", "{" + '"a":1,' * n + '"b":2}', '"' + "\\" * n, " " * n + "1",
        f"[{','.join(map(str, range(min(n, 300000))))}]", '["' + '","'.join(["a b c"] * n) + '"]'])
    member = draw.choice(["prompt", "messages", "stop", "tools", "logit_bias", "x", "metadata", "seed", "max_tokens", "chat_template_kwargs", "tokens"])
    whole = draw.choice([value, f'{{"{member}":{value}}}', f'{{"prompt":"The","max_tokens":1,"{member}":{value}}}',
                         f'{{"messages":[{{"role":"user","content":{value}}}],"max_tokens":1}}', f'{{"prompt":"a","{member}":{value}'])
    return whole.encode()[:4 << 20]


def make_body(draw):
    """(bytes, in how many pieces)"""
    text, path = make_text(draw), draw.choice([b"/tokenize", b"/v1/completions", b"/v1/chat/completions", b"/detokenize", b"/v1/dpe/plan"])
    head = b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    if draw.random() < 0.4:
        n = draw.choice([100, 4096, 1 << 20]) if len(text) < 100000 else draw.choice([8192, 1 << 20])
        data = b"".join(b"%x\r\n%s\r\n" % (len(text[at:at + n]), text[at:at + n]) for at in range(0, len(text), n)) + b"0\r\n\r\n"
        data = head + b"Transfer-Encoding: chunked\r\n\r\n" + data
    else:
        data = head + b"Content-Length: %d\r\n\r\n" % (len(text) + draw.choice([0, 0, 0, 0, 1000, 10 ** 7, 10 ** 12])) + text
    if draw.random() < 0.1:
        data = data[:draw.randrange(len(data))]  # and the client leaves
    return data, draw.choice([1, 1, 3, 20])


# ------------------------------------------------------------------------------------------- runs

def status_of(server, name):
    with open(f"/proc/{server.process.pid}/status", encoding="utf-8") as file:
        return 1024 * int(next(line.split()[1] for line in file if line.startswith(name)))


def judge_body(server, got, base):
    if got is None:
        return "HANG"
    found = answers(got) if got != b"RESET" else []
    if any(status not in (200, 400, 404, 413, 422, 503) for status, _ in found) or len(found) > 1:
        return f"STATUS {[status for status, _ in found]}"
    memory = status_of(server, "RssAnon")
    return f"MEMORY {memory >> 20} MiB" if memory > base + 2 * LIMIT and not ARGS.sanitized else "ok"


def one(server, index, base):
    """The line of run `index`."""
    draw = random.Random(f"{ARGS.seed}:{index}")
    kind = draw.choice(ARGS.classes)
    begin = time.monotonic()
    if kind == "form":
        data, wanted = make_form(draw)
        got = send(server.port, data, draw.choice([1, 1, 2, 30]))
        verdict = judge_form(got, wanted)
    elif kind == "who":
        data, wanted = make_who(draw)
        got = send(server.port, data)
        verdict = "HANG" if got is None else "ok" if [status for status, _ in answers(got)] == [wanted] else f"EXPECTED {wanted}"
    else:
        data, pieces = make_body(draw)
        others = [threading.Thread(target=send, args=(server.port, make_body(draw)[0])) for _ in range(draw.choice([0, 0, 0, 3]))]
        for other in others:
            other.start()
        got = send(server.port, data, pieces, 60.0)
        for other in others:
            other.join()
        verdict = judge_body(server, got, base)
    if server.process.poll() is not None:
        verdict = "THE SERVER ENDED"
    elif verdict == "ok" and index % 100 == 0 and server.raw("POST", "/tokenize", BODY)[0] != 200:
        verdict = "NO SERVICE AFTERWARDS"
    found = answers(got) if got and got != b"RESET" else []
    text = ascii(data[:160].decode("latin-1")) + (f"[{len(data)} bytes]" if len(data) > 160 else "")
    last = ascii(found[0][1][:100].decode("latin-1")) if found else ""
    return "\t".join([verdict, kind, f"{ARGS.seed}:{index}", text, str(found[0][0] if found else "closed"), last, f"{time.monotonic() - begin:.2f}"])


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--classes", default="form,who,body")
    parser.add_argument("--log")
    parser.add_argument("--only", type=int)
    args = parser.parse_args()
    args.classes = args.classes.split(",")
    if any(name not in ("form", "who", "body") for name in args.classes):
        parser.error("--classes: there are form, who, body")
    with open(args.bin + "/dpe-serve", "rb") as file:
        args.sanitized = b"__asan_init" in file.read()
    return args


def main():
    known = set()
    if ARGS.log and os.path.exists(ARGS.log):
        with open(ARGS.log, encoding="utf-8") as file:
            known = {line.split("\t")[2] for line in file if line.count("\t") == 6}
    wrong = 0
    with Server(ARGS.bin + "/dpe-serve", "-m", ROOT + "/data/reference", "-l", 256, "--slots", 2, "--threads", 1, "--max-memory", f"{LIMIT >> 20}M",
                "--client-timeout", 20) as server, (open(ARGS.log, "a", encoding="utf-8") if ARGS.log else os.fdopen(os.dup(1), "w")) as log:
        assert server.raw("POST", "/v1/completions", b'{"prompt": "The", "max_tokens": 2}')[0] == 200
        base = status_of(server, "RssAnon")
        for index in [ARGS.only] if ARGS.only is not None else range(ARGS.runs):
            if f"{ARGS.seed}:{index}" not in known:
                line = one(server, index, base)
                wrong += not line.startswith("ok\t")
                print(line, file=log, flush=True)
                if line.startswith("THE SERVER"):
                    break
        print(f"{wrong} wrong; most memory of the server {status_of(server, 'VmHWM') >> 20} MiB, {base >> 20} MiB at first", file=sys.stderr)
    return wrong > 0


ARGS = parse()
sys.exit(main())
