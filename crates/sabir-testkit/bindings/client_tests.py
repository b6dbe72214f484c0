"""Tests the wrapper of `openai` and LiteLLM against the real packages, with a provider on this machine that leaks calls as text."""

import asyncio
import http.server
import json
import threading
import unittest

import litellm
import openai

import sabir
from sabir.plugins.openai_client import repair_calls

TOOLS = [
    {
        "type": "function",
        "function": {"name": "look", "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "line": {"type": "integer"}}}},
    }
]
LEAK = 'Let me see.\n<tool_call>\n{"name": "look", "arguments": {"path": "a.rs", "line": 7}}\n</tool_call>'


CUT = 'Well.\n<look><path>a.rs</path><line>'
# What the models say, and the finish reason. Any other model says the leak.
ANSWERS = {
    "plain": ("a <b> c", "stop"),
    "thinking": ("<think>\nplan\n</think>\n\nAnswer 42.", "stop"),
    "cut-thought": ("<think>\nplan is long", "length"),
    "thinking-call": (f"<think>\nplan\n</think>\n\n{LEAK}\nDone.<|im_end|>", "stop"),
    "cut-call": (CUT, "stop"),
    "limited": (LEAK[: LEAK.index("\n</tool_call>")], "length"),
    "odd-reason": (LEAK[: LEAK.index("\n</tool_call>")], "aborted"),
    "unclosed": (LEAK[: LEAK.index("\n</tool_call>")], "stop"),
    "blank": ("\n\n" + LEAK[LEAK.index("<tool_call>") :] + "\n", "stop"),
    # The first of two calls cannot be read.
    "mixed": ('<tool_call>\n{"name": "look", "arguments": {"path": "a"\n</tool_call>\nand\n' + LEAK, "stop"),
}


class Provider(http.server.BaseHTTPRequestHandler):
    """Answers every request with what the model says; a stream of a model that is `lost` has no finish reason."""

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text, reason = ANSWERS.get(request["model"].split("/")[-1], (LEAK, "stop"))
        head = {"id": "1", "object": "chat.completion", "created": 1, "model": request["model"]}
        if not request.get("stream"):
            message = {"role": "assistant", "content": text}
            body = json.dumps({**head, "choices": [{"index": 0, "message": message, "finish_reason": reason}]}).encode()
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
        if request["model"] != "lost":
            choices.append({"index": 0, "delta": {}, "finish_reason": reason})
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
        self.assertEqual(choice.message.content, "Let me see.\n")
        (call,) = choice.message.tool_calls
        self.assertEqual((call.function.name, json.loads(call.function.arguments)), ("look", {"path": "a.rs", "line": 7}))
        self.assertTrue(call.id.startswith("call_"))

    def check_stream(self, chunks):
        text, calls, reason = collect(chunks)
        self.assertEqual(text, "Let me see.\n")
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

    def both(self, model, **options):
        """Returns the text, the calls and the finish reason of a model, which must be the same whole and streamed."""
        client = repair_calls(openai.OpenAI(base_url=self.url, api_key="x"), **options)
        choice = client.chat.completions.create(model=model, **self.request).choices[0]
        calls = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or []]
        whole = (choice.message.content or "", dict(enumerate(calls)), choice.finish_reason)
        self.assertEqual(whole, collect(client.chat.completions.create(model=model, stream=True, **self.request)))
        return whole

    def test_text_stays_as_it_is(self):
        for model in ("plain", "thinking", "cut-thought", "cut-call", "limited", "unclosed"):
            text, reason = ANSWERS[model]
            self.assertEqual(self.both(model), (text, {}, reason))
        look = {0: ("look", '{"path":"a.rs","line":7}')}
        self.assertEqual(self.both("thinking-call"), ("<think>\nplan\n</think>\n\nLet me see.\n\nDone.<|im_end|>", look, "tool_calls"))
        self.assertEqual(self.both("blank"), ("", look, "tool_calls"))
        mixed = ANSWERS["mixed"][0]
        self.assertEqual(self.both("mixed"), (mixed[: mixed.index("<tool_call>", 5)], look, "tool_calls"))

    def test_the_output_limit_closes_no_call(self):
        self.assertEqual(self.both("unclosed", closes_last_call=True)[2], "tool_calls")
        for model in ("limited", "odd-reason"):
            text, reason = ANSWERS[model]
            self.assertEqual(self.both(model, closes_last_call=True), (text, {}, reason))

    def test_a_stream_without_an_end_loses_nothing(self):
        client = repair_calls(openai.OpenAI(base_url=self.url, api_key="x"))
        ANSWERS["lost"] = (CUT, "")
        text, calls, _ = collect(client.chat.completions.create(model="lost", stream=True, **self.request))
        self.assertEqual((text, calls), (CUT, {}))

    def test_entry_points(self):
        original = openai.OpenAI(base_url=self.url, api_key="x")
        client = repair_calls(original)
        self.assertIs(client, original)
        for completions in (client.with_options(timeout=5).chat.completions, client.copy().chat.completions, client.beta.chat.completions):
            self.check_message(completions.create(model="m", **self.request))
        raw = client.chat.completions.with_raw_response.create(model="m", **self.request)
        self.assertEqual(raw.headers["content-type"], "application/json")
        self.check_message(raw.parse())
        self.check_stream(client.chat.completions.with_raw_response.create(model="m", stream=True, **self.request).parse())
        with client.chat.completions.with_streaming_response.create(model="m", **self.request) as response:
            self.check_message(response.parse())
        strict = [{**TOOLS[0], "function": {**TOOLS[0]["function"], "strict": True}}]
        parsed = client.chat.completions.parse(model="m", messages=self.request["messages"], tools=strict)
        self.check_message(parsed)
        self.assertEqual(parsed.choices[0].message.tool_calls[0].function.parsed_arguments, {"path": "a.rs", "line": 7})
        with client.chat.completions.stream(model="m", messages=self.request["messages"], tools=strict) as stream:
            self.check_message(stream.get_final_completion())

    def test_streams_are_those_of_the_library(self):
        client = repair_calls(openai.OpenAI(base_url=self.url, api_key="x"))
        stream = client.chat.completions.create(model="m", stream=True, **self.request)
        self.assertIsInstance(stream, openai.Stream)
        self.assertTrue(next(stream).id)
        stream = repair_calls(litellm.completion)(model="openai/m", api_base=self.url, api_key="x", stream=True, **self.request)
        self.assertTrue(next(stream).id)

        async def run():
            client = repair_calls(openai.AsyncOpenAI(base_url=self.url, api_key="x"))
            stream = await client.with_options(timeout=60).chat.completions.create(model="m", stream=True, **self.request)
            self.assertIsInstance(stream, openai.AsyncStream)
            self.check_stream([chunk async for chunk in stream])
            raw = await client.chat.completions.with_raw_response.create(model="m", **self.request)
            self.check_message(raw.parse())
            stream = await repair_calls(litellm.acompletion)(model="openai/m", api_base=self.url, api_key="x", stream=True, **self.request)
            self.check_stream([chunk async for chunk in stream])

        asyncio.run(run())

    def test_what_cannot_be_used_is_an_error_at_once(self):
        for target in (None, 5, openai.OpenAI):
            with self.assertRaises(TypeError):
                repair_calls(target)
        client = openai.OpenAI(base_url=self.url, api_key="x")
        for options in ({"dialect": "hermez"}, {"no_such_option": 1}, {"prefill": 5}):
            with self.assertRaises(sabir.SabirError):
                repair_calls(client, **options)
        with self.assertRaises(TypeError):
            repair_calls(client, whole_calls=False)

    def test_tools_that_cannot_be_read_cost_no_answer(self):
        client = repair_calls(openai.OpenAI(base_url=self.url, api_key="x"))
        messages = self.request["messages"]
        self.check_message(client.chat.completions.create(model="m", messages=messages, tools=[{"type": "web_search"}, *TOOLS]))
        only = client.chat.completions.create(model="m", messages=messages, tools=[{"type": "web_search"}])
        self.assertEqual(only.choices[0].message.content, LEAK)
        with self.assertWarns(RuntimeWarning):
            odd = client.chat.completions.create(model="m", messages=messages, tools=[{"type": "function", "function": {"name": 5}}])
        self.assertEqual(odd.choices[0].message.content, LEAK)

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
