"""OpenAI Responses, by `openai`."""
import json

import openai

from expected import MODELS, SCHEMA, WORDS, with_ids


def cases(address, check):
    client = openai.OpenAI(base_url=address + "/v1", api_key="k", max_retries=2)
    tools = [{"type": "function", "name": "read_file", "parameters": SCHEMA, "strict": False}]

    def ask(model):
        """The final response of a stream, by the client's own accumulator."""
        with client.responses.stream(model=model, input="go", tools=tools) as stream:
            for _ in stream:
                pass
            return stream.get_final_response()

    def calls(response):
        found = [item for item in response.output if item.type == "function_call"]
        return [(item.call_id, item.name, json.loads(item.arguments)) for item in found]

    def text():
        done = ask("text")
        check("responses text", done.output_text, WORDS)
        check("responses status", done.status, "completed")
        check("responses usage", (done.usage.input_tokens, done.usage.output_tokens), (12, 5))
        check("responses whole text", client.responses.create(model="text", input="go").output_text, WORDS)

    def call():
        for model, expected in MODELS:
            check(f"responses {model}", calls(ask(model)), with_ids(expected))
            whole = client.responses.create(model=model, input="go")
            check(f"responses whole {model}", calls(whole), with_ids(expected))

    def freeform():
        """A tool whose input is text: its call is an item of its own kind."""
        custom = {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"}}
        expected = [("call_1", "apply_patch", '*** Begin Patch\n+ü "x"\n')]

        def found(response):
            return [(i.call_id, i.name, i.input) for i in response.output if i.type == "custom_tool_call"]

        with client.responses.stream(model="patch", input="go", tools=[custom]) as stream:
            pieces = "".join(e.delta for e in stream if e.type == "response.custom_tool_call_input.delta")
            check("responses freeform", found(stream.get_final_response()), expected)
        check("responses freeform pieces", pieces, expected[0][2])
        whole = client.responses.create(model="patch", input="go", tools=[custom])
        check("responses whole freeform", found(whole), expected)

    def thinking():
        done = ask("thinking")
        thoughts = [part.text for item in done.output if item.type == "reasoning" for part in item.summary]
        check("responses thinking", ("".join(thoughts), done.output_text), ("Let me see.", "42"))

    def errors():
        try:
            ask("error")
            check("responses error", "no error", "an error")
        except (openai.APIError, RuntimeError):
            check("responses error", True, True)
        check("responses busy", client.responses.create(model="busy", input="go").output_text, "at last")
        last = None
        for event in client.responses.create(model="limit", input="go", stream=True):
            last = event
        check("responses limit", (last.type, last.response.incomplete_details.reason), ("response.incomplete", "max_output_tokens"))

    return [text, call, freeform, thinking, errors]
