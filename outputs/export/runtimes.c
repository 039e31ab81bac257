/* The runtimes: what each does otherwise than its first row; a configuration as all of them read
 * it, and where they differ. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/config/family.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "engine/system/folder.h"
#include "engine/text/json.h"
#include "outputs/export/runtime_read.h"
#include "outputs/export/runtimes.h"

#define SEVEN " default linear dynamic yarn longrope llama3 proportional "

/* What the versions of a runtime share. */
// clang-format off
#define VLLM \
    .class_defaults = true, \
    .types_agree = true, \
    .phi3_names = true, \
    .null_refused = true, \
    .mscales = true, \
    .of_lengths = true, \
    .long_at_start = true, \
    .dynamic = DPE_DYNAMIC_FLAT, \
    .alpha = true, \
    .proportional = true, \
    .growth = DPE_GROWTH_OWN, \
    .longest = DPE_LONGEST_VLLM
#define EXLLAMAV3 \
    .types = " default linear yarn longrope su llama3 proportional ", \
    .outer_base_first = true, \
    .inner_length_first = true, \
    .fills_in = true, \
    .ratio = true, \
    .of_lengths = true, \
    .long_by_model = true
// clang-format on

static const struct dpe_runtime runtimes[] = {
    {
        .name = "transformers",
        .versions = "5.19",
        .known_by = "imported",
        .adapter = "dpe_transformers",
        .types = SEVEN,
        .class_defaults = true,
        .phi3_names = true,
        .growth = DPE_GROWTH_BLOCK,
    },
    {
        .name = "transformers",
        .versions = "4.57",
        .known_by = "imported",
        .older = true,
        .types = " default linear dynamic yarn longrope llama3 ",
        .no_models = " ministral3 ",
        .phi3_of_three = true,
        .old_block_alone = true,
        .inner_length_first = true,
        .outer_length_alone = true,
        .class_defaults = true,
        .old_type_first = true,
        .phi3_names = true,
        .null_refused = true,
    },
    {
        .name = "vLLM",
        .versions = "0.32",
        .known_by = "imported",
        .adapter = "dpe_vllm",
        .types = SEVEN "su deepseek_yarn telechat3-yarn ",
        VLLM,
    },
    {
        .name = "vLLM",
        .versions = "0.25",
        .known_by = "vllm#46280 and #48621, read 2026-11-26: yarn; the rest as 0.32",
        .older = true,
        .types = SEVEN "su deepseek_yarn ",
        VLLM,
        .no_attention_factor = true,
        .no_mscales = true,
        .attn_factor = true,
    },
    {
        .name = "SGLang",
        .versions = "main",
        .known_by = "source at 108c36c and 0b1fd02, read 2026-11-26",
        .types = SEVEN "deepseek_yarn ",
        .class_defaults = true,
        .phi3_names = true,
        .null_refused = true,
        .no_attention_factor = true,
        .attn_factor = true,
        .mscales = true,
        .of_lengths = true,
        .dynamic = DPE_DYNAMIC_FULL,
        .alpha = true,
        .proportional = true,
        .growth = DPE_GROWTH_OUTER,
        .longest = DPE_LONGEST_SGLANG,
    },
    {
        .name = "llama.cpp",
        .versions = "0c1e570",
        .known_by = "its converter imported; its loader and rotation read, of 2026-10-01",
        .reads_gguf = true,
        .types = " default linear yarn longrope su llama3 ",
        .unknown_plain = true,
        .new_block_first = true,
        .inner_length_first = true,
        .fills_in = true,
        .no_attention_factor = true,
        .no_mscales = true,
        .no_truncate = true,
        .of_lengths = true,
        .long_at_start = true,
        .lists_of_phi3 = true,
        .growth = DPE_GROWTH_BLOCK,
    },
    {
        .name = "MLX",
        .versions = "mlx-lm 0.32.2",
        .known_by = "imported",
        .types = SEVEN "deepseek_yarn telechat3-yarn ",
        .block_by_model = true,
        .inner_length_first = true,
        .old_type_first = true,
        .fills_in = true,
        .no_attention_factor = true,
        .mscale_each = true,
        .no_truncate = true,
        .null_refused = true,
        .of_lengths = true,
        .long_always = true,
        .growth = DPE_GROWTH_BLOCK,
    },
    {
        .name = "exllamav3",
        .versions = "1.4.1",
        .known_by = "source at 4f8ad01 of 2026-08-08, read, and its rotation run, 2026-11-26",
        EXLLAMAV3,
        .no_mscales = true,
        .growth = DPE_GROWTH_YARN,
    },
    {
        .name = "exllamav3",
        .versions = "1.0 to 1.2.1",
        .known_by = "exllamav3#259, read 2026-11-26",
        .older = true,
        EXLLAMAV3,
        .growth = DPE_GROWTH_BLOCK,
    },
};

