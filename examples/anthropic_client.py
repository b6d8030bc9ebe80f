"""Talks to a corelane server with Anthropic's own Python client (`pip install anthropic`).

The server's address is in BASE_URL, its key in API_KEY if it needs one.
"""

import os

from anthropic import Anthropic

client = Anthropic(
    base_url=os.environ.get("BASE_URL", "http://127.0.0.1:8080"),
    api_key=os.environ.get("API_KEY", "none"),  # the client insists on one
)
MODEL = "any"  # the server has one model and uses it whatever a request names

# A message, all at once.
question = {"role": "user", "content": "What is 3 plus 4?"}
message = client.messages.create(model=MODEL, max_tokens=50, messages=[question])
for block in message.content:
    if block.type == "text":
        print(block.text)
print(f"{message.usage.output_tokens} tokens, {message.stop_reason}")

# A message, as it is generated.
story = {"role": "user", "content": "Tell me a story about a dragon."}
with client.messages.stream(model=MODEL, max_tokens=100, messages=[story]) as stream:
    for text in stream.text_stream:
        print(text, end="", flush=True)
print()

# The length of a prompt before it is sent.
count = client.messages.count_tokens(model=MODEL, messages=[question])
print(f"{count.input_tokens} tokens of prompt")
