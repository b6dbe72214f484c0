"""What happens to the requests of an agent on their way to the provider: servers that pass requests on, but not all of them."""
import json
import select
import socket
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WORD = "kumquat-7731"
# How much history the provider takes, in characters of JSON: four parts. Codex shortens what its commands print.
HISTORY_LIMITS = {"codex": 40_000}
HISTORY_LIMIT = 130_000
PARTS = 6


class Proxy(ThreadingHTTPServer):
    """Passes requests on to the provider."""

    daemon_threads = True

    def __init__(self, provider, handler):
        self.provider = provider
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server_port}"


class ProxyHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def ask_provider(self, path, body):
        """The status, the content type and the body of the provider's answer."""
        headers = {name: self.headers[name] for name in ("content-type", "authorization") if self.headers[name]}
        try:
            with urllib.request.urlopen(urllib.request.Request(self.server.provider + path, body, headers)) as response:
                return response.status, response.headers["content-type"], response.read()
        except urllib.error.HTTPError as error:
            return error.code, "application/json", error.read()

    def answer(self, status, headers, body):
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class FaultProxy(Proxy):
    """Turns the first request that holds the notes away (`busy`), or answers it by half (`cut`) or so slowly that its client can be
    ended meanwhile (`left`).

    After an answer was cut, its whole is sent until the file is there: some agents keep the half in their history, others do not.
    """

    def __init__(self, provider, fault, greeting):
        self.fault, self.greeting = fault, greeting
        self.faulted, self.came_again, self.whole = None, None, None
        self.begun, self.left, self.left_at = threading.Event(), threading.Event(), None
        super().__init__(provider, FaultHandler)

    def describe_mistake(self):
        """`None`, or what the agent did wrong."""
        if not (self.faulted and self.came_again):
            return "the request that was not answered in full did not come again"
        waited = self.came_again - self.faulted
        if self.fault == "busy" and waited < 1.9:
            return f"the request came again after {waited:.1f} s, not the 2 of Retry-After"
        return None


