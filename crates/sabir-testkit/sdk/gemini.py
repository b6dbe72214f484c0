"""Google Gemini, by `google-genai`."""
from google import genai
from google.genai import errors as failures
from google.genai import types

from expected import MODELS, SCHEMA, WORDS


def cases(address, check):
    retry = types.HttpRetryOptions(attempts=3, initial_delay=0.01)
    client = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=address, retry_options=retry))
    declaration = types.FunctionDeclaration(name="read_file", description="Reads.", parameters_json_schema=SCHEMA)
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[declaration])])

    def parts(model):
        """All parts of a stream."""
        chunks = client.models.generate_content_stream(model=model, contents="go", config=config)
        found = [chunk.candidates[0] for chunk in chunks if chunk.candidates]
        return [part for one in found if one.content for part in one.content.parts or []]

    def whole(model):
        return client.models.generate_content(model=model, contents="go")

    def words(parts):
        return "".join(part.text for part in parts if part.text and not part.thought)

    def calls(parts):
        return [(p.function_call.name, dict(p.function_call.args or {})) for p in parts if p.function_call]

    def text():
        check("gemini text", words(parts("text")), WORDS)
        done = whole("text")
        check("gemini whole text", done.text, WORDS)
        usage = done.usage_metadata
        check("gemini usage", (usage.prompt_token_count, usage.candidates_token_count), (12, 5))
        check("gemini stop", done.candidates[0].finish_reason, types.FinishReason.STOP)

    def call():
        for model, expected in MODELS:
            check(f"gemini {model}", calls(parts(model)), expected)
            check(f"gemini whole {model}", calls(whole(model).candidates[0].content.parts), expected)

    def thinking():
        found = parts("thinking")
        thoughts = "".join(part.text for part in found if part.thought and part.text)
        check("gemini thinking", (thoughts, words(found)), ("Let me see.", "42"))

    def errors():
        try:
            parts("error")
            check("gemini error", "no error", "an error")
        except failures.APIError as error:
            check("gemini error", "Overloaded" in str(error), True)
        check("gemini busy", whole("busy").text, "at last")
        check("gemini limit", whole("limit").candidates[0].finish_reason, types.FinishReason.MAX_TOKENS)

    return [text, call, thinking, errors]
