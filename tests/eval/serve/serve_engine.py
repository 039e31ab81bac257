"""serve_engine.py BIN ROOT: dpe-eval, dpe-detect, dpe-norms and dpe-calibrate with another program as its engine: dpe-serve gives the rows that this process would make;
a server that stops in the middle costs no row; one of OpenAI's interface without plans is measured as it is."""

import http.client
import http.server
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(__file__))
from serve_case import Server  # noqa: E402

bin_folder, root = sys.argv[1:3]
model = os.path.join(root, "data/reference")
work = tempfile.mkdtemp()
TEXTS = ["--corpus", os.path.join(root, "data/sample"), "--seed", "3"]
METHODS = ["--method", "rope", "--method", "self-extend", "--method", "yarn"]
# Tokenizer and configuration, no weights.
bare = os.path.join(work, "bare")
os.mkdir(bare)
for name in ("config.json", "generation_config.json", "tokenizer.json"):
    os.symlink(os.path.join(model, name), os.path.join(bare, name))


def serve(*arguments):
    return Server(f"{bin_folder}/dpe-serve", "-m", model, "--threads", 2, *arguments)


def evaluate(command, output, *arguments, folder=model, code=0):
    ran = subprocess.run([f"{bin_folder}/dpe-eval", command, "-m", folder, *TEXTS, "-o", os.path.join(work, output), *arguments],
                         capture_output=True, text=True, check=False)
    assert ran.returncode == code, ran
    return ran.stdout if code == 0 else ran.stderr


def test_same():
    """The same rows, without weights beside the client."""
    with serve("-l", "512") as server:
        engine = ["--engine", f"http://127.0.0.1:{server.port}/v1"]
        for command, options in (("niah", ["-l", "256,512", "--samples", "3"]), ("ppl", ["-l", "300", "--samples", "2"])):
            here = evaluate(command, command + ".h5", "--threads", "2", *options, *METHODS)
            assert evaluate(command, command + "2.h5", *engine, *options, *METHODS, folder=bare) == here, here
        error = evaluate("niah", "long.h5", *engine, "-l", "1k", "--samples", "1", *METHODS, folder=bare, code=64)
        assert "at most 512 tokens" in error, error
        assert not os.path.exists(os.path.join(work, "long.h5"))
        error = evaluate("niah", "other.h5", "--engine", "x", "-l", "256", *METHODS, code=64)
        assert "expected a URL" in error, error


def test_detect():
    """A sweep through dpe-serve finds what one in this process finds, and its table names the server's weights."""
    options = ["-l", "512", "--samples", "2", "--groups", "2", "--lengths", "128,512"]
    with serve("-l", "512") as server:
        said = []
        for output, more, folder in (("d1.h5", ["--threads", "2"], model),
                                     ("d2.h5", ["--engine", f"http://127.0.0.1:{server.port}"], bare)):
            ran = subprocess.run([f"{bin_folder}/dpe-detect", "-m", folder, *TEXTS, *options, *more, "--json", "-o",
                                  os.path.join(work, output)], capture_output=True, text=True, check=True)
            said.append(json.loads(ran.stdout))
        for result in said:
            del result["model"], result["table"]
        assert said[0] == said[1] and said[0]["fingerprint"], said


def test_norms():
    """The same sums, and then texts again: the server's caches begin anew."""
    with serve("-l", "512") as server:
        engine = ["--engine", f"http://127.0.0.1:{server.port}"]
        for kind in ("product-of-means", "mean-of-products"):
            said = []
            for output, more, folder in (("n1.h5", ["--threads", "2"], model), ("n2.h5", engine, bare)):
                ran = subprocess.run([f"{bin_folder}/dpe-norms", "-m", folder, *TEXTS, "--samples", "3", "--lengths", "100,230",
                                      "--contribution", kind, *more, "--json", "--force", "-o", os.path.join(work, output)],
                                     capture_output=True, text=True, check=True)
                said.append(json.loads(ran.stdout))
            for result in said:
                del result["model"], result["table"]
            assert said[0] == said[1], said
            options = ["-l", "256", "--samples", "2", "--method", "rope"]
            there = evaluate("niah", f"after-{kind}.h5", *engine, *options, folder=bare)
            assert there == evaluate("niah", f"own-{kind}.h5", "--threads", "2", *options)


def test_calibrate():
    """All studies over one server: the table of this process, byte for byte in its JSON form."""
    options = ["-l", "512", "--samples", "2", "--groups", "1", "--lengths", "128,512", "--temperature", "off"]
    with serve("-l", "512") as server:
        tables = []
        for output, more, folder in (("c1", ["--threads", "2"], model),
                                     ("c2", ["--engine", f"http://127.0.0.1:{server.port}"], bare)):
            subprocess.run([f"{bin_folder}/dpe-calibrate", "-m", folder, *TEXTS, *options, *more, "-o", os.path.join(work, output)],
                           capture_output=True, text=True, check=True)
            with open(os.path.join(work, output, "table.json"), "rb") as file:
                tables.append(file.read())
        assert tables[0] == tables[1], tables


