"""Do the official Python clients read our streams? Last line: N passed, N failed."""
import sys

import anthropic
import openai

address = sys.argv[1]
chat = openai.OpenAI(base_url=address + "/v1", api_key="k", max_retries=2)
messages = anthropic.Anthropic(base_url=address, api_key="k", max_retries=2)
passed = failed = 0

CALL = [("call_1", "read_file", {"path": 'ä "b"\n.rs', "lines": [1, 50], "all": False})]
CALLS = [("call_1", "read_file", {"path": "a.rs"}), ("call_2", "read_file", {"path": "b.rs"}), ("call_3", "now", {})]


def check(name, found, expected):
    global passed, failed
    if found == expected:
        passed += 1
    else:
        failed += 1
        print(f"FAIL {name}: found {found!r}, expected {expected!r}")


def tools(key):
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    if key == "parameters":
        return [{"type": "function", "function": {"name": "read_file", "parameters": schema}}]
    return [{"name": "read_file", "input_schema": schema}]


def user(model):
    return {"model": model, "messages": [{"role": "user", "content": "go"}]}


def ask_chat(model):
    """The final completion of a stream, by the client's own accumulator."""
    with chat.chat.completions.stream(**user(model), tools=tools("parameters"), stream_options={"include_usage": True}) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion()


def chat_calls(completion):
    import json
    return [(c.id, c.function.name, json.loads(c.function.arguments)) for c in completion.choices[0].message.tool_calls or []]


def ask_messages(model):
    with messages.messages.stream(**user(model), max_tokens=99, tools=tools("input_schema")) as stream:
        for _ in stream:
            pass
        return stream.get_final_message()


def message_calls(message):
    return [(b.id, b.name, b.input) for b in message.content if b.type == "tool_use"]


def words(message):
    return "".join(b.text for b in message.content if b.type == "text")


def guarded(name, case):
    global failed
    try:
        case()
    except Exception as error:  # a client that cannot read us is what is looked for
        failed += 1
        print(f"FAIL {name}: {type(error).__name__}: {error}")


def chat_text():
    done = ask_chat("text")
    check("chat text", done.choices[0].message.content, "Hello, wörld 😀.")
    check("chat stop", done.choices[0].finish_reason, "stop")
    check("chat usage", (done.usage.prompt_tokens, done.usage.completion_tokens), (12, 5))
    whole = chat.chat.completions.create(**user("text"))
    check("chat whole text", whole.choices[0].message.content, "Hello, wörld 😀.")


def chat_call():
    for model, expected in (("call", CALL), ("calls", CALLS), ("empty", [("call_1", "now", {})])):
        done = ask_chat(model)
        check(f"chat {model}", chat_calls(done), expected)
        check(f"chat {model} stop", done.choices[0].finish_reason, "tool_calls")
        check(f"chat whole {model}", chat_calls(chat.chat.completions.create(**user(model))), expected)


def chat_thinking():
    thought = "".join(getattr(c.choices[0].delta, "reasoning_content", None) or ""
                      for c in chat.chat.completions.create(**user("thinking"), stream=True) if c.choices)
    check("chat thinking", thought, "Let me see.")


def chat_errors():
    try:
        for _ in chat.chat.completions.create(**user("error"), stream=True):
            pass
        check("chat error", "no error", "an error")
    except openai.APIError as error:
        check("chat error", "Overloaded" in str(error), True)
    done = chat.chat.completions.create(**user("busy"))
    check("chat busy", done.choices[0].message.content, "at last")
    last = None
    for chunk in chat.chat.completions.create(**user("limit"), stream=True):
        last = chunk.choices[0].finish_reason if chunk.choices else last
    check("chat limit", last, "length")


def messages_text():
    done = ask_messages("text")
    check("messages text", words(done), "Hello, wörld 😀.")
    check("messages stop", done.stop_reason, "end_turn")
    check("messages usage", (done.usage.input_tokens, done.usage.output_tokens), (12, 5))
    check("messages whole text", words(messages.messages.create(**user("text"), max_tokens=9)), "Hello, wörld 😀.")


def messages_call():
    for model, expected in (("call", CALL), ("calls", CALLS), ("empty", [("call_1", "now", {})])):
        done = ask_messages(model)
        check(f"messages {model}", message_calls(done), expected)
        check(f"messages {model} stop", done.stop_reason, "tool_use")
        whole = messages.messages.create(**user(model), max_tokens=9)
        check(f"messages whole {model}", message_calls(whole), expected)


def messages_thinking():
    for done in (ask_messages("thinking"), messages.messages.create(**user("thinking"), max_tokens=9)):
        found = [(b.type, getattr(b, "thinking", None), getattr(b, "signature", None)) for b in done.content]
        check("messages thinking", found, [("thinking", "Let me see.", "c2ln"), ("text", None, None)])


def messages_errors():
    try:
        ask_messages("error")
        check("messages error", "no error", "an error")
    except anthropic.APIError as error:
        check("messages error", "Overloaded" in str(error), True)
    check("messages busy", words(messages.messages.create(**user("busy"), max_tokens=9)), "at last")
    check("messages limit", ask_messages("limit").stop_reason, "max_tokens")


for case in (chat_text, chat_call, chat_thinking, chat_errors, messages_text, messages_call, messages_thinking, messages_errors):
    guarded(case.__name__, case)
print(f"{passed} passed, {failed} failed")
sys.exit(bool(failed))
