"""Talks to a corelane server with OpenAI's own Python client (`pip install openai`).

The server's address is in BASE_URL, its key in API_KEY if it needs one.
"""

import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("BASE_URL", "http://127.0.0.1:8080") + "/v1",
    api_key=os.environ.get("API_KEY", "none"),  # the client insists on one
)
# The server has one model and uses it whatever a request names.
model = client.models.list().data[0].id

# A chat, all at once.
question = {"role": "user", "content": "What is 3 plus 4?"}
chat = client.chat.completions.create(model=model, messages=[question], temperature=0)
print(chat.choices[0].message.content)
print(f"{chat.usage.prompt_tokens} + {chat.usage.completion_tokens} tokens")

# A chat, as it is generated.
story = {"role": "user", "content": "Tell me a story about a dragon."}
stream = client.chat.completions.create(
    model=model, messages=[story], max_tokens=100, stream=True
)
for event in stream:
    print(event.choices[0].delta.content or "", end="", flush=True)
print()

# A conversation that the server remembers.
first = client.responses.create(model=model, input="Hello!", temperature=0)
second = client.responses.create(
    model=model, input="What is 8 plus 6?", temperature=0, previous_response_id=first.id
)
print(second.output_text)

# A completion with fields that OpenAI's API does not have.
completion = client.completions.create(
    model=model,
    prompt="Once upon a time",
    max_tokens=20,
    seed=1,
    extra_body={"top_k": 40, "min_p": 0.05, "timeout_ms": 10_000},
)
print(completion.choices[0].text)