enum { RUNTIMES = sizeof runtimes / sizeof runtimes[0] };

/* -------------------------------------------------------------- all readings of a configuration */

enum { MOST_CONFIG = 1 << 26, MOST_HEAD_DIM = 1 << 11 };
static const double MOST_POSITIONS = 0x1p40;

/* Whether a list of names joined by commas has this one. */
static bool listed(const char *which, const char *name)
{
    char all[160], one[40];
    snprintf(all, sizeof all, ",%s,", which);
    snprintf(one, sizeof one, ",%s,", name);
    return strstr(all, one) != NULL;
}

static bool chosen(const char *which, const struct dpe_runtime *row)
{
    return strcmp(which, "all") == 0 || (strcmp(which, "current") == 0 && !row->older) ||
           (!row->older && listed(which, row->name));
}

/* The list is of names, each once: together they are as long as it. */
static dpe_status check_names(const char *which, struct dpe_error *err)
{
    char known[160] = "";
    size_t n = 0;
    for (size_t i = 0; i < RUNTIMES; i++) {
        if (!runtimes[i].older) {
            dpe_append(known, sizeof known, ", %s", runtimes[i].name);
            n += listed(which, runtimes[i].name) ? strlen(runtimes[i].name) + 1 : 0;
        }
    }
    return strcmp(which, "all") == 0 || strcmp(which, "current") == 0 || n == strlen(which) + 1
               ? DPE_OK
               : dpe_fail(err, DPE_USAGE,
                          "--runtimes: expected current, all, or names%s; found \"%.60s\"",
                          known + 1, which);
}

/* The components of a head that may rotate, 0: neither the file nor its class (`family`, may be
 * NULL) says. */
static int64_t find_head_dim(const json_t *config, const struct dpe_family *family)
{
    int64_t latent = json_integer_value(json_object_get(config, "qk_rope_head_dim"));
    int64_t own = json_integer_value(json_object_get(config, "head_dim"));
    own = own == 0 && family != NULL ? family->defaults.head_dim : own;
    int64_t hidden = json_integer_value(json_object_get(config, "hidden_size"));
    int64_t heads = json_integer_value(json_object_get(config, "num_attention_heads"));
    int64_t dim = latent > 0 ? latent : own > 0 ? own : heads > 0 ? hidden / heads : 0;
    return dim > 0 && dim <= MOST_HEAD_DIM ? dim - dim % 2 : 0;
}

/* What all runtimes read from; config is borrowed. `trained`: the length where neither the file nor
 * the class has one. */
static dpe_status find_source(const char *file, const json_t *root, int64_t trained, int64_t length,
                              struct dpe_runtime_source *source, struct dpe_error *err)
{
    const json_t *inner = json_object_get(root, "text_config");
    const char *whole = json_string_value(json_object_get(root, "model_type"));
    const char *part = json_string_value(json_object_get(inner, "model_type"));
    const struct dpe_family *family = whole != NULL ? dpe_family_find(whole) : NULL;
    if (json_is_object(inner) && part == NULL && family != NULL) {
        part = family->text;
    }
    family = part != NULL ? dpe_family_find(part) : NULL;
    bool inside = json_is_object(inner) && find_head_dim(inner, family) > 0;
    const json_t *config = inside ? inner : root;
    const char *type = inside ? part : whole;
    family = type != NULL ? dpe_family_find(type) : NULL;
    const json_t *position = json_object_get(config, "max_position_embeddings");
    source->config = config;
    source->model_type = type != NULL ? type : "";
    source->head_dim = find_head_dim(config, family);
    const int64_t own = family != NULL ? family->defaults.max_position : 0;
    source->max_position =
        position == NULL ? (double)(own > 0 ? own : trained) : json_number_value(position);
    if (source->head_dim < 2) {
        return dpe_fail(
            err, DPE_BAD_DATA,
            "%s: expected head_dim, or hidden_size and num_attention_heads, of at most %d "
            "components a head",
            file, MOST_HEAD_DIM);
    }
    if (!(source->max_position >= 2.0 && source->max_position <= MOST_POSITIONS)) {
        return dpe_fail(
            err, DPE_BAD_DATA,
            "%s: max_position_embeddings: expected a number from 2, or --trained-length", file);
    }
    source->length = length > 0 ? length : (int64_t)source->max_position;
    return DPE_OK;
}

