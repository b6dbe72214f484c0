"""Prints the path of a plugin, for command lines such as ``--tool-parser-plugin "$(python -m sabir.plugins vllm)"``."""

import pathlib
import sys

NAMES = {"vllm": "vllm_tool_parser.py", "sglang": "sglang_detector.py", "openai": "openai_client.py"}

if len(sys.argv) != 2 or sys.argv[1] not in NAMES:
    sys.exit(f"usage: python -m sabir.plugins {'|'.join(NAMES)}")
print(pathlib.Path(__file__).with_name(NAMES[sys.argv[1]]))
