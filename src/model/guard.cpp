// Calls of llama.cpp that may throw. An exception must not cross into Rust, so each becomes the
// result INT32_MIN, which llama.cpp itself uses for "too large".

#include "llama.h"

#include <cstdint>

extern "C" {

// As llama_tokenize without the tokens around a text and without control tokens.
int32_t corelane_tokenize(const llama_vocab * vocab, const char * text, int32_t bytes,
                          llama_token * tokens, int32_t capacity) {
    try {
        return llama_tokenize(vocab, text, bytes, tokens, capacity, false, false);
    } catch (...) {
        return INT32_MIN;
    }
}

int32_t corelane_decode(llama_context * context, llama_batch batch) {
    try {
        return llama_decode(context, batch);
    } catch (...) {
        return INT32_MIN;
    }
}

} // extern "C"
