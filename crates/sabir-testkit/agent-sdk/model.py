"""A scripted model behind the Messages API on 127.0.0.1. Usage: model.py, which prints its address.

The last message of the user names a script; the number of answers since then chooses the step.
"""
import http.server
import json

CALL = lambda name, **arguments: {"type": "tool_use", "name": name, "input": arguments}
TEXT = lambda text: {"type": "text", "text": text}
SCRIPTS = {
    "work": [
        [TEXT("I make a file."), CALL("execute_command", command="touch made.txt && echo made")],
        [CALL("write_to_file", path="notes.txt", content="a note\n")],
        [TEXT("All is done.")],
    ],
    "rules": [
        [CALL("execute_command", command="touch first.txt")],
        [CALL("execute_command", command="touch second.txt")],
        [TEXT("Asked once.")],
    ],
    "sleep": [[CALL("execute_command", command="sleep 600")], [TEXT("Slept.")]],
    "question": [[CALL("ask_followup_question", question="Which colour?", options=["red", "blue"])], [TEXT("Thank you.")]],
    "server": [[CALL("notes__add", text="x")], [TEXT("The server answered.")]],
    "hello": [[TEXT("Hello again.")]],
}


def answer_of(messages):
    """Returns the content of the next answer."""
    name, steps = "hello", 0
    for message in messages:
        content = message["content"]
        texts = [content] if isinstance(content, str) else [b.get("text", "") for b in content if b["type"] == "text"]
        if message["role"] == "assistant":
            steps += 1
            continue
        for text in texts:
            for script in SCRIPTS:
                if f"script {script}" in text:
                    name, steps = script, 0
    script = SCRIPTS[name]
    return script[min(steps, len(script) - 1)]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    counter = 0

    def log_message(self, *_):
        pass

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Handler.counter += 1
        blocks = answer_of(request["messages"])
        usage = {"input_tokens": 10, "output_tokens": 5}
        message = {"id": f"msg_{Handler.counter}", "type": "message", "role": "assistant", "model": request["model"],
                   "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        events = [{"type": "message_start", "message": message}]
        stop = "end_turn"
        for index, block in enumerate(blocks):
            if block["type"] == "text":
                events.append({"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}})
                events.append({"type": "content_block_delta", "index": index,
                               "delta": {"type": "text_delta", "text": block["text"]}})
            else:
                stop = "tool_use"
                start = {**block, "id": f"toolu_{Handler.counter}_{index}", "input": {}}
                events.append({"type": "content_block_start", "index": index, "content_block": start})
                events.append({"type": "content_block_delta", "index": index,
                               "delta": {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}})
            events.append({"type": "content_block_stop", "index": index})
        events.append({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage})
        events.append({"type": "message_stop"})
        body = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
server.serve_forever()
