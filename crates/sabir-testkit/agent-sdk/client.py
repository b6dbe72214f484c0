"""Drives sabir with the Claude Agent SDK for Python. Usage: client.py SABIR MODEL_ADDRESS. Last line: N passed, N failed."""
import asyncio
import json
import os
import sys
import tempfile

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
    query,
)

SABIR, MODEL = sys.argv[1:]
HOME = tempfile.mkdtemp(prefix="sabir-agent-sdk-home-")
counts = {"passed": 0, "failed": 0}


def check(name, holds, shown=None):
    counts["passed" if holds else "failed"] += 1
    print(f"ok: {name}" if holds else f"FAILED: {name}: {shown!r}", flush=True)


def options(folder, **more):
    env = {"HOME": HOME, "ANTHROPIC_API_KEY": "x", "ANTHROPIC_BASE_URL": MODEL}
    return ClaudeAgentOptions(cli_path=SABIR, cwd=folder, env=env, model="anthropic/claude-sonnet-4-5",
                              stderr=lambda line: print("  stderr:", line), **more)


def new_folder():
    return os.path.realpath(tempfile.mkdtemp(prefix="sabir-agent-sdk-"))


async def receive(client):
    return [message async for message in client.receive_response()]


def calls(messages):
    return [b for m in messages if isinstance(m, AssistantMessage) for b in m.content if isinstance(b, ToolUseBlock)]


def results(messages):
    return [b for m in messages if isinstance(m, UserMessage) for b in m.content if isinstance(b, ToolResultBlock)]


async def permissions():
    folder, asked = new_folder(), []

    async def decide(tool, arguments, context):
        asked.append((tool, arguments, context.tool_use_id))
        if len(asked) == 1:
            return PermissionResultDeny(message="not that way")
        return PermissionResultAllow()

    async with ClaudeSDKClient(options(folder, can_use_tool=decide, include_partial_messages=True)) as client:
        await client.query("script work")
        messages = await receive(client)
        first = [m for m in messages if isinstance(m, SystemMessage)][0]
        check("init names the folder", first.subtype == "init" and first.data["cwd"] == folder, first)
        check("calls have known names", [c.name for c in calls(messages)] == ["Bash", "Write"], calls(messages))
        check("both calls are asked about", [a[0] for a in asked] == ["Bash", "Write"], asked)
        check("ids agree", [a[2] for a in asked] == [c.id for c in calls(messages)], asked)
        check("arguments have known names", asked[-1][1] == {"file_path": "notes.txt", "content": "a note\n"}, asked)
        denied = results(messages)[0]
        check("the reason reaches the model", denied.is_error and "not that way" in json.dumps(denied.content), denied)
        check("denied and allowed", not os.path.exists(f"{folder}/made.txt") and os.path.exists(f"{folder}/notes.txt"), os.listdir(folder))
        end = messages[-1]
        check("the result", isinstance(end, ResultMessage) and end.result == "All is done." and not end.is_error and end.num_turns == 3, end)
        check("the denial is listed", [d["tool_name"] for d in end.permission_denials] == ["Bash"], end.permission_denials)
        deltas = [m.event for m in messages if isinstance(m, StreamEvent)]
        pieces = "".join(e["delta"]["text"] for e in deltas if e["type"] == "content_block_delta" and e["delta"]["type"] == "text_delta")
        check("pieces arrive", pieces == "I make a file.All is done.", pieces)
        # A second turn of the same conversation.
        await client.query("script hello")
        check("a second turn", (await receive(client))[-1].result == "Hello again.")
        session = end.session_id
    messages = [m async for m in query(prompt="script hello", options=options(folder, resume=session))]
    check("resumed", messages[-1].session_id == session and messages[-1].result == "Hello again.", messages[-1])
    messages = [m async for m in query(prompt="script hello", options=options(folder, resume=session, fork_session=True))]
    check("forked", messages[-1].session_id != session and messages[-1].result == "Hello again.", messages[-1])
    messages = [m async for m in query(prompt="script hello", options=options(folder, continue_conversation=True))]
    check("continued", messages[-1].result == "Hello again.", messages[-1])


async def rules():
    folder, asked = new_folder(), []

    async def decide(tool, arguments, context):
        asked.append((tool, context.suggestions))
        return PermissionResultAllow(updated_permissions=context.suggestions)

    async with ClaudeSDKClient(options(folder, can_use_tool=decide)) as client:
        await client.query("script rules")
        messages = await receive(client)
    check("a suggested rule is kept", len(asked) == 1 and messages[-1].result == "Asked once.", asked)


async def changed_arguments():
    folder = new_folder()

    async def decide(tool, arguments, context):
        return PermissionResultAllow(updated_input={**arguments, "command": "echo other"})

    async with ClaudeSDKClient(options(folder, can_use_tool=decide)) as client:
        await client.query("script work")
        messages = await receive(client)
    first = results(messages)[0]
    check("changed arguments do not run", first.is_error and "echo other" in json.dumps(first.content), first)
    check("nor do the old ones", not os.path.exists(f"{folder}/made.txt"), os.listdir(folder))


async def questions():
    async def decide(tool, arguments, context):
        answers = {q["question"]: q["options"][1]["label"] for q in arguments["questions"]}
        return PermissionResultAllow(updated_input={**arguments, "answers": answers})

    async with ClaudeSDKClient(options(new_folder(), can_use_tool=decide)) as client:
        await client.query("script question")
        messages = await receive(client)
    check("a question is answered", "blue" in json.dumps(results(messages)[0].content), messages)


