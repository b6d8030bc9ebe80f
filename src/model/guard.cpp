// Keeps llama.cpp's errors inside llama.cpp. An exception must not cross into Rust, so calls that
// may throw are wrapped here. A failed assertion ends the process. While a model file is read, it
// throws an exception instead, because a damaged file can make assertions fail.

#include "llama.h"

#include "ggml-impl.h"
#include "gguf.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace {

thread_local bool assertions_throw = false;

// Receives "path/of/file.cpp:12: GGML_ASSERT(...) failed". ggml ends the process if this returns.
void on_failed_assertion(const char * message) {
    if (assertions_throw) {
        const char * end = strchr(message, ':');
        const char * name = message;
        for (const char * c = message; end && c < end; c++) {
            name = *c == '/' ? c + 1 : name;
        }
        throw std::runtime_error(name);
    }
    fprintf(stderr, "%s\n", message);
    ggml_print_backtrace();
}

} // namespace

extern "C" {

void corelane_guard_assertions() {
    ggml_set_abort_callback(on_failed_assertion);
}

// Sets whether failed assertions on this thread throw. While they do, only calls that catch
// exceptions may be made.
void corelane_assertions_throw(bool yes) {
    assertions_throw = yes;
}

// As gguf_init_from_file; null for an exception, too.
gguf_context * corelane_gguf_open(const char * path, gguf_init_params params) {
    try {
        return gguf_init_from_file(path, params);
    } catch (const std::exception & error) {
        GGML_LOG_ERROR("%s: %s\n", __func__, error.what());
        return nullptr;
    }
}

// As llama_tokenize without the tokens around a text and without control tokens. The result for an
// exception is INT32_MIN, which llama.cpp itself uses for "too large".
int32_t corelane_tokenize(const llama_vocab * vocab, const char * text, int32_t bytes,
                          llama_token * tokens, int32_t capacity) {
    try {
        return llama_tokenize(vocab, text, bytes, tokens, capacity, false, false);
    } catch (...) {
        return INT32_MIN;
    }
}

// As llama_decode; INT32_MIN for an exception.
int32_t corelane_decode(llama_context * context, llama_batch batch) {
    try {
        return llama_decode(context, batch);
    } catch (...) {
        return INT32_MIN;
    }
}

} // extern "C"
