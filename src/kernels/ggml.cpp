// Connects our kernels to ggml by an extra buffer type, like those of ggml's repacked weights,
// AMX and KleidiAI. For each operation on a tensor in such a buffer, ggml first asks the buffer
// type's traits. This file only translates: it calls the functions that ggml.rs passes in. It is
// compiled against the headers of the linked ggml, so Rust mirrors no struct.

#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml-cpu-impl.h"
#include "ggml-cpu.h"
#include "traits.h"

#include <sys/mman.h>

#include <algorithm>

extern "C" {

// A matrix of weights [rows, columns], or one for each expert.
struct corelane_matrix {
    int32_t type;
    int64_t rows;
    int64_t columns;
    int64_t experts; // 1 without experts
    const void * packed;
};

// One thread's part of `output = weights * input`.
struct corelane_product {
    corelane_matrix weights;
    const void * input;   // rows of floats, counted in three dimensions
    int64_t input_rows[3];
    size_t input_strides[3]; // bytes
    const int32_t * ids;     // with experts: those of each token, which is input's second dimension
    int64_t chosen;          // experts of a token
    size_t id_strides[2];    // bytes between two of a token's, and between tokens
    float * output;          // a row for each of input, or for each choice, without gaps
    void * work;
    size_t work_bytes;
    int thread;
    int threads;
    void * pool;
};

// Some rows of the weights, as floats.
struct corelane_rows {
    corelane_matrix weights;
    const int32_t * indices;
    int64_t count;
    float * output;
    int thread;
    int threads;
};

// Dimensions in ggml's order: the innermost first.
struct corelane_tensor {
    int32_t type;
    int64_t sizes[4];
    size_t strides[4]; // bytes
    const void * data;
};

// One thread's part of FLASH_ATTN_EXT.
struct corelane_attention {
    corelane_tensor queries;
    corelane_tensor keys;
    corelane_tensor values;
    corelane_tensor mask;
    const void * mask_tensor; // its identity
    const float * sinks;      // one for each head, or null
    float scale;
    float max_bias;
    float softcap;
    float * output; // [streams, rows, heads, numbers]
    const void * step;
    void * work;
    size_t work_bytes;
    int thread;
    int threads;
    void * pool;
};

// One thread's part of GATED_DELTA_NET, which reads and writes the states where the model keeps
// them. Tensors are [sequences, tokens, heads, numbers].
struct corelane_delta {
    corelane_tensor queries;
    corelane_tensor keys;
    corelane_tensor values;
    corelane_tensor gates;
    corelane_tensor betas;
    const float * states;  // [rows][heads][numbers][numbers]
    const int32_t * rows;  // the row of each sequence's state
    size_t row_stride;     // bytes
    float * to;            // the first sequence's new state
    size_t to_stride;      // bytes between those of two sequences
    size_t snapshot_stride; // bytes between the states behind the last token and the one before it
    int64_t snapshots;     // states that are written for each sequence
    float * output;        // [sequences, tokens, heads, numbers]
    int kernel;            // what has_delta has returned
    int thread;
    int threads;
    void * pool;
};

struct corelane_hooks {
    // Whether to pack a matrix while it is loaded.
    bool (*is_wanted)(const corelane_matrix *);
    size_t (*packed_bytes)(const corelane_matrix *);
    void (*pack)(const corelane_matrix *, const void * from, void * to);
    size_t (*work_bytes)(const corelane_matrix *, int64_t input_rows, int64_t choices);
    void (*multiply)(const corelane_product *);
    void (*get_rows)(const corelane_rows *);
    // Returns the attention's step and the size of its work memory; null if ggml computes it.
    const void * (*plan_attention)(const corelane_attention *, int threads, size_t * work_bytes);
    void (*attend)(const corelane_attention *);
    // The kernel for a GATED_DELTA_NET whose states have `numbers` numbers in a row; 0 if ggml
    // computes it.
    int (*has_delta)(int64_t numbers);
    void (*run_delta)(const corelane_delta *);
};

}

