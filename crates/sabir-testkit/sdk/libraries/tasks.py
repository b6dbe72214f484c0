"""Gives a task to one of the Python libraries. Usage: tasks.py SETUP ADDRESS MODEL TOKEN TASK

The tools read and write files of the working folder. Prints the library's last words.
"""
import asyncio
import json
import os
import sys
from pathlib import Path

setup, address, model, token, task = sys.argv[1:]
v1 = address + "/v1"


def read_file(path: str) -> str:
    """Reads a file.

    Args:
        path: The path of the file.
    """
    return Path(path).read_text()


def write_file(path: str, content: str) -> str:
    """Writes a file.

    Args:
        path: The path of the file.
        content: What it is to contain.
    """
    Path(path).write_text(content)
    return f"wrote {path}"


TOOLS = {"read_file": read_file, "write_file": write_file}
TEXT = {"type": "string"}
SCHEMAS = {
    "read_file": {"type": "object", "properties": {"path": TEXT}, "required": ["path"]},
    "write_file": {"type": "object", "properties": {"path": TEXT, "content": TEXT}, "required": ["path", "content"]},
}
FUNCTIONS = [{"type": "function", "function": {"name": name, "description": "Does it.", "parameters": schema}} for name, schema in SCHEMAS.items()]


def langchain(chat_model):
    from langchain.agents import create_agent

    agent = create_agent(chat_model, [read_file, write_file])
    last = None
    for state in agent.stream({"messages": [{"role": "user", "content": task}]}, stream_mode="values"):
        last = state["messages"][-1]
    return last.text() if callable(last.text) else last.text


def langchain_chat():
    from langchain_openai import ChatOpenAI

    return langchain(ChatOpenAI(model=model, base_url=v1, api_key=token, streaming=True, max_retries=0))


def langchain_responses():
    from langchain_openai import ChatOpenAI

    return langchain(ChatOpenAI(model=model, base_url=v1, api_key=token, streaming=True, use_responses_api=True, max_retries=0))


def langchain_anthropic():
    from langchain_anthropic import ChatAnthropic

    return langchain(ChatAnthropic(model=model, base_url=address, api_key=token, streaming=True, max_retries=0))


def langchain_google():
    from langchain_google_genai import ChatGoogleGenerativeAI

    return langchain(ChatGoogleGenerativeAI(model=model, base_url=address, google_api_key=token, max_retries=1))


def langchain_ollama():
    from langchain_ollama import ChatOllama

    return langchain(ChatOllama(model=model, base_url=address, client_kwargs={"headers": {"Authorization": f"Bearer {token}"}}))


def pydantic_ai(language_model):
    from pydantic_ai import Agent

    # With a handler of events the answers are streamed. `run_stream` would end at the first text.
    async def handle(_, events):
        async for _ in events:
            pass

    return Agent(language_model, tools=[read_file, write_file]).run_sync(task, event_stream_handler=handle).output


def pydantic_ai_chat():
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return pydantic_ai(OpenAIChatModel(model, provider=OpenAIProvider(base_url=v1, api_key=token)))


def pydantic_ai_responses():
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return pydantic_ai(OpenAIResponsesModel(model, provider=OpenAIProvider(base_url=v1, api_key=token)))


def pydantic_ai_anthropic():
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    client = AsyncAnthropic(base_url=address, api_key=token, max_retries=0)
    return pydantic_ai(AnthropicModel(model, provider=AnthropicProvider(anthropic_client=client)))


def pydantic_ai_google():
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    return pydantic_ai(GoogleModel(model, provider=GoogleProvider(api_key=token, base_url=address)))


def openai_agents(as_responses):
    from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=v1, api_key=token, max_retries=0)
    kind = OpenAIResponsesModel if as_responses else OpenAIChatCompletionsModel
    agent = Agent(name="Writer", model=kind(model=model, openai_client=client), tools=[function_tool(tool) for tool in TOOLS.values()])

    async def stream():
        result = Runner.run_streamed(agent, task, max_turns=6)
        async for _ in result.stream_events():
            pass
        return result.final_output

    return asyncio.run(stream())


