"""Talks to a corelane server with Ollama's own Python client (`pip install ollama`).

The server's address is in BASE_URL, its key in API_KEY if it needs one.
"""

import os

import ollama

client = ollama.Client(
    host=os.environ.get("BASE_URL", "http://127.0.0.1:8080"),
    headers={"Authorization": f"Bearer {os.environ.get('API_KEY', 'none')}"},
)
MODEL = client.list().models[0].model  # the server has one model and uses it whatever a request names

# An answer, all at once.
question = {"role": "user", "content": "What is 3 plus 4?"}
answer = client.chat(model=MODEL, messages=[question], options={"temperature": 0})
print(answer.message.content)
print(f"{answer.eval_count} tokens, {answer.done_reason}")

# An answer, as it is generated.
story = {"role": "user", "content": "Tell me a story about a dragon."}
for part in client.chat(model=MODEL, messages=[story], stream=True, options={"num_predict": 100}):
    print(part.message.content, end="", flush=True)
print()

# An answer that fits a schema.
schema = {"type": "object", "properties": {"sum": {"enum": [6, 7, 8]}}, "required": ["sum"]}
schema["additionalProperties"] = False
print(client.generate(model=MODEL, prompt="What is 3 plus 4?", format=schema).response)