async def hooks():
    folder, seen = new_folder(), []

    async def guard(data, call, context):
        seen.append((data["hook_event_name"], data["tool_name"], data["tool_input"]))
        if data["tool_name"] == "Bash":
            return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny",
                                           "permissionDecisionReason": "no shell here"}}
        return {}

    async def after(data, call, context):
        seen.append((data["hook_event_name"], data["tool_name"], data["tool_input"]))
        return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "noted by the hook"}}

    more = {"hooks": {"PreToolUse": [HookMatcher(matcher="Bash|Write", hooks=[guard])],
                      "PostToolUse": [HookMatcher(matcher="Write", hooks=[after])]},
            "permission_mode": "bypassPermissions"}
    async with ClaudeSDKClient(options(folder, **more)) as client:
        await client.query("script work")
        messages = await receive(client)
    found = results(messages)
    check("a hook refuses", "no shell here" in json.dumps(found[0].content) and not os.path.exists(f"{folder}/made.txt"), found)
    check("a hook adds a note", "noted by the hook" in json.dumps(found[1].content) and os.path.exists(f"{folder}/notes.txt"), found)
    check("hooks see events", [s[:2] for s in seen] == [("PreToolUse", "Bash"), ("PreToolUse", "Write"), ("PostToolUse", "Write")], seen)


async def servers():
    from claude_agent_sdk import create_sdk_mcp_server, tool

    @tool("add", "Adds a note", {"text": str})
    async def add(arguments):
        return {"content": [{"type": "text", "text": f"kept {arguments['text']}"}]}

    seen = []

    async def begin(data, call, context):
        seen.append(data["source"])
        return {}

    server = create_sdk_mcp_server("notes", tools=[add])
    more = {"mcp_servers": {"notes": server}, "allowed_tools": ["mcp__notes__add"]}
    # Hooks of the program and its servers are asked while the session starts.
    more["hooks"] = {"UserPromptSubmit": [HookMatcher(hooks=[lambda data, call, context: begin({"source": data["prompt"]}, call, context)])]}
    async with ClaudeSDKClient(options(new_folder(), **more)) as client:
        await client.query("script server")
        messages = await receive(client)
    check("a tool of the program itself", "kept x" in json.dumps(results(messages)[0].content), messages)
    check("is named as its programs name it", calls(messages)[0].name == "mcp__notes__add", calls(messages))
    check("a hook sees the message", seen == ["script server"], seen)


async def files():
    folder = new_folder()
    with open(f"{folder}/servers.json", "w") as file:
        json.dump({"mcpServers": {"gone": {"command": "/no/such/program"}}}, file)
    messages = [m async for m in query(prompt="script hello", options=options(folder, mcp_servers=f"{folder}/servers.json",
                                       session_id="01a20e66-44e8-7551-a9b3-b5ea7ef8755a"))]
    servers = [m for m in messages if isinstance(m, SystemMessage)][0].data["mcp_servers"]
    check("servers of a file, and an own id", [s["name"] for s in servers] == ["gone"]
          and messages[-1].session_id == "01a20e66-44e8-7551-a9b3-b5ea7ef8755a" and messages[-1].result == "Hello again.", messages)


async def interrupts():
    folder = new_folder()
    async with ClaudeSDKClient(options(folder, permission_mode="bypassPermissions")) as client:
        await client.query("script sleep")
        messages = []

        async def stop():
            while not calls(messages):
                await asyncio.sleep(0.1)
            await asyncio.sleep(0.5)
            await client.interrupt()

        stopping = asyncio.create_task(stop())
        async for message in client.receive_response():
            messages.append(message)
        await stopping
        check("an interrupt ends the turn", messages[-1].subtype == "error_during_execution", messages[-1])
        await client.query("script hello")
        messages = await receive(client)
        check("and the session continues", messages[-1].result == "Hello again.", messages[-1])


async def modes():
    folder = new_folder()
    async with ClaudeSDKClient(options(folder, permission_mode="plan")) as client:
        await client.query("script work")
        messages = await receive(client)
        check("plan mode changes nothing", not os.listdir(folder), os.listdir(folder))
        await client.set_permission_mode("default")
        await client.set_model("anthropic/claude-opus-4-5")
        await client.query("script hello")
        messages = await receive(client)
        check("the model is switched", [m for m in messages if isinstance(m, AssistantMessage)][0].model == "anthropic/claude-opus-4-5", messages)


async def limits():
    messages = []
    try:
        async for message in query(prompt="script work", options=options(new_folder(), max_turns=1)):
            messages.append(message)
    except Exception as error:  # noqa: BLE001
        messages.append(error)
    ends = [m for m in messages if isinstance(m, ResultMessage)]
    check("the most turns", ends and ends[-1].subtype == "error_max_turns", messages)
    try:
        errors = [m async for m in query(prompt="script hello", options=options(new_folder(), max_thinking_tokens=5, disallowed_tools=["Edit"]))]
    except Exception as error:  # noqa: BLE001
        errors = [error]
    check("what cannot be obeyed is refused", isinstance(errors[-1], Exception), errors)


async def main():
    for part in (permissions, rules, changed_arguments, questions, hooks, servers, files, interrupts, modes, limits):
        try:
            await asyncio.wait_for(part(), 300)
        except Exception as error:  # noqa: BLE001
            check(part.__name__, False, error)
    print(f"{counts['passed']} passed, {counts['failed']} failed")
    sys.exit(counts["failed"] > 0)


asyncio.run(main())
