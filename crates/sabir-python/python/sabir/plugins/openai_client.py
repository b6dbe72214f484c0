"""Repairs leaked calls in the responses of ``openai`` clients and of LiteLLM.

    from sabir.plugins.openai_client import repair_calls

    client = repair_calls(openai.OpenAI())          # or openai.AsyncOpenAI()
    completion = repair_calls(litellm.completion)   # or litellm.acompletion

A call that a model wrote as text becomes a tool call. All other text passes byte for byte, thoughts with their tags and calls that are cut or
unreadable too, and whole answers and streams give the same. Only requests with ``tools`` are touched.

With a client, that is ``chat.completions.create``, ``parse`` and ``stream``, also through ``beta``, ``with_raw_response``,
``with_streaming_response``, and clients that ``with_options`` or ``copy`` return. ``responses.create`` is not covered.
"""

import functools
import inspect
import warnings

from sabir._leaked_calls import LeakedCallReader

# The ends of a text by the finish reason of a provider. Any other reason, or none, does not say that the text is complete.
_END_REASONS = {
    "stop": "ended",
    "tool_calls": "ended",
    "function_call": "ended",
    "length": "limit",
    "content_filter": "cancelled",
}
_UNKNOWN_END = "broken"


def repair_calls(target, dialect="auto", **options):
    """Wraps a client of ``openai``, in place, or a function with the interface of ``litellm.completion``.

    The options are those of `sabir.OpenAIDeltas`; calls are always sent whole. Options that cannot be used are errors at once; tools that
    cannot be read leave an answer as it is, with a warning.
    """
    if options.pop("whole_calls", True) is not True:
        raise TypeError("repair_calls always sends whole calls: leave out `whole_calls`")
    LeakedCallReader(dialect, None, **options)
    if getattr(getattr(target, "chat", None), "completions", None) is not None:
        return _repair_client(target, dialect, options)
    if not callable(target) or inspect.isclass(target):
        raise TypeError(f"repair_calls takes a client of openai or a function such as litellm.completion, not {target!r}")
    return _wrap(target, dialect, options)


def _repair_client(client, dialect, options):
    resources = [client.chat.completions]
    beta = getattr(getattr(getattr(client, "beta", None), "chat", None), "completions", None)
    if beta is not None and beta is not resources[0]:
        resources.append(beta)
    for completions in resources:
        # All ways to ask for a completion end in this method.
        completions._post = _wrap_post(completions._post, dialect, options)
    for name in ("copy", "with_options"):
        setattr(client, name, _wrap_copy(getattr(client, name), dialect, options))
    return client


def _wrap_copy(copy, dialect, options):
    @functools.wraps(copy)
    def wrapped(*arguments, **settings):
        return _repair_client(copy(*arguments, **settings), dialect, options)

    return wrapped


def _wrap_post(post, dialect, options):
    @functools.wraps(post)
    def wrapped(path, *arguments, **settings):
        repair = _create_repair(settings.get("body") or {}, dialect, options)
        if repair is None or not path.endswith("/chat/completions"):
            return post(path, *arguments, **settings)
        request = dict(settings.get("options") or {})
        parse = request.get("post_parser")

        def repair_and_parse(answer):
            repaired = repair.answer(answer)
            return parse(repaired) if callable(parse) else repaired

        request["post_parser"] = repair_and_parse
        return post(path, *arguments, **{**settings, "options": request})

    return wrapped


def _wrap(create, dialect, options):
    @functools.wraps(create)
    def wrapped(*arguments, **request):
        repair = _create_repair(request, dialect, options)
        result = create(*arguments, **request)
        if repair is None:
            return result
        return _await(result, repair) if inspect.isawaitable(result) else repair.answer(result)

    return wrapped


async def _await(result, repair):
    return repair.answer(await result)


def _create_repair(request, dialect, options):
    """Returns the repair of the answer to a request; None if it must stay as it is."""
    tools = request.get("tools") if isinstance(request, dict) else None
    if not isinstance(tools, (list, tuple)) or request.get("tool_choice") == "none":
        return None
    # A provider's own tools, such as a web search, are never called in text.
    tools = [tool for tool in tools if not isinstance(tool, dict) or tool.get("type", "function") == "function"]
    if not tools:
        return None
    new_reader = functools.partial(LeakedCallReader, dialect, tools, **options)
    try:
        new_reader()
    except (ValueError, TypeError) as error:
        _warn(error)
        return None
    return _Repair(new_reader)