static bool near(double a, double b)
{
    return a == b || fabs(a - b) <= 2e-6 * fmax(fabs(a), fabs(b));
}

/* Whether two runtimes compute the same for this text. */
static bool same(const struct dpe_reading *a, const struct dpe_reading *b, int64_t n_pairs)
{
    bool equal = (a->refused[0] == '\0') == (b->refused[0] == '\0');
    if (!equal || a->refused[0] != '\0') {
        return equal;
    }
    bool grown = near(a->growth, b->growth) &&
                 (a->growth == 0.0 || near(a->growth_length, b->growth_length));
    equal = near(a->factor, b->factor) && grown;
    for (int64_t j = 0; j < n_pairs && equal; j++) {
        equal = near(a->inv_freq[j], b->inv_freq[j]);
    }
    return equal;
}

static void compare(struct dpe_readings *readings)
{
    readings->agree = true;
    for (int i = 0; i < readings->n; i++) {
        struct dpe_reading *reading = &readings->of[i];
        int first = 0;
        while (first < i && !same(&readings->of[first], reading, readings->n_pairs)) {
            first++;
        }
        reading->kind = first < i ? readings->of[first].kind : readings->n_kinds++;
        readings->agree = readings->agree && reading->refused[0] == '\0' && reading->kind == 0;
    }
}

/* The readings of a configuration, `gguf` as in struct dpe_runtime_source. */
static dpe_status read_all(const char *file, const json_t *root, const struct dpe_config *gguf,
                           const char *which, int64_t trained, int64_t length,
                           struct dpe_readings *readings, struct dpe_error *err)
{
    struct dpe_runtime_source source = {.gguf = gguf};
    DPE_TRY(check_names(which, err));
    DPE_TRY(find_source(file, root, trained, length, &source, err));
    int n = 0;
    for (size_t i = 0; i < RUNTIMES; i++) {
        n += chosen(which, &runtimes[i]);
    }
    readings->n_pairs = source.head_dim / 2;
    readings->length = source.length;
    readings->gguf = gguf != NULL;
    const bool known = dpe_family_find(source.model_type) != NULL;
    snprintf(readings->unknown, sizeof readings->unknown, known ? "%.0s" : "model_type \"%.60s\"",
             source.model_type);
    DPE_TRY(
        DPE_NEW(&readings->of, (size_t)n, err, "out of memory for the readings of %d runtimes", n));
    DPE_TRY(DPE_NEW(&readings->numbers, (size_t)(n * readings->n_pairs), err,
                    "out of memory for the readings of %d runtimes", n));
    for (size_t i = 0; i < RUNTIMES; i++) {
        if (chosen(which, &runtimes[i])) {
            struct dpe_reading *reading = &readings->of[readings->n];
            reading->runtime = &runtimes[i];
            reading->inv_freq = readings->numbers + readings->n * readings->n_pairs;
            dpe_runtime_read(&source, reading);
            readings->n++;
        }
    }
    compare(readings);
    return DPE_OK;
}

dpe_status dpe_readings_make(const char *file, const char *json, size_t n, const char *which,
                             int64_t trained, int64_t length, struct dpe_readings *readings,
                             struct dpe_error *err)
{
    json_auto_t *root = NULL;
    *readings = (struct dpe_readings){0};
    DPE_TRY(dpe_json_parse(file, json, n, &root, err));
    return read_all(file, root, NULL, which, trained, length, readings, err);
}

/* A GGUF file as the config.json that says the same. */
static dpe_status open_gguf(const char *path, const char *which, int64_t trained, int64_t length,
                            struct dpe_readings *readings, struct dpe_error *err)
{
    const struct dpe_model_options options = {.config_only = true, .trained_length = trained};
    DPE_SCOPED(dpe_model_close_scoped) struct dpe_model *model = NULL;
    json_auto_t *root = NULL;
    DPE_TRY(dpe_model_open(path, &options, &model, err));
    const char *json = dpe_model_config_json(model);
    DPE_TRY(dpe_json_parse(path, json, strlen(json), &root, err));
    return read_all(path, root, dpe_model_config(model), which, trained, length, readings, err);
}

