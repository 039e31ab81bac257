/**
 * @file engine.h
 * The engine: tokens + position plan → logits.
 *
 * Ownership in one paragraph. A `dpe_model` is an opened Hugging Face folder: memory-mapped weights
 * and their meaning, immutable, shared by any number of sessions, closed last. A `dpe_session` is a
 * model + a backend + a position plan + a KV cache; one thread uses it at a time, it uses many
 * threads inside. A `dpe_tokenizer` is immutable once opened. A `dpe_plan` is plain data: make it,
 * hand it to a session (which copies what it needs), free it. Every function that can fail returns
 * a `dpe_status` and describes the failure in the last argument, which may be NULL. Libraries never
 * print and never exit. Unless a comment says otherwise pointers are borrowed for the call only,
 * outputs are written only on DPE_OK, sizes are element counts, and everything is deterministic:
 * same inputs, same bits, for any number of threads.
 *
 * The engine knows no benchmark and no file format of ours.
 */
#ifndef DPE_ENGINE_H
#define DPE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------- status, error */

/** Outcome of a call. Values are the exit codes of sysexits.h, so that a tool's exit code says
 *  what a library call said; DPE_NONFINITE alone is mapped (see dpe_exit_code). */
enum dpe_status {
    DPE_OK = 0,
    DPE_USAGE = 64,         /**< the caller asked for something that makes no sense */
    DPE_BAD_DATA = 65,      /**< a file was read and its content is wrong */
    DPE_NO_INPUT = 66,      /**< a file that should be there is not, or is no regular file */
    DPE_NO_DEVICE = 69,     /**< the device asked for is not there */
    DPE_INTERNAL = 70,      /**< our own mistake */
    DPE_NO_MEMORY = 71,     /**< memory does not suffice (the message says needed, free, option) */
    DPE_CANNOT_CREATE = 73, /**< an output cannot be created */
    DPE_IO = 74,            /**< reading or writing failed, disk full */
    DPE_INCOMPLETE = 75,    /**< stopped early, the same command continues */
    DPE_PERMISSION = 77,    /**< not allowed to read or write that file */
    DPE_MISMATCH = 78,      /**< a resumable output was made by a different run */
    DPE_NONFINITE = 79,     /**< NaN or Inf in the logits; the message names layer and position */
};
typedef enum dpe_status dpe_status;

/** A failure in words: what was expected, what was found, in which file, what to do. */
struct dpe_error {
    dpe_status status;
    char text[1024];  /**< UTF-8, NUL-terminated, no trailing newline */
    int layer;        /**< DPE_NONFINITE: first layer with a non-finite value, else -1 */
    int64_t position; /**< DPE_NONFINITE: its token position, else -1 */
};

/** Write a message into `err` (NULL allowed) and return `status`, so that
 *  `return dpe_fail(err, DPE_BAD_DATA, "…")` is one line. Text too long is cut. */