namespace {

corelane_hooks hooks;

ggml_backend_buffer_type_t buffer_type();

bool is_packed(const ggml_tensor * tensor) {
    return tensor && tensor->buffer && tensor->buffer->buft == buffer_type();
}

corelane_matrix matrix(const ggml_tensor * tensor) {
    return { tensor->type, tensor->ne[1], tensor->ne[0], tensor->ne[2], tensor->data };
}

int64_t rows(const ggml_tensor * tensor) {
    return tensor->ne[1] * tensor->ne[2] * tensor->ne[3];
}

// A view is refused: its address would point into unpacked weights.
bool is_whole(const ggml_tensor * weights) {
    return weights->view_src == nullptr && ggml_is_contiguous(weights);
}

bool is_product(const ggml_tensor * op) {
    if (op->op == GGML_OP_MUL_MAT_ID) {
        const ggml_tensor * ids = op->src[2];
        if (ids->type != GGML_TYPE_I32 || ids->ne[2] != 1 || ids->ne[3] != 1 ||
            (ids->buffer && !ggml_backend_buft_is_host(ids->buffer->buft))) {
            return false;
        }
    }
    return op->src[1]->type == GGML_TYPE_F32 && op->src[1]->nb[0] == sizeof(float) &&
        op->type == GGML_TYPE_F32 && ggml_is_contiguous(op);
}

// Whether the first operand of `op` may be a matrix of weights.
bool is_of_weights(const ggml_tensor * op) {
    return op->op == GGML_OP_MUL_MAT || op->op == GGML_OP_MUL_MAT_ID || op->op == GGML_OP_GET_ROWS;
}

bool is_lookup(const ggml_tensor * op) {
    return op->src[1]->type == GGML_TYPE_I32 && ggml_is_contiguous(op->src[1]) &&
        op->type == GGML_TYPE_F32 && ggml_is_contiguous(op);
}

// Whether we compute `op`, whose first operand is packed weights. Only experts have several matrices.
bool fits(const ggml_tensor * op) {
    const ggml_tensor * weights = op->src[0];
    const bool has_experts = op->op == GGML_OP_MUL_MAT_ID;
    return is_whole(weights) && (weights->ne[2] == 1 || has_experts) && weights->ne[3] == 1 &&
        (op->op == GGML_OP_GET_ROWS ? is_lookup(op) : is_product(op));
}

// Operations on packed weights.
class traits : public ggml::cpu::tensor_traits {
    bool work_size(int, const ggml_tensor * op, size_t & size) override {
        const corelane_matrix weights = matrix(op->src[0]);
        // Of the choices of experts; 0 without experts.
        const int64_t choices = op->op == GGML_OP_MUL_MAT_ID ? rows(op) : 0;
        size = op->op == GGML_OP_GET_ROWS ? 0 : hooks.work_bytes(&weights, rows(op->src[1]), choices);
        return true;
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        const ggml_tensor * input = op->src[1];
        GGML_ASSERT(fits(op));
        if (op->op != GGML_OP_GET_ROWS) {
            const ggml_tensor * ids = op->op == GGML_OP_MUL_MAT_ID ? op->src[2] : nullptr;
            const corelane_product product = {
                matrix(op->src[0]),
                input->data,
                { input->ne[1], input->ne[2], input->ne[3] },
                { input->nb[1], input->nb[2], input->nb[3] },
                ids ? (const int32_t *) ids->data : nullptr,
                ids ? ids->ne[0] : 0,
                { ids ? ids->nb[0] : 0, ids ? ids->nb[1] : 0 },
                (float *) op->data,
                params->wdata, params->wsize,
                params->ith, params->nth, params->threadpool,
            };
            hooks.multiply(&product);
        } else {
            const corelane_rows rows = {
                matrix(op->src[0]), (const int32_t *) input->data, ggml_nelements(input),
                (float *) op->data, params->ith, params->nth,
            };
            hooks.get_rows(&rows);
        }
        return true;
    }
};

corelane_tensor describe(const ggml_tensor * tensor) {
    corelane_tensor described = {};
    described.type = tensor->type;
    for (int i = 0; i < 4; i++) {
        described.sizes[i] = tensor->ne[i];
        described.strides[i] = tensor->nb[i];
    }
    described.data = tensor->data;
    return described;
}

corelane_attention describe_attention(const ggml_tensor * op) {
    const ggml_tensor * sinks = op->src[4];
    corelane_attention attention = {};
    attention.queries = describe(op->src[0]);
    attention.keys = describe(op->src[1]);
    attention.values = describe(op->src[2]);
    attention.mask = describe(op->src[3]);
    attention.mask_tensor = op->src[3];
    attention.sinks = sinks ? (const float *) sinks->data : nullptr;
    memcpy(&attention.scale, op->op_params + 0, sizeof(float));
    memcpy(&attention.max_bias, op->op_params + 1, sizeof(float));
    memcpy(&attention.softcap, op->op_params + 2, sizeof(float));
    attention.output = (float *) op->data;
    return attention;
}

// Attention. An operation that we compute has its step in `extra`. ggml leaves that field null
// for results of operations.
class attention_traits : public ggml::cpu::tensor_traits {
    // ggml calls this for each operation of a graph, right before it computes the graph.
    bool work_size(int threads, const ggml_tensor * op, size_t & size) override {
        const void * step = nullptr;
        const bool has_mask = op->src[3] != nullptr;
        if (has_mask && op->type == GGML_TYPE_F32 && ggml_is_contiguous(op)) {
            const corelane_attention attention = describe_attention(op);
            step = hooks.plan_attention(&attention, threads, &size);
        }
        const_cast<ggml_tensor *>(op)->extra = const_cast<void *>(step);
        return step != nullptr;
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        if (op->extra == nullptr) {
            return false;
        }
        corelane_attention attention = describe_attention(op);
        attention.step = op->extra;
        attention.work = params->wdata;
        attention.work_bytes = params->wsize;
        attention.thread = params->ith;
        attention.threads = params->nth;
        attention.pool = params->threadpool;
        hooks.attend(&attention);
        return true;
    }
};

// The gated delta net. llama.cpp gathers the states of a step (GET_ROWS), computes new ones, and
// copies them back (CPY). Each of the three reads and writes all states. Where the rows that are read
// are those that are written, the middle one does it all in place, and the others do nothing.
//
// ggml asks for the work size of all operations in their order, right before it computes the graph.
// Then `extra` of a GET_ROWS becomes its GATED_DELTA_NET, and `extra` of that its CPY. The rows are
// known when GET_ROWS runs. It notes the decision, because their memory may be used again after it.
class delta_traits : public ggml::cpu::tensor_traits {
    // Parameters of a GATED_DELTA_NET that ggml does not use.
    static constexpr int in_place = 8;
    static constexpr int kernel = 9;

