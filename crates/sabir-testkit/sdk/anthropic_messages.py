"""Anthropic Messages, by `anthropic`."""
import anthropic

from expected import MODELS, SCHEMA, WORDS, with_ids


def cases(address, check):
    client = anthropic.Anthropic(base_url=address, api_key="k", max_retries=2)
    tools = [{"name": "read_file", "input_schema": SCHEMA}]

    def user(model):
        return {"model": model, "messages": [{"role": "user", "content": "go"}], "max_tokens": 99}

    def ask(model):
        with client.messages.stream(**user(model), tools=tools) as stream:
            for _ in stream:
                pass
            return stream.get_final_message()

    def whole(model):
        return client.messages.create(**user(model))

    def calls(message):
        return [(b.id, b.name, b.input) for b in message.content if b.type == "tool_use"]

    def words(message):
        return "".join(b.text for b in message.content if b.type == "text")

    def text():
        done = ask("text")
        check("messages text", words(done), WORDS)
        check("messages stop", done.stop_reason, "end_turn")
        check("messages usage", (done.usage.input_tokens, done.usage.output_tokens), (12, 5))
        check("messages whole text", words(whole("text")), WORDS)

    def call():
        for model, expected in MODELS:
            done = ask(model)
            check(f"messages {model}", calls(done), with_ids(expected))
            check(f"messages {model} stop", done.stop_reason, "tool_use")
            check(f"messages whole {model}", calls(whole(model)), with_ids(expected))

    def thinking():
        for done in (ask("thinking"), whole("thinking")):
            found = [(b.type, getattr(b, "thinking", None), getattr(b, "signature", None)) for b in done.content]
            check("messages thinking", found, [("thinking", "Let me see.", "c2ln"), ("text", None, None)])

    def errors():
        try:
            ask("error")
            check("messages error", "no error", "an error")
        except anthropic.APIError as error:
            check("messages error", "Overloaded" in str(error), True)
        check("messages busy", words(whole("busy")), "at last")
        check("messages limit", ask("limit").stop_reason, "max_tokens")

    return [text, call, thinking, errors]
