"""Runs an agent with a tool on a corelane server (`pip install openai-agents`).

The server's address is in BASE_URL, its key in API_KEY if it needs one. The agent uses /v1/responses.
"""

import asyncio
import os

import agents
import openai

client = openai.AsyncOpenAI(
    base_url=os.environ.get("BASE_URL", "http://127.0.0.1:8080") + "/v1",
    api_key=os.environ.get("API_KEY", "none"),
)
agents.set_tracing_disabled(True)  # it would send what happens here to OpenAI


@agents.function_tool
def add(a: int, b: int) -> str:
    """Adds two numbers."""
    return f"{a} plus {b} is {a + b}."


async def main():
    model = agents.OpenAIResponsesModel(model="any", openai_client=client)  # the server uses its one model

    # An answer.
    talker = agents.Agent(name="Talker", model=model, model_settings=agents.ModelSettings(temperature=0))
    answer = await agents.Runner.run(talker, "What is 3 plus 4?")
    print(answer.final_output)

    # A call of a tool, whose result is the answer. The call always fits the tool's schema.
    settings = agents.ModelSettings(tool_choice="required", max_tokens=200)
    adder = agents.Agent(
        name="Adder", model=model, model_settings=settings, tools=[add], tool_use_behavior="stop_on_first_tool"
    )
    called = await agents.Runner.run(adder, "What is 3 plus 4?")
    print(called.final_output)


asyncio.run(main())
