"""A running dpe-serve and its HTTP client, for tests."""

import http.client
import json
import re
import signal
import subprocess
import threading


class Server:
    """dpe-serve on a free port; ends with the `with` block, which checks its exit code."""

    def __init__(self, binary, *arguments, **options):
        self.process = subprocess.Popen([binary, "--port", "0", *map(str, arguments)], text=True,
                                        stderr=subprocess.PIPE, **options)
        self.log = []
        self.port = None
        ready = threading.Event()

        def read():
            for line in self.process.stderr:
                self.log.append(line)
                found = re.search(r"at http://127\.0\.0\.1:(\d+)", line)
                if found:
                    self.port = int(found.group(1))
                    ready.set()
            ready.set()

        self.reader = threading.Thread(target=read, daemon=True)
        self.reader.start()
        ready.wait()
        assert self.port, "dpe-serve did not start: " + "".join(self.log)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait()
        self.reader.join()
        assert kind is not None or code == 0, f"dpe-serve ended with {code}: {''.join(self.log)}"

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port)

    def raw(self, method, path, body=None, headers=None):
        """Status, headers and bytes of an answer."""
        connection = self.connect()
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        data = response.read()
        connection.close()
        return response.status, response.headers, data

    def ask(self, path, body=None, method=None, headers=None):
        """The JSON of an answer that must be 200."""
        text = json.dumps(body) if body is not None else None
        status, _, data = self.raw(method or ("POST" if body is not None else "GET"), path, text, headers)
        assert status == 200, (status, data)
        return json.loads(data)

    def refused(self, status, path, body, method="POST", headers=None):
        """The error of an answer that must be this refusal."""
        got, answered, data = self.raw(method, path, body if isinstance(body, (str, bytes)) else json.dumps(body),
                                       headers)
        assert got == status, (got, status, data[:300])
        error = json.loads(data)["error"]
        assert set(error) == {"message", "type", "param", "code"} and error["message"], error
        assert status != 503 or answered["Retry-After"], answered
        return error

    def stream(self, path, body):
        """The events of a stream, [DONE] checked and left out."""
        status, headers, data = self.raw("POST", path, json.dumps({**body, "stream": True}))
        assert status == 200 and headers["Content-Type"] == "text/event-stream", (status, data)
        events = data.decode().split("\n\n")
        assert events[-1] == "" and events[-2] == "data: [DONE]", events[-3:]
        return [json.loads(event[len("data: "):]) for event in events[:-2]]

    def metric(self, name):
        text = self.raw("GET", "/metrics")[2].decode()
        return float(re.search(rf"^{name} (\S+)$", text, re.M).group(1))
