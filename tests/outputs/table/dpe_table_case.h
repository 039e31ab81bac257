/**
 * @file dpe_table_case.h
 * Tables that the tests of the consumer library make: one entry with and without a temperature, and
 * a table of three entries.
 */
#ifndef DPE_TABLE_CASE_H
#define DPE_TABLE_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "outputs/table/dpe_table.h"
#include "outputs/table/fields.h"

enum { LAYERS = 2, HEADS = 4, KV_HEADS = 2, PAIRS = 8, GROUPS = 3 };

static int32_t edges[GROUPS + 1] = {0, 2, 5, 8};
static double scales[GROUPS] = {1.0, 4.0, 7.0};
static double effective[GROUPS] = {4096.0, 1024.0, -1.0};
static double inv_freq[PAIRS];
static uint8_t mask[LAYERS * HEADS * PAIRS];

static inline struct dpe_table_values good(void)
{
    for (int j = 0; j < PAIRS; j++) {
        inv_freq[j] = pow(10000.0, -(double)j / PAIRS);
    }
    for (int row = 0; row < LAYERS * HEADS; row++) {
        for (int j = 0; j < PAIRS; j++) {
            mask[row * PAIRS + j] = (row + j) % PAIRS < 5;
        }
    }
    struct dpe_table_values v = {
        .schema_version = (char *)(uintptr_t)DPE_TABLE_SCHEMA,
        .model_type = (char *)(uintptr_t) "llama",
        .model_fingerprint = (char *)(uintptr_t) "00ff",
        .n_layers = LAYERS,
        .n_heads = HEADS,
        .n_kv_heads = KV_HEADS,
        .head_dim = 2 * PAIRS,
        .n_pairs = PAIRS,
        .trained_length = 256,
        .length = 4096,
        .window = 30,
        .top_k = 5,
        .n_groups = GROUPS,
        .group_edge = edges,
        .effective_length = effective,
        .scale_factor = scales,
        .inv_freq = inv_freq,
        .attention_scaling = 1.0,
        .mask = mask,
    };
    for (size_t i = 0; i < dpe_n_table_fields; i++) {
        const struct dpe_table_field *field = &dpe_table_fields[i];
        if (field->part == DPE_PART_TEMPERATURE) {
            dpe_field_set(field, (char *)&v + field->at, 0, field->absent);
        }
    }
    return v;
}

/* The same with a temperature. */
static inline struct dpe_table_values warm(void)
{
    static double heads[LAYERS * HEADS];
    struct dpe_table_values v = good();
    for (int i = 0; i < LAYERS * HEADS; i++) {
        heads[i] = i % 4 == 1 ? 1.0 / (i + 2) : 1.0;
    }
    v.head_scale = heads;
    v.logit_scale = 1.3;
    v.far_scale = 1.15;
    v.logit_scale_first = 0.7;
    v.logit_scale_middle = 1.6;
    v.logit_scale_last = 1.2;
    v.log_n_length = 40.0;
    v.log_n_power = 0.7;
    v.log_n_decay = 1.0 / 3.0;
    return v;
}

/* The same with what was measured. */
static inline struct dpe_table_values measured(void)
{
    struct dpe_table_values v = warm();
    v.evidence_task = (char *)(uintptr_t) "needles: 4 keys of one value";
    v.evidence_score = 0.93;
    v.evidence_low = 0.885;
    v.evidence_high = 1.0 / 1.03;
    v.evidence_samples = 40;
    v.evidence_unchanged = 0.0;
    v.evidence_possible = -1.0;
    v.evidence_rival = (char *)(uintptr_t) "yarn:scale=4";
    v.evidence_rival_score = 0.61;
    v.evidence_tokens = 3141592653;
    return v;
}

/* With the plan of another method: both of what one can have. */
static inline struct dpe_table_values other(void)
{
    static double applied[PAIRS];
    struct dpe_table_values v = warm();
    v.unrounded = 1;
    for (int j = 0; j < PAIRS; j++) {
        applied[j] = inv_freq[j] / (1.0 + j / 3.0);
    }
    v.applied_inv_freq = applied;
    return v;
}

static inline void expect_same(const struct dpe_table_values *a, const struct dpe_table_values *b)
{
    assert_string_equal(a->schema_version, b->schema_version);
    assert_string_equal(a->model_type, b->model_type);
    assert_string_equal(a->model_fingerprint, b->model_fingerprint);
    assert_true(a->n_layers == b->n_layers && a->n_heads == b->n_heads &&
                a->n_kv_heads == b->n_kv_heads && a->head_dim == b->head_dim);
    assert_int_equal(a->n_groups, b->n_groups);
    for (size_t i = 0; i < dpe_n_table_fields; i++) {
        const struct dpe_table_field *field = &dpe_table_fields[i];
        const void *own = dpe_field_data(field, a), *other_own = dpe_field_data(field, b);
        const size_t n = field->type == DPE_FIELD_TEXT && own != NULL ? strlen(own) + 1
                                                                      : dpe_field_count(field, a);
        assert_int_equal(own == NULL, other_own == NULL);
        if (own != NULL) {
            assert_memory_equal(own, other_own, n * dpe_field_size(field));
        }
    }
    assert_int_equal(a->applied_inv_freq == NULL, b->applied_inv_freq == NULL);
}

/* ------------------------------------------------------------------------ several entries */

/* Entry `i` of three: 1024, 2048, 4096 tokens, each with its own window, scales, pairs,
 * temperature.
 */
static inline struct dpe_table *rung(int i)
{
    static double own_scales[3][GROUPS] = {{1.0, 1.0, 2.0}, {1.0, 2.0, 4.0}, {1.0, 4.0, 7.0}};
    struct dpe_table_values v = i == 1 ? measured() : good();
    struct dpe_table *table = NULL;
    v.length = INT64_C(1024) << i;
    v.window = 30 + i;
    v.scale_factor = own_scales[i];
    if (i == 2) {
        v.top_k = PAIRS;
        memset(mask, 1, sizeof mask);
    }
    assert_int_equal(dpe_table_make(&v, &table, NULL), DPE_TABLE_OK);
    return table;
}

static inline struct dpe_table *ladder(void)
{
    /* In any order. */
    struct dpe_table *rungs[3] = {rung(2), rung(0), rung(1)};
    struct dpe_table *table = NULL;
    char why[DPE_TABLE_MESSAGE] = "";
    if (dpe_table_join((const struct dpe_table *const *)rungs, 3, &table, why) != DPE_TABLE_OK) {
        fail_msg("%s", why);
    }
    for (int i = 0; i < 3; i++) {
        dpe_table_close(rungs[i]);
    }
    return table;
}

static inline void expect_ladder(const struct dpe_table *table)
{
    assert_int_equal(dpe_table_count(table), 3);
    for (int i = 0; i < 3; i++) {
        struct dpe_table *want = rung(i);
        struct dpe_table_values values = *dpe_table_values(want);
        expect_same(&values, dpe_table_values(dpe_table_entry(table, i)));
        dpe_table_close(want);
    }
    /* What is asked of the whole is asked of the longest. */
    assert_ptr_equal(dpe_table_values(table)->mask,
                     dpe_table_values(dpe_table_entry(table, 2))->mask);
    assert_true(dpe_table_scale(table, 0, 0, PAIRS - 1) == 7.0);
}

#endif