dpe_status dpe_fail(struct dpe_error *err, dpe_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** Put "prefix: " before the message already in `err` (NULL allowed) and return its status. */
dpe_status dpe_fail_prefix(struct dpe_error *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** The exit code of a tool that ends with `status` (DPE_NONFINITE → 70, others are themselves). */
int dpe_exit_code(dpe_status status);

/** malloc(count * size) with the product checked for overflow; 64-byte aligned, not cleared.
 *  NULL when count * size overflows or memory is out. Free with free(). count 0 gives a non-NULL
 *  pointer. */
void *dpe_alloc(size_t count, size_t size);
/** dpe_alloc, cleared. */
void *dpe_alloc_zero(size_t count, size_t size);

/* ---------------------------------------------------------------------------------------- model */

enum dpe_dtype { DPE_F32, DPE_F16, DPE_BF16 };

/** Native rope scaling of a checkpoint (config.json: rope_scaling or rope_parameters). */
enum dpe_rope_type {
    DPE_ROPE_DEFAULT,
    DPE_ROPE_LINEAR,
    DPE_ROPE_DYNAMIC,
    DPE_ROPE_YARN,
    DPE_ROPE_LONGROPE,
    DPE_ROPE_LLAMA3,
};

/** Everything config.json says about rotation; fields that a type does not use hold NaN. Source of
 *  the meaning of each: methods as in transformers' modeling_rope_utils. */
struct dpe_rope_config {
    enum dpe_rope_type type;
    double theta;                  /**< rope base b */
    double factor;                 /**< s */
    double original_max_position;  /**< original_max_position_embeddings, NaN when absent */
    double attention_factor;       /**< NaN: the type's formula */
    double beta_fast, beta_slow;   /**< yarn */
    double mscale, mscale_all_dim; /**< yarn, NaN when absent */
    bool truncate;                 /**< yarn, default true */
    double low_freq_factor, high_freq_factor; /**< llama3 */
    double *short_factor,
        *long_factor;             /**< longrope, [n_pairs] each, owned by the model, or NULL */
    double partial_rotary_factor; /**< 1 (others are refused) */
};

/** Architecture variation as data. All counts are ≥ 1 and checked against the tensors. */
struct dpe_config {
    char model_type[32]; /**< "llama", "mistral", "qwen2" */
    int64_t n_layers;
    int64_t hidden;       /**< width of the residual stream */
    int64_t intermediate; /**< width of the MLP */
    int64_t n_heads;      /**< query heads */
    int64_t n_kv_heads;   /**< divides n_heads */
    int64_t head_dim;     /**< even */
    int64_t vocab;        /**< rows of the embedding */
    int64_t max_position; /**< max_position_embeddings */
    double rms_eps;
    bool qkv_bias;         /**< Qwen2 */
    bool o_bias, mlp_bias; /**< Llama attention_bias / mlp_bias */
    bool tied_embeddings;
    struct dpe_rope_config rope;
    int64_t bos_id;      /**< -1 when none */
    int64_t eos_ids[16]; /**< union of config.json and generation_config.json, ascending */
    int n_eos;
    enum dpe_dtype dtype; /**< of the weights on disk (the widest met among matrices) */
};

/** An opened model folder. */
struct dpe_model;

/** How much of the weights the model fingerprint covers. */
enum dpe_fingerprint_kind { DPE_FINGERPRINT_FAST, DPE_FINGERPRINT_FULL };

struct dpe_model_options {
    enum dpe_fingerprint_kind fingerprint; /**< default DPE_FINGERPRINT_FAST */
    bool config_only; /**< do not look at the weights at all (dry runs): tensors are absent */
};

/** One tensor, borrowed from the mapped file; row-major. */
struct dpe_tensor {
    const void *data; /**< may be misaligned for its dtype only if `misaligned` was impossible to
                           avoid; loaders copy such tensors, so data is always aligned */
    enum dpe_dtype dtype;
    int64_t rows, cols; /**< vectors have rows = 1 */
    int64_t stride;     /**< elements from a row to the next; 0: cols, nothing in between */
};

/** The weights of one layer by meaning; absent biases have data = NULL. */
struct dpe_layer_weights {
    struct dpe_tensor attention_norm; /**< [1, hidden] */
    struct dpe_tensor q, k, v;        /**< [n_heads*head_dim | n_kv_heads*head_dim, hidden] */
    struct dpe_tensor q_bias, k_bias, v_bias, o_bias; /**< [1, rows of the matrix] */
    struct dpe_tensor o;                              /**< [hidden, n_heads*head_dim] */
    struct dpe_tensor mlp_norm;                       /**< [1, hidden] */
    struct dpe_tensor gate, up;                       /**< [intermediate, hidden] */
    struct dpe_tensor down;                           /**< [hidden, intermediate] */
    struct dpe_tensor gate_bias, up_bias, down_bias;
};

struct dpe_weights {
    struct dpe_tensor embedding;      /**< [vocab, hidden] */
    struct dpe_layer_weights *layers; /**< [n_layers] */
    struct dpe_tensor final_norm;     /**< [1, hidden] */
    struct dpe_tensor lm_head;        /**< [vocab, hidden]; the embedding itself when tied */
};

/** Open a Hugging Face folder (config.json, model.safetensors or model.safetensors.index.json with
 *  shards, generation_config.json if there). Weights are memory-mapped, bound by meaning, strict on
 *  name, shape and dtype. `options` may be NULL. The caller closes with dpe_model_close.
 *  Errors: DPE_NO_INPUT, DPE_BAD_DATA (file, tensor, expected, found), DPE_NO_MEMORY,
 * DPE_PERMISSION. */
dpe_status dpe_model_open(const char *folder, const struct dpe_model_options *options,
                          struct dpe_model **model, struct dpe_error *err);
/** Close; NULL is allowed. No session of the model may live. */
void dpe_model_close(struct dpe_model *model);
/** Borrowed for the model's life. */
const struct dpe_config *dpe_model_config(const struct dpe_model *model);
/** Borrowed for the model's life; NULL when opened with config_only. */
const struct dpe_weights *dpe_model_weights(const struct dpe_model *model);
/** The folder as given to dpe_model_open. */
const char *dpe_model_folder(const struct dpe_model *model);
/** The bytes of config.json as read, NUL-terminated. */
const char *dpe_model_config_json(const struct dpe_model *model);
/** SHA-256, 64 lower-case hex digits, over config.json and, per shard in name order, name, size and
 *  header bytes, and of its data 256 evenly spaced blocks of 4 KiB (fast) or all bytes (full).
 *  Opened with config_only: over config.json alone, so it
 *  differs from the fingerprint of the same folder with weights. */
const char *dpe_model_fingerprint(const struct dpe_model *model);
/** Check that no mapped shard shrank since it was opened (a shrunken mapping would be a SIGBUS);
 *  DPE_IO names the file. Sessions call it before every prefill. */
dpe_status dpe_model_verify(const struct dpe_model *model, struct dpe_error *err);
/** Number of weights and their bytes on disk, computed from the configuration alone. */
int64_t dpe_config_parameters(const struct dpe_config *config);

/* ------------------------------------------------------------------------------------ tokenizer */

struct dpe_tokenizer;

/** A growable list of token ids; zero-initialise, free with dpe_tokens_free. */
struct dpe_tokens {
    int32_t *ids;
    size_t n, capacity;
};
dpe_status dpe_tokens_append(struct dpe_tokens *tokens, const int32_t *ids, size_t n,
                             struct dpe_error *err);
void dpe_tokens_free(struct dpe_tokens *tokens);

/** A growable byte string, always NUL-terminated once non-empty; zero-initialise, free() bytes. */
struct dpe_text {
    char *bytes;
    size_t n, capacity;
};
dpe_status dpe_text_append(struct dpe_text *text, const char *bytes, size_t n,
                           struct dpe_error *err);
void dpe_text_free(struct dpe_text *text);

/** What to do when the text contains the spelling of a special token. */
enum dpe_special_policy {
    DPE_SPECIAL_ERROR,   /**< refuse, naming the byte offset (default) */
    DPE_SPECIAL_LITERAL, /**< tokenize it like any other text */
    DPE_SPECIAL_PARSE,   /**< make it the special token, as transformers does */
};

struct dpe_encode_options {
    bool add_special; /**< run the file's post_processor (BOS and the like), once; when `special`
                           parses a BOS that the text has itself, both stand there, as in the
                           reference */
    enum dpe_special_policy special;
    bool replace_invalid; /**< invalid UTF-8 → U+FFFD instead of an error with the offset */
};

/** Open tokenizer.json: a folder that holds one, or the file itself. BPE only; an unknown component
 *  is refused by name. The file decides everything, but for its truncation and padding, which are
 *  ignored as transformers does. Reference: the `tokenizers` library, 0.23. Errors: DPE_NO_INPUT,
 * DPE_BAD_DATA, DPE_NO_MEMORY. */
dpe_status dpe_tokenizer_open(const char *path, struct dpe_tokenizer **tokenizer,
                              struct dpe_error *err);
void dpe_tokenizer_close(struct dpe_tokenizer *tokenizer);
/** Append the ids of `text` (n bytes, need not be NUL-terminated, may hold NULs) to `out`.
 *  Thread-safe on one tokenizer. `options` NULL = all defaults (no specials added).
 *  Errors: DPE_BAD_DATA (invalid UTF-8 or special text, with the byte offset), DPE_NO_MEMORY. */
dpe_status dpe_tokenizer_encode(const struct dpe_tokenizer *tokenizer, const char *text, size_t n,
                                const struct dpe_encode_options *options, struct dpe_tokens *out,
                                struct dpe_error *err);
/** Append the text of `ids` to `out`; specials are left out when `skip_special`. An id outside the
 *  vocabulary is DPE_BAD_DATA. Incomplete UTF-8 sequences become U+FFFD as in the reference. */
dpe_status dpe_tokenizer_decode(const struct dpe_tokenizer *tokenizer, const int32_t *ids, size_t n,
                                bool skip_special, struct dpe_text *out, struct dpe_error *err);
/** Largest id + 1 (vocabulary and added tokens). */
int64_t dpe_tokenizer_size(const struct dpe_tokenizer *tokenizer);
/** Id of an exact token (its content, as in tokenizer.json), -1 when there is none. */
int32_t dpe_tokenizer_id(const struct dpe_tokenizer *tokenizer, const char *token);
/** Number of ids that add_special puts before a text (0 or 1 for all supported kinds, or more). */
int dpe_tokenizer_prefix_size(const struct dpe_tokenizer *tokenizer);
/** The file, for messages. */
const char *dpe_tokenizer_path(const struct dpe_tokenizer *tokenizer);
/** SHA-256 over the file's bytes, hex. */
const char *dpe_tokenizer_fingerprint(const struct dpe_tokenizer *tokenizer);

/* ------------------------------------------------------------------------------- position plans */

/** Coordinate map of one band, for one side (query m or key n):
 *      pos_j(x) = min( f( (x mod period) / scale_j ) + offset_j , cap )
 *  f = floor or identity; scale_j = INFINITY makes it the constant offset_j. */
struct dpe_position_map {
    bool floored;
    double period;  /**< INFINITY: none */
    double cap;     /**< INFINITY: none */
    double *scale;  /**< [n_pairs], each ≥ 1 or INFINITY */
    double *offset; /**< [n_pairs] */
};

/** What decides whether (m, n) lies in a band; first band that matches wins, none = masked. */
enum dpe_band_kind {
    DPE_BAND_DISTANCE, /**< lo ≤ m − n < hi */
    DPE_BAND_CHUNK,    /**< lo ≤ ⌊m/chunk⌋ − ⌊n/chunk⌋ < hi */
    DPE_BAND_KEY,      /**< lo ≤ n < hi (sinks) */
};

struct dpe_band {
    enum dpe_band_kind kind;
    int64_t lo, hi; /**< half open, tokens or chunks; hi = INT64_MAX: no end */
    bool per_head;  /**< pairs outside the mask use the first band's maps */
    struct dpe_position_map q, k;
};

enum { DPE_MAX_BANDS = 4 };

enum dpe_angle_precision {
    DPE_ANGLE_F32, /**< float32(position) * float32(inv_freq), as Hugging Face code (default) */
    DPE_ANGLE_F64,
};

/** A position method as data (methods.md, "The struct that holds all of it"). The logit of query m
 *  and key n is  logit_factor * query_factor(m) / sqrt(head_dim) * Σ_j ⟨R(θ_j pq_j(m)) q_j,
 *  R(θ_j pk_j(n)) k_j⟩ with pair j = components (j, j + n_pairs) (half-split). No kernel and no
 *  forward pass knows the name of a method. */
struct dpe_plan {
    char name[256];  /**< the canonical spec it was made from, cut if longer; for people, never
                          decides */
    int64_t n_pairs; /**< head_dim / 2 */
    int64_t n_layers, n_heads;
    double *inv_freq;    /**< θ_j [n_pairs], radians per position; the maps' arrays are in the same
                              block: write into them, don't exchange them */
    double logit_factor; /**< a² of yarn and the like, 1 otherwise */
    double log_n_length; /**< > 0: query factor max(1, ln(m+1)/ln(log_n_length)); 0: off */
    int64_t chunk;       /**< P of DPE_BAND_CHUNK, 0 when no band needs it */
    int n_bands;
    struct dpe_band bands[DPE_MAX_BANDS];
    uint8_t *mask; /**< [n_layers][n_heads][n_pairs], 1 = key pair; NULL = all ones */
    bool exact;    /**< far rel = ⌊(Δ−lo)/s_j⌋ + lo instead of the separable form; reference
                        attention only, DISTANCE bands only */
    enum dpe_angle_precision angle;
};

/** What a method's defaults are computed from. */
struct dpe_plan_context {
    const struct dpe_config *config;
    int64_t trained_length; /**< L0 */
    int64_t length;         /**< L, the evaluated length (prompt + generated) */
    bool official;          /**< switches that official codes carry silently, see methods.md */
    enum dpe_angle_precision angle;
};

/** Make a plan from "name" or "name:key=value,key=value". Lists inside a value are separated by
 *  '/'. Known names: dpe_plan_method. Unknown names and keys are DPE_USAGE and listed.
 *  Frequency methods replace the model's own rope scaling, band methods and `rope` keep it.
 *  *plan is filled and owned by the caller (dpe_plan_free). */
dpe_status dpe_plan_make(const char *spec, const struct dpe_plan_context *context,
                         struct dpe_plan *plan, struct dpe_error *err);
/** Line i of the methods, NULL behind the last: "name<TAB>key=default key=default …<TAB>what it
 * does and its source". */
const char *dpe_plan_method(size_t i);

/** The parameters of DPE (and of Self-Extend, which is DPE with one group and all pairs). */
struct dpe_dpe_params {
    int64_t window;       /**< w, ≥ 1 */
    int n_groups;         /**< C; group g holds pairs [edges[g], edges[g+1]) */
    const int32_t *edges; /**< [n_groups + 1], strictly increasing from 0 to n_pairs */
    const double *scale;  /**< s_g [n_groups], finite, ≥ 1 */
    const uint8_t *mask;  /**< [n_layers][n_heads][n_pairs] or NULL = all pairs; copied */
    bool exact;
};
dpe_status dpe_plan_make_dpe(const struct dpe_dpe_params *params,
                             const struct dpe_plan_context *context, struct dpe_plan *plan,
                             struct dpe_error *err);
/** Equal ranges of pairs: edges[g] = ⌊g·n_pairs/n_groups⌋, [n_groups + 1]. DPE_USAGE when n_groups
 *  is not in 1..n_pairs. */
dpe_status dpe_plan_group_edges(int64_t n_pairs, int n_groups, int32_t *edges,
                                struct dpe_error *err);

/** An empty plan with zeroed bands and allocated arrays ([n_pairs] maps with scale 1, offset 0,
 *  period and cap infinite), for filling by hand. */
dpe_status dpe_plan_init(struct dpe_plan *plan, int64_t n_pairs, int64_t n_layers, int64_t n_heads,
                         struct dpe_error *err);
dpe_status dpe_plan_copy(struct dpe_plan *to, const struct dpe_plan *from, struct dpe_error *err);
void dpe_plan_free(struct dpe_plan *plan);
/** Structural check: finite, positive, bands within limits, exact only where allowed. */
dpe_status dpe_plan_check(const struct dpe_plan *plan, struct dpe_error *err);
/** SHA-256 of the plan's meaning (not of its name), 32 bytes; equal plans have equal digests.
 *  DPE_NO_MEMORY is the only error. */
dpe_status dpe_plan_digest(const struct dpe_plan *plan, uint8_t digest[32], struct dpe_error *err);
/** The name of a plan in results: the first 16 bytes of its digest in hex. */
dpe_status dpe_plan_key(const struct dpe_plan *plan, char key[33], struct dpe_error *err);

/** The oracle: band index of (m, n), -1 when masked (n > m is always masked), and if ≥ 0 the
 * effective positions of pair j. Everything else that computes positions is tested against this. */
int dpe_plan_band(const struct dpe_plan *plan, int64_t m, int64_t n);
struct dpe_rel {
    int band;      /**< -1 = masked; then the rest is 0 */
    double pq, pk; /**< pq_j(m), pk_j(n) */
    double rel;    /**< pq − pk, or the exact form when plan->exact */
};
struct dpe_rel dpe_plan_position(const struct dpe_plan *plan, int64_t layer, int64_t head,
                                 int64_t pair, int64_t m, int64_t n);
/** The factor on all logits of query m: logit_factor * query factor / sqrt(head_dim). */
double dpe_plan_query_scale(const struct dpe_plan *plan, int64_t m);

/** Native frequencies and attention factor of a checkpoint (rope, linear, dynamic, yarn, longrope,
 *  llama3) for an evaluated length: inv_freq [head_dim/2]; *attention_factor is a (logits × a²).
 *  Source: transformers' modeling_rope_utils. */
dpe_status dpe_rope_native(const struct dpe_config *config, int64_t length, double *inv_freq,
                           double *attention_factor, struct dpe_error *err);

/* --------------------------------------------------------------------------------------- session
 */

struct dpe_session;

/** Called once per layer and prefill chunk with q and k before rotation (after bias).
 *  q [rows][n_heads][head_dim], k [rows][n_kv_heads][head_dim], rows start at position `start`;
 *  those of all heads, with peers too.
 *  Borrowed for the call. Return non-zero to stop the prefill with that status. */
typedef dpe_status (*dpe_tap)(void *user, int64_t layer, int64_t start, int64_t rows,
                              const float *q, const float *k, struct dpe_error *err);

enum { DPE_MAX_BRANCHES = 4096 };

/** The processes that hold one model together (tensor parallel), as one of them sees them. Process
 *  `index` of `size` has the index-th share of the heads and of the columns of the MLP of every
 *  layer, and all of the embedding, the norms and the LM head. They make the same calls in the same
 *  order on sessions of the same options: dpe_session_create and whatever runs tokens are meetings
 *  of all of them, and end with the same status everywhere. Who implements this knows how bytes
 *  get from one process to another; the engine does not. */
struct dpe_peers {
    int index, size;
    void *user;
    /** Wait for all. x [n] becomes the sum of everybody's x in the order of their indices, with
     *  the same bits everywhere; n = 0: nothing to sum. When the `status` that somebody brings is
     *  not DPE_OK nothing is summed, and all return that of the lowest such index with its message;
     *  who brings a failure need not know the n of the others. A process that has gone or does not
     *  come is the implementation's business: it may end the job. */
    dpe_status (*meet)(void *user, float *x, int64_t n, dpe_status status, struct dpe_error *err);
    /** The n bytes of index 0 become everybody's. */
    dpe_status (*share)(void *user, void *bytes, size_t n, struct dpe_error *err);
};

/** What those who ask for a session can change when it does not fit into memory, as they call it
 *  ("--length"), for refusals. NULL: nothing of the kind; a name may be a list, "prompt,
 * --max-new".
 */
struct dpe_session_knobs {
    const char *length, *chunk, *branches; /**< less of them needs less */
    const char *peers;                     /**< more of them need less each */
    const char *max_memory;                /**< what max_memory came from */
};

struct dpe_session_options {
    const char *device;    /**< "cpu" (default when NULL), "reference", "cuda", "cuda:N", "auto" */
    int n_threads;         /**< 0 = all cores of this process */
    int64_t capacity;      /**< most tokens the KV cache holds; required, ≥ 1 */
    int64_t positions;     /**< most tokens of one sequence, ≤ capacity; 0 = capacity. Less only
                                makes sense with branches: tables and workspace are as long */
    int64_t branches;      /**< most branches, ≤ DPE_MAX_BRANCHES; 0 = 1 */
    int64_t prefill_chunk; /**< rows of a chunk, on a fixed grid from position 0; 0 = default, on
                                a device with too little memory for that halved until it fits */
    uint64_t max_memory;   /**< bytes the session may use; 0 = what is free on this machine */
    double patience;       /**< seconds after which a device that does not answer is given up as one
                                that failed; 0 = never */
    const struct dpe_peers *peers;  /**< who holds the rest of the model, borrowed for the session's
                                         life; NULL: all of it is here. An estimate looks at index
                                         and size alone */
    struct dpe_session_knobs knobs; /**< names borrowed for the session's life; all NULL: those of
                                         these fields */
};

/** What a device name comes to on this machine: "auto" becomes "cuda" when a CUDA device can be
 * used and "cpu" else, NULL becomes "cpu", other names stay as they are. For "cuda" and "cuda:N"
 *  DPE_NO_DEVICE says why there is none (no module, no driver, too old a one, no device). *resolved
 *  is a constant or `device` itself. */
dpe_status dpe_device_resolve(const char *device, const char **resolved, struct dpe_error *err);
/** What a device is, as far as it is told without being used. */
struct dpe_device_info {
    char kind[16];   /**< "cpu", "reference", "cuda"; which one of a kind decides no result */
    char name[256];  /**< "NVIDIA H200"; "" for the processors of this machine */
    char driver[16]; /**< newest CUDA version that the driver knows, "13.0"; "" without one */
    char id[64];     /**< the same for two processes that use the same device of a machine */
    int count;       /**< devices of the kind on this machine */
};
/** As dpe_device_resolve; NULL is "cpu". */
dpe_status dpe_device_describe(const char *device, struct dpe_device_info *info,
                               struct dpe_error *err);
/** Bytes that sessions on a device can still get; UINT64_MAX when that is not known. */
uint64_t dpe_device_memory(const char *device);
/** What weights, activations and the cache of a model are held in on a device; sums are float. */
enum dpe_dtype dpe_device_dtype(const char *device, const struct dpe_config *config);
/** Bytes that a session of this model, capacity and plan will allocate (weights mapped from disk
 * are counted apart, in *weights: those that this process uses). Allocates nothing. */
dpe_status dpe_session_estimate(const struct dpe_config *config, const struct dpe_plan *plan,
                                const struct dpe_session_options *options, uint64_t *bytes,
                                uint64_t *weights, struct dpe_error *err);
/** Estimates first and refuses with DPE_NO_MEMORY (needed, free, the knobs that change it), then
 *  allocates everything once. The plan (of the whole model, with peers too) is copied.
 *  DPE_NO_DEVICE when the backend does not support this model or plan, or when the device does not
 *  compute what the processors do: the first session of a process on a device tests that on a small
 *  model of the same kind (DPE_DEVICE_SELF_TEST in the environment: "off", or the
 *  tokens of its prefill). DPE_USAGE when the heads cannot be shared among so many peers. */
dpe_status dpe_session_create(const struct dpe_model *model, const struct dpe_plan *plan,
                              const struct dpe_session_options *options,
                              struct dpe_session **session, struct dpe_error *err);
void dpe_session_destroy(struct dpe_session *session);
/** Exchange the plan; empties the cache (hidden states depend on the plan). A plan that is refused
 *  (DPE_USAGE, DPE_NO_DEVICE, over max_memory) changes nothing; when memory runs out while its
 *  tables are made, the session has no plan until the next call succeeds. */
dpe_status dpe_session_set_plan(struct dpe_session *session, const struct dpe_plan *plan,
                                struct dpe_error *err);
void dpe_session_set_tap(struct dpe_session *session, dpe_tap tap, void *user);
/** Sums over tokens of the 2-norms of the pairs of q and k before rotation, which a session adds to
 *  by itself: no q and k leave the device. Zeroed by the caller, who keeps them alive. */
struct dpe_norm_sums {
    bool products; /**< of ‖q^(j)‖·‖k^(j)‖ (in q alone, k NULL), else of each */
    double *q;     /**< [n_layers][n_heads][n_pairs] */
    double *k;     /**< [n_layers][n_kv_heads][n_pairs] */
    int64_t *rows; /**< [n_layers] tokens that were added */
};
/** Add to these sums from now on, NULL: to none. False where the backend cannot, or several
 *  processes hold the model; a tap can. */
bool dpe_session_set_norm_sums(struct dpe_session *session, const struct dpe_norm_sums *sums);
/** Asked before every layer of every chunk or token, NULL = nobody; anything but DPE_OK stops the
 *  call with that status. It costs nothing besides itself, where a tap has q and k brought along.
 */
typedef dpe_status (*dpe_poll)(void *user, struct dpe_error *err);
void dpe_session_set_poll(struct dpe_session *session, dpe_poll poll, void *user);

/** Tokens of the (first) sequence in the cache. */
int64_t dpe_session_length(const struct dpe_session *session);
/** Rows of a prefill chunk. What is promised: the same calls give the same bits, for any number of
 *  threads; however tokens are cut into calls, results agree to rounding; and they agree bit for
 *  bit when the cuts are at multiples of this chunk. So to reuse a prefix bit for bit, cut the
 * cache to the multiple at or below the end of what is common and feed from there. */
int64_t dpe_session_chunk(const struct dpe_session *session);
/** The chunk there would be on a device with more memory; dpe_session_chunk where none is missing.
 */
int64_t dpe_session_full_chunk(const struct dpe_session *session);
/** How many leading ones of these tokens the cache holds at its beginning (of branches, their
 * common prefix): what a cut to at most that many tokens keeps for a prompt that begins like an
 * earlier one. */
int64_t dpe_session_common(const struct dpe_session *session, const int32_t *tokens, int64_t n);
/** Cut the cache back to its first `keep` tokens (0 ≤ keep ≤ length) and end branching: with
 *  several branches only the common prefix can be kept (keep ≤ prefix, else DPE_USAGE). */
dpe_status dpe_session_cut(struct dpe_session *session, int64_t keep, struct dpe_error *err);
/** Run tokens after those in the cache (of branch 0, when there are several). `logits` [vocab] of
 *  the last token, or NULL: then the LM head does not run at all. DPE_USAGE when the cache is full;
 * DPE_BAD_DATA on an id outside the vocabulary; DPE_NONFINITE with layer and position. On failure
 * the cache is cut back to where it was. */
dpe_status dpe_session_feed(struct dpe_session *session, const int32_t *tokens, int64_t n,
                            float *logits, struct dpe_error *err);
/** Run tokens like dpe_session_feed and write nll[i] = −ln p(tokens[i+1] | … tokens[i]) in nats for
 *  i = 0 … n−2 (the log-sum-exp is computed in double; LM head in row blocks, never vocab × n at
 * once). n ≥ 2. On failure `nll` may be partly written. */
dpe_status dpe_session_nll(struct dpe_session *session, const int32_t *tokens, int64_t n,
                           double *nll, struct dpe_error *err);

/* Branches. Several continuations of one cached context (questions about a text), or several texts
 * with nothing in common (a prefix of 0 tokens), are decoded together as one batch: a weight is
 * read once for all of them. A session without branches is the case n = 1, prefix 0, room =
 * capacity, and everything above is about its one branch.
 *
 * The cache holds a common prefix of P tokens in rows 0 … P−1; the own tokens of branch b stand at
 * positions P, P+1, … and lie in rows P + b·room … P + (b+1)·room − 1. A query of branch b sees the
 * prefix and its own branch, nothing else. What a branch computes agrees to rounding with what a
 * session would that was fed the prefix and that branch alone, and does not depend on what the
 * other branches hold. */

/** Make what is in the cache (0 tokens or more) the common prefix of `n` empty branches of at most
 *  `room` own tokens each. DPE_USAGE when n exceeds dpe_session_options.branches, when P + room
 *  exceeds its positions or P + n·room its capacity, or when there are several branches already
 *  (dpe_session_cut ends them). */
dpe_status dpe_session_branch(struct dpe_session *session, int64_t n, int64_t room,
                              struct dpe_error *err);
/** Branches there are, ≥ 1. */
int64_t dpe_session_branches(const struct dpe_session *session);
/** Tokens of one branch, the prefix included; 0 ≤ branch < dpe_session_branches. */
int64_t dpe_session_branch_length(const struct dpe_session *session, int64_t branch);
/** dpe_session_feed to one branch: many tokens at once, like a prefill. */
dpe_status dpe_session_branch_feed(struct dpe_session *session, int64_t branch,
                                   const int32_t *tokens, int64_t n, float *logits,
                                   struct dpe_error *err);
/** What a session can hold: its options, resolved. */
struct dpe_session_limits {
    int64_t capacity, positions, branches;
    int64_t chunk; /**< dpe_session_chunk */
};
struct dpe_session_limits dpe_session_limits(const struct dpe_session *session);

/** What the session has computed since it was made. */
struct dpe_session_work {
    int64_t fed;     /**< tokens that went through the layers many at a time: prompts, texts */
    int64_t decoded; /**< tokens that did so one of a branch at a time */
    int64_t steps;   /**< passes that these took */
};
struct dpe_session_work dpe_session_work(const struct dpe_session *session);

/** One token to each of n different branches, as one batch: tokens[i] goes to branches[i], and
 *  logits [n][vocab] (or NULL: none are computed) are those behind it. Errors as dpe_session_feed;
 *  a failure of one branch (DPE_NONFINITE) is one of all, and no branch has grown. */
dpe_status dpe_session_step(struct dpe_session *session, int64_t n, const int64_t *branches,
                            const int32_t *tokens, float *logits, struct dpe_error *err);

/** Asked after every generated token with all of them so far; true stops. */
typedef bool (*dpe_stop)(void *user, const int32_t *generated, size_t n);

struct dpe_generate_options {
    int64_t max_new;
    dpe_stop stop; /**< NULL: only end of sequence and max_new */
    void *user;
    bool ignore_eos;
};
/** Greedy: feed the prompt, then append argmax tokens (ties to the lower id) to `out` until
 *  an end-of-sequence id of the model (not appended), `stop`, or max_new. The cache must have room
 *  for the prompt (n ≥ 1) and max_new − 1 tokens; afterwards it holds the prompt and the new tokens
 *  but the last. On failure `out` may hold some of them. */
dpe_status dpe_session_generate(struct dpe_session *session, const int32_t *prompt, int64_t n,
                                const struct dpe_generate_options *options, struct dpe_tokens *out,
                                struct dpe_error *err);

/** One of the sequences that dpe_session_generate_branches continues. */
struct dpe_continuation {
    const int32_t *prompt; /**< [n], fed behind what the branch has; n ≥ 1 */
    int64_t n;
    struct dpe_generate_options options;
    struct dpe_tokens *out; /**< new tokens are appended; no two share one */
};
/** dpe_session_generate for all branches at once, item b in branch b: prompts are fed one after
 *  another, then every step generates one token of each branch that has not ended. Each gets what
 *  dpe_session_generate would give it alone, up to rounding. n = dpe_session_branches. On failure
 *  the outputs may hold some tokens. */
dpe_status dpe_session_generate_branches(struct dpe_session *session,
                                         const struct dpe_continuation *items, int64_t n,
                                         struct dpe_error *err);

/** Bytes of memory this process can still get: what the machine has available, or what is left of
 *  the container's limit if that is less. UINT64_MAX when neither can be read. */
uint64_t dpe_memory_available(void);

/** Floating-point operations of a prefill of `length` tokens after `start` cached ones (multiply
 * and add count 2 each): matrix products and attention apart; the LM head on `logit_rows` rows. An
 * upper bound: what the last layer computes only for rows that are looked at is counted in full. */
void dpe_config_flops(const struct dpe_config *config, int64_t start, int64_t length,
                      int64_t logit_rows, double *products, double *attention);

/* ------------------------------------------------------------------------------------------ misc
 */

/** SHA-256 in pieces (libcrypto behind it); hex has 64 digits and a NUL. */
struct dpe_sha256;
struct dpe_sha256 *dpe_sha256_new(void);
void dpe_sha256_add(struct dpe_sha256 *hash, const void *bytes, size_t n);
/** Finishes and frees. */
void dpe_sha256_finish(struct dpe_sha256 *hash, char hex[65]);

/** Seeded generator with the same stream on every platform (PCG-XSH-RR 64/32 state, own seeding by
 *  splitmix64). Everything random in the project is drawn from one of these. */
struct dpe_rng {
    uint64_t state, increment;
};
void dpe_rng_seed(struct dpe_rng *rng, uint64_t seed, uint64_t stream);
uint32_t dpe_rng_u32(struct dpe_rng *rng);
/** Uniform in [0, n), unbiased; n ≥ 1. */
uint32_t dpe_rng_below(struct dpe_rng *rng, uint32_t n);
/** Uniform in [0, 1), 53 bits. */
double dpe_rng_unit(struct dpe_rng *rng);

/** Whole file into memory, NUL-terminated behind its end (not counted in *n). Regular files only,
 * at most max_bytes. Errors: DPE_NO_INPUT, DPE_PERMISSION, DPE_BAD_DATA (too large), DPE_IO,
 * DPE_NO_MEMORY. */
dpe_status dpe_read_file(const char *path, uint64_t max_bytes, char **bytes, size_t *n,
                         struct dpe_error *err);
/** Offset of the first byte that is not valid UTF-8 (overlong, surrogate, > U+10FFFF included), n
 * if all is. */
size_t dpe_utf8_check(const char *bytes, size_t n);

/** `text` for a terminal or a log, cut to `size` bytes with the NUL: what is no printable UTF-8 (a
 *  control character, an escape sequence's first byte, a newline, text direction, a byte of another
 *  encoding) becomes \xNN. Returns `out`. Texts of files, paths and host names go through it. */
const char *dpe_printable(const char *text, char *out, size_t size);

/** "dpe 0.1.0 (git abc123)". */
const char *dpe_version(void);

#ifdef __cplusplus
}
#endif
#endif
