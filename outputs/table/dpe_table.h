/**
 * @file dpe_table.h
 * Reading a DPE table in any runtime. Needs HDF5 (and jansson for the JSON form), nothing else of
 * this project; C and C++.
 *
 *     struct dpe_table *table;
 *     char why[DPE_TABLE_MESSAGE];
 *     if (dpe_table_open("TABLE.h5", &table, why) != 0) { … print `why` … }
 *     const struct dpe_table *entry = dpe_table_choose(table, prompt_tokens + new_tokens);
 *     if (entry == NULL) { … run the model as it is … } else {
 *         dpe_table_cos_sin(entry, layer, head, DPE_TABLE_FAR, DPE_TABLE_KEY, 0, 4096, cos, sin); }
 *     dpe_table_close(table);
 *
 * A table has one entry, or several for one model, each made for another length (a *ladder*). The
 * entry is chosen once for a text, from the tokens of its prompt and of what may be generated, and
 * stays to the end of the text: keys that were cached under one entry do not fit another. A text of
 * at most the trained length needs no entry: the model is run unchanged, also when the table has
 * only one. Between two lengths the larger entry is used. Beyond the largest it is used too, but
 * such distances were not measured.
 *
 * What a runtime does with it. For query m and key n (token positions, n ≤ m): when m − n < window
 * the pair is *near* and both are rotated at their true positions; otherwise it is *far*, and each
 * pair of dimensions j that is a key pair of its query head is rotated at query:  floor(m / s_j) +
 * window − floor(window / s_j)        key:  floor(n / s_j) with s_j the scale of j's group; the
 * other pairs keep true positions. The logits of query m are multiplied by dpe_table_query_scale:
 *
 *     attention_scaling² · logit_scale · D(l) · f(m) / sqrt(head_dim),
 *     f(m) = max(1, ln(m + 1) / ln N)^G    with N = log_n_length, G = log_n_power; 1 when N is 0,
 *     D(l) = (1 − t)² first + 2 t (1 − t) middle + t² last    in layer l of n, with t = l / (n − 1)
 * and the three logit_scale_…; 1 where they are 1.
 *
 * What the pairs contribute whose positions are a far query's is multiplied by far_scale F besides:
 * dpe_table_cos_sin has it in the cosines and sines of queries. (Key pairs alone where these are by
 * head; in a table with `bands` every band but the first.)
 *
 * With a log_n_decay B > 0, 1 − x^−B takes the place of ln x on both sides. m is the query's
 * position in its text, whatever the call that computes it holds. A static inv_freq cannot express
 * this: without an adapter that does the above the table must not be applied.
 *
 * A table of *frequencies* is of another kind: the scales divide
 * the frequencies of their groups at every distance, nothing is near or rounded, f is 1. A runtime
 * needs no adapter for it, only a factor for each pair and one for the logits.
 *
 * A table can also hold the plan of another method, where that one is shown to be better: of Leaky
 * ReRoPE `unrounded`, which leaves out every floor above; of YaRN, NTK, PI and the like
 * `applied_inv_freq`, by which the pairs rotate in near and in far positions.
 *
 * Any other plan of bands and position maps (LaMPE, DCA, STRING, ReRoPE, Jet-Long, SELF,
 * StreamingLLM …) is a table with `bands` in place of window and scales. Query m meets key n in the
 * first band whose range holds what the band goes by: m − n, floor(m / chunk) − floor(n / chunk),
 * or n. Where there is none, m does not see n. There a token at x is rotated, for pair j, at
 *
 *     min(f((g(x) mod period) / scale_j) + offset_j, cap)
 *
 * by the band's map for queries or that for keys, or where the band is by head and j is no key pair
 * of the query head by those of the first band: f is floor or nothing, a scale of 0 leaves
 * offset_j alone, and g(x) = x, or where group_most C is not 0 the number of x's group: from
 * group_from on, group i (0, 1, …) has floor(C / (1 + (C − 1) exp(−group_rate i))) tokens, at most
 * C − 1; earlier tokens are in group 0.
 *
 * A table with a `selection` holds the keys of the method `select` (dpe-run --method help): which
 * keys a query meets besides. This library does not apply it, and no adapter does.
 *
 * Tables of an earlier major schema version (DPE_TABLE_SCHEMA), from before the first release, are
 * refused; the message has the command that makes them again.
 *
 * Functions return 0, or one of enum dpe_table_error with a sentence in `message` (NULL allowed).
 * A table is immutable once opened and may be used by many threads.
 */
