"""Bedrock Converse, by `boto3`, which checks every frame's checksums."""
import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError

from expected import MODELS, SCHEMA, WORDS, with_ids


def cases(address, check):
    config = Config(retries={"total_max_attempts": 3, "mode": "standard"}, region_name="us-east-1")
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "s"}
    client = boto3.client("bedrock-runtime", endpoint_url=address, config=config, **keys)
    tools = {"tools": [{"toolSpec": {"name": "read_file", "inputSchema": {"json": SCHEMA}}}]}

    def user(model):
        return {"modelId": model, "messages": [{"role": "user", "content": [{"text": "go"}]}]}

    def ask(model):
        """The blocks of a stream, the stop reason and the usage."""
        import json
        blocks, stop, usage = {}, None, None
        for event in client.converse_stream(**user(model), toolConfig=tools)["stream"]:
            if "contentBlockStart" in event:
                start = event["contentBlockStart"]
                blocks[start["contentBlockIndex"]] = {"start": start["start"].get("toolUse"), "text": "", "thought": "", "input": ""}
            elif "contentBlockDelta" in event:
                index, delta = event["contentBlockDelta"]["contentBlockIndex"], event["contentBlockDelta"]["delta"]
                block = blocks.setdefault(index, {"start": None, "text": "", "thought": "", "input": ""})
                block["text"] += delta.get("text", "")
                block["thought"] += delta.get("reasoningContent", {}).get("text", "")
                block["input"] += delta.get("toolUse", {}).get("input", "")
            elif "messageStop" in event:
                stop = event["messageStop"]["stopReason"]
            elif "metadata" in event:
                usage = event["metadata"]["usage"]
        found = [b for b in blocks.values() if b["start"]]
        calls = [(b["start"]["toolUseId"], b["start"]["name"], json.loads(b["input"] or "{}")) for b in found]
        words = "".join(b["text"] for b in blocks.values())
        return {"words": words, "thoughts": "".join(b["thought"] for b in blocks.values()), "calls": calls, "stop": stop, "usage": usage}

    def whole(model):
        return client.converse(**user(model))["output"]["message"]["content"]

    def calls(content):
        found = [block["toolUse"] for block in content if "toolUse" in block]
        return [(call["toolUseId"], call["name"], call["input"]) for call in found]

    def text():
        done = ask("text")
        check("bedrock text", (done["words"], done["stop"]), (WORDS, "end_turn"))
        check("bedrock usage", (done["usage"]["inputTokens"], done["usage"]["outputTokens"]), (12, 5))
        check("bedrock whole text", "".join(block.get("text", "") for block in whole("text")), WORDS)

    def call():
        for model, expected in MODELS:
            done = ask(model)
            check(f"bedrock {model}", (done["calls"], done["stop"]), (with_ids(expected), "tool_use"))
            check(f"bedrock whole {model}", calls(whole(model)), with_ids(expected))

    def thinking():
        done = ask("thinking")
        check("bedrock thinking", (done["thoughts"], done["words"]), ("Let me see.", "42"))

    def errors():
        try:
            ask("error")
            check("bedrock error", "no error", "an error")
        except (EventStreamError, ClientError) as error:
            check("bedrock error", "Overloaded" in str(error), True)
        check("bedrock busy", "".join(block.get("text", "") for block in whole("busy")), "at last")
        check("bedrock limit", ask("limit")["stop"], "max_tokens")

    return [text, call, thinking, errors]
