"""Tests the plugins for vLLM and SGLang against the parts of the real packages that read tool calls.

    python server_tests.py vllm SOURCE_FOLDER | sglang PACKAGE_FOLDER
    python server_tests.py vllm SOURCE_FOLDER speed

The last one tests nothing: it streams one call with 100 KB of arguments in chunks of 16 bytes through the plugin and vLLM's own parsers.

Neither package installs without hundreds of megabytes for GPUs. Their parsers, protocols and registries are loaded from their sources; the
modules that only an engine needs (torch, distribution, schedulers) are stand-ins that do nothing.
"""

import ast
import importlib.abc
import importlib.machinery
import importlib.metadata
import json
import pathlib
import sys
import types
from unittest.mock import MagicMock

PACKAGE, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
# Parts of vLLM that load the engine.
ENGINE = [
    f"vllm.{name}"
    for name in (
        "config sampling_params renderers tokenizers platforms distributed v1 multimodal entrypoints.openai.responses "
        "entrypoints.chat_utils inputs outputs lora model_executor transformers_utils logprobs pooling_params engine "
        "utils.torch_utils compilation ir kernels"
    ).split()
]


class _AnyClass(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=name)


class _Anything(metaclass=_AnyClass):
    """A class of which pydantic accepts any value."""

    def __init__(self, *_, **__):
        pass

    @classmethod
    def __get_pydantic_core_schema__(cls, *_):
        from pydantic_core import core_schema

        return core_schema.any_schema()


class _StandIn(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (_Anything,), {}) if name[0].isupper() else MagicMock(name=name)
        setattr(self, name, made)
        return made


class _Loader(importlib.abc.Loader):
    def create_module(self, spec):
        return _StandIn(spec.name)

    def exec_module(self, module):
        pass


class _EngineFinder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if any(name == part or name.startswith(part + ".") for part in ENGINE):
            return importlib.machinery.ModuleSpec(name, _Loader(), is_package=True)
        return None


class _MissingFinder(importlib.abc.MetaPathFinder):
    """Stands in for what is not installed, if the package under test imports it; other packages know how to do without."""

    def __init__(self):
        self.known = set()

    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if top in (PACKAGE, "sabir"):
            return None
        if top not in self.known:
            frame = sys._getframe(1)
            while frame and "importlib" in frame.f_code.co_filename:
                frame = frame.f_back
            if not frame or not frame.f_code.co_filename.startswith(str(FOLDER)):
                return None
            self.known.add(top)
        return importlib.machinery.ModuleSpec(name, _Loader(), is_package=True)


def load_package():
    sys.path.insert(0, str(FOLDER))
    sys.meta_path.insert(0, _EngineFinder())
    sys.meta_path.append(_MissingFinder())
    # Without the package's own start, which looks for GPUs.
    package = types.ModuleType(PACKAGE)
    package.__path__ = [str(FOLDER / PACKAGE)]
    package.__version__ = "0"
    sys.modules[PACKAGE] = package
    real = importlib.metadata.version

    def version(name):
        try:
            return real(name)
        except importlib.metadata.PackageNotFoundError:
            return "9.9.9"

    importlib.metadata.version = version
    if PACKAGE == "vllm":
        chat_utils = importlib.import_module("vllm.renderers.chat_utils")
        chat_utils.make_tool_call_id = lambda *_, **__: "call_0"


def chunks_of(text, size):
    return [text[at : at + size] for at in range(0, len(text), size)]


def declare_tools(text):
    import sabir

    return [
        {"type": "function", "function": {"name": tool["name"], "parameters": tool["parameters"]}}
        for tool in sabir.guess_tools(text)
    ]