#ifndef DPE_TABLE_H
#define DPE_TABLE_H

#include <stddef.h>
#include <stdint.h>

/** The schema version of every table that is written. Tables of the same major are read, and what a
 * larger minor adds is ignored: it changes no number that a model computes. */
#define DPE_TABLE_SCHEMA "9.0.0"

#ifdef __cplusplus
extern "C" {
#endif

enum { DPE_TABLE_MESSAGE = 512, DPE_TABLE_ENTRIES = 64 };

enum dpe_table_error {
    DPE_TABLE_OK = 0,
    DPE_TABLE_NO_FILE = 1,  /**< cannot be opened */
    DPE_TABLE_BAD_FILE = 2, /**< not a table, damaged, or a value that makes no sense */
    DPE_TABLE_VERSION = 3,  /**< a schema version or convention this library does not support */
    DPE_TABLE_MEMORY = 4,
};

/** The contents of a table; arrays belong to the table. */
struct dpe_table_values {
    char *schema_version;    /**< of the file, "MAJOR.MINOR.PATCH" */
    char *model_type;        /**< "llama", "mistral", "qwen2" */
    char *model_fingerprint; /**< SHA-256, hex: of the model the table was measured on */
    int64_t n_layers, n_heads, n_kv_heads;
    int64_t head_dim, n_pairs; /**< n_pairs = head_dim / 2 */
    int64_t trained_length;    /**< L0, tokens */
    int64_t length;            /**< L, tokens: what the scales were chosen for */
    int frequencies;           /**< 1: the scales divide frequencies at every distance; 0: they
                                    divide far positions (DPE) */
    int64_t window;            /**< near is m − n < window; 0 with `frequencies` */
    int64_t top_k;             /**< key pairs of each head; n_pairs = all */
    int64_t n_groups;
    int32_t *group_edge;      /**< [n_groups + 1], 0 … n_pairs, increasing */
    double *effective_length; /**< [n_groups], tokens; −1: none was found */
    double *scale_factor;     /**< [n_groups], ≥ 1 */
    double *inv_freq;         /**< [n_pairs], radians per position, native scaling applied; 0: the
                                   pair does not rotate (such pairs come last) */
    double *applied_inv_freq; /**< [n_pairs], what the pairs rotate by instead; NULL: inv_freq */
    int unrounded;            /**< 1: far positions are m/s + window − window/s and n/s, real
                                   numbers; 0: with floor */
    double attention_scaling; /**< a of the model; logits are multiplied by a² */
    double logit_scale;       /**< factor on all logits besides, > 0; 1: none */
    double far_scale;         /**< F > 0 */
    double logit_scale_first; /**< of D, each > 0 */
    double logit_scale_middle;
    double logit_scale_last;
    double *head_scale;  /**< H [n_layers][n_heads], > 0; NULL: all 1 */
    double log_n_length; /**< N > 1, tokens; 0: f is 1 */
    double log_n_power;  /**< G in (0, 64]; 1 when log_n_length is 0 */
    double log_n_decay;  /**< B in [0, 64]; 0: the logarithm itself */
    uint8_t *mask;       /**< [n_layers][n_heads][n_pairs], 1 = key pair; of each head as many as
                              top_k, with bands at most */
    int64_t n_bands;     /**< 0: the two of window and scale_factor; else these, every scale 1,
                              and a window that says nothing */
    double *bands;       /**< [n_bands][2: query, key][DPE_TABLE_BAND_NUMBERS + 2 n_pairs]: numbers
                              by enum dpe_table_band_number (the first five alike for both
                              sides), then scale_j [n_pairs] and offset_j [n_pairs]; NULL: none */
    char *selection;     /**< "k=8,block=64": a query meets chosen keys alone; NULL: all */
    char *evidence_task; /**< what was measured under this entry, "needles: 4 keys of 4 values" or
                              "perplexity"; NULL: nothing, and the numbers below are 0 */
    double evidence_score;              /**< share of the needles that was found, or perplexity */
    double evidence_low, evidence_high; /**< its 95 % interval; −1: none */
    int64_t evidence_samples;
    double evidence_unchanged;   /**< the same of the model as it is; −1: not known */
    double evidence_possible;    /**< and at the trained length; −1: not known */
    char *evidence_rival;        /**< the best other method; "none" */
    double evidence_rival_score; /**< the same of it; −1: none */
    double evidence_short_loss; /**< nats per token that a text up to the trained length loses; −1:
                                   not known */
    int64_t evidence_tokens;    /**< of all prompts that the detection read; 0: not known */
};

enum { DPE_TABLE_MOST_BANDS = 4 };
/** The numbers of a band's row before its scales. */
enum dpe_table_band_number {
    DPE_TABLE_BAND_BY,        /**< 0: m − n, 1: the chunks' difference, 2: n */
    DPE_TABLE_BAND_LOW,       /**< the range is low ≤ x < high */
    DPE_TABLE_BAND_HIGH,      /**< 0: no end */
    DPE_TABLE_BAND_CHUNK,     /**< tokens, where the band goes by chunks; else 0 */
    DPE_TABLE_BAND_HEADS,     /**< 1: pairs that are no key pairs of a head have the first band's
                                   maps; else 0 */
    DPE_TABLE_MAP_FLOOR,      /**< 1: f is floor */
    DPE_TABLE_MAP_PERIOD,     /**< tokens; 0: none */
    DPE_TABLE_MAP_CAP,        /**< > 0; 0: none */
    DPE_TABLE_MAP_GROUP_MOST, /**< C; 0: no groups */
    DPE_TABLE_MAP_GROUP_RATE,
    DPE_TABLE_MAP_GROUP_FROM,
    DPE_TABLE_BAND_NUMBERS,
};

struct dpe_table;

/** Open TABLE.h5 or its JSON form (recognised by content) and check all of it: version, shapes,
 * NaN, scales ≥ 1, edges, mask counts against top_k, and that several entries are of one model and
 * have the same groups. *table is owned by the caller. */
int dpe_table_open(const char *path, struct dpe_table **table, char *message);
/** The same, but an HDF5 file without the checksum at its end (another program wrote it) is read as
 *  well, where dpe_table_open returns DPE_TABLE_BAD_FILE: libhdf5 1.10 may crash on a damaged one.
 */
int dpe_table_open_unchecked(const char *path, struct dpe_table **table, char *message);
/** The same of a text in memory in the JSON form; `name` is for messages. */
int dpe_table_parse(const char *name, const char *bytes, size_t n, struct dpe_table **table,
                    char *message);
/** The table in the JSON form: a text that the caller frees; NULL: out of memory. */
char *dpe_table_json(const struct dpe_table *table);
/** NULL is allowed. */
void dpe_table_close(struct dpe_table *table);

/** Number of entries, 1 … DPE_TABLE_ENTRIES. */
int64_t dpe_table_count(const struct dpe_table *table);
/** Entry i, by increasing length, as a table of one entry; borrowed for the table's life. */
const struct dpe_table *dpe_table_entry(const struct dpe_table *table, int64_t i);
/** The entry that a text of `tokens` (prompt and new tokens together) is run with; NULL: at most
 *  trained_length, the model is run unchanged. Borrowed. dpe_table_values(entry)->length below
 *  `tokens` means that the table does not reach so far. */
const struct dpe_table *dpe_table_choose(const struct dpe_table *table, int64_t tokens);
/** All entries of n tables, in any order, as one table, copied. DPE_TABLE_BAD_FILE names what two
 *  of them disagree on (model, trained length, groups), equal lengths, and, with several entries,
 *  one of at most the trained length. Windows, key pairs and temperatures may differ: a text is run
 *  with one entry. */
int dpe_table_join(const struct dpe_table *const *tables, int64_t n, struct dpe_table **joined,
                   char *message);

/* The following are about one entry. Of a table of several they mean the one of the largest length:
 * call them with what dpe_table_choose or dpe_table_entry returns. */

/** Borrowed for the table's life. */
const struct dpe_table_values *dpe_table_values(const struct dpe_table *table);

/** Scale of a pair in far positions of a query head: its group's factor, 1 when it is not a key
 * pair. Indices are the caller's duty. */
double dpe_table_scale(const struct dpe_table *table, int64_t layer, int64_t head, int64_t pair);

/** The factor on all logits of a layer of the query at `position` ≥ 0 (see above), 1/sqrt(head_dim)
 *  included. */
double dpe_table_query_scale(const struct dpe_table *table, int64_t layer, int64_t position);

/** The bands of a table without `bands`; of one with them, (enum dpe_table_band)i is band i. */
enum dpe_table_band { DPE_TABLE_NEAR, DPE_TABLE_FAR };
/** The band in which query m meets key n, 0 ≤ n ≤ m; −1: m does not see n. */
int dpe_table_band_of(const struct dpe_table *table, int64_t m, int64_t n);
enum dpe_table_side { DPE_TABLE_QUERY, DPE_TABLE_KEY };
/** The position at which a token at `position` is rotated. */
double dpe_table_position(const struct dpe_table *table, int64_t layer, int64_t head, int64_t pair,
                          enum dpe_table_band band, enum dpe_table_side side, int64_t position);
/** Cosines and sines for tokens first … first+count−1: cos and sin [count][n_pairs]. The angle is
 *  float32(position) * float32(inv_freq), as Hugging Face code computes it; attention_scaling is
 * not in it. */
void dpe_table_cos_sin(const struct dpe_table *table, int64_t layer, int64_t head,
                       enum dpe_table_band band, enum dpe_table_side side, int64_t first,
                       int64_t count, float *cos, float *sin);

/** Whether the values have a temperature: any of its numbers changes a logit. */
int dpe_table_has_temperature(const struct dpe_table_values *values);
/** Whether they are the plan of another method than DPE (unrounded, or rotations other than
 *  inv_freq). */
int dpe_table_has_method(const struct dpe_table_values *values);
/** Whether a runtime needs an adapter for them: no, where only a factor for each pair and a
 * constant on the logits are left of what this header says (for a model whose layers all move). */
int dpe_table_needs_adapter(const struct dpe_table_values *values);
enum { DPE_TABLE_EVIDENCE = 640 };
/** What else is known of how an entry was made, "N WORDS, N WORDS"; "" where nothing is. Returns
 * the buffer. */
const char *dpe_table_facts(const struct dpe_table_values *values, char text[DPE_TABLE_EVIDENCE]);
/** The evidence of an entry as a line: what is found with it, of what is possible, without it and
 * by the best other method; "" without evidence. Returns the buffer. */
const char *dpe_table_evidence(const struct dpe_table_values *values,
                               char text[DPE_TABLE_EVIDENCE]);
/** Check values that come from elsewhere by the rules of dpe_table_open. */
int dpe_table_check(const struct dpe_table_values *values, char *message);
/** Wrap values (checked, deep-copied) as a table, as if they had been read. */
int dpe_table_make(const struct dpe_table_values *values, struct dpe_table **table, char *message);

#ifdef __cplusplus
}
#endif
#endif
