"""A tool parser for vLLM that reads every dialect.

    vllm serve MODEL --enable-auto-tool-choice \\
        --tool-parser-plugin "$(python -m sabir.plugins vllm)" --tool-call-parser sabir

``sabir`` reads all dialects at once; ``sabir_NAME`` reads one, such as ``sabir_hermes``.
"""

import json
import uuid

from vllm.tool_parsers.abstract_tool_parser import ToolParser, ToolParserManager

try:
    from vllm.entrypoints.generate.base.protocol import (
        DeltaMessage,
        ExtractedToolCallInformation,
        FunctionCall,
        ToolCall,
    )
except ImportError:  # before vLLM 0.30
    from vllm.entrypoints.openai.protocol import (
        DeltaMessage,
        ExtractedToolCallInformation,
        FunctionCall,
        ToolCall,
    )

import sabir
from sabir._leaked_calls import ContentReader


class SabirToolParser(ToolParser):
    """Reads the calls of all dialects, and sends arguments while they arrive, typed as the tools declare."""

    dialect = "auto"
    # Calls of a forced tool are written in the model's own dialect too.
    supports_required_and_named = False
    # vLLM calls `finish_streaming` at the end of a stream if this is set.
    engine_based_streaming = True

    def __init__(self, tokenizer, tools=None, **options):
        super().__init__(tokenizer, tools, **options)
        self._stream = None
        self._content = None

    def adjust_request(self, request):
        """Keeps special tokens in the text, which are the markup of many dialects."""
        request = super().adjust_request(request)
        if request.tools and request.tool_choice != "none":
            request.skip_special_tokens = False
        return request

    def _tools(self, request):
        tools = getattr(request, "tools", None) or getattr(self, "tools", None) or []
        return [tool if isinstance(tool, dict) else tool.model_dump(exclude_none=True) for tool in tools]

    def extract_tool_calls(self, model_output, request):
        report = sabir.parse(model_output, self.dialect, self._tools(request))
        calls = [part for part in report["parts"] if part["type"] == "call"]
        # A cut call never runs, and stays text. A rejected one is sent, as a native API would do: the client's validation answers it.
        calls = [call for call in calls if call["state"] != "cut"]
        # Thoughts stay in the content with their tags, as in streams: to move them is the task of vLLM's reasoning parser.
        content = ContentReader(self.dialect, self._tools(request), keeps_cut_calls=True)
        text = content.push(model_output) + content.finish()
        return ExtractedToolCallInformation(
            tools_called=bool(calls),
            tool_calls=[
                ToolCall(
                    type="function",
                    function=FunctionCall(
                        name=call["name"], arguments=json.dumps(call["arguments"], ensure_ascii=False)
                    ),
                )
                for call in calls
            ],
            content=text or None,
        )

    def extract_tool_calls_streaming(
        self,
        previous_text,
        current_text,
        delta_text,
        previous_token_ids,
        current_token_ids,
        delta_token_ids,
        request,
    ):
        # An instance may serve several streams, one after the other.
        if self._stream is None or not previous_text:
            prefix = f"chatcmpl-tool-{uuid.uuid4().hex[:12]}-"
            self._stream = sabir.OpenAIDeltas(self.dialect, self._tools(request), id_prefix=prefix)
            self._content = ContentReader(self.dialect, self._tools(request))
            self.prev_tool_call_arr = []
            self.streamed_args_for_tool = []
        return self._message(self._content.push(delta_text), self._stream.push(delta_text))

    def finish_streaming(self):
        """Sends what was held back until it was certain."""
        if self._stream is None:
            return None
        stream, self._stream = self._stream, None
        return self._message(self._content.finish(), stream.finish()["deltas"])

    def get_remaining_unstreamed_args(self):
        """Returns nothing: `finish_streaming` sends the rest."""
        return ""

    def _message(self, content, deltas):
        """Joins the calls of deltas and content into one message, or returns None if they say nothing."""
        calls = {}
        for delta in deltas:
            for call in delta.get("tool_calls", ()):
                self._note(call)
                known = calls.setdefault(call["index"], call)
                if known is not call:
                    arguments = known["function"]["arguments"] + call["function"]["arguments"]
                    known["function"].update(call["function"], arguments=arguments)
        if not (content or calls):
            return None
        # pydantic builds the calls of the message in one go, which takes half the time of a constructor for each.
        return DeltaMessage(content=content or None, tool_calls=list(calls.values()))

    def _note(self, call):
        """Keeps the state that vLLM reads: it decides the finish reason by the calls so far."""
        if call["index"] >= len(self.prev_tool_call_arr):
            self.prev_tool_call_arr.append({"name": call["function"]["name"], "arguments": ""})
            self.streamed_args_for_tool.append("")
            self.current_tool_id = call["index"]
            self.current_tool_name_sent = True
        self.streamed_args_for_tool[call["index"]] += call["function"]["arguments"]
        self.prev_tool_call_arr[call["index"]]["arguments"] = self.streamed_args_for_tool[call["index"]]


def _register(name, dialect):
    parser = type(f"SabirToolParser_{dialect}", (SabirToolParser,), {"dialect": dialect})
    ToolParserManager.register_module(name, module=parser)


_register("sabir", "auto")
for _dialect in sabir.dialects():
    _register(f"sabir_{_dialect['name']}", _dialect["name"])
