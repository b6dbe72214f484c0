"""Ollama, by `ollama`."""
import ollama

from expected import MODELS, SCHEMA, WORDS


def cases(address, check):
    client = ollama.Client(host=address)
    tools = [{"type": "function", "function": {"name": "read_file", "parameters": SCHEMA}}]

    def user(model):
        return {"model": model, "messages": [{"role": "user", "content": "go"}]}

    def ask(model):
        return list(client.chat(**user(model), tools=tools, stream=True))

    def calls(messages):
        found = [call.function for message in messages for call in message.tool_calls or []]
        return [(function.name, dict(function.arguments)) for function in found]

    def words(chunks):
        return "".join(chunk.message.content or "" for chunk in chunks)

    def text():
        chunks = ask("text")
        check("ollama text", words(chunks), WORDS)
        last = chunks[-1]
        check("ollama end", (last.done, last.done_reason, last.prompt_eval_count, last.eval_count), (True, "stop", 12, 5))
        check("ollama whole text", client.chat(**user("text")).message.content, WORDS)

    def call():
        for model, expected in MODELS:
            check(f"ollama {model}", calls([chunk.message for chunk in ask(model)]), expected)
            check(f"ollama whole {model}", calls([client.chat(**user(model)).message]), expected)

    def thinking():
        chunks = ask("thinking")
        thoughts = "".join(chunk.message.thinking or "" for chunk in chunks)
        check("ollama thinking", (thoughts, words(chunks)), ("Let me see.", "42"))

    def errors():
        try:
            ask("error")
            check("ollama error", "no error", "an error")
        except ollama.ResponseError as error:
            check("ollama error", "Overloaded" in str(error), True)
        check("ollama limit", ask("limit")[-1].done_reason, "length")

    return [text, call, thinking, errors]