    static bool is_f32(const ggml_tensor * tensor) {
        return tensor->type == GGML_TYPE_F32 && tensor->nb[0] == sizeof(float);
    }

    static int64_t numbers(const ggml_tensor * delta) { return delta->src[2]->ne[0]; }
    static int64_t heads(const ggml_tensor * delta) { return delta->src[2]->ne[1]; }
    static int64_t tokens(const ggml_tensor * delta) { return delta->src[2]->ne[2]; }
    static int64_t sequences(const ggml_tensor * delta) { return delta->src[2]->ne[3]; }
    static int64_t kept(const ggml_tensor * delta) { return ggml_get_op_params_i32(delta, 0); }

    static size_t state_bytes(const ggml_tensor * delta) {
        return numbers(delta) * numbers(delta) * heads(delta) * sizeof(float);
    }

    static size_t sequence_stride(const ggml_tensor * copy, const ggml_tensor * delta) {
        const ggml_tensor * to = copy->src[1];
        return to->ne[0] * sizeof(float) == state_bytes(delta) ? to->nb[1] : state_bytes(delta);
    }

    // Whether `gather` reads whole states for `delta` alone.
    static bool feeds(const ggml_tensor * gather, const ggml_tensor * delta) {
        const ggml_tensor * state = delta->src[5];
        return gather && gather->op == GGML_OP_GET_ROWS && state->view_offs == 0 &&
            is_f32(gather->src[0]) && gather->src[0]->ne[2] == 1 && gather->src[0]->ne[3] == 1 &&
            gather->src[1]->type == GGML_TYPE_I32 && gather->src[1]->nb[0] == sizeof(int32_t) &&
            gather->ne[0] * sizeof(float) == state_bytes(delta) &&
            gather->ne[1] == sequences(delta) && gather->ne[2] == 1 && gather->ne[3] == 1;
    }