def _warn(error):
    warnings.warn(f"sabir: the answer stays as it is: {error}", RuntimeWarning, stacklevel=2)


class _RepairedStream:
    """A stream of chunks with the attributes of the original."""

    def __init__(self, stream, repair):
        self._stream = stream
        self._chunks = repair.async_chunks(stream.__aiter__()) if hasattr(stream, "__anext__") else None
        self._sync_chunks = repair.chunks(stream) if hasattr(stream, "__iter__") else None

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._sync_chunks)

    def __aiter__(self):
        return self

    async def __anext__(self):
        return await self._chunks.__anext__()


class _Repair:
    """Repairs one answer, which may have several choices."""

    def __init__(self, new_reader):
        self._new_reader = new_reader
        self._readers = {}
        self._native_calls = {}
        self._leaked = set()

    def answer(self, answer):
        """Repairs a whole answer in place. A stream of ``openai`` stays the same object, since programs ask for its class."""
        if isinstance(getattr(answer, "choices", None), list):
            return self.message(answer)
        if hasattr(answer, "_iterator"):
            is_async = hasattr(answer, "__anext__")
            answer._iterator = self.async_chunks(answer._iterator) if is_async else self.chunks(answer._iterator)
            return answer
        if hasattr(answer, "__anext__") or hasattr(answer, "__next__"):
            return _RepairedStream(answer, self)
        return answer

    def message(self, completion):
        for choice in completion.choices:
            message = choice.message
            if not isinstance(message.content, str) or not message.content:
                continue
            try:
                reader = self._new_reader()
                pieces = reader.push(message.content)
                pieces += reader.finish(_END_REASONS.get(choice.finish_reason, _UNKNOWN_END))
            except ValueError as error:
                _warn(error)
                continue
            calls = [piece for piece in pieces if isinstance(piece, dict)]
            if not calls:
                continue
            message.content = "".join(piece for piece in pieces if isinstance(piece, str)) or None
            message.tool_calls = list(message.tool_calls or []) + [_build(message, call) for call in calls]
            if choice.finish_reason == "stop":
                choice.finish_reason = "tool_calls"
        return completion

    def chunks(self, source):
        last = None
        for last in source:
            yield self.chunk(last)
        if self._readers:
            yield self._last_chunk(last)

    async def async_chunks(self, source):
        last = None
        async for last in source:
            yield self.chunk(last)
        if self._readers:
            yield self._last_chunk(last)

    def _last_chunk(self, chunk):
        """Returns what was held back if the stream ended without a finish reason."""
        from openai.types.chat import ChatCompletionChunk

        choices = [{"index": index, "delta": {}, "finish_reason": None} for index in self._readers]
        head = {"id": chunk.id, "created": chunk.created, "model": chunk.model, "object": "chat.completion.chunk"}
        last = ChatCompletionChunk.model_validate({**head, "choices": choices})
        for choice in last.choices:
            self._write(choice, self._readers.pop(choice.index).finish(_UNKNOWN_END))
        return last

    def chunk(self, chunk):
        """Returns the chunk with the text that is none of a call, and with every call that ends in it."""
        for choice in chunk.choices:
            delta, index = choice.delta, choice.index
            for call in delta.tool_calls or []:
                self._native_calls[index] = max(self._native_calls.get(index, 0), call.index + 1)
            pieces = []
            try:
                if delta.content:
                    if index not in self._readers:
                        self._readers[index] = self._new_reader()
                    pieces += self._readers[index].push(delta.content)
            except ValueError as error:
                _warn(error)  # such as half of a surrogate pair, which is no text
                continue
            if choice.finish_reason and index in self._readers:
                reason = _END_REASONS.get(choice.finish_reason, _UNKNOWN_END)
                pieces += self._readers.pop(index).finish(reason)
            elif not delta.content:
                continue
            self._write(choice, pieces)
            if choice.finish_reason == "stop" and index in self._leaked:
                choice.finish_reason = "tool_calls"
        return chunk

    def _write(self, choice, pieces):
        choice.delta.content = "".join(piece for piece in pieces if isinstance(piece, str)) or None
        calls = [piece for piece in pieces if isinstance(piece, dict)]
        if calls:
            self._leaked.add(choice.index)
            offset = self._native_calls.get(choice.index, 0)
            calls = [_delta_call(choice, {**call, "index": call["index"] + offset}) for call in calls]
            # A client collects calls from the deltas in their order, before it reads the finish reason.
            choice.delta.tool_calls = list(choice.delta.tool_calls or []) + calls


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
