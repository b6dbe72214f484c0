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


def ask_response(model):
    """The final response of a stream, by the client's own accumulator."""
    with chat.responses.stream(model=model, input="go") as stream:
        for _ in stream:
            pass
        return stream.get_final_response()


def response_calls(response):
    import json
    return [(i.call_id, i.name, json.loads(i.arguments)) for i in response.output if i.type == "function_call"]


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


def responses_text():
    done = ask_response("text")
    check("responses text", done.output_text, "Hello, wörld 😀.")
    check("responses status", done.status, "completed")
    check("responses usage", (done.usage.input_tokens, done.usage.output_tokens, done.usage.total_tokens), (12, 5, 17))
    whole = chat.responses.create(model="text", input="go")
    check("responses whole text", whole.output_text, "Hello, wörld 😀.")
    events = list(chat.responses.create(model="text", input="go", stream=True))
    check("responses sequence", [event.sequence_number for event in events], list(range(len(events))))
    check("responses deltas", "".join(e.delta for e in events if e.type == "response.output_text.delta"), "Hello, wörld 😀.")


def responses_call():
    for model, expected in (("call", CALL), ("calls", CALLS), ("empty", [("call_1", "now", {})])):
        check(f"responses {model}", response_calls(ask_response(model)), expected)
        check(f"responses whole {model}", response_calls(chat.responses.create(model=model, input="go")), expected)


def responses_thinking():
    for done in (ask_response("thinking"), chat.responses.create(model="thinking", input="go")):
        found = ["".join(s.text for s in i.summary) for i in done.output if i.type == "reasoning"]
        check("responses thinking", (found, done.output_text), (["Let me see."], "42"))


def responses_errors():
    try:
        ask_response("error")
        check("responses error", "no error", "an error")
    except openai.APIError as error:
        check("responses error", "Overloaded" in str(error), True)
    check("responses busy", chat.responses.create(model="busy", input="go").output_text, "at last")
    last = [event for event in chat.responses.create(model="limit", input="go", stream=True)][-1]
    check("responses limit", (last.type, last.response.incomplete_details.reason), ("response.incomplete", "max_output_tokens"))


CASES = (chat_text, chat_call, chat_thinking, chat_errors, messages_text, messages_call, messages_thinking, messages_errors,
         responses_text, responses_call, responses_thinking, responses_errors)
for case in CASES:
    guarded(case.__name__, case)
print(f"{passed} passed, {failed} failed")
sys.exit(bool(failed))