def read_vllm(text, size, name="sabir"):
    """Returns content and calls as vLLM's serving layer collects them; `size` 0 is a whole message."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest, ChatCompletionToolsParam
    from vllm.tool_parsers.abstract_tool_parser import ToolParserManager

    tools = declare_tools(text + CALL if text == CUT else text)
    request = types.SimpleNamespace(tools=[ChatCompletionToolsParam.model_validate(tool) for tool in tools], tool_choice="auto")
    assert ChatCompletionRequest
    parser = ToolParserManager.get_tool_parser(name)(MagicMock(), request.tools)
    if size == 0:
        result = parser.extract_tool_calls(text, request)
        assert result.tools_called == bool(result.tool_calls)
        return result.content or "", [(call.function.name, json.loads(call.function.arguments)) for call in result.tool_calls]
    content, calls, before = "", [], ""
    messages = []
    for chunk in chunks_of(text, size):
        messages.append(parser.extract_tool_calls_streaming(before, before + chunk, chunk, [], [], [], request))
        before += chunk
    assert parser.engine_based_streaming
    messages.append(parser.finish_streaming())
    for message in filter(None, messages):
        content += message.content or ""
        for call in message.tool_calls:
            if call.index == len(calls):
                assert call.id and call.type == "function" and call.function.name
                calls.append([call.function.name, ""])
            else:
                assert not call.function.name
            calls[call.index][1] += call.function.arguments or ""
    return content, [(name, json.loads(arguments)) for name, arguments in calls]


def vllm_configs():
    """Yields the inputs of vLLM's own tests that all its parsers share: file name and members."""
    for file in sorted((FOLDER / "tests/tool_parsers").glob("test_*_tool_parser.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "ToolParserTestConfig":
                members = {}
                for keyword in node.keywords:
                    try:
                        members[keyword.arg] = ast.literal_eval(keyword.value)
                    except ValueError:
                        pass  # built by code
                yield file.name, members


# Texts with thoughts, and the content that they leave: thoughts stay in it, because the servers' reasoning parsers run before.
CALL = '<tool_call>\n{"name": "look", "arguments": {"path": "a"}}\n</tool_call>'
THOUGHTS = [
    ("<think>\nplan\n</think>\n\nAnswer 42.", "<think>\nplan\n</think>\n\nAnswer 42."),
    (f"<think>plän</think>Hi.{CALL}", "<think>plän</think>Hi."),
    (f"Hi.<think>one</think><think>two</think>{CALL}", "Hi.<think>one</think><think>two</think>"),
    ("<think>\nplan is long", "<think>\nplan is long"),
]
# A call that is cut stays text in a whole answer.
CUT = '<think>plän</think>Hi.<tool_call>\n{"name": "look", "arguments": {"path": "a'


def test_vllm():
    import sabir.plugins.vllm_tool_parser  # registers the parsers

    passed, failed = 0, []
    for file, config in vllm_configs():
        expected_arguments = config.get("single_tool_call_expected_args", {"city": "Tokyo"})
        expected_names = config.get("parallel_tool_calls_names", ["get_weather", "get_time"])
        for size in (0, 1, 7, 1000):
            cases = {
                "no_tool_calls_output": lambda content, calls: calls == [],
                "single_tool_call_output": lambda content, calls: calls
                == [(config.get("single_tool_call_expected_name", "get_weather"), expected_arguments)],
                "parallel_tool_calls_output": lambda content, calls: [name for name, _ in calls] == expected_names,
                "various_data_types_output": lambda content, calls: len(calls) == 1,
                "empty_arguments_output": lambda content, calls: len(calls) == 1 and calls[0][1] == {},
                "surrounding_text_output": lambda content, calls: len(calls) == 1,
                "escaped_strings_output": lambda content, calls: len(calls) == 1,
            }
            for case, holds in cases.items():
                if case not in config:
                    continue
                try:
                    read = read_vllm(config[case], size)
                    is_right = holds(*read)
                except Exception as error:  # a test case that raises has failed
                    read, is_right = repr(error), False
                if is_right:
                    passed += 1
                else:
                    failed.append(f"{file} {case} in chunks of {size}: {read}")
            for text in config.get("malformed_input_outputs", []):
                try:
                    content, calls = read_vllm(text, 0)
                    passed += 1
                except Exception as error:
                    failed.append(f"{file} malformed {text!r}: {error!r}")
    for text, content in THOUGHTS:
        for size in (0, 1, 7, 1000):
            read = read_vllm(text, size)[0]
            if read == content:
                passed += 1
            else:
                failed.append(f"thought in chunks of {size}: {read!r}")
    read = read_vllm(CUT, 0)
    if read == (CUT, []):
        passed += 1
    else:
        failed.append(f"a cut call: {read!r}")
    return passed, failed


def read_sglang(text, size, name, tools):
    from sglang.srt.entrypoints.openai.protocol import Tool
    from sglang.srt.function_call.function_call_parser import FunctionCallParser

    parser = FunctionCallParser([Tool.model_validate({"type": "function", "function": tool}) for tool in tools], name)
    if size == 0:
        content, calls = parser.parse_non_stream(text)
        return content, [(call.name, json.loads(call.parameters)) for call in calls]
    content, calls = "", {}
    results = [parser.parse_stream_chunk(chunk) for chunk in chunks_of(text, size)] + [parser.parse_stream_end()]
    for said, items in results:
        content += said
        for item in items:
            known = calls.setdefault(item.tool_index, ["", ""])
            known[0] += item.name or ""
            known[1] += item.parameters
    return content, [(name, json.loads(arguments)) for name, arguments in calls.values()]


def test_sglang():
    import sabir
    import sabir.plugins.sglang_detector  # registers the detectors

    passed, failed = 0, []
    tools = [{"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]
    calls = [{"name": "get_weather", "arguments": {"city": "Paris, “le Marais”"}}, {"name": "get_weather", "arguments": {"city": "a\nb"}}]
    expected = [(call["name"], call["arguments"]) for call in calls]
    for dialect in sabir.dialects():
        name = dialect["name"]
        text = "I look.\n\n" + sabir.render(calls, name, tools)
        for size in (0, 1, 7, 1000):
            try:
                content, read = read_sglang(text, size, f"sabir_{name}", tools)
                is_right = read == expected and content.strip() == "I look."
            except Exception as error:
                content, read, is_right = "", repr(error), False
            if is_right:
                passed += 1
            else:
                failed.append(f"{name} in chunks of {size}: {content!r} {read}")
    look = [{"name": "look", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}]
    for text, expected_content in THOUGHTS:
        for size in (0, 1, 7, 1000):
            content, _ = read_sglang(text, size, "sabir", look)
            if content == expected_content:
                passed += 1
            else:
                failed.append(f"thought in chunks of {size}: {content!r}")
    read = read_sglang(CUT, 0, "sabir", look)
    if read == (CUT, []):
        passed += 1
    else:
        failed.append(f"a cut call: {read!r}")
    # SGLang's package holds no test inputs.
    return passed, failed


def measure_vllm():
    import time

    import sabir
    import sabir.plugins.vllm_tool_parser  # registers the parsers
    from vllm.entrypoints.generate.base.protocol import DeltaFunctionCall, DeltaMessage, DeltaToolCall
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionToolsParam
    from vllm.tool_parsers.abstract_tool_parser import ToolParserManager

    schema = {"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}}
    tools = [ChatCompletionToolsParam.model_validate({"type": "function", "function": {"name": "write", "parameters": schema}})]
    request = types.SimpleNamespace(tools=tools, tool_choice="auto", skip_special_tokens=False)
    line = 'if (a < b) { f("x"); }\n'

    dialects = (("hermes", "hermes"), ("pythonic", "pythonic"), ("qwen_coder", "qwen3_coder"), ("glm", "glm45"))

    def rendered(dialect, size):
        call = {"name": "write", "arguments": {"path": "src/main.rs", "content": line * (size // len(line))}}
        return sabir.render([call], dialect, [{"name": "write", "parameters": schema}])

    def run_parser(name, text):
        tokenizer = MagicMock()
        tokenizer.get_vocab.return_value = {token: number for number, token in enumerate(("<tool_call>", "</tool_call>"))}
        parser = ToolParserManager.get_tool_parser(name)(tokenizer, tools)
        before, sent = "", 0
        start = time.perf_counter()
        for chunk in chunks_of(text, 16):
            message = parser.extract_tool_calls_streaming(before, before + chunk, chunk, [], [], [], request)
            before += chunk
            sent += sum(len(call.function.arguments or "") for call in message.tool_calls) if message else 0
        taken = time.perf_counter() - start
        assert sent >= len(text) // 2, f"{name} sent {sent} bytes of the arguments of {len(text)}"
        return taken

    def run_reader(reader, text):
        start = time.perf_counter()
        for chunk in chunks_of(text, 16):
            reader.push(chunk)
        reader.finish()
        return time.perf_counter() - start

    def run_messages(text):
        """The objects of vLLM that each parser makes, with nothing read."""
        start = time.perf_counter()
        for chunk in chunks_of(text, 16):
            DeltaMessage(tool_calls=[DeltaToolCall(index=0, function=DeltaFunctionCall(arguments=chunk))])
        return time.perf_counter() - start

    for dialect, theirs in dialects:
        # The smallest of the quick ones, for all take the same path.
        text = rendered(dialect, 100_000)
        row = {
            "Reader": min(run_reader(sabir.Reader(dialect, [{"name": "write", "parameters": schema}]), text) for _ in range(3)),
            "OpenAIDeltas": min(run_reader(sabir.OpenAIDeltas(dialect, [{"name": "write", "parameters": schema}]), text) for _ in range(3)),
            "plugin": min(run_parser(f"sabir_{dialect}", text) for _ in range(3)),
            "vLLM's messages alone": min(run_messages(text) for _ in range(3)),
            f"vLLM's {theirs}": run_parser(theirs, text),
        }
        print(f"{dialect}: " + "; ".join(f"{name} {taken * 1000:.1f} ms" for name, taken in row.items()), flush=True)


load_package()
if sys.argv[3:] == ["speed"]:
    measure_vllm()
    sys.exit()
passed, failed = {"vllm": test_vllm, "sglang": test_sglang}[PACKAGE]()
for line in failed:
    print("FAILED:", line[:400])
print(f"{passed} passed, {len(failed)} failed")
sys.exit(bool(failed) or not passed)
