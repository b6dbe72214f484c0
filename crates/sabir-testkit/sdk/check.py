"""Do the official Python clients read our streams? Last line: N passed, N failed."""
import sys

import bedrock
import gemini
import ollama_chat
import openai_chat
import openai_responses
import anthropic_messages

address = sys.argv[1]
passed = failed = 0


def check(name, found, expected):
    global passed, failed
    if found == expected:
        passed += 1
    else:
        failed += 1
        print(f"FAIL {name}: found {found!r}, expected {expected!r}")


for client in (openai_chat, openai_responses, anthropic_messages, gemini, ollama_chat, bedrock):
    for case in client.cases(address, check):
        try:
            case()
        except Exception as error:  # a client that cannot read us is what is looked for
            failed += 1
            print(f"FAIL {client.__name__}.{case.__name__}: {type(error).__name__}: {error}")
print(f"{passed} passed, {failed} failed")
sys.exit(bool(failed))