def test_stop():
    """The server goes in the middle: what it answered is kept, and the same command asks for the rest alone."""
    options = ["-l", "256", "--samples", "40", "--method", "self-extend"]
    with serve("-l", "512", "--slots", "1", "--port", "0") as server:
        port = server.port
        ran = subprocess.Popen([f"{bin_folder}/dpe-eval", "niah", "-m", bare, *TEXTS, "-o", os.path.join(work, "stop.h5"), *options,
                                "--engine", f"http://127.0.0.1:{port}"], stderr=subprocess.PIPE, text=True)
        while server.metric("dpe_sequences_finished_total") < 6:
            time.sleep(0.02)
    time.sleep(0.5)
    ran.terminate()
    _, error = ran.communicate()
    assert ran.returncode == 75 and "are saved" in error, (ran.returncode, error)
    with serve("-l", "512", "--port", str(port)) as server:
        there = evaluate("niah", "stop.h5", *options, "--engine", f"http://127.0.0.1:{port}", folder=bare)
        asked = server.metric("dpe_sequences_finished_total")
    assert 0 < asked <= 36, asked
    assert there == evaluate("niah", "whole.h5", "--threads", "2", "-l", "256", "--samples", "40", "--method", "self-extend")


class Plain(http.server.BaseHTTPRequestHandler):
    """A server of OpenAI's interface in front of dpe-serve, which knows nothing of this project."""
    protocol_version = "HTTP/1.1"
    port = 0

    def do_GET(self):  # noqa: N802
        self.answer(404 if "dpe" in self.path else 200, {"error": {"message": "?"}} if "dpe" in self.path else
                    {"data": [{"id": "plain", "object": "model"}]})

    def do_POST(self):  # noqa: N802
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert not {"dpe_plan", "return_token_ids"} & set(body) and body["model"] == "plain", body
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("POST", "/v1/completions", json.dumps(body))
        answer = json.loads(connection.getresponse().read())
        del answer["dpe"]
        self.answer(200, answer)

    def answer(self, status, value):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def test_plain():
    """Another server is an engine with one plan."""
    with serve("--method", "self-extend", "-l", "512") as server:
        Plain.port = server.port
        plain = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Plain)
        threading.Thread(target=plain.serve_forever, daemon=True).start()
        engine = ["--engine", f"http://127.0.0.1:{plain.server_port}"]
        options = ["-l", "512", "--samples", "3"]
        here = evaluate("niah", "own.h5", "--threads", "2", *options, "--method", "self-extend")
        there = evaluate("niah", "plain.h5", *engine, *options, "--method", "rope", folder=bare)
        assert [line.split()[1:] for line in there.split("\n")[2:3]] == [line.split()[1:] for line in here.split("\n")[2:3]], (here, there)
        error = evaluate("niah", "two.h5", *engine, *options, *METHODS, folder=bare, code=64)
        assert "takes no plans" in error, error
        ran = subprocess.run([f"{bin_folder}/dpe-norms", "-m", bare, *TEXTS, *engine, "-o", os.path.join(work, "no.h5")],
                             capture_output=True, text=True, check=False)
        assert ran.returncode == 64 and "gives no norms" in ran.stderr and not os.path.exists(os.path.join(work, "no.h5")), ran
        plain.shutdown()


def ask_once(engine, *words, code, **environment):
    """What a tool says that asks an engine who it is, with these variables of the environment."""
    clean = {key: value for key, value in os.environ.items() if "proxy" not in key.lower() and key not in ("SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE")}
    ran = subprocess.run([f"{bin_folder}/dpe-eval", "niah", "-m", bare, *TEXTS, "-l", "256", "--samples", "1", "--method", "rope", "--engine", engine,
                          *words, "-o", os.path.join(work, "asked.h5")], capture_output=True, text=True, check=False, timeout=120,
                         env={**clean, **environment})
    assert ran.returncode == code, ran
    return ran.stderr


def test_proxies():
    """A proxy is asked, with the key, for machines that the user has not named as reached without it; never for this machine."""
    heads = []

    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_GET(self):  # noqa: N802
            heads.append((self.path, self.headers["Authorization"]))
            self.send_error(404)

        def log_message(self, *_):
            pass

    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    key = os.path.join(work, "key")
    with open(key, "w", encoding="utf-8") as file:
        file.write("sk-hidden\n")
    by = {"http_proxy": f"http://127.0.0.1:{proxy.server_port}"}
    ask_once("http://engine.invalid:81", "--engine-key-file", key, code=65, **by)
    assert heads and heads[0] == ("http://engine.invalid:81/v1/dpe", "Bearer sk-hidden"), heads
    heads.clear()
    for name in ("NO_PROXY", "no_proxy"):
        for value in ("engine.invalid", "other.example,.invalid", "*"):
            ask_once("http://engine.invalid:81", "--engine-key-file", key, code=64, **by, **{name: value})
    for host in ("127.0.0.1", "localhost"):
        ask_once(f"http://{host}:1", "--engine-key-file", key, code=74, **by, NO_PROXY="other.example")
    assert not heads, heads
    proxy.shutdown()


def test_own_authority():
    """A certificate of one's own authority is trusted where the user names the authority's file."""
    cert, secret = os.path.join(work, "cert.pem"), os.path.join(work, "secret.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                    "-days", "2", "-keyout", secret, "-out", cert], check=True, capture_output=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Plain)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, secret)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # of clients that do not trust it
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"https://localhost:{server.server_port}"
    assert "certificate" in ask_once(url, code=74)
    for name in ("SSL_CERT_FILE", "CURL_CA_BUNDLE"):
        assert "certificate" not in ask_once(url, "--dry-run", code=0, **{name: cert})
    named = os.path.join(work, "trusted")
    os.mkdir(named)
    shutil.copy(cert, named)
    subprocess.run(["openssl", "rehash", named], check=True, capture_output=True)
    assert "certificate" not in ask_once(url, "--dry-run", code=0, SSL_CERT_DIR=named)
    server.shutdown()


try:
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print("passed", name, flush=True)
finally:
    shutil.rmtree(work)
