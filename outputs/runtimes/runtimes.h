/**
 * @file runtimes.h
 * What other runtimes make of the rotation in a config.json or GGUF file. Each runtime is a row of
 * data: one reading of a rotation (dpe_rope_compute), and the rules by which the runtime departs
 * from it. A new version is a new row. Where a row's truth comes from stands in it.
 */
#ifndef DPE_RUNTIMES_H
#define DPE_RUNTIMES_H

#include "engine/base/base.h"

/** What a runtime does with the type "dynamic". */
enum dpe_runtime_dynamic {
    DPE_DYNAMIC_GROWS, /**< the base grows with the text, from max_position_embeddings on */
    DPE_DYNAMIC_FULL,  /**< as for a text of factor times max_position_embeddings, always */
    DPE_DYNAMIC_FLAT,  /**< not at all: the base is that of a short text */
};

/** Where a runtime finds how queries grow with their position. */
enum dpe_runtime_growth {
    DPE_GROWTH_NONE,
    DPE_GROWTH_BLOCK, /**< llama_4_scaling_beta of a ministral3's block, from its original length on
                       */
    DPE_GROWTH_OUTER, /**< the same beta, from the original length beside the block on, or 16384 */
    DPE_GROWTH_YARN,  /**< as BLOCK, of every model with yarn; the logit factor is 1 then */
    DPE_GROWTH_OWN, /**< llama_4_scaling beside the block: beta, original_max_position_embeddings */
};

/** The longest text. */
enum dpe_runtime_longest {
    DPE_LONGEST_ANY,
    DPE_LONGEST_VLLM,   /**< the declared length, longer by the factor of some types, and no more
                             positions than its table of cosines has */
    DPE_LONGEST_SGLANG, /**< the declared length, longer by the factor of a block without an
                             original length */
};

/** A runtime of some versions. What is false or NULL is as transformers 5 has it; its row is the
 *  first. */
struct dpe_runtime {
    const char *name, *versions;
    const char *known_by;  /**< "imported": it ran; else what was read, and when */
    const char *adapter;   /**< what makes it apply a DPE table, NULL: nothing does */
    bool older;            /**< a version that another row follows */
    bool reads_gguf;       /**< GGUF is its own format */
    const char *types;     /**< the rope types that it knows, each between two spaces */
    bool unknown_plain;    /**< other types are left out; else refused */
    const char *no_models; /**< model types that it does not know, of those that have a rule here;
                              each between two spaces, NULL: none */
    /* Where it looks. */
    bool new_block_first;    /**< rope_parameters before rope_scaling */
    bool old_block_alone;    /**< rope_scaling alone */
    bool block_by_model;     /**< which of them, and the base without one (runtime_read.c) */
    bool outer_base_first;   /**< rope_theta outside before that in rope_parameters */
    bool inner_length_first; /**< the original length in the block before that outside */
    bool class_defaults; /**< the class of a model type has a base, a block and a length of its own
                          */
    bool old_type_first; /**< "type" before "rope_type" */
    bool types_agree;    /**< refuses two types that differ */
    bool phi3_names;     /**< a phi3's "su" and "yarn" are longrope */
    bool phi3_of_three;  /**< a phi3's block has three members and no more */
    bool fills_in; /**< llama3 and yarn without their numbers have those of Llama 3.1 and 4096 */
    /* yarn */
    bool no_attention_factor; /**< leaves out attention_factor */
    bool no_mscales;          /**< leaves out mscale and mscale_all_dim */
    bool mscale_each;         /**< takes each of them alone; absent they are 1 and 0 */
    bool attn_factor;         /**< multiplies by attn_factor */
    bool no_truncate;         /**< leaves out truncate */
    bool ratio;               /**< the ratio of the two lengths replaces factor */
    bool null_refused;        /**< factor: null is refused; else the ratio takes its place */
    /* longrope */
    bool mscales;       /**< takes short_mscale and long_mscale */
    bool of_lengths;    /**< else the formula of the two lengths, not attention_factor and factor */
    bool long_always;   /**< the long list at every length */
    bool long_at_start; /**< which list is decided once, by the longest text that it serves */
    bool long_by_model; /**< which list is decided once, by max_position_embeddings */
    bool lists_of_phi3; /**< lists of no other model type are read */
    bool outer_length_alone; /**< the original length outside the block, else
                                max_position_embeddings */
    /* others */
    enum dpe_runtime_dynamic dynamic;
    bool alpha;        /**< dynamic with alpha: a base for all lengths */
    bool proportional; /**< leaves out the factor of proportional */
    enum dpe_runtime_growth growth;
    enum dpe_runtime_longest longest;
};

