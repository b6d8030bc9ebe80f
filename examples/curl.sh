#!/bin/sh
# Sends the most common requests to a running corelane server: sh examples/curl.sh
#
# BASE_URL names another server, and API_KEY its key if it needs one.
set -eu

BASE_URL="${BASE_URL:-http://127.0.0.1:8080}"

# Sends a request and shows its answer.
call() {
    path="$1"
    shift
    printf '\n== %s\n' "$path"
    curl --fail-with-body -sS -N "$BASE_URL$path" \
        ${API_KEY:+-H "authorization: Bearer $API_KEY"} "$@"
    echo
}

# The same with a JSON body.
post() {
    call "$1" -H 'content-type: application/json' -d "$2"
}

call /health
call /v1/models

post /v1/completions '{"prompt": "Once upon a time", "max_tokens": 20}'

# A stream of server-sent events, which ends with [DONE].
post /v1/completions '{"prompt": "Once upon a time", "max_tokens": 5, "stream": true}'

# A chat, and one whose answer is JSON of a given form.
post /v1/chat/completions '{"messages": [{"role": "user", "content": "What is 3 plus 4?"}]}'
post /v1/chat/completions '{
  "messages": [{"role": "user", "content": "What is 3 plus 4?"}],
  "response_format": {"type": "json_schema", "json_schema": {"name": "sum", "schema": {
    "type": "object",
    "properties": {"sum": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["sum"],
    "additionalProperties": false
  }}}
}'

# The same chat in the form of Anthropic.
post /v1/messages '{"max_tokens": 50, "messages": [{"role": "user", "content": "What is 3 plus 4?"}]}'

# Text to tokens, with the text of each token, and back.
post /tokenize '{"content": "Once upon a time", "with_pieces": true}'
post /detokenize '{"tokens": [743, 394]}'
