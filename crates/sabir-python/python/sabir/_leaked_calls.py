"""Separates calls from the text around them, and keeps that text byte for byte. The plugins use it."""

import uuid

import sabir

# The number of characters that are read at once.
_MAX_PIECE = 16

class LeakedCallReader:
    """Reads one text that arrives in chunks, and returns pieces of text (``str``) and calls in the shape of OpenAI (``dict``).

    Everything stays text, thoughts with their tags too, but for the markup of calls that are sent. A call that is cut, unreadable or only
    mentioned stays text. All that is behind the beginning of the first call waits for the end of the text. Text without a visible character is left out if the message has a call and no other text.
    """

    def __init__(self, dialect="auto", tools=None, *, id_prefix=None, **options):
        # Two readers of the same text: the events tell the position of each call, and the deltas are the calls that passed the checks.
        self._reader = sabir.Reader(dialect, tools, **{**options, "marks": True})
        self._deltas = sabir.OpenAIDeltas(
            dialect, tools, **{**options, "whole_calls": True, "id_prefix": id_prefix or f"call_{uuid.uuid4().hex[:16]}_"}
        )
        self._source = bytearray()
        # The events from the first call on, with the length of the source when they came.
        self._waiting = []
        self._source_end = 0
        # The offset up to which the source is in pieces or held.
        self._position = 0
        # Markup, and blanks behind it, whose meaning the next call or text decides: offset, bytes, and True for markup.
        self._held = []
        self._call_start = 0
        self._is_behind_call = False
        self._sent_calls = 0
        self._blank = ""
        self._has_said = False
        self._pieces = []

    def push(self, text):
        # In short pieces a text that the reader reports is near the end of what was read.
        for start in range(0, len(text), _MAX_PIECE):
            piece = text[start : start + _MAX_PIECE]
            self._source += piece.encode()
            self._deltas.push(piece)
            self._read(self._reader.push(piece))
        return self._take_pieces()

    def finish(self, reason="ended"):
        """Ends the text. ``reason`` is as in `sabir.Reader.finish`."""
        self._read(self._reader.finish(reason))
        end = self._deltas.finish(reason)
        calls = [call for delta in end["deltas"] for call in delta.get("tool_calls", ())]
        calls = dict(zip(end["call_indexes"], calls))
        for self._source_end, events in self._waiting:
            for event in events:
                self._read_event(event, calls)
        self._source_end = len(self._source)
        self._hold_gap(len(self._source))
        self._release_held()
        if self._blank and not self._sent_calls:
            self._pieces.append(self._blank)
        return self._take_pieces()

    def _take_pieces(self):
        pieces, self._pieces = self._pieces, []
        return pieces

    def _read(self, events):
        self._source_end = len(self._source)
        for position, event in enumerate(events):
            # Only the end of the text tells whether a call is sent, so what is behind its beginning waits.
            if self._waiting or event["event"] == "call_start":
                self._waiting.append((self._source_end, events[position:]))
                return
            self._read_event(event, {})

    def _read_event(self, event, calls):
        kind = event["event"]
        if kind in ("text", "thought"):
            self._read_text(event["text"].encode())
        elif kind == "mark":
            self._read_mark(event["role"], *event["span"])
        elif kind == "call_start":
            self._start_call(event["at"])
        elif kind == "call_end":
            self._end_call(event["at"], calls.get(event["index"]))
        elif kind == "call_cut":
            self._end_call(event["at"], None)

    def _read_text(self, text):
        # A text has no offset: it follows what was read before, or a gap, markup or layout that has no event of its own.
        start = self._position
        if not self._source.startswith(text, start, self._source_end):
            # A marker behind a call may hold the same bytes, so words are looked for from the end there.
            is_from_end = self._is_behind_call and bool(text.strip())
            find = self._source.rfind if is_from_end else self._source.find
            start = find(text, start, self._source_end)
        if start >= 0:
            self._hold_gap(start)
            self._position = start + len(text)
        elif not text.strip():
            return  # a blank before a thought, which the reader reports behind it, is known as a gap already
        self._add_text(text)

    def _read_mark(self, role, start, end):
        if role in ("thought", "prompted_thought"):
            self._hold_gap(start)
            self._add_text(self._source[max(start, self._position) : end])
        elif role in ("wrapper", "call"):
            self._hold_gap(start)
            self._hold(end)
        else:
            return  # a remark about text that follows as text
        self._position = max(self._position, end)

    def _start_call(self, start):
        self._hold_gap(start)
        self._call_start = start
        self._held = [held for held in self._held if held[0] < start]

    def _end_call(self, end, call):
        if call is None:
            self._add_text(self._source[self._call_start : end])
        else:
            for _, text, is_markup in self._held:
                if not is_markup:
                    self._say(text)
            self._held.clear()
            self._pieces.append(call)
            self._sent_calls += 1
            self._is_behind_call = True
        self._position = max(self._position, end)

    def _hold_gap(self, end):
        """Holds a piece of the source for which there was no event, such as the bracket behind a list of calls."""
        self._hold(end)
        self._position = max(self._position, end)

    def _hold(self, end):
        if end > self._position:
            self._held.append((self._position, self._source[self._position : end], True))

    def _add_text(self, text):
        if not text.strip():
            if self._held:
                self._held.append((self._position - len(text), text, False))
            else:
                self._say(text)
            return
        self._release_held()
        self._is_behind_call = False
        self._say(text)

    def _release_held(self):
        """Decides about what is held: behind a call markup belongs to that call, elsewhere it is text."""
        for _, text, is_markup in self._held:
            if not (is_markup and self._is_behind_call):
                self._say(text)
        self._held.clear()

    def _say(self, text):
        said = text.decode()
        if not self._has_said and not said.strip():
            self._blank += said
            return
        self._has_said = True
        if self._blank or said:
            self._pieces.append(self._blank + said)
            self._blank = ""


class ContentReader:
    """Reads one text that arrives in chunks, and returns what of it is not a call: text, and thoughts with their tags.

    With ``keeps_cut_calls`` a call that is cut is text too. A stream that has sent its beginning as a call leaves it out.
    """

    def __init__(self, dialect="auto", tools=None, keeps_cut_calls=False):
        self._reader = sabir.Reader(dialect, tools, marks=True)
        self._keeps_cut_calls = keeps_cut_calls
        self._call_starts = {}
        # The end of the source from the offset on, as long as a mark may reach back.
        self._source = bytearray()
        self._offset = 0

    def push(self, text):
        self._source += text.encode()
        return self._read(self._reader.push(text))

    def finish(self):
        return self._read(self._reader.finish())

    def _read(self, events):
        content = []
        for event in events:
            kind = event["event"]
            if kind in ("text", "thought"):
                content.append(event["text"])
            elif kind == "mark":
                start, end = event["span"]
                if event["role"] in ("thought", "prompted_thought"):
                    content.append(self._source[start - self._offset : end - self._offset].decode())
                    self._drop_before(end)
            elif kind == "call_start" and self._keeps_cut_calls:
                self._call_starts[event["index"]] = event["at"]
            elif kind == "call_cut" and self._keeps_cut_calls:
                start = self._call_starts[event["index"]]
                content.append(self._source[start - self._offset : event["at"] - self._offset].decode())
        return "".join(content)

    def _drop_before(self, end):
        del self._source[: end - self._offset]
        self._offset = end
