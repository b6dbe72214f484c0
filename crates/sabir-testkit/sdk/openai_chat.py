"""OpenAI Chat Completions, by `openai`."""
import json

import openai

from expected import MODELS, SCHEMA, WORDS, with_ids


def cases(address, check):
    client = openai.OpenAI(base_url=address + "/v1", api_key="k", max_retries=2)
    tools = [{"type": "function", "function": {"name": "read_file", "parameters": SCHEMA}}]

    def user(model):
        return {"model": model, "messages": [{"role": "user", "content": "go"}]}

    def ask(model):
        """The final completion of a stream, by the client's own accumulator."""
        with client.chat.completions.stream(**user(model), tools=tools, stream_options={"include_usage": True}) as stream:
            for _ in stream:
                pass
            return stream.get_final_completion()

    def calls(completion):
        found = completion.choices[0].message.tool_calls or []
        return [(c.id, c.function.name, json.loads(c.function.arguments)) for c in found]

    def text():
        done = ask("text")
        check("chat text", done.choices[0].message.content, WORDS)
        check("chat stop", done.choices[0].finish_reason, "stop")
        check("chat usage", (done.usage.prompt_tokens, done.usage.completion_tokens), (12, 5))
        quiet = client.chat.completions.create(**user("text"), stream=True)
        check("chat usage unasked", [chunk.usage for chunk in quiet if chunk.usage], [])
        whole = client.chat.completions.create(**user("text"))
        check("chat whole text", whole.choices[0].message.content, WORDS)

    def call():
        for model, expected in MODELS:
            done = ask(model)
            check(f"chat {model}", calls(done), with_ids(expected))
            check(f"chat {model} stop", done.choices[0].finish_reason, "tool_calls")
            check(f"chat whole {model}", calls(client.chat.completions.create(**user(model))), with_ids(expected))

    def thinking():
        chunks = client.chat.completions.create(**user("thinking"), stream=True)
        thoughts = [getattr(c.choices[0].delta, "reasoning_content", None) or "" for c in chunks if c.choices]
        check("chat thinking", "".join(thoughts), "Let me see.")

    def errors():
        try:
            for _ in client.chat.completions.create(**user("error"), stream=True):
                pass
            check("chat error", "no error", "an error")
        except openai.APIError as error:
            check("chat error", "Overloaded" in str(error), True)
        done = client.chat.completions.create(**user("busy"))
        check("chat busy", done.choices[0].message.content, "at last")
        last = None
        for chunk in client.chat.completions.create(**user("limit"), stream=True):
            last = chunk.choices[0].finish_reason if chunk.choices else last
        check("chat limit", last, "length")

    return [text, call, thinking, errors]