enum { DPE_READING_NOTES = 8, DPE_READING_TEXT = 224 };

/** What a runtime computes for a text of some length. */
struct dpe_reading {
    const struct dpe_runtime *runtime;
    char refused[DPE_READING_TEXT]; /**< why it does not run such a model; "": it does */
    char type[32];                  /**< the formula that it applies */
    double base;
    double factor;         /**< of cosines and sines; logits are multiplied by its square */
    double longest;        /**< tokens; INFINITY: it does not ask */
    int64_t switch_length; /**< texts longer than this rotate in another way; 0: none do */
    bool at_start;         /**< which of the two is decided when it starts */
    double growth,
        growth_length; /**< queries at position p times 1 + growth ln(1 + floor(p/length)) */
    char notes[DPE_READING_NOTES][DPE_READING_TEXT]; /**< where it departs, and why */
    int n_notes;
    double *inv_freq; /**< [n_pairs] radians a token, 0 for pairs that do not rotate */
    int kind;         /**< readings with the same numbers have the same, from 0 on */
};

enum { DPE_READING_ALL_NOTES = DPE_READING_NOTES * (DPE_READING_TEXT + 2) };
/** The notes of a reading, joined by semicolons. Returns the buffer. */
const char *dpe_reading_notes(const struct dpe_reading *reading, char text[DPE_READING_ALL_NOTES]);

/** The readings of one configuration. */
struct dpe_readings {
    int n;
    struct dpe_reading *of; /**< [n] */
    double *numbers;        /**< what inv_freq points into */
    int64_t n_pairs, length;
    int n_kinds;
    bool agree; /**< one kind, and none refuses the model; one may take shorter texts alone */
    bool gguf;
    char unknown[80]; /**< the model_type that is no family here, so that what the file leaves out
                         has general values: base 10000, whole heads, no scaling; "" else */
};

/** The readings of a folder, a config.json or a GGUF file, no weights needed, for a text of
 * `length` tokens (0: max_position_embeddings). `which`: "current", "all", or names joined by
 * commas; `trained`: max_position_embeddings where neither the file nor its class has one, 0: an
 * error. Free with dpe_readings_free, also after a failure. Errors: DPE_USAGE for a name that no
 * row has, DPE_NO_INPUT, DPE_BAD_DATA for a file that is no configuration with attention heads,
 *  DPE_NO_MEMORY. What a runtime refuses is a reading, not an error. */
dpe_status dpe_readings_open(const char *path, const char *which, int64_t trained, int64_t length,
                             struct dpe_readings *readings, struct dpe_error *err);
/** The same of the text of a config.json; `file` is for messages. */
dpe_status dpe_readings_make(const char *file, const char *json, size_t n, const char *which,
                             int64_t trained, int64_t length, struct dpe_readings *readings,
                             struct dpe_error *err);
void dpe_readings_free(struct dpe_readings *readings);
struct dpe_model;
enum { DPE_RUNTIMES_DIFFER = 512 };
/** The current runtimes that compute another rotation than dpe's engine does of a folder, for a
 * short text or one of four times max_position_embeddings, and the first one's reason, in one line;
 * "": none, and for a GGUF file. Returns the buffer. */
const char *dpe_runtimes_differ(const struct dpe_model *model, char text[DPE_RUNTIMES_DIFFER]);

#endif
