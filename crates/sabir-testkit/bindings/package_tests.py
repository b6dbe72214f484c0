"""Tests the Python package `sabir` as a user has it: every function, exceptions with spans, threads, asyncio."""

import asyncio
import copy
import json
import pickle
import threading
import unittest

import sabir

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "line": {"type": "integer"}}, "required": ["path"]},
        },
    }
]
TEXT = "Now:\n<look><path>ä.rs</path><line>7</line></look>"


class PackageTests(unittest.TestCase):
    def test_streams_take_text_and_bytes(self):
        for chunks in (list(TEXT), [bytes([byte]) for byte in TEXT.encode()]):
            events = list(sabir.read(chunks, tools=TOOLS))
            value = "".join(event["text"] for event in events if event["event"] == "arg_delta" and event["index"] == 0)
            self.assertEqual(value, "ä.rs7")
            self.assertEqual(events[-1]["event"], "call_end")

    def test_every_shape_of_tools(self):
        schema = TOOLS[0]["function"]["parameters"]
        for tools in (
            TOOLS,
            tuple(TOOLS),
            json.dumps(TOOLS),
            [{"name": "look", "input_schema": schema}],
            {"tools": [{"name": "look", "inputSchema": schema}]},
            [{"functionDeclarations": [{"name": "look", "parameters": schema}]}],
            [{"toolSpec": {"name": "look", "inputSchema": {"json": schema}}}],
        ):
            (part,) = [part for part in sabir.parse(TEXT, tools=tools)["parts"] if part["type"] == "call"]
            self.assertEqual((part["state"], part["arguments"]), ("complete", {"path": "ä.rs", "line": 7}))

    def test_checks_and_strict_checks(self):
        bad = "<look><line>ten</line></look>"
        report = sabir.check(bad, tools=TOOLS)
        self.assertFalse(report["ok"])
        with self.assertRaises(sabir.CallError) as caught:
            sabir.check(bad, tools=TOOLS, strict=True)
        self.assertIn("^^^", str(caught.exception))
        self.assertEqual(len(caught.exception.span), 2)
        self.assertTrue(caught.exception.feedback)
        sabir.check(TEXT, tools=TOOLS, strict=True)

    def test_errors_have_codes_and_spans(self):
        with self.assertRaises(sabir.SabirError) as caught:
            sabir.Reader("clime")
        self.assertEqual((caught.exception.code, caught.exception.span), ("unknown_dialect", None))
        with self.assertRaises(sabir.SabirError) as caught:
            sabir.Reader(tools="[{]")
        self.assertEqual((caught.exception.code, caught.exception.span), ("invalid_tools", (2, 3)))
        with self.assertRaises(sabir.SabirError) as caught:
            sabir.Reader(no_such_option=1)
        self.assertEqual(caught.exception.code, "invalid_options")
        with self.assertRaises(sabir.EditError) as caught:
            sabir.edit("a\n", "<<<<<<< SEARCH\nzz\n=======\ny\n>>>>>>> REPLACE\n")
        self.assertEqual(caught.exception.problems[0]["kind"], "not_found")
        reader = sabir.Reader()
        reader.finish()
        with self.assertRaises(sabir.SabirError):
            reader.push("more")
        self.assertEqual(reader.next_reader().push("more"), [{"event": "text", "text": "more"}])

    def test_own_dialects(self):
        acme = {"name": "acme", "machine": "json", "open": "<acme>", "close": "</acme>"}
        deeds = {"name": "deeds", "machine": "tagged", "tags": {"call": "deed", "argument": "with", "wrapper": "deeds"}}
        for text in ('<acme>{"name": "look", "arguments": {"path": "a"}}</acme>', '<deeds><deed name="look"><with name="path">a</with></deed></deeds>'):
            (part,) = sabir.parse(text, tools=TOOLS, dialects=[acme, deeds])["parts"]
            self.assertEqual((part["state"], part["arguments"]), ("complete", {"path": "a"}))

    def test_the_other_functions(self):
        written = sabir.render([{"name": "look", "arguments": {"path": "a"}}], "hermes", TOOLS)
        self.assertEqual(sabir.detect(written)["dialects"][0]["dialect"], "hermes")
        self.assertEqual(sabir.guess_tools(written)[0]["name"], "look")
        self.assertIn("look", sabir.prompt("hermes", TOOLS))
        self.assertIn("prompt_sizes", sabir.lint(TOOLS))
        self.assertEqual(sabir.edit("a\n", '{"old_string": "a", "new_string": "b"}')["content"], "b\n")
        self.assertEqual(sabir.explain(TEXT, tools=TOOLS)["found"][0]["dialect"], "cline")
        self.assertGreater(len(sabir.dialects()), 40)
        self.assertTrue(sabir.render_result("look", "x", True).startswith("[look, failed]"))
        body = json.dumps({"choices": [{"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]})
        self.assertEqual(sabir.decode(body)["parts"], [{"type": "text", "text": "hi"}])

    def test_openai_deltas(self):
        choices = list(sabir.to_openai_deltas(list(TEXT), tools=TOOLS))
        calls = [call for choice in choices for call in choice["delta"].get("tool_calls", [])]
        arguments = "".join(call["function"]["arguments"] for call in calls)
        self.assertEqual(json.loads(arguments), {"path": "ä.rs", "line": 7})
        self.assertEqual(choices[-1]["finish_reason"], "tool_calls")
        self.assertEqual("".join(choice["delta"].get("content", "") for choice in choices), "Now:\n")

    def test_asyncio(self):
        async def chunks(fails):
            for character in TEXT[:40] if fails else TEXT:
                await asyncio.sleep(0)
                yield character
            if fails:
                raise OSError("lost")

        async def collect(fails):
            events = []
            try:
                async for event in sabir.read_async(chunks(fails), tools=TOOLS):
                    events.append(event)
            except OSError:
                events.append({"event": "lost"})
            return events

        self.assertEqual(asyncio.run(collect(False))[-1]["event"], "call_end")
        broken = asyncio.run(collect(True))
        self.assertEqual([event["event"] for event in broken[-2:]], ["call_cut", "lost"])
        self.assertEqual(broken[-2]["why"], "broken")

    def test_a_source_that_fails_cuts_the_open_call(self):
        def chunks():
            yield TEXT[:40]
            raise OSError("lost")

        events = []
        with self.assertRaises(OSError):
            for event in sabir.read(chunks(), tools=TOOLS):
                events.append(event)
        self.assertEqual((events[-1]["event"], events[-1]["why"]), ("call_cut", "broken"))

    def test_the_reason_for_the_end(self):
        unclosed = ["<look><path>a.rs</path>"]
        options = {"tools": TOOLS, "closes_last_call": True}

        async def chunks():
            yield unclosed[0]

        async def collect(source):
            return [item async for item in source]

        for reason, last, finish in ((None, "call_end", "tool_calls"), ("limit", "call_cut", "length"), (lambda: "limit", "call_cut", "length")):
            events = list(sabir.read(unclosed, reason=reason, **options))
            self.assertEqual(events[-1]["event"], last)
            self.assertEqual(asyncio.run(collect(sabir.read_async(chunks(), reason=reason, **options))), events)
            self.assertEqual(list(sabir.to_openai_deltas(unclosed, reason=reason, **options))[-1]["finish_reason"], finish)
            choices = asyncio.run(collect(sabir.to_openai_deltas_async(chunks(), reason=reason, **options)))
            self.assertEqual(choices[-1]["finish_reason"], finish)

    def test_errors_can_be_copied_and_pickled(self):
        for run in (
            lambda: sabir.check("<look><line>ten</line></look>", tools=TOOLS, strict=True),
            lambda: sabir.Reader(tools="[{]"),
            lambda: sabir.edit("a\n", "<<<<<<< SEARCH\nzz\n=======\ny\n>>>>>>> REPLACE\n"),
        ):
            with self.assertRaises(sabir.SabirError) as caught:
                run()
            error = caught.exception
            for same in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
                self.assertEqual((type(same), str(same), same.__dict__), (type(error), str(error), error.__dict__))

    def test_what_is_no_call_stays_text(self):
        from sabir._leaked_calls import LeakedCallReader

        hermes = '<tool_call>\n{"name": "look", "arguments": {"path": "a"}}\n</tool_call>'
        step = (
            '<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="look"><steptml:parameter name="path">a'
            "</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>"
        )
        texts = {
            f"<think>ä</think>Hi.\n{hermes}\nBye.<|im_end|>": ("<think>ä</think>Hi.\n\nBye.<|im_end|>", 1),
            "[look(path='a'), look(path='b')]": ("", 2),
            f"\n{hermes}\n": ("", 1),
            # A call in a thought that is never closed is only mentioned.
            f"<think>{step}commentary": (f"<think>{step}commentary", 0),
            # Layout behind a wrapper has none either.
            "<tool_call>\nFirst:\n<function=look>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>": ("<tool_call>\nFirst:\n", 1),
            # A blank before a thought is reported behind it.
            "Done.<|return|>\n<think></think>Noon.": ("Done.<|return|>\n<think></think>Noon.", 0),
            # The first of two calls cannot be read.
            f'<tool_call>\n{{"name": "look", "arguments": {{"path": "a"\n</tool_call>\n{hermes}': ('<tool_call>\n{"name": "look", "arguments": {"path": "a"\n</tool_call>', 1),
        }
        for text, expected in texts.items():
            for size in (1, 7, 1000):
                reader = LeakedCallReader("auto", TOOLS)
                pieces = [piece for at in range(0, len(text), size) for piece in reader.push(text[at : at + size])] + reader.finish()
                said = "".join(piece for piece in pieces if isinstance(piece, str))
                self.assertEqual((said, len([piece for piece in pieces if isinstance(piece, dict)])), expected, (text, size))

    def test_threads(self):
        text = TEXT * 200
        expected = sabir.parse(text, tools=TOOLS)
        results = []
        threads = [threading.Thread(target=lambda: results.append(sabir.parse(text, tools=TOOLS))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, [expected] * 8)


if __name__ == "__main__":
    unittest.main()
