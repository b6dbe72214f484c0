"""What the back end of the matrix says, and the gateway's models. Usage: matrix_script.py FOLDER ADDRESS

Writes FOLDER/matrix.json, which the scripted provider reads and from which the clients know what to expect, and
FOLDER/config.toml, the gateway's configuration with one model for each back end and mode.
"""
import json
import sys
from pathlib import Path

BACKS = ("anthropic", "openai-chat", "openai-responses", "gemini", "ollama", "bedrock")
# The mode, how the back end writes calls, and how the gateway asks for them.
MODES = (
    ("native", "native", "native"),
    ("cline", "cline", "cline"),
    ("invoke", "invoke", "invoke"),
    ("hermes", "hermes", "hermes"),
    ("leaks qwen_coder", "qwen_coder", "native"),
    ("leaks kimi", "kimi", "native"),
)
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
        "cancel": {"say": [text("word " * 4_000)], "delta": 5, "chunks": {"size": 400}, "pause": 20},
    }


def name_of(back, mode):
    return f"{back}.{mode.replace(' ', '-')}"


def config(address):
    rows = []
    for back in BACKS:
        version = "/v1" if back.startswith("openai") else ""
        rows.append(f'[providers.{back}-back]\nbase_url = "{address}{version}"\nwire = "{back}"\nkey_env = "MATRIX_KEY"\nretries = 0\n')
        for mode, written, protocol in MODES:
            to = f'to = "{back}-back/as-{written}"\nprotocol = "{protocol}"\nmend = "heal"\n'
            rows.append(f'[gateway.models."{name_of(back, mode)}"]\n{to}')
    return "\n".join(rows)


if __name__ == "__main__":
    folder, address = Path(sys.argv[1]), sys.argv[2]
    modes = [{"back": back, "mode": mode, "model": name_of(back, mode)} for back in BACKS for mode, _, _ in MODES]
    script = {name: [reply] for name, reply in cases().items()}
    (folder / "matrix.json").write_text(json.dumps(script))
    (folder / "models.json").write_text(json.dumps(modes))
    (folder / "config.toml").write_text(config(address))