    // Whether `copy` writes all new states of `delta`.
    static bool takes(const ggml_tensor * copy, const ggml_tensor * delta) {
        const ggml_tensor * from = copy->src[0];
        const ggml_tensor * to = copy->src[1];
        const int64_t written = std::min(tokens(delta), kept(delta));
        const size_t before = numbers(delta) * heads(delta) * tokens(delta) * sequences(delta) * sizeof(float);
        const size_t bytes = state_bytes(delta) * sequences(delta) * written;
        const bool is_split = to->ne[0] * sizeof(float) == state_bytes(delta) &&
            to->ne[1] == sequences(delta) && to->ne[2] == written && to->ne[3] == 1;
        return from->view_offs == before && is_f32(to) && ggml_is_contiguous(from) &&
            ggml_nbytes(from) == bytes && (is_split || (ggml_is_contiguous(to) && written == 1));
    }

    // Whether each sequence's state is read where its own new states are written.
    static bool is_in_place(const ggml_tensor * delta) {
        const auto * copy = (const ggml_tensor *) delta->extra;
        const ggml_tensor * gather = delta->src[5]->view_src;
        const auto * rows = (const int32_t *) gather->src[1]->data;
        const ggml_tensor * to = copy->src[1];
        const ptrdiff_t snapshot = kept(delta) > 1 ? to->nb[2] : 0;
        for (int64_t i = 0; i < sequences(delta); i++) {
            const char * from = (const char *) gather->src[0]->data + rows[i] * gather->src[0]->nb[1];
            const ptrdiff_t beyond = from - ((const char *) to->data + i * sequence_stride(copy, delta));
            const bool is_own = beyond == 0 ||
                (snapshot > 0 && beyond > 0 && beyond % snapshot == 0 && beyond / snapshot < kept(delta));
            if (!is_own) {
                return false;
            }
        }
        return true;
    }

    // Whether `op` keeps the state of a convolution before all tokens of the step. To go back there,
    // all of them would have to be undone, and the decoder undoes fewer.
    static bool is_vain(const ggml_tensor * op) {
        const ggml_tensor * from = op->src[0];
        const ggml_tensor * to = op->src[1];
        const ggml_tensor * all = from->view_src; // the state before, and the tokens behind it
        return all && all->op == GGML_OP_CONCAT && ggml_get_op_params_i32(all, 0) == 0 &&
            from->view_offs == 0 && from->ne[0] == all->src[0]->ne[0] &&
            to->view_src && strncmp(to->view_src->name, "cache_r_l", 9) == 0 &&
            hooks.has_delta(128) != 0;
    }

    static void plan(ggml_tensor * op) {
        op->extra = nullptr;
        if (op->op == GGML_OP_GATED_DELTA_NET) {
            ggml_tensor * gather = op->src[5]->view_src;
            ggml_set_op_params_i32(op, in_place, 0);
            const bool is_scalar = op->src[3]->ne[0] == 1; // one gate for a head
            const int ours = is_scalar && feeds(gather, op) ? hooks.has_delta(numbers(op)) : 0;
            ggml_set_op_params_i32(op, kernel, ours);
            if (ours) {
                gather->extra = op;
            }
        } else if (op->op == GGML_OP_CPY) {
            ggml_tensor * delta = op->src[0]->view_src;
            if (delta && delta->op == GGML_OP_GATED_DELTA_NET && takes(op, delta)) {
                const ggml_tensor * gather = delta->src[5]->view_src;
                delta->extra = gather && gather->extra == delta ? op : nullptr;
            }
            if (is_vain(op)) {
                op->extra = op;
            }
        }
    }