class FaultHandler(ProxyHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        server = self.server
        holds_notes = WORD.encode() in body
        with server.lock:
            first = server.faulted is None and holds_notes
            if first:
                server.faulted = time.monotonic()
            elif server.faulted and server.came_again is None:
                server.came_again = time.monotonic()
        if first and server.fault == "busy":
            said = json.dumps({"error": {"message": "Rate limit reached", "type": "rate_limit_error", "code": "rate_limit_exceeded"}}).encode()
            return self.answer(429, {"content-type": "application/json", "retry-after": "2"}, said)
        if server.whole and holds_notes and not server.greeting.exists():
            return self.answer(200, {"content-type": "text/event-stream"}, server.whole)
        status, content, answered = self.ask_provider(self.path, body)
        if first and content.startswith("text/event-stream"):
            if server.fault == "left":
                return self.answer_slowly(answered)
            server.whole, answered = answered, cut(answered)
        self.answer(status, {"content-type": content}, answered)

    def answer_slowly(self, stream):
        """An event each half second, until the client is gone."""
        self.close_connection = True
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for number, event in enumerate(stream.split(b"\n\n")):
            try:
                self.wfile.write(event + b"\n\n")
            except OSError:
                return self.note_left()
            if number == 4:
                self.server.begun.set()
            readable, _, _ = select.select([self.connection], [], [], 0.5)
            if readable and self.is_gone():
                return self.note_left()

    def is_gone(self):
        try:
            return self.connection.recv(1, socket.MSG_PEEK) == b""
        except OSError:
            return True

    def note_left(self):
        self.server.left_at = time.monotonic()
        self.server.left.set()


def cut(stream):
    """The first half of a stream of Chat Completions, which its output limit ends."""
    events = stream.decode().split("\n\n")
    limit = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}
    return "\n\n".join([*events[: len(events) // 2], f"data: {json.dumps(limit)}", "data: [DONE]", ""]).encode()


def part(number):
    """A file of 30 KB; the last one has the word."""
    mark = f"This is part {number} of {PARTS}, mark-{number}-mark.\n"
    lines = "".join(f"Line {line:03} of part {number} holds nothing of use, only words that fill it up to its size.\n" for line in range(360))
    return mark + lines + (f"The word is {WORD}.\n" if number == PARTS else mark)


class OverflowProxy(Proxy):
    """Refuses each request whose history is too long, in the words of its API's provider, and plays the model: it reads the parts one after
    the other, writes the file and ends, or gives a summary if it is asked for one. `written` is how it writes calls.

    The model's next step depends on what the requests that were answered so far held, since an agent may replace its history.
    """

    def __init__(self, provider, written, agent, greeting):
        self.written, self.agent, self.greeting = written, agent, greeting
        self.known, self.refused, self.summaries = set(), 0, 0
        self.limit = HISTORY_LIMITS.get(agent, HISTORY_LIMIT)
        self.steps = []
        super().__init__(provider, OverflowHandler)

    def describe_mistake(self):
        """`None`, or why the run shows nothing."""
        return None if self.refused else "no request was too long"

    def step(self, body, history):
        """The list of the script for the reply."""
        last = json.dumps(history[-1:]).lower()
        if not (body.get("tools") and "summar" not in last):
            self.summaries += 1
            return "summary"
        text = json.dumps(history)
        self.known.update(number for number in range(1, PARTS + 1) if f"mark-{number}-mark" in text)
        if self.greeting.exists():
            return "done"
        missing = [number for number in range(1, PARTS + 1) if number not in self.known]
        step = f"part{missing[0]}" if missing else "write"
        # A model that gets nowhere gives up.
        return "stuck" if [known.split()[0] for known in self.steps[-3:]] == [step] * 3 else step


class OverflowHandler(ProxyHandler):
    def do_POST(self):
        sent = self.rfile.read(int(self.headers["content-length"]))
        server, path = self.server, self.path
        body = json.loads(sent)
        member, message = overflow_of(path)
        if member is None:
            return self.answer(404, {"content-type": "application/json"}, b'{"error": {"message": "no such path"}}')
        history = body.get(member) or []
        history = [turn for turn in history if not (isinstance(turn, dict) and turn.get("role") in ("system", "developer"))]
        size = len(json.dumps(history, ensure_ascii=False))
        with server.lock:
            if size > server.limit:
                server.refused += 1
                server.steps.append(f"refused {size}")
                # In tokens of four characters.
                said = message(size // 4, server.limit // 4)
                return self.answer(400, {"content-type": "application/json"}, json.dumps(said).encode())
            step = server.step(body, history)
            server.steps.append(f"{step} {size}")
        model = f"turns-{server.written}-{server.agent}-{step}"
        if member == "contents":
            head, _, call = path.partition("/models/")
            path = f"{head}/models/{model}:{call.partition(':')[2]}"
        else:
            body["model"] = model
        status, content, answered = self.ask_provider(path, json.dumps(body).encode())
        self.answer(status, {"content-type": content}, answered)


def overflow_of(path):
    """The member that holds the history, and the provider's error for one of so many tokens."""
    path = path.partition("?")[0]
    if path.endswith("/messages"):
        return "messages", lambda used, most: {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": f"prompt is too long: {used} tokens > {most} maximum"},
        }
    if path.endswith("/responses"):
        return "input", lambda used, most: {
            "error": {
                "message": "Your input exceeds the context window of this model. Please adjust your input and try again.",
                "type": "invalid_request_error",
                "param": "input",
                "code": "context_length_exceeded",
            }
        }
    if path.endswith("/chat/completions"):
        return "messages", lambda used, most: {
            "error": {
                "message": f"This model's maximum context length is {most} tokens. However, your messages resulted in {used} tokens. "
                "Please reduce the length of the messages.",
                "type": "invalid_request_error",
                "param": "messages",
                "code": "context_length_exceeded",
            }
        }
    if ":generateContent" in path or ":streamGenerateContent" in path:
        return "contents", lambda used, most: {
            "error": {
                "code": 400,
                "message": f"The input token count ({used}) exceeds the maximum number of tokens allowed ({most}).",
                "status": "INVALID_ARGUMENT",
            }
        }
    return None, None
