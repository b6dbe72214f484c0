"""Gives grammars to llguidance, XGrammar and llama.cpp's reader: do they read them, and do they accept and refuse the same texts?

Usage: check.py CASES WORD GBNF_READER. WORD and GBNF_READER may be empty. Last line: N grammars read, N texts decided alike, N wrong.
"""
import json
import re
import subprocess
import sys
from collections import Counter

import llguidance
import xgrammar
from xgrammar.testing import _is_grammar_accept_string as accepts

TOKENIZER = llguidance.LLTokenizer("byte")


def by_llguidance(grammar):
    """A function from a text to whether the grammar accepts it."""
    error = llguidance.LLMatcher.validate_grammar(grammar, TOKENIZER)
    if error:
        raise ValueError(error)

    def decide(text):
        matcher = llguidance.LLMatcher(TOKENIZER, grammar, log_level=0)
        tokens = TOKENIZER.tokenize_bytes(text.encode())
        return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()

    return decide


def by_xgrammar(grammar):
    return lambda text: accepts(grammar, text)


class LlamaCpp:
    """llama.cpp's reader of GBNF, in the program that gbnf_reader.cpp describes."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def ask(self, command, text):
        content = text.encode()
        try:
            self.process.stdin.write(b"%s %d\n%s" % (command, len(content), content))
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        answer = self.process.stdout.readline().decode().strip()
        if not answer:
            sys.exit(f"the reader of llama.cpp ended: {self.process.communicate()[1].decode()[-300:]}")
        return answer

    def load(self, grammar):
        """A function from a text to whether the grammar accepts it."""
        if self.ask(b"G", grammar) != "read":
            raise ValueError("llama.cpp cannot read it")
        return lambda text: self.ask(b"T", text) == "yes"


def readers(case, llama_cpp):
    """The readers of a case's format, by name."""
    text = case["grammar"]
    if case["format"] == "gbnf":
        if llama_cpp:
            yield "llama.cpp", lambda: llama_cpp.load(text)
        yield "xgrammar", lambda: by_xgrammar(xgrammar.Grammar.from_ebnf(text))
        yield "llguidance (gbnf_to_lark)", lambda: by_llguidance(
            llguidance.LLMatcher.grammar_from_lark("%llguidance {}\n" + llguidance.gbnf_to_lark.gbnf_to_lark(text))
        )
    elif case["format"] == "lark":
        yield "llguidance", lambda: by_llguidance(llguidance.LLMatcher.grammar_from_lark(text))
    elif case["format"] == "regex":
        expression = text.removesuffix("\n")
        yield "llguidance", lambda: by_llguidance(llguidance.LLMatcher.grammar_from_regex(expression))
        yield "xgrammar", lambda: by_xgrammar(xgrammar.Grammar.from_regex(expression))
        yield "python re", lambda: lambda text: re.compile(expression).fullmatch(text) is not None
    elif case["format"] == "json-schema":
        yield "xgrammar", lambda: by_xgrammar(xgrammar.Grammar.from_json_schema(text))
        yield "llguidance", lambda: by_llguidance(llguidance.LLMatcher.grammar_from_json_schema(text))
    elif case["format"] == "structural-tag":
        yield "xgrammar", lambda: by_xgrammar(xgrammar.Grammar.from_structural_tag(text))


def main():
    only, gbnf_reader = sys.argv[2], sys.argv[3]
    llama_cpp = LlamaCpp(gbnf_reader) if gbnf_reader else None
    read, alike, wrong, unread = Counter(), Counter(), Counter(), Counter()
    skipped = 0
    for line in open(sys.argv[1], encoding="utf-8"):
        case = json.loads(line)
        name = f"{case['dialect']} {case['tools']} {case['format']}"
        if only not in name:
            continue
        if "inexpressible" in case:
            skipped += 1
            continue
        for reader, load in readers(case, llama_cpp):
            key = f"{case['format']} by {reader}"
            try:
                decide = load()
            except Exception as error:
                # llguidance's own converter is a convenience, which does not read all of GBNF.
                if "gbnf_to_lark" in reader:
                    unread[key] += 1
                    continue
                wrong[key] += 1
                print(f"WRONG {name} by {reader}: not read: {str(error)[:300]}", flush=True)
                continue
            read[key] += 1
            texts = [(text, True) for text in case["accepted"]]
            if case["format"] == "json-schema":
                # The strings of a schema are the reader's own; llguidance accepts fewer escapes than JSON.
                texts = [(text, expected) for text, expected in texts if "\\u" not in text and "\\/" not in text]
            # A schema and free text around a call accept more than the layout of our renderer.
            if case["format"] not in ("json-schema", "structural-tag"):
                texts += [(text, False) for text in case["refused"]]
            bad = [(text, expected) for text, expected in texts if decide(text) != expected]
            alike[key] += len(texts) - len(bad)
            if bad and "gbnf_to_lark" not in reader:
                wrong[key] += len(bad)
                text, expected = min(bad, key=lambda it: len(it[0]))
                print(f"WRONG {name} by {reader}: {len(bad)} of {len(texts)}: {'refuses' if expected else 'accepts'} {text!r}"[:700])
    for key in sorted(read):
        print(f"{key}: {read[key]} grammars read, {alike[key]} texts decided alike, {wrong[key]} wrong")
    for key in sorted(unread):
        print(f"{key}: {unread[key]} grammars not read, which its converter does not promise")
    print(f"{skipped} combinations cannot be expressed")
    print(f"{sum(read.values())} grammars read, {sum(alike.values())} texts decided alike, {sum(wrong.values())} wrong")
    return sum(wrong.values()) > 0


sys.exit(main())
