"""A detector for SGLang that reads every dialect.

SGLang has no option for plugins. Import this file before the server starts, for example from a ``sitecustomize.py``:

    import sabir.plugins.sglang_detector

and start the server with ``--tool-call-parser sabir``, or ``sabir_NAME`` for one dialect.
"""

import json

from sglang.srt.function_call.base_format_detector import BaseFormatDetector
from sglang.srt.function_call.core_types import StreamingParseResult, ToolCallItem
from sglang.srt.function_call.function_call_parser import FunctionCallParser

import sabir
from sabir._leaked_calls import ContentReader


class SabirDetector(BaseFormatDetector):
    """Reads the calls of all dialects, and sends arguments while they arrive, typed as the tools declare."""

    dialect = "auto"

    def __init__(self):
        super().__init__()
        self._stream = None
        self._content = None

    def has_tool_call(self, text):
        return bool(sabir.detect(text)["dialects"])

    def detect_and_parse(self, text, tools):
        report = sabir.parse(text, self.dialect, _describe(tools))
        calls = [part for part in report["parts"] if part["type"] == "call" and part["state"] != "cut"]
        # Thoughts stay in the text with their tags, as in streams: to move them is the task of SGLang's reasoning parser.
        content = ContentReader(self.dialect, _describe(tools), keeps_cut_calls=True)
        said = content.push(text) + content.finish()
        return StreamingParseResult(
            normal_text=said,
            calls=[
                ToolCallItem(
                    tool_index=index, name=call["name"], parameters=json.dumps(call["arguments"], ensure_ascii=False)
                )
                for index, call in enumerate(calls)
            ],
        )

    def parse_streaming_increment(self, new_text, tools):
        if self._stream is None:
            self._stream = sabir.OpenAIDeltas(self.dialect, _describe(tools))
            self._content = ContentReader(self.dialect, _describe(tools))
        return self._result(self._content.push(new_text), self._stream.push(new_text))

    def finish(self, tools):
        """Sends what was held back until it was certain."""
        if self._stream is None:
            return StreamingParseResult()
        stream, self._stream = self._stream, None
        return self._result(self._content.finish(), stream.finish()["deltas"])

    def supports_structural_tag(self):
        return False

    def structure_info(self):
        raise NotImplementedError("Sabir constrains nothing: it reads what the model writes")

    def _result(self, content, deltas):
        calls = []
        for delta in deltas:
            for call in delta.get("tool_calls", []):
                index, function = call["index"], call["function"]
                if index >= len(self.prev_tool_call_arr):
                    self.prev_tool_call_arr.append({"name": function["name"], "arguments": {}})
                    self.streamed_args_for_tool.append("")
                self.current_tool_id = index
                self.current_tool_name_sent = True
                self.streamed_args_for_tool[index] += function["arguments"]
                calls.append(ToolCallItem(tool_index=index, name=function.get("name"), parameters=function["arguments"]))
        for index, arguments in enumerate(self.streamed_args_for_tool):
            try:
                self.prev_tool_call_arr[index]["arguments"] = json.loads(arguments)
            except ValueError:
                pass  # still arriving
        return StreamingParseResult(normal_text=content, calls=calls)


def _describe(tools):
    return [tool if isinstance(tool, dict) else tool.model_dump(exclude_none=True) for tool in tools or []]


def _register(name, dialect):
    FunctionCallParser.ToolCallParserEnum[name] = type(f"SabirDetector_{dialect}", (SabirDetector,), {"dialect": dialect})


_register("sabir", "auto")
for _dialect in sabir.dialects():
    _register(f"sabir_{_dialect['name']}", _dialect["name"])
