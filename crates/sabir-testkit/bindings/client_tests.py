"""Tests the wrapper of `openai` and LiteLLM against the real packages, with a provider on this machine that leaks calls as text."""

import asyncio
import http.server
import json
import threading
import unittest

import litellm
import openai

from sabir.plugins.openai_client import repair_calls

TOOLS = [
    {
        "type": "function",
        "function": {"name": "look", "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "line": {"type": "integer"}}}},
    }
]
LEAK = 'Let me see.\n<tool_call>\n{"name": "look", "arguments": {"path": "a.rs", "line": 7}}\n</tool_call>'


class Provider(http.server.BaseHTTPRequestHandler):
    """Answers every request with the leaked call; `plain` models answer with words."""

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = "a <b> c" if request["model"].endswith("plain") else LEAK
        head = {"id": "1", "object": "chat.completion", "created": 1, "model": request["model"]}
        if not request.get("stream"):
            message = {"role": "assistant", "content": text}
            body = json.dumps({**head, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        head["object"] = "chat.completion.chunk"
        deltas = [{"content": text[at : at + 5]} for at in range(0, len(text), 5)]
        choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
        choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
        for choice in choices:
            self.wfile.write(f"data: {json.dumps({**head, 'choices': [choice]})}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *arguments):
        pass


def collect(chunks):
    text, calls, reason = "", {}, None
    for chunk in chunks:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for call in choice.delta.tool_calls or []:
                name, arguments = calls.get(call.index, ("", ""))
                calls[call.index] = (name + (call.function.name or ""), arguments + (call.function.arguments or ""))
            reason = choice.finish_reason or reason
    return text, calls, reason


class ClientTests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.url = f"http://127.0.0.1:{cls.server.server_port}/v1"
        cls.request = {"messages": [{"role": "user", "content": "go"}], "tools": TOOLS}

    @classmethod
    def tearDownClass(cls):
        cls.server.shutdown()

    def check_message(self, completion):
        choice = completion.choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        self.assertEqual(choice.message.content, "Let me see.")
        (call,) = choice.message.tool_calls
        self.assertEqual((call.function.name, json.loads(call.function.arguments)), ("look", {"path": "a.rs", "line": 7}))
        self.assertTrue(call.id.startswith("call_"))

    def check_stream(self, chunks):
        text, calls, reason = collect(chunks)
        self.assertEqual(text.strip(), "Let me see.")
        self.assertEqual({index: (name, json.loads(arguments)) for index, (name, arguments) in calls.items()}, {0: ("look", {"path": "a.rs", "line": 7})})
        self.assertEqual(reason, "tool_calls")

    def test_openai(self):
        client = repair_calls(openai.OpenAI(base_url=self.url, api_key="x"))
        self.check_message(client.chat.completions.create(model="m", **self.request))
        self.check_stream(client.chat.completions.create(model="m", stream=True, **self.request))
        with client.chat.completions.create(model="m", stream=True, **self.request) as stream:
            self.check_stream(stream)

    def test_openai_async(self):
        async def run():
            client = repair_calls(openai.AsyncOpenAI(base_url=self.url, api_key="x"))
            self.check_message(await client.chat.completions.create(model="m", **self.request))
            stream = await client.chat.completions.create(model="m", stream=True, **self.request)
            self.check_stream([chunk async for chunk in stream])

        asyncio.run(run())

    def test_litellm(self):
        completion = repair_calls(litellm.completion)
        request = {"model": "openai/m", "api_base": self.url, "api_key": "x", **self.request}
        self.check_message(completion(**request))
        self.check_stream(completion(stream=True, **request))

    def test_other_answers_pass_unchanged(self):
        client = repair_calls(openai.OpenAI(base_url=self.url, api_key="x"))
        plain = client.chat.completions.create(model="plain", **self.request)
        self.assertEqual((plain.choices[0].message.content, plain.choices[0].message.tool_calls), ("a <b> c", None))
        text, calls, reason = collect(client.chat.completions.create(model="plain", stream=True, **self.request))
        self.assertEqual((text, calls, reason), ("a <b> c", {}, "stop"))
        untouched = client.chat.completions.create(model="m", messages=self.request["messages"])
        self.assertEqual(untouched.choices[0].message.content, LEAK)


if __name__ == "__main__":
    unittest.main()