def smolagents():
    from smolagents import OpenAIServerModel, ToolCallingAgent, tool

    language_model = OpenAIServerModel(model_id=model, api_base=v1, api_key=token)
    agent = ToolCallingAgent(tools=[tool(read_file), tool(write_file)], model=language_model, max_steps=5, stream_outputs=True, verbosity_level=0)
    return agent.run(task)


def llama_index():
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.llms.openai_like import OpenAILike

    language_model = OpenAILike(model=model, api_base=v1, api_key=token, is_chat_model=True, is_function_calling_model=True, max_retries=0)
    agent = FunctionAgent(tools=[read_file, write_file], llm=language_model)

    async def run():
        return str(await agent.run(task))

    return asyncio.run(run())


def litellm(name, base):
    """Its own loop: it has no agents."""
    from litellm import completion, stream_chunk_builder

    messages = [{"role": "user", "content": task}]
    for _ in range(6):
        asked = completion(model=name, api_base=base, api_key=token, messages=messages, tools=FUNCTIONS, stream=True, num_retries=0)
        answer = stream_chunk_builder(list(asked), messages=messages).choices[0].message
        messages.append(answer.model_dump(exclude_none=True))
        if not answer.tool_calls:
            return answer.content
        for call in answer.tool_calls:
            output = TOOLS[call.function.name](**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": output})
    raise SystemExit("no end after six turns")


def agno():
    from agno.agent import Agent
    from agno.models.openai import OpenAIChat

    agent = Agent(model=OpenAIChat(id=model, base_url=v1, api_key=token, max_retries=0), tools=[read_file, write_file], telemetry=False)
    text = ""
    for event in agent.run(task, stream=True):
        text += event.content if isinstance(getattr(event, "content", None), str) else ""
    return text


def haystack():
    from haystack.components.agents import Agent
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.tools import create_tool_from_function
    from haystack.utils import Secret

    def ignore(_):
        pass

    generator = OpenAIChatGenerator(model=model, api_base_url=v1, api_key=Secret.from_token(token), max_retries=0, streaming_callback=ignore)
    agent = Agent(chat_generator=generator, tools=[create_tool_from_function(tool) for tool in TOOLS.values()])
    return agent.run(messages=[ChatMessage.from_user(task)])["messages"][-1].text


def strands():
    from strands import Agent, tool
    from strands.models.openai import OpenAIModel

    language_model = OpenAIModel(client_args={"base_url": v1, "api_key": token, "max_retries": 0}, model_id=model)
    agent = Agent(model=language_model, tools=[tool(read_file), tool(write_file)], callback_handler=None)
    return str(agent(task))


def google_genai():
    from google import genai
    from google.genai import types

    client = genai.Client(api_key=token, http_options=types.HttpOptions(base_url=address))
    chat = client.chats.create(model=model, config=types.GenerateContentConfig(tools=[read_file, write_file]))
    return chat.send_message(task).text


SETUPS = {
    "langchain-chat": langchain_chat,
    "langchain-responses": langchain_responses,
    "langchain-anthropic": langchain_anthropic,
    "langchain-google": langchain_google,
    "langchain-ollama": langchain_ollama,
    "pydantic-ai-chat": pydantic_ai_chat,
    "pydantic-ai-responses": pydantic_ai_responses,
    "pydantic-ai-anthropic": pydantic_ai_anthropic,
    "pydantic-ai-google": pydantic_ai_google,
    "openai-agents-responses": lambda: openai_agents(True),
    "openai-agents-chat": lambda: openai_agents(False),
    "smolagents": smolagents,
    "llama-index": llama_index,
    "litellm-chat": lambda: litellm(f"openai/{model}", v1),
    "litellm-anthropic": lambda: litellm(f"anthropic/{model}", address),
    "agno": agno,
    "haystack": haystack,
    "strands": strands,
    "google-genai": google_genai,
}

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
print(SETUPS[setup]())