dpe_status dpe_readings_open(const char *path, const char *which, int64_t trained, int64_t length,
                             struct dpe_readings *readings, struct dpe_error *err)
{
    DPE_OWNED char *bytes = NULL;
    size_t n = 0;
    *readings = (struct dpe_readings){0};
    if (dpe_folder_is_gguf(path)) {
        return open_gguf(path, which, trained, length, readings, err);
    }
    const bool folder = dpe_is_folder(path);
    DPE_OWNED char *inside = folder ? dpe_folder_join(path, "config.json") : strdup(path);
    DPE_TRY(DPE_MADE(inside, err, "out of memory"));
    DPE_TRY(dpe_read_file(inside, MOST_CONFIG, &bytes, &n, err));
    return dpe_readings_make(inside, bytes, n, which, trained, length, readings, err);
}

const char *dpe_reading_notes(const struct dpe_reading *reading, char text[DPE_READING_ALL_NOTES])
{
    text[0] = '\0';
    for (int k = 0; k < reading->n_notes; k++) {
        dpe_append(text, DPE_READING_ALL_NOTES, "%s%s", k > 0 ? "; " : "", reading->notes[k]);
    }
    return text;
}

void dpe_readings_free(struct dpe_readings *readings)
{
    free(readings->of);
    free(readings->numbers);
    *readings = (struct dpe_readings){0};
}

/* What the engine computes, as a reading to compare with. False: it computes nothing. */
static bool read_own(const struct dpe_config *config, int64_t length, struct dpe_reading *own)
{
    own->growth = config->growth_still ? 0.0 : config->query_growth;
    own->growth_length = config->query_length;
    return dpe_rope_native(config, length, own->inv_freq, &own->factor, NULL) == DPE_OK;
}

/* Puts the names of those that differ from `own` at the end of `names`, once each. */
static void name_others(const struct dpe_readings *readings, const struct dpe_reading *own,
                        char names[128], char why[DPE_READING_TEXT])
{
    for (int i = 0; i < readings->n; i++) {
        const struct dpe_reading *reading = &readings->of[i];
        size_t used = strlen(names);
        if (strstr(names, reading->runtime->name) != NULL ||
            same(reading, own, readings->n_pairs)) {
            continue;
        }
        snprintf(names + used, 128 - used, "%s%s", used > 0 ? ", " : "", reading->runtime->name);
        if (why[0] == '\0') {
            snprintf(why, DPE_READING_TEXT, "%.200s",
                     reading->refused[0] != '\0' ? reading->refused
                     : reading->n_notes > 0      ? reading->notes[0]
                                                 : "computes other numbers");
        }
    }
}

const char *dpe_runtimes_differ(const struct dpe_model *model, char text[DPE_RUNTIMES_DIFFER])
{
    const struct dpe_config *config = dpe_model_config(model);
    const char *json = dpe_model_config_json(model);
    const int64_t lengths[] = {2, 4 * config->max_position};
    /* Not known of classes whose rotation is not in their config.json alone: an alpha, heads of
     * several sizes. */
    const int n = dpe_config_mixed(config) || config->late_norms ? 0 : 2;
    char names[128] = "", why[DPE_READING_TEXT] = "";
    struct dpe_reading own = {.inv_freq = dpe_alloc_zero((size_t)config->head_dim, sizeof(double))};
    text[0] = '\0';
    for (int i = 0; i < n && own.inv_freq != NULL && dpe_model_types(model) == NULL; i++) {
        DPE_SCOPED(dpe_readings_free) struct dpe_readings readings = {0};
        if (read_own(config, lengths[i], &own) &&
            dpe_readings_make("config.json", json, strlen(json), "current", config->max_position,
                              lengths[i], &readings, NULL) == DPE_OK) {
            name_others(&readings, &own, names, why);
        }
    }
    free(own.inv_freq);
    if (names[0] != '\0') {
        snprintf(text, DPE_RUNTIMES_DIFFER, "%s (the first: %s); --runtimes current shows it",
                 names, why);
    }
    return text;
}
