"""What the back end of the matrix says, and the gateway's models. Usage: matrix_script.py FOLDER ADDRESS

Writes FOLDER/matrix.json, which the scripted provider reads and from which the clients know what to expect, and
FOLDER/config.toml, the gateway's configuration with one model for each back end and mode.
"""
import json
import sys
from pathlib import Path

BACKS = ("anthropic", "openai-chat", "openai-responses", "gemini", "ollama", "bedrock")
# What is asked in every mode in which calls are repaired.
REPAIRED = ("text", "call", "calls", "after", "empty", "big", "unicode", "error", "refused", "cut", "cancel")
# The mode, how the back end writes calls, how the gateway asks for them, what it does about them, and what is asked.
MODES = (
    ("native", "as-native", "native", "repair", (*REPAIRED, "busy", "thinking", "image", "address")),
    ("cline", "as-cline", "cline", "repair", (*REPAIRED, "image")),
    ("invoke", "as-invoke", "invoke", "repair", REPAIRED),
    ("hermes", "as-hermes", "hermes", "repair", REPAIRED),
    ("leaks qwen_coder", "as-qwen_coder", "native", "repair", REPAIRED),
    ("leaks kimi", "as-kimi", "native", "repair", REPAIRED),
    ("pass", "as-qwen_coder", "native", "pass", ("text", "call", "after")),
    ("retry 1", "turns-native-retry", "native", "retry 1", ("retry",)),
)
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
ADDRESS = "https://pictures.example/one.png"
SIGNS = "Zażółć 漢字 \u202eשלום\u202c e\u0301 👩‍👩‍👧 𝄞 \u00a0"
LINE = 'if a < b && c > "d" { return \'\\n\'; } // </content> ü %d\n'


def text(words):
    return {"type": "text", "text": words}


def call(number, name, **arguments):
    return {"type": "call", "id": f"call_{number}", "name": name, "arguments": arguments}


def file(size):
    lines = [LINE % number for number in range(size // len(LINE) + 1)]
    return "".join(lines)[:size]


def cases():
    usage = {"input": 12, "output": 5}
    one = call(1, "read_file", path='ä "b"\n.rs', lines=[1, 50], all=False)
    three = [call(1, "read_file", path="a.rs"), call(2, "read_file", path="b.rs"), call(3, "now")]
    broken = '<tool_call>\n{"name": "read_file", "arguments": {"path": oops}}\n</tool_call>'
    error = {"error": {"code": "overloaded_error", "message": "Overloaded"}}
    return {
        "text": {"say": [text("Hello, wörld 😀.")], "usage": usage, "delta": 3, "chunks": {"size": 7}},
        "call": {"say": [one], "usage": usage, "delta": 4, "chunks": {"random": 1}},
        "calls": {"say": three, "usage": usage, "delta": 5, "chunks": {"random": 2}},
        "after": {"say": [text("Reading."), one], "usage": usage, "delta": 3, "chunks": {"random": 3}},
        "empty": {"say": [call(1, "now")], "usage": usage},
        "big": {"say": [call(1, "write_file", path="big.rs", content=file(100_000))], "usage": usage, "delta": 400, "chunks": {"size": 1400}},
        "unicode": {"say": [text(SIGNS), call(1, "write_file", path="ü/漢.txt", content=SIGNS * 3)], "usage": usage, "delta": 2, "chunks": {"size": 3}},
        "error": {"say": [text("Hm.")], "trouble": error},
        "refused": {"trouble": {"status": {"status": 400, "headers": []}}},
        "cut": {"say": [call(1, "write_file", path="cut.rs", content=file(4_000))], "delta": 40, "trouble": "cut_half"},
        "busy": {"trouble": {"status": {"status": 429, "headers": [["retry-after", "7"]]}}},
        "thinking": {"say": [{"type": "thought", "text": "Let me see.", "signature": "c2ln"}, text("42")], "usage": usage, "delta": 4},
        # The back end answers only if the picture is in its request, or its address.
        "image": {"say": [text("Seen.")], "usage": usage, "expects": PICTURE},
        "address": {"say": [text("Seen.")], "usage": usage, "expects": ADDRESS},
        # A call that nobody can read, then, if the request says what was wrong, the call.
        "retry": [{"say": [text(broken)], "usage": usage, "delta": 5}, {"say": [one], "usage": usage, "delta": 4, "expects": "was not run"}],
        "cancel": {"say": [text("word " * 4_000)], "delta": 5, "chunks": {"size": 400}, "pause": 20},
    }


def name_of(back, mode):
    return f"{back}.{mode.replace(' ', '-')}"


def config(address):
    rows = []
    for back in BACKS:
        version = "/v1" if back.startswith("openai") else ""
        rows.append(f'[providers.{back}-back]\nbase_url = "{address}{version}"\nwire = "{back}"\nkey_env = "MATRIX_KEY"\nretries = 0\n')
        for mode, written, protocol, faulty_calls, _ in MODES:
            to = f'to = "{back}-back/{written}"\nprotocol = "{protocol}"\nmend = "{faulty_calls}"\n'
            rows.append(f'[gateway.models."{name_of(back, mode)}"]\n{to}')
    return "\n".join(rows)


if __name__ == "__main__":
    folder, address = Path(sys.argv[1]), sys.argv[2]
    modes = [{"back": back, "mode": mode, "model": name_of(back, mode), "cases": asked} for back in BACKS for mode, _, _, _, asked in MODES]
    script = {name: reply if isinstance(reply, list) else [reply] for name, reply in cases().items()}
    (folder / "matrix.json").write_text(json.dumps(script))
    (folder / "picture.json").write_text(json.dumps({"data": PICTURE, "address": ADDRESS}))
    (folder / "models.json").write_text(json.dumps(modes))
    (folder / "config.toml").write_text(config(address))
