"""What script.json says, as every client must understand it."""

WORDS = "Hello, wörld 😀."
CALL = [("read_file", {"path": 'ä "b"\n.rs', "lines": [1, 50], "all": False})]
CALLS = [("read_file", {"path": "a.rs"}), ("read_file", {"path": "b.rs"}), ("now", {})]
EMPTY = [("now", {})]
MODELS = (("call", CALL), ("calls", CALLS), ("empty", EMPTY))
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}


def with_ids(calls):
    """The calls with the ids that the script gives them."""
    return [(f"call_{number}", *call) for number, call in enumerate(calls, 1)]
