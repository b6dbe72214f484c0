"""Repairs leaked calls in the responses of ``openai`` clients and of LiteLLM.

    from sabir.plugins.openai_client import repair_calls

    client = repair_calls(openai.OpenAI())          # or openai.AsyncOpenAI()
    completion = repair_calls(litellm.completion)   # or litellm.acompletion

A call that a model wrote as text becomes a tool call; everything else passes unchanged. Only requests with ``tools`` are touched.
"""

import functools
import inspect
import uuid

import sabir


def repair_calls(target, dialect="auto", **options):
    """Wraps a client of ``openai``, in place, or a function with the interface of ``litellm.completion``."""
    completions = getattr(getattr(target, "chat", None), "completions", None)
    if completions is None:
        return _wrap(target, dialect, options)
    completions.create = _wrap(completions.create, dialect, options)
    return target


def _wrap(create, dialect, options):
    @functools.wraps(create)
    def wrapped(*arguments, **request):
        result = create(*arguments, **request)
        tools = request.get("tools")
        if not tools or request.get("tool_choice") == "none":
            return result
        repair = _Repair(dialect, tools, options)
        if inspect.isawaitable(result):
            return _await(result, repair, bool(request.get("stream")))
        return _RepairedStream(result, repair) if request.get("stream") else repair.message(result)

    return wrapped


async def _await(result, repair, is_stream):
    result = await result
    return _RepairedStream(result, repair) if is_stream else repair.message(result)


class _RepairedStream:
    """A stream of chunks with the attributes of the original."""

    def __init__(self, stream, repair):
        self._stream = stream
        self._repair = repair

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def __iter__(self):
        for chunk in self._stream:
            yield from self._repair.chunk(chunk)

    async def __aiter__(self):
        async for chunk in self._stream:
            for repaired in self._repair.chunk(chunk):
                yield repaired

    def __enter__(self):
        self._stream.__enter__()
        return self

    def __exit__(self, *error):
        return self._stream.__exit__(*error)

    async def __aenter__(self):
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error):
        return await self._stream.__aexit__(*error)


class _Repair:
    def __init__(self, dialect, tools, options):
        self._new_stream = lambda: sabir.OpenAIDeltas(
            dialect,
            tools,
            # A client acts on a call as soon as it has it, so only calls that were read to their end are sent.
            **{"whole_calls": True, "id_prefix": f"call_{uuid.uuid4().hex[:16]}_", **options},
        )
        self._streams = {}
        self._native_calls = {}
        self._leaked = set()

    def message(self, completion):
        for choice in completion.choices:
            message = choice.message
            if not message.content:
                continue
            stream = self._new_stream()
            deltas = stream.push(message.content)
            end = stream.finish({"length": "limit"}.get(choice.finish_reason, "ended"))
            deltas += end["deltas"]
            calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
            if not calls:
                continue
            message.content = "".join(delta.get("content", "") for delta in deltas).strip() or None
            message.tool_calls = list(message.tool_calls or []) + [_build(message, call) for call in calls]
            if choice.finish_reason == "stop":
                choice.finish_reason = "tool_calls"
        return completion

    def chunk(self, chunk):
        """Yields the chunk, without markup of calls, and a chunk for every call that ends in it."""
        found = []
        for choice in chunk.choices:
            delta, index = choice.delta, choice.index
            for call in delta.tool_calls or []:
                self._native_calls[index] = max(self._native_calls.get(index, 0), call.index + 1)
            deltas = []
            if delta.content:
                stream = self._streams.setdefault(index, None) or self._new_stream()
                self._streams[index] = stream
                deltas += stream.push(delta.content)
            if choice.finish_reason and self._streams.get(index):
                reason = "limit" if choice.finish_reason == "length" else "ended"
                deltas += self._streams.pop(index).finish(reason)["deltas"]
            elif not delta.content:
                continue
            text = "".join(part.get("content", "") for part in deltas)
            delta.content = text or None
            calls = [call for part in deltas for call in part.get("tool_calls", [])]
            if calls:
                self._leaked.add(index)
                found.append((choice, calls))
            if choice.finish_reason == "stop" and index in self._leaked:
                choice.finish_reason = "tool_calls"
        for choice, calls in found:
            offset = self._native_calls.get(choice.index, 0)
            calls = [{**call, "index": call["index"] + offset} for call in calls]
            # A client collects calls from the deltas in their order, before it reads the finish reason.
            choice.delta.tool_calls = list(choice.delta.tool_calls or []) + [_delta_call(choice, call) for call in calls]
        yield chunk


def _build(message, call):
    """Builds a call as the library of the message has it."""
    if type(message).__module__.startswith("litellm"):
        from litellm.types.utils import ChatCompletionMessageToolCall, Function

        return ChatCompletionMessageToolCall(id=call["id"], type="function", function=Function(**call["function"]))
    from openai.types.chat import ChatCompletionMessageToolCall

    return ChatCompletionMessageToolCall.model_validate(_without_index(call))


def _delta_call(choice, call):
    if type(choice.delta).__module__.startswith("litellm"):
        from litellm.types.utils import ChatCompletionDeltaToolCall, Function

        return ChatCompletionDeltaToolCall(
            index=call["index"], id=call["id"], type="function", function=Function(**call["function"])
        )
    from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall

    return ChoiceDeltaToolCall.model_validate(call)


def _without_index(call):
    return {key: value for key, value in call.items() if key != "index"}