    bool work_size(int, const ggml_tensor * op, size_t &) override {
        plan(const_cast<ggml_tensor *>(op));
        return false; // ggml may have to compute it
    }

    static void run(const ggml_compute_params * params, ggml_tensor * op) {
        const auto * copy = (const ggml_tensor *) op->extra;
        const ggml_tensor * gather = op->src[5]->view_src;
        corelane_delta delta = {};
        delta.queries = describe(op->src[0]);
        delta.keys = describe(op->src[1]);
        delta.values = describe(op->src[2]);
        delta.gates = describe(op->src[3]);
        delta.betas = describe(op->src[4]);
        delta.states = (const float *) gather->src[0]->data;
        delta.rows = (const int32_t *) gather->data;
        delta.row_stride = gather->src[0]->nb[1];
        delta.to = (float *) copy->src[1]->data;
        delta.to_stride = sequence_stride(copy, op);
        delta.snapshot_stride = kept(op) > 1 ? copy->src[1]->nb[2] : 0;
        delta.snapshots = std::min(tokens(op), kept(op));
        delta.output = (float *) op->data;
        delta.kernel = ggml_get_op_params_i32(op, kernel);
        delta.thread = params->ith;
        delta.threads = params->nth;
        delta.pool = params->threadpool;
        hooks.run_delta(&delta);
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        if (op->op == GGML_OP_GET_ROWS) {
            auto * delta = (ggml_tensor *) op->extra;
            if (delta == nullptr || delta->extra == nullptr || !is_in_place(delta)) {
                return false;
            }
            if (params->ith == 0) {
                // Its own memory is free: the states are not gathered.
                memcpy(op->data, op->src[1]->data, op->ne[1] * sizeof(int32_t));
                ggml_set_op_params_i32(delta, in_place, 1);
            }
            return true;
        }
        if (op->extra == op) {
            return true;
        }
        const bool is_copy = op->op == GGML_OP_CPY;
        const ggml_tensor * delta = is_copy ? op->src[0]->view_src : op;
        const bool is_ours = delta && delta->op == GGML_OP_GATED_DELTA_NET && delta->extra &&
            ggml_get_op_params_i32(delta, in_place) && (!is_copy || delta->extra == op);
        if (is_ours && !is_copy) {
            run(params, op);
        }
        return is_ours;
    }
};

class buffer_traits : public ggml::cpu::extra_buffer_type {
    traits of_weights;
    attention_traits of_attention;
    delta_traits of_delta;

    // ggml calls this when it loads a model, for weights without memory, and when it builds a
    // graph, for weights with memory.
    bool supports_op(ggml_backend_dev_t, const ggml_tensor * op) override {
        if (!is_of_weights(op)) {
            return false;
        }
        const ggml_tensor * weights = op->src[0];
        const ggml_tensor * input = op->src[1];
        if (!is_packed(weights) || !fits(op)) {
            return false;
        }
        const corelane_matrix m = matrix(weights);
        if (weights->data == nullptr && !hooks.is_wanted(&m)) {
            return false;
        }
        if (input->buffer && !ggml_backend_buft_is_host(input->buffer->buft)) {
            return false;
        }
        // A lookup only for a matrix that the model may also use as its output. A table of embeddings
        // that is only looked up gains nothing by packing.
        return op->op != GGML_OP_GET_ROWS || strcmp(weights->name, "token_embd.weight") == 0;
    }

    ggml::cpu::tensor_traits * get_tensor_traits(const ggml_tensor * op) override {
        if (op->op == GGML_OP_FLASH_ATTN_EXT) {
            return &of_attention;
        }
        if (is_of_weights(op) && is_packed(op->src[0])) {
            return &of_weights;
        }
        const bool is_delta = op->op == GGML_OP_GATED_DELTA_NET || op->op == GGML_OP_GET_ROWS ||
            op->op == GGML_OP_CPY;
        return is_delta ? &of_delta : nullptr;
    }
};

const char * name(ggml_backend_buffer_type_t) {
    return "corelane";
}

size_t alignment(ggml_backend_buffer_type_t) {
    return 64;
}

size_t alloc_size(ggml_backend_buffer_type_t, const ggml_tensor * tensor) {
    const corelane_matrix m = matrix(tensor);
    return hooks.packed_bytes(&m);
}

void set_tensor(ggml_backend_buffer_t, ggml_tensor * tensor, const void * data, size_t offset, size_t size) {
    GGML_ASSERT(offset == 0 && size == ggml_nbytes(tensor) && "weights are packed whole");
    const corelane_matrix m = matrix(tensor);
    hooks.pack(&m, data, tensor->data);
}

void get_tensor(ggml_backend_buffer_t, const ggml_tensor * tensor, void *, size_t, size_t) {
    GGML_ABORT("the weights %s are packed, and cannot be read back", tensor->name);
}

// ggml's own function for its buffers.
ggml_backend_buffer_t (*alloc_of_ggml)(ggml_backend_buffer_type_t, size_t) = nullptr;

// Every step reads all weights, and writes rows of activations that are thousands of bytes apart. Pages of
// 2 MiB save address translations. Linux may ignore this request.
ggml_backend_buffer_t alloc_with_huge_pages(ggml_backend_buffer_type_t type, size_t size) {
    ggml_backend_buffer_t buffer = alloc_of_ggml(type, size);
    const size_t page = 2 << 20;
    const bool has_memory = buffer != nullptr && size > 0;
    const uintptr_t base = has_memory ? (uintptr_t) ggml_backend_buffer_get_base(buffer) : 0;
    const uintptr_t from = (base + page - 1) / page * page;
    const uintptr_t to = (base + size) / page * page;
    if (has_memory && from < to) {
        madvise((void *) from, to - from, MADV_HUGEPAGE);
    }
    return buffer;
}

ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t type, size_t size) {
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), size);
    if (buffer == nullptr) {
        return nullptr;
    }
    buffer->buft = type;
    buffer->iface.set_tensor = set_tensor;
    buffer->iface.get_tensor = get_tensor;
    buffer->iface.cpy_tensor = nullptr;
    return buffer;
}

ggml_backend_buffer_type_t buffer_type() {
    static buffer_traits context;
    static ggml_backend_buffer_type type = {
        /* .iface = */ {
            /* .get_name         = */ name,
            /* .alloc_buffer     = */ alloc_buffer,
            /* .alloc_buffer_n   = */ nullptr,
            /* .get_alignment    = */ alignment,
            /* .get_max_size     = */ nullptr,
            /* .get_alloc_size   = */ alloc_size,
            /* .get_alloc_size_n = */ nullptr,
            /* .is_host          = */ nullptr,
        },
        /* .device  = */ ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0),
        /* .context = */ &context,
    };
    return &type;
}

}  // namespace

extern "C" {

// Puts our buffer type before ggml's own, removes that of AMX, and asks for large pages. Called once, before
// the first model is loaded.
void corelane_ggml_install(const corelane_hooks * with) {
    hooks = *with;
    auto & types = ggml_backend_cpu_get_extra_buffer_types();
    // GCC's _tile_loadconfig (seen in 12.2) names 8 of the 64 bytes that it reads, so the compiler
    // drops the rest of llama.cpp's configuration: its AMX code ends the process with SIGSEGV.
    const auto is_amx = [](auto type) { return strcmp(ggml_backend_buft_name(type), "AMX") == 0; };
    types.erase(std::remove_if(types.begin(), types.end(), is_amx), types.end());
    types.insert(types.begin(), buffer_type());
    auto & alloc = ggml_backend_cpu_buffer_type()->iface.alloc_buffer;
    alloc_of_ggml = alloc;
    alloc = alloc_with_huge_pages;
}

ggml_backend_buffer_type_t corelane_ggml_buffer_type() {
    return buffer_type();
}

void corelane_ggml_barrier(void * pool) {
    ggml_barrier((ggml_threadpool *) pool);
}

void corelane_ggml_set_piece(void * pool, int value) {
    ggml_threadpool_chunk_set((ggml_threadpool *) pool, value);
}

int corelane_ggml_next_piece(void * pool) {
    return ggml_threadpool_chunk_add((ggml_threadpool *) pool, 1);
}

}
